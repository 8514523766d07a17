# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon itself: what it leaves in the kernel, its limits, how it runs without a part of the kernel, and with PID 1
and the bus restarted or stopped."""

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import signal
import struct
import subprocess
import time

import scenario
from scenario import (DBUS_ERROR, Server, Talk, Varlink, attach, check, count, daemon_is_well, dbus_attach_error,
                      equal, expect_total, fail, fresh_qosd, kill_qosd, listed, load, preload_qosd, programs,
                      qosctl, qosd_pid, run, smaller, snapshot, start_served, systemctl, test, unit_property,
                      varlink, varlink_error, wait_for, wait_qosd, wake_ups)
from test_views import metrics


# ---- what is in the kernel -------------------------------------------------------------------------------------------

def bpf_list(kind):
    return json.loads(run("bpftool", "--json", kind, "list").stdout)


def descriptors_of(pids):
    """Returns the ids of programs, maps and links that the processes have descriptors of."""
    ids = {"prog": set(), "map": set(), "link": set()}
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
            try:
                with open(path) as f:
                    info = dict(line.split(":", 1) for line in f if ":" in line)
            except OSError:
                continue
            for kind in ids:
                if f"{kind}_id" in info:
                    ids[kind].add(int(info[f"{kind}_id"]))
    return ids


def ours():
    """Returns the ids of programs, maps and links of qosd: those that it or the descriptor store holds, and those that
    these use. (Others may use BPF on the machine at the same time, with programs of the same names.)"""
    ids = descriptors_of([p for p in (qosd_pid(), 1) if p])
    # PID 1 has programs of its own, on control groups, which use no map of qosd
    own = descriptors_of([qosd_pid()]) if qosd_pid() else {"prog": set(), "map": set(), "link": set()}
    links = {l["id"]: l for l in bpf_list("link")}
    names = {p["program"][:15] for p in programs()} if qosd_pid() else set()
    for p in bpf_list("prog"):
        if p["id"] in ids["prog"] and p.get("name") not in names:
            ids["prog"].discard(p["id"])
        if set(p.get("map_ids", [])) & own["map"]:
            ids["prog"].add(p["id"])
    ids["link"] = {i for i in ids["link"] | set(links) if i in links and links[i].get("prog_id") in ids["prog"]}
    # Maps in the descriptor store are used by a program of qosd; the other maps of PID 1 are its own
    ids["map"] = set(own["map"])
    for p in bpf_list("prog"):
        if p["id"] in ids["prog"]:
            ids["map"] |= set(p.get("map_ids", []))
    return ids


# The number of bpf(2) by architecture, and its commands BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID,
# BPF_LINK_GET_FD_BY_ID
BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, 280)
GET_FD_BY_ID = {"prog": 13, "map": 14, "link": 30}
libc = ctypes.CDLL(None, use_errno=True)

LOOKUP, UPDATE, DELETE = 1, 2, 3


def bpf(command, *fields):
    attr = ctypes.create_string_buffer(struct.pack(*fields), 120)
    return libc.syscall(BPF, command, attr, 120)


def exists(kind, id):
    # bpftool is too slow: it loads a program of its own to iterate, which takes a minute where everything is emulated
    fd = bpf(GET_FD_BY_ID[kind], "=III", id, 0, 0)
    if fd < 0:
        equal(ctypes.get_errno(), errno.ENOENT, f"error of looking for {kind} {id}")
        return False
    os.close(fd)
    return True


def left_of(ids):
    return {kind: sorted(id for id in ids[kind] if exists(kind, id)) for kind in ids}


NOTHING = {"prog": [], "map": [], "link": []}


@test(own_daemon=True, vm="nightly")
def stopping_leaves_nothing():
    """After systemctl stop no program, map or link of qosd is left in the kernel, no file, and no descriptor in the
    store."""
    s = start_served(mode="thread")
    t = Talk(s, connections=3)
    t.say("run 3")
    ids = ours()
    for kind in ids:
        check(ids[kind], f"no {kind} while a unit is attached: there is nothing to compare with")
    check(left_of(ids) == {kind: sorted(ids[kind]) for kind in ids}, "existing objects were not found")
    check(int(unit_property("qosd.service", "NFileDescriptorStore")) > 0, "the descriptor store is empty")
    systemctl("stop", "qosd.service")
    try:
        wait_for("all objects are freed", lambda: left_of(ids) == NOTHING or None, 30)
        equal(unit_property("qosd.service", "NFileDescriptorStore"), "0", "descriptors in the store")
        # The sockets of the socket unit may be left
        left = [p for p in glob.glob("/run/qosd/**", recursive=True) if os.path.isfile(p)]
        equal(left, [], "files in /run/qosd")
        equal(glob.glob("/sys/fs/bpf/*qos*"), [], "pinned objects")
        t.say("run 3")
    finally:
        systemctl("start", "qosd.service")
    t.end()
    wait_qosd()
    equal(listed(), [], "units attached after a stop and a start")


def map_element(command, map, key, value=0):
    """Looks up, updates or deletes an element of a map with keys of 32 bits and values of 64. Returns the value, or
    None if there is no element."""
    key, value = ctypes.c_uint32(key), ctypes.c_uint64(value)
    if bpf(command, "=IIQQ", map, 0, ctypes.addressof(key), ctypes.addressof(value) if command != DELETE else 0) < 0:
        equal(ctypes.get_errno(), errno.ENOENT, "error of a map")
        return None
    return value.value


def statistic(name):
    """Returns the index of a statistic in the map of statistics."""
    with open(os.path.join(scenario.SOURCES, "../../bpf/abi/unit-map.h")) as f:
        values = re.search(r"enum qos_statistic \{(.*?)\};", f.read(), re.S)[1]
    return re.findall(r"^\s*(QOS_STATISTIC_\w+)", values, re.M).index(name)


@test(own_daemon=True)
def control_group_that_was_not_noted():
    """If the program that records the owner of a new control group has failed, as it had no memory or could not run,
    the daemon finds the group later, so that its requests count."""
    s = start_served(mode="process", settings="Delegate=yes")
    own = descriptors_of([qosd_pid()])["map"]
    maps = {m["name"]: bpf(GET_FD_BY_ID["map"], "=III", m["id"], 0, 0) for m in bpf_list("map")
            if m["id"] in own and m.get("name") in ("groups", "statistics")}
    path = "/sys/fs/cgroup" + unit_property(s.name, "ControlGroup")
    os.mkdir(path + "/child")
    parent, child = (os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in (path, path + "/child"))
    try:
        owner = map_element(LOOKUP, maps["groups"], parent)
        check(owner, "the unit's control group has no owner")
        equal(map_element(LOOKUP, maps["groups"], child), owner, "owner of the child group")

        map_element(DELETE, maps["groups"], child)
        equal(map_element(LOOKUP, maps["groups"], child), None, "owner of the child group after its deletion")
        lost = statistic("QOS_STATISTIC_LOST_GROUPS")
        map_element(UPDATE, maps["statistics"], lost, map_element(LOOKUP, maps["statistics"], lost) + 1)
        wait_for("the unit owns the child group again",
                 lambda: snapshot(s) and map_element(LOOKUP, maps["groups"], child) == owner)
    finally:
        for fd in (parent, child, *maps.values()):
            os.close(fd)
        os.rmdir(path + "/child")


@test(own_daemon=True, vm="nightly")
def nothing_attached_nothing_loaded():
    """Without an attached unit no program is loaded: the first attach loads the programs, and the last detach unloads
    them."""
    fresh_qosd()
    equal(sorted(ours()["prog"]), [], "programs with nothing attached")
    check(all(p["state"] != "attached" for p in programs()), "a program is attached")
    a, b = Server(mode="thread").start(), Server(mode="thread").start()
    attach(a)
    ids = ours()
    check(ids["prog"], "no program with a unit attached")
    attach(b)
    equal(ours()["prog"], ids["prog"], "programs with two units attached")
    load(a, connections=4, number=50)
    load(b, connections=4, number=60)
    expect_total(a, 50)
    qosctl("detach", a.name)
    check(ours()["prog"], "no program with one unit left")
    load(b, connections=4, number=60)
    expect_total(b, 120)
    qosctl("detach", b.name)
    wait_for("the programs are gone", lambda: left_of({"prog": ids["prog"]}) == {"prog": []})
    wait_for("the links are gone", lambda: left_of({"link": ids["link"]}) == {"link": []})
    check(all(p["state"] != "attached" for p in programs()), "a program is attached")
    # Attaching once more works
    attach(a)
    load(a, connections=4, number=50)
    expect_total(a, 50)


@test(own_daemon=True)
def nothing_attached_nobody_wakes_up():
    """Without attached units and clients the daemon wakes up for the watchdog only."""
    fresh_qosd()
    # The work of the start is done
    pid = qosd_pid()
    seen = [wake_ups(pid)]
    wait_for("it sleeps for a second", lambda: seen.append(wake_ups(pid)) or seen[-1] == seen[-2], pause=1)
    time.sleep(4)
    # The watchdog may have been notified meanwhile
    n = wake_ups(pid) - seen[-1]
    check(n <= 2, f"{n} wake-ups in 4 s")


@test(own_daemon=True, deadline=180)
def memory_and_descriptors_come_back():
    """Attaching and detaching repeatedly leaks no descriptor and no memory."""
    s, kept = Server(mode="thread").start(), "no unit"

    def turn(n):
        for _ in range(n):
            varlink("Attach", unit=s.name)
            varlink("Detach", unit=s.name)

    def used():
        pid = qosd_pid()
        with open(f"/proc/{pid}/status") as f:
            rss = next(int(l.split()[1]) for l in f if l.startswith("RssAnon:"))
        # Files of the control group of a unit that stays attached are opened at the next tick
        n = 0
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                n += kept not in os.readlink(f"/proc/{pid}/fd/{fd}")
        return n, rss

    def leaks_nothing(first, n, kib):
        turn(first)
        before, rss = used()
        turn(n)
        # Connections of the last clients, and maps that programs have used, are closed later
        wait_for(f"there are {before} descriptors again", lambda: used()[0] <= before + 1)
        # So is memory that is free: see memory-trim.h
        wait_for(f"{rss + kib} KiB of memory, or less", lambda: used()[1] <= rss + kib)

    fresh_qosd()
    # Each loads and unloads the programs
    leaks_nothing(2, 6, 512)
    # While they are kept loaded
    kept = start_served(mode="thread").name
    leaks_nothing(10, 80, 128)


# ---- limits ----------------------------------------------------------------------------------------------------------

@test(own_daemon=True)
def one_unit_too_many(qosd_conf):
    qosd_conf("[QoS]\nUnitsMax=3\n")
    equal(varlink("GetStatus")["unitsMax"], 3, "unitsMax")
    units = [Server(mode="thread").start() for _ in range(4)]
    for u in units[:3]:
        attach(u)
    try:
        varlink("Attach", unit=units[3].name)
        fail("a unit more than UnitsMax= was attached")
    except scenario.VarlinkError as e:
        equal(e.name, scenario.VARLINK + "TooManyUnits", "error")
        equal(e.parameters["limit"], 3, "limit in the error")
        check("3" in e.parameters["message"], f"the limit is not in the message: {e.parameters}")
    equal(dbus_attach_error(units[3].name), DBUS_ERROR + "TooManyUnits",
          "D-Bus error")
    r = qosctl("attach", units[3].name, ok=False)
    check(r.returncode == 1 and "UnitsMax" in r.stderr or "3" in r.stderr, f"qosctl: {r.returncode}: {r.stderr}")
    # The attached units are still counted, and a detach makes it possible to attach another one
    for n, u in enumerate(units[:3]):
        load(u, connections=4, number=100 * (n + 1))
        expect_total(u, 100 * (n + 1))
    qosctl("detach", units[0].name)
    attach(units[3])
    load(units[3], connections=4, number=50)
    expect_total(units[3], 50)
    expect_total(units[1], 200)


@test(own_daemon=True, deadline=120)
def as_many_units_as_may_be():
    """As many units as UnitsMax= allows by default, 256, can be attached, are counted, and are attached again after a
    crash."""
    fresh_qosd()
    s = start_served(mode="thread")
    names = [scenario.unit_name() for _ in range(255)]
    for n in names:
        scenario.write_unit(n, "[Service]\nExecStart=/bin/true\nRemainAfterExit=yes\n")
    with scenario.Varlink(timeout=20) as v:
        for n in names:
            v.call("Attach", unit=n)
        try:
            v.call("Attach", unit=Server().name)
            fail("the 257th unit was attached")
        except scenario.VarlinkError as e:
            equal(e.name, scenario.VARLINK + "TooManyUnits", "error")
    equal(len(listed()), 256, "attached units")
    load(s, connections=16, number=1000)
    expect_total(s, 1000)
    # All are attached again after a crash
    scenario.kill_qosd()
    wait_for("all are attached again", lambda: len(listed()) == 256)
    load(s, connections=16, number=1000)
    expect_total(s, 2000)
    # The states of all units are read from PID 1 after a crash, though the bus allows 128 pending calls per connection
    # only
    pid = qosd_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        systemctl("start", *names)
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_qosd(pid)

    def inactive():
        with scenario.Varlink() as v:
            return [o["unit"] for o in v.collect("List") if o["snapshot"]["activeState"] != "active"]

    wait_for("all are shown active", lambda: not inactive(), timeout=20)
    qosctl("detach", "--all")
    equal(listed(), [], "units after detach --all")


@test(own_daemon=True)
def reads_watched_on_demand():
    """requests_read, which runs for each read of the machine, is attached while a unit may read past requests_content:
    until it has read often enough, and for as long as it splices. A unit that begins to splice later is noticed, and
    each request counts."""
    fresh_qosd()

    def state():
        return next(p["state"] for p in programs() if p["program"] == "requests_read")

    def listens(port):
        return str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout

    flag = f"/run/{scenario.prefix}-splices"
    port, late = scenario.unused_port(), scenario.unused_port()
    command = (f"{scenario.server_command(mode='thread', port=port)} & until test -e {flag}; do sleep .02; done; exec "
               + scenario.server_command(mode="thread", read="splice", request=9000, port=late))
    try:
        u = attach(scenario.Unit(f"/bin/sh -c '{command}'", type="exec")).start()
        wait_for("the server listens", lambda: listens(port))
        equal(state(), "attached", "state of requests_read of a new unit")
        load(port, connections=4, number=1200)
        wait_for("requests_read is detached", lambda: state() == "idle")
        expect_total(u, 1200)
        with open(flag, "w"):
            wait_for("the second server listens", lambda: listens(late))
        load(late, connections=4, number=400, request=9000)
        wait_for("requests_read is attached", lambda: state() == "attached")
        load(late, connections=4, number=1200, request=9000)
        expect_total(u, 2800)
        expect_total(u, 1200 * 64 + 1600 * 9000, "requests.server.bytesIn")
        equal(state(), "attached", "state of requests_read while a unit splices")
        # It is part of what is kept
        kill_qosd()
        wait_qosd()
        load(late, connections=4, number=100, request=9000)
        expect_total(u, 2900)
        equal(state(), "attached", "state of requests_read after a restart")
        qosctl("detach", u.name)

        other = start_served(mode="thread")
        load(other, connections=4, number=1200)
        wait_for("requests_read is detached again", lambda: state() == "idle")
        expect_total(other, 1200)
    finally:
        if os.path.exists(flag):
            os.unlink(flag)


# ---- when a part of the kernel is missing ----------------------------------------------------------------------------

@test(own_daemon=True, deadline=480, nightly=True)
def each_program_refused():
    """If the kernel refuses any one of the programs, the daemon runs without it, reports which one and why, and each
    metric is either right or absent."""
    fresh_qosd()    # no programs for the probes of other units
    s = start_served(mode="thread")
    names = [p["program"] for p in programs() if p["state"] == "attached"]
    check(len(names) >= 3, f"only {names}")
    load(s, connections=4, number=100)
    whole = metrics_of(s)
    counting = []
    try:
        for name in names:
            preload_qosd({"LD_PRELOAD": f"{scenario.tools}/refuse.so", "REFUSE_PROGRAM": name})
            if without(name, names, whole):
                counting.append(name)
            daemon_is_well()
    finally:
        preload_qosd(None)
    check(len(counting) >= len(names) // 2, f"only without {counting} of {names} requests are counted")
    attach(s)
    load(s, connections=4, number=100)
    equal(set(metrics_of(s)), set(whole), "metrics afterwards")


@test(own_daemon=True, deadline=120)
def served_while_programs_load():
    """While the programs for the first attach are loaded, which takes the kernel as long as it likes, all clients are
    served. The attach ends when requests are counted, or when the unit is detached meanwhile."""
    kept, gone = Server(mode="thread").start(), Server(mode="thread").start()
    hold = f"/run/{scenario.prefix}-hold"
    preload_qosd({"LD_PRELOAD": f"{scenario.tools}/refuse.so", "HOLD_PROGRAMS": hold})
    try:
        with open(hold, "w"):
            attaches = [subprocess.Popen(["qosctl", "attach", u.name], stderr=subprocess.PIPE, text=True)
                        for u in (kept, gone)]
        wait_for("both are attached", lambda: {kept.name, gone.name} <= set(listed()))
        daemon_is_well()
        check("requests" not in varlink("Get", unit=kept.name), "a snapshot has requests")
        equal([a.poll() for a in attaches], [None, None], "ends of the attaches")
        qosctl("detach", gone.name)
        error = attaches[1].communicate(timeout=20)[1]
        check("was detached" in error, f"error of the attach: {error}")
        equal(attaches[0].poll(), None, "end of the other attach")
        os.unlink(hold)
        equal(attaches[0].communicate(timeout=100)[1], "", "errors of the other attach")
        load(kept, connections=4, number=100)
        expect_total(kept, 100)

        # All are detached before the programs are loaded
        fresh_qosd()
        with open(hold, "w"):
            late = subprocess.Popen(["qosctl", "attach", gone.name], stderr=subprocess.PIPE, text=True)
        wait_for("it is attached", lambda: listed() == [gone.name])
        qosctl("detach", gone.name)
        late.communicate(timeout=20)
        os.unlink(hold)
        wait_for("no programs are loaded", lambda: all(p["state"] == "idle" for p in programs()))
        attach(gone)
        load(gone, connections=4, number=100)
        expect_total(gone, 100)
    finally:
        if os.path.exists(hold):
            os.unlink(hold)
        preload_qosd(None)


@test(own_daemon=True, deadline=120)
def unsupported_kernels():
    """On a kernel that is too old, or locked down so that programs cannot read memory, the daemon starts, logs the
    reason in one message, and reports it to clients that attach units."""
    s = start_served(mode="thread")
    lockdown = f"/run/{scenario.prefix}-lockdown"
    os.mkdir(lockdown)
    with open(os.path.join(lockdown, "lockdown"), "w") as f:
        f.write("none integrity [confidentiality]\n")
    refuse = f"{scenario.tools}/refuse.so"
    try:
        for reason, environment, *settings in (
                ("Linux 6.12 or newer is required, this is Linux 6.11.10-test",
                 {"LD_PRELOAD": refuse, "KERNEL_RELEASE": "6.11.10-test"}),
                ("locked down in confidentiality mode", {}, f"BindReadOnlyPaths={lockdown}:/sys/kernel/security")):
            preload_qosd(environment, *settings)
            invocation = unit_property("qosd.service", "InvocationID")
            r = qosctl("attach", s.name)
            check(reason in r.stderr, f"no reason when a unit is attached: {r.stderr}")
            check("requests" not in varlink("Get", unit=s.name), "a snapshot has requests")

            def logged():
                return run("journalctl", "--no-pager", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation}").stdout
            # Its writer does not wait for the journal
            journal = wait_for("the reason is in the journal", lambda: (j := logged())
                               and "No metrics are available: " in j and reason in j and j)
            check("is not available" not in journal, f"messages about single programs: {journal}")
            daemon_is_well()
    finally:
        preload_qosd(None)
    attach(s)
    load(s, connections=1, number=10)
    expect_total(s, 10)


def without(name, names, whole):
    """Checks the metrics of a unit that is started before the attach, and of one that is started after it, without one
    program. Returns whether requests are counted."""
    old, new = Server(mode="thread").start(), Server(mode="thread")
    r = qosctl("attach", old.name, new.name, ok=False)
    states = {p["program"]: p for p in programs()}
    check(states[name].get("reason"), f"no reason for {name}")
    equal(states[name]["state"], "idle" if "is used instead: " in states[name]["reason"] else "unavailable",
          f"state of {name}, refused")
    check(name in qosctl("probes").stdout, f"{name} is not in qosctl probes")
    if r.returncode != 0:
        equal(varlink_error("Attach", unit=old.name), "ProbeUnavailable", f"error without {name}")
        check(name in r.stderr or states[name]["reason"] in r.stderr, f"not in the error of the attach: {r.stderr}")
        return False
    for other in names:
        # As far as the kernel knows their names
        check(other[:15] == name[:15] or states[other]["state"] != "idle", f"{other} is idle without {name}")
    new.start()
    # Without the program for new control groups, qosd learns of them from PID 1
    wait_for("the new unit is shown active", lambda: snapshot(new)["activeState"] == "active")

    for u in (old, new):
        c = load(u, connections=4, number=200)
        load(u, connections=1, number=1)
        connects = c["connects"] + 1

        def settled():
            m = metrics_of(u)
            gauges = ("requests.server.connections.open", "requests.server.inFlight")
            return m if all(m.get(g, 0) == 0 for g in gauges) else None

        now = wait_for(f"the connections are closed, without {name}", settled)
        for metric, want in (("requests.server.count", 201), ("requests.server.protocols.tcp", 201),
                             ("requests.server.bytesOut", 201 * 128),
                             ("requests.server.connections.accepted", connects),
                             ("requests.server.errors.reset", 0), ("requests.server.errors.timeout", 0),
                             ("requests.server.clientAborts", 0), ("requests.server.connections.listenDrops", 0),
                             ("requests.server.connections.retransmits", 0)):
            if metric in now:
                equal(now[metric], want, f"{metric} without {name}")
        # The first request on a connection of a listener that was not found is seen only when it is read
        unseen = connects if u is old and "older than the attach" in states[name]["provides"] else 0
        for metric, each in [("bytesIn", 64)] + [(f"{d}.count", 1) for d in ("latency", "firstByte", "receive", "queue",
                                                                             "service", "answer")]:
            n = now.get(f"requests.server.{metric}", 201 * each)
            check((201 - unseen) * each <= n <= 201 * each, f"{metric}: {n} instead of {201 * each} without {name}")
        # The program's absence disables what the program is documented to provide, and nothing else
        missing = sorted(set(whole) - set(now))
        check(len(missing) <= 11
              or any(word in states[name]["provides"] for word in ("latency", "durations", "contention")),
              f"without {name}, which provides \"{states[name]['provides']}\", these are missing: {missing}")
        check(len(missing) < len(whole), f"no metric is left without {name}")
        if name == "requests_content":
            # Absent instead of 0, as contents are not parsed
            equal(missing, [f"requests.server.{m}" for m in ("blocking", "intended.count", "protocols.dns",
                                                             "protocols.grpc", "protocols.http1", "protocols.http2",
                                                          "protocols.memcached", "protocols.redis", "protocols.tls",
                                                             "protocols.unix", "statusUnknown", "streams")],
                  f"missing without {name}")
    return "requests.server.count" in now


def metrics_of(unit):
    """Returns the unit's metrics but those that are present by chance: quantiles of the waits for a CPU, if there were
    enough, and pressure, if the kernel's files were read before."""
    return {name: value for name, value in metrics(snapshot(unit)).items()
            if name.endswith("runQueueLatency.count")
            or not name.startswith(("contention.runQueueLatency.", "contention.pressure."))}


def another_build():
    """Makes a qosd with programs that do the same, but differ in their bytes: a line of the source in their debug
    information is another one, and one program has another name. Returns its path."""
    path = re.search(r"path=(\S+)", unit_property("qosd.service", "ExecStart"))[1]
    with open(path, "rb") as f:
        data = f.read()
    other, n = re.subn(rb"\0( +)return 1;\0", rb"\0\1return 9;\0", data)
    check(n > 0, "found nothing to change in the programs")
    check(b"cpu_switch" in other, "there is no program cpu_switch")
    other = other.replace(b"cpu_switch", b"cpu_swatch")
    with open(f"{scenario.tools}/qosd", "wb") as f:
        f.write(other)
        os.fchmod(f.fileno(), 0o755)
    return f.name


@test(own_daemon=True)
def upgraded():
    """After an upgrade to other programs, units are attached with their thresholds, and totals begin anew, which is
    logged. No object of the old build is left in the kernel, even if the new one does not know its name. A restart of
    the same build keeps the totals."""
    s = start_served(mode="thread")
    t = Talk(s, connections=3)
    t.say("run 10")
    expect_total(s, 30)
    qosctl("set-threshold", s.name, "slow: requests.server.latency.p99 > 10s")

    def threshold():
        with scenario.Varlink() as v:
            t = v.collect("ListThresholds", unit=s.name)[0]["threshold"]
        return t["name"], t.get("total"), t.get("good")

    t.say("run 1")
    expect_total(s, 33)
    equal(threshold(), ("slow", 3, 3), "requests since the threshold was set")
    path = os.path.join(scenario.QOSD_DROP_IN_DIR, "99-scenario.conf")
    os.makedirs(scenario.QOSD_DROP_IN_DIR, exist_ok=True)
    with open(path, "w") as f:
        f.write(f"[Service]\nExecStart=\nExecStart={another_build()}\n")
    old = ours()
    before = time.time()
    try:
        systemctl("daemon-reload")
        systemctl("restart", "qosd.service")
        wait_qosd()
        wait_for("nothing of the old build is left", lambda: left_of(old) == NOTHING)
        check(s.name in listed(), "the unit is not attached any more")
        equal(count(s), 0, "count after the upgrade")
        t.say("run 10")
        expect_total(s, 30)
        equal(threshold(), ("slow", 30, 30), "requests of the threshold since the upgrade")
        said = run("journalctl", "-u", "qosd.service", f"--since=@{int(before)}", "-o", "cat", "--no-pager", "-p",
                   "notice").stdout
        check("anew" in said or "afresh" in said, f"the journal has no message that totals begin anew: {said}")
        unknown = [line for line in said.splitlines() if "unknown descriptor" in line]
        check(len(unknown) == 1 and "Removed 2 unknown descriptors" in unknown[0],
              f"messages about unknown descriptors: {unknown}")
        systemctl("restart", "qosd.service")
        wait_qosd()
        t.say("run 10")
        expect_total(s, 60)
        equal(threshold(), ("slow", 60, 60), "requests of the threshold after a restart")
    finally:
        os.unlink(path)
        systemctl("daemon-reload")
        fresh_qosd()
    t.end()


@test(vm="nightly")
def how_the_service_is_set_up():
    """qosd.service runs as its own user with three capabilities, a watchdog and a sandbox."""
    equal(unit_property("qosd.service", "Type"), "notify-reload", "Type")
    check(unit_property("qosd.service", "WatchdogUSec") not in ("0", "infinity", ""), "no watchdog")
    with open(f"/proc/{qosd_pid()}/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    check(status["Uid"].split()[0] != "0", "qosd runs as root")
    want = 1 << 12 | 1 << 38 | 1 << 39      # CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF
    for which in ("CapPrm", "CapEff", "CapAmb", "CapBnd"):
        equal(int(status[which], 16), want, which)
    equal(status["NoNewPrivs"], "1", "NoNewPrivs")
    equal(run("stat", "-c", "%U", f"/proc/{qosd_pid()}").stdout.strip(), "qosd", "user")
    out = run("systemd-analyze", "security", "--no-pager", "qosd.service", ok=False).stdout
    exposure = float(out.split("Overall exposure level for qosd.service:")[1].split()[0])
    check(exposure <= 1.5, f"exposure {exposure}")


@test(own_daemon=True)
def watched_by_the_watchdog():
    """After the watchdog has aborted a daemon that hangs, the next one goes on with its totals."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    pid = qosd_pid()
    os.kill(pid, 6)     # SIGABRT, as the watchdog sends
    wait_qosd(pid)
    load(s, connections=4, number=100)
    expect_total(s, 200)


@contextlib.contextmanager
def statistics():
    """Runs its body with kernel.bpf_stats_enabled on. Yields the value that it had before."""
    # The container's own /proc/sys is read-only
    proc = f"{scenario.tools}/proc"
    os.makedirs(proc, exist_ok=True)
    run("mount", "-t", "proc", "proc", proc)
    try:
        path = f"{proc}/sys/kernel/bpf_stats_enabled"
        with open(path) as f:
            old = f.read()
        try:
            with open(path, "w") as f:
                f.write("1")
            yield old
        finally:
            with open(path, "w") as f:
                f.write(old)
    finally:
        run("umount", proc)


@test(quiet="alone")
def statistics_of_programs():
    """With kernel.bpf_stats_enabled on, probes have the number of runs and their mean time. With it off they have
    neither, and qosctl prints how to turn it on."""
    s = start_served(mode="thread")
    with statistics() as old:
        load(s, connections=4, number=1000)
        probes = programs()
        check(sum(p.get("runs", 0) for p in probes) >= 2000, f"runs {[p.get('runs') for p in probes]}")
        check(any(p.get("runTimeMean", 0) > 0 for p in probes), "no time per run")
        check(varlink("GetStatus")["statisticsEnabled"], "statisticsEnabled")
    if old.strip() == "0":
        check("bpf_stats_enabled" in qosctl("probes").stdout + qosctl("probes").stderr,
              "no hint how to get the time of a run")
        check(not varlink("GetStatus")["statisticsEnabled"], "statisticsEnabled")
    equal(varlink("GetStatus")["drops"], 0, "events that could not be recorded")


@test(quiet="alone")
def what_a_unit_costs():
    """The overhead of a unit is part of the run time that the kernel counts for all programs, which includes runs for
    other units, and the beginning of each run, before the unit is known."""
    s = Server(mode="thread")
    attach(s, "--probes=requests,cpu")
    s.start()
    idle = start_served(mode="thread")
    wait_for("the idle unit has a cost of zero", lambda: snapshot(idle, "1s")["cost"]["share"] == 0)

    def booked():
        return sum(p.get("runTime", 0) for p in programs())

    with statistics(), Varlink() as v:
        before = booked()
        v.call("Mark", unit=s.name)
        load(s, connections=8, number=smaller(40000))
        m = v.call("Get", unit=s.name, sinceMark=True)
        kernel = booked() - before
    cost = m["cost"]["share"] * m["covered"]
    check(kernel / 5 < cost < kernel, f"{cost} ns, of {kernel} ns that the kernel has counted for all programs")
    whole = snapshot(s)
    check(whole["cost"]["share"] * whole["covered"] >= .999 * cost,
          f"{whole['cost']} of {whole['covered']} ns, {cost} ns of it while it was under load")
    equal(snapshot(idle, "1s")["cost"]["share"], 0, "cost of a unit that does nothing")
    wait_for("the load is not in the window any more", lambda: snapshot(s, "1s")["cost"]["share"] == 0)


@test(own_daemon=True)
def memory_of_maps():
    """The documented budgets of memory hold: at most 640 KiB for a unit with the probe "requests", 1 MiB with all
    probes, and 4 KiB for a socket."""
    fresh_qosd()
    a, b = Server(mode="thread").start(), Server(mode="thread").start()
    attach(a, "--probes=requests")
    one = varlink("GetStatus")
    check(one["mapMemoryPerUnit"] <= 640 * 1024, f"{one['mapMemoryPerUnit']} bytes for a unit")
    check(0 < one["memoryPerSocket"] <= 4096, f"{one['memoryPerSocket']} bytes for a socket")
    attach(b, "--probes=requests")
    two = varlink("GetStatus")
    check(one["mapMemoryPerUnit"] * 0.9 <= two["mapMemory"] - one["mapMemory"] <= 640 * 1024,
          f"a second unit takes {two['mapMemory'] - one['mapMemory']} bytes")
    qosctl("detach", b.name)
    wait_for("the unit's memory is freed", lambda: varlink("GetStatus")["mapMemory"] <= one["mapMemory"] + 65536)
    attach(a, "--probes=requests,cpu,block,memory")
    one = varlink("GetStatus")
    attach(b, "--probes=requests,cpu,block,memory")
    two = varlink("GetStatus")
    check(two["mapMemory"] - one["mapMemory"] <= 1024 * 1024,
          f"a second unit with all probes takes {two['mapMemory'] - one['mapMemory']} bytes")
    qosctl("detach", b.name)
    qosctl("detach", a.name)
