# SPDX-License-Identifier: LGPL-2.1-or-later
"""A source of systemd-report: what it requires of names, and the figures that clients have caused."""

import json
import re

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
    """Without a unit there is no metric, which systemd-report expects as an error; without qosd a call fails, and the next one
    with it succeeds. A call without "more" is refused."""
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
