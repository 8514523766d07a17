# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares qosd, and requests as pairs of system calls, which is how eBeeMetrics measures them, with a packet capture:
of the same unit with the same load in the same windows of a second, from a server that is mostly idle to one that is
saturated."""

import math
import os
import subprocess
import time
from array import array
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor

import qosd
from accuracy import ATTEMPTS, QUANTILES, describe
from capture import SNAPLEN, SNAPLEN_STREAMS, Capture, Void, pair, pair_streams
from workload import Grpc, Network, Nginx, Redis, load

SHARES = .05, .25, .5, .75, .9, 1
WINDOW_NSEC = 1000000000
# Windows begin at multiples of 100 ms: those of two readings do not overlap
READING_SEC = 1.1
# Time with load before the first window, and after the last one
MARGIN_SEC = .4
# Factor of the number of requests at saturation, with which the load lasts longer than the windows
SATURATED = 1.4
# Attempts to measure the maximum rate of a server; the first one is short
TRIES = 4
INSTRUMENTS = "qosd", "accept_close", "read_send"
STATISTICS = "throughput", "mean", "p50", "p90", "p99"
# With fewer samples on one side of it, a quantile is random, and absent from readings of qosd
MINIMUM_SAMPLES = 5


def workloads():
    """Yields name, title, server, number of connections, arguments of load.c, and the function that finds requests in a
    capture."""
    yield "http-close", "HTTP, a connection per request", Nginx, 32, ("http", "/", ("--per-connection", "1")), pair
    yield "http", "HTTP, kept connections", Nginx, 32, ("http", "/", ()), pair
    yield "grpc", "gRPC", Grpc, 8, ("grpc", "/lab.Words/One", ()), pair_streams
    yield "redis", "Redis", Redis, 32, ("redis", "bench", ()), pair


class Pairings:
    """Runs pairings.c for as long as the "with" block. After it, samples() returns the samples of a pairing, each with
    its end and its duration, in order."""

    def __init__(self, unit):
        self.directory = unit.directory
        self._process = subprocess.Popen(
            [f"{unit.directory}/pairings", f"{unit.directory}/pairings.bpf.o", unit.control_group(), unit.directory],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the pairings do not load")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        if self._process.wait() != 0:
            raise RuntimeError("the pairings failed")

    def samples(self, name):
        path, values = f"{self.directory}/{name}", array("Q")
        with open(path, "rb") as f:
            values.frombytes(f.read())
        os.unlink(path)
        return sorted(zip(values[0::2], values[1::2]))


def figures(samples, begin, end):
    """Returns figures of the samples that ended after begin, and not after end."""
    first, last = (bisect_right(samples, (t, math.inf)) for t in (begin, end))
    took = sorted(duration for _, duration in samples[first:last])
    return {"throughput": len(took) * 1e9 / (end - begin), **(describe(took) if took else {"count": 0})}


def figures_of_qosd(reading):
    server = reading["requests"]["server"]
    return {"throughput": server.get("rate"), **server.get("latency", {})}


def is_there(truth, statistic):
    q = QUANTILES.get(statistic, .5)
    return statistic in truth and (statistic not in QUANTILES or truth["count"] * min(q, 1 - q) >= MINIMUM_SAMPLES)


def fastest(unit, connections, what):
    """Returns the maximum rate in requests per second, with all connections busy: the best of some attempts, as some
    may be disturbed."""
    protocol, path, options = what
    rate = 500
    for _ in range(TRIES):
        rate = max(rate, load(protocol, path, int(rate), connections, options=options)(unit)["rate"])
    return rate


def measure(directory, network, workload, share, most, windows):
    _, _, make, connections, (protocol, path, options), find = workload
    seconds = 2 * MARGIN_SEC + windows * READING_SEC
    rate, number = share * most, int(share * most * seconds)
    if share == 1:
        # The maximum rate; the load must not end before the last window
        rate, number = 0, int(number * SATURATED)

    with make(directory).across(network) as unit:
        capture = Capture(network.INTERFACE, unit.port, f"{directory}/capture.pcap",
                          SNAPLEN_STREAMS if find is pair_streams else SNAPLEN)
        try:
            with qosd.Attached(unit.name) as attached, Pairings(unit) as pairings, ThreadPoolExecutor(1) as threads:
                client = threads.submit(load(protocol, path, number, connections, rate, options), unit)
                time.sleep(MARGIN_SEC)
                readings = []
                for _ in range(windows):
                    time.sleep(READING_SEC)
                    readings.append(qosd.call("Get", unit=unit.name, window=WINDOW_NSEC))
                client = client.result()
                total = attached.settled()
            capture.stop()
        except BaseException:
            capture.abort()
            raise

    wire = find(capture.path, unit.port)
    if len(wire) != client["count"]:
        raise Void(f"the capture has {len(wire)} requests, and the load generator {client['count']}")
    truth = sorted((last, last - first) for first, last in zip(wire.first_in, wire.last_out))
    paired = {name: pairings.samples(name) for name in INSTRUMENTS if name != "qosd"}
    readings = [r for r in readings if r["timestamp"] * 1000 <= truth[-1][0]]
    if not readings:
        raise Void("the load was over before a window was")

    rows = []
    for n, reading in enumerate(readings):
        end = reading["timestamp"] * 1000
        begin = end - reading["covered"]
        true = figures(truth, begin, end)
        for instrument in INSTRUMENTS:
            seen = figures_of_qosd(reading) if instrument == "qosd" else figures(paired[instrument], begin, end)
            rows += [{"window": n, "instrument": instrument, "statistic": s, "truth": true[s], "seen": seen.get(s)}
                     for s in STATISTICS if is_there(true, s)]
    return {
        "rate": client["rate"],
        "counts": {"wire": len(wire), "qosd": total["requests"]["server"].get("count"),
                   **{name: len(samples) for name, samples in paired.items()}},
        "rows": rows,
    }


def error(row):
    return None if row["seen"] is None else (row["seen"] - row["truth"]) / row["truth"]


def run(directory, quick, say):
    results = []
    with Network() as network:
        for workload in workloads():
            name, title, make, connections, what, _ = workload
            # With qosd and the pairings attached, as in all measurements
            with make(directory).across(network) as unit, qosd.Attached(unit.name):
                with Pairings(unit):
                    most = fastest(unit, connections, what)
            for share in SHARES[::5] if quick else SHARES:
                result = {"name": name, "title": title, "share": share, "most": most, "void": []}
                for _ in range(ATTEMPTS):
                    try:
                        result.update(measure(directory, network, workload, share, most, 1 if quick else 3))
                        break
                    except Void as reason:
                        result["void"].append(str(reason))
                results.append(result)
                say(result)
    return results
