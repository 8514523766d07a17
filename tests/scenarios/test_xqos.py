# SPDX-License-Identifier: LGPL-2.1-or-later
"""[X-QoS] in unit files: found in each place that systemd reads, applied, and no longer in effect when it is
removed."""

import os
import shutil
import socket
import time

import scenario
from scenario import (Server, Unit, attach, check, equal, expect_total, kill_qosd, listed, load, qosctl, qosctl_json,
                      qosd_pid, run, systemctl, test, unit_name, wait_for, wait_qosd, write_unit)
from test_thresholds import Monitor, states

SLOW = "requests.server.firstByte.p99 > 20ms over 1s for 200ms"


class Instance(Unit):
    """An instance of a template that exists already."""

    def __init__(self, name):
        self.name = name


def drop_in(unit, text, name="50-qos.conf", directory=scenario.UNIT_DIR, of=None):
    d = os.path.join(directory, f"{of or unit.name}.d")
    write_unit(name, text, d)
    return os.path.join(d, name)


def reload():
    systemctl("daemon-reload")


def wait_attached(unit):
    # As scenario.attach(): the first one loads the programs, which takes long on a busy machine
    wait_for("it is attached", lambda: unit.name in listed(), 60)


def holds(unit):
    """Returns the exclusions of each hold of the unit by its type."""
    for u in (v for v in scenario.Varlink().collect("List")):
        if u["unit"] == unit.name:
            return {h["type"]: h.get("exclude", []) for h in u["holds"]}
    return {}


def journal_has(text, since):
    return text in run("journalctl", "-u", "qosd.service", "-o", "cat", "--no-pager", f"--since=@{since}").stdout


@test(vm="nightly", own_daemon=True, deadline=60)
def observed_while_it_stands_there():
    """daemon-reload attaches a unit with the probes, exclusions and thresholds of its section, changes them with it,
    and detaches the unit when the section is removed."""
    s = Server(mode="thread")
    path = drop_in(s, "[X-QoS]\nObserve=requests\nExclude=port:9100 http:/healthz\nThreshold=slow: "
                      f"{SLOW}\nThreshold=busy: requests.server.rate > 1M\n"
                   .replace("1M", "1000000"))
    reload()
    wait_attached(s)
    s.start()
    load(s, connections=1, number=1)
    expect_total(s, 1)
    equal(holds(s), {"unitFile": ["http:/healthz", "port:9100"]}, "holds")
    wait_for("its thresholds are there", lambda: set(states(s)) == {"slow", "busy"})
    origins = {t["name"]: (t["source"], t["origin"]) for t in qosctl_json("list-thresholds", s.name)}
    equal(origins, {"slow": ("unitFile", f"{path}:4"), "busy": ("unitFile", f"{path}:5")}, "source and origin")
    check(qosctl("clear-threshold", s.name, "slow", ok=False).returncode == 1, "a threshold of a unit file was cleared")
    equal(qosctl("detach", s.name, ok=False).stderr,
          f"Failed to detach '{s.name}': '{s.name}' is attached by its unit file '{path}'.\n",
          "standard error of detach")
    check(f"unit file {path}" in qosctl("status", s.name).stdout, "status does not name the file")
    qosctl("attach", s.name)
    equal(qosctl("detach", s.name).stderr, f"'{s.name}' stays attached by its unit file: {path}.\n",
          "standard error of detach")

    # Another drop-in resets and replaces settings
    other = drop_in(s, "[X-QoS]\nThreshold=\nThreshold=slow: requests.server.rate > 5 over 1s\nExclude=\n",
                    name="60-more.conf")
    reload()
    wait_for("the other drop-in is in effect", lambda: set(states(s)) == {"slow"} and holds(s) == {"unitFile": []})
    equal(qosctl_json("list-thresholds", s.name)[0]["origin"], f"{other}:3", "origin")
    # Another daemon-reload keeps the state of an unchanged threshold
    wait_for("it is evaluated", lambda: states(s)["slow"] != "unknown")
    before = qosctl_json("list-thresholds", s.name)[0]["since"]
    reload()
    qosctl("wait", s.name, "requests.server.connections.open < 1 over 1s for 500ms", "--timeout=10s")
    equal(qosctl_json("list-thresholds", s.name)[0]["since"], before, "since when")

    # A unit with another hold remains attached without the section
    attach(s)
    shutil.rmtree(os.path.dirname(path))
    reload()
    wait_for("only the administrator's hold remains", lambda: set(holds(s)) == {"administrator"} and states(s) == {})
    expect_total(s, 1)
    qosctl("detach", s.name)
    drop_in(s, "[X-QoS]\nObserve=requests\n")
    reload()
    wait_for("it is attached again", lambda: s.name in listed())
    shutil.rmtree(os.path.dirname(path))
    reload()
    wait_for("it is detached", lambda: s.name not in listed())


@test(own_daemon=True, deadline=60)
def restarts():
    """Holds and thresholds of unit files survive a crash and a restart of qosd without an event. Files that changed
    meanwhile are noticed."""
    s = Server(mode="thread")
    path = drop_in(s, "[X-QoS]\nObserve=requests\nThreshold=idle: requests.server.rate < 5 over 1s\n")
    reload()
    wait_attached(s)
    s.start()
    load(s, connections=4, number=200)
    wait_for("it is violated", lambda: states(s).get("idle") == "violated")
    with Monitor(s) as m:
        seq = m.first["seq"]
    before = qosctl_json("list-thresholds", s.name)[0]
    kill_qosd()
    pid = qosd_pid()
    systemctl("restart", "qosd.service")
    wait_qosd(pid)
    after = qosctl_json("list-thresholds", s.name)[0]
    equal((after["state"], after["since"], after["origin"]), (before["state"], before["since"], before["origin"]),
          "the threshold")
    expect_total(s, 200)
    with Monitor(s, since=seq) as m:
        equal(m.first, {"seq": seq}, "events")
    # A stop and start of qosd sets the thresholds of the files anew
    scenario.fresh_qosd()
    wait_attached(s)
    wait_for("it is violated", lambda: states(s).get("idle") == "violated")
    # A sequence number from before the stop is no position to continue from
    with Monitor(s, since=seq) as m:
        check(m.first["seq"] > seq and m.first["thresholds"] and "missedEvents" not in m.first,
              f"first reply: {m.first}")
    # The section is removed while qosd does not run
    os.unlink(path)
    reload()
    kill_qosd()
    wait_for("it is detached", lambda: s.name not in listed())


@test(own_daemon=True)
def line_that_is_no_text():
    """A line that is not UTF-8 is logged with its file and line, the others are in effect, and attached units survive a
    crash."""
    s, other = Server(mode="thread").start(), Server(mode="thread").start()
    began = time.time()
    path = drop_in(s, "[X-QoS]\nThreshold=good: requests.server.rate < 5 over 1s\n")
    with open(path, "ab") as f:
        f.write(b"Threshold=x: requests.server[/run/caf\xe9.sock].latency.p99 > 1ms\n")
    reload()
    wait_attached(s)
    equal(set(states(s)), {"good"}, "thresholds")
    wait_for("it is logged", lambda: journal_has(f"{path}:3: not UTF-8 text", began))
    attach(other)
    check(not journal_has("will forget", began), "attached units are not saved")
    kill_qosd()
    check({s.name, other.name} <= set(listed()), f"attached: {listed()}")


@test(own_daemon=True, deadline=60)
def wherever_it_stands():
    """The section is read from unit files, from drop-ins in /etc and /run, and from those of aliases, templates and
    name prefixes."""
    own = Server(mode="thread", unit_settings="[X-QoS]\nThreshold=own: requests.server.rate > 5\n[Unit]")
    aliased = Server(mode="thread")
    alias = unit_name("alias")
    os.symlink(os.path.join(scenario.UNIT_DIR, aliased.name), os.path.join(scenario.UNIT_DIR, alias))
    drop_in(aliased, "[X-QoS]\nThreshold=alias: requests.server.rate > 5\n", of=alias)
    template = unit_name("template", "@.service")
    write_unit(template, "[Service]\nExecStart=sleep infinity\n[X-QoS]\nThreshold=template: requests.server.rate > 5\n")
    instance = template.replace("@.", "@one.")
    prefixed = Server(mode="thread")
    stem = prefixed.name[:prefixed.name.index("-") + 1] + ".service"
    etc = drop_in(prefixed, "[X-QoS]\nThreshold=etc: requests.server.rate > 5\n", directory="/etc/systemd/system")
    try:
        reload()
        systemctl("start", instance)
        reload()

        def thresholds():
            return {t["unit"]: t["name"] for t in qosctl_json("list-thresholds")}
        wait_for("all are found", lambda: thresholds() == {own.name: "own", aliased.name: "alias", instance: "template",
                                                           prefixed.name: "etc"}, 10)
        # A drop-in for a name prefix is in effect for units that are loaded
        drop_in(prefixed, "[X-QoS]\nThreshold=prefix: requests.server.rate > 5\n", of=stem)
        own.start()
        reload()
        wait_for("the prefix is in effect", lambda: {"own", "prefix"} == set(states(own)))
        # A unit with files of its own remains attached when the service manager has unloaded it, others do not
        other = Server(mode="thread").start()
        wait_attached(other)
        for s in (own, other):
            s.stop()
            wait_for("it is unloaded",
                     lambda: not run("systemctl", "list-units", "--all", "--plain", "--no-legend", s.name).stdout)
        wait_for("the other one is detached", lambda: other.name not in listed())
        equal(set(states(own)), {"own", "prefix"}, "thresholds of an unloaded unit")
        os.unlink(os.path.join(scenario.UNIT_DIR, f"{stem}.d", "50-qos.conf"))
        # The files of a masked unit are not read, as systemd does not read them
        shutil.rmtree(os.path.dirname(etc))
        systemctl("mask", "--runtime", prefixed.name, ok=False)
        reload()
        wait_for("only the section of the unit file remains",
                 lambda: prefixed.name not in listed() and set(states(own)) == {"own"})
    finally:
        shutil.rmtree(os.path.dirname(etc), ignore_errors=True)
        systemctl("stop", instance)
        os.unlink(os.path.join(scenario.UNIT_DIR, alias))
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, alias + ".d"))
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, stem + ".d"), ignore_errors=True)


@test(own_daemon=True, deadline=60)
def when_it_is_loaded():
    """An instance of a template is attached while it is loaded. daemon-reload updates its thresholds, and does not
    attach it anew."""
    template = unit_name("template", "@.service")
    port = scenario.unused_port()

    def write(name):
        write_unit(template, f"[Service]\nType=notify\nExecStart={scenario.server_command(mode='thread')} --port %i\n"
                   f"[X-QoS]\nObserve=requests\nThreshold={name}: requests.server.rate > 1000000 over 1s\n")
    write("before")
    instance = Instance(template.replace("@.", f"@{port}."))
    reload()
    check(instance.name not in listed(), "it is attached before it is loaded")
    for number in (10, 20):
        # The service manager unloads a stopped instance, unless a client refers to it at that moment
        wait_for("it is detached", lambda: instance.name not in listed())
        systemctl("start", instance.name)
        wait_attached(instance)
        wait_for("it has thresholds", lambda: states(instance))
        load(port, connections=2, number=number)
        expect_total(instance, number)
        equal(set(holds(instance)), {"unitFile"}, "holds")
        since = scenario.snapshot(instance)["attachedSince"]
        write(f"after{number}")
        reload()
        wait_for("the new section is in effect", lambda: set(states(instance)) == {f"after{number}"})
        load(port, connections=2, number=5)
        expect_total(instance, number + 5)
        equal(scenario.snapshot(instance)["attachedSince"], since, "attachedSince")
        systemctl("stop", instance.name)
    wait_for("it is detached", lambda: instance.name not in listed())


@test(own_daemon=True, deadline=60)
def invalid_settings_are_logged():
    """Invalid settings are logged with file, line and what is expected. The others are in effect."""
    s = Server(mode="thread")
    since = int(time.time())
    path = drop_in(s, "[Service]\nNice=1\n[X-QoS]\nObserve=requests nonsense\nExclude=port:x "
                      "port:9100\nThreshold=slow: requests.server.rate > 5ms\n"
                   "Nonsense=1\nThreshold=good: \\\n# a comment\nrequests.server.rate > "
                   "5\nwithout\n[X-Other]\nThreshold=other\n")
    reload()
    wait_attached(s)
    wait_for("the valid threshold is set", lambda: set(states(s)) == {"good"})
    equal(holds(s), {"unitFile": ["port:9100"]}, "holds")
    lines = (f"{path}:4: Observe= expects probes ('requests', 'tls', 'cpu', 'block', 'memory', 'storage', 'network', "
             "'custom:NAME'), or 'no', got 'nonsense'",
             f"{path}:5: Exclude= expects exclusions like 'port:9100'",
             f"{path}:6: threshold 'slow: requests.server.rate > 5ms': expected a rate like",
             f"{path}:7: there is no setting 'Nonsense' in [X-QoS], expected Observe=, Exclude=, Threshold=, "
             "OnViolated= or OnCleared=",
             f"{path}:11: expected 'Name=value' in [X-QoS], got 'without'")
    for line in lines:
        wait_for(f"the journal has: {line}", lambda: journal_has(line, since))
    check(not journal_has("'other'", since), "another section was read")
    r = qosctl("verify", s.name, ok=False)
    equal(r.returncode, 1, "exit status of verify")
    for line in lines:
        check(line in r.stderr, f"verify does not say: {line}")
    equal(qosctl_json("list-thresholds", s.name)[0]["origin"], f"{path}:8", "origin")
    # A file with a name that is not valid for a unit does not keep other units attached
    stray = "a stray.service"
    write_unit(stray, "[Service]\nExecStart=sleep infinity\n[X-QoS]\nObserve=requests\n")
    try:
        os.unlink(path)
        reload()
        wait_for("it is detached", lambda: s.name not in listed())
        wait_for("the journal has the name", lambda: journal_has(f"'{stray}' has [X-QoS], but is not a unit", since))
    finally:
        os.unlink(os.path.join(scenario.UNIT_DIR, stray))


@test(own_daemon=True, deadline=60)
def enable_and_disable():
    """enable writes a drop-in with the section, and disable removes it."""
    s, others = Server(mode="thread"), []
    path = f"/etc/systemd/system/{s.name}.d/50-qos.conf"
    try:
        qosctl("enable", "--now", s.name.removesuffix(".service"), "--exclude=port:9100")
        check(s.name in listed(), "it is not attached")
        with open(path) as f:
            text = f.read()
            check("[X-QoS]" in text and "After=qosd.service" in text, f"the drop-in: {text}")
        # The service can see by itself whether a threshold of it is violated
        s.start()
        with open(f"/proc/{s.main_pid}/environ", "rb") as f:
            (flag,) = (w.partition(b"=")[2].decode() for w in f.read().split(b"\0") if w.startswith(b"QOS_VIOLATED="))
        check(not os.path.exists(flag), f"{flag} exists before")
        qosctl("set-threshold", s.name, "idle: requests.server.rate < 5 over 1s")
        wait_for("the flag is there", lambda: os.path.exists(flag), 20)
        qosctl("clear-threshold", s.name, "idle")
        wait_for("the flag is gone", lambda: not os.path.exists(flag), 20)
        equal(holds(s), {"unitFile": ["port:9100"]}, "holds")
        # enable also puts other drop-ins into effect, and changes a unit that is already attached
        drop_in(s, "[X-QoS]\nThreshold=more: requests.server.rate > 5\n", name="60-more.conf")
        qosctl("enable", "--now", s.name, "--exclude=port:9200")
        equal((holds(s), set(states(s))), ({"unitFile": ["port:9200"]}, {"more"}), "holds and thresholds")
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, f"{s.name}.d"))
        equal(qosctl_json("disable", s.name), [{"unit": s.name, "file": path}], "output of disable")
        wait_for("it is detached", lambda: s.name not in listed())
        check(not os.path.exists(path), "the file is there")
        check(not os.path.exists(os.path.dirname(path)), "the directory is there")
        equal(qosctl("disable", s.name, ok=False).returncode, 0, "disable of a unit that is not enabled")
        equal(qosctl("enable", "nothing-" + s.name, ok=False).returncode, 4, "enable of an unknown unit")
        for typo in s.name.replace("-unit-", "-untt-"), s.name.replace("-unit-", "-uint-"):
            for verb, *more in ("attach",), ("status",), ("diagnose",
                                                          "--for=1s"), ("enable",), ("set-threshold",
                                                                                     "a: requests.server.rate > 1"):
                r = qosctl(verb, typo, *more, ok=False)
                check(r.returncode == 4 and r.stderr.endswith(f"\nDid you mean '{s.name}'?\n"),
                      f"{verb} of a mistyped unit: {r.stderr}")

        # A word without a type that has a dot is a service, as for all other verbs
        dotted = Unit("sleep infinity", name=unit_name("my.app"), type="exec")
        reload()
        others.append(dotted)
        equal(qosctl_json("enable", "--now", dotted.name.removesuffix(".service"), "--probes=requests,cpu"),
              [{"unit": dotted.name, "file": f"/etc/systemd/system/{dotted.name}.d/50-qos.conf"}], "output of enable")
        check(dotted.name in listed(), "the unit with a dot is not attached")

        # enable fails if another file resets the section, a probe or an exclusion, although the unit is attached
        attach(s)
        drop_in(s, "[X-QoS]\nObserve=\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, ok=False)
        check(r.returncode == 1 and "'[X-QoS]' is not in effect" in r.stderr,
              f"enable with a section that another file resets: {r}")
        drop_in(s, "[X-QoS]\nObserve=\nObserve=requests\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, "--probes=requests,cpu", ok=False)
        check(r.returncode == 1 and "'cpu' is not in effect" in r.stderr,
              f"enable with a probe that another file resets: {r}")
        drop_in(s, "[X-QoS]\nExclude=\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, "--exclude=redis:ping", ok=False)
        check(r.returncode == 1 and "'redis:PING' is not in effect" in r.stderr,
              f"enable with an exclusion that another file resets: {r}")
    finally:
        for unit in [s, *others]:
            shutil.rmtree(f"/etc/systemd/system/{unit.name}.d", ignore_errors=True)
        reload()


def ordered(name):
    return "qosd.service" in scenario.unit_property(name, "After").split()


@test(own_daemon=True, deadline=240)
def ordered_after_qosd():
    """Services with the section are ordered after qosd.service without After=, except for those that qosd may have to
    wait for."""
    section = "[X-QoS]\nObserve=requests\n"
    plain, dropped, template = Server(mode="thread"), Server(mode="thread"), unit_name("made", "@.service")
    drop_in(plain, section)
    drop_in(dropped, section, directory="/etc/systemd/system")
    command = scenario.server_command(port=scenario.unused_port())
    write_unit(template, f"[Service]\nType=notify\nExecStart={command}\n{section}")
    left = {}
    for label, settings in (("none", "DefaultDependencies=no"), ("before", "Before=basic.target"),
                            ("split", "Before= \\\n  multi-user.target sockets.target"),
                            ("off", "DefaultDependencies=0")):
        left[label] = Unit("sleep infinity", name=unit_name(label), type="exec", unit_settings=settings)
        drop_in(left[label], section)
    late = Unit("sleep infinity", name=unit_name("late"), type="exec",
                unit_settings="Before=multi-user.target shutdown.target\nDefaultDependencies=yes")
    drop_in(late, section)
    # DefaultDependencies=no in another drop-in
    special = Unit("sleep infinity", name=unit_name("special"), type="exec")
    drop_in(special, section)
    drop_in(special, "[Unit]\nDefaultDependencies=no\n", name="60-other.conf", directory="/run/systemd/system.control")
    other = Unit("sleep infinity", name=unit_name("other"), type="exec")
    try:
        reload()
        for name in (plain.name, dropped.name, late.name, template.replace("@", "@one")):
            check(ordered(name), f"{name} is not ordered")
        for unit in (*left.values(), special, other):
            check(not ordered(unit.name), f"{unit.name} is ordered")
        check(not any(ordered(u) for u in ("dbus.service", "qosd.service", "basic.target")),
              "a dependency of qosd is ordered after it")

        # As at boot, all units start in one transaction, and the client sends requests as soon as the service has
        # started
        client = Unit(f"{scenario.tools}/client --port={plain.port} --number=7", name=unit_name("asking"),
                      type="oneshot",
                      unit_settings=f"After={plain.name}")
        boot = write_unit(unit_name("boot", ".target"), f"[Unit]\nWants={plain.name} {client.name} qosd.service\n")
        reload()
        systemctl("stop", "qosd.service")
        systemctl("start", boot, timeout=60)
        wait_qosd()
        wait_for("the client has ended", lambda: scenario.unit_property(client.name, "Result") == "success" and
                 int(scenario.unit_property(client.name, "ExecMainExitTimestampMonotonic")) > 0, 30)
        expect_total(plain, 7)

        # A drop-in of qosd.service with After= disables the ordering of all services
        hand = write_unit("99-scenario.conf", f"[Unit]\nAfter={other.name}\n", scenario.QOSD_DROP_IN_DIR)
        reload()
        check(not ordered(plain.name) and not ordered(late.name),
              "it is ordered although qosd.service has its own order")
        os.unlink(os.path.join(scenario.QOSD_DROP_IN_DIR, hand))
        # So does one for all services. It names a unit that does not exist, which delays none of them
        reload()
        check(ordered(plain.name), "it is not ordered without other drop-ins")
        general = write_unit("99-scenario.conf", "[Unit]\nAfter=qosd-scenario-nowhere.service\n",
                             os.path.join(scenario.UNIT_DIR, "service.d"))
        reload()
        check(not ordered(plain.name) and not ordered(late.name), "it is ordered although all services have an order")
        os.unlink(os.path.join(scenario.UNIT_DIR, "service.d", general))
        drop_in(other, "[Unit]\nBefore=foo.service  qosd.service\n")
        reload()
        check(not ordered(plain.name) and not ordered(late.name), "it is ordered although others are before qosd")
    finally:
        for path in (f"/etc/systemd/system/{dropped.name}.d", f"/run/systemd/system.control/{special.name}.d"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (f"{scenario.QOSD_DROP_IN_DIR}/99-scenario.conf",
                     f"{scenario.UNIT_DIR}/service.d/99-scenario.conf"):
            if os.path.exists(path):
                os.unlink(path)
        reload()


class Started:
    """A template for OnViolated= and OnCleared=, which writes to a file what it was started for."""

    def __init__(self, s, settings=""):
        self.log = f"/run/{unit_name('started')}"
        self.name = unit_name("starts").replace(".service", "")
        with open(self.log, "w", encoding="utf-8"):
            pass
        for event in "violated", "cleared":
            write_unit(f"{self.name}-{event}@.service",
                       "[Service]\nType=oneshot\n" f"ExecStart=/bin/sh -c 'echo {event} %i >> {self.log}'\n{settings}",
                       scenario.UNIT_DIR)
        self.section = f"OnViolated={self.name}-violated@%n.service\nOnCleared={self.name}-cleared@%p.service\n"
        self.violated, self.cleared = f"violated {s.name}", f"cleared {s.name.removesuffix('.service')}"

    def lines(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read().splitlines()

    def expect(self, *lines, timeout=15):
        wait_for(f"the units that were started are {lines}", lambda: self.lines() == list(lines), timeout)


class Connections:
    """Idle connections, the number of which is over a threshold or not."""

    def __init__(self, s):
        self.sockets = [socket.create_connection(("127.0.0.1", s.port), timeout=10) for _ in range(3)]

    def close(self):
        for s in self.sockets:
            s.close()


MANY = "requests.server.connections.open > 2 over 1s for 200ms"
ACTIONS = "/run/qosd/actions"


@test(deadline=90)
def starts_units():
    """OnViolated= is started when a threshold of the file is violated, OnCleared= when the last one is no longer: not
    for thresholds of clients, and once for each change."""
    s = Server(mode="thread")
    started = Started(s)
    drop_in(s, f"[X-QoS]\nThreshold=many: {MANY}\n{started.section}")
    reload()
    s.start()
    wait_attached(s)
    wait_for("the threshold is there", lambda: states(s) == {"many": "ok"})
    c = Connections(s)
    started.expect(started.violated)
    # A client's threshold is violated, and cleared, while that of the file is violated
    qosctl("set-threshold", s.name, "one: requests.server.connections.open > 1 over 1s")
    wait_for("the other one is violated", lambda: states(s)["one"] == "violated")
    qosctl("clear-threshold", s.name, "one")
    c.close()
    started.expect(started.violated, started.cleared)
    # and while it is not
    c = socket.create_connection(("127.0.0.1", s.port), timeout=10)
    qosctl("set-threshold", s.name, "one: requests.server.connections.open > 0 over 1s")
    wait_for("the other one is violated", lambda: states(s) == {"many": "ok", "one": "violated"})
    c.close()
    wait_for("the other one is ok", lambda: states(s) == {"many": "ok", "one": "ok"})
    c = Connections(s)
    started.expect(started.violated, started.cleared, started.violated)
    # Two thresholds: cleared with the last one
    drop_in(s, "[X-QoS]\nThreshold=all: requests.server.connections.open < 1000 over 1s\n", name="60-more.conf")
    reload()
    wait_for("both are violated", lambda: states(s).get("all") == states(s).get("many") == "violated")
    started.expect(started.violated, started.cleared, started.violated, started.violated)
    c.close()
    wait_for("one is violated", lambda: (states(s)["all"], states(s)["many"]) == ("violated", "ok"))
    os.unlink(f"{scenario.UNIT_DIR}/{s.name}.d/60-more.conf")
    reload()
    started.expect(started.violated, started.cleared, started.violated, started.violated, started.cleared)


@test(own_daemon=True, deadline=90)
def starts_units_of_the_file_alone():
    """What receives the events starts nothing but what the file of the unit names, takes them from root and qosd alone,
    and nothing is lost while it is not there."""
    since = time.time()
    s, other = Server(mode="thread"), Server(mode="thread")
    started = Started(s)
    drop_in(s, f"[X-QoS]\nThreshold=many: {MANY}\n{started.section}")
    reload()
    s.start()
    wait_attached(s)
    wait_for("the threshold is there", lambda: states(s) == {"many": "ok"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as root:
        root.connect(ACTIONS)
        for message in (f"violated {other.name}", "violated", f"started {other.name}", "violated ../x",
                        f"violated {other.name}\nx", "", "x" * 1000):
            root.send(message.encode())
        root.send(f"cleared {s.name}".encode())
    started.expect(started.cleared)
    equal(scenario.unit_property(other.name, "ActiveState"), "inactive", "state of a unit that no file names")
    wait_for("the messages are in the journal",
             lambda: run("journalctl", "-u", "qosd-actions.service", "-o", "cat", f"--since=@{since}")
             .stdout.count("Received a message that is not of qosd") == 6)
    r = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-c",
            f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'violated {s.name}', "
            f"'{ACTIONS}')", ok=False)
    check("PermissionError" in r.stderr, f"another user: {r}")

    systemctl("stop", "qosd-actions.socket", "qosd-actions.service")
    c = Connections(s)
    wait_for("it is violated", lambda: states(s) == {"many": "violated"})
    wait_for("the journal says so", lambda: journal_has("is qosd-actions.socket active?", since))
    systemctl("start", "qosd-actions.socket")
    started.expect(started.cleared, started.violated)
    # A restart of qosd is no change
    pid = qosd_pid()
    kill_qosd()
    wait_qosd(pid)
    wait_for("it is violated", lambda: states(s) == {"many": "violated"})
    c.close()
    started.expect(started.cleared, started.violated, started.cleared)


@test(deadline=200)
def starts_units_so_often():
    """A threshold that flaps starts units five times a minute; a violation that lasts starts them when the minute is
    over."""
    since = time.time()
    s = Server(mode="thread")
    started = Started(s, "[Unit]\nStartLimitIntervalSec=0\n")
    drop_in(s, f"[X-QoS]\nThreshold=many: {MANY}\n{started.section}")
    reload()
    s.start()
    wait_attached(s)
    wait_for("the threshold is there", lambda: states(s) == {"many": "ok"})
    for i in range(5):
        c = Connections(s)
        started.expect(*[started.violated, started.cleared] * i, started.violated)
        c.close()
        started.expect(*[started.violated, started.cleared] * (i + 1))
    # One that ends before: neither start
    c = Connections(s)
    wait_for("it is violated", lambda: states(s) == {"many": "violated"})
    wait_for("the journal says so",
             lambda: journal_has(f"Thresholds of '{s.name}' were violated more than 5 times in 60 s", since))
    c.close()
    wait_for("it is ok", lambda: states(s) == {"many": "ok"})
    c = Connections(s)
    wait_for("it is violated", lambda: states(s) == {"many": "violated"})
    equal(started.lines(), [started.violated, started.cleared] * 5, "units that were started")
    started.expect(*[started.violated, started.cleared] * 5, started.violated, timeout=90)
    c.close()
    started.expect(*[started.violated, started.cleared] * 6)
