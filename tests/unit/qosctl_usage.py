# SPDX-License-Identifier: LGPL-2.1-or-later
"""Errors, help, enable and the pager"""

import subprocess

import util_qosctl

from fake_qosd import Error
from util_qosctl import Test


class Usage(Test):
    def test_lifecycle(self):
        """Sub state, result, restarts, last exit and freezer state are shown unless they are the usual ones."""
        for more, line in (
                ({"subState": "running", "result": "success", "restarts": 0, "freezerState": "running"},
                 "Active: active (running)\n"),
                ({"subState": "running", "result": "success", "restarts": 1, "lastExit": "exit status 7"},
                 "Active: active (running), restarted 1 time, last exit: exit status 7\n"),
                ({"activeState": "activating", "subState": "auto-restart", "result": "exit-code", "restarts": 12,
                  "lastExit": "signal SEGV, core dumped"},
                 "Active: activating (auto-restart), result exit-code, restarted 12 times, last exit: signal SEGV, "
                 "core dumped\n"),
                ({"activeState": "failed", "subState": "failed", "result": "signal", "restarts": 0,
                  "lastExit": "signal KILL"},
                 "Active: failed, result signal, last exit: signal KILL (waiting for the unit to start)\n"),
                ({"subState": "running", "result": "success", "restarts": 0, "freezerState": "frozen"},
                 "Active: active (running), frozen\n")):
            self.qosd.add("nginx.service", **more)
            self.assertIn(line, self.out_of("status", "nginx", columns=200))

    def test_failing(self):
        """An active unit is shown as failing if most of its requests fail."""
        for errors, state in ((0, "active"), (70000, "active"), (76000, "failing"), (151000, "failing")):
            self.qosd.add("nginx.service", requests__server__errors={"reset": 0, "timeout": 0, "status5xx": errors})
            self.assertEqual(self.out_of("list", "nginx", "--no-legend", columns=200).split()[1], state)
        self.qosd.add("nginx.service", activeState="failed",
                      requests__server__errors={"reset": 0, "timeout": 0, "status5xx": 151000})
        self.assertEqual(self.out_of("list", "nginx", "--no-legend", columns=200).split()[1], "failed")

    def test_not_attached(self):
        """All verbs but detach exit with status 3 for a unit that is not attached."""
        self.qosd.known = {"x.service"}
        for method in ("Threads", "Monitor"):
            self.qosd.errors[method] = Error("NotAttached", unit="x.service", message="x.service is not attached")
        for verb in ("status", "show", "threads", "resources", "histogram", "history", "heatmap", "list-thresholds",
                     "monitor", "is-ok"):
            self.run_qosctl(verb, "x", status=3)
            self.assertIn("No attached unit matches", self.error_of(verb, "y*", status=3))
        for arguments in (["set-threshold", "x", "a: b > 1"], ["clear-threshold", "x", "a"], ["wait", "x", "a > 1"]):
            self.error_of(*arguments, status=3)
        self.assertIn("No attached unit matches", self.error_of("top", "y*", status=3))
        self.error_of("detach", "x")

    def test_enable(self):
        """Settings that qosd would ignore are reported before a file is written, and before the bus is used, which is
        missing here."""
        for arguments, what in ((["--probes=cup", "nginx"], "there is no probe 'cup', expected 'requests', "),
                                (["--probes=cpu,bogus", "--now", "nginx"], "there is no probe 'bogus'"),
                                (["--exclude=port:x", "nginx"], "invalid exclusion 'port:x', expected "),
                                (["--exclude=" + ",".join(f"port:{i}" for i in range(1, 18)), "nginx"],
                                 "more than 16 exclusions"),
                                (["nginx", "backup.timer"],
                                 "Units of the type of 'backup.timer' have no processes, expected a service, scope, "
                                 "slice or socket"),
                                (["multi-user.target"], "'multi-user.target' have no processes"),
                                (["x.path"], "'x.path' have no processes")):
            self.assertIn(what, self.error_of("enable", *arguments, status=2))
        # Valid settings get as far as the bus
        for unit in ("nginx", "my.app", "a.scope", "a.slice", "a.socket"):
            self.assertIn("system bus",
                          self.error_of("enable", "--probes=requests,tls,cpu", "--exclude=redis:ping", unit))
        # disable also accepts types that an older qosctl has enabled
        self.assertIn("system bus", self.error_of("disable", "backup.timer"))

    def test_usage(self):
        for arguments in (["nonsense"], ["--nonsense"], ["attach"], ["status"], ["show"], ["histogram"],
                          ["status", "--json=nonsense", "x"],
                          ["show", "x", "-P"], ["show", "x", "-P", ""], ["list", "--window"], ["probes", "x"],
                          ["top", "-n", "0"], ["top", "-n", "-1"],
                          ["top", "-d", "1ms"], ["top", "-d", "x"], ["attach", "x", "--for=0"],
                          ["attach", "x", "--for="],
                          ["attach", "x", "--probes="], ["attach", "x", "--window=10s"], ["list", "--for=10s"],
                          ["top", "--all"],
                          ["-H", "", "list"], ["attach", "x", "--now"], ["enable"], ["enable", "x", "-H", "host"]):
            out, err = self.run_qosctl(*arguments, status=2)
            self.assertTrue(err.strip(), arguments)
            self.assertEqual(out, "")
        for arguments in (["diagnose", "n*"], ["measure", "n*", "--", "true"], ["set-threshold", "n*", "a: b > 1"],
                          ["clear-threshold", "n*", "a"], ["wait", "n*", "a > 1"]):
            self.assertIn(f"'{arguments[0]}' requires a unit name without a pattern, got 'n*'.",
                          self.error_of(*arguments, status=2))
        for verb in ("enable", "disable"):
            self.assertIn(f"'{verb}' requires unit names without patterns, got 'b?'.",
                          self.error_of(verb, "a", "b?", status=2))
        self.assertEqual(self.qosd.calls, [])
        self.assertIn("Option --for= is not supported by 'list'.", self.error_of("list", "--for=10s", status=2))
        # Arguments after the unit, and paths, are not checked for patterns
        self.error_of("clear-threshold", "nginx", "[*", status=4)
        self.error_of("wait", "/a[b", "a > 1", status=4)

    def test_help(self):
        out = self.out_of("--help")
        self.fits(out, 80)
        self.assertEqual(out, self.out_of("-h"))
        for verb in ("list", "attach", "detach", "status", "show", "threads", "resources", "top", "histogram", "probes",
                     "list-metrics"):
            self.assertRegex(out, rf"\n  {verb} ")
        self.assertRegex(self.out_of("--version"), r"^qosctl \d")

    def test_not_running(self):
        err = self.error_of("list", QOSD_ADDRESS=self.directory + "/nothing")
        self.assertEqual(err,
                         f"Failed to connect to qosd ({self.directory}/nothing): No such file or directory. Is "
                         "qosd.service running?\n")

    def test_older_qosd(self):
        self.qosd.errors["List"] = Error("org.varlink.service.MethodNotFound", method="org.qosd.QoS.List")
        self.assertIn("not supported by this version of qosd", self.error_of("list"))

    def test_lost(self):
        self.qosd.do_Get = lambda c, **p: self.qosd.disconnect() or []
        self.assertEqual(self.error_of("show", "x"), "Failed to read 'x': qosd closed the connection.\n")

    def test_full_disk(self):
        self.qosd.add("nginx.service")
        with open("/dev/full", "w") as full:
            r = subprocess.run([util_qosctl.QOSCTL, "list"], env=self.env, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"No space left", r.stderr)

    def test_pager(self):
        self.qosd.add("nginx.service")
        self.program("less", "#!/bin/sh\necho \"[$LESS $LESSSECURE]\"\nexec cat\n")
        self.program("mine", "#!/bin/sh\necho [mine]\nexec cat\n")
        self.program("pager", "#!/bin/sh\necho \"[$LESS]\"\nexec cat\n")
        for arguments, env, said in (([], {"SYSTEMD_PAGERSECURE": "0"}, "[FRSXMK]"),
                                     ([], {"SYSTEMD_PAGERSECURE": "1"}, "[FRSXMK 1]"),
                                     ([], {"SYSTEMD_PAGERSECURE": "0", "PAGER": "mine"}, "[mine]"),
                                     ([], {"SYSTEMD_PAGERSECURE": "0", "PAGER": "less", "SYSTEMD_PAGER": "mine"},
                                      "[mine]"),
                                     ([], {"SYSTEMD_PAGERSECURE": "0", "SYSTEMD_LESS": "FRX"}, "[FRX]"),
                                     ([], {"SYSTEMD_PAGERSECURE": "0", "SYSTEMD_PAGER": ""}, None),
                                     ([], {"SYSTEMD_PAGERSECURE": "0", "PAGER": "cat"}, None),
                                     (["--no-pager"], {"PAGER": "mine", "SYSTEMD_PAGERSECURE": "0"}, None)):
            t = self.terminal(*arguments, env=env)
            t.wait_for("1 unit attached")
            self.assertEqual(t.end(), 0)
            if said:
                self.assertIn(said, t.output)
            else:
                self.assertNotIn("[FR", t.output)
                self.assertNotIn("[mine]", t.output)

    def test_pager_that_ends_early(self):
        for i in range(250):
            self.qosd.add(f"unit-{i}.service")
        self.program("less", "#!/bin/sh\nexit 0\n")
        t = self.terminal("status", "*", env={"SYSTEMD_PAGERSECURE": "1"})
        self.assertEqual(t.end(), 0)
