#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the scenario tests inside the booted lab, as root:

    run.py [--vm] [--nightly] [GLOB...]

One line per test, with how many of how many have ended, and after how many seconds; what is known of a failure follows it.
--vm: only the tests of the smoke test, with small loads.
What is marked as nightly runs with --nightly, or if a GLOB matches it.
Tests that do not disturb each other run side by side, then those alone that want a daemon of their own, then those that want the machine
to be quiet. --again: of those that failed so many get a second run at the end, alone; what passes then is said by name, in a line of its own. Tests that need a machine that boots anew come last:
this ends in between, and goes on when it is called once more after the boot, for which it leaves a file (BOOT_AGAIN).
--results: a line of JSON for each test: its name, result, seconds, seconds of the CPU (its own, its clients' and its units', without
qosd's), and what a failed one said. What a test took last decides when it begins: long ones first."""

import argparse
import contextlib
import faulthandler
import fcntl
import fnmatch
import glob
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True  # the checkout is read-only
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenario  # noqa: E402

SIDE_BY_SIDE = 3        # mostly waiting, on the two CPUs that CI has
JOURNAL_LINES = 25
SILENCE_MAX = 60        # seconds after which a line says what is being waited for
# What tests/scenarios/meson.build builds, and where
TOOLS = ["server", "client", "uring", "relay", "waiter", "turns", "toiler", "reader", "refuse.so"]
TOOLS_BUILT = "/var/lib/qosd-build/tests/scenarios"
# What each test took when it passed last
SECONDS = "/var/lib/qosd-build/scenario-seconds.json"
# What the run after the boot needs to know, and what tells the lab to boot
BOOT_STATE = "/var/lib/qosd-scenarios.json"
BOOT_AGAIN = "/var/lib/qosd-lab-again"


def quiet(*command, timeout=30):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout, errors="replace", text=True).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{' '.join(command)}: {e}\n"


def copy_tools(directory):
    """The helpers, as meson has built them, to where all units may run them."""
    for name in TOOLS:
        try:
            shutil.copy(os.path.join(TOOLS_BUILT, name), directory)
        except OSError as e:
            sys.exit(f"Cannot copy what the tests run: {e}")


class Running:
    """One test in a process group of its own. booted: what its first half has left, where it is the second one."""

    def __init__(self, test, serial, booted=None):
        self.test = test
        self.booted = booted
        # None is the beginning of another's
        self.prefix = booted["prefix"] if booted else f"scn{os.getpid()}{serial}z"
        self.started = time.monotonic()
        self.since = time.time()
        self.patience = 1
        self.said = tempfile.TemporaryFile("w+", errors="replace")
        self.pid = os.fork()
        if self.pid == 0:
            self.child()
        self.fd = os.pidfd_open(self.pid)

    def child(self):
        status = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            faulthandler.register(signal.SIGUSR1, self.said)
            scenario.prefix = self.prefix
            if not self.test.reboots:
                self.test.function()
            elif self.booted:
                self.test.function(self.booted["state"])
            else:
                state = self.test.function(None)
                with open(self.state_path, "w") as f:
                    json.dump({"test": self.test.name, "prefix": self.prefix, "state": state}, f)
            status = 0
        except scenario.Failed as e:
            # The line of the test is what people look for, not that of the helper
            where = [f for f in traceback.extract_tb(e.__traceback__) if "test_" in f.filename][-1:]
            self.said.write(f"{e}\n" + "".join(f"  at {os.path.basename(f.filename)}:{f.lineno}: {f.line}\n" for f in where))
        except BaseException:
            traceback.print_exc(file=self.said)
        finally:
            if status != 0:
                self.say_more()
            self.said.flush()
            os._exit(status)

    @property
    def state_path(self):
        return f"/run/{self.prefix}-boot.json"

    @property
    def wants_boot(self):
        """It was the first half of one, which went well."""
        return self.test.reboots and not self.booted and os.path.exists(self.state_path)

    def say_where(self):
        """Lets the test write down what it is waiting for."""
        before = os.fstat(self.said.fileno()).st_size
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 2
        while os.fstat(self.said.fileno()).st_size == before and time.monotonic() < deadline:
            time.sleep(0.05)

    def say_more(self):
        """Journal and snapshots, taken before anything is cleaned up."""
        self.said.seek(0, os.SEEK_END)
        self.said.write("  --- journal of qosd\n")
        self.said.write(quiet("journalctl", "-u", "qosd.service", "-o", "short-precise", "--no-pager", "-n",
                              str(JOURNAL_LINES), f"--since=@{int(self.since)}"))
        for path in sorted(glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*")):
            name = os.path.basename(path)
            if os.path.isfile(path):
                self.said.write(f"  --- {name}\n")
                self.said.write(quiet("qosctl", "--no-pager", "status", name, "--window=total", "--json=short", timeout=5))

    @property
    def late(self):
        # The machine may be less busy now than it was
        self.patience = max(self.patience, scenario.patience())
        return time.monotonic() - self.started > self.test.deadline * self.patience

    def end(self):
        """Collects the result, and removes all that the test has made."""
        late = self.late and select.select([self.fd], [], [], 0)[0] == []
        if late:
            self.say_where()
            self.say_more()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, status, usage = os.wait4(self.pid, 0)
        status = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        os.close(self.fd)
        if not self.wants_boot:
            self.clean_up()
        self.seconds = time.monotonic() - self.started
        self.said.seek(0)
        said = self.said.read()
        self.said.close()
        if late:
            said = f"not done after {self.test.deadline * self.patience} s\n" + said
        elif status < 0:
            said += f"killed by signal {-status}\n"
        return status == 0, said

    def clean_up(self):
        names = {os.path.basename(p) for p in glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*")}
        for line in quiet("systemctl", "list-units", "--all", "--plain", "--no-legend", "--full",
                          f"{self.prefix}*").splitlines():
            names.add(line.split()[0])
        units = sorted(n for n in names if not n.endswith(".d"))
        try:
            attached = scenario.listed()
        except (scenario.Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            attached = []
        for name in attached:
            if self.prefix in name:
                quiet("qosctl", "detach", name)
        if units:
            for line in quiet("systemctl", "show", "--property=CPUUsageNSec", *units).splitlines():
                # What is not known is a word, or the greatest number
                value = line.removeprefix("CPUUsageNSec=")
                if value.isdigit() and int(value) < 1 << 63:
                    self.cpu += int(value) / 1e9
            quiet("systemctl", "kill", "--kill-whom=all", "--signal=SIGKILL", *units)
            quiet("systemctl", "stop", *units)
            quiet("systemctl", "reset-failed", *units)
        for path in (glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*") + glob.glob(f"/etc/systemd/system/{self.prefix}*") +
                     glob.glob(f"/etc/systemd/system/*.wants/{self.prefix}*")):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        for path in glob.glob(f"/run/{self.prefix}*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        if units:
            quiet("systemctl", "daemon-reload")
        for path in glob.glob(f"/run/netns/{self.prefix}*"):
            quiet("ip", "netns", "del", os.path.basename(path))


def run_some(tests, at_once, report):
    queue, running = list(tests), []
    serial = 0
    said = time.monotonic()
    try:
        while queue or running:
            while queue and len(running) < at_once:
                serial += 1
                test = queue.pop(0)
                running.append(Running(test, f"{'s' if at_once > 1 else 'e'}{serial}"))
            select.select([r.fd for r in running], [], [], 0.2)
            for r in [r for r in running if r.late or select.select([r.fd], [], [], 0)[0]]:
                running.remove(r)
                report(r, *r.end())
                said = time.monotonic()
            if time.monotonic() - said > SILENCE_MAX:
                said = time.monotonic()
                print("     running: " + ", ".join(f"{r.test.name} (since {said - r.started:.0f} s)" for r in running), flush=True)
    finally:
        for r in running:
            r.end()


@contextlib.contextmanager
def programs_loaded():
    """Keeps a unit attached, so that not each test waits for the verifier: a second, in the VM twenty. Those that run alone
    are without it, and find nothing loaded."""
    # What a run that was killed has left: one that goes on holds the lock of its own
    for left in glob.glob(f"{scenario.UNIT_DIR}/scn*-keeper.service"):
        with contextlib.suppress(OSError), open(left) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            quiet("qosctl", "detach", os.path.basename(left))
            os.unlink(left)
    name = f"scn{os.getpid()}-keeper.service"
    os.makedirs(scenario.UNIT_DIR, exist_ok=True)
    # Closed when this run ends, however it does
    lock = open(os.path.join(scenario.UNIT_DIR, name), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("[Service]\nExecStart=sleep infinity\n")
    lock.flush()
    scenario.systemctl("daemon-reload")
    try:
        # Without it the tests are slower, and no less right
        try:
            scenario.qosctl("attach", "--probes=requests,cpu,block,memory", name, timeout=300)
        except (scenario.Failed, subprocess.TimeoutExpired) as e:
            print(f"The programs cannot be kept loaded: {e}", flush=True)
        yield
    finally:
        quiet("qosctl", "detach", name, timeout=60)
        os.unlink(os.path.join(scenario.UNIT_DIR, name))
        lock.close()
        quiet("systemctl", "daemon-reload")


def programs_refused():
    """By name, with what the kernel said, also where another one does the same as far as it can."""
    with programs_loaded():
        return {p["program"]: p["reason"] for p in scenario.qosctl_json("probes")
                if p.get("reason") and p["state"] != "attached"}


def seconds_read():
    try:
        with open(SECONDS) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


def seconds_write(seconds):
    """Adds these to what is known of others."""
    with contextlib.suppress(OSError):
        with open(f"{SECONDS}.new", "w") as f:
            json.dump(seconds_read() | seconds, f, indent=0, sort_keys=True)
        os.rename(f"{SECONDS}.new", SECONDS)


def run_all(tests, again, results, failed, report):
    # Long ones first, so that they end together
    seconds = seconds_read()
    together = sorted((t for t in tests if not (t.own_daemon or t.quiet)), key=lambda t: -seconds.get(t.name, t.deadline))
    if together:
        with programs_loaded():
            run_some(together, 1 if scenario.in_vm else SIDE_BY_SIDE, report)
    run_some([t for t in tests if t.own_daemon and not t.quiet], 1, report)
    run_some([t for t in tests if t.quiet], 1, report)

    # More than these are no accident
    if 0 < len(failed) <= again:
        once_more = failed.copy()
        failed.clear()
        results["FAIL"] -= len(once_more)
        run_some(once_more, 1, report)
        for t in once_more:
            if t not in failed:
                print(f"Passed only when run again: {t.name}", flush=True)


class Boots:
    """The tests that boot the machine, one after the other, over the boots."""

    def __init__(self, tests, again):
        self.again = again
        self.queue = [t.name for t in tests]
        self.tests = {t.name: t for t in scenario.TESTS}
        self.failed = []    # once
        self.booted = None

    def take_up(self):
        """What the run before the boot has left. Returns its results; None: there was none."""
        if not os.path.exists(BOOT_STATE):
            return None
        with open(BOOT_STATE) as f:
            saved = json.load(f)
        os.unlink(BOOT_STATE)
        self.queue, self.failed, self.booted = saved["queue"], saved["failed"], saved["booted"]
        return saved["results"]

    def run(self, results, report):
        while self.booted or self.queue:
            booted, self.booted = self.booted, None
            name = booted["test"] if booted else self.queue.pop(0)
            running = Running(self.tests[name], f"b{len(self.queue)}{len(self.failed)}", booted)
            while not running.late and not select.select([running.fd], [], [], 0.2)[0]:
                pass
            ok, said = running.end()
            if ok and running.wants_boot:
                with open(running.state_path) as f:
                    booted = json.load(f)
                with open(BOOT_STATE, "w") as f:
                    json.dump({"results": results, "queue": self.queue, "failed": self.failed, "booted": booted}, f)
                with open(BOOT_AGAIN, "w"):
                    pass
                print(f"boot {name}", flush=True)
                sys.exit(0)
            report(running, ok, said)
            if not ok and self.again and name not in self.failed:
                self.failed.append(name)
                self.queue.append(name)
                results["FAIL"] -= 1
            elif ok and name in self.failed:
                print(f"Passed only when run again: {name}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Runs the scenario tests inside the lab.")
    parser.add_argument("--vm", action="store_true", help="only the smoke test, with small loads")
    parser.add_argument("--nightly", action="store_true", help="also what runs at night only")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="how many that failed may be run once more, alone")
    parser.add_argument("--results", metavar="FILE", help="write a line of JSON for each test to it")
    parser.add_argument("globs", nargs="*", metavar="GLOB", help="names of tests, as \"units.*\"")
    arguments = parser.parse_args()

    for path in sorted(glob.glob(os.path.join(scenario.SOURCES, "test_*.py"))):
        importlib.import_module(os.path.basename(path).removesuffix(".py"))
    tests = [t for t in scenario.TESTS
             if not arguments.globs or any(fnmatch.fnmatch(t.name, g) for g in arguments.globs)]
    if arguments.vm:
        tests = [t for t in tests if t.vm]
    if not arguments.nightly and not arguments.globs:
        tests = [t for t in tests if not (t.nightly or arguments.vm and t.vm == "nightly")]
    if not tests:
        sys.exit("No such test.")
    if os.geteuid() != 0:
        sys.exit("This needs root, and a lab around it.")

    scenario.in_vm = arguments.vm
    begun = time.monotonic()
    results = {"ok": 0, "FAIL": 0, "SKIP": 0, "SKIP-VM": 0}
    failed = []

    seconds = {}
    results_file = open(arguments.results, "a") if arguments.results else None

    def record(test, result, output=None, **took):
        if results_file:
            results_file.write(json.dumps({"name": test.name, "result": result, **took, **({"output": output} if output else {})}) + "\n")
            results_file.flush()

    def report(running, ok, said):
        word = "ok" if ok else "FAIL"
        results[word] += 1
        if ok:
            seconds[running.test.name] = round(running.seconds, 1)
        else:
            failed.append(running.test)
        record(running.test, word, said if not ok else None, seconds=round(running.seconds, 3), cpu=round(running.cpu, 3))
        print(f"{word:4} {running.test.name} ({running.seconds:.1f} s) "
              f"[{results['ok'] + results['FAIL']}/{len(tests)}, {time.monotonic() - begun:.0f} s]", flush=True)
        if not ok:
            print("".join(f"     {line}\n" for line in said.splitlines()), end="", flush=True)

    for t in [t for t in tests if t.needs_vm and not arguments.vm]:
        results["SKIP-VM"] += 1
        print(f"SKIP-VM {t.name} {t.needs_vm}")
        record(t, "SKIP-VM", t.needs_vm)
    tests = [t for t in tests if not t.needs_vm or arguments.vm]
    # The machine is there to have them all
    refused = programs_refused() if not arguments.vm and any(t.needs_program for t in tests) else {}
    for t in [t for t in tests if t.needs_program in refused]:
        results["SKIP"] += 1
        print(f"SKIP {t.name} needs {t.needs_program}: {refused[t.needs_program]}")
        record(t, "SKIP", f"needs {t.needs_program}: {refused[t.needs_program]}")
    tests = [t for t in tests if t.needs_program not in refused]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    boots = Boots([t for t in tests if t.reboots], arguments.again)
    before = boots.take_up()
    if before is not None:
        results.update(before)
    # Services may have a /tmp and a /var/tmp of their own, and programs may not be run from /run everywhere
    with tempfile.TemporaryDirectory(prefix="scenario-", dir="/var/lib") as directory:
        os.chmod(directory, 0o755)
        scenario.tools = directory
        copy_tools(directory)
        if before is None:
            run_all([t for t in tests if not t.reboots], arguments.again, results, failed, report)
        boots.run(results, report)
    seconds_write(seconds)

    n = results["SKIP"] + results["SKIP-VM"]
    skipped = f", {n} skipped" if n else ""
    print(f"{results['ok']} passed, {results['FAIL']} failed{skipped}")
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
