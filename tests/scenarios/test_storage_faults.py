# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on file systems that are slow, fail, hang, or are seen otherwise by the unit than by the machine."""

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import time

import scenario
from diagnosing import diagnose, found, said
from filesystems import image, loop_device, mapped, mounted, mounted_nfs, slow_files
from scenario import attach, check, equal, kill_qosd, qosctl_json, test, wait_for
from test_storage import Mounts, Worker, counts, row_counts, rows, storage


NOBODY = 65534


def set_quota(device, uid, limit):
    """Limits the KiB that the user has in the file system: quotactl(2), Q_SETQUOTA with QIF_BLIMITS."""
    libc, limits = ctypes.CDLL(None, use_errno=True), struct.pack("8QI4x", limit, limit, *[0] * 6, 1)
    if libc.quotactl(0x800008 << 8, device.encode(), uid, limits) != 0:
        raise OSError(ctypes.get_errno(), "quotactl")


def round_trips(point):
    """Operations of NFS on the mount, and their time in ms, as the kernel counts them for the whole machine."""
    with open("/proc/self/mountstats") as f:
        text = f.read()
    lines = text[text.index(f" mounted on {point} "):].split("per-op statistics\n")[1].split("\ndevice")[0]
    numbers = [line.split(":")[1].split() for line in lines.splitlines() if ":" in line]
    return sum(int(n[0]) for n in numbers), sum(int(n[6]) for n in numbers)


def timed(u, line):
    """ns in which the program executes the line."""
    begun = time.monotonic_ns()
    u.do(line)
    return time.monotonic_ns() - begun


def longest(latency, n, least, passed, error, what):
    """n calls have taken at least so long each, and no longer than all of the line has. error: of quantiles"""
    equal(latency["count"], n, f"latency.count of {what}")
    check(least <= latency["mean"] and n * latency["mean"] <= passed and latency["max"] <= passed,
          f"latency of {what}: {latency} instead of {least} and more, {passed} ns together")
    check(latency["p50"] >= least * (1 - error), f"median of {what}: {latency}")


@test(deadline=90, vm="nightly", needs_program="storage_read_begin")
def known_latency():
    """Calls on a file system whose server sleeps for 10 ms take that long, in the unit and in the row."""
    with slow_files(read=10000, write=10000, sync=10000) as point:
        u = Worker()
        attach(u, "--probes=storage")
        u.start()
        u.do(f"f = os.open({point + '/file'!r}, os.O_CREAT|os.O_RDWR)")
        for kind, line in (("writes", "[os.pwrite(f, b'x' * 100, 0) for i in range(30)]"),
                           ("reads", "[os.pread(f, 100, 0) for i in range(30)]"),
                           ("syncs", "[os.fsync(f) for i in range(30)]")):
            passed = timed(u, line)
            row = rows(u)[point][kind]
            longest(row["latency"], 30, 10_000_000, passed, 0.172, f"{kind}, row")
            figures = storage(u)[kind]
            check(figures["latency"]["max"] >= row["latency"]["max"] >= 10_000_000, f"{figures}, {row}")
        u.do("os.close(f)")


@test(deadline=90, vm="nightly", needs_program="storage_read_begin")
def slow_device():
    """Direct reads of a device with a delay of 20 ms take that long, less the tick of 4 ms that has begun."""
    with image(8 << 20) as path, mapped(path, "delay {device} 0 20") as device:
        u = Worker()
        attach(u, "--probes=cpu,storage")
        u.start()
        u.do(f"import mmap; m = mmap.mmap(-1, 4096); f = os.open({device!r}, os.O_RDONLY|os.O_DIRECT)")
        before = storage(u)["reads"]["count"]
        passed = timed(u, "[os.preadv(f, [m], 4096 * i) for i in range(20)]")
        reads = storage(u)["reads"]
        equal(reads["count"] - before, 20, "reads")
        check(reads["latency"]["max"] >= 16_000_000, f"{reads}")
        slow = [s for s in qosctl_json("mounts", u.name, "--window=total")[0]["slow"] if s["operation"] == "read"]
        slow = [s for s in slow if s["name"] == os.path.basename(os.path.realpath(device))]
        # How long a single one is on the CPU, or waits for it, is a matter of the machine. Each does nothing else
        on_disk = sum(s["time"] * s["shares"]["disk"] for s in slow)
        check(len(slow) == 20 and all(s["time"] >= 16_000_000 for s in slow) and
              0.5 * sum(s["time"] for s in slow) < on_disk and sum(s["time"] for s in slow) <= passed and
              all(sum(s["shares"].get(state, 0) for state in ("disk", "running", "runQueue")) > 0.99 for s in slow),
              f"{slow} in {passed} ns")
        u.do("os.close(f)")


@test(deadline=90, vm="nightly", needs_program="storage_read_begin")
def failing_device():
    """Reads of a device that fails are errors of the file system on it."""
    with image(64 << 20, "ext4") as path:
        with loop_device(path) as device, mounted(device) as point, open(point + "/file", "wb") as f:
            f.write(b"x" * 100000)
        with mapped(path, "linear {device} 0") as device, mounted(device) as point:
            u = Worker()
            attach(u, "--probes=storage")
            u.start()
            u.do(f"f = os.open({point + '/file'!r}, os.O_RDONLY)")
            for command in (("reload", "--table", f"0 {64 << 11} error"), ("suspend", "--nolockfs"), ("resume",)):
                subprocess.run(["dmsetup", *command, os.path.basename(device)], check=True)
            u.do("[failing(os.pread, f, 100, 0) for i in range(7)]")
            reads = rows(u)[point]["reads"]
            equal((reads["count"], reads["errors"], reads["bytes"]), (7, 7, 0), "reads, errors and bytes")
            u.do("os.close(f)")


@test(deadline=60, vm="nightly", needs_program="storage_read_begin")
def exhausted_quota():
    """A write beyond the quota of the user is an error."""
    with image(64 << 20) as path:
        subprocess.run(["mkfs.ext4", "-q", "-O", "quota", path], check=True)
        with loop_device(path) as device, mounted(device, options="usrquota") as point:
            os.chmod(point, 0o1777)
            set_quota(device, NOBODY, 1024)
            u = Worker()
            attach(u, "--probes=storage")
            u.start()
            u.do(f"os.seteuid({NOBODY}); f = os.open({point + '/f'!r}, os.O_CREAT|os.O_RDWR); "
                 "os.pwrite(f, b'x' * (1 << 20), 0)\n"
                 "try:\n"
                 "    os.pwrite(f, b'x', 1 << 20)\n"
                 "    1 / 0\n"
                 "except OSError as e:\n"
                 "    assert e.errno == 122, e\n"
                 "os.seteuid(0); os.close(f)")
            writes = rows(u)[point]["writes"]
            equal((writes["count"], writes["errors"], writes["bytes"]), (2, 1, 1 << 20), "writes, errors and bytes")


@test(deadline=60, vm="nightly", needs_program="storage_open_begin")
def interrupted():
    """A call that a signal interrupts is an error, and has the time until then."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    u.do("import signal\n"
         "def interrupt(*_):\n"
         "    raise InterruptedError\n"
         "signal.signal(signal.SIGUSR1, interrupt)")
    fd = os.open(u.directory + "/data", os.O_RDWR)
    # An open of the file waits until the lease is given up
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    before = storage(u)["opens"]
    os.write(u.lines, b"failing(os.open, 'data', os.O_RDONLY)")
    wait_for("the call is in flight", lambda: storage(u).get("oldestInFlight", 0) > 100_000_000, 10)
    os.kill(u.main_pid, signal.SIGUSR1)
    check(os.read(u.results, 100) == b"done\n", "the call succeeded")
    os.close(fd)
    signal.signal(signal.SIGIO, old)
    wait_for("it has ended", lambda: storage(u)["inFlight"] == 0, 10)
    opens = storage(u)["opens"]
    equal((opens["count"] - before["count"], opens["errors"] - before["errors"]), (1, 1), "opens and errors")
    check(opens["latency"]["max"] >= 100_000_000, f"{opens}")


@test(deadline=90, vm="nightly", needs_program="storage_read_begin")
def other_roots():
    """A unit with a root directory of its own, and with directories bound elsewhere: its file systems have the names
    that the machine has for them."""
    root, bound = f"/var/tmp/{scenario.prefix}.root", f"/var/tmp/{scenario.prefix}.bound"
    with Mounts() as mounts:
        os.makedirs(root)
        subprocess.run(["mount", "--rbind", "--make-rslave", "/", root], check=True)
        mounts.points.append(root)
        mounts.make(bound)
        u = Worker(settings=f"RootDirectory={root}\nBindPaths={bound}:/mnt")
        attach(u, "--probes=storage")
        u.start()
        u.do("f = os.open('/mnt/f', os.O_CREAT|os.O_RDWR); [os.write(f, b'x') for i in range(11)]; "
             "g = os.open('data', os.O_RDWR); [os.pwrite(g, b'x', 0) for i in range(13)]")
        now = rows(u)
        equal(now[bound]["writes"]["count"], 11, "writes to what is bound")
        device = os.stat(u.directory).st_dev
        row = [r for r in now.values() if r.get("device") == f"{os.major(device)}:{os.minor(device)}"]
        equal((len(row), row[0]["mount"], row[0]["writes"]["count"]), (1, "/", 13), f"root: {now}")
        u.do("os.close(f); os.close(g)")
        u.stop()


@test(deadline=90, vm="nightly", own_daemon=True, needs_program="storage_read_begin")
def killed_units():
    """The calls of a process that is killed stay, and those of the next one are added."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    u.do("f = os.open('data', os.O_RDWR); [os.pread(f, 10, 0) for i in range(100)]")
    before, row = counts(storage(u)), row_counts(rows(u)["/"])
    scenario.run("systemctl", "kill", "--signal=KILL", u.name)
    wait_for("it is dead",
             lambda: scenario.run("systemctl", "show", "-PActiveState", u.name).stdout.strip() == "failed", 10)
    equal(counts(storage(u))["reads.count"], before["reads.count"], "reads of a process that was killed")
    os.close(u.lines)
    os.close(u.results)
    kill_qosd()
    scenario.run("systemctl", "reset-failed", u.name)
    u.start()
    started = counts(storage(u))["reads.count"]
    check(started >= before["reads.count"], f"{started} reads, {before['reads.count']} before")
    u.do("f = os.open('data', os.O_RDWR); [os.pread(f, 10, 0) for i in range(50)]")
    equal(counts(storage(u))["reads.count"], started + 50, "reads after a restart of the unit, and of qosd")
    check(row_counts(rows(u)["/"])["reads.count"] >= row["reads.count"] + 50, "reads of the row")


@test(deadline=300, vm="nightly", needs_program="storage_read_begin")
def short_lived_processes():
    """Of 10000 processes that read and exit, no call is lost."""
    u = Worker()
    attach(u, "--probes=storage")
    u.start()
    with Mounts() as mounts:
        point = u.directory + "/m"
        mounts.make(point)
        with open(point + "/short", "w") as f:
            f.write("ab\n")
        calls, truth = storage(u)["calls"], u.io()
        # Each shell reads a line of the file byte by byte
        u.do("child(lambda: os.execv('/bin/sh', ['sh', '-c', 'i=0; while [ $i -lt 10000 ]; do "
             "(read x) <m/short & (read x) <m/short & (read x) <m/short & (read x) <m/short & (read x) <m/short; "
             "wait; i=$((i + 5)); done']))")
        now, io, reads = storage(u), u.io(), rows(u)[point]["reads"]
    equal((reads["count"], reads["bytes"], reads["errors"]), (30000, 30000, 0), "reads of the file")
    equal((now["calls"]["reads"] - calls["reads"], now["calls"]["readBytes"] - calls["readBytes"]),
          (io["reads"] - truth["reads"], io["readBytes"] - truth["readBytes"]), "calls of tasks")
    equal(now["unseen"], 0, "reads and writes that are in no count")


@test(deadline=180, needs_vm="a server and a client of NFS in the kernel", vm="nightly")
def hanging_read():
    """A read from a server of NFS that does not respond is in flight, and grows older; the diagnosis names the mount,
    and the server. Once that responds, the read has taken so long."""
    with mounted_nfs() as (point, source, stop, resume):
        with open(point + "/file", "wb") as f:
            f.write(b"x" * 100000)
        u = Worker()
        attach(u, "--probes=cpu,storage")
        u.start()
        u.do(f"f = os.open({point + '/file'!r}, os.O_RDONLY|os.O_DIRECT); import mmap; m = mmap.mmap(-1, 4096); "
             "os.preadv(f, [m], 0)")
        reads = storage(u)["reads"]["count"]
        equal(storage(u)["inFlight"], 0, "calls in flight")
        truth, before = round_trips(point), rows(u)[point]
        u.do("[os.preadv(f, [m], 4096 * (i % 10)) for i in range(50)]")
        row, now = rows(u)[point], round_trips(point)
        check(truth[0] <= before["machineRoundTrips"] <= row["machineRoundTrips"] - 50 <= now[0] - 50 and
              before["machineRoundTripTime"] <= row["machineRoundTripTime"] <= now[1] * 1_000_000,
              f"{before}, {row}: round trips, from {truth} to {now}")
        reads += 50
        stop()
        os.write(u.lines, b"os.preadv(f, [m], 4096)")
        wait_for("the read hangs", lambda: storage(u).get("oldestInFlight", 0) > 2_000_000_000, 30)
        equal((storage(u)["inFlight"], storage(u)["reads"]["count"]), (1, reads), "calls in flight, and reads")
        d = diagnose(u)
        f = found(d, "disk")
        equal((f["mount"], f["resource"]), (point, source), f"the file system, and the server: {said(d)}")
        resume()
        check(os.read(u.results, 100) == b"done\n", "the read failed")
        wait_for("it has ended", lambda: storage(u)["inFlight"] == 0, 10)
        figures = storage(u)["reads"]
        equal(figures["count"], reads + 1, "reads")
        check(figures["latency"]["max"] > 2_000_000_000, f"{figures}")
        u.do("os.close(f)")
        u.stop()
