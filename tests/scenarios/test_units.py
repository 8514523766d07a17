# SPDX-License-Identifier: LGPL-2.1-or-later
"""Units through their life: attached before their start, restarted, stopped, failed, with new control groups, and
socket-activated."""

import json
import os
import signal
import subprocess

import scenario
from capture import exchanges
from scenario import (Client, Server, Talk, Unit, attach, check, count, equal, expect_total, fail, listed, load,
                      lookup, qosctl, qosctl_json, server_command, server_figures, snapshot, start_served, systemctl,
                      test, unit_name, unit_property, unused_port, wait_for, write_unit)


@test()
def attached_before_the_first_start():
    s = Server(mode="thread")
    attach(s)
    x = snapshot(s)
    equal(x["activeState"], "inactive", "activeState")
    equal(count(s), 0, "count")
    s.start()
    wait_for("it is shown active", lambda: snapshot(s)["activeState"] == "active")
    load(s, connections=1, number=1)
    expect_total(s, 1)
    load(s, connections=4, number=100)
    expect_total(s, 101)


@test()
def first_request_while_it_starts():
    """Requests are counted from the first one, also if clients connect while the unit starts."""
    port = unused_port()
    s = Server(port=port, mode="thread")
    attach(s)
    c = Client(port, connections=8, number=400, retry=True)
    s.start()
    equal(c.wait()["answered"], 400, "responses")
    expect_total(s, 400)


@test(vm="nightly")
def restart_keeps_totals():
    s = start_served(mode="prefork")
    invocations = set()
    sent = 0
    for _ in range(4):
        # The first request of each invocation, then kept and new connections
        load(s, connections=1, number=1)
        load(s, connections=4, number=100)
        load(s, connections=4, number=99, per_connection=1)
        sent += 200
        expect_total(s, sent)
        wait_for("the invocation is PID 1's",
                 lambda: snapshot(s).get("invocationId") == unit_property(s.name, "InvocationID"))
        invocations.add(snapshot(s)["invocationId"])
        s.restart()
    equal(len(invocations), 4, "different invocations")
    equal(count(s), sent, "count after the last restart")


@test()
def stopped_and_started():
    """A stopped unit is inactive and retains its totals, and is counted again when it is started."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    s.stop()
    x = wait_for("it is shown inactive", lambda: (lambda x: x if x["activeState"] == "inactive" else None)(snapshot(s)))
    equal(x["totals"]["requests.server.count"], 100, "count of the stopped unit")
    equal(lookup(x, "requests.server.inFlight"), 0, "inFlight of the stopped unit")
    equal(lookup(x, "requests.server.connections.open"), 0, "open connections of the stopped unit")
    check(s.name in listed(), "the stopped unit is not listed")
    s.start()
    load(s, connections=4, number=50)
    expect_total(s, 150)
    wait_for("it is shown active", lambda: snapshot(s)["activeState"] == "active")


@test()
def failed_and_restarted_by_the_manager():
    """Totals continue when the service manager restarts a killed service (Restart=). A service that fails to start is
    shown as failed."""
    s = Server(mode="thread", settings="Restart=always\nRestartSec=100ms")
    attach(s)
    s.start()
    load(s, connections=4, number=100)
    pid = s.main_pid
    s.kill()
    wait_for("it runs again", lambda: s.main_pid not in (0, pid) and unit_property(s.name, "ActiveState") == "active")
    load(s, connections=4, number=100)
    expect_total(s, 200)
    s = Server(settings="ExecStartPre=/bin/false")
    attach(s)
    systemctl("start", s.name, ok=False)
    wait_for("it is shown failed", lambda: snapshot(s)["activeState"] == "failed")


@test(vm="nightly")
def control_groups_made_later():
    """Requests are counted in control groups that a delegated unit creates after the attach, of processes that were
    moved there and of those that were forked there."""
    go = f"/run/{scenario.prefix}-go"
    ports = [unused_port() for _ in range(3)]
    script = f"/var/tmp/{scenario.prefix}.sh"  # /run may be mounted noexec
    with open(script, "w") as f:
        f.write(f"""#!/bin/sh
cg=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
{server_command(port=ports[0], mode='thread')} &
while [ ! -e {go} ]; do sleep .02; done
mkdir -p $cg/late/inner $cg/born
echo $$ >$cg/late/inner/cgroup.procs
env -u NOTIFY_SOCKET {server_command(port=ports[1], mode='prefork')} &
echo $$ >$cg/born/cgroup.procs
env -u NOTIFY_SOCKET {server_command(port=ports[2], mode='fork')} &
wait
""")
    os.chmod(script, 0o755)
    try:
        u = Unit(script, settings="Delegate=yes")
        attach(u)
        u.start()
        load(ports[0], connections=4, number=100)
        expect_total(u, 100)
        open(go, "w").close()
        for port, sum in ((ports[1], 300), (ports[2], 500)):
            load(port, connections=4, number=200, retry=True)
            expect_total(u, sum, what="count with control groups that were made after the attach")
        # Attach again, with control groups that exist already
        qosctl("detach", u.name)
        attach(u)
        for n, port in enumerate(ports):
            load(port, connections=4, number=100, per_connection=3)
            expect_total(u, 100 * (n + 1), what="count with control groups that were there before the attach")
    finally:
        for path in (script, go):
            if os.path.exists(path):
                os.unlink(path)


@test()
def socket_activated():
    """Requests on a listener of a socket unit are the service's, including the first one, which starts it."""
    name = unit_name("activated", "")
    port = unused_port()
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    s = Unit(server_command(listen_fd=True, mode="thread"), name=name + ".service")
    attach(s)
    systemctl("start", name + ".socket")
    load(port, connections=1, number=1)
    expect_total(s, 1)
    load(port, connections=8, number=300)
    expect_total(s, 301)
    # The listener remains open while the service is stopped, and starts it again
    s.stop()
    load(port, connections=8, number=100, per_connection=1)
    expect_total(s, 401)


@test()
def socket_activated_and_attached_later():
    name = unit_name("activated", "")
    port = unused_port()
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    s = Unit(server_command(listen_fd=True, mode="thread"), name=name + ".service")
    systemctl("start", name + ".socket")
    load(port, connections=4, number=100)
    t = Talk(port, connections=3)
    attach(s)
    t.say("run 10")
    expect_total(s, 30)
    load(port, connections=4, number=100, per_connection=1)
    expect_total(s, 130)
    t.end()


@test()
def instance_of_a_template():
    name = unit_name("template", "")
    port = unused_port()
    write_unit(name + "@.service", f"[Service]\nType=notify\nExecStart={scenario.tools}/server --port %i\n")
    unit = f"{name}@{port}.service"
    attach(unit)
    systemctl("start", unit)
    load(port, connections=4, number=100)
    expect_total(unit, 100)


@test()
def an_alias_is_the_same_unit():
    s = Server(mode="thread")
    alias = s.name.replace(".service", "-alias.service")
    os.symlink(s.name, os.path.join(scenario.UNIT_DIR, alias))
    systemctl("daemon-reload")
    attach(alias)
    check(s.name in listed() and alias not in listed(), f"listed: {listed()}")
    s.start()
    load(s, connections=4, number=100)
    expect_total(s, 100)
    equal(json.loads(qosctl("status", alias, "--json=short").stdout)["unit"], s.name, "unit of the alias")
    qosctl("detach", alias)
    check(s.name not in listed(), "still attached")


@test()
def short_names():
    """Unit names without a type are services, as in systemctl."""
    s = Server()
    short = s.name.removesuffix(".service")
    attach(short)
    check(s.name in listed(), "not attached by its short name")
    equal(json.loads(qosctl("status", short, "--json=short").stdout)["unit"], s.name, "unit")
    qosctl("detach", short)


@test()
def slice_and_scope():
    """A slice has the requests of all units in it, and a scope those of its processes."""
    slice = unit_name("slice", ".slice").replace("-", "")
    attach(slice)
    a = Server(mode="thread", settings=f"Slice={slice}").start()
    b = Server(mode="thread", settings=f"Slice={slice}").start()
    load(a, connections=4, number=100)
    load(b, connections=4, number=200)
    expect_total(slice, 300)
    qosctl("detach", slice)

    port = unused_port()
    scope = unit_name("scope", ".scope")
    p = subprocess.Popen(["systemd-run", "--quiet", "--scope", f"--unit={scope}"] +
                         server_command(port=port, mode="thread").split())
    wait_for("the scope is there", lambda: unit_property(scope, "ActiveState") == "active")
    attach(scope)
    load(port, connections=4, number=100, retry=True)
    expect_total(scope, 100)
    p.kill()
    p.wait()


@test()
def holds():
    """A unit remains attached until its last hold ends: the administrator's, a lease, or one with --for=."""
    s = start_served(mode="thread")
    with scenario.Varlink() as v:
        v.call("Attach", unit=s.name, lease=True)
        types = sorted(h["type"] for h in held(s))
        equal(types, ["administrator", "lease"], "holds")
        qosctl("detach", s.name)
        equal([h["type"] for h in held(s)], ["lease"], "holds after the administrator's detach")
        load(s, connections=4, number=100)
        expect_total(s, 100)
    wait_for("the lease ends with its connection", lambda: s.name not in listed())

    qosctl("attach", s.name, "--for=4s")
    check(s.name in listed(), "not attached for four seconds")
    wait_for("--for=4s is over", lambda: s.name not in listed(), 15)
    check(qosctl("detach", s.name, ok=False).returncode != 0, "detach of what is not attached")


def held(unit):
    for o in qosctl_json("list"):
        if o["unit"] == unit.name:
            return o["holds"]
    fail(f"{unit.name} is not attached")


@test()
def again_is_the_same():
    """A second attach of an attached unit changes neither its holds nor its totals."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    attach(s)
    expect_total(s, 100)
    equal(len(held(s)), 1, "holds")
    qosctl("detach", s.name)
    check(s.name not in listed(), "still attached")
    attach(s)
    equal(count(s), 0, "count of a new attach")


@test(own_daemon=True, deadline=60)
def twenty_restarts_under_load():
    """The count over 20 restarts of the unit and 5 of qosd, under load on kept and on new connections, is that of the
    clients and of a packet capture."""
    s = start_served(mode="prefork", workers=3)
    capture = scenario.Capture(f"{scenario.tools}/{scenario.prefix}.pcap", s.port)
    clients = [Client(s, connections=8, duration_ms=60000, think_us=2000, retry=True),
               Client(s, connections=8, duration_ms=60000, think_us=2000, retry=True, per_connection=1)]
    for n in range(20):
        s.restart()
        if n % 4 == 3:
            systemctl("restart", "qosd.service")
    scenario.wait_qosd()
    results = [c.stop() for c in clients]
    answered = sum(r["answered"] for r in results)
    equal(sum(r["partial"] for r in results), 0, "partial responses")
    check(sum(r["failed"] for r in results) > 0, "no request failed: the restarts were not under load")
    path = capture.stop()
    seen = exchanges(path, s.port)
    os.unlink(path)
    equal(seen, answered, "exchanges in the capture")
    expect_total(s, answered)
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    equal([h["type"] for h in held(s)], ["administrator"], "holds")


@test(own_daemon=True)
def killed_qosd_loses_nothing():
    """After a kill of qosd under load, totals, windows and holds are complete: requests are counted without qosd."""
    s = start_served(mode="prefork")
    t = Talk(s, connections=3)
    t.say("run 10")
    before = snapshot(s)
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    for _ in range(3):
        scenario.kill_qosd()
    after = snapshot(s)
    equal(after["attachedSince"], before["attachedSince"], "attachedSince")
    # Clients recognize a new snapshot by a greater seq, also after a crash
    check(after["seq"] > before["seq"], f"seq {after['seq']} after {before['seq']}")
    r = c.stop()
    equal(r["failed"], 0, "failures at the client")
    expect_total(s, r["answered"] + 30)
    t.say("run 10")
    expect_total(s, r["answered"] + 60)
    f = server_figures(s)
    equal(f["latency"]["count"], r["answered"] + 60, "latency.count since attach")
    equal(f["inFlight"], 0, "inFlight")
    equal(lookup(f, "connections.open"), 3, "connections.open")
    equal([h["type"] for h in held(s)], ["administrator"], "holds")
    # All requests are less than a minute old, and are in that window
    equal(server_figures(s, "60s")["count"], r["answered"] + 60, "count in the window of 60 s")
    t.end()


def kill_qosd_before_it_noted(name):
    """Simulates a crash during an attach: the unit is in the kernel's maps and in the descriptor store, but not in the
    state file."""
    pid = scenario.qosd_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with open("/run/qosd/state/units") as f:
            state = json.load(f)
        units = [u for u in state["units"] if u["name"] != name]
        equal(len(units), len(state["units"]) - 1, "units in the state file")
        state["units"] = units
        state["generation"] -= 1
        with open("/run/qosd/state/units", "w") as f:
            json.dump(state, f)
    finally:
        os.kill(pid, signal.SIGKILL)
    scenario.wait_qosd(pid)


@test(own_daemon=True)
def killed_qosd_in_the_midst_of_an_attach():
    """After a crash during an attach the unit is not attached, its descriptors are closed, and its requests are not
    those of the unit that gets its slot."""
    scenario.fresh_qosd()
    slice = attach(unit_name("slice", ".slice"))
    store = int(unit_property("qosd.service", "NFileDescriptorStore"))
    a, b, c = (Server(mode="thread", settings=f"Slice={slice}" if n == 1 else "").start() for n in range(3))
    attach(a)
    maps = int(unit_property("qosd.service", "NFileDescriptorStore")) - store
    check(maps >= 1, "nothing of a unit is in the descriptor store")
    t = Talk(b, connections=3)
    attach(b)
    t.say("run 10")
    expect_total(b, 30)
    kill_qosd_before_it_noted(b.name)
    equal(sorted(listed()), sorted([slice, a.name]), "attached units")
    wait_for("what was left is gone",
             lambda: int(unit_property("qosd.service", "NFileDescriptorStore")) == store + maps)
    pid = scenario.qosd_pid()

    # The new unit gets the slot of the one that is not attached
    attach(c)
    t.say("run 10")
    load(b, connections=4, number=40)
    load(c, connections=4, number=50)
    load(a, connections=4, number=60)
    expect_total(c, 50)
    expect_total(a, 60)
    # Its control groups and sockets are those of its ancestor again
    before = count(slice)
    t.say("run 10")
    load(b, connections=4, number=40)
    expect_total(slice, before + 70)
    attach(b)
    t.say("run 10")
    load(b, connections=4, number=40)
    expect_total(b, 70)
    expect_total(c, 50)
    equal(scenario.qosd_pid(), pid, "qosd's process")
    t.end()


@test(own_daemon=True)
def unit_restarts_while_qosd_is_away():
    """A restart, a stop and a first start of units while qosd does not run are noticed when it runs again."""
    a, b, c = start_served(mode="thread"), start_served(mode="thread"), Server(mode="thread")
    attach(c)
    pid = scenario.qosd_pid()
    os.kill(pid, signal.SIGSTOP)    # stopped, so that the service manager does not restart it
    try:
        a.restart()
        load(a, connections=4, number=100)
        b.stop()
        c.start()
        load(c, connections=4, number=100, per_connection=1)
    finally:
        os.kill(pid, signal.SIGKILL)
    scenario.wait_qosd(pid)
    expect_total(a, 100)
    expect_total(c, 100)
    wait_for("the stopped one is shown inactive", lambda: snapshot(b)["activeState"] == "inactive")
    wait_for("the started one is shown active", lambda: snapshot(c)["activeState"] == "active")
    load(a, connections=4, number=100)
    expect_total(a, 200)
    b.start()
    load(b, connections=4, number=100)
    expect_total(b, 100)


@test()
def slice_changes_while_it_is_stopped():
    """A second attach of a stopped unit whose Slice= has changed keeps its totals, and takes its new control group."""
    s = Server(mode="thread")
    attach(s)
    s.start()
    load(s, connections=4, number=100)
    s.stop()
    wait_for("it is shown inactive", lambda: snapshot(s)["activeState"] == "inactive")
    slice = unit_name("other", "").replace("-", "") + ".slice"
    write_unit("50-slice.conf", f"[Service]\nSlice={slice}\n", os.path.join(scenario.UNIT_DIR, f"{s.name}.d"))
    systemctl("daemon-reload")
    attach(s)
    equal([name for name in listed() if name == s.name], [s.name], "units of the name")
    equal(snapshot(s)["controlGroup"], f"/{slice}/{s.name}", "control group")
    s.start()
    load(s, connections=4, number=100, per_connection=1)
    expect_total(s, 200)


@test()
def accept_yes():
    """A socket unit with Accept=yes has the requests of its instances, one for each connection."""
    name = unit_name("inetd", "")
    port = unused_port()
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nAccept=yes\n")
    write_unit(name + "@.service", "[Unit]\nCollectMode=inactive-or-failed\n[Service]\nExecStart=-/bin/cat\n"
               "StandardInput=socket\nStandardOutput=socket\n")
    attach(name + ".socket")
    systemctl("start", name + ".socket")
    # The response of cat is the request
    load(port, connections=4, number=20, per_connection=4, response=64)
    expect_total(name + ".socket", 20)
