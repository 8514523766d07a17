# SPDX-License-Identifier: LGPL-2.1-or-later
"""Verbs of thresholds, and completion"""

import json
import os
import subprocess

import util_qosctl

from fake_qosd import SEC, USEC, Error
from util_qosctl import DEADLINE, Test


class Thresholds(Test):
    def setUp(self):
        super().setUp()
        self.qosd.add("nginx.service")
        self.qosd.add("redis.service")
        self.qosd.thresholds = [self.qosd.threshold("nginx.service", "slow", "violated", 31254321, good=999, total=1000,
                                                    burnRate60s=2.5, burnRate5min=.1, burnRate1h=14.4),
                                self.qosd.threshold("nginx.service", "idle", "ok", 1500, metric="requests.server.rate",
                                                    threshold="idle: requests.server.rate < 100 over 10s for 0s, clear "
                                                              "100 for 0s"),
                                self.qosd.threshold("redis.service", "slow", "ok", 1000, source="unitFile",
                                                    origin="/etc/x.conf:3")]

    def test_set_and_clear(self):
        self.assertEqual(self.out_of("set-threshold", "nginx", "a: b > 1"), "")
        self.assertEqual(self.qosd.calls[-1][1]["threshold"], "a: b > 1")
        self.assertEqual(json.loads(self.out_of("set-threshold", "nginx", "a: b > 1", "-j"))["threshold"],
                         "a: b > 1, clear 1ms")
        self.assertIn("expected a name and a colon", self.error_of("set-threshold", "nginx", "b > 1", status=2))
        self.assertEqual(json.loads(self.out_of("set-threshold", "nginx", "a:", "b", ">", "1", "-j"))["threshold"],
                         "a: b > 1, clear 1ms")
        self.assertIn("Expected a threshold", self.error_of("set-threshold", "nginx", status=2))
        self.assertEqual(self.out_of("clear-threshold", "nginx", "slow", "idle"), "")
        self.assertIn("no threshold 'fast'", self.error_of("clear-threshold", "nginx", "fast"))
        self.assertIn("Expected names of thresholds", self.error_of("clear-threshold", "nginx", status=2))

    def test_list(self):
        lines = [line.split() for line in self.out_of("list-thresholds", "--no-legend").splitlines()]
        self.assertEqual([line[:11] for line in lines],
                         [["nginx.service", "slow", "violated", "31.3ms", "99.900%", "2.50", "0.10", "-", "14.40", "-",
                           "administrator"],
                          ["nginx.service", "idle", "ok", "1.50k", *6 * "-", "administrator"],
                          ["redis.service", "slow", "ok", "1.00us", *6 * "-", "/etc/x.conf:3"]])
        self.assertIn("3 thresholds.", self.out_of("list-thresholds"))
        self.assertNotIn("redis", self.out_of("list-thresholds", "nginx"))
        self.assertEqual(len(self.out_of("list-thresholds", "-j", "n*").splitlines()), 2)
        # Bytes are in powers of 1024, as in limits; counts are not
        self.qosd.thresholds = [self.qosd.threshold("nginx.service", f"n{i}", "ok", value, metric=metric,
                                                    threshold=f"n{i}: {metric} > {limit} over 10s for 0s, "
                                                              "clear 1B for 0s")
                                for i, (metric, limit, value) in enumerate((
                                    ("requests.server.bytesOut", "512M", 536870912),
                                    ("requests.server[*:443].bytesIn", "1536K", 1000),
                                    ("contention.block.readBytes", "12B", 0),
                                    ("requests.server.count", "5", 536870912)))]
        self.assertEqual([line.split()[3] for line in self.out_of("list-thresholds", "--no-legend").splitlines()],
                         ["512.0M", "1000B", "0B", "537M"])
        self.qosd.thresholds = []
        self.assertEqual(self.out_of("list-thresholds"), "0 thresholds.\n")
        self.error_of("list-thresholds", "postgresql", status=4)

    def test_is_ok(self):
        self.assertEqual(self.run_qosctl("is-ok", "nginx", status=1)[0], "violated\n")
        self.assertEqual(self.run_qosctl("is-ok", "redis", status=0)[0], "ok\n")
        self.assertEqual(self.run_qosctl("is-ok", "redis", "nginx", status=1)[0], "ok\nviolated\n")
        self.qosd.thresholds[0]["state"] = "unknown"
        self.assertEqual(self.run_qosctl("is-ok", "nginx", status=3)[0], "unknown\n")
        self.qosd.thresholds = []
        self.assertEqual(self.run_qosctl("is-ok", "nginx", status=3), ("unknown\n", "'nginx' has no thresholds.\n"))
        # JSON has a state for each unit, also for one without thresholds
        self.qosd.thresholds = [self.qosd.threshold("redis.service", "slow", "violated")]
        for option in ("--json=short", "--json=pretty"):
            out, _ = self.run_qosctl("is-ok", "redis", option, status=1)
            self.assertEqual(json.loads(out), {"unit": "redis.service", "state": "violated"})
        out, _ = self.run_qosctl("is-ok", "nginx", "r*", "-j", status=1)
        self.assertEqual([json.loads(line) for line in out.splitlines()],
                         [{"unit": "nginx.service", "state": "unknown"},
                          {"unit": "redis.service", "state": "violated"}])
        # Without a connection the state is unknown: 1 would be a violated threshold
        self.error_of("is-ok", "nginx", status=3, QOSD_ADDRESS="/nonexistent/socket")

    def test_wait(self):
        self.assertEqual(self.out_of("wait", "nginx", "x < 1"), "")
        self.assertEqual(json.loads(self.out_of("wait", "nginx", "x < 1", "-j"))["value"], 12345678)
        self.assertIn("Timed out waiting for 'never < 1' of 'nginx'.",
                      self.error_of("wait", "nginx", "never < 1", "--timeout=50ms", status=1))
        self.assertIn("expected '>'", self.error_of("wait", "nginx", "x", status=2))
        self.error_of("wait", "nginx", status=2)
        self.error_of("wait", "postgresql", "x < 1", status=4)
        self.error_of("wait", "nginx", "x < 1", "--timeout=0", status=2)

    def test_monitor(self):
        event = self.qosd.threshold("nginx.service", "slow", "ok", 15000000, previous="violated", seq=7,
                                    timestamp=1763683300 * SEC // USEC)
        self.qosd.monitored = [[{"seq": 6, "thresholds": self.qosd.thresholds}, {"event": event},
                                Error("TooSlow", seq=7, message="x")],
                               [{"seq": 9, "missedEvents": 1}, {"event": event | {"seq": 9, "state": "unknown"}},
                                {"event": event | {"seq": 9, "metric": "requests.server.rate",
                                                   "threshold": "busy: requests.server.rate > 1 over 1s",
                                                   "value": 793.4833139758917}},
                                Error("NotAttached", unit="nginx.service", message="gone")]]
        out, err = self.run_qosctl("monitor", "nginx", status=3)
        self.assertEqual([line.split("(")[0].split()[-3:] for line in out.splitlines()],
                         [["nginx.service", "violated", "31.3ms"], ["nginx.service", "ok", "1.50k"],
                          ["redis.service", "ok", "1.00us"],
                          ["nginx.service", "ok", "15.0ms"], ["nginx.service", "unknown", "15.0ms"],
                          ["nginx.service", "ok", "793.5"]])
        self.assertIn("1 state change missed.", err)
        self.qosd.errors["Subscribe"] = Error("org.varlink.service.InvalidParameter", parameter="interval")
        self.assertIn("invalid interval '200ms', expected IntervalMinSec= of qosd.conf (default: 100ms) to 1d",
                      self.error_of("monitor", "--interval=200ms", status=2))
        self.assertEqual([c[1].get("since") for c in self.qosd.calls if c[0] == "Monitor"], [None, 7])

    def test_monitor_of_nothing(self):
        self.qosd.thresholds = []
        self.qosd.monitored = [[Error("NotAttached", unit="nginx.service", message="gone")]]
        hint = "No thresholds are set, waiting for some. To set one: qosctl set-threshold UNIT RULE\n"
        for arguments in ["monitor"], ["monitor", "nginx"]:
            self.assertTrue(self.error_of(*arguments, status=3).startswith(hint))
            self.qosd.monitored = [[Error("NotAttached", unit="nginx.service", message="gone")]]
        self.assertNotIn(hint, self.error_of("monitor", "--json=short", status=3))

    def test_exec(self):
        """The command runs for each state change, in their order, with the event in its environment."""
        event = self.qosd.threshold("nginx.service", "slow", "ok", 15000000, previous="violated", seq=7,
                                    timestamp=1763683300 * SEC // USEC)
        gone = {k: v for k, v in event.items() if k != "value"}
        self.qosd.monitored = [[{"seq": 6, "thresholds": self.qosd.thresholds}, {"event": event},
                                {"event": event | {"unit": "$(x) '\"; y", "seq": 8}},
                                {"event": gone | {"seq": 9, "state": "unknown", "previous": "ok"}},
                                Error("NotAttached", unit="nginx.service", message="gone")]]
        path = self.directory + "/events"
        command = ('[ "$QOS_VALUE" ] && sleep 0.2; printf "%s|" "$QOS_UNIT" "$QOS_THRESHOLD" "$QOS_METRIC" '
                   '"$QOS_STATE" "$QOS_PREVIOUS" "$QOS_VALUE" '
                   f'"$QOS_LIMIT" "$QOS_TIMESTAMP" >> {path}; echo >> {path}; cat; [ "$QOS_STATE" = ok ]')
        out, err = self.run_qosctl("monitor", f"--exec={command}", status=3)
        with open(path) as f:
            lines = f.read().splitlines()
        metric, limit = event["metric"], json.dumps(event["limit"])
        self.assertEqual([[w if i != 6 else float(w) for i, w in enumerate(line.split("|")[:-1])] for line in lines],
                         [[unit, "slow", metric, state, previous, value, float(limit), str(1763683300 * SEC // USEC)]
                          for unit, state, previous, value in (
                             ("nginx.service", "ok", "violated", "15000000"),
                             ("$(x) '\"; y", "ok", "violated", "15000000"),
                             ("nginx.service", "unknown", "ok", ""))])
        self.assertIn("The command for slow of 'nginx.service' failed with exit status 1.", err)
        self.assertEqual(len(out.splitlines()), 6)
        self.assertIn("cannot be combined with --interval=",
                      self.error_of("monitor", "--exec=x", "--interval=1s", status=2))
        self.assertIn("Expected a command", self.error_of("monitor", "--exec=", status=2))


class Completion(Test):
    def complete(self, *words):
        script = ('compopt() { :; }; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _qosctl; printf '
                  '"%s\\n" "${COMPREPLY[@]}"')
        r = subprocess.run(["bash", "-c", script, "bash", util_qosctl.COMPLETION, "qosctl", *words], env=self.env,
                           capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(r.stderr, "")
        return sorted(r.stdout.split("\n")[:-1])

    def setUp(self):
        super().setUp()
        os.symlink(os.path.abspath(util_qosctl.QOSCTL), self.bin + "/qosctl")
        self.program("systemctl",
                     "#!/bin/sh\nprintf '%s\\n' 'nginx.service loaded active' 'dev-a\\x2db.service loaded active'\n")
        self.qosd.add("redis.service")
        self.qosd.add("a\\x2db.service")

    def test_completion(self):
        self.assertEqual(self.complete("at"), ["attach"])
        self.assertEqual(len(self.complete("")), 33)
        self.assertEqual(sorted(self.complete("help", "his")), ["histogram", "history"])
        self.assertEqual(self.complete("attach", "n"), ["nginx.service"])
        self.assertEqual(self.complete("attach", "d"), ["dev-a\\x2db.service"])
        for verb in ("detach", "status", "show", "histogram", "history", "heatmap", "list"):
            self.assertEqual(self.complete(verb, ""), ["a\\x2db.service", "redis.service"])
        self.assertEqual(self.complete("status", "redis.service", "a"), ["a\\x2db.service"])
        self.assertEqual(self.complete("show", "-P", "requests.q"), ["requests.quality"])
        self.assertEqual(self.complete("histogram", "redis.service", "requests.server.l"), ["requests.server.latency"])
        self.assertEqual(self.complete("histogram", "redis.service", "requests.server.latency", ""), [""])
        self.qosd.metrics += [{"name": f"{d}.max", "kind": "gauge", "unit": "ns", "probe": "cpu", "description": ""}
                              for d in ("requests.server.queue", "contention.runQueueLatency",
                                        "contention.block.readQueue")]
        self.assertEqual(self.complete("histogram", "redis.service", ""),
                         ["contention.block.readQueue", "contention.runQueueLatency", "requests.server.firstByte",
                          "requests.server.latency",
                          "requests.server.queue"])
        self.assertEqual(self.complete("heatmap", "redis.service", ""),
                         ["requests.server.firstByte", "requests.server.latency"])
        self.assertEqual(self.complete("heatmap", "redis.service", "requests.server.l"), ["requests.server.latency"])
        self.assertEqual(self.complete("heatmap", "redis.service", "requests.server.latency", ""), [""])
        self.assertEqual(self.complete("history", "redis.service", "requests.server.c"),
                         ["requests.server.connections.acceptQueueMax", "requests.server.count"])
        self.assertEqual(self.complete("history", "redis.service", "requests.server.count", "requests.q"),
                         ["requests.quality"])
        self.assertEqual(self.complete("history", "--s"), ["--since=", "--svg"])
        self.assertEqual(self.complete("measure", "n"), ["nginx.service"])
        self.assertEqual(self.complete("diagnose", "n"), ["nginx.service"])
        self.assertEqual(self.complete("diagnose", "--s"), ["--save="])
        self.assertEqual(self.complete("why", "n"), ["nginx.service"])
        self.assertEqual(self.complete("why", "--f"), ["--for="])
        self.qosd.thresholds = [self.qosd.threshold("redis.service", n, "ok") for n in ("slow", "idle")]
        self.assertEqual(self.complete("clear-threshold", "redis.service", ""), ["idle", "slow"])
        self.assertEqual(self.complete("is-ok", "r"), ["redis.service"])
        self.assertIn("/bin/sh", self.complete("measure", "nginx.service", "--", "/bin/s"))
        self.assertIn("today", self.complete("heatmap", "--since", "="))
        self.assertEqual(self.complete("attach", "--f"), ["--for="])
        self.assertEqual(self.complete("threads", "r"), ["redis.service"])
        self.assertEqual(self.complete("threads", "--f"), ["--for="])
        self.assertEqual(self.complete("list", "--f"), [""])
        self.assertEqual(self.complete("--json", "=", "s"), ["short"])
        self.assertEqual(self.complete("status", "--window", "="), sorted("100ms 500ms 1s 10s 60s 5min total".split()))
        self.assertEqual(self.complete("--json", "=", "short", "--no-pager", "det"), ["detach"])
        self.assertEqual(self.complete("--no-pager", "detach", "r"), ["redis.service"])
        with open(self.directory + "/hosts", "w") as f:
            f.write("192.0.2.1 web1\n192.0.2.2 web2\n192.0.2.3 db1\n")
        self.env["HOSTFILE"] = self.directory + "/hosts"
        self.assertEqual(self.complete("-H", "web"), ["web1", "web2"])
        self.assertEqual(self.complete("-H", "db1,we"), ["db1,web1", "db1,web2"])
