# SPDX-License-Identifier: LGPL-2.1-or-later
"""Examples of the manuals, as they are printed, on a busy web server."""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import tempfile
import threading

from scenario import SOURCES, check, count, fail, patience, qosctl, run, systemctl, test, wait_for

UNITS = "nginx.service", "redis-server.service"

# Clients in docs/examples, and what they say of a unit that does not exist
CLIENTS = {
    "rates.py": "org.qosd.QoS.NotAttached: ",
    "rates-gio.py": "org.qosd1.Error.NoSuchUnit: ",
    "rates-jeepney.py": "org.qosd1.Error.NoSuchUnit",
}


def read_examples():
    """Commands of the examples that are marked to be run, by page."""
    for path in sorted(glob.glob(os.path.join(SOURCES, "../../docs/*.[1-8]"))
                       + [os.path.join(SOURCES, "../../docs/org.qosd1.5.in")]):
        with open(path) as f:
            text = f.read()
        for block in re.findall(r'^\.\\" test: run\n\.nf\n(.*?)^\.fi', text, re.M | re.S):
            text = re.sub(r"^[#$] ", "", block, flags=re.M)
            yield os.path.basename(path), text.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")


@contextlib.contextmanager
def busy():
    """An attached nginx with requests, and a directory for files."""
    systemctl("start", *UNITS)
    load = subprocess.Popen(["wrk", "-t1", "-c2", "-d600s", "http://127.0.0.1/"], stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(prefix="qosd-manuals-") as directory:
            qosctl("attach", *UNITS)
            wait_for("there are enough requests for quantiles", lambda: count("nginx.service") > 1000, 10)
            yield directory
    finally:
        load.kill()
        load.wait()
        qosctl("detach", *UNITS, ok=False)
        systemctl("stop", *UNITS, ok=False)


@contextlib.contextmanager
def cleaned_up():
    """What examples leave behind is removed."""
    try:
        yield
    finally:
        systemctl("stop", "qosd-exporter.socket", "qosd-exporter.service", "qosd-report.socket", ok=False)
        for unit in UNITS:
            shutil.rmtree(f"/etc/systemd/system/{unit}.d", ignore_errors=True)
        run("rm", "-f", "/etc/qosd.conf.d/50-figures.conf")
        systemctl("daemon-reload")
        systemctl("reload", "qosd")


def read_lines(n, *command):
    """The first lines of a program that ends by itself only if something fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        watchdog = threading.Timer(20 * patience(), p.kill)
        watchdog.start()
        lines = [p.stdout.readline() for _ in range(n)]
        watchdog.cancel()
        p.kill()
        if not all(lines):
            fail(f"{command[0]} ended after {lines}: {p.stderr.read()}")
    return lines


@test(own_daemon=True, deadline=120)
def programs():
    """The program of libqosd(3), built as the page says, and the clients of docs/examples see what the clients get."""
    with open(os.path.join(SOURCES, "../../docs/libqosd.3")) as f:
        text = re.search(r"^\.SH EXAMPLES\n.*?^\.nf\n(.*?)^\.fi", f.read(), re.M | re.S)[1]
    with busy() as directory:
        with open(f"{directory}/example.c", "w") as f:
            f.write(text.replace("\\-", "-").replace("\\e", "\\"))
        run("sh", "-ec", f"cd {directory}; cc example.c $(pkg-config --cflags --libs libqosd) -o example", timeout=60)
        for line in read_lines(3, "stdbuf", "-oL", f"{directory}/example"):
            check(0 < int(re.fullmatch(r"(\d+) ns\n", line)[1]) < 1e9, line)
        for client, missing in CLIENTS.items():
            path = os.path.join(SOURCES, "../../docs/examples", client)
            for line in read_lines(3, "python3", path, "nginx"):
                rate, p99 = re.fullmatch(r"nginx\.service (\d+)/s ([\d.]+)ms\n", line).groups()
                check(int(rate) > 0 and 0 < float(p99) < 1000, f"{client}: {line}")
            r = run("python3", path, "no-such-unit", ok=False)
            check(r.returncode == 1 and missing in r.stderr, f"{client}: {r.stderr}")


@test(own_daemon=True, deadline=300)
def examples():
    ran = []
    with busy() as directory, cleaned_up():
        for page, commands in read_examples():
            # The machine decides whether there is a verdict: 1 is the status of a diagnosis that is inconclusive
            commands = re.sub(r"^(qosctl diagnose .*)$", r"\1 || test $? = 1", commands, flags=re.M)
            r = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=directory, stdin=subprocess.DEVNULL,
                               capture_output=True,
                               text=True, timeout=60 * patience())
            if r.returncode != 0:
                fail(f"{page}: status {r.returncode} of\n{commands}{r.stdout[-1000:]}{r.stderr[-1000:]}")
            ran.append(page)
            # Examples detach what the next ones show
            qosctl("attach", *UNITS)
        check(len(ran) >= 15 and len(set(ran)) >= 8, f"examples of {ran}")
