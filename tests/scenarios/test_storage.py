# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on files, compared with what the program did and with the kernel's counters of it (/proc/PID/io)."""

import os
import time

from scenario import Unit, attach, check, equal, kill_qosd, lookup, qosctl, snapshot, test, wait_for
from test_nested import new_slice

# Readings share a visit of all threads that was made within the last 20 ms (GAUGES_AGE_NSEC): figures may be as old as that
AGE = 0.05

# Executes a line of Python for each line that it reads from a FIFO, and writes its result to another one. Both are opened once:
# between two lines the process is in read(2) on the FIFO, and has made no call on files but those of the lines.
PROGRAM = r"""
import json, os, socket, sys, threading, time

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
    return {f"{kind}.{key}": value for kind, values in figures.items() if isinstance(values, dict) and kind != "calls"
            for key, value in values.items() if isinstance(value, int)}


@test(deadline=60, own_daemon=True, vm=True)
def calls_of_tasks():
    """The calls that the kernel counts in each task are counted once, with their bytes: of threads and children that have exited,
    and over a kill of qosd."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    truth, ours = u.io(), storage(u)["calls"]

    for line in ("for i in range(1000): os.pread(fd, 100, i) if i else globals().update(fd=os.open('data', os.O_RDONLY))",
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
    ("os.sendfile(out, fd, 0, 1000)", {"reads.count": 1, "reads.bytes": 1000}),
    ("os.copy_file_range(fd, out, 2000, 0, 0)", {"reads.count": 1, "reads.bytes": 2000, "writes.count": 1, "writes.bytes": 2000}),
    ("os.fsync(out); os.fdatasync(out)", {"syncs.count": 2}),
    ("os.ftruncate(out, 100)", {"changes.count": 1}),
    ("os.posix_fallocate(out, 0, 4096)", {"changes.count": 1}),
    ("os.fchmod(out, 0o600)", {"changes.count": 1}),
    ("os.mkdir('d'); os.rmdir('d')", {"creates.count": 1, "removes.count": 1}),
    ("os.link('out', 'hard'); os.symlink('out', 'soft')", {"creates.count": 2}),
    ("os.rename('hard', 'other'); os.unlink('other'); os.unlink('soft')", {"renames.count": 1, "removes.count": 2}),
    ("os.stat('out'); os.fstat(out); os.lstat('data')", {"lookups.count": 3}),
    ("failing(os.stat, 'absent')", {"lookups.count": 1, "lookups.errors": 1}),
    ("failing(os.open, 'absent', os.O_RDONLY)", {"opens.count": 1, "opens.errors": 1}),
    ("failing(os.mkdir, 'data')", {}),
    ("failing(os.rmdir, '.')", {}),
    ("r, w = os.pipe(); os.write(w, b'x' * 100); os.read(r, 100)", {}),
    ("a, b = socket.socketpair(); a.send(b'x'); b.recv(1); os.write(a.fileno(), b'y'); os.read(b.fileno(), 1)", {}),
    ("null = os.open('/dev/null', os.O_RDWR); os.write(null, b'x'); os.read(null, 1)", {}),
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
    for kind in ("reads", "writes", "syncs", "opens"):
        equal(figures[kind]["latency"]["count"], figures[kind]["count"], f"latency.count of {kind}")
        check(0 < figures[kind]["latency"]["mean"] <= figures[kind]["latency"]["max"], f"latency of {kind}: {figures[kind]}")


@test(deadline=60, vm=True, needs_program="storage_read_begin")
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
    """A slice has the calls of a unit in it, whether that is attached or not, and over a kill of qosd; none is counted twice."""
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
