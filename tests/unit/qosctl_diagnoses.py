# SPDX-License-Identifier: LGPL-2.1-or-later
"""diagnose and why, and what is shown while they run"""

import json
import signal
import socket
import subprocess
import threading
import time

import util_qosctl

from fake_qosd import SEC, Error
from util_qosctl import DEADLINE, Terminal, Test, plain, state_labels


class Diagnoses(Test):
    def test_diagnose(self):
        figures = {"rate": 1000, "cpus": 2.0, "idleCpus": 0.25,
                   "threads": {"running": 0.5, "runQueue": 0.75, "lock": 0.0}}
        found = {"verdict": "found", "summary": "CPU contention \x1b; hog.service had the CPU",
                 "text": "1000 requests/s", "figures": figures,
                 "findings": [{"kind": "cpu", "certainty": "likely",
                               "text": "run-queue wait: 50%, \x1b hog.service used it", "rule": "the rule",
                               "next": "systemctl it",
                               "unit": "hog.service", "resource": "hog.service", "state": "runQueue", "time": 5,
                               "share": 0.5}],
                 "excluded": [{"kind": "disk", "text": "disk wait: 0us", "share": 0},
                              {"kind": "lock", "text": "lock wait: 1us", "share": 0.02},
                              {"kind": "network", "text": "responses leave in 44ms (44%)", "share": 0.44}]}
        nothing = {"verdict": "nothing", "summary": "no bottleneck found", "text": "1000 requests/s",
                   "figures": figures, "findings": [], "excluded": []}
        self.qosd.add("nginx.service")

        self.qosd.diagnosis = found
        out = self.out_of("diagnose", "nginx", "--for=1s")
        self.assertTrue(out.startswith("nginx.service: CPU contention \\x1b; hog.service had the CPU\n1000 "
                                       "requests/s\n\ncpu (likely)\n"), out)
        self.assertIn("hog.service used it", out)
        self.assertNotIn("\x1b", out)
        self.assertIn("\n    Next: systemctl it\n\nBelow the limits of their rules:\n    network    responses leave in "
                      "44ms (44%)\n", out)
        self.assertIn("\nNo significant wait for: disk, lock\n", out)
        self.assertIn("\nThreads, on average: running 0.50, CPU run queue 0.75\n", out)
        self.assertIn("CPUs allowed: 2 (idle: 0.25)", out)
        # Text is wrapped at the width of the terminal, as the pager truncates longer lines
        long = " ".join(["words"] * 60)
        self.qosd.diagnosis = found | {"text": long, "findings": [found["findings"][0] | {"text": long, "next": long}],
                                       "excluded": [{"kind": kind, "text": long} for kind in ("disk", "application")],
                                       "figures": figures | {"threads": {state: 0.5 for state in self.STATES}}}
        for columns in (60, 80, 200):
            out = self.out_of("diagnose", "nginx", "--for=1s", columns=columns)
            self.fits(out, columns)
            self.assertEqual(out.count("words"), 5 * 60)
            self.assertGreater(max(map(len, out.splitlines())), columns - 6)
            self.assertIn("\n    disk       words words", out)
            self.assertIn("\n               words words", out)
        self.assertIn("\n    " + long, self.out_of("diagnose", "nginx", "--for=1s"))
        self.qosd.diagnosis = found
        self.assertEqual(json.loads(self.out_of("diagnose", "nginx", "--for=1s",
                                                "--json=short"))["findings"][0]["unit"], "hog.service")

        self.qosd.diagnosis = nothing
        self.assertTrue(self.out_of("diagnose", "nginx", "--for=1s").startswith("nginx.service: no bottleneck found\n"))
        self.qosd.diagnosis = nothing | {"verdict": "unknown", "summary": "inconclusive"}
        self.assertIn("nginx.service: inconclusive\n", self.run_qosctl("diagnose", "nginx", "--for=1s", status=1)[0])

        # A baseline from the history is named with its interval
        self.qosd.diagnosis = nothing | {"baseline": figures,
                                         "baselineSource": {"since": 1763683200000000, "until": 1763683260000000,
                                                            "covered": 30 * 10 ** 9}}
        self.assertIn("Compared with its history, 30s between ", self.out_of("diagnose", "nginx", "--for=1s"))

        # A saved baseline is sent to qosd without changes
        self.qosd.diagnosis = nothing
        path = self.directory + "/normal"
        self.out_of("diagnose", "nginx", "--for=1s", f"--save={path}")
        with open(path) as f:
            kept = json.load(f)
        self.assertEqual((kept["version"], kept["unit"], kept["figures"]), (2, "nginx.service", figures))
        out = self.out_of("diagnose", "nginx", "--for=1s", f"--against={path}")
        self.assertEqual(self.calls("Diagnose")[-1]["baseline"], figures)
        self.assertNotIn("another unit", out)
        self.qosd.add("redis.service")
        self.assertIn("saved of another unit: nginx.service",
                      self.out_of("diagnose", "redis", "--for=1s", f"--against={path}"))

        # Files of version 1 have previous names of some figures
        with open(path, "w") as f:
            json.dump({"version": 1, "unit": "nginx.service",
                       "figures": {"rate": 2.5, "asked": 3, "askTime": 4, "busiest": .5, "held": 6}}, f)
        self.out_of("diagnose", "nginx", "--for=1s", f"--against={path}")
        self.assertEqual(self.calls("Diagnose")[-1]["baseline"],
                         {"rate": 2.5, "clientRate": 3, "clientLatency": 4, "busiestProcess": .5,
                          "blockedByRequests": 6})

        n = len(self.calls("Diagnose"))
        for text, what in (("{", "no JSON"), ("{}", "no version"),
                           ('{"version":3,"figures":{}}', "version 3, expected at most 2"),
                           ('{"version":1}', "no figures"),
                           ('{"version":1,"figures":[]}', "no figures"), ("", "is empty")):
            with open(path, "w") as f:
                f.write(text)
            self.assertIn(what, self.error_of("diagnose", "nginx", "--for=1s", f"--against={path}"))
        self.assertIn("No such file", self.error_of("diagnose", "nginx", "--for=1s", f"--against={path}.none"))
        self.assertEqual(len(self.calls("Diagnose")), n)
        self.assertIn("Failed to write",
                      self.error_of("diagnose", "nginx", "--for=1s", f"--save={self.directory}/none/normal"))
        n = len(self.calls("Diagnose"))
        for span in ("30s", "500ms", "11s", "1500ms", "10min"):
            self.assertIn(f"Invalid --for={span}, expected 1s to 10s in whole seconds, 60s or 5min.",
                          self.error_of("diagnose", "nginx", f"--for={span}", status=2))
        self.assertEqual(len(self.calls("Diagnose")), n)
        self.error_of("diagnose", "other", status=4)
        self.error_of("diagnose", "nginx", "redis", status=2)
        self.error_of("diagnose", "nginx", "--for=1s", "--window=10s", status=2)
        self.error_of("status", "nginx", "--save=x", status=2)
        self.error_of("diagnose", "nginx", "--for=1s", "--against=", status=2)

    # Any text may precede the expected one, as narrow terminals have less of it
    PROGRESS = r"\r\x1b\[2K[^\r\n]*"

    def diagnosing(self, columns=80, span="10s", **more):
        self.qosd.add("nginx.service", rate=1234)
        self.qosd.diagnosis = {"verdict": "nothing", "summary": "no bottleneck found", "text": "1000 requests/s",
                               "figures": {}, "findings": [], "excluded": []} | more
        return self.terminal("diagnose", "nginx", f"--for={span}", columns=columns, env={"PAGER": ""})

    def test_diagnose_on_narrow_terminals(self):
        """Words are not broken at the end of a line, so that names and commands can be copied."""
        command, summary = (f"journalctl -u {self.LONG_NAME} -n 50",
                            "100% of 171 requests/s fail: 171 error replies/s")
        self.qosd.add(self.LONG_NAME)
        self.qosd.diagnosis = {"verdict": "found", "summary": summary, "text": "171 requests/s",
                               "findings": [{"kind": "errors", "certainty": "certain", "text": summary,
                                             "rule": "the rule", "next": command}],
                               "excluded": [{"kind": kind, "share": 0}
                                            for kind in ("quota", "disk", "lock", "memory", "dependency", "limit",
                                                         "network")],
                               "figures": {"threads": {state: 0.5 for state in self.STATES}}}
        screens = {columns: self.screen("diagnose", self.LONG_NAME, "--for=1s", columns=columns)
                   for columns in (40, 80, 200)}
        for columns, lines in screens.items():
            words = " ".join(lines).split()
            for text in (f"{self.LONG_NAME}: {summary}", f"Next: {command}",
                         "No significant wait for: quota, disk, lock, memory, dependency, limit, network",
                         "Threads, on average: " + ", ".join(f"{label} 0.50" for label in state_labels().values())):
                self.assertIn(f" {text} ", " " + " ".join(words) + " ", f"{columns} columns")
        self.assertEqual(screens[40][:3],
                         [self.LONG_NAME + ":", "    100% of 171 requests/s fail: 171", "    error replies/s"])
        self.assertIn("    Next: journalctl -u", screens[40])
        self.assertIn(self.LONG_NAME, screens[40])
        self.assertIn("No significant wait for: quota, disk,", screens[40])
        self.assertEqual(screens[80][:2],
                         [f"{self.LONG_NAME}: 100% of 171 requests/s fail: 171 error", "    replies/s"])
        self.assertIn(f"    Next: {command}", screens[80])

    def test_progress(self):
        """The progress line has the unit, the time left and the rate so far, and is erased at the end."""
        begin = time.monotonic()
        for columns, t in [(columns, self.diagnosing(columns, span="2s")) for columns in (40, 80, 200)]:
            t.wait_for(self.PROGRESS + "2s left")
            t.wait_for(self.PROGRESS + "1s left, 1.23k" + (" requests/s" if columns > 50 else "/s"))
            self.assertEqual(t.end(), 0)
            self.assertGreaterEqual(time.monotonic() - begin, 1.9)
            line, page = t.output.rsplit("\r\x1b[2K", 1)
            self.assertNotIn("result", line)
            self.assertTrue(plain(page).startswith("nginx.service: no bottleneck found\r\n"), t.output)
            self.assertNotIn("\n", line)
            for drawn in line.split("\r\x1b[2K")[1:]:
                self.assertLess(len(plain(drawn)), columns)
                self.assertIn("nginx.service" if columns > 50 else "ervice", plain(drawn))
        self.assertIn("Observing nginx.service: ", plain(t.output))
        for window in [p["window"] for p in self.calls("Get")]:
            self.assertIn(window, (1 * SEC, 2 * SEC))

    def test_progress_is_for_terminals(self):
        """There is no progress line in pipes, with --json=, or on a dumb terminal."""
        t = self.diagnosing(span="1s")
        self.assertEqual(t.end(), 0)
        self.assertIn("left", t.output)
        calls = len(self.calls("Get"))
        self.out_of("diagnose", "nginx", "--for=1s")
        for arguments, env in ((["--json=short"], {}), ([], {"TERM": "dumb"})):
            t = Terminal(["diagnose", "nginx", "--for=1s", *arguments], self.env | {"PAGER": ""} | env)
            if env:
                t.process.kill()
            t.end()
        self.assertEqual(len(self.calls("Get")), calls)

    def test_progress_of_others(self):
        """measure, wait and attach have a progress line, too; measure only if the command's output is not on the
        terminal."""
        self.qosd.add("nginx.service", rate=1234)
        t = self.terminal("measure", "nginx", "--", "sleep", "2")
        self.assertEqual(t.end(), 0)
        self.assertNotIn("Observing", t.output)
        t = self.terminal("measure", "nginx", "--", "sleep", "3", stdout=subprocess.DEVNULL)
        t.wait_for(self.PROGRESS + "Observing nginx.service: 2s, 1.23k requests/s")
        self.assertEqual(t.end(), 0)
        self.assertIn("handled", t.output.rsplit("\r\x1b[2K", 1)[1])

        self.qosd.slow = {"Wait": threading.Event(), "Attach": threading.Event()}
        t = self.terminal("wait", "nginx", "requests.server.rate < 5", "--timeout=1min")
        t.wait_for(self.PROGRESS + "58s left")
        self.qosd.slow["Wait"].set()
        self.assertEqual((t.end(), plain(t.output.rsplit("\r\x1b[2K", 1)[1])), (0, ""))
        t = self.terminal("attach", "nginx")
        t.wait_for(self.PROGRESS + "Attaching nginx: 1s")
        self.qosd.slow["Attach"].set()
        # How to keep it is said on terminals
        self.assertEqual((t.end(), plain(t.output.rsplit("\r\x1b[2K", 1)[1])),
                         (0, "Attached until qosd is stopped, or the next boot. To attach at each boot: qosctl enable "
                             "nginx\r\n"))

    def test_interrupted(self):
        """Ctrl+C ends the interval and prints a diagnosis of it. A second one, or one before the interval begins, ends
        qosctl."""
        for verdict, status in (("nothing", 0), ("unknown", 1)):
            t = self.diagnosing(span="5min", verdict=verdict)
            t.wait_for("5min left")
            t.key("\x03")
            self.assertEqual(t.end(), status)
            self.assertIn("nginx.service: no bottleneck found", plain(t.output))
            self.assertEqual(self.calls("Diagnose")[-1], {"unit": "nginx.service", "sinceBegin": True})

        # SIGINT does the same in a pipe
        n = len(self.calls("BeginDiagnosis"))
        p = subprocess.Popen([util_qosctl.QOSCTL, "diagnose", "nginx", "--for=5min", "--json=short"], env=self.env,
                             stdout=subprocess.PIPE)
        self.until(lambda: len(self.calls("BeginDiagnosis")) == n + 1 and self.sleeps(p.pid))
        p.send_signal(signal.SIGINT)
        self.assertEqual(json.loads(p.communicate(timeout=DEADLINE)[0])["verdict"], "unknown")

        self.qosd.slow = {"BeginDiagnosis": threading.Event(), "Diagnose": threading.Event()}
        t = self.diagnosing(span="5min")
        t.wait_for("Attaching nginx: 1s")
        t.key("\x03")
        self.assertEqual(t.end(), -signal.SIGINT)
        self.assertTrue(t.output.endswith("\r\x1b[2K"), t.output)
        self.qosd.slow.pop("BeginDiagnosis").set()
        t = self.diagnosing(span="5min")
        t.wait_for("Observing")
        t.key("\x03")
        self.until(lambda: len(self.calls("Diagnose")) == 4)
        t.key("\x03")
        self.assertEqual(t.end(), -signal.SIGINT)
        self.assertTrue(t.output.endswith("\r\x1b[2K"), t.output)
        self.qosd.slow.pop("Diagnose").set()

    @staticmethod
    def waits_for(*peers, share=0.9, findings=()):
        """Returns a diagnosis with a dependency on peers, which are pairs of an address and a unit or None."""
        n = len(peers)
        return {"verdict": "found", "summary": "slow dependency", "text": "100 requests/s", "excluded": [],
                "findings": [{"kind": "dependency", "certainty": "certain", "text": "wait for responses of peers",
                              "rule": "a rule", "next": "qosctl it",
                              "resource": peers[0][0], "share": share}, *findings],
                "figures": {"rate": 100, "firstByte": 5000000, "clientRate": 100 * n, "clientLatency": 4000000},
                "peers": [{"name": address, "time": 4000000, "rate": 100} | ({"unit": unit} if unit else {})
                          for address, unit in peers]}

    DISK = {"verdict": "found", "summary": "disk: 88% of each request is disk wait (vda, used by backup.service)",
            "text": "100 requests/s", "excluded": [],
            "figures": {"rate": 100, "firstByte": 4000000},
            "findings": [{"kind": "disk", "certainty": "certain",
                          "text": "disk wait: 3.5ms of the 4ms to the first byte (88%)", "rule": "a rule",
                          "next": "systemctl set-property backup.service IOWeight=20", "resource": "vda",
                          "unit": "backup.service", "share": 0.88}]}

    def test_why(self):
        for unit in ("nginx.service", "web.service", "back.service"):
            self.qosd.add(unit)
        self.qosd.diagnoses = {"nginx.service": self.waits_for(("127.0.0.1:8001", "web.service"), share=0.96),
                               "web.service": self.waits_for(("[::1]:8002", "back.service"), share=0.5),
                               "back.service": self.DISK}
        self.assertEqual(self.out_of("why", "nginx", "--for=1s"), """\
nginx.service → web.service → back.service: disk: 88% of each request is disk wait (vda, used by backup.service)

nginx.service: 100 requests/s, 5.00ms to the first byte
└─ 96% web.service (127.0.0.1:8001): 100 requests/s, 5.00ms to the first byte
   └─ 50% back.service ([::1]:8002): 100 requests/s, 4.00ms to the first byte
      └─ disk wait: 3.5ms of the 4ms to the first byte (88%)

disk (certain), back.service: 42% of each request of nginx.service
    disk wait: 3.5ms of the 4ms to the first byte (88%)
    Next: systemctl set-property backup.service IOWeight=20
""")
        # Each unit is attached with a lease
        self.assertEqual([(p["unit"], p["lease"]) for p in self.calls("Attach")],
                         [("nginx", True), ("web.service", True), ("back.service", True)])
        self.assertIn("nginx.service -> web.service -> back.service: ",
                      self.out_of("why", "nginx", "--for=1s", locale="C"))
        for columns in (40, 80, 200):
            self.fits(self.out_of("why", "nginx", "--for=1s", columns=columns), columns)

        v = json.loads(self.out_of("why", "nginx", "--for=1s", "--json=short"))
        self.assertEqual((v["unit"], v["cause"]["unit"], v["cause"]["finding"]["kind"], v["interval"]),
                         ("nginx.service", "back.service", "disk", SEC))
        self.assertAlmostEqual(v["cause"]["wholeShare"], 0.96 * 0.5 * 0.88)
        step = v["steps"][0]["steps"][0]
        self.assertEqual((step["unit"], step["address"], step["share"], step["diagnosis"]["unit"], step["steps"]),
                         ("back.service", "[::1]:8002", 0.5, "back.service", []))

        for arguments in (["nginx", "--for=30s"], ["nginx", "--for=1500ms"], ["nginx", "web"], []):
            self.error_of("why", *arguments, status=2)
        self.assertIn("Failed to diagnose 'other': no such unit", self.error_of("why", "other", "--for=1s", status=4))

    def why_ends(self, *peers, status=0, **more):
        """Returns the steps below nginx in the JSON output, and the text output."""
        self.qosd.diagnoses["nginx.service"] = self.waits_for(*peers, **more)
        out = self.run_qosctl("why", "nginx", "--for=1s", status=status, columns=200)[0]
        return json.loads(self.run_qosctl("why", "nginx", "--for=1s", "--json=short", status=status)[0])["steps"], out

    def test_why_ends(self):
        """A path ends at peers that cannot be diagnosed, with the reason."""
        for unit in ("nginx.service", "web.service", "back.service"):
            self.qosd.add(unit)
        free = socket.create_server(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        for address, end, words in ((f"127.0.0.1:{port}", "noUnit", "no unit of this host is known to listen there"),
                                    ("/nowhere", "noUnit", "no unit of this host is known to listen there"),
                                    ("192.0.2.1:80", "otherHost", "not an address of this host"),
                                    ("[2001:db8::1]:80", "otherHost", "not an address of this host")):
            steps, out = self.why_ends((address, None))
            self.assertEqual([(s["address"], s["end"]) for s in steps], [(address, end)])
            self.assertIn(f"\n└─ 90% {address}: {words}\n", out)
            self.assertIn("\ndependency (certain), nginx.service\n", out)

        self.qosd.diagnoses["web.service"] = self.waits_for(("127.0.0.1:8000", "nginx.service"))
        steps, out = self.why_ends(("127.0.0.1:8001", "web.service"))
        self.assertEqual(steps[0]["steps"][0]["end"], "cycle")
        self.assertIn("90% nginx.service (127.0.0.1:8000): a cycle: it is above\n", out)

        # A unit in two branches is diagnosed once
        self.qosd.diagnoses |= {"web.service": self.waits_for(("127.0.0.1:8002", "back.service")),
                                "back.service": self.DISK}
        steps, out = self.why_ends(("127.0.0.1:8001", "web.service"), ("127.0.0.1:8002", "back.service"))
        self.assertEqual(([s["unit"] for s in steps], steps[1]["end"]), (["web.service", "back.service"], "seen"))
        self.assertIn("├─ 45% web.service (127.0.0.1:8001): ", out)
        self.assertIn("│  └─ 90% back.service (127.0.0.1:8002): ", out)
        self.assertIn("└─ 45% back.service (127.0.0.1:8002): it is elsewhere in the tree\n", out)

        # The diagnosis of a peer fails
        for error, words in ((Error("NoSuchUnit", unit="web.service", message="no such unit web.service"),
                              "no such unit web.service"),
                             (Error("org.varlink.service.PermissionDenied"), "access denied")):
            self.qosd.diagnoses["web.service"] = error
            steps, out = self.why_ends(("127.0.0.1:8001", "web.service"))
            self.assertEqual((steps[0]["end"], steps[0]["message"]), ("failed", words))
            self.assertIn(f"90% web.service (127.0.0.1:8001): not observed: {words}\n", out)

    def test_why_interrupted(self):
        """Ctrl+C prints the path so far, and no further unit is diagnosed."""
        for unit in ("nginx.service", "web.service"):
            self.qosd.add(unit)
        self.qosd.diagnoses = {"nginx.service": self.waits_for(("127.0.0.1:8001", "web.service"))}
        t = self.terminal("why", "nginx", "--for=10s", env={"PAGER": ""}, columns=200)
        t.wait_for("Observing nginx.service: 10s left")
        t.key("\x03")
        self.assertEqual(t.end(), 0)
        self.assertIn("90% web.service (127.0.0.1:8001): not observed: interrupted\r\n", plain(t.output))
        self.assertEqual([p["unit"] for p in self.calls("Diagnose")], ["nginx.service"])
