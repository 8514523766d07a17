#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What terminals of 40, 50, 80 and 200 columns show is as it is stored in screens/.

test_screens.py QOSCTL                  compares
test_screens.py QOSCTL DIRECTORY        stores what is shown there, to be looked at before it is committed
"""

import os
import re
import sys
import unittest
from unittest import mock

import fake_qosd
import util_qosctl
from fake_qosd import SEC, demo, distribution, history
from util_qosctl import plain

COLUMNS = 40, 50, 80, 200
NOW = 1795737600 * SEC          # 2026-11-27 00:00:00 UTC
DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "screens")
WRITE = sys.argv[2] if sys.argv[2:] else None

# Name of the file, and arguments. What has lines of fixed widths is not for the narrowest ones
SCREENS = {
    "list": (COLUMNS, "list"),
    "status": (COLUMNS, "status", "nginx"),
    "status-degraded": (COLUMNS, "status", "intranet-wiki-with-a-rather-long-name@instance-number-17"),
    "probes": (COLUMNS, "probes"),
    "diagnose": (COLUMNS, "diagnose", "nginx", "--for=1s"),
    "status-threads": (COLUMNS, "status", "postgresql"),
    "threads": (COLUMNS, "threads", "nginx", "--for=1ms"),
    "resources": (COLUMNS, "resources", "nginx", "--for=1ms"),
    "thresholds": (COLUMNS, "list-thresholds"),
    "histogram": (COLUMNS[2:], "histogram", "nginx"),
    "history": (COLUMNS[2:], "history", "nginx"),
    "heatmap": (COLUMNS[2:], "heatmap", "nginx"),
    "metrics": (COLUMNS[2:], "list-metrics"),
}


class Screens(util_qosctl.Test):
    def setUp(self):
        # What is shown depends on the time
        clock = mock.patch.object(fake_qosd.time, "time_ns", lambda: NOW)
        clock.start()
        self.addCleanup(clock.stop)
        super().setUp()
        self.qosd.close()
        self.qosd = demo(self.qosd.path)
        self.qosd.histories["nginx.service"] = history("nginx.service", 360, begin=NOW - 3600 * SEC, gap=range(70, 85))
        self.qosd.diagnosis = {
            "verdict": "found", "summary": "waits for a CPU: thief.service had it for 54% of the waiting time",
            "text": "15.1k requests/s; mean time to first byte 279us: receive 0us, queue 265us, service 14.3us",
            "findings": [{"kind": "cpu", "certainty": "certain", "rule": "the rule",
                          "text": "Its threads wait for a CPU for 48.4us of the 90.4us of a request (54%)",
                          "next": "systemctl set-property thief.service CPUWeight=20"}],
            "excluded": [{"kind": kind, "share": 0}
                         for kind in ("quota", "disk", "lock", "memory", "dependency", "limit", "network")],
            "figures": {"threads": {state: 0.5 for state in self.STATES}}}
        # The longest name that there is
        self.qosd.programs.append({"program": "storage_aio_write_submit", "probe": "storage",
                                   "hook": "fentry/aio_write",
                                   "provides": "writes by libaio", "state": "attached", "runs": 1510000,
                                   "runTimeMean": 312, "recursionMisses": 7})
        shares = {state: 0.3 / 2 ** i for i, state in enumerate(self.STATES)}
        shares["runQueue"], shares["park"] = 0.41, 0.13
        waits = dict.fromkeys(self.STATES[3:], 1234)
        self.qosd.add("postgresql.service", rate=321,
                      requests__server__service=dict(distribution(3210, 94800), attributed=1, shares=shares),
                      contention={"covered": 10 * SEC, "threadTime": 60 * SEC, "shares": shares,
                                  "threads": {state: share * 6 for state, share in shares.items()},
                                  "waits": waits, "serving": {"share": 0.5, "threadTime": SEC, "shares": shares},
                                  "migrations": 38,
                                  "contextSwitches": {"voluntary": 1690, "involuntary": 180},
                                  "runQueueLatency": {"count": 1000, "p50": 17400, "p99": 4440000, "max": 10400000}})
        self.readings = 0
        self.qosd.do_Threads = self.do_threads
        self.qosd.do_Resources = self.do_resources
        self.qosd.thresholds = [
            self.qosd.threshold("nginx.service", "slow", "violated", 7600000, source="unitFile",
                                origin="/etc/systemd/system/nginx.service.d/50-qos.conf:3"),
            self.qosd.threshold("intranet-wiki-with-a-rather-long-name@instance-number-17.service", "fails", "ok", 0)]


    def times(self, state):
        """Times of a thread, which is in a state for most of the time between two readings."""
        return {s: self.readings * (900 if s == state else 10) for s in self.STATES}

    def do_threads(self, c, **p):
        self.readings += 1
        return [{"timestamp": 1, "threads": [self.thread(1000 + i, f"worker-{i}", state, self.times(state),
                                                         voluntary=1234 * self.readings)
                                             for i, state in enumerate(self.STATES)]}]

    def do_resources(self, c, **p):
        self.readings += 1
        return [{"timestamp": 1, "resources": [
            {"state": state, "kind": kind, "name": name, "waits": 100 * self.readings, "time": self.readings * time,
             "wakers": [{"name": "worker-1", "tid": 1001, "unit": "nginx.service", "waits": 8},
                        {"name": "thief", "tid": 3, "unit": "thief.service", "waits": 1}]}
            for state, kind, name, time in (("runQueue", "cpu", "thief.service", 900000000),
                                            ("park", "futex", "nginx: 0x10", 500000000),
                                            ("lock", "futex", "nginx:big", 40000000),
                                            ("disk", "device", "vda", 3000000))]}]


def show(test, arguments, columns):
    t = test.terminal(*arguments, columns=columns, env={"PAGER": ""})
    test.assertEqual(t.end(), 0, f"{arguments}: {t.output}")
    return plain(t.output.rsplit("\r\x1b[2K", 1)[-1]).replace("\r", "")


def show_top(test, columns):
    t = test.terminal("top", columns=columns, rows=12)
    end = t.wait_for(r"\x1b\[H.*nginx.*\x1b\[J")
    t.key("q")
    test.assertEqual(t.end(), 0)
    text = plain(t.output[:end].rsplit("\x1b[H", 1)[-1]).replace("\r", "")
    return re.sub(r"^\d\d:\d\d:\d\d", "00:00:00", text)


def compare(test, name, columns, text):
    path = f"{DIRECTORY}/{name}.{columns}"
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    if WRITE:
        with open(f"{WRITE}/{name}.{columns}", "w") as f:
            f.write(text)
    for line in text.splitlines():
        test.assertLessEqual(len(line), columns, f"{name}: {line}")
    if WRITE:
        return
    with open(path) as f:
        test.assertEqual(text, f.read(), f"{name} at {columns} columns is not as in {path}")


def add_tests():
    for name, (all_columns, *arguments) in SCREENS.items():
        for columns in all_columns:
            setattr(Screens, f"test_{name}_{columns}".replace("-", "_"),
                    lambda self, n=name, a=arguments, c=columns: compare(self, n, c, show(self, a, c)))
    for columns in COLUMNS:
        setattr(Screens, f"test_top_{columns}", lambda self, c=columns: compare(self, "top", c, show_top(self, c)))


if __name__ == "__main__":
    util_qosctl.QOSCTL = os.path.abspath(sys.argv[1])
    add_tests()
    unittest.main(argv=sys.argv[:1])
