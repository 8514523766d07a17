#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures how right qosd is and what it costs, on the running system, as root; docs/bench/README.md says how.
Prints tables, and writes them, plots and raw data to a directory. Never fails because a number is bad: it says so."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

# The sources may be on a read-only file system
sys.dont_write_bytecode = True

import accuracy  # noqa: E402
import comparison  # noqa: E402
import cost  # noqa: E402
import daemon  # noqa: E402
import report  # noqa: E402
import workload  # noqa: E402

TEMPLATE = os.path.join(workload.HERE, "../../docs/bench/README.md")


def command(*args):
    return subprocess.run(args, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def cpu_times():
    with open("/proc/stat") as f:
        return [int(n) for n in f.readline().split()[1:9]]


def machine():
    with open("/proc/cpuinfo") as f:
        models = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    with open("/etc/os-release") as f:
        system = next(line.split("=")[1].strip().strip('"') for line in f if line.startswith("PRETTY_NAME"))
    return {
        "CPUs": f"{os.cpu_count()}, {models[0] if models else os.uname().machine}",
        "kernel": os.uname().release,
        "system": system,
        "qosd": command("qosctl", "--version").splitlines()[0],
        "nginx": subprocess.run(["nginx", "-v"], check=True, text=True,
                                stderr=subprocess.PIPE).stderr.strip().split("/")[-1],
        "Redis": command("redis-server", "--version").split("v=")[1].split()[0],
    }


def say(text):
    print(text, flush=True)


def say_level(level):
    if "rows" not in level:
        say(f"  {level['title']}: void ({level['void'][-1]})")
        return
    rows = [r for r in level["rows"] if r["source"] == "capture"]
    say(f"  {level['title']}: {level['rate']:,.0f}/s, {level['counts']['qosd']} of {level['counts']['capture']}"
        f" counted, {sum(map(report.within, rows))} of {len(rows)} figures within the budget")


def say_comparison(level):
    if "rows" not in level:
        say(f"  {level['title']}, {level['share']:.0%}: void ({level['void'][-1]})")
        return
    worst = [report.worst(level, name, "p99") for name in comparison.INSTRUMENTS]
    say(f"  {level['title']}, {level['share']:.0%}: {level['rate']:,.0f}/s, error of p99: {', '.join(worst)}")


def say_cost(result):
    say(f"  {result['title']}: {report.percent(result['cpu']['difference']['median'])} CPU a request,"
        f" {report.duration(result['bpf']['netNsecPerExchange']['median'])} of BPF an exchange")


def say_watch(w):
    say(f"  {w['name']}: {w['wakeUps']} wake-ups in {w['seconds']:.0f} s")


PARTS = {
    "accuracy": (accuracy.run, say_level),
    "comparison": (comparison.run, say_comparison),
    "cost": (cost.run, say_cost),
    "daemon": (daemon.run, say_watch),
}


def measure(part, directory, quick):
    """Its result, and under which circumstances it came about."""
    run, say_one = PARTS[part]
    date, load = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), os.getloadavg()[0]
    began, before = time.monotonic(), cpu_times()
    result = run(directory, quick, say_one)
    took = time.monotonic() - began
    spent = [b - a for a, b in zip(before, cpu_times())]
    return result, {"date": date + (" (quick)" if quick else ""), "took": f"{took / 60:.1f} min", "load": f"{load:.2f}",
                    "stolen": f"{spent[7] / sum(spent) * 100:.2f} %"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: to try it, not to publish it")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    args = parser.parse_args()
    if not set(args.parts) <= PARTS.keys():
        parser.error(f"a part is one of {', '.join(PARTS)}")
    os.makedirs(args.output, exist_ok=True)
    # So that everything is taken down on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    results, circumstances = {}, {}
    with tempfile.TemporaryDirectory(prefix="qosd-bench-") as directory:
        # Servers of other users read in there
        os.chmod(directory, 0o755)
        workload.compile_helpers(directory)
        for part in args.parts or PARTS:
            say(f"Measuring: {part}")
            results[part], circumstances[part] = measure(part, directory, args.quick)

    for name, content in report.write(machine(), results, circumstances, args.output, TEMPLATE).items():
        say(f"\n{name}\n{content}")


if __name__ == "__main__":
    main()
