# SPDX-License-Identifier: LGPL-2.1-or-later
"""list, status and show, and how qosctl connects"""

import json
import re
import socket
import subprocess
import threading
import time

import util_qosctl

from fake_qosd import SEC, Error, distribution, snapshot
from util_qosctl import DEADLINE, Test, row


class List(Test):
    def test_empty(self):
        self.assertEqual(self.out_of(), "0 units attached. To attach a unit: qosctl attach UNIT\n")
        self.assertEqual(self.out_of("list"), self.out_of())
        self.assertEqual(self.out_of("list", "--no-legend"), "")
        self.assertEqual(self.out_of("list", "--json=short"), "")

    def test_table(self):
        self.qosd.add("nginx.service", requests__server__errors={"reset": 3, "timeout": 1},
                      requests__server__inFlight=7)
        self.qosd.add("redis-server.service", rate=41000, scale=21000)
        out = self.out_of(columns=80)
        self.assertEqual(out,
                         "UNIT                 ACTIVE    RATE ERRORS    P50    P99 INFLIGHT WAIT OLDEST\n"
                         "nginx.service        active 15.1k/s 0.40/s  109us  338us        7 -         -\n"
                         "redis-server.service active 41.0k/s    0/s 21.0us 65.1us        0 -         -\n"
                         "\n"
                         "2 units attached. Window: last 10s.\n")
        self.assertEqual(out, self.out_of(columns=80, locale="C"))
        wide = self.out_of(columns=200)
        self.fits(wide, 200)
        for column in ("CONN", "ACCEPTQ", "IN", "OUT", "OVERHEAD"):
            self.assertIn(f" {column}", wide.splitlines()[0])
        # Lines are not truncated in a pipe
        self.assertEqual(wide, self.out_of())

    def test_worst_wait(self):
        def shown(**figures):
            self.qosd.add("nginx.service", **figures)
            header, row = (line for line in self.out_of("list", "--no-pager", columns=200).splitlines()[:2])
            return row[header.index("WAIT"):header.index("OLDEST")].strip()
        none = dict.fromkeys(("running", "runQueue", "throttled", "lock", "park", "disk", "socket", "poll", "pipe",
                              "sleep", "memory", "child", "stopped", "other"), 0)
        # From the states of the threads that have served the requests
        served = distribution(100, 1000)
        some = dict(none, running=0.5, socket=0.31, runQueue=0.15, other=0.04)
        self.assertEqual(shown(requests__server__service=dict(served, attributed=1, shares=some)), "socket 31%")
        # Where too few requests are attributed, from the states of threads that are not idle
        idle = dict(none, park=0.9, running=0.06, runQueue=0.02, lock=0.02 / 3, poll=0.01)
        serving = {"share": 0.5, "threadTime": 1000, "shares": idle}
        self.assertEqual(shown(requests__server__service=dict(served, attributed=0.4, shares=some),
                               contention={"serving": serving}), "CPU run queue 23%")
        # Waits of a small share are not shown, nor are absent ones
        self.assertEqual(shown(requests__server__service=dict(served, attributed=1,
                                                              shares=dict(none, running=0.96, disk=0.04))), "-")
        self.assertEqual(shown(contention={"serving": {"share": 0, "threadTime": 0}}), "-")
        self.assertEqual(shown(), "-")

    def test_no_legend(self):
        self.qosd.add("nginx.service")
        out = self.out_of("--no-legend")
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["nginx.service"])

    def test_long_names_and_huge_numbers(self):
        name = "a" * 249 + ".service"
        big = 2 ** 63 - 1
        self.qosd.add(name, rate=1e15, requests__server__inFlight=big, requests__server__oldestInFlight=big,
                      requests__server__latency=distribution(big, big / 60), requests__server__bytesIn=big)
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                self.fits(self.out_of("--no-legend", columns=columns, locale=locale), columns)
        self.assertIn("…", self.out_of(columns=80))
        out = self.out_of(columns=80, locale="C")
        self.assertIn("...", out)
        self.assertTrue(out.isascii())
        self.assertIn(name, self.out_of())

    def test_absent(self):
        self.qosd.add("nothing.service", requests=None, cost=None, totals=None)
        self.qosd.add("overlap.service", requests__quality="overlapping", requests__server__count=None,
                      requests__server__rate=None,
                      requests__server__latency=None)
        lines = self.out_of("--no-legend").splitlines()
        self.assertEqual(lines[0].split(), ["nothing.service", "active"] + ["-"] * 13)
        self.assertEqual(lines[1].split()[:7], ["overlap.service", "active", "-", "0/s", "-", "-", "0"])

    def test_idle(self):
        self.qosd.add("idle.service", rate=0, requests__server__latency__max=0)
        self.assertEqual(self.out_of("--no-legend").split()[:9],
                         ["idle.service", "active", "0/s", "0/s", "-", "-", "0", "-", "-"])

    def test_longer_windows(self):
        """A quantile is from the shortest window with enough samples, and that window is shown."""
        self.qosd.add("slow.service", rate=5)
        out = self.out_of()
        self.assertRegex(out, r"slow.service .* 109us 338us \(5min\) ")
        self.assertIn("Window: last 10s unless noted in parentheses.", out)
        self.assertEqual([p["window"] for p in self.calls("Get")], [60 * SEC, 300 * SEC])
        # With --window= quantiles are of that window alone
        self.qosd.calls.clear()
        out = self.out_of("--window=10s")
        self.assertNotIn("(", out)
        self.assertEqual(self.calls("Get"), [])
        self.assertEqual(self.calls("List"), [{"window": 10 * SEC}])
        # No requests for windows that are longer than the unit is attached
        self.qosd.units.clear()
        self.qosd.add("new.service", rate=0.1, age=20)
        self.qosd.calls.clear()
        self.out_of()
        self.assertEqual(self.calls("Get"), [])

    def test_total(self):
        self.qosd.add("nginx.service")
        self.assertIn("Window: since attached.", self.out_of("--window=total"))
        self.assertEqual(self.calls("List"), [{"window": 0}])

    def test_patterns(self):
        for name in ("nginx.service", "nginx.socket", "redis.service"):
            self.qosd.add(name)

        def units(*a):
            return [line.split()[0] for line in self.out_of("list", "--no-legend", *a).splitlines()]

        self.assertEqual(units("nginx*"), ["nginx.service", "nginx.socket"])
        self.assertEqual(units("*.service"), ["nginx.service", "redis.service"])
        self.assertEqual(units("redis"), ["redis.service"])
        self.assertEqual(units("redis", "r*"), ["redis.service"])
        self.assertEqual(units("x*"), [])
        self.qosd.known.add("other.service")
        self.assertEqual(units("other"), [])
        self.assertIn("no such unit", self.error_of("list", "nonsense", status=4))

    def test_mistyped_commands(self):
        for given, meant in (("stat", "status"), ("statsu", "status"), ("attahc", "attach"), ("lst", "list"),
                             ("tob", "top"),
                             ("diagnos", "diagnose"), ("set-treshold", "set-threshold"), ("is-okay", "is-ok"),
                             ("hel", "help")):
            self.assertIn(f"Unknown command '{given}', did you mean '{meant}'?", self.error_of(given, status=2))
        for given in "restart", "x", "zzz", "a" * 5000, "":
            self.assertIn(f"Unknown command '{given}', see 'qosctl help'.", self.error_of(given, status=2))
        self.assertEqual(self.out_of("help"), self.out_of("--help"))
        self.assertIn("Unknown command 'statsu', did you mean 'status'?", self.error_of("help", "statsu", status=2))

    def test_help_of_commands(self):
        """Each command with the options that it accepts, and no other."""
        out = self.out_of("help")
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])
        options = {"window": ["list", "status", "show", "resources", "mounts", "network", "top", "histogram",
                              "monitor"], "sort": ["connections"],
                   "since": ["history", "heatmap", "report"], "svg": ["history", "heatmap"],
                   "output": ["report"],
                   "all": ["list", "detach"], "listening": ["attach"], "yes": ["attach"],
                   "probes": ["attach", "enable"], "for": ["attach", "threads", "resources", "diagnose", "why",
                                                             "report", "path"],
                   "save": ["diagnose"], "format": ["metrics"], "verbose": ["metrics"], "timeout": ["wait"],
                   "exec": ["monitor"], "value": ["show"], "delay": ["top"]}
        verbs = re.findall(r"^  ([a-z-]+)(?: .*)?$", out.split("Options:")[0], re.M)
        self.assertEqual(len(verbs), 33)
        for verb in verbs:
            text = self.out_of("help", verb)
            self.assertRegex(text, rf"^qosctl \[OPTIONS\.\.\.\] {verb}[ \n]")
            self.assertEqual({o for o in options if re.search(f" --{o}[ =\\n]", text)},
                             {o for o, accept in options.items() if verb in accept}, verb)

    def test_all(self):
        """Units that listen on this host come after the attached ones. Their names depend on the host and are not
        checked."""
        self.qosd.add("nginx.service")
        out = self.out_of("list", "--all")
        self.assertRegex(out, r"(?s)^UNIT .*\nnginx.service .*1 unit attached, \d+ more listening\.")
        self.assertEqual(json.loads(self.out_of("list", "--all", "nginx.ser*", "--json=short"))["unit"],
                         "nginx.service")
        self.assertIn("local host", self.error_of("-H", "x", "list", "--all", status=2))

    def test_degraded(self):
        self.qosd.add("nginx.service", degraded="requests: \x1b[31mno BTF")
        self.assertIn("nginx.service: requests: \\x1b[31mno BTF\n", self.out_of())

    def test_json(self):
        self.qosd.add("nginx.service")
        self.qosd.add("redis.service")
        out = self.out_of("--json=short")
        objects = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([o["unit"] for o in objects], ["nginx.service", "redis.service"])
        self.assertEqual(objects[0]["snapshot"]["requests"]["server"]["rate"], 15123.4)
        self.assertGreater(len(self.out_of("--json=pretty").splitlines()), 50)
        self.assertEqual(self.out_of("--json=off")[:4], "UNIT")
        self.assertEqual(len(self.out_of("-j").splitlines()), 2)

    def test_colors(self):
        self.qosd.add("nginx.service")
        self.assertNotIn("\x1b", self.out_of())
        self.assertIn("\x1b[0;1;32mactive", self.out_of(SYSTEMD_COLORS="1"))
        for env, colored in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True),
                             ({"SYSTEMD_COLORS": "no"}, False),
                             ({"NO_COLOR": "1", "SYSTEMD_COLORS": "16"}, True)):
            t = self.terminal("--no-pager", env=env)
            t.wait_for("attached")
            self.assertEqual(t.end(), 0)
            self.assertEqual("\x1b" in t.output, colored, env)


class Status(Test):
    def lines(self, *arguments, **keywords):
        out = self.out_of("status", *arguments, **keywords).splitlines()
        return {key: [line for line in out if line.strip().startswith(key)]
                for key in ("Endpoints:", "LISTEN", "Outgoing:", "PEER", "others")}

    def test_endpoints(self):
        one, metrics_port = row(listen="*:443"), row(listen="127.0.0.1:9100", excluded=True, count=7)
        self.qosd.add("one.service", requests__server__endpoints=[one])
        self.assertEqual(self.lines("one")["Endpoints:"], [])
        self.qosd.add("two.service", requests__server__endpoints=[one, metrics_port,
                                                                  row(rest=True, errors={"reset": 20, "timeout": 10})])
        out = self.out_of("status", "two", columns=100)
        self.assertIn("       Endpoints: 3\n", out)
        self.assertRegex(out, r"\n {18}LISTEN +RATE +COUNT +ERRORS +P50 +P99 +INFLIGHT\n")
        self.assertRegex(out, r"\n {18}\*:443 +100/s +1\.00k +0/s +109us +2\.04ms +3\n")
        self.assertRegex(out, r"\n {18}127\.0\.0\.1:9100 \(excluded\) +0\.70/s +7 ")
        self.assertRegex(out, r"\n {18}others +100/s +1\.00k +3\.00/s ")
        self.qosd.add("alone.service", requests__server__endpoints=[metrics_port])
        self.assertEqual(len(self.lines("alone")["LISTEN"]), 1)
        # Over windows without figures of endpoints only their number is shown
        self.qosd.add("long.service", requests__server__endpoints=[{"listen": "*:1"}, {"listen": "*:2"}])
        lines = self.lines("long", "--window=60s")
        self.assertEqual((len(lines["Endpoints:"]), lines["LISTEN"]), (1, []))
        self.assertIn("windows from 2s to 10s", lines["Endpoints:"][0])
        # Addresses may contain control characters, and entries may be incomplete
        self.qosd.add("bad.service",
                      requests__server__endpoints=[one, row(listen="\x1b[2J"), {}, {"rate": "x", "errors": 7}])
        self.assertNotIn("\x1b", self.out_of("status", "bad"))

    def test_peers(self):
        client = {"count": 1007, "rate": 100.7, "errors": {"reset": 0, "timeout": 0}, "aborts": 0, "inFlight": 0,
                  "bytesIn": 1, "bytesOut": 2}
        peers = [row(peer="127.0.0.1:6379", unit="redis-server.service"),
                 row(peer="[fd77:1234:5678:9abc:def0:1234:5678:9abc]:65535", count=7),
                 row(rest=True)]
        self.qosd.add("web.service", requests__client=client | {"peers": peers})
        for columns, locale in ((80, None), (80, "C"), (200, None)):
            self.fits(self.out_of("status", "web", columns=columns, locale=locale), columns)
        out = self.out_of("status", "web", columns=200)
        self.assertIn("        Outgoing: 101/s (1.01k in 10.0s)\n", out)
        self.assertRegex(out, r"\n {18}127\.0\.0\.1:6379 +redis-server\.service +100/s +0/s +109us +2\.04ms +3\n")
        self.assertRegex(out, r"\n {18}\[fd77:1234:5678:9abc:def0:1234:5678:9abc\]:65535 +- +0\.70/s ")
        self.assertRegex(out, r"\n {18}others +- ")
        # Users that may not see the peers get their sum. A unit without client requests has no line
        self.qosd.add("hidden.service", requests__client=client,
                      totals={"requests.server.count": 1, "requests.client.bytesOut": 2})
        lines = self.lines("hidden")
        self.assertEqual((len(lines["Outgoing:"]), lines["PEER"]), (1, []))
        self.qosd.add("quiet.service", requests__client=client,
                      totals={"requests.server.count": 1, "requests.client.bytesOut": 0})
        self.assertEqual(self.lines("quiet")["Outgoing:"], [])
        self.qosd.add("long.service", requests__client={"peers": [{"peer": "127.0.0.1:1"}]})
        self.assertIn("windows from 2s to 10s", self.lines("long", "--window=60s")["Outgoing:"][0])

    def test_excluded(self):
        self.qosd.add("nginx.service",
                      holds=[{"type": "administrator", "probes": ["requests"], "uid": 0, "remaining": 543 * SEC,
                                               "exclude": ["port:80", "port:9100"]}])
        self.qosd.add("auto.service",
                      holds=[{"type": "configuration", "probes": ["requests"], "uid": 0, "owner": "/etc/qosd.conf"}])
        self.assertIn("Held by: Observe=auto in /etc/qosd.conf\n", self.out_of("status", "auto"))
        self.assertIn("Held by: administrator (root), 9min 3s left, excluding port:80 port:9100\n",
                      self.out_of("status", "nginx"))

    def test_nested(self):
        self.qosd.add("system.slice", descendantUnits=[f"unit{i}.service" for i in range(8)])
        self.qosd.add("nginx.service", parentUnit="system.slice")
        self.assertIn("Descendants: unit0.service, unit1.service, unit2.service, unit3.service, unit4.service, "
                      "unit5.service, "
                      "unit6.service, unit7.service (merged)\n", self.out_of("status", "system.slice"))
        out = self.out_of("status", "nginx")
        self.assertIn("Parent: system.slice\n", out)
        self.assertNotIn("Descendants", out)
        self.qosd.add("system.slice", descendantUnits=["\x1b.service"] + [f"unit{i}.service" for i in range(9)])
        out = self.out_of("status", "system.slice")
        self.assertIn("Descendants: \\x1b.service, unit0.service,", out)
        self.assertIn("unit6.service, 2 more (merged)\n", out)

    def test_sealed(self):
        for probes, protocols, said in ((["requests", "tls"], {"tls": 40}, True), (["requests"], {"tls": 40}, False),
                                        (["requests", "tls"], {"tls": 0, "http1": 40}, False)):
            self.qosd.add("uvicorn.service", requests__server__protocols=protocols,
                          holds=[{"type": "lease", "probes": ["requests"], "uid": 0, "owner": "varlink 1 (qosctl)"},
                                 {"type": "administrator", "probes": probes, "uid": 0}])
            self.assertEqual("40 over TLS not parsed: the probe tls sees OpenSSL "
                             "on sockets" in self.out_of("status", "uvicorn", columns=200), said)

    def test_page(self):
        self.qosd.add("nginx.service", requests__server__errors={"reset": 3, "timeout": 1},
                      requests__server__clientAborts=2,
                      requests__server__inFlight=7, requests__server__oldestInFlight=81000,
                      holds=[{"type": "administrator", "probes": ["requests"], "uid": 0, "remaining": 543 * SEC},
                             {"type": "lease", "probes": ["requests"], "uid": 4000000000,
                              "owner": "varlink 1234 (qosctl)"}])
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                out = self.out_of("status", "nginx", columns=columns, locale=locale)
                self.fits(out, columns)
        self.assertTrue(out.isascii())
        for line in ("Active: active", "Held by: administrator (root), 9min 3s left",
                     "lease, varlink 1234 (qosctl), uid 4000000000",
                     "CGroup: /system.slice/nginx.service", "Overhead: 0.4% of a CPU",
                     "Requests: 15.1k/s (151k in 10.0s)\n" + " " * 18
                     + "protocol not parsed, one response per request assumed\n", "In flight: 7, oldest 81.0us",
                     "Errors: 0.40/s (3 reset, 1 timed out); 2 aborted by clients",
                     "12 open, 3 new, 0 retransmitted segments",
                     "Accept queue: 0/511, 0 dropped", "9.07M requests and 0 errors since attached",
                     "######"):
            self.assertIn(line, out)
        self.assertRegex(out, r"Attached: since \w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; 10min ago")
        self.assertRegex(out, r"\n +MEAN +P50 +P90 +P95 +P99 +P99.9 +MAX +SHARE\n")
        self.assertRegex(out, r"\n         Latency +120us +109us +207us +240us +338us +1.20ms +6.21ms")
        self.assertRegex(out, r"\n         Service .* 87.0%\n")

    def test_idle(self):
        self.qosd.add("idle.service", rate=0)
        out = self.out_of("status", "idle")
        self.assertIn("Requests: 0/s (0 in 10.0s)\n", out)
        self.assertNotIn("not parsed", out)

    def test_longer_windows(self):
        self.qosd.add("slow.service", rate=5)
        out = self.out_of("status", "slow")
        self.assertRegex(out, r"MEAN +P50 +P90 P95 \(60s\) P99 \(5min\) P99.9 +MAX")
        self.assertRegex(out, r"Latency .* 338us +- ")
        self.assertIn("too few requests, P99.9 requires 5000", out)
        out = self.out_of("status", "slow", "--window=10s")
        self.assertNotIn("(60s)", out)
        self.assertIn("too few requests, P95 requires 100", out)
        # The minimum is that of this qosd. It is requested once, and only for a text that has it
        self.qosd.add("other.service", rate=5)
        self.qosd.status["minimumSamples"] = 50
        self.qosd.calls.clear()
        out = self.out_of("status", "slow", "other", "--window=10s")
        self.assertEqual(out.count("too few requests, P95 requires 1000"), 2)
        self.assertEqual(len(self.calls("GetStatus")), 1)
        self.qosd.add("busy.service", rate=100000)
        self.out_of("list")
        self.out_of("status", "busy")
        self.assertEqual(len(self.calls("GetStatus")), 1)

    def test_no_legend(self):
        row = {"count": 100, "rate": 10.0, "errors": {"reset": 0}, "inFlight": 0, "latency": distribution(100, 109000)}
        self.qosd.add("nginx.service",
                      requests__server__endpoints=[row | {"listen": "*:443"}, row | {"listen": "*:80"}],
                      requests__client={"peers": [row | {"peer": "127.0.0.1:6379"}]})
        for header in (r"\n +MEAN +P50 ", r"\n +LISTEN ", r"\n +PEER "):
            self.assertRegex(self.out_of("status", "nginx"), header)
            self.assertNotRegex(self.out_of("status", "nginx", "--no-legend"), header)
        self.assertRegex(self.out_of("status", "nginx", "--no-legend"),
                         r"(?s)\n         Latency .*\*:443 .*127.0.0.1:6379 ")
        # Without the header, quantiles of longer windows are left out, as nothing would name their window
        self.qosd.add("slow.service", rate=5)
        self.assertRegex(self.out_of("status", "slow"), r"\n         Latency .* 338us +- +[0-9.]+m?s +\n.*\n")
        out = self.out_of("status", "slow", "--no-legend")
        self.assertNotIn(" 338us", out)
        self.assertNotIn("too few", out)

    def test_young(self):
        self.qosd.add("young.service", rate=2, age=4)
        self.assertIn("(8 in 4.00s)\n", self.out_of("status", "young"))

    def test_absent(self):
        self.qosd.add("new.service", rate=0, cost=None)
        out = self.out_of("status", "new")
        self.assertIn("Requests: 0/s (0 in 10.0s", out)
        self.assertNotIn("Overhead", out)
        self.assertNotIn("P99", out)
        self.qosd.add("nothing.service", requests=None, totals=None)
        out = self.out_of("status", "nothing")
        self.assertIn("Requests: not measured", out)
        self.qosd.add("overlap.service", requests__quality="overlapping", requests__server__count=None,
                      requests__server__rate=None,
                      requests__server__latency=None)
        self.assertIn("not measurable: requests overlap", self.out_of("status", "overlap"))

    def test_trouble(self):
        self.qosd.add("bad.service", activeState="failed", degraded="requests: \x1b]0;title\x07", drops=3,
                      controlGroup="/a\nb",
                      holds=[{"type": "lease", "probes": [], "uid": 0, "owner": "\x1b[2J"}],
                      requests__server__connections={"acceptQueue": 128, "acceptQueueMax": 128, "listenDrops": 41})
        out = self.out_of("status", "bad")
        for line in ("× bad.service", "failed", "Degraded: requests: \\x1b]0;title\\x07", "3 events not counted",
                     "CGroup: /a\\x0ab\n",
                     "Accept queue: 128/128, 41 dropped", "lease, \\x1b[2J"):
            self.assertIn(line, out)
        self.qosd.errors["Histogram"] = Error("NotMeasured", metric="requests.server.latency", message="not now")
        self.out_of("status", "bad")

    def test_exit_status(self):
        self.qosd.known = {"postgresql.service"}
        out, err = self.run_qosctl("status", "postgresql", status=3)
        self.assertIn("qosctl attach postgresql.service", out)
        self.assertEqual(err, "")
        self.assertEqual(self.qosd.units, {})
        self.assertEqual(self.error_of("status", "foo", status=4), "Failed to read 'foo': no such unit foo.service.\n")
        self.assertIn("not attached", self.error_of("status", "--json=short", "postgresql", status=3))
        self.run_qosctl("status", "postgresql", "foo", status=1)
        self.assertIn("No attached unit matches", self.error_of("status", "x*", status=3))

    def test_several(self):
        self.qosd.add("a.service")
        self.qosd.add("b.service")
        self.qosd.known = {"c.service"}
        out, _ = self.run_qosctl("status", "a", "b", "c", status=3)
        self.assertEqual(len(re.findall(r"^[●○] ", out, re.M)), 3)
        self.assertEqual(self.out_of("status", "*").count("Requests:"), 2)

    def test_json(self):
        self.qosd.add("nginx.service")
        self.qosd.units["nginx.service"] = (self.qosd.units["nginx.service"][0],
                                            lambda window: snapshot("nginx.service", 7, window, now=10 ** 18), {})
        self.assertEqual(json.loads(self.out_of("status", "nginx", "--json=short")),
                         snapshot("nginx.service", 7, 10 * SEC, now=10 ** 18))
        self.assertEqual(self.calls("Get"), [{"unit": "nginx"}])
        self.assertNotIn("window", json.loads(self.out_of("status", "nginx", "--json=pretty", "--window=total")))

    def test_windows(self):
        self.qosd.add("nginx.service")
        for window, nsec in (("100ms", SEC // 10), ("1s", SEC), ("60s", 60 * SEC), ("1min", 60 * SEC),
                             ("5min", 300 * SEC), ("total", 0)):
            self.qosd.calls.clear()
            self.out_of("status", "nginx", "--window", window)
            self.assertEqual(self.calls("List"), [{"unit": "nginx", "window": nsec}])
        for window in ("11s", "50ms", "10min"):
            err = self.error_of("status", "nginx", f"--window={window}", status=2)
            self.assertIn(f"invalid window '{window}', expected ", err)
            self.assertIn("5min, or total", err)
        for window in ("", "0", "yesterday", "-1s"):
            self.error_of("status", "nginx", f"--window={window}", status=2)

    def test_no_side_effects(self):
        self.qosd.add("slow.service", rate=5)
        self.out_of("status", "slow")
        self.assertLessEqual({m for m, _ in self.qosd.calls}, {"List", "Get", "Histogram", "GetStatus"})


class Show(Test):
    def test_lines(self):
        self.qosd.add("nginx.service", rate=7)
        lines = dict(line.split("=", 1) for line in self.out_of("show", "nginx").splitlines())
        self.assertEqual(lines["unit"], "nginx.service")
        self.assertEqual(lines["requests.server.count"], "70")
        self.assertEqual(lines["requests.server.rate"], "7")
        self.assertEqual(lines["requests.server.latency.p50"], "109000")
        self.assertEqual(lines["totals.requests.server.count"], "4200")
        self.assertEqual(lines["cost.share"], "0.004")
        self.assertNotIn("requests.server.latency.p99", lines)

    def test_metrics(self):
        self.qosd.add("nginx.service", rate=7.5)
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server.count", "--value"), "75\n")
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server.rate"), "requests.server.rate=7.5\n")
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server.latency").splitlines()[0],
                         "requests.server.latency.count=75")
        self.assertEqual(self.out_of("show", "nginx", "-P", "totals.requests.server.count", "--value"), "4500\n")
        # Metrics are printed in the order of the command line
        self.assertEqual(self.out_of("show", "nginx", "-P", "seq,unit", "-P", "requests.server.count", "--value"),
                         "812\nnginx.service\n75\n")
        # Metrics of endpoints and peers are requested by name, and may be absent
        self.qosd.values = {"requests.server[:443].rate": 7.5, "requests.client[[::1]:80].count": 3,
                            "requests.server[*:1].latency.p99": None}
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server[:443].rate", "--value"), "7.5\n")
        self.assertEqual(self.out_of("show", "nginx", "-P",
                                     "requests.client[[::1]:80].count,requests.server.count,"
                                     "requests.server[*:1].latency.p99"),
                         "requests.client[[::1]:80].count=3\nrequests.server.count=75\n"
                         "requests.server[*:1].latency.p99=\n")
        self.assertEqual(self.calls("Get")[-1]["metrics"],
                         ["requests.client[[::1]:80].count", "requests.server[*:1].latency.p99"])
        self.assertIn("no metric", self.error_of("show", "nginx", "-P", "requests.server[:443].nonsense"))
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server.latency.p99"),
                         "requests.server.latency.p99=\n")
        self.assertEqual(self.out_of("show", "nginx", "-P", "requests.server.latency.p99", "--value"), "\n")
        self.assertEqual(self.out_of("show", "nginx", "-P", "window", "--value", "--window=total"), "\n")
        out, err = self.run_qosctl("show", "nginx", "-P", "requests.server.nonsense,seq", "--value", status=1)
        self.assertIn("list-metrics", err)
        self.assertEqual(out, "812\n")

    def test_several(self):
        self.qosd.add("a.service")
        self.qosd.add("b.service")
        self.assertEqual(self.out_of("show", "*", "-P", "unit"), "unit=a.service\n\nunit=b.service\n")
        # What is printed of several says of which unit it is
        self.assertEqual(self.out_of("show", "*", "-P", "seq"), "unit=a.service\nseq=812\n\nunit=b.service\nseq=812\n")
        self.assertEqual(self.out_of("show", "a*", "-P", "seq"), "seq=812\n")
        self.assertEqual(self.out_of("show", "*", "-P", "seq", "--value"), "812\n\n812\n")
        for typo in "requests.server.latncy.p99", "requests.server.latncy":
            self.assertEqual(self.error_of("show", "a", "-P", typo),
                             f"Unknown metric '{typo}', did you mean 'requests.server.latency.p99'?\n")
        self.assertEqual([json.loads(line)["unit"] for line in self.out_of("show", "a", "b",
                                                                           "--json=short").splitlines()],
                         ["a.service", "b.service"])

    def test_exit_status(self):
        self.qosd.known = {"x.service"}
        self.error_of("show", "x", status=3)
        self.error_of("show", "y", status=4)
        self.error_of("show", "x", "--value", "--json=short", status=2)


class Connecting(Test):
    def test_full_listen_queue(self):
        """qosctl waits for its connection to be accepted when the listen queue is full."""
        self.qosd.add("nginx.service")
        path = self.directory + "/busy"
        others = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(0)
            try:
                while True:
                    others.append(socket.socket(socket.AF_UNIX))
                    others[-1].setblocking(False)
                    others[-1].connect(path)
            except BlockingIOError:
                pass
            with subprocess.Popen([util_qosctl.QOSCTL, "list", "--no-legend"], env=self.env | {"QOSD_ADDRESS": path},
                                  stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                def waits():
                    with open(f"/proc/{process.pid}/wchan") as f:
                        return f.read().startswith("unix_")

                deadline = time.monotonic() + DEADLINE
                while process.poll() is None and not waits():
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(.001)
                for _ in others:    # qosctl connects instead of the last one, which has failed to
                    threading.Thread(target=self.qosd.serve, args=(listener.accept()[0],), daemon=True).start()
                    if process.poll() is not None:
                        break
                out, _ = process.communicate(timeout=DEADLINE)
                self.assertIn("nginx.service", out.decode())
        for s in others:
            s.close()
