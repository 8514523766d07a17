# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests of qosctl have in common: its processes, in pipes and on terminals, and a stub of qosd."""

import codecs
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from fake_qosd import SEC, FakeQosd

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

    LONG_NAME = "a-rather-long-name-of-a-backend.service"

    def screen(self, *arguments, columns):
        """Runs qosctl on a terminal, checks that no line of its page is wider, and returns the lines."""
        t = self.terminal(*arguments, columns=columns, env={"PAGER": ""})
        self.assertEqual(t.end(), 0)
        page = plain(t.output.rsplit("\r\x1b[2K", 1)[-1]).replace("\r", "")
        self.fits(page, columns)
        return page.splitlines()

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


def row(count=1000, covered=10 * SEC, **more):
    return {"count": count, "rate": count * SEC / covered, "errors": {"reset": 0, "timeout": 0}, "inFlight": 3,
            "latency": {"count": count, "mean": 120000, "p50": 109000, "p99": 2040000}, "bytesIn": 1,
            "bytesOut": 2} | more
