# SPDX-License-Identifier: LGPL-2.1-or-later
"""Snapshots at an interval, as qosctl monitor --interval= prints them."""

import json
import subprocess
import time

from scenario import check, equal, fail, load, qosctl, snapshot, start_served, test, wait_for


class Monitored:
    """A running qosctl monitor --interval=100ms."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(["qosctl", "--no-pager", "monitor", "--interval=100ms", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)

    def line(self):
        line = self.process.stdout.readline()
        check(line.endswith("\n"), f"a line of qosctl monitor: {line!r}")
        return line.rstrip("\n")

    def until(self, what, probe):
        """Reads lines until probe() accepts one, and returns it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            line = self.line()
            if probe(line):
                return line
        fail(f"waited in vain until {what}; last line: {line!r}")

    def ends(self):
        """Waits until qosctl exits by itself with status 3, and returns its standard error."""
        try:
            out, err = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            fail("qosctl monitor did not end")
        equal(self.process.returncode, 3, "exit status")
        return err

    def stop(self):
        self.process.terminate()
        self.process.communicate()


@test(vm="nightly", deadline=150)
def readings_as_json():
    """Prints a snapshot of each unit per interval. Units that are attached later are included; when the only unit is
    detached, qosctl exits with an error."""
    a = start_served()
    m = Monitored(a.name, "--window=total", "--json=short")
    seen = {}

    def is_read(line, unit, n):
        s = json.loads(line)["snapshot"]
        # A snapshot may be printed twice if there is no newer one
        check(s["timestamp"] >= seen.get(s["unit"], 0), f"snapshots of {s['unit']} are out of order")
        seen[s["unit"]] = s["timestamp"]
        return s["unit"] == unit.name and s["requests"]["server"]["count"] == n

    m.until("the count is 0", lambda line: is_read(line, a, 0))
    load(a, number=123)
    m.until("all requests are counted", lambda line: is_read(line, a, 123))
    equal(set(seen), {a.name}, "units")

    everything = Monitored("--window=total", "--json=short")
    b = start_served()
    load(b, number=45)
    everything.until("a unit that was attached later is there", lambda line: is_read(line, b, 45))
    everything.stop()

    qosctl("detach", a.name)
    check("is no longer attached" in m.ends(), "why it ended")


@test(deadline=150)
def readings_for_people():
    """Lines of all units are aligned with the single header."""
    a, b = start_served(), start_served()
    for u in (a, b):
        wait_for("qosd knows that it runs", lambda: snapshot(u)["activeState"] == "active")
    m = Monitored(a.name, b.name)
    header = m.line()
    equal(header.split()[:4], ["TIME", "UNIT", "ACTIVE", "RATE"], "the header")
    columns = header.index("ACTIVE"), header.index("RATE") + len("RATE")
    units = []
    for _ in range(8):
        line = m.line()
        check(line[columns[0]:].startswith("active "), f"the state is below its header:\n{header}\n{line}")
        check(line[:columns[1]].endswith("/s") and line[columns[1]] == " ",
              f"the rate is below its header:\n{header}\n{line}")
        units.append(line.split()[1])
    equal(sorted(units), sorted([a.name, b.name] * 4), "lines of units")
    m.stop()

    m = Monitored(a.name, "--no-legend")
    check("TIME" not in m.line(), "a header that was not wanted")
    # A closed pipe ends qosctl
    m.process.stdout.close()
    check(m.process.wait(60) != 0, "it goes on without a reader")


@test(deadline=120)
def what_is_no_interval():
    for arguments, message in ((["monitor", "--interval=0"], "100ms to 1d"),
                               (["monitor", "--interval=99ms"], "100ms to 1d"),
                               (["monitor", "--interval=2d"], "100ms to 1d"),
                               (["monitor", "--interval="], "100ms to 1d"),
                               (["monitor", "--interval=-1s"], "100ms to 1d"),
                               (["monitor", "--interval=fast"], "100ms to 1d"),
                               (["list", "--interval=1s"], "Option --interval= is not supported"),
                               (["monitor", "--window=1s"], "--window= requires --interval="),
                               (["monitor", "--interval=1s", "--window=0"], "window")):
        r = qosctl(*arguments, ok=False)
        equal(r.returncode, 2, f"{arguments}: exit status")
        check(message in r.stderr, f"{arguments}: {r.stderr}")
    r = qosctl("monitor", "--interval=1s", "no-such-unit.service", ok=False)
    check(r.returncode in (3, 4) and "no-such-unit.service" in r.stderr,
          f"a unit that is not there: {r.returncode} {r.stderr}")
