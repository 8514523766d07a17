# SPDX-License-Identifier: LGPL-2.1-or-later
"""Observe=auto of qosd.conf: units are attached as soon as they listen, and no longer than they exist."""

import contextlib
import os

import scenario
from scenario import (QOSD_CONF_DIR, Server, Unit, Varlink, check, configure_qosd, equal, expect_total, listed, load,
                      patience, qosctl, run,
                      systemctl, test, unit_name, unused_port, varlink, wait_for, write_unit)
from test_activation import Activated, inetd
from test_xqos import drop_in, holds, journal_has, reload

AUTO = "[QoS]\nObserve=auto\n"
PATH = os.path.join(QOSD_CONF_DIR, "99-scenario.conf")
# A check each 5 s, and what comes after it
FOUND = 15


def held(unit):
    return holds(unit) if unit.name in listed() else {}


def wait_held(unit, *types, what=""):
    wait_for(f"{unit.name} is held by {types or 'nobody'}{what}", lambda: set(held(unit)) == set(types),
             FOUND * patience())


@contextlib.contextmanager
def observing(text=AUTO):
    configure_qosd(text)
    try:
        yield
    finally:
        configure_qosd(None)


def write_configuration(text):
    write_unit("99-scenario.conf", text, QOSD_CONF_DIR)
    systemctl("reload", "qosd")


@test(own_daemon=True, deadline=120)
def found_before_and_after():
    """Units that listen when qosd starts, and those that begin to do so later, are attached with the default probes; a
    unit that does not listen is not. Requests count, also over restarts of qosd and of the unit."""
    early, late, silent = Server(mode="thread").start(), Server(mode="thread"), Unit("/bin/sleep infinity",
                                                                                     type="exec").start()
    with observing(AUTO + "DefaultProbes=requests\n"):
        wait_held(early, "configuration")
        load(early, number=7)
        expect_total(early, 7)
        (hold,) = next(u for u in Varlink().collect("List") if u["unit"] == early.name)["holds"]
        equal((hold["type"], hold["owner"], hold["probes"]), ("configuration", PATH, ["requests"]), "hold")
        equal(set(held(late)) | set(held(silent)), set(), "holds of what does not listen")
        late.start()
        wait_held(late, "configuration")
        check(f"Held by: Observe=auto in {PATH}\n" in qosctl("status", late.name).stdout,
              "status does not name the file")
        late.restart()
        load(late, number=3)
        expect_total(late, 3)
        systemctl("restart", "qosd")
        equal(held(late), {"configuration": []}, "holds after a restart of qosd")
        load(late, number=2)
        expect_total(late, 5)

        # One that is stopped may be started again; one that is removed cannot
        late.stop()
        early.stop()
        os.unlink(os.path.join(scenario.UNIT_DIR, early.name))
        reload()
        wait_held(early)
        equal(held(late), {"configuration": []}, "holds of a stopped unit")
    equal(held(late), {}, "holds without Observe=")


@test(own_daemon=True, deadline=120)
def switched_by_a_reload():
    """A reload switches it on and off. What others hold stays, and detach of what the file holds names the file."""
    s = Server(mode="thread").start()
    with observing(None):
        qosctl("attach", s.name)
        since = float(run("date", "+%s.%N").stdout)
        write_configuration(AUTO)
        wait_held(s, "administrator", "configuration")
        equal(qosctl("detach", s.name).stderr, f"'{s.name}' stays attached by Observe=auto: {PATH}.\n",
              "standard error of detach")
        r = qosctl("detach", s.name, ok=False)
        equal((r.returncode, r.stderr),
              (1, f"Failed to detach '{s.name}': '{s.name}' is attached by Observe=auto in '{PATH}', from which "
                  "Observe=no in [X-QoS] of its unit "
               "file excludes it.\n"), "detach")
        n, memory = len(listed()), varlink("GetStatus")["mapMemoryPerUnit"]
        wait_for("the journal says what it costs", lambda: journal_has(
            f" attached by Observe=auto in '{PATH}': at least {n * memory / (1 << 20):.1f}M of memory", since),
                 FOUND * patience())
        write_configuration("[QoS]\nObserve=no\n")
        wait_held(s, what=", as it is switched off")
        write_configuration("[QoS]\nObserve=maybe\n")
        wait_for("the value is rejected",
                 lambda: journal_has("Observe= must be 'auto' or 'no', got 'maybe', ignoring.", since))
        equal(held(s), {}, "holds")


@test(own_daemon=True, deadline=120)
def sockets_and_exclusions():
    """A socket unit stands for the service that it starts, one with Accept=yes for itself. Observe=no in a unit file is
    obeyed, also when it comes later."""
    activated, each, excluded = Activated(), inetd(unit_name("inetd", ""), unused_port()), Server(mode="thread")
    path = drop_in(excluded, "[X-QoS]\nObserve=no\n")
    reload()
    excluded.start()
    activated.open()
    systemctl("start", each)
    with observing():
        wait_held(activated.service, "configuration")
        load(activated.port, number=2)
        expect_total(activated.name, 2)
        wait_for("the socket is attached", lambda: each in listed(), FOUND * patience())
        other = Server(mode="thread").start()
        wait_held(other, "configuration")
        equal(held(excluded), {}, "holds of what is excluded")
        os.unlink(path)
        other_path = drop_in(other, "[X-QoS]\nObserve=no\n")
        reload()
        wait_held(excluded, "configuration")
        wait_held(other)
        os.unlink(other_path)
        reload()
        wait_held(other, "configuration")


@test(own_daemon=True, deadline=120)
def leaves_a_quarter():
    """The last quarter of UnitsMax= is left to others, which the journal says once."""
    servers = [Server(mode="thread", port=unused_port()).start() for _ in range(5)]
    since = float(run("date", "+%s.%N").stdout)
    text = "4 units are attached, and Observe=auto leaves the last quarter of UnitsMax=5 to others"
    with observing(AUTO + "UnitsMax=5\n"):
        wait_for("it is said", lambda: journal_has(text, since), FOUND * patience())
        attached = set(listed())
        equal(len(attached), 4, "units attached")
        rest = next(s for s in servers if s.name not in attached)
        qosctl("attach", rest.name)
        wait_held(rest, "administrator", "configuration")
        # Two more checks
        late = Server(mode="thread").start()
        systemctl("stop", *(s.name for s in servers if s is not rest))
        for s in servers:
            if s is not rest:
                os.unlink(os.path.join(scenario.UNIT_DIR, s.name))
        reload()
        wait_held(late, "configuration")
        equal(run("journalctl", "-u", "qosd.service", "-o", "cat", "--no-pager",
                  f"--since=@{since}").stdout.count(text), 1, "times that it is said")
