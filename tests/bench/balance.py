#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures a manager that acts on figures of qosd: Redis under an even load, beside batch work that takes all CPUs;
without qos-balance, with it, and with the same program that is given pairs of system calls instead of qosd's figures,
which is how eBeeMetrics measures requests. The target is chosen by a measurement without a manager, so that some of the
batch work can run. Prints in how many windows of 1 s the target was met, and the CPU time of the batch units, and
writes a plot and the raw data. Runs on the running system, as root; it needs gcc, clang, Redis, and qosd with
qos-balance and libqosd's header installed. Does not judge the results."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time

# The sources may be on a read-only file system
sys.dont_write_bytecode = True

import workload  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = "/run/systemd/system"
PORT = 16399
VICTIM = "bench-balance-redis.service"
BALANCE = "bench-balance.service"
GUARD = "bench-balance-release.service"
BATCH = [f"bench-balance-batch{i}.service" for i in range(4)]
# Sources of the manager's figures: libqosd, or this map of pairings.bpf.c
FEEDS = (("qosd", None), ("read to send", "read_send"), ("accept to close", "accept_close"))
METRIC = "requests.server.firstByte.p99"
# Duration with each number of batch units, before the target is chosen
MEASURE_SEC = 10
# Time until the manager has settled, for which it needs some attempts
SETTLE_SEC = 20
# Ratio of the figures that the target is chosen between; if it is smaller, the target is within their variation
APART = 2


def run(*command, check=True):
    return subprocess.run(command, check=check, text=True, stdout=subprocess.PIPE).stdout


def write(name, text):
    with open(f"{UNITS}/{name}", "w") as f:
        f.write(text)


def figure():
    """Returns p99 of the last second in nanoseconds, or None if it is absent."""
    s = json.loads(run("qosctl", "status", VICTIM, "--window=1s", "--json=short"))
    return s["requests"]["server"]["firstByte"].get("p99")


def batch_usec():
    used = 0
    for name in BATCH:
        group = run("systemctl", "show", "-P", "ControlGroup", name).strip()
        if group:
            with open(f"/sys/fs/cgroup{group}/cpu.stat") as f:
                used += int(next(line.split()[1] for line in f if line.startswith("usage_usec ")))
    return used


def machine_usec():
    """Returns the CPU time of all but the idle threads on the whole machine."""
    with open("/proc/stat") as f:
        values = [int(n) for n in f.readline().split()[1:9]]
    return (sum(values) - values[3] - values[4]) * 1e6 / os.sysconf("SC_CLK_TCK")


def watch(phase, seconds, rows, start):
    """Adds a row for each second: time, phase, p99, CPUs of the batch units, and CPUs in use on the whole machine."""
    begin, before, busy, at = time.monotonic(), batch_usec(), machine_usec(), time.monotonic()
    for i in range(seconds):
        time.sleep(max(0, begin + i + 1 - time.monotonic()))
        now, used, busier = time.monotonic(), batch_usec(), machine_usec()
        rows.append((round(now - start, 2), phase, figure(), round((used - before) / 1e6 / (now - at), 3),
                     round((busier - busy) / 1e6 / (now - at), 3)))
        before, busy, at = used, busier, now


def met(rows, phase, target, skip=0):
    """Returns the number of windows that met the target, and of all. A window with too few requests for a p99 has
    missed it."""
    values = [r[2] for r in rows if r[1] == phase][skip:]
    return sum(v is not None and v <= target for v in values), len(values)


def median(rows, phase):
    values = sorted(r[2] for r in rows if r[1] == phase and r[2])
    if not values:
        sys.exit(f"With {phase} Redis serves too few requests for a p99.")
    return values[len(values) // 2]


def choose(rows, phases):
    """Returns a target that is met with one batch unit, or without any, but not with all of them, and the name of the
    former phase."""
    low = phases[1] if median(rows, phases[-1]) >= APART * median(rows, phases[1]) else phases[0]
    return round((median(rows, low) * median(rows, phases[-1])) ** 0.5), low


def batch_share(rows, phase, skip=0):
    values = [r[3] for r in rows if r[1] == phase][skip:]
    return sum(values) / max(len(values), 1)


def plot(path, rows, target):
    """Plots p99 over time on a logarithmic scale, above the CPU time of the batch units."""
    import math
    width, height, left, top = 1200, 260, 60, 20
    values = [r[2] for r in rows if r[2]]
    low, high = math.log10(min(values + [target])) - 0.1, math.log10(max(values + [target])) + 0.1
    span = rows[-1][0] or 1

    def x(t):
        return left + t / span * (width - left - 10)

    def y(v):
        return top + (high - math.log10(v)) / (high - low) * height

    def y2(v):
        return top + height + 130 - v / max([r[3] for r in rows] + [1]) * 100

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 180}" font-family="sans-serif" '
           'font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for decade in range(math.ceil(low), math.floor(high) + 1):
        name = f"{10 ** (decade - 6):g} ms"
        out.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(10 ** decade)}" y2="{y(10 ** decade)}" stroke="#ddd"/>'
                   f'<text x="5" y="{y(10 ** decade) + 4}">{name}</text>')
    out.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(target)}" y2="{y(target)}" stroke="#c00" '
               'stroke-dasharray="6 3"/>'
               f'<text x="{width - 60}" y="{y(target) - 4}" fill="#c00">target</text>')
    phase = None
    for r in rows:
        if r[1] != phase:
            phase = r[1]
            out.append(f'<line x1="{x(r[0])}" x2="{x(r[0])}" y1="{top}" y2="{height + 150}" stroke="#888"/><text '
                       f'x="{x(r[0]) + 4}" y="14">{phase}</text>')
    for points, color in (([(x(r[0]), y(r[2])) for r in rows if r[2]], "#036"),
                          ([(x(r[0]), y2(r[3])) for r in rows], "#693")):
        out.append(f'<polyline fill="none" stroke="{color}" '
                   f'points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
    out.append(f'<text x="5" y="{height + 90}">batch, CPUs</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--output", default=".", help="directory for the plot and the raw data")
    p.add_argument("--target-us", type=int,
                   help="default: the geometric mean of what it takes with one batch unit, and with all")
    p.add_argument("--seconds", type=int, default=SETTLE_SEC + 120,
                   help="with qos-balance, for each feed; half of it without")
    p.add_argument("--rate", type=int, default=2000, help="requests a second")
    a = p.parse_args()
    phases = [f"{n} batch unit{'' if n == 1 else 's'}" for n in range(len(BATCH) + 1)]
    rows = []
    before = os.getloadavg()[0]

    with tempfile.TemporaryDirectory() as directory:
        workload.compile_helpers(directory)
        load, paired = f"{directory}/load", f"{directory}/paired.so"
        run(*workload.COMPILE, "-fPIC", "-shared", f"{HERE}/paired.c", "-o", paired, "-lbpf")
        write(VICTIM,
              f"[Service]\nType=notify\nExecStart=redis-server --port {PORT} --save '' --appendonly no --supervised "
              "systemd\n")
        for name in BATCH:
            write(name,
                  "[Service]\nType=exec\nExecStart=sh -c 'for i in 1 2 3 4; do while :; do :; done & done; wait'\n")
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", VICTIM)
        run("redis-cli", "-p", str(PORT), "set", "key", "x" * 100)
        run("qosctl", "attach", VICTIM)
        client = None
        try:
            # A higher priority, so that the client does not wait for a CPU itself
            seconds = 30 + MEASURE_SEC * len(phases) + a.seconds // 2 + (a.seconds + 10) * len(FEEDS)
            client = subprocess.Popen(["nice", "-n", "-10", load, "--port", str(PORT), "--connections", "20", "--rate",
                                       str(a.rate),
                                       "--requests", str(a.rate * seconds), "redis", "key"], stdout=subprocess.DEVNULL)
            time.sleep(3)
            start = time.monotonic()
            for n, phase in enumerate(phases):
                if n > 0:
                    run("systemctl", "start", BATCH[n - 1])
                # The window of a second still has requests of the previous phase
                time.sleep(1)
                watch(phase, MEASURE_SEC, rows, start)
            target, low = choose(rows, phases)
            if a.target_us:
                target = a.target_us * 1000
            arguments = f"--unit={VICTIM} --target={target / 1000:.0f}us {' '.join(BATCH)}"
            write(GUARD, f"[Service]\nType=oneshot\nExecStart=qos-balance --release {arguments}\n")
            watch("without", a.seconds // 2, rows, start)
            group = run("systemctl", "show", "-P", "ControlGroup", VICTIM).strip()
            for feed, pairing in FEEDS:
                environment = "" if pairing is None else (
                    f"Environment=LD_PRELOAD={paired} PAIRED_OBJECT={directory}/pairings.bpf.o PAIRED_MAP={pairing} "
                    f"PAIRED_GROUP=/sys/fs/cgroup{group}\n")
                write(BALANCE,
                      f"[Unit]\nOnFailure={GUARD}\n[Service]\nType=notify\nNice=-5\n{environment}ExecStart=qos-balance "
                      f"--verbose {arguments}\n")
                run("systemctl", "daemon-reload")
                run("systemctl", "start", BALANCE)
                watch(feed, a.seconds, rows, start)
                run("systemctl", "stop", BALANCE)
        finally:
            if client:
                client.kill()
                client.wait()
            # The manager ends first, as units that it has frozen cannot be stopped
            run("systemctl", "stop", BALANCE, check=False)
            run("systemctl", "stop", *BATCH, VICTIM, check=False)
            run("qosctl", "detach", VICTIM, check=False)
            for name in (VICTIM, BALANCE, GUARD, *BATCH):
                if os.path.exists(f"{UNITS}/{name}"):
                    os.unlink(f"{UNITS}/{name}")
            run("systemctl", "daemon-reload")

    between = "as given by --target-us" if a.target_us else f"between that with {low} and that with {phases[-1]}"
    print(f"load average of the machine before: {before:.2f}; CPUs in use without batch work: "
          f"{sum(r[4] for r in rows if r[1] == phases[0]) / MEASURE_SEC:.2f} of {os.cpu_count()}\n")
    print("| without a manager | p99, median of the windows | smallest and largest    | CPUs that the batch "
          "units got |\n"
          "|-------------------|----------------------------|-------------------------|"
          "-------------------------------|")
    for phase in phases:
        values = [r[2] / 1e6 for r in rows if r[1] == phase and r[2]]
        extremes = f"{min(values):.2f} ms, {max(values):.2f} ms"
        print(f"| {phase:17} | {f'{median(rows, phase) / 1e6:.2f} ms':26} | {extremes:23} | "
              f"{batch_share(rows, phase):<29.2f} |")
    print(f"\ntarget of p99: {target / 1e6:.3f} ms, {between}\n")
    print(f"| {'manager fed by':15} | target met in windows of 1 s | CPUs that the batch units got "
          f"|\n|{'-' * 17}|{'-' * 30}|{'-' * 31}|")
    for phase, skip in ((phases[0], 0), ("without", 0), *((feed, SETTLE_SEC) for feed, _ in FEEDS)):
        good, n = met(rows, phase, target, skip)
        print(f"| {phase:15} | {f'{good} of {n} ({100 * good / max(n, 1):.0f} %)':28} | "
              f"{batch_share(rows, phase, skip):<29.2f} |")
    os.makedirs(f"{a.output}/raw", exist_ok=True)
    with open(f"{a.output}/raw/balance.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["second", "phase", METRIC, "batch CPUs", "CPUs in use"])
        w.writerows(rows)
    plot(f"{a.output}/balance.svg", rows, target)


if __name__ == "__main__":
    main()
