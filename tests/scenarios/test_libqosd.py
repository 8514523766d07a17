# SPDX-License-Identifier: LGPL-2.1-or-later
"""libqosd: programs that read with it, lease with it, and are told by it; and that a view is right or says that it is not."""

import json
import select
import subprocess

import scenario
from scenario import (SEC, Client, Server, Varlink, attach, check, count, equal, expect_total, kill_qosd, listed, load, qosctl, smaller, snapshot, start_served,
                      systemctl, test, wait_for, wait_qosd, write_unit, unit_name, qosd_pid, varlink)
from test_clients import NOBODY, as_nobody


class Reader:
    """The program that reads; each line that it says is an object."""

    def __init__(self, verb, *arguments, uid=None):
        rights = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        self.process = subprocess.Popen([f"{scenario.tools}/reader", verb] + [str(a) for a in arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **rights)

    def line(self, timeout=30):
        check(select.select([self.process.stdout], [], [], timeout * (6 if scenario.in_vm else 1))[0], "the reader says nothing")
        line = self.process.stdout.readline()
        check(line, f"the reader ended: {self.process.poll()}")
        return json.loads(line)

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ask(self):
        self.say()
        return self.line()

    def end(self):
        self.process.communicate(timeout=30)
        return self.process.returncode


def once(verb, *arguments, uid=None):
    r = Reader(verb, *arguments, uid=uid)
    said = r.line(120)
    r.end()
    return said


@test(vm="nightly", deadline=120)
def a_view_is_never_torn():
    """While it is written to, the count is the sum of the buckets in each reading, and never goes down."""
    s = start_served(mode="thread")
    client = Client(s, connections=4, number=10000000)
    wait_for("enough are counted for quantiles", lambda: count(s.name) >= 1000)
    for window in (0, 1 * SEC, 10 * SEC):
        r = Reader("view", s.name, smaller(100000), window)
        equal(r.line(), {"ready": True}, "the view")
        r.say()
        got = r.line(120)
        equal([got[k] for k in ("torn", "backward")], [0, 0], f"over {window}: {got}")
        # A second of a loaded machine may have too few for quantiles
        check(got["count"] > 0 and (got["quantiles"] > 0 or window == 1 * SEC), f"nothing was read: {got}")
    answered = client.stop()["answered"]
    expect_total(s, answered)
    # And what the view has is what the client has counted
    equal(once("follow", s.name), {"error": "", "count": answered}, "the view")


@test(vm="nightly")
def a_view_that_ends():
    s = start_served(mode="thread")
    load(s, number=100)
    expect_total(s, 100)
    views = [Reader("follow", s.name) for _ in range(2)]
    for v in views:
        equal(v.line(), {"error": "", "count": 100}, "the view")
    # The service is started anew: nothing changes
    s.restart()
    load(s, number=50)
    expect_total(s, 150)
    equal(views[0].ask(), {"error": "", "count": 150}, "after a restart of the service")
    qosctl("detach", s.name)
    for v in views:
        equal(v.ask(), {"error": "ESTALE", "count": 0}, "after the detach")
    # Attached again it is another view, and the old ones stay what they are
    attach(s)
    load(s, number=30)
    expect_total(s, 30)
    equal(views[0].ask(), {"error": "ESTALE", "count": 0}, "when it is attached again")
    equal(once("follow", s.name), {"error": "", "count": 30}, "another view")


@test()
def a_view_of_nested_units():
    """What is in several books cannot be seen in one."""
    slice_name = unit_name(suffix=".slice")
    write_unit(slice_name, "[Unit]\nDescription=A slice\n")
    s = Server(settings=f"Slice={slice_name}\n", mode="thread").start()
    attach(slice_name)
    load(s, number=40)
    expect_total(slice_name, 40)
    outer = Reader("follow", slice_name)
    equal(outer.line(), {"error": "", "count": 40}, "the slice")
    attach(s)
    load(s, number=20)
    expect_total(slice_name, 60)
    equal(outer.ask(), {"error": "ESTALE", "count": 0}, "the slice, with a unit in it")
    equal(once("follow", slice_name)["error"], "EOPNOTSUPP", "one more")
    equal(once("follow", s.name), {"error": "", "count": 20}, "the inner unit")


@test(own_daemon=True, deadline=60)
def a_view_and_restarts_of_qosd():
    s = start_served(mode="thread")
    load(s, number=100)
    expect_total(s, 100)
    for end in (kill_qosd, lambda: systemctl("restart", "qosd.service")):
        pid = qosd_pid()
        v = Reader("follow", s.name)
        equal(v.line()["error"], "", "the view")
        end()
        wait_qosd(pid)
        # It is looked for ten times a second
        wait_for("the reader is told", lambda: v.ask()["error"] == "ENOTCONN", 5)
        equal(once("follow", s.name), {"error": "", "count": 100}, "the view of the next qosd")


@test(vm="nightly")
def a_view_is_to_read():
    s = start_served(mode="thread")
    got = once("write", s.name)
    equal(got.pop("read"), "", "reading")
    for way, error in got.items():
        check(error, f"it can be written to: {way} of {got}")
    equal(snapshot(s)["drops"], 0, "drops")


@test()
def whose_view():
    """Addresses of peers are in there: it is for root, and for whose control group it is."""
    s = start_served(mode="thread")
    equal(once("follow", s.name, uid=NOBODY)["error"], "EACCES", "the view of another's unit")
    own = Server(settings="User=nobody\nDelegate=yes\n", mode="thread").start()
    attach(own.control_group)
    load(own, number=10)
    expect_total(own.control_group, 10)
    equal(once("follow", own.control_group, uid=NOBODY), {"error": "", "count": 10}, "the view of one's own")
    equal(once("follow", "nonsense.service")["error"], "ENXIO", "a unit that is not attached")


@test(own_daemon=True, deadline=90)
def limit_of_views():
    """Who attaches and detaches without end does not keep all the memory in the world."""
    own = Server(settings="User=nobody\nDelegate=yes\n", mode="thread").start()
    group = own.control_group
    # So that programs are not loaded each time
    start_served(mode="thread")
    pid = qosd_pid()
    systemctl("restart", "qosd.service")
    wait_qosd(pid)
    with as_nobody():
        v = Varlink(timeout=30)
    for i in range(64):
        varlink("Attach", unit=group)
        v.call("GetView", unit=group)
        if i == 0:
            # The same once more is none more
            v.call("GetView", unit=group)
        varlink("Detach", unit=group)
    varlink("Attach", unit=group)
    equal(once("follow", group, uid=NOBODY)["error"], "EUSERS", "one view more")
    equal(once("follow", group)["error"], "", "root's")


@test(vm="nightly")
def readings_of_one_moment():
    units = [start_served(mode="thread") for _ in range(3)]
    for i, s in enumerate(units):
        load(s, number=10 * (i + 1))
        expect_total(s, 10 * (i + 1))
    got = once("read", 0, *[s.name for s in units])
    equal([(o["unit"], o["count"]) for o in got], [(s.name, 10 * (i + 1)) for i, s in enumerate(units)], "what was read")
    equal(len({o["timestamp"] for o in got}), 1, "moments")
    check(all(o["rate"] > 0 for o in got), f"rates: {got}")
    equal({(o["nonsense"], o["word"]) for o in got}, {("ENODATA", "EDOM")}, "what is not there, and what is no number")
    got = once("read", 0, units[0].name, "nonsense.service")
    equal([got["failed"], got["error"]], ["read", "ENXIO"], "one that is not attached")
    check("nonsense.service" in got["message"], f"the message: {got}")
    equal(once("read", 1234, units[0].name)["error"], "EINVAL", "a window that is none")


@test(vm="nightly")
def around_an_action():
    s = start_served(mode="thread")
    load(s, number=70)
    expect_total(s, 70)
    r = Reader("around", s.name)
    equal(r.line(), {"ready": True}, "the mark")
    equal(r.ask()["count"], 0, "since the mark")
    load(s, number=25)
    expect_total(s, 95)
    equal(r.ask()["count"], 25, "since the mark")


@test()
def a_lease():
    s = Server(mode="thread").start()
    r = Reader("attach", s.name)
    equal(r.line(), {"ready": True}, "the attach")
    check(s.name in listed(), "it is not attached")
    r.process.kill()
    wait_for("the lease is gone", lambda: s.name not in listed())
    equal(once("attach", "nonsense.service")["error"], "ENOENT", "a unit that is not there")
    equal(once("attach", "non sense")["error"], "EINVAL", "what is no unit")


@test(own_daemon=True, deadline=90)
def a_watcher_over_a_crash():
    """Each change is told once, also when qosd is another one in between."""
    s = start_served(mode="thread")
    qosctl("set-threshold", s.name, "busy: requests.server.count > 5 over 5s")
    w = Reader("watch", s.name)
    first = w.line()
    equal([first["name"], first["initial"], first["seq"]], ["busy", True, 0], "at first")
    state = first["state"]
    if state != "ok":
        # It is not attached for that long yet
        state = w.line()["state"]
    equal(state, "ok", "nothing is asked")

    def until(state):
        """Nothing else is told, and nothing twice."""
        e = w.line()
        equal([e["name"], e["state"], e["initial"]], ["busy", state, False], "an event")
        return e["seq"]

    load(s, number=100)
    seqs = [until("violated"), until("ok")]
    pid = qosd_pid()
    kill_qosd()
    wait_qosd(pid)
    load(s, number=100)
    seqs += [until("violated"), until("ok")]
    equal(seqs, list(range(seqs[0], seqs[0] + 4)), "numbers of the events")
