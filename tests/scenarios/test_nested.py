# SPDX-License-Identifier: LGPL-2.1-or-later
"""Attached units that contain attached units. A unit has its own requests and those of its descendants, whatever the
order of attaches and detaches. Counts are compared with those of the clients."""

import os
import socket
import time

import scenario
from scenario import (Client, Server, Talk, Unit, attach, check, count, equal, expect_total, listed, load,
                      lookup, qosctl, run, server_command, server_figures, systemctl, test, unit_name, unused_port,
                      varlink, wait_for, write_unit)
from test_peers import client_figures, peers
from test_udp import UdpServer
from test_unix import UnixServer
from test_unix_peers import ASK, script


def new_slice(within=None):
    """Returns the name of a slice, or of one within another slice. The service manager creates it with its first
    service."""
    name = unit_name("slice", ".slice") if within is None else within.removesuffix(".slice") + "-inner.slice"
    return name


def server_in(slice, **options):
    options.setdefault("mode", "thread")
    return Server(settings=f"Slice={slice}", **options)


def detach(unit):
    qosctl("detach", unit.name if isinstance(unit, Unit) else unit)


def same(unit, n, what=None):
    """Checks that the unit has this many requests in all counts, in total and over 5 min, and that nothing is in flight
    or open."""
    expect_total(unit, n, what=what)
    f = wait_for("nothing is in flight and all is closed",
                 lambda: (f := server_figures(unit))["inFlight"] == 0 and lookup(f, "connections.open") == 0 and f)
    equal(f["latency"]["count"], n, f"latency.count {what or ''}")
    equal(server_figures(unit, "5min")["count"], n, f"count in 5 min {what or ''}")
    equal(server_figures(unit, "5min")["service"]["count"], n, f"service.count in 5 min {what or ''}")
    return f


@test()
def outer_first():
    slice = attach(new_slice())
    s, other = server_in(slice).start(), server_in(slice).start()
    load(s, connections=4, number=100)
    load(other, connections=4, number=10)
    same(slice, 110)
    attach(s)
    same(s, 0)
    load(s, connections=4, number=50)
    load(other, connections=4, number=10)
    same(s, 50)
    same(slice, 170)
    check({slice, s.name} <= set(listed()), f"listed: {listed()}")
    check(f"Descendants: {s.name} (merged)\n" in qosctl("status", slice).stdout,
          "status of the slice does not list the service as descendant")
    check(f"Parent: {slice}\n" in qosctl("status", s.name).stdout,
          "status of the service does not have the slice as parent")
    # The slice retains the requests of the detached service, and counts its later ones itself
    detach(s)
    check(s.name not in listed(), "still listed")
    equal(scenario.varlink_error("Get", unit=s.name), "NotAttached", "error")
    load(s, connections=4, number=30)
    same(slice, 200)
    # The service begins at 0 when it is attached again
    attach(s)
    same(s, 0, "of one that was attached before")
    load(s, connections=4, number=20)
    same(s, 20)
    same(slice, 220)
    # A detach of the slice does not change the service's counters
    detach(slice)
    load(s, connections=4, number=20)
    same(s, 40)
    attach(slice)
    same(slice, 0)
    load(s, connections=4, number=1)
    same(slice, 1)
    same(s, 41)
    detach(slice)


@test()
def inner_first():
    slice = new_slice()
    s, other = attach(server_in(slice)), server_in(slice)
    s.start(), other.start()
    load(s, connections=4, number=100)
    attach(slice)
    same(slice, 0)
    load(s, connections=4, number=50)
    load(other, connections=4, number=5)
    same(s, 150)
    same(slice, 55)
    # A restart replaces the control group of the service, which is contained in that of the slice
    for n in range(1, 4):
        s.restart()
        load(s, connections=1, number=1)
        load(s, connections=4, number=9, per_connection=2)
        same(s, 150 + 10 * n)
        same(slice, 55 + 10 * n)
    detach(s)
    s.restart()
    load(s, connections=4, number=10)
    same(slice, 95)
    detach(slice)


@test(deadline=40)
def attached_under_load():
    """Listeners, connections and requests in flight are reassigned to the service, and back to the slice, under load
    without a loss."""
    slice = attach(new_slice())
    s = server_in(slice, mode="prefork", delay_us=500).start()
    other = server_in(slice).start()
    sent, sent_other = 0, 0
    for options in ({}, {"per_connection": 3}):
        c = Client(s, connections=16, number=scenario.smaller(12000), **options)
        d = Client(other, connections=2, number=scenario.smaller(4000), think_us=200)
        before = sent + sent_other
        while c.process.poll() is None:
            wait_for("it goes on", lambda: count(slice) > before or c.process.poll() is not None)
            attach(s)
            before = count(slice)
            wait_for("the inner one counts", lambda: count(s) > 0 or c.process.poll() is not None)
            detach(s)
        sent += c.wait()["answered"]
        sent_other += d.wait()["answered"]
        same(slice, sent + sent_other, "of the outer one")
        attach(s)
        load(s, connections=4, number=100)
        sent += 100
        same(s, 100, "of the inner one")
        same(slice, sent + sent_other, "of the outer one")
        detach(s)
    detach(slice)


@test(own_daemon=True)
def maps_of_units():
    """The maps of a unit are freed when it is detached, also if it is contained in a unit that retains its requests."""
    def maps():
        pid = scenario.qosd_pid()
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        return links.count("anon_inode:bpf-map")

    slice = attach(new_slice())
    s = server_in(slice).start()
    attach(s)
    load(s, connections=4, number=10)
    before, memory = maps(), varlink("GetStatus")["mapMemory"]
    for _ in range(10):
        detach(s)
        load(s, connections=4, number=10)
        attach(s)
        load(s, connections=4, number=10)
    same(slice, 210)
    wait_for("there are as many maps as before", lambda: maps() == before)
    # The storage of connections that are not closed yet differs
    status = varlink("GetStatus")
    check(status["mapMemory"] - memory < status["mapMemoryPerUnit"], f"{memory} bytes before ten attaches: {status}")
    detach(s)
    detach(slice)


@test(deadline=60)
def history_and_marks():
    """History and figures since a mark of the slice include the requests of the service since the slice was attached,
    whether the service was attached at the time or not."""
    slice = new_slice()
    s = attach(server_in(slice).start())
    load(s, connections=4, number=100)
    attach(slice)
    with scenario.Varlink() as v:
        v.call("Mark", unit=slice)
        load(s, connections=4, number=40)
        detach(s)
        load(s, connections=4, number=5)
        attach(s)
        load(s, connections=4, number=10)
        r = v.call("Get", unit=slice, sinceMark=True)["requests"]["server"]
        equal(r["count"], 55, "count since the mark")
        equal(r["latency"]["count"], 55, "latency.count since the mark")
    # Both steps may end amid the load, so that one alone does not have all of it
    loaded = time.time_ns()
    for unit, number in (slice, 55), (s.name, 10):
        def steps_until_the_load():
            h = varlink("History", unit=unit, metrics=["requests.server.count"])
            return h["steps"] and h["steps"][-1]["timestamp"] * 1000 + h["step"] > loaded and h["steps"]
        steps = wait_for("a step has ended since the load", steps_until_the_load, 25)
        equal(sum(lookup(x, "requests.server.count") for x in steps), number, f"count in the history of {unit}")
    same(slice, 55)
    detach(slice)


@test()
def clients_and_endpoints():
    """A unit's client requests and endpoints include those of its descendants."""
    slice = new_slice()
    first, second = attach(server_in(slice)), server_in(slice)
    first.start(), second.start()
    attach(slice)
    load(first, connections=2, number=20)
    load(second, connections=2, number=30)
    ask = write_unit(unit_name("ask"), f"[Service]\nType=oneshot\nSlice={slice}\n"
                     f"ExecStart={scenario.tools}/client --port {second.port} --number 40 --connections 2\n")
    attach(ask)
    systemctl("start", ask)
    expect_total(slice, 90)
    expect_total(slice, 40, metric="requests.client.count")
    expect_total(ask, 40, metric="requests.client.count")
    detach(ask)
    expect_total(slice, 40, metric="requests.client.count")
    attach(ask)
    systemctl("start", ask)
    expect_total(slice, 130)
    expect_total(slice, 80, metric="requests.client.count")
    expect_total(ask, 40, metric="requests.client.count")
    expect_total(first, 20)
    detach(slice)


@test()
def in_flight():
    """Requests in flight are reassigned with their connections when a descendant is attached or detached."""
    slice = attach(new_slice())
    s = server_in(slice).start()
    slow = server_in(slice, delay_us=1500000).start()
    t = Talk(slow, connections=3)
    t.say("run 1")
    t.say("send")
    wait_for("the outer one has them in flight", lambda: server_figures(slice)["inFlight"] == 3)
    attach(slow)
    for unit in (slow, slice):
        f = server_figures(unit)
        equal(f["inFlight"], 3, "inFlight")
        check("oldestInFlight" in f, "no age of the oldest")
        equal(lookup(f, "connections.open"), 3, "connections.open")
    detach(slow)
    equal(server_figures(slice)["inFlight"], 3, "inFlight after the inner one was detached")
    attach(slow)
    t.say("take")
    expect_total(slice, 6)
    expect_total(slow, 3)
    for unit in (slow, slice):
        wait_for("nothing is in flight", lambda: server_figures(unit)["inFlight"] == 0)
        equal(lookup(server_figures(unit), "connections.open"), 3, "connections.open")
    t.end()
    load(s, number=1)
    same(slow, 3)
    expect_total(slice, 7)
    wait_for("all is closed", lambda: lookup(server_figures(slice), "connections.open") == 0)
    detach(slice)


@test(vm="nightly")
def three_levels():
    """Four levels: a slice, a slice in it, a service in that, and a delegated control group of the service, attached
    and detached in an arbitrary order."""
    outer = new_slice()
    inner = new_slice(within=outer)
    port = unused_port()
    script = f"/var/tmp/{scenario.prefix}.sh"  # /run may be mounted noexec
    with open(script, "w") as f:
        f.write(f"""#!/bin/sh
cg=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir -p $cg/sub/deep $cg/main
echo $$ >$cg/sub/deep/cgroup.procs
env -u NOTIFY_SOCKET {server_command(port=port, mode='thread')} &
echo $$ >$cg/main/cgroup.procs
systemd-notify --ready
wait
""")
    os.chmod(script, 0o755)
    try:
        s = Unit(script, settings=f"Slice={inner}\nDelegate=yes").start()
        sub = s.control_group + "/sub"
        near, far = server_in(inner).start(), server_in(outer).start()
        truth = {}

        def serve(n):
            for target, units in ((port, (sub, s.name, inner, outer)), (near, (inner, outer)), (far, (outer,))):
                load(target, connections=4, number=n, retry=True)
                for u in units:
                    truth[u] = truth.get(u, 0) + n
            for u, attached in truth.items():
                if u in listed():
                    same(u, attached, f"of {u}")

        for u in (s.name, outer, sub, inner):
            truth[u] = 0
            attach(u)
            serve(20)
        check(f"Parent: {s.name}\n" in qosctl("status", sub).stdout,
              "status of the control group does not have the service as parent")
        contained = {u for o in scenario.Varlink().collect("List", unit=outer) for u in o["descendantUnits"]}
        equal(contained, {inner, s.name, sub}, "descendants of the outermost slice")
        # Detach and attach units in the middle of the hierarchy
        detach(inner)
        serve(10)
        detach(s.name)
        serve(10)
        truth[s.name] = truth[inner] = 0
        attach(s.name)
        attach(inner)
        serve(10)
        detach(sub)
        serve(10)
        detach(outer)
        serve(10)
        detach(inner)
        serve(10)
    finally:
        os.unlink(script)


@test(own_daemon=True, deadline=60)
def over_a_crash():
    """The hierarchy, counters and retained units survive a crash of qosd; a lease ends with it."""
    slice = new_slice()
    s, gone, leased = server_in(slice).start(), server_in(slice).start(), server_in(slice).start()
    attach(s)
    load(s, connections=4, number=100)
    attach(slice)
    attach(gone)
    load(gone, connections=4, number=7)
    load(s, connections=4, number=10)
    detach(gone)
    lease = scenario.Varlink()
    lease.call("Attach", unit=leased.name, lease=True)
    load(leased, connections=4, number=3)
    same(slice, 20)
    for n in range(1, 3):
        c = Client(s, connections=8, number=scenario.smaller(4000), think_us=100)
        scenario.kill_qosd()
        equal(c.wait()["answered"], scenario.smaller(4000), "answers")
        load(gone, connections=4, number=5)
        load(leased, connections=4, number=5)
        same(slice, 20 + n * (scenario.smaller(4000) + 10), f"after {n} crashes")
        same(s, 110 + n * scenario.smaller(4000), f"of the inner one after {n} crashes")
        check(leased.name not in listed() and gone.name not in listed(), f"listed: {listed()}")
    before = count(slice)
    attach(gone)
    load(gone, connections=4, number=5)
    same(gone, 5, "of one that is attached again")
    same(slice, before + 5)
    lease.close()
    detach(slice)


@test(own_daemon=True)
def instances():
    """A socket with Accept=yes has the requests of its instances, although their control groups are in a slice that
    does not contain its own."""
    name, port = unit_name("inetd", ""), unused_port()
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nAccept=yes\nMaxConnections=200\n"
                                 "TriggerLimitIntervalSec=0\nPollLimitIntervalSec=0\n")
    write_unit(name + "@.service", "[Unit]\nCollectMode=inactive-or-failed\n[Service]\nExecStart=-/bin/cat\n"
                                   "StandardInput=socket\nStandardOutput=socket\n")
    socket = name + ".socket"
    slice = "system-" + name.replace("-", "\\x2d") + ".slice"
    attach(socket)
    systemctl("start", socket)
    load(port, connections=2, number=10, per_connection=1, response=64)
    same(socket, 10)
    attach(slice)
    load(port, connections=2, number=10, per_connection=1, response=64)
    same(socket, 20)
    expect_total(slice, 10)
    # An open connection keeps its instance, which can be attached by its name
    t = Talk(port, response=64)
    t.say("run 2")
    instance = wait_for("there is an instance", lambda: [u.split()[0] for u in systemctl(
        "list-units", "--plain", "--no-legend", name + "@*").stdout.splitlines() if u])[0]
    attach(instance)
    t.say("run 5")
    expect_total(instance, 5)
    expect_total(socket, 27)
    expect_total(slice, 17)
    equal(lookup(server_figures(instance), "connections.open"), 1, "connections.open of the instance")
    equal(lookup(server_figures(socket), "connections.open"), 1, "connections.open of the socket")
    detach(instance)
    t.say("run 1")
    expect_total(socket, 28)
    t.end()
    attach(f"{name}@x.service")
    detach(socket)
    load(port, connections=2, number=10, per_connection=1, response=64)
    same(slice, 28)
    detach(slice)
    detach(f"{name}@x.service")


@test()
def socket_activated():
    """Requests on a socket that PID 1 listens on are counted for the service and its slice, also after restarts of the
    socket."""
    slice, name, port = new_slice(), unit_name("activated", ""), unused_port()
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nSlice={slice}\n")
    s = Unit(server_command(listen_fd=True, mode="thread"), name=name + ".service", settings=f"Slice={slice}")
    attach(slice)
    systemctl("start", name + ".socket")
    load(port, number=1)
    same(slice, 1)
    attach(s)
    load(port, number=2)
    same(s, 2)
    same(slice, 3)
    s.stop()
    systemctl("restart", name + ".socket")
    load(port, number=3)
    same(s, 5)
    same(slice, 6)
    s.stop()
    detach(s)
    load(port, number=4)
    same(slice, 10)
    detach(slice)


@test(deadline=60)
def pipelined_under_load():
    """Pipelines in flight are counted once when their connection is reassigned to another unit."""
    slice = attach(new_slice())
    port = unused_port()
    s = Unit(f"/usr/bin/redis-server --port {port} --save '' --protected-mode no --supervised systemd",
             settings=f"Slice={slice}\nEnvironment=LC_ALL=C").start()
    for pipeline in (1, 16, 100):
        number = scenario.smaller(60000) // pipeline * pipeline
        p = scenario.subprocess.Popen(["redis-benchmark", "-q", "-p", str(port), "-P", str(pipeline), "-c", "20", "-n",
                                       str(number),
                                       "-t", "get,set"], stdout=scenario.subprocess.DEVNULL)
        while p.poll() is None:
            attach(s)
            before = count(slice)
            wait_for("it goes on", lambda: count(slice) > before or p.poll() is not None)
            detach(s)
        equal(p.returncode, 0, "exit status of redis-benchmark")
        commands = int([l for l in run("redis-cli", "-p", port, "info", "stats").stdout.splitlines()
                        if l.startswith("total_commands_processed:")][0].split(":")[1])
        same(slice, commands + 1, f"with {pipeline} commands at once")
    attach(s)
    run("redis-benchmark", "-q", "-p", port, "-P", "16", "-c", "4", "-n", "1600", "-t", "get")
    f = wait_for("all is closed",
                 lambda: (f := server_figures(s))["inFlight"] == 0 and lookup(f, "connections.open") == 0 and f)
    check(f["count"] >= 1600, f"count of the inner one: {f['count']}")
    detach(slice)
    detach(s)


@test(deadline=60)
def udp_and_unix():
    """Sockets and connections over UDP and Unix sockets follow their unit as those over TCP do: to a unit that is
    attached within another one, and back when it is detached."""
    slice = attach(new_slice())
    settings = f"Slice={slice}"
    servers = [UdpServer(settings=settings).start(), UnixServer(settings=settings).start(),
               UnixServer("dgram", settings=settings).start()]

    def connect(server):
        if isinstance(server, UdpServer) or server.kind == "stream":
            return server.connect()
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.settimeout(10)
        s.bind("\0" + unit_name("client", ""))
        s.connect(server.path)
        return s

    def talk(s, n):
        for _ in range(n):
            s.send(b"request\n")
            s.recv(65536)

    sockets = [connect(server) for server in servers]
    for s in sockets:
        talk(s, 10)
    expect_total(slice, 30)
    sockets[0].send(b"hang")
    wait_for("a request is in flight", lambda: server_figures(slice)["inFlight"] == 1)
    for server in servers:
        attach(server)
    for server, s in zip(servers, sockets):
        talk(s, 5)
        talk(connect(server), 5)
        expect_total(server, 10, what="of the inner unit")
        equal(server_figures(server)["firstByte" if server is servers[0] else "service"]["count"], 10, "latencies")
    expect_total(slice, 60)
    for server in servers:
        detach(server)
    for server, s in zip(servers, sockets):
        talk(s, 3)
        talk(connect(server), 3)
    expect_total(slice, 78)
    detach(slice)


@test(deadline=60)
def unix_clients():
    """The connection of a client over a Unix socket follows it to a unit that is attached within another one, and
    back."""
    slice = attach(new_slice())
    server = UnixServer().start()
    steps = f"/run/{unit_name('steps', '')}"
    client = script(ASK
                    + f"s = connect({server.path!r})\nfor i in range(3):\n    while not "
                      f"os.path.exists(f'{steps}{{i}}'): time.sleep(.01)\n"
                    "    for j in range(7): ask(s)\ntime.sleep(1000)\n", settings=f"Slice={slice}").start()

    def step(i):
        with open(f"{steps}{i}", "w"):
            pass

    def expect(unit, n):
        wait_for(f"{n} requests of {unit}", lambda: client_figures(unit)["count"] == n)
        equal(client_figures(unit)["latency"]["count"], n, "latency.count")

    step(0)
    expect(slice, 7)
    attach(client)
    step(1)
    expect(client, 7)
    expect(slice, 14)
    equal(peers(client)[server.path]["count"], 7, "requests to the server")
    detach(client)
    step(2)
    expect(slice, 21)
    client.stop()
    detach(slice)
