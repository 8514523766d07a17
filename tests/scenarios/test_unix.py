# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests over Unix sockets, compared with the counts of clients: a database, and servers with all kinds of system
calls."""

import json
import os
import socket
import threading
import time

import scenario
from scenario import (MSEC, SOURCES, Unit, attach, check, equal, expect_total, fresh_qosd, kill_qosd, load, lookup,
                      qosctl, run, server_figures, smaller, snapshot, start_served, test, total, unit_name, wait_for)


class UnixServer(Unit):
    """The Python server, with its own path. before: shell commands that run before it."""

    def __init__(self, kind="stream", path=None, passed=False, held_up=False, before=None, **keywords):
        name = keywords.pop("name", None) or unit_name("unix")
        self.kind = kind
        self.path = path or f"/run/{name}.sock"
        command = (f"/usr/bin/python3 -B {SOURCES}/unixserver.py {kind} {self.path}"
                   f"{' --passed' if passed else ''}{' --held-up' if held_up else ''}")
        super().__init__(f"/bin/sh -c '{before}; exec {command}'" if before else command, name=name, **keywords)

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if self.kind == "stream" else socket.SOCK_SEQPACKET)
        s.settimeout(20)
        s.connect(self.path.replace("@", "\0", 1))
        return s


def ends_are_reported():
    """Returns whether the kernel reports that a Unix socket is closed, which not all kernels do."""
    state = next(p["state"] for p in scenario.programs() if p["program"] == "requests_unix_close")
    # Debian's kernel, in the VM, does report it
    check(state == "attached" or not scenario.in_vm, "requests_unix_close is not attached")
    return state == "attached"


def ask(s, request="", size=3):
    """Sends a request and reads its response."""
    s.sendall(request.encode() + b"\n")
    response = b""
    while len(response) < size:
        more = s.recv(65536)
        check(more, f"the connection ended after {len(response)} bytes")
        response += more
    return response


def expect_exchanges(unit, n, timed=None, latency=None):
    """Checks that there are n requests over Unix sockets and no others, and that `timed` of them, or all, have the time
    of their arrival."""
    expect_total(unit, n)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(unit))["inFlight"] == 0 and f)
    equal({k: v for k, v in f["protocols"].items() if v}, {"unix": n} if n else {}, "protocols")
    for d in ("latency", "firstByte", "queue"):
        equal(f[d]["count"], n if timed is None else timed, f"{d}.count")
    equal(f["service"]["count"], n, "service.count")
    if n:
        equal(snapshot(unit)["requests"]["quality"], "exchanges", "quality")
    return f


def stay(unit, n):
    """Checks that n requests are counted and none is in flight."""
    f = server_figures(unit)
    equal((f["count"], f["inFlight"]), (n, 0), "count and in flight")


def crowd(unit, threads, number, request="", size=3):
    """Runs clients in threads, each with its own connection and one request at a time."""
    failed = []

    def one():
        try:
            with unit.connect() as s:
                for _ in range(number):
                    ask(s, request, size)
        except Exception as e:
            failed.append(e)
    all = [threading.Thread(target=one) for _ in range(threads)]
    for t in all:
        t.start()
    for t in all:
        t.join()
    check(not failed, f"a client failed: {failed}")


@test(vm="nightly")
def exchanges():
    """Each exchange is counted once, with its times and bytes, on stream and seqpacket sockets and on an abstract
    address."""
    for kind, path in (("stream", None), ("seqpacket", None), ("stream", "@" + unit_name("abstract", ""))):
        u = attach(UnixServer(kind, path)).start()
        n = smaller(500)
        crowd(u, 8, n)
        f = expect_exchanges(u, 8 * n)
        equal((f["bytesIn"], f["bytesOut"]), (8 * n, 3 * 8 * n), "bytes")
        before = f["service"]["max"]
        with u.connect() as s:
            begun = time.monotonic_ns()
            ask(s, "sleep=0.05")
            took = time.monotonic_ns() - begun
        f = expect_exchanges(u, 8 * n + 1)
        # One of the others may have taken longer on a busy machine
        most = max(took, before)
        check(50 * MSEC <= f["service"]["max"] <= most,
              f"service.max {f['service']['max']}, of which the client saw {most}")
        check(f["latency"]["max"] >= f["service"]["max"], f"latency.max {f['latency']['max']}")
        u.stop()


@test()
def path_that_is_no_text():
    """A socket path that is not UTF-8 is shown with "?" for its invalid bytes, in all views and in metric names."""
    name = unit_name("unix")
    path = f"/run/{name}-\udcff\udce9.sock"
    u = attach(Unit(f"/bin/sh -c 'exec /usr/bin/python3 -B {SOURCES}/unixserver.py stream \"$(printf "
                    f"/run/{name}-\\\\\\\\377\\\\\\\\351.sock)\"'",
                    name=name)).start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect(os.fsencode(path))
        for _ in range(20):
            ask(s)
    expect_exchanges(u, 20)
    shown = f"/run/{name}-??.sock"
    equal([e["listen"] for e in server_figures(u)["endpoints"]], [shown], "endpoints")
    check(u.name in qosctl("list").stdout, "the unit is not listed")
    qosctl("status", u.name)
    equal(scenario.varlink("GetMany", units=[u.name])["snapshots"][0]["unit"], u.name, "unit")
    with scenario.Varlink() as v:
        v.send("Subscribe", {"units": [u.name]}, more=True)
        equal(v.reply()["snapshot"]["unit"], u.name, "unit")
    metric = f"requests.server[{shown}].inFlight"
    equal(scenario.varlink("Get", unit=u.name, metrics=[metric])["values"], {metric: 0},
          "the metric by the name that is shown")


@test()
def path_is_not_for_everybody():
    """Other users than root and the owner of the control group get the same error for an existing and a guessed
    path."""
    u = attach(UnixServer()).start()
    with u.connect() as s:
        ask(s)
    expect_exchanges(u, 1)
    right, wrong = (f"requests.server[{path}]" for path in (u.path, "/run/none.sock"))
    calls = [("Get", lambda of: {"metrics": [of + ".inFlight"]}), ("Histogram", lambda of: {"metric": of + ".latency"}),
             ("Wait", lambda of: {"condition": of + ".inFlight < 1"})]
    equal(scenario.varlink("Get", unit=u.name, metrics=[right + ".inFlight"])["values"], {right + ".inFlight": 0},
          "for root")
    equal(scenario.varlink("Wait", unit=u.name, condition=right + ".inFlight < 1")["value"], 0, "for root")
    for method, parameters in calls:
        for of in right, wrong:
            r = run(*scenario.as_user(65534), "varlinkctl", "call", "/run/qosd/org.qosd.QoS", f"org.qosd.QoS.{method}",
                    json.dumps({"unit": u.name, **parameters(of)}), ok=False)
            check("PermissionDenied" in r.stderr, f"{method} of {of}: {r.stdout} {r.stderr}")


@test()
def ways_to_read_and_write():
    """Requests count once when they are read byte by byte, peeked at or spliced, and when responses are in pieces or
    exceed buffers."""
    u = attach(UnixServer()).start()
    n = 0
    for how in ("", "peek", "bytewise", "splice"):
        with u.connect() as s:
            for _ in range(20):
                ask(s, how)
            n += 20
            # The second half of the request is sent later
            s.sendall(b"size=3 ")
            time.sleep(0.01)
            ask(s)
            n += 1
        f = expect_exchanges(u, n)
    with u.connect() as s:
        for size, pieces in ((1_000_000, 1), (1_000_000, 10), (30, 10)):
            ask(s, f"size={size} pieces={pieces}", size)
            n += 1
    f = expect_exchanges(u, n)
    equal(f["bytesOut"], 84 * 3 + 2_000_030, "bytesOut")
    check(f["receive"]["max"] >= 10 * MSEC, f"receive.max {f['receive']['max']}")


@test(vm="nightly")
def datagrams():
    """Datagrams of a client with an address are requests once there is a response; those of a client without one are
    not."""
    u = attach(UnixServer("dgram")).start()

    def connect(name):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.settimeout(10)
        if name:
            s.bind("\0" + unit_name("client", ""))
        s.connect(u.path)
        return s
    with connect(False) as s:
        for _ in range(100):
            s.send(b"hang")
    stay(u, 0)
    with connect(True) as s, connect(True) as other:
        s.send(b"hang")
        stay(u, 0)
        for _ in range(100):
            for c in (s, other):
                c.send(b"question")
                c.recv(100)
        expect_total(u, 200)
        f = server_figures(u)
        equal((f["service"]["count"], f["protocols"]["unix"]), (200, 200), "service.count and protocols.unix")
        s.send(b"hang")
        wait_for("it is in flight", lambda: server_figures(u)["inFlight"] == 1)
    wait_for("it is not", lambda: server_figures(u)["inFlight"] == 0)
    equal(total(u), 200, "count")
    client = Unit("/usr/bin/python3 -c \"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
                  "s.bind('');"
                  f" s.connect('{u.path}'); [(s.send(b'x'), s.recv(10)) for i in range(10)]\"", type="oneshot")
    attach(client)
    client.start()
    expect_total(u, 210)
    stay(client, 0)


@test()
def in_flight_until_closed():
    """A request without a response is in flight until either end closes the connection."""
    u = attach(UnixServer()).start()
    with u.connect() as a, u.connect() as b:
        a.sendall(b"hang\n")
        b.sendall(b"hang\n")
        f = wait_for("two are in flight", lambda: (f := server_figures(u))["inFlight"] == 2 and f)
        check(f["oldestInFlight"] > 0, "no oldestInFlight")
        a.close()
        wait_for("one is", lambda: server_figures(u)["inFlight"] == 1)
        ask(b)
        wait_for("none is", lambda: server_figures(u)["inFlight"] == 0)
    equal(total(u), 1, "count")
    with u.connect() as a:
        a.sendall(b"close\n")
        equal(a.recv(10), b"", "data before the server's close")
        stay(u, 1)
        # A client that has shut down writing still gets its response
    with u.connect() as a:
        a.sendall(b"sleep=0.1\n")
        a.shutdown(socket.SHUT_WR)
        equal(a.recv(10), b"ok\n"[:0] + b"xx\n", "response")
        expect_exchanges(u, 2)
    with u.connect() as a:
        a.sendall(b"hang\n")
        wait_for("one is in flight", lambda: server_figures(u)["inFlight"] == 1)
        u.kill()
        wait_for("none is", lambda: server_figures(u)["inFlight"] == 0)


@test(vm=True)
def ends():
    """A connection that is closed during a request is an abort or a reset, where the kernel reports the close. One that
    is closed after a response, after PostgreSQL's Terminate message, or idle, is neither."""
    u = attach(UnixServer()).start()
    aborts = resets = 0

    def expect(count, what):
        if not ends_are_reported():
            f = server_figures(u)
            equal((f["errors"]["reset"], f["clientAborts"]), (0, 0), f"errors on TCP, {what}")
            check(not {"errors", "clientAborts"} & set(f["endpoints"][0]), f"errors of the endpoint, {what}: {f}")
            return
        wait_for(f"{resets} resets and {aborts} aborts, {what}",
                 lambda: (f := server_figures(u))
                 and (f["errors"]["reset"], f["clientAborts"], f["count"]) == (resets, aborts, count))
        row, = server_figures(u)["endpoints"]
        equal((row["errors"], row["clientAborts"]), ({"reset": resets}, aborts), f"those of the endpoint, {what}")

    # An endpoint without any response may be that of a sink
    with u.connect() as s:
        s.sendall(b"hang\n")
        wait_for("it is in flight", lambda: server_figures(u)["inFlight"] == 1)
        ask(s)
    expect(1, "all have a response")
    with u.connect() as s:
        s.sendall(b"hang\n")
        wait_for("it is in flight", lambda: server_figures(u)["inFlight"] == 1)
    aborts += 1
    expect(1, "the client closes the connection")
    for _ in range(10):
        with u.connect() as s:
            s.sendall(b"hang\n")
        aborts += 1
    expect(1, "the client closes it at once")
    with u.connect() as s:
        s.sendall(b"close\n")
        equal(s.recv(10), b"", "data before the server's close")
    resets += 1
    expect(1, "the server closes the connection")
    with u.connect() as s, u.connect() as idle:
        for c in (s, idle):
            ask(c)
        s.sendall(b"X\0\0\0\4") # PostgreSQL's Terminate
    with u.connect() as s:
        s.sendall(b"sleep=0.1\n")
        s.shutdown(socket.SHUT_WR)
        equal(s.recv(10), b"xx\n", "response")
    expect(4, "nothing is wrong")
    with u.connect() as a, u.connect() as b, u.connect() as c, u.connect():
        for s in (a, b):
            s.sendall(b"hang\n")
        wait_for("two are in flight", lambda: server_figures(u)["inFlight"] == 2)
        c.sendall(b"exit\n")
        resets += 3
        expect(4, "the server dies")


@test()
def attach_in_the_middle():
    """Requests on connections and listeners that are older than the attach are counted, also after a restart and
    another attach."""
    u = UnixServer().start()
    with u.connect() as s:
        ask(s)
        attach(u)
        for _ in range(10):
            ask(s)
        crowd(u, 2, 10)
        expect_exchanges(u, 30)
    u.restart()
    crowd(u, 2, 10)
    expect_exchanges(u, 50)
    qosctl("detach", u.name)
    crowd(u, 2, 10)
    attach(u)
    crowd(u, 2, 10)
    expect_exchanges(u, 20)


@test()
def a_client_is_no_server():
    """The server role of a unit has neither its own requests to others, nor exchanges over socket pairs."""
    server = attach(UnixServer()).start()
    other = UnixServer().start()
    client = Unit(f"/usr/bin/python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{server.path}');"
                  " [(s.send(bytes([10])), s.recv(10)) for i in range(10)]; a, b = socket.socketpair();"
                  " [(a.send(b'x'), b.recv(1), b.send(b'y'), a.recv(1)) for i in range(10)]\"", type="oneshot")
    attach(client)
    client.start()
    crowd(other, 1, 10)
    expect_exchanges(server, 10)
    stay(client, 0)


@test()
def pipelines_overlap():
    """Requests that arrive during another one on their connection make quality overlapping, and the count absent."""
    u = attach(UnixServer()).start()
    with u.connect() as s:
        for _ in range(20):
            s.sendall(b"sleep=0.02\n")
            time.sleep(0.005)
            s.sendall(b"\n")
            answer = b""
            while len(answer) < 6:
                answer += s.recv(100)
    wait_for("it is overlapping", lambda: snapshot(u)["requests"]["quality"] == "overlapping")
    check("count" not in server_figures(u), "there is a count")
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)


@test(deadline=60)
def postgresql():
    """Each round trip of a client of PostgreSQL is an exchange, with simple and with prepared statements."""
    directory = f"/run/{scenario.prefix}-pg"
    binaries = "/usr/lib/postgresql/17/bin"
    run("install", "-d", "-o", "postgres", directory)
    run("runuser", "-u", "postgres", "--", f"{binaries}/initdb", "-D", f"{directory}/data", "-A", "trust", "--no-sync",
        timeout=60)
    u = Unit(f"{binaries}/postgres -D {directory}/data -k {directory} -c listen_addresses= -c fsync=off -c "
             "autovacuum=off",
             settings="User=postgres\nEnvironment=LC_ALL=C")
    attach(u)
    u.start()
    with open(f"{directory}/script", "w") as f:
        f.write("select 1;\n")

    def bench(*options):
        out = run(f"{binaries}/pgbench", "-h", directory, "-U", "postgres", "-n", *options, "postgres",
                  timeout=50).stdout
        line = next(l for l in out.splitlines() if l.startswith("number of transactions actually processed"))
        return int(line.split(":")[1].split("/")[0])

    def more(*options):
        before = total(u)
        n = bench(*options)
        return n, lambda: total(u) - before

    # More than the transactions: the start of each connection, and queries of pgbench at its start
    n, counted = more("-f", f"{directory}/script", "-c", 1, "-t", 1)
    wait_for("they are counted", lambda: counted() > n)
    for protocol in ("simple", "prepared"):
        base = None
        for clients, number in ((4, 10), (4, smaller(2000))):
            n, counted = more("-M", protocol, "-f", f"{directory}/script", "-c", clients, "-j", 2, "-t", number)
            equal(n, clients * number, "transactions")
            if base is None:
                wait_for("they are counted", lambda: counted() >= n and counted() - n)
                time.sleep(0.2)
                base = counted() - n
            else:
                wait_for(f"{n} and {base} more are counted", lambda: counted() >= n + base)
                equal(counted(), n + base, f"round trips, {protocol}")
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    equal(snapshot(u)["requests"]["quality"], "exchanges", "quality")
    equal((server_figures(u)["errors"]["reset"], server_figures(u)["clientAborts"]), (0, 0), "errors")

    # pgbench as a unit has as many client requests as PostgreSQL has responses
    before = total(u)
    c = attach(Unit(f"{binaries}/pgbench -h {directory} -U postgres -n -f {directory}/script -c 4 -j 2 -t "
                    f"{smaller(2000)} postgres", type="exec"))
    c.start()
    wait_for("it has ended", lambda: scenario.unit_property(c.name, "ActiveState") in ("inactive", "failed"), 30)
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    f = lookup(snapshot(c), "requests.client")
    equal((f["count"], f["inFlight"]), (total(u) - before, 0), "requests of pgbench, and in flight")
    check(f["count"] > 4 * smaller(2000), f"{f['count']} are too few")
    equal([(r["peer"], r["unit"]) for r in f["peers"]], [(f"{directory}/.s.PGSQL.5432", u.name)], "its peers")
    u.stop()
    run("rm", "-rf", directory)


@test()
def endpoints():
    """A port and a path of a server have figures of their own, which add up to those of the unit."""
    path, port = f"/run/{scenario.prefix}-redis.sock", scenario.unused_port()
    u = Unit(f"/usr/bin/redis-server --port {port} --unixsocket {path} --save '' --supervised systemd",
             settings="Environment=LC_ALL=C")
    attach(u)
    u.start()
    n = smaller(2000)
    for where, times in ((("-p", port), 1), (("-s", path), 2)):
        run("redis-benchmark", "-q", "-c", 4, "-n", times * n, "-t", "get", *where)
    # redis-benchmark requests the configuration first, twice on each
    expect_total(u, 3 * n, up_to=3 * n + 10)
    s = snapshot(u)
    rows = {e["listen"]: e for e in s["requests"]["server"]["endpoints"]}
    by_path = rows.pop(path)
    check(2 * n <= by_path["count"] <= 2 * n + 5, f"count at the path: {by_path['count']}")
    equal(sum(e["count"] for e in rows.values()) + by_path["count"], s["requests"]["server"]["count"],
          "count of all endpoints")
    equal(by_path["count"], s["requests"]["server"]["protocols"]["unix"], "protocols.unix")
    with socket.socket(socket.AF_UNIX) as c:
        c.connect(path)
        c.sendall(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n")
        wait_for("it is in flight at the path",
                 lambda: [e["listen"] for e in server_figures(u)["endpoints"] if e.get("inFlight")] == [path])
    wait_for("it is not", lambda: server_figures(u)["inFlight"] == 0)


@test(own_daemon=True, deadline=90)
def watched_on_demand():
    """requests_unix, which runs for all data that any socket of the machine receives, is attached while a unit may have
    Unix sockets: until it has run for some time without, and for as long as it has any. A unit that opens its first
    one later is noticed, and each request counts from then on."""
    fresh_qosd()

    def state():
        return next(p["state"] for p in scenario.programs() if p["program"] == "requests_unix")

    def idle():
        wait_for("requests_unix is detached", lambda: state() == "idle", timeout=30)

    tcp = start_served(mode="thread")
    equal(state(), "attached", "state of requests_unix of a new unit")
    idle()
    load(tcp, connections=4, number=200)
    expect_total(tcp, 200)
    # The first requests show enough
    busy = start_served(mode="thread")
    equal(state(), "attached", "state of requests_unix of another new unit")
    load(busy, connections=4, number=1200)
    wait_for("requests_unix is detached", lambda: state() == "idle")
    expect_total(busy, 1200)

    u = attach(UnixServer()).start()
    equal(state(), "attached", "state of requests_unix of a unit that has started")
    crowd(u, 4, 50)
    # The check of reads of a unit that hardly reads takes as long
    start_served(mode="thread")
    wait_for("the checks are over", timeout=30, probe=lambda: next(
        p["state"] for p in scenario.programs() if p["program"] == "requests_read") == "idle")
    equal(state(), "attached", "state of requests_unix while a unit has a listener")
    crowd(u, 4, 50)
    expect_exchanges(u, 400)
    # It is part of what is kept
    kill_qosd()
    crowd(u, 4, 50)
    expect_exchanges(u, 600)
    qosctl("detach", u.name)
    u.stop()
    idle()

    flag = f"/run/{scenario.prefix}-opens"
    server = scenario.server_command(mode="thread", port=scenario.unused_port())
    late = attach(UnixServer(before=f"{server} & until test -e {flag}; do sleep .02; done", type="exec")).start()
    try:
        idle()
        with open(flag, "w"):
            wait_for("the server listens on its Unix socket", lambda: os.path.exists(late.path))

        # A request on the way while the program is attached may be missing
        crowd(late, 8, 500)
        wait_for("requests_unix is attached", lambda: state() == "attached")
        check(4000 - 8 <= total(late) <= 4000, f"{total(late)} of 4000 requests while the program is attached")
        before = total(late)
        crowd(late, 4, 50)
        expect_total(late, before + 200)
        stay(late, before + 200)
    finally:
        if os.path.exists(flag):
            os.unlink(flag)


# A server that polls each new connection for its first request, so that this is read while it is being queued
POLLING = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(16)
while True:
    c = s.accept()[0]
    c.setblocking(False)
    data = None
    while data is None:
        try: data = c.recv(1)
        except BlockingIOError: pass
    if data: c.send(data)
    c.close()
"""


@test(deadline=120)
def first_requests():
    """A first request that is read by one CPU while another one still records its arrival, so that both find an unknown
    connection: each counts once, and nothing is dropped."""
    n, path = smaller(20000), f"/run/{unit_name('polling', '.sock')}"
    program = f"/run/{unit_name('polling', '.py')}"
    with open(program, "w") as f:
        f.write(POLLING)
    u = attach(Unit(f"/usr/bin/python3 {program} {path}", name=unit_name("polling"), type="exec")).start()
    wait_for("the server listens", lambda: os.path.exists(path))
    for _ in range(n):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            for _ in range(3000):
                pass
            s.sendall(b"x")
            equal(s.recv(1), b"x", "response")
    expect_total(u, n)
    equal(snapshot(u, "total")["drops"], 0, "drops")
    os.unlink(program)
