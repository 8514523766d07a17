# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon itself: what it leaves in the kernel, what it does when a part of the kernel or of the system is missing,
and how it lives with PID 1 and the bus."""

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import signal
import struct
import time

import scenario
from scenario import (DBUS_ERROR, Client, Server, Talk, Varlink, attach, check, configure_qosd, count, daemon_is_well,
                      dbus_attach_error, equal, expect_total, fail, fresh_qosd, kill_qosd, listed, load, preload_qosd, programs,
                      qosctl, qosd_pid, run, smaller, snapshot, start_served, systemctl, test, unit_property, varlink,
                      varlink_error, wait_for, wait_qosd)
from test_views import metrics


# ---- what is in the kernel --------------------------------------------------------------------------------------------

def bpf_list(kind):
    return json.loads(run("bpftool", "--json", kind, "list").stdout)


def descriptors_of(pids):
    """Programs, maps and links that processes hold, by their ids."""
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
    """What is in the kernel because of qosd: what it holds, or the descriptor store holds for it, and all that hangs on
    that. (Others may use BPF on the machine at the same time, with programs of the same names.)"""
    ids = descriptors_of([p for p in (qosd_pid(), 1) if p])
    # PID 1 has programs of its own, on control groups; they use no map of ours
    own = descriptors_of([qosd_pid()]) if qosd_pid() else {"prog": set(), "map": set(), "link": set()}
    links = {l["id"]: l for l in bpf_list("link")}
    names = {p["program"][:15] for p in programs()} if qosd_pid() else set()
    for p in bpf_list("prog"):
        if p["id"] in ids["prog"] and p.get("name") not in names:
            ids["prog"].discard(p["id"])
        if set(p.get("map_ids", [])) & own["map"]:
            ids["prog"].add(p["id"])
    ids["link"] = {i for i in ids["link"] | set(links) if i in links and links[i].get("prog_id") in ids["prog"]}
    # What the descriptor store holds of maps hangs on a program; the other maps of PID 1 are its own
    ids["map"] = set(own["map"])
    for p in bpf_list("prog"):
        if p["id"] in ids["prog"]:
            ids["map"] |= set(p.get("map_ids", []))
    return ids


# bpf(2): its number by architecture, its commands PROG_GET_FD_BY_ID, MAP_..., LINK_...
BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, 280)
GET_FD_BY_ID = {"prog": 13, "map": 14, "link": 30}
_libc = ctypes.CDLL(None, use_errno=True)


LOOKUP, UPDATE, DELETE = 1, 2, 3


def bpf(command, *fields):
    attr = ctypes.create_string_buffer(struct.pack(*fields), 120)
    return _libc.syscall(BPF, command, attr, 120)


def exists(kind, id):
    # Not by bpftool, which loads a program of its own to look around, and where everything is emulated takes a minute
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
    """systemctl stop: no program, map or link of it is left in the kernel, no file, no descriptor in the store."""
    s = start_served(mode="thread")
    t = Talk(s, connections=3)
    t.say("run 3")
    ids = ours()
    for kind in ids:
        check(ids[kind], f"no {kind} while a unit is attached: nothing was looked at")
    check(left_of(ids) == {kind: sorted(ids[kind]) for kind in ids}, "what is there was not found")
    check(int(unit_property("qosd.service", "NFileDescriptorStore")) > 0, "the descriptor store is empty")
    systemctl("stop", "qosd.service")
    try:
        wait_for("everything is gone", lambda: left_of(ids) == NOTHING or None, 30)
        equal(unit_property("qosd.service", "NFileDescriptorStore"), "0", "descriptors in the store")
        # The socket unit may keep its own
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
    """The element of a map whose keys have 32 bits and whose values 64. Returns the value, or None where there is none."""
    key, value = ctypes.c_uint32(key), ctypes.c_uint64(value)
    if bpf(command, "=IIQQ", map, 0, ctypes.addressof(key), ctypes.addressof(value) if command != DELETE else 0) < 0:
        equal(ctypes.get_errno(), errno.ENOENT, "error of a map")
        return None
    return value.value


def statistic(name):
    """Its place in the map of statistics."""
    with open(os.path.join(scenario.SOURCES, "../../bpf/abi/unit-map.h")) as f:
        values = re.search(r"enum qos_statistic \{(.*?)\};", f.read(), re.S)[1]
    return re.findall(r"^\s*(QOS_STATISTIC_\w+)", values, re.M).index(name)


@test(own_daemon=True)
def control_group_that_was_not_noted():
    """The program that notes whose a new control group is had no memory for it, or was kept from it by another one: the daemon finds the
    group, and what is in it counts."""
    s = start_served(mode="process", settings="Delegate=yes")
    own = descriptors_of([qosd_pid()])["map"]
    maps = {m["name"]: bpf(GET_FD_BY_ID["map"], "=III", m["id"], 0, 0) for m in bpf_list("map")
            if m["id"] in own and m.get("name") in ("groups", "statistics")}
    path = "/sys/fs/cgroup" + unit_property(s.name, "ControlGroup")
    os.mkdir(path + "/child")
    parent, child = (os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in (path, path + "/child"))
    try:
        owner = map_element(LOOKUP, maps["groups"], parent)
        check(owner, "the unit's control group is nobody's")
        equal(map_element(LOOKUP, maps["groups"], child), owner, "owner of the control group in it")

        map_element(DELETE, maps["groups"], child)
        equal(map_element(LOOKUP, maps["groups"], child), None, "owner that was taken away")
        lost = statistic("QOS_STATISTIC_LOST_GROUPS")
        map_element(UPDATE, maps["statistics"], lost, map_element(LOOKUP, maps["statistics"], lost) + 1)
        wait_for("it is the unit's again", lambda: snapshot(s) and map_element(LOOKUP, maps["groups"], child) == owner)
    finally:
        for fd in (parent, child, *maps.values()):
            os.close(fd)
        os.rmdir(path + "/child")


@test(own_daemon=True, vm="nightly")
def nothing_attached_nothing_loaded():
    """No program without a unit to watch; the first attach loads, the last detach unloads."""
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
    # And again
    attach(a)
    load(a, connections=4, number=50)
    expect_total(a, 50)


@test(own_daemon=True)
def nothing_attached_nobody_wakes_up():
    """Without a unit to watch and a client to serve, the daemon sleeps, the watchdog apart."""
    fresh_qosd()
    pid = qosd_pid()

    def switches():
        with open(f"/proc/{pid}/status") as f:
            return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)

    time.sleep(0.5)     # what there was to say at the start is said
    before = switches()
    time.sleep(4)
    # One for the watchdog, in case its time fell into these
    check(switches() - before <= 2, f"{switches() - before} wake-ups in 4 s")


@test(own_daemon=True, deadline=180)
def memory_and_descriptors_come_back():
    """Attaching and detaching again and again leaves no descriptor, no map and no memory behind."""
    s = Server(mode="thread").start()

    def turn(n):
        for _ in range(n):
            varlink("Attach", unit=s.name)
            varlink("Detach", unit=s.name)

    def used():
        pid = qosd_pid()
        with open(f"/proc/{pid}/status") as f:
            rss = next(int(l.split()[1]) for l in f if l.startswith("RssAnon:"))
        return len(os.listdir(f"/proc/{pid}/fd")), rss

    fresh_qosd()
    turn(3)
    descriptors, rss = used()
    turn(25)
    d, r = used()
    check(d <= descriptors + 1, f"{d} descriptors, there were {descriptors}")
    check(r <= rss + 512, f"{r} KiB, there were {rss}")


# ---- limits ----------------------------------------------------------------------------------------------------------

@test(own_daemon=True)
def one_unit_too_many():
    configure_qosd("[QoS]\nUnitsMax=3\n")
    try:
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
        # Nobody else is hurt, and there is room again when one goes
        for n, u in enumerate(units[:3]):
            load(u, connections=4, number=100 * (n + 1))
            expect_total(u, 100 * (n + 1))
        qosctl("detach", units[0].name)
        attach(units[3])
        load(units[3], connections=4, number=50)
        expect_total(units[3], 50)
        expect_total(units[1], 200)
    finally:
        configure_qosd(None)


@test(own_daemon=True, deadline=120)
def as_many_units_as_may_be():
    """256 units and one more; each counts its own."""
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
    # All of them come back after a crash
    scenario.kill_qosd()
    wait_for("all are attached again", lambda: len(listed()) == 256)
    load(s, connections=16, number=1000)
    expect_total(s, 2000)
    # What happened to them while nobody looked: PID 1 is asked about all of them at once, and the bus lets 128 calls wait
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

    wait_for("all are known to be active", lambda: not inactive(), timeout=20)
    qosctl("detach", "--all")
    equal(listed(), [], "units after detach --all")


# ---- when a part of the kernel is missing -------------------------------------------------------------------------------

@test(own_daemon=True, deadline=480, nightly=True)
def each_program_refused():
    """libbpf is refused each program in turn: the daemon lives, says which one and why, and every metric is right or
    absent."""
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
    check(len(counting) >= len(names) // 2, f"only without {counting} of {names} there is a count")
    attach(s)
    load(s, connections=4, number=100)
    equal(set(metrics_of(s)), set(whole), "metrics afterwards")


@test(own_daemon=True, deadline=120)
def unsupported_kernels():
    """On a kernel that is too old, or locked down so that no program can read anything, the daemon starts, names the reason in one
    line of the journal, and gives it to whoever attaches."""
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
            check(reason in r.stderr, f"not said when a unit is attached: {r.stderr}")
            check("requests" not in varlink("Get", unit=s.name), "a reading has requests")
            journal = run("journalctl", "--no-pager", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation}").stdout
            check("No metrics are available: " in journal and reason in journal, f"not in the journal: {journal}")
            check("is not available" not in journal, f"complaints about single programs: {journal}")
            daemon_is_well()
    finally:
        preload_qosd(None)
    attach(s)
    load(s, connections=1, number=10)
    expect_total(s, 10)


def without(name, names, whole):
    """A unit that is older than the attach, and one that is younger, without one program. Returns whether requests are
    counted."""
    old, new = Server(mode="thread").start(), Server(mode="thread")
    r = qosctl("attach", old.name, new.name, ok=False)
    states = {p["program"]: p for p in programs()}
    equal(states[name]["state"], "unavailable", f"state of {name}, refused")
    check(states[name].get("reason"), f"no reason for {name}")
    check(name in qosctl("probes").stdout, f"{name} is not in qosctl probes")
    if r.returncode != 0:
        equal(varlink_error("Attach", unit=old.name), "ProbeUnavailable", f"error without {name}")
        check(name in r.stderr or states[name]["reason"] in r.stderr, f"not said to who attaches: {r.stderr}")
        return False
    for other in names:
        check(other == name or states[other]["state"] != "idle", f"{other} is idle without {name}")
    new.start()
    # Without the program that sees control groups being made it takes PID 1's word that one was
    wait_for("the new one is shown active", lambda: snapshot(new)["activeState"] == "active")

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
                             ("requests.server.bytesOut", 201 * 128), ("requests.server.connections.accepted", connects),
                             ("requests.server.errors.reset", 0), ("requests.server.errors.timeout", 0),
                             ("requests.server.clientAborts", 0), ("requests.server.connections.listenDrops", 0),
                             ("requests.server.connections.retransmits", 0)):
            if metric in now:
                equal(now[metric], want, f"{metric} without {name}")
        # What arrives first on a connection whose listener nobody has found is seen only when it is read
        unseen = connects if u is old and "older than the attach" in states[name]["provides"] else 0
        for metric, each in [("bytesIn", 64)] + [(f"{d}.count", 1) for d in ("latency", "firstByte", "receive", "queue",
                                                                             "service", "answer")]:
            n = now.get(f"requests.server.{metric}", 201 * each)
            check((201 - unseen) * each <= n <= 201 * each, f"{metric}: {n} instead of {201 * each} without {name}")
        # It switches off what it is said to provide, and nothing else
        missing = sorted(set(whole) - set(now))
        check(len(missing) <= 10 or any(word in states[name]["provides"] for word in ("latency", "durations", "contention")),
              f"without {name}, which provides \"{states[name]['provides']}\", these are missing: {missing}")
        check(len(missing) < len(whole), f"nothing is left without {name}")
        if name == "requests_content":
            # Not 0: nobody looked
            equal(missing, [f"requests.server.{m}" for m in ("blocking", "protocols.grpc", "protocols.http1", "protocols.http2",
                                                          "protocols.memcached", "protocols.redis", "protocols.tls", "protocols.unix", "statusUnknown", "streams")],
                  f"missing without {name}")
    return "requests.server.count" in now


def metrics_of(unit):
    """But for those that are there by chance: how often a thread had to wait for a CPU, whether that is enough for a quantile, and
    what the kernel's files said when somebody looked at them before."""
    return {name: value for name, value in metrics(snapshot(unit)).items()
            if name.endswith("runQueueLatency.count") or not name.startswith(("contention.runQueueLatency.", "contention.pressure."))}


def another_build():
    """qosd with programs that are not the same, byte for byte, and do the same: a line of their source, which the kernel
    keeps for people, reads otherwise, and one has another name."""
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
    """Programs of another build take over nothing of the old one's: what was attached is, with its thresholds, totals begin anew,
    those of thresholds as well, and that is said. Nothing of the old one's is left in the kernel, also where the new one does not know the name. Restarted with the same
    ones, nothing is lost."""
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
        check(s.name in listed(), "what was attached is not")
        equal(count(s), 0, "count after the upgrade")
        t.say("run 10")
        expect_total(s, 30)
        equal(threshold(), ("slow", 30, 30), "requests since the upgrade, of the threshold")
        said = run("journalctl", "-u", "qosd.service", f"--since=@{int(before)}", "-o", "cat", "--no-pager", "-p", "notice").stdout
        check("anew" in said or "afresh" in said, f"the journal does not say it: {said}")
        unknown = [line for line in said.splitlines() if "unknown descriptor" in line]
        check(len(unknown) == 1 and "Removed 2 unknown descriptors" in unknown[0], f"the journal says of descriptors that are not known: {unknown}")
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


# ---- living with PID 1 and the bus ------------------------------------------------------------------------------------------

@test(own_daemon=True)
def manager_reexecuted():
    """daemon-reexec under load: nothing is lost, and units are followed as before."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    systemctl("daemon-reexec")
    systemctl("daemon-reload")
    wait_for("PID 1 is back", lambda: systemctl("is-system-running", ok=False).stdout.strip() in ("running", "degraded"))
    r = c.stop()
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, r["answered"])
    s.stop()
    wait_for("it is shown inactive", lambda: snapshot(s)["activeState"] == "inactive")
    s.start()
    wait_for("it is shown active", lambda: snapshot(s)["activeState"] == "active")
    load(s, connections=4, number=100)
    expect_total(s, r["answered"] + 100)
    late = Server(mode="thread")
    attach(late)
    late.start()
    load(late, connections=1, number=1)
    expect_total(late, 1)
    daemon_is_well()


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


@contextlib.contextmanager
def manager_stopped():
    """PID 1 does nothing. Signals do not stop it, a debugger does."""
    _libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    _libc.ptrace.restype = ctypes.c_long
    equal(_libc.ptrace(PTRACE_SEIZE, 1, None, None), 0, "ptrace(PTRACE_SEIZE) of PID 1")
    try:
        equal(_libc.ptrace(PTRACE_INTERRUPT, 1, None, None), 0, "ptrace(PTRACE_INTERRUPT) of PID 1")
        os.waitpid(1, WALL)
        yield
    finally:
        _libc.ptrace(PTRACE_DETACH, 1, None, None)


def links_of(name, pid):
    """How many times a program of qosd runs when it is called."""
    ids = {p["id"] for p in bpf_list("prog") if p.get("name") == name[:15]}
    held = descriptors_of([pid, 1])["link"]
    return sum(l["id"] in held and l.get("prog_id") in ids for l in bpf_list("link"))


@test(own_daemon=True)
def unloaded_and_loaded_while_the_manager_is_stopped():
    """The descriptor store has the programs of a probe until PID 1 has read that it should not: they run on, so that they are not
    loaded once more. When PID 1 has, they are gone."""
    s = Server(mode="thread")
    attach(s, "--probes=requests")
    pid = qosd_pid()
    u = Server(mode="thread")
    u.start()
    group = unit_property(u.name, "ControlGroup")
    equal(links_of("cpu_switch", pid), 0, "links of cpu_switch before")
    # Not a unit's name: PID 1 is not asked about a path
    qosctl("attach", group, "--probes=requests,cpu")
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch")
    with manager_stopped():
        for _ in range(3):
            qosctl("detach", group)
            qosctl("attach", group, "--probes=requests,cpu")
            equal(links_of("cpu_switch", pid), 1, "links of cpu_switch while PID 1 is stopped")
    systemctl("daemon-reload")
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch when PID 1 has processed everything")

    # … with all of it in the descriptor store
    pid = kill_qosd()
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch after a crash")
    qosctl("detach", group)
    wait_for("the programs of cpu are gone", lambda: links_of("cpu_switch", pid) == 0)
    daemon_is_well()


@test(own_daemon=True, deadline=90)
def bus_restarted():
    """The bus daemon is restarted under load: qosd lives and counts, is on the bus again, and hears of units."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    try:
        # systemctl speaks to PID 1 directly, and so it can
        run("systemctl", "restart", "dbus.service", timeout=30)
        wait_for("qosd is on the bus again",
                 lambda: run("busctl", "call", "org.qosd1", "/org/qosd1", "org.freedesktop.DBus.Peer", "Ping",
                             ok=False).returncode == 0, 20, pause=0.2)
        wait_for("PID 1 is on the bus", lambda: run("busctl", "status", "org.freedesktop.systemd1", ok=False).returncode == 0, 20)
        r = c.stop()
        equal(qosd_pid(), pid, "process of qosd")
        expect_total(s, r["answered"])
        s.stop()
        wait_for("it is shown inactive", lambda: snapshot(s)["activeState"] == "inactive", 10)
        s.start()
        load(s, connections=1, number=1)
        expect_total(s, r["answered"] + 1)
        wait_for("it is shown active", lambda: snapshot(s)["activeState"] == "active", 10)
        late = Server(mode="thread").start()
        attach(late)
        load(late, connections=4, number=100)
        expect_total(late, 100)
        run("busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "GetUnit", "s", s.name)
        daemon_is_well()
    finally:
        # Others do not stand it as well
        run("systemctl", "reset-failed", ok=False)
        run("systemctl", "restart", "systemd-logind.service", ok=False, timeout=30)
        run("systemctl", "try-restart", "polkit.service", ok=False, timeout=30)


@test(own_daemon=True)
def accounting_and_filters_of_the_manager():
    """IPAccounting=, IPAddressDeny= and daemon-reload of an attached unit: PID 1's verdict and its counters are what they
    are for a twin that was never attached, and our counts are right."""
    settings = "IPAccounting=yes\nIPAddressDeny=any\nIPAddressAllow=::1\n"
    s, twin = (Server(address="::", mode="thread", settings=settings).start() for _ in range(2))

    def bytes_in(unit):
        # systemd 257 has no data after a daemon-reload, with or without us
        value = unit_property(unit.name, "IPIngressBytes")
        return int(value) if value.isdigit() else None

    def speaks(address, answered, number=1):
        """Both are asked, and PID 1 counts the same for both."""
        before = [bytes_in(u) for u in (s, twin)]
        for u in (s, twin):
            r = load(u, expect_all=False, address=address, connections=min(number, 4), number=number, timeout_ms=300)
            equal(r["answered"], answered, f"answers to {address} of {u.name}")
        after = [bytes_in(u) for u in (s, twin)]
        equal([a is None for a in after], [after[0] is None] * 2, "whether PID 1 has data")
        if None not in before + after:
            mine, its = (a - b for a, b in zip(after, before))
            # A request of 64 bytes, and the headers of TCP (with time stamps) and IP; acknowledgements may travel with it
            least = answered * (64 + 32 + (40 if ":" in address else 20))
            check(mine >= least and abs(mine - its) <= 0.2 * its + 500,
                  f"PID 1 counts {mine} bytes in for {number} requests, and {its} for the twin")
            return True
        return False

    speaks("127.0.0.1", 0)
    check(speaks("::1", 500, 500), "PID 1 has counted nothing to compare with")
    attach(s)
    check(speaks("::1", 500, 500), "PID 1 counts nothing of an attached unit")
    speaks("127.0.0.1", 0)
    expect_total(s, 500)
    systemctl("daemon-reload")
    speaks("127.0.0.1", 0)
    speaks("::1", 500, 500)
    expect_total(s, 1000)
    for u in (s, twin):
        systemctl("set-property", "--runtime", u.name, "IPAddressAllow=127.0.0.1")
    speaks("127.0.0.1", 100, 100)
    speaks("::1", 100, 100)
    expect_total(s, 1200)
    for u in (s, twin):
        systemctl("set-property", "--runtime", u.name, "IPAddressAllow=")
    speaks("127.0.0.1", 0)
    speaks("::1", 0)
    qosctl("detach", s.name)
    speaks("127.0.0.1", 0)
    speaks("::1", 0)


@test(own_daemon=True)
def reloaded_under_load():
    """systemctl reload of qosd reads the configuration, and nothing else changes."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    os.makedirs(scenario.QOSD_CONF_DIR, exist_ok=True)
    path = os.path.join(scenario.QOSD_CONF_DIR, "98-reload.conf")
    with open(path, "w") as f:
        f.write("[QoS]\nDefaultWindow=2s\n")
    try:
        systemctl("reload", "qosd.service")
        equal(varlink("Get", unit=s.name)["window"], 2000000000, "default window")
    finally:
        os.unlink(path)
        systemctl("reload", "qosd.service")
    equal(varlink("Get", unit=s.name)["window"], 10000000000, "default window")
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, c.stop()["answered"])


@test(needs_vm="the lab installs qosd when the container has booted")
def there_after_boot():
    """Enabled, qosd is there when the machine is up, and the first request of a unit that is attached counts."""
    equal(systemctl("is-enabled", "qosd.service").stdout.strip(), "enabled", "qosd.service")
    equal(unit_property("qosd.service", "ActiveState"), "active", "qosd.service")
    equal(unit_property("qosd.service", "NRestarts"), "0", "restarts of qosd.service")
    s = Server(mode="thread")
    attach(s)
    s.start()
    load(s, connections=1, number=1)
    expect_total(s, 1)


@test(vm="nightly")
def how_the_service_is_set_up():
    """Its own user, three capabilities and no other, watchdog, sandbox."""
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
    """A daemon that hangs is ended by its manager, and the next one goes on where it was."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    pid = qosd_pid()
    os.kill(pid, 6)     # what the watchdog does in the end
    wait_qosd(pid)
    load(s, connections=4, number=100)
    expect_total(s, 200)


@contextlib.contextmanager
def statistics():
    """kernel.bpf_stats_enabled is on; gives what it was before."""
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


@test(quiet=True)
def statistics_of_programs():
    """kernel.bpf_stats_enabled on: runs and their time; off: absent, with the hint."""
    s = start_served(mode="thread")
    with statistics() as old:
        load(s, connections=4, number=1000)
        probes = programs()
        check(sum(p.get("runs", 0) for p in probes) >= 2000, f"runs {[p.get('runs') for p in probes]}")
        check(any(p.get("runTimeMean", 0) > 0 for p in probes), "no time per run")
        check(varlink("GetStatus")["statisticsEnabled"], "statisticsEnabled")
    if old.strip() == "0":
        check("bpf_stats_enabled" in qosctl("probes").stdout + qosctl("probes").stderr, "no hint how to get the time of a run")
        check(not varlink("GetStatus")["statisticsEnabled"], "statisticsEnabled")
    equal(varlink("GetStatus")["drops"], 0, "events that could not be booked")


@test(quiet=True)
def what_a_unit_costs():
    """Beside the kernel's own books, which have in them what runs for others, and what a run does before it knows the unit."""
    s = Server(mode="thread")
    attach(s, "--probes=requests,cpu")
    s.start()
    idle = start_served(mode="thread")
    wait_for("it has begun", lambda: snapshot(idle, "1s")["cost"]["share"] == 0)

    def booked():
        return sum(p.get("runTime", 0) for p in programs())

    with statistics(), Varlink() as v:
        before = booked()
        v.call("Mark", unit=s.name)
        load(s, connections=8, number=smaller(40000))
        m = v.call("Get", unit=s.name, sinceMark=True)
        kernel = booked() - before
    cost = m["cost"]["share"] * m["covered"]
    check(kernel / 5 < cost < kernel, f"{cost} ns, of {kernel} ns that the kernel has booked for all programs")
    whole = snapshot(s)
    check(whole["cost"]["share"] * whole["covered"] >= .999 * cost, f"{whole['cost']} of {whole['covered']} ns, {cost} ns of it while it was under load")
    equal(snapshot(idle, "1s")["cost"]["share"], 0, "cost of a unit that does nothing")
    wait_for("what is over is not in the window", lambda: snapshot(s, "1s")["cost"]["share"] == 0)


@test(own_daemon=True)
def memory_of_maps():
    """The budgets that are stated: at most 640 KiB for a unit with the probe "requests", 1 MiB with all of them, a bounded size
    per socket."""
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
    wait_for("its memory is given back", lambda: varlink("GetStatus")["mapMemory"] <= one["mapMemory"] + 65536)
    attach(a, "--probes=requests,cpu,block,memory")
    one = varlink("GetStatus")
    attach(b, "--probes=requests,cpu,block,memory")
    two = varlink("GetStatus")
    check(two["mapMemory"] - one["mapMemory"] <= 1024 * 1024, f"a second unit with all probes takes {two['mapMemory'] - one['mapMemory']} bytes")
    qosctl("detach", b.name)
    qosctl("detach", a.name)
