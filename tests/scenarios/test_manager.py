# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon while PID 1, the bus or the machine starts again."""

import contextlib
import ctypes
import os

import scenario
from scenario import (Client, Server, attach, check, daemon_is_well, equal, expect_total, kill_qosd, load, qosctl,
                      qosd_pid, run, snapshot, start_served, systemctl, test, unit_property, varlink, wait_for)
from test_daemon import bpf_list, descriptors_of, libc


@test(own_daemon=True)
def manager_reexecuted():
    """daemon-reexec and daemon-reload of PID 1 under load lose no request, and changes of units are noticed
    afterwards."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    systemctl("daemon-reexec")
    systemctl("daemon-reload")
    wait_for("PID 1 is back",
             lambda: systemctl("is-system-running", ok=False).stdout.strip() in ("running", "degraded"))
    r = c.stop()
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, r["answered"])
    s.stop()
    wait_for("the unit is shown inactive", lambda: snapshot(s)["activeState"] == "inactive")
    s.start()
    wait_for("the unit is shown active", lambda: snapshot(s)["activeState"] == "active")
    load(s, connections=4, number=100)
    expect_total(s, r["answered"] + 100)
    late = Server(mode="thread")
    attach(late)
    late.start()
    load(late, connections=1, number=1)
    expect_total(late, 1)
    daemon_is_well()


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


@contextlib.contextmanager
def manager_stopped():
    """Runs its body while PID 1 is stopped by ptrace(), as signals do not stop it."""
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    equal(libc.ptrace(PTRACE_SEIZE, 1, None, None), 0, "ptrace(PTRACE_SEIZE) of PID 1")
    try:
        equal(libc.ptrace(PTRACE_INTERRUPT, 1, None, None), 0, "ptrace(PTRACE_INTERRUPT) of PID 1")
        os.waitpid(1, WALL)
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, 1, None, None)


def links_of(name, pid):
    """Returns the number of links of a program of qosd: how often it runs per event."""
    ids = {p["id"] for p in bpf_list("prog") if p.get("name") == name[:15]}
    held = descriptors_of([pid, 1])["link"]
    return sum(l["id"] in held and l.get("prog_id") in ids for l in bpf_list("link"))


@test(own_daemon=True)
def unloaded_and_loaded_while_the_manager_is_stopped():
    """Programs of a probe stay in the descriptor store until PID 1 has processed their removal. A unit that is attached
    meanwhile uses them, and does not load them once more, which would count twice."""
    s = Server(mode="thread")
    attach(s, "--probes=requests")
    pid = qosd_pid()
    u = Server(mode="thread")
    u.start()
    group = unit_property(u.name, "ControlGroup")
    # The programs of a unit that has just been detached may still be in the descriptor store
    wait_for("nothing of cpu is left", lambda: links_of("cpu_switch", pid) == 0)
    # The path of the control group, and not the name of the unit: an attach by path sends no request to PID 1
    qosctl("attach", group, "--probes=requests,cpu")
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch")
    with manager_stopped():
        for _ in range(3):
            qosctl("detach", group)
            qosctl("attach", group, "--probes=requests,cpu")
            equal(links_of("cpu_switch", pid), 1, "links of cpu_switch while PID 1 is stopped")
    systemctl("daemon-reload")
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch when PID 1 has processed everything")

    # After a crash qosd has the programs from the descriptor store
    pid = kill_qosd()
    equal(links_of("cpu_switch", pid), 1, "links of cpu_switch after a crash")
    qosctl("detach", group)
    wait_for("the programs of cpu are gone", lambda: links_of("cpu_switch", pid) == 0)
    daemon_is_well()


@test(own_daemon=True, deadline=90)
def bus_restarted():
    """When the bus daemon is restarted under load, qosd goes on counting, reconnects, and notices changes of units."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    try:
        # systemctl connects to PID 1 directly, without the bus
        run("systemctl", "restart", "dbus.service", timeout=30)
        wait_for("qosd is on the bus again",
                 lambda: run("busctl", "call", "org.qosd1", "/org/qosd1", "org.freedesktop.DBus.Peer", "Ping",
                             ok=False).returncode == 0, 20, pause=0.2)
        wait_for("PID 1 is on the bus",
                 lambda: run("busctl", "status", "org.freedesktop.systemd1", ok=False).returncode == 0, 20)
        r = c.stop()
        equal(qosd_pid(), pid, "process of qosd")
        expect_total(s, r["answered"])
        s.stop()
        wait_for("the unit is shown inactive", lambda: snapshot(s)["activeState"] == "inactive", 10)
        s.start()
        load(s, connections=1, number=1)
        expect_total(s, r["answered"] + 1)
        wait_for("the unit is shown active", lambda: snapshot(s)["activeState"] == "active", 10)
        late = Server(mode="thread").start()
        attach(late)
        load(late, connections=4, number=100)
        expect_total(late, 100)
        run("busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "GetUnit", "s", s.name)
        daemon_is_well()
    finally:
        # Other services do not survive the restart of the bus
        run("systemctl", "reset-failed", ok=False)
        run("systemctl", "restart", "systemd-logind.service", ok=False, timeout=30)
        run("systemctl", "try-restart", "polkit.service", ok=False, timeout=30)


@test(own_daemon=True)
def accounting_and_filters_of_the_manager():
    """IPAccounting= and IPAddressDeny= of an attached unit work as for a twin that is not attached, also after a
    daemon-reload, and qosd's counts are right."""
    settings = "IPAccounting=yes\nIPAddressDeny=any\nIPAddressAllow=::1\n"
    s, twin = (Server(address="::", mode="thread", settings=settings).start() for _ in range(2))

    def bytes_in(unit):
        # systemd 257 has no data after a daemon-reload, with or without qosd
        value = unit_property(unit.name, "IPIngressBytes")
        return int(value) if value.isdigit() else None

    def speaks(address, answered, number=1):
        """Sends requests to both units, and checks that PID 1 counts the same for both. Returns whether it has
        counted."""
        before = [bytes_in(u) for u in (s, twin)]
        for u in (s, twin):
            r = load(u, expect_all=False, address=address, connections=min(number, 4), number=number, timeout_ms=300)
            equal(r["answered"], answered, f"responses to {address} of {u.name}")
        after = [bytes_in(u) for u in (s, twin)]
        equal([a is None for a in after], [after[0] is None] * 2, "whether PID 1 has data")
        if None not in before + after:
            mine, its = (a - b for a, b in zip(after, before))
            # A request of 64 bytes, and the headers of TCP (with timestamps) and IP; acknowledgements may be in the
            # same segment
            least = answered * (64 + 32 + (40 if ":" in address else 20))
            check(mine >= least and abs(mine - its) <= 0.2 * its + 500,
                  f"PID 1 counts {mine} bytes in for {number} requests, and {its} for the twin")
            return True
        return False

    speaks("127.0.0.1", 0)
    check(speaks("::1", 500, 500), "PID 1 has counted nothing to compare with")
    attach(s)
    check(speaks("::1", 500, 500), "PID 1 counts nothing of an attached unit")
    speaks("127.0.0.1", 0)
    expect_total(s, 500)
    systemctl("daemon-reload")
    speaks("127.0.0.1", 0)
    speaks("::1", 500, 500)
    expect_total(s, 1000)
    for u in (s, twin):
        systemctl("set-property", "--runtime", u.name, "IPAddressAllow=127.0.0.1")
    speaks("127.0.0.1", 100, 100)
    speaks("::1", 100, 100)
    expect_total(s, 1200)
    for u in (s, twin):
        systemctl("set-property", "--runtime", u.name, "IPAddressAllow=")
    speaks("127.0.0.1", 0)
    speaks("::1", 0)
    qosctl("detach", s.name)
    speaks("127.0.0.1", 0)
    speaks("::1", 0)


@test(own_daemon=True)
def reloaded_under_load():
    """systemctl reload of qosd reads its configuration, and no request is lost."""
    s = start_served(mode="prefork")
    pid = qosd_pid()
    c = Client(s, connections=8, duration_ms=60000, think_us=1000)
    os.makedirs(scenario.QOSD_CONF_DIR, exist_ok=True)
    path = os.path.join(scenario.QOSD_CONF_DIR, "98-reload.conf")
    with open(path, "w") as f:
        f.write("[QoS]\nDefaultWindow=2s\n")
    try:
        systemctl("reload", "qosd.service")
        equal(varlink("Get", unit=s.name)["window"], 2000000000, "default window")
    finally:
        os.unlink(path)
        systemctl("reload", "qosd.service")
    equal(varlink("Get", unit=s.name)["window"], 10000000000, "default window")
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, c.stop()["answered"])


@test(vm="nightly", needs_vm="the lab installs qosd when the container has booted")
def there_after_boot():
    """qosd, which is enabled, runs after the boot, and the first request of a unit that is attached counts."""
    equal(systemctl("is-enabled", "qosd.service").stdout.strip(), "enabled", "qosd.service")
    equal(unit_property("qosd.service", "ActiveState"), "active", "qosd.service")
    equal(unit_property("qosd.service", "NRestarts"), "0", "restarts of qosd.service")
    s = Server(mode="thread")
    attach(s)
    s.start()
    load(s, connections=1, number=1)
    expect_total(s, 1)
