#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls on files by file system, compared with what fio says of itself: engines, block sizes, file systems. Calls and
bytes have to be equal, the mean latency within 2 % or 5 us, p99 within 3 %. What fio reads and writes besides, as its
libraries, is on another file system. Then what observing costs: the same load with and without, in turns. Where the
kernel permits no programs at functions, the cost alone, on the file system of /var/tmp. Writes a table as CSV to
standard output. On the running system, as root; it needs fio, and a disk or memory of 1 GiB. Asserts nothing."""

import argparse
import contextlib
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

UNIT = "qosd-bench-fio.service"
UNIT_FILE = f"/run/systemd/system/{UNIT}"
OUTPUT = "/run/qosd-bench-fio.json"
SIZE = 32 << 20
PAIRS = 15
FIELDS = ("filesystem", "engine", "what", "block", "options", "figure", "fio", "qosd", "off", "ok")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


@contextlib.contextmanager
def file_system(kind, directory):
    """Yields where it is mounted."""
    point, image = f"{directory}/{kind}", f"{directory}/{kind}.image"
    os.mkdir(point)
    with contextlib.ExitStack() as stack:
        if kind == "tmpfs":
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
        stack.callback(run, "umount", point)
        yield point


def write_unit(command):
    with open(UNIT_FILE, "w") as f:
        f.write(f"[Service]\nType=oneshot\nExecStart={command}\n")
    run("systemctl", "daemon-reload")


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


def measure(kind, point, engine, what, block, options, n):
    job = {"name": "bench", "directory": point, "ioengine": engine, "rw": what, "bs": block, "size": SIZE,
           "io_size": n * block, "fallocate": "none", "group_reporting": 1, "thread": 1, "invalidate": 0,
           "random_generator": "tausworthe64", "lat_percentiles": 1, **options}
    threads = job.get("numjobs", 1)
    arguments = " ".join(f"--{key}={value}" for key, value in job.items())
    # The files are made, and read once, by another process; of mmap each page is read from the disk
    run("fio", *arguments.split(), "--create_only=1", "--output=/dev/null")
    for i in range(threads):
        with open(f"{point}/bench.{i}.0", "rb") as f:
            if engine == "mmap":
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while f.read(1 << 20):
                    pass
    write_unit(f"/usr/bin/fio {arguments} --output-format=json --output={OUTPUT}")
    run("qosctl", "attach", UNIT, "--probes=storage")
    try:
        run("systemctl", "start", UNIT)
        time.sleep(0.1)
        storage, row = mount_row(point)
    finally:
        run("qosctl", "detach", UNIT)
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


def program_time(point):
    """Yields the run time of the programs at read(2), and its share of the time of such a call. With software emulation
    the share is what can be compared, and not the time."""
    run("sysctl", "-qw", "kernel.bpf_stats_enabled=1")
    run("qosctl", "attach", UNIT, "--probes=storage")
    try:
        run("systemctl", "start", UNIT)
        programs = read_programs()
        row = mount_row(point)[1]
    finally:
        run("qosctl", "detach", UNIT)
        run("sysctl", "-qw", "kernel.bpf_stats_enabled=0")
    both = [programs[f"storage_read_{end}"] for end in ("begin", "end")]
    nsec = sum(p["runTime"] / p["runs"] for p in both)
    yield "ns of both programs", round(nsec), "", "", ""
    yield "their share of a read", f"{nsec / row['reads']['latency']['mean']:.3f}", "", "", ""


def cost(point, seconds, pairs):
    """Reads from the page cache, not observed and observed, in turns. Yields operations per second, and CPU time for
    each in ns: the medians of both, and the median of the differences of the pairs."""
    job = {"name": "bench", "directory": point, "ioengine": "psync", "rw": "randread", "bs": 4096, "size": SIZE,
           "time_based": 1, "runtime": seconds, "thread": 1, "invalidate": 0, "group_reporting": 1}
    arguments = " ".join(f"--{key}={value}" for key, value in job.items())
    run("fio", *arguments.split(), "--create_only=1", "--output=/dev/null")
    with open(f"{point}/bench.0.0", "rb") as f:
        while f.read(1 << 20):
            pass
    write_unit(f"/usr/bin/fio {arguments} --output-format=json --output={OUTPUT}")
    found = []
    for i in range(2 * pairs):
        # A B, B A, ...
        observed = i % 4 in (1, 2)
        if observed:
            run("qosctl", "attach", UNIT, "--probes=storage")
        try:
            run("systemctl", "start", UNIT)
        finally:
            if observed:
                run("qosctl", "detach", UNIT)
        fio = read_job()
        reads, cpu = fio["read"], (fio["usr_cpu"] + fio["sys_cpu"]) / 100
        found.append((observed, reads["iops"], cpu * reads["runtime"] * 1e6 / reads["total_ios"]))
    for k, what in (1, "reads per second"), (2, "ns of CPU for a read"):
        without, with_ = ([f[k] for f in found if f[0] == observed] for observed in (False, True))
        off = statistics.median(b - a for a, b in zip(without, with_))
        yield what, round(statistics.median(without)), round(statistics.median(with_)), round(off), ""


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


def functions_are_observed():
    run("qosctl", "attach", UNIT, "--probes=storage")
    try:
        programs = read_programs()
    finally:
        run("qosctl", "detach", UNIT)
    return programs["storage_read_begin"]["state"] == "attached"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some of the engines and file systems, and fewer pairs")
    arguments = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(FIELDS)
    write_unit("/bin/true")
    complete = functions_are_observed()
    with tempfile.TemporaryDirectory(prefix="qosd-bench-", dir="/var/tmp") as directory, \
            contextlib.ExitStack() as stack:
        points = {}

        def point_of(kind):
            if kind not in points:
                try:
                    points[kind] = stack.enter_context(file_system(kind, directory))
                except subprocess.CalledProcessError as e:
                    points[kind] = None
                    print(f"{kind}: {e}", file=sys.stderr)
            return points[kind]

        for kind, engine, what, block, options, n in cases(arguments.quick) if complete else ():
            if not point_of(kind):
                continue
            shown = " ".join(f"{key}={value}" for key, value in options.items())
            try:
                for row in measure(kind, points[kind], engine, what, block, options, n):
                    out.writerow((kind, engine, what, block, shown, *row))
            except (subprocess.CalledProcessError, KeyError, ValueError) as e:
                print(f"{kind} {engine} {what} {block} {shown}: {e!r}", file=sys.stderr)
            sys.stdout.flush()
        kind, points["var"] = "ext4" if complete else "var", directory
        if complete:
            list(measure(kind, point_of(kind), "psync", "randread", 4096, {}, 5000))
            for row in program_time(points[kind]):
                out.writerow((kind, "psync", "randread", 4096, "", *row))
        for row in cost(point_of(kind), 1, 3 if arguments.quick else PAIRS):
            out.writerow((kind, "psync", "randread", 4096, "", *row))
    os.unlink(UNIT_FILE)


if __name__ == "__main__":
    main()
