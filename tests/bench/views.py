#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Views of libqosd that are read while they are written to: ten million reads of Redis' under a load that takes all it
can get. Prints, and writes, in how many the count was not the sum of the buckets, and how long reading p99 took. On the
running system, as root; it needs gcc, Redis, and qosd with libqosd's header installed. Asserts nothing."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

# The sources may be on a read-only file system
sys.dont_write_bytecode = True

import workload  # noqa: E402

UNIT = "bench-views-redis.service"
PORT = 16398
WINDOWS = (("100ms", 10**8), ("1s", 10**9), ("10s", 10**10), ("total", 0))


def run(*command, check=True):
    return subprocess.run(command, check=check, text=True, stdout=subprocess.PIPE).stdout


def read(directory, window, reads):
    p = subprocess.Popen([f"{directory}/reader", "view", UNIT, str(reads), str(window)], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.readline()
    return json.loads(p.communicate("\n")[0])


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--output", default=".", help="directory for the raw data")
    p.add_argument("--reads", type=int, default=10**7)
    a = p.parse_args()
    rows = []

    with tempfile.TemporaryDirectory() as directory:
        workload.compile_helpers(directory)
        run(*workload.COMPILE, "-Wno-unused-parameter", f"{workload.HERE}/../scenarios/reader.c", "-o",
            f"{directory}/reader", "-lqosd", "-lsystemd")
        run("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--service-type=notify", "redis-server", "--port",
            str(PORT), "--save", "",
            "--appendonly", "no", "--supervised", "systemd")
        client = None
        try:
            run("qosctl", "attach", UNIT)
            run("redis-cli", "-p", str(PORT), "set", "key", "x" * 100)
            client = subprocess.Popen([f"{directory}/load", "--port", str(PORT), "--connections", "20", "--requests",
                                       str(10**9), "redis", "key"],
                                      stdout=subprocess.DEVNULL)
            for name, window in WINDOWS:
                got = read(directory, window, a.reads // len(WINDOWS))
                rate = json.loads(run("qosctl", "status", UNIT, "--window=10s",
                                      "--json=short"))["requests"]["server"]["rate"]
                rows.append((name, got["reads"], got["again"], got["torn"], got["backward"], got["medianTime"],
                             got["p99Time"], round(rate)))
                print(f"{name:6} {got['reads']:9,} reads, {got['torn']} torn, {got['again']} said to try again; median "
                      f"{got['medianTime'] / 1000:.2f} us,"
                      f" p99 {got['p99Time'] / 1000:.2f} us; {rate:,.0f} requests/s", flush=True)
        finally:
            if client:
                client.kill()
                client.wait()
            run("qosctl", "detach", UNIT, check=False)
            run("systemctl", "stop", UNIT, check=False)

    os.makedirs(f"{a.output}/raw", exist_ok=True)
    with open(f"{a.output}/raw/views.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["window", "reads", "again", "torn", "backward", "median ns", "p99 ns", "requests per second"])
        w.writerows(rows)


if __name__ == "__main__":
    main()
