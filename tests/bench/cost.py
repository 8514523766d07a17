# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the cost of observing: the run time of the BPF programs as the kernel counts it, and the CPU time of server
and client per request, with and without qosd."""

import contextlib
import json
import os
import statistics
import subprocess
import time

import qosd
from workload import Datagrams, Nginx, Redis

# Names of program types, by their number in linux/bpf.h
TYPES = {8: "cgroup_skb", 26: "tracing"}
# Tracepoint that data passes on its way into any socket
QUEUEING = "sk_data_ready"
SETTLE_SEC = .06
# After a detach, the kernel needs some tenths of a second of CPU time to free programs and maps
DETACHED_SEC = .5
SLICE_SEC = .5
BUDGET_EXCHANGE_NSEC = 350
# For a service that is not observed, while another one is
BUDGET_UNOBSERVED_NSEC = 80
BUDGET_UNOBSERVED = .012
# Probes, their title, and the factor of the budgets, which are for requests alone
PROBES = ((["requests"], "requests", 1), (["requests", "cpu", "block", "memory"], "all probes", 2))
WITH_ALL_PROBES = "nginx", "redis-p1", "redis-p16"
# Server and load generator share one CPU: the placement of two processes on two CPUs by the scheduler, which changes
# from second to second, has no effect.
CPU = os.cpu_count() - 1


def workloads(directory):
    """Yields name, title, requests per exchange, budget for the CPU time, server, and load generators."""
    def pin(cpu):
        return ["taskset", "-c", str(cpu)]

    properties = (f"CPUAffinity={CPU}",)

    def wrk(*cpus):
        return lambda unit: [[*pin(cpu), "wrk", "-t1", "-c16", "-d3600s", f"http://{unit.address}:{unit.port}/"]
                             for cpu in cpus]

    def benchmark(pipeline, local=False):
        def commands(unit):
            server = ["-s", unit.path] if local else ["-h", unit.address, "-p", str(unit.port)]
            return [[*pin(CPU), "redis-benchmark", *server, "-t", "get", "-c", "50", "-n", "2000000000", "-P",
                     str(pipeline)]]
        return commands

    def datagrams(unit):
        return [[*pin(CPU), f"{directory}/datagrams", "request", str(unit.port)]]

    def nginx():
        return Nginx(directory, 1, properties)

    def both_cpus():
        return Nginx(directory, 2, ("CPUAffinity=0 1",), "worker_cpu_affinity auto")

    def redis(local=False):
        return Redis(directory, properties, local)

    def echo():
        return Datagrams(directory, properties)

    yield "nginx", "nginx, keep-alive, 16 connections", 1, .01, nginx, wrk(CPU)
    yield "redis-p1", "Redis, 50 connections", 1, .025, redis, benchmark(1)
    yield "redis-p16", "Redis, 50 connections, 16 GETs at once", 16, .08, redis, benchmark(16)
    yield "redis-unix", "Redis, 50 connections on a Unix socket", 1, .025, lambda: redis(True), benchmark(1, True)
    yield "udp", "UDP, 16 requests at a time", 1, .025, echo, datagrams
    if os.cpu_count() > 1:
        yield "nginx-2", "nginx, on two CPUs at once", 1, .01, both_cpus, wrk(0, 1)


class Load:
    """Runs a load generator for as long as the "with" block."""

    def __init__(self, command):
        self.command = command

    def __enter__(self):
        self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def pid(self):
        return self._process.pid

    def check(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.command} ended with status {self._process.returncode}")


def run_nsec(pids):
    """Returns the CPU time of all threads of these processes. The kernel's own work for a packet is part of it, unless
    it accounts for interrupts by themselves (CONFIG_IRQ_TIME_ACCOUNTING)."""
    spent = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                spent += int(f.read().split()[0])
    return spent


class Sample:
    """The CPU time per request from here to end(). spent: returns the CPU time so far."""

    def __init__(self, unit, spent):
        self.unit = unit
        self._spent = spent
        self._time, self._busy, self._served = time.monotonic_ns(), spent(), unit.served()

    def end(self):
        took = time.monotonic_ns() - self._time
        busy = self._spent() - self._busy
        served = self.unit.served() - self._served
        return {"seconds": took / 1e9, "busy": busy / 1e9, "requests": served, "nsecPerRequest": busy / served}


def spread(values):
    """Returns median, quartiles, and the 95 % confidence interval of the median."""
    ordered = sorted(values)
    n = len(ordered)
    q1, median, q3 = statistics.quantiles(ordered, n=4, method="inclusive")
    reach = .98 * n ** .5
    return {"median": median, "q1": q1, "q3": q3, "low": ordered[max(0, int(n / 2 - reach))],
            "high": ordered[min(n - 1, int(n / 2 + reach))], "n": n}


def cpu_per_request(unit, observed, generators, probes, rounds, seconds):
    """Returns the CPU time per request of unit, while observed is attached (B), and while it is not (A).

    The order is B A A B A A: each B is compared with the next A, less than a second later, as the speed of a virtual
    machine drifts by several percent a second. A comparison of this A with the next one shows the error that
    remains."""
    samples = {"observed": [], "without": [], "again": []}
    pids = [*unit.pids(), *(g.pid() for g in generators)]

    def sample(name):
        time.sleep(SETTLE_SEC)
        s = Sample(unit, lambda: run_nsec(pids))
        time.sleep(seconds)
        samples[name].append(s.end())
        for g in generators:
            g.check()

    for _ in range(rounds):
        with qosd.Attached(observed.name, probes=probes):
            sample("observed")
        time.sleep(DETACHED_SEC)
        sample("without")
        sample("again")

    b, a, again = ([s["nsecPerRequest"] for s in samples[name]] for name in ("observed", "without", "again"))
    return {
        "samples": samples,
        "nsecPerRequest": statistics.median(a + again),
        "difference": spread([x / y - 1 for x, y in zip(b, a)]),
        "unrest": spread([x / y - 1 for x, y in zip(a, again)]),
    }


def calibrate(directory):
    """Returns nanoseconds of what programs do most often, by calibration.c: they depend on the machine, and on the
    hour."""
    return json.loads(subprocess.run([f"{directory}/calibration", f"{directory}/calibration.bpf.o"], check=True,
                                     text=True,
                                     stdout=subprocess.PIPE).stdout)


class Programs:
    """Runs programs.c, which enables run-time statistics, for as long as the "with" block."""

    def __init__(self, unit, tracepoint):
        self.unit = unit
        self.tracepoint = tracepoint

    def __enter__(self):
        self._process = subprocess.Popen([f"{self.unit.directory}/programs", self.unit.control_group(),
                                          self.tracepoint], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.nothing = json.loads(self._process.stdout.readline())
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()

    def read(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return {int(i): p for i, p in json.loads(self._process.stdout.readline()).items()}


def bpf_time(unit, observed, generators, probes, per_exchange, slices):
    programs, totals, nothing_nsec = {}, [], {name: [] for name in TYPES.values()}

    with qosd.Attached(observed.name, probes=probes), Programs(unit, QUEUEING) as p:
        ours = qosd.programs()
        if not ours:
            raise RuntimeError("the daemon has no BPF program attached")
        time.sleep(SETTLE_SEC)
        for _ in range(slices):
            before, served = p.read(), unit.served()
            time.sleep(SLICE_SEC)
            for g in generators:
                g.check()
            after, exchanges = p.read(), (unit.served() - served) / per_exchange

            def grown(i):
                return after[i]["time"] - before[i]["time"], after[i]["runs"] - before[i]["runs"]

            nothing = {}
            for name, i in p.nothing.items():
                spent, runs = grown(i)
                # On Unix sockets there are no packets, and no program for them runs
                if runs > 0:
                    nothing[name] = spent / runs
                    nothing_nsec[name].append(nothing[name])

            total = 0
            for i in sorted(ours & before.keys() & after.keys()):
                spent, runs = grown(i)
                # Programs of other types are run by the daemon itself, not by what the server does
                if runs == 0 or after[i]["type"] not in TYPES:
                    continue
                net = (spent - runs * nothing[TYPES[after[i]["type"]]]) / exchanges
                total += net
                programs.setdefault(after[i]["name"], []).append((runs / exchanges, spent / runs, net))
            totals.append(total)

    return {
        "nothing": {name: statistics.median(values) for name, values in nothing_nsec.items() if values},
        "programs": [{
            "name": qosd.program_name(name),
            "runsPerExchange": statistics.median(v[0] for v in values),
            "nsecPerRun": statistics.median(v[1] for v in values),
            "netNsecPerExchange": statistics.median(v[2] for v in values),
        } for name, values in sorted(programs.items())],
        "slices": totals,
        "netNsecPerExchange": spread(totals),
    }


def run(directory, quick, say):
    rounds, seconds, slices = (12, .12, 3) if quick else (120, .12, 9)
    results = []
    # Keep off the CPU of the load
    os.sched_setaffinity(0, set(range(os.cpu_count())) - {CPU} or {CPU})

    def measure(unit, observed, generators, probes, per_exchange, **result):
        result |= {"requestsPerExchange": per_exchange, "calibration": calibrate(directory),
                   "cpu": cpu_per_request(unit, observed, generators, probes, rounds, seconds),
                   "bpf": bpf_time(unit, observed, generators, probes, per_exchange, slices)}
        results.append(result)
        say(result)

    for name, title, per_exchange, budget, make, commands in workloads(directory):
        with make() as unit, contextlib.ExitStack() as stack:
            generators = [stack.enter_context(Load(command)) for command in commands(unit)]
            time.sleep(1)
            for probes, what, allowed in PROBES if name in WITH_ALL_PROBES else PROBES[:1]:
                measure(unit, unit, generators, probes, per_exchange, name=f"{name}: {what}", title=f"{title}: {what}",
                        budget=budget * allowed, budgetNsec=BUDGET_EXCHANGE_NSEC * allowed)
            if name == "redis-p1":
                with Nginx(directory) as observed:
                    measure(unit, observed, generators, ["requests"], per_exchange, name=f"{name}: beside",
                            title=f"{title}: not observed, beside an idle nginx that is", budget=BUDGET_UNOBSERVED,
                            budgetNsec=BUDGET_UNOBSERVED_NSEC)
    os.sched_setaffinity(0, range(os.cpu_count()))
    return results
