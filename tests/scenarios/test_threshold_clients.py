# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients that are notified of thresholds: subscribers, the journal, path units."""

import json
import os
import shutil
import signal
import subprocess
import time

import scenario
from scenario import (Varlink, VarlinkError, attach, busctl_call, check, daemon_is_well, equal, fail, qosctl,
                      qosctl_json, qosd_pid, run, start_served, systemctl, test, varlink, varlink_error, wait_for)
from test_redis import Redis, command, receive
from test_thresholds import VIOLATED, Monitor, entries, level, set_threshold, states, wait_state


@test(deadline=90)
def subscribers_of_all_kinds():
    """Subscribers that read get each event once and in order, whatever others do. Those that do not read get the error
    TooSlow, and can continue from the last event that they have."""
    began = int(time.time())
    r = Redis()
    names = [f"busy{n}" for n in range(8)]
    for name in names:
        set_threshold(r, f"{name}: requests.server.inFlight > 0 over 100ms")
    wait_for("all are ok", lambda: set(states(r).values()) == {"ok"})
    steady = [Monitor(r) for _ in range(3)]
    stalled = [Monitor(r) for _ in range(2)]
    begin = steady[0].first["seq"]
    asleep = subprocess.Popen(["qosctl", "--no-pager", "--json=short", "monitor", r.name], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    check("thresholds" in json.loads(asleep.stdout.readline()), "the first line of qosctl monitor")
    asleep.send_signal(signal.SIGSTOP)
    got = {m: [] for m in steady}
    number = 0

    def turn(state):
        for m in steady:
            got[m] += [m.event() for _ in names]
            equal({e["state"] for e in got[m][-len(names):]}, {state}, "states")

    with r.connect() as s:
        for n in range(20):
            word = command("PING")
            s.sendall(word[:6])
            turn("violated")
            passing = Monitor(r)
            equal({t["state"] for t in passing.first["thresholds"]}, {"violated"}, "what a passing subscriber sees")
            if n % 2:
                passing.close()
            s.sendall(word[6:])
            receive(s, len(b"+PONG\r\n"))
            turn("ok")
            if not n % 2:
                equal({passing.event()["state"] for _ in names}, {"ok"}, "events of a passing subscriber")
                passing.close()
            number += 2 * len(names)

    # The sequence numbers of other units' events are in between
    numbers = [e["seq"] for e in got[steady[0]]]
    equal((len(numbers), numbers), (number, sorted(set(numbers))), "numbers of the events")
    check(numbers[0] > begin, "an event from before the subscription")
    for m in steady:
        equal([e["seq"] for e in got[m]], numbers, "sequence numbers at another subscriber")
        m.close()
    # qosd drops a subscriber some time after it has stopped reading
    wait_for("subscribers that do not read are dropped",
             lambda: run("journalctl", "-u", "qosd.service", f"_PID={qosd_pid()}", "-o", "cat", f"--since=@{began}")
             .stdout.count("to thresholds is too slow") >= 3, 40)
    for m in stalled:
        kept = []
        try:
            while True:
                kept.append(m.event()["seq"])
        except VarlinkError as e:
            equal(e.name, scenario.VARLINK + "TooSlow", "how it ended")
            # The sequence number in the error may be that of another unit's event
            equal([n for n in numbers if n <= e.parameters["seq"]], kept, "events up to the number to go on from")
        equal(kept, numbers[:len(kept)], "events that were queued for a subscriber that did not read")
        check(len(kept) < number, f"all {number} events were queued for a subscriber that did not read")
        # A new subscription continues after the last event received
        with Monitor(r, since=kept[-1]) as again:
            equal([again.event()["seq"] for _ in numbers[len(kept):]], numbers[len(kept):], "events once more")
        m.close()
    # qosctl monitor subscribes again by itself
    asleep.send_signal(signal.SIGCONT)
    seen = []
    while len(seen) < number:
        line = json.loads(asleep.stdout.readline())
        if "event" in line:
            seen.append(line["event"]["seq"])
    equal(seen, numbers, "events of qosctl monitor")
    asleep.kill()
    asleep.communicate()
    daemon_is_well()


@test(deadline=60)
def all_at_once():
    """Bursts of events, more than fit into the socket of a subscriber that reads late, are received completely."""
    r = Redis()
    names = [f"busy{n}" for n in range(32)]
    for name in names:
        set_threshold(r, f"{name}: requests.server.inFlight > 0 over 100ms")
    wait_for("all are ok", lambda: set(states(r).values()) == {"ok"})
    with Monitor(r) as steady, Monitor(r) as late, r.connect() as s:
        numbers = []
        for _ in range(6):
            word = command("PING")
            for part, state in ((word[:6], "violated"), (word[6:], "ok")):
                s.sendall(part)
                events = [steady.event() for _ in names]
                equal(({e["name"] for e in events}, {e["state"] for e in events}), (set(names), {state}), "events")
                numbers += [e["seq"] for e in events]
            receive(s, len(b"+PONG\r\n"))
        equal([late.event()["seq"] for _ in numbers], numbers, "events of the late subscriber")
        # From then on it gets events immediately again
        s.sendall(word[:6])
        equal([late.event()["seq"] for _ in names], [steady.event()["seq"] for _ in names], "events of both")
        s.sendall(word[6:])
    daemon_is_well()


@test(own_daemon=True, deadline=90)
def a_journal_that_does_not_read():
    """While journald is stopped subscribers get all events, and the journal gets them when it continues."""
    r = Redis()
    names = [f"busy{n}" for n in range(8)]
    for name in names:
        set_threshold(r, f"{name}: requests.server.inFlight > 0 over 100ms")
    wait_for("all are ok", lambda: set(states(r).values()) == {"ok"})
    journal = wait_for("the first ones are there", lambda: len(j := entries(r)) >= 8 and j, 10)
    numbers = [int(j["QOS_SEQ"]) for j in journal]
    journald = int(systemctl("show", "-P", "MainPID", "systemd-journald").stdout)
    with Monitor(r) as m, r.connect() as s:
        os.kill(journald, signal.SIGSTOP)
        try:
            for _ in range(30):
                word = command("PING")
                for part, state in ((word[:6], "violated"), (word[6:], "ok")):
                    s.sendall(part)
                    events = [m.event() for _ in names]
                    equal({e["state"] for e in events}, {state}, "states")
                    numbers += [e["seq"] for e in events]
                receive(s, len(b"+PONG\r\n"))
        finally:
            os.kill(journald, signal.SIGCONT)
    journal = wait_for("all are in the journal", lambda: len(j := entries(r)) >= len(numbers) and j, 30)
    equal([int(j["QOS_SEQ"]) for j in journal], numbers, "events in the journal")
    check("QOS_SNAPSHOT" in journal[8], "the snapshot of the first violation")
    daemon_is_well()


@test()
def leases_and_units_that_end():
    """A threshold with a lease ends with the connection that set it, others with the unit; a detach also ends waits and
    subscriptions."""
    s = start_served(mode="thread")
    with Varlink() as v:
        equal(v.call("SetThreshold", unit=s.name, threshold="mine: requests.server.rate > 5 over 1s",
                     lease=True)["unit"], s.name, "unit")
        # The rate without requests is 0, not absent
        wait_for("it is below its limit", lambda: states(s) == {"mine": "ok"})
        equal(varlink_error("ClearThreshold", unit=s.name, name="mine"), "ThresholdExists", "a lease of another client")
        equal(varlink_error("SetThreshold", unit=s.name, threshold="mine: requests.server.rate > 5"), "ThresholdExists",
              "a lease of another client")
        with Varlink() as other:
            try:
                other.call("ClearThreshold", unit=s.name, name="mine", lease=True)
                fail("another connection cleared it")
            except VarlinkError as e:
                equal(e.name, scenario.VARLINK + "ThresholdExists", "error")
        with Monitor(s) as m:
            v.call("SetThreshold", unit=s.name, threshold="mine: requests.server.rate < 5 over 10s for 1h", lease=True)
            m.expect("unknown", name="mine")
            v.call("ClearThreshold", unit=s.name, name="mine", lease=True)
            v.call("SetThreshold", unit=s.name, threshold="mine: requests.server.rate > 5 over 1s", lease=True)
            m.expect("ok", name="mine")
        m = Monitor(s)
    wait_for("it has gone with the connection", lambda: states(s) == {})
    equal([e["previous"] for e in m.expect("unknown", name="mine")], ["ok"], "before")
    m.close()
    # busctl exits right after the call, which ends the lease
    busctl_call("SetThreshold", "ssb", s.name, "mine: requests.server.rate > 5", "true")
    wait_for("it has gone with the bus name", lambda: states(s) == {})

    equal(busctl_call("SetThreshold", "ssb", s.name, "idle: requests.server.rate < 5 over 1s", "false"),
          ["idle: requests.server.rate < 5 over 1s for 0s, clear 5 for 0s"], "what is set")
    wait_state(s, "idle", "violated")
    check(level(s, "idle"), "no file")
    listed = busctl_call("ListThresholds", "s", s.name)[0]
    equal([[t[key]["data"] for key in ("unit", "name", "threshold", "metric", "state", "source", "limit")]
           for t in listed],
          [[s.name, "idle", "idle: requests.server.rate < 5 over 1s for 0s, clear 5 for 0s", "requests.server.rate",
            "violated", "administrator", 5]],
          "ListThresholds()")
    path = busctl_call("GetUnit", "s", s.name)[0]
    out = json.loads(run("busctl", "--json=short", "get-property", "org.qosd1", path, "org.qosd1.Unit",
                         "Thresholds").stdout)["data"]
    equal([t[0::2] for t in out], [["idle", "violated"]], "the property")
    # Setting an identical rule keeps the state, another rule of the name resets it
    since = qosctl_json("list-thresholds", s.name)[0]["since"]
    set_threshold(s, "idle: requests.server.rate < 5 over 1s")
    equal(qosctl_json("list-thresholds", s.name)[0]["since"], since, "since when")
    news = Monitor(s)
    set_threshold(s, "idle: requests.server.rate < 5 over 2s for 1h")
    equal(states(s), {"idle": "unknown"}, "another rule of the name")
    equal([(e["previous"], e["threshold"]) for e in news.expect("unknown", name="idle")],
          [("violated", "idle: requests.server.rate < 5 over 1s for 0s, clear 5 for 0s")], "the one before")
    news.close()
    check(not level(s, "idle"), "a file")
    qosctl("clear-threshold", s.name, "idle")
    equal(states(s), {}, "thresholds")

    set_threshold(s, "idle: requests.server.rate < 5 over 1s")
    wait_state(s, "idle", "violated")
    m = Monitor(s)
    waiter = subprocess.Popen(["qosctl", "wait", s.name, "requests.server.rate > 1000000"], stderr=subprocess.PIPE,
                              text=True)
    v = Varlink()
    v.send("Wait", {"unit": s.name, "condition": "requests.server.rate > 1000000"})
    equal(varlink("GetStatus")["units"] >= 1, True, "units")
    qosctl("detach", s.name)
    m.expect("unknown", name="idle")
    for connection in (m, v):
        try:
            connection.reply()
            fail("a reply")
        except VarlinkError as e:
            equal(e.name, scenario.VARLINK + "NotAttached", "how it ends")
        connection.close()
    check("no" in waiter.communicate(timeout=20)[1], "what qosctl wait says")
    equal(waiter.returncode, 3, "exit status of qosctl wait")
    check(not os.path.exists(f"{VIOLATED}/{s.name}"), "a file of a unit that is not observed")
    attach(s)
    equal(states(s), {}, "thresholds of a unit that is attached again")


@test()
def waiting():
    """qosctl wait exits when its condition is true, or with status 1 at its timeout."""
    s = start_served(mode="thread")
    equal(qosctl("wait", s.name, "requests.server.connections.open < 1").returncode, 0, "what is true already")
    r = qosctl("wait", s.name, "requests.server.rate > 100 over 1s", "--timeout=300ms", ok=False)
    equal(r.returncode, 1, "exit status")
    check("Timed out waiting for" in r.stderr, f"standard error: {r.stderr}")
    # A count is compared over whole windows only, which a unit has when it is attached for that long
    equal(qosctl("wait", s.name, "requests.server.count < 1 over 5s", "--timeout=500ms", ok=False).returncode, 1,
          "a unit that is too young")
    equal(qosctl("wait", s.name, "requests.server.count < 1 over 5s", "--timeout=20s").returncode, 0,
          "a unit that is old enough")
    waiter = subprocess.Popen(["qosctl", "--json=short", "wait", s.name, "requests.server.count > 99 over 5s"],
                              stdout=subprocess.PIPE, text=True)
    scenario.load(s, connections=1, number=50)
    equal(qosctl("wait", s.name, "requests.server.count > 49 over 5s", "--timeout=20s").returncode, 0,
          "the wait for 50 requests")
    equal(waiter.poll(), None, "status of the wait for 100 requests")
    scenario.load(s, connections=1, number=50)
    out = waiter.communicate(timeout=20)[0]
    equal((waiter.returncode, json.loads(out)["value"]), (0, 100), "status and value of the wait for 100 requests")


@test(deadline=60)
def acts_through_a_path_unit():
    """The example path unit of the documentation starts its service once per violation; the service ends with the
    violation."""
    s = start_served(mode="thread")
    example = os.path.join(scenario.SOURCES, "../../docs/examples/qos-violated@.path")
    template = scenario.unit_name("violated", "@.path")
    shutil.copy(example, os.path.join(scenario.UNIT_DIR, template))
    service = template.replace(".path", ".service")
    # The loop of the example's service without its action
    scenario.write_unit(service,
                        "[Service]\nType=oneshot\nExecStart=sh -c 'while test -e \"/run/qosd/violated/$1\"; do sleep "
                        "0.1; done' sh %I\n")
    with open(os.path.join(os.path.dirname(example), "qos-violated@.service")) as f:
        check('while test -e "/run/qosd/violated/$1"' in f.read(), "the example's service")
    systemctl("daemon-reload")
    path = run("systemd-escape", f"--template={template}", f"{s.name}/busy").stdout.strip()
    acting = path.replace(".path", ".service")
    systemctl("start", path)
    set_threshold(s, "busy: requests.server.connections.open > 0 over 100ms")
    wait_state(s, "busy", "ok")
    equal(scenario.unit_property(acting, "ActiveState"), "inactive", "ActiveState of the service before the violation")
    for _ in range(2):
        talk = scenario.Talk(s, connections=1)
        wait_for("it acts", lambda: scenario.unit_property(acting, "ActiveState") == "activating")
        equal(states(s), {"busy": "violated"}, "the state")
        talk.end()
        wait_for("it has ended", lambda: scenario.unit_property(acting, "ActiveState") == "inactive")
        equal(states(s), {"busy": "ok"}, "the state")
    systemctl("stop", path)


@test(own_daemon=True, deadline=60)
def notifies_through_a_path_unit():
    """The example for an ordinary service starts it once per violation, however often, and not for the end of one."""
    # systemd forgets a change of the path that it has not seen before a daemon-reload, and other tests reload
    s = start_served(mode="thread")
    examples = os.path.join(scenario.SOURCES, "../../docs/examples")
    template, log = scenario.unit_name("notify", "@.path"), f"/run/{s.name}.log"
    shutil.copy(os.path.join(examples, "qos-notify@.path"), os.path.join(scenario.UNIT_DIR, template))
    with open(os.path.join(examples, "qos-notify@.service")) as f:
        text = f.read()
    check("ExecStart=logger " in text, "the example's service")
    scenario.write_unit(template.replace(".path", ".service"),
                        text.replace("ExecStart=logger ", "ExecStart=sh -c 'echo \"$1\" >> \"$2\"' sh ")
                        .rstrip() + f" {log}\n")
    systemctl("daemon-reload")
    path = run("systemd-escape", f"--template={template}", f"{s.name}/busy").stdout.strip()
    acting = path.replace(".path", ".service")
    systemctl("start", path)
    set_threshold(s, "busy: requests.server.connections.open >= 1 over 100ms")
    wait_state(s, "busy", "ok")
    try:
        # More often than the start limit of five within 10 s
        for i in range(1, 8):
            talk = scenario.Talk(s, connections=1)
            wait_for("it has notified",
                     lambda: os.path.exists(log) and open(log).read() == f"Threshold {s.name}/busy is violated\n" * i)
            wait_state(s, "busy", "violated")
            talk.end()
            wait_state(s, "busy", "ok")
            wait_for("the path unit waits again", lambda: scenario.unit_property(path, "SubState") == "waiting" and
                     scenario.unit_property(acting, "ActiveState") == "inactive")
        equal(len(open(log).readlines()), 7, "notifications")
    finally:
        systemctl("stop", path)
        os.unlink(log)
