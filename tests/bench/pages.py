#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures what pages of Cockpit cost in the daemon: 64 units that serve requests, with no page, with one and five
tables of units, with five pages of one unit, and with five that are hidden. Prints the results, and writes the raw
data. Runs on the running system, as root; it needs gcc, cockpit-ws, Chromium, and qosd installed. Does not judge the
results."""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

# The sources may be on a read-only file system
sys.dont_write_bytecode = True

import qosd  # noqa: E402
import workload  # noqa: E402
from daemon import watch  # noqa: E402
from thresholds import PORT, UNITS, Asking  # noqa: E402

sys.path.insert(0, f"{workload.HERE}/../scenarios")

import browser  # noqa: E402
import scenario  # noqa: E402

TEMPLATE = "/run/systemd/system/qosd-bench-page@.service"
PAGES = 5
# Time until the rows and the histories of all are read
SETTLE_SEC = 20


def hide(page):
    """Another page of Cockpit is shown; this one stays loaded behind it."""
    page.evaluate("void frame.contentWindow.cockpit.jump('/system')")
    page.wait("frame.contentWindow.location.pathname.includes('/system/')", 30)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--output", default=".", help="directory for the raw data")
    p.add_argument("--seconds", type=int, default=30)
    a = p.parse_args()
    names = [f"qosd-bench-page@{PORT + i}.service" for i in range(UNITS)]
    rows = []

    def watched(what):
        time.sleep(SETTLE_SEC)
        w = watch(what, a.seconds)
        rows.append((what, UNITS, round(w["seconds"], 1), w["wakeUps"], round(w["cpuShare"], 5)))
        print(f"{what}: {w['cpuShare']:.2%} of a CPU, {w['wakeUps'] / w['seconds']:.1f} wake-ups/s", flush=True)

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        os.chmod(directory, 0o755)
        scenario.prefix, scenario.tools = "qosd-bench", directory
        subprocess.run([*workload.COMPILE, "-Wno-unused-parameter", f"{workload.HERE}/../scenarios/server.c",
                        f"{workload.HERE}/../scenarios/server-send.c", "-o",
                        f"{directory}/server", "-pthread"], check=True)
        with open(TEMPLATE, "w") as f:
            f.write(f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={directory}/server --mode=thread --port=%i\n")
        workload.systemctl("daemon-reload")
        stack.callback(workload.systemctl, "daemon-reload")
        stack.callback(os.unlink, TEMPLATE)
        workload.systemctl("start", *names)
        stack.callback(workload.systemctl, "stop", *names)
        for name in names:
            stack.enter_context(qosd.Attached(name))
        stack.enter_context(Asking([PORT + i for i in range(UNITS)]))
        watched("no page")

        user, cockpit = browser.User(), browser.Cockpit()
        stack.callback(user.remove)
        stack.callback(cockpit.unit.stop)
        pages = []
        for number in range(PAGES):
            pages.append(stack.enter_context(browser.Browser()))
            pages[-1].login(cockpit, user)
            pages[-1].wait(f"page.querySelectorAll('tbody tr[data-seq]').length === {UNITS}", 60)
            if number == 0:
                watched("one table of units")
        watched("five tables of units")
        for page in pages:
            page.click(f"tr[data-unit='{names[0]}'] a")
            page.wait("!!page.querySelector('main').dataset.seq", 30)
        watched("five pages of a unit")
        for page in pages:
            hide(page)
        watched("five hidden pages")

    os.makedirs(f"{a.output}/raw", exist_ok=True)
    with open(f"{a.output}/raw/pages.csv", "w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("what", "units", "seconds", "wake-ups", "CPUs"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
