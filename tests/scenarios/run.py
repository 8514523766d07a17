#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the scenario tests inside the booted lab, as root:

    run.py [--vm] [GLOB...]

One line per test; what is known of a failure follows it. --vm: only the tests of the smoke test, with small loads.
Tests that do not disturb each other run side by side, the others alone. --again: of those that failed so many get a second
run at the end, alone; what passes then is said by name, in a line of its own."""

import argparse
import contextlib
import faulthandler
import fnmatch
import glob
import importlib
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


def quiet(*command, timeout=30):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout, errors="replace", text=True).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{' '.join(command)}: {e}\n"


def build_tools(directory):
    jobs = [("server", ["-pthread"]), ("client", ["-pthread"]), ("uring", ["-luring"]), ("relay", []), ("waiter", ["-pthread"]),
            ("turns", ["-pthread"]), ("toiler", ["-pthread"]), ("reader", ["-lqosd", "-lsystemd"]), ("refuse.so", ["-shared", "-fPIC"])]
    running = []
    for name, flags in jobs:
        source = os.path.join(scenario.SOURCES, name.removesuffix(".so") + ".c")
        running.append((source, subprocess.Popen(
            ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-o",
             os.path.join(directory, name), source] + flags)))
    for source, process in running:
        if process.wait() != 0:
            sys.exit(f"Cannot compile {source}.")


class Running:
    """One test in a process group of its own."""

    def __init__(self, test, serial):
        self.test = test
        # None is the beginning of another's
        self.prefix = f"scn{os.getpid()}{serial}z"
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
            self.test.function()
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
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
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
            quiet("systemctl", "kill", "--kill-whom=all", "--signal=SIGKILL", *units)
            quiet("systemctl", "stop", *units)
            quiet("systemctl", "reset-failed", *units)
        for path in glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*"):
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
    finally:
        for r in running:
            r.end()


@contextlib.contextmanager
def programs_loaded():
    """Keeps a unit attached, so that not each test waits for the verifier: a second, in the VM twenty. Those that run alone
    are without it, and find nothing loaded."""
    # What a run that was killed has left
    for left in glob.glob(f"{scenario.UNIT_DIR}/scn*-keeper.service"):
        quiet("qosctl", "detach", os.path.basename(left))
        os.unlink(left)
    name = f"scn{os.getpid()}-keeper.service"
    scenario.write_unit(name, "[Service]\nExecStart=sleep infinity\n")
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
        quiet("systemctl", "daemon-reload")


def main():
    parser = argparse.ArgumentParser(description="Runs the scenario tests inside the lab.")
    parser.add_argument("--vm", action="store_true", help="only the smoke test, with small loads")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="how many that failed may be run once more, alone")
    parser.add_argument("globs", nargs="*", metavar="GLOB", help="names of tests, as \"units.*\"")
    arguments = parser.parse_args()

    for path in sorted(glob.glob(os.path.join(scenario.SOURCES, "test_*.py"))):
        importlib.import_module(os.path.basename(path).removesuffix(".py"))
    tests = [t for t in scenario.TESTS
             if not arguments.globs or any(fnmatch.fnmatch(t.name, g) for g in arguments.globs)]
    if arguments.vm:
        tests = [t for t in tests if t.vm]
    if not tests:
        sys.exit("No such test.")
    if os.geteuid() != 0:
        sys.exit("This needs root, and a lab around it.")

    scenario.in_vm = arguments.vm
    results = {"ok": 0, "FAIL": 0, "SKIP-VM": 0}
    failed = []

    def report(running, ok, said):
        word = "ok" if ok else "FAIL"
        results[word] += 1
        if not ok:
            failed.append(running.test)
        print(f"{word:4} {running.test.name} ({running.seconds:.1f} s)", flush=True)
        if not ok:
            print("".join(f"     {line}\n" for line in said.splitlines()), end="", flush=True)

    for t in [t for t in tests if t.needs_vm and not arguments.vm]:
        results["SKIP-VM"] += 1
        print(f"SKIP-VM {t.name} {t.needs_vm}")
    tests = [t for t in tests if not t.needs_vm or arguments.vm]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Services may have a /tmp and a /var/tmp of their own, and programs may not be run from /run everywhere
    with tempfile.TemporaryDirectory(prefix="scenario-", dir="/var/lib") as directory:
        os.chmod(directory, 0o755)
        scenario.tools = directory
        build_tools(directory)
        # Long ones first, so that they end together
        together = sorted((t for t in tests if not t.exclusive), key=lambda t: -t.deadline)
        if together:
            with programs_loaded():
                run_some(together, 1 if scenario.in_vm else SIDE_BY_SIDE, report)
        run_some([t for t in tests if t.exclusive], 1, report)

        # More than these are no accident
        if 0 < len(failed) <= arguments.again:
            again = failed.copy()
            failed.clear()
            results["FAIL"] -= len(again)
            run_some(again, 1, report)
            for t in again:
                if t not in failed:
                    print(f"Passed only when run again: {t.name}", flush=True)

    skipped = f", {results['SKIP-VM']} skipped" if results["SKIP-VM"] else ""
    print(f"{results['ok']} passed, {results['FAIL']} failed{skipped}")
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
