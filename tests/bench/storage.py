#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on files by file system, compared with what fio says of itself: engines, block sizes, file systems. Calls and
bytes have to be equal, the mean latency within 2 % or 5 us, p99 within 3 %. What fio reads and writes besides, as its
libraries, is on another file system. And what observing costs: the same load with and without, in turns, and with
programs that count by path (path-walk.bpf.c). Where the kernel permits no programs at functions, the cost of what is
there alone, on a tmpfs, and on the file system of /var/tmp. Writes a table as CSV to standard output. On the running
system, as root; it needs fio, bpftool, and a disk or memory of 1 GiB. Asserts nothing."""

import argparse
import contextlib
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# The sources may be on a read-only file system
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scenarios"))

import filesystems  # noqa: E402
import scenario  # noqa: E402

UNIT = "qosd-bench-fio.service"
# Keeps the programs loaded
OTHER_UNIT = "qosd-bench-idle.service"
OUTPUT = "/run/qosd-bench-fio.json"
PATH_WALK = "/var/lib/qosd-build/tests/bench/path-walk.bpf.o"
PATH_LINKS = "/sys/fs/bpf/qosd-bench-paths"
SIZE = 8 << 20
ROUNDS = 15
FIELDS = ("filesystem", "engine", "what", "block", "options", "figure", "fio", "qosd", "off", "ok")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


@contextlib.contextmanager
def file_system(kind, directory):
    """Yields where it is mounted."""
    point, image = f"{directory}/{kind}", f"{directory}/{kind}.image"
    os.mkdir(point)
    with contextlib.ExitStack() as stack:
        if kind == "nfs":
            point = stack.enter_context(filesystems.mounted_nfs())[0]
        elif kind == "fuse":
            point = stack.enter_context(filesystems.slow_files())
        elif kind == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", "size=200m", "none", point)
        elif kind == "overlay":
            for name in "lower", "upper", "work":
                os.mkdir(f"{directory}/{name}")
            run("mount", "-t", "overlay", "-o", ",".join(f"{name}dir={directory}/{name}"
                                                         for name in ("lower", "upper", "work")), "none", point)
        else:
            with open(image, "wb") as f:
                f.truncate(400 << 20)
            run("mkfs." + kind, "-q", image)
            # A loop device: what that reads and writes itself is of no unit
            run("mount", "-o", "loop", "-t", kind, image, point)
        if kind not in ("nfs", "fuse"):
            stack.callback(run, "umount", point)
        yield point


def unit_file(unit):
    return f"/run/systemd/system/{unit}"


def write_unit(command, unit=UNIT):
    with open(unit_file(unit), "w") as f:
        f.write(f"[Service]\nType=oneshot\nExecStart={command}\n")
    run("systemctl", "daemon-reload")


@contextlib.contextmanager
def observed(unit=UNIT):
    run("qosctl", "attach", unit, "--probes=storage")
    try:
        yield
    finally:
        run("qosctl", "detach", unit)


@contextlib.contextmanager
def path_walk():
    """The programs that count by path meanwhile."""
    run("bpftool", "prog", "loadall", PATH_WALK, PATH_LINKS, "autoattach")
    try:
        yield
    finally:
        shutil.rmtree(PATH_LINKS)


def mount_row(point):
    snapshot = json.loads(run("qosctl", "show", "--json=short", "--window=total", UNIT))
    snapshot = snapshot[0] if isinstance(snapshot, list) else snapshot
    rows = [r for r in snapshot["storage"]["mounts"] if r.get("mount") == point]
    return snapshot["storage"], rows[0] if rows else None


def rows_of(figures):
    """Each figure with fio's value, ours, and whether they agree."""
    for what, truth, ours in figures:
        if ours is None:
            off, ok = "", False
        elif what.endswith("mean"):
            off = ours - truth
            ok = abs(off) <= max(0.02 * truth, 5000)
        elif what.endswith("p99"):
            off = ours - truth
            ok = abs(off) <= 0.03 * truth
        else:
            off = ours - truth
            ok = off == 0
        yield what, round(truth), ours, off and round(off), "yes" if ok else "no"


def read_job():
    with open(OUTPUT) as f:
        text = f.read()
    return json.loads(text[text.index("{"):])["jobs"][0]


def make_files(point, n, cached=True):
    """The files of so many threads of fio. cached: in the page cache, or none of it"""
    for i in range(n):
        path = f"{point}/bench.{i}.0"
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(bytes(SIZE))
        with open(path, "rb") as f:
            if cached:
                while f.read(1 << 20):
                    pass
            else:
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(kind, point, engine, what, block, options, n):
    job = {"name": "bench", "directory": point, "ioengine": engine, "rw": what, "bs": block, "size": SIZE,
           "io_size": n * block, "fallocate": "none", "group_reporting": 1, "thread": 1, "invalidate": 0,
           "random_generator": "tausworthe64", "lat_percentiles": 1, **options}
    arguments = " ".join(f"--{key}={value}" for key, value in job.items())
    # Made, and read once, by another process; of mmap each page is read from the disk
    make_files(point, job.get("numjobs", 1), cached=engine != "mmap")
    write_unit(f"/usr/bin/fio {arguments} --output-format=json --output={OUTPUT}")
    with observed():
        run("systemctl", "start", UNIT)
        time.sleep(0.1)
        storage, row = mount_row(point)
    fio = read_job()
    direction = "reads" if what.endswith("read") else "writes"
    truth = fio["read" if direction == "reads" else "write"]
    ours = (row or {}).get(direction, {})
    # "clat" is without the submission, in which the kernel may do all of it
    latency = "lat_ns" if engine in ("libaio", "io_uring") else "clat_ns"
    if engine == "mmap":
        figures = [("major faults", fio["majf"], storage["mapped"]["majorFaults"])]
    else:
        figures = [("calls", truth["total_ios"], ours.get("count")), ("bytes", truth["io_bytes"], ours.get("bytes")),
                   ("mean", truth[latency]["mean"], ours.get("latency", {}).get("mean")),
                   ("p99", truth[latency]["percentile"]["99.000000"], ours.get("latency", {}).get("p99"))]
    if "fsync" in options:
        syncs = (row or {}).get("syncs", {})
        figures += [("syncs", fio["sync"]["total_ios"], syncs.get("count")),
                    ("sync mean", fio["sync"]["lat_ns"]["mean"], syncs.get("latency", {}).get("mean"))]
    if storage["unseen"] != 0:
        figures.append(("unseen", 0, storage["unseen"]))
    return rows_of(figures)


def read_programs():
    """By name. The output is a line for each, and one for each map."""
    lines = [json.loads(line) for line in run("qosctl", "probes", "--json=short").splitlines()]
    return {p["program"]: p for p in lines if "program" in p}


def nsec_per_run(*programs):
    """Of programs of others, by the kernel's statistics."""
    known = {p["name"]: p for p in json.loads(run("bpftool", "-j", "prog", "show")) if p.get("run_cnt")}
    return [known[name]["run_time_ns"] / known[name]["run_cnt"] for name in programs]


def program_time():
    """Yields the run time of the programs at read(2), and its share of the time of such a call; then the same of those
    that count by path. With software emulation the relations are what can be compared, and not the times."""
    def both():
        programs = read_programs()
        return sum(p["runTime"] / p["runs"] for p in (programs[f"storage_read_{end}"] for end in ("begin", "end")))

    run("sysctl", "-qw", "kernel.bpf_stats_enabled=1")
    try:
        with observed():
            run("systemctl", "start", UNIT)
            nsec = both()
            yield "", "ns of both programs", round(nsec), "", "", ""
            yield "", "their share of a read", f"{nsec / read_job()['read']['clat_ns']['mean']:.3f}", "", "", ""
        with path_walk():
            run("systemctl", "start", UNIT)
            walk, nothing = nsec_per_run("path_read", "path_nothing")
            yield "path walk", "ns of its program", round(walk), "", "", ""
            yield "path walk", "ns of an empty program", round(nothing), "", "", ""
            yield "path walk", "its share of a read", f"{walk / read_job()['read']['clat_ns']['mean']:.3f}", "", "", ""
    finally:
        run("sysctl", "-qw", "kernel.bpf_stats_enabled=0")


def cost(point, seconds, rounds, ways):
    """Reads from the page cache, in turns: not observed, and in each of the ways. Yields operations per second, and CPU
    time for each in ns: the medians without and with, and the median of the differences of the rounds."""
    job = {"name": "bench", "directory": point, "ioengine": "psync", "rw": "randread", "bs": 4096, "size": SIZE,
           "time_based": 1, "runtime": seconds, "thread": 1, "invalidate": 0, "group_reporting": 1}
    arguments = " ".join(f"--{key}={value}" for key, value in job.items())
    make_files(point, 1)
    write_unit(f"/usr/bin/fio {arguments} --output-format=json --output={OUTPUT}")
    found = {way: [] for way in ("not observed", *ways)}
    for i in range(rounds):
        # A B, B A, ...
        for way in list(found)[::-1 if i % 2 else 1]:
            with ways.get(way, contextlib.nullcontext)():
                run("systemctl", "start", UNIT)
            fio = read_job()
            reads, cpu = fio["read"], (fio["usr_cpu"] + fio["sys_cpu"]) / 100
            found[way].append((reads["iops"], cpu * reads["runtime"] * 1e6 / reads["total_ios"]))
    for way in ways:
        for k, what in (0, "reads per second"), (1, "ns of CPU for a read"):
            without, with_ = ([f[k] for f in found[which]] for which in ("not observed", way))
            off = statistics.median(b - a for a, b in zip(without, with_))
            yield ("" if way == "qosd" else way, what, round(statistics.median(without)),
                   round(statistics.median(with_)), round(off), "")


def cases(quick):
    """File system, engine, what, block size, options, number of calls."""
    engines = ("psync", "libaio", "io_uring") if quick else ("sync", "psync", "vsync", "pvsync", "pvsync2", "libaio",
                                                             "io_uring", "posixaio", "splice", "mmap")
    for engine in engines:
        for what in "randread", "write":
            yield "ext4", engine, what, 4096, {}, 2000
    yield "ext4", "psync", "write", 4096, {"fsync": 10}, 300
    if quick:
        yield "tmpfs", "psync", "randread", 4096, {}, 2000
        return
    for engine in "psync", "libaio", "io_uring":
        for what in "randread", "randwrite":
            yield "ext4", engine, what, 4096, {"direct": 1}, 1000
        yield "ext4", engine, "randread", 4096, {"direct": 1, "iodepth": 16}, 1000
    for block in 512, 16384, 1 << 20:
        for what in "randread", "write":
            yield "ext4", "psync", what, block, {}, 32 if block == 1 << 20 else 1000
    yield "ext4", "psync", "write", 4096, {"fsync": 1}, 300
    yield "ext4", "psync", "randread", 4096, {"numjobs": 4}, 1000
    for kind in "xfs", "btrfs", "tmpfs", "overlay":
        for what in "randread", "write":
            yield kind, "psync", what, 4096, {}, 2000
        yield kind, "psync", "write", 4096, {"fsync": 10}, 200
        yield kind, "io_uring", "randread", 4096, {}, 1000
        if kind in ("xfs", "btrfs"):
            yield kind, "psync", "randread", 4096, {"direct": 1}, 1000
    for kind in "nfs", "fuse":
        for what in "randread", "write":
            yield kind, "psync", what, 4096, {}, 500
        yield kind, "psync", "write", 4096, {"fsync": 10}, 200
        yield kind, "io_uring", "randread", 4096, {}, 500
    yield "nfs", "psync", "randread", 4096, {"direct": 1}, 500


def functions_are_observed():
    with observed():
        return read_programs()["storage_read_begin"]["state"] == "attached"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some of the engines and file systems, and fewer rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the cost (default: %(default)s)")
    arguments = parser.parse_args()
    scenario.prefix = "qosd-bench"
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(FIELDS)
    write_unit("/bin/true")
    write_unit("/bin/true", OTHER_UNIT)
    complete = functions_are_observed()
    with tempfile.TemporaryDirectory(prefix="qosd-bench-", dir="/var/tmp") as directory, \
            contextlib.ExitStack() as stack:
        points = {}

        def point_of(kind):
            if kind not in points:
                try:
                    points[kind] = stack.enter_context(file_system(kind, directory))
                except (OSError, subprocess.CalledProcessError, scenario.Failed) as e:
                    points[kind] = None
                    print(f"{kind}: {e}", file=sys.stderr)
            return points[kind]

        points["var"] = directory
        if complete:
            with observed(OTHER_UNIT):
                list(measure("ext4", point_of("ext4"), "psync", "randread", 4096, {}, 5000))
                try:
                    for row in program_time():
                        out.writerow(("ext4", "psync", "randread", 4096, *row))
                except subprocess.CalledProcessError as e:
                    # What comes next takes longer
                    print(f"run time of the programs: {e}", file=sys.stderr)
        for kind in ("ext4",) if complete else ("tmpfs", "var"):
            ways = {"qosd": observed} | ({"path walk": path_walk} if complete else {})
            try:
                for row in cost(point_of(kind), 1, 3 if arguments.quick else arguments.rounds, ways):
                    out.writerow((kind, "psync", "randread", 4096, *row))
            except subprocess.CalledProcessError as e:
                print(f"cost on {kind}: {e}", file=sys.stderr)
        with observed(OTHER_UNIT):
            for kind, engine, what, block, options, n in cases(arguments.quick) if complete else ():
                sys.stdout.flush()
                if not point_of(kind):
                    continue
                shown = " ".join(f"{key}={value}" for key, value in options.items())
                try:
                    for row in measure(kind, points[kind], engine, what, block, options, n):
                        out.writerow((kind, engine, what, block, shown, *row))
                except (subprocess.CalledProcessError, KeyError, ValueError) as e:
                    print(f"{kind} {engine} {what} {block} {shown}: {e!r}", file=sys.stderr)
    for unit in UNIT, OTHER_UNIT:
        os.unlink(unit_file(unit))


if __name__ == "__main__":
    main()
