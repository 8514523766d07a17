# SPDX-License-Identifier: LGPL-2.1-or-later
"""HTTP/2 without TLS, and gRPC: one request per stream. nginx, nghttpd and the gRPC library, compared with the counts
of their clients, and a client and a server that send arbitrary frames."""

import contextlib
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys

import http2
import scenario
from scenario import (MSEC, SOURCES, Cable, Unit, attach, check, equal, expect_total, lookup, nsenter, qosctl, run,
                      server_figures, smaller, snapshot, systemctl, test, total, unused_port, wait_for)


class Http2(Unit):
    """A server of HTTP/2, which is attached before it starts, so that qosd sees all of its requests."""

    netns = None
    protocol = "http2"

    def begin(self, attach_first=True):
        if attach_first:
            self.attach()
        self.start()
        self.listens()

    def attach(self):
        attach(self)

    def listens(self):
        wait_for("the server listens",
                 lambda: str(self.port) in run(*nsenter(self.netns), "ss", "-ltnH", f"sport = :{self.port}").stdout)

    def connect(self, **options):
        return http2.Client(self.port, **options)

    def expect(self, count, status4xx=0, status5xx=0, grpc=None, what="", in_flight=0, reset=0, aborts=0,
               protocols=None):
        """Checks the figures of the server, and that all of its requests were parsed. Returns the figures."""
        expect_total(self, count, what=f"count {what}")
        f = wait_for(f"{in_flight} are in flight {what}",
                     lambda: (f := server_figures(self))["inFlight"] == in_flight and f)
        equal(scenario.protocols(f), protocols or {self.protocol: count}, f"protocols {what}")
        # A server of gRPC only need not have counts by HTTP status
        none = 0 if self.protocol == "grpc" else None
        equal((f.get("status4xx", none), f["errors"].get("status5xx", none)), (status4xx, status5xx),
              f"4xx, 5xx {what}")
        equal(f["errors"].get("grpc"), grpc, f"errors.grpc {what}")
        equal((f["errors"]["reset"], f["clientAborts"]), (reset, aborts), f"errors.reset, clientAborts {what}")
        # What another request has released may have waited by intent, and is in no distribution
        equal(f["latency"]["count"] + f["intended"]["count"], count, f"latency.count and intended.count {what}")
        equal(snapshot(self)["requests"]["quality"], "exact", f"quality {what}")
        return f


class Scripted(Http2):
    def __init__(self, attach_first=True):
        self.port = unused_port()
        super().__init__(f"/usr/bin/python3 -B {SOURCES}/http2_server.py {self.port}",
                         settings="SuccessExitStatus=TERM KILL")
        self.begin(attach_first)


class Nginx(Http2):
    """An nginx whose access log has protocol and status of each request, written when the request has ended."""

    def __init__(self, attach_first=True, netns=None, keepalive_requests=1000000):
        self.port, self.netns = unused_port(), netns
        name = scenario.unit_name("nginx")
        self.directory = f"/run/{name}"
        os.makedirs(self.directory)
        with open(f"{self.directory}/file", "wb") as f:
            f.write(b"f" * 3000)
        with open(f"{self.directory}/large", "wb") as f:
            f.write(b"l" * 300000)
        with open(f"{self.directory}/nginx.conf", "w") as f:
            f.write(f"worker_processes 2; pid {self.directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                    f"http {{ log_format truth '$server_protocol $status'; access_log {self.directory}/log truth;\n"
                    f"keepalive_requests {keepalive_requests}; http2_max_concurrent_streams 256;\n"
                    f"server {{ listen {self.port}; http2 on; root {self.directory};\n"
                    f" location /bad {{ return 503 'bad'; }} }} }}\n")
        namespace = f"NetworkNamespacePath=/run/netns/{netns}" if netns else ""
        super().__init__(f"/usr/sbin/nginx -c {self.directory}/nginx.conf -g 'daemon off;'", name=name, type="exec",
                         settings=f"ExecReload=/bin/kill -HUP $MAINPID\n{namespace}")
        self.begin(attach_first)

    def logged(self, want=None):
        """The number of requests of HTTP/2, and of those that failed with 503. Lines are written when a stream is
        freed, which is not before its response has left."""
        def read():
            with open(f"{self.directory}/log") as f:
                lines = f.read().splitlines()
            return lines if want is None or len(lines) >= want else None
        lines = wait_for(f"nginx has logged {want}", lambda: read() or (want is None and [""]))
        return sum(line.startswith("HTTP/2.0 ") for line in lines), sum(line.endswith(" 503") for line in lines)


class Nghttpd(Http2):
    def __init__(self, *options):
        self.port = unused_port()
        name = scenario.unit_name("nghttpd")
        self.directory = f"/run/{name}"
        os.makedirs(self.directory)
        for path, size in (("file", 3000), ("style", 500), ("large", 300000)):
            with open(f"{self.directory}/{path}", "wb") as f:
                f.write(b"f" * size)
        super().__init__(f"/usr/sbin/nghttpd --no-tls -n 2 -b 64 -d {self.directory} {' '.join(options)} {self.port}",
                         name=name,
                         type="exec")
        self.begin()


class Grpc(Http2):
    protocol = "grpc"

    certificate = None

    def __init__(self, attach_first=True, settings=""):
        self.port = unused_port()
        super().__init__(f"/usr/bin/python3 -B {SOURCES}/grpc_server.py {self.port}",
                         settings=f"SuccessExitStatus=TERM KILL\n{settings}")
        self.begin(attach_first)

    def client(self, method, number, codes=None):
        return subprocess.Popen([sys.executable, "-B", f"{SOURCES}/grpc_client.py", str(self.port), method,
                                 str(number)] +
                                ([",".join(map(str, codes))] if codes else []),
                                env=dict(os.environ, **{"CERTIFICATE": self.certificate} if self.certificate else {}),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, method, number, codes=None):
        """Returns the number of calls by status, as the client's library reports it."""
        out, _ = self.client(method, number, codes).communicate(timeout=100)
        ended = json.loads(out)
        equal(sum(ended.values()), number, f"calls of {method} that ended")
        return ended


def h2load(server, number, clients=4, streams=100, paths=("/file",), address="127.0.0.1", netns=None, all_end=True):
    """Requests the paths in turn. Returns the number of responses by class of status."""
    with open(f"/run/{scenario.prefix}-paths", "w") as f:
        f.writelines(f"http://{address}:{server.port}{p}\n" for p in paths)
    out = run(*nsenter(netns), "h2load", "-n", number, "-c", clients, "-m", streams, "-i", f.name, timeout=200).stdout
    requests = re.search(r"^requests: \d+ total, \d+ started, (\d+) done, \d+ succeeded, \d+ failed, (\d+) errored",
                         out, re.M)
    check(requests, f"output of h2load: {out}")
    codes = [int(n)
             for n in re.search(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out, re.M).groups()]
    if all_end:
        equal((int(requests[1]), int(requests[2])), (number, 0), f"requests that h2load completed, and others: {out}")
    return {"2xx": codes[0], "3xx": codes[1], "4xx": codes[2], "5xx": codes[3]}


# 7 of 100, at irregular distances, three of them in a row
BAD = {3, 4, 5, 40, 71, 90, 99}
SEVEN_OF_A_HUNDRED = ["/bad" if n in BAD else "/file" for n in range(100)]


def exact_or_qualified(unit, want, up_to=None):
    """Checks that the count is right if the quality is "exact". Returns the quality."""
    s = wait_for("nothing is in flight", lambda: (s := snapshot(unit))["requests"]["server"]["inFlight"] == 0 and s)
    if s["requests"]["quality"] == "exact":
        expect_total(unit, want, up_to=up_to)
    return s["requests"]["quality"]


@test(deadline=60)
def hundred_streams_at_once():
    """Requests and failures are those that h2load and nginx count, with up to 100 connections, and 100 streams on
    each."""
    n = Nginx()
    sent = bad = 0
    for clients, streams, each in ((1, 1, 200), (4, 100, 5000), (16, 10, 600), (100, 100, 100)):
        # h2load gives each connection a part of the requests, which begins with the first path
        each = max(smaller(each) // 100, 1) * 100
        number = clients * each
        answered = h2load(n, number, clients, streams, SEVEN_OF_A_HUNDRED)
        equal((answered["2xx"], answered["5xx"]), (number * 93 // 100, number * 7 // 100), "responses")
        sent, bad = sent + number, bad + answered["5xx"]
        n.expect(sent, 0, bad, what=f"with {clients} connections, {streams} streams on each")
    equal(n.logged(sent), (sent, bad), "requests and failures by nginx's log")
    n.expect(sent, 0, bad, what="afterwards")
    equal(h2load(n, 100, 1, 10, ["/large"])["2xx"], 100, "large responses")
    n.expect(sent + 100, 0, bad, what="with responses of 300 kB that share a connection")


@contextlib.contextmanager
def option_memory(size):
    """Limits the option memory of a socket, which BPF's socket storage is allocated from, while its body runs."""
    path = "/proc/sys/net/core/optmem_max"
    with open(path) as f:
        before = f.read()
    try:
        with open(path, "w") as f:
            f.write(str(size))
        yield
    finally:
        with open(path, "w") as f:
            f.write(before)


def lost_elements():
    return {row["map"]: row["count"] for row in scenario.varlink("GetStatus").get("lostElements", [])}


@test(vm="nightly", quiet="alone")
def without_memory():
    """If the kernel has no memory for the state of a connection, the failures are counted by map, and the quality is
    not exact. With memory for the first of the two parts of the state, connections with few streams are exact."""
    before = lost_elements()
    n = Nginx()
    with option_memory(4096):
        equal(h2load(n, 40, 2, 10)["2xx"], 40, "responses")
    now = lost_elements()
    equal(now.get("h2_conns", 0) - before.get("h2_conns", 0), 2, f"connections without h2_conns, {now}")
    s = snapshot(n)
    equal(s["drops"], 2, "drops")
    check(s["requests"]["quality"] != "exact", f"quality is {s['requests']['quality']}")
    check("could not be allocated in map 'h2_conns'" in qosctl("probes").stdout, "qosctl probes does not report it")
    n = Nginx()
    with option_memory(12000):
        equal(h2load(n, 400, 1, 20)["2xx"], 400, "responses")
        equal((snapshot(n)["drops"], snapshot(n)["requests"]["quality"]), (0, "exact"),
              "drops and quality with few streams")
        equal(h2load(n, 400, 1, 100)["2xx"], 400, "responses")
    equal(lost_elements().get("h2_mores", 0) - before.get("h2_mores", 0), 1, "connections without h2_mores")
    expect_total(n, 800)
    equal((snapshot(n)["drops"], snapshot(n)["requests"]["quality"]), (1, "exchanges"),
          "drops and quality with many streams")


@test()
def nghttpd():
    """Statuses that are encoded with HPACK's dynamic table are counted, and pushes are no requests."""
    n = Nghttpd("--push=/file=/style")
    sent = h2load(n, smaller(10000) // 40 * 40, 4, 100, ["/file", "/none"] + ["/large"] * 2 + ["/file"] * 6)
    equal(sent["4xx"] * 9, sent["2xx"], "a tenth has the status 404")
    number = sum(sent.values())
    n.expect(number, sent["4xx"], what="with nghttpd")
    with n.connect(push=1) as c:
        for i in range(20):
            equal(c.ask("/file").status, 200, "status")
            equal(c.ask("/none").status, 404, "status")
        check(any(s % 2 == 0 for s in c.streams), "nothing was pushed")
        pushed = [c.wait(s) for s in list(c.streams) if s % 2 == 0]
        equal({len(s.body) for s in pushed}, {500}, "sizes of pushed bodies")
        n.expect(number + 40, sent["4xx"] + 20, what="with pushes")


@test(deadline=60)
def cut_anywhere(server=Scripted):
    """Frames of all kinds are parsed wherever segments end, in both directions."""
    s = server()
    seed = random.Random(8)
    sent, statuses = 0, []
    for number, (first, options) in enumerate((({}, {}), ({"seed": 1}, {}), ({"seed": 2}, {"header_table_size": 0}),
                                               ({}, {"header_table_size": 100}),
                                               ({"seed": 3}, {"header_table_size": 65536}))):
        with s.connect(**first, **options) as c:
            for _ in range(smaller(20)):
                streams, data = [], b""
                for _ in range(seed.randrange(1, 9)):
                    status = seed.choice([200, 200, 204, 304, 404, 418, 500, 503])
                    fields = [("x-cut", str(number))] if first else []
                    fields += [("x-" + "y" * seed.randrange(40), "%x" % seed.getrandbits(400))] * seed.randrange(3)
                    keywords = {"pieces": seed.choice([1, 1, 2, 5]), "padding": seed.choice([None, None, 0, 255]),
                                "priority": seed.random() < .3}
                    if seed.random() < .4:
                        keywords.update(method="POST", body=bytes(seed.choice([0, 1, 700, 40000])))
                    if seed.random() < .2:
                        keywords.update(trailers=[("x-trailer", ":status")])
                    stream, frames = c.request(f"/status/{status}", fields=fields, **keywords)
                    data += frames
                    if seed.random() < .3:
                        data += http2.frame(http2.PING, 0, 0, b"\0\0\0\1\1\5\0\0")
                    if seed.random() < .3:
                        data += http2.frame(http2.WINDOW_UPDATE, 0, stream, struct.pack("!I", 1))
                    if seed.random() < .2:
                        data += http2.frame(http2.PRIORITY, 0, stream + 100, struct.pack("!IB", stream, 3))
                    if seed.random() < .2:
                        data += http2.frame(250, 255, stream, b"no such frame")
                    streams.append((stream, status))
                c.send(data)
                for stream, status in streams:
                    equal(c.wait(stream).status, status, "status")
                    statuses.append(status)
        sent = len(statuses)
        s.expect(sent, sum(400 <= x < 500 for x in statuses), sum(x >= 500 for x in statuses),
                 what=f"with frames cut anywhere, {first} {options}")


@test(vm="nightly")
def all_kinds_of_responses(server=Scripted):
    """All kinds of responses count once: with interim responses, trailers, headers in several frames, bodies of all
    sizes, and before the request's body."""
    s = server()
    sent = 0
    with s.connect() as c:
        for _ in range(smaller(20)):
            for path in ("/interim", "/trailers/10", "/trailers/100000", "/size/0", "/size/1", "/size/16384",
                         "/size/400000",
                         "/headers/1", "/headers/600", "/ping"):
                r = c.ask(path)
                equal((r.status, r.end), (200, "end"), f"response to {path}")
                sent += 1
            f = s.expect(sent, what="of all kinds")
        check(f["answer"]["max"] > 0, "no response took any time to leave")
        # Streams at the same time, with interleaved responses
        c.wait_all([c.start(p) for p in ["/size/400000", "/headers/600", "/trailers/100000", "/status/503"] * 5])
        sent += 20
        s.expect(sent, 0, 5, what="with interleaved responses")
        # Headers of requests in several frames
        for _ in range(5):
            many = [(f"x-{i}", "%x" % random.Random(i).getrandbits(4000)) for i in range(30)]
            equal(c.ask("/status/200", fields=many, pieces=4).status, 200, "status with 30 kB of headers")
            sent += 1
        s.expect(sent, 0, 5, what="with large headers")

        # A response before the end of the request's body
        for n in range(5):
            stream, data = c.request("/early", method="POST", body=bytes(50000))
            c.send(data[:20000])
            r = c.wait(stream)
            equal((r.status, r.body), (413, b"no!"), "early response")
            wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
            c.send(data[20000:])
            sent += 1
        equal(c.ask("/status/200").status, 200, "status afterwards")
        s.expect(sent + 1, 5, 5, what="with early responses")


@test()
def streams_in_flight(server=Scripted):
    """Streams without a response are in flight, with their age, on all connections, until they are released or the
    server is killed."""
    s = server()
    clients = [s.connect() for _ in range(3)]
    held = [(c, c.start("/hang")) for c in clients for _ in range(10)]
    f = wait_for("30 are in flight", lambda: (f := server_figures(s))["inFlight"] == 30 and f)
    equal(f["count"], 0, "count while all hang")
    wait_for("the streams get older", lambda: server_figures(s).get("oldestInFlight", 0) > 300 * MSEC)
    equal(clients[0].ask("/status/200").status, 200, "status of a later stream")
    s.expect(1, in_flight=30, what="while 30 streams hang")
    equal(clients[0].ask("/release").status, 200, "status")
    for c, stream in held:
        equal(c.wait(stream).status, 200, "status")
    f = s.expect(32, what="after the release")
    check("oldestInFlight" not in f, f"a stream is in flight for {f.get('oldestInFlight')} ns")
    check(max(f["latency"]["max"], f["intended"].get("latency", 0)) > 300 * MSEC, f"times of {f}")

    # Streams that the server resets without a response are errors
    for c in clients:
        equal(c.ask("/refuse").end, http2.INTERNAL_ERROR, "error code")
    expect_total(s, 3, "requests.server.errors.reset")
    s.expect(32, reset=3, what="with streams that the server reset")
    equal(clients[0].ask("/status/503").status, 503, "status")

    # Streams in flight when the server is killed are errors
    for c in clients:
        for _ in range(5):
            c.start("/hang")
    wait_for("15 are in flight", lambda: server_figures(s)["inFlight"] == 15)
    s.kill()
    wait_for("none is in flight after the kill", lambda: server_figures(s)["inFlight"] == 0)
    expect_total(s, 3 + 15, "requests.server.errors.reset")
    equal((total(s), total(s, "requests.server.clientAborts")), (33, 0), "count, clientAborts")
    # After a start of the server its requests count on
    s.start()
    s.listens()
    with s.connect() as c:
        equal([c.ask("/status/200").status for _ in range(10)], [200] * 10, "statuses")
    expect_total(s, 43)


@test()
def long_streams_beside_short_ones(server=Scripted):
    """Streams that last for as long as their connection are in flight, while other streams on the connection are
    counted."""
    s = server()
    sent = bad = 0
    for number in 1, 12, 90:
        with s.connect() as c:
            held = [c.start("/hang") for _ in range(number)]
            for n in range(smaller(1000)):
                status = 503 if n % 100 in BAD else 200
                equal(c.ask(f"/status/{status}").status, status, "status")
                sent, bad = sent + 1, bad + (status == 503)
            s.expect(sent, 0, bad, in_flight=number, what=f"beside {number} hanging streams")
            equal(c.ask("/release").status, 200, "status")
            for stream in held:
                equal(c.wait(stream).status, 200, "status")
            sent += number + 1
            s.expect(sent, 0, bad, what=f"with {number} released streams")


@test()
def control_frames_are_no_requests(server=Scripted):
    """PING, SETTINGS and PRIORITY are no requests."""
    s = server()
    with s.connect() as c, s.connect(begin=False) as mute, s.connect(begin=False) as half:
        half.send(http2.PREFACE[:20])
        for n in range(smaller(200)):
            c.send(http2.frame(http2.PING, 0, 0, b"12345678")
                   + http2.frame(http2.PRIORITY, 0, 2 * n + 1, b"\0\0\0\0\1") +
                   http2.frame(http2.SETTINGS, 0, 0, http2.settings({http2.HEADER_TABLE_SIZE: 20 * n})) +
                   http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1"))
            while c.read()[:2] != (http2.PING, http2.ACK):
                pass
        f = server_figures(s)
        equal((f["inFlight"], f["count"], f["errors"]["reset"], f["clientAborts"]), (0, 0, 0, 0),
              "in flight, count, errors")
        c.last = 2 * smaller(200) + 1
        equal(c.ask("/status/404").status, 404, "status")
        # The identifier of a new stream must not be lower than that of the last one: a connection error
        c.streams[c.last].end = None
        c.send(http2.frame(http2.HEADERS, http2.END_STREAM | http2.END_HEADERS, c.last - 2, b"\x82\x86\x84"))
        while c.goaway is None:
            c.read()
        half.socket.close()
        mute.socket.close()
    equal(server_figures(s)["inFlight"], 0, "in flight")
    expect_total(s, 1)


@test()
def held_back(server=Scripted):
    """A response that flow control of the stream or the connection delays is in flight until it is sent completely."""
    s = server()
    with s.connect(begin=False) as c:
        c.settings = http2.settings({http2.INITIAL_WINDOW_SIZE: 1000})
        c.send(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, c.settings))
        streams = [c.start("/size/5000") for _ in range(4)] + [c.start("/size/1000")]
        while not all(len(c.streams[stream].body) == 1000 for stream in streams):
            c.read()
        s.expect(5, in_flight=4, what="with delayed streams")
        for n, stream in enumerate(streams[:4]):
            c.send(http2.frame(http2.WINDOW_UPDATE, 0, stream, struct.pack("!I", 4000)))
            equal(len(c.wait(stream).body), 5000, "length")
            s.expect(5, in_flight=3 - n, what="with some streams released")
        # The initial window of a connection is 65,535
        c.send(http2.frame(http2.SETTINGS, 0, 0, http2.settings({http2.INITIAL_WINDOW_SIZE: 100000})))
        last = c.start("/size/100000")
        while len(c.streams[last].body) < 65535 - 21000:
            c.read()
        s.expect(6, in_flight=1, what="with the window of the connection used up")
        c.send(http2.frame(http2.WINDOW_UPDATE, 0, 0, struct.pack("!I", 100000)))
        equal(len(c.wait(last).body), 100000, "length")
        f = s.expect(6, what="after an update of the window")
        check(f["answer"]["max"] > 0, "no response took any time to leave")


@test()
def broken_off(server=Scripted):
    """A stream that the server resets after the beginning of its response counts once, and is not in flight. Other
    streams on the connection count on."""
    s = server()
    with s.connect() as c:
        for n in range(10):
            r = c.ask("/abort")
            equal((r.status, r.end), (200, http2.INTERNAL_ERROR), "status and error code of a stream that is reset")
            wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
            equal(c.ask("/status/503").status, 503, "status")
        expect_total(s, 20)
        equal(total(s, "requests.server.errors.status5xx"), 10, "errors.status5xx")
        equal(total(s, "requests.server.clientAborts"), 0, "clientAborts")
        # Invalid HTTP/2: data on stream 0, and invalid frames
        kept = [c.start("/hang") for _ in range(5)]
        wait_for("5 are in flight", lambda: server_figures(s)["inFlight"] == 5)
        c.send(http2.frame(http2.DATA, 0, 0, b"x") + b"\xff" * 1000)
        while c.goaway is None:
            c.read()
        equal([c.streams[stream].status for stream in kept], [None] * 5, "statuses")
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    expect_total(s, 20)


@test()
def clients_that_give_up(server=Scripted):
    """A stream that the client resets before the response is an abort. Other streams on the connection count on."""
    s = server()
    with s.connect() as c, s.connect() as other:
        kept = [c.start("/hang") for _ in range(3)]
        for _ in range(10):
            held = [c.start("/hang") for _ in range(5)]
            wait_for("8 are in flight", lambda: server_figures(s)["inFlight"] == 8)
            for stream in held:
                c.reset(stream)
            wait_for("3 are in flight", lambda: server_figures(s)["inFlight"] == 3)
        expect_total(s, 50, "requests.server.clientAborts")
        equal(total(s), 0, "count")
        # The reset is in one segment with the request
        for _ in range(10):
            stream, data = c.request("/hang")
            c.send(data + http2.frame(http2.RST_STREAM, 0, stream, struct.pack("!I", http2.CANCEL)))
        expect_total(s, 60, "requests.server.clientAborts")
        equal(other.ask("/release").status, 200, "status")
        for stream in kept:
            equal(c.wait(stream).status, 200, "status")
        s.expect(4, aborts=60, what="with aborted streams")
        # A stream with a partial response is counted, and a reset ends only its time in flight
        slow = c.start("/slow/20000")
        while c.streams[slow].status is None:
            c.read()
        s.expect(5, in_flight=1, aborts=60, what="with a partial response")
        c.reset(slow)
        wait_for("none is in flight", lambda: server_figures(s)["inFlight"] == 0)
        equal(total(s), 5, "count")
        # The client resets the connection
        before = total(s, "requests.server.clientAborts")
        for _ in range(4):
            c.start("/hang")
        wait_for("4 are in flight", lambda: server_figures(s)["inFlight"] == 4)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.socket.close()
        expect_total(s, before + 4, "requests.server.clientAborts")
        wait_for("none is in flight", lambda: server_figures(s)["inFlight"] == 0)
        equal(total(s, "requests.server.errors.reset"), 0, "errors.reset")


@test()
def responses_out_of_order(server=Scripted):
    """Each stream has its own latency, in whatever order responses are sent: at least what the server measures of it,
    and at most what the client does."""
    s = server()
    with s.connect() as c:
        # The later the request, the sooner the response
        delays = list(range(400, 99, -15))
        streams = c.wait_all([c.start(f"/late/{ms}/{200 if ms % 2 else 503}") for ms in delays])
        f = s.expect(len(delays), 0, sum(ms % 2 == 0 for ms in delays), what="with responses in another order")
        least, most, head = (sorted(times) for times in zip(*((int(r.body), r.took, r.headed) for r in streams)))
        for name, of in (("max", lambda t: t[-1]), ("p50", lambda t: t[(len(t) - 1) // 2]),
                         ("mean", lambda t: sum(t) / len(t))):
            # The middle of a bucket is not more than 3 % from its ends
            for metric, upper in ("latency", most), ("firstByte", head):
                check(0.97 * of(least) <= f[metric][name] <= 1.03 * of(upper),
                      f"{metric}.{name} {f[metric][name]}, of the server {of(least)}, of the client {of(upper)}")
        # Responses that begin early and end late
        slow = c.wait_all([c.start(f"/slow/{ms}") for ms in (900, 700, 800)])
        f = s.expect(len(delays) + 3, 0, sum(ms % 2 == 0 for ms in delays), what="with responses in parts")
        longest = max(int(r.body) for r in slow)
        check(longest <= f["latency"]["max"] <= max(r.took for r in slow),
              f"latency.max {f['latency']['max']}, of the server {longest}")
        # The head left between the arrival of the request and when the client read it
        check(longest - max(r.headed for r in slow) <= f["answer"]["max"] <= max(r.took for r in slow),
              f"{f['answer']}, of the server {longest}")
        check(f["firstByte"]["max"] <= max(r.headed for r in streams + slow), f"firstByte {f['firstByte']}")


@test()
def going_away():
    """After GOAWAY of the server clients connect again, no request counts twice, and none stays in flight."""
    s = Scripted()
    for n in range(10):
        with s.connect() as c:
            for _ in range(3):
                equal(c.ask("/status/200").status, 200, "status")
            equal(c.ask("/goaway").status, 200, "status")
            while c.goaway is None:
                c.read()
    s.expect(40, what="with GOAWAY")

    # nginx sends GOAWAY after keepalive_requests, and ignores later streams on that connection
    n = Nginx(keepalive_requests=50)
    h2load(n, 1000, 4, 20, SEVEN_OF_A_HUNDRED, all_end=False)
    wait_for("nothing is in flight", lambda: server_figures(n)["inFlight"] == 0)
    sent, bad = n.logged(4 * 50)
    expect_total(n, sent)
    equal((total(n, "requests.server.errors.status5xx"), scenario.protocols(server_figures(n))), (bad, {"http2": sent}),
          "errors.status5xx, protocols")


@contextlib.contextmanager
def h2load_of(server, number, path, streams):
    """Runs its body while h2load sends requests on four connections, until it has all responses or its connections are
    closed."""
    p = subprocess.Popen(["h2load", "-n", str(number), "-c", "4", "-m", str(streams),
                          f"http://127.0.0.1:{server.port}{path}"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield p
    finally:
        p.kill()
        p.wait()


@test(deadline=60)
def reloads():
    """When nginx is reloaded under load, so that workers exit and others start, the count is exactly that of its
    log."""
    n = Nginx()
    for _ in range(3):
        with h2load_of(n, 10000000, "/file", 20) as p:
            before = total(n)
            wait_for("some requests were counted", lambda: total(n) > before + 1000)
            systemctl("reload", n.name)
            p.wait(20)
    bad = h2load(n, 1000, 4, 20, SEVEN_OF_A_HUNDRED)["5xx"]
    wait_for("nothing is in flight", lambda: server_figures(n)["inFlight"] == 0)
    # Workers have written their log completely when they have exited
    systemctl("stop", n.name)
    sent, failed = n.logged()
    equal(failed, bad, "failures by nginx's log")
    expect_total(n, sent)
    equal(total(n, "requests.server.errors.status5xx"), bad, "errors.status5xx")
    equal(snapshot(n)["requests"]["quality"], "exact", "quality")


@test(deadline=60)
def restarts():
    """After a restart of the unit under load no stream of the time before is in flight, and requests are counted."""
    n = Nginx()
    for _ in range(3):
        with h2load_of(n, 10000000, "/large", 20) as p:
            before = total(n)
            wait_for("some requests were counted", lambda: total(n) > before + 20)
            n.restart()
            p.wait(20)
        n.listens()
        wait_for("nothing is in flight", lambda: server_figures(n)["inFlight"] == 0)
    before = total(n)
    bad = h2load(n, 2000, 4, 50, SEVEN_OF_A_HUNDRED)["5xx"]
    expect_total(n, before + 2000)
    equal(total(n, "requests.server.errors.status5xx"), bad, "errors.status5xx")
    equal(set(scenario.protocols(server_figures(n))), {"http2"}, "protocols")


@test()
def upgrades():
    """On a connection that is upgraded from HTTP/1.1 the request of the upgrade counts once, and so does each
    stream."""
    s = Scripted()
    with s.connect(begin=False) as c:
        r = c.upgrade("/status/200")
        equal(r.status, 200, "status of the request that upgrades")
        expect_total(s, 1)
        for n in range(10):
            equal(c.ask("/status/503").status, 503, "status")
        c.wait_all([c.start("/size/100000") for _ in range(10)])
    out = run("curl", "-sS", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}\n",
              f"http://127.0.0.1:{s.port}/status/404", "--next", "--http2-prior-knowledge", "-o", "/dev/null",
              "-w", "%{http_version} %{http_code}\n", f"http://127.0.0.1:{s.port}/status/404").stdout
    equal(out.split(), ["2", "404"] * 2, "curl's version and status")
    expect_total(s, 23)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(s))["inFlight"] == 0 and f)
    # The request of the upgrade is HTTP/1, and its response is HTTP/2: it counts as either
    p = scenario.protocols(f)
    equal((sum(p.values()), p["http2"] >= 21, set(p) - {"http1", "http2"}), (23, True, set()), f"protocols {p}")
    equal((f["errors"]["status5xx"], f["status4xx"]), (10, 2), "5xx, 4xx")
    equal(snapshot(s)["requests"]["quality"], "exact", "quality")


@test(deadline=60)
def joined_late(server=Scripted):
    """On connections from before the attach HPACK's dynamic table is not known: figures are right or absent."""
    s = server(attach_first=False)
    with s.connect() as idle, s.connect() as half, s.connect() as busy:
        for c in idle, half, busy:
            for _ in range(5):
                c.ask("/status/200"), c.ask("/status/503"), c.ask("/status/404")
        hanging = [busy.start("/hang") for _ in range(3)]
        # The attach is in the middle of a frame
        stream, data = half.request("/status/503")
        half.send(data[:7])
        equal(busy.ask("/status/200").status, 200, "status")
        s.attach()
        half.send(data[7:])
        equal(half.wait(stream).status, 503, "status")
        sent = bad = missing = 0
        for n in range(50):
            path, status = [("/status/200", 200), ("/status/503", 503), ("/status/404", 404),
                            ("/size/50000", 200)][n % 4]
            for c in idle, half, busy:
                equal(c.ask(path).status, status, "status")
                sent, bad, missing = sent + 1, bad + (status == 503), missing + (status == 404)
        busy.ask("/release")
        busy.wait_all(hanging)
        sent += 1
        # The three streams that hung, and the one of the partial frame, began before the attach
        exact_or_qualified(s, sent, sent + 4)
        f = server_figures(s)
        for name, want in (("errors.status5xx", (None, bad, bad + 1)), ("status4xx", (None, missing))):
            check(lookup(f, name) in want,
                  f"{name} on connections older than the attach: {lookup(f, name)}, not of {want}")
    # An attach without open connections has all figures
    qosctl("detach", s.name)
    s.attach()
    with s.connect() as c:
        for n in range(100):
            c.ask("/status/503" if n in BAD else "/status/200")
    s.expect(100, 0, 7, what="without connections from before the attach")


@test(deadline=60)
def attached_again(server=Scripted):
    """On a connection with an open stream that is older than the second attach, requests are counted from that attach
    on."""
    s = server()
    # Another attached unit keeps the programs and the state of sockets
    scenario.start_served(mode="thread")
    with s.connect() as c, s.connect() as other:
        for _ in range(3):
            held = c.start("/hang")
            equal(c.ask("/status/200").status, 200, "status")
            wait_for("one stream is in flight", lambda: server_figures(s)["inFlight"] == 1)
            qosctl("detach", s.name)
            s.attach()
            equal(server_figures(s)["inFlight"], 0, "in flight from before the attach")
            # Until the protocol of both directions is recognised requests are overlaps: a few, less than 1 % of all
            for _ in range(1000):
                c.ask("/status/200")
            wait_for("no stream from after the attach is in flight", lambda: server_figures(s)["inFlight"] == 0)
            equal(other.ask("/release").status, 200, "status")
            equal(c.wait(held).status, 200, "status")
            equal(exact_or_qualified(s, 990, 1001), "exact", "quality")


@test(deadline=150)
def attached_while_loaded():
    """An attach while h2load has streams open counts those with responses from then on, unless the quality is not
    exact."""
    n = Nginx(attach_first=False)
    # The load lasts longer than an attach on a machine that runs other tests
    with h2load_of(n, 400000, "/file", 50) as p:
        wait_for("load", lambda: n.logged()[0] > 1000)
        before = n.logged()[0]
        attach(n)
        after = n.logged()[0]
        check(p.poll() is None, "the load ended before the attach")
        equal(p.wait(120), 0, "exit status of h2load")
    end = n.logged()[0]
    wait_for("nothing is in flight", lambda: server_figures(n)["inFlight"] == 0)
    s = snapshot(n)
    if s["requests"]["quality"] == "exact":
        got = total(n)
        # Some requests from before the attach have their responses after it, and some later ones are on connections of
        # which only one direction is recognised yet
        check(end - after - 2 * 4 * 50 <= got <= end - before, f"{got} counted, nginx {end - after} to {end - before}")
        check(lookup(s, "requests.server.errors.status5xx") in (None, 0), "failures without a failed request")
        # Requests on new connections are counted exactly
        bad = h2load(n, 2000, 4, 50, SEVEN_OF_A_HUNDRED)["5xx"]
        expect_total(n, got + 2000)
        check(lookup(server_figures(n), "errors.status5xx") in (None, bad), "failures of new connections")


def over_a_cable(**faults):
    cable = Cable(**faults)
    n = Nginx(netns=cable.b)
    sent = bad = 0
    for clients, streams, number, paths in ((4, 20, 3000, SEVEN_OF_A_HUNDRED), (10, 1, 300, SEVEN_OF_A_HUNDRED),
                                            (2, 10, 40, ["/large"])):
        bad += h2load(n, number, clients, streams, paths, address=cable.address_b, netns=cable.a)["5xx"]
        sent += number
    equal(n.logged(sent), (sent, bad), "requests and failures by nginx's log")
    quality = exact_or_qualified(n, sent)
    if quality == "exact":
        n.expect(sent, 0, bad, what=f"over a cable with {faults}")
    sent_again = cable.counter("TcpRetransSegs")
    cable.cut()
    return quality, sent_again


@test(deadline=60)
def on_a_bad_cable():
    """Lost, duplicated and reordered segments do not change the count, unless the quality is not exact."""
    _, sent_again = over_a_cable(drop=10, duplicate=30, reorder=50, delay_us=300, seed=13)
    check(sent_again > 0, "nothing was retransmitted")


@test(deadline=60)
def on_a_slow_cable():
    """With a long round-trip time, but without losses, the quality is exact."""
    equal(over_a_cable(delay_us=3000)[0], "exact", "quality")


@test(own_daemon=True)
def a_program_refused(qosd_environment):
    """If the kernel refuses a program, the others, which are then loaded one by one, still share the state of
    connections."""
    qosd_environment({"LD_PRELOAD": f"{scenario.tools}/refuse.so", "REFUSE_PROGRAM": "requests_retransmit"})
    n = Nginx()
    bad = h2load(n, 1000, 4, 20, SEVEN_OF_A_HUNDRED)["5xx"]
    n.expect(1000, 0, bad, what="without a program")


@test(deadline=60)
def not_http2_after_all():
    """Connections that only begin with the preface of HTTP/2 are not counted as such, and do not harm the daemon."""
    s = scenario.start_served(mode="thread", request=24, response=10)
    for follows in (b"", b"\0" * 9, b"\xff" * 100, b"\0\0\x05\1\5\0\0\0\1" + b"\x80" * 5):
        with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
            c.sendall(http2.PREFACE)
            equal(len(c.recv(10, socket.MSG_WAITALL)), 10, "response")
            c.sendall(follows)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(s))["inFlight"] == 0 and f)
    check("status5xx" not in f["errors"] and "status4xx" not in f, f"a status without HTTP/2: {f}")
    scenario.load(s, connections=4, number=100)
    scenario.daemon_is_well()


@test(vm="nightly", deadline=60)
def grpc_calls(server=Grpc):
    """Unary calls and streams in both directions count once each, and those that end with UNAVAILABLE are errors."""
    g = server()
    sent = failed = 0
    for method in "One", "Download", "Upload", "Talk":
        ended = g.call(method, smaller(400))
        failed += ended.get("UNAVAILABLE", 0)
        equal(ended.get("OK", 0) + ended.get("UNAVAILABLE", 0), smaller(400), "calls with OK or UNAVAILABLE")
        sent += smaller(400)
        g.expect(sent, grpc=failed, what=f"with {method}")
    check(failed >= sent * .05, f"{failed} of {sent} failed")


@test()
def grpc_codes(server=Grpc):
    """Calls with each of gRPC's statuses count, and those with statuses that are the server's fault are errors."""
    g = server()
    for n, method in enumerate(("One", "Download"), 1):
        ended = g.call(method, 170, range(17))
        equal(set(ended.values()), {10}, "calls by status")
        g.expect(170 * n, grpc=60 * n, what="with all codes")
    equal(g.call("NoSuchMethod", 10), {"UNIMPLEMENTED": 10}, "calls of an unknown method")
    g.expect(350, grpc=130, what="with an unknown method")


@test()
def grpc_in_flight(server=Grpc):
    """Calls that hang are in flight until they are cancelled or released."""
    g = server()
    for method in "Hang", "Stalled":
        # Calls of Stalled hang after the beginning of their response
        p = g.client(method, 20)
        equal(p.stdout.readline(), "started\n", "the client")
        wait_for("20 are in flight", lambda: server_figures(g)["inFlight"] == 20)
        p.stdin.write("cancel\n")
        out, _ = p.communicate(timeout=20)
        equal(json.loads(out), {"CANCELLED": 20}, "calls by status")
        wait_for("none is in flight", lambda: server_figures(g)["inFlight"] == 0)
        if method == "Hang":
            expect_total(g, 20, "requests.server.clientAborts")
            equal(total(g), 0, "count of calls without a response")
        else:
            expect_total(g, 20)
    p = g.client("Hang", 30)
    equal(p.stdout.readline(), "started\n", "the client")
    wait_for("30 are in flight", lambda: server_figures(g)["inFlight"] == 30)
    out, _ = p.communicate("release\n", timeout=20)
    equal(json.loads(out), {"OK": 30}, "calls by status")
    expect_total(g, 20 + 30 + 1)
    wait_for("none is in flight", lambda: server_figures(g)["inFlight"] == 0)
    equal(total(g, "requests.server.errors.grpc"), 0, "errors.grpc")
