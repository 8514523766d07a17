# SPDX-License-Identifier: LGPL-2.1-or-later
"""DNS over TCP: many queries in flight on a connection, and responses in any order, each with the time of its query."""

import re
import socket
import struct
import time

import scenario
from scenario import (MSEC, Unit, attach, check, equal, expect_total, lookup, run, server_figures, smaller, snapshot,
                      test,
                      unused_port, wait_for)

# Responds to a query after as many milliseconds as its ID says. Reads the length apart, as unbound does, or all that
# there is
SERVER = """
import asyncio, struct, sys
async def respond(writer, query):
    await asyncio.sleep(struct.unpack('>H', query[:2])[0] / 1000)
    reply = query[:2] + b'\\x81\\x80' + query[4:]
    n = 4 if sys.argv[2] == 'zone' else 1
    writer.write((struct.pack('>H', len(reply)) + reply) * n)
async def serve(reader, writer):
    tasks = []
    try:
        while True:
            n, = struct.unpack('>H', await reader.readexactly(2))
            tasks.append(asyncio.create_task(respond(writer, await reader.readexactly(n))))
    except asyncio.IncompleteReadError:
        writer.close()
async def run():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as s:
        await s.serve_forever()
asyncio.run(run())
"""


def server(mode="plain"):
    path, port = f"/run/{scenario.unit_name('dns', '.py')}", unused_port()
    with open(path, "w") as f:
        f.write(SERVER)
    u = attach(Unit(f"/usr/bin/python3 {path} {port} {mode}", type="exec"))
    u.start()
    u.port = port
    wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    return u


def query(number):
    q = struct.pack(">HBBHHHH", number, 1, 0x20, 1, 0, 0, 0) + b"\3www\7example\0\0\1\0\1"
    return struct.pack(">H", len(q)) + q


def responses(s, n):
    """Returns the IDs of the next n responses."""
    got, data = [], b""
    while len(got) < n:
        more = s.recv(65536)
        check(more, "the server closed the connection")
        data += more
        while len(data) >= 2 and len(data) >= 2 + struct.unpack(">H", data[:2])[0]:
            got.append(struct.unpack(">H", data[2:4])[0])
            data = data[2 + struct.unpack(">H", data[:2])[0]:]
    equal(data, b"", "rest behind the responses")
    return got


def expect_queries(u, n):
    expect_total(u, n)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
    equal(scenario.protocols(f), {"dns": n}, "protocols")
    equal((f["latency"]["count"], f["errors"]["reset"], f["clientAborts"]), (n, 0, 0),
          "latency.count, errors.reset, clientAborts")
    equal(lookup(snapshot(u), "requests.quality"), "exact", "quality")
    return f


def queried_unbound(*options):
    """Starts unbound, and has dnsperf with these options send it queries. Returns the unit and the number of
    responses."""
    port, path = unused_port(), f"/run/{scenario.unit_name('unbound', '.conf')}"
    with open(path, "w") as f:
        f.write(f"""server:
  interface: 127.0.0.1@{port}
  do-daemonize: no
  chroot: ""
  username: ""
  use-syslog: no
  pidfile: ""
  num-threads: 2
  so-reuseport: yes
  module-config: "iterator"
  local-zone: "example." static
  local-data: "www.example. A 192.0.2.1"
remote-control:
  control-enable: no
""")
    u = attach(Unit(f"/usr/sbin/unbound -d -c {path}", type="notify")).start()
    queries = f"/run/{scenario.unit_name('queries', '')}"
    with open(queries, "w") as f:
        f.write("www.example A\nnone.example A\n")
    n = smaller(20000) // 2
    out = run("dnsperf", "-s", "127.0.0.1", "-p", port, "-d", queries, "-c", 4, "-n", n, *options, timeout=60).stdout
    equal(int(re.search(r"Queries completed: +(\d+)", out)[1]), n * 2, "responses")
    return u, n * 2


@test(deadline=60)
def dnsperf_and_unbound():
    """The count of unbound's responses is that of dnsperf, with fifty queries in flight on each of four connections."""
    expect_queries(*queried_unbound("-m", "tcp", "-q", 200))


@test()
def any_order():
    """Responses in the reverse order of the queries: those to the slow ones have the time that these have taken."""
    u = server()
    with socket.create_connection(("127.0.0.1", u.port), timeout=20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in (1000, 700, 400, 100):
            s.sendall(query(number))
            time.sleep(0.05)
        f = wait_for("all are in flight", lambda: (f := server_figures(u))["inFlight"] >= 3 and f)
        equal(responses(s, 4), [100, 400, 700, 1000], "order of the responses")
        f = expect_queries(u, 4)
        # In the order of the queries it would be 850 ms
        check(f["latency"]["max"] >= 1000 * MSEC, f"longest latency: {f['latency']}")

        # Several in a segment, and one in three
        s.sendall(b"".join(query(n) for n in (30, 20, 10)))
        equal(responses(s, 3), [10, 20, 30], "order of the responses")
        q = query(5)
        for part in (q[:1], q[1:7], q[7:]):
            s.sendall(part)
            time.sleep(0.02)
        equal(responses(s, 1), [5], "response to a query in parts")
        expect_queries(u, 8)


@test()
def zone_in_several_messages():
    """A zone that is transferred in several messages is one response."""
    u = server("zone")
    with socket.create_connection(("127.0.0.1", u.port), timeout=20) as s:
        s.sendall(query(1) + query(2) + query(3))
        equal(sorted(responses(s, 12)), [1] * 4 + [2] * 4 + [3] * 4, "IDs of the responses")
    expect_queries(u, 3)


@test()
def aborted():
    """A client that leaves without a response, and what only looks like a query at first."""
    u = server()
    with socket.create_connection(("127.0.0.1", u.port), timeout=20) as s:
        s.sendall(query(5))
        equal(responses(s, 1), [5], "response")
        s.sendall(query(60000))
        wait_for("it is in flight", lambda: server_figures(u)["inFlight"] == 1)
    f = wait_for("it is not in flight any more", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
    equal((f["count"], f["clientAborts"]), (1, 1), "count, clientAborts")

    echo = scenario.start_served(mode="thread", request=len(query(1)), response=40)
    with socket.create_connection(("127.0.0.1", echo.port), timeout=20) as s:
        for _ in range(20):
            s.sendall(query(1))
            equal(len(s.recv(40, socket.MSG_WAITALL)), 40, "response")
    expect_total(echo, 20)
    equal(scenario.protocols(server_figures(echo)), {"tcp": 20}, "protocols of a server that speaks something else")
