# SPDX-License-Identifier: LGPL-2.1-or-later
"""Makes pytest run the scenarios: tests that @test() of scenario.py registers, and plain functions test_*() with
fixtures and the marks of pytest.ini.

Each test runs in a process group of its own. Tests that do not disturb each other run side by side, in the order of
their last durations, long ones first. Then those run one at a time that need an instance of qosd for themselves; the
lab runs these on a second system meanwhile, and on the first one once that has no others. Then those that need an idle
machine: first those that leave it idle enough for four others, then one at a time. Tests that reboot the machine come
last: the process creates the file BOOT_AGAIN and ends, and has to be started again after the reboot to continue."""

import contextlib
import fnmatch
import json
import os
import re
import signal
import sys
import time
import traceback

import pytest

import running
import scenario

SIDE_BY_SIDE = 3        # on the two CPUs of CI, as tests mostly wait
LIGHT_SIDE_BY_SIDE = 5  # of those that use 2 % of the CPUs
# Duration of each test when it passed last
SECONDS = "/var/lib/qosd-share/seconds.json"
# State for the run after a reboot, and the file that makes the lab reboot the machine
BOOT_STATE = "/var/lib/qosd-scenarios.json"
BOOT_AGAIN = "/var/lib/qosd-lab-again"
RUN = pytest.StashKey()


def pytest_addoption(parser):
    group = parser.getgroup("scenarios")
    group.addoption("--vm", action="store_true", help="only the smoke test, with small loads")
    group.addoption("--nightly", action="store_true", help="also what runs at night only, or if it is named")
    group.addoption("--part", choices=["together", "own-daemon", "quiet"], help="only the tests of this part")
    group.addoption("--shared", action="store_true", help="only tests that no other run with this option has begun")
    group.addoption("--results", metavar="FILE", help="append a line of JSON for each test to it: its name, result, "
                    "seconds, CPU seconds (of the test, its clients and its units, without qosd), and its output")
    # Of one letter, as that of pytest-xdist
    group._addoption("-n", type=int, metavar="N", dest="side_by_side", help="how many tests run side by side")


# ---- which tests there are ------------------------------------------------------------------------------------------

def pytest_configure(config):
    scenario.in_vm = config.option.vm
    # What is no path is the name of a test
    config.globs = [a for a in config.args if not os.path.exists(a.partition("::")[0])]
    config.args = [a for a in config.args if a not in config.globs] or ["."]
    if not config.option.collectonly:
        if os.geteuid() != 0:
            raise pytest.UsageError("This needs root, and a lab around it.")
        # The last line is that of pytest_unconfigure()
        config.option.verbose -= 1


class Scenarios(pytest.Module):
    def collect(self):
        for item in super().collect():
            item.extra_keyword_matches.add(name_of(item))
            yield item
        for test in scenario.TESTS:
            if test.function.__module__ == self.obj.__name__:
                item = pytest.Function.from_parent(self, name=test.name, callobj=test.function)
                for mark, value in test.marks.items():
                    if value:
                        arguments = value if isinstance(value, tuple) else (value,)
                        item.add_marker(getattr(pytest.mark, mark)(*arguments))
                yield item


def pytest_pycollect_makemodule(module_path, parent):
    return Scenarios.from_parent(parent, path=module_path)


def pytest_ignore_collect(collection_path, config):
    """Leaves out files without a test of these names."""
    if config.globs and collection_path.suffix == ".py":
        module = collection_path.stem.removeprefix("test_")
        if not any(fnmatch.fnmatch(module, g.partition(".")[0]) for g in config.globs):
            return True


def name_of(item):
    """Returns the name of a registered test, or the like for a plain function test_*()."""
    if "." in item.originalname:
        return item.name
    return f"{item.module.__name__.removeprefix('test_')}.{item.name.removeprefix('test_')}"


def value(item, mark, default=None):
    """Returns the argument of a mark, True if it has none."""
    m = item.get_closest_marker(mark)
    return default if m is None else m.args[0] if m.args else True


def part(item):
    # In the VM no tests run side by side
    if (quiet := value(item, "quiet")) and not (scenario.in_vm and quiet != "alone"):
        return "quiet"
    return "own-daemon" if value(item, "own_daemon") else "together"


def is_wanted(item, option, globs):
    vm = value(item, "vm") or value(item, "needs_vm") or value(item, "needs_program")
    nightly = value(item, "nightly") or option.vm and value(item, "vm") == "nightly"
    return ((not globs or any(fnmatch.fnmatch(name_of(item), g) for g in globs))
            and (vm or not option.vm)
            and (not nightly or option.nightly or bool(globs))
            and (not option.part or part(item) == option.part))


def pytest_collection_modifyitems(config, items):
    # Also as node IDs
    globs = config.globs or ["*" for a in config.args if "::" in a]
    wanted = [i for i in items if is_wanted(i, config.option, globs)]
    config.hook.pytest_deselected(items=[i for i in items if i not in wanted])
    items[:] = wanted
    if not items:
        raise pytest.UsageError("No such test.")


# ---- one test, in its process ---------------------------------------------------------------------------------------

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and call.excinfo:
        e = call.excinfo.value
        if isinstance(e, scenario.Failed):
            # The last line of the test itself, not that of a helper
            where = [f for f in traceback.extract_tb(e.__traceback__) if "test_" in f.filename][-1:]
            report.longrepr = f"{e}\n" + "".join(
                f"  at {os.path.basename(f.filename)}:{f.lineno}: {f.line}\n" for f in where)
        else:
            # In one line, before all that leads to it
            report.longrepr = " ".join(call.excinfo.exconly().split()) + f"\n{report.longreprtext}\n"
        # Before fixtures and the parent remove what there is to see
        report.sections += running.evidence(scenario.prefix, call.start)
    return report


def pytest_pyfunc_call(pyfuncitem):
    """Keeps what a test returns before the machine boots."""
    if value(pyfuncitem, "reboots"):
        pyfuncitem.state = pyfuncitem.obj(pyfuncitem.funcargs["before"])
        return True


@pytest.fixture
def before(request):
    """What a test that reboots the machine has returned before, or None."""
    return request.node.before


@pytest.fixture
def qosd_conf():
    """configure_qosd(), whose drop-in is removed after the test."""
    yield scenario.configure_qosd
    scenario.restore_qosd()


@pytest.fixture
def qosd_environment():
    """preload_qosd(), whose drop-in is removed after the test."""
    yield scenario.preload_qosd
    scenario.restore_qosd()


def run_item(item):
    from _pytest.runner import runtestprotocol  # as pytest-forked does

    # readline sets them, which pytest imports; os.environ does not know
    for name in {"COLUMNS", "LINES"} - set(os.environ):
        os.unsetenv(name)
    # The files of what this process writes are those of all such processes
    capture = item.config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reports = runtestprotocol(item, log=False)
    return {"reports": [item.config.hook.pytest_report_to_serializable(config=item.config, report=r) for r in reports],
            "state": getattr(item, "state", None)}


# ---- all tests ------------------------------------------------------------------------------------------------------

def seconds_read():
    try:
        with open(SECONDS) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


class Run:
    """The run of the tests of a session."""

    def __init__(self, session):
        self.session = session
        self.config = session.config
        self.option = session.config.option
        self.begun = time.monotonic()
        self.results = {"ok": 0, "FAIL": 0, "SKIP": 0}
        self.seconds = {}
        self.file = open(self.option.results, "a") if self.option.results else None
        self.items = {name_of(i): i for i in session.items}

    def record(self, name, result, output=None, **took):
        self.results[result] += 1
        if self.file:
            line = {"name": name, "result": result, **took, **({"output": output} if output else {})}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()

    def log(self, reports):
        for r in reports:
            self.config.hook.pytest_runtest_logreport(report=r)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)

    def skip(self, item, reason):
        name = name_of(item)
        print(f"SKIP {name} {reason}")
        self.record(name, "SKIP", reason)
        del self.items[name]
        self.log([self.skipped_report(item, reason)])

    def skipped_report(self, item, reason):
        path, line, _ = item.location
        return pytest.TestReport(item.nodeid, item.location, {}, "skipped", (path, line, reason), "call")

    def ended(self, process, returned, said):
        """Logs the results of a test."""
        name = process.job.name
        item = self.items[name]
        if returned:
            hook = self.config.hook
            reports = [hook.pytest_report_from_serializable(config=self.config, data=r) for r in returned["reports"]]
            failed = [r for r in reports if r.failed]
            said = "".join(r.longreprtext.rstrip("\n") + "\n" for r in failed)
            # Those of one phase are in the report of the next one as well
            said += "".join(f"  --- {title}\n{text.rstrip()}\n"
                            for title, text in dict.fromkeys(tuple(s) for r in failed for s in r.sections))
        else:
            # Where a test was killed, without the calls that lead to its function
            said = re.sub(r'^  File "[^"]*/_pytest/python.py".*?(?=^  ---|\Z)', "", said,
                          flags=re.DOTALL | re.MULTILINE)
            reports = [pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call",
                                         duration=time.monotonic() - process.started)]
        word = "FAIL" if any(r.failed for r in reports) else "SKIP" if any(r.skipped for r in reports) else "ok"
        if word == "FAIL" and (flaky := item.get_closest_marker("flaky")):
            until, reason = flaky.args
            if time.strftime("%F") <= until:
                word, reports = "SKIP", [self.skipped_report(item, f"may fail until {until}: {reason}; {said}")]
            else:
                said = f"was to be mended by {until}: {reason}; {said}"
        if word == "ok":
            self.seconds[name] = round(process.seconds, 1)
        if word == "SKIP":
            said = str(next(r for r in reports if r.skipped).longrepr[2])
        self.record(name, word, said if word != "ok" else None, seconds=round(process.seconds, 3),
                    cpu=round(process.cpu, 3))
        number = sum(self.results.values()) - self.skipped
        print(f"{word:4} {name} ({process.seconds:.1f} s) [{number}/{len(self.items)}, "
              f"{time.monotonic() - self.begun:.0f} s]", flush=True)
        if word != "ok":
            print("".join(f"     {line}\n" for line in said.splitlines()), end="", flush=True)
        self.log(reports)

    def some(self, items, at_once=1, shared=False):
        jobs = [running.Job(name_of(i), lambda i=i: run_item(i), value(i, "deadline", 30)) for i in items]
        with contextlib.closing(running.run_some(jobs, at_once, shared)) as all_ended:
            for ended in all_ended:
                self.ended(*ended)

    def loaded(self, items):
        probes = {p for i in items for p in value(i, "probes", running.PROBES).split(",")}
        return running.programs_loaded(",".join(sorted(probes)))

    def all(self):
        # Long tests first, so that none of them runs alone at the end
        last = seconds_read()
        items = sorted((i for i in self.items.values() if not value(i, "reboots")),
                       key=lambda i: -last.get(name_of(i), value(i, "deadline", 30)))
        parts = {p: [i for i in items if part(i) == p] for p in ("together", "own-daemon", "quiet")}
        if parts["together"]:
            with self.loaded(parts["together"]):
                self.some(parts["together"], self.option.side_by_side or (1 if scenario.in_vm else SIDE_BY_SIDE))
        self.some(parts["own-daemon"], shared=self.option.shared)
        quiet = {q: [i for i in parts["quiet"] if value(i, "quiet") == q] for q in ("light", "loaded", "alone")}
        if quiet["light"] or quiet["loaded"]:
            with self.loaded(parts["quiet"]):
                self.some(quiet["light"], self.option.side_by_side or LIGHT_SIDE_BY_SIDE)
                self.some(quiet["loaded"])
        self.some(quiet["alone"])

    def take_up(self):
        """Returns the state of the run before the machine booted, if it did for this one."""
        try:
            with open(BOOT_STATE) as f:
                saved = json.load(f)
        except FileNotFoundError:
            return None
        os.unlink(BOOT_STATE)
        self.results = saved["results"]
        return saved

    def boots(self, saved):
        """Runs the tests that reboot the machine, one after the other."""
        items = [i for i in self.items.values() if value(i, "reboots")]
        if saved:
            items = items[[name_of(i) for i in items].index(saved["name"]):]
        for item in items:
            name, item.before, prefix = name_of(item), None, None
            if saved:
                item.before, prefix, saved = saved["state"], saved["prefix"], None
            job = running.Job(name, lambda i=item: run_item(i), value(item, "deadline", 30), prefix)
            for process, returned, said in running.run_some([job], 1, keep=lambda r: r["state"] is not None):
                if returned and returned["state"] is not None:
                    with open(BOOT_STATE, "w") as f:
                        json.dump({"results": self.results, "name": name, "prefix": process.prefix,
                                   "state": returned["state"]}, f)
                    with open(BOOT_AGAIN, "w"):
                        pass
                    print(f"boot {name}", flush=True)
                    return
                self.ended(process, returned, said)

    def run(self):
        option = self.option
        saved = self.take_up()
        if not option.vm:
            for item in [i for i in self.items.values() if value(i, "needs_vm")]:
                self.skip(item, value(item, "needs_vm"))
            # The kernel in the VM is one that loads all programs
            if any(value(i, "needs_program") for i in self.items.values()):
                refused = running.programs_refused()
                for item in [i for i in self.items.values() if value(i, "needs_program") in refused]:
                    program = value(item, "needs_program")
                    self.skip(item, f"needs {program}: {refused[program]}")
        self.skipped = self.results["SKIP"]
        try:
            with running.tools():
                if not saved:
                    self.all()
                self.boots(saved)
        finally:
            with contextlib.suppress(OSError):
                with open(f"{SECONDS}.new", "w") as f:
                    json.dump(seconds_read() | self.seconds, f, indent=0, sort_keys=True)
                os.rename(f"{SECONDS}.new", SECONDS)

    def last_line(self):
        skipped = f", {self.results['SKIP']} skipped" if self.results["SKIP"] else ""
        return f"{self.results['ok']} passed, {self.results['FAIL']} failed{skipped}"


def pytest_runtestloop(session):
    if session.testsfailed or session.config.option.collectonly:
        # Some were not collected
        return None

    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)
    run = session.config.stash[RUN] = Run(session)
    run.run()
    return True


def pytest_report_teststatus(report):
    """The lines of Run.ended() are enough."""
    return "", "", ""


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if run := config.stash.get(RUN, None):
        sys.stdout.flush()
        print(run.last_line(), flush=True)
