# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on files where the kernel permits no programs at functions: what tracepoints show, and that all else is absent,
with a reason."""

import time

from filesystems import image, loop_device, mounted, slow_files
from scenario import attach, check, equal, qosctl_json, test
from test_storage import BY_THREADS, RINGS, Worker, added, counts, rows, storage

FALLBACKS = ("storage_ext4_sync_begin", "storage_ext4_sync_end", "storage_ext4_unlink", "storage_direct_begin",
             "storage_direct_end", "storage_fuse_begin", "storage_fuse_end")


def programs():
    return {p["program"]: p for p in qosctl_json("probes") if "program" in p}


def functions_are_refused():
    """Whether the kernel of this machine does. If it does not, the programs that stand in are not loaded."""
    known = programs()
    if known["storage_read_begin"]["state"] != "attached":
        return True
    for name in FALLBACKS:
        equal((known[name]["state"], known[name]["reason"].endswith(" has all of that")), ("idle", True), name)
    return False


def submitted(figures):
    return {f"{kind}.{key}": n for kind, values in figures["submitted"].items() for key, n in values.items()
            if key != "time"}


@test(deadline=120, vm="nightly")
def by_tracepoints():
    """Syncs, removes, direct I/O and requests of io_uring on ext4 count once each, by file system, and with their
    latency. All that tracepoints do not show is absent, and has a reason."""
    with image(64 << 20, "ext4") as path, loop_device(path) as device, mounted(device) as point:
        u = Worker(parent=point)
        attach(u, "--probes=cpu,storage")
        u.start()
        if not functions_are_refused():
            u.stop()
            return
        with open(u.directory + "/rings.py", "w") as f:
            f.write(RINGS)
        u.do("sys.path.insert(0, directory); sys.dont_write_bytecode = True; from rings import *; import mmap; "
             "ring = Ring(); polled = Ring(SQPOLL); m = memoryview(mmap.mmap(-1, 65536)); "
             "pages = (ctypes.c_char * 65536).from_buffer(m); "
             "out = os.open('out', os.O_CREAT|os.O_RDWR); fd = os.open('data', os.O_RDONLY); "
             "d = os.open('data', os.O_RDONLY|os.O_DIRECT); w = os.open('direct', os.O_CREAT|os.O_RDWR|os.O_DIRECT); "
             "s = os.open('sync', os.O_CREAT|os.O_RDWR|os.O_SYNC); os.fsync(out)")

        for line, want in (
                ("[(os.pwrite(out, b'x', i), os.fsync(out)) for i in range(20)]; os.fdatasync(out)",
                 {"syncs.count": 21}),
                ("os.pwrite(s, b'x', 0)", {}),
                ("os.mkdir('d'); os.rmdir('d'); [os.close(os.open(f'f{i}', os.O_CREAT)) for i in range(9)]; "
                 "[os.unlink(f'f{i}') for i in range(9)]; failing(os.unlink, 'absent')", {"removes.count": 9}),
                ("[os.preadv(d, [m[:4096]], 4096 * (i % 20)) for i in range(50)]",
                 {"reads.count": 50, "reads.bytes": 50 * 4096}),
                ("os.preadv(d, [m[:4096]], 98304) == 1696 or 1 / 0", {"reads.count": 1, "reads.bytes": 1696}),
                ("[os.pwritev(w, [m[:8192]], 8192 * i) for i in range(30)]",
                 {"writes.count": 30, "writes.bytes": 30 * 8192}),
                ("[os.pread(fd, 100, i) for i in range(40)]; os.pwrite(out, b'y' * 100, 0)", {}),
                ("ring.run(*[(22, fd, buffer, 100, i) for i in range(30)]) == [100] * 30 or 1 / 0",
                 {"reads.count": 30, "reads.bytes": 3000}),
                ("ring.run(*[(22, d, pages, 4096, 4096 * i) for i in range(10)]) == [4096] * 10 or 1 / 0",
                 {"reads.count": 10, "reads.bytes": 40960}),
                ("ring.run((23, fd, buffer, 10, 0))[0] < 0 or 1 / 0", {"writes.count": 1, "writes.errors": 1}),
                *BY_THREADS):
            before, row_before = storage(u), rows(u)[point]
            u.do(line)
            now, row = storage(u), rows(u)[point]
            equal(added(counts(now) | submitted(now), counts(before) | submitted(before)), want, line)
            equal(added({"syncs.count": row["syncs"]["count"]} | submitted(row),
                        {"syncs.count": row_before["syncs"]["count"]} | submitted(row_before)),
                  {key: n for key, n in want.items() if key != "removes.count"}, f"row, {line}")

        figures = storage(u)
        latency = figures["syncs"]["latency"]
        equal(latency["count"], figures["syncs"]["count"], "latency.count of syncs")
        check(0 < latency["mean"] <= latency["max"] and abs(sum(figures["syncs"]["shares"].values()) - 1) < 1e-6,
              f"{figures['syncs']}")
        check(figures["submitted"]["reads"]["time"] > 0, f"{figures['submitted']}")
        for name in ("reads", "writes", "opens", "creates", "renames", "lookups", "changes", "unseen", "inFlight",
                     "amplification"):
            check(name not in figures, f"{name} is {figures.get(name)}")
        check({"cache", "mapped", "calls", "covered"} <= figures.keys(), f"only {list(figures)}")
        known = programs()
        for name in ("storage_read_begin", "storage_open_end", "storage_verify", "storage_rmdir_begin"):
            equal(known[name]["state"], "unavailable", name)
            check(known[name]["reason"], f"no reason for {name}")
        for name in FALLBACKS:
            equal(known[name]["state"], "attached", name)
        u.stop()


@test(deadline=60, vm="nightly")
def server_of_fuse():
    """Requests to a server of FUSE that sleeps for 10 ms take that long."""
    with slow_files(read=10000) as point:
        u = Worker()
        attach(u, "--probes=storage")
        u.start()
        if not functions_are_refused():
            return
        with open(point + "/file", "wb") as f:
            f.write(b"x" * 5000)
        u.do(f"f = os.open({point + '/file'!r}, os.O_RDONLY)")
        before = storage(u)["fuse"]
        begun = time.monotonic_ns()
        u.do("[os.pread(f, 100, 0) for i in range(30)]")
        passed = time.monotonic_ns() - begun
        now = storage(u)["fuse"]
        u.do("os.close(f)")
        equal(now["requests"] - before["requests"], 30, "requests")
        check(30 * 10_000_000 <= now["time"] - before["time"] <= passed, f"{now}, {before}, {passed} ns")
