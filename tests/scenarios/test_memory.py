# SPDX-License-Identifier: LGPL-2.1-or-later
"""Page faults, reclaim, memory pressure and CPU quota of units, compared with the kernel's counters for the process and
its control group."""

import os

from scenario import MSEC, SEC, Unit, attach, check, equal, kill_qosd, lookup, programs, snapshot, test, wait_for

# Runs the steps of its arguments, such as touch-2000, which causes 2000 page faults. A step begins when its go file
# exists. When it is done, the program creates the done file and blocks on a FIFO, so that /proc/PID/stat and qosd can
# be compared at rest.
PROGRAM = r"""
import mmap, os, resource, socket, sys, threading, time

directory, steps = sys.argv[1], sys.argv[2:]


def touch(n):
    area = mmap.mmap(-1, n * 4096)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    for i in range(n):
        area[i * 4096] = 1


s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
for step in steps:
    while not os.path.exists(directory + "/go-" + step):
        time.sleep(0.01)
    what, n = step.split("-")
    if what == "touch":
        touch(int(n))
    elif what == "major":
        # Pages of a file that are not in the page cache, one by one
        with open(directory + "/file", "w+b") as f:
            f.write(b"x" * 4096 * int(n))
            f.flush()
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            area = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            area.madvise(mmap.MADV_RANDOM)
            sum(area[i * 4096] for i in range(int(n)))
    elif what == "threads":
        ts = [threading.Thread(target=touch, args=(100,)) for _ in range(int(n))]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
    elif what == "fork":
        for i in range(int(n)):
            pid = os.fork()
            if pid == 0:
                touch(100)
                os._exit(0)
            os.waitpid(pid, 0)
    with open(directory + "/new", "w") as f:
        pass
    # The rename ends the step: page faults after it belong to the next one
    os.rename(directory + "/new", directory + "/done-" + step)
    os.read(os.open(directory + "/wait-" + step, os.O_RDONLY), 1)
"""


class Toucher(Unit):
    def __init__(self, *steps, settings=""):
        self.directory = os.path.join("/var/tmp", f"qosd-memory-{os.getpid()}-{id(self):x}")
        os.makedirs(self.directory)
        with open(self.directory + "/program", "w") as f:
            f.write(PROGRAM)
        for step in steps:
            os.mkfifo(self.directory + "/wait-" + step)
        self.waiting = None
        super().__init__(f"/usr/bin/python3 {self.directory}/program {self.directory} {' '.join(steps)}",
                         settings=settings)

    def go(self, step):
        if self.waiting:
            with open(self.waiting, "w") as f:
                f.write("x")
        with open(f"{self.directory}/go-{step}", "w"):
            pass
        wait_for(f"the step {step} is done", lambda: os.path.exists(f"{self.directory}/done-{step}"), 20)
        self.waiting = f"{self.directory}/wait-{step}"
        # The process sleeps in a system call until the next step, so the counters do not change
        wait_for("it waits", lambda: self.state() == "S", 5)

    def stat(self):
        with open(f"/proc/{self.main_pid}/stat") as f:
            return f.read().rpartition(") ")[2].split()

    def state(self):
        return self.stat()[0]

    def faults(self):
        """Returns the kernel's counts of minor and major faults. They include threads that have ended and children that
        were waited for."""
        s = self.stat()
        return int(s[7]) + int(s[8]), int(s[9]) + int(s[10])


def memory(unit, window="total"):
    figures = lookup(snapshot(unit, window), "contention.memory")
    check(figures is not None, "there is no contention.memory")
    return figures


def faults(unit):
    figures = memory(unit)
    return figures["minorFaults"], figures["majorFaults"]


@test(deadline=60, quiet="alone", vm="nightly")
def page_faults():
    """Each page fault is counted once, also of threads and processes that have ended, and across a restart of qosd."""
    u = Toucher("touch-2000", "threads-5", "fork-5", "major-50", "touch-300", "touch-301")
    attach(u, "--probes=memory")
    u.start()
    u.go("touch-2000")
    # Faults before the process was in the unit's control group are not counted; from here on the differences are equal
    truth, ours = u.faults(), faults(u)
    check(ours[0] >= 2000, f"{ours[0]} faults, after 2000 pages were touched")
    check(ours[0] <= truth[0], f"{ours[0]} faults, where the process had {truth[0]}")

    for step, least in (("threads-5", 500), ("fork-5", 500), ("major-50", 0), ("touch-300", 300)):
        u.go(step)
        now, figures = u.faults(), faults(u)
        check(now[0] - truth[0] >= least, f"{step}: only {now[0] - truth[0]} faults")
        check(step != "major-50" or now[1] - truth[1] >= 45, f"{step}: only {now[1] - truth[1]} major faults")
        equal(figures[1] - ours[1], now[1] - truth[1], f"{step}: major faults")
        # A thread that exits may fault once more after the hook, when the kernel clears its thread ID in user memory
        slack = 5 if "-5" in step else 0
        check(0 <= (now[0] - truth[0]) - (figures[0] - ours[0]) <= slack,
              f"{step}: {figures[0] - ours[0]} faults instead of {now[0] - truth[0]}")
        truth, ours = now, figures

    s = snapshot(u)
    each = s["cost"]["share"] * s["covered"] / ours[0]
    check(10 < each < 100000, f"a fault costs {each} ns")

    kill_qosd()
    u.go("touch-301")
    now, figures = u.faults(), faults(u)
    equal(figures[0] - ours[0], now[0] - truth[0], "faults after the restart of qosd")


@test(deadline=60)
def attach_later():
    """Faults of a process before the attach are not counted, and all later ones are."""
    u = Toucher("touch-1000", "touch-50", "touch-400")
    u.start()
    u.go("touch-1000")
    attach(u, "--probes=memory")
    faults(u)                   # the first snapshot has seen each thread
    u.go("touch-50")
    truth, ours = u.faults(), faults(u)
    check(ours[0] <= 500, f"{ours[0]} faults, of which 1000 were before the attach")
    u.go("touch-400")
    now, figures = u.faults(), faults(u)
    equal(figures[0] - ours[0], now[0] - truth[0], "faults")


@test(deadline=60, quiet="alone")
def a_while_without():
    """Faults while the unit is attached without the memory probe are not counted, also once the probe is enabled
    again."""
    u = Toucher("touch-100", "touch-3000", "touch-200")
    attach(u, "--probes=cpu,memory")
    u.start()
    u.go("touch-100")
    before = faults(u)
    attach(u, "--probes=cpu")
    u.go("touch-3000")
    attach(u, "--probes=cpu,memory")
    truth, ours = u.faults(), faults(u)
    check(ours[0] - before[0] < 1000, f"{ours[0] - before[0]} faults, although 3000 of them were without the probe")
    u.go("touch-200")
    now, figures = u.faults(), faults(u)
    equal(figures[0] - ours[0], now[0] - truth[0], "faults")


@test(deadline=60)
def absent():
    """Metrics whose programs the kernel does not support are absent, and the program has a reason; the others are
    there."""
    u = Toucher("touch-10")
    attach(u, "--probes=memory")
    u.start()
    figures = memory(u)
    states = {p["program"]: p for p in programs()}
    timed = all(states[p]["state"] == "attached" for p in ("memory_fault_begin", "memory_fault_end"))
    equal("minorFaultTime" in figures, timed, "minorFaultTime is there")
    for p in ("memory_fault_begin", "memory_throttle", "memory_oom", "memory_reclaim_begin", "memory_limit_begin"):
        check(states[p]["state"] == "attached" or states[p].get("reason"), f"{p} has no reason")
    for key in ("minorFaults", "majorFaults"):
        check(key in figures, f"{key} is absent")
    has_memory = os.path.exists(f"/sys/fs/cgroup{u.control_group}/memory.stat")
    equal("refaults" in figures, has_memory, "refaults is there")


@test(deadline=60)
def only_its_own_probes():
    """A unit has only the metrics of its own probes, also while another unit has more probes."""
    a, b = Toucher("touch-10"), Toucher("touch-10")
    attach(a, "--probes=memory")
    attach(b, "--probes=block")
    a.start()
    b.start()
    check("minorFaults" in memory(a), "no faults")
    check("minorFaults" not in snapshot(b)["contention"].get("memory", {}), "faults without the probe")
    check("block" not in snapshot(a)["contention"], "block devices without the probe")
    check("threadTime" not in snapshot(a)["contention"], "threads without the probe")


@test(deadline=120, needs_vm="the memory controller is not there")
def limit():
    """A unit at MemoryMax= has reclaims, and an OOM kill when reclaim is not enough."""
    u = Toucher("touch-20000", settings="MemorySwapMax=0\nMemoryMax=48M\nOOMPolicy=continue\nRestart=no")
    attach(u, "--probes=memory")
    u.start()
    with open(f"{u.directory}/go-touch-20000", "w"):
        pass
    wait_for("it was killed", lambda: memory(u).get("oomKills", 0) >= 1, 60, pause=0.3)
    figures = memory(u)
    equal(figures["oomKills"], 1, "oomKills")
    check(figures["reclaims"] > 0 and figures["reclaimTime"] > 0, f"no reclaim: {figures}")
    check(figures["minorFaultTime"] > 0, f"faults without time: {figures}")


@test(deadline=120, needs_vm="the CPU controller is not there")
def quota_and_pressure():
    """A unit with a CPU quota has the throttled periods of its cpu.stat, and CPU pressure."""
    # To notify would be work within the quota, which may take longer than a start may
    u = Unit("/bin/sh -c 'while :; do :; done'", type="exec", settings="CPUQuota=10%\nMemoryAccounting=yes")
    attach(u, "--probes=cpu,memory")
    u.start()

    def stat():
        with open(f"/sys/fs/cgroup{u.control_group}/cpu.stat") as f:
            return {k: int(v) for k, v in (line.split() for line in f)}

    def figures(window="total"):
        return snapshot(u, window)["contention"]

    wait_for("it is throttled", lambda: stat()["nr_throttled"] >= 10, 30, pause=0.2)

    # The snapshot is taken between two reads of cpu.stat. Its value is at most a second old, and never ahead of the
    # file
    def compared():
        low, f = stat(), figures()
        before = f["quota"]["throttledPeriods"]
        return low["nr_throttled"] - 15 <= before <= stat()["nr_throttled"] and before > 0
    wait_for("the quota is that of the file", compared, 20, pause=0.5)

    f = figures()
    check(f["quota"]["periods"] >= f["quota"]["throttledPeriods"] > 0, f"{f['quota']}")
    check(f["quota"]["throttledTime"] > 100 * MSEC, f"{f['quota']}")
    check(f["pressure"]["cpu"]["someTime"] > 0, f"no pressure: {f['pressure']}")
    check(0 < f["pressure"]["cpu"]["some"] <= 1, f"no pressure: {f['pressure']}")
    check("some" in figures("10s")["pressure"]["cpu"], "no pressure over 10 s")
    check(f["time"]["throttled"] > 1 * SEC / 10, f"throttled for {f['time']['throttled']} ns")


@test(deadline=120, quiet="loaded", needs_vm="how much may be dirty is a matter of the whole machine")
def slowed_writers():
    """dirtyThrottles counts how often a process that writes faster than the disk was throttled, and dirtyThrottleTime
    how long."""
    path, limits = f"/var/tmp/qosd-dirty-{os.getpid()}", "/proc/sys/vm/dirty_bytes"
    u = Unit(f"/bin/sh -c 'systemd-notify --ready; while :; do dd if=/dev/zero of={path} bs=64k count=512 "
             "2>/dev/null; done'")
    attach(u, "--probes=memory")
    with open(limits) as f:
        before = f.read().strip()
    with open("/proc/sys/vm/dirty_ratio") as f:
        ratio = f.read()
    with open(limits, "w") as f:
        f.write(str(4 << 20))
    try:
        u.start()
        wait_for("the writer is slowed down", lambda: memory(u).get("dirtyThrottles", 0) >= 3, 30, pause=0.3)
        figures = memory(u)
        # balance_dirty_pages() sleeps for at least a tick, and for at most 200 ms (MAX_PAUSE)
        each = figures["dirtyThrottleTime"] / figures["dirtyThrottles"]
        check(1 * MSEC <= each <= 200 * MSEC, f"{each} ns each time")
    finally:
        if before != "0":
            with open(limits, "w") as f:
                f.write(before)
        else:
            with open("/proc/sys/vm/dirty_ratio", "w") as f:
                f.write(ratio)
        u.stop()
        os.unlink(path)
