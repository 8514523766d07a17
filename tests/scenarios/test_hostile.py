# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients that send what no parser understands, beside others: the figures of a unit stay what they were, and there."""

import contextlib
import os
import socket
import ssl
import threading
import time

import h2.connection

import scenario
import test_tls
import test_tls_probe
from http2 import END_HEADERS, END_STREAM, HEADERS, Client as Http2, frame as h2_frame
from scenario import (Unit, attach, check, equal, lookup, qosctl, qosctl_json, server_figures, smaller, snapshot, test,
                      total, unused_port, wait_for)
from test_http import Nginx, get
from test_http2 import Nghttpd, Scripted
from test_memcached import Memcached, read
from test_peers import program, run_to_its_end
from test_redis import Redis, command, receive

JUNK = bytes(range(0x80, 0xa8))
HEAD = b"HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n"


def until_end(c):
    """All that the server says until it hangs up."""
    data = b""
    c.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while part := c.recv(65536):
            data += part
    return data


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def junk_behind(port, request, hang_up=True):
    """A request, three bytes of junk, forty more; hangs up at once, or when the server does. Returns what that said."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        c.sendall(request + JUNK[:3])
        c.sendall(JUNK)
        return b"" if hang_up else until_end(c)


class Attack:
    """One connection after the other, from several threads, as fast as they are served."""

    def __init__(self, function, *arguments):
        self.running, self.number = True, 0
        self.function, self.arguments = function, arguments
        self.threads = [threading.Thread(target=self.run) for _ in range(4)]

    def run(self):
        while self.running:
            with contextlib.suppress(OSError):
                self.function(*self.arguments)
            self.number += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        wait_for("the attack goes on", lambda: self.number > 20)
        return self

    def __exit__(self, *_):
        self.running = False
        for t in self.threads:
            t.join()


@test(deadline=60)
def junk_behind_requests():
    """A request with junk behind it is a request, and the junk another one, with the error that the server says."""
    n = Nginx()
    sent = refused = 0
    with n.connect() as c:
        for i in range(smaller(200)):
            c.ask(get("/file"))
            data = junk_behind(n.port, get("/file").encode() * (i % 4 + 1), hang_up=False)
            equal((data.count(b"HTTP/1.1 200"), data.count(b"HTTP/1.1 400")), (i % 4 + 1, 1), "responses")
            sent += i % 4 + 3
            refused += 1
    n.expect(sent, refused, what="with junk behind requests")
    equal(server_figures(n)["clientAborts"], 0, "clientAborts")


PRIOR = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + b"\0\0\2\1\5\0\0\0\1\x82\x84",
         b"PRI * HTTP/2.0\r\n")


@test(deadline=60)
def http2_to_http1():
    """Prior knowledge of HTTP/2 that the server does not have: one request with the error that it says."""
    n = Nginx()
    sent = refused = 0
    with n.connect() as c:
        for i in range(smaller(60)):
            c.ask(get("/file"))
            with connect(n.port) as s:
                for part in (PRIOR[i % 3],) if i % 2 else (PRIOR[i % 3][:2], PRIOR[i % 3][2:]):
                    s.sendall(part)
                data = until_end(s)
            equal(data.count(b"HTTP/1.1 400"), 1, f"errors for {PRIOR[i % 3]}: {data}")
            sent += 2
            refused += 1
    n.expect(sent, refused, what="with prior knowledge of HTTP/2")
    f = server_figures(n)
    equal((f["clientAborts"], f["unparsed"]["connections"], set(scenario.protocols(f))), (0, 0, {"http1"}),
          "clientAborts, unparsed, protocols")
    check(f["errors"]["reset"] == 0 and f["latency"]["count"] == sent, f"{f}")


@test(deadline=60)
def requests_behind_the_last_one():
    """Requests behind one with which the client ends the connection, or that is in error, are one failed request
    together: no client can have the server fail as often as it likes. Requests behind an empty line, and what looks
    like another protocol, are of HTTP."""
    n, r = Nginx(), Redis()
    sent = refused = failed = 0
    last = {b"GET /file HTTP/1.0\r\n\r\n": 0, b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": 0,
            b"GET /file HTTP/1.1\r\nHost: x\r\nno field\r\n\r\n": 1}
    for first, bad in last.items():
        for number in 1, 20, 200:
            with connect(n.port) as c:
                c.sendall(first + get("/file").encode() * number)
                equal(until_end(c).count(b"HTTP/1.1 "), 1, "responses")
            sent, refused, failed = sent + 1, refused + bad, failed + 1
    for blank in b"\r\n", b"\r\n" * 2:
        with connect(n.port) as c:
            c.sendall(blank + get("/file").encode() * 3 + list(last)[1])
            equal(until_end(c).count(b"HTTP/1.1 200"), 4, "responses behind an empty line")
        sent += 4
    with connect(n.port) as c:
        c.sendall(command("PING"))
        equal(until_end(c).count(b"HTTP/1.1 400"), 1, "responses to a command of Redis")
    sent, refused = sent + 1, refused + 1
    f = wait_for("all is counted", lambda: (f := server_figures(n))["count"] == sent and f)
    equal((f["status4xx"], f["errors"]["reset"], f["clientAborts"], scenario.protocols(f)),
          (refused, failed, 0, {"http1": sent}),
          "4xx, errors.reset, clientAborts, protocols")
    with connect(r.port) as c:
        c.sendall(command("QUIT") + command("PING") * 100)
        equal(until_end(c), b"+OK\r\n", "responses of Redis")
    wait_for("the command is counted", lambda: total(r) == 1)
    equal(server_figures(r)["errors"]["reset"], 1, "errors.reset of Redis")


@test(deadline=60)
def error_beside_open_streams():
    """An error of an HTTP/2 client that ends a connection with many open streams is one failed request."""
    s = Scripted()
    with s.connect() as c:
        c.last += 10
        for _ in range(20):
            c.start("/hang")
        wait_for("20 are in flight", lambda: server_figures(s)["inFlight"] == 20)
        # Streams have to be opened in order
        c.send(h2_frame(HEADERS, END_STREAM | END_HEADERS, c.last - 46, b"\x82\x86\x84"))
        while c.goaway is None:
            c.read()
    # What is in flight, and what has failed, are not read in one moment
    wait_for("nothing is in flight, and one has failed",
             lambda: (f := server_figures(s))["inFlight"] == 0 and f["errors"]["reset"] >= 1)
    f = server_figures(s)
    equal((f["errors"]["reset"], f["clientAborts"]), (1, 0), "errors.reset, clientAborts")


@test(deadline=60)
def error_beside_open_streams_within_tls():
    """The same with the library's probe, if the client closes the connection first."""
    files, context = scenario.certificate()
    port = unused_port()
    s = Unit(f"/usr/bin/python3 -B {scenario.SOURCES}/http2_server.py {port} {' '.join(files)}").start()
    attach(s, "--probes=requests,tls")
    test_tls_probe.placed(s)
    with Http2(port, context=context) as c:
        equal(c.ask("/status/200", fields=[("x-stay", "1")]).status, 200, "status")
        c.last += 10
        for _ in range(20):
            c.start("/hang")
        wait_for("20 are in flight", lambda: server_figures(s)["inFlight"] == 20)
        c.send(h2_frame(HEADERS, END_STREAM | END_HEADERS, c.last - 46, b"\x82\x86\x84"))
        while c.goaway is None:
            c.read()
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    f = wait_for("one has failed", lambda: (f := server_figures(s))["errors"]["reset"] + f["clientAborts"] >= 1 and f)
    equal((f["count"], f["errors"]["reset"], f["clientAborts"]), (1, 1, 0), "count, errors.reset, clientAborts")


@test(deadline=60)
def pipelines_of_head():
    """Hundreds of HEAD at once are as many requests."""
    n = Nginx()
    before = 0
    for number in 60, 65, 200, 500:
        with n.connect() as c:
            c.send(HEAD * number + get("/file").encode())
            for _ in range(number):
                equal(c.answer(bare=True)[0], 200, "status")
            equal(len(c.answer()[1]), 3000, "length of the last response")
        before += number + 1
        n.expect(before, what=f"with {number} of HEAD at once")


def is_measured(unit, least):
    """Figures as those of any unit, with so many requests at least."""
    r = snapshot(unit)["requests"]
    check(r["quality"] != "overlapping", f"quality {r['quality']}")
    check(r["server"].get("count", 0) >= least and r["server"]["latency"].get("count", 0) >= least, f"{r['server']}")
    check("p50" in r["server"]["latency"] and "rate" in r["server"], f"{r['server']}")


def behind_junk(unit, ask, attack):
    """Requests of one client, which all count, while others send what no parser understands."""
    sent = 0
    with Attack(*attack):
        for _ in range(smaller(300)):
            ask()
            sent += 1
        is_measured(unit, sent)
    wait_for("all is counted", lambda: total(unit) >= sent)
    is_measured(unit, sent)


class Load:
    """A client that sends 50 requests a second on one connection."""

    def __init__(self, unit, path):
        self.running, self.sent = True, 0
        self.unit, self.path = unit, path
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.unit.connect() as c:
            while self.running:
                equal(c.ask(get(self.path))[0], 200, "status")
                self.sent += 1
                time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.running = False
        self.thread.join()


def heads(port, number, hang_up=True):
    """So many pipelined requests of HEAD. Hangs up at once, or with all responses."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        c.sendall(HEAD * number)
        data = b""
        while not hang_up and data.count(b"\r\n\r\n") < number:
            part = c.recv(65536)
            check(part, f"the connection ended behind {data[-100:]}")
            data += part


def slow_junk(port, request):
    """A request, and junk byte by byte until the server hangs up."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        c.sendall(request)
        for byte in JUNK:
            c.sendall(bytes([byte]))
        c.sendall(b"\r\n\r\n")
        until_end(c)


def junk_between(port, request):
    """Requests with a response each, then junk where the next request would be, and another request, which gets
    none."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        for _ in range(3):
            c.sendall(request)
            data = b""
            while not data.endswith(b"f" * 3000):
                data += c.recv(65536)
        c.sendall(JUNK + b"\r\n\r\n" + request)
        until_end(c)


def half_closed(port, request):
    """A request with junk behind it, and the end of the client's side."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        c.sendall(request + JUNK[:3])
        c.shutdown(socket.SHUT_WR)
        until_end(c)


@test(deadline=90)
def one_a_second():
    """One client sends 50 requests a second, and another junk once a second, which it does not wait for: all figures
    stay, in each reading. By the server's own log all requests of the first client are counted, and no more than were
    responded to."""
    n = Nginx(log=True)
    for attack in (junk_behind, n.port, get("/file").encode()), (heads, n.port, 200):
        before, logged = total(n), sum(n.logged().values())
        with Load(n, "/file") as load:
            wait_for("there are requests to measure", lambda: load.sent >= 20)
            for _ in range(5):
                attack[0](*attack[1:])
                sent = load.sent
                while load.sent < sent + 50:
                    r = snapshot(n)["requests"]
                    check(r["quality"] != "overlapping" and r["server"].get("count", 0) > 0 and "rate" in r["server"]
                          and
                          r["server"]["latency"].get("p50"), f"quality {r['quality']}: {r['server']}")
        count = wait_for("all is counted", lambda: (x := total(n) - before) >= load.sent and x)
        check(count <= sum(n.logged().values()) - logged, f"{count} requests, the log has {n.logged()}")


@test(deadline=90)
def counted_by_the_log():
    """Clients that wait for the response to their junk: each line of the server's log is a request, with its status."""
    n = Nginx(log=True)
    request = get("/file").encode()
    with Load(n, "/file"):
        for attack in ((junk_behind, n.port, request, False), (junk_behind, n.port, request * 5, False),
                       (heads, n.port, 200, False),
                       (slow_junk, n.port, request), (junk_between, n.port, request),
                       (half_closed, n.port, request * 2)):
            for _ in range(10):
                attack[0](*attack[1:])
                r = snapshot(n)["requests"]
                check(r["quality"] != "overlapping" and r["server"].get("count", 0) > 0, f"with {attack}: {r}")
    lines = n.logged()
    bad = sum(v for k, v in lines.items() if k.startswith("400"))
    check(bad >= 40, f"{bad} were refused: {lines}")
    n.expect(sum(lines.values()), bad, what=f"with junk of all kinds, {lines}")
    f = server_figures(n)
    equal((f["clientAborts"], f["unparsed"]["connections"]), (0, 0), "clientAborts, unparsed connections")


@test(deadline=60)
def clients_that_close_early():
    """Also if the client closes the connection before the response."""
    n = Nginx()
    with n.connect() as c:
        behind_junk(n, lambda: c.ask(get("/file")), (junk_behind, n.port, get("/file").encode()))


@test(deadline=60)
def heads_that_hang_up():
    n = Nginx()
    with n.connect() as c:
        behind_junk(n, lambda: c.ask(get("/file")), (heads, n.port, 200))


@test(deadline=60)
def redis():
    """Junk behind commands, and alone; Redis says that it is an error, and hangs up."""
    r = Redis()
    ping = command("PING")
    with r.connect() as c:
        def ask():
            c.sendall(ping)
            receive(c, 7)

        behind_junk(r, ask, (junk_behind, r.port, ping * 3 + b"*1\r\n"))
        behind_junk(r, ask, (junk_behind, r.port, b"*3\r\n$3\r\nSET\r\n$x"))


@test(deadline=60)
def memcached():
    m = Memcached()
    with m.connect() as c:
        def ask():
            c.sendall(b"get k\r\n")
            equal(read(c, 5), b"END\r\n", "response")

        behind_junk(m, ask, (junk_behind, m.port, b"get a\r\nget b\r\n" + JUNK + b"\r\n"))
        behind_junk(m, ask, (junk_behind, m.port, b"get a\r\n" + bytes([0x80, 1]) + b"\xff" * 40))


@test(deadline=60)
def http2():
    """Frames that are none, or that the server refuses: it ends each connection with an error, which is one failed
    request, and the requests of others all count."""
    n = Nghttpd()
    client = h2.connection.H2Connection()
    client.initiate_connection()
    greeting = client.data_to_send()
    client.send_headers(1, [(":method", "GET"), (":path", "/file"), (":scheme", "http"), (":authority", "x")],
                        end_stream=True)
    request = client.data_to_send()

    def attack(begin, junk):
        """Junk behind the beginning, when the server has sent something. It says GOAWAY, and hangs up."""
        with connect(n.port) as c, contextlib.suppress(ConnectionError):
            c.sendall(begin)
            data = c.recv(65536) if junk else b""
            c.sendall(junk)
            data += until_end(c)
            check(b"\x07\0\0\0\0\0" in data, f"no GOAWAY in {data}")

    failed = 0
    with Http2(n.port) as c:
        for begin, junk in ((greeting, b"\xff" * 60), (greeting, b"\0\0\4\0\1\0\0\0\1junk"),
                            (greeting, b"\0\0\4\1\5\0\0\0\1" + b"\xff" * 4),
                            (greeting, request + b"\xff" * 60), (greeting[:24] + b"\xff" * 60, b""),
                            (greeting + request + b"\xff" * 60, b"")):
            for _ in range(5):
                attack(begin, junk)
                c.ask("/file")
                failed += 1
            wait_for(f"a failed request each with {begin + junk}",
                     lambda: server_figures(n)["errors"]["reset"] == failed)
        equal((total(n), server_figures(n)["clientAborts"]), (failed, 0), "count, clientAborts")
        is_measured(n, failed)
        for junk in greeting + request + JUNK, greeting[:24] + b"\xff" * 60:
            behind_junk(n, lambda: c.ask("/file"), (junk_behind, n.port, junk))


@test(deadline=90)
def client_role():
    """A unit as a client, with junk, a tunnel and HTTP/2 on some of its connections: the requests on the others all
    count, and those that are parsed before. A threshold that is violated stays that, and each reading has all
    figures."""
    n, h = Nginx(), Nghttpd()
    go, done = f"/run/{n.name}-go", f"/run/{n.name}-done"
    c = attach(program(f"""
import contextlib, os, socket, threading, time
REQUEST, JUNK = b'GET /file HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', bytes(range(0x80, 0xa8))
def connect(port={n.port}):
    return socket.create_connection(('127.0.0.1', port), timeout=10)
def ask(s):
    s.sendall(REQUEST)
    data = b''
    while not data.endswith(b'f' * 3000):
        data += s.recv(65536)
good = junk = 0
def load():
    global good
    with connect() as s:
        while not os.path.exists('{go}') or good < 300:
            ask(s)
            good += 1
            time.sleep(0.01)
t = threading.Thread(target=load)
t.start()
while not os.path.exists('{go}'):
    with contextlib.suppress(ConnectionError), connect() as s:
        if junk % 2:
            ask(s)
        else:
            s.sendall(REQUEST + JUNK[:3])
        s.sendall(JUNK + b'\\r\\n\\r\\n')
        junk += 1
        while s.recv(65536):
            pass
    time.sleep(0.01)
t.join()
with open('{done}.new', 'w') as f:
    f.write(f'{{good}} {{junk}}')
os.rename('{done}.new', '{done}')
time.sleep(1000)
""", type="exec"))
    qosctl("set-threshold", c.name, "busy: requests.client.rate > 10 over 2s")
    c.start()

    def state():
        return qosctl_json("list-thresholds", c.name)[0]["state"]

    try:
        wait_for("it is violated", lambda: state() == "violated")
        for _ in range(20):
            f = lookup(snapshot(c), "requests.client")
            check(f.get("count", 0) > 0 and "rate" in f and f["latency"].get("p50"), f"{f}")
            equal(state(), "violated", "state")
    finally:
        open(go, "w").close()
    wait_for("the client has ended", lambda: os.path.exists(done), 20)
    with open(done) as f:
        good, junk = map(int, f.read().split())
    check(junk > 10, f"{junk} connections with junk")
    x = wait_for("all is counted",
                 lambda: (x := lookup(snapshot(c, "total"), "requests.client"))["count"] >= good + junk and x)
    equal((x["count"], x["latency"]["count"], x["unparsed"]["connections"], x["quality"]),
          (good + junk, good + junk, junk, "partial"),
          "count, latencies, unparsed connections, quality")
    # Of each: 40 bytes of junk behind the request, and the response to it
    check(0 < x["unparsed"]["share"] < 0.5 and x["unparsed"]["bytes"] >= 44 * junk, f"{x['unparsed']}")
    check("p50" in x["latency"], f"{x['latency']}")
    out = qosctl("status", c.name, "--window=total").stdout
    check("Unparsed" in out, f"the status page: {out}")

    # HTTP/2 is all unparsed; beside it what is parsed stays
    m = attach(Unit(f"/bin/sh -c '/usr/bin/h2load -n 200 -c 2 -m 10 http://127.0.0.1:{h.port}/file && "
                    f"/usr/bin/ab -q -k -n 50 http://127.0.0.1:{n.port}/file'", type="exec"))
    run_to_its_end(m)
    x = wait_for("all is counted", lambda: (x := lookup(snapshot(m, "total"), "requests.client"))["count"] == 50 and x)
    equal((x["unparsed"]["connections"], x["quality"]), (2, "partial"), "unparsed connections, quality")
    row, = (r for r in x["peers"] if r["peer"].endswith(f":{h.port}"))
    check("count" not in row, f"streams are counted: {row}")
    # All but what the server may say before the first request
    check(0 <= row["bytesIn"] + row["bytesOut"] - x["unparsed"]["bytes"] <= 100,
          f"unparsed bytes {x['unparsed']['bytes']}: {row}")

    # Behind an upgrade from HTTP/1 (101), which is one request with one response
    url = f"http://127.0.0.1:{Scripted().port}/status/404"
    w = attach(Unit(f"/usr/bin/curl -sS --http2 -o /dev/null {url} --next -sS --http2 -o /dev/null {url}", type="exec"))
    run_to_its_end(w)
    x = wait_for("the upgrade is counted",
                 lambda: (x := lookup(snapshot(w, "total"), "requests.client"))["count"] == 1 and x)
    equal((x["unparsed"]["connections"], x["quality"], x["inFlight"], x["aborts"]), (1, "partial", 0, 0),
          "unparsed connections, quality, in flight, aborts of a client that upgrades")


class TlsLoad(Load):
    """The same inside TLS."""

    def __init__(self, unit, version):
        super().__init__(unit, "/small")
        self.version = version

    def run(self):
        c = self.unit.connect(self.version)
        while self.running:
            test_tls.ask(c)
            self.sent += 1
            time.sleep(0.02)
        c.close()


def client_hello(version):
    """The first message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = test_tls.VERSIONS[version]
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def distrust(u, version):
    """A client that does not accept the certificate of the server, and says so in an alert."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.minimum_version = context.maximum_version = test_tls.VERSIONS[version]
    with connect(u.ports[version]) as c, contextlib.suppress(ssl.SSLCertVerificationError):
        context.wrap_socket(c)
        raise scenario.Failed("the certificate was accepted")


def greet_and_leave(u, version):
    """ClientHello, and all that the server says to that, and no more."""
    with connect(u.ports[version]) as c:
        c.sendall(client_hello(version))
        check(c.recv(65536)[:1] == b"\x16", "no ServerHello")


def other_version(u, version):
    """ClientHello of a version that the server does not speak: it sends a fatal alert."""
    with connect(u.ports[version]) as c:
        c.sendall(client_hello("TLSv1.2" if version == "TLSv1.3" else "TLSv1.3"))
        data = until_end(c)
        check(data[:1] == b"\x15" and data[5] == 2, f"no fatal alert: {data}")


def greet_and_junk(u, version):
    """Junk where the handshake goes on: the server ends the connection."""
    with connect(u.ports[version]) as c:
        c.sendall(client_hello(version))
        check(c.recv(65536)[:1] == b"\x16", "no ServerHello")
        with contextlib.suppress(ConnectionError):
            c.sendall(JUNK)
            until_end(c)


@test(deadline=120)
def failed_handshakes():
    """A TLS handshake that is not completed is one failed request, of the side that ended it. The requests of others
    all count, and a threshold that is violated stays that."""
    u = test_tls.served(idle=300)
    qosctl("set-threshold", u.name, "busy: requests.server.rate > 10 over 1s")
    ends = {other_version: "reset", greet_and_junk: "reset", distrust: "abort", greet_and_leave: "abort"}
    failed, n = {"reset": 0, "abort": 0}, 5
    with TlsLoad(u, "TLSv1.2") as a, TlsLoad(u, "TLSv1.3") as b:
        wait_for("it is violated", lambda: qosctl_json("list-thresholds", u.name)[0]["state"] == "violated")
        for version in test_tls.VERSIONS:
            for attack, who in ends.items():
                for _ in range(n):
                    attack(u, version)
                failed[who] += n
                wait_for(f"each counts with {attack.__name__} and {version}",
                         lambda: (f := server_figures(u))["errors"]["reset"] == failed["reset"]
                         and f["clientAborts"] == failed["abort"])
                equal(qosctl_json("list-thresholds", u.name)[0]["state"], "violated", f"state with {attack.__name__}")
                r = snapshot(u, "2s")["requests"]
                check(r["quality"] == "exchanges" and "p50" in r["server"]["latency"], f"{r}")
    test_tls.expect_total(u, a.sent + b.sent)
    f = server_figures(u)
    equal((f["protocols"]["tls"], f["protocols"]["tcp"], f["latency"]["count"]), (a.sent + b.sent, 0, a.sent + b.sent),
          "of TLS, others, latencies")
    equal((f["errors"]["reset"], f["clientAborts"], f["unparsed"]["connections"], f["inFlight"]),
          (failed["reset"], failed["abort"], 0, 0), "errors.reset, clientAborts, unparsed connections, in flight")


@test(deadline=120)
def junk_inside_tls():
    """With the plaintext: junk behind requests is a request with an error, as without TLS, and records that are none
    end a connection in one failed request. What others send is exact, and a threshold that is violated stays that."""
    u = test_tls.Nginx(idle=300)
    test_tls_probe.watched(u)
    u.listens()
    test_tls_probe.placed(u)
    qosctl("set-threshold", u.name, "busy: requests.server.rate > 10 over 1s")
    request = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"
    before = server_figures(u)
    sent = refused = broken = 0
    with TlsLoad(u, "TLSv1.2") as a, TlsLoad(u, "TLSv1.3") as b:
        wait_for("it is violated", lambda: qosctl_json("list-thresholds", u.name)[0]["state"] == "violated")
        for i in range(20):
            for version in test_tls.VERSIONS:
                with u.connect(version) as c:
                    c.sendall(request * (i % 3 + 1) + JUNK[:3])
                    c.sendall(JUNK + b"\r\n\r\n")
                    data = until_end(c)
                equal((data.count(b"HTTP/1.1 200"), data.count(b"HTTP/1.1 400")), (i % 3 + 1, 1), "responses")
                sent += i % 3 + 2
                refused += 1
                with u.connect(version) as c:
                    c.sendall(PRIOR[i % 3])
                    equal(until_end(c).count(b"HTTP/1.1 400"), 1, "errors for prior knowledge of HTTP/2")
                sent += 1
                refused += 1
                c = u.connect(version)
                test_tls.ask(c)
                sent += 1
                with socket.socket(fileno=c.detach()) as raw, contextlib.suppress(ConnectionError):
                    raw.settimeout(10)
                    raw.sendall(JUNK)
                    until_end(raw)
                broken += 1
            equal(qosctl_json("list-thresholds", u.name)[0]["state"], "violated", "state")
            r = snapshot(u, "2s")["requests"]
            check(r["quality"] in ("exact", "exchanges") and "p50" in r["server"]["latency"], f"{r}")
    sent += a.sent + b.sent
    test_tls.expect_total(u, before["count"] + sent)
    f = wait_for("all have failed", lambda: (f := server_figures(u))["errors"]["reset"] == broken and f)
    equal((f["protocols"]["http1"] - before["protocols"]["http1"], f["status4xx"], f["clientAborts"],
           f["unparsed"]["connections"], f["inFlight"]),
          (sent, refused, 0, 0, 0), "of HTTP, refused, clientAborts, unparsed connections, in flight")


@test(deadline=60)
def violated_stays_violated():
    """A threshold that is violated does not become unknown through what others send."""
    n = Nginx()
    qosctl("set-threshold", n.name, "busy: requests.server.rate > 10 over 1s")

    def state():
        return qosctl_json("list-thresholds", n.name)[0]["state"]

    running = True

    def load():
        with n.connect() as c:
            while running:
                c.ask(get("/file"))
                time.sleep(0.01)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_for("it is violated", lambda: state() == "violated")
        for attack in (junk_behind, n.port, get("/file").encode()), (junk_behind, n.port, HEAD * 200):
            with Attack(*attack) as a:
                before = a.number
                while a.number < before + 200:
                    equal(state(), "violated", "state during the attack")
            equal(state(), "violated", "state behind the attack")
    finally:
        running = False
        thread.join()
