# SPDX-License-Identifier: LGPL-2.1-or-later
"""Invalid input is refused with an error that names the reason, attaches no unit, and does not harm the daemon."""

import os

import scenario
from scenario import (DBUS_ERROR, Server, Varlink, VarlinkError, check, daemon_is_well, dbus_attach_error, dbus_error,
                      equal, expect_total, listed, load, qosctl, qosd_pid, run, start_served, systemctl, test,
                      unit_name, varlink, varlink_error, write_unit)

NAME_MAX = 255          # systemd's UNIT_NAME_MAX is 256 with the NUL

INVALID_PARAMETER = "org.varlink.service.InvalidParameter"


def refused_everywhere(name, want, exit_statuses=(1,)):
    """Checks that varlink, D-Bus and qosctl refuse a name with the same error. Returns the message of qosctl."""
    equal(varlink_error("Attach", unit=name), want, f"varlink error for {name!r}")
    equal(dbus_attach_error(name), DBUS_ERROR + want, f"D-Bus error for {name!r}")
    r = qosctl("attach", "--", name, ok=False)
    check(r.returncode in exit_statuses, f"qosctl attach {name!r}: exit status {r.returncode}")
    check(r.stderr.strip(), f"qosctl attach {name!r} fails silently")
    return r.stderr


def unchanged(function):
    """Decorates a test, to check that the same daemon runs afterwards, and that no unit is attached."""
    def wrapper():
        pid, before = qosd_pid(), set(listed())
        function()
        equal(qosd_pid(), pid, "process of qosd")
        daemon_is_well()
        new = {n for n in set(listed()) - before if scenario.prefix in n}
        equal(new, set(), "units that are attached by the test")
    wrapper.__name__, wrapper.__module__ = function.__name__, function.__module__
    return wrapper


@test()
@unchanged
def no_such_unit():
    refused_everywhere(f"{scenario.prefix}-nothing.service", "NoSuchUnit", (1, 4))
    refused_everywhere(f"{scenario.prefix}-nothing", "NoSuchUnit", (1, 4))
    refused_everywhere("/system.slice/no-such-thing.service", "NoSuchUnit", (1, 4))
    # A valid name of the maximum length
    refused_everywhere("a" * (NAME_MAX - 8) + ".service", "NoSuchUnit", (1, 4))


@test()
@unchanged
def units_without_control_group():
    refused_everywhere("basic.target", "NoControlGroup")
    refused_everywhere("systemd-tmpfiles-clean.timer", "NoControlGroup")
    path = write_unit(unit_name("path", ".path"), "[Path]\nPathExists=/nonexistent\nUnit=basic.target\n")
    refused_everywhere(path, "NoControlGroup")
    device = systemctl("list-units", "--type=device", "--plain", "--no-legend").stdout.split()
    if device:
        refused_everywhere(device[0], "NoControlGroup")


@test()
@unchanged
def shells_of_others():
    """The error for a template, or for a service that is "active (exited)" beside one, names the instance to attach
    instead."""
    name = unit_name("pg", "")
    write_unit(name + "@.service", "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n")
    write_unit(name + ".service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n")
    systemctl("start", f"{name}@main.service", f"{name}.service")
    said = refused_everywhere(name + ".service", "NoControlGroup")
    check(f"{name}@main.service" in said, f"the instance is not named: {said}")
    equal(varlink_error("Attach", unit=name + "@.service") in ("InvalidUnitName", "NoSuchUnit", "NoControlGroup"), True,
          "typed error for a template")
    r = qosctl("attach", name + "@.service", ok=False)
    check(r.returncode != 0, "a template was attached")
    check(f"{name}@main.service" in r.stderr, f"the instance is not named: {r.stderr}")


@test()
@unchanged
def invalid_names():
    for name in ("../x.service", "../../etc/passwd", "x/../y.service", "foo/bar.service", "x y.service",
                 "x\ny.service", "\x01.service", "ü.service", "%n.service", ".service", "@.service",
                 "a" * (NAME_MAX - 7) + ".service", "a" * 100000, "x.nosuchtype/..", "", ":"):
        error = varlink_error("Attach", unit=name)
        check(error in ("InvalidUnitName", "NoSuchUnit"), f"{name[:40]!r}: {error}")
        if "/" in name or len(name) > NAME_MAX or name == "":
            equal(error, "InvalidUnitName", f"error for {name[:40]!r}")
        for method in ("Detach", "Get"):
            error = varlink_error(method, unit=name)
            check(error in ("InvalidUnitName", "NoSuchUnit" if method == "Get" else "NotAttached"),
                  f"{method} {name[:40]!r}: {error}")
        if len(name) < 1000 and "\x01" not in name:
            error = dbus_attach_error(name)
            check(error in (DBUS_ERROR + "InvalidUnitName", DBUS_ERROR + "NoSuchUnit"), f"{name[:40]!r}: {error}")
            check(qosctl("attach", "--", name, ok=False).returncode in (1, 2, 4), f"qosctl attach {name[:40]!r}")


@test()
@unchanged
def invalid_paths():
    for path in ("/", "//", "/..", "/../..", "/system.slice/..", "/system.slice/../../../etc", "/system.slice/./x",
                 "/system.slice/", "/" + "a" * 5000, "/system.slice/\x01"):
        error = varlink_error("Attach", unit=path)
        check(error in ("InvalidUnitName", "NoSuchUnit", "NoControlGroup"), f"{path[:40]!r}: {error}")


@test()
@unchanged
def unknown_probes():
    s = Server()
    equal(varlink_error("Attach", unit=s.name, probes=["nonsense"]), "NoSuchProbe", "error")
    equal(varlink_error("Attach", unit=s.name, probes=["requests", "nonsense"]), "NoSuchProbe", "error")
    equal(varlink_error("Attach", unit=s.name, probes=["requests", ""]), "NoSuchProbe", "error")
    equal(varlink_error("Attach", unit=s.name, probes=["x" * 70000]), "NoSuchProbe", "error")
    equal(dbus_attach_error(s.name, "nonsense"), DBUS_ERROR + "NoSuchProbe", "D-Bus error")
    r = qosctl("attach", "--probes=nonsense", s.name, ok=False)
    check(r.returncode in (1, 2) and "nonsense" in r.stderr, f"exit status {r.returncode}: {r.stderr}")
    # A probe may be named several times
    varlink("Attach", unit=s.name, probes=["requests"] * 50)
    qosctl("detach", s.name)


@test()
@unchanged
def windows():
    s = start_served()
    load(s, number=20)
    good = [100000000 * n for n in range(1, 11)] + [1000000000 * n for n in range(2, 11)] + [60000000000, 300000000000,
                                                                                             0]
    for window in good:
        r = varlink("Get", unit=s.name, window=window)
        if window:
            equal(r["window"], window, "window")
    for window in (1, 99999999, 150000000, 1100000000, 1500000000, 11000000000, 61000000000, 2 ** 63 - 1, -1,
                   -10000000000):
        equal(varlink_error("Get", unit=s.name, window=window), INVALID_PARAMETER, f"error for a window of {window}")
    for window in ("10s", 1.5, [], True, {}):
        equal(varlink_error("Get", unit=s.name, window=window), INVALID_PARAMETER, f"error for the window {window!r}")
    for window in ("100ms", "0.5s", "1s", "10s", "60s", "1min", "5min", "total"):
        qosctl("status", s.name, f"--window={window}")
    for window in ("", "50ms", "1.1s", "11s", "10min", "yesterday", "-1s", "99999999999999999999s"):
        r = qosctl("status", s.name, f"--window={window}", ok=False)
        check(r.returncode in (1, 2), f"--window={window}: exit status {r.returncode}")
        check(r.stderr.strip(), f"--window={window}: no message")
    for window in (1, 150000000, 1500000000, 2 ** 64 - 2):
        equal(dbus_error("Snapshot", f"string:{s.name}", f"uint64:{window}"), "org.freedesktop.DBus.Error.InvalidArgs",
              f"D-Bus error for a window of {window}")
    qosctl("detach", s.name)


@test()
@unchanged
def numbers_out_of_range():
    s = start_served()
    for duration in (-1, -2 ** 63):
        equal(varlink_error("Attach", unit=s.name, duration=duration), INVALID_PARAMETER,
              f"error for duration {duration}")
    for interval in (-1, 1, 2 ** 63 - 1):
        with Varlink() as v:
            v.send("Subscribe", {"units": [s.name], "interval": interval}, more=True)
            m = v.receive()
            # An interval that is too short may be raised to the minimum, and a negative one has to be refused
            check(m is not None and (m.get("error") == INVALID_PARAMETER or interval > 0), f"interval {interval}: {m}")
    with Varlink() as v:
        # Beyond the range of integers, in valid JSON (libsystemd parses numbers beyond the range of double as null)
        v.send_raw('{"method":"org.qosd.QoS.Get","parameters":'
                   f'{{"unit":"{s.name}","window":1{"0" * 300}}}}}\0'.encode())
        m = v.receive()
        check(m is None or "error" in m, f"a window of 10^300 ns: {m}")
    for arguments in (["--for=-1s"], ["--for=nonsense"], ["--for="]):
        check(qosctl("attach", *arguments, s.name, ok=False).returncode in (1, 2), f"attach {arguments}")
    qosctl("detach", s.name)


@test()
@unchanged
def missing_and_surplus_parameters():
    s = start_served()
    for method, parameters in (("Get", {}), ("Attach", {}), ("Detach", {}), ("Histogram", {}),
                               ("Histogram", {"unit": s.name}),
                               ("Get", {"unit": None}), ("Get", {"unit": 5}), ("Get", {"unit": [s.name]}),
                               ("Get", {"unit": s.name, "surplus": 1}), ("Get", {"unit": s.name, "Window": 1000000000}),
                               ("Attach", {"unit": s.name, "probes": "requests"}),
                               ("Attach", {"unit": s.name, "probes": [5]}),
                               ("Attach", {"unit": s.name, "lease": "yes"})):
        equal(varlink_error(method, **parameters), INVALID_PARAMETER, f"error of {method} {parameters}")
    equal(varlink_error("Histogram", unit=s.name, metric="requests.server.count"), "NoSuchMetric", "error")
    equal(varlink_error("Histogram", unit=s.name, metric="nonsense"), "NoSuchMetric", "error")
    for method in ("List", "Subscribe", "ListMetrics", "Probes"):
        equal(varlink_error(method), "org.varlink.service.ExpectedMore", f"error of {method} without \"more\"")
    equal(varlink_error("Nonsense"), "org.varlink.service.MethodNotFound", "error of an unknown method")
    with Varlink() as v:
        v.send("org.example.nothing.Get", {})
        try:
            v.reply()
            scenario.fail("a call of an unknown interface had no error")
        except VarlinkError as e:
            check(e.name.startswith("org.varlink.service."), e.name)
    for arguments in ((), ("string:x", "string:y", "string:z"), ("uint32:5",)):
        error = dbus_error("AttachUnit", *arguments)
        check(error in ("org.freedesktop.DBus.Error.InvalidArgs", "org.freedesktop.DBus.Error.UnknownMethod"), error)
    qosctl("detach", s.name)


@test()
@unchanged
def not_attached():
    s = Server(mode="thread").start()
    for method in ("Get", "Detach"):
        equal(varlink_error(method, unit=s.name), "NotAttached", f"error of {method}")
    equal(varlink_error("Histogram", unit=s.name, metric="requests.server.latency"), "NotAttached",
          "error of Histogram")
    equal(dbus_error("DetachUnit", f"string:{s.name}", "boolean:false"), DBUS_ERROR + "NotAttached",
          "D-Bus error of DetachUnit")
    equal(dbus_error("GetUnit", f"string:{s.name}"), DBUS_ERROR + "NotAttached", "D-Bus error of GetUnit")
    equal(dbus_error("Snapshot", f"string:{s.name}", "uint64:10000000000"), DBUS_ERROR + "NotAttached",
          "D-Bus error of Snapshot")
    for name in "no-such-unit-at-all", "template@.service", "/no/such/group":
        for method in ("Get", "Mark", "History"):
            equal(varlink_error(method, unit=name), "NoSuchUnit", f"error of {method} of {name}")
        equal(varlink_error("Histogram", unit=name, metric="requests.server.latency"), "NoSuchUnit",
              f"error of Histogram of {name}")
        for method in ("List", "ListThresholds", "Export"):
            with scenario.Varlink() as v:
                v.send(method, {"unit": name}, more=True)
                equal(v.receive().get("error"), scenario.VARLINK + "NoSuchUnit", f"error of {method} of {name}")
        equal(dbus_error("GetUnit", f"string:{name}"), DBUS_ERROR + "NoSuchUnit", f"D-Bus error of GetUnit of {name}")
        equal(dbus_error("Snapshot", f"string:{name}", "uint64:10000000000"), DBUS_ERROR + "NoSuchUnit",
              f"D-Bus error of Snapshot of {name}")
        equal(qosctl("show", name, ok=False).returncode, 4, f"exit status of show of {name}")
    equal(qosctl("status", s.name, ok=False).returncode, 3, "exit status of status")
    check(qosctl("show", s.name, ok=False).returncode in (1, 3), "exit status of show")
    equal(qosctl("detach", s.name, ok=False).returncode, 1, "exit status of detach")


@test()
@unchanged
def usage():
    for arguments in (["nonsense"], ["--nonsense"], ["attach"], ["detach"], ["status", "--json=nonsense"],
                      ["show"], ["show", "x", "y", "-P"], ["list", "--window"]):
        r = qosctl(*arguments, ok=False)
        equal(r.returncode, 2, f"exit status of qosctl {' '.join(arguments)}")
        check(r.stderr.strip(), f"qosctl {' '.join(arguments)} has no message")
        check(not r.stdout.strip(), f"qosctl {' '.join(arguments)} writes to standard output")
    equal(qosctl("--version").stdout.split()[1], varlink("GetStatus")["version"], "version")
    check("attach" in qosctl("--help").stdout, "--help does not name the verbs")


@test()
@unchanged
def some_of_several_fail():
    """If some of several units cannot be attached, the others are, and the exit status is 1."""
    s = Server(mode="thread").start()
    r = qosctl("attach", "basic.target", s.name, f"{scenario.prefix}-nothing", ok=False)
    equal(r.returncode, 1, "exit status")
    check("basic.target" in r.stderr and "nothing" in r.stderr, f"not all units that failed are named: {r.stderr}")
    check(s.name in listed(), "the valid unit is not attached")
    qosctl("detach", s.name)


@test(deadline=60)
@unchanged
def garbage():
    """Invalid varlink messages are refused with an error, or end their connection, and other clients are served."""
    s = start_served(mode="thread")
    bystander = Varlink()
    name = s.name.encode()
    get = b'{"method":"org.qosd.QoS.Get","parameters":{"unit":"%s"}}\0'
    for data in (b"\0", b"\0" * 1000, b"garbage\0", b"{}\0", b"[]\0", b"null\0", b"5\0", b'"x"\0', b"{\0", b"}\0",
                 b'{"method":1}\0', b'{"method":null,"parameters":{}}\0', b'{"method":""}\0', b'{"method":"."}\0',
                 b'{"method":"org.qosd.QoS.Get","parameters":[]}\0', b'{"method":"org.qosd.QoS.Get","parameters":7}\0',
                 b'{"method":"org.qosd.QoS.Get","more":"yes","parameters":{"unit":"%s"}}\0' % name,
                 b'{"parameters":{"unit":"%s"}}\0' % name,
                 b'{"error":"org.qosd.QoS.NoSuchUnit"}\0',
                 b"\xff\xfe\xfd\0", b"\x80" * 4096 + b"\0",
                 get % b"\xff\xfe.service", get % (name + b"\xc3"), get % b"a\\u0000b.service", get % b"\\ud800",
                 get % b"\x01\x02", get % (b"x" * 1000000),
                 b'{"method":"org.qosd.QoS.Get","parameters":' + b"[" * 100000 + b"\0",
                 b'{"method":"org.qosd.QoS.Get","parameters":' + b'{"a":' * 50000 + b"\0",
                 b'{"method":"org.qosd.QoS.Get","parameters":{"unit":"%s"},"method":"org.qosd.QoS.Detach"}\0' % name,
                 b'{"method":"org.qosd.QoS.Get","parameters":{"unit":"%s","window":1e300}}\0' % name):
        with Varlink(timeout=5) as v:
            try:
                v.send_raw(data)
            except OSError:
                continue        # disconnected before the end of the data
            try:
                m = v.receive()
                check(m is None or "error" in m, f"{data[:60]!r} has the reply {m}")
            except TimeoutError:
                # Empty messages have no reply
                check(data in (b"\0", b"\0" * 1000), f"{data[:60]!r} has no reply, and the connection is open")
        equal(bystander.call("Get", unit=s.name)["unit"], s.name, f"reply to another client after {data[:60]!r}")
    # The client disconnects within a message
    for n in (1, 20, 60):
        with Varlink() as v:
            v.send_raw((get % name)[:n])
    bystander.close()
    load(s, connections=4, number=100)
    expect_total(s, 100)
    qosctl("detach", s.name)


@test(deadline=60)
@unchanged
def oversized():
    """The client of a message without end is disconnected at a limit, and the memory of the message is freed."""
    s = start_served(mode="thread")
    before = memory(qosd_pid())
    with Varlink(timeout=20) as v:
        sent = 0
        try:
            v.send_raw(b'{"method":"org.qosd.QoS.Get","parameters":{"unit":"')
            while sent < 256 << 20:
                v.send_raw(b"a" * (1 << 20))
                sent += 1 << 20
        except OSError:
            pass
        check(sent <= 32 << 20, f"{sent} bytes of one message were accepted")
    scenario.wait_for("the memory is freed", lambda: memory(qosd_pid()) < before + (8 << 20))
    varlink("Get", unit=s.name)
    qosctl("detach", s.name)


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024


@test()
@unchanged
def configuration_with_errors():
    """Invalid settings in a configuration file are logged and ignored."""
    os.makedirs(scenario.QOSD_CONF_DIR, exist_ok=True)
    path = os.path.join(scenario.QOSD_CONF_DIR, "50-scenario-errors.conf")
    with open(path, "w") as f:
        f.write("[QoS]\nnonsense\nUnitsMax=many\nUnitsMax=0\nUnitsMax=9999999999\nDefaultWindow=17s\nNonsense=5\n"
                "[Nonsense]\nUnitsMax=5\nDefaultProbes=nonsense\n")
    try:
        systemctl("reload", "qosd.service")
        said = run("journalctl", "-u", "qosd.service", "-n", "60", "-o", "cat", "--no-pager").stdout
        check("50-scenario-errors.conf" in said, f"the journal does not name the file: {said[-600:]}")
        equal(varlink("GetStatus")["unitsMax"], 256, "unitsMax")
    finally:
        os.unlink(path)
        systemctl("reload", "qosd.service")
