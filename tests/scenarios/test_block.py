# SPDX-License-Identifier: LGPL-2.1-or-later
"""Block I/O of units, compared with the kernel's counters of the process that does it (/proc/PID/io)."""

import json
import os
import socket

import scenario
from scenario import (Unit, as_user, attach, check, equal, kill_qosd, lookup, qosctl, run, snapshot, test, varlink,
                      wait_for)

BLOCK = 65536

# Writes and reads past the page cache, in steps. A step comes from a socket, and the response has the kernel's counters
# of the process: files that are looked up or made would have the process read metadata that the kernel has dropped. All
# blocks of the file of data are allocated before the first step. The development kernel runs no BPF program in an
# interrupt above a process of its supervisor, and does not count that. So that requests end above no such process,
# others keep all CPUs busy meanwhile, with a priority behind that of the program.
PROGRAM = r"""
import ctypes, mmap, os, socket, struct, sys

libc = ctypes.CDLL(None)
# Faults in pages of the program are reads, too
assert libc.mlockall(3) == 0                    # MCL_CURRENT | MCL_FUTURE

fd = os.open(sys.argv[1] + "/data", os.O_RDWR | os.O_DIRECT | os.O_NOATIME)
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect("\0" + sys.argv[1])
page = mmap.mmap(-1, {block})
page.write(b"x" * {block})


def notify(text):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])


def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *arguments)


# Writes n pages one behind the other in one call
def submit(n):
    context, size = ctypes.c_ulong(), 4096
    buffer = ctypes.addressof(ctypes.c_char.from_buffer(page))
    blocks = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, buffer, size, i * size, 0, 0, 0))
              for i in range(n)]
    events = ctypes.create_string_buffer(32 * n)
    assert call(206, n, ctypes.byref(context)) == 0                                                 # io_setup(2)
    assert call(209, context, ctypes.c_long(n), (ctypes.c_void_p * n)(*map(ctypes.addressof, blocks))) == n
    assert call(208, context, ctypes.c_long(n), ctypes.c_long(n), events, None) == n                # io_getevents(2)
    assert all(struct.unpack_from("<q", events, 32 * i + 16)[0] == size for i in range(n))


def occupy(cpu):
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, [cpu])
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            pass
    return pid


notify("READY=1")
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
while step := control.recv(100).decode():
    what, n = step.split("-")
    busy = [occupy(cpu) for cpu in os.sched_getaffinity(0)] if what != "sync" else []
    if what == "submit":
        submit(int(n))
    for i in range(int(n)):
        if what == "write":
            os.pwrite(fd, page, i * {block})
        elif what == "read":
            os.preadv(fd, [page], i * {block})
        elif what == "sync":
            os.fdatasync(fd)
    for pid in busy:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    with open("/proc/self/io", "rb") as f:
        control.send(f.read())
"""


class Disk(Unit):
    """A unit that writes and reads on the file system of /var, in steps."""

    def __init__(self):
        self.directory = os.path.join("/var/tmp", f"qosd-block-{os.getpid()}-{id(self):x}")
        os.makedirs(self.directory)
        with open(self.directory + "/data", "wb") as f:
            f.write(b"y" * BLOCK * 200)
            f.flush()
            os.fsync(f.fileno())
        with open(self.directory + "/program", "w") as f:
            f.write(PROGRAM.replace("{block}", str(BLOCK)))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(20)
        self.listener.bind("\0" + self.directory)
        self.listener.listen()
        super().__init__(f"/usr/bin/python3 {self.directory}/program {self.directory}")

    def start(self):
        super().start()
        self.control = self.listener.accept()[0]
        self.control.settimeout(20)
        return self

    def go(self, step):
        """Does the step, and returns the kernel's counters of the process so far: {"read_bytes": …}."""
        self.control.send(step.encode())
        lines = self.control.recv(4096).decode().splitlines()
        return {key: int(value) for key, value in (line.split(": ") for line in lines)}


def block(unit, window="total"):
    figures = lookup(snapshot(unit, window), "contention.block")
    check(figures is not None, "there is no contention.block")
    return figures


def counted(unit, before, **more):
    """Returns the figures once they have this many more requests than before: the kernel wakes up the process first,
    and then is done with the request, maybe on another CPU."""
    def figures():
        f = block(unit)
        return f if all(f[key] - before[key] >= n for key, n in more.items()) else None
    return wait_for(f"{more} are counted", figures)


@test(deadline=60, quiet="alone", vm="nightly")
def direct():
    """Each request past the page cache is counted once, with its bytes, times and device, and only for the unit that
    made it."""
    u = Disk()
    other = Disk()
    attach(u, "--probes=block")
    u.start()
    other.start()

    before = block(u)
    writes = u.go("write-100")
    other.go("write-40")
    reads = u.go("read-70")
    figures = counted(u, before, writes=100, reads=70)

    equal(figures["writes"] - before["writes"], 100, "writes")
    equal(figures["writeBytes"] - before["writeBytes"], 100 * BLOCK, "writeBytes")
    equal(figures["reads"] - before["reads"], 70, "reads")
    equal(figures["readBytes"] - before["readBytes"], reads["read_bytes"] - writes["read_bytes"], "readBytes")
    for d, n in (("readQueue", 70), ("readDevice", 70), ("writeQueue", 100), ("writeDevice", 100)):
        equal(figures[d]["count"] - before.get(d, {}).get("count", 0), n, f"{d}.count")
        h = varlink("Histogram", unit=u.name, metric=f"contention.block.{d}", window=0)
        equal((h["count"], sum(b["count"] for b in h["buckets"])), (figures[d]["count"],) * 2, f"buckets of {d}")
        check(h["buckets"][-1]["lower"] < figures[d]["max"] <= h["buckets"][-1]["upper"],
              f"{d}: {figures[d]}, {h['buckets']}")
    check(figures["readDevice"]["p50"] > 0, "the device took no time")
    equal(figures["sectors"], (figures["readBytes"] + figures["writeBytes"] + figures["discardBytes"]) // 512,
          "sectors")

    names = {d["device"] for d in figures["devices"]}
    for key in ("reads", "writes", "readBytes", "writeBytes", "deviceTime"):
        equal(sum(d[key] for d in figures["devices"]), figures[key], f"{key} of {names}")
    check(all(os.path.exists(f"/sys/block/{n}") for n in names), f"no disks: {names}")

    s = snapshot(u)
    each = s["cost"]["share"] * s["covered"] / (figures["reads"] + figures["writes"])
    # Runs of more than a millisecond are not counted
    check(100 < each < 1000000, f"a request costs {each} ns")

    # Counting goes on after a crash of qosd
    kill_qosd()
    u.go("write-30")
    after = counted(u, figures, writes=30)
    equal(after["writes"] - figures["writes"], 30, "writes after the restart")


@test(deadline=120, needs_vm="each of a few requests counts, and the kernel of the lab hides a process and the "
      "interrupts above it from programs")
def merges():
    """What a unit submits is done as requests or merged with one, as the kernel counts it for the disk; a single one is
    not merged."""
    u = Disk()
    attach(u, "--probes=block")
    u.start()

    before = block(u)
    u.go("write-20")
    figures = counted(u, before, writes=20)
    equal((figures["writes"] - before["writes"], figures["merges"] - before["merges"]), (20, 0),
          "writes and merges one by one")

    disk, = (d["device"] for d in figures["devices"] if d["writes"] > 0)
    with open(f"/sys/block/{disk}/stat") as f:
        merged = int(f.read().split()[5])
    u.go("submit-32")
    seen = []

    def all_counted():
        f = block(u)
        seen[:] = [f["writes"] - figures["writes"], f["merges"] - figures["merges"]]
        return f if sum(seen) >= 32 else None
    try:
        after = wait_for("all is counted", all_counted)
    except scenario.Failed as e:
        raise scenario.Failed(f"{e}: {seen[0]} writes and {seen[1]} merges of 32") from None
    with open(f"/sys/block/{disk}/stat") as f:
        merged = int(f.read().split()[5]) - merged
    equal(after["writes"] + after["merges"] - figures["writes"] - figures["merges"], 32, "writes and merges")
    check(0 < after["merges"] - figures["merges"] <= merged,
          f"{after['merges'] - figures['merges']} merges, the disk has {merged}")
    equal(sum(d["merges"] for d in after["devices"]), after["merges"], "merges of all devices")


@test(deadline=60, quiet="alone")
def a_while_without():
    """Requests that a unit makes while the probe is off for it, but on for another unit, are not in its figures
    later."""
    u, other = Disk(), Disk()
    attach(other, "--probes=block")
    attach(u, "--probes=cpu,block")
    u.start()
    other.start()
    before = block(u)
    u.go("write-10")
    counted(u, before, writes=10)
    attach(u, "--probes=cpu")
    u.go("write-20")
    attach(u, "--probes=cpu,block")
    equal(block(u)["writes"] - before["writes"], 10, "writes, without 20 that are not counted")
    u.go("write-30")
    equal(counted(u, before, writes=40)["writes"] - before["writes"], 40, "writes")


@test(deadline=60)
def resources():
    """`qosctl resources` shows the devices of the snapshot. Other users see the sums, but not the devices."""
    u = Disk()
    attach(u, "--probes=block,memory")
    u.start()
    before = block(u)
    u.go("write-50")
    figures = counted(u, before, writes=50)
    out = qosctl("resources", u.name, "--window=total").stdout
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    header = next(line.split() for line in out.splitlines() if line.startswith("DEVICE"))
    for d in figures["devices"]:
        check(d["device"] in rows, f"no {d['device']} in {out}")
        equal(rows[d["device"]][header.index("WRITES")], str(d["writes"]), "WRITES")
    check("minor faults" in out, f"no memory in {out}")
    equal(json.loads(qosctl("resources", u.name, "--window=total", "--json=short").stdout)["block"]["writes"],
          figures["writes"], "writes")

    theirs = json.loads(run(*as_user(65534), "qosctl", "resources", u.name, "--window=total",
                            "--json=short").stdout)["block"]
    equal(theirs["writes"], figures["writes"], "writes, for another user")
    check("devices" not in theirs, f"devices for another user: {theirs}")


@test(deadline=60)
def flushes():
    """fdatasync() of a device with a volatile write cache counts as a flush, and not as a write."""
    u = Disk()
    attach(u, "--probes=block")
    u.start()
    before = block(u)
    u.go("write-10")
    before = counted(u, before, writes=10)
    u.go("sync-1")
    after = block(u)
    device = after["devices"][0]["device"]
    with open(f"/sys/block/{device}/queue/write_cache") as f:
        cached = f.read().strip() == "write back"
    if cached:
        check(after["flushes"] > before["flushes"], f"no flush: {after}")
    else:
        equal(after["flushes"], 0, "flushes of a device without a cache")


@test(deadline=60)
def share():
    """The share of a device is the unit's part of all bytes that were transferred, also by units that are not
    attached."""
    a, b = Disk(), Disk()
    attach(a, "--probes=block")
    a.start()
    b.start()
    a.go("write-30")
    b.go("write-90")

    def share_is_right(window):
        shares = [d.get("share") for d in block(a, window)["devices"] if d["writes"] >= 30]
        return len(shares) == 1 and shares[0] and 0 < shares[0] <= 0.26
    # The kernel wakes up the process first. A unit that does nothing has the same snapshot for a second
    for window in ("60s", "total"):
        wait_for(f"the share over {window} is a quarter at most", lambda window=window: share_is_right(window), 5)


@test(deadline=60)
def nested():
    """A slice has the writes of the units that it contains."""
    u = Disk()
    attach("system.slice", "--probes=block")
    attach(u, "--probes=block")
    u.start()
    before = block("system.slice")["writes"]
    mine = block(u)
    u.go("write-20")
    equal(counted(u, mine, writes=20)["writes"] - mine["writes"], 20, "writes of the unit")
    check(block("system.slice")["writes"] - before >= 20, "the slice lacks writes of its unit")
    qosctl("detach", "system.slice")


@test(deadline=120, needs_vm="the io controller is not there")
def writeback():
    """Writeback is counted for the unit that dirtied the pages, where the io controller is on."""
    path = f"/var/tmp/qosd-writeback-{os.getpid()}"
    u = Unit(f"/bin/sh -c 'dd if=/dev/zero of={path} bs=64k count=64 2>/dev/null; systemd-notify --ready; exec "
             "sleep 1000'",
             settings="IOAccounting=yes\nIOWeight=100")
    attach(u, "--probes=block")
    u.start()
    os.sync()
    wait_for("the dirty pages are written", lambda: block(u).get("writebackBytes", 0) >= 64 * 65536, 20, pause=0.2)
    figures = block(u)
    check(figures["writeBytes"] >= figures["writebackBytes"], f"more written back than written: {figures}")
    os.unlink(path)
