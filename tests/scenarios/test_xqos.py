# SPDX-License-Identifier: LGPL-2.1-or-later
"""[X-QoS] in unit files: found wherever it stands, applied, and taken back when it goes."""

import os
import shutil
import time

import scenario
from scenario import (Server, Unit, attach, check, equal, expect_total, kill_qosd, listed, load, qosctl, qosctl_json,
                      qosd_pid, run, systemctl, test, unit_name, wait_for, wait_qosd, write_unit)
from test_thresholds import Monitor, states

SLOW = "requests.server.firstByte.p99 > 20ms over 1s for 200ms"


class Instance(Unit):
    """Of a template, which is written already."""

    def __init__(self, name):
        self.name = name


def drop_in(unit, text, name="50-qos.conf", directory=scenario.UNIT_DIR, of=None):
    d = os.path.join(directory, f"{of or unit.name}.d")
    write_unit(name, text, d)
    return os.path.join(d, name)


def reload():
    systemctl("daemon-reload")


def holds(unit):
    """The types of them, and what each leaves out."""
    for u in (v for v in scenario.Varlink().collect("List")):
        if u["unit"] == unit.name:
            return {h["type"]: h.get("exclude", []) for h in u["holds"]}
    return {}


def journal_has(text, since):
    return text in run("journalctl", "-u", "qosd.service", "-o", "cat", "--no-pager", f"--since=@{since}").stdout


@test(vm="nightly", own_daemon=True, deadline=60)
def observed_while_it_stands_there():
    """Attached with daemon-reload, probes, exclusions and thresholds as it says; changed with it; let go with it."""
    s = Server(mode="thread")
    path = drop_in(s, f"[X-QoS]\nObserve=requests\nExclude=port:9100 http:/healthz\nThreshold=slow: {SLOW}\nThreshold=busy: requests.server.rate > 1M\n"
                   .replace("1M", "1000000"))
    reload()
    wait_for("it is attached", lambda: s.name in listed())
    s.start()
    load(s, connections=1, number=1)
    expect_total(s, 1)
    equal(holds(s), {"unitFile": ["http:/healthz", "port:9100"]}, "holds")
    wait_for("its thresholds are there", lambda: set(states(s)) == {"slow", "busy"})
    origins = {t["name"]: (t["source"], t["origin"]) for t in qosctl_json("list-thresholds", s.name)}
    equal(origins, {"slow": ("unitFile", f"{path}:4"), "busy": ("unitFile", f"{path}:5")}, "where they come from")
    check(qosctl("clear-threshold", s.name, "slow", ok=False).returncode == 1, "one of a file was cleared")
    check("by others only" in qosctl("detach", s.name, ok=False).stderr, "it was detached")

    # Another drop-in takes part of it back, and replaces
    other = drop_in(s, "[X-QoS]\nThreshold=\nThreshold=slow: requests.server.rate > 5 over 1s\nExclude=\n", name="60-more.conf")
    reload()
    wait_for("the other one is in force", lambda: set(states(s)) == {"slow"} and holds(s) == {"unitFile": []})
    equal(qosctl_json("list-thresholds", s.name)[0]["origin"], f"{other}:3", "where it comes from")
    # The same once more changes nothing
    wait_for("it is looked at", lambda: states(s)["slow"] != "unknown")
    before = qosctl_json("list-thresholds", s.name)[0]["since"]
    reload()
    qosctl("wait", s.name, "requests.server.connections.open < 1 over 1s for 500ms", "--timeout=10s")
    equal(qosctl_json("list-thresholds", s.name)[0]["since"], before, "since when")

    # Who is attached otherwise, too, stays
    attach(s)
    shutil.rmtree(os.path.dirname(path))
    reload()
    wait_for("only the administrator's hold is left", lambda: set(holds(s)) == {"administrator"} and states(s) == {})
    expect_total(s, 1)
    qosctl("detach", s.name)
    drop_in(s, "[X-QoS]\nObserve=requests\n")
    reload()
    wait_for("it is attached again", lambda: s.name in listed())
    shutil.rmtree(os.path.dirname(path))
    reload()
    wait_for("it is let go", lambda: s.name not in listed())


@test(own_daemon=True, deadline=60)
def restarts():
    """qosd goes on with what files said, at once and without news, and learns what has changed meanwhile."""
    s = Server(mode="thread")
    path = drop_in(s, "[X-QoS]\nObserve=requests\nThreshold=idle: requests.server.rate < 5 over 1s\n")
    reload()
    wait_for("it is attached", lambda: s.name in listed())
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
    equal((after["state"], after["since"], after["origin"]), (before["state"], before["since"], before["origin"]), "the threshold")
    expect_total(s, 200)
    with Monitor(s, since=seq) as m:
        equal(m.first, {"seq": seq}, "what has happened")
    # Stopped and started, it begins anew with what the files say
    scenario.fresh_qosd()
    wait_for("it is attached", lambda: s.name in listed())
    wait_for("it is violated", lambda: states(s).get("idle") == "violated")
    # A number of the one before is no place to go on from
    with Monitor(s, since=seq) as m:
        check(m.first["seq"] > seq and m.first["thresholds"] and "missedEvents" not in m.first, f"what has happened: {m.first}")
    # What has gone while qosd was away
    os.unlink(path)
    reload()
    kill_qosd()
    wait_for("it is let go", lambda: s.name not in listed())


@test(own_daemon=True)
def line_that_is_no_text():
    """It is said where it stands, the rest is in force, and all that is attached is kept over a crash."""
    s, other = Server(mode="thread").start(), Server(mode="thread").start()
    began = time.time()
    path = drop_in(s, "[X-QoS]\nThreshold=good: requests.server.rate < 5 over 1s\n")
    with open(path, "ab") as f:
        f.write(b"Threshold=x: requests.server[/run/caf\xe9.sock].latency.p99 > 1ms\n")
    reload()
    wait_for("it is attached", lambda: s.name in listed())
    equal(set(states(s)), {"good"}, "thresholds")
    wait_for("it is said", lambda: journal_has(f"{path}:3: not UTF-8 text", began))
    attach(other)
    check(not journal_has("will forget", began), "what is attached is not kept")
    kill_qosd()
    check({s.name, other.name} <= set(listed()), f"attached: {listed()}")


@test(own_daemon=True, deadline=60)
def wherever_it_stands():
    """In the unit file itself, in /etc and /run, under an alias, of a template, of all whose names begin so."""
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
        wait_for("all are found", lambda: thresholds() == {own.name: "own", aliased.name: "alias", instance: "template", prefixed.name: "etc"}, 10)
        # All whose names begin so, once they are loaded
        drop_in(prefixed, "[X-QoS]\nThreshold=prefix: requests.server.rate > 5\n", of=stem)
        own.start()
        reload()
        wait_for("the prefix is in force", lambda: {"own", "prefix"} == set(states(own)))
        # What has files of its own is observed also when the service manager has forgotten it, others only as long as it has not
        other = Server(mode="thread").start()
        wait_for("another one is observed", lambda: other.name in listed())
        for s in (own, other):
            s.stop()
            wait_for("it is forgotten", lambda: not run("systemctl", "list-units", "--all", "--plain", "--no-legend", s.name).stdout)
        wait_for("the other one is let go", lambda: other.name not in listed())
        equal(set(states(own)), {"own", "prefix"}, "thresholds of one that is forgotten")
        os.unlink(os.path.join(scenario.UNIT_DIR, f"{stem}.d", "50-qos.conf"))
        # systemd does not read a masked unit, nor do we
        shutil.rmtree(os.path.dirname(etc))
        systemctl("mask", "--runtime", prefixed.name, ok=False)
        reload()
        wait_for("the rest has gone", lambda: prefixed.name not in listed() and set(states(own)) == {"own"})
    finally:
        shutil.rmtree(os.path.dirname(etc), ignore_errors=True)
        systemctl("stop", instance)
        os.unlink(os.path.join(scenario.UNIT_DIR, alias))
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, alias + ".d"))
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, stem + ".d"), ignore_errors=True)


@test(own_daemon=True, deadline=60)
def when_it_is_loaded():
    """An instance of a template is observed from its first start on, and let go when it is forgotten; daemon-reload is no news."""
    template = unit_name("template", "@.service")
    port = scenario.unused_port()

    def write(name):
        write_unit(template, f"[Service]\nType=notify\nExecStart={scenario.server_command(mode='thread')} --port %i\n"
                   f"[X-QoS]\nObserve=requests\nThreshold={name}: requests.server.rate > 1000000 over 1s\n")
    write("before")
    instance = Instance(template.replace("@.", f"@{port}."))
    reload()
    check(instance.name not in listed(), "it was loaded before")
    for number in (10, 20):
        # The service manager forgets what is stopped, unless somebody asks for it just then
        wait_for("it is let go", lambda: instance.name not in listed())
        systemctl("start", instance.name)
        wait_for("it is attached", lambda: instance.name in listed() and states(instance))
        load(port, connections=2, number=number)
        expect_total(instance, number)
        equal(set(holds(instance)), {"unitFile"}, "holds")
        since = scenario.snapshot(instance)["attachedSince"]
        write(f"after{number}")
        reload()
        wait_for("it was asked about again", lambda: set(states(instance)) == {f"after{number}"})
        load(port, connections=2, number=5)
        expect_total(instance, number + 5)
        equal(scenario.snapshot(instance)["attachedSince"], since, "since when it is attached")
        systemctl("stop", instance.name)
    wait_for("it is let go", lambda: instance.name not in listed())


@test(own_daemon=True, deadline=60)
def what_is_wrong_is_said():
    """File, line and what was expected; the rest is in force."""
    s = Server(mode="thread")
    since = int(time.time())
    path = drop_in(s, "[Service]\nNice=1\n[X-QoS]\nObserve=requests nonsense\nExclude=port:x port:9100\nThreshold=slow: requests.server.rate > 5ms\n"
                   "Nonsense=1\nThreshold=good: \\\n# a comment\nrequests.server.rate > 5\nwithout\n[X-Other]\nThreshold=other\n")
    reload()
    wait_for("it is attached", lambda: s.name in listed())
    wait_for("the good one is there", lambda: set(states(s)) == {"good"})
    equal(holds(s), {"unitFile": ["port:9100"]}, "holds")
    for line in (f"{path}:4: Observe= expects probes ('requests', 'tls', 'cpu', 'block', 'memory'), got 'nonsense'",
                 f"{path}:5: Exclude= expects exclusions like 'port:9100'",
                 f"{path}:6: threshold 'slow: requests.server.rate > 5ms': expected a rate like",
                 f"{path}:7: there is no setting 'Nonsense' in [X-QoS], expected Observe=, Exclude= or Threshold=",
                 f"{path}:11: expected 'Name=value' in [X-QoS], got 'without'"):
        wait_for(f"the journal has: {line}", lambda: journal_has(line, since))
    check(not journal_has("other", since), "another section was read")
    equal(qosctl_json("list-thresholds", s.name)[0]["origin"], f"{path}:8", "where it comes from")
    # What no unit can be called keeps nobody else from being let go
    stray = "a stray.service"
    write_unit(stray, "[Service]\nExecStart=sleep infinity\n[X-QoS]\nObserve=requests\n")
    try:
        os.unlink(path)
        reload()
        wait_for("it is let go", lambda: s.name not in listed())
        wait_for("the journal has the name", lambda: journal_has(f"'{stray}' has [X-QoS], but is not a unit", since))
    finally:
        os.unlink(os.path.join(scenario.UNIT_DIR, stray))


@test(own_daemon=True, deadline=60)
def enable_and_disable():
    """Writes what daemon-reload reads, and takes it away."""
    s, others = Server(mode="thread"), []
    path = f"/etc/systemd/system/{s.name}.d/50-qos.conf"
    try:
        qosctl("enable", "--now", s.name.removesuffix(".service"), "--exclude=port:9100")
        check(s.name in listed(), "it is not attached")
        with open(path) as f:
            text = f.read()
            check("[X-QoS]" in text and "After=qosd.service" in text, f"what was written: {text}")
        equal(holds(s), {"unitFile": ["port:9100"]}, "holds")
        # Also what other files say is in force then, of a unit that was attached before
        drop_in(s, "[X-QoS]\nThreshold=more: requests.server.rate > 5\n", name="60-more.conf")
        qosctl("enable", "--now", s.name, "--exclude=port:9200")
        equal((holds(s), set(states(s))), ({"unitFile": ["port:9200"]}, {"more"}), "what is in force")
        shutil.rmtree(os.path.join(scenario.UNIT_DIR, f"{s.name}.d"))
        equal(qosctl_json("disable", s.name), [{"unit": s.name, "file": path}], "what was taken away")
        wait_for("it is let go", lambda: s.name not in listed())
        check(not os.path.exists(path), "the file is there")
        check(not os.path.exists(os.path.dirname(path)), "the directory is there")
        equal(qosctl("disable", s.name, ok=False).returncode, 0, "disabling what is not enabled")
        equal(qosctl("enable", "nothing-" + s.name, ok=False).returncode, 4, "enabling what is not there")

        # A word without a type that has a dot is a service, as for all other verbs
        dotted = Unit("sleep infinity", name=unit_name("my.app"), type="exec")
        reload()
        others.append(dotted)
        equal(qosctl_json("enable", "--now", dotted.name.removesuffix(".service"), "--probes=requests,cpu"),
              [{"unit": dotted.name, "file": f"/etc/systemd/system/{dotted.name}.d/50-qos.conf"}], "what was written")
        check(dotted.name in listed(), "one with a dot is not attached")

        # Held by somebody else is not held by its file, and other probes are not those that were asked for
        attach(s)
        drop_in(s, "[X-QoS]\nObserve=\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, ok=False)
        check(r.returncode == 1 and "'[X-QoS]' is not in effect" in r.stderr, f"enabling what another file takes back: {r}")
        drop_in(s, "[X-QoS]\nObserve=\nObserve=requests\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, "--probes=requests,cpu", ok=False)
        check(r.returncode == 1 and "'cpu' is not in effect" in r.stderr, f"enabling with a probe that another file takes back: {r}")
        drop_in(s, "[X-QoS]\nExclude=\n", name="60-more.conf")
        r = qosctl("enable", "--now", s.name, "--exclude=redis:ping", ok=False)
        check(r.returncode == 1 and "'redis:PING' is not in effect" in r.stderr, f"enabling with an exclusion that another file takes back: {r}")
    finally:
        for unit in [s, *others]:
            shutil.rmtree(f"/etc/systemd/system/{unit.name}.d", ignore_errors=True)
        reload()


def ordered(name):
    return "qosd.service" in scenario.unit_property(name, "After").split()


@test(own_daemon=True, deadline=240)
def ordered_after_qosd():
    """Services with the section begin after qosd, also without a word of it in them; not those for which qosd may have to wait."""
    section = "[X-QoS]\nObserve=requests\n"
    plain, dropped, template = Server(mode="thread"), Server(mode="thread"), unit_name("made", "@.service")
    drop_in(plain, section)
    drop_in(dropped, section, directory="/etc/systemd/system")
    command = scenario.server_command(port=scenario.unused_port())
    write_unit(template, f"[Service]\nType=notify\nExecStart={command}\n{section}")
    left = {}
    for label, settings in (("none", "DefaultDependencies=no"), ("before", "Before=basic.target"), ("split", "Before= \\\n  multi-user.target sockets.target"),
                            ("off", "DefaultDependencies=0")):
        left[label] = Unit("sleep infinity", name=unit_name(label), type="exec", unit_settings=settings)
        drop_in(left[label], section)
    late = Unit("sleep infinity", name=unit_name("late"), type="exec", unit_settings="Before=multi-user.target shutdown.target\nDefaultDependencies=yes")
    drop_in(late, section)
    # Of another file, that comes to bear on it
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
        check(not any(ordered(u) for u in ("dbus.service", "qosd.service", "basic.target")), "what qosd needs is ordered")

        # As at boot: all in one transaction, and who asks begins as soon as it may
        asking = Unit(f"{scenario.tools}/client --port={plain.port} --number=7", name=unit_name("asking"), type="oneshot",
                      unit_settings=f"After={plain.name}")
        boot = write_unit(unit_name("boot", ".target"), f"[Unit]\nWants={plain.name} {asking.name} qosd.service\n")
        reload()
        systemctl("stop", "qosd.service")
        systemctl("start", boot, timeout=60)
        wait_qosd()
        wait_for("whoever asks has asked", lambda: scenario.unit_property(asking.name, "Result") == "success" and
                 int(scenario.unit_property(asking.name, "ExecMainExitTimestampMonotonic")) > 0, 30)
        expect_total(plain, 7)

        # Who orders qosd by hand orders all by hand
        hand = write_unit("99-scenario.conf", f"[Unit]\nAfter={other.name}\n", scenario.QOSD_DROP_IN_DIR)
        reload()
        check(not ordered(plain.name) and not ordered(late.name), "it is ordered although qosd is by hand")
        os.unlink(os.path.join(scenario.QOSD_DROP_IN_DIR, hand))
        # … also where it is for all services; of one that is nowhere, so that nobody is after it in earnest
        reload()
        check(ordered(plain.name), "it is not ordered although nothing is by hand")
        general = write_unit("99-scenario.conf", "[Unit]\nAfter=qosd-scenario-nowhere.service\n", os.path.join(scenario.UNIT_DIR, "service.d"))
        reload()
        check(not ordered(plain.name) and not ordered(late.name), "it is ordered although all services are by hand")
        os.unlink(os.path.join(scenario.UNIT_DIR, "service.d", general))
        drop_in(other, "[Unit]\nBefore=foo.service  qosd.service\n")
        reload()
        check(not ordered(plain.name) and not ordered(late.name), "it is ordered although others are before qosd")
    finally:
        for path in (f"/etc/systemd/system/{dropped.name}.d", f"/run/systemd/system.control/{special.name}.d"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (f"{scenario.QOSD_DROP_IN_DIR}/99-scenario.conf", f"{scenario.UNIT_DIR}/service.d/99-scenario.conf"):
            if os.path.exists(path):
                os.unlink(path)
        reload()
