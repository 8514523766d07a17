# SPDX-License-Identifier: LGPL-2.1-or-later
"""A source of systemd-report: what it requires of names, and the figures that clients have caused."""

import glob
import json
import os
import re
import shutil
import tempfile

from scenario import (check, equal, expect_total, load, run, start_served, systemctl, test)

SOCKET = "/run/systemd/report/org.qosd"
# What systemd-report refuses otherwise: the name of the socket, and the name of a field
NAME = r"org\.qosd\.[A-Z][A-Za-z0-9]*"


def call(method, ok=True):
    r = run("varlinkctl", "--more", "--json=short", "call", SOCKET, f"io.systemd.Metrics.{method}", "{}", ok=ok)
    return [json.loads(line) for line in r.stdout.replace("\x1e", "").splitlines()] if ok else r


def values(unit):
    """By family, with the value of its field."""
    return {(m["name"].removeprefix("org.qosd."), *m.get("fields", {}).values()): m["value"]
            for m in call("List") if m["object"] == unit}


@test()
def figures_of_units():
    """Requests, bytes and connections as clients have made them; each metric belongs to a family that is described."""
    systemctl("start", "qosd-report.socket")
    s = start_served(mode="thread")
    load(s, connections=4, number=400)
    expect_total(s, 400)
    v = values(s.name)
    equal(v["Requests", "server"], 400, "requests")
    equal(v["RequestBytes", "in"], 400 * 64, "bytes of requests")
    equal(v["RequestBytes", "out"], 400 * 128, "bytes of responses")
    equal(v["ConnectionsAccepted",], 4, "connections")
    equal(v["RequestsInFlight", "server"], 0, "requests in flight")
    equal(v["RequestErrors", "reset"], 0, "errors")
    check(v["RequestLatencyNSec", "server"] > 400 * 1000, "no latency")
    load(s, connections=1, number=3)
    expect_total(s, 403)
    equal(values(s.name)["Requests", "server"], 403, "requests")

    families = call("Describe")
    names = [f["name"] for f in families]
    equal(len(set(names)), len(names), "families")
    for f in families:
        check(re.fullmatch(NAME, f["name"]), f["name"])
        check(f["description"] and f["type"] in ("counter", "gauge"), str(f))
    listed = call("List")
    equal({m["name"] for m in listed} - set(names), set(), "families that are not described")
    keys = [(m["name"], m["object"], json.dumps(m.get("fields"))) for m in listed]
    equal(len(set(keys)), len(keys), "metrics")
    check(len([k for k in keys if k[1] == s.name]) <= 24, "more metrics of a unit than systemd-report has space for")


@test(own_daemon=True)
def nothing_to_report():
    """Without a unit there is no metric, which systemd-report expects as an error; without qosd a call fails, and the
    next one with it succeeds. A call without "more" is refused."""
    systemctl("start", "qosd-report.socket")
    check("io.systemd.Metrics.NoSuchMetric" in call("List", ok=False).stderr, "metrics without a unit")
    check(len(call("Describe")) > 5, "no families")
    r = run("varlinkctl", "call", SOCKET, "io.systemd.Metrics.List", "{}", ok=False)
    check(r.returncode != 0 and "more" in r.stderr.lower(), f"a call without more: {r.stderr}")
    systemctl("stop", "qosd.socket", "qosd-root.socket", "qosd.service")
    try:
        check(call("List", ok=False).returncode != 0, "metrics without qosd")
    finally:
        systemctl("start", "qosd.socket", "qosd-root.socket", "qosd.service")
    s = start_served()
    equal(values(s.name)["Requests", "server"], 0, "requests")


class SystemdReport:
    """That of Debian sid, with all that it needs, in a root of its own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="systemd-report-", dir="/var/tmp")
        for name in "root", "state/lists/partial", "cache/archives/partial":
            os.makedirs(f"{self.directory}/{name}")
        with open("/etc/apt/sources.list") as f:
            archive = next(line.split()[1] for line in f if line.startswith("deb "))
        with open(f"{self.directory}/sources.list", "w") as f:
            f.write(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {archive} sid main\n")
        self.apt("update")
        self.apt("--yes", "--no-install-recommends", "--download-only", "install", "systemd-report")
        for package in glob.glob(f"{self.directory}/cache/archives/*.deb"):
            run("dpkg-deb", "--extract", package, f"{self.directory}/root")
        run("ldconfig", "-r", f"{self.directory}/root")

    def apt(self, *words):
        run("apt-get", "-q", "-o", f"Dir::Etc::SourceList={self.directory}/sources.list", "-o",
            "Dir::Etc::SourceParts=-",
            "-o", f"Dir::State={self.directory}/state", "-o", "Dir::State::status=/dev/null", "-o",
            f"Dir::Cache={self.directory}/cache",
            "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none", "-o", "Debug::NoLocking=1", *words,
            timeout=120)

    def run(self, *words):
        """Its output, and nothing is wrong."""
        r = run("systemd-run", "--quiet", "--collect", "--wait", "--pipe",
                f"--property=RootDirectory={self.directory}/root",
                "--property=MountAPIVFS=yes", "--property=BindPaths=/run/systemd/report",
                "/usr/lib/systemd/systemd-report", *words)
        equal(r.stderr, "", f"messages of systemd-report {' '.join(words)}")
        return r.stdout

    def json(self, *words):
        return [json.loads(line) for line in self.run(*words, "--json=short").replace("\x1e", "").splitlines()]

    def remove(self):
        shutil.rmtree(self.directory)


@test(nightly=True, deadline=180)
def read_by_systemd_report():
    """It has qosd among its sources, all families, and each metric of a unit as it is."""
    systemctl("start", "qosd-report.socket")
    s = start_served(mode="thread")
    load(s, connections=4, number=400)
    expect_total(s, 400)
    reader = SystemdReport()
    try:
        sources = [line.split() for line in reader.run("list-sources", "--no-legend").splitlines()]
        check(["org.qosd", f"unix:{SOCKET}"] in sources, f"qosd is none of the sources: {sources}")

        def by_name(items):
            return sorted(items, key=lambda m: (m["name"], json.dumps(m.get("fields"))))

        equal(by_name(reader.json("describe", "org.qosd")), by_name(call("Describe")), "families")
        there = by_name(m for m in call("List") if m["object"] == s.name)
        equal(by_name(m for m in reader.json("metrics", "org.qosd") if m["object"] == s.name), there, "metrics")
        report = json.loads(reader.run("generate", "org.qosd", "--json=short").lstrip("\x1e"))
        equal(by_name(m for m in report["metrics"] if m["object"] == s.name), there, "metrics in a report")
        equal([m["value"] for m in there if m["name"] == "org.qosd.Requests" and m["fields"] == {"role": "server"}],
              [400], "requests")
    finally:
        reader.remove()
