#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures how right qosd is and what it costs, on the running system, as root; docs/bench/README.md says how.
Prints tables, and writes them, plots and raw data to a directory. Never fails because a number is bad: it says so."""

import argparse
import json
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


def machine(quick):
    with open("/proc/cpuinfo") as f:
        models = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    with open("/etc/os-release") as f:
        system = next(line.split("=")[1].strip().strip('"') for line in f if line.startswith("PRETTY_NAME"))
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "run": "quick" if quick else "full",
        "load average before": f"{os.getloadavg()[0]:.2f}",
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


def diagnose(runs, raw):
    subprocess.run([sys.executable, os.path.join(workload.HERE, "diagnosis.py"), f"--runs={runs}", f"--output={raw}"], check=True)
    with open(os.path.join(raw, "diagnosis.jsonl")) as f:
        return [json.loads(line) for line in f]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: to try it, not to publish it")
    parser.add_argument("--runs", type=int, metavar="N", help="of each scenario of a diagnosis (default: 20, with --quick 2)")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    # So that everything is taken down on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    began, before = time.monotonic(), cpu_times()
    results = {"machine": machine(args.quick)}
    with tempfile.TemporaryDirectory(prefix="qosd-bench-") as directory:
        # Servers of other users read in there
        os.chmod(directory, 0o755)
        workload.compile_helpers(directory)
        say("Accuracy")
        results["accuracy"] = accuracy.run(directory, args.quick, say_level)
        say("Comparison")
        results["comparison"] = comparison.run(directory, args.quick, say_comparison)
        say("Cost")
        results["cost"] = cost.run(directory, args.quick, say_cost)
        say("The daemon")
        results["daemon"] = daemon.run(directory, args.quick, say_watch)
        say("Diagnosis")
        results["diagnosis"] = diagnose(args.runs or (2 if args.quick else 20), os.path.join(args.output, "raw"))

    spent = [b - a for a, b in zip(before, cpu_times())]
    results["machine"]["CPU time the host kept for others"] = f"{spent[7] / sum(spent) * 100:.2f} %"
    results["machine"]["took"] = f"{(time.monotonic() - began) / 60:.1f} min"

    for name, content in report.write(results, args.output, TEMPLATE).items():
        say(f"\n{name}\n{content}")


if __name__ == "__main__":
    main()
