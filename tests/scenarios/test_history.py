# SPDX-License-Identifier: LGPL-2.1-or-later
"""The history of units: History over varlink, qosctl history, qosctl heatmap, and the history after a restart of
qosd."""

import glob
import html
import itertools
import json
import time

import scenario
from scenario import (SEC, Talk, attach, check, equal, fresh_qosd, kill_qosd, load, lookup, qosctl, qosctl_json,
                      qosd_pid, run, start_served, systemctl, test, varlink, varlink_error, wait_for, wait_qosd,
                      wake_ups, within)

STEP = 10 * SEC
STATE = "/run/qosd/state"


def steps(unit, *metrics, **more):
    return varlink("History", unit=unit.name, metrics=list(metrics), **more)["steps"]


def counts(unit, metric="requests.server.count"):
    """Returns the counts by the timestamp of their step."""
    return {s["timestamp"]: lookup(s, metric) for s in steps(unit, metric)}


def from_first_request(steps):
    return list(itertools.dropwhile(lambda g: lookup(g, "requests.server.count") == 0, steps))


def next_step():
    """Waits for the next step to begin, and returns a time within it."""
    def begun():
        now = time.monotonic()
        return now if now // 10 > before else None
    before = time.monotonic() // 10
    return wait_for("the next step has begun", begun, 15)


@test(deadline=120)
def known_load_in_known_steps():
    """Each step of the history and of the heatmap has exactly the requests that were made in it. Steps of other loads,
    and files that are broken: tests/contract/test-figures.c."""
    s = start_served(mode="thread")
    # In a step of its own, however long the attach takes
    next_step()
    t = Talk(s, connections=2)
    sent = []
    for n in (250, 31):
        t.say(f"run {n}")
        sent.append(2 * n)
        next_step()
    got = wait_for("both steps have passed", lambda: (got := from_first_request(steps(s)))[1:] and got, 60,
                   pause=0.2)[:2]
    first = len(steps(s)) - len(from_first_request(steps(s)))
    equal([lookup(g, "requests.server.count") for g in got], sent, "requests by step")
    equal([lookup(g, "requests.server.latency.count") for g in got], sent, "requests in the latency by step")
    equal([lookup(g, "requests.server.protocols.tcp") for g in got], sent, "requests by protocol")
    equal([lookup(g, "requests.server.connections.accepted") for g in got], [2, 0], "connections by step")
    equal([lookup(g, "requests.server.connections.open") for g in got], [2, 2],
          "open connections at the end of each step")
    equal([lookup(g, "requests.server.inFlight") for g in got], [0, 0], "requests in flight at the end of each step")
    check(steps(s)[0]["covered"] < STEP, "the step of the attach is covered from its begin")
    equal([g["covered"] for g in got], [STEP] * 2, "time covered by the other steps")
    for a, b in zip(got, got[1:]):
        check(abs((b["timestamp"] - a["timestamp"]) * 1000 - STEP) < SEC // 100,
              "steps do not begin where the one before ends")

    # Means of the phases, of the counts and times in the history, which are rounded
    all_time = varlink("Get", unit=s.name, window=0)["requests"]["server"]
    for phase in "receive", "queue", "service", "answer":
        numbers, times = zip(*((f["count"], f["count"] * f["mean"])
                               for g in from_first_request(steps(s)) if (f := lookup(g, f"requests.server.{phase}"))))
        within(sum(numbers), sum(sent), 0.01, 0, f"requests with the phase {phase}")
        within(sum(times) / sum(sent), all_time[phase]["mean"], 0.02, 2, f"mean of the phase {phase}")

    # As in snapshots, a quantile needs enough requests: 500 are enough for the 99th percentile, 62 are not
    check(lookup(got[0], "requests.server.latency.p99") is not None, "no p99 of 500 requests")
    check(lookup(got[1], "requests.server.latency.p50") is not None, "no p50 of 62 requests")
    check(lookup(got[1], "requests.server.latency.p99") is None, "a p99 of 62 requests")

    # Steps have only the requested metrics. A figure of a distribution comes with its count
    one = steps(s, "requests.server.latency.p50")[first]
    equal(sorted(one["requests"]["server"]), ["latency"], "metrics of the server in a step")
    equal(sorted(one["requests"]["server"]["latency"]), ["count", "p50"], "figures of the latency")

    # The heatmap
    rows = qosctl_json("heatmap", s.name)[0]["steps"][first:first + 2]
    equal([sum(sum(h["counts"]) for h in g.get("histograms", [])) for g in rows], sent, "rows of the heatmap by step")
    equal([h["count"] for g in rows for h in g["histograms"]], sent, "counts of the heatmap by step")
    rows = [line.split()[-1] for line in qosctl("heatmap", s.name, "--no-legend").stdout.splitlines()[:-1]]
    equal(sum(int(r) for r in rows), sum(sent), "rows of the heatmap altogether")

    # The table
    lines = qosctl("history", s.name, "requests.server.count", "--no-legend").stdout.splitlines()
    equal([int(l.split()[-1]) for l in lines[first:first + 2]], sent, "requests in the table")

    # Steps of five minutes have all requests, those of the present step as well
    coarse = varlink("History", unit=s.name, metrics=["requests.server.count"], step=300 * SEC)
    equal(coarse["step"], 300 * SEC, "step")
    equal(sum(lookup(g, "requests.server.count") for g in coarse["steps"]), sum(sent), "requests in five minutes")
    t.end()


@test(deadline=180, own_daemon=True)
def kept_over_restart_and_crash():
    """After a restart and a crash of qosd each step has what it had before, and requests from meanwhile are in the
    history."""
    fresh_qosd()
    s = start_served(mode="thread")
    t = Talk(s, connections=1)
    sent = []

    def serve(n):
        # In a step of its own, however long the attach or the start of qosd takes
        next_step()
        t.say(f"run {n}")
        sent.append(n)

    serve(11)
    systemctl("restart", "qosd.service")
    wait_qosd()
    serve(22)
    kill_qosd()
    serve(33)
    before = counts(s)
    kill_qosd()
    next_step()

    def complete():
        got = [n for n in counts(s).values() if n]
        return len(got) >= len(sent) and got
    equal(wait_for("all steps with requests have passed", complete, 60, pause=0.2), sent, "requests by step")
    after = steps(s)
    check([g["timestamp"] for g in after[:len(before)]] == sorted(before), "the steps do not begin when they began")
    equal({g["covered"] for g in after[1:]}, {STEP}, "time covered")

    # A detach removes the history
    qosctl("detach", s.name)
    equal(glob.glob(f"{STATE}/history-*"), [], "files of the history")
    attach(s)
    equal(sum(lookup(g, "requests.server.count") for g in steps(s)), 0, "requests before the attach")
    t.end()


@test(deadline=60, own_daemon=True)
def wakes_seldom():
    """With idle units attached the daemon wakes up for the history and the watchdog only."""
    fresh_qosd()
    servers = [start_served(mode="thread") for _ in range(3)]
    wait_for("all are active", lambda: all(scenario.snapshot(s)["activeState"] == "active" for s in servers))
    next_step()
    before = wake_ups(qosd_pid())
    next_step()
    n = wake_ups(qosd_pid()) - before
    # One tick and the watchdog may fall into these ten seconds, and the tick may wait for a lock of the kernel
    check(n <= 6, f"{n} wake-ups in 10 s")


@test()
def what_is_refused():
    """Unknown metrics, metrics without a history, and times in the future are refused with a typed error and a message
    that names the reason."""
    s = start_served(mode="thread")
    now = time.time_ns() // 1000
    equal(varlink_error("History", unit="no-such-unit-at-all"), "NoSuchUnit", "error")
    equal(varlink_error("History", unit=s.name, metrics=["nonsense"]), "NoSuchMetric", "error")
    equal(varlink_error("History", unit=s.name, metrics=["requests.server.queue"]), "NoHistory", "error")
    equal(varlink_error("History", unit=s.name, metrics=["requests.server.queue.p50"]), "NoHistory", "error")
    equal(varlink_error("History", unit=s.name, metrics=["requests.server.oldestInFlight"]), "NoHistory", "error")
    for parameter, value in (("since", now + 3600 * 10**6), ("since", -1), ("step", SEC), ("step", 0),
                             ("step", 60 * SEC)):
        equal(varlink_error("History", unit=s.name, **{parameter: value}), "org.varlink.service.InvalidParameter",
              f"{parameter}={value}")
    # Not the time from above: a step may have ended since
    equal(steps(s, since=time.time_ns() // 1000), [], "steps since now")

    for arguments, status, words in (
            (["history", s.name, "--since=soon"], 2, "expected a time span (10min, 2h) or a point in time"),
            (["history", s.name, "--since=@9999999999"], 2, "is in the future"),
            (["history", s.name, "nonsense"], 1, "there is no metric 'nonsense'"),
            (["history", s.name, "requests.server.latency"], 2, "requests.server.latency.max"),
            (["heatmap", s.name, "requests.server.service"], 1, "no history is kept"),
            (["heatmap", s.name, "requests.server.count"], 2, "requests.server.count"),
            (["history", "no-such-unit-at-all"], 4, "no-such-unit-at-all"),
            (["list", "no-such-unit-at-all"], 4, "there is no unit 'no-such-unit-at-all.service'"),
            (["status", s.name, "--since=1h"], 2, "--since")):
        r = qosctl(*arguments, ok=False)
        equal(r.returncode, status, f"exit status of {arguments}: {r.stderr}")
        check(words in r.stderr, f"{arguments}: {r.stderr}")
    check("No complete step of 10s is recorded" in qosctl("history", s.name, "--since=now").stdout,
          "no message about an empty history")
    check("No complete step of 10s is recorded" in qosctl("heatmap", s.name, "--since=now").stdout,
          "no message about an empty heatmap")


@test()
def report_in_one_file():
    """A report has the requests that the client has sent, and the changes of a threshold as the journal has them."""
    s = attach(start_served(mode="thread"))
    qosctl("set-threshold", s.name, "slow: requests.server.firstByte.max > 1us over 1s for 0s")
    sent = 0

    def violated():
        nonlocal sent
        load(s, connections=4, number=50)
        sent += 50
        lines = run("journalctl", "-u", "qosd.service", f"UNIT={s.name}", "QOS_STATE=violated", "-o", "cat",
                    "--no-pager").stdout.splitlines()
        return [line for line in lines if "'slow' violated" in line]

    wait_for("the journal has it", violated)
    text = qosctl("report", s.name, "--for=1s").stdout
    raw = json.loads(html.unescape(text.partition("<pre id=raw>")[2].partition("</pre>")[0]))
    equal(lookup(raw["total"], "requests.server.count"), sent, "requests")
    equal(lookup(raw["total"], "requests.server.latency.count"), sent, "samples")
    messages = run("journalctl", "-u", "qosd.service", f"UNIT={s.name}", "QOS_THRESHOLD=slow", "-o", "cat",
                   "--no-pager").stdout.splitlines()
    changes = [c["text"] for c in raw["changes"]]
    equal(changes, messages[:len(changes)], "changes of the threshold")
    check(any(c["state"] == "violated" for c in raw["changes"]), f"changes: {raw['changes']}")
    check(html.escape(changes[0], quote=False) in text.partition("<details>")[0], "no change in the table")
    equal([t["threshold"]["name"] for t in raw["thresholds"]], ["slow"], "thresholds")
