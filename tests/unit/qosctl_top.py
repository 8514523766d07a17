# SPDX-License-Identifier: LGPL-2.1-or-later
"""top"""

import json
import os
import re
import signal
import subprocess
import termios
import time

import util_qosctl

from fake_qosd import Error, FakeQosd
from util_qosctl import DEADLINE, Test, plain


class Top(Test):
    def test_batch(self):
        self.qosd.add("nginx.service")
        self.qosd.add("redis.service", rate=3)
        out = self.out_of("top", "--batch", "--iterations=3", "--delay=100ms")
        frames = out.split("\n\n")
        self.assertEqual(len(frames), 3)
        for f in frames:
            self.assertEqual([line.split()[0] for line in f.splitlines()], ["UNIT", "nginx.service", "redis.service"])
        self.assertNotIn("\x1b", out)
        out = self.out_of("top", "-b", "-n2", "-d0.1", "--no-legend")
        self.assertEqual(len(re.findall("^nginx", out, re.M)), 2)
        self.assertNotIn("UNIT", out)

    def test_pipe(self):
        """top prints one table without a terminal and without --batch."""
        self.qosd.add("nginx.service")
        self.assertEqual(self.out_of("top").count("UNIT"), 1)

    def test_nothing_attached(self):
        self.assertRegex(self.out_of("top", "-b", "-n", "1"), "^UNIT [A-Z0-9 ]+\n$")

    def test_json(self):
        self.qosd.add("nginx.service")
        objects = [json.loads(line)
                   for line in self.out_of("top", "--json=short", "-b", "-n", "2", "-d", "100ms").splitlines()]
        self.assertEqual([o["unit"] for o in objects], ["nginx.service"] * 2)

    def test_longer_windows(self):
        self.qosd.add("slow.service", rate=5)
        out = self.out_of("top", "-b", "-n", "3", "-d", "100ms")
        self.assertEqual(out.count("338us (5min)"), 3)
        # Longer windows are not requested for each table
        self.assertEqual(len(self.calls("Get")), 2)
        self.assertNotIn("(", self.out_of("top", "-b", "-n", "1", "--window=10s"))

    def test_lease(self):
        """top attaches a unit that is not attached with a lease, and does not change an attached one."""
        self.qosd.known = {"other.service"}
        self.qosd.add("nginx.service")
        t = self.terminal("top", "other", "nginx")
        t.wait_for("nginx")
        t.wait_for("other")
        self.assertEqual(self.calls("Attach"),
                         [{"unit": "other", "lease": True, "allowInteractiveAuthentication": True}])
        self.assertIn("other.service", self.qosd.units)
        t.key("q")
        self.assertEqual(t.end(), 0)
        end = time.monotonic() + DEADLINE
        while "other.service" in self.qosd.units and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(set(self.qosd.units), {"nginx.service"})
        self.assertIn("no such unit", self.error_of("top", "nonsense", status=4))

    def test_only_named(self):
        for name in ("a.service", "b.service", "c.service"):
            self.qosd.add(name)
        out = self.out_of("top", "-b", "-n", "1", "--no-legend", "a", "c*")
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["a.service", "c.service"])
        out = self.out_of("top", "-b", "-n", "1", "--no-legend", "b")
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["b.service"])

    def test_keys(self):
        self.qosd.add("a.service", rate=10, scale=9000000, requests__server__inFlight=1)
        self.qosd.add("b.service", rate=1000, scale=1000, requests__server__errors={"reset": 4},
                      requests__server__inFlight=2)
        self.qosd.add("c.service", rate=100, requests__server__inFlight=3)
        t = self.terminal("top", "-d", "2min", env={"SYSTEMD_COLORS": "0"})
        at = t.wait_for("by throughput.*b.service.*c.service.*a.service")
        self.assertIn("\x1b[?1049h", t.output)
        for key, what in (("p", "by unit .*a.service.*b.service.*c.service"),
                          ("e", "by errors.*b.service.*a.service.*c.service"),
                          ("l", "by latency.*a.service.*c.service.*b.service"),
                          ("i", "by in flight.*c.service.*b.service.*a.service"),
                          ("r", "by in flight reversed.*a.service.*b.service.*c.service"), ("h", "Sort by"),
                          ("+", "every 2min 1s"), ("?", "UNIT"),
                          ("\x1b[A", "UNIT"), ("t", "by throughput reversed")):
            t.key(key)
            at = t.wait_for(what, at)
        # The space key refreshes the table
        n = len(self.calls("List"))
        t.key(" ")
        end = time.monotonic() + DEADLINE
        while len(self.calls("List")) == n and time.monotonic() < end:
            t.read(0.05)
        self.assertGreater(len(self.calls("List")), n)
        t.key("q")
        self.assertEqual(t.end(), 0)
        self.assertTrue(t.output.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"), t.output[-40:])

    def test_signals(self):
        self.qosd.add("nginx.service")
        for stop in (lambda t: t.key("\x03"), lambda t: t.process.send_signal(signal.SIGTERM),
                     lambda t: t.process.send_signal(signal.SIGHUP)):
            t = self.terminal("top")
            t.wait_for("nginx.service")
            stop(t)
            self.assertEqual(t.end(), 0)
            self.assertTrue(t.output.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"))

    def test_suspend(self):
        self.qosd.add("nginx.service")
        t = self.terminal("top")
        at = t.wait_for("nginx.service")
        t.key("\x1a")
        at = t.wait_for(re.escape("\x1b[?1049l"), at)
        pid, status = os.waitpid(t.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertEqual(termios.tcgetattr(t.slave), t.before)
        t.process.send_signal(signal.SIGCONT)
        at = t.wait_for(re.escape("\x1b[?1049h") + ".*nginx.service", at)
        t.key("q")
        self.assertEqual(t.end(), 0)

    def test_size(self):
        for i in range(40):
            self.qosd.add(f"unit-number-{i:02}.service", rate=i)
        t = self.terminal("top", "-d", "1h", rows=10, columns=60)
        at = t.wait_for(r"34 more")
        self.fits(t.output.replace("\r", ""), 60)
        t.resize(20, 200)
        at = t.wait_for(r"OVERHEAD.*24 more", at)
        t.resize(2, 5)
        at = t.wait_for(r"\x1b\[H", at)
        t.resize(24, 80)
        t.wait_for(r"20 more", at)
        t.key("q")
        self.assertEqual(t.end(), 0)

    def await_rows(self, t, *expected, what=""):
        """Waits until the table on the screen has these units, this one is selected, and the screen matches a regular
        expression."""
        end = time.monotonic() + DEADLINE
        while True:
            screen = t.output[t.output.rindex("\x1b[H"):]
            lines = [line for line in screen.split("\r\n") if ".service" in line]
            got = [plain(line).split()[0] for line in lines], *[plain(line).split()[0] for line in lines
                                                                if "\x1b[7m" in line]
            if (got == expected and re.search(what, screen, re.S)) or time.monotonic() > end:
                break
            t.read(0.1)
        self.assertEqual(got, expected)
        self.assertRegex(screen, re.compile(what, re.S))

    def test_scroll(self):
        for i in range(30):
            self.qosd.add(f"u@{i}.service", rate=i + 1)
        t = self.terminal("top", "-d", "1h", rows=14)
        at = t.wait_for("20 more")
        # Instances are sorted by their number
        t.key("p")
        at = t.wait_for("by unit.*20 more", at)
        self.await_rows(t, [f"u@{i}.service" for i in range(10)])
        first = 0
        for key, chosen in (("\x1b[B", 0), ("\x1b[B", 1), ("\x1bOB", 2), ("\x1b[A", 1), ("\x1b[6~", 11),
                            ("\x1b[6~", 21), ("\x1b[F", 29),
                            ("\x1b[B", 29), ("\x1b[5~", 19), ("\x1b[1~", 0), ("\x1b[A", 0), ("\x1b[4~", 29),
                            ("\x1b[H", 0)):
            first = min(max(first, chosen - 9), chosen)
            t.key(key)
            self.await_rows(t, [f"u@{i}.service" for i in range(first, first + 10)], f"u@{chosen}.service")
        # The selection stays with its unit in another order
        t.key("r")
        self.await_rows(t, [f"u@{i}.service" for i in range(9, -1, -1)], "u@0.service", what="reversed.*20 above$")
        t.key("\x1b")
        self.await_rows(t, [f"u@{i}.service" for i in range(29, 19, -1)])
        t.key("q")
        self.assertEqual(t.end(), 0)

    def test_filter(self):
        for name in "nginx.service", "nginx@a.service", "redis.service", "postgresql.service":
            self.qosd.add(name, rate=len(name))
        t = self.terminal("top", "-d", "1h")
        t.wait_for("4 units.*nginx.service")
        for keys, what, names, *chosen in (
                ("/ng", "Filter: ng_", ["nginx@a.service", "nginx.service"]), ("x", "Filter: ngx_", []),
                ("\x7f\r", "Filter: ng\r", ["nginx@a.service", "nginx.service"]),
                ("p", "Filter: ng\r", ["nginx.service", "nginx@a.service"]),
                ("/\x1b[B", "Filter: ng_", ["nginx.service", "nginx@a.service"], "nginx.service"),
                ("\x7f\x7f[pr]*e\r", r"Filter: \[pr]\*e\r", ["postgresql.service", "redis.service"])):
            t.key(keys)
            self.await_rows(t, names, *chosen, what=f"{len(names)} of 4 units.*{what}")
        t.key("\x1b")
        self.await_rows(t, ["nginx.service", "nginx@a.service", "postgresql.service", "redis.service"],
                        what="  4 units")
        t.key("q")
        self.assertEqual(t.end(), 0)

    def test_status_of_the_selected(self):
        """Enter shows the status of the unit, as the command does, and the table is there again afterwards."""
        self.qosd.add("a.service", rate=5)
        self.qosd.add("b.service", rate=3)
        t = self.terminal("top", "-d", "1h", env={"SYSTEMD_COLORS": "0"}, rows=12)
        at = t.wait_for("a.service.*b.service")
        t.key("\r\x1b[B\x1b[B\r")
        at = t.wait_for("b.service, lines 1 to 10 of [0-9]+    q for the table.*b.service", at)
        text = self.out_of("status", "b", columns=80)
        number = len(text.splitlines())
        self.assertIn(f"lines 1 to 10 of {number} ", t.output[t.output.rindex("\x1b[H"):])
        t.key("\x1b[F")
        at = t.wait_for(f"lines {number - 9} to {number} of {number} ", at)
        t.wait_for(re.escape(text.splitlines()[-1].strip()), at)
        t.key("q")
        at = t.wait_for("by throughput.*a.service.*b.service", at)
        # The name of the root slice begins as an option does
        self.qosd.add("-.slice", rate=1)
        t.key(" ")
        at = t.wait_for("by throughput.*b.service.*-.slice", at)
        t.key("\x1b[F\r")
        at = t.wait_for("-.slice, lines .*q for the table.*● -.slice", at)
        t.key("q")
        at = t.wait_for("by throughput.*a.service.*b.service", at)
        t.key("\x1b[A")
        # An error is shown, and top goes on
        del self.qosd.units["b.service"]
        t.key("\r")
        at = t.wait_for("q for the table.*Failed to read 'b.service'", at)
        t.key("\x1b")
        at = t.wait_for("by throughput.*a.service", at)
        t.key("q")
        self.assertEqual(t.end(), 0)

    def test_restart(self):
        """When qosd restarts, top reconnects and renews its lease."""
        self.qosd.known = {"other.service"}
        t = self.terminal("top", "other", "-d", "100ms")
        at = t.wait_for("other.service")
        self.qosd.close()
        at = t.wait_for("Connection to qosd lost.*reconnecting", at)
        self.qosd = FakeQosd(self.qosd.path)
        self.qosd.known = {"other.service"}
        t.wait_for("every 100ms.*other.service", at)
        self.assertEqual(self.calls("Attach"),
                         [{"unit": "other.service", "lease": True, "allowInteractiveAuthentication": False}])
        t.key("q")
        self.assertEqual(t.end(), 0)

    def test_restart_in_batch(self):
        """top in batch mode reconnects, and fails if qosd does not return."""
        self.qosd.add("nginx.service")
        p = subprocess.Popen([util_qosctl.QOSCTL, "top", "-b", "-d", "100ms", "--no-legend"], env=self.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3):
            while not p.stdout.readline().startswith(b"nginx.service"):
                self.assertIsNone(p.poll())
            self.qosd.disconnect()
        self.qosd.close()
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"Failed to read units", err)
        self.qosd = FakeQosd(self.qosd.path)

    def test_error(self):
        """The screen is restored before an error is printed."""
        self.qosd.add("nginx.service")
        t = self.terminal("top", "-d", "100ms")
        t.wait_for("nginx.service")
        self.qosd.errors["List"] = Error("org.varlink.service.PermissionDenied")
        self.assertEqual(t.end(), 1)
        self.assertRegex(t.output, r"\x1b\[\?1049lFailed to read units: access denied")

    def test_dumb_terminal(self):
        self.qosd.add("nginx.service")
        r = subprocess.run(["script", "-qec", f"TERM=dumb {util_qosctl.QOSCTL} top -n 2 -d 100ms", "/dev/null"],
                           env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
        self.assertEqual(r.stdout.decode().count("nginx.service"), 2)
        self.assertNotIn(b"\x1b", r.stdout)

    def test_no_keys(self):
        """-n limits the number of tables on a terminal, too."""
        self.qosd.add("nginx.service")
        t = self.terminal("top", "-n", "2", "-d", "100ms")
        self.assertEqual(t.end(), 0)
        self.assertIn("nginx.service", t.output)
