# SPDX-License-Identifier: LGPL-2.1-or-later
"""memcached, with its text and its binary protocol: qosd counts each request that has a response, however many are
pipelined."""

import os
import socket
import struct
import time

import scenario
from scenario import (Unit, attach, check, equal, expect_total, run, server_figures, snapshot, systemctl, test,
                      unused_port,
                      wait_for)

GET, SET, DELETE, QUIT, GETQ, NOOP, GETK, GETKQ, STAT, SETQ, DELETEQ, QUITQ = (
        0x00, 0x01, 0x04, 0x07, 0x09, 0x0a, 0x0c, 0x0d, 0x10, 0x11, 0x14, 0x17)


class Memcached(Unit):
    def __init__(self):
        self.port = unused_port()
        self.expected = 0
        super().__init__(f"/usr/bin/memcached -u nobody -l 127.0.0.1 -p {self.port} -U 0 -t 2", type="exec")
        attach(self)
        self.start()
        wait_for("it listens", lambda: str(self.port) in run("ss", "-ltnH", f"sport = :{self.port}").stdout)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def expect(self, more, what):
        """Checks that qosd has counted this many more requests since the previous call, all of memcached, with no error
        and none in flight."""
        self.expected += more
        expect_total(self, self.expected, what=what)
        f = wait_for("nothing is in flight", lambda: (f := server_figures(self))["inFlight"] == 0 and f)
        equal(scenario.protocols(f), {"memcached": self.expected}, f"protocols {what}")
        equal((f["latency"]["count"], f["clientAborts"], f["errors"]["reset"]), (self.expected, 0, 0),
              f"latencies, clientAborts, errors {what}")
        equal(snapshot(self)["requests"]["quality"], "exact", f"quality {what}")


def read(s, length):
    data = b""
    while len(data) < length:
        more = s.recv(length - len(data))
        check(more, f"the connection ended after {len(data)} of {length} bytes: {data[-100:]}")
        data += more
    return data


def receive(s, want):
    equal(read(s, len(want)), want, "response")


def request(opcode, key=b"", extras=b"", value=b""):
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(key) + len(extras) + len(value), 0,
                       0) + extras + key + value


def responses(s, number):
    """Reads this many binary responses and returns their opcodes."""
    opcodes = []
    while len(opcodes) < number:
        magic, opcode, body = struct.unpack(">BBxxxxxxIxxxxxxxxxxxx", read(s, 24))
        equal(magic, 0x81, "magic")
        read(s, body)
        opcodes.append(opcode)
    return opcodes


@test(deadline=60)
def text():
    """The text protocol: pipelines, gets of several keys, large values, noreply, invalid commands, quiet meta
    commands."""
    m = Memcached()
    large = b"x\r\nEND\r\n" * 12800
    value = b"VALUE k 0 5\r\nhello\r\n"
    with m.connect() as s:
        s.sendall(b"set k 0 0 5\r\nhello\r\n")
        receive(s, b"STORED\r\n")
        m.expect(1, "after a set")
        for number in (1, 50, 500):
            s.sendall(b"get k\r\n" * number)
            receive(s, (value + b"END\r\n") * number)
            m.expect(number, f"after {number} gets in one piece")
        s.sendall(b"get k nothing k\r\ngets nothing\r\n" * 20)
        receive(s, (value * 2 + b"END\r\nEND\r\n") * 20)
        m.expect(40, "after gets of several keys")
        s.sendall(b"set k 0 0 5 noreply\r\nhello\r\ndelete nothing noreply\r\nincr nothing 1 noreply\r\n" * 30
                  + b"get k\r\n")
        receive(s, value + b"END\r\n")
        m.expect(1, "after sets that want no response")
        s.sendall(b"set k 0 0 5 noreply\r\nhello\r\n" * 30)
        wait_for("they are read", lambda: run("ss", "-tnH", f"sport = :{m.port}").stdout.split()[1] == "0")
        m.expect(0, "after nothing else")
        s.sendall(b"set large 0 0 %d\r\n%s\r\nget large k\r\n" % (len(large), large) * 5)
        receive(s, (b"STORED\r\nVALUE large 0 %d\r\n%s\r\n" % (len(large), large) + value + b"END\r\n") * 5)
        m.expect(10, "after 100 KB")
        s.sendall(b"\r\nset k 0 0 x\r\nbogus\r\nset k 0 0 2\r\nabcd\r\n")
        receive(s, b"ERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad data "
                   b"chunk\r\nERROR\r\n")
        m.expect(5, "after mistakes")
        # memcached responds to this command long before it has received all of the value
        too_large = b"set k 0 0 4000000\r\n" + b"x" * 4000000 + b"\r\n"
        s.sendall(too_large + b"get k\r\n")
        receive(s, b"SERVER_ERROR object too large for cache\r\nEND\r\n")
        m.expect(2, "after what is too large")
        s.sendall(b"set k 0 0 5\r\nhello\r\nstats\r\nversion\r\nflush_all\r\n")
        data = b""
        while not data.endswith(b"\r\nOK\r\n"):
            data += s.recv(65536)
        m.expect(4, "after stats")
        s.sendall(b"ms k 5\r\nhello\r\n" + b"mg k v\r\nmg nothing v\r\n" * 20)
        receive(s, b"HD\r\n" + b"VA 5\r\nhello\r\nEN\r\n" * 20)
        m.expect(41, "after meta commands")
        s.sendall((b"mg k v q\r\nmg nothing v q\r\n" * 20 + b"mn\r\n") * 5)
        receive(s, (b"VA 5\r\nhello\r\n" * 20 + b"MN\r\n") * 5)
        m.expect(5, "after quiet ones")
        s.sendall(b"quit\r\n")
        equal(s.recv(1), b"", "end of the connection")
    m.expect(0, "after quit")


@test(deadline=60)
def error_replies():
    """errors.replies counts the error responses of both protocols. A key that is not found is no error."""
    m = Memcached()
    bad = b"set k 0 0 x\r\n"
    with m.connect() as s:
        s.sendall(b"get k\r\ndelete k\r\nreplace k 0 0 1\r\nx\r\n")
        receive(s, b"END\r\nNOT_FOUND\r\nNOT_STORED\r\n")
        m.expect(3, "after what is not there")
        equal(server_figures(m)["errors"].get("replies"), 0, "errors.replies of none")
        for n in (1, 2, 100):
            s.sendall((bad + b"get k\r\n") * n)
            receive(s, b"CLIENT_ERROR bad command line format\r\nEND\r\n" * n)
            m.expect(2 * n, f"after {n} mistakes")
        s.sendall(b"bogus\r\n")
        receive(s, b"ERROR\r\n")
        m.expect(1, "after a command that there is not")
        equal(server_figures(m)["errors"]["replies"], 104, "errors.replies of text")
    with m.connect() as s:
        s.sendall((request(GET, b"nothing") + request(0x05, b"k", b"\0" * 20) + request(0x7f)) * 10)
        equal(responses(s, 30), [GET, 0x05, 0x7f] * 10, "responses")
        m.expect(30, "after unknown commands")
        equal(server_figures(m)["errors"]["replies"], 114, "errors.replies of both")


@test(deadline=60)
def text_in_pieces():
    """The count is exact wherever a pipeline is split into segments, also while several connections are in the middle
    of one."""
    m = Memcached()
    pipeline = b"get k\r\nset k 0 0 12 noreply\r\nget k\r\nget k\r\nset k 0 0 12\r\nget k\r\nget k\r\nget k nothing\r\n"
    value = b"VALUE k 0 12\r\nget k\r\nget k\r\nEND\r\n"
    with m.connect() as s:
        s.sendall(b"set k 0 0 12\r\nget k\r\nget k\r\n")
        receive(s, b"STORED\r\n")
    m.expect(1, "after a set")
    connections = [m.connect() for _ in range(4)]
    try:
        for s in connections:
            s.sendall(b"get k\r\n")
            receive(s, value)
        m.expect(4, "after a get on each")
        for cut in range(1, len(pipeline)):
            for s in connections:
                s.sendall(pipeline[:cut])
            for s in connections:
                s.sendall(pipeline[cut:])
            for s in connections:
                receive(s, value + b"STORED\r\n" + value)
        m.expect(4 * 3 * (len(pipeline) - 1), "after pipelines that are cut")
    finally:
        for s in connections:
            s.close()
    m.expect(0, "after the connections")


@test(deadline=60)
def binary():
    """The binary protocol: pipelines, quiet requests, requests with several responses, large values."""
    m = Memcached()
    zero = b"\0" * 8
    with m.connect() as s:
        s.sendall(request(SET, b"k", zero, b"hello"))
        equal(responses(s, 1), [SET], "responses")
        m.expect(1, "after a set")
        for number in (1, 50, 500):
            s.sendall(request(GET, b"k") * number)
            equal(responses(s, number), [GET] * number, "responses")
            m.expect(number, f"after {number} gets in one piece")
        s.sendall((request(GETKQ, b"k") + request(GETQ, b"nothing")) * 50 + request(NOOP))
        equal(responses(s, 51), [GETKQ] * 50 + [NOOP], "responses")
        m.expect(1, "after quiet gets")
        s.sendall((request(SETQ, b"k", zero, b"hello") + request(DELETEQ, b"nothing") + request(GETK, b"k")) * 20)
        equal(responses(s, 40), [DELETEQ, GETK] * 20, "responses")
        m.expect(20, "after quiet sets and deletes")
        s.sendall(request(STAT) + request(GET, b"nothing"))
        opcodes = []
        while not opcodes or opcodes[-1] != GET:
            opcodes += responses(s, 1)
        check(len(opcodes) > 10, f"{len(opcodes)} responses")
        m.expect(2, "after statistics")
        large = request(GET, b"k") * 4000
        s.sendall((request(SET, b"large", zero, large) + request(GET, b"large")) * 5)
        equal(responses(s, 10), [SET, GET] * 5, "responses")
        m.expect(10, "after 100 KB")
        pipeline = request(GET, b"k") + request(SETQ, b"k", zero, b"hello") + request(GETK, b"k")
        for cut in range(1, len(pipeline)):
            s.sendall(pipeline[:cut])
            s.sendall(pipeline[cut:])
            equal(responses(s, 2), [GET, GETK], "responses")
        m.expect(2 * (len(pipeline) - 1), "after pipelines that are cut")
        s.sendall(request(QUITQ))
        equal(s.recv(1), b"", "end of the connection")
    m.expect(0, "after a quiet end")
    with m.connect() as s:
        s.sendall(request(GET, b"k") + request(QUIT))
        equal(responses(s, 2), [GET, QUIT], "responses")
        equal(s.recv(1), b"", "end of the connection")
    m.expect(2, "after an end")


@test(deadline=60)
def one_that_waits():
    """The latency of a request to a stopped server is at least the pause and at most what the client measures; that of
    earlier requests is not affected."""
    m = Memcached()
    pause = 0.3
    with m.connect() as s:
        s.sendall(b"set k 0 0 5\r\nhello\r\n" + b"get k\r\n" * 49)
        receive(s, b"STORED\r\n" + b"VALUE k 0 5\r\nhello\r\nEND\r\n" * 49)
        m.expect(50, "after 49 gets")
        systemctl("kill", "-s", "STOP", m.name)
        wait_for("it is stopped", lambda: "\nState:\tT" in open(f"/proc/{m.main_pid}/status").read())
        begin = time.monotonic()
        s.sendall(b"get k\r\n")
        time.sleep(pause)
        systemctl("kill", "-s", "CONT", m.name)
        receive(s, b"VALUE k 0 5\r\nhello\r\nEND\r\n")
        waited = time.monotonic() - begin
        m.expect(1, "after one that waited")
        longest = server_figures(m)["latency"]["max"] / 1e9
        check(pause <= longest <= waited,
              f"the longest latency is {longest}, the pause was {pause}, the client has waited for {waited}")
        # The 50 requests before it were fast
        check(server_figures(m)["latency"]["p90"] / 1e9 < pause, "latencies of others")


@test(deadline=60)
def other_lines():
    """Connections to another server whose first line looks like a request of memcached are counted as plain
    exchanges."""
    port = unused_port()
    r = Unit(f"/usr/bin/redis-server --port {port} --save '' --bind 127.0.0.1 --supervised systemd")
    attach(r)
    r.start()
    n = 0
    for first in (b"get k\r\n", b"ping\r\n", b"get k\r\nget k\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
            for line, response in ((first, None), (b"get k\r\n",
                                                   b"$-1\r\n")) + ((b"get k\r\n",
                                                                    b"$-1\r\n"),) * 20 + ((b"incr i 1\r\n", None),):
                s.sendall(line)
                if response:
                    receive(s, response)
                else:
                    check(s.recv(100), "no response")
                n += 1
    expect_total(r, n)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(r))["inFlight"] == 0 and f)
    equal((scenario.protocols(f), snapshot(r)["requests"]["quality"]), ({"tcp": n}, "exchanges"), "protocols, quality")


CLIENT = """
import socket, struct, sys
def receive(s, want):
    data = b""
    while len(data) < len(want):
        more = s.recv(len(want) - len(data))
        assert more
        data += more
    assert data == want, data
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
large = b"y" * 100000
s.sendall(b"set k 0 0 5\\r\\nhello\\r\\n")
receive(s, b"STORED\\r\\n")
value = b"VALUE k 0 5\\r\\nhello\\r\\nEND\\r\\n"
for n in range(100):
    s.sendall(b"get k\\r\\n")
    receive(s, value)
for n in (1, 50, 7) * 5:
    s.sendall(b"get k\\r\\n" * n)
    receive(s, value * n)
s.sendall(b"set large 0 0 %d\\r\\n" % len(large) + large + b"\\r\\nget large\\r\\n")
receive(s, b"STORED\\r\\nVALUE large 0 %d\\r\\n" % len(large) + large + b"\\r\\nEND\\r\\n")
s.sendall(b"set k 0 0 5 noreply\\r\\nhello\\r\\n" * 10 + b"get k\\r\\n")
receive(s, value)
s.sendall(b"quit\\r\\n")
assert s.recv(1) == b""
"""


@test(deadline=60)
def client():
    """A client of memcached has as many requests as the server has responses, and no aborts or errors."""
    m = Memcached()
    path = f"/run/{scenario.prefix}-memcached.py"
    with open(path, "w") as f:
        f.write(CLIENT)
    try:
        c = attach(Unit(f"/usr/bin/python3 {path} {m.port}", type="exec"))
        c.start()
        wait_for("it has ended", lambda: scenario.unit_property(c.name, "ActiveState") in ("inactive", "failed"), 20)
        equal(scenario.unit_property(c.name, "Result"), "success", "result")
    finally:
        os.unlink(path)
    number = 1 + 100 + 58 * 5 + 2 + 1
    m.expect(number, "of the server")
    f = wait_for("nothing is in flight",
                 lambda: (f := scenario.lookup(snapshot(c), "requests.client"))["inFlight"] == 0 and f)
    equal((f["count"], f["latency"]["count"], f["aborts"], f["errors"]), (number, number, 0, scenario.peer_errors()),
          "count, latencies, aborts and errors of the client")
