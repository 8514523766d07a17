#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every verb of qosctl against a stub of qosd (fake_qosd.py), in pipes and on terminals.

test_qosctl.py QOSCTL COMPLETION [TEST...]"""

import codecs
import fcntl
import io
import json
import multiprocessing
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

from fake_qosd import QUANTILES, SEC, USEC, Error, FakeQosd, distribution, history, snapshot

QOSCTL = None
COMPLETION = None
# Seconds. Only a busy machine takes a noticeable part of it
DEADLINE = 30

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text):
    return ESCAPE.sub("", text)


class Terminal:
    """A qosctl process on a pseudoterminal."""

    def __init__(self, arguments, env, rows=24, columns=80, uid=None, stdout=None):
        self.master, slave = pty.openpty()
        self.slave = os.dup(slave)
        self.resize(rows, columns, quiet=True)
        self.before = termios.tcgetattr(self.slave)
        # A read may end within a character
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.output = ""

        def prepare():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if uid is not None:
                os.setuid(uid)

        self.process = subprocess.Popen([QOSCTL, *arguments], stdin=slave, stdout=stdout or slave, stderr=slave,
                                        env=env | {"TERM": "xterm"},
                                        preexec_fn=prepare)
        os.close(slave)

    def resize(self, rows, columns, quiet=False):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if not quiet:
            self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return ""
        try:
            data = os.read(self.master, 65536)
            text = self.decoder.decode(data)
            if data and not text:
                return self.read(seconds)
        except OSError:
            text = ""
        self.output += text
        return text

    def wait_for(self, what, after=0):
        """Waits for output after a position that matches a regular expression, and returns where the match ends."""
        end = time.monotonic() + DEADLINE
        while True:
            m = re.compile(what, re.S).search(self.output, after)
            if m:
                return m.end()
            if time.monotonic() > end:
                raise AssertionError(f"no {what!r} in {self.output[after:]!r}")
            self.read(0.1)

    def key(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Waits for the end of qosctl, checks that the terminal's settings are restored, and returns the exit
        status."""
        end = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            self.read(0.1)
            if time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"does not end: {self.output!r}")
        while self.read(0.05):
            pass
        after = termios.tcgetattr(self.slave)
        assert after == self.before, "the terminal is not as it was"
        os.close(self.master)
        os.close(self.slave)
        return self.process.returncode


def state_labels():
    """Returns the words of docs/METRICS.md for the states of threads, by their names."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/METRICS.md")) as f:
        table = f.read().partition("\n| state | in texts |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \| ", table, re.M))


class Test(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="qosctl-")
        os.chmod(self.directory, 0o755)
        self.qosd = FakeQosd(self.directory + "/qosd")
        self.others = []
        os.chmod(self.directory + "/qosd", 0o666)
        self.bin = self.directory + "/bin"
        os.mkdir(self.bin)
        # The environment is fixed, so that the output does not depend on that of the caller
        self.env = {"PATH": self.bin + ":" + os.environ["PATH"], "LC_ALL": "C.UTF-8", "QOSD_ADDRESS": self.qosd.path,
                    "TZ": "UTC",
                    "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=" + self.directory + "/no-bus"} | \
            {k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "UBSAN_", "LSAN_", "QOSD_MUTANT"))}

    def tearDown(self):
        for qosd in self.qosd, *self.others:
            qosd.close()
        shutil.rmtree(self.directory)

    def program(self, name, text):
        path = f"{self.bin}/{name}"
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def run_qosctl(self, *arguments, status=0, columns=None, locale=None, **env):
        e = self.env | env
        if columns:
            e["COLUMNS"] = str(columns)
        if locale:
            e["LC_ALL"] = locale
        r = subprocess.run([QOSCTL, *arguments], env=e, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
        out, err = r.stdout.decode(errors="surrogateescape"), r.stderr.decode(errors="surrogateescape")
        self.assertEqual(r.returncode, status, f"{arguments}: {out}{err}")
        if status == 0 and "--batch" not in arguments:
            self.out, self.err = out, err
        return out, err

    def out_of(self, *arguments, **more):
        out, err = self.run_qosctl(*arguments, **more)
        self.assertEqual(err, "")
        return out

    def error_of(self, *arguments, status=1, **more):
        out, err = self.run_qosctl(*arguments, status=status, **more)
        self.assertNotEqual(err, "", f"{arguments} fails silently")
        return err

    def terminal(self, *arguments, env={}, **more):
        return Terminal(arguments, self.env | env, **more)

    def calls(self, method):
        return [p for m, p in self.qosd.calls if m == method]

    STATES = ("running", "runQueue", "throttled", "lock", "park", "disk", "socket", "poll", "pipe", "sleep", "memory",
              "child", "stopped", "other")

    def thread(self, tid, name, state, times, **more):
        """Returns a thread as in Threads, with its times by state in ms."""
        return dict({"tid": tid, "pid": 7, "name": name, "state": state,
                     "times": {s: times.get(s, 0) * 1000000 for s in self.STATES},
                     "waits": {s: 0 for s in self.STATES[3:]}, "voluntary": 0, "involuntary": 0, "migrations": 0,
                     "wakeUps": 0, "futexWakes": 0}, **more)

    def fits(self, text, columns):
        for line in plain(text).splitlines():
            self.assertLessEqual(len(line), columns, line)


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
        options = {"window": ["list", "status", "show", "resources", "mounts", "top", "histogram", "monitor"],
                   "since": ["history", "heatmap"],
                   "all": ["list", "detach"], "listening": ["attach"], "yes": ["attach"],
                   "probes": ["attach", "enable"], "for": ["attach", "threads", "resources", "diagnose", "why"],
                   "save": ["diagnose"], "format": ["metrics"], "verbose": ["metrics"], "timeout": ["wait"],
                   "exec": ["monitor"], "value": ["show"], "delay": ["top"]}
        verbs = re.findall(r"^  ([a-z-]+)(?: .*)?$", out.split("Options:")[0], re.M)
        self.assertEqual(len(verbs), 28)
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


class Verify(Test):
    def verify(self, text, status=1, name="x.conf"):
        path = f"{self.directory}/{name}"
        with open(path, "wb") as f:
            f.write(text.encode())
        return self.run_qosctl("verify", path, status=status)[1].replace(path, name)

    def test_file(self):
        good = "[Service]\nExecStart=/bin/x\n[X-QoS]\nObserve=requests cpu\nExclude=port:9100 http:/healthz\n" \
            "Threshold=slow: requests.server.firstByte.p99 >= 20ms over 10s for 2s\n"
        self.assertEqual(self.verify(good, status=0), "")
        self.assertEqual(self.verify("[Unit]\nDescription=Threshold=x\n", status=0),
                         "'x.conf' has no section [X-QoS].\n")
        for line, message in (
                ("Threshold=a: requests.server.latncy.p99 > 5ms", "there is no metric 'requests.server.latncy.p99'"),
                ("Threshold=requests.server.rate > 5", "expected a name and a colon"),
                ("Threshold=a: requests.server.rate > 5ms", "expected a rate"), ("Observe=request", "got 'request'"),
                ("Exclude=9100", "got '9100'"), ("Obsreve=requests", "there is no setting 'Obsreve'"),
                ("requests", "expected 'Name=value'")):
            err = self.verify(good + line + "\n")
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertTrue(err.startswith("x.conf:7: "), err)
            self.assertIn(message, err)
        self.assertEqual([line.split(" ")[0] for line in self.verify("[X-QoS]\nA=\n\nObserve=x y\n").splitlines()],
                         ["x.conf:2:", "x.conf:4:", "x.conf:4:"])

    def test_failures(self):
        self.assertIn(f"Failed to read '{self.directory}/none': No such file",
                      self.error_of("verify", self.directory + "/none"))
        self.assertIn("not a regular file", self.error_of("verify", self.directory + "/."))
        self.assertIn("Too few arguments", self.error_of("verify", status=2))
        self.assertIn("Failed to connect to the system bus", self.error_of("verify", "nginx"))
        self.assertIn("--host= is not supported", self.error_of("-H", "web1", "verify", "nginx", status=2))


class Attach(Test):
    def test_attach(self):
        self.qosd.known = {"nginx.service", "redis.service"}
        self.assertEqual(self.out_of("attach", "nginx", "redis.service"), "")
        self.assertEqual(self.calls("Attach"), [{"unit": "nginx", "allowInteractiveAuthentication": True},
                                                {"unit": "redis.service", "allowInteractiveAuthentication": True}])
        self.assertEqual(set(self.qosd.units), {"nginx.service", "redis.service"})

    def test_listening(self):
        """The unit of this test listens, too. Other units and their names depend on the host."""
        with open("/proc/self/cgroup") as f:
            own = [part for part in f.read().strip().rsplit(":", 1)[-1].split("/")
                   if part.endswith((".service", ".scope"))]
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            names = [json.loads(line)["unit"] for line in self.out_of("list", "--all", "--json=short").splitlines()]
            # There is no bus to read what socket units start
            if not own or own[0] not in names or any(name.endswith(".socket") for name in names):
                self.skipTest("no unit is known to listen")
            self.qosd.known = set(names)
            error = self.error_of("attach", "--listening", status=2)
            self.assertIn("--yes is required without a terminal", error)
            self.assertEqual(self.calls("Attach"), [])
            out = self.out_of("attach", "--listening", "--yes", "--probes=requests")
            self.assertIn(f"\n  {own[0]}\n", out)
            n = len(self.calls("Attach"))
            self.assertRegex(out, rf"^{n} units? listens? and (is|are) not attached:\n")
            self.assertIn(f"Memory: at least {512 * n if 512 * n < 1024 else f'{n / 2:.1f}'}", out)
            self.assertIn("320B for each open connection.", out)
            self.assertIn({"unit": own[0], "probes": ["requests"], "allowInteractiveAuthentication": True},
                          self.calls("Attach"))
            self.assertEqual(set(c["unit"] for c in self.calls("Attach")), set(self.qosd.units))
            # Those are attached now
            self.assertIn("No unit listens that is not attached.", self.run_qosctl("attach", "--listening", "--yes")[1])
            self.assertEqual(len(self.calls("Attach")), n)
            self.qosd.units.clear()
            self.qosd.status |= {"units": 256}
            self.assertIn("only 0 more may be (UnitsMax=)", self.error_of("attach", "--listening", "--yes", status=1))
            self.assertEqual(len(self.calls("Attach")), n)
        self.assertIn("requires a unit, or --listening", self.error_of("attach", status=2))
        self.assertIn("cannot be combined", self.error_of("attach", "--listening", "nginx", status=2))
        self.assertIn("--yes requires --listening", self.error_of("attach", "--yes", "nginx", status=2))
        self.assertIn("local host", self.error_of("attach", "--listening", "-H", "x", status=2, PATH=self.bin))

    def test_listening_on_a_terminal(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.qosd.known = {json.loads(line)["unit"]
                               for line in self.out_of("list", "--all", "--json=short").splitlines()}
            if not self.qosd.known or any(name.endswith(".socket") for name in self.qosd.known):
                self.skipTest("no unit is known to listen")
            for reply, attached in (("n\n", False), ("\n", False), ("y\n", True)):
                ours, theirs = os.openpty()
                p = subprocess.Popen([QOSCTL, "attach", "--listening"], env=self.env, stdin=theirs, stdout=theirs,
                                     stderr=theirs)
                os.write(ours, reply.encode())
                self.assertEqual(p.wait(DEADLINE), 0 if attached else 1)
                os.close(theirs)
                os.close(ours)
                self.assertEqual(bool(self.calls("Attach")), attached, reply)

    def test_options(self):
        self.qosd.known = {"nginx.service"}
        self.out_of("attach", "--probes=requests", "--for=10min", "--no-ask-password", "nginx")
        self.assertEqual(self.calls("Attach"), [{"unit": "nginx", "probes": ["requests"], "duration": 600 * SEC,
                                                 "allowInteractiveAuthentication": False}])
        self.out_of("attach", "--probes=requests,requests requests", "--probes", "requests", "nginx")
        self.assertEqual(self.calls("Attach")[1]["probes"], ["requests"] * 4)
        self.out_of("attach", "--exclude=port:9100,http:/healthz", "--exclude", "redis:BRPOP", "nginx")
        self.assertEqual(self.calls("Attach")[2]["exclude"], ["port:9100", "http:/healthz", "redis:BRPOP"])
        self.assertIn("invalid exclusion '/healthz'", self.error_of("attach", "--exclude=/healthz", "nginx", status=2))
        self.assertIn("port:N", self.error_of("attach", "--exclude=", "nginx", status=2))
        self.assertIn("Option --exclude= is not supported by 'status'",
                      self.error_of("status", "--exclude=port:1", "nginx", status=2))

    def test_json(self):
        self.qosd.known = {"nginx.service"}
        self.assertEqual(json.loads(self.out_of("attach", "nginx", "--json=short")), {"unit": "nginx.service"})
        self.assertEqual(json.loads(self.out_of("detach", "nginx", "--json=short")), {})

    def test_degraded(self):
        self.qosd.add("nginx.service", degraded="requests: no BTF")
        self.assertEqual(self.run_qosctl("attach", "nginx"),
                         ("", "nginx.service is attached, but some metrics are unavailable: requests: no BTF.\n"))

    def test_inactive(self):
        self.qosd.add("nginx.service", activeState="inactive")
        self.assertEqual(self.run_qosctl("attach", "nginx"),
                         ("", "'nginx.service' is inactive: it will be observed when it starts.\n"))

    def test_failures(self):
        self.qosd.known = {"nginx.service"}
        self.assertEqual(self.error_of("attach", "foo", status=4),
                         "Failed to attach 'foo': no such unit foo.service.\n")
        self.assertIn("expected requests", self.error_of("attach", "--probes=nonsense", "nginx", status=2))
        err = self.error_of("attach", "foo", "nginx", "bar", status=4)
        self.assertEqual(len(err.splitlines()), 2)
        self.assertIn("nginx.service", self.qosd.units)
        self.qosd.errors["Attach"] = Error("org.varlink.service.PermissionDenied")
        self.assertEqual(self.error_of("attach", "nginx"), "Failed to attach 'nginx': access denied.\n")
        self.qosd.errors["Attach"] = Error("io.systemd.InteractiveAuthenticationRequired")
        self.assertEqual(self.error_of("attach", "nginx"),
                         "Failed to attach 'nginx': authentication is required, run it as root or on a terminal with "
                         "polkit.\n")
        self.qosd.errors["Attach"] = Error("TooManyUnits", limit=256,
                                           message="256 units are attached, and no more may be (UnitsMax=)")
        self.assertIn("UnitsMax=", self.error_of("attach", "nginx"))
        self.qosd.errors["Attach"] = Error("NoControlGroup", unit="a.target",
                                           message="'a.target' has none. Did you mean a@b.service?")
        self.assertEqual(self.error_of("attach", "nginx"),
                         "Failed to attach 'nginx': 'a.target' has none. Did you mean a@b.service?\n")
        self.qosd.errors["Attach"] = Error("org.qosd.QoS.SomethingNew")
        self.assertIn("SomethingNew", self.error_of("attach", "nginx"))

    def test_two_kinds_of_failure(self):
        self.qosd.errors["Attach"] = Error("NoControlGroup", unit="a.target", message="a.target has no control group")
        self.error_of("attach", "a.target")
        del self.qosd.errors["Attach"]
        f = self.qosd.resolve

        def resolve(unit):
            if unit == "a.target":
                raise Error("NoControlGroup", unit=unit, message="a.target has no control group")
            return f(unit)
        self.qosd.resolve = resolve
        self.error_of("attach", "a.target", "nonsense", status=1)

    def test_strange_names(self):
        """Control characters of names are escaped in messages, and names that are not UTF-8 are rejected."""
        self.assertIn("\\x1b]31m", self.error_of("attach", "\x1b]31m", status=4))
        self.assertIn("\\x1b[31m", self.error_of("-H", "x", "attach", "\x1b[31m", status=2))
        r = subprocess.run([QOSCTL, "attach", b"\xff\xfe"], env=self.env, capture_output=True)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"UTF-8", r.stderr)
        self.assertNotIn(b"\xff", r.stderr)
        self.error_of("attach", "", status=4)
        self.error_of("attach", "--", "-x", status=4)
        self.error_of("attach", "a" * 100000, status=4)

    def test_detach(self):
        for name in ("a.service", "b.service", "c.service"):
            self.qosd.add(name)
        self.qosd.add("leased.service", holds=[{"type": "lease", "probes": ["requests"], "uid": 1000, "owner": "x"}])
        self.qosd.known = set(self.qosd.units)
        self.assertEqual(self.out_of("detach", "a"), "")
        self.assertIn("not attached", self.error_of("detach", "a"))
        self.out_of("detach", "b*")
        self.assertEqual(set(self.qosd.units), {"c.service", "leased.service"})
        self.assertIn("No attached unit matches 'b*'", self.error_of("detach", "b*"))
        self.out_of("detach", "--all")
        self.assertEqual(set(self.qosd.units), {"leased.service"})
        self.error_of("detach", status=2)
        self.error_of("detach", "--all", "x", status=2)

    def test_patterns_on_another_host(self):
        self.assertIn("remote host", self.error_of("-H", "somewhere", "attach", "ngin*", status=2))

    def test_patterns_without_a_bus(self):
        self.assertIn("system bus", self.error_of("attach", "ngin*"))


def row(count=1000, covered=10 * SEC, **more):
    return {"count": count, "rate": count * SEC / covered, "errors": {"reset": 0, "timeout": 0}, "inFlight": 3,
                   "latency": {"count": count, "mean": 120000, "p50": 109000, "p99": 2040000}, "bytesIn": 1,
            "bytesOut": 2} | more


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
            with subprocess.Popen([QOSCTL, "list", "--no-legend"], env=self.env | {"QOSD_ADDRESS": path},
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


class Others(Test):
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

    LONG_NAME = "a-rather-long-name-of-a-backend.service"

    def screen(self, *arguments, columns):
        """Runs qosctl on a terminal, checks that no line of its page is wider, and returns the lines."""
        t = self.terminal(*arguments, columns=columns, env={"PAGER": ""})
        self.assertEqual(t.end(), 0)
        page = plain(t.output.rsplit("\r\x1b[2K", 1)[-1]).replace("\r", "")
        self.fits(page, columns)
        return page.splitlines()

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

    def until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    @staticmethod
    def sleeps(pid):
        """Returns whether the process waits for a timeout or a signal alone, in ppoll(NULL, 0, ...)."""
        with open(f"/proc/{pid}/syscall") as f:
            return f.read().split()[1:3] == ["0x0", "0x0"]

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
        p = subprocess.Popen([QOSCTL, "diagnose", "nginx", "--for=5min", "--json=short"], env=self.env,
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

    def test_measure_signals(self):
        """Signals are forwarded to the command, and qosctl ends after it."""
        self.qosd.add("nginx.service")
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            name = sig.name[3:]
            p = subprocess.Popen([QOSCTL, "measure", "nginx", "--", "sh", "-c",
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

    def test_probes(self):
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                self.fits(self.out_of("probes", columns=columns, locale=locale), columns)
        out = self.out_of("probes")
        self.assertRegex(out,
                         r"qosd_ingress +requests +cgroup_skb/ingress +attached +1.23M +190ns +0 arrival of requests\n")
        self.assertRegex(out, r"qosd_data_ready .* unavailable +- +- +- .*; the kernel has no such tracepoint\n")
        self.assertIn("512.0K per attached unit, 320B per open connection.", out)
        self.assertNotIn("bpf_stats_enabled", out)
        self.qosd.status |= {"units": 1, "drops": 1}
        out = self.out_of("probes")
        self.assertIn("\n1 unit attached, limit ", out)
        self.assertIn("\n1 event not counted.\n", out)
        self.qosd.status |= {"units": 2, "statisticsEnabled": False, "drops": 3}
        for p in self.qosd.programs:
            for key in ("runs", "runTime", "runTimeMean"):
                p.pop(key, None)
        out = self.out_of("probes")
        self.assertIn("sysctl kernel.bpf_stats_enabled=1", out)
        self.assertIn("\n2 units attached, limit ", out)
        self.assertIn("3 events not counted", out)
        self.assertNotIn("could not be allocated", out)
        self.qosd.status["lostElements"] = [{"map": "h2_conns", "count": 2}, {"map": "udp_peers", "count": 1}]
        out = self.out_of("probes")
        self.assertIn("\n2 elements could not be allocated in map 'h2_conns'.\n1 element could not be allocated in map "
                      "'udp_peers'.\n", out)
        objects = [json.loads(line) for line in self.out_of("probes", "--json=short").splitlines()]
        self.assertEqual(objects, self.qosd.programs + [self.qosd.status])

    def export(self, name, count, indexes, counts):
        self.qosd.add(name)
        self.qosd.exported[name] = {
            "name": name, "slice": "app.slice", "activeState": "active", "attachedSince": 1763683200123456, "seq": 5,
            "timestamp": 1763683300000000, "drops": 3, "cost": {"requests": 1000000001, "contention": 7},
            "totals": {"requests.server.count": count, "requests.server.bytesIn": 2 ** 53 + 1,
                       "contention.threadTime": 1500000000},
            "gauges": {"requests.server.inFlight": 2, "requests.server.oldestInFlight": 7},
            "histograms": [{"metric": "requests.server.latency", "schema": 5, "sum": 12345678901, "indexes": indexes,
                            "counts": counts,
                            "count": sum(counts)}],
            "objectives": [{"threshold": "slow", "target": 0.99, "good": 5, "total": 9}]}

    def samples(self, *arguments):
        """Returns the samples by name and labels. Checks that those of a family are together, after its HELP and
        TYPE."""
        samples, families, family = {}, [], None
        for line in self.out_of("metrics", *arguments).splitlines():
            if line.startswith("# "):
                _, key, *rest = line.split(" ", 3)
                if key == "HELP":
                    family = rest[0]
                    self.assertNotIn(family, families)
                    families.append(family)
                elif key != "EOF":
                    self.assertEqual(rest[0], family)
                continue
            m = re.fullmatch(r'([a-z_0-9]+)\{(?:unit|program)="((?:[^"\\]|\\.)*)"'
                             r'(?:,(?:le|threshold|slice|reason|probe)="([^"]*)")?'
                             r'(?:,state="active")?\} (\S+)', line)
            self.assertTrue(m, line)
            self.assertTrue(m[1].startswith(family), line)
            self.assertNotIn(m.groups()[:3], samples)
            samples[m.groups()[:3]] = m[4]
        return samples

    def test_metrics(self):
        self.qosd.metrics += [
            {"name": name, "kind": kind, "unit": unit, "probe": "requests", "essential": True,
             "description": description}
            for name, kind, unit, description in
            (("requests.server.bytesIn", "counter", "bytes", "Bytes"),
             ("contention.threadTime", "counter", "ns", "Time"),
             ("requests.server.inFlight", "gauge", "1", "A \\ and \"more\""),
             ("requests.server.oldestInFlight", "gauge", "ns", "Age"),
             ("requests.server.latency.count", "gauge", "1", "Requests in the distribution"))]
        # The first and the last bucket, and bounds on and between those of the export
        indexes, counts = [-704, -672, -671, 0, 5, 192, 193], [1, 2, 4, 8, 16, 32, 64]
        self.export("a.service", 127, indexes, counts)
        self.export("b\\x2dc.service", 4, [33], [4])

        for arguments, created in ((), True), (("--format=openmetrics",), True), (("--format=prometheus",), False):
            s = self.samples(*arguments)
            self.assertEqual(self.out_of("metrics", *arguments).endswith("\n# EOF\n"), created)
            self.assertEqual({k: n for k, n in s.items() if k[0] == "qosd_program_attached"},
                             {("qosd_program_attached", "qosd_ingress", ""): "1",
                              ("qosd_program_attached", "qosd_data_ready", "the kernel has no such tracepoint"): "0"})
            for unit, count in ("a.service", "127"), ("b\\\\x2dc.service", "4"):
                self.assertEqual(s["qosd_requests_server_total", unit, None], count)
                self.assertEqual(s["qosd_requests_server_in_bytes_total", unit, None], str(2 ** 53 + 1))
                self.assertEqual(s["qosd_contention_thread_time_seconds_total", unit, None], "1.500000000")
                self.assertEqual(s["qosd_requests_server_in_flight", unit, None], "2")
                self.assertEqual(s["qosd_requests_server_oldest_in_flight_seconds", unit, None], "0.000000007")
                self.assertEqual(s["qosd_drops_total", unit, None], "3")
                self.assertEqual(s["qosd_cost_seconds_total", unit, "requests"], "1.000000001")
                self.assertEqual(s["qosd_cost_seconds_total", unit, "contention"], "0.000000007")
                self.assertEqual(s["qosd_unit_info", unit, "app.slice"], "1")
                self.assertEqual(s["qosd_objective_good_total", unit, "slow"], "5")
                self.assertEqual(s["qosd_objective_requests_total", unit, "slow"], "9")
                self.assertEqual(s["qosd_objective_target_ratio", unit, "slow"], "0.99")
                self.assertEqual(s["qosd_requests_server_latency_seconds_sum", unit, None], "12.345678901")
                self.assertEqual(s["qosd_requests_server_latency_seconds_count", unit, None], count)
                for name in "qosd_requests_server", "qosd_requests_server_latency_seconds":
                    self.assertEqual(s.get((f"{name}_created", unit, None)),
                                     "1763683200.123456000" if created else None)
                self.assertNotIn(("qosd_contention_thread_time_seconds_created", unit, None), s)
            buckets = {le: int(n) for (name, unit, le), n in s.items() if name.endswith("_bucket")
                       and unit == "a.service"}
            self.assertEqual(len(buckets), 30)
            for le, n in buckets.items():
                self.assertEqual(n, sum(k for i, k in zip(indexes, counts) if i <= 192 and 2 ** (i / 32) <= float(le)
                                        or le == "+Inf"), le)
            self.assertEqual((buckets["1.0"], buckets["2.0"], buckets["0.5"], buckets["64.0"],
                              buckets["2.384185791015625e-07"]), (15, 31, 7, 63, 1))
        self.assertIn("# HELP qosd_requests_server_in_flight A \\\\ and \\\"more\\\"\n", self.out_of("metrics"))
        self.assertIn('# HELP qosd_requests_server_in_flight A \\\\ and "more"\n',
                      self.out_of("metrics", "--format=prometheus"))
        # The alerting rules of the documentation use metrics that exist
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/prometheus/qosd.rules.yml"),
                  encoding="utf-8") as f:
            used = set(re.findall(r"\bqosd_\w+", f.read().split("- name: qosd-fleet")[0]))
        self.assertEqual(used,
                         {"qosd_objective_good_total", "qosd_objective_requests_total", "qosd_objective_target_ratio",
                                "qosd_series_dropped"})
        self.assertLessEqual(used - {"qosd_series_dropped"}, {name for name, _, _ in s})
        self.assertIn("# UNIT qosd_requests_server_latency_seconds seconds\n", self.out_of("metrics"))

        self.assertEqual({unit for _, unit, _ in self.samples("a*")}, {"a.service"})
        self.assertEqual(json.loads(self.out_of("metrics", "a", "--json=short")), self.qosd.exported["a.service"])
        self.qosd.known = {"x.service"}
        self.error_of("metrics", "x", status=3)
        for n in "28", "10001", "-1", "x", "160 ":
            self.assertIn("expected 0 or 29 to 10000", self.error_of("metrics", f"--buckets-max={n}", status=2))
        self.assertIn("expected openmetrics, openmetrics2, prometheus or protobuf",
                      self.error_of("metrics", "--format=json", status=2))
        self.assertIn("not supported by 'list'", self.error_of("list", "--format=prometheus", status=2))
        self.qosd.exported["a.service"]["histograms"][0]["counts"].pop()
        self.assertIn("invalid reply", self.error_of("metrics"))

    def test_metrics_verbose(self):
        """On standard error, in numbers: the series that are printed, and the schema in which a histogram has no more
        buckets than the limit. Standard output is the same."""
        def metric(name, probe, kind="counter"):
            return {"name": name, "kind": kind, "unit": "1", "probe": probe, "essential": probe == "requests",
                    "description": ""}

        def shown(*arguments):
            out, err = self.run_qosctl("metrics", "--verbose", *arguments)
            self.assertEqual(out, self.out_of("metrics", *arguments))
            units, histograms, end = err.split("\n\n")
            return ({row[0]: tuple(map(int, row[1:])) for row in map(str.split, units.splitlines()[1:])},
                    {tuple(row[:2]): tuple(map(int, row[2:])) for row in map(str.split, histograms.splitlines()[1:])},
                    tuple(map(int, re.fullmatch(r"(\d+) series of units exported, (\d+) dropped\.\n", end).groups())))

        self.qosd.metrics = [metric("requests.server.count", "requests"),
                             metric("requests.server.inFlight", "requests", "gauge"),
                             metric("contention.threadTime", "cpu"),
                             metric("requests.server.latency.count", "requests", "gauge")]
        self.export("a.service", 900, list(range(-703, 193)), [1] * 896)
        self.export("b.service", 7, [-704, 0, 193], [3, 2, 2])
        latency = "qosd_requests_server_latency_seconds"
        for limit, schema, n in ("0", 5, 896), ("896", 5, 896), ("895", 4, 448), ("224", 3, 224), ("160", 2,
                                                                                                   112), ("29", 0, 28):
            units, histograms, end = shown(f"--buckets-max={limit}")
            self.assertEqual(histograms, {("a.service", latency): (schema, n, 5), ("b.service", latency): (5, 2, 5)})
        for form in ("--format=prometheus",), ("--format=openmetrics",):
            units, _, end = shown(*form)
            for unit in "a.service", "b.service":
                for scope, n in ("requests", units[unit][0]), ("probes", units[unit][1]):
                    there = [key for key in self.samples(*form, f"--export={scope}", unit)
                             if key[0] != "qosd_program_attached"]
                    names = {(re.sub("_(bucket|sum|count)$", "", name), None) if latency in name
                             and "overflow" not in name else (name, label)
                             for name, _, label in there if not name.endswith("_created")}
                    self.assertEqual(n, len(names), scope)
                self.assertEqual(units[unit][2:], (units[unit][1],) * 2)
            self.assertEqual(end, (sum(row[3] for row in units.values()), 0))

        # The second one has durations of more than 64 s, too, which are a counter
        (requests, probes, _, _), second = units["a.service"], units["b.service"]
        self.assertEqual(second, (requests + 1, probes + 1, probes + 1, probes + 1))
        self.assertEqual(shown("--export=requests", f"--series-max={requests * 2 + 1}")[2], (requests * 2 + 1, 0))
        units, histograms, end = shown(f"--series-max={probes * 2}")
        self.assertEqual((units, end), ({"a.service": (requests, probes, probes, probes),
                                         "b.service": (requests + 1, probes + 1, probes + 1, 0)},
                                        (probes, probes + 1)))
        self.assertEqual(list(histograms), [("a.service", latency)])
        self.assertIn(f"qosd_series_dropped {probes + 1}\n", self.out_of("metrics", f"--series-max={probes * 2}"))

        self.assertIn("not supported with JSON", self.error_of("metrics", "--verbose", "-j", status=2))
        self.assertIn("expected requests, probes or everything", self.error_of("metrics", "--export=all", status=2))
        self.assertIn("expected 0 to 10000000", self.error_of("metrics", "--series-max=x", status=2))

    def test_metrics_of_tables(self):
        """Endpoints, devices and file systems have a label of their own, and are the first that a limit leaves out."""
        self.qosd.metrics = [{"name": "requests.server.count", "kind": "counter", "unit": "1", "probe": "requests",
                              "description": ""}]
        for name in "a.service", "b.service", "c.service":
            self.export(name, 3, [0], [3])
            self.qosd.exported[name] |= {
                "endpoints": [{"listen": "*:80", "count": 2, "errors": {"reset": 4, "timeout": 5}, "clientAborts": 6,
                               "bytesIn": 7, "bytesOut": 8,
                               "inFlight": 9}, {"rest": True, "count": 1, "inFlight": 0}],
                "devices": [{"device": "sda", "reads": 1, "writes": 2, "flushes": 3, "discards": 4, "readBytes": 512,
                             "writeBytes": 1024,
                             "discardBytes": 2048, "queueTime": 1500000000, "deviceTime": 7},
                            {"rest": True, "reads": 8}],
                "mounts": [{"mount": "/srv", "type": "ext4", "device": "8:1",
                            "reads": {"count": 1, "errors": 2, "bytes": 3},
                            "writes": {"count": 4, "errors": 5, "bytes": 6}, "syncs": {"count": 7, "errors": 8},
                            "opens": {"count": 9, "errors": 1},
                            "changes": {"count": 10, "errors": 1}},
                           {"type": "tmpfs", "device": "0:52", "reads": {"count": 11}},
                           {"rest": True, "reads": {"count": 12}}]}
        endpoint, device = "qosd_requests_server_endpoint", "qosd_contention_block_device"
        of_table = {f'{endpoint}_total{{unit="a.service",endpoint="*:80"}}': "2",
                    f'{endpoint}_total{{unit="a.service",endpoint="others"}}': "1",
                    f'{endpoint}_in_flight{{unit="a.service",endpoint="others"}}': "0"}
        for name, value in {f"{endpoint}_errors_reset_total": 4, f"{endpoint}_errors_timeout_total": 5,
                            f"{endpoint}_client_aborts_total": 6,
                            f"{endpoint}_in_bytes_total": 7, f"{endpoint}_out_bytes_total": 8,
                            f"{endpoint}_in_flight": 9}.items():
            of_table[f'{name}{{unit="a.service",endpoint="*:80"}}'] = str(value)
        for name, value in {"reads": 1, "writes": 2, "flushes": 3, "discards": 4, "read_bytes": 512,
                            "write_bytes": 1024, "discard_bytes": 2048,
                            "queue_time_seconds": "1.500000000", "device_time_seconds": "0.000000007"}.items():
            of_table[f'{device}_{name}_total{{unit="a.service",device="sda"}}'] = str(value)
        of_table[f'{device}_reads_total{{unit="a.service",device="others"}}'] = "8"
        mount = "qosd_storage_mount"
        for name, value in {"reads": 1, "reads_errors": 2, "reads_bytes": 3, "writes": 4, "writes_errors": 5,
                            "writes_bytes": 6, "syncs": 7,
                            "syncs_errors": 8, "opens": 9, "changes": 10}.items():
            of_table[f'{mount}_{name}_total{{unit="a.service",mount="/srv"}}'] = str(value)
        of_table[f'{mount}_reads_total{{unit="a.service",mount="0:52"}}'] = "11"
        of_table[f'{mount}_reads_total{{unit="a.service",mount="others"}}'] = "12"

        def lines(*arguments):
            return {k: v for k, v in (line.rsplit(" ", 1) for line in self.out_of("metrics", "--format=prometheus",
                                                                                  *arguments).splitlines()
                                      if not line.startswith("#"))}

        without, everything = lines("--export=probes"), lines("--export=everything")
        self.assertEqual({k: v for k, v in everything.items() if k not in without and "a.service" in k}, of_table)
        self.assertEqual(len(everything), len(without) + 3 * len(of_table))
        self.assertIn(f'{endpoint}_created{{unit="a.service",endpoint="*:80"}} 1763683200.123456000\n',
                      self.out_of("metrics", "--export=everything"))

        def left(limit):
            """Which units are there, and with tables, and how many series are left out."""
            there = lines("--export=everything", f"--series-max={limit}")
            return ([u for u in "abc" if any(f'unit="{u}.service"' in k for k in there)],
                    [u for u in "abc" if any(f'unit="{u}.service",endpoint=' in k for k in there)],
                    int(there["qosd_series_dropped"]))

        _, err = self.run_qosctl("metrics", "--verbose", "--export=everything")
        unit, n = list(map(int, err.splitlines()[1].split()[1:3]))[1], len(of_table)
        for limit, units, tables in ((3 * unit + 3 * n, "abc", "abc"), (3 * unit + 3 * n - 1, "abc", "ab"),
                                     (3 * unit + n, "abc", "a"),
                                     (3 * unit + n - 1, "abc", ""), (3 * unit, "abc", ""), (3 * unit - 1, "ab", ""),
                                     (2 * unit - 1, "a", ""),
                                     (unit - 1, "", "")):
            self.assertEqual(left(limit), (list(units), list(tables), (3 - len(units)) * unit + (3 - len(tables)) * n),
                             limit)
        # Those of the first unit would fit where the last unit does not
        self.qosd.exported["a.service"] |= {"endpoints": [{"listen": "*:80", "count": 2}], "devices": [], "mounts": []}
        self.assertEqual(left(3 * unit + 1), (["a", "b", "c"], ["a"], 2 * n))
        self.assertEqual(left(3 * unit - 1), (["a", "b"], [], unit + 1 + 2 * n))

    def test_metrics_openmetrics2(self):
        """All of it is in the grammar of the draft, and a histogram has all buckets, in both forms."""
        self.qosd.metrics += [
            {"name": name, "kind": kind, "unit": unit, "probe": "requests", "description": description}
            for name, kind, unit, description in
            (("requests.server.bytesIn", "counter", "bytes", "Bytes"),
             ("contention.threadTime", "counter", "ns", "Time"),
             ("requests.server.inFlight", "gauge", "1", "A \\ and \"more\""),
             ("requests.server.latency.count", "gauge", "1", "Requests"))]
        indexes, counts = [-704, -672, -671, 0, 5, 192, 193], [1, 2, 4, 8, 16, 32, 64]
        self.export("a.service", 127, indexes, counts)
        self.export("b\\x2dc.service", 0, [], [])

        # The ABNF of the draft, as far as this has it
        name, real, integer = "[a-zA-Z_:][a-zA-Z0-9_:]*", r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?", "-?[0-9]+"
        escaped = r'(?:[^\n"\\]|\\.)*'
        spans = rf"{integer}:[0-9]+(?:,[0-9]+:[0-9]+)*"
        composite = (rf"\{{count:([0-9]+),sum:({real}),schema:({integer}),zero_threshold:({real}),zero_count:([0-9]+)"
                     rf"(?:,positive_spans:\[({spans})\],positive_buckets:\[([0-9]+(?:,[0-9]+)*)\])?"
                     rf",bucket:\[((?:{real}:[0-9]+,)*\+Inf:[0-9]+)\]\}}")
        sample = (rf'({name})\{{({name}="{escaped}"(?:,{name}="{escaped}")*)\}} (?:{composite}|({real}))'
                  rf'(?: st@({real}))?')

        out = self.out_of("metrics", "--format=openmetrics2", "--buckets-max=0")
        self.assertTrue(out.endswith("\n# EOF\n"))
        family, metadata, families, histograms, values = None, [], [], {}, {}
        for line in out.splitlines()[:-1]:
            if line.startswith("# "):
                m = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({name}) ({escaped})", line)
                self.assertTrue(m, line)
                if m[2] != family:
                    family, metadata = m[2], []
                    self.assertNotIn(family, families)
                    families.append(family)
                metadata.append(m[1])
                self.assertEqual(metadata, [w for w in ("TYPE", "UNIT", "HELP") if w in metadata], line)
                if m[1] == "TYPE":
                    self.assertIn(m[3], ("counter", "gauge", "histogram", "info"))
                continue
            m = re.fullmatch(sample, line)
            self.assertTrue(m, line)
            self.assertEqual(m[1], family)
            self.assertTrue(metadata, line)
            if m[3]:
                histograms[m[1], m[2]] = m.groups()[2:]
            else:
                values[m[1], m[2]] = m[11], m[12]
        since = "1763683200.123456000"
        self.assertEqual(values["qosd_requests_server_total", 'unit="a.service"'], ("127", since))
        self.assertEqual(values["qosd_requests_server_in_bytes_total", 'unit="a.service"'], (str(2 ** 53 + 1), since))
        self.assertEqual(values["qosd_contention_thread_time_seconds_total", 'unit="a.service"'], ("1.500000000", None))
        self.assertEqual(values["qosd_requests_server_in_flight", 'unit="b\\\\x2dc.service"'], ("2", None))
        self.assertEqual(values["qosd_unit_info", 'unit="a.service",slice="app.slice",state="active"'], ("1", None))
        latency = "qosd_requests_server_latency_seconds"
        self.assertIn(f"# TYPE {latency} histogram\n# UNIT {latency} seconds\n# HELP {latency} ", out)
        self.assertEqual({k[0] for k in histograms}, {latency})

        count, total, schema, threshold, zero, spans, native, classic, value, created = histograms[latency,
                                                                                                   'unit="a.service"']
        self.assertEqual((count, total, schema, float(threshold), zero, created),
                         ("127", "12.345678901", "5", 2 ** -22, "1", since))
        got, index = {}, 0
        native = list(map(int, native.split(",")))
        for offset, length in (map(int, span.split(":")) for span in spans.split(",")):
            for index in range(index + offset, index + offset + length):
                got[index] = native.pop(0)
            index += 1
        self.assertEqual(got, dict(zip(indexes[1:], counts[1:])))
        self.assertEqual(native, [])
        for le, n in (bucket.split(":") for bucket in classic.split(",")):
            self.assertEqual(int(n), sum(k for i, k in zip(indexes, counts) if i <= 192 and 2 ** (i / 32) <= float(le)
                                         or le == "+Inf"), le)
        self.assertEqual(len(classic.split(",")), 30)

        (count, total, schema, threshold, zero, spans, native, classic, value,
         created) = histograms[latency, 'unit="b\\\\x2dc.service"']
        self.assertEqual((count, zero, spans, native, created), ("0", "0", None, None, since))

    def test_metrics_of_nothing(self):
        self.qosd.programs = [{"program": "qosd_mkdir", "state": "idle"}]
        self.assertEqual(self.out_of("metrics"), "# EOF\n")
        self.assertEqual(self.out_of("metrics", "--format=prometheus"), "")
        # Not even the end of an exposition of a unit that does not exist
        self.assertEqual(self.run_qosctl("metrics", "nope", status=4),
                         ("", "Failed to read 'nope': no such unit nope.service.\n"))

    def test_list_metrics(self):
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                self.fits(self.out_of("list-metrics", columns=columns, locale=locale), columns)
        self.assertRegex(self.out_of("list-metrics", "--no-legend").splitlines()[1],
                         r"^requests.server.count +1 +counter requests Requests with a first response byte$")
        self.assertEqual([json.loads(line) for line in self.out_of("list-metrics", "--json=short").splitlines()],
                         self.qosd.metrics)

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
            r = subprocess.run([QOSCTL, "list"], env=self.env, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"No space left", r.stderr)

    def program_ssh(self):
        """Installs an ssh that connects to the stub's socket, or for host2 to that of another stub."""
        self.program("ssh", f"""#!{sys.executable}
import os, socket, sys, threading, time
with open({self.directory + "/ssh.log"!r}, "a") as f:
    print(*sys.argv[1:], sep="|", file=f)
if sys.argv[-1].startswith("unreachable"):
    sys.exit("ssh: no route to host")
if "silent" in sys.argv:
    time.sleep(3600)
if "chatty" in sys.argv:
    for _ in range(100000):
        os.write(2, b"\\033[31mnoise\\n")
    os.write(1, b"x" * 1000 + b"\\0")
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[sys.argv.index("-W") + 1] + ("2" if "host2" in sys.argv else ""))
def back():
    while data := s.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    s.sendall(data)
os._exit(0)
""")

    def test_other_host(self):
        self.qosd.add("nginx.service")
        self.program_ssh()
        self.assertIn("nginx.service", self.out_of("-H", "web1", "list"))
        self.assertIn("nginx.service", self.out_of("--host=admin@web1:2222"))
        self.assertIn("nginx.service", self.out_of("-H", "admin@[::1]:2222"))
        self.assertIn("nginx.service", self.out_of("-H", "fe80::1"))
        self.assertIn("nginx.service", self.out_of("-H", "-oProxyCommand=x"))
        self.assertIn("nginx.service", self.out_of("-H", "web1", "top", "-n", "2", "-d", "100ms", "-b", "nginx"))
        with open(self.directory + "/ssh.log") as f:
            calls = f.read().splitlines()
        p = self.qosd.path
        self.assertEqual(calls, [f"-xT|-W|{p}|--|web1", f"-xT|-p|2222|-W|{p}|--|admin@web1",
                                 f"-xT|-p|2222|-W|{p}|--|admin@::1",
                                 f"-xT|-W|{p}|--|fe80::1", f"-xT|-W|{p}|--|-oProxyCommand=x", f"-xT|-W|{p}|--|web1"])
        err = self.error_of("-H", "unreachable", "status", "nginx")
        self.assertIn("no route to host", err)
        self.assertIn("connection closed", err)

    def second_qosd(self):
        """Starts the stub of host2."""
        self.program_ssh()
        self.others.append(FakeQosd(self.directory + "/qosd2"))
        return self.others[-1]

    def test_hosts(self):
        """list has a column with the host. A host that fails is reported, and the others are shown."""
        second = self.second_qosd()
        self.qosd.add("nginx.service")
        self.qosd.add("redis.service", degraded="no such hook")
        second.add("nginx.service", rate=99)
        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", columns=columns)
            rows = [line.split() for line in plain(out).splitlines()]
            self.assertEqual(rows[0][:2], ["HOST", "UNIT"])
            self.assertEqual([r[0] for r in rows[1:4]], ["host1", "host1", "host2"])
            self.fits(out if columns > 40 else out.split("\n\n")[0], columns)
            if columns > 40:
                self.assertEqual([r[1] for r in rows[1:4]], ["nginx.service", "redis.service", "nginx.service"])
            self.assertIn("host1 redis.service: no such hook", out)
            self.assertIn("3 units attached on 2 hosts.", out)
        self.assertEqual(self.out_of("-H", "host1", "-H", "host2", "list", "nginx").count("nginx.service"), 2)
        items = [json.loads(line)
                 for line in self.out_of("-H", "host1,host2", "list", "nginx", "--json=short").splitlines()]
        self.assertEqual([(i["host"], i["unit"], i["snapshot"]["requests"]["server"]["rate"]) for i in items],
                         [("host1", "nginx.service", 15123.4), ("host2", "nginx.service", 99)])
        with open(self.directory + "/ssh.log") as f:
            self.assertEqual({line.split("|-W")[0] for line in f}, {"-xT|-oBatchMode=yes|-oConnectTimeout=10"})

        out, err = self.run_qosctl("-H", "host1,unreachable,host2", "list", status=1)
        self.assertIn("unreachable: ssh: no route to host\n", err)
        self.assertIn("unreachable: Failed to list units: connection closed; ", err)
        self.assertIn("3 units attached on 2 hosts.", out)
        for line in err.splitlines():
            self.assertTrue(line.startswith("unreachable: "), line)
        out, err = self.run_qosctl("-H", "unreachable,unreachable2", "list", status=1)
        self.assertEqual(out, "")
        out, err = self.run_qosctl("-H", "host1,chatty", "list", status=1)
        self.assertIn("2 units attached on 1 host.", out)
        self.assertIn("chatty: \\x1b[31mnoise", err)
        # Only the first 16 KiB are printed, which host names and escapes make longer
        self.assertLess(len(err), 3 * 16 << 10)

    def test_silent_host(self):
        """A host without a response is given up after a timeout, and the others are shown."""
        self.program_ssh()
        self.qosd.add("nginx.service")
        out, err = self.run_qosctl("-H", "silent,host1", "list", status=1)
        self.assertEqual(err, "silent: no response within 15s.\n")
        self.assertIn("host1 nginx.service", out)

    def test_histogram_of_hosts(self):
        """The histogram of several hosts has the sums of their buckets, also of different schemas."""
        second = self.second_qosd()
        self.qosd.add("nginx.service")
        second.add("nginx.service", rate=99)

        def get(host):
            return json.loads(self.out_of("-H", host, "histogram", "nginx", "--json=short"))

        def buckets(*replies):
            sums = {}
            for b in (b for r in replies for b in r["buckets"]):
                key = b["lower"], b.get("upper")
                sums[key] = sums.get(key, 0) + b["count"]
            return dict(sorted(sums.items()))

        single, other, both = get("host1"), get("host2"), get("host1,host2")
        self.assertEqual(buckets(both), buckets(single, other))
        self.assertEqual(len(both["buckets"]), len(buckets(both)))
        for key in ("count", "sum"):
            self.assertEqual(both[key], single[key] + other[key])
        self.assertEqual({k: both[k] for k in ("unit", "metric", "window", "schema")},
                         {k: single[k] for k in ("unit", "metric", "window", "schema")})
        self.assertEqual([(h["host"], h["count"]) for h in both["hosts"]],
                         [("host1", single["count"]), ("host2", other["count"])])

        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", "histogram", "nginx", columns=columns)
            self.assertIn(f"requests.server.latency of nginx.service on 2 hosts: {self.count(both['count'])} in the "
                          "last 10s, mean ",
                          out.replace(":\n", ": "))
            self.assertIn(" p99.9\n", out)
            if columns > 40:
                self.fits(out, columns)
        second.status["minimumSamples"] = 1000
        self.assertNotIn(" p99.9\n", self.out_of("-H", "host1,host2", "histogram", "nginx"))

        out, err = self.run_qosctl("-H", "host1,unreachable", "histogram", "nginx", "--json=short", status=1)
        self.assertEqual(buckets(json.loads(out)), buckets(single))
        self.assertIn("unreachable: ", err)
        del second.units["nginx.service"]
        out, err = self.run_qosctl("-H", "host1,host2", "histogram", "nginx", "--json=short", status=4)
        self.assertEqual(buckets(json.loads(out)), buckets(single))
        self.assertIn("host2: Failed to read 'nginx': ", err)
        second.add("nginxx.service")
        self.assertIn("nginx.service on host1 and nginxx.service on host2",
                      self.error_of("-H", "host1,host2", "histogram", "nginx*", status=2))

    @staticmethod
    def count(n):
        return str(n) if n < 1000 else f"{n / 1000:.3g}k"

    def test_status_of_hosts(self):
        """status of several hosts has a row for each, and quantiles of all requests, which are from the sums of the
        buckets."""
        second = self.second_qosd()
        self.qosd.add("nginx.service", requests__server__inFlight=2, requests__server__oldestInFlight=7000,
                      requests__server__errors={"reset": 3, "timeout": 1})
        second.add("nginx.service", rate=99, requests__server__inFlight=3, requests__server__oldestInFlight=81000)
        second.add("redis.service")

        def histogram_of(host, name):
            return json.loads(self.out_of("-H", host, "histogram", "nginx", f"requests.server.{name}", "--json=short"))

        r = json.loads(self.out_of("-H", "host1,host2", "status", "nginx", "--json=short"))
        server = r["requests"]["server"]
        self.assertEqual((r["unit"], r["window"], [h["host"] for h in r["hosts"]]),
                         ("nginx.service", 10 * SEC, ["host1", "host2"]))
        self.assertEqual((server["count"], server["rate"], server["inFlight"]), (151234 + 990, 15123.4 + 99, 5))
        for name in ("latency", "firstByte", "receive", "queue", "service", "answer"):
            parts = [histogram_of(host, name) for host in ("host1", "host2")]
            values = sorted((b["lower"], b["upper"], b["count"]) for p in parts for b in p["buckets"])
            n = sum(p["count"] for p in parts)
            self.assertEqual((server[name]["count"], server[name]["mean"]), (n, sum(p["sum"] for p in parts) // n))
            for key, q, _ in QUANTILES:
                seen = 0
                for lower, upper, count in values:
                    seen += count
                    if seen >= q * n:
                        break
                self.assertTrue(lower <= server[name][key] <= upper,
                                f"{key} of {name}: {server[name][key]} is not from {lower} to {upper}")
            self.assertEqual(server[name]["max"], max(h["requests"]["server"][name]["max"] for h in r["hosts"]))

        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", "status", "nginx", columns=columns)
            self.fits(out if columns > 40 else out.split("\n\n")[0], columns)
            self.assertRegex(out, r"(?s)nginx.service on 2 hosts\nHOST .*\nhost1 .*\nhost2 ")
            for line in ("Requests: 15.2k/s (152k in the last 10s)\n", "In flight: 5, oldest 81.0us on host2\n",
                         "Errors: 0.40/s\n",
                         "Traffic: 1.2M/s in, 48.1M/s out\n", "Total: 9.13M requests since attached\n",
                         "Histogram: request latency, last 10s\n"):
                self.assertIn(line, out)
        self.assertIn("since attached)\n", self.out_of("-H", "host1,host2", "status", "nginx", "--window=total"))
        self.qosd.add("redis.service", requests__server=None)
        out = self.out_of("-H", "host1,host2", "status", "*.service")
        self.assertEqual(out.count(" on 2 hosts\n"), 2)
        self.assertIn("Requests: 15.1k/s (151k in the last 10s)\n" + " " * 18 + "not measured on host1\n", out)
        out, err = self.run_qosctl("-H", "host1,unreachable,host2", "status", "nginx", status=1)
        self.assertIn("nginx.service on 2 hosts", out)
        self.assertIn("unreachable: ", err)
        self.qosd.known = {"nginx.service"}
        del self.qosd.units["nginx.service"]
        out, err = self.run_qosctl("-H", "host1,host2", "status", "nginx", status=3)
        self.assertIn("nginx.service on 1 host\n", out)
        self.assertTrue(err.startswith("host1: Failed to read 'nginx': "), err)

    def test_diagnose_of_hosts(self):
        second = self.second_qosd()
        for qosd, kind in (self.qosd, "found"), (second, "nothing"):
            qosd.add("nginx.service")
            qosd.diagnosis = {"verdict": kind, "summary": f"summary {kind}", "text": "1000 requests/s", "findings": [],
                              "excluded": [], "figures": {}}
        out = self.out_of("-H", "host1,host2", "diagnose", "nginx", "--for=1s")
        self.assertEqual(out,
                         "host1: nginx.service: summary found\n1000 requests/s\n\nhost2: nginx.service: summary "
                         "nothing\n1000 requests/s\n")
        items = [json.loads(line) for line in self.out_of("-H", "host1,host2", "diagnose", "nginx", "--for=1s",
                                                          "--json=short").splitlines()]
        self.assertEqual([(i["host"], i["verdict"]) for i in items], [("host1", "found"), ("host2", "nothing")])
        out, err = self.run_qosctl("-H", "unreachable,host2", "diagnose", "nginx", "--for=1s", status=1)
        self.assertTrue(out.startswith("host2: nginx.service: summary nothing"), out)
        second.diagnosis["verdict"] = "unknown"
        self.assertIn("host2: ", self.run_qosctl("-H", "host1,host2", "diagnose", "nginx", "--for=1s", status=1)[0])
        for option in ("--save=", "--against="):
            self.assertIn(f"{option} cannot be combined",
                          self.error_of("-H", "host1,host2", "diagnose", "nginx", option + "/x", status=2))
        self.error_of("-H", "host1,host2", "diagnose", "nginx", "--for=7ms", status=2)

        # Ctrl+C ends the interval on all hosts
        t = self.terminal("--no-pager", "-H", "host1,host2", "diagnose", "nginx", "--for=5min")
        t.wait_for("Observing nginx on 2 hosts: ")

        def observed():
            with open(f"/proc/{t.process.pid}/task/{t.process.pid}/children") as f:
                children = f.read().split()
            return len(children) == 2 and all(map(self.sleeps, children))

        self.until(observed)
        t.key("\x03")
        self.assertEqual(t.end(), 1)
        for line in ("host1: nginx.service: summary found", "host2: nginx.service: summary nothing"):
            self.assertIn(line, plain(t.output))

    def test_hosts_usage(self):
        self.program_ssh()
        for hosts in ("a,,b", ",a", "a,", ""):
            self.assertEqual(self.error_of("-H", hosts, status=2),
                             "Empty host name in --host=, expected names separated by commas.\n")
        self.assertEqual(self.error_of("-H", "a,b,a", status=2), "Host 'a' is given twice in --host=.\n")
        self.assertEqual(self.error_of("-H", "a", "-H", "a", status=2), "Host 'a' is given twice in --host=.\n")
        self.assertIn("without blanks", self.error_of("-H", "a, b", status=2))
        self.assertEqual(self.error_of("-H", ",".join(map(str, range(65))), status=2),
                         "Too many hosts in --host=, expected at most 64.\n")
        for verb in ("attach", "detach", "show", "top", "history", "heatmap", "measure", "why", "set-threshold",
                     "monitor", "metrics", "probes"):
            words = ["x"] if verb != "probes" else []
            self.assertEqual(self.error_of("-H", "a,b", verb, *words, status=2),
                             f"'{verb}' operates on one host, but --host= has several.\n")
        self.assertIn("--all cannot be combined", self.error_of("-H", "a,b", "list", "--all", status=2))
        self.assertFalse(os.path.exists(self.directory + "/ssh.log"))

    def test_password_prompt(self):
        """On a terminal, polkit's agent runs during requests that may require authorization."""
        self.qosd.known = {"nginx.service"}
        self.program("pkttyagent",
                     "#!/bin/sh\necho started \"$*\"\ntrap 'echo ended; exit' TERM\neval \"exec $2>&-\"\nwhile :; do "
                     "sleep 0.1; done\n")
        nobody = 65534 if os.geteuid() == 0 else None
        t = self.terminal("attach", "nginx", uid=nobody)
        t.wait_for(r"started --notify-fd \d+ --fallback")
        t.wait_for("ended")
        self.assertEqual(t.end(), 0)
        for arguments, uid in ((["attach", "--no-ask-password", "nginx"], nobody), (["status", "nginx"], nobody),
                               (["-H", "x", "attach", "nginx"], nobody)):
            t = self.terminal(*arguments, uid=uid)
            t.end()
            self.assertNotIn("started", t.output)
        self.assertEqual([p["allowInteractiveAuthentication"] for p in self.calls("Attach")], [True, False])
        # The agent ends before the pager starts
        self.program("mine", "#!/bin/sh\necho paged\nexec cat\n")
        self.qosd.errors["Resources"] = Error("org.varlink.service.PermissionDenied")
        t = self.terminal("resources", "nginx", uid=nobody, env={"SYSTEMD_PAGERSECURE": "0", "PAGER": "mine"})
        t.wait_for("started .*ended.*paged.*Waits: access denied")
        self.assertEqual(t.end(), 0)
        t = self.terminal("resources", "--no-ask-password", "nginx", uid=nobody)
        t.end()
        self.assertNotIn("started", t.output)
        self.assertEqual([p["allowInteractiveAuthentication"] for p in self.calls("Resources")], [True, False])

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
        p = subprocess.Popen([QOSCTL, "top", "-b", "-d", "100ms", "--no-legend"], env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
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
        r = subprocess.run(["script", "-qec", f"TERM=dumb {QOSCTL} top -n 2 -d 100ms", "/dev/null"], env=self.env,
                           stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=DEADLINE)
        self.assertEqual(r.stdout.decode().count("nginx.service"), 2)
        self.assertNotIn(b"\x1b", r.stdout)

    def test_no_keys(self):
        """-n limits the number of tables on a terminal, too."""
        self.qosd.add("nginx.service")
        t = self.terminal("top", "-n", "2", "-d", "100ms")
        self.assertEqual(t.end(), 0)
        self.assertIn("nginx.service", t.output)


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
        r = subprocess.run(["bash", "-c", script, "bash", COMPLETION, "qosctl", *words], env=self.env,
                           capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(r.stderr, "")
        return sorted(r.stdout.split("\n")[:-1])

    def setUp(self):
        super().setUp()
        os.symlink(os.path.abspath(QOSCTL), self.bin + "/qosctl")
        self.program("systemctl",
                     "#!/bin/sh\nprintf '%s\\n' 'nginx.service loaded active' 'dev-a\\x2db.service loaded active'\n")
        self.qosd.add("redis.service")
        self.qosd.add("a\\x2db.service")

    def test_completion(self):
        self.assertEqual(self.complete("at"), ["attach"])
        self.assertEqual(len(self.complete("")), 28)
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
        self.assertEqual(self.complete("history", "--s"), ["--since="])
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


# Independent of the number of CPUs, as most tests wait for intervals of qosctl
WORKERS = 4


def test_names(suite):
    for test in suite:
        yield from test_names(test) if isinstance(test, unittest.TestSuite) else [test.id().partition(".")[2]]


def run_test(name):
    tests = unittest.defaultTestLoader.loadTestsFromName(name, sys.modules[__name__])
    result = unittest.TextTestRunner(stream=io.StringIO()).run(tests)
    return result.testsRun, [f"{test}\n{text}" for test, text in result.errors + result.failures]


def run_all():
    names = list(test_names(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])))
    run, failed = 0, []
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        for n, failures in pool.imap_unordered(run_test, names):
            run += n
            failed += failures
    print(*failed, f"{run} of {len(names)} tests run, {len(failed)} failures", sep="\n")
    return 1 if failed or run != len(names) else 0


if __name__ == "__main__":
    # Nohup ignores it, and a shell cannot trap a signal that is ignored at its start
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    QOSCTL, COMPLETION = (os.path.abspath(p) for p in sys.argv[1:3])
    if sys.argv[3:]:
        unittest.main(argv=sys.argv[:1] + sys.argv[3:])
    sys.exit(run_all())
