#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the scenario tests inside the booted lab, as root:

    run.py [--vm] [--nightly] [--part PART] [--shared] [--probes PROBES] [--again N] [--results FILE] [GLOB...]

Prints a line for each test, with the number of tests that have ended, the number of all tests, and the seconds since
the start. The output of a failed test follows its line.

--vm: only the tests of the smoke test, with small loads.
--nightly: also tests that are marked as nightly. Without it, these run only if a GLOB matches their name.
--part: only the tests of this part: "together", "own-daemon", or "quiet". By default all of them, one part after the
other.
--shared: only tests that no other run with this option has begun. The lab empties the directory of their names (CLAIMS)
before.
--probes: those of which the programs are kept loaded for tests that run side by side, by default all that such tests
have.
--again: if at most N tests failed, they run a second time at the end, one at a time. Those that pass then are listed by
name.
--results: appends a line of JSON for each test to FILE: its name, result, seconds, CPU seconds (of the test, its
clients and its units, without qosd), and the output if it failed.

Tests that do not disturb each other run side by side, in the order of their last durations, long ones first. Then those
run one at a time that need an instance of qosd for themselves; the lab runs these on a second system meanwhile, and on
the first one once that has no others. Then those that need an idle machine: first those that leave it idle enough for
three others, then one at a time. Tests that reboot the machine come last: the process creates the file BOOT_AGAIN and
exits, and has to be started again after the reboot to continue."""

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

SIDE_BY_SIDE = 3        # on the two CPUs of CI, as tests mostly wait
LIGHT_SIDE_BY_SIDE = 4  # of those that use 2 % of the CPUs
PROBES = "requests,cpu,block,memory,storage"
JOURNAL_LINES = 25
SILENCE_MAX = 60        # seconds without output after which the running tests are printed
# Programs that tests/scenarios/meson.build builds, and their directory
TOOLS = ["server", "client", "uring", "relay", "waiter", "turns", "toiler", "reader", "refuse.so"]
TOOLS_BUILT = "/var/lib/qosd-build/tests/scenarios"
# Duration of each test when it passed last, and the names of those that have begun, in runs that share them
SECONDS = "/var/lib/qosd-share/seconds.json"
CLAIMS = "/var/lib/qosd-share/claims"
# State for the run after a reboot, and the file that makes the lab reboot the machine
BOOT_STATE = "/var/lib/qosd-scenarios.json"
BOOT_AGAIN = "/var/lib/qosd-lab-again"


def quiet(*command, timeout=30):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout, errors="replace", text=True).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{' '.join(command)}: {e}\n"


def copy_tools(directory):
    """Copies the programs that meson has built to a directory from which all units can run them."""
    for name in TOOLS:
        try:
            shutil.copy(os.path.join(TOOLS_BUILT, name), directory)
        except OSError as e:
            sys.exit(f"Cannot copy what the tests run: {e}")


class Running:
    """A test that runs in a process group of its own. booted: the state before the reboot, if this is the part after
    it."""

    def __init__(self, test, serial, booted=None):
        self.test = test
        self.booted = booted
        # No prefix is the beginning of another one
        self.prefix = booted["prefix"] if booted else f"scn{os.getpid()}{serial}z"
        self.deadline = test.deadline * scenario.patience()
        self.started = time.monotonic()
        self.since = time.time()
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
            # The last line of the test itself, not that of a helper
            where = [f for f in traceback.extract_tb(e.__traceback__) if "test_" in f.filename][-1:]
            self.said.write(f"{e}\n"
                            + "".join(f"  at {os.path.basename(f.filename)}:{f.lineno}: {f.line}\n" for f in where))
        except BaseException as e:
            # In one line, before all that leads to it
            self.said.write(" ".join("".join(traceback.format_exception_only(e)).split()) + "\n")
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
        """Whether this was the part of a test before its reboot, and passed."""
        return self.test.reboots and not self.booted and os.path.exists(self.state_path)

    def say_where(self):
        """Makes the test write a traceback, which shows what it is waiting for."""
        before = os.fstat(self.said.fileno()).st_size
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 2
        while os.fstat(self.said.fileno()).st_size == before and time.monotonic() < deadline:
            time.sleep(0.05)

    def say_more(self):
        """Writes the journal of qosd and snapshots of the units of the test, before these are removed."""
        self.said.seek(0, os.SEEK_END)
        self.said.write("  --- journal of qosd\n")
        self.said.write(quiet("journalctl", "-u", "qosd.service", "-o", "short-precise", "--no-pager", "-n",
                              str(JOURNAL_LINES), f"--since=@{int(self.since)}"))
        for path in sorted(glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*")):
            name = os.path.basename(path)
            if os.path.isfile(path):
                self.said.write(f"  --- {name}\n")
                self.said.write(quiet("qosctl", "--no-pager", "status", name, "--window=total", "--json=short",
                                      timeout=5))

    @property
    def late(self):
        return time.monotonic() - self.started > self.deadline

    def end(self):
        """Returns the result and the output of the test, and removes its units, files and namespaces."""
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
            said = f"not done after {self.deadline} s\n" + said
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
                # An unknown time is "[not set]", or the largest number
                value = line.removeprefix("CPUUsageNSec=")
                if value.isdigit() and int(value) < 1 << 63:
                    self.cpu += int(value) / 1e9
            quiet("systemctl", "kill", "--kill-whom=all", "--signal=SIGKILL", *units)
            quiet("systemctl", "stop", *units)
            quiet("systemctl", "reset-failed", *units)
        for path in (glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*")
                     + glob.glob(f"/etc/systemd/system/{self.prefix}*") +
                     glob.glob(f"/etc/systemd/system/*.wants/{self.prefix}*")):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        for path in glob.glob(f"/run/{self.prefix}*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        if units:
            quiet("systemctl", "daemon-reload")
        for path in glob.glob(f"/run/netns/{self.prefix}*"):
            quiet("ip", "netns", "del", os.path.basename(path))


def claim(test):
    """Whether no other run has begun with the test, which is reserved then."""
    try:
        os.close(os.open(os.path.join(CLAIMS, test.name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        return True
    except FileExistsError:
        return False


def run_some(tests, at_once, report, shared=False):
    queue, running = list(tests), []
    serial = 0
    said = time.monotonic()
    try:
        while queue or running:
            while queue and len(running) < at_once:
                serial += 1
                test = queue.pop(0)
                if shared and not claim(test):
                    continue
                running.append(Running(test, f"{'s' if at_once > 1 else 'e'}{serial}"))
            select.select([r.fd for r in running], [], [], 0.2)
            for r in [r for r in running if r.late or select.select([r.fd], [], [], 0)[0]]:
                running.remove(r)
                report(r, *r.end())
                said = time.monotonic()
            if time.monotonic() - said > SILENCE_MAX:
                said = time.monotonic()
                print("     running: " + ", ".join(f"{r.test.name} (since {said - r.started:.0f} s)" for r in running),
                      flush=True)
    finally:
        for r in running:
            r.end()


@contextlib.contextmanager
def programs_loaded(probes=PROBES):
    """Keeps a unit attached, so that not each test has to wait for the verifier, which takes a second, and 20 in the
    VM. Tests that run alone do without, and find no programs loaded."""
    # Remove units of runs that were killed; a run that is still active holds the lock of its file
    for left in glob.glob(f"{scenario.UNIT_DIR}/scn*-keeper.service"):
        with contextlib.suppress(OSError), open(left) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            quiet("qosctl", "detach", os.path.basename(left))
            os.unlink(left)
    name = f"scn{os.getpid()}-keeper.service"
    os.makedirs(scenario.UNIT_DIR, exist_ok=True)
    # The lock is released when this process ends, for whatever reason
    lock = open(os.path.join(scenario.UNIT_DIR, name), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("[Service]\nExecStart=sleep infinity\n")
    lock.flush()
    scenario.systemctl("daemon-reload")
    try:
        # If this fails, tests are slower, with the same results
        try:
            scenario.qosctl("attach", f"--probes={probes}", name, timeout=300)
        except (scenario.Failed, subprocess.TimeoutExpired) as e:
            print(f"The programs cannot be kept loaded: {e}", flush=True)
        yield
    finally:
        quiet("qosctl", "detach", name, timeout=60)
        os.unlink(os.path.join(scenario.UNIT_DIR, name))
        lock.close()
        quiet("systemctl", "daemon-reload")


def programs_refused():
    """Returns the reasons of the kernel for the BPF programs that it rejects, by name, including those with a
    fallback."""
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
    """Updates the file with the durations of these tests."""
    with contextlib.suppress(OSError):
        with open(f"{SECONDS}.new", "w") as f:
            json.dump(seconds_read() | seconds, f, indent=0, sort_keys=True)
        os.rename(f"{SECONDS}.new", SECONDS)


def part(test):
    # In the VM no tests run side by side
    if test.quiet and not (scenario.in_vm and test.quiet != "alone"):
        return "quiet"
    return "own-daemon" if test.own_daemon else "together"


def run_all(tests, arguments, results, failed, report):
    # Long tests first, so that none of them runs alone at the end
    seconds = seconds_read()
    tests = sorted(tests, key=lambda t: -seconds.get(t.name, t.deadline))
    together = [t for t in tests if part(t) == "together"]
    side_by_side = 1 if scenario.in_vm else SIDE_BY_SIDE
    if together:
        with programs_loaded(arguments.probes):
            run_some(together, side_by_side, report)
    run_some([t for t in tests if part(t) == "own-daemon"], 1, report, arguments.shared)

    quiet = [t for t in tests if part(t) == "quiet"]
    if any(t.quiet != "alone" for t in quiet):
        with programs_loaded(arguments.probes):
            run_some([t for t in quiet if t.quiet == "light"], LIGHT_SIDE_BY_SIDE, report)
            run_some([t for t in quiet if t.quiet == "loaded"], 1, report)
    run_some([t for t in quiet if t.quiet == "alone"], 1, report)

    # More failures than these are not caused by a busy machine
    if 0 < len(failed) <= arguments.again:
        once_more = failed.copy()
        failed.clear()
        results["FAIL"] -= len(once_more)
        run_some(once_more, 1, report)
        for t in once_more:
            if t not in failed:
                print(f"Passed only when run again: {t.name}", flush=True)


class Boots:
    """Runs the tests that reboot the machine, one after the other, and keeps their state over the reboots."""

    def __init__(self, tests, again):
        self.again = again
        self.queue = [t.name for t in tests]
        self.tests = {t.name: t for t in scenario.TESTS}
        self.failed = []    # names of tests that failed once
        self.booted = None

    def take_up(self):
        """Restores the state of the run before the reboot. Returns its results, or None if there was none."""
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
    parser.add_argument("--part", choices=["together", "own-daemon", "quiet"], help="only the tests of this part")
    parser.add_argument("--shared", action="store_true", help="only tests that no other run with this option has begun")
    parser.add_argument("--probes", default=PROBES, help="those of which the programs are kept loaded")
    parser.add_argument("--again", type=int, default=0, metavar="N",
                        help="how many that failed may be run once more, alone")
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
    if arguments.part:
        tests = [t for t in tests if part(t) == arguments.part]
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
            results_file.write(json.dumps({"name": test.name, "result": result, **took,
                                           **({"output": output} if output else {})}) + "\n")
            results_file.flush()

    def report(running, ok, said):
        word = "ok" if ok else "FAIL"
        results[word] += 1
        if ok:
            seconds[running.test.name] = round(running.seconds, 1)
        else:
            failed.append(running.test)
        record(running.test, word, said if not ok else None, seconds=round(running.seconds, 3),
               cpu=round(running.cpu, 3))
        print(f"{word:4} {running.test.name} ({running.seconds:.1f} s) "
              f"[{results['ok'] + results['FAIL']}/{len(tests)}, {time.monotonic() - begun:.0f} s]", flush=True)
        if not ok:
            print("".join(f"     {line}\n" for line in said.splitlines()), end="", flush=True)

    for t in [t for t in tests if t.needs_vm and not arguments.vm]:
        results["SKIP-VM"] += 1
        print(f"SKIP-VM {t.name} {t.needs_vm}")
        record(t, "SKIP-VM", t.needs_vm)
    tests = [t for t in tests if not t.needs_vm or arguments.vm]
    # The kernel in the VM is one that loads all programs
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
            run_all([t for t in tests if not t.reboots], arguments, results, failed, report)
        boots.run(results, report)
    seconds_write(seconds)

    n = results["SKIP"] + results["SKIP-VM"]
    skipped = f", {n} skipped" if n else ""
    print(f"{results['ok']} passed, {results['FAIL']} failed{skipped}")
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
