# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe "tls": what is inside TLS is counted as what it is. nginx, Redis and Python, each with OpenSSL; the clients
count."""

import os
import re
import select
import shutil
import socket
import ssl
import threading

import h2
import scenario
import test_tls
from scenario import (Client, Unit, attach, check, equal, expect_total, lookup, programs, protocols, qosctl,
                      qosctl_json, run, server_figures, smaller, snapshot, start_served, systemctl, test, total,
                      unused_port, varlink, wait_for)
from test_tls import VERSIONS, Apache, Nginx, ask, farewell


def watch(unit):
    return attach(unit, "--probes=requests,tls")


def watched(unit=None):
    u = unit or Nginx()
    watch(u)
    u.start()
    if unit is None:
        u.listens()
        placed(u)
    return u


def degraded(unit):
    return [o.get("degraded", "") for o in qosctl_json("list") if o["unit"] == unit.name][0]


def placed(unit):
    """The programs are in the library that the unit has."""
    # An inactive unit has no library to wait for
    wait_for("it is known to be active", lambda: snapshot(unit)["activeState"] == "active")
    wait_for("the library is watched", lambda: degraded(unit) == "" and
             all(p["state"] == "attached" for p in programs() if p["probe"] == "tls"), timeout=15)


def is_seen(unit, count, up_to=None, protocol="http1"):
    """So many requests of this protocol, and nothing besides."""
    expect_total(unit, count, up_to=up_to)
    f = wait_for("nothing is in flight", lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(unit)))
    equal(protocols(f), {protocol: f["count"]}, "protocols")
    equal(f["latency"]["count"] + f["blocking"], f["count"], "latency.count")
    equal(f["errors"]["reset"], 0, "errors.reset")
    equal(snapshot(unit)["requests"]["quality"], "exact", "quality")
    return f


def pipeline(s, paths):
    """All at once; returns the number of responses by status."""
    s.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths))
    data, got = b"", {}
    for _ in paths:
        while b"\r\n\r\n" not in data:
            part = s.recv(65536)
            check(part, f"the server hung up after {got}")
            data += part
        head, data = data.split(b"\r\n\r\n", 1)
        size = int(re.search(rb"Content-Length: (\d+)", head)[1])
        while len(data) < size:
            data += s.recv(65536)
        data = data[size:]
        status = int(head.split()[1])
        got[status] = got.get(status, 0) + 1
    return got


@test(deadline=60)
def early_data():
    """Requests in early data (0-RTT), with the protocol within TLS."""
    test_tls.early_data_with("requests,tls", "http1", placed)


@test(vm="nightly", deadline=60)
def statuses_exact():
    """Keep-alive, 7 % of the responses 503, some 404."""
    u = watched()
    n = bad = gone = 0
    for version in VERSIONS:
        for k in range(4):
            s = u.connect(version)
            for i in range(100):
                path = "/bad" if i % 14 == 0 else "/gone" if i % 25 == k else "/small"
                got = pipeline(s, [path])
                n, bad, gone = n + 1, bad + got.get(503, 0), gone + got.get(404, 0)
            farewell(s) if k % 2 else s.close()
    f = is_seen(u, n)
    equal((f["errors"]["status5xx"], f["status4xx"]), (bad, gone), "statuses")
    check(bad > 50 and gone > 20, f"{bad} and {gone} responses of these kinds")


@test(deadline=60)
def pipelined():
    """Exact, and without the probe not."""
    u, plain = watched(), Nginx(label="plain")
    attach(plain)
    plain.start()
    plain.listens()
    for unit in u, plain:
        for version in VERSIONS:
            s = unit.connect(version)
            for n in range(1, 33):
                equal(pipeline(s, ["/bad" if i % 7 == 3 else "/small" for i in range(n)]).get(503, 0),
                      len(range(3, n, 7)), "responses 503")
            s.close()
    f = is_seen(u, 2 * sum(range(1, 33)))
    equal(f["errors"]["status5xx"], 2 * sum(len(range(3, n, 7)) for n in range(1, 33)), "errors.status5xx")
    f = server_figures(plain)
    equal(list(protocols(f)), ["tls"], "protocols without the probe")
    check(f["count"] < 2 * sum(range(1, 33)), f"it is known without the probe, {f}")


class Hasty:
    """A client that sends its Finished and the first request in one segment, so that the server reads both at once."""

    def __init__(self, unit, version, offer, session=None):
        context = ssl.create_default_context(cafile=unit.certificate)
        context.check_hostname = False
        context.minimum_version = context.maximum_version = VERSIONS[version]
        context.set_alpn_protocols([offer])
        self.context = session.context if session else context
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = self.context.wrap_bio(self.incoming, self.outgoing, session=session and session.tls.session)
        self.socket = socket.create_connection(("127.0.0.1", unit.ports[version]), timeout=30)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self.hear()
        equal(self.tls.selected_alpn_protocol(), offer, "what is spoken")
        equal(self.tls.session_reused, bool(session), "session is resumed")

    def flush(self):
        self.socket.sendall(self.outgoing.read())

    def hear(self):
        data = self.socket.recv(65536)
        check(data, "the server hung up")
        self.incoming.write(data)

    def read(self):
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.hear()

    def ask(self):
        if self.tls.selected_alpn_protocol() == "h2":
            client = h2.connection.H2Connection()
            client.initiate_connection()
            client.send_headers(1, [(":method", "GET"), (":path", "/small"), (":scheme", "https"),
                                    (":authority", "localhost")], end_stream=True)
            self.tls.write(client.data_to_send())
            self.flush()
            while not any(isinstance(e, h2.events.StreamEnded) for e in client.receive_data(self.read())):
                pass
        else:
            self.tls.write(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.flush()
            got = b""
            while not got.endswith(b"small"):
                got += self.read()


@test(deadline=60)
def closed_behind_a_request():
    """A client that has closed its connection before the server reads its last request, which has a response and times
    nevertheless."""
    u = watched()
    n = 0
    for version in VERSIONS:
        s = u.connect(version)
        ask(s)
        u.freeze()
        s.send(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.close()
        u.thaw()
        n += 2
    f = is_seen(u, n)
    equal((f["firstByte"]["count"], f["receive"]["count"], f["queue"]["count"]), (n, n, n), "counts of the phases")


@test(deadline=60)
def finished_and_request_in_one_read():
    """Session tickets, which the server sends before it returns any data of the client, are no response. Counts are
    those of the client and of Apache's access log."""
    u = Apache()
    watch(u)
    u.start()
    u.listens()
    placed(u)
    n = {"http1": 0, "http2": 0}
    for offer, protocol in ("http/1.1", "http1"), ("h2", "http2"):
        for version in VERSIONS:
            for _ in range(10):
                first = Hasty(u, version, offer)
                first.ask()
                if protocol == "http1":
                    first.ask()
                again = Hasty(u, version, offer, session=first)
                again.ask()
                n[protocol] += 3 if protocol == "http1" else 2
                first.socket.close()
                again.socket.close()
            url = f"https://127.0.0.1:{u.ports[version]}/small"
            for _ in range(5):
                run("curl", "-sk", "--http1.1" if protocol == "http1" else "--http2", *["-o", "/dev/null", url] * 3)
            n[protocol] += 15
    wait_for("all is logged", lambda: u.logged() == sum(n.values()))
    expect_total(u, sum(n.values()))
    f = wait_for("nothing is in flight", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
    equal(protocols(f), n, "protocols")
    equal((f["clientAborts"], f["errors"]["reset"], f["latency"]["count"]), (0, 0, sum(n.values())),
          "aborts, resets, latency.count")
    equal(snapshot(u)["requests"]["quality"], "exact", "quality")


@test(deadline=60)
def server_hangs_up_first():
    """The client's close_notify follows the server's, which does not read it: neither an abort nor a reset. The error
    log of nginx says how many handshakes clients have given up."""
    u = watched(Python("threads"))
    placed(u)
    sent = 0
    for paths in ["/end"], ["/closed"], ["/small", "/end"], ["/small", "/closed"]:
        s = u.connect()
        for path in paths:
            pipeline(s, [path])
        # The server's close_notify comes first: it would read one of the client that has come before it sends its own
        check(select.select([s], [], [], 20)[0], "no close_notify of the server")
        s = s.unwrap()
        if paths[-1] == "/end":
            wait_for("it is closed", lambda: server_figures(u)["connections"]["open"] == 0)
        s.close()
        wait_for("it is closed", lambda: server_figures(u)["connections"]["open"] == 0)
        sent += len(paths)
    equal(is_seen(u, sent)["clientAborts"], 0, "clientAborts")

    u = watched()
    sent = 0
    for port in u.ports.values():
        out = run("ab", "-q", "-n", 500, "-c", 4, f"https://127.0.0.1:{port}/small", timeout=60).stdout
        check("Complete requests:      500\n" in out and "Failed requests:        0\n" in out, f"ab said: {out}")
        sent += 500
        is_seen(u, sent)
        # ab may have connected once more than it has requests left, and breaks off this handshake when it ends
        wait_for("the aborted handshakes are those in the log",
                 lambda: server_figures(u)["clientAborts"] == u.given_up())


@test()
def given_up_and_broken_off():
    def begin(u):
        watch(u)
        u.start()
        u.listens()
        placed(u)

    test_tls.given_up_and_broken_off(begin)


@test(deadline=60)
def large_and_slow():
    """Responses that the server can write only piece by piece, to a client that does not read, and requests of many
    records."""
    u = watched()
    n = 0
    for version in VERSIONS:
        s = u.connect(version)
        for _ in range(5):
            ask(s, "/large", 200000)
        n += 5
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
        s.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        wait_for("some of it has left", lambda: total(u) > n)
        size, data = 20 * 200000, 0
        while data < size:
            part = len(s.recv(1 << 16))
            check(part, "the server hung up")
            data += part
        n += 20
        s.close()
        s = u.connect(version)
        for size in 1, 5000, 100000, 900000:
            s.sendall(f"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
                      + b"G" * size)
            got = b""
            while not got.endswith(b"small"):
                part = s.recv(65536)
                check(part, "the server hung up")
                got += part
            n += 1
        s.close()
    is_seen(u, n)


@test(deadline=60)
def under_load():
    u = watched()
    for port in u.ports.values():
        before = total(u)
        out = run("wrk", "-t1", "-c8", "-d1s", f"https://127.0.0.1:{port}/small", timeout=60).stdout
        done = int([line for line in out.splitlines() if "requests in" in line][0].split()[0])
        wait_for("all connections are gone", lambda: lookup(server_figures(u), "connections.open") == 0)
        is_seen(u, before + done, up_to=before + done + 8)


class Requester:
    """A client with requests on some connections until a stop, which then counts the responses."""

    def __init__(self, unit, connections=4):
        self.unit, self.stopping, self.answered, self.errors = unit, threading.Event(), [0] * connections, []
        self.threads = [threading.Thread(target=self.run, args=(k,)) for k in range(connections)]
        for t in self.threads:
            t.start()

    def run(self, k):
        try:
            s = self.unit.connect(list(VERSIONS)[k % 2])
            while not self.stopping.is_set():
                ask(s)
                self.answered[k] += 1
            s.close()
        except Exception as e: # pylint: disable=broad-except
            self.errors.append(e)

    def wait(self, more):
        """Until each connection has so many more responses."""
        want = [n + more for n in self.answered]
        wait_for("the client gets on", lambda: self.errors or all(n >= w for n, w in zip(self.answered, want)),
                 timeout=20)
        check(not self.errors, f"the client failed: {self.errors}")

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(30)
        check(not self.errors, f"the client failed: {self.errors}")
        return sum(self.answered)


@test(deadline=60, own_daemon=True)
def restart_of_qosd_under_load():
    u = watched()
    a = Requester(u)
    try:
        a.wait(20)
        scenario.kill_qosd()
        a.wait(20)
        systemctl("restart", "qosd.service")
        scenario.wait_qosd()
        a.wait(20)
    finally:
        n = a.stop()
    is_seen(u, n)


@test(deadline=60)
def attached_and_detached_under_load():
    """Connections that are older go on as what they are, whatever the probe is taken away from and given to."""
    u = Nginx()
    u.start()
    u.listens()
    attach(u)
    a = Requester(u)
    try:
        a.wait(20)
        check(list(protocols(server_figures(u))) == ["tls"], f"without the probe: {server_figures(u)}")
        watch(u)
        placed(u)
        for _ in range(3):
            a.wait(20)
            before = server_figures(u)["protocols"]
            a.wait(20)
            after = server_figures(u)["protocols"]
            check(after["http1"] >= before["http1"] + 40 and after["tls"] <= before["tls"] + 4,
                  f"with the probe: {before}, {after}")
            attach(u, "--probes=requests")
            a.wait(5)
            before = server_figures(u)["protocols"]
            a.wait(20)
            after = server_figures(u)["protocols"]
            check(after["tls"] >= before["tls"] + 40 and after["http1"] <= before["http1"] + 4,
                  f"without it: {before}, {after}")
            watch(u)
            placed(u)
    finally:
        n = a.stop()
    # What was known of four connections, each of the times
    expect_total(u, n)
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)


@test(deadline=60)
def restart_of_the_unit():
    u = watched()
    n = 0
    for _ in range(3):
        for version in VERSIONS:
            s = u.connect(version)
            equal(pipeline(s, ["/small"] * 5), {200: 5}, "answers")
            n += 5
            s.close()
        u.restart()
        u.listens()
    is_seen(u, n)


class Python(Unit):
    """beside: number of processes of the unit that are older than the server."""

    def __init__(self, how, beside=0):
        self.port = unused_port()
        self.directory = f"/run/{scenario.prefix}-python-{how}"
        os.makedirs(self.directory, exist_ok=True)
        self.key, self.certificate = f"{self.directory}/key", f"{self.directory}/certificate"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
            "-days", "2", "-subj", "/CN=localhost", timeout=60)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tls_server.py")
        command = f"/usr/bin/python3 {program} {self.port} {self.key} {self.certificate} {how}"
        if beside:
            command = f"/bin/sh -c 'for i in $$(seq {beside}); do sleep 1000 & done; {command} & wait'"
        super().__init__(command, settings="NotifyAccess=all")

    def connect(self):
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout=30))


@test()
def threads_of_python():
    """SSL_read_ex(), SSL_write_ex(), and a thread for each connection."""
    u = watched(Python("threads"))
    placed(u)
    sockets = [u.connect() for _ in range(8)]
    for i in range(40):
        for s in sockets:
            pipeline(s, ["/small", "/bad", "/gone"][:1 + i % 3])
    for s in sockets:
        s.close()
    f = is_seen(u, 8 * sum(1 + i % 3 for i in range(40)))
    equal((f["errors"]["status5xx"], f["status4xx"]), (8 * 26, 8 * 13), "statuses")


@test()
def as_soon_as_it_is_attached():
    """The reply to an attach comes when the library of a unit with many processes is watched, so that the next
    connection is parsed."""
    u = Python("threads", beside=900)
    u.start()
    varlink("Attach", unit=u.name, probes=["requests", "tls"])
    s = u.connect()
    pipeline(s, ["/small"])
    s.close()
    is_seen(u, 1)


@test()
def sealed_bytes_in_buffers():
    """A program that reads the socket itself and passes the bytes to OpenSSL: their socket is not known. By records,
    then."""
    u = watched(Python("memory"))
    placed(u)
    for _ in range(3):
        s = u.connect()
        for _ in range(10):
            pipeline(s, ["/small"])
        s.close()
    expect_total(u, 30)
    f = wait_for("nothing is in flight", lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(u)))
    equal(protocols(f), {"tls": 30}, "protocols")
    equal(snapshot(u)["requests"]["quality"], "exchanges", "quality")


@test()
def loaded_later():
    """The unit has no OpenSSL when it is attached: that is said, and it is found once it has."""
    u = watched(Python("later"))
    wait_for("it is said that there is no library", lambda: "waiting" in degraded(u))
    s = u.connect()
    pipeline(s, ["/small"])
    placed(u)
    s.close()
    seen = server_figures(u)["protocols"]
    s = u.connect()
    pipeline(s, ["/small"] * 7)
    s.close()
    expect_total(u, 8)
    equal(server_figures(u)["protocols"]["http1"], seen["http1"] + 7, "protocols.http1")


@test()
def without_openssl():
    """A unit that never speaks TLS is measured as ever."""
    s = start_served(delay_us=100)
    watch(s)
    wait_for("it is said that there is no library", lambda: "waiting" in degraded(s))
    n = Client(s, connections=4, number=400).wait()["answered"]
    expect_total(s, n)
    qosctl("detach", s.name)


@test(deadline=120)
def redis():
    """Pipelined commands in TLS, and by Redis' own count."""
    directory = f"/run/{scenario.prefix}-redis-tls"
    os.makedirs(directory, exist_ok=True)
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{directory}/key", "-out",
        f"{directory}/certificate",
        "-days", "2", "-subj", "/CN=localhost", timeout=60)
    port = unused_port()
    u = Unit(f"/usr/bin/redis-server --port 0 --tls-port {port} --tls-cert-file {directory}/certificate --tls-key-file "
             f"{directory}/key"
             f" --tls-ca-cert-file {directory}/certificate --tls-auth-clients no --save '' --supervised systemd",
             settings="Environment=LC_ALL=C")
    watched(u)
    placed(u)
    options = ["-p", port, "--tls", "--cacert", f"{directory}/certificate"]
    for pipelined_by, connections, number in ((1, 8, 2000), (16, 8, 32000), (128, 2, 25600)):
        number = smaller(number) // (pipelined_by * connections) * pipelined_by * connections
        run("redis-benchmark", "-h", "localhost", *options, "-P", pipelined_by, "-c", connections, "-n", number, "-t",
            "set,get", "-q", timeout=100)
        done = int(re.search(r"^total_commands_processed:(\d+)",
                             run("redis-cli", "-h", "localhost", *options, "info", "stats").stdout, re.M)[1])
        is_seen(u, done + 1, protocol="redis")


@test()
def left_out_by_name():
    """Health checks are left out inside TLS as they are without it."""
    u = Nginx()
    attach(u, "--probes=requests,tls", "--exclude=http:/bad")
    u.start()
    u.listens()
    placed(u)
    for version in VERSIONS:
        s = u.connect(version)
        for i in range(10):
            pipeline(s, ["/small", "/bad", "/small"][:1 + i % 3])
        s.close()
    f = is_seen(u, 2 * 13)
    equal(f["errors"]["status5xx"], 0, "errors.status5xx")


HAS_COPIES = """
import glob, mmap, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        kept.append(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
while True:
    time.sleep(1000)
"""


def copies(directory, owners):
    """Files of these users, as many as there are names."""
    original = os.path.realpath(re.search(r"libssl\.so\.3 .*=> (\S+)", run("ldconfig", "-p").stdout)[1])
    paths = []
    for owner in owners:
        paths.append(f"{directory}/{len(os.listdir(directory))}/libssl.so.3")
        os.mkdir(os.path.dirname(paths[-1]))
        shutil.copy(original, paths[-1])
        os.chown(paths[-1], owner, owner)
    return paths


def libraries_watched():
    """How many there are by the user whose files they are."""
    found = {}
    for owner in re.findall(r"library-enter-[0-9a-f]+-[0-9a-f]+-([0-9a-f]+)",
                            run("systemd-analyze", "fdstore", "qosd.service").stdout):
        found[int(owner, 16)] = found.get(int(owner, 16), 0) + 1
    return found


@test(own_daemon=True, deadline=120)
def copies_of_the_library():
    """Copies of a user leave places for the others', and are released when no process has them. Those that are not
    probed are reported."""
    directory = f"/dev/shm/{scenario.prefix}-copies"
    os.makedirs(directory)
    try:
        with open(f"{directory}.py", "w") as f:
            f.write(HAS_COPIES)
        users = [2001, 2002, 2003, 2004]
        u = Unit(f"/usr/bin/python3 {f.name} " + " ".join(copies(directory,
                                                                 [user for user in users for _ in range(10)])),
                 settings="User=nobody", type="exec")
        u.start()
        watch(u)
        wait_for("it is said that there are too many",
                 lambda: "of users who are not root" in degraded(u) or "files of one user" in degraded(u))
        equal(sorted(libraries_watched().values()), [8, 8, 8], "copies that are watched by user")

        n = watched()
        s = n.connect("TLSv1.3")
        pipeline(s, ["/small"] * 7)
        s.close()
        is_seen(n, 7)
        equal(libraries_watched()[0], 1, "root's libraries")
        check(any("not in all libraries" in p.get("reason", "") for p in programs() if p["probe"] == "tls"),
              f"no reason in {programs()}")

        # Also after a crash
        scenario.kill_qosd()
        wait_for("it is said again", lambda: "not all OpenSSL libraries" in degraded(u))
        equal(sorted(libraries_watched().values()), [1, 8, 8, 8], "libraries that are watched by user, after a crash")

        second = Unit(f"/usr/bin/python3 {f.name} " + " ".join(copies(directory, [2001, 2001])), settings="User=nobody",
                      type="exec")
        second.start()
        watch(second)
        # Processes are looked at again after as long as it has taken so far, and once more that long
        wait_for("it is said of the second, too", lambda: "not all OpenSSL libraries" in degraded(second), timeout=20)
        u.stop()
        wait_for("there is room for the second", lambda: degraded(second) == "", timeout=40)
        equal(libraries_watched(), {0: 1, 2001: 2}, "libraries that are watched at the end")
    finally:
        shutil.rmtree(directory)
        os.unlink(f"{directory}.py")


@test(own_daemon=True, deadline=60)
def a_program_refused(qosd_environment):
    """Without one of its programs the probe does nothing, which is said; requests are measured as without it."""
    for name in "openssl_enter", "openssl_leave", "openssl_egress", "units_find_libraries":
        qosd_environment({"LD_PRELOAD": f"{scenario.tools}/refuse.so", "REFUSE_PROGRAM": name})
        u = Nginx(label=name)
        watch(u)
        u.start()
        u.listens()
        state = {p["program"]: p for p in programs()}[name]
        equal(state["state"], "unavailable", f"state of {name}")
        check(state.get("reason"), f"no reason for {name}")
        check(degraded(u).startswith("tls:"),
              f"nobody says that the probe does not work without {name}: {degraded(u)}")
        s = u.connect("TLSv1.3")
        for _ in range(10):
            ask(s)
        s.close()
        expect_total(u, 10)
        equal(protocols(server_figures(u)), {"tls": 10}, f"protocols without {name}")
        u.stop()
