# SPDX-License-Identifier: LGPL-2.1-or-later
"""libqosd: programs read snapshots and views, take leases and watch thresholds with it. What a view returns is right,
or an error."""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess

import scenario
from scenario import (SEC, Client, Server, Varlink, attach, check, count, equal, expect_total, kill_qosd, listed, load,
                      qosctl, smaller, snapshot, start_served,
                      systemctl, test, wait_for, wait_qosd, write_unit, unit_name, qosd_pid, varlink)
from test_clients import NOBODY, as_nobody

DAEMON = 1


class Reader:
    """The C program that uses libqosd (reader.c). Each line of its output is an object."""

    def __init__(self, verb, *arguments, uid=None):
        rights = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        self.process = subprocess.Popen([f"{scenario.tools}/reader", verb] + [str(a) for a in arguments],
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **rights)

    def line(self, timeout=30):
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        check(poll.poll(timeout * 1000 * (6 if scenario.in_vm else 1)), "the reader prints nothing")
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
    """While the map of a view is written to, the count of each read is the sum of its buckets, and never decreases."""
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
        check(got["count"] > 0 and (got["quantiles"] > 0 or window == 1 * SEC), f"no requests or no quantiles: {got}")
    answered = client.stop()["answered"]
    expect_total(s, answered)
    # The total of the view is the client's count
    equal(once("follow", s.name), {"error": "", "count": answered}, "the view")


@test(vm="nightly")
def a_view_that_ends():
    s = start_served(mode="thread")
    load(s, number=100)
    expect_total(s, 100)
    views = [Reader("follow", s.name) for _ in range(2)]
    for v in views:
        equal(v.line(), {"error": "", "count": 100}, "the view")
    # A restart of the service does not end its views
    s.restart()
    load(s, number=50)
    expect_total(s, 150)
    equal(views[0].ask(), {"error": "", "count": 150}, "after a restart of the service")
    qosctl("detach", s.name)
    for v in views:
        equal(v.ask(), {"error": "ESTALE", "count": 0}, "after the detach")
    # After another attach a new view can be opened, and the old ones are still stale
    attach(s)
    load(s, number=30)
    expect_total(s, 30)
    equal(views[0].ask(), {"error": "ESTALE", "count": 0}, "when it is attached again")
    equal(once("follow", s.name), {"error": "", "count": 30}, "another view")


@test()
def a_view_of_nested_units():
    """A unit that contains another attached unit has no view, as its figures are in the maps of both."""
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
    equal(once("follow", slice_name)["error"], "EOPNOTSUPP", "another view of the slice")
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
        # The library checks ten times a second whether qosd is still there
        wait_for("the reader has the error", lambda: v.ask()["error"] == "ENOTCONN", 5)
        equal(once("follow", s.name), {"error": "", "count": 100}, "the view of the next qosd")


@test(vm="nightly")
def a_view_is_to_read():
    s = start_served(mode="thread")
    got = once("write", s.name)
    equal(got.pop("read"), "", "reading")
    for way, error in got.items():
        check(error, f"the map of the view is writable: {way} of {got}")
    equal(snapshot(s)["drops"], 0, "drops")


@test()
def views_by_user():
    """As a view has addresses of peers, only root and the owner of the control group can open it."""
    s = start_served(mode="thread")
    equal(once("follow", s.name, uid=NOBODY)["error"], "EACCES", "the view of another's unit")
    own = Server(settings="User=nobody\nDelegate=yes\n", mode="thread").start()
    attach(own.control_group)
    load(own, number=10)
    expect_total(own.control_group, 10)
    equal(once("follow", own.control_group, uid=NOBODY), {"error": "", "count": 10}, "the view of one's own")
    equal(once("follow", "nonsense.service")["error"], "ENOENT", "a unit that does not exist")


@test(own_daemon=True, deadline=90)
def limit_of_views():
    """The views of a user are limited to 64, as each keeps the map of its unit after a detach."""
    own = Server(settings="User=nobody\nDelegate=yes\n", mode="thread").start()
    group = own.control_group
    # Another attached unit keeps the programs loaded
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
            # Another view of the same attach does not count
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
    equal([(o["unit"], o["count"]) for o in got], [(s.name, 10 * (i + 1)) for i, s in enumerate(units)],
          "units and counts")
    equal(len({o["timestamp"] for o in got}), 1, "number of timestamps")
    check(all(o["rate"] > 0 for o in got), f"rates: {got}")
    equal({(o["nonsense"], o["word"]) for o in got}, {("ENODATA", "EDOM")},
          "errors of an unknown metric, and of one that is no number")
    got = once("read", 0, units[0].name, "nonsense.service")
    equal([got["failed"], got["error"]], ["read", "ENOENT"], "a unit that does not exist")
    check("nonsense.service" in got["message"], f"the message: {got}")
    equal(once("read", 1234, units[0].name)["error"], "EINVAL", "an invalid window")


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
    check(s.name in listed(), "the unit is not attached")
    r.process.kill()
    wait_for("the lease is gone", lambda: s.name not in listed())
    equal(once("attach", "nonsense.service")["error"], "ENOENT", "a unit that does not exist")
    equal(once("attach", "non sense")["error"], "EINVAL", "an invalid unit name")


@test(own_daemon=True, deadline=90)
def a_watcher_over_a_crash():
    """A watcher gets each change of a threshold exactly once, also over a crash of qosd."""
    s = start_served(mode="thread")
    qosctl("set-threshold", s.name, "busy: requests.server.count > 5 over 5s")
    w = Reader("watch", s.name)
    first = w.line()
    equal([first["name"], first["initial"], first["seq"]], ["busy", True, 0], "at first")
    state = first["state"]
    if state != "ok":
        # The unit has not been attached for 5 s yet
        state = w.line()["state"]
    equal(state, "ok", "state without requests")

    def until(state):
        """Checks that the next event has this state. Returns its number."""
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


@test(own_daemon=True)
def a_full_listen_queue():
    """Programs of users, too, wait until the daemon takes their connection while others have filled the queue of its
    socket."""
    s = start_served(mode="thread")
    load(s, number=100)
    expect_total(s, 100)
    pid, fillers = qosd_pid(), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
    os.kill(pid, signal.SIGSTOP)
    try:
        with as_nobody(), contextlib.suppress(BlockingIOError):
            while True:
                fillers.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                fillers[-1].connect(scenario.VARLINK_SOCKET)
        # Another user: of this one there are more connections than one may have
        r = Reader("read", 0, s.name, uid=DAEMON)

        def connects():
            equal(r.process.poll(), None, "exit status of the reader")
            with open(f"/proc/{r.process.pid}/wchan") as f:
                return f.read() == "unix_wait_for_peer"
        wait_for("the reader is waiting for the queue", connects)
    finally:
        os.kill(pid, signal.SIGCONT)
        for f in fillers:
            f.close()
    said = r.line()
    equal((r.end(), said[0]["count"]), (0, 100), "exit status and count")
