# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the time of a unit's threads goes, compared with threads that wait for known things, and with the kernel's run
time (cpu.stat) and time in the run queue (schedstat)."""

import os
import time

import scenario
from scenario import (Unit, attach, check, equal, fail, kill_qosd, load, lookup, qosctl, run, snapshot, start_served,
                      systemctl, test, unit_name, varlink, wait_for, wait_qosd, within)

STATES = ("running", "runQueue", "throttled", "lock", "park", "disk", "socket", "poll", "pipe", "sleep", "memory",
          "child", "stopped", "other")

# Arguments of the waiter, and the states of the threads of each
KINDS = {"sleep": {"sleep": 1}, "pipe": {"pipe": 1}, "socket": {"socket": 1}, "accept": {"socket": 1},
         "poll": {"poll": 1},
         "epoll": {"poll": 1}, "select": {"poll": 1}, "eventfd": {"poll": 1}, "mutex": {"lock": 1},
         "inherit": {"lock": 1},
         "condition": {"park": 1}, "semaphore": {"park": 1}, "flock": {"lock": 1}, "child": {"child": 1, "sleep": 1},
         "vfork": {"child": 1, "sleep": 1}, "barrier": {"park": 1}, "aio": {"poll": 1}}


def waiter(*wishes, settings="", **options):
    return Unit(f"{scenario.tools}/waiter {' '.join(wishes)}", settings=settings, **options)


def expected(*wishes):
    """Returns the threads by state. The first thread waits for signals, and each mutex is held by a thread that
    sleeps."""
    states = {"sleep": 1}
    for wish in wishes:
        kind, _, n = wish.partition(":")
        for state, each in KINDS[kind].items():
            states[state] = states.get(state, 0) + each * int(n or 1)
        if kind in ("mutex", "inherit"):
            states["sleep"] += 1
    return states


def contention(unit, window="total"):
    s = snapshot(unit, window)
    c = lookup(s, "contention")
    check(c is not None, f"no contention in {s}")
    return c


def adds_up(c):
    """Checks that the times of all states add up to the time of all threads: a thread is in one state at a time."""
    equal(sum(c["time"].values()), c["threadTime"], "sum of all states")
    if c["threadTime"] > 0:
        within(sum(c["shares"].values()), 1, 1e-9, 0, "sum of all shares")


def settled(unit, want, window="200ms"):
    """Waits for a window with exactly these numbers of threads in each state, and returns its contention."""
    last = {}

    def look():
        # Absent from a snapshot if a checkpoint was written during each attempt to read the map
        c = lookup(snapshot(unit, window), "contention")
        if c is None:
            return False
        adds_up(c)
        last.update(c["threads"])
        return all(abs(c["threads"][s] - want.get(s, 0)) < 1e-6 for s in STATES) and c
    try:
        return wait_for("each thread is in its state", look, timeout=20 if scenario.in_vm else 5)
    except scenario.Failed as e:
        fail(f"{e}; threads by state: { {s: n for s, n in last.items() if n or want.get(s)} } instead of {want}")


ALL = [f"{kind}:{n}" for n, kind in enumerate(KINDS, 1)]


@test(vm="nightly")
def every_state():
    """Threads that wait in each state that can last are counted in that state, for a unit that is attached before it
    starts."""
    u = waiter(*ALL)
    attach(u, "--probes=cpu")
    u.start()
    want = expected(*ALL)
    c = settled(u, want)
    equal(sum(want.values()),
          int(run("sh", "-c", f"cat /sys/fs/cgroup{u.control_group}/cgroup.threads | wc -l").stdout), "threads")
    check(all(n == 0 for n in contention(u, "100ms")["waits"].values()), "waits in a window in which nothing happens")
    check(c["runQueueLatency"]["count"] == 0, "a thread has run")
    u.stop()
    settled(u, {})
    before = contention(u)["threadTime"]
    u.start()
    settled(u, want)
    check(contention(u)["threadTime"] > before, "the total began anew")


@test(vm="nightly")
def asleep_at_attach():
    """Threads that wait since before the attach, and do not run afterwards, are counted in their states as well."""
    u = waiter(*ALL).start()
    attach(u, "--probes=cpu")
    settled(u, expected(*ALL))
    # A second attach, after no unit was attached
    qosctl("detach", u.name)
    attach(u, "--probes=cpu")
    settled(u, expected(*ALL))
    # The probe is added to a unit that is attached without it
    qosctl("detach", u.name)
    attach(u, "--probes=requests")
    check(lookup(snapshot(u), "contention") is None, "contention without the probe")
    attach(u, "--probes=requests,cpu")
    settled(u, expected(*ALL))
    attach(u, "--probes=requests")
    check(lookup(snapshot(u), "contention") is None, "contention without the probe")


@test()
def stopped_and_frozen():
    u = waiter("sleep:3")
    attach(u, "--probes=cpu")
    u.start()
    settled(u, {"sleep": 4})
    u.freeze()
    try:
        settled(u, {"stopped": 4})
    finally:
        u.thaw()
    settled(u, {"sleep": 4})
    u.kill("SIGSTOP")
    settled(u, {"stopped": 4})
    u.kill("SIGCONT")
    settled(u, {"sleep": 4})


def kernel_accounts(unit):
    """Returns run time and time in the run queue of the unit's present threads, run time of all its threads, and the
    time that the host has stolen from this machine's CPUs, in nanoseconds."""
    ran = waited = 0
    for thread in unit.threads():
        with open(f"/proc/{thread}/schedstat") as f:
            r, w, _ = f.read().split()
        ran += int(r)
        waited += int(w)
    with open(f"/sys/fs/cgroup{unit.control_group}/cpu.stat") as f:
        usage = int(dict(line.split() for line in f)["usage_usec"]) * 1000
    with open("/proc/stat") as f:
        stolen = int(f.readline().split()[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return ran, waited, usage, stolen


def compare(unit, begin, end, first, last, lives):
    """Compares the differences of two snapshots and of two readings of the kernel's, each pair taken while the unit was
    stopped."""
    spent = {s: last["time"][s] - first["time"][s] for s in STATES}
    # qosd's time of a running thread includes the time that the host has stolen, and the kernel's does not
    stolen = end[3] - begin[3]
    if stolen > 0:
        stolen += 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def same(state, kernel, ratio, what):
        want = end[kernel] - begin[kernel]
        within(spent[state], max(want, min(spent[state], want + stolen)), ratio, 100e3, what)
    same("running", 2, 0.01, "running, compared with cpu.stat")
    if lives:
        same("running", 0, 0.01, "running, compared with schedstat")
        same("runQueue", 1, 0.02, "runQueue, compared with schedstat")


def held(unit):
    """Stops the unit, and returns its contention and the kernel's times of the same moment."""
    unit.kill("SIGSTOP")
    return contention(unit), kernel_accounts(unit)


def run_for(unit, seconds, do=lambda: None):
    first, begin = held(unit)
    unit.kill("SIGCONT")
    end_at = time.monotonic() + seconds
    do()
    wait_for("the time is over", lambda: time.monotonic() >= end_at, timeout=seconds + 1)
    last, end = held(unit)
    unit.kill("SIGCONT")
    return begin, end, first, last


@test(deadline=60)
def as_the_kernel_says():
    """Run time and time in the run queue are those of cpu.stat and schedstat, for threads that compete for CPUs, that
    sleep and wake thousands of times per second, and that wake each other."""
    for wishes in (("burn:3",), ("work:4",), ("wake:2",), ("burn:1", "work:2", "wake:1")):
        u = waiter(*wishes).start()
        attach(u, "--probes=cpu")
        compare(u, *run_for(u, 1.0), lives=True)
        u.stop()


@test(deadline=60)
def threads_that_come_and_go():
    """Of five thousand threads per second that start and exit, each is counted while it exists, and none afterwards."""
    u = waiter("births:5000")
    attach(u, "--probes=cpu")
    u.start()
    compare(u, *run_for(u, 2.0), lives=False)
    drops = lookup(snapshot(u), "drops")
    equal(drops, 0, "drops")
    # While the unit is stopped, its threads are exactly those of the control group
    u.kill("SIGSTOP")
    n = len(u.threads())
    settled(u, {"stopped": n})
    u.kill("SIGKILL")
    settled(u, {})
    # An attach while threads start and exit
    u.start()
    qosctl("detach", u.name)
    attach(u, "--probes=cpu")
    compare(u, *run_for(u, 1.0), lives=False)
    u.kill("SIGSTOP")
    n = len(u.threads())
    settled(u, {"stopped": n})


@test()
def waits_are_counted():
    """Of two threads that wake each other in turn, each wait in futex(2), each wake and each context switch is counted
    once."""
    u = waiter("wake:1")
    attach(u, "--probes=cpu")
    u.start()
    first = contention(u)
    wait_for("the threads have woken each other",
             lambda: contention(u)["waits"]["park"] > first["waits"]["park"] + 1000)
    u.kill("SIGSTOP")
    c = contention(u)
    waits = c["waits"]["park"] + c["waits"]["lock"]
    check(waits <= c["futexWakes"] + 4 <= waits + 8 + c["contextSwitches"]["involuntary"],
          f"{waits} waits, {c['futexWakes']} wakes")
    equal(c["contextSwitches"]["voluntary"], sum(c["waits"].values()), "voluntary switches")
    check(c["wakeUps"] <= c["runQueueLatency"]["count"] + 8, f"{c['wakeUps']} wake-ups, {c['runQueueLatency']}")
    h = varlink("Histogram", unit=u.name, metric="contention.runQueueLatency", window=0)
    equal((h["count"], sum(b["count"] for b in h["buckets"])), (c["runQueueLatency"]["count"],) * 2, "buckets")
    check("p50" in qosctl("histogram", u.name, "contention.runQueueLatency", "--window=total").stdout,
          "no p50 in the output of qosctl")


@test()
def moved_elsewhere():
    """Sleeping processes that are moved between units, and to one that is not attached, are counted where they are."""
    a, b = waiter("sleep:2", "pipe:3"), waiter("poll:1")
    for u in (a, b):
        attach(u, "--probes=cpu")
        u.start()
    settled(a, {"sleep": 3, "pipe": 3})
    settled(b, {"sleep": 1, "poll": 1})
    other = waiter("sleep:1").start()

    def move(pid, to):
        with open(f"/sys/fs/cgroup{to.control_group}/cgroup.procs", "w") as f:
            f.write(str(pid))
    pid = a.main_pid
    move(pid, b)
    settled(a, {})
    settled(b, {"sleep": 4, "pipe": 3, "poll": 1})
    move(pid, other)
    settled(b, {"sleep": 1, "poll": 1})
    move(pid, a)
    settled(a, {"sleep": 3, "pipe": 3})


@test()
def in_sub_groups():
    """Threads in control groups below that of the unit count, whether the groups are made before or after the
    attach."""
    # The shell keeps the FIFO open for writing, so that it does not read an end of file
    script = ('exec 3<>/run/%n.fifo; mkdir -p $G/early/deep; sh -c "echo \\$\\$ > $G/early/deep/cgroup.procs; exec '
              'sleep 1000" & '
              'systemd-notify --ready; read x <&3; mkdir $G/late; '
              'sh -c "echo \\$\\$ > $G/late/cgroup.procs; exec sleep 1000" & read x <&3')
    name = unit_name()
    os.mkfifo(f"/run/{name}.fifo")
    u = Unit("/bin/sh -c 'G=/sys/fs/cgroup/system.slice/%n; " + script.replace("$", "$$").replace("%n", name) + "'",
             name=name,
             settings="Delegate=yes\nNotifyAccess=all")
    u.start()
    attach(u, "--probes=cpu")
    c = wait_for("a process in a group below, a shell that reads from a pipe",
                 lambda: (c := contention(u, "200ms"))["threads"]["sleep"] >= 0.999 and c)
    adds_up(c)
    before = c["threads"]["sleep"]
    with open(f"/run/{name}.fifo", "w") as f:
        f.write("\n")
    wait_for("one more", lambda: contention(u, "200ms")["threads"]["sleep"] >= before + 0.999)
    os.unlink(f"/run/{name}.fifo")


@test(own_daemon=True)
def restart_of_qosd():
    """Totals go on over a restart and a crash of qosd, and include the time while it did not run."""
    # /proc/stat does not show less than a tick of stolen time, which is little beside a thread that never waits
    u = waiter("sleep:2", "work:1", "burn:1", "condition:2")
    attach(u, "--probes=cpu")
    u.start()
    for how in ("restart", "kill"):
        def again():
            if how == "restart":
                systemctl("restart", "qosd.service")
            else:
                kill_qosd()
            wait_qosd()
        begin, end, first, last = run_for(u, 0.3, again)
        compare(u, begin, end, first, last, lives=True)
        check(last["covered"] > first["covered"], "the total began anew")
        took = last["covered"] - first["covered"]
        equal(last["threadTime"] - first["threadTime"], 7 * took, "thread time while qosd was restarted")


@test()
def units_in_units():
    """A slice has the threads of the services that it contains, whichever is attached first."""
    slice = unit_name("slice", ".slice")
    u = waiter("sleep:2", settings=f"Slice={slice}").start()
    waiter("pipe:1", settings=f"Slice={slice}").start()
    attach(slice, "--probes=cpu")
    settled(slice, {"sleep": 4, "pipe": 1})
    attach(u, "--probes=cpu")
    settled(u, {"sleep": 3})
    settled(slice, {"sleep": 4, "pipe": 1})
    before = contention(slice)
    qosctl("detach", u.name)
    settled(slice, {"sleep": 4, "pipe": 1})
    # Time in the map of the service is not in that of the slice as well, now that the former is merged into the latter
    for window in ("1s", "10s"):
        c = contention(slice, window)
        check(c["threadTime"] <= 5 * c["covered"] + 1000000,
              f"more thread time than five threads have in {window}: {c['threadTime']} in {c['covered']}")
    after = contention(slice)
    equal(after["threadTime"] - before["threadTime"], 5 * (after["covered"] - before["covered"]),
          "thread time over the detach")
    qosctl("detach", slice)
    attach(u, "--probes=cpu")
    settled(u, {"sleep": 3})
    attach(slice, "--probes=cpu")
    settled(slice, {"sleep": 4, "pipe": 1})
    settled(u, {"sleep": 3})
    c = contention(slice)
    check(c["threadTime"] <= 5 * c["covered"] + 1000000, f"the slice has time from before its attach: {c}")
    # The service is attached without this probe
    qosctl("detach", u.name)
    attach(u, "--probes=requests")
    settled(slice, {"sleep": 4, "pipe": 1})
    systemctl("stop", slice)


@test()
def beside_requests():
    """Next to none of the time of a server under load is in the state other."""
    s = start_served(attach_first=False, mode="thread", delay_us=200)
    attach(s, "--probes=requests,cpu")
    load(s, connections=8, number=5000)
    c = contention(s)
    adds_up(c)
    check(c["shares"]["other"] < 0.02, f"other: {c['shares']}")
    check(c["time"]["running"] > 0 and c["time"]["poll"] > 0, f"{c['time']}")
    equal(lookup(snapshot(s), "requests.server.count"), 5000, "requests")
