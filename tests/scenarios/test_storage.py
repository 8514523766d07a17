# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on files, compared with what the program did and with the kernel's counters of it (/proc/PID/io)."""

import ctypes
import fcntl
import glob
import mmap
import os
import signal
import struct
import subprocess
import time

import scenario
from scenario import (Unit, as_user, attach, busctl_call, check, equal, kill_qosd, lookup, qosctl, qosctl_json,
                      snapshot, test, varlink, wait_for)
from test_history import STATE, next_step
from test_nested import new_slice
from test_thresholds import wait_state

PAGE = os.sysconf("SC_PAGE_SIZE")

# Readings share a visit of all threads that was made within the last 20 ms (GAUGES_AGE_NSEC): figures may be as old as
# that
AGE = 0.05

# Executes a line of Python for each line that it reads from a FIFO, and writes its result to another one. Both are
# opened once: between two lines the process is in read(2) on the FIFO, and has made no call on files but those of the
# lines.
PROGRAM = r"""
import ctypes, fcntl, json, mmap, os, socket, sys, threading, time

directory = sys.argv[1]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
s.close()
lines = os.open(directory + "/lines", os.O_RDONLY)
results = os.open(directory + "/results", os.O_WRONLY)


def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    os.waitpid(pid, 0)


def thread(work):
    t = threading.Thread(target=work)
    t.start()
    t.join()


def failing(work, *arguments):
    try:
        work(*arguments)
    except OSError:
        return
    raise AssertionError("succeeded")


while True:
    line = os.read(lines, 65536).decode()
    if not line:
        break
    exec(line)
    os.write(results, b"done\n")
"""


class Worker(Unit):
    """A unit that executes lines of Python, in a directory of its own."""

    def __init__(self, settings="", parent="/var/tmp"):
        self.directory = os.path.join(parent, f"qosd-storage-{os.getpid()}-{id(self):x}")
        os.makedirs(self.directory)
        with open(self.directory + "/program", "w") as f:
            f.write(PROGRAM)
        with open(self.directory + "/data", "wb") as f:
            f.write(b"x" * 100000)
        for name in ("lines", "results"):
            os.mkfifo(f"{self.directory}/{name}")
        super().__init__(f"/usr/bin/python3 {self.directory}/program {self.directory}", settings=settings)

    def start(self):
        super().start()
        self.lines = os.open(self.directory + "/lines", os.O_WRONLY)
        self.results = os.open(self.directory + "/results", os.O_RDONLY)
        self.do("os.chdir(directory)")

    def do(self, line):
        """Executes the line, and returns when the process waits for the next one, and any reading shows that."""
        os.write(self.lines, line.encode())
        check(os.read(self.results, 100) == b"done\n", f"'{line}' failed")
        wait_for("it waits", lambda: self.state() == "S", 5)
        time.sleep(AGE)

    def state(self):
        with open(f"/proc/{self.main_pid}/stat") as f:
            return f.read().rpartition(") ")[2][0]

    def io(self):
        """The kernel's counters of the process: those of its threads and of children that it has waited for, too."""
        with open(f"/proc/{self.main_pid}/io") as f:
            io = {key: int(value) for key, value in (line.split(": ") for line in f)}
        return {"reads": io["syscr"], "writes": io["syscw"], "readBytes": io["rchar"], "writeBytes": io["wchar"]}


def storage(unit, window="total"):
    figures = lookup(snapshot(unit, window), "storage")
    check(figures is not None, "there is no storage")
    return figures


def difference(now, before):
    return {key: now[key] - before[key] for key in now}


def counts(figures):
    """{"reads.count": …} of all calls."""
    return {f"{kind}.{key}": value for kind, values in figures.items() if isinstance(values, dict)
            and kind not in ("calls", "cache", "mapped")
            for key, value in values.items() if isinstance(value, int)}


@test(deadline=60, own_daemon=True, vm="nightly")
def calls_of_tasks():
    """The calls that the kernel counts in each task are counted once, with their bytes: of threads and children that
    have exited, and over a kill of qosd."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    truth, ours = u.io(), storage(u)["calls"]

    for line in ("for i in range(1000): os.pread(fd, 100, i) if i else globals().update(fd=os.open('data', "
                 "os.O_RDONLY))",
                 "out = os.open('out', os.O_CREAT|os.O_WRONLY); [os.write(out, b'y' * 50) for i in range(333)]",
                 "[thread(lambda: [os.pread(fd, 10, 0) for i in range(7)]) for i in range(20)]",
                 "[child(lambda: [os.pread(fd, 10, 0) for i in range(5)]) for i in range(100)]"):
        u.do(line)
        now, figures = u.io(), storage(u)["calls"]
        equal(difference(figures, ours), difference(now, truth), line)
        truth, ours = now, figures

    kill_qosd()
    u.do("[os.pread(fd, 100, 0) for i in range(50)]")
    now, figures = u.io(), storage(u)["calls"]
    equal(difference(figures, ours), difference(now, truth), "after a kill of qosd")
    check(figures["reads"] >= 1000 + 140 + 500 + 50, f"{figures} are too few")


@test(deadline=60)
def threshold():
    """One on a metric of the probe has its value, and is violated by calls and clear without."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    qosctl("set-threshold", u.name, "many: storage.calls.writes > 200 over 2s")
    wait_state(u, "many", "ok")
    u.do("out = os.open('out', os.O_CREAT|os.O_WRONLY); [os.write(out, b'y') for i in range(1000)]")
    wait_for("it is violated by these",
             lambda: (t := qosctl_json("list-thresholds", u.name)[0])["state"] == "violated" and t["value"] >= 1000)
    wait_state(u, "many", "ok")


# Lines, and what they add to the counts. Each call that is not named is none
EXPECTED = (
    ("fd = os.open('data', os.O_RDONLY)", {"opens.count": 1}),
    ("[os.pread(fd, 100, 0) for i in range(500)]", {"reads.count": 500, "reads.bytes": 50000}),
    ("os.lseek(fd, 99990, 0); [os.read(fd, 100) for i in range(3)]", {"reads.count": 3, "reads.bytes": 10}),
    ("os.preadv(fd, [bytearray(10), bytearray(20)], 0)", {"reads.count": 1, "reads.bytes": 30}),
    ("out = os.open('out', os.O_CREAT|os.O_RDWR)", {"opens.count": 1, "creates.count": 1}),
    ("[os.write(out, b'y' * 50) for i in range(200)]", {"writes.count": 200, "writes.bytes": 10000}),
    ("os.writev(out, [b'a' * 10, b'b' * 5])", {"writes.count": 1, "writes.bytes": 15}),
    ("os.pwrite(out, b'z', 0)", {"writes.count": 1, "writes.bytes": 1}),
    ("failing(os.write, fd, b'x')", {"writes.count": 1, "writes.errors": 1}),
    ("os.sendfile(out, fd, 0, 1000)",
     {"reads.count": 1, "reads.bytes": 1000, "writes.count": 1, "writes.bytes": 1000}),
    ("a, b = socket.socketpair(); os.sendfile(a.fileno(), fd, 0, 700); b.recv(700)",
     {"reads.count": 1, "reads.bytes": 700}),
    ("r, w = os.pipe(); os.splice(fd, w, 900, 0)", {"reads.count": 1, "reads.bytes": 900}),
    ("os.splice(r, out, 900, None, 0)", {"writes.count": 1, "writes.bytes": 900}),
    ("os.sendfile(w, fd, 0, 800)", {"reads.count": 1, "reads.bytes": 800}),
    ("r2, w2 = os.pipe(); os.splice(r, w2, 800)", {}),
    ("os.copy_file_range(fd, out, 2000, 0, 0)",
     {"reads.count": 1, "reads.bytes": 2000, "writes.count": 1, "writes.bytes": 2000}),
    ("os.fsync(out); os.fdatasync(out)", {"syncs.count": 2}),
    ("s = os.open('sync', os.O_CREAT|os.O_RDWR|os.O_SYNC)", {"opens.count": 1, "creates.count": 1}),
    ("os.pwrite(s, b'x', 0)", {"writes.count": 1, "writes.bytes": 1}),
    ("os.ftruncate(out, 100); os.truncate('out', 200)", {"changes.count": 2}),
    ("os.close(os.open('out', os.O_WRONLY|os.O_TRUNC))", {"opens.count": 1}),
    ("os.posix_fallocate(out, 0, 4096)", {"changes.count": 1}),
    ("os.fchmod(out, 0o600); os.chown('out', 0, 0); os.utime('out')", {"changes.count": 3}),
    # mmap.mmap() has a look at the size of the file
    ("m = mmap.mmap(out, 4096)", {"lookups.count": 1}),
    ("m.flush()", {"syncs.count": 1}),
    ("os.mkdir('d'); os.rmdir('d')", {"creates.count": 1, "removes.count": 1}),
    ("os.mkfifo('fifo'); os.mknod('file')", {"creates.count": 2}),
    ("os.unlink('fifo'); os.unlink('file')", {"removes.count": 2}),
    ("u = socket.socket(socket.AF_UNIX); u.bind('socket')", {"creates.count": 1}),
    # The directory has an end, which is a call of its own
    ("os.listdir('.')", {"opens.count": 1, "lookups.count": 3}),
    ("os.link('out', 'hard'); os.symlink('out', 'soft')", {"creates.count": 2}),
    ("os.rename('hard', 'other'); os.unlink('other'); os.unlink('soft')", {"renames.count": 1, "removes.count": 2}),
    ("os.stat('out'); os.fstat(out); os.lstat('data')", {"lookups.count": 3}),
    ("failing(os.stat, 'absent')", {"lookups.count": 1, "lookups.errors": 1}),
    ("failing(os.open, 'absent', os.O_RDONLY)", {"opens.count": 1, "opens.errors": 1}),
    ("failing(os.mkdir, 'data')", {}),
    ("failing(os.rmdir, '.')", {}),
    ("os.access('data', os.R_OK); os.readlink('/proc/self/exe'); os.statvfs('.'); os.listxattr('data'); "
     "fcntl.flock(fd, fcntl.LOCK_EX); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED); os.chdir('.')", {}),
    ("ctypes.CDLL(None).syncfs(out) == 0 or 1 / 0", {"syncs.count": 1}),
    ("os.sync()", {}),
    ("r, w = os.pipe(); os.write(w, b'x' * 100); os.read(r, 100)", {}),
    ("a, b = socket.socketpair(); a.send(b'x'); b.recv(1); os.write(a.fileno(), b'y'); os.read(b.fileno(), 1)", {}),
    ("null = os.open('/dev/null', os.O_RDWR); os.write(null, b'x'); os.read(null, 1)", {}),
    ("e = os.eventfd(1); os.eventfd_read(e); os.eventfd_write(e, 2)", {}),
)


@test(deadline=120, vm=True, needs_program="storage_read_begin")
def calls_on_files():
    """Each call on a file counts once, with its bytes and errors; calls on pipes, sockets and devices do not."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    before = counts(storage(u))
    for line, added in EXPECTED:
        u.do(line)
        now = counts(storage(u))
        equal({key: now[key] - before[key] for key in now if now[key] != before[key]}, added, line)
        before = now

    figures = storage(u)
    equal(figures["unseen"], 0, "reads and writes that are not counted")
    for kind in ("reads", "writes", "syncs", "opens"):
        equal(figures[kind]["latency"]["count"], figures[kind]["count"], f"latency.count of {kind}")
        check(0 < figures[kind]["latency"]["mean"] <= figures[kind]["latency"]["max"],
              f"latency of {kind}: {figures[kind]}")


@test(deadline=60, vm="nightly", needs_program="storage_read_begin")
def of_other_units():
    """What others do on the same files does not count, and a unit has what its descendants do."""
    slice_name = new_slice()
    u, other = Worker(f"Slice={slice_name}"), Worker(f"Slice={slice_name}")
    attach(u, "--probes=storage")
    u.start()
    other.start()
    u.do("fd = os.open('data', os.O_RDONLY)")
    before = counts(storage(u))
    other.do(f"fd = os.open('{u.directory}/data', os.O_RDONLY); [os.pread(fd, 10, 0) for i in range(100)]")
    equal(counts(storage(u)), before, "counts")

    attach(slice_name, "--probes=storage")
    slice_before = counts(storage(slice_name))
    for worker in (u, other):
        worker.do("[os.pread(fd, 10, 0) for i in range(40)]")
    equal(counts(storage(u))["reads.count"] - before["reads.count"], 40, "reads of the unit")
    equal(counts(storage(slice_name))["reads.count"] - slice_before["reads.count"], 80, "reads of the slice")


@test(deadline=60, own_daemon=True)
def nested_calls():
    """A slice has the calls of a unit in it, whether that is attached or not, and over a kill of qosd; none is counted
    twice."""
    slice_name = new_slice()
    u = Worker(settings=f"Slice={slice_name}")
    attach(slice_name, "--probes=storage")
    u.start()
    truth, ours = u.io(), storage(slice_name)["calls"]

    def step(what, work, own=None):
        work()
        u.do("[os.pread(fd, 10, 0) for i in range(100)]")
        now, figures = u.io(), storage(slice_name)["calls"]
        equal(difference(figures, ours), difference(now, truth), what)
        if own:
            equal(storage(u)["calls"]["reads"], own + 1, f"reads of the unit, {what}")

    u.do("fd = os.open('data', os.O_RDONLY)")
    step("the slice alone", lambda: None)
    # The unit's calls so far are not its own; of the line, the read(2) that has brought it had begun before
    step("with the unit", lambda: (attach(u, "--probes=storage"), storage(u)), own=100)
    step("after a kill", kill_qosd, own=201)
    step("after the detach of the unit", lambda: qosctl("detach", u.name))
    step("with the unit once more", lambda: (attach(u, "--probes=storage"), storage(u)), own=100)
    step("after another kill", kill_qosd, own=201)


def rows(unit, window="total"):
    """{mount point, or device number: row}, the others as None."""
    return {row.get("mount") or row.get("device"): row for row in lookup(snapshot(unit, window), "storage.mounts")
            or []}


def row_counts(row):
    return {f"{kind}.{key}": value for kind, values in row.items() if isinstance(values, dict)
            for key, value in values.items() if isinstance(value, int)}


def added(now, before):
    return {key: n - before.get(key, 0) for key, n in now.items() if n != before.get(key, 0)}


class Mounts:
    """File systems in memory, each mounted at a directory."""

    def __init__(self):
        self.points = []

    def make(self, point, fs_type="tmpfs"):
        os.makedirs(point, exist_ok=True)
        subprocess.run(["mount", "-t", fs_type, "-o", "size=1m", "none", point], check=True)
        self.points.append(point)
        info = os.stat(point)
        return f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"

    def drop(self, point):
        subprocess.run(["umount", point], check=True)
        self.points.remove(point)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for point in self.points[:]:
            subprocess.run(["umount", "-l", point], check=False)


@test(deadline=120, vm=True, needs_program="storage_read_begin")
def calls_by_mount():
    """Each file system has the calls on its files; rows and the rest are the unit; odd names are escaped and select
    their row; a device number that is reused begins a new row."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with Mounts() as mounts:
        plain, odd = u.directory + "/plain", u.directory + "/a b\\c\x1b[31md\ne"
        device = mounts.make(plain)
        mounts.make(odd)
        shown = u.directory + "/a\\040b\\134c\\033[31md\\012e"

        def write(path, n):
            u.do(f"f = os.open({path + '/f'!r}, os.O_CREAT|os.O_RDWR); [os.write(f, b'y' * 50) for i in range({n})]; "
                 "os.pread(f, 10, 0); os.fsync(f); os.ftruncate(f, 5); os.close(f)")

        def expected(n):
            return {"opens.count": 1, "writes.count": n, "writes.bytes": 50 * n, "reads.count": 1, "reads.bytes": 10,
                    "syncs.count": 1, "changes.count": 1}

        write(plain, 100)
        write(odd, 33)
        before, unit_before = rows(u), counts(storage(u))
        write(plain, 70)
        u.do("a = os.open('plain/copy', os.O_CREAT|os.O_RDWR); b = os.open('data', os.O_RDONLY); os.sendfile(a, b, 0, "
             "1000); os.close(b)")
        u.do("b = os.open('plain/copy2', os.O_CREAT|os.O_RDWR); os.copy_file_range(a, b, 300, 0); os.close(a); "
             "os.close(b)")
        now, unit = rows(u), counts(storage(u))
        check(plain in now and shown in now, f"{list(now)} are mounted")
        equal((now[plain]["device"], now[plain]["type"]), (device, "tmpfs"), "file system")
        want = expected(70)
        for key, n in {"opens.count": 2, "reads.count": 1, "reads.bytes": 300, "writes.count": 2,
                       "writes.bytes": 1300}.items():
            want[key] += n
        equal(added(row_counts(now[plain]), row_counts(before[plain])), want, "calls on 'plain'")
        equal(row_counts(now[shown]), row_counts(before[shown]), "calls on the other one")
        equal(row_counts(now[shown])["writes.count"], 33, "writes there")
        for key in row_counts(now[plain]):
            equal(sum(row_counts(row).get(key, 0) for row in now.values()), unit[key], f"sum of {key} of all rows")
        check(unit["writes.count"] > unit_before["writes.count"], "no writes")

        figures = now[shown]["writes"]["latency"]
        equal(figures["count"], 33, "latency.count")
        check(0 < figures["p50"] <= figures["max"] and 0 < figures["mean"] <= figures["max"], f"{figures}")
        name = f"storage.mounts[{shown}].writes.count"
        equal(qosctl("show", "--window=total", f"-P{name}", "--value", u.name).stdout.strip(), "33", name)
        name = f"storage.mounts[{device}].syncs.count"
        equal(qosctl("show", "--window=total", f"-P{name}", "--value", u.name).stdout.strip(), "2", name)
        bus = {m.get("mount") or m.get("device"): m
               for m in scenario.plain(busctl_call("SnapshotMounts", "st", u.name, 0)[0])}
        equal((bus[shown]["storage.writes.count"], bus[shown]["storage.syncs.latency.count"], bus[shown]["type"]),
              (33, 1, "tmpfs"), "the row on D-Bus")
        table = qosctl("mounts", "--window=total", u.name).stdout
        check(shown in table and "\x1b[31md" not in table, table)

        kill_qosd()
        equal(row_counts(rows(u)[plain]), row_counts(now[plain]), "after a kill of qosd")

        # The next file system gets the number of the last one
        mounts.drop(plain)
        for i in range(20):
            if mounts.make(plain) == device:
                break
            mounts.drop(plain)
        else:
            check(False, "no device number is reused")
        write(plain, 5)
        again, unit = rows(u), counts(storage(u))
        equal(row_counts(again[plain]), dict.fromkeys(row_counts(again[plain]), 0) | expected(5),
              "calls on the new one")
        equal(sum(row["writes"]["count"] for row in again.values()), unit["writes.count"], "sum of all rows")


@test(deadline=120, vm="nightly", needs_program="storage_read_begin")
def many_mounts():
    """Of more file systems than rows, the others are one row, and all rows are the unit."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with Mounts() as mounts:
        for i in range(40):
            mounts.make(f"{u.directory}/m{i}")
        u.do("files = [os.open(f'm{i}/f', os.O_CREAT|os.O_RDWR) for i in range(40)]")
        u.do("[os.write(f, b'x' * 10) for i in range(50) for f in files]")
        now, unit = rows(u), counts(storage(u))
        equal(len(now), 16, "rows")
        check(now[None]["rest"] and now[None]["writes"]["count"] > 0, f"{now[None]} has nothing")
        for key in ("reads.count", "writes.count", "writes.bytes", "syncs.count", "opens.count", "opens.errors"):
            kind, _, figure = key.partition(".")
            equal(sum(row[kind][figure] for row in now.values()), unit[key], f"sum of {key}")
        # One that takes more time than any other gets a row
        u.do("[os.write(files[39], b'z' * 65536) for i in range(3000) if os.lseek(files[39], 0, 0) == 0]")
        wait_for("it has a row",
                 lambda: u.directory + "/m39" in rows(u) or u.do("os.pwrite(files[39], b'z' * 65536, 0)"), 20)
        now, unit = rows(u), counts(storage(u))
        equal(sum(row["writes"]["count"] for row in now.values()), unit["writes.count"], "sum of writes")


@test(deadline=60, vm="nightly", needs_program="storage_read_begin")
def mounts_of_a_namespace():
    """A file system that only the unit has mounted has a row with its type and device number."""
    u = Worker(settings="TemporaryFileSystem=/mnt")
    attach(u, "--probes=storage")
    u.start()
    u.do("f = os.open('/mnt/f', os.O_CREAT|os.O_RDWR); [os.write(f, b'x') for i in range(7)]")
    device = os.stat(f"/proc/{u.main_pid}/root/mnt").st_dev
    row = rows(u)[f"{os.major(device)}:{os.minor(device)}"]
    equal((row["type"], row["writes"]["count"], "mount" in row), ("tmpfs", 7, False), "row")


@test(deadline=90, vm="nightly", needs_program="storage_read_begin")
def full_file_system():
    """A write that does not fit counts with the bytes that did, the next one is an error, and a read at the end of the
    file has no bytes."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with Mounts() as mounts:
        point = u.directory + "/full"
        mounts.make(point)
        u.do("f, k = os.open('full/f', os.O_CREAT|os.O_RDWR), 0\n"
             "try:\n"
             "    while True:\n"
             "        k += 1\n"
             "        os.write(f, b'x' * 100000)\n"
             "except OSError as e:\n"
             "    assert e.errno == 28, e\n"
             "os.read(f, 10); open(directory + '/k', 'w').write(str(k))")
        with open(u.directory + "/k") as f:
            k = int(f.read())
        row = rows(u)[point]
        equal((row["writes"]["count"], row["writes"]["errors"], row["writes"]["bytes"]),
              (k, 1, os.stat(point + "/f").st_size), "writes, errors and bytes")
        check(row["writes"]["bytes"] % 100000 != 0, "no write is short")
        equal((row["reads"]["count"], row["reads"]["errors"], row["reads"]["bytes"]), (1, 0, 0), "reads")
        u.do("os.close(f)")


@test(deadline=60, vm="nightly", needs_program="storage_read_begin")
def bound_and_unmounted():
    """A bind mount belongs to its file system. One that is not mounted any more, with a file that is open, has its row
    with its device number."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    plain, bound = u.directory + "/plain", u.directory + "/bound"
    with Mounts() as mounts:
        device = mounts.make(plain)
        os.makedirs(bound)
        subprocess.run(["mount", "--bind", plain, bound], check=True)
        mounts.points.append(bound)
        u.do("f = os.open('bound/f', os.O_CREAT|os.O_RDWR); [os.write(f, b'x') for i in range(7)]")
        now = rows(u)
        equal((now[plain]["device"], now[plain]["writes"]["count"], bound in now), (device, 7, False), "row")
        for point in bound, plain:
            subprocess.run(["umount", "-l", point], check=True)
            mounts.points.remove(point)
        u.do("[os.write(f, b'y') for i in range(5)]")
        row = rows(u)[device]
        equal((row["writes"]["count"], "mount" in row), (12, False), "writes after the unmount")
        u.do("os.close(f)")


@test(deadline=60, vm="nightly", needs_program="storage_verify")
def nothing_is_unseen():
    """Whatever reads and writes: the programs that count calls have seen it, execve(2) and the copies of splice(2)
    included."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    u.do("fd = os.open('data', os.O_RDONLY); out = os.open('out', os.O_CREAT|os.O_RDWR)")
    before = storage(u)
    u.do("[child(lambda: os.execv('/bin/true', ['true'])) for i in range(5)]; r, w = os.pipe(); "
         "os.splice(fd, w, 4000, 0); os.splice(r, out, 4000); os.sendfile(out, fd, 0, 5000); "
         "os.copy_file_range(fd, out, 3000, 0)")
    now = storage(u)
    check(now["reads"]["count"] >= before["reads"]["count"] + 5 + 3, f"{before['reads']}, then {now['reads']}")
    equal(now["writes"]["bytes"] - before["writes"]["bytes"], 4000 + 5000 + 3000, "bytes written")
    equal(now["unseen"], 0, "reads and writes that are in no count")


def cached_pages(path):
    """Pages of the file in the page cache, by mincore(2): cachestat(2) does not see through an overlay."""
    libc, size = ctypes.CDLL(None, use_errno=True), os.stat(path).st_size
    libc.mmap.restype = ctypes.c_void_p
    pages = (size + PAGE - 1) // PAGE
    resident = (ctypes.c_ubyte * pages)()
    fd = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    os.close(fd)
    check(address != ctypes.c_void_p(-1).value, f"mmap: {os.strerror(ctypes.get_errno())}")
    result = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    equal(result, 0, "result of mincore")
    return sum(page & 1 for page in resident)


def uncache(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    equal(cached_pages(path), 0, f"pages of {path} in the page cache")


@test(deadline=90, vm="nightly", needs_program="storage_pages_look_up")
def page_cache():
    """Pages looked up, read in and dirtied, compared with what was read and written, and with mincore(2)."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    path = u.directory + "/pages"
    with open(path, "wb") as f:
        f.write(b"p" * (PAGE * 300 + 10))
    uncache(path)
    u.do("fd = os.open('pages', os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)")

    def expect(line, **want):
        before = storage(u)["cache"]
        u.do(line)
        got = difference({key: n for key, n in storage(u)["cache"].items() if key != "hitRatio"},
                         {key: n for key, n in before.items() if key != "hitRatio"})
        equal(got, {"lookedUp": 0, "readIn": 0, "readAhead": 0, "dirtied": 0} | want, line)

    expect(f"[os.pread(fd, {PAGE}, i * {PAGE}) for i in range(0, 100, 10)]", lookedUp=10, readIn=10)
    equal(cached_pages(path), 10, "pages in the page cache")
    expect(f"[os.pread(fd, {PAGE}, i * {PAGE}) for i in range(0, 100, 10)]", lookedUp=10)
    expect(f"os.pread(fd, 10, {PAGE} - 5)", lookedUp=2, readIn=1)
    # One read of all, beyond the end of the file: with 11 pages that are there
    expect(f"len(os.pread(fd, {PAGE} * 400, 0)) == {PAGE} * 300 + 10 or 1 / 0", lookedUp=301, readIn=290)
    equal(cached_pages(path), 301, "pages in the page cache")
    expect(f"os.pread(fd, {PAGE} * 400, 0)", lookedUp=301)
    # Read ahead: what is in the page cache then, but for the page that was requested
    uncache(path)
    u.do("os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)")
    before = storage(u)["cache"]
    u.do(f"os.pread(fd, {PAGE}, 0)")
    got, cached = difference(storage(u)["cache"], before), cached_pages(path)
    check(cached > 1, "nothing was read ahead")
    equal((got["lookedUp"], got["readIn"], got["readAhead"]), (1, cached, cached - 1), "one page, and those behind it")
    # The file has its blocks: to allocate some dirties blocks of the file system itself, as may the time of the change
    written = os.path.join(os.path.dirname(path), "written")
    with open(written, "wb") as f:
        f.write(b"o" * (PAGE * 50))
        os.fsync(f.fileno())
    before = storage(u)["cache"]
    u.do(f"out = os.open('written', os.O_RDWR); [os.pwrite(out, b'w' * {PAGE}, i * {PAGE}) for i in range(50)]")
    got = difference(storage(u)["cache"], before)
    equal(got["readIn"], 0, "pages that a write reads")
    check(50 <= got["dirtied"] <= 54, f"{got}")
    # Pages that are dirty already
    expect("[os.pwrite(out, b'w', 5 * i) for i in range(10)]")
    expect("r, w = os.pipe(); os.write(w, b'x'); os.read(r, 1)")


def cachestat(path):
    """Pages of the file in the page cache, and those of them that are dirty: cachestat(2)."""
    libc, counted = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(40)
    fd = os.open(path, os.O_RDONLY)
    result = libc.syscall(ctypes.c_long(451), fd, struct.pack("2Q", 0, 0), counted, 0)
    os.close(fd)
    check(result == 0, f"cachestat: {os.strerror(ctypes.get_errno())}")
    return struct.unpack_from("2Q", counted)


@test(deadline=120, vm="nightly", needs_vm="the io controller is not there")
def bytes_of_the_device():
    """What the device has read is what the unit's io.stat has, and what the page cache has got, what cachestat(2)
    has."""
    u = Worker(settings="IOAccounting=yes")
    attach(u, "--probes=block,storage")
    u.start()
    path = u.directory + "/pages"
    with open(path, "wb") as f:
        f.write(b"p" * (PAGE * 300))
    uncache(path)
    u.do("fd = os.open('pages', os.O_RDWR); d = os.open('pages', os.O_RDONLY|os.O_DIRECT); m = mmap.mmap(-1, 65536)")

    def io_stat():
        with open(f"/sys/fs/cgroup{u.control_group}/io.stat") as f:
            return sum(int(word.partition("=")[2]) for word in f.read().split() if word.startswith("rbytes="))

    def figures():
        s = snapshot(u)
        return s["storage"], s["contention"]["block"]["readBytes"]

    (before, read_before), truth, cached = figures(), io_stat(), cachestat(path)[0]
    # The first 160 pages past the page cache, the others through it, twice
    u.do(f"[os.preadv(d, [m], 65536 * i) for i in range(10)]; "
         f"[os.pread(fd, {PAGE}, i * {PAGE}) for _ in range(2) for i in range(160, 300)]")
    now, read = figures()
    equal(now["reads"]["bytes"] - before["reads"]["bytes"], (160 + 2 * 140) * PAGE, "bytes read")
    equal(read - read_before, io_stat() - truth, "bytes that the device has read")
    equal((now["cache"]["readIn"] - before["cache"]["readIn"], cachestat(path)[0] - cached), (140, 140), "misses")
    equal(now["cache"]["lookedUp"] - before["cache"]["lookedUp"], 280, "pages looked up")
    check(abs(now["amplification"]["read"] * now["reads"]["bytes"] / read - 1) < 1e-6, f"{now}, {read} bytes")

    dirty = cachestat(path)[1]
    u.do(f"[os.pwrite(fd, b'w' * {PAGE}, i * {PAGE}) for i in range(200, 240)]")
    dirtied = storage(u)["cache"]["dirtied"] - now["cache"]["dirtied"]
    equal(cachestat(path)[1] - dirty, 40, "pages that are dirty")
    # The time of the change is in a block of the file system
    check(40 <= dirtied <= 42, f"{dirtied} pages were dirtied")


def faults(pid):
    """Minor and major page faults of a process."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(") ")[2].split()
    return int(fields[7]), int(fields[9])


@test(deadline=90, vm="nightly", needs_program="storage_fault")
def mapped_files():
    """Page faults on a mapped file: each major one that the kernel counts, and no more than it counts in all."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    path = u.directory + "/pages"
    with open(path, "wb") as f:
        f.write(b"p" * (PAGE * 640))
    u.do("import mmap; fd = os.open('pages', os.O_RDONLY)")

    def touched(line):
        before, truth = storage(u)["mapped"], faults(u.main_pid)
        u.do(line)
        got, now = difference(storage(u)["mapped"], before), faults(u.main_pid)
        return got, now[0] - truth[0] + now[1] - truth[1], now[1] - truth[1]

    # All in the page cache: the kernel maps the pages around each
    u.do("m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)")
    got, all_faults, major = touched(f"sum(m[i * {PAGE}] for i in range(640))")
    equal((got["majorFaults"], major), (0, 0), "major faults")
    check(640 / 16 <= got["faults"] <= all_faults, f"{got} of {all_faults} faults")

    u.do("m.close()")
    uncache(path)
    u.do("m = mmap.mmap(fd, 0, prot=mmap.PROT_READ); m.madvise(mmap.MADV_RANDOM)")
    got, all_faults, major = touched(f"sum(m[i * {PAGE}] for i in range(0, 640, 32))")
    equal(got["majorFaults"], major, "major faults")
    check(20 <= major <= got["faults"] <= all_faults, f"{got} of {all_faults} faults, {major} of them major")

    # Memory of its own, and pipes, are no files
    got, all_faults, major = touched(f"b = mmap.mmap(-1, {PAGE} * 100, flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS); "
                                     f"b.write(b'x' * {PAGE} * 100)")
    equal(got, {"faults": 0, "majorFaults": 0}, "faults on mapped files")
    check(all_faults >= 1, "no faults")


# io_uring and libaio by their system calls. A request: opcode, descriptor, buffer, length, offset
RINGS = r"""
import ctypes, os, struct

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


SQPOLL, ASYNC = 2, 16      # IORING_SETUP_SQPOLL, IOSQE_ASYNC


class Ring:
    def __init__(self, flags=0):
        parameters = ctypes.create_string_buffer(120)
        # A thread of the kernel that takes requests without a call is idle after 10 ms
        struct.pack_into("3I", parameters, 8, flags, 0, 10)
        self.fd = call(425, 64, parameters)
        entries, completions = struct.unpack_from("2I", parameters, 0)
        self.sq, self.cq = struct.unpack_from("7I", parameters, 40), struct.unpack_from("6I", parameters, 80)
        self.ring = self.map(max(self.sq[6] + entries * 4, self.cq[5] + completions * 16), 0)
        self.entries = self.map(entries * 64, 0x10000000)

    def map(self, size, offset):
        address = libc.mmap(None, ctypes.c_size_t(size), 3, 0x8001, self.fd, ctypes.c_long(offset))
        assert address != ctypes.c_void_p(-1).value
        return (ctypes.c_char * size).from_address(address)

    def word(self, offset):
        return struct.unpack_from("I", self.ring, offset)[0]

    def run(self, *requests, flags=0):
        tail = self.word(self.sq[1])
        for i, (opcode, fd, buffer, length, offset) in enumerate(requests):
            slot = (tail + i) & self.word(self.sq[2])
            struct.pack_into("<BBHiQQIIQ24x", self.entries, slot * 64, opcode, flags, 0, fd, offset,
                             ctypes.addressof(buffer) if buffer else 0, length, 0, i)
            struct.pack_into("I", self.ring, self.sq[6] + slot * 4, slot)
        struct.pack_into("I", self.ring, self.sq[1], tail + len(requests))
        # IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP
        call(426, self.fd, len(requests), len(requests), 3, 0, 0)
        results, head = {}, self.word(self.cq[0])
        for i in range(len(requests)):
            which, result = struct.unpack_from("<Qi", self.ring, self.cq[5] + ((head + i) & self.word(self.cq[2])) * 16)
            results[which] = result
        struct.pack_into("I", self.ring, self.cq[0], head + len(requests))
        return [results[i] for i in range(len(requests))]


class Aio:
    def __init__(self):
        self.context = ctypes.c_ulong()
        call(206, 64, ctypes.byref(self.context))

    def run(self, *requests):
        blocks = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", i, 0, 0, opcode, 0, fd, ctypes.addressof(buffer), length, offset, 0, 0, 0))
                  for i, (opcode, fd, buffer, length, offset) in enumerate(requests)]
        list = (ctypes.c_void_p * len(blocks))(*(ctypes.addressof(b) for b in blocks))
        assert call(209, self.context.value, len(blocks), list) == len(blocks)
        events = ctypes.create_string_buffer(32 * len(blocks))
        assert call(208, self.context.value, len(blocks), len(blocks), events, 0) == len(blocks)
        results = {struct.unpack_from("<Q", events, 32 * i)[0]: struct.unpack_from("<q", events, 32 * i + 16)[0] for i in range(len(blocks))}
        return [results[i] for i in range(len(blocks))]


buffer = ctypes.create_string_buffer(b"b" * 65536)
"""


# Requests that threads of the kernel take: those that are asynchronous at once, and those of a ring that is polled
BY_THREADS = (
    ("ring.run(*[(22, fd, buffer, 100, i) for i in range(20)], flags=ASYNC) == [100] * 20 or 1 / 0",
     {"reads.count": 20, "reads.bytes": 2000}),
    ("polled.run(*[(22, fd, buffer, 100, i) for i in range(25)]) == [100] * 25 or 1 / 0",
     {"reads.count": 25, "reads.bytes": 2500}),
    ("polled.run(*[(23, out, buffer, 50, i) for i in range(11)], flags=ASYNC) == [50] * 11 or 1 / 0",
     {"writes.count": 11, "writes.bytes": 550}),
)


@test(deadline=90, vm=True, needs_program="storage_aio_complete")
def rings():
    """Reads and writes through io_uring and libaio count once each, with the bytes and errors that they report, by file
    system, whichever thread makes them."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with open(u.directory + "/rings.py", "w") as f:
        f.write(RINGS)
    u.do("sys.path.insert(0, directory); sys.dont_write_bytecode = True; from rings import *; ring = Ring(); "
         "aio = Aio(); polled = Ring(SQPOLL); "
         "fd = os.open('data', os.O_RDONLY); out = os.open('out', os.O_CREAT|os.O_WRONLY); r, w = os.pipe()")
    before = counts(storage(u))
    for line, want in (
            ("ring.run(*[(22, fd, buffer, 100, i) for i in range(50)]) == [100] * 50 or 1 / 0",
             {"reads.count": 50, "reads.bytes": 5000}),
            ("ring.run((22, fd, buffer, 100, 99990)) == [10] or 1 / 0", {"reads.count": 1, "reads.bytes": 10}),
            ("ring.run(*[(23, out, buffer, 500, 500 * i) for i in range(20)]) == [500] * 20 or 1 / 0",
             {"writes.count": 20, "writes.bytes": 10000}),
            ("ring.run((23, fd, buffer, 10, 0))[0] < 0 or 1 / 0", {"writes.count": 1, "writes.errors": 1}),
            ("ring.run((3, out, None, 0, 0)) == [0] or 1 / 0", {"syncs.count": 1}),
            ("ring.run((23, w, buffer, 10, 0), (22, r, buffer, 10, 0)) == [10, 10] or 1 / 0", {}),
            ("aio.run(*[(0, fd, buffer, 100, i) for i in range(30)]) == [100] * 30 or 1 / 0",
             {"reads.count": 30, "reads.bytes": 3000}),
            ("aio.run(*[(1, out, buffer, 300, i) for i in range(7)]) == [300] * 7 or 1 / 0",
             {"writes.count": 7, "writes.bytes": 2100}),
            *BY_THREADS):
        u.do(line)
        now = counts(storage(u))
        equal(added(now, before), want, line)
        before = now
    figures, mounts = storage(u), rows(u)
    equal(figures["unseen"], 0, "reads and writes that are in no count")
    for kind in ("reads", "writes"):
        equal(figures[kind]["latency"]["count"], figures[kind]["count"], f"latency.count of {kind}")
        check(figures[kind]["latency"]["mean"] > 0, f"latency of {kind}: {figures[kind]}")
        equal(sum(row[kind]["count"] for row in mounts.values()), figures[kind]["count"], f"{kind} of all rows")
    device = os.stat(u.directory).st_dev
    row = [row for row in mounts.values() if row.get("device") == f"{os.major(device)}:{os.minor(device)}"]
    check(row and row[0]["reads"]["count"] >= 81, f"{mounts}")


@test(deadline=60, vm=True, needs_program="storage_open_begin")
def calls_in_flight():
    """A call that does not return is in flight, with its age, and in no count until it returns."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    equal(storage(u)["inFlight"], 0, "calls in flight")
    check("oldestInFlight" not in storage(u), "there is an oldest one")
    fd = os.open(u.directory + "/data", os.O_RDWR)
    # An open of the file waits until the lease is given up
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    before = counts(storage(u))
    os.write(u.lines, b"x = os.open('data', os.O_RDONLY)")
    wait_for("the call is in flight", lambda: storage(u)["inFlight"] == 1, 10)
    age = storage(u)["oldestInFlight"]
    wait_for("it grows older", lambda: storage(u)["oldestInFlight"] > age + 100_000_000, 10)
    equal(counts(storage(u)) | {"lookups.count": 0}, before | {"lookups.count": 0}, "counts")
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(fd)
    signal.signal(signal.SIGIO, old)
    check(os.read(u.results, 100) == b"done\n", "the call failed")
    wait_for("no call is in flight", lambda: storage(u)["inFlight"] == 0, 10)
    latency = storage(u)["opens"]["latency"]
    check(latency["max"] >= 100_000_000, f"{latency}")


def slow_operations(unit):
    return qosctl_json("mounts", unit.name, "--window=total")[0].get("slow", [])


@test(deadline=60, vm=True, needs_program="storage_open_begin")
def slow_calls():
    """Calls that take at least SlowOperation= are kept, with file, thread and the states that they were in; faster ones
    are not. They outlive a kill of qosd."""
    u = Worker()
    attach(u, "--probes=cpu,storage")
    u.start()
    u.do("import time; fd = os.open('data', os.O_RDWR); [os.pread(fd, 10, 0) for i in range(100)]")
    check(all(s["time"] >= 10_000_000 for s in slow_operations(u)), f"{slow_operations(u)}")

    def opened_late(seconds):
        """The program opens its file, which waits until the lease of it is given up. Returns the time of the call."""
        other = os.open(u.directory + "/leased", os.O_CREAT | os.O_RDWR)
        old = signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(other, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.write(u.lines, b"t = time.monotonic_ns(); x = os.open('leased', os.O_RDONLY); t = time.monotonic_ns() - t; "
                          b"open('time', 'w').write(str(t))")
        wait_for("the call is in flight", lambda: storage(u)["inFlight"] == 1, 10)
        time.sleep(seconds)
        fcntl.fcntl(other, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(other)
        signal.signal(signal.SIGIO, old)
        check(os.read(u.results, 100) == b"done\n", "the call failed")
        with open(u.directory + "/time") as f:
            return int(f.read())

    begun = time.time_ns()
    took = opened_late(0.2)

    def leased():
        return [s for s in slow_operations(u) if s.get("name") == "leased"]

    slow = wait_for("it is kept", leased)
    equal((len(slow), slow[0]["operation"]), (1, "open"), "slow calls")
    equal((slow[0]["tid"], slow[0]["thread"]), (u.main_pid, "python3"), "thread")
    check(0.2e9 <= slow[0]["time"] <= took, f"{slow[0]}, of which the program saw {took} ns")
    check(begun <= slow[0]["timestamp"] * 1000 <= time.time_ns(), f"{slow[0]}")
    device = os.stat(u.directory).st_dev
    equal(slow[0]["device"], f"{os.major(device)}:{os.minor(device)}", "device")
    shares = slow[0]["shares"]
    check(abs(sum(shares.values()) - 1) < 0.001 and shares.get("running", 0) < 0.5, f"{shares}")
    check("leased" in qosctl("mounts", u.name, "--window=total").stdout, "the table has no slow call")
    # They name files
    check("leased" not in scenario.run(*as_user(65534), "qosctl", "mounts", u.name, "--window=total", ok=False).stdout,
          "another user sees it")

    kill_qosd()
    again = leased()
    # It is the difference of two clocks, which are read anew
    check(abs(again[0].pop("timestamp") - slow[0].pop("timestamp")) < 1000, f"{again}")
    equal(again, slow, "slow calls after a kill of qosd")


@test(deadline=120, vm="nightly", needs_program="storage_read_begin")
def history():
    """Each step of the history has the calls that were made in it, also after a kill of qosd."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    u.do("out = os.open('out', os.O_CREAT|os.O_RDWR)")
    next_step()
    u.do("[os.write(out, b'x' * 10) for i in range(37)]; os.fsync(out)")
    next_step()

    def writes():
        return [lookup(s, "storage.writes.count") for s in varlink("History", unit=u.name, metrics=[
            "storage.writes.count", "storage.writes.bytes", "storage.syncs.latency.mean"])["steps"]]

    wait_for("the step is in the history", lambda: 37 in writes(), 70, pause=0.5)
    kill_qosd()
    check(37 in writes(), f"{writes()}")


@test(deadline=240, vm="nightly", needs_program="storage_read_begin")
def history_of_a_mount():
    """The history has the calls on a file system by step, also after a kill of qosd. With another file system of the
    same device number, and at the same place, it begins anew."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with Mounts() as mounts:
        point = u.directory + "/m"
        device = mounts.make(point)
        count, longest = f"storage.mounts[{point}].writes.count", f"storage.mounts[{device}].writes.latency.max"

        def values(metric):
            steps = varlink("History", unit=u.name, metrics=[metric])["steps"]
            return [s["values"][metric] for s in steps if metric in s["values"]]

        next_step()
        u.do("f = os.open('m/f', os.O_CREAT|os.O_RDWR); [os.write(f, b'x' * 10) for i in range(37)]; os.close(f)")
        wait_for("the step is in the history", lambda: 37 in values(count), 30, pause=0.2)
        slowest = values(longest)
        check(len(slowest) == 1 and slowest[0] == rows(u)[point]["writes"]["latency"]["max"], f"{slowest}")
        check(" 37\n" in qosctl("history", u.name, count).stdout, "it is in no line")
        found = time.time()
        wait_for("it is saved",
                 lambda: max((os.stat(f).st_mtime for f in glob.glob(f"{STATE}/history-*")), default=0) > found,
                 70)
        kill_qosd()
        check(37 in values(count), f"{values(count)} after a kill of qosd")

        mounts.drop(point)
        for i in range(20):
            if mounts.make(point) == device:
                break
            mounts.drop(point)
        else:
            check(False, "no device number is reused")
        next_step()
        u.do("f = os.open('m/f', os.O_CREAT|os.O_RDWR); [os.write(f, b'x' * 10) for i in range(5)]; os.close(f)")
        wait_for("the step is in the history", lambda: values(count) == [5], 30, pause=0.2)


@test(deadline=60, vm="nightly", needs_program="storage_sync_begin")
def shares_of_syncs():
    """The time of syncs is divided by state: waits for the disk, and waits for another thread that writes the same
    file."""
    u = Worker()
    attach(u, "--probes=cpu,block,storage")
    u.start()
    u.do("out = os.open('out', os.O_CREAT|os.O_RDWR)")
    work = "[(os.pwrite(out, os.urandom(1 << 20), 0), os.fsync(out)) for i in range(20)]"
    u.do(work)
    figures = storage(u)
    shares = figures["syncs"]["shares"]
    check(abs(sum(shares.values()) - 1) < 1e-6, f"{shares}")
    # How much of the time that is depends on the disk, and on how busy the CPUs are
    check(shares["disk"] > max(shares[state] for state in shares.keys() - {"running", "runQueue", "disk"}), f"{shares}")
    equal("shares" in figures["reads"], figures["reads"]["count"] > 0, "shares of reads")
    # Over a window that both probes have observed
    wait_for("all that is written is written to the device",
             lambda: u.do(work) or storage(u, "2s").get("amplification", {}).get("write", 0) >= 0.9, 20)
