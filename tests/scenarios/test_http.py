# SPDX-License-Identifier: LGPL-2.1-or-later
"""HTTP/1.x: nginx and Apache, compared with their own counts, and a server with rare kinds of responses."""

import collections
import os
import random
import re
import socket
import ssl
import struct
import subprocess

import scenario
from scenario import (SOURCES, Cable, Unit, attach, check, equal, expect_total, nsenter, qosctl, run, server_figures,
                      smaller,
                      snapshot, systemctl, test, total, unused_port, wait_for)


class Http(Unit):
    """A server of HTTP, which is attached before it starts, so that qosd sees all of its requests."""

    def begin(self, attach_first):
        self.sent = 0
        if attach_first:
            attach(self)
        self.start()
        wait_for("the server listens",
                 lambda: str(self.port) in run(*nsenter(self.netns), "ss", "-ltnH", f"sport = :{self.port}").stdout)

    def connect(self):
        return Client(self.port)

    def expect(self, count, status4xx=0, status5xx=0, streams=0, what="", in_flight=0):
        """Checks the figures of the server, and that all of its requests were parsed as HTTP/1. Returns the figures."""
        expect_total(self, count, what=f"count {what}")
        f = wait_for(f"{in_flight} are in flight {what}",
                     lambda: (f := server_figures(self))["inFlight"] == in_flight and f)
        equal(scenario.protocols(f), {"http1": count}, f"protocols {what}")
        equal((f["status4xx"], f["errors"]["status5xx"], f["streams"]), (status4xx, status5xx, streams),
              f"4xx, 5xx, streams {what}")
        equal(f["errors"]["reset"], 0, f"errors.reset {what}")
        equal(f["latency"]["count"], count, f"latency.count {what}")
        equal(snapshot(self)["requests"]["quality"], "exact", f"quality {what}")
        return f


class Server(Http):
    def __init__(self):
        self.port, self.netns = unused_port(), None
        super().__init__(f"/usr/bin/python3 {SOURCES}/http_server.py {self.port}")
        self.begin(True)


class Nginx(Http):
    def __init__(self, attach_first=True, netns=None, log=False):
        self.port, self.netns = unused_port(), netns
        name = scenario.unit_name("nginx")
        self.directory = f"/run/{name}"
        os.makedirs(self.directory)
        with open(f"{self.directory}/file", "wb") as f:
            f.write(b"f" * 3000)
        with open(f"{self.directory}/large", "wb") as f:
            f.write(b"HTTP/1.1 500 No\r\n\r\n" * 20000)
        with open(f"{self.directory}/nginx.conf", "w") as f:
            f.write(f"worker_processes 2; pid {self.directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                    f"http {{ log_format line '$status $request_method $uri';\n"
                    f"access_log {f'{self.directory}/log line' if log else 'off'}; sendfile on; keepalive_requests "
                    "1000000; client_max_body_size 1m;\n"
                    f"server {{ listen {self.port}; root {self.directory};\n"
                    f" location /bad {{ return 503 'bad'; }} location /status {{ stub_status; }} }} }}\n")
        namespace = f"NetworkNamespacePath=/run/netns/{netns}" if netns else ""
        super().__init__(f"/usr/sbin/nginx -c {self.directory}/nginx.conf -g 'daemon off;'", name=name, type="exec",
                         settings="ExecReload=/bin/kill -HUP $MAINPID\nExecStopPost=/bin/rm -r "
                                  f"{self.directory}\n{namespace}")
        self.begin(attach_first)

    def logged(self):
        """Returns the number of requests in nginx's log by status, method and path ("200 GET /file")."""
        with open(f"{self.directory}/log") as f:
            return collections.Counter(line.rstrip("\n") for line in f)

    def requests(self):
        """Returns the number of requests that nginx counts, including the one that reads it."""
        with self.connect() as c:
            status, body = c.ask("GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        equal(status, 200, "status of /status")
        return int(re.search(rb"requests\s+\d+ \d+ (\d+)", body)[1])


class Client:
    def __init__(self, port, protocol=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def fill(self):
        data = self.socket.recv(65536)
        check(data, f"the connection ended after {self.buffer[-100:]}")
        self.buffer += data

    def take(self, n):
        while len(self.buffer) < n:
            self.fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def until(self, end):
        while end not in self.buffer:
            self.fill()
        n = self.buffer.index(end) + len(end)
        return self.take(n)

    def answer(self, bare=False):
        """Reads the next response. Returns its status and body."""
        head = self.until(b"\r\n\r\n").decode()
        status = int(head.split()[1])
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
        if bare or status < 200 or status in (204, 304):
            return status, b""
        if "chunked" in fields.get("transfer-encoding", ""):
            body = b""
            while size := int(self.until(b"\r\n").split(b";")[0], 16):
                body += self.take(size)
                self.take(2)
            while self.until(b"\r\n") != b"\r\n":
                pass
            return status, body
        if "content-length" in fields:
            return status, self.take(int(fields["content-length"]))
        body = self.buffer
        while data := self.socket.recv(65536):
            body += data
        return status, body

    def ask(self, data, bare=False):
        self.send(data)
        return self.answer(bare)


def get(path, method="GET", fields=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"


@test(deadline=60)
def pipelined():
    """Each request of a pipeline counts, with its status, whatever the length of the pipeline and the kind of its
    requests."""
    n = Nginx()
    seed = random.Random(3)
    sent = missing = bad = 0
    for at_once in list(range(1, 17)) + [60]:
        with n.connect() as c:
            for _ in range(smaller(20)):
                kinds = [seed.choice([("GET", "/file", 200), ("HEAD", "/large", 200), ("GET", "/none", 404),
                                      ("HEAD", "/none", 404),
                                      ("GET", "/large", 200)]) if seed.random() > .07 else ("GET", "/bad", 503)
                         for _ in range(at_once)]
                c.send("".join(get(path, method) for method, path, _ in kinds))
                for method, path, status in kinds:
                    equal(c.answer(method == "HEAD")[0], status, f"status of {method} {path}")
                    sent += 1
                    missing += status == 404
                    bad += status == 503
    f = n.expect(sent, missing, bad, what="of pipelined requests")
    equal(n.requests(), sent + 1, "requests by nginx's own count")
    check(f["answer"]["max"] > 0, "no response took any time to leave")
    errors = run("qosctl", "--no-pager", "status", n.name, "--window=total").stdout
    check(f"({bad} 5xx)" in errors and " 4xx\n" in errors, f"qosctl status does not show {bad} failures: {errors}")


@test(deadline=60)
def load():
    """Counts are those of ab with keep-alive and without, and failures are counted. A reload of nginx under load loses
    none."""
    n = Nginx()
    sent = 0
    for options in ("-k",), ("-k", "-i"), ():
        number = smaller(3000)
        out = run("ab", "-q", "-n", number, "-c", "16", *options, f"http://127.0.0.1:{n.port}/file", timeout=50).stdout
        equal(int(re.search(r"^Complete requests:\s+(\d+)", out, re.M)[1]), number, "requests that ab completed")
        sent += number
        n.expect(sent, what=f"with ab {options}")
    with n.connect() as c:
        for i in range(1000):
            status = 503 if i % 100 < 7 else 200
            equal(c.ask(get("/bad" if status == 503 else "/file"))[0], status, "status")
    sent += 1000
    n.expect(sent, status5xx=70, what="of which 7 % failed")
    p = subprocess.Popen(["ab", "-q", "-k", "-r", "-n", str(smaller(20000)), "-c", "8",
                          f"http://127.0.0.1:{n.port}/file"],
                         stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        before = total(n)
        systemctl("reload", n.name)
        wait_for("more were counted", lambda: total(n) > before or p.poll() is not None)
    out = p.communicate()[0]
    done, failed = (int(re.search(rf"^{w} requests:\s+(\d+)", out, re.M)[1]) for w in ("Complete", "Failed"))
    equal(done, smaller(20000), "requests that ab completed")
    # A worker that exits closes connections while the next request is on its way: ab repeats it
    got = total(n)
    check(sent + done - failed <= got <= sent + done, f"{got} counted, ab completed {done} and {failed} of them failed")
    check(set(scenario.protocols(server_figures(n))) == {"http1"}, "protocols")


@test()
def cut_anywhere():
    """Requests are parsed wherever their segments end, even if each byte is a segment."""
    s = Server()
    seed = random.Random(5)
    sent = missing = 0
    for first in (1, 2, 5, 1000):
        with s.connect() as c:
            for i in range(smaller(40)):
                status = seed.choice([200, 204, 304, 404])
                body = seed.choice(["", "GET / HTTP/1.1\r\n\r\n", "x" * 700])
                chunked = "".join("%x;a=b\r\n%s\r\n" % (len(p), p) for p in (body[:5], body[5:])
                                  if p) + "0\r\nA: b\r\n\r\n"
                method = seed.choice(["GET", "POST", "HEAD", "PATCH"])
                data = (get(f"/status/{status}", method) if method in ("GET", "HEAD") else
                        get(f"/status/{status}", method, f"cOnTeNt-LeNgTh: {len(body)}\r\n") + body
                        if seed.random() < .5 else
                        get(f"/status/{status}", method, "Transfer-Encoding: Chunked\r\n") + chunked).encode()
                if i > 0 and seed.random() < .2:
                    data = b"\r\n" + data.replace(b"Host: x\r\n", b"Host: x\r\nX-Folded: a\r\n b\r\n")
                while data:
                    n = first if i == 0 else seed.choice([1, 3, 10, 40, len(data)])
                    c.send(data[:n])
                    data = data[n:]
                equal(c.answer(method == "HEAD")[0], status, "status")
                sent += 1
                missing += status == 404
    s.expect(sent, missing, what="with requests cut anywhere")


@test(vm="nightly")
def bodies():
    """Requests count once whether bodies have a length, are chunked, end with the connection, or are absent, and
    whatever their size."""
    s = Server()
    sent = 0
    with s.connect() as c:
        for method, path, length in (("GET", "/size/5", 5), ("GET", "/size/0", 0), ("HEAD", "/size/5000", 0),
                                     ("GET", "/size/1000000", 1000000), ("GET", "/chunked/0", 0),
                                     ("GET", "/chunked/20", 19020),
                                     ("GET", "/size/5", 5)):
            equal(len(c.ask(get(path, method), method == "HEAD")[1]), length, f"length of the body of {path}")
            sent += 1
            s.expect(sent, what=f"after {method} {path}")
        for length in (1, 100000, 3000000):
            c.ask(get("/size/9", "PUT", f"Content-Length: {length}\r\n") + "x" * length)
            sent += 1
        s.expect(sent, what="with large requests")
    for length in (0, 10, 500000):
        with s.connect() as c:
            equal(len(c.ask(get(f"/close/{length}"))[1]), length, "length of a body that ends with the connection")
            sent += 1
    s.expect(sent, what="until the connection closes")


@test()
def long_responses_are_in_flight():
    """A request is in flight until the last byte of its response, however long the server takes for that."""
    s = Server()
    with s.connect() as c:
        c.send(get("/slow/2000") * 2)
        wait_for("both are in flight", lambda: server_figures(s)["inFlight"] == 2)
        wait_for("the first response has begun", lambda: server_figures(s)["count"] == 1)
        check(server_figures(s)["inFlight"] == 2, "a request is not in flight though its response is not complete")
        c.answer()
        wait_for("only the second request is in flight", lambda: server_figures(s)["inFlight"] == 1)
        c.answer()
        f = s.expect(2, what="with responses that take long")
        check(f["latency"]["max"] > 1_100_000_000, f"latency {f['latency']}")
        check(f["answer"]["max"] > 500_000_000, f"times of responses {f['answer']}")
    # A response that the server aborts is an error, and a request that the client aborts is not
    with s.connect() as c:
        c.send(get("/abort"))
        while c.socket.recv(1000):
            pass
    expect_total(s, 1, "requests.server.errors.reset")
    with s.connect() as c:
        c.send(get("/late/300"))
        wait_for("the request is in flight", lambda: server_figures(s)["inFlight"] == 1)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    expect_total(s, 1, "requests.server.clientAborts")
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    equal(total(s), 3, "count")


@test()
def responses_of_one_shape():
    """A response like the one before is known by its length: what differs is seen all the same, its end, its status,
    and the lack of a body."""
    s = Server()
    seed = random.Random(7)
    sent = missing = bad = 0
    with s.connect() as c:
        for _ in range(smaller(300)):
            path, method, status = seed.choice([("/page/50", "GET", 200), ("/page/51", "GET", 200),
                                                ("/page/50", "GET", 200), ("/page/700", "GET", 200),
                                                ("/page/0", "GET", 200), ("/page/50", "HEAD", 200),
                                                ("/page/50/70", "GET", 200), ("/status/404", "GET", 404),
                                                ("/status/503", "GET", 503), ("/status/304", "GET", 304)])
            equal(c.ask(get(path, method), method == "HEAD")[0], status, "status")
            sent += 1
            missing += status == 404
            bad += status == 503
        s.expect(sent, missing, bad, what="with pages of one shape and others")
        for i in range(4):
            c.ask(get("/page/50"))
            c.send(get("/halves/50"))
            c.until(b"\r\n\r\n")
            equal(server_figures(s)["inFlight"], 1, f"in flight, in the middle of response {i}")
            c.take(50)
            sent += 2
        f = s.expect(sent, missing, bad, what="with halves")
        check(f["answer"]["max"] > 400_000_000, f"times of responses {f['answer']}")
        for _ in range(3):
            c.ask(get("/event"))
        s.expect(sent + 3, missing, bad, streams=3, what="with streams of known length")


@test()
def interim_and_early_responses():
    """Interim responses do not end a request, and a response before the end of the request's body counts for that
    request."""
    s = Server()
    sent = 0
    with s.connect() as c:
        for _ in range(10):
            c.send(get("/size/3", "POST", "Content-Length: 20000\r\nExpect: 100-continue\r\n"))
            equal(c.answer()[0], 103, "status")
            equal(c.answer()[0], 100, "status")
            equal(server_figures(s)["inFlight"], 1, "in flight, before the body")
            equal(total(s), sent, "count, before the body")
            c.send("x" * 20000)
            equal(c.answer()[0], 200, "status")
            sent += 1
            expect_total(s, sent)
        f = s.expect(10, what="with interim responses")
        check(f["receive"]["max"] > 0, "the body took no time to arrive")
        for _ in range(10):
            c.send(get("/early", "POST", "Content-Length: 20000\r\n"))
            equal(c.answer()[0], 413, "status")
            sent += 1
            wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
            c.send("x" * 19999)
            equal(server_figures(s)["inFlight"], 0, "in flight, during the rest of the body")
            c.send("x")
            equal(c.ask(get("/status/200"))[0], 200, "status")
            sent += 1
        s.expect(30, 10, what="with early responses")
    with s.connect() as c:
        c.send(get("/early-close", "POST", "Content-Length: 20000\r\n") + "x" * 1000)
        equal(c.answer()[0], 413, "status")
    s.expect(31, 11, what="with a connection that is closed before the end of the request")
    # nginx sends an early response to a body beyond client_max_body_size
    n = Nginx()
    with n.connect() as c:
        c.send(get("/file", "POST", "Content-Length: 5000000\r\n"))
        equal(c.answer()[0], 413, "status")
        c.send("x" * 100)
    n.expect(1, 1, what="with an early response of nginx")


@test()
def tunnels():
    """Traffic after an upgrade to WebSocket or CONNECT is neither counted as requests nor in flight."""
    s = Server()
    with s.connect() as a, s.connect() as b:
        a.ask(get("/status/200"))
        equal(a.ask(get("/ws", fields="Upgrade: websocket\r\nConnection: Upgrade\r\n"))[0], 101, "status")
        b.send("CONNECT example:443 HTTP/1.1\r\n\r\n")
        b.until(b"\r\n\r\n")
        s.expect(3, what="with two tunnels")
        for i in range(smaller(200)):
            for c in (a, b):
                c.send(b"\x81\x7e" + b"GET / HTTP/1.1\r\n\r\n"[:i % 19])
                c.take(2 + i % 19)
        for c in (a, b):
            c.send("no response!" * 100000)
            wait_for("the traffic has arrived", lambda: server_figures(s)["bytesIn"] > 1200000)
        f = s.expect(3, what="with traffic in them")
        check(f["latency"]["max"] < 1_000_000_000, f"the tunnel is in the latency: {f['latency']}")
    f = s.expect(3, what="when they are closed")
    equal(f["clientAborts"], 0, "clientAborts")

    # After an upgrade to a protocol that is not parsed the connection is abandoned
    with s.connect() as c:
        c.ask(get("/h2c", fields="Upgrade: h2c\r\nConnection: Upgrade\r\n"))
        c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        c.take(24)
    x = wait_for("the connection is abandoned",
                 lambda: (x := snapshot(s)["requests"])["server"]["unparsed"]["connections"] == 1 and x)
    equal((x["quality"], x["server"]["count"], x["server"]["protocols"].get("tcp", 0)), ("partial", 3, 0),
          "quality, count, of tcp")


@test()
def streams():
    """A stream of server-sent events counts at the head of its response, and is not in flight afterwards, however long
    it lasts."""
    s = Server()
    with s.connect() as c, s.connect() as d:
        for e in (c, d):
            e.send(get("/events/20"))
            e.until(b"data: 9\n\r\n")
        f = s.expect(2, streams=2, what="with streams")
        for e in (c, d):
            e.until(b"data: 9\n\r\n")
        f = s.expect(2, streams=2, what="with streams that go on")
        check(f["latency"]["max"] < 250_000_000 and f["answer"]["max"] < 250_000_000,
              f"the stream is in the latency: {f['latency']}")
    f = s.expect(2, streams=2, what="when the clients have closed")
    equal(f["clientAborts"], 0, "clientAborts")
    with s.connect() as c:
        for _ in range(3):
            c.ask(get("/events/3", "POST", "Content-Length: 0\r\n"))
            c.ask(get("/status/200"))
    s.expect(8, streams=5, what="with streams that end, and further requests after them")


@test(deadline=60)
def attached_while_loaded():
    """An attach under load counts the requests from the attach on, by nginx's own counts before and after it."""
    n = Nginx(attach_first=False)
    with n.connect() as idle, n.connect() as half:
        idle.ask(get("/file"))
        half.send(get("/file")[:-1])
        load = subprocess.Popen(["wrk", "-t1", "-c16", "-d3s", f"http://127.0.0.1:{n.port}/file"],
                                stdout=subprocess.DEVNULL)
        wait_for("load", lambda: n.requests() > 100)
        before = n.requests()
        attach(n)
        after = n.requests()
        load.wait(50)
        half.send("\n")
        equal(half.answer()[0], 200, "status")
        equal(idle.ask(get("/none"))[0], 404, "status")
        equal(half.ask(get("/bad"))[0], 503, "status")
        end = n.requests()
        wait_for("nothing is in flight", lambda: server_figures(n)["inFlight"] == 0)
    got = total(n)
    check(end - after <= got <= end - before + 16, f"{got} counted, nginx {end - after} to {end - before}")
    equal((total(n, "requests.server.status4xx"), total(n, "requests.server.errors.status5xx")), (1, 1), "4xx, 5xx")


@test(deadline=60)
def on_a_bad_cable():
    """Lost, duplicated and reordered segments do not change the count."""
    cable = Cable(drop=10, duplicate=30, reorder=50, delay_us=300, seed=11)
    n = Nginx(netns=cable.b)
    sent = 0
    for options, path, number in ((["-k"], "file", 1500), ([], "large", 60), (["-k", "-i"], "large", 500)):
        out = run(*nsenter(cable.a), "ab", "-q", "-n", number, "-c", "10", *options,
                  f"http://{cable.address_b}:{n.port}/{path}", timeout=50).stdout
        equal(int(re.search(r"^Complete requests:\s+(\d+)", out, re.M)[1]), number, "requests that ab completed")
        sent += number
    n.expect(sent, what="on a bad cable")
    check(cable.counter("TcpRetransSegs") > 0, "no segment was retransmitted")


@test()
def not_http_after_all():
    """Requests that only begin like HTTP, or have a response that is not HTTP, count as TCP."""
    s = scenario.start_served(mode="thread", request=20, response=10)
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
        for n in range(20):
            c.sendall(b"GET / RTSP/1.0\r\n\r\nxx")
            equal(len(c.recv(10, socket.MSG_WAITALL)), 10, "response")
    expect_total(s, 20)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(s))["inFlight"] == 0 and f)
    equal(scenario.protocols(f), {"tcp": 20}, "protocols")
    check("status4xx" not in f and "status5xx" not in f["errors"], "there is a status though no request was HTTP")
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
        for n in range(20):
            c.sendall(b"GET / HTTP/1.1\r\n\r\nxx"[:20])
            equal(len(c.recv(10, socket.MSG_WAITALL)), 10, "response")
    expect_total(s, 40)
    f = server_figures(s)
    equal((scenario.protocols(f), f["unparsed"]["connections"]), ({"tcp": 40}, 0), "protocols, abandoned connections")
    qosctl("detach", s.name)


def refused(port, what, before=()):
    """Sends bytes that are no request, after requests. Returns the status of the response to them, or 0 if that is not
    HTTP."""
    with Client(port) as c:
        for request in before:
            equal(c.ask(request)[0], 200, "status")
        c.send(what)
        try:
            while data := c.socket.recv(65536):
                c.buffer += data
        except ConnectionResetError:
            pass
        return int(c.buffer.split()[1]) if c.buffer.startswith(b"HTTP/1.") else 0


class Apache(Http):
    def __init__(self):
        self.port, self.netns = unused_port(), None
        name = scenario.unit_name("apache")
        self.directory = f"/run/{name}"
        os.makedirs(self.directory)
        with open(f"{self.directory}/file", "wb") as f:
            f.write(b"f" * 3000)
        modules = "".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"
                          for m in ("mpm_event", "authz_core"))
        with open(f"{self.directory}/conf", "w") as f:
            f.write(f"{modules}Listen 127.0.0.1:{self.port}\nServerName x\nPidFile {self.directory}/pid\nErrorLog "
                    f"{self.directory}/log\n"
                    f"DefaultRuntimeDir {self.directory}\nDocumentRoot {self.directory}\n")
        super().__init__(f"/usr/sbin/apache2 -f {self.directory}/conf -DFOREGROUND", name=name, type="exec",
                         settings=f"ExecStopPost=/bin/rm -r {self.directory}")
        self.begin(True)


@test(deadline=60)
def refused_requests():
    """Bytes that are not parsed as a request, but that the server refuses with an HTTP response, count with the status
    of that."""
    for server in Nginx, Apache:
        s = server()
        statuses = []
        for what in (b"FOO BAR BAZ\r\n\r\n", b"GE<T / HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"get\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"\x01\x02\x03\x04\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"):
            for before in 0, 3:
                status = refused(s.port, what, [get("/file")] * before)
                check(400 <= status < 600, f"the response to {what} has the status {status}")
                statuses += [200] * before + [status]
                s.expect(len(statuses), sum(400 <= n < 500 for n in statuses), sum(n >= 500 for n in statuses),
                         what=f"with {what} after {before}")
        # A ClientHello to a server without TLS
        hello = ssl.MemoryBIO()
        try:
            ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="x").do_handshake()
        except ssl.SSLWantReadError:
            pass
        equal(refused(s.port, hello.read()), 400, "status")
        expect_total(s, len(statuses) + 1)
        f = server_figures(s)
        equal((scenario.protocols(f), f["status4xx"]),
              ({"http1": len(statuses) + 1}, sum(400 <= n < 500 for n in statuses) + 1), "protocols, 4xx")
        equal((f["inFlight"], f["errors"]["reset"], f["connections"]["accepted"]), (0, 0, 15),
              "in flight, resets, accepted")
        equal((f["clientAborts"], f["connections"]["listenDrops"]), (0, 0), "aborts, drops")
        s.stop()
