# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares figures of qosd with those of a packet capture and of the load generator."""

import math
from bisect import bisect_left

import qosd
from capture import Capture, Void, pair
from workload import LARGE, Known, Network, Nginx, Redis, load, redis_benchmark, wrk

ATTEMPTS = 4
STATISTICS = ("mean", "p50", "p90", "p99")
QUANTILES = {"p50": .5, "p90": .9, "p99": .99}
# The larger of the two applies
TOLERANCE_NSEC = 5000
TOLERANCE_SHARE = {"mean": .02, "p50": .03, "p90": .03, "p99": .03}
# Phases are recorded in buckets that are 9 % wide: a quantile is the middle of a bucket, with an error of up to 4.4 %
COARSE_SHARE = .05
PHASES = ("receive", "queue", "service", "answer")
# Metrics that the load generators measure, too, and that are compared bucket by bucket
BINNED = ("firstByte", "latency")


def levels(quick):
    """Yields name, title, server and load of each level."""
    scale = .3 if quick else 1

    def n(requests):
        # Enough requests for p99
        return max(600, int(requests * scale))

    seconds = 1 if quick else 3
    ms = 1000000

    def http(rate, connections, duration, path="/", options=()):
        return load("http", path, n(rate * duration), connections, rate, options)

    def redis(rate, connections, duration):
        return load("redis", "bench", n(rate * duration), connections, rate)

    def known(*options):
        return lambda directory: Known(directory, *options)

    yield "nginx-1k", "nginx, 1,000/s, 16 connections", Nginx, http(1000, 16, 5)
    yield "nginx-8k", "nginx, 8,000/s, 32 connections", Nginx, http(8000, 32, 4)
    yield "nginx-conn", "nginx, 1,000/s, a connection per request", Nginx, \
        http(1000, 16, 4, options=("--per-connection", "1"))
    yield "nginx-large", f"nginx, 500/s, {LARGE // 1024} KiB responses", Nginx, http(500, 8, 4, "/large")
    yield "nginx-c1", "nginx, as fast as 1 connection can", Nginx, wrk(1, seconds)
    yield "nginx-c16", "nginx, saturated, 16 connections", Nginx, wrk(16, seconds)
    yield "nginx-c128", "nginx, saturated, 128 connections", Nginx, wrk(128, seconds)

    yield "redis-1k", "Redis, 1,000/s, 16 connections", Redis, redis(1000, 16, 5)
    yield "redis-8k", "Redis, 8,000/s, 32 connections", Redis, redis(8000, 32, 4)
    yield "redis-c1", "Redis, as fast as 1 connection can", Redis, redis_benchmark(1, n(60000))
    yield "redis-c50", "Redis, saturated, 50 connections", Redis, redis_benchmark(50, n(250000))
    yield "redis-p16", "Redis, saturated, 50 connections, 16 GETs at once", Redis, \
        redis_benchmark(50, 16 * n(100000), 16)

    raw = "--request", "64", "--answer", "64"

    def client(requests, connections, options=()):
        return load("raw", "64", n(requests), connections, options=("--answer", "64", *options))

    yield "known-1ms", "server that takes 1 ms, 4 threads", \
        known("--threads", "--delay", str(ms), *raw), client(4000, 4)
    yield "known-10ms", "server that takes 10 ms, 8 threads", \
        known("--threads", "--delay", str(10 * ms), *raw), client(2400, 8)
    yield "known-bimodal", "server that takes 1 ms or (20 %) 20 ms, 8 threads", \
        known("--threads", "--delay", str(ms), "--slow-delay", str(20 * ms), "--slow-percent", "20", *raw), \
        client(4000, 8)
    yield "known-queue", "server that takes 10 ms, 1 thread, 16 clients", \
        known("--delay", str(10 * ms), *raw), client(800, 16)
    yield "known-parts", "request and response in 3 parts each, 2 ms apart", \
        known("--delay", str(ms), "--parts", "3", "--gap", str(2 * ms), *raw), \
        client(600, 1, ("--parts", "3", "--gap", str(2 * ms)))


def quantile(ordered, q):
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def describe(ordered):
    return {
        "count": len(ordered),
        "mean": sum(ordered) / len(ordered),
        **{name: quantile(ordered, q) for name, q in QUANTILES.items()},
    }


def tolerance(metric, statistic, truth):
    share = COARSE_SHARE if metric in PHASES and statistic in QUANTILES else TOLERANCE_SHARE[statistic]
    return max(share * truth, TOLERANCE_NSEC)


def compare(source, metric, truth, seen):
    """Yields a row for each statistic, with the truth, the figure of qosd (None if absent), and the tolerance."""
    for statistic in STATISTICS:
        if statistic in truth:
            yield {"source": source, "metric": metric, "statistic": statistic, "truth": truth[statistic],
                   "qosd": seen.get(statistic), "tolerance": tolerance(metric, statistic, truth[statistic])}


def within(row):
    return row["qosd"] is not None and abs(row["qosd"] - row["truth"]) <= row["tolerance"]


def bin_like(buckets, ordered):
    """Returns the number of true durations in each bucket of qosd, (lower, upper], and of those in none."""
    rows, inside = [], 0
    for b in buckets:
        upper = b.get("upper", math.inf)
        n = bisect_left(ordered, upper + 1) - bisect_left(ordered, b["lower"] + 1)
        rows.append((b["lower"], upper, b["count"], n))
        inside += n
    return rows, len(ordered) - inside


def measure(directory, network, make, run):
    with make(directory).across(network) as unit:
        counts_itself = isinstance(unit, Redis)
        before = unit.served() if counts_itself else 0
        capture = Capture(network.INTERFACE, unit.port, f"{directory}/capture.pcap")
        try:
            with qosd.Attached(unit.name) as attached:
                client = run(unit)
                reading = attached.settled()
                packets = capture.stop()
                buckets = {metric: attached.buckets(metric) for metric in BINNED}
        except BaseException:
            capture.abort()
            raise
        # The first INFO command is in the second figure, which does not count the second INFO command yet
        served = unit.served() - before - 1 if counts_itself else None
        unit.stop()

        wire = pair(capture.path, unit.port)
        truth = {
            "firstByte": wire.durations(wire.first_in, wire.first_out),
            "latency": wire.durations(wire.first_in, wire.last_out),
            "receive": wire.durations(wire.first_in, wire.last_in),
            "answer": wire.durations(wire.first_out, wire.last_out),
        }
        if isinstance(unit, Known):
            reads = unit.reads()
            read = [reads[key] for key in zip(wire.port, wire.index)]
            truth["queue"] = wire.durations(wire.last_in, read)
            truth["service"] = wire.durations(read, wire.first_out)

    seen = reading["requests"]["server"]
    rows = []
    for metric, ordered in truth.items():
        rows += compare("capture", metric, describe(ordered), seen.get(metric, {}))
    for metric in BINNED:
        figures = client.get(metric)
        if figures:
            figures = figures if isinstance(figures, dict) else describe(figures)
            rows += compare("client", metric, figures, seen.get(metric, {}))

    histogram = []
    for metric in BINNED:
        binned, outside = bin_like(buckets[metric], truth[metric])
        histogram += [{"metric": metric, "lower": lower, "upper": upper, "qosd": ours, "capture": theirs}
                      for lower, upper, ours, theirs in binned]
        histogram.append({"metric": metric, "lower": None, "upper": None, "qosd": 0, "capture": outside})

    return {
        # If the times of the server are known, those of the client are exact enough for a verdict
        "known": isinstance(unit, Known),
        "packets": packets,
        "connections": wire.connections,
        "repeated": wire.repeated,
        "rate": client["rate"],
        "counts": {"capture": len(wire), "server": served, "client": client["count"], "clientExact": client["exact"],
                   "qosd": seen.get("count")},
        "rows": rows,
        "histogram": histogram,
    }


def run(directory, quick, say):
    results = []
    with Network() as network:
        for name, title, make, generator in levels(quick):
            result = {"name": name, "title": title, "void": []}
            for _ in range(ATTEMPTS):
                try:
                    result.update(measure(directory, network, make, generator))
                    break
                except Void as reason:
                    result["void"].append(str(reason))
            results.append(result)
            say(result)
    return results
