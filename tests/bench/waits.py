#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the cost of observing what a unit waits for: with qosd, and with other tools for the same purpose, on the
same work, in turns. Prints a table, and writes a plot and the raw data. Runs on the running system, as root; it needs
qosd, Redis, gcc, clang, bpftool, libbpf-tools and bpftrace. Does not judge the results."""

import argparse
import csv
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

import cost
import qosd
import report
from workload import Redis, Unit, compile_helpers, systemctl

SETTLE_SEC = .1
READY_SEC = 60
ANOTHER = "systemd-journald.service"
DISK_FILE = "/var/tmp/qosd-bench-disk"
CPU = cost.CPU
PIN = (f"CPUAffinity={CPU}",)


class Busy(Unit):
    """busy.c. Its turns are the voluntary context switches of its threads."""

    def __init__(self, directory, *arguments):
        super().__init__("busy", directory, PIN)
        self.arguments = arguments

    def command(self):
        return [f"{self.directory}/busy", *self.arguments]

    def __enter__(self):
        self.stop()
        subprocess.run(["systemd-run", "--quiet", "--collect", f"--unit={self.name}", "--service-type=exec",
                        *(f"--property={p}" for p in self.properties), "--", *self.command()], check=True)
        return self

    def served(self):
        return switches(self)


def main_pid(unit):
    return int(systemctl("show", "--value", "--property=MainPID", unit.name))


def switches(unit):
    """Returns the voluntary context switches of all threads of the main process of a unit."""
    count = 0
    pid = main_pid(unit)
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as f:
            count += sum(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches:"))
    return count


def kernels_pid(unit):
    """Returns the PID of the main process of a unit in the initial PID namespace, which BPF programs compare, and which
    differs in a container. The process is identified by its start time."""
    with open(f"/proc/{main_pid(unit)}/stat") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    said = subprocess.run(["bpftrace", "-q", "-e",
                           'iter:task { printf("%d %d %llu\\n", ctx->task->tgid, ctx->task->pid, '
                           'ctx->task->start_boottime); }'], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout
    rows = [list(map(int, line.split())) for line in said.splitlines() if line.count(" ") == 2]
    found = {tgid for tgid, pid, start in rows if tgid == pid and start // 10**7 == ticks}
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} processes were started when {unit.name} was")
    return found.pop()


# ---- what is compared --------------------------------------------------------------------------------------------

class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def processes(self):
        return []


class Daemon(qosd.Attached):
    def processes(self):
        return [qosd.pid()]


class Tool:
    """Runs a program for as long as the "with" block, which begins when its BPF programs are loaded."""

    def __init__(self, *command):
        self.command = command

    def __enter__(self):
        self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_SEC
        seen = None
        while True:
            time.sleep(.25)
            now = qosd.programs(self._process.pid)
            if now and now == seen:
                return self
            seen = now
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"{self.command[0]} does not load here")

    def __exit__(self, *_):
        # pairings.c ends at the end of its standard input, the other tools on SIGINT
        self._process.stdin.close()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def processes(self):
        return [self._process.pid]


def bpftool(*arguments):
    return json.loads(subprocess.run(["bpftool", "-j", *arguments], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout)


def instruments(unit):
    """Yields the names of instruments, and functions that start them for a unit."""
    pid = kernels_pid(unit)
    off = f"tracepoint:sched:sched_switch {{ if (args.prev_pid == {pid}) {{ @since = nsecs; }} " \
          f"if (args.next_pid == {pid} && @since) {{ @off = hist(nsecs - @since); }} }}"
    # Requests are always measured
    yield "qosd, requests and cpu", lambda: Daemon(unit.name, probes=["cpu"])
    yield "qosd, requests, cpu, block, memory", lambda: Daemon(unit.name, probes=["cpu", "block", "memory"])
    yield "qosd, the same of another unit", lambda: Daemon(ANOTHER, probes=["cpu", "block", "memory"])
    yield "offcputime", lambda: Tool("offcputime-libbpf", "-p", str(pid), "3600")
    yield "runqlat", lambda: Tool("runqlat-libbpf", "-p", str(pid), "3600", "1")
    yield "wakeuptime", lambda: Tool("wakeuptime-libbpf", "-p", str(pid), "3600")
    yield "biolatency", lambda: Tool("biolatency-libbpf", "-Q", "3600", "1")
    yield "bpftrace, off-CPU", lambda: Tool("bpftrace", "-q", "-e", off)
    yield "system calls, as Prism", lambda: Tool(f"{unit.directory}/pairings", f"{unit.directory}/tracer.bpf.o",
                                                 unit.control_group())


def loads(directory):
    """Yields name, title, tracepoint for the empty program, unit, and load generator."""
    def benchmark(unit):
        return ["taskset", "-c", str(CPU), "redis-benchmark", "-h", unit.address, "-p", str(unit.port), "-t", "get",
                "-c", "50", "-n", "2000000000"]

    yield "pipe", "two threads, a pipe", "sched_switch", Busy(directory, "pipe"), None
    yield "redis", "Redis, 50 connections", "sched_switch", Redis(directory, PIN), benchmark
    yield "disk", "reads of 4 KiB from the disk", "block_rq_issue", Busy(directory, "disk", DISK_FILE), None


# ---- measuring ---------------------------------------------------------------------------------------------------

def idle_nsec():
    """Returns the idle time of the CPU since boot. /proc/stat has the same figure in steps of 10 ms."""
    with open("/proc/timer_list") as f:
        _, _, ours = f.read().partition(f"\ncpu: {CPU}\n")
    found = re.findall(r"\.(?:idle|iowait)_sleeptime\s*:\s*(\d+) nsecs", ours.partition("\ncpu: ")[0])
    if not found:
        raise RuntimeError("/proc/timer_list does not say how long the CPU was idle")
    return sum(map(int, found))


def process_nsec(pids):
    """Returns the CPU time of processes and of children that they have waited for."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            ticks += sum(map(int, f.read().rpartition(")")[2].split()[11:15]))
    return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


def sample(unit, instrument, seconds):
    """Returns the CPU time per turn: of the CPU of the unit, and of the process of the instrument on other CPUs."""
    time.sleep(SETTLE_SEC)
    own, s = process_nsec(instrument.processes()), cost.Sample(unit, lambda: time.monotonic_ns() - idle_nsec())
    time.sleep(seconds)
    s = s.end()
    s["own"] = (process_nsec(instrument.processes()) - own) / s["requests"]
    return s


def books(unit, tracepoint, make, slices):
    """Returns the run time per turn of the instrument's BPF programs as the kernel counts it, less the time of an empty
    program for each run, and the memory of its maps."""
    with cost.Programs(unit, tracepoint) as p:
        with make() as instrument:
            ours = {i for process in instrument.processes() for i in qosd.programs(process)}
            maps = {m for program in bpftool("prog", "list") if program["id"] in ours
                    for m in program.get("map_ids", [])}
            memory = sum(m["bytes_memlock"] for m in bpftool("map", "list") if m["id"] in maps)
            turns = []
            for _ in range(slices):
                before, served = p.read(), unit.served()
                time.sleep(cost.SLICE_SEC)
                after, served = p.read(), unit.served() - served

                def grown(i):
                    return after[i]["time"] - before[i]["time"], after[i]["runs"] - before[i]["runs"]

                spent, runs = grown(p.nothing["tracing"])
                nothing = spent / runs if runs else 0
                total = 0
                for i in ours & before.keys() & after.keys():
                    spent, runs = grown(i)
                    total += spent - runs * nothing
                turns.append(total / served)
    return statistics.median(turns), memory


def measure(directory, rounds, seconds, slices, say):
    """Measures each load with each instrument, and right after that without any, in turns."""
    results, raw = [], []
    # Keep off the CPU of the load
    os.sched_setaffinity(0, set(range(os.cpu_count())) - {CPU} or {CPU})
    for name, title, tracepoint, unit, command in loads(directory):
        with unit:
            generator = cost.Load(command(unit)) if command else Nothing()
            with generator:
                time.sleep(1)
                for what, make in instruments(unit):
                    pairs, unrest, took = [], [], []
                    try:
                        for n in range(rounds):
                            with make() as instrument:
                                observed = sample(unit, instrument, seconds)
                            without, again = (sample(unit, Nothing(), seconds) for _ in range(2))
                            pairs.append((observed["nsecPerRequest"] + observed["own"]) / without["nsecPerRequest"] - 1)
                            took.append(without["nsecPerRequest"])
                            unrest.append(without["nsecPerRequest"] / again["nsecPerRequest"] - 1)
                            raw += [(name, what, n, k, s["seconds"], s["busy"], s["requests"], s["own"])
                                    for k, s in (("with", observed), ("without", without), ("again", again))]
                        bpf, memory = books(unit, tracepoint, make, slices)
                    except (RuntimeError, qosd.Error) as e:
                        say(f"{title}: {what}: {e}")
                        continue
                    r = {"load": name, "title": title, "what": what, "difference": cost.spread(pairs),
                         "unrest": cost.spread(unrest),
                         "nsec": statistics.median(took), "bpf": bpf, "memory": memory}
                    results.append(r)
                    say(f"{title}: {what}: {report.percent(r['difference']['median'])}, BPF {bpf:.0f} ns a turn")
    os.sched_setaffinity(0, range(os.cpu_count()))
    return results, raw


def table(results):
    return report.table(["load", "a turn takes", "instrument", "more CPU time a turn", "95 % sure", "A against A",
                         "BPF a turn, net", "maps"], [
        [r["title"], report.duration(r["nsec"]), r["what"], report.percent(r["difference"]["median"]),
         f"{report.percent(r['difference']['low'])} to {report.percent(r['difference']['high'])}",
         f"{report.percent(r['unrest']['low'])} to {report.percent(r['unrest']['high'])}",
         report.duration(r["bpf"]), report.size(r["memory"])] for r in results])


def plot(results, path):
    left, width, row, top = 420, 420, 20, 70
    titles = list(dict.fromkeys(r["title"] for r in results))
    d = report.Drawing(left + width + 90, top + row * (len(results) + 2 * len(titles)) + 20)
    d.text(20, 28, "What it costs to see the waits", size=17, weight="bold")
    d.text(20, 48,
           "CPU time of the whole machine per turn, with the instrument against without: median and its 95 % interval",
           fill=report.SOFT)
    most = max(max(r["difference"]["high"] for r in results), .01) * 1.1
    y = top
    for title in titles:
        ours = [r for r in results if r["title"] == title]
        d.text(20, y + 14, f"{title}: {report.duration(statistics.median(r['nsec'] for r in ours))} a turn",
               weight="bold")
        y += row
        for r in ours:
            low, median, high = (max(0, r["difference"][k]) / most * width for k in ("low", "median", "high"))
            d.text(left - 12, y + 14, r["what"], "end")
            d.rectangle(left, y + 4, median, row - 8, report.COLOURS[0 if r["what"].startswith("qosd") else 1])
            d.line(left + low, y + row / 2, left + high, y + row / 2, report.INK, 1.4)
            d.text(left + width + 8, y + 14, report.percent(r["difference"]["median"]))
            y += row
        y += row
    d.write(path)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--output", required=True, metavar="DIR")
    p.add_argument("--quick", action="store_true", help="fewer runs: to try it, not to publish it")
    a = p.parse_args()
    os.makedirs(a.output, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))

    with tempfile.TemporaryDirectory(prefix="qosd-bench-") as directory:
        os.chmod(directory, 0o755)
        compile_helpers(directory)
        try:
            results, raw = measure(directory, *((3, .2, 2) if a.quick else (15, .3, 5)),
                                   lambda text: print(text, flush=True))
        finally:
            if os.path.exists(DISK_FILE):
                os.unlink(DISK_FILE)

    print(table(results))
    os.makedirs(f"{a.output}/raw", exist_ok=True)
    with open(f"{a.output}/raw/waits.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["load", "instrument", "round", "what", "seconds", "busy", "turns", "own nsec a turn"])
        w.writerows(raw)
    plot(results, f"{a.output}/waits.svg")


if __name__ == "__main__":
    main()
