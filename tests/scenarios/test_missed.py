# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs of programs that the kernel skips, as it does since Linux 7.0 where a program at a tracepoint is preempted.
Older kernels skip none, and each figure is exact."""

import platform
import re

import scenario
from scenario import (Unit, attach, check, equal, expect_total, qosctl_json, run, server_figures, smaller, snapshot,
                      test, wait_for)

from test_endpoints import Nginx, endpoints, unused_ports

PROGRAMS = ("requests_content", "requests_read", "requests_unix", "requests_state", "requests_state_nested")


def number():
    """Returns a number of requests that is large enough for skipped runs on kernels that skip any."""
    return 12000 if int(platform.release().split(".")[0]) >= 7 else smaller(12000)


def misses():
    return {p["program"]: p.get("recursionMisses", 0) for p in qosctl_json("probes") if p.get("program") in PROGRAMS}


def is_said(s, before, exact):
    """Checks that quality reflects skipped runs, and that there are no drops without them. Returns the skipped runs by
    program."""
    now = misses()
    skipped = {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}
    if not skipped:
        equal(s["drops"], 0, "drops")
        equal(s["requests"]["quality"], exact, "quality")
    elif skipped.get("requests_content") or skipped.get("requests_read"):
        equal(s["requests"]["quality"], "exchanges", "quality")
    return skipped


@test(vm="nightly", deadline=240)
def keep_alive():
    """Skipped runs lose no request, and no request is counted as aborted by the client."""
    a, b = unused_ports(2)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}"])).start()
    n = number()
    before = misses()
    for port in (a, b, b):
        out = run("ab", "-q", "-k", "-n", n // 3, "-c", 32, f"http://127.0.0.1:{port}/", timeout=120).stdout
        equal(int(re.search(r"^Complete requests:\s+(\d+)", out, re.M)[1]), n // 3, "requests that ab completed")
    expect_total(u, n)
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    wait_for("nothing is in flight at any endpoint", lambda: not any(row["inFlight"] for row in endpoints(u).values()))
    wait_for("no connection is open", lambda: server_figures(u)["connections"]["open"] == 0)
    s = snapshot(u)
    f = s["requests"]["server"]
    is_said(s, before, "exact")
    equal(f["protocols"]["http1"] + f["protocols"]["tcp"], n, "requests by their protocol")
    equal((f["clientAborts"], f["errors"]["reset"], f["errors"]["status5xx"]), (0, 0, 0), "errors")
    # At most one request per connection is a plain exchange: later ones have the protocol of the connection
    check(f["protocols"]["tcp"] <= 3 * 32, f"{f['protocols']['tcp']} are plain exchanges")


@test(vm="nightly", deadline=240)
def unix():
    """The count of requests on a Unix socket is that of Redis itself."""
    path = f"/run/{scenario.prefix}-redis-missed.sock"
    u = attach(Unit(f"/usr/bin/redis-server --port 0 --unixsocket {path} --save '' --supervised systemd",
                    settings="Environment=LC_ALL=C"))
    u.start()
    before = misses()
    run("redis-benchmark", "-q", "-s", path, "-c", 16, "-n", number(), "-t", "get", timeout=120)
    calls = sum(int(n)
                for n in re.findall(r":calls=(\d+),", run("redis-cli", "-s", path, "info", "commandstats").stdout))
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    s = snapshot(u)
    got = s["requests"]["server"]["count"]
    is_said(s, before, "exchanges")
    # INFO does not count itself
    check(calls <= got <= calls + 1, f"count: {got} instead of {calls} to {calls + 1}")
