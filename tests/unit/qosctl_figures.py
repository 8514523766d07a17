# SPDX-License-Identifier: LGPL-2.1-or-later
"""histogram, history, heatmap, measure, mounts, resources and threads"""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import util_qosctl

from fake_qosd import SEC, USEC, Error, distribution, history
from util_qosctl import DEADLINE, Test, plain, row, state_labels


class Figures(Test):
    def test_histogram(self):
        self.qosd.add("nginx.service")
        for locale, mark in (("C.UTF-8", "█"), ("C", "#")):
            for columns in (80, 200):
                out = self.out_of("histogram", "nginx", columns=columns, locale=locale)
                self.fits(out, columns)
                self.assertIn(mark, out)
                self.assertIn(" p50", out)
        self.assertIn("requests.server.latency of nginx.service: 151k in the last 10s, mean ", out)
        self.assertEqual(json.loads(self.out_of("histogram", "nginx", "requests.server.queue", "--window=60s",
                                                "--json=short"))["window"], 60 * SEC)
        self.assertIn("distribution", self.error_of("histogram", "nginx", "requests.server.count"))
        self.assertIn(" p99.9\n", self.out_of("histogram", "nginx"))
        self.qosd.status["minimumSamples"] = 1000
        self.assertIn(" p99\n", self.out_of("histogram", "nginx"))
        self.assertNotIn(" p99.9\n", self.out)
        self.assertNotIn("since", self.out_of("histogram", "nginx", "--no-legend"))
        self.assertIn("since attached", self.out_of("histogram", "nginx", "--window=total"))
        self.error_of("histogram", "other", status=4)
        self.error_of("histogram", "nginx", "a", "b", status=2)
        self.qosd.add("redis.service")
        self.assertIn("matches 2", self.error_of("histogram", "*", status=2))

    def test_histogram_of_nothing(self):
        self.qosd.add("idle.service", rate=0)
        self.assertIn(": 0 in the last 10s\n", self.out_of("histogram", "idle"))

    def test_history(self):
        self.qosd.add("nginx.service")
        self.qosd.metrics += [{"name": f"requests.server.errors.{e}", "kind": "counter", "unit": "1",
                               "probe": "requests", "essential": True, "description": ""}
                              for e in ("reset", "timeout")]
        self.qosd.histories["nginx.service"] = history("nginx.service", 4, gap=(2,))
        self.assertEqual(self.out_of("history", "nginx"),
                         "TIME          RATE ERRORS   P50    P99 INFLIGHT\n"
                         "Fri 00:00:00   0/s    0/s     -      -        0\n"
                         "Fri 00:00:10 100/s 0.30/s 436us 1.35ms        0\n"
                         "Fri 00:00:30 300/s 0.90/s 109us  338us        0\n"
                         "\n"
                         "3 steps of 10s, listed by start time. Missing steps were not observed.\n")
        self.assertEqual(self.calls("History")[-1]["metrics"],
                         ["requests.server.rate", "requests.server.latency.p50", "requests.server.latency.p99",
                          "requests.server.inFlight",
                          "requests.server.errors.reset", "requests.server.errors.timeout"])
        self.assertNotIn("since", self.calls("History")[-1])

        out = self.out_of("history", "nginx", "requests.server.count", "requests.quality",
                          "requests.server.latency.p99", "--since=@1763683210", "--no-legend")
        self.assertEqual(out.splitlines()[1].split(), ["Fri", "00:00:10", "1.00k", "exchanges", "1.35ms"])
        self.assertEqual(self.calls("History")[-1]["since"], 1763683210 * SEC // USEC)
        self.assertIn("COUNT QUALITY LATENCY.P99\n",
                      re.sub(" +", " ", self.out_of("history", "nginx", *self.calls("History")[-1]["metrics"])))

        # JSON has all of the reply, whatever metrics are requested
        reply = json.loads(self.out_of("history", "nginx", "--json=short"))
        self.assertEqual(len(reply["steps"]), 3)
        self.assertNotIn("metrics", self.calls("History")[-1])

        self.qosd.histories["nginx.service"]["steps"] = []
        self.assertIn("No complete step of 10s is recorded", self.out_of("history", "nginx"))
        self.assertEqual(self.out_of("history", "nginx", "--no-legend"), "")
        for columns in (80, 200):
            self.qosd.histories["nginx.service"] = history("nginx.service", 360)
            self.fits(self.out_of("history", "nginx", columns=columns), columns)

        self.assertIn("requests.server.latency.max",
                      self.error_of("history", "nginx", "requests.server.latency", status=2))
        self.assertIn("is in the future", self.error_of("history", "nginx", "--since=@9999999999999", status=2))
        self.assertIn("expected a time span (10min, 2h) or a point in time",
                      self.error_of("history", "nginx", "--since=2025-02-31", status=2))
        self.error_of("history", "other", status=4)
        self.error_of("history", status=2)
        self.qosd.errors["History"] = Error("NoHistory", metric="m", message="no history is kept of 'm'")
        self.assertIn("no history is kept of 'm'", self.error_of("history", "nginx"))
        self.qosd.errors["History"] = Error("org.varlink.service.InvalidParameter", parameter="since")
        self.assertIn("expected a time in the past", self.error_of("history", "nginx", "--since=1h"))

    def test_heatmap(self):
        self.qosd.add("nginx.service")
        for n in (1, 4, 60, 61, 62, 63, 180, 182, 183, 360):
            self.qosd.histories["nginx.service"] = history("nginx.service", n, gap=range(20, 30))
            total = sum(h["count"] for s in self.qosd.histories["nginx.service"]["steps"] for h in s["histograms"])
            for columns in (40, 80, 200):
                for locale in ("C.UTF-8", "C"):
                    out = self.out_of("heatmap", "nginx", columns=columns, locale=locale)
                    # In a pipe, in both locales
                    self.assertTrue(out.isascii())
                    title, picture, legend = out.split("\n\n")
                    self.assertEqual("not observed" in legend, "/" in picture)
                    # A gap is not visible in columns of many steps
                    self.assertEqual("/" in picture, n > 30 and (columns > 40 or n < 180),
                                     f"{n} steps in {columns} columns: {picture}")
                    self.fits(picture, columns)
                rows = [line.split()[-1] for line in picture.splitlines()[1:-1]]
                self.assertLessEqual(len(rows), 18)
                if all(r.isdigit() for r in rows):
                    self.assertEqual(sum(int(r) for r in rows), total)

        # On a terminal, with blocks if the locale has them, and with colors
        self.qosd.histories["nginx.service"] = history("nginx.service", 60)
        for env, mark, color in (({}, "\u2588", True), ({"NO_COLOR": "1"}, "\u2588", False),
                                 ({"LC_ALL": "C", "NO_COLOR": "1"}, "#", False)):
            for columns in (80, 200):
                t = self.terminal("heatmap", "nginx", "--no-pager", env=env, columns=columns)
                self.assertEqual(t.end(), 0)
                self.assertIn(mark, t.output)
                self.assertEqual("\x1b[0;1;31m" in t.output, color)
                self.fits(t.output.replace("\r", ""), columns)

        self.assertEqual(self.calls("History")[-1]["metrics"], ["requests.server.latency"])
        self.assertEqual(len(json.loads(self.out_of("heatmap", "nginx", "--json=short"))["steps"]), 60)
        self.assertIn("not a distribution", self.error_of("heatmap", "nginx", "requests.server.count", status=2))
        self.qosd.histories["nginx.service"]["steps"] = []
        self.assertIn("No complete step of 10s is recorded", self.out_of("heatmap", "nginx"))
        for broken in ({"schema": 99}, {"offset": 10 ** 9}):
            self.qosd.histories["nginx.service"] = history("nginx.service", 3)
            self.qosd.histories["nginx.service"]["steps"][1]["histograms"][0] |= broken
            self.error_of("heatmap", "nginx")
        self.error_of("heatmap", "nginx", "a", "b", status=2)

    def test_heatmap_axis(self):
        """Each time on the axis is below the column that begins then, also if the name of the day has wide
        characters."""
        self.qosd.add("nginx.service")
        self.qosd.histories["nginx.service"] = history("nginx.service", 60)
        r = subprocess.run(["localedef", "-i", "ja_JP", "-f", "UTF-8", self.directory + "/ja_JP.UTF-8"],
                           capture_output=True) if shutil.which("localedef") else None
        for locale, day, columns in (("C.UTF-8", "Fri", 3), ("ja_JP.UTF-8", "\u91d1", 2)):
            if locale.startswith("ja") and (not r or r.returncode > 1
                                            or not os.path.exists(self.directory + "/ja_JP.UTF-8")):
                self.skipTest("there is no locale with other letters")
            out = self.out_of("heatmap", "nginx", columns=80, locale=locale, LOCPATH=self.directory)
            axis = next(line for line in out.splitlines() if line.lstrip().startswith(day + " 00:00:00"))
            axis = axis.replace(day, "#" * columns)
            times = list(re.finditer("#+ 00:(\\d\\d):(\\d\\d)", axis))
            self.assertGreater(len(times), 2)
            for m in times:
                self.assertEqual((m.start() - 10) * 10, int(m[1]) * 60 + int(m[2]), axis)

    def test_measure(self):
        self.qosd.add("nginx.service", requests__server__errors={"reset": 3, "timeout": 1})
        # Standard output is that of the command; qosctl prints to standard error
        out, err = self.run_qosctl("measure", "nginx", "--", "sh", "-c", "echo out; echo err >&2; sleep 0.1")
        self.assertEqual(out, "out\n")
        self.assertIn("have to follow '--': qosctl measure UNIT -- COMMAND...",
                      self.error_of("measure", "nginx", "ab", "-q", status=2))
        self.assertRegex(err, r"^err\n\nnginx.service handled 15\d\d\d\d requests in [\d.]+m?s while")
        self.assertIn(" while 'sh' was running:\n", err)
        self.assertRegex(err, r"\n        Requests: .*\(151k in [\d.]+m?s\)")
        self.assertRegex(err, r"\n +MEAN +P50 ")
        self.assertNotIn("since attached", err)
        self.assertEqual(self.calls("Mark"), [{"unit": "nginx"}])
        self.assertEqual(self.calls("Get")[-1], {"unit": "nginx.service", "sinceMark": True})
        self.assertEqual(self.calls("Attach"), [])

        out, err = self.run_qosctl("measure", "nginx", "--json=short", "--", "true")
        self.assertEqual(err, "")
        self.assertNotIn("window", json.loads(out))

        # The exit status is that of the command
        self.assertIn("exit status 17", self.run_qosctl("measure", "nginx", "--", "sh", "-c", "exit 17", status=17)[1])
        self.assertIn("exit status 143",
                      self.run_qosctl("measure", "nginx", "--", "sh", "-c", "kill $$", status=143)[1])
        self.assertIn("Failed to run 'no-such-program'",
                      self.run_qosctl("measure", "nginx", "--", "no-such-program", status=127)[1])
        self.assertIn("Failed to run '/etc/passwd'",
                      self.run_qosctl("measure", "nginx", "--", "/etc/passwd", status=126)[1])

        # A unit that is not attached is attached with a lease
        self.qosd.known = {"redis.service"}
        self.run_qosctl("measure", "redis", "--", "true")
        self.assertEqual([c["lease"] for c in self.calls("Attach")], [True])

        # The command is not run if the unit cannot be measured
        ran = self.directory + "/ran"
        self.error_of("measure", "other", "--", "touch", ran, status=4)
        self.assertFalse(os.path.exists(ran))
        self.assertIn("Expected a command", self.error_of("measure", "nginx", status=2))
        self.error_of("measure", status=2)

    def test_status_on_narrow_terminals(self):
        """The page fits into the terminal: values are wrapped, and only columns of tables are left out."""
        client = {"count": 1007, "rate": 100.7, "errors": {"reset": 0, "timeout": 0}, "aborts": 0, "inFlight": 0,
                  "bytesIn": 1, "bytesOut": 2,
                  "peers": [row(peer="127.0.0.1:6379", unit="redis-server.service", errors={"reset": 7, "timeout": 0}),
                            row(rest=True)]}
        endpoints = [row(listen="*:443"), row(listen="127.0.0.1:9100")]
        share = {state: 1 / len(self.STATES) for state in self.STATES}
        contention = {"covered": 10 * SEC, "threadTime": 60 * SEC, "shares": share, "threads": share,
                      "waits": {state: 7 for state in self.STATES},
                      "serving": {"share": 0.5, "threadTime": SEC, "shares": share}, "migrations": 38,
                      "contextSwitches": {"voluntary": 1690, "involuntary": 180},
                      "runQueueLatency": {"count": 1000, "p50": 17400, "p99": 4440000, "max": 10400000}}
        self.qosd.add("web.service", requests__server__errors={"reset": 3, "timeout": 1},
                      requests__server__clientAborts=2,
                      requests__server__inFlight=7, requests__server__oldestInFlight=81000, requests__client=client,
                      contention=contention,
                      requests__server__endpoints=endpoints,
                      holds=[{"type": "administrator", "probes": ["requests"], "uid": 0, "remaining": 543 * SEC,
                              "exclude": ["port:80", "port:9100"]}])
        for columns in (40, 80, 200):
            text = " ".join(" ".join(self.screen("status", "web", columns=columns)).split())
            for line in ("Held by: administrator (root), 9min 3s left, excluding port:80 port:9100",
                         "CGroup: /system.slice/web.service",
                         "Errors: 0.40/s (3 reset, 1 timed out); 2 aborted by clients Traffic:",
                         "12 open, 3 new, 0 retransmitted segments Accept queue: 0/511",
                         "requests and 0 errors since attached", "voluntary,",
                         "redis" if columns > 40 else "127.0.0.1:6379", "P99", "STATE THREADS SHARE"):
                self.assertIn(line, text, f"{columns} columns")
        # Colors are reset at the end of a wrapped line, and set again on the next one
        out = self.terminal("status", "web", columns=40, env={"PAGER": ""})
        self.assertEqual(out.end(), 0)
        self.assertIn("Errors: \x1b[0;1;31m0.40/s\x1b[0m (3 reset, 1", out.output)

    def test_status_of_files(self):
        """Calls on files, at all widths; calls as the kernel counts them where those are not known."""
        latency = {"count": 4000, "mean": 50000, "p50": 17400, "p99": 4440000, "max": 10400000}
        none = {"count": 0, "errors": 0}
        storage = {"covered": 10 * SEC, "reads": {"count": 4000, "errors": 3, "bytes": 409600, "latency": latency},
                   "writes": {"count": 20, "errors": 0, "bytes": 2048,
                              "latency": {"count": 20, "mean": 9000, "p50": 9000, "max": 12000}},
                   "syncs": dict(none, latency={"count": 0}), "opens": dict(none, latency={"count": 0}),
                   "creates": none, "removes": none,
                   "renames": none, "lookups": {"count": 50, "errors": 50}, "changes": none,
                   "calls": {"reads": 5000, "writes": 70, "readBytes": 1024000, "writeBytes": 10}}
        self.qosd.add("files.service", storage=storage)
        for columns in (40, 80, 200):
            lines = self.screen("status", "files", columns=columns)
            text = "\n".join(" ".join(line.split()) for line in lines)
            self.assertIn("Files: calls over 10.0s:", text)
            for line in ("CALL RATE BYTES ERRORS P99", "read 400/s 40.0K/s 3 4.44ms", "write 2.00/s 204B/s 0 -",
                         "look up 5.00/s - 50 -") \
                    if columns == 40 else \
                    ("CALL RATE BYTES ERRORS P50 P99 MAX", "read 400/s 40.0K/s 3 17.4us 4.44ms 10.4ms",
                     "write 2.00/s 204B/s 0 9.00us - 12.0us",
                     "look up 5.00/s - 50 - - -"):
                self.assertIn(line, text, f"{columns} columns")
            self.assertNotIn("sync", text)
            self.assertNotIn("sockets", text)
        # With "cpu", the state that most of the time was spent in
        storage["reads"]["shares"] = {"running": 0.08, "disk": 0.92}
        self.qosd.add("divided.service", storage=storage)
        text = "\n".join(" ".join(line.split()) for line in self.screen("status", "divided", columns=200))
        for line in ("CALL RATE BYTES ERRORS P50 P99 MAX MOSTLY",
                     "read 400/s 40.0K/s 3 17.4us 4.44ms 10.4ms disk 92.0%",
                     "write 2.00/s 204B/s 0 9.00us - 12.0us -"):
            self.assertIn(line, text)
        self.qosd.add("counted.service", storage={"covered": 10 * SEC, "calls": storage["calls"]})
        for columns in (40, 80, 200):
            text = " ".join(" ".join(self.screen("status", "counted", columns=columns)).split())
            self.assertIn("Reads, writes: 500/s reads (100.0K/s), 7.00/s writes (1B/s), sockets and pipes included",
                          text)
        self.qosd.add("idle.service", storage={"covered": 10 * SEC, "reads": dict(none, bytes=0, latency={"count": 0})})
        self.assertIn("Files: calls over 10.0s: none", "\n".join(self.screen("status", "idle", columns=80)))

    def test_mounts(self):
        """File systems, at all widths; why there are none; the errors of a unit that is not attached."""
        def calls(n, p99):
            return {"count": n, "errors": 0, "bytes": n * 100, "latency": {"count": n, "mean": p99, "p99": p99}}

        rest = {"rest": True, "reads": calls(0, 0), "writes": calls(0, 0), "opens": {"count": 5, "errors": 5}}
        storage = {"covered": 10 * SEC, "reads": calls(4000, 1), "mounts": [
            {"mount": "/srv/a\\040long\\033name", "type": "ext4", "device": "8:1", "reads": calls(4000, 17400),
             "writes": calls(20, 4440000),
             "syncs": {"count": 10, "errors": 1, "latency": {"count": 10, "p99": 9500000}},
             "opens": {"count": 50, "errors": 0},
             "changes": {"count": 0, "errors": 0}},
            {"type": "tmpfs", "device": "0:52", "reads": calls(0, 0)}, rest]}
        self.qosd.add("files.service", storage=storage)
        for columns, header, first in (
                (40, "MOUNT READS RP99 WRITES WP99", "400/s 17.4us 2.00/s 4.44ms"),
                (80, "MOUNT READS RBYTES RP99 WRITES WBYTES WP99 SYNCS SP99",
                 "400/s 39.1K/s 17.4us 2.00/s 200B/s 4.44ms 1.00/s 9.50ms"),
                (200, "MOUNT TYPE DEVICE READS RBYTES RP99 WRITES WBYTES WP99 SYNCS SP99 OPENS CHANGES ERRORS",
                 "/srv/a\\040long\\033name ext4 8:1 400/s 39.1K/s 17.4us 2.00/s 200B/s 4.44ms 1.00/s 9.50ms "
                 "5.00/s 0/s 1")):
            lines = [" ".join(line.split()) for line in self.screen("mounts", "files", columns=columns)]
            self.assertTrue(lines[0].startswith(header), f"{columns} columns: {lines}")
            self.assertIn(first, lines[1], f"{columns} columns")
            self.assertTrue(lines[2].startswith("0:52"), lines)
            self.assertTrue(lines[3].startswith("others"), lines)
        self.assertEqual(json.loads(self.out_of("mounts", "files", "--json=short")),
                         {"unit": "files.service", "mounts": storage["mounts"]})
        for columns in (40, 80, 200):
            lines = [" ".join(line.split()) for line in self.screen("resources", "files", columns=columns)]
            self.assertTrue(any(line.startswith(("MOUNT READS", "MOUNT TYPE")) for line in lines), lines)
        self.assertEqual(json.loads(self.out_of("resources", "files", "--json=short"))["mounts"], storage["mounts"])

        slow = [{"timestamp": time.time_ns() // 1000, "operation": "sync", "time": 40000000, "mount": "/srv",
                 "device": "8:1", "name": "data\x1b[31m.db", "tid": 77, "thread": "writer",
                 "shares": {"running": 0.03, "disk": 0.92, "lock": 0.05}},
                {"timestamp": 1763683200000000, "operation": "write", "time": 12300000, "error": "ENOSPC"}]
        self.qosd.do_SlowOperations = lambda c, **p: [{"timestamp": 1, "operations": slow}]
        for columns, header, first in (
                (40, "AT CALL TIME FILE", "sync 40.0ms"),
                (80, "AT CALL TIME MOUNT FILE", "sync 40.0ms /srv"),
                (200, "AT CALL TIME MOUNT FILE BYTES THREAD STATE",
                 "sync 40.0ms /srv data\\x1b[31m.db - writer[77] disk 92.0%")):
            lines = [" ".join(line.split()) for line in self.screen("mounts", "files", columns=columns)]
            begin = lines.index("Slow calls, newest first:")
            self.assertTrue(lines[begin + 1].startswith(header), f"{columns} columns: {lines}")
            self.assertIn(first, lines[begin + 2], f"{columns} columns")
            self.assertIn("write 12.3ms", lines[begin + 3], f"{columns} columns")
        self.assertIn("ENOSPC", lines[begin + 3])
        self.assertEqual(json.loads(self.out_of("mounts", "files", "--json=short"))["slow"], slow)
        self.qosd.errors["SlowOperations"] = Error("io.systemd.PermissionDenied")
        self.assertNotIn("Slow calls", self.out_of("mounts", "files"))

        self.qosd.add("requests.service")
        self.assertIn("not observed with the probe storage", self.out_of("mounts", "requests"))
        self.qosd.add("refused.service", storage={"covered": SEC, "calls": {"reads": 1}})
        self.assertIn("not measured on this kernel", self.out_of("mounts", "refused"))
        self.qosd.add("idle.service", storage={"covered": SEC, "reads": calls(0, 0)})
        self.assertIn("No calls on files", self.out_of("mounts", "idle"))
        self.qosd.add("hidden.service", storage={"covered": SEC, "reads": calls(7, 0)})
        self.assertIn("windows from 2s to 10s", self.out_of("mounts", "hidden", "idle"))

    def test_network(self):
        """What TCP counts, in the status page and on a page of its own, at all widths."""
        network = {"covered": 10 * SEC, "retransmits": 4, "retransmittedBytes": 5000, "recoveries": 2, "timeouts": 1,
                   "bytesSent": 10485760, "bytesAcked": 10485000, "bytesReceived": 1000, "bytesRead": 900,
                   "bytesWritten": 10240000,
                   "drops": 45, "dropReasons": [{"reason": f"REASON_{i}", "count": 9 - i} for i in range(9)] +
                   [{"rest": True, "count": 1}],
                   "limitedBy": {"application": 0.5, "peerWindow": 0.25, "sendBuffer": 0.0, "network": 0.25},
                   "duration": {"count": 7, "mean": 1500000, "max": 9000000},
                   "rtt": {"count": 300, "mean": 52000, "p50": 51000, "max": 1000000},
                   "connecting": {"ports": {"count": 6, "mean": 2000, "max": 3000},
                                  "handshake": {"count": 5, "mean": 60000, "max": 70000}, "synRetransmits": 2,
                                  "portsExhausted": 1},
                   "rttKernel": {"count": 200, "mean": 7000, "max": 9000},
                   "rttWire": {"count": 200, "mean": 45000, "max": 90000},
                   "receiving": {"driver": {"count": 90, "mean": 1000, "max": 2000},
                                 "ip": {"count": 89, "mean": 2000, "max": 2500},
                                 "backlog": {"count": 0},
                                 "socket": {"count": 90, "mean": 30000, "max": 100000},
                                 "total": {"count": 90, "mean": 33000, "p50": 32000, "max": 110000}, "unstamped": 0},
                   "transmitting": {"ip": {"count": 80, "mean": 3000, "max": 4000}, "qdisc": 5000,
                                    "total": {"count": 80, "mean": 8000, "max": 9000},
                                    "pacing": {"count": 2, "mean": 40000, "max": 50000}}}
        self.qosd.add("sender.service", network=network)
        for columns in (40, 80, 200):
            text = " ".join(" ".join(self.screen("status", "sender", columns=columns)).split())
            self.assertIn("TCP: 1.0M/s sent, 100B/s received retransmits 0.40/s, <0.1% of bytes sent, recoveries 2, "
                          "timeouts 1", text, f"{columns} columns")
            self.assertIn("Limited by: application 50.0%, peer's window 25.0%, network 25.0%", text)
            text = " ".join(" ".join(self.screen("network", "sender", columns=columns)).split())
            self.assertEqual(text, "sender.service Written: 1000.0K/s, sent 1.0M/s Received: 100B/s, read 90B/s "
                             "Loss: retransmits 0.40/s, <0.1% of bytes sent, recoveries 2, timeouts 1 "
                             "Limited by: application 50.0%, peer's window 25.0%, network 25.0% "
                             "Discarded: 45 packets: REASON_0 9, REASON_1 8, REASON_2 7, REASON_3 6, REASON_4 5, "
                             "REASON_5 4, REASON_6 3, REASON_7 2, others 2 "
                             "Round trips: 300 samples, mean 52.0us, P50 51.0us, max 1.00ms "
                             "Own kernel: 200 samples, mean 7.00us, max 9.00us "
                             "Wire and peer: 200 samples, mean 45.0us, max 90.0us "
                             "Connecting: 5 handshakes, mean 60.0us, max 70.0us "
                             "6 searches for a port, mean 2.00us, max 3.00us "
                             "SYN retransmitted 2, without local port 1 "
                             "Receiving: driver mean 1.00us, IP mean 2.00us, socket mean 30.0us "
                             "90 segments, mean 33.0us, P50 32.0us, max 110us "
                             "Transmitting: IP mean 3.00us, qdisc mean 5.00us "
                             "80 segments, mean 8.00us, max 9.00us "
                             "Paced: 2 segments, mean 40.0us, max 50.0us "
                             "Ended: 7 connections, mean 1.50ms, max 9.00ms")
        self.assertEqual(json.loads(self.out_of("network", "sender", "--json=short")),
                         {"unit": "sender.service", "network": network})
        self.qosd.add("requests.service")
        self.assertIn("Not observed with the probe network", self.out_of("network", "requests"))
        self.qosd.add("refused.service", network={"covered": SEC})
        self.assertIn("not measured on this kernel", self.out_of("network", "refused"))

    def test_connections(self):
        def connection(i, **more):
            return {"peer": f"192.0.2.1:{4000 + i}", "local": "[2001:db8::1]:443", "role": "server",
                    "state": "established", "age": 65 * SEC, "rtt": 1180000, "peerWindow": 65536,
                    "receiveWindow": 1, "congestionWindow": 10, "mss": 1448, "inFlightBytes": 2896, "unsentBytes": 100,
                    "retransmits": 3, "bytesSent": 5000, "bytesReceived": 1000, "limitedBy": "peerWindow"} | more

        rows = [connection(i) for i in range(103)]
        del rows[1]["age"], rows[1]["rtt"]
        asked = []

        def do_ListConnections(c, **p):
            asked.append(p.get("sort"))
            return [{"timestamp": 1, "connections": rows,
                     "rest": {"connections": 7, "inFlightBytes": 104, "unsentBytes": 0, "retransmits": 1,
                              "bytesSent": 0, "bytesReceived": 0}}]
        self.qosd.do_ListConnections = do_ListConnections
        for columns, header, first, others in (
                (40, "PEER RTT UNSENT RETRANS", "192.0.2.1:4000 1.18ms 100B 3", "(10 others) - 300B 10"),
                (80, "PEER AGE RTT INFLIGHT UNSENT RETRANS LIMITED BY",
                 "192.0.2.1:4000 1min 5s 1.18ms 2.8K 100B 3 peer's window", "(10 others) - - 8.6K 300B 10 -"),
                (200, "PEER LOCAL ROLE STATE AGE RTT WINDOW INFLIGHT UNSENT RETRANS SENT RECEIVED LIMITED BY",
                 "192.0.2.1:4000 [2001:db8::1]:443 server established 1min 5s 1.18ms 64.0K 2.8K 100B 3 4.9K 1000B "
                 "peer's window", "(10 others) - - - - - - 8.6K 300B 10 14.6K 2.9K -")):
            lines = [" ".join(line.split()) for line in self.screen("connections", "web", columns=columns)]
            self.assertEqual(lines[:3], ["web", header, first], f"{columns} columns")
            self.assertEqual(lines[102:], [others], f"{columns} columns")
        self.assertEqual(len(json.loads(self.out_of("connections", "web", "--json=short", "--sort=rtt"))
                             ["connections"]), 103)
        self.assertEqual(asked, [None] * 3 + ["rtt"])
        self.assertIn("Invalid sort key 'size', expected 'queued',",
                      self.error_of("connections", "web", "--sort=size", status=2))
        rows.clear()
        self.qosd.do_ListConnections = lambda c, **p: [{"timestamp": 1, "connections": []}]
        self.assertIn("No connections", self.out_of("connections", "web"))
        self.qosd.errors["ListConnections"] = Error("org.qosd.QoS.NotMeasured", metric="network.covered",
                                                message="there is no reading of it now")
        self.assertIn("there is no reading of it now", self.error_of("connections", "web"))

    def test_resources_on_narrow_terminals(self):
        memory = {"majorFaults": 123, "majorFaultTime": 5000000, "minorFaults": 456, "minorFaultTime": 1, "reclaims": 7,
                  "reclaimTime": 9000, "refaults": 12345}
        pressure = {kind: {"some": 0.0321, "full": 0.0123} for kind in ("cpu", "memory", "io")}
        self.qosd.add(self.LONG_NAME, contention={"block": {"devices": []}, "memory": memory, "pressure": pressure})
        self.qosd.errors["Resources"] = Error("NotMeasured", metric="contention.waits",
                                              message="there is no reading of it now")
        for columns in (40, 80, 200):
            lines = self.screen("resources", self.LONG_NAME, columns=columns)
            text = " ".join(" ".join(lines).split())
            for line in ("Memory: 123 major faults (5.00ms), 456 minor faults (1ns), 7 reclaims (9.00us), "
                         "12.3k refaulted pages",
                         "Pressure: cpu 3.2% (full 1.2%), memory 3.2% (full 1.2%), io 3.2% (full 1.2%)",
                         "Waits: there is no reading of it now",
                         f"For more metrics: qosctl attach --probes=requests,cpu,block,memory {self.LONG_NAME}"):
                self.assertIn(line, text, f"{columns} columns")
        self.assertIn(self.LONG_NAME, lines)

    def test_measure_signals(self):
        """Signals are forwarded to the command, and qosctl ends after it."""
        self.qosd.add("nginx.service")
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            name = sig.name[3:]
            p = subprocess.Popen([util_qosctl.QOSCTL, "measure", "nginx", "--", "sh", "-c",
                                  f"trap 'echo got {name}; exit 3' {name}; echo ready; while :; do sleep 0.05; done"],
                                 env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(p.stdout.readline(), "ready\n")
            p.send_signal(sig)
            out, err = p.communicate(timeout=DEADLINE)
            self.assertEqual((out, p.returncode), (f"got {name}\n", 3))
            self.assertIn("nginx.service handled", err)

        # The terminal sends SIGINT to both processes: qosctl must not forward it
        t = self.terminal("measure", "nginx", "--", "sh", "-c",
                          "trap 'echo got it; n=1' INT; echo ready; while [ -z $n ]; do sleep 0.05; done; sleep "
                          "0.3; exit 5")
        t.wait_for("ready")
        t.key("\x03")
        self.assertEqual(t.end(), 5)
        self.assertEqual(t.output.count("got it"), 1)

    def test_threads(self):
        self.qosd.add("nginx.service")
        readings = [[self.thread(8, "idle", "poll", {"poll": 5000}),
                     self.thread(9, "busy", "running", {"running": 100}, voluntary=3),
                     self.thread(10, "another", "sleep", {"running": 900})],
                    [self.thread(8, "idle", "poll", {"poll": 6000}),
                     self.thread(9, "busy", "lock", {"running": 350, "lock": 750}, voluntary=1503),
                     self.thread(10, "young", "sleep", {"running": 1, "sleep": 3})]]
        rest = {k: v for k, v in self.thread(0, "", "", {"park": 100}).items()
                if k not in ("tid", "pid", "name", "state")}

        def do_Threads(c, **p):
            self.assertEqual(p["unit"], "nginx")
            return [{"timestamp": 1, "threads": readings.pop(0), "rest": dict(rest, threads=1500)}]
        self.qosd.do_Threads = do_Threads
        out = self.out_of("threads", "nginx", "--for=1ms")
        lines = out.splitlines()
        self.assertEqual(lines[0], "nginx")
        self.assertRegex(lines[1], r"^ *TID +PID +NAME +STATE +RUNNING +CPU RUN QUEUE +THROTTLED +LOCK ")
        # Sorted by time on the CPU. A thread ID with less time than before is that of a new thread
        self.assertRegex(lines[2], r"^ *9 +7 busy +lock +25.0% +- +- +75.0% .* 1.50k +0 +0$")
        self.assertRegex(lines[3], r"^ *10 +7 young +sleep +25.0% ")
        self.assertRegex(lines[4], r"^ *8 +7 idle +poll +- ")
        self.assertIn("(1500 others)", lines[5])
        self.assertEqual(len(lines), 6)

        readings = [[self.thread(8, "idle", "poll", {"poll": 5000})]]
        self.assertEqual(json.loads(self.out_of("threads", "nginx", "--json=short"))["threads"][0]["times"]["poll"],
                         5000000000)
        self.assertIn("--for=", self.error_of("threads", "nginx", "--json=short", "--for=1s", status=2))
        self.qosd.errors["Threads"] = Error("org.qosd.QoS.NotMeasured", metric="contention.threads",
                                            message="there is no reading of it now")
        self.assertIn("there is no reading of it now", self.error_of("threads", "nginx"))

    def test_state_labels(self):
        """All views have the words of docs/METRICS.md for the states of threads, and JSON their names."""
        labels = state_labels()
        self.assertEqual(tuple(labels), self.STATES)
        # One that is no wait is never the worst one
        delays = [s for s in self.STATES
                  if s not in ("running", "park", "poll", "pipe", "sleep", "child", "stopped", "other")]
        all = {s: 1 / len(self.STATES) for s in self.STATES}
        served = distribution(100, 1000)
        contention = {"covered": 10 * SEC, "threadTime": 60 * SEC, "shares": all, "threads": all, "waits": {}}
        event = self.qosd.threshold("nginx.service", "slow", "violated", 31300000, previous="ok", seq=7,
                                    timestamp=1763683300 * SEC // USEC)
        self.qosd.do_Threads = lambda c, **p: [{"timestamp": 1,
                                                "threads": [self.thread(i + 1, "t", s, {s: 100})
                                                            for i, s in enumerate(self.STATES)]}]
        self.qosd.do_Resources = lambda c, **p: [{"timestamp": 1, "resources": [
            {"state": s, "kind": "call", "name": "it", "waits": 1, "time": 1000000 * (20 - i)}
            for i, s in enumerate(self.STATES)]}]
        for state in self.STATES:
            share = {s: float(s == state) for s in self.STATES}
            self.qosd.add("nginx.service", requests__server__service=dict(served, attributed=1, shares=share),
                          contention=contention)
            for view in ("list", "status") if state in delays else ():
                out = plain(self.out_of(view, *(["nginx"] if view == "status" else []), columns=200))
                self.assertIn(labels[state] + (" 100%" if view == "list" else " (100% of service time)"), out)
            if state in delays:
                t = self.terminal("top", columns=200)
                t.wait_for(r"nginx.*" + labels[state] + " 100%")
                t.key("q")
                self.assertEqual(t.end(), 0)
            self.qosd.monitored = [[{"event": event | {"shares": [{"state": state, "share": 0.47, "usual": 0.29}]}},
                                    Error("NotAttached", unit="nginx.service", message="gone")]]
            out, err = self.run_qosctl("monitor", "nginx", status=3)
            self.assertIn(f", {labels[state]} 47% (usually 29%) (", out)

        rows = plain(self.out_of("status", "nginx", columns=200)).partition("STATE  ")[2].splitlines()[1:]
        self.assertEqual([re.split("  +", row.strip())[0] for row in rows[:len(self.STATES)]], list(labels.values()))
        header, *rows = self.out_of("threads", "nginx", "--for=1ms", columns=300).splitlines()[1:]
        for label in labels.values():
            self.assertIn(f" {label.upper()} ", header)
        self.assertEqual({row[header.index("STATE"):header.index("RUNNING")].strip() for row in rows},
                         set(labels.values()))
        out = self.out_of("resources", "nginx", columns=200)
        self.assertEqual(re.findall(r"^([\w ]+?) +call +it ", out, re.M), list(labels.values()))
        self.qosd.diagnosis = {"verdict": "nothing", "summary": "no bottleneck found", "text": "x", "findings": [],
                               "excluded": [], "figures": {"threads": all}}
        out = " ".join(self.out_of("diagnose", "nginx", "--for=1s").split())
        self.assertIn("Threads, on average: " + ", ".join(f"{label} 0.07" for label in labels.values()), out)
        for arguments in ["threads", "nginx"], ["resources", "nginx"], ["diagnose", "nginx", "--for=1s"], ["show",
                                                                                                           "nginx"]:
            self.assertIn('"runQueue"', self.out_of(*arguments, "--json=short"))

    def test_waits(self):
        self.qosd.add("nginx.service")
        lock = {"state": "lock", "kind": "futex", "name": "nginx:big", "address": "0x10", "pid": 7, "waits": 10,
                "time": 5000000,
                "wakers": [{"name": "hog", "tid": 9, "unit": "nginx.service", "waits": 8},
                           {"name": "other", "tid": 3, "unit": "a.service", "waits": 1}]}
        twin = dict(lock, pid=8, time=1000000)
        rest = {"state": "sleep", "kind": "rest", "name": "others", "waits": 1, "time": 9000000}
        replies = [[lock, rest]]
        self.qosd.do_Resources = lambda c, **p: [{"timestamp": 1, "resources": replies.pop(0)}]
        out = self.out_of("resources", "nginx")
        self.assertRegex(out,
                         r"\n   Waits: since observation started\nSTATE +KIND +RESOURCE +WAITS +TIME +MEAN +WOKEN BY\n")
        self.assertRegex(out,
                         r"\nsleep +rest +others +1 +9.00ms +9.00ms +-\n"
                         r"lock +futex +nginx:big +10 +5.00ms +500us +hog 9, other 3 \(a.service\)\n")
        # With --for= the differences are shown, of each lock of the same name
        replies = [[lock, twin], [dict(lock, waits=12, time=5500000), dict(twin, time=4000000)]]
        out = self.out_of("resources", "nginx", "--for=1ms")
        self.assertRegex(out, r"\nlock +futex +nginx:big +0 +3.00ms +- .*\nlock +futex +nginx:big +2 +500us +250us ")
        # JSON has the differences, too
        replies = [[lock, rest]]
        self.assertEqual(json.loads(self.out_of("resources", "nginx", "--json=short"))["resources"], [lock, rest])
        replies = [[lock, twin], [dict(lock, waits=12, time=5500000), dict(twin, time=4000000)]]
        self.assertEqual(json.loads(self.out_of("resources", "nginx", "--json=short", "--for=1ms"))["resources"],
                         [dict(lock, waits=2, time=500000), dict(twin, waits=0, time=3000000)])
        # Long names of wakers are not truncated in a pipe
        long = [{"name": "ä" * 15, "tid": i, "unit": "ü" * 240 + ".service", "waits": 1} for i in range(3)]
        replies = [[dict(lock, wakers=long)]]
        self.assertIn(" " + ", ".join(f"{w['name']} {w['tid']} ({w['unit']})" for w in long) + "\n",
                      self.out_of("resources", "nginx"))

    def test_no_waits(self):
        """resources prints why it has no waits, for lack of permission or of the probe. With --for=, which requests
        waits alone, that is an error."""
        self.qosd.add("nginx.service",
                      contention={"block": {"devices": []}, "memory": {"minorFaults": 7, "minorFaultTime": 1}})
        denied = ((Error("io.systemd.InteractiveAuthenticationRequired"),
                   "authentication is required, run it as root or on a terminal with polkit"),
                  (Error("org.varlink.service.PermissionDenied"), "access denied"))
        for error, why in denied:
            self.qosd.errors["Resources"] = error
            self.assertEqual(self.out_of("resources", "nginx"),
                             "nginx.service\nNo block I/O.\n  Memory: 7 minor faults (1ns)\n"
                             f"   Waits: {why}\n")
            self.assertEqual(self.error_of("resources", "nginx", "--for=10min"), f"Failed to read 'nginx': {why}.\n")
            self.assertNotIn("resources", self.out_of("resources", "nginx", "--json=short"))
        self.qosd.errors["Resources"] = Error("NotMeasured", metric="contention.waits",
                                              message="there is no reading of it now")
        out = self.out_of("resources", "nginx")
        self.assertIn("\n   Waits: there is no reading of it now\nFor more metrics: qosctl attach "
                      "--probes=requests,cpu,block,memory nginx\n", out)
        self.assertIn("qosctl attach --probes=requests,cpu,block,memory nginx",
                      self.error_of("resources", "nginx", "--for=10min"))
        self.assertEqual(self.error_of("resources", "nothing", status=4),
                         "Failed to read 'nothing': no such unit nothing.service.\n")
        # A unit that cannot be read does not prevent the output of others
        self.qosd.errors["Resources"] = denied[1][0]
        out, err = self.run_qosctl("resources", "nothing", "nginx", status=4)
        self.assertTrue(out.startswith("nginx.service\n"), out)
        self.assertIn("'nothing'", err)
