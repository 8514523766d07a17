# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests of a unit to its peers: counts are compared with those of the peers, times with those of a server with a
known delay."""

import json
import re

import scenario
import test_http
from scenario import (MSEC, SEC, Cable, Server, Unit, as_user, attach, check, equal, kill_qosd, load, lookup,
                      qosctl, run, server_figures, smaller, snapshot, test, unused_port, varlink, wait_for)
from test_endpoints import Nginx, ab, unused_ports
from test_http2 import Nghttpd
from test_memcached import Memcached
from test_redis import Redis


def client_figures(unit, window="total"):
    f = lookup(snapshot(unit, window), "requests.client")
    check(f is not None, "no requests.client")
    return f


def peers(unit, window="total"):
    return {"others" if r.get("rest") else r["peer"]: r for r in client_figures(unit, window).get("peers", [])}


def expect_asked(unit, want, what):
    """Checks that each peer has this many requests, that the peers add up to the unit's figures, and that nothing is in
    flight."""
    def settled():
        f = client_figures(unit)
        return {name: r["count"] for name, r in peers(unit).items()} == want and f["inFlight"] == 0
    try:
        wait_for(what, settled, 10)
    except scenario.Failed:
        equal({name: r["count"] for name, r in peers(unit).items()}, want, f"count by peer {what}")
        raise
    f = client_figures(unit)
    for key in ("count", "inFlight", "aborts", "bytesIn", "bytesOut"):
        equal(sum(r[key] for r in f["peers"]), f[key], f"sum of {key} {what}")
    equal(f["latency"]["count"], sum(want.values()), f"latency.count {what}")


class ClientUnit(Unit):
    """The C client as a unit."""

    def __init__(self, **options):
        name = scenario.unit_name("client")
        self.said = f"/run/{name}.json"
        super().__init__(" ".join([f"{scenario.tools}/client"] + scenario._options(options)), name=name, type="exec",
                         settings=f"StandardOutput=truncate:{self.said}")

    def run(self):
        """Runs the client to its end, and returns its own figures."""
        run_to_its_end(self)
        with open(self.said) as f:
            r = json.load(f)
        return r


def run_to_its_end(unit):
    unit.start()
    wait_for_its_end(unit)


def wait_for_its_end(unit):
    wait_for("the client has ended", lambda: scenario.unit_property(unit.name, "ActiveState") in ("inactive", "failed"),
             30)
    equal(scenario.unit_property(unit.name, "Result"), "success", "the client's result")


class Haproxy(Unit):
    def __init__(self, port, to, mode="http", more=""):
        name = scenario.unit_name("haproxy")
        self.port = port
        self.file = f"/run/{name}.cfg"
        with open(self.file, "w") as f:
            f.write(f"defaults\n mode {mode}\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n {more}\n"
                    f"listen x\n bind 127.0.0.1:{port}\n server y {to}\n")
        super().__init__(f"/usr/sbin/haproxy -Ws -f {self.file}", name=name)


@test(vm="nightly", deadline=60)
def proxy_has_both_roles():
    """haproxy in front of nginx: each request of a client is one of haproxy to nginx, with one response."""
    front, back = unused_ports(2)
    nginx = attach(Nginx([f"127.0.0.1:{back}"])).start()
    proxy = attach(Haproxy(front, f"127.0.0.1:{back}", more="http-reuse always")).start()
    n = 0
    for number, connections, keepalive in ((smaller(2000), 1, True), (smaller(4000), 16, True),
                                           (smaller(500), 8, False)):
        n += ab(front, number, connections=connections, keepalive=keepalive)
        expect_asked(proxy, {f"127.0.0.1:{back}": n}, f"with {connections} connections")
        for unit in (proxy, nginx):
            scenario.expect_total(unit, n)
    row = peers(proxy)[f"127.0.0.1:{back}"]
    equal(row["unit"], nginx.name, "the peer's unit")
    equal((row["errors"], row["aborts"]), (scenario.peer_errors(), 0), "errors and aborts")
    equal(row["bytesOut"], server_figures(nginx)["bytesIn"], "bytes sent and bytes received")
    equal(row["bytesIn"], server_figures(nginx)["bytesOut"], "bytes of responses")
    equal(lookup(snapshot(nginx), "requests.client.count"), 0, "requests of nginx")
    # The request to the backend is part of the client's request
    own = server_figures(proxy)["latency"]["mean"]
    check(row["latency"]["mean"] < own, f"the backend's latency is {row['latency']['mean']}, that of the proxy {own}")
    status = qosctl("status", proxy.name, "--window=total").stdout
    check(f"127.0.0.1:{back}" in status and nginx.name in status, f"the status page: {status}")
    for selector in (f":{back}", f"127.0.0.1:{back}", nginx.name):
        equal(qosctl("show", proxy.name, "--window=total", "--value", "-P",
                     f"requests.client[{selector}].count").stdout.strip(),
              str(n), f"count of {selector}")
    h = varlink("Histogram", unit=proxy.name, metric=f"requests.client[{nginx.name}].latency", window=0)
    equal(h["count"], n, "the histogram's count")
    equal(varlink("Histogram", unit=proxy.name, metric="requests.client.latency", window=0)["count"], n,
          "that of all peers")


@test(deadline=60)
def window_updates_are_no_requests():
    """A WINDOW_UPDATE that a proxy sends to its backend after the last response is no request in flight."""
    front, back = unused_ports(2)
    backend = Unit(f"/usr/sbin/nghttpd --no-tls -a 127.0.0.1 -d {scenario.SOURCES} {back}", type="exec").start()
    proxy = attach(Haproxy(front, f"127.0.0.1:{back} proto h2")).start()

    def answered():
        return run("curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{front}/scenario.py", ok=False).returncode == 0
    wait_for("the backend responds", answered, 10)
    for _ in range(20):
        check(answered(), "no response")
    f = wait_for("nothing is in flight", lambda: (f := client_figures(proxy))["inFlight"] == 0 and f)
    equal((f["aborts"], f["errors"]["timeout"]), (0, 0), "aborts and errors")
    check("count" not in peers(proxy)[f"127.0.0.1:{back}"], "streams have a count, although they overlap")
    backend.stop()


@test(deadline=60)
def pipelines_count():
    """Counts are those of Redis and nginx, however many requests are pipelined, each with its latency. HTTP/2 streams
    are not counted."""
    r = Redis()
    peer = f"127.0.0.1:{r.port}"
    for pipeline, connections in ((1, 8), (16, 1), (16, 8), (128, 3)):
        number = smaller(20000) // pipeline * pipeline
        before = scenario.total(r)
        c = attach(Unit(f"/usr/bin/redis-benchmark -q -p {r.port} -P {pipeline} -c {connections} -n {number} "
                        "-t set,get", type="exec"))
        run_to_its_end(c)
        wait_for("nothing is in flight",
                 lambda: server_figures(r)["inFlight"] == 0 and client_figures(c)["inFlight"] == 0)
        asked = scenario.total(r) - before
        expect_asked(c, {peer: asked}, f"{pipeline} at a time")
        for row in (client_figures(c), peers(c)[peer]):
            check(row["bytesOut"] > 0 and row["rate"] > 0, f"bytes and rate: {row}")
        equal(qosctl("show", c.name, "--window=total", "--value", "-P",
                     f"requests.client[{peer}].count").stdout.strip(), str(asked), "the count")
        qosctl("status", c.name, "--window=total")

    # Streams of HTTP/2 overlap by design: the client role has no count, rate or latency
    n = Nghttpd()
    c = attach(Unit(f"/usr/bin/h2load -n 200 -c 2 -m 10 http://127.0.0.1:{n.port}/file", type="exec"))
    run_to_its_end(c)
    n.expect(200, what="of h2load")
    f = peers(c)[f"127.0.0.1:{n.port}"]
    equal((set(f) & {"count", "rate", "latency"}, f["unit"]), (set(), n.name), "what is known of streams")

    # HTTP/1 pipelines, also with request bodies of all sizes, which are not taken for requests
    a, = unused_ports(1)
    nginx = attach(Nginx([f"127.0.0.1:{a}"], location="client_max_body_size 10m; return 200 'ok\\n';")).start()
    for sizes, many in (([0] * 50, 1), ([0, 10, 1000, 100000, 0] * 20, 1), ([0] * 100, 2), ([10, 0] * 50, 10),
                        ([0] * 60, 60)):
        before = scenario.total(nginx)
        path = f"/run/{scenario.prefix}-pipeline.py"
        with open(path, "w") as f:
            f.write(f"import socket\n"
                    f"s = socket.create_connection(('127.0.0.1', {a}))\n"
                    f"sizes, many = {sizes}, {many}\n"
                    f"for i in range(0, len(sizes), many):\n"
                    "    s.sendall(b''.join(b'POST / HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n' % n + "
                    "b'x' * n for n in sizes[i:i + many]))\n"
                    f"    d = b''\n"
                    f"    while d.count(b'ok\\n') < many: d += s.recv(9999)\n")
        c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
        run_to_its_end(c)
        equal(scenario.total(nginx) - before, len(sizes), "requests at nginx")
        if many <= 2:
            expect_asked(c, {f"127.0.0.1:{a}": len(sizes)}, f"{many} at a time")
        else:
            # nginx sends a segment per response. Where the client reads more than four at once, the arrival of each is
            # unknown
            f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
            equal((f["count"], f.get("latency", {}).get("count", len(sizes))), (len(sizes), len(sizes)),
                  f"count of {many} at once, and latency")


# A unit that runs as soon as it can, however busy the machine is
PROMPT = "CPUSchedulingPolicy=rr"


def program(text, **keywords):
    """Returns a unit that runs this Python program."""
    path = f"/run/{scenario.unit_name('program', '.py')}"
    with open(path, "w") as f:
        f.write(text)
    return Unit(f"/usr/bin/python3 {path}", **keywords)


FAILING = """import socket, struct, sys
redis, memcached, http = (socket.create_connection(("127.0.0.1", int(p))) for p in sys.argv[1:])
def talk(s, data, end):
    s.sendall(data)
    d = b""
    while not d.endswith(end): d += s.recv(65536)
def command(*words):
    return b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(w), w) for w in words)
def get(path):
    return b"GET %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % path
wrong, right, last = command(b"LPUSH", b"k", b"1"), command(b"GET", b"k"), command(b"PING")
talk(redis, command(b"SET", b"k", b"-ERR"), b"+OK\\r\\n")
for _ in range(30):
    talk(redis, wrong, b"value\\r\\n")
    talk(redis, right, b"-ERR\\r\\n")
for n in 2, 3, 16, 300:
    talk(redis, (wrong + right) * n + last, b"PONG\\r\\n")
for _ in range(3):
    for i in range(0, len(wrong), 3): redis.sendall(wrong[i:i + 3])
    talk(redis, b"", b"value\\r\\n")
talk(redis, command(b"SET", b"large", b"-" * 300000), b"+OK\\r\\n")
talk(redis, command(b"GET", b"large"), b"-\\r\\n")
bad = b"set k 0 0 x\\r\\n"
talk(memcached, b"get k\\r\\n", b"END\\r\\n")
for _ in range(10):
    talk(memcached, bad, b"format\\r\\n")
    talk(memcached, b"get k\\r\\n", b"END\\r\\n")
    talk(memcached, b"bogus\\r\\n", b"ERROR\\r\\n")
talk(memcached, (bad + b"get k\\r\\n") * 50 + b"delete k\\r\\n", b"NOT_FOUND\\r\\n")
for _ in range(10):
    for path, body in (b"/bad", b"bad"), (b"/", b"ok"), (b"/none", b"none"):
        talk(http, get(path), body)
talk(http, (get(b"/bad") + get(b"/")) * 2 + get(b"/none"), b"none")
"""


@test(deadline=60)
def responses_that_fail():
    """Error responses of Redis, memcached and nginx are counted by peer and in total, whether they are single,
    pipelined or in pieces."""
    r, m = Redis(), Memcached()
    port, = unused_ports(1)
    nginx = attach(Nginx([f"127.0.0.1:{port}"],
                         location="location /bad { return 503 bad; } location /none { return 404 none; } "
                                  "return 200 ok;")).start()
    path = f"/run/{scenario.prefix}-failing.py"
    with open(path, "w") as f:
        f.write(FAILING)
    c = attach(Unit(f"/usr/bin/python3 {path} {r.port} {m.port} {port}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    replies = int(re.search(r"^total_error_replies:(\d+)", r.cli("info", "stats"), re.M)[1])
    equal(replies, 30 + 2 + 3 + 16 + 300 + 3, "error replies of Redis")
    equal({name: row["errors"] for name, row in peers(c).items()},
          {f"127.0.0.1:{r.port}": scenario.peer_errors(replies=replies),
           f"127.0.0.1:{m.port}": scenario.peer_errors(replies=10 + 10 + 50),
           f"127.0.0.1:{port}": scenario.peer_errors(status5xx=10 + 2)}, "errors by peer")
    equal(f["errors"], scenario.peer_errors(status5xx=12, replies=replies + 70), "errors of all peers")
    equal([server_figures(u)["errors"].get(key) for u, key in ((r, "replies"), (m, "replies"), (nginx, "status5xx"))],
          [replies, 70, 12],
          "the same at the servers")
    equal(scenario.total(c, "requests.client.errors.replies"), replies + 70, "the total")
    equal(qosctl("show", c.name, "--window=total", "--value", "-P",
                 f"requests.client[127.0.0.1:{m.port}].errors.replies").stdout.strip(), "70", "of one peer")


@test(deadline=60)
def requests_apart_on_one_connection():
    """Requests 20 ms apart with responses in order, each 100 ms after its request: that is the latency of each, also
    with some always in flight. In HTTP and in RESP, with responses of all sizes; compared with the client's own
    clock."""
    port = unused_port()
    program(f"""
import asyncio, os, socket
async def serve(reader, writer):
    writer.get_extra_info('socket').setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while line := await reader.readline():
        if line.startswith(b'GET /'):
            size = int(line.split()[1][1:])
            await reader.readuntil(b'\\r\\n\\r\\n')
            response = b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % size + b'x' * size
        else:
            for _ in range(4):
                line = await reader.readline()
            response = b'$%d\\r\\n' % int(line) + b'x' * int(line) + b'\\r\\n'
        asyncio.get_running_loop().call_later(.1, writer.write, response)
async def main():
    await asyncio.start_server(serve, '127.0.0.1', {port})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.sendto(b'READY=1', os.environ['NOTIFY_SOCKET'].replace('@', chr(0), 1))
    await asyncio.Event().wait()
asyncio.run(main())
""", settings=PROMPT).start()
    for http, number, size in ((True, 3, 10), (False, 3, 10), (True, 40, 10), (False, 40, 10), (True, 20, 200000),
                               (False, 20, 50000)):
        said = f"/run/{scenario.unit_name('said', '')}"
        c = attach(program(f"""
import socket, threading, time
s = socket.create_connection(('127.0.0.1', {port}))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
request = b'GET /{size} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' if {http} else b'*2\\r\\n$3\\r\\nGET\\r\\n${len(str(size))}\\r\\n{size}\\r\\n'
whole = {size} + len(b'HTTP/1.1 200 OK\\r\\nContent-Length: {size}\\r\\n\\r\\n' if {http} else b'${size}\\r\\n\\r\\n')
sent = []
def send():
    for _ in range({number}):
        sent.append(time.monotonic_ns())
        s.sendall(request)
        time.sleep(.02)
t = threading.Thread(target=send)
t.start()
n, took = 0, []
while len(took) < {number}:
    data = s.recv(65536)
    assert data
    n += len(data)
    while len(took) < n // whole:
        took.append(time.monotonic_ns() - sent[len(took)])
t.join()
open('{said}', 'w').write(str(sum(took) // len(took)))
""", type="exec", settings=PROMPT))
        run_to_its_end(c)
        what = f"{number} requests in {'HTTP' if http else 'RESP'}, {size} bytes each"
        expect_asked(c, {f"127.0.0.1:{port}": number}, what)
        # Between what the server waits, and what the client has seen
        with open(said) as f:
            most = int(f.read())
        d = client_figures(c)["latency"]
        check(99 * MSEC <= d["mean"] <= most, f"mean of {what}: {d['mean']}, not more than {most}")


@test(deadline=60)
def requests_over_a_bad_cable():
    """With lost, duplicated and reordered segments the client has as many requests as nginx, one at a time and
    pipelined."""
    cable = Cable(drop=15, duplicate=30, reorder=50, delay_us=300, seed=13)
    nginx = attach(test_http.Nginx(netns=cable.b))
    path = f"/run/{scenario.prefix}-bad-cable.py"
    with open(path, "w") as f:
        f.write(f"import socket\n"
                f"s = socket.create_connection(('{cable.address_b}', {nginx.port}))\n"
                f"for many in [1] * 300 + [10] * 30 + [1] * 100:\n"
                f"    s.sendall(b'GET /file HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' * many)\n"
                f"    d = b''\n"
                f"    while d.count(b'f' * 3000) < many: d += s.recv(99999)\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec", settings=f"NetworkNamespacePath=/run/netns/{cable.a}"))
    run_to_its_end(c)
    check(cable.counter("TcpRetransSegs") + cable.counter("TcpRetransSegs", cable.a) > 0, "nothing was retransmitted")
    scenario.expect_total(nginx, 700)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["count"], f["errors"], f["aborts"]), (700, scenario.peer_errors(), 0), "count, errors and aborts")


@test()
def a_pipeline_that_hangs():
    """All requests of a pipeline are in flight. A reset of their connection counts as one error."""
    s = Server(mode="thread", hang=True)
    s.start()
    path = f"/run/{scenario.prefix}-hanging.py"
    with open(path, "w") as f:
        f.write(f"import socket, time\n"
                f"s = socket.create_connection(('127.0.0.1', {s.port}))\n"
                f"s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' * 7)\n"
                f"time.sleep(1000)\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    c.start()
    wait_for("seven are in flight", lambda: client_figures(c)["inFlight"] == 7)
    s.kill()
    f = wait_for("they are given up", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["count"], f["errors"]), (0, scenario.peer_errors(reset=1)), "count and errors")


@test()
def proxy_that_splices():
    front = unused_port()
    back = scenario.start_served(mode="thread", request=20000, response=100000)
    proxy = attach(Haproxy(front, f"127.0.0.1:{back.port}", mode="tcp",
                           more="option splice-request\n option splice-response")).start()
    load(front, connections=8, number=200, request=20000, response=100000)
    load(front, connections=8, number=50, request=20000, response=100000, per_connection=1)
    expect_asked(proxy, {f"127.0.0.1:{back.port}": 250}, "spliced")
    f = client_figures(proxy)
    equal((f["bytesOut"], f["bytesIn"]), (250 * 20000, 250 * 100000), "bytes")


@test()
def many_at_once_through_a_splice():
    """Pipelined requests that haproxy splices are counted, although no program sees the contents of the responses."""
    front = unused_port()
    r = Redis()
    proxy = attach(Haproxy(front, f"127.0.0.1:{r.port}", mode="tcp",
                           more="option splice-request\n option splice-response")).start()
    before = scenario.total(r)
    for pipeline in (16, 1, 64):
        run("redis-benchmark", "-q", "-p", front, "-P", pipeline, "-c", 4, "-n", smaller(6400) // 64 * 64, "-t",
            "set,get")
    wait_for("nothing is in flight",
             lambda: server_figures(r)["inFlight"] == 0 and client_figures(proxy)["inFlight"] == 0)
    f = client_figures(proxy)
    equal((f["count"], f["errors"], f["aborts"]), (scenario.total(r) - before, scenario.peer_errors(), 0),
          "count, errors, aborts")


@test()
def many_at_once_and_the_end():
    """Responses that the client reads after the peer has closed the connection count. Any number of requests without a
    response are one error."""
    port = unused_port()
    program(f"""
import os, socket
s = socket.create_server(('127.0.0.1', {port}))
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
    n.sendto(b'READY=1', os.environ['NOTIFY_SOCKET'].replace('@', chr(0), 1))
while True:
    c, _ = s.accept()
    data = b''
    while data.count(b'\\r\\n\\r\\n') < 5:
        data += c.recv(9999)
    responses = int(data.split(b'/')[1].split()[0])
    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n' * responses)
    c.close()
""").start()
    c = attach(program(f"""
import socket, time
for responses in (5, 3, 5, 0):
    s = socket.create_connection(('127.0.0.1', {port}))
    s.sendall(b'GET /%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' % responses * 5)
    # Wait for CLOSE_WAIT: the responses and the FIN have arrived. Connections to other ports may have the same local port
    ends = b':%04X ' % s.getsockname()[1], b':%04X 08 ' % {port}
    while not any(ends[0] in l and ends[1] in l for l in open('/proc/net/tcp', 'rb')):
        time.sleep(.01)
    n = 0
    while d := s.recv(10):
        n += len(d)
    assert n == responses * len(b'HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n')
    s.close()
""", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["count"], f["errors"], f["aborts"]), (13, scenario.peer_errors(reset=2), 0), "count, errors, aborts")


@test()
def times_are_those_of_the_peer():
    """The latency is between the server's delay of 20.6 ms and what the client measures, which includes its wakeup. The
    delay is in the middle of a bucket of schema 3, so that a quantile is as close as the mean."""
    s = Server(mode="thread", delay_us=20600)
    s.start()
    c = attach(ClientUnit(port=s.port, connections=2, number=40, think_us=5000))
    said = c.run()["latency"]
    expect_asked(c, {f"127.0.0.1:{s.port}": 40}, "of a slow server")
    d = client_figures(c)["latency"]
    for name in ("mean", "max"):
        check(20.6 * MSEC <= d[name] <= said[name], f"{name} {d[name]}, the client's {said[name]}")
    # A quantile is the middle of its bucket
    check(0.99 * 20.6 * MSEC <= d["p50"] <= 1.045 * said["p50"], f"p50 {d['p50']}, the client's {said['p50']}")
    equal(server_figures(c)["count"], 0, "its requests")


@test()
def responses_in_parts():
    """The latency ends with the last part of a response. A request in several segments is counted once."""
    s = Server(mode="thread", parts=4, gap_us=10000, response=400)
    s.start()
    c = attach(ClientUnit(port=s.port, connections=2, number=20, response=400, segments=3, segment_us=3000))
    said = c.run()["latency"]
    expect_asked(c, {f"127.0.0.1:{s.port}": 20}, "in parts")
    f = client_figures(c)
    # Three parts of a request 3 ms apart, four of a response 10 ms apart
    for name in ("mean", "max"):
        check(36 * MSEC <= f["latency"][name] <= said[name], f"{name} {f['latency'][name]}, the client's {said[name]}")
    equal((f["bytesOut"], f["bytesIn"]), (20 * 64, 20 * 400), "bytes")


@test()
def on_all_kinds_of_connections():
    """Requests over IPv4 and IPv6 are counted by peer; an IPv4-mapped address is the same peer as the IPv4 address."""
    a, b = unused_ports(2)
    Nginx([f"127.0.0.1:{a}", f"[::1]:{b}"]).start()
    script = (f"import socket,sys\n"
              f"def ask(f, to, n):\n"
              f"    s = socket.socket(f); s.connect(to)\n"
              f"    for _ in range(n):\n"
              f"        s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); d = b''\n"
              f"        while not d.endswith(b'ok\\n'): d += s.recv(999)\n"
              f"    s.close()\n"
              f"for _ in range(3):\n"
              f"    ask(socket.AF_INET, ('127.0.0.1', {a}), 4)\n"
              f"    ask(socket.AF_INET6, ('::ffff:127.0.0.1', {a}), 3)\n"
              f"    ask(socket.AF_INET6, ('::1', {b}), 2)\n")
    path = f"/run/{scenario.prefix}-ask.py"
    with open(path, "w") as f:
        f.write(script)
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    expect_asked(c, {f"127.0.0.1:{a}": 21, f"[::1]:{b}": 6}, "of all kinds")
    run_to_its_end(c)
    expect_asked(c, {f"127.0.0.1:{a}": 42, f"[::1]:{b}": 12}, "twice")
    equal(client_figures(c)["aborts"], 0, "aborts")


@test(deadline=40, quiet="loaded")
def connections_that_fail():
    """Refused connection attempts count as reset, those without a response as timeout, and those that the client gives
    up as aborts."""
    port = unused_port()
    path = f"/run/{scenario.prefix}-fail.py"
    with open(path, "w") as f:
        f.write(f"import socket\n"
                f"for _ in range(7):\n"
                f"    s = socket.socket()\n"
                f"    try: s.connect(('127.0.0.1', {port}))\n"
                f"    except ConnectionRefusedError: pass\n"
                f"    s.close()\n"
                f"# The same socket once more\n"
                f"s = socket.socket()\n"
                f"for _ in range(3):\n"
                f"    try: s.connect(('127.0.0.1', {port}))\n"
                f"    except ConnectionRefusedError: pass\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    f = wait_for("they are counted", lambda: (f := client_figures(c))["errors"]["reset"] == 10 and f)
    equal((f["count"], f["errors"], f["aborts"], f["inFlight"]), (0, scenario.peer_errors(reset=10), 0, 0), "refused")
    equal(set(peers(c)), {f"127.0.0.1:{port}"}, "peers")

    # The peer drops all packets. The first attempt times out, the client closes the socket of the second one
    cable = Cable()
    with open(path, "w") as f:
        f.write(f"import socket, errno\n"
                f"s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)\n"
                f"try: s.connect(('{cable.address_b}', 9))\n"
                f"except TimeoutError: pass\n"
                f"s.close()\n"
                f"s = socket.socket(); s.setblocking(False)\n"
                f"assert s.connect_ex(('{cable.address_b}', 9)) == errno.EINPROGRESS\n"
                f"s.close()\n")
    run(*scenario.nsenter(cable.b), "nft", "-f", "-",
        stdin="table inet t {\nchain c {\ntype filter hook input priority 0; policy drop;\n}\n}\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec", settings=f"NetworkNamespacePath=/run/netns/{cable.a}"))
    c.start()
    wait_for("the first attempt waits", lambda: scenario.tcp_states(cable.a, "dport = :9") == ["SYN-SENT"])
    with scenario.occupied():
        wait_for("the kernel gave it up", lambda: not scenario.tcp_states(cable.a, "dport = :9"), pause=0.1)
    wait_for_its_end(c)
    f = wait_for("they are counted", lambda: (f := client_figures(c))["aborts"] == 1 and f)
    equal((f["count"], f["errors"], f["aborts"], f["inFlight"]), (0, scenario.peer_errors(timeout=1), 1, 0),
          "without a response")


@test()
def peers_that_die():
    """Requests in flight to a server that is killed are errors of the client role, and those of a killed client are its
    aborts."""
    s = Server(mode="thread", hang=True)
    s.start()
    idle = scenario.start_served(mode="thread")
    c = attach(ClientUnit(port=s.port, connections=5, number=5))
    c.start()
    wait_for("five are in flight", lambda: client_figures(c)["inFlight"] == 5)
    equal(client_figures(c)["count"], 0, "count while they hang")
    s.kill()
    f = wait_for("they are errors", lambda: (f := client_figures(c))["errors"]["reset"] >= 5 and f)
    equal((f["count"], f["inFlight"], f["aborts"]), (0, 0, 0), "count, in flight, aborts")

    # The client is killed
    s.start()
    c = attach(ClientUnit(port=s.port, connections=4, number=4))
    c.start()
    wait_for("four are in flight", lambda: client_figures(c)["inFlight"] == 4)
    c.kill()
    f = wait_for("they are given up", lambda: (f := client_figures(c))["aborts"] == 4 and f)
    equal((f["count"], f["inFlight"], f["errors"]), (0, 0, scenario.peer_errors()), "count, in flight, errors")
    equal(server_figures(idle)["inFlight"], 0, "in flight at another server")


@test()
def half_closed_and_closed():
    """A client that has shut down writing still waits for the response; one that closes does not, even if the peer
    never notices."""
    go = f"/run/{scenario.prefix}-go"
    s = Server(mode="thread", until_eof=True, answer_when=go)
    s.start()
    c = attach(ClientUnit(port=s.port, until_eof=True))
    c.start()
    wait_for("it waits", lambda: client_figures(c)["inFlight"] == 1)
    equal(client_figures(c)["aborts"], 0, "aborts")
    open(go, "w").close()
    f = wait_for("it has a response", lambda: (f := client_figures(c))["count"] == 1 and f)
    equal((f["inFlight"], f["aborts"], f["errors"]), (0, 0, scenario.peer_errors()), "in flight, aborts, errors")

    # This listener's process never accepts, reads or closes
    s = Server(mode="single", accept_when="/run/nothing")
    s.start()
    path = f"/run/{scenario.prefix}-close.py"
    with open(path, "w") as f:
        f.write(f"import socket\nfor _ in range(3):\n    s = socket.create_connection(('127.0.0.1', {s.port}))\n"
                "    s.sendall(b'x' * 64)\n    s.close()\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    f = client_figures(c)
    equal((f["count"], f["inFlight"], f["aborts"], f["errors"]), (0, 0, 3, scenario.peer_errors()), "given up")


@test(deadline=60)
def waiting_is_no_latency_of_the_peer():
    """Blocking commands of Redis are counted, but are not in the latency."""
    r = Redis()
    path = f"/run/{scenario.prefix}-waits.py"
    with open(path, "w") as f:
        f.write(f"import socket, time\n"
                f"s = socket.create_connection(('127.0.0.1', {r.port}))\n"
                f"def ask(line, end):\n"
                f"    s.sendall(line); d = b''\n"
                f"    while not d.endswith(end): d += s.recv(999)\n"
                f"took = 0\n"
                f"for i in range(10):\n"
                f"    begun = time.monotonic_ns()\n"
                f"    ask(b'PING\\r\\n', b'+PONG\\r\\n')\n"
                f"    took = max(took, time.monotonic_ns() - begun)\n"
                f"    ask(b'*3\\r\\n$5\\r\\nBLPOP\\r\\n$1\\r\\nq\\r\\n$3\\r\\n0.5\\r\\n', b'*-1\\r\\n')\n"
                f"open('{path}.said', 'w').write(str(took))\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    f = wait_for("all are counted", lambda: (f := client_figures(c))["count"] == 20 and f["inFlight"] == 0 and f)
    equal(f["latency"]["count"], 10, "latency.count")
    with open(f"{path}.said") as said:
        most = int(said.read())
    check(f["latency"]["max"] <= most,
          f"latency.max is {f['latency']['max']}, not {most} at most: a blocking command is in it")


@test(deadline=60)
def continue_is_no_final_response():
    """The latency of an upload ends with the final response, not with "100 Continue"."""
    port, path, delay = unused_port(), f"/run/{scenario.prefix}-continue.py", 0.3
    with open(path, "w") as f:
        f.write(f"import socket, sys, time\n"
                f"l = socket.create_server(('127.0.0.1', {port}))\n"
                f"while True:\n"
                f"    s, _ = l.accept(); d = b''\n"
                f"    with s:\n"
                f"        while True:\n"
                f"            while b'\\r\\n\\r\\n' not in d:\n"
                f"                more = s.recv(9999); d += more\n"
                f"                if not more: break\n"
                f"            if not d: break\n"
                f"            s.sendall(b'HTTP/1.1 100 Continue\\r\\n\\r\\n')\n"
                f"            d = d.partition(b'\\r\\n\\r\\n')[2]\n"
                f"            while len(d) < 5000: d += s.recv(9999)\n"
                f"            d = d[5000:]\n"
                f"            time.sleep({delay})\n"
                f"            s.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n")
    Unit(f"/usr/bin/python3 {path}", type="exec").start()
    wait_for("it listens", lambda: run("ss", "-tlnH", f"sport = :{port}").stdout)
    body = f"/run/{scenario.prefix}-body"
    with open(body, "w") as f:
        f.write("x" * 5000)
    uploads = " ".join([f"-T {body} http://127.0.0.1:{port}/"] * 4)
    c = attach(Unit(f"/usr/bin/curl -sS -H 'Expect: 100-continue' --expect100-timeout 20 {uploads}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["count"], f["aborts"], f["errors"]), (4, 0, scenario.peer_errors()), "count, aborts, errors")
    check(f["latency"]["mean"] >= delay * SEC, f"latency is {f['latency']}")


@test(deadline=60)
def more_than_there_are_rows():
    """Of thirty peers some have an entry and the remaining ones are in others; the sum is exact."""
    ports = unused_ports(30)
    Nginx([f"127.0.0.1:{p}" for p in ports]).start()
    path = f"/run/{scenario.prefix}-many.py"
    with open(path, "w") as f:
        f.write(f"import socket\n"
                f"ports = {ports}\n"
                f"for i, p in enumerate(ports * 2):\n"
                f"    with socket.create_connection(('127.0.0.1', p)) as s:\n"
                f"        for _ in range(p % 7 + 1):\n"
                f"            s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); d = b''\n"
                f"            while not d.endswith(b'ok\\n'): d += s.recv(999)\n"
                f"with socket.socket() as s:\n"
                f"    s.connect_ex(('127.0.0.1', {unused_port()}))\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    asked = sum(2 * (p % 7 + 1) for p in ports)
    f = wait_for("all are counted", lambda: (f := client_figures(c))["count"] == asked and f)
    rows = peers(c)
    check("others" in rows and len(rows) > 5, f"peers: {sorted(rows)}")
    for key in ("count", "bytesIn", "bytesOut"):
        equal(sum(r[key] for r in rows.values()), f[key], f"sum of {key}")
    equal(sum(r["errors"]["reset"] for r in rows.values()), 1, "errors")
    equal((f["inFlight"], f["latency"]["count"]), (0, asked), "in flight, latency.count")
    for name, r in rows.items():
        if name != "others":
            want = 2 * (int(name.split(":")[1]) % 7 + 1)
            check(r["count"] <= want, f"{name} has {r['count']} requests instead of at most {want}")
    check("others" in qosctl("status", c.name, "--window=total").stdout, "there is no others on the status page")


@test(deadline=60)
def attached_under_load():
    """Connections under load at the attach are found, and requests that the client sends from then on are counted."""
    s = Server(mode="thread", delay_us=2000)
    s.start()
    c = ClientUnit(port=s.port, connections=8, number=10**9)
    c.start()
    wait_for("load", lambda: run("ss", "-tnH", "state", "established", f"dport = :{s.port}").stdout.count("\n") == 8)
    attach(s)
    before = server_figures(s)["count"]
    attach(c)
    after = server_figures(s)["count"]
    wait_for("some are counted", lambda: client_figures(c)["count"] > 200, 20)
    # On SIGTERM the client finishes requests in flight and sends no more
    c.kill("SIGTERM")
    wait_for("the client has ended", lambda: scenario.unit_property(c.name, "ActiveState") == "inactive", 20)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    end = wait_for("nothing is in flight", lambda: (f := server_figures(s))["inFlight"] == 0 and f)["count"]
    # A request is counted by the server first, so that the counts differ by what was in flight at the attach
    check(end - after - 8 <= f["count"] <= end - before + 8,
          f"{f['count']} counted, the server has {end - after} to {end - before}")
    equal((f["errors"], f["aborts"]), (scenario.peer_errors(), 0), "errors and aborts")


@test()
def not_in_the_place_of_others():
    """A user that listens on the address of a service, in a network namespace of the user's own, does not become the
    unit of that peer."""
    s = scenario.Server(mode="thread")
    for before in True, False:
        theirs = scenario.Server(mode="thread", port=s.port, settings="User=nobody\nDelegate=yes\nPrivateNetwork=yes\n")
        if before:
            theirs.start()
            attach(theirs)
            attach(s)
            s.start()
        else:
            theirs.start()
            attach(theirs)
        wait_for("both listen", lambda: all(lookup(snapshot(u), "requests.server.endpoints") for u in (theirs, s)))
        c = attach(ClientUnit(port=s.port, number=5))
        c.run()
        expect_asked(c, {f"127.0.0.1:{s.port}": 5}, "for root")
        equal(lookup(snapshot(c), "requests.client.peers")[0]["unit"], s.name, f"the peer's unit, {before}")
        qosctl("detach", theirs.name)
    qosctl("detach", s.name)
    attach(theirs)
    wait_for("the user's unit is the only one",
             lambda: lookup(snapshot(c), "requests.client.peers")[0].get("unit") == theirs.name)


@test()
def not_for_everybody():
    """Only root sees the peers of a unit. All users see the number of its requests."""
    s = scenario.start_served(mode="thread")
    c = attach(ClientUnit(port=s.port, number=5))
    c.run()
    expect_asked(c, {f"127.0.0.1:{s.port}": 5}, "for root")
    equal(lookup(snapshot(c), "requests.client.peers")[0]["unit"], s.name, "the peer's unit")

    def as_nobody(*words, ok=True):
        return run(*as_user(65534), "qosctl", "--no-pager", *words, ok=ok)
    x = json.loads(as_nobody("status", c.name, "--window=total", "--json=short").stdout)
    equal(lookup(x, "requests.client.count"), 5, "count for user nobody")
    check("peers" not in x["requests"]["client"], f"user nobody sees peers: {x['requests']['client']}")
    for out in (as_nobody("status", c.name, "--window=total").stdout, as_nobody("show", c.name).stdout,
                as_nobody("list", c.name, "--json=short").stdout):
        check(str(s.port) not in out, f"user nobody sees the port: {out}")
    for words in (["show", c.name, "-P", f"requests.client[:{s.port}].count"],
                  ["histogram", c.name, f"requests.client[:{s.port}].latency"]):
        r = as_nobody(*words, ok=False)
        check(r.returncode == 1 and str(s.port) not in r.stdout, f"user nobody sees a metric of the peer: {r.stdout}")
    # Endpoints are visible to all users
    check(as_nobody("show", s.name, "--value", "--window=total", "-P",
                    f"requests.server[:{s.port}].count").stdout.strip() == "5",
          "user nobody does not see the endpoint")


@test(own_daemon=True)
def over_a_restart_of_qosd():
    s = scenario.start_served(mode="thread")
    c = attach(ClientUnit(port=s.port, number=5))
    c.run()
    expect_asked(c, {f"127.0.0.1:{s.port}": 5}, "before")
    kill_qosd()
    c.run()
    expect_asked(c, {f"127.0.0.1:{s.port}": 10}, "after a crash")
