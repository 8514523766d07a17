# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs functions in process groups of their own, several at a time, and removes what they leave: units, files and
network namespaces. What the tests and the benchmark of diagnoses share."""

import collections
import contextlib
import faulthandler
import fcntl
import glob
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

import scenario

PROBES = "requests,cpu,block,memory,storage,network"
JOURNAL_LINES = 25
SILENCE_MAX = 60        # seconds without output after which the running tests are printed
# Programs that tests/scenarios/meson.build builds, and their directory
TOOLS = ["server", "client", "uring", "relay", "waiter", "turns", "toiler", "reader", "refuse.so"]
TOOLS_BUILT = "/var/lib/qosd-build/tests/scenarios"
# Names of the tests that have begun, in runs that share them
CLAIMS = "/var/lib/qosd-share/claims"

# prefix: of the names of its units, if that is not to be made up
Job = collections.namedtuple("Job", ["name", "function", "deadline", "prefix"], defaults=[None])


def quiet(*command, timeout=30):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout, errors="replace", text=True).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{' '.join(command)}: {e}\n"


@contextlib.contextmanager
def tools():
    """Copies the programs that meson has built to a directory from which all units can run them."""
    # Services may have a /tmp and a /var/tmp of their own, and programs may not be run from /run everywhere
    with tempfile.TemporaryDirectory(prefix="scenario-", dir="/var/lib") as directory:
        os.chmod(directory, 0o755)
        for name in TOOLS:
            try:
                shutil.copy(os.path.join(TOOLS_BUILT, name), directory)
            except OSError as e:
                sys.exit(f"Cannot copy what the tests run: {e}")
        scenario.tools = directory
        yield


def evidence(prefix, since):
    """Returns the journal of qosd, and snapshots of the units with the prefix, with their titles."""
    sections = [("journal of qosd", quiet("journalctl", "-u", "qosd.service", "-o", "short-precise", "--no-pager",
                                          "-n", str(JOURNAL_LINES), f"--since=@{int(since)}"))]
    for path in sorted(glob.glob(f"{scenario.UNIT_DIR}/{prefix}*")):
        name = os.path.basename(path)
        if os.path.isfile(path):
            sections.append((name, quiet("qosctl", "--no-pager", "status", name, "--window=total", "--json=short",
                                         timeout=5)))
    return sections


class Running:
    """A function that runs in a process of its own."""

    def __init__(self, job, serial):
        self.job = job
        # No prefix is the beginning of another one
        self.prefix = job.prefix or f"scn{os.getpid()}{serial}z"
        self.deadline = job.deadline * scenario.patience()
        self.started = time.monotonic()
        self.since = time.time()
        self.said = tempfile.TemporaryFile("w+", errors="replace")
        self.returned = tempfile.TemporaryFile("w+")
        self.cpu = 0
        self.pid = os.fork()
        if self.pid == 0:
            self.child()
        self.fd = os.pidfd_open(self.pid)

    def child(self):
        status = 1
        try:
            os.setsid()
            for number in signal.SIGINT, signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
            faulthandler.register(signal.SIGUSR1, self.said)
            scenario.prefix = self.prefix
            json.dump(self.job.function(), self.returned)
            self.returned.flush()
            status = 0
        except BaseException as e:
            # In one line, before all that leads to it
            self.said.write(" ".join("".join(traceback.format_exception_only(e)).split()) + "\n")
            traceback.print_exc(file=self.said)
        finally:
            self.said.flush()
            os._exit(status)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def say_where(self):
        """Makes the process write a traceback, which shows what it is waiting for."""
        before = os.fstat(self.said.fileno()).st_size
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 2
        while os.fstat(self.said.fileno()).st_size == before and time.monotonic() < deadline:
            time.sleep(0.05)

    @property
    def ended(self):
        return bool(select.select([self.fd], [], [], 0)[0])

    @property
    def late(self):
        return time.monotonic() - self.started > self.deadline

    def end(self, keep=lambda returned: False):
        """Returns what the function returned, None if it failed, and what was said of that. Removes its units, files
        and namespaces, unless keep() of what it returned is true."""
        late = self.late and not self.ended
        said = ""
        if late:
            self.say_where()
            said = "".join(f"  --- {title}\n{text}" for title, text in evidence(self.prefix, self.since))
        self.kill()
        _, status, usage = os.wait4(self.pid, 0)
        status = os.waitstatus_to_exitcode(status)
        self.cpu += usage.ru_utime + usage.ru_stime
        os.close(self.fd)
        for f in self.said, self.returned:
            f.seek(0)
        said = self.said.read() + said
        returned = json.load(self.returned) if status == 0 else None
        self.said.close()
        self.returned.close()
        if returned is None or not keep(returned):
            self.clean_up()
        self.seconds = time.monotonic() - self.started
        if late:
            said = f"not done after {self.deadline} s\n" + said
        elif status < 0:
            said = f"killed by signal {-status}\n" + said
        return returned, said

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
        enabled = glob.glob(f"/etc/systemd/system/*.wants/{self.prefix}*")
        for path in (glob.glob(f"{scenario.UNIT_DIR}/{self.prefix}*")
                     + glob.glob(f"/etc/systemd/system/{self.prefix}*") + enabled):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        for path in glob.glob(f"/run/{self.prefix}*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        # Stopped units are unloaded without that, which takes PID 1 0.1 s of the CPU
        if enabled:
            quiet("systemctl", "daemon-reload")
        for path in glob.glob(f"/run/netns/{self.prefix}*"):
            quiet("ip", "netns", "del", os.path.basename(path))
        # It was killed, or does not restore the daemon by itself
        with contextlib.suppress(scenario.Failed, subprocess.TimeoutExpired):
            scenario.restore_qosd()


def claim(job):
    """Whether no other run has begun with the job, which is reserved then."""
    try:
        os.close(os.open(os.path.join(CLAIMS, job.name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        return True
    except FileExistsError:
        return False


def run_some(jobs, at_once, shared=False, keep=lambda returned: False):
    """Yields each process, and what its end() returned. Those that run when the caller has had enough are killed."""
    queue, running = list(jobs), []
    serial = 0
    said = time.monotonic()
    try:
        while queue or running:
            while queue and len(running) < at_once:
                serial += 1
                job = queue.pop(0)
                if shared and not claim(job):
                    continue
                running.append(Running(job, f"{'s' if at_once > 1 else 'e'}{serial}"))
            select.select([r.fd for r in running], [], [], 0.2)
            for r in [r for r in running if r.late or r.ended]:
                ended = r.end(keep)
                running.remove(r)
                yield r, *ended
                said = time.monotonic()
            if time.monotonic() - said > SILENCE_MAX:
                said = time.monotonic()
                print("     running: " + ", ".join(f"{r.job.name} (since {said - r.started:.0f} s)" for r in running),
                      flush=True)
    finally:
        # Also one whose end was interrupted
        for r in running:
            r.kill()
            r.clean_up()


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
