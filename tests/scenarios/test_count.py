# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every request counts once: N by a client that knows N, whatever the server is made of."""

import socket
import time
import subprocess

import scenario
from scenario import (Client, Server, Talk, Unit, attach, check, count, equal, expect_total, load, lookup, qosctl,
                      qosctl_json, run, server_command, server_figures, smaller, snapshot, start_served, test, total,
                      unused_port, wait_for)


def quiet_after(server):
    """What must hold after all responses: nothing left in flight, nothing that looks like an error."""
    s = wait_for("nothing is in flight and the connections are closed",
                 lambda: (lambda f: f if f.get("inFlight") == 0 and lookup(f, "connections.open") == 0 else None)
                 (server_figures(server)))
    check("oldestInFlight" not in s, f"something is said to be in flight for {s.get('oldestInFlight')} ns")
    for name, value in s.get("errors", {}).items():
        equal(value, 0, f"errors.{name} with {server.options}")
    equal(s.get("clientAborts", 0), 0, f"clientAborts with {server.options}")
    return s


def every_concurrency(**options):
    s = start_served(**options)
    requests = connects = 0
    for connections, per_connection, number in ((1, 0, 2000), (16, 0, 10000), (256, 0, 10000),
                                                (1, 1, 300), (16, 1, 2000), (256, 1, 2000), (16, 7, 3000)):
        number = smaller(number)
        r = load(s, connections=connections, per_connection=per_connection, number=number)
        equal(r["failed"], 0, "failures at the client")
        requests += number
        connects += r["connects"]
        expect_total(s, requests, what=f"count with {connections} connections, {per_connection or 'all'} requests each")
    expect_total(s, requests * 64, "requests.server.bytesIn")
    expect_total(s, requests * 128, "requests.server.bytesOut")
    expect_total(s, connects, "requests.server.connections.accepted")
    quiet_after(s)
    # One response per request is assumed, and true: the figures must not look like less
    equal(lookup(snapshot(s), "requests.quality"), "exchanges", "quality")


for _name, _options in (("single_thread", {"mode": "single"}),
                        ("thread_per_connection", {"mode": "thread"}),
                        ("reader_and_workers", {"mode": "handoff", "workers": 8}),
                        ("pre_forked", {"mode": "prefork", "workers": 8}),
                        ("pre_forked_reuseport", {"mode": "prefork", "workers": 4, "reuseport": True}),
                        ("process_per_connection", {"mode": "fork"})):
    def _test(options=_options):
        every_concurrency(**options)
    _test.__name__ = _name
    test(deadline=40)(_test)


@test(vm="nightly")
def exact_in_short():
    s = start_served(mode="prefork", workers=2)
    number = smaller(4000)
    load(s, connections=8, number=number)
    load(s, connections=8, number=smaller(400), per_connection=1)
    expect_total(s, number + smaller(400))
    quiet_after(s)


@test()
def ipv6():
    s = start_served(address="::1")
    load(s, address="::1", connections=16, number=3000)
    load(s, address="::1", connections=16, number=500, per_connection=1)
    expect_total(s, 3500)
    quiet_after(s)


@test()
def ipv4_mapped():
    """An IPv6 socket that speaks IPv4, and both at once."""
    s = start_served(address="::", mode="prefork")
    load(s, address="127.0.0.1", connections=16, number=3000)
    load(s, address="::1", connections=16, number=2000, per_connection=5)
    expect_total(s, 5000)
    quiet_after(s)


@test()
def multipath_listener():
    """Listeners as Go makes them; clients of plain TCP. Requests of MPTCP clients are not seen, and not guessed."""
    s = start_served(address="::", mode="thread", mptcp=True)
    load(s, connections=16, number=2000)
    load(s, address="::1", connections=16, number=500, per_connection=1)
    expect_total(s, 2500)
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262) as c:  # IPPROTO_MPTCP
        c.settimeout(10)
        c.connect(("::1", s.port))
        for _ in range(20):
            c.sendall(b"q" * 64)
            equal(len(c.recv(128, socket.MSG_WAITALL)), 128, "answer")
        # The server may still close connections of the load
        wait_for("only that one is open", lambda: server_figures(s)["connections"]["open"] == 1)
        equal(server_figures(s)["inFlight"], 0, "in flight")
    quiet_after(s)
    load(s, connections=16, number=100)
    f = server_figures(s)
    equal((f["count"], f["clientAborts"], f["errors"]), (2600, 0, {"reset": 0, "timeout": 0}),
          "count, clientAborts, errors")


@test()
def overlapping():
    """Requests that arrive during another one, in a protocol that no parser knows: their connections are unparsed, and
    others are measured as before. Where there are no others, there is no count and no quantile."""
    s = start_served(mode="thread", delay_us=20000)
    load(s, connections=2, number=20)
    equal(lookup(snapshot(s), "requests.quality"), "exchanges", "quality before")
    t = Talk(s, connections=2)
    for n in range(2):
        for _ in range(4):
            t.say("send")
        for _ in range(4):
            t.say("take")
        x = wait_for("it is noticed",
                     lambda: (lambda x: x if lookup(x, "requests.quality") == "partial" else None)(snapshot(s)))
        # Of each connection the first request, which was alone then
        equal((lookup(x, "requests.server.count"), lookup(x, "requests.server.unparsed.connections")), (22, 2),
              "count, unparsed connections")
        check(0 < lookup(x, "requests.server.unparsed.share") < 1, f"share {lookup(x, 'requests.server.unparsed')}")
    t.end()
    load(s, connections=2, number=20)
    equal(lookup(snapshot(s), "requests.server.count"), 42, "count of all others")

    s = start_served(mode="thread", delay_us=20000)
    load(s, connections=2, number=2)
    qosctl("set-threshold", s.name, "slow: requests.server.latency.max > 5ms over 60s")
    wait_for("it is violated", lambda: qosctl_json("list-thresholds", s.name)[0]["state"] == "violated")
    t = Talk(s, connections=2)
    for _ in range(4):
        t.say("send")
    for _ in range(4):
        t.say("take")
    x = wait_for("it is noticed", lambda: (lambda x: x if lookup(x, "requests.quality") == "overlapping" else None)
                 (snapshot(s)))
    # The threshold has no value any more, which is no reason for it to end
    slow = wait_for("there is no value",
                    lambda: (t := qosctl_json("list-thresholds", s.name)[0]).get("value") is None and t)
    equal(slow["state"], "violated", f"state of {slow}")
    f = lookup(x, "requests.server")
    for metric in ("count", "rate", "latency.p50", "latency.mean", "firstByte.p50", "service.p50"):
        check(lookup(f, metric) is None, f"{metric} is {lookup(f, metric)}")
    check("requests.server.count" not in x["totals"], f"a total: {x['totals']}")
    check(lookup(f, "connections.open") == 2, f"connections.open {lookup(f, 'connections.open')}")
    t.end()


@test(deadline=40)
def ways_to_read():
    for options, client in (({"read": "recvmsg"}, {}),
                            ({"read": "readv", "request": 1000}, {"segments": 4}),
                            ({"read": "peek"}, {}),
                            ({"read": "peek", "request": 3000}, {"segments": 3, "segment_us": 300}),
                            ({"read": "splice", "request": 20000}, {}),
                            ({"read": "splice", "request": 100}, {"segments": 2, "segment_us": 300}),
                            ({"read": "waitall", "request": 9000, "mode": "thread"},
                             {"segments": 6, "segment_us": 300}),
                            ({"chunk": 1, "request": 50}, {}),
                            ({"chunk": 7, "request": 5000, "mode": "thread"}, {}),
                            ({"chunk": 4096, "request": 300000}, {}),
                            ({"request": 1, "response": 1}, {})):
        s = start_served(**options)
        load(s, connections=4, number=400, **client)
        load(s, connections=4, number=100, per_connection=1, **client)
        expect_total(s, 500, what=f"count with {options}")
        expect_total(s, 500 * options.get("request", 64), "requests.server.bytesIn", f"bytesIn with {options}")
        quiet_after(s)


@test(deadline=40)
def ways_to_respond():
    for options in ({"answer": "writev", "response": 5000},
                    {"answer": "sendfile", "response": 3000},
                    {"answer": "sendfile", "response": 400000, "mode": "thread"},
                    {"answer": "splice", "response": 3000},
                    {"answer": "splice", "response": 400000, "mode": "thread"},
                    {"answer": "more", "parts": 4, "response": 6000},
                    {"answer": "zerocopy", "response": 100000, "mode": "thread"},
                    {"parts": 5, "gap_us": 300, "response": 500},
                    {"parts": 50, "response": 50, "mode": "thread"},
                    {"response": 1000000, "mode": "thread"}):
        s = start_served(**options)
        load(s, connections=4, number=300)
        load(s, connections=4, number=60, per_connection=1)
        expect_total(s, 360, what=f"count with {options}")
        expect_total(s, 360 * options["response"], "requests.server.bytesOut", f"bytesOut with {options}")
        quiet_after(s)


@test()
def request_in_many_segments():
    s = start_served(request=20000, mode="thread")
    load(s, connections=8, number=160, segments=40, segment_us=200)
    load(s, connections=8, number=40, segments=40, segment_us=200, per_connection=1)
    expect_total(s, 200)
    expect_total(s, 200 * 20000, "requests.server.bytesIn")
    quiet_after(s)


@test()
def deferred_accept():
    """The request completes the handshake: its first segment reaches no socket that is already there."""
    s = start_served(defer=3)
    load(s, connections=8, number=smaller(1000), per_connection=1)
    load(s, connections=8, number=smaller(1000))
    expect_total(s, 2 * smaller(1000))
    expect_total(s, 2 * smaller(1000) * 64, "requests.server.bytesIn")
    figures = quiet_after(s)
    equal(figures["latency"]["count"], 2 * smaller(1000), "latency.count")


@test()
def server_closes():
    """With FIN, with a reset after the response, and half first."""
    for after in ("close", "rst", "shut"):
        s = start_served(after=after, mode="thread")
        load(s, connections=8, number=400, per_connection=1)
        expect_total(s, 400, what=f"count with {after}")
        quiet_after(s)


@test()
def half_closed():
    """The client ends its request by closing its direction; the response follows."""
    s = start_served(until_eof=True, mode="thread", delay_us=2000)
    load(s, connections=8, number=200, request=9000, segments=3, segment_us=500)
    # The end of the request and that of the stream in one segment
    load(s, connections=8, number=100, request=900, cork=True)
    expect_total(s, 300)
    expect_total(s, 200 * 9000 + 100 * 900, "requests.server.bytesIn")
    quiet_after(s)
    # The end of the stream, as splice shows it, is no request
    s = start_served(until_eof=True, mode="thread", read="splice")
    load(s, connections=8, number=100, request=9000)
    load(s, connections=8, number=100, request=900, cork=True)
    expect_total(s, 200)
    quiet_after(s)


@test()
def greetings_are_no_responses():
    """A greeting is no response."""
    s = start_served(greet=40, mode="thread")
    load(s, connections=8, number=50, per_connection=1)
    load(s, connections=8, number=400)
    expect_total(s, 450)
    idle = Talk(s, connections=3)
    s2 = server_figures(s)
    equal(s2["count"], 450, "count with three connections that were only greeted")
    equal(s2["inFlight"], 0, "inFlight of connections that were only greeted")
    idle.end()
    quiet_after(s)


@test()
def one_and_then_silence():
    """One request on a connection that stays open and silent is there at once: in the window of a second before
    that second is over, and in the total."""
    s = start_served()
    t = Talk(s)
    t.say("run")
    wait_for("the window of 1 s shows it", lambda: server_figures(s, "1s").get("count") == 1, 0.9, pause=0)
    equal(count(s), 1, "count since attach")
    equal(server_figures(s)["latency"]["count"], 1, "latency.count")
    t.end()


@test(deadline=60)
def one_way():
    """A server without responses: what clients have sent is not in flight while they are silent, nor aborted at the
    end."""
    port, path = scenario.unused_port(), f"/run/{scenario.prefix}-sink"
    tcp = scenario.Unit(f"/usr/bin/socat -u TCP-LISTEN:{port},fork,reuseaddr,bind=127.0.0.1 OPEN:/dev/null",
                        type="exec")
    unix = scenario.Unit(f"/usr/bin/socat -u UNIX-LISTEN:{path},fork OPEN:/dev/null", type="exec")
    for u in tcp, unix:
        attach(u)
        u.start()
    with socket.socket(socket.AF_INET) as a, socket.socket(socket.AF_UNIX) as b:
        a.settimeout(20)
        for s, address in (a, ("127.0.0.1", port)), (b, path):
            wait_for(f"it listens at {address}", lambda: s.connect_ex(address) == 0)
        for i in range(20):
            for s in a, b:
                s.sendall(b"<13>line %d\n" % i)
        for u in tcp, unix:
            wait_for("it was read", lambda: server_figures(u)["bytesIn"] > 0)
            # Ten seconds after the last line
            f = wait_for("nothing is in flight", lambda: (f := server_figures(u))["inFlight"] == 0 and f, 30)
            check("oldestInFlight" not in f, f"in flight: {f}")
        equal(server_figures(tcp)["connections"]["open"], 1, "open connections")
    f = wait_for("it is closed", lambda: (f := server_figures(tcp))["connections"]["open"] == 0 and f)
    equal((f["count"], f["clientAborts"], f["errors"]), (0, 0, {"reset": 0, "timeout": 0}),
          "count, clientAborts, errors")

    # A client that closes at once has aborted nothing either
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as a:
            a.sendall(b"metric 1 1\n")
    f = wait_for("they are closed", lambda: (f := server_figures(tcp))["connections"]["accepted"] >= 21
                 and f["connections"]["open"] == 0 and f)
    equal((f["count"], f["inFlight"], f["clientAborts"], f["errors"]), (0, 0, 0, {"reset": 0, "timeout": 0}),
          "what they leave behind")

    # Lines that go on and on: ten seconds after the first one
    with socket.create_connection(("127.0.0.1", port), timeout=20) as a:
        def goes_on():
            a.sendall(b"line\n")
            return server_figures(tcp)["inFlight"] == 0
        begun = time.monotonic()
        wait_for("nothing is in flight", lambda: goes_on() and time.monotonic() - begun > 10, 30)


@test(vm="nightly")
def open_before_attach():
    """Connections that are older than the attach: idle ones, ones that had requests, and ones with a request under
    way."""
    s = Server(mode="thread", delay_us=1000).start()
    fresh, used, busy = Talk(s, connections=4), Talk(s, connections=4), Talk(s, connections=2)
    used.say("run 20")
    busy.say("part 30")
    attach(s)
    equal(server_figures(s)["count"], 0, "count at attach")
    wait_for("the ten connections are found", lambda: lookup(server_figures(s), "connections.open") == 10)
    fresh.say("run 5")
    expect_total(s, 20)
    used.say("run 5")
    expect_total(s, 40)
    # The rest of a request that had begun to arrive before the attach, and its response
    busy.say("part 34")
    busy.say("take")
    expect_total(s, 42)
    busy.say("run 3")
    expect_total(s, 48)
    for t in (fresh, used, busy):
        t.end()
    quiet_after(s)


TAKES_OVER = """
import socket, sys, threading
def serve(c):
    while c.recv(100):
        c.send(b"response")
u = socket.socket(socket.AF_UNIX)
u.connect("\\0" + sys.argv[1])
while True:
    for fd in socket.recv_fds(u, 1, 1)[1]:
        threading.Thread(target=serve, args=(socket.socket(fileno=fd),), daemon=True).start()
"""


@test()
def connections_that_come_used():
    """Connections from which another process has read requests, before it passes them to the unit or is moved into it:
    counted from the first request that the unit reads."""
    program, name = f"/run/{scenario.prefix}-program", f"{scenario.prefix}-passes"
    with open(program, "w") as f:
        f.write(TAKES_OVER)
    passes = socket.socket(socket.AF_UNIX)
    passes.bind("\0" + name)
    passes.listen()
    passes.settimeout(20)
    listener = socket.create_server(("127.0.0.1", 0))
    pairs = []

    def exchange(client, server=None):
        client.sendall(b"request")
        if server:
            equal(server.recv(100), b"request", "the request")
            server.sendall(b"response")
        equal(client.recv(100), b"response", "the response")

    for _ in range(3):
        client = socket.create_connection(listener.getsockname(), timeout=20)
        pairs.append((client, listener.accept()[0]))
        exchange(*pairs[-1])

    u = Unit(f"/usr/bin/python3 {program} {name}", type="exec").start()
    to = passes.accept()[0]
    outside = subprocess.Popen(["/usr/bin/python3", program, name])
    moves = passes.accept()[0]
    try:
        # It has read from the third when it is moved
        client, server = pairs[2]
        socket.send_fds(moves, [b"x"], [server.fileno()])
        server.close()
        exchange(client)
        attach(u.name)
        exchange(*pairs[0])
        equal(count(u.name), 0, "count of what others have read")
        for client, server in pairs[:2]:
            socket.send_fds(to, [b"x"], [server.fileno()])
            server.close()
            for _ in range(5):
                exchange(client)
        expect_total(u.name, 10)
        with open(f"/sys/fs/cgroup{u.control_group}/cgroup.procs", "w") as f:
            f.write(str(outside.pid))
        for _ in range(5):
            exchange(pairs[2][0])
        expect_total(u.name, 15)
        equal(server_figures(u.name)["inFlight"], 0, "inFlight")
    finally:
        outside.kill()
        outside.wait()


@test()
def attached_while_under_load():
    """No request is counted twice, none before the attach, and after it the count goes with the client's."""
    s = Server(mode="prefork", workers=2).start()
    # Longer than an attach takes while other tests have the processors
    c = Client(s, connections=32, duration_ms=8000, think_us=300)
    attach(s)
    wait_for("some are counted", lambda: count(s) > 100)
    before = c.wait()["answered"]
    got = count(s)
    check(0 < got <= before, f"{got} counted of {before} with a response in all")
    load(s, connections=32, number=3000)
    expect_total(s, got + 3000)
    quiet_after(s)


@test()
def only_its_own():
    """Two attached units and one that is not: each has its own requests and no other's."""
    a, b, c = start_served(mode="prefork"), start_served(mode="thread"), Server().start()
    loads = [Client(s, connections=8, number=n) for s, n in ((a, 3000), (b, 2000), (c, 4000))]
    for l in loads:
        l.wait()
    expect_total(a, 3000)
    expect_total(b, 2000)
    equal(qosctl("status", c.name, ok=False).returncode, 3, "exit status for the third, which is not attached")


@test()
def requests_to_others_are_not_served():
    """Requests to another unit are none that the unit serves."""
    s = start_served(mode="thread")
    asker = Unit(f"{scenario.tools}/client --port {s.port} --connections 4 --number 1000", type="oneshot",
                 settings="RemainAfterExit=no")
    attach(asker)
    asker.start()
    expect_total(s, 1000)
    equal(count(asker), 0, "requests that the client unit is shown to have served")
    figures = server_figures(asker)
    equal(figures["inFlight"], 0, "inFlight of the client unit")
    equal(lookup(figures, "connections.open"), 0, "connections of the client unit")


@test()
def both_sides_in_one_unit():
    """Requests of a unit to itself over the loopback count once."""
    port = unused_port()
    unit = Unit(f"/bin/sh -c '{server_command(port=port, mode='thread')} & sleep .1; "
                f"{scenario.tools}/client --port {port} --connections 4 --number 1000; wait'")
    attach(unit)
    unit.start()
    wait_for("1000 are counted", lambda: count(unit) >= 1000)
    equal(count(unit), 1000, "count")


@test()
def several_listeners():
    """All listeners of a unit count together."""
    ports = [unused_port() for _ in range(3)]
    unit = Unit("/bin/sh -c '" + " & ".join(server_command(port=p, mode="thread") for p in ports) + "; wait'")
    attach(unit)
    unit.start()
    for n, port in enumerate(ports):
        wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        load(port, connections=4, number=100 * (n + 1))
    expect_total(unit, 600)


@test()
def aborted_by_the_client():
    """Reset in the middle of a request, and before its response: no request, no response, nothing left open."""
    # Long against what a busy machine may hold the client up between its request and its reset
    s = start_served(mode="thread", delay_us=1000000)
    r = load(s, expect_all=False, connections=4, number=40, abort_at=30)
    equal(r["answered"], 0, "answers")
    wait_for("40 aborts are counted", lambda: total(s, "requests.server.clientAborts") >= 40)
    load(s, expect_all=False, connections=4, number=40, abort_waiting=True, think_us=10000)
    wait_for("80 aborts are counted", lambda: total(s, "requests.server.clientAborts") >= 80)
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    equal(total(s, "requests.server.clientAborts"), 80, "clientAborts")
    equal(count(s), 0, "count of requests without a response")
    load(s, connections=4, number=8)
    expect_total(s, 8)


@test()
def unanswered_are_in_flight():
    """A hung service: in flight and their age say so. When the clients go they were aborted, and when the service is
    killed it has reset them."""
    s = start_served(mode="thread", hang=True)
    t = Talk(s, connections=5)
    equal(server_figures(s)["inFlight"], 0, "inFlight before the first request")
    t.say("send")
    figures = wait_for("five are in flight", lambda: (lambda f: f if f["inFlight"] == 5 else None)(server_figures(s)))
    first = figures["oldestInFlight"]
    wait_for("the oldest gets older", lambda: server_figures(s)["oldestInFlight"] > first + 300000000)
    equal(count(s), 0, "count")
    t.say("reset")
    figures = wait_for("none is in flight", lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(s)))
    check("oldestInFlight" not in figures, "oldestInFlight of nothing")
    equal(total(s, "requests.server.clientAborts"), 5, "clientAborts")
    t.end()

    t = Talk(s, connections=3)
    t.say("send")
    wait_for("three are in flight", lambda: server_figures(s)["inFlight"] == 3)
    s.kill()
    wait_for("none is in flight after the kill", lambda: server_figures(s)["inFlight"] == 0)
    equal(total(s, "requests.server.errors.reset"), 3, "errors.reset")
    equal(total(s, "requests.server.clientAborts"), 5, "clientAborts after the kill")
    equal(count(s), 0, "count")


@test()
def killed_workers():
    """Workers that are killed with requests under way, again and again: the gauge comes back to 0."""
    s = start_served(mode="fork", delay_us=1000000)
    for _ in range(5):
        t = Talk(s, connections=4)
        t.say("send")
        wait_for("four are in flight", lambda: server_figures(s)["inFlight"] == 4)
        main = s.main_pid
        # What has arrived is in flight, also before there is a worker for it
        children = wait_for("a worker for each",
                            lambda: len(c := run("pgrep", "-P", main, ok=False).stdout.split()) == 4 and c)
        run("kill", "-KILL", *children, ok=False)
        wait_for("none is in flight", lambda: server_figures(s)["inFlight"] == 0)
        t.end()
    check(count(s) + total(s, "requests.server.errors.reset") == 20,
          f"20 were sent; {count(s)} with a response, {total(s, 'requests.server.errors.reset')} reset")
    load(s, connections=4, number=8)
    wait_for("the living ones count", lambda: count(s) + total(s, "requests.server.errors.reset") == 28)


@test()
def traffic_of_no_unit():
    """Nothing but the attached unit is observed: traffic of no unit at all is nobody's."""
    s = start_served()
    port = unused_port()
    p = subprocess.Popen(server_command(port=port).split())
    wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    load(port, connections=4, number=500)
    p.kill()
    p.wait()
    equal(count(s), 0, "count of a unit without requests")
