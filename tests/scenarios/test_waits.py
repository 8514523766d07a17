# SPDX-License-Identifier: LGPL-2.1-or-later
"""Wait targets, wakers, and each thread's states, compared with programs that count how often each of their threads has
waited, for what, and for which thread."""

import contextlib
import json
import os
import platform
import re
import select

import scenario
from scenario import (SOURCES, Server, Unit, Varlink, as_user, attach, check, equal, kill_qosd, qosctl, run, smaller,
                      systemctl, test,
                      unit_name, unit_property, varlink, varlink_error, wait_for, wait_qosd, within)
from test_clients import NOBODY

STATES = ("running", "runQueue", "throttled", "lock", "park", "disk", "socket", "poll", "pipe", "sleep", "memory",
          "child", "stopped", "other")
TURNS = 50
DAEMON = 1


class Turns(Unit):
    """A program with known waits. When they are over, its status has the IDs of its threads."""

    def __init__(self, turns=TURNS, how="", **options):
        super().__init__(f"{scenario.tools}/turns {turns} {how}".strip(), **options)

    def who(self):
        return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", unit_property(self.name, "StatusText"))}


def resources(unit):
    return varlink("Resources", unit=unit.name)["resources"]


def threads(unit):
    return varlink("Threads", unit=unit.name)["threads"]


def one(list, **want):
    found = [r for r in list if all(r.get(k) == v for k, v in want.items())]
    check(len(found) == 1, f"{len(found)} with {want} in {list}")
    return found[0]


def varlink_of(uid):
    """A connection of this user."""
    os.seteuid(uid)
    try:
        return Varlink()
    finally:
        os.seteuid(0)


def thread_ids(unit):
    with open(f"/sys/fs/cgroup{unit.control_group}/cgroup.threads") as f:
        return {int(line) for line in f}


def adds_up(unit):
    """Checks that the rows of resources add up to the waits of the unit in each state."""
    unit.kill("SIGSTOP")
    wait_for("all threads are stopped", lambda: all(t["state"] == "stopped" for t in threads(unit)))
    c = varlink("Get", unit=unit.name, window=0)["contention"]
    rows = resources(unit)
    for state in STATES[3:]:
        equal(sum(r["waits"] for r in rows if r["state"] == state), c["waits"][state], f"waits of {state}")
    unit.kill("SIGCONT")


@test(vm="nightly")
def turns():
    """Each wait for a mutex or a pipe is counted once, with the thread that ended it as its waker."""
    u = Turns()
    attach(u, "--probes=cpu")
    u.start()
    report = u.who()
    # Resources has no name of a lock until its lookup is complete
    rows = wait_for("the lock has its name",
                    lambda: (r := resources(u)) and any(x["name"] == "turns:the_lock" for x in r) and r)

    lock = one(rows, state="lock", kind="futex", name="turns:the_lock")
    equal(lock["waits"], TURNS + 1, "waits for the lock")
    equal(lock["pid"], u.main_pid, "the lock's process")
    check(lock["time"] > 0, f"{lock}")
    equal(lock["wakers"], [{"name": "holder", "tid": report["holder"], "unit": u.name, "waits": TURNS}],
          "the holder of the lock")

    # Another pipe has the writer as its reader
    writer = {"name": "writer", "tid": report["writer"], "unit": u.name, "waits": TURNS}
    pipe = one(rows, kind="pipe", wakers=[writer])
    equal(pipe["waits"], TURNS + 1, "waits for the pipe")
    check(re.fullmatch(r"pipe:\[\d+\]", pipe["name"]), pipe["name"])

    all = threads(u)
    equal({t["tid"] for t in all}, thread_ids(u), "threads")
    for name, state, pid in (("victim", "lock", u.main_pid), ("reader", "pipe", report["reader"])):
        t = one(all, name=name)
        equal((t["tid"], t["pid"], t["state"]), (report[name], pid, state), f"thread {name}: ID, process and state")
        equal(t["waits"][state], TURNS + 1, f"waits of {name}")
        equal(t["voluntary"], sum(t["waits"].values()), "voluntary switches")
    equal(one(all, name="holder")["state"], "sleep", "state of the holder")
    # Switches are those of the kernel
    for t in (one(all, name="victim"), one(all, name="reader")):
        with open(f"/proc/{t['tid']}/status") as f:
            status = dict(line.split(":", 1) for line in f)
        equal(t["voluntary"], int(status["voluntary_ctxt_switches"]), f"voluntary switches of {t['name']}")
        equal(t["involuntary"], int(status["nonvoluntary_ctxt_switches"]), f"involuntary switches of {t['name']}")

    # The time includes waits under way, and increases without new waits
    again = one(resources(u), state="lock", kind="futex", name="turns:the_lock")
    check(again["time"] > lock["time"] and again["waits"] == lock["waits"], f"{again} after {lock}")

    out = qosctl("resources", u.name).stdout
    check(re.search(rf"^lock +futex +turns:the_lock +{TURNS + 1} .* holder {report['holder']}$", out, re.M), out)
    out = qosctl("resources", u.name, "--for=10ms").stdout
    check(re.search(r"^lock +futex +turns:the_lock +0 ", out, re.M), out)
    rows = json.loads(qosctl("resources", u.name, "--json=short").stdout)["resources"]
    equal(one(rows, name="turns:the_lock")["waits"], again["waits"], "waits as JSON")
    rows = json.loads(qosctl("resources", u.name, "--json=short", "--for=10ms").stdout)["resources"]
    equal(one(rows, name="turns:the_lock")["waits"], 0, "waits of 10 ms as JSON")
    out = qosctl("threads", u.name, "--for=10ms").stdout
    check(re.search(rf"^ *{report['victim']} .*victim +lock .* 100.0%", out, re.M), out)
    equal(json.loads(qosctl("threads", u.name, "--json=short").stdout).keys(), {"timestamp", "threads"},
          "threads as JSON")
    adds_up(u)


@test(vm="nightly", quiet="loaded", deadline=60)
def woken_on_the_way_off_the_cpu():
    """A thread that releases a lock while another one is about to sleep for it is counted as its waker, too."""
    turns = 2 * smaller(1000)
    u = Turns(turns, "fast")
    attach(u, "--probes=cpu")
    u.start()
    report = u.who()
    rows = wait_for("the lock has its name",
                    lambda: (r := resources(u)) and any(x["name"] == "turns:the_lock" for x in r) and r)
    lock = one(rows, state="lock", kind="futex", name="turns:the_lock")
    check(report["slept"] > turns // 100, f"only {report['slept']} of {turns} turns were waits")
    equal(lock["waits"], report["slept"] + 1, "waits for the lock")
    # On a busy machine one wakeup in thousands may be missing
    equal([w["tid"] for w in lock["wakers"]], [report["holder"]], "the holder of the lock")
    check(0.995 * report["slept"] <= lock["wakers"][0]["waits"] <= report["slept"],
          f"{lock['wakers']} of {report['slept']}")


@test(deadline=60)
def names_for_each_user():
    """While a user that has read the names of locks gets none for a moment, others get theirs."""
    users = {}
    for uid in NOBODY, DAEMON:
        u = Turns(settings=f"User={uid}\nGroup={uid}\nDelegate=yes\n")
        attach(u, "--probes=cpu")
        u.start()
        v = varlink_of(uid)
        users[uid] = v, u.control_group

    def has_name(uid):
        v, path = users[uid]
        return any(r["name"] == "turns:the_lock" for r in v.call("Resources", unit=path)["resources"])

    for uid in users:
        wait_for("the lock has its name", lambda: has_name(uid))

    def both_at_once():
        # The pause behind the last lookup of the second one may not be over yet, where that one took long
        wait_for("the lock has its name", lambda: has_name(NOBODY), pause=0)
        return has_name(DAEMON)

    for _ in range(20):
        wait_for("a name for one user, and at once for another one", both_at_once, pause=0)


LOCKS = """import ctypes, threading
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_long,)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
page, n = 4096, 60000
region = libc.mmap(None, n * page, 3, 0x22, -1, 0)
for i in range(1, n, 2):
    libc.mprotect(region + i * page, page, 1)
for i in range(16):
    threading.Thread(target=libc.syscall, args=(202, ctypes.c_void_p(region + 2 * i * page), 128, 0, None)).start()
"""


@test(deadline=60)
def calls_of_root_beside_lookups():
    """While the names of locks are looked up, which takes long in a process with tens of thousands of mappings, others
    are served."""
    path = f"/run/{unit_name('locks', '.py')}"
    with open(path, "w") as f:
        f.write(LOCKS)
    u = Unit(f"/usr/bin/python3 {path}", type="exec", settings=f"User={NOBODY}\n")
    attach(u, "--probes=cpu")
    u.start()
    wait_for("all threads wait", lambda: sum(r["waits"] for r in resources(u) if r["kind"] == "futex") >= 16)
    pid = scenario.qosd_pid()

    def looking():
        """The child processes that have not ended."""
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            all = f.read().split()
        states = {}
        for child in all:
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{child}/stat") as f:
                states[child] = f.read().rpartition(")")[2].split()[0]
        return [child for child, state in states.items() if state not in "ZX"]

    with Varlink() as v, Varlink() as root:
        def is_served():
            v.send("Resources", {"unit": u.name})
            while not (before := looking()) and not select.select([v.socket], [], [], 0)[0]:
                pass
            root.call("Get", unit=u.name)
            meanwhile = before and looking() == before
            v.reply()
            return meanwhile

        wait_for("a reply to root before the lookup has ended", is_served, pause=0)
    scenario.daemon_is_well()


@test(vm="nightly")
def since_before():
    """The targets of waits that began before the attach are found. Their wakers are unknown until they end."""
    u = Turns().start()
    who = u.who()
    attach(u, "--probes=cpu")
    # The lookup of names is limited to a fifth of a second each time
    rows = wait_for("all are found", lambda: len(threads(u)) == len(thread_ids(u)) and (rows := resources(u)) and
                    any(r.get("name") == "turns:the_lock" for r in rows) and rows)
    lock = one(rows, state="lock", kind="futex")
    equal((lock["name"], lock["waits"], lock.get("wakers")), ("turns:the_lock", 1, None), "the lock")
    equal((one(rows, kind="pipe")["waits"], one(rows, kind="pipe").get("wakers")), (1, None), "the pipe")
    equal({t["name"]: t["state"] for t in threads(u) if t["tid"] in (who["victim"], who["reader"])},
          {"victim": "lock", "reader": "pipe"},
          "states")


@test(deadline=60, quiet="loaded")
def woken_early():
    """The waker is counted also if it wakes a thread after the kernel has switched it out and before qosd has seen the
    switch."""
    if os.cpu_count() < 2:
        return
    pin = f"/sys/fs/bpf/{unit_name('held', '')}"
    program = f"/run/{unit_name('held', '.o')}"
    # Attached before the programs of qosd, so that it runs first
    scenario.fresh_qosd()
    run("clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-isystem", f"/usr/include/{platform.machine()}-linux-gnu",
        f"-D__TARGET_ARCH_{'x86' if platform.machine() == 'x86_64' else 'arm64'}", "-c", f"{SOURCES}/held_switch.bpf.c",
        "-o", program)
    run("bpftool", "prog", "loadall", program, pin, "autoattach")
    try:
        # Real-time priority, so that the thread that polls whether the other one sleeps is not preempted
        u = Turns(how="apart", settings="CPUSchedulingPolicy=fifo\nCPUSchedulingPriority=1")
        attach(u, "--probes=cpu")
        u.start()
        who = u.who()
        early = json.loads(run("bpftool", "--json", "map", "dump", "name", "woken_early").stdout)
        check(early[0]["formatted"]["value"] > 0, f"no thread was woken before its switch was seen: {early}")
        rows = wait_for("the lock has its name",
                        lambda: (r := resources(u)) and any(x["name"] == "turns:the_lock" for x in r) and r)
        lock = one(rows, state="lock", kind="futex", name="turns:the_lock")
        equal(lock["wakers"], [{"name": "holder", "tid": who["holder"], "unit": u.name, "waits": TURNS}],
              f"wakers of the lock: {lock}, {early}")
        writers = [{"name": "writer", "tid": who["writer"], "unit": u.name, "waits": TURNS}]
        check(any(r.get("wakers") == writers for r in rows if r["kind"] == "pipe"),
              f"wakers of the pipe: {rows}, {early}")
        u.stop()
    finally:
        for name in os.listdir(pin):
            os.unlink(f"{pin}/{name}")
        os.rmdir(pin)


BUSY = "while :; do :; done"


def used(unit):
    """Returns the CPU time of the control group in ns, from cpu.stat."""
    with open(f"/sys/fs/cgroup{unit.control_group}/cpu.stat") as f:
        return int(dict(line.split() for line in f)["usage_usec"]) * 1000


def turns_of(unit):
    return [r for r in resources(unit) if r["state"] == "runQueue"]


@test(vm="nightly", quiet="loaded", deadline=60)
def occupants_of_the_cpu():
    """The time in runQueue is by the unit that had the CPU meanwhile, which may be the unit itself. The rows add up to
    the total of the unit."""
    def busy(label, settings="CPUAffinity=0"):
        return Unit(f"/bin/sh -c '{BUSY}'", name=unit_name(label), type="exec", settings=settings).start()

    u = busy("unit")
    # The one without Nice= has more of the CPU
    hogs = [busy("hog"), busy("hog", "CPUAffinity=0\nNice=4")]
    # A unit on another CPU, for which no thread waits
    beside = busy("beside", "CPUAffinity=1") if os.cpu_count() > 1 else None
    attach(u, "--probes=cpu")

    before = [used(h) for h in hogs]
    # Seldom, as each read of the figures takes CPU time, too
    wait_for("it has waited", lambda: sum(r["time"] for r in turns_of(u)) > 10**9, timeout=20, pause=0.5)
    ran = [used(h) - b for h, b in zip(hogs, before)]
    u.kill("SIGSTOP")
    wait_for("it is stopped", lambda: [t["state"] for t in threads(u)] == ["stopped"])
    rows, found = turns_of(u), []
    total = sum(r["time"] for r in rows)
    for hog in hogs:
        row = one(rows, kind="cpu", name=hog.name)
        equal(row["unit"], hog.name, "the owner")
        found.append(row["time"])
    # The ratio is compared and not the times, which increase between the reads
    within(found[0] / sum(found), ran[0] / sum(ran), 0.1, 0, f"shares of the CPU: {rows}, {ran}")
    check(sum(found) > 0.8 * sum(ran), f"units that had the CPU, for {ran}: {rows}")
    equal([r for r in rows if r["name"].endswith("/")], [], "control groups without a name")
    if beside:
        check(not any(r["name"] == beside.name and r["time"] > 10**7 for r in rows),
              f"the unit on the other CPU has a row: {rows}")
    c = varlink("Get", unit=u.name, window=0)["contention"]
    equal(sum(r["waits"] for r in rows), c["runQueueLatency"]["count"], "waits in all")
    within(total, c["time"]["runQueue"], 0.001, 10**6, "time in all")
    out = qosctl("resources", u.name).stdout
    check(re.search(rf"^CPU run queue +cpu +{re.escape(hogs[0].name)} ", out, re.M), out)
    for hog in hogs:
        hog.stop()

    # Two processes of one unit
    own = Unit(f"/bin/sh -c '({BUSY}) & {BUSY}'", name=unit_name("own"), type="exec", settings="CPUAffinity=0").start()
    attach(own, "--probes=cpu")
    before = used(own)
    wait_for("they have waited for each other",
             lambda: sum(r["time"] for r in turns_of(own) if r.get("unit") == own.name) > 10**9, timeout=20, pause=0.5)
    # One of them waits while the other one runs
    ran, rows = used(own) - before, turns_of(own)
    check(one(rows, kind="cpu", name=own.name)["time"] > 0.8 * ran,
          f"waits of the unit for its own processes, which ran for {ran}: {rows}")


@test(quiet="loaded")
def occupants_of_the_cpu_that_have_ended():
    """A unit that had the CPU has one row with its name, also if it ended before the first read of resources, or has
    several control groups."""
    # It sleeps now and then, so that each of the others is the one before it at some time: qosd learns the name then,
    # and of those that are always earlier only the ID
    work = "while :; do i=0; while [ $$i -lt 20000 ]; do i=$$((i+1)); done; sleep 0.003; done"
    u = Unit(f"/bin/sh -c '{work}'", type="exec", settings="CPUAffinity=0").start()
    attach(u, "--probes=cpu")
    groups = ("for g in a b; do mkdir $$d/$$g; /bin/sh -c \"echo 0 >$$d/$$g/cgroup.procs; " + BUSY + "\" & done; wait")
    gone = Unit(f"/bin/sh -c '{BUSY}'", name=unit_name("gone"), type="exec", settings="CPUAffinity=0").start()
    two = Unit(f"/bin/sh -c 'd=/sys/fs/cgroup/system.slice/$$1; {groups}' sh %n", name=unit_name("two"), type="exec",
               settings="CPUAffinity=0\nDelegate=yes").start()

    def had(other):
        return int(scenario.unit_property(other.name, "CPUUsageNSec"))
    # Others may have had this CPU as well. Resources must not be read before the units have ended
    wait_for("it has waited for both", lambda: had(gone) > 10**9 and had(two) > 10**9, timeout=20)
    gone.stop()
    two.stop()
    rows = turns_of(u)
    for other in gone, two:
        row = one(rows, kind="cpu", name=other.name)
        equal((row["unit"], row.get("controlGroup")), (other.name, None), f"unit and control group: {rows}")
        check(row["time"] > 5 * 10**8, f"how long it had the CPU: {rows}")
    # Only the ID may be known of a control group that had the CPU briefly
    unknown = sum(r["time"] for r in rows if r["name"].startswith("another control group"))
    check(unknown < 0.05 * sum(r["time"] for r in rows), f"without a name: {rows}")


@test(vm="nightly", quiet="loaded", deadline=60)
def control_group_named_like_another_unit():
    """A control group that a user has created in its own unit, with the name of another unit, is shown as part of the
    user's unit."""
    u = Unit(f"/bin/sh -c '{BUSY}'", name=unit_name("unit"), type="exec", settings="CPUAffinity=0").start()
    framed = Unit("/bin/sleep infinity", name=unit_name("framed"), type="exec").start()
    own = f"/sys/fs/cgroup$$(sed -n s/^0:://p /proc/self/cgroup)/{framed.name}"
    hog = Unit(f"/bin/sh -c 'mkdir {own}; echo $$$$ >{own}/cgroup.procs; {BUSY}'", name=unit_name("hog"), type="exec",
               settings="CPUAffinity=0\nUser=nobody\nDelegate=yes").start()
    attach(u, "--probes=cpu")
    name = f"{hog.name}/{framed.name}"
    wait_for("it has waited", lambda: sum(r["time"] for r in turns_of(u) if r["name"] == name) > 10**9, timeout=20,
             pause=0.5)
    check(not any(framed.name in (r["name"], r.get("unit")) for r in turns_of(u)),
          f"units that had the CPU: {turns_of(u)}")
    out = qosctl("diagnose", u.name, "--for=2s", ok=False).stdout
    check(not re.search(rf"(?<!/){re.escape(framed.name)}", out), f"the other unit is named: {out}")
    for unit in hog, framed, u:
        unit.stop()


@test()
def somebody_elses():
    """A waker in another unit, which is not attached, is shown with its unit. A FIFO has the name of its file."""
    fifo = f"/run/{unit_name('fifo', '')}"
    os.mkfifo(fifo)
    reader = Unit(f"/bin/sh -c 'exec cat <>{fifo}'", type="exec")
    writer = Unit(f"/bin/sh -c 'exec 3<>{fifo}; while :; do echo >&3; sleep 0.01; done'", type="exec")
    attach(reader, "--probes=cpu")
    reader.start()
    writer.start()

    def woken():
        rows = [r for r in resources(reader) if r["kind"] == "pipe" and r.get("wakers")]
        return rows and rows[0]["wakers"][0]["waits"] > 5 and rows[0]
    row = wait_for("it was woken", woken, timeout=10)
    equal(row["name"], os.path.basename(fifo), "the FIFO")
    w = row["wakers"][0]
    equal((w["name"], w["tid"], w["unit"]), ("sh", writer.main_pid, writer.name), "the writer")
    writer.stop()
    reader.stop()
    os.unlink(fifo)


@test()
def slow_server():
    """The wait of a client for a server is shown by the server's address, or by its unit while that is attached."""
    s = Server(mode="thread", delay_us=20000).start()
    u = Unit(f"{scenario.tools}/client --port {s.port} --connections 1 --number 1000000", type="exec")
    attach(u, "--probes=cpu")
    u.start()

    def waits():
        rows = [r for r in resources(u) if r["kind"] == "socket" and r["address"] == f"127.0.0.1:{s.port}"]
        return rows and rows[0]["waits"] >= 20 and rows[0]
    row = wait_for("it has waited", waits, timeout=15)
    equal((row["state"], row["name"], row.get("unit")), ("socket", f"127.0.0.1:{s.port}", None), "the server")
    # Each wait took at least as long as the server, except for the one under way
    check(row["time"] >= (row["waits"] - 2) * 15e6, f"{row}")
    attach(s, "--probes=requests,cpu")
    row = wait_for("it has a name", lambda: (r := waits()) and r.get("unit") and r)
    equal((row["name"], row["unit"]), (s.name, s.name), "the server")
    # The server waits for the next request of its clients, at its port
    row = wait_for("the server waits", lambda: [r for r in resources(s) if r["kind"] == "socket"])[0]
    equal((row["name"], row["address"]), (f"clients of *:{s.port}", f"*:{s.port}"), "the server's side")
    u.stop()


@test()
def each_kind():
    """Each kind of wait has its state, its kind and its name."""
    u = Unit(f"{scenario.tools}/waiter mutex:3 pipe:2 accept:1 epoll:2 eventfd:1 poll:1 poll-one:2 queue:1 flock:2 "
             "condition:2 sleep:2")
    attach(u, "--probes=cpu")
    u.start()
    want = {"lock": 5, "pipe": 3, "socket": 1, "poll": 6, "park": 2}

    def all_wait():
        states = [t["state"] for t in threads(u)]
        return all(states.count(s) == n for s, n in want.items())
    wait_for("each thread is in its state", all_wait)
    # The lookup of names is limited to a fifth of a second each time
    rows = wait_for("names are known", lambda: (r := resources(u)) and "name" in one(r, kind="futex", state="lock") and
                    one(r, kind="futex", state="lock")["name"] == "waiter:mutex" and r)

    def sums(**want):
        found = [r for r in rows if all(r.get(k) == v for k, v in want.items())]
        return sum(r["waits"] for r in found), len(found)
    equal(one(rows, kind="futex", state="lock")["waits"], 3, "waits for the mutex")
    equal(sums(kind="file", state="lock"), (2, 1), "waits for the file lock, in one row")
    equal(sums(kind="epoll"), (2, 2), "instances of epoll")
    equal(sums(kind="pipe", state="poll"), (2, 2), "pipes as the only descriptor of poll(2)")
    equal(sums(kind="rest", state="poll"), (1, 1), "poll(2) for none")
    equal(sums(kind="file", state="pipe"), (1, 1), "the message queue")
    check(one(rows, kind="file", state="poll")["name"].startswith("[eventfd]"), f"{rows}")
    check(re.fullmatch(r"clients of \*:\d+", one(rows, kind="socket")["name"]), f"{rows}")
    adds_up(u)


@test()
def files_that_are_no_disk():
    """Readers of kmsg and trace_pipe wait for events (poll), not for a disk, although these are regular files."""
    u = Unit("/usr/bin/unshare --mount /bin/sh -c 'mount -t proc proc /mnt && exec cat /mnt/kmsg >/dev/null'",
             type="exec")
    t = Unit("/usr/bin/unshare --mount /bin/sh -c 'mount -t tracefs tracefs /mnt && exec cat /mnt/trace_pipe "
             ">/dev/null'", type="exec")
    for unit in u, t:
        attach(unit, "--probes=cpu")
        unit.start()
        wait_for("it waits for events", lambda: [(t["name"], t["state"]) for t in threads(unit)] == [("cat", "poll")])
        check(not any(r["state"] == "disk"
                      and r.get("name", "").endswith(("kmsg", "trace_pipe")) for r in resources(unit)),
              f"a disk: {resources(unit)}")


@test(deadline=60)
def thousands():
    """Of more than 1000 threads those that run are shown, and the sums include the others."""
    u = Unit(f"{scenario.tools}/waiter condition:1500 work:2", settings="TasksMax=infinity")
    attach(u, "--probes=cpu")
    u.start()
    r = varlink("Threads", unit=u.name)
    equal(len(r["threads"]), 1000, "threads that are shown")
    equal(r["rest"]["threads"] + 1000, len(thread_ids(u)), "threads")
    check(sum(t["times"]["running"] > 0 and t["waits"]["sleep"] > 10 for t in r["threads"]) >= 2 or
          wait_for("they work", lambda: sum(t["waits"]["sleep"] > 10 for t in threads(u)) >= 2),
          "those that work are not shown")
    u.kill("SIGSTOP")
    wait_for("all are stopped", lambda: varlink("Get", unit=u.name, window=0)["contention"]["waits"]["stopped"] >= 1503)
    r = varlink("Threads", unit=u.name)
    c = varlink("Get", unit=u.name, window=0)["contention"]
    for state in STATES[3:]:
        equal(sum(t["waits"][state] for t in r["threads"] + [r["rest"]]), c["waits"][state], f"waits of {state}")
    # Times of short runs may differ by the difference of the clocks
    within(sum(t["times"]["running"] for t in r["threads"] + [r["rest"]]), c["time"]["running"], 0.01, 10e6, "time")


TWO_READINGS = """import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("/run/qosd/org.qosd.QoS")
s.sendall(2 * (json.dumps({"method": "org.qosd.QoS.Threads", "parameters": {"unit": sys.argv[1]}}).encode() + b"\\0"))
data = b""
while data.count(b"\\0") < 2:
    data += s.recv(1 << 20)
for reply in data.split(b"\\0")[:2]:
    print(json.loads(reply)["parameters"]["timestamp"])
"""


@test(deadline=60)
def one_reading_for_all():
    """The threads of a large unit are read at most once a second for users other than root, and for each request of
    root."""
    u = Unit(f"{scenario.tools}/waiter condition:1500", settings="TasksMax=infinity\nUser=nobody\nDelegate=yes").start()
    group = u.control_group
    run(*as_user(65534), "qosctl", "attach", "--probes=cpu", group)
    first, second = (int(n) for n in run(*as_user(65534), "python3", "-c", TWO_READINGS, group).stdout.split())
    equal(second, first, "timestamp of the second result")
    check(varlink("Threads", unit=group)["timestamp"] > first, "root has got an old result")
    run(*as_user(65534), "qosctl", "detach", group)


@test(deadline=90)
def detached_while_it_is_read():
    """Requests for the threads or resources of a large unit, in progress during a detach and another attach, get those
    of one attach, or an error."""
    u = Unit(f"{scenario.tools}/waiter condition:1500", settings="TasksMax=infinity").start()
    n = len(thread_ids(u))
    clients = {method: [scenario.Varlink() for _ in range(4)] for method in ("Threads", "Resources")}
    for _ in range(5):
        attach(u, "--probes=cpu")
        for method, connections in clients.items():
            for c in connections:
                c.send(method, {"unit": u.name})
        qosctl("detach", u.name)
        attach(u, "--probes=cpu")
        for method, connections in clients.items():
            for c in connections:
                reply = c.receive()
                if "error" in reply:
                    equal(reply["error"], scenario.VARLINK + "NotAttached", f"error of {method}")
                elif method == "Threads":
                    equal(len(reply["parameters"]["threads"]) + reply["parameters"]["rest"]["threads"], n, "threads")
        qosctl("detach", u.name)
    scenario.daemon_is_well()
    attach(u, "--probes=cpu")
    equal(varlink("Threads", unit=u.name)["rest"]["threads"] + 1000, n, "threads")


def kernel_has(name):
    with open("/proc/kallsyms") as f:
        return any(line.split()[2] == name for line in f)


# Four processes that contend for one lock
FOUR = """import os
for i in range(4):
    if os.fork() == 0:
        {}
os.wait()
"""
WRITE = "fd, b = os.open('{}/file', os.O_RDWR | os.O_CREAT), bytes(4 << 20)\n        while True: os.pwrite(fd, b, 0)"
MAKE = "d = f'{}/{{i}}'\n        os.mkdir(d)\n        while True: os.mkdir(f'{{d}}/x'); os.rmdir(f'{{d}}/x')"


@test(vm="nightly", deadline=90)
def kernel_locks():
    """A lock of a file in the kernel is shown by the function that takes it, and cgroup_mutex by its name, if kallsyms
    has variables. Other processes may be wakers of cgroup_mutex, which is global."""
    name = unit_name("locks", "")
    groups = r"(cgroup_mutex)" if kernel_has("cgroup_mutex") else r"lock in (cgroup_\w+)\(\)"
    for code, place, lock in ((WRITE, f"/run/{name}", r"lock in (\w*write_iter)\(\)"),
                              (MAKE, f"/sys/fs/cgroup/{name}", groups)):
        os.mkdir(place)
        script = f"/run/{name}.py"
        with open(script, "w") as f:
            f.write(FOUR.format(code.format(place)))
        u = Unit(f"/usr/bin/python3 {script}", type="exec")
        attach(u, "--probes=cpu")
        u.start()

        def waited():
            found = [r for r in resources(u) if r["kind"] == "kernel" and re.fullmatch(lock, r["name"])]
            # Kernel workers that remove control groups of units that have ended hold the lock, too
            return found and found[0]["waits"] >= 20 and any(w.get("unit") == u.name
                                                             for w in found[0].get("wakers", [])) and found[0]
        try:
            row = wait_for("they have waited", waited, 30)
            equal(row["state"], "disk", f"state of the waits: {row}")
            check(kernel_has(re.fullmatch(lock, row["name"]).group(1)), f"the kernel does not have the symbol: {row}")
            tids = thread_ids(u)
            mine = [w for w in row["wakers"] if w.get("tid") in tids and w.get("unit") == u.name]
            check(mine and (code == MAKE or mine == row["wakers"]), f"wakers: {row}, {tids}")
            check(re.search(rf"^disk +kernel +{re.escape(row['name'])} ", qosctl("resources", u.name).stdout, re.M),
                  "for people")
            adds_up(u)
        finally:
            u.stop()
            run("sh", "-c", f"rmdir {place}/*/x {place}/*; rm -f {place}/file {script}; rmdir {place}", ok=False)


@test()
def threads_and_resources_by_user():
    """Threads and Resources are for root, and for users that polkit authorizes."""
    u = Turns()
    attach(u, "--probes=requests")
    u.start()
    for method in ("Threads", "Resources"):
        equal(varlink_error(method, unit=u.name), "NotMeasured", method)
        equal(varlink_error(method, unit="nothing.service"), "NoSuchUnit", method)
        equal(varlink_error(method, unit="dbus.service"), "NotAttached", method)
    attach(u, "--probes=requests,cpu")
    for method in ("Threads", "Resources"):
        r = run(*as_user(65534), "varlinkctl", "call", "/run/qosd/org.qosd.QoS", f"org.qosd.QoS.{method}",
                f'{{"unit":"{u.name}"}}', ok=False)
        check(r.returncode != 0 and "the_lock" not in r.stdout and "victim" not in r.stdout,
              f"{method} for everybody: {r.stdout}")
        check("ermission" in r.stderr or "nteractive" in r.stderr, r.stderr)
    r = run(*as_user(65534), "qosctl", "threads", u.name, ok=False)
    equal((r.returncode, r.stdout), (1, ""), "threads for everybody")
    r = run(*as_user(65534), "qosctl", "resources", u.name)
    check("the_lock" not in r.stdout and "   Waits: " in r.stdout, r.stdout)
    r = run(*as_user(65534), "qosctl", "resources", u.name, "--for=10min", ok=False)
    equal((r.returncode, r.stdout), (1, ""), "waits for everybody")


@test(own_daemon=True)
def restart_of_qosd():
    """Waits, wakers and threads are the same after a restart and after a crash of qosd, and waits under way
    continue."""
    u = Turns()
    attach(u, "--probes=cpu")
    u.start()
    who = u.who()
    for again in (lambda: systemctl("restart", "qosd.service"), kill_qosd):
        before = one(resources(u), name="turns:the_lock")
        again()
        wait_qosd()
        after = one(resources(u), name="turns:the_lock")
        equal((after["waits"], after["wakers"]), (before["waits"], before["wakers"]), "the lock")
        check(after["time"] > before["time"], "the time of the wait under way did not increase")
        equal(one(threads(u), name="victim")["waits"]["lock"], TURNS + 1, "waits of the victim")
        equal(one(threads(u), name="victim")["tid"], who["victim"], "the victim")
