# SPDX-License-Identifier: LGPL-2.1-or-later
"""Thresholds: states by limits of metrics, and an event for subscribers at each change of state and at no other
time."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import threading
import time

import scenario
from scenario import (SEC, Client, Varlink, VarlinkError, as_user, attach, busctl_call, check, daemon_is_well,
                      dbus_error, equal, expect_total, fail, fresh_qosd, kill_qosd, qosctl, qosctl_json, qosd_pid,
                      run, server_figures, start_served, systemctl, test, varlink, varlink_error, wait_for,
                      wait_qosd)
from test_clients import NOBODY, REFUSED, as_nobody
from test_endpoints import Nginx, ab, unused_ports
from test_peers import ClientUnit
from test_redis import Redis, command, receive

SLOW = "slow: requests.server.firstByte.p99 > 20ms over 1s for 200ms"
VIOLATED = "/run/qosd/violated"


def set_threshold(unit, threshold):
    qosctl("set-threshold", unit.name, threshold)


def states(unit):
    """Returns the state of each threshold by its name."""
    return {t["name"]: t["state"] for t in qosctl_json("list-thresholds", unit.name)}


def wait_state(unit, name, state, timeout=10):
    wait_for(f"{name} is {state}", lambda: states(unit).get(name) == state, timeout)


def level(unit, name="slow"):
    return os.path.exists(f"{VIOLATED}/{unit.name}/{name}")


class Monitor(Varlink):
    """A subscriber to events. first is the first reply, with the states at the subscription."""

    def __init__(self, *units, since=None):
        super().__init__(timeout=30)
        self.send("Monitor", {"units": [u.name for u in units]} | ({"since": since} if since is not None else {}),
                  more=True)
        self.first = self.reply()

    def event(self):
        return self.reply()["event"]

    def expect(self, *states, name="slow"):
        """Checks that the next events are changes of this threshold to these states, and returns them."""
        events = [self.event() for _ in states]
        equal([(e["name"], e["state"]) for e in events], [(name, s) for s in states], "events")
        for e in events:
            check(("value" in e) == (e["state"] != "unknown"), f"value of an event: {e}")
        return events


class Signals:
    """The signals of a name that busctl monitor receives."""

    def __init__(self, member):
        self.process = subprocess.Popen(["busctl", "--system", "--json=short", "--match",
                                         f"type='signal',member='{member}'", "monitor"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for("busctl monitors", lambda: run("busctl", "emit", "/hello", "org.example", member) and
                 select.select([self.process.stdout], [], [], 0.1)[0])

    def stop(self, n, wanted):
        """Returns the arguments of at least n signals that are wanted."""
        found = []
        while len(found) < n or select.select([self.process.stdout], [], [], 0)[0]:
            signal = json.loads(self.process.stdout.readline())
            data = signal["payload"].get("data")
            if data and wanted(signal["path"], data):
                found.append(data)
        self.process.kill()
        self.process.communicate()
        return found


def expect_signals(r, crossed, changed):
    """Both signals have had the same events. Returns the states, new and previous, and the shares of each."""
    end = "_2e".join(r.name.replace("-", "_2d").split("."))
    events = crossed.stop(6, lambda path, _: path.endswith(end))
    objects = [scenario.plain(data[0]) for data in changed.stop(6, lambda _, data: data[0]["unit"]["data"] == r.name)]
    names = "name", "metric", "state", "previous", "value", "limit", "slack", "samples", "seq", "timestamp"
    equal([{k: o.get(k) for k in names} for o in objects],
          [dict(zip(names, (None if v in ("nan", 2**64 - 1) or v != v else v for v in data))) for data in events],
          "events of ThresholdChanged")
    equal([("value" in o, "slack" in o) for o in objects], [(o["state"] != "unknown",) * 2 for o in objects], "values")
    return ([data[2:4] for data in events],
            [[dict(zip(("state", "share", "usual"), s)) for s in data[10]] for data in events])


class Traffic:
    """Up to a thousand requests a second, on connections with one request at a time."""

    def __init__(self, redis, connections=10):
        self.ending = False
        self.threads = [threading.Thread(target=self.run, args=(redis.connect(),), daemon=True)
                        for _ in range(connections)]
        for t in self.threads:
            t.start()

    def run(self, s):
        s.settimeout(60)
        with s:
            while not self.ending:
                s.sendall(command("PING"))
                receive(s, len(b"+PONG\r\n"))
                time.sleep(0.01)

    def stop(self):
        self.ending = True
        for t in self.threads:
            t.join(60)


def entries(unit):
    """Returns the journal's entries about threshold crossings of this unit, in order."""
    return [json.loads(line) for line in run("journalctl", "--all", "-o", "json", "--no-pager",
                                             "MESSAGE_ID=8272b84be6e04d7c8c0a0281c76e711d",
                                             f"UNIT={unit.name}").stdout.splitlines()]


@test(vm="nightly", deadline=90)
def a_service_that_hangs():
    """A threshold on latency is violated while the service hangs and there are no responses, ok when it continues, and
    unknown without requests."""
    r = Redis()
    # Redis is slower in the VM
    limit_ms, window = (500, 2) if scenario.in_vm else (20, 1)
    threshold = f"slow: requests.server.firstByte.p90 > {limit_ms}ms over {window}s for 200ms"
    set_threshold(r, threshold)
    crossed, changed = Signals("ThresholdCrossed"), Signals("ThresholdChanged")
    m = Monitor(r)
    equal([(t["name"], t["state"]) for t in m.first["thresholds"]], [("slow", "unknown")], "thresholds at first")
    traffic = Traffic(r)
    m.expect("ok")
    check(not level(r), "a file of what is not violated")

    r.kill("SIGSTOP")
    e = m.expect("violated")[0]
    check(e["value"] > e["limit"] and e["slack"] < 0 and e["previous"] == "ok", f"the event: {e}")
    check(e["shares"] and all(abs(c["share"] - c["usual"]) >= 0.01 for c in e["shares"]),
          f"the event has no shares, or usual ones: {e}")
    check(level(r), "no file of what is violated")
    # A later subscriber gets the state in its first reply, and no event
    late = Monitor(r)
    equal([t["state"] for t in late.first["thresholds"]], ["violated"], "what a later subscriber sees")
    check(late.first["seq"] >= e["seq"], f"the newest event: {late.first}")
    check("violated" in qosctl("status", r.name).stdout, "the status page")
    equal(qosctl("is-ok", r.name, ok=False).returncode, 1, "is-ok")

    r.kill("SIGCONT")
    m.expect("ok")
    late.expect("ok")
    wait_for("the file is gone", lambda: not level(r), 1)
    equal(qosctl("is-ok", r.name).stdout, "ok\n", "is-ok")

    traffic.stop()
    m.expect("unknown")
    late.expect("unknown")
    equal(qosctl("is-ok", r.name, ok=False).returncode, 3, "is-ok")
    # The next event is that of new traffic
    traffic = Traffic(r)
    m.expect("ok")
    traffic.stop()
    m.expect("unknown")
    seen, shares = expect_signals(r, crossed, changed)
    equal(shares[1], e["shares"], "shares in the signal")
    equal(seen, [["ok", "unknown"], ["violated", "ok"], ["ok", "violated"], ["unknown", "ok"], ["ok", "unknown"],
                 ["unknown", "ok"]], "signals")
    journal = wait_for("all are in the journal", lambda: len(j := entries(r)) == 6 and j, 10)
    equal([(j["QOS_THRESHOLD"], j["QOS_STATE"]) for j in journal], [("slow", s[0]) for s in seen], "the journal")
    check("QOS_VALUE" in journal[1] and "QOS_VALUE" not in journal[3], "values in the journal")
    # Where an administrator looks, with the explanation of the catalogue
    shown = wait_for("journalctl -u has all", lambda: len(j := [m for m in run(
        "journalctl", "-u", r.name, "-o", "cat", "--no-pager").stdout.splitlines()
                                                                if m.startswith(f"{r.name}: 'slow' ")]) == 6 and j, 10)
    equal(shown, [j["MESSAGE"] for j in journal], "messages of journalctl -u")
    run("journalctl", "--update-catalog")
    check(f"Subject: Threshold slow of {r.name} is violated" in run("journalctl", "-u", r.name, "-x",
                                                                    "--no-pager").stdout, "no entry of the catalogue")
    equal([bool(j.get("QOS_VERDICT")) for j in journal], [j["QOS_STATE"] == "violated" for j in journal],
          "verdicts in the journal")
    reading = json.loads(journal[1]["QOS_SNAPSHOT"])
    equal((reading["unit"], reading["window"], "totals" in reading),
          (r.name, (2 if scenario.in_vm else 1) * SEC, False), "the snapshot in the journal")
    check(reading["requests"]["server"]["inFlight"] > 0, f"the snapshot has no requests in flight: {reading}")
    m.close()
    late.close()


@test()
def blocking_commands_do_not_violate():
    """A blocking BLPOP does not violate a threshold on latency; another request that hangs does."""
    r = Redis()
    with r.connect() as s, r.connect() as other:
        s.sendall(command("BLPOP", "nothing", 0))
        wait_for("it waits", lambda: server_figures(r)["inFlight"] == 1)
        m = Monitor(r)
        set_threshold(r, "slow: requests.server.firstByte.p99 > 20ms over 500ms")
        # The threshold has been evaluated several times by then
        begun = time.monotonic()
        wait_for("it has waited", lambda: time.monotonic() > begun + 1.5)
        equal(server_figures(r)["intended"]["inFlight"], 1, "commands that wait by intent")
        equal(states(r), {"slow": "unknown"}, "with one that waits")
        r.kill("SIGSTOP")
        begun = time.monotonic_ns()
        other.sendall(command("PING"))
        e = m.expect("violated")[0]
        most = time.monotonic_ns() - begun
        equal(e["samples"], 1, "samples of the value")
        check(e["value"] <= most, f"age of the PING, which is {most} at most: {e}")
        r.kill("SIGCONT")
        m.expect("unknown")
    m.close()


@test(own_daemon=True, deadline=120)
def restarts_make_no_news():
    """States, their times and their files survive a crash, a restart and a reload of qosd and a daemon-reload, without
    an event."""
    bad = start_served(mode="thread", delay_us=60000)
    good = start_served(mode="thread")
    loads = [Client(s, connections=8, duration_ms=90000, think_us=5000) for s in (bad, good)]
    for s in (bad, good):
        set_threshold(s, "slow: requests.server.latency.p50 > 30ms over 2s for 3s")
    wait_state(bad, "slow", "violated")
    wait_state(good, "slow", "ok")
    before = {s.name: qosctl_json("list-thresholds", s.name)[0] for s in (bad, good)}
    path = f"{VIOLATED}/{bad.name}/slow"
    inode = os.stat(path)
    with Monitor(bad, good) as m:
        seq = m.first["seq"]

    def as_before(what):
        for s in (bad, good):
            t = qosctl_json("list-thresholds", s.name)[0]
            equal((t["state"], t["since"], t["threshold"]),
                  tuple(before[s.name][k] for k in ("state", "since", "threshold")), f"{s.name} {what}")
        now = os.stat(path)
        equal((now.st_ino, now.st_mtime_ns), (inode.st_ino, inode.st_mtime_ns), f"the file {what}")
        check(not level(good), f"a file of what is not violated {what}")

    # Files that a crash may leave behind, of a threshold that is ok, and of one that does not exist
    os.makedirs(f"{VIOLATED}/{good.name}")
    for name in ("", "slow", "other"):
        if name:
            with open(f"{VIOLATED}/{good.name}/{name}", "w"):
                pass
        shutil.chown(f"{VIOLATED}/{good.name}/{name}", "qosd")
    kill_qosd()
    as_before("after a crash")
    check(not os.path.exists(f"{VIOLATED}/{good.name}"), "stale files are not removed after a crash")
    pid = qosd_pid()
    systemctl("restart", "qosd.service")
    wait_qosd(pid)
    as_before("after a restart of qosd")
    systemctl("reload", "qosd.service")
    systemctl("daemon-reload")
    as_before("after a reload")
    # This takes at least a second, in which the thresholds are evaluated again
    for s in (bad, good):
        qosctl("wait", s.name, "requests.server.rate > 10 over 2s for 1s", "--timeout=20s")
    as_before("later")

    # The only events since the beginning are those of the end of load
    m = Monitor(bad, good, since=seq)
    check("missedEvents" not in m.first and m.first["seq"] == seq, f"events in between: {m.first}")
    for c in loads:
        c.stop()
    events = sorted((e["unit"], e["state"], e["previous"], e["seq"]) for e in (m.event(), m.event()))
    equal([e[:3] for e in events], sorted([(bad.name, "unknown", "violated"), (good.name, "unknown", "ok")]),
          "events at last")
    equal(sorted(e[3] for e in events), [seq + 1, seq + 2], "their numbers")
    m.close()
    check(not os.path.exists(path), "the file is there")


@test(deadline=60)
def a_service_that_restarts():
    """A window spans a restart of the service, and the time without requests meanwhile causes no event."""
    s = start_served(mode="thread")
    set_threshold(s, "slow: requests.server.latency.p50 > 1s over 5s for 5s, clear 1s for 0s")
    m = Monitor(s)
    for _ in range(3):
        scenario.load(s, connections=4, number=200)
        s.restart()
    m.expect("ok")
    wait_for("it is quiet", lambda: states(s)["slow"] == "unknown", 30)
    m.expect("unknown")
    # A stop while the state is unknown causes no event
    s.stop()
    s.start()
    scenario.load(s, connections=4, number=200)
    m.expect("ok")
    m.close()


@test()
def good_and_total():
    """good, total and burn rates of a threshold on latency are those of servers with a known delay."""
    s = start_served(mode="thread")
    slow = start_served(mode="thread", delay_us=60000)
    for u in (s, slow):
        scenario.load(u, connections=1, number=10)
        scenario.expect_total(u, 10)
        set_threshold(u, "slow: requests.server.firstByte.p90 > 30ms over 10s")
        set_threshold(u, "idle: requests.server.rate < 1")
    scenario.load(s, connections=4, number=300)
    scenario.load(slow, connections=4, number=20)
    scenario.expect_total(s, 310)
    scenario.expect_total(slow, 30)
    # All requests of the one server are good and none of the other one. p90 allows a tenth to be bad, so that the burn
    # rate is 0 or 10. Requests from before the threshold was set are in the windows of the burn rates, and not in total
    for u, good, total, burn in ((s, 300, 300, 0), (slow, 0, 20, 10)):
        t = {t["name"]: t for t in qosctl_json("list-thresholds", u.name)}
        equal((t["slow"]["total"], "total" in t["idle"]), (total, False), f"all of {u.name}")
        # On a busy machine a few requests may be slower
        check(abs(t["slow"]["good"] - good) <= total // 20, f"good of {u.name}: {t['slow']}")
        for period in "60s", "5min", "30min", "1h", "6h":
            check(abs(t["slow"][f"burnRate{period}"] - burn) <= 0.5, f"burn rate of {u.name}: {t['slow']}")
    b = {t["name"]["data"]: t for t in busctl_call("ListThresholds", "s", slow.name)[0]}
    equal({name: ("good" in t, "total" in t, "burnRate6h" in t) for name, t in b.items()},
          {"slow": (True, True, True), "idle": (False, False, False)}, "what is there on D-Bus")
    equal((b["slow"]["total"]["data"], round(b["slow"]["burnRate1h"]["data"], 6)), (20, 10),
          "total and burn rate on D-Bus")


@test()
def fast_errors():
    """Errors that are fast burn the budget of an objective for successful requests, and of no other one."""
    (port,) = unused_ports(1)
    s = attach(Nginx([str(port)], 'return 200 "ok\\n"; } location /fails { return 503;')).start()
    for rule in "served: requests.server.firstByte.p90 > 1s", "right: requests.server.firstByte.p90 > 1s, good success":
        set_threshold(s, rule)
    ab(port, 30)
    run("ab", "-q", "-n", 10, "-c", 2, f"http://127.0.0.1:{port}/fails")
    expect_total(s, 40)
    equal(server_figures(s)["errors"]["status5xx"], 10, "responses with an error")
    found = {t["name"]: (t["good"], t["total"], round(t["burnRate5min"], 6), round(t["burnRate1h"], 6))
             for t in qosctl_json("list-thresholds", s.name)}
    equal(found, {"served": (40, 40, 0, 0), "right": (30, 40, 2.5, 2.5)}, "good, total, burn rates")


@test(deadline=60)
def objective_of_an_endpoint():
    """An objective of an endpoint has the requests to that one since it was set, in the list and in the export."""
    a, b = unused_ports(2)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}"])).start()
    ab(b, 40)
    expect_total(u, 40)
    for port, name in ((a, "first"), (b, "second")):
        set_threshold(u, f"{name}: requests.server[:{port}].latency.p90 > 20s over 10s")
    set_threshold(u, f"none: requests.server[:{b}].latency.p90 > 1us over 10s")
    ab(a, 100)
    ab(b, 30)
    expect_total(u, 170)
    found = {t["name"]: t for t in qosctl_json("list-thresholds", u.name)}
    equal({name: (t["good"], t["total"]) for name, t in found.items()},
          {"first": (100, 100), "second": (30, 30), "none": (0, 30)}, "good, total")
    equal({name: round(t["burnRate5min"], 6) for name, t in found.items()}, {"first": 0, "second": 0, "none": 10},
          "burn rates")
    metrics = qosctl("metrics", u.name).stdout
    for name, total in ("first", 100), ("second", 30):
        check(f'qosd_objective_requests_total{{unit="{u.name}",threshold="{name}"}} {total}\n' in metrics,
              f"{name} is not exported so")


@test(deadline=60)
def without_a_response():
    """Requests that wait for longer than the limit burn the budget of an objective; those that never get a response are
    bad for good."""
    r = Redis()
    # Ten requests before that are good
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(r.connect()) for _ in range(5)]
        set_threshold(r, "slow: requests.server.firstByte.p90 > 1s over 10s")
        for c in connections * 2:
            c.sendall(command("PING"))
            receive(c, len(b"+PONG\r\n"))
        r.kill("SIGSTOP")
        for c in connections:
            c.sendall(command("PING"))

        def objective():
            return qosctl_json("list-thresholds", r.name)[0]
        # A third of all, of which a tenth may be bad
        wait_for("all burn the budget", lambda: objective()["burnRate60s"] > 3.3, 20)
        # No other requests come while these wait. Those that would have come count as well: of the time since the unit
        # was attached the outage is a growing part, and 10 is what an outage of all of the period burns
        t = wait_for("the outage burns the budget", lambda: (t := objective())["burnRate60s"] > 8 and t, 60)
        check(t["burnRate60s"] <= 10 and 8 < t["burnRate1h"] <= 10, f"burn rates: {t}")
        equal((t["good"], t["total"]), (10, 10), "good, total while they wait")
        r.kill("SIGKILL")
        wait_for("they have ended", lambda: server_figures(r)["errors"]["reset"] == 5)
        t = objective()
        equal((t["good"], t["total"]), (10, 15), "good, total when they have ended")
        check(3.3 < t["burnRate60s"] < 3.4, f"burn rate: {t}")


@test(deadline=60)
def of_one_endpoint():
    """A threshold on an endpoint does not depend on requests to other endpoints. Without an endpoint its state is
    unknown."""
    a, b, c = unused_ports(3)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}"])).start()
    set_threshold(u, "all: requests.server.count > 50 over 2s")
    set_threshold(u, f"busy: requests.server[:{b}].count > 50 over 2s")
    set_threshold(u, f"none: requests.server[127.0.0.1:{c}].count > 50 over 2s")
    whole = f"busy: requests.server[:{b}].count > 50 over 2s for 0s, clear 50 for 0s"
    equal([t["threshold"] for t in qosctl_json("list-thresholds", u.name) if t["name"] == "busy"], [whole],
          "the whole of it")

    def until(name, port):
        """Sends requests to the port until the threshold is violated."""
        def asked():
            ab(port, 100)
            return states(u)[name] == "violated"
        wait_for(f"{name} is violated by requests to {port}", asked, 20)

    with Monitor(u) as m:
        wait_state(u, "busy", "ok")
        until("all", a)
        equal({n: s for n, s in states(u).items() if n != "all"}, {"busy": "ok", "none": "unknown"}, "the others")
        until("busy", b)
        wait_state(u, "busy", "ok")
        equal(states(u)["none"], "unknown", "state of a threshold without an endpoint")
        until("busy", b)
        events = []
        while len(events) < 4:
            e = m.event()
            if e["name"] != "all":
                events.append(e)
        equal([(e["name"], e["metric"], e["state"]) for e in events],
              [("busy", f"requests.server[:{b}].count", s) for s in ("ok", "violated", "ok", "violated")], "events")
        check(all((e["value"] > 50) == (e["state"] == "violated") for e in events), f"values: {events}")
    w = subprocess.Popen(["qosctl", "wait", u.name, f"requests.server[:{b}].count > 50 over 2s", "--timeout=20"])
    wait_for("a condition about it", lambda: (ab(b, 100), w.poll())[1] is not None, 20)
    equal(w.returncode, 0, "exit status of wait")
    daemon_is_well()


@test()
def bad_input():
    """Errors about invalid thresholds name what is wrong and what is expected, in qosctl, varlink and D-Bus."""
    s = start_served(mode="thread")
    bad = {
        "": "expected a name and a colon",
        "slow": "expected a name and a colon",
        "a b: requests.server.rate > 5": "expected a name of letters",
        "../../x: requests.server.rate > 5": "expected a name of letters",
        "x: requests.server.nonsense > 5": "there is no metric 'requests.server.nonsense'",
        "x: requests.server[:80].firstByte.p99 > 5ms": "is known of the whole unit alone, not of an endpoint",
        "x: requests.server[:80].rate > 5 over 60s": "windows of 2s to 10s",
        "x: requests.server[80].rate > 5": "does not say which part of the unit",
        "x: requests.quality > 5": "is a word",
        "x: requests.server.rate > 5ms": "expected a rate like",
        "x: requests.server.latency.p99 > 5": "expected a time like '20ms'",
        "x: requests.server.latency.p99 > 5ms over 7min": "expected a window after 'over'",
        "x: requests.server.latency.p99 > 5ms for long": "after 'for', got 'long'",
        "x: requests.server.latency.p99 > 5ms, clear 6ms": "must not be beyond its limit",
        "x: requests.client.latency.p99 > 5ms over 1s": "windows of 2s to 10s",
        "x: " + "y" * 2000: "longer than",
    }
    for threshold, message in bad.items():
        r = qosctl("set-threshold", s.name, threshold, ok=False)
        check(r.returncode == 2 and message in r.stderr, f"qosctl on '{threshold}': {r.returncode}, {r.stderr}")
        try:
            varlink("SetThreshold", unit=s.name, threshold=threshold)
            fail(f"varlink took '{threshold}'")
        except VarlinkError as e:
            equal(e.name, scenario.VARLINK + "InvalidThreshold", f"error on '{threshold}'")
            equal(e.parameters["threshold"], threshold, "what it names")
            check(message in e.parameters["message"], f"varlink on '{threshold}': {e.parameters['message']}")
        equal(dbus_error("SetThreshold", f"string:{s.name}", f"string:{threshold}", "boolean:false"),
              "org.qosd1.Error.InvalidThreshold", threshold)
    equal(states(s), {}, "thresholds")
    equal(qosctl("wait", s.name, "x: requests.server.rate > 5", ok=False).returncode, 2, "a condition with a name")

    good = "x: requests.server.rate > 5"
    equal(varlink_error("SetThreshold", unit="nothing-" + s.name, threshold=good), "NotAttached", "error")
    equal(varlink_error("SetThreshold", unit="a b", threshold=good), "InvalidUnitName", "error")
    equal(varlink_error("ClearThreshold", unit=s.name, name="x"), "NoSuchThreshold", "error")
    equal(varlink_error("ClearThreshold", unit=s.name, name="../x"), "NoSuchThreshold", "error")
    equal(varlink_error("Wait", unit=s.name, condition="nonsense"), "InvalidThreshold", "error")
    equal(dbus_error("SetThreshold", f"string:nothing-{s.name}", f"string:{good}", "boolean:false"),
          "org.qosd1.Error.NotAttached", "error")
    equal(dbus_error("ClearThreshold", f"string:{s.name}", "string:x", "boolean:false"),
          "org.qosd1.Error.NoSuchThreshold", "error")
    with Varlink() as v:
        v.send("Monitor", {"units": ["nothing-" + s.name]}, more=True)
        equal(v.receive().get("error"), scenario.VARLINK + "NotAttached", "error")
        v.send("Monitor", {"since": -1}, more=True)
        equal(v.receive().get("error"), "org.varlink.service.InvalidParameter", "error")
        v.send("Monitor", {"since": 2 ** 50}, more=True)
        check("thresholds" in v.reply(), "a sequence number in the future")

    for n in range(32):
        set_threshold(s, f"x{n}: requests.server.rate > 5")
    equal(varlink_error("SetThreshold", unit=s.name, threshold=good), "TooManyThresholds", "error")
    set_threshold(s, "x7: requests.server.rate > 7")
    equal(len(states(s)), 32, "thresholds")
    daemon_is_well()


@test()
def permissions():
    """All users may list thresholds, wait and subscribe. To set and to clear them requires root or polkit."""
    s = start_served(mode="thread")
    set_threshold(s, "x: requests.server.rate > 5")
    with as_nobody():
        for method, more in (("SetThreshold", {"threshold": "y: requests.server.rate > 5"}),
                             ("ClearThreshold", {"name": "x"})):
            with Varlink() as v:
                try:
                    v.call(method, unit=s.name, **more)
                    fail(f"{method} by nobody")
                except VarlinkError as e:
                    check(e.name in REFUSED, f"{method} by nobody: {e}")
        with Varlink() as v:
            equal(v.collect("ListThresholds", unit=s.name)[0]["threshold"]["name"], "x",
                  "threshold that user nobody lists")
            equal(v.call("Wait", unit=s.name, condition="requests.server.connections.open < 1")["value"], 0,
                  "value that user nobody waited for")
        # A wait for a metric of a peer would reveal the peer
        with Varlink() as v:
            try:
                v.call("Wait", unit=s.name, condition="requests.client[127.0.0.1:1].count < 1 over 2s")
                fail("user nobody waits for a metric of a peer")
            except VarlinkError as e:
                check(e.name in REFUSED, f"a peer, by nobody: {e}")
        with Varlink() as v:
            v.send("Monitor", {"units": [s.name]}, more=True)
            equal(len(v.reply()["thresholds"]), 1, "thresholds in the subscription of user nobody")
    error = dbus_error("SetThreshold", f"string:{s.name}", "string:y: requests.server.rate > 5", "boolean:false",
                       user=NOBODY)
    check(error in ("org.freedesktop.DBus.Error.AccessDenied",
                    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"), f"by nobody: {error}")
    equal(list(states(s)), ["x"], "thresholds")
    check(run(*as_user(NOBODY), "ls", VIOLATED).returncode == 0, "user nobody may not list the directory")


@test(deadline=150)
def peers_are_not_for_everybody():
    """A threshold on a peer is visible to all users, and so is its state; the peer is not."""
    s = start_served(mode="thread")
    c = attach(ClientUnit(port=s.port, number=5))
    set_threshold(c, f"few: requests.client[{s.name}].count < 1000000 over 10s")
    metric, hidden = f"requests.client[{s.name}].count", "requests.client[...].count"
    with Monitor(c) as root:
        with as_nobody():
            nobody = Monitor(c)
        c.run()
        event = root.event()
        equal((event["state"], event["metric"]), ("violated", metric), "event for root")
        check(event["threshold"].startswith(f"few: {metric} < "), f"the rule, for root: {event}")
        told = [nobody.first, nobody.event()]
        equal((told[1]["state"], told[1]["metric"], told[1]["seq"]), ("violated", hidden, event["seq"]),
              "event for user nobody")
        nobody.close()
        with as_nobody():
            nobody = Monitor(c, since=event["seq"] - 1)
        told.append(nobody.event())
        nobody.close()
    equal([t["metric"] for t in qosctl_json("list-thresholds", c.name)], [metric], "metrics that root lists")
    for words in (["list-thresholds", c.name], ["list-thresholds", c.name, "--json=short"],
                  ["list", c.name, "--json=short"], ["status", c.name]):
        told.append(run(*as_user(NOBODY), "qosctl", "--no-pager", *words).stdout)
    path = busctl_call("GetUnit", "s", c.name)[0]
    with open(f"{VIOLATED}/{c.name}/few") as f:
        told.append(f.read())
    told.append(busctl_call("ListThresholds", "s", c.name))
    told.append(run("busctl", "get-property", "org.qosd1", path, "org.qosd1.Unit", "Thresholds").stdout)
    found = wait_for("the journal has it", lambda: entries(c))
    equal((found[0]["QOS_METRIC"], found[0]["QOS_STATE"]), (hidden, "violated"), "the journal")
    check(found[0]["MESSAGE"].startswith(f"{c.name}: 'few' violated: {hidden} "), f"message: {found[0]['MESSAGE']}")
    check(found[0]["QOS_RULE"].startswith(f"few: {hidden} < "), f"rule: {found[0]['QOS_RULE']}")
    told.append(found[0])
    for what in told:
        check(s.name not in str(what), f"the peer is visible to all users: {what}")
    for what in told[1:]:
        check("few" in str(what), f"the threshold is not visible to all users: {what}")


@test(own_daemon=True)
def no_wakeups_without_thresholds():
    """qosd has no timer for thresholds when the last one is cleared, and is not woken up."""
    fresh_qosd()
    s = start_served(mode="thread")
    set_threshold(s, "x: requests.server.rate > 5 over 1s")
    wait_state(s, "x", "ok")
    qosctl("clear-threshold", s.name, "x")

    def timers():
        # fdinfo of a timerfd has the time until it expires
        due = []
        for fd in os.listdir(f"/proc/{qosd_pid()}/fdinfo"):
            with contextlib.suppress(OSError), open(f"/proc/{qosd_pid()}/fdinfo/{fd}") as f:
                for line in f:
                    if line.startswith("it_value: ("):
                        seconds, nsec = line.removeprefix("it_value: (").rstrip(")\n").split(",")
                        due.append(int(seconds) * SEC + int(nsec))
        return [d for d in due if 0 < d < SEC]

    # The timers of history and watchdog mostly expire in more than a second
    wait_for("no timer is due soon", lambda: timers() == [], 10)
    set_threshold(s, "x: requests.server.rate > 5 over 1s")
    wait_for("a timer is due soon", lambda: timers() != [], 2)
