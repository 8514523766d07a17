#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the probe network costs an exchange: the run time of its BPF programs as the kernel counts it, without that of
empty programs, on servers at full load. On the running system, as root. Asserts nothing."""

import argparse
import contextlib
import csv
import os
import tempfile
import time

import cost
import workload

# What TCP counts by itself; all other programs of the probe follow segments through the kernel
FLOWS = ("network_state", "network_destroy", "network_move", "network_recovery", "network_rtt", "network_drop")
WORKLOADS = "nginx", "redis-p1", "redis-p16"
SLICES = 9
# BPF_PROG_TYPE_SOCK_OPS, of which no empty program is measured
SOCK_OPS = 13


def part_of(program):
    if not program.startswith("network_"):
        return "requests"
    return "flows" if program.startswith(FLOWS) else "segments"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="directory for the results")
    a = parser.parse_args()
    rows = []
    cost.TYPES[SOCK_OPS] = "tracing"
    os.sched_setaffinity(0, set(range(os.cpu_count())) - {cost.CPU} or {cost.CPU})

    with tempfile.TemporaryDirectory() as directory:
        workload.compile_helpers(directory)
        for name, title, per_exchange, _, make, commands in cost.workloads(directory):
            if name not in WORKLOADS:
                continue
            with make() as unit, contextlib.ExitStack() as stack:
                generators = [stack.enter_context(cost.Load(command)) for command in commands(unit)]
                time.sleep(1)
                measured = cost.bpf_time(unit, unit, generators, ["requests", "network"], per_exchange, SLICES)
            sums = {}
            for p in measured["programs"]:
                part = part_of(p["name"])
                sums[part] = sums.get(part, 0) + p["netNsecPerExchange"]
                rows.append((title, part, p["name"], f"{p['runsPerExchange']:.4f}", f"{p['nsecPerRun']:.1f}",
                             f"{p['netNsecPerExchange']:.2f}"))
            for part, nsec in sums.items():
                rows.append((title, part, "all", "", "", f"{nsec:.2f}"))
            print(f"{title}: " + ", ".join(f"{part} {nsec:.1f} ns" for part, nsec in sums.items()), flush=True)

    os.makedirs(f"{a.output}/raw", exist_ok=True)
    with open(f"{a.output}/raw/network.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["workload", "part", "program", "runs per exchange", "ns per run", "net ns per exchange"])
        w.writerows(rows)


if __name__ == "__main__":
    main()
