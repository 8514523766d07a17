# SPDX-License-Identifier: LGPL-2.1-or-later
"""TLS without the tls probe: the counts of servers are compared with those of their clients."""

import os
import socket
import ssl
import struct

import h2.connection
import h2.events

import scenario
from scenario import (MSEC, Cable, Unit, attach, check, equal, expect_total, lookup, nsenter, run, server_figures,
                      snapshot, systemctl, test, total, unused_port, wait_for)

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
IDLE_SEC = 2


class Nginx(Unit):
    """nginx with one port for each version of TLS, which closes connections that are idle."""

    def __init__(self, certificates=False, http2=False, label="tls", curve="auto", root="", cable=None, idle=IDLE_SEC):
        self.directory = f"/run/{scenario.prefix}-{label}"
        os.makedirs(self.directory, exist_ok=True)
        self.key, self.certificate = f"{self.directory}/key", f"{self.directory}/certificate"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
            "-days", "2", "-subj", "/CN=localhost", timeout=60)
        self.ports = {version: unused_port() for version in VERSIONS}
        with open(f"{self.directory}/large", "wb") as f:
            f.write(b"x" * 200000)
        verify = f"ssl_verify_client on; ssl_client_certificate {self.certificate};" if certificates else ""
        address = cable.address_b if cable else "127.0.0.1"
        servers = "".join(f"server {{ listen {address}:{port} ssl; ssl_protocols {version}; root {self.directory};\n"
                          f"location /small {{ return 200 small; }} location /bad {{ return 503 bad; }} {root} }}\n"
                          for version, port in self.ports.items())
        with open(f"{self.directory}/conf", "w") as f:
            f.write(f"worker_processes 2; pid {self.directory}/pid; error_log {self.directory}/error info; user "
                    f"root;\nevents {{}}\n"
                    f"http {{ access_log off; http2 {'on' if http2 else 'off'}; sendfile on; keepalive_timeout "
                    f"{idle}s; keepalive_requests 100000;\n"
                    f"ssl_certificate {self.certificate}; ssl_certificate_key {self.key}; ssl_ecdh_curve {curve}; "
                    f"{verify}\n{servers} }}\n")
        self.netns = cable.b if cable else None
        super().__init__(f"/usr/sbin/nginx -c {self.directory}/conf -g 'daemon off;'", type="exec",
                         settings=f"NetworkNamespacePath=/run/netns/{self.netns}" if cable else "")

    def listens(self):
        wait_for("it listens", lambda: all(str(p) in run(*nsenter(self.netns), "ss", "-ltnH", f"sport = :{p}").stdout
                                           for p in self.ports.values()))

    def given_up(self):
        """Returns the number of handshakes that clients have aborted, according to the error log."""
        with open(f"{self.directory}/error") as f:
            return sum("peer closed connection in SSL handshake" in line for line in f)

    def connect(self, version, certificate=False, offers=None, name=None):
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        context.minimum_version = context.maximum_version = VERSIONS[version]
        if certificate:
            context.load_cert_chain(self.certificate, self.key)
        if offers:
            context.set_alpn_protocols(offers)
        s = context.wrap_socket(socket.create_connection(("127.0.0.1", self.ports[version]), timeout=30),
                                server_hostname=name)
        equal(s.version(), version, "version of TLS")
        return s


class Apache(Unit):
    """Apache with one port for each version of TLS. mod_ssl reads up to 8,000 bytes at a time from the socket, whatever
    size OpenSSL requests."""

    listens, connect = Nginx.listens, Nginx.connect
    netns = None

    def __init__(self):
        self.directory = f"/run/{scenario.unit_name('apache', '')}"
        os.makedirs(f"{self.directory}/www")
        self.key, self.certificate = f"{self.directory}/key", f"{self.directory}/certificate"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
            "-days", "2", "-subj", "/CN=localhost", timeout=60)
        self.ports = {version: unused_port() for version in VERSIONS}
        with open(f"{self.directory}/www/small", "w") as f:
            f.write("small")
        modules = "".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"
                          for m in ("mpm_event", "authz_core", "socache_shmcb", "ssl", "http2"))
        hosts = "".join(f"Listen 127.0.0.1:{port}\n<VirtualHost 127.0.0.1:{port}>\nSSLEngine on\nSSLProtocol -all "
                        f"+{version}\n"
                        f"SSLCertificateFile {self.certificate}\nSSLCertificateKeyFile {self.key}\n</VirtualHost>\n"
                        for version, port in self.ports.items())
        with open(f"{self.directory}/conf", "w") as f:
            f.write(f"{modules}ServerName localhost\nUser www-data\nGroup www-data\nPidFile {self.directory}/pid\n"
                    f"DefaultRuntimeDir {self.directory}\nMutex file:{self.directory}\nErrorLog "
                    f"{self.directory}/error\n"
                    f"LogFormat %H line\nCustomLog {self.directory}/access line\nDocumentRoot {self.directory}/www\n"
                    f"SSLSessionCache shmcb:{self.directory}/sessions(512000)\nProtocols h2 http/1.1\nServerLimit "
                    f"2\nStartServers 2\n{hosts}")
        super().__init__(f"/usr/sbin/apache2 -f {self.directory}/conf -DFOREGROUND", type="exec",
                         settings="SuccessExitStatus=TERM KILL 143")

    def logged(self):
        with open(f"{self.directory}/access") as f:
            return len(f.readlines())


def reset(s):
    """Ends the connection with a reset."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def farewell(s):
    try:
        s.unwrap()
    except OSError:
        pass # the server need not send a close_notify of its own
    s.close()


def ask(s, path="/small", size=5):
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = s.recv(65536)
        check(part, "the server closed the connection")
        head += part
    body = len(head.split(b"\r\n\r\n", 1)[1])
    while body < size:
        body += len(s.recv(65536))
    equal(body, size, "size of the response")


def served(**options):
    u = Nginx(**options)
    attach(u)
    u.start()
    u.listens()
    return u


def is_clean(unit, count, aborts=0):
    """Checks that all requests are exchanges of TLS, and that nothing but aborted handshakes is in clientAborts.
    Returns the figures."""
    expect_total(unit, count)
    equal(total(unit, "requests.server.protocols.tls"), count, "protocols.tls")
    f = wait_for("nothing is in flight", lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(unit)))
    equal(f["latency"]["count"], count, "latency.count")
    equal((f["clientAborts"], f["errors"]["reset"]), (aborts, 0),
          "connections that ended during a request or a handshake")
    return f


@test(vm="nightly")
def http2_overlaps():
    """The number of HTTP/2 requests in TLS is unknown: quality is overlapping and there is no count, also with one
    stream at a time."""
    for version in VERSIONS:
        for streams in (1, 100):
            u = served(http2=True)
            run("h2load", "-n", "400", "-c", "2", "-m", str(streams), f"https://127.0.0.1:{u.ports[version]}/small",
                timeout=60)
            with u.connect(version, offers=["h2", "http/1.1"], name="localhost") as s:
                equal(s.selected_alpn_protocol(), "h2", "protocol")
            r = wait_for("quality is overlapping",
                         lambda: (r := scenario.snapshot(u)["requests"]).get("quality") == "overlapping" and r)
            check("count" not in r["server"], f"a count with {streams} streams and {version}: {r['server']}")
            u.stop()


class Streams:
    """An HTTP/2 client with one connection. The requests of one call of ask() are in one TLS record."""

    def __init__(self, s):
        self.s, self.client = s, h2.connection.H2Connection()
        self.client.initiate_connection()
        self.say()

    def say(self):
        self.s.sendall(self.client.data_to_send())

    def ask(self, number):
        for _ in range(number):
            self.client.send_headers(self.client.get_next_available_stream_id(), [
                (":method", "GET"), (":path", "/small"), (":scheme", "https"), (":authority", "localhost"),
                ("user-agent", "scenario")], end_stream=True)
        self.say()
        while number > 0:
            number -= sum(isinstance(e, h2.events.StreamEnded) for e in self.client.receive_data(self.s.recv(65536)))
            self.say()


@test()
def http2_among_many_others():
    """A connection with overlapping streams is in unparsed, and requests of other connections are still counted."""
    for version in VERSIONS:
        u = served(http2=True)
        run("h2load", "--h1", "-n", "2000", "-c", "4", f"https://127.0.0.1:{u.ports[version]}/small", timeout=60)
        expect_total(u, 2000)
        with u.connect(version, offers=["h2"], name="localhost") as s:
            client = Streams(s)
            for _ in range(3):
                client.ask(100)
        r = wait_for("the connection is unparsed",
                     lambda: (r := scenario.snapshot(u)["requests"])["server"]["unparsed"]["connections"] == 1 and r)
        equal((r["server"]["count"], r["server"]["latency"]["count"]), (2000, 2000), f"counts with {version}")
        check(r["server"]["unparsed"]["bytes"] > 0 and r["quality"] in ("exchanges", "partial"), f"with {version}: {r}")
        u.stop()


@test()
def http2_idle():
    """A WINDOW_UPDATE that the client sends after the response is no request: nothing is in flight on the idle
    connection."""
    u = served(http2=True)
    for version in VERSIONS:
        with u.connect(version, offers=["h2"], name="localhost") as s:
            client = Streams(s)
            for _ in range(3):
                client.ask(1)
                # The WINDOW_UPDATE is in a record of its own
                client.client.increment_flow_control_window(1000)
                client.say()
                f = wait_for("nothing is in flight", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
                check("oldestInFlight" not in f, f"in flight: {f}")
    f = wait_for("they are closed", lambda: (f := server_figures(u))["connections"]["open"] == 0 and f)
    equal((f["clientAborts"], f["errors"]["reset"]), (0, 0), "connections that ended during a request")


NODE = """
const http2 = require('http2');
function ask(left) {
  if (left == 0)
    return;
  const client = http2.connect('https://127.0.0.1:' + process.argv[2], { rejectUnauthorized: false });
  const request = client.request({ ':path': '/small' });
  client.on('close', () => ask(left - 1));
  request.on('end', () => client.close()).resume().end();
}
ask(20);
"""


@test(deadline=60)
def http2_ends_in_order():
    """curl and Node end a connection with a GOAWAY, of different lengths. The length of its record may be that of a
    request, but it counts neither as an error nor as an abort."""
    u = served(http2=True)
    script = f"{u.directory}/ask.js"
    with open(script, "w") as f:
        f.write(NODE)
    for i, port in enumerate(u.ports.values()):
        for _ in range(20):
            run("curl", "-sk", "--http2", "-o", "/dev/null", f"https://127.0.0.1:{port}/small")
        run("node", script, port)
        f = wait_for("they are closed",
                     lambda: (f := server_figures(u))["connections"]["open"] == 0 and f["inFlight"] == 0 and f)
        equal(f["connections"]["accepted"], 40 * (i + 1), "connections.accepted")
        equal((f["clientAborts"], f["errors"]["reset"]), (0, 0), "connections that ended during a request")


def hanging(u, version, **options):
    """Opens a connection with a request that gets no response, after one that does."""
    s = u.connect(version, **options)
    ask(s)
    s.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return s


def given_up_and_broken_off(begin):
    """An HTTP/1 request without a response is an abort if the client ends the connection, and a reset if the server
    does."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as nobody:
        nobody.settimeout(20 * scenario.patience())
        u = Nginx(root=f"location /hang {{ proxy_pass http://127.0.0.1:{nobody.getsockname()[1]}; }}")
        begin(u)
        aborts = 0
        for version in VERSIONS:
            for options in {}, {"offers": ["http/1.1"], "name": "localhost"}:
                for end in reset, socket.socket.close:
                    s = hanging(u, version, **options)
                    wait_for("it is in flight", lambda: server_figures(u)["inFlight"] == 1)
                    # Before nginx has read it, as here for its proxy, the library knows of no request
                    upstream = nobody.accept()[0]
                    end(s)
                    aborts += 1
                    wait_for("the abort is counted", lambda: server_figures(u)["clientAborts"] == aborts)
                    upstream.close()
        held = [hanging(u, version) for version in VERSIONS]
        wait_for("they are in flight", lambda: server_figures(u)["inFlight"] == len(held))
        u.kill()
        f = wait_for("the resets are counted", lambda: (f := server_figures(u))["errors"]["reset"] == len(held) and f)
        equal((f["clientAborts"], f["inFlight"], f["count"]), (aborts, 0, aborts + len(held)),
              "clientAborts, inFlight, count")
        for s in held:
            s.close()


@test()
def http1_given_up_and_broken_off():
    def begin(u):
        attach(u)
        u.start()
        u.listens()

    given_up_and_broken_off(begin)


@test()
def http1_with_a_choice():
    """Requests of HTTP/1.1 are counted also when the client has offered HTTP/2 in ALPN."""
    u = served()
    for version in VERSIONS:
        for name in None, "localhost":
            s = u.connect(version, offers=["h2", "http/1.1"], name=name)
            equal(s.selected_alpn_protocol(), "http/1.1", "protocol")
            for _ in range(20):
                ask(s)
            farewell(s)
    is_clean(u, 80)


@test()
def handshake_and_farewell_are_no_requests():
    are_no_requests(served())


@test()
def greeted_twice():
    """A handshake with HelloRetryRequest, because the server requires another group than that of the client's key
    share, is no request."""
    are_no_requests(served(curve="secp521r1"))


def are_no_requests(u):
    n = 0
    for version in VERSIONS:
        for polite in (False, True):
            for i in range(10):
                s = u.connect(version)
                for _ in range(i % 4): # some connections have only a handshake
                    ask(s)
                    n += 1
                if i % 5 == 4:
                    ask(s, "/large", 200000)
                    n += 1
                if polite:
                    farewell(s)
                else:
                    s.close()
            is_clean(u, n)


@test()
def client_certificates():
    u = served(certificates=True)
    for version in VERSIONS:
        for _ in range(5):
            s = u.connect(version, certificate=True)
            ask(s)
            ask(s)
            s.close()
    is_clean(u, 20)


@test()
def idle_connections():
    """The close_notify by which the server ends an idle connection is no part of the last response."""
    u = served()
    for version in VERSIONS:
        s = u.connect(version)
        ask(s)
        equal(s.recv(1), b"", "what came when the connection was idle")
        s.close()
    f = is_clean(u, 2)
    check(f["latency"]["max"] < IDLE_SEC * 1000 * MSEC, f"the close_notify is in the latency: {f['latency']}")


@test()
def older_than_the_attach():
    # The programs may take longer to load than the others stay open
    u = Nginx(idle=60)
    u.start()
    u.listens()
    sockets = [u.connect(version) for version in VERSIONS]
    for s in sockets:
        ask(s)
    attach(u)
    for s in sockets:
        ask(s)
        ask(s)
        farewell(s)
    is_clean(u, 4)


@test()
def under_load():
    """All requests of wrk are counted; at its end each of its 8 connections may have one more."""
    u = served()
    for port in u.ports.values():
        before = total(u)
        out = run("wrk", "-t1", "-c8", "-d1s", f"https://127.0.0.1:{port}/small", timeout=60).stdout
        done = int([line for line in out.splitlines() if "requests in" in line][0].split()[0])
        wait_for("all connections are gone", lambda: lookup(server_figures(u), "connections.open") == 0)
        got = total(u) - before
        check(done <= got <= done + 8, f"{got} counted, wrk completed {done} and left at most 8")
        equal(total(u, "requests.server.protocols.tls"), total(u), "protocols.tls")
        equal(server_figures(u)["errors"]["reset"], 0, "errors.reset")


@test(deadline=60)
def on_a_bad_cable():
    """With lost, duplicated and reordered segments all requests are counted, on kept connections and on new ones."""
    cable = Cable(drop=10, duplicate=30, reorder=50, delay_us=300, seed=17)
    u = served(cable=cable)
    sent = 0
    for port in u.ports.values():
        for number, path, options in ((200, "small", ["-k"]), (60, "small", []), (20, "large", ["-k"])):
            out = run(*nsenter(cable.a), "ab", "-q", "-n", number, "-c", "10", *options,
                      f"https://{cable.address_b}:{port}/{path}", timeout=50).stdout
            check(f"Complete requests:      {number}\n" in out and "Failed requests:        0\n" in out,
                  f"output of ab: {out}")
            sent += number
    # ab may have started more handshakes than it needs, and aborts them when it has all responses
    is_clean(u, sent, aborts=u.given_up())
    check(cable.counter("TcpRetransSegs") > 0, "nothing was retransmitted")
    cable.cut()


@test(deadline=60)
def early_data():
    """Requests in early data (0-RTT) are counted, whether the server takes them, or refuses them and the client sends
    them behind the handshake."""
    early_data_with("requests", "tls")


def early_data_with(probes, protocol, ready=None):
    n, version = Nginx(label=f"early-{protocol}"), "TLSv1.3"
    with open(f"{n.directory}/conf") as f:
        conf = f.read()
    with open(f"{n.directory}/conf", "w") as f:
        f.write(conf.replace("http { ", "http { ssl_early_data on; ", 1))
    request, session, port = f"{n.directory}/request", f"{n.directory}/session", n.ports[version]
    with open(request, "w") as f:
        f.write("GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nUser-Agent: early\r\n\r\n")
    attach(n, f"--probes={probes}").start()
    n.listens()
    if ready:
        ready(n)

    def client(*options, stdin=request):
        r = run("sh", "-c", f"openssl s_client -connect 127.0.0.1:{port} -ign_eof {' '.join(options)} < {stdin}",
                ok=False)
        check("200 OK" in r.stdout, f"response: {r.stdout[-1000:]}")
        return r.stdout

    client("-sess_out", session)
    for number in range(10):
        said = client("-sess_in", session, "-early_data", request, stdin="/dev/null")
        check("Early data was accepted" in said, f"early data: {said[-1000:]}")
        expect_total(n, number + 2)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(n))["inFlight"] == 0 and f)
    equal((scenario.protocols(f), f["errors"]["reset"]), ({protocol: 11}, 0), "protocols, errors.reset")

    # It has other keys for sessions now
    systemctl("restart", n.name)
    n.listens()
    for number in range(10):
        said = client("-sess_in", session, "-early_data", request)
        check("Early data was rejected" in said, f"early data: {said[-1000:]}")
        expect_total(n, number + 12)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(n))["inFlight"] == 0 and f)
    equal((scenario.protocols(f), f["errors"]["reset"]), ({protocol: 21}, 0), "protocols, errors.reset")


@test(deadline=60)
def http3():
    """Requests over HTTP/3 are not counted, and quality says so: what their connections carry is unparsed. Those over
    TCP are counted."""
    size, requests, port = 200000, 20, unused_port()
    u = Nginx(label="http3")
    # Several workers would need a socket each
    with open(f"{u.directory}/conf", "w") as f:
        f.write(f"worker_processes 1; pid {u.directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                f"http {{ access_log off; ssl_certificate {u.certificate}; ssl_certificate_key {u.key};\n"
                f"server {{ listen 127.0.0.1:{port} ssl; listen 127.0.0.1:{port} quic; root {u.directory}; }} }}\n")
    u.ports = {"": port}
    attach(u).start()
    u.listens()
    url = f"https://127.0.0.1:{port}/large"
    run("ab", "-q", "-n", requests, "-c", 2, url)
    expect_total(u, requests)
    f = server_figures(u)
    equal((f["unparsed"]["bytes"], snapshot(u)["requests"]["quality"]), (0, "exchanges"),
          "unparsed bytes and quality without HTTP/3")
    before = f["bytesIn"] + f["bytesOut"]
    for n in 1, 2:
        for _ in range(5):
            out = run("curl", "-sk", "--http3-only", "-w", "%{http_version} %{size_download}", "-o", "/dev/null",
                      url).stdout
            equal(out, f"3 {size}", "version and size")
        f = server_figures(u)
        # Handshakes, headers and acknowledgements come with it; the client's first packets arrive before the server has
        # sent any
        check(5 * n * size < f["unparsed"]["bytes"] < 5 * n * size * 1.2, f"unparsed: {f['unparsed']}")
        equal(f["bytesIn"] + f["bytesOut"] - before, f["unparsed"]["bytes"], "unparsed bytes are part of all bytes")
        equal((f["count"], f["inFlight"], snapshot(u)["requests"]["quality"]), (requests, 0, "partial"),
              "count, in flight, quality")
