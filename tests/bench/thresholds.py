#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the cost of thresholds in the daemon, and the delay of their events: 64 units with eight thresholds each,
idle, and while all of them serve requests; then the time from a request to the event for the threshold that it
violates. Prints both, and writes the raw data. Runs on the running system, as root; it needs gcc, clang, and qosd
installed. Does not judge the results."""

import argparse
import csv
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack

# The sources may be on a read-only file system
sys.dont_write_bytecode = True

import qosd  # noqa: E402
import workload  # noqa: E402
from accuracy import quantile  # noqa: E402
from daemon import watch  # noqa: E402

UNITS = 64
PORT = 20100
TEMPLATE = "/run/systemd/system/qosd-bench-threshold@.service"
# Pause between requests to a unit
ROUND_SEC = .02
# Thresholds over two windows, for which the daemon reads each unit twice
RULES = ("a: requests.server.firstByte.p99 > 20ms over 1s for 200ms", "b: requests.server.latency.p90 > 20ms over 1s",
         "c: requests.server.rate > 100000 over 1s", "d: requests.server.inFlight > 1000 over 1s",
         "e: requests.server.firstByte.p99 > 20ms over 10s for 2s", "f: requests.server.latency.p50 > 20ms over 10s",
         "g: requests.server.errors.reset > 10 over 10s", "h: requests.server.latency.max > 1s over 10s")
# Time until the longest window has enough samples; states change until then
SETTLE_SEC = 12
# The window is empty before each request. A daemon that is delayed by less than its length still sees the request
CROSSED = "crossed: requests.server.count > 0 over 300ms"
# An event that takes longer, which is many times the window, counts as missed
TOLD_SEC = 10
# Crossings between two lines of progress; each takes most of a second
PROGRESS = 50


class Requesting:
    """Sends requests to all units, one to each at a time, for as long as the "with" block."""

    def __init__(self, ports):
        self.sockets = [socket.create_connection(("127.0.0.1", p)) for p in ports]
        self.ending = False
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.ending:
            for s in self.sockets:
                s.sendall(b"x" * 64)
            for s in self.sockets:
                s.recv(4096)
            time.sleep(ROUND_SEC)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        for s in self.sockets:
            s.close()


def news(unit):
    """Returns a generator of the states of the threshold from now on; raises TimeoutError if there is no event for
    TOLD_SEC."""
    replies = qosd._call("Monitor", {"units": [unit]}, timeout=TOLD_SEC, more=True)
    next(replies)
    # Other thresholds of the unit have events, too
    return (r["event"]["state"] for r in replies if r.get("event", {}).get("name") == "crossed")


def crossings(unit, port, number):
    """Returns the sorted times from a request to its event in seconds, and the number of missed events."""
    times, missed, moments = [], 0, random.Random(1)
    # Wait until earlier requests have left the window; before, the first request would not change the state
    time.sleep(1)
    states = news(unit)
    with socket.create_connection(("127.0.0.1", port)) as s:
        for i in range(number):
            if i % PROGRESS == 0:
                print(f"crossing {i} of {number}", file=sys.stderr, flush=True)
            # Requests are sent at random moments of the steps of 100 ms
            time.sleep(.1 + moments.random() * .1)
            sent = time.monotonic()
            s.sendall(b"x" * 64)
            try:
                while next(states) != "violated":
                    pass
                times.append(time.monotonic() - sent)
                s.recv(4096)
                while next(states) != "ok":
                    pass
            except TimeoutError:
                if len(times) + missed == i:
                    missed += 1
                    s.recv(4096)
                # By now the request has left the window, so that the next one changes the state again
                states = news(unit)
    return sorted(times), missed


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--output", default=".", help="directory for the raw data")
    p.add_argument("--seconds", type=int, default=30)
    p.add_argument("--crossings", type=int, default=500)
    a = p.parse_args()
    names = [f"qosd-bench-threshold@{PORT + i}.service" for i in range(UNITS)]
    rows = []

    def watched(what):
        w = watch(what, a.seconds)
        rows.append((what, UNITS, len(RULES), round(w["seconds"], 1), w["wakeUps"], round(w["cpuShare"], 5)))
        print(f"{what}: {w['cpuShare']:.2%} of a CPU, {w['wakeUps'] / w['seconds']:.1f} wake-ups/s", flush=True)

    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        subprocess.run([*workload.COMPILE, "-Wno-unused-parameter", f"{workload.HERE}/../scenarios/server.c",
                        f"{workload.HERE}/../scenarios/server-send.c", "-o", f"{directory}/server", "-pthread"],
                       check=True)
        with open(TEMPLATE, "w") as f:
            f.write(f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={directory}/server --mode=thread --port=%i\n")
        workload.systemctl("daemon-reload")
        try:
            workload.systemctl("start", *names)
            with ExitStack() as stack:
                for name in names:
                    stack.enter_context(qosd.Attached(name))
                watched("no thresholds, idle")
                for name in names:
                    for rule in RULES:
                        qosd.call("SetThreshold", unit=name, threshold=rule)
                time.sleep(SETTLE_SEC)
                watched("eight thresholds each, idle")
                with Requesting([PORT + i for i in range(UNITS)]):
                    time.sleep(SETTLE_SEC)
                    watched(f"eight thresholds each, {1 / ROUND_SEC:.0f} requests/s each at most")
                qosd.call("SetThreshold", unit=names[0], threshold=CROSSED)
                times, missed = crossings(names[0], PORT, a.crossings)
        finally:
            workload.systemctl("stop", *names)
            os.unlink(TEMPLATE)
            workload.systemctl("daemon-reload")

    if missed:
        print(f"{missed} of {a.crossings} crossings were not reported")
    if not times:
        return
    print(f"{len(times)} crossings reported after a median of {statistics.median(times) * 1000:.1f} ms, p99 "
          f"{quantile(times, .99) * 1000:.1f} ms,"
          f" at most {times[-1] * 1000:.1f} ms; {sum(t <= .105 for t in times)} within 105 ms")
    os.makedirs(f"{a.output}/raw", exist_ok=True)
    for name, header, content in (("thresholds", ["what", "units", "thresholds each", "seconds", "wake-ups", "CPUs"],
                                   rows),
                                  ("crossings", ["seconds from the request to the event"],
                                   [[f"{t:.6f}"] for t in times])):
        with open(f"{a.output}/raw/{name}.csv", "w", newline="") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow(header)
            w.writerows(content)


if __name__ == "__main__":
    main()
