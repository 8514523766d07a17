# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a unit did while a command ran: qosctl measure, and Mark on varlink."""

import json

import scenario
from scenario import (Client, Server, Talk, Varlink, VarlinkError, attach, check, equal, expect_total, listed, load,
                      lookup, qosctl,
                      start_served, test)


def measure(unit, *command):
    r = qosctl("measure", "--json=short", unit.name, "--", *command)
    return json.loads(r.stdout.splitlines()[-1])


def client(server, **options):
    return [f"{scenario.tools}/client"] + scenario._options(dict(options, port=server.port))


@test()
def exactly_the_command():
    """Neither the requests before nor those after; the first and the last of the command are in it."""
    s = start_served(mode="thread")
    load(s, connections=4, number=77)
    t = Talk(s, connections=1)
    for n in (1, 2, 500, 0, 33):
        t.say("run 5")
        m = measure(s, *(client(s, connections=1, number=n) if n else ["true"]))
        t.say("run 3")
        equal(lookup(m, "requests.server.count"), n, "requests")
        for d in ("latency", "firstByte", "receive", "queue", "service", "answer"):
            equal(lookup(m, f"requests.server.{d}.count"), n, f"requests in {d}")
        equal(lookup(m, "requests.server.connections.accepted"), 1 if n else 0, "connections")
        equal(lookup(m, "requests.server.inFlight"), 0, "requests in flight")
        check("window" not in m, "a window")
    expect_total(s, 77 + 536 + 5 * 8)
    t.end()


@test()
def leased():
    """A unit that nobody attached is for as long as the command runs, also when that fails."""
    s = Server(mode="thread").start()
    m = measure(s, *client(s, connections=3, number=100))
    equal(lookup(m, "requests.server.count"), 100, "requests")
    check(s.name not in listed(), "it is still attached")
    r = qosctl("measure", s.name, "--", "sh", "-c", "exit 7", ok=False)
    equal(r.returncode, 7, "exit status")
    check(s.name not in listed(), "it is still attached")
    r = qosctl("measure", "no-such-unit-at-all", "--", "true", ok=False)
    equal(r.returncode, 4, "exit status for a unit that there is not")


@test()
def under_load():
    """While others load the unit: what the windows count is what marks count, added up over adjoining ones."""
    s = start_served(mode="thread")
    c = Client(s, connections=4, number=20000)
    with Varlink() as v:
        v.call("Mark", unit=s.name)
        before = v.call("Get", unit=s.name, window=0)
        while lookup(scenario.snapshot(s), "requests.server.count") < 5000:
            pass
        middle = v.call("Get", unit=s.name, sinceMark=True)
        r = c.wait()
        equal(r["answered"], 20000, "answers")
        after = v.call("Get", unit=s.name, sinceMark=True)
        total = scenario.total(s)
    equal(total, 20000, "requests altogether")
    # What came between the two first calls is in both
    n = lookup(middle, "requests.server.count")
    check(n <= 20000 and 5000 <= n + lookup(before, "requests.server.count"), "requests in the middle")
    n = lookup(after, "requests.server.count")
    check(20000 - lookup(before, "requests.server.count") <= n <= 20000, f"requests since the mark: {n}")
    equal(lookup(after, "requests.server.latency.count"), n, "requests in the latency")


@test()
def marks():
    """One in a unit, a few on a connection; they go with the unit's last hold."""
    servers = [start_served(mode="thread") for _ in range(5)]
    with Varlink() as v:
        def error(method, **parameters):
            try:
                v.call(method, **parameters)
            except VarlinkError as e:
                return e.name.removeprefix(scenario.VARLINK), e.parameters
            return None, None

        equal(error("Get", unit=servers[0].name, sinceMark=True)[0], "NotMarked", "error")
        for s in servers[:4]:
            v.call("Mark", unit=s.name)
        e, parameters = error("Mark", unit=servers[4].name)
        equal((e, parameters["limit"]), ("TooManyMarks", 4), "error")
        load(servers[0], connections=1, number=5)
        equal(lookup(v.call("Get", unit=servers[0].name, sinceMark=True), "requests.server.count"), 5,
              "requests since the mark")
        v.call("Mark", unit=servers[0].name)
        equal(lookup(v.call("Get", unit=servers[0].name, sinceMark=True), "requests.server.count"), 0,
              "requests since the new mark")
        qosctl("detach", servers[0].name)
        attach(servers[0])
        equal(error("Get", unit=servers[0].name, sinceMark=True)[0], "NotMarked", "error after a detach")
        v.call("Mark", unit=servers[4].name)
