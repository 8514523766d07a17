# SPDX-License-Identifier: LGPL-2.1-or-later
"""D-Bus, varlink and qosctl show the same snapshot, in the form that busctl and varlinkctl expect."""

import json
import os
import pty
import re
import select
import subprocess
import tempfile
import time

import scenario
from scenario import (VARLINK_SOCKET, Server, Talk, attach, busctl_call, check, equal, fail, listed, load, plain,
                      programs,
                      qosctl, qosctl_json, run, snapshot, start_served, systemctl, test, varlink, wait_for)

SEQ_TRIES = 20


def flat(object, path=""):
    """Returns the values of a snapshot by their paths, without lists."""
    values = {}
    for key, value in object.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            values.update(flat(value, name))
        elif not isinstance(value, list):
            values[name] = value
    return values


def metrics(snapshot):
    return flat({root: snapshot[root] for root in ("requests", "contention") if root in snapshot})


def catalogue():
    with scenario.Varlink() as v:
        return {m["name"]: m for m in v.collect("ListMetrics")}


def same(a, b, what):
    """Checks that metrics are equal, except for the rounding of doubles in JSON."""
    equal(set(a), set(b), f"metrics of {what}")
    for name in a:
        if isinstance(a[name], float) or isinstance(b[name], float):
            check(abs(a[name] - b[name]) <= 1e-9 * max(abs(a[name]), 1), f"{name} of {what}: {a[name]} and {b[name]}")
        else:
            equal(a[name], b[name], f"{name} of {what}")


def unit_path(name):
    return busctl_call("GetUnit", "s", name)[0]


def dbus_properties(unit, interface="Requests"):
    r = run("busctl", "--json=short", "call", "org.qosd1", unit_path(unit.name), "org.freedesktop.DBus.Properties",
            "GetAll",
            "s", f"org.qosd1.{interface}")
    return plain(json.loads(r.stdout)["data"][0])


@test(vm="nightly", deadline=60)
def equal_at_one_seq():
    """Snapshots with the same seq have the same values in varlink, D-Bus and qosctl. A connection is open and a request
    in flight, so that gauges are not 0."""
    s = start_served(mode="thread", delay_us=1000, workers=2)
    hung = start_served(mode="thread", hang=True)
    load(s, connections=8, number=600)
    t, h = Talk(s, connections=3), Talk(hung, connections=1)
    t.say("run 2")
    h.say("send")
    for unit in (s, hung):
        for window_ns, window in ((10000000000, "10s"), (0, "total")):
            for _ in range(SEQ_TRIES):
                a = varlink("Get", unit=unit.name, window=window_ns)
                b = plain(busctl_call("Snapshot", "st", unit.name, window_ns)[0])
                c = snapshot(unit, window)
                if a["seq"] == b["seq"] == c["seq"]:
                    break
                # seq changes when a window rolls, and while a request is in flight
                time.sleep(0.02)
            else:
                if unit is hung:
                    # The age of the request changes all the time, so that there may be no two equal snapshots
                    continue
                fail(f"no seq twice in {SEQ_TRIES} tries: {a['seq']}, {b['seq']}, {c['seq']}")
            same(flat(a), flat(c), "varlink and qosctl")
            m = metrics(a)
            same(m, {k: v for k, v in b.items() if k in catalogue()}, "varlink and D-Bus")
            for key in ("covered", "window"):
                if key in b:
                    equal(b[key], a[key], key)
            for key in ("timestamp", "attachedSince"):
                equal(b[key], a[key], key)
    t.end()
    h.end()


def times(value, key=None):
    """Returns the times in a reply, and the integers that JavaScript cannot hold."""
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in times(v, k)]
    if isinstance(value, list):
        return [t for v in value for t in times(v, key)]
    is_time = key in ("timestamp", "attachedSince", "since", "until")
    return [(key, value)] if is_time or type(value) is int and abs(value) >= 2 ** 53 else []


@test()
def times_are_microseconds():
    """All methods and signals have times in microseconds, which JavaScript can hold, and no other number is too large
    for it."""
    s = Server(mode="thread")
    attach(s, "--probes=requests,cpu,block,memory")
    s.start()
    qosctl("set-threshold", s.name, "busy: requests.server.rate > 1000000 over 1s")
    load(s, connections=2, number=100)
    wait_for("a step of the history is over",
             lambda: varlink("History", unit=s.name, metrics=["requests.server.count"])["steps"], 25, pause=0.5)
    with scenario.Varlink() as v:
        replies = {method: v.call(method, unit=s.name, **more) for method, more in (
            ("Get", {}), ("Histogram", {"metric": "requests.server.latency"}),
            ("History", {"metrics": ["requests.server.latency"]}),
            ("Threads", {}), ("Resources", {}))}
        replies |= {method: v.collect(method, unit=s.name) for method in ("List", "Export", "ListThresholds")}
        replies["GetMany"] = v.call("GetMany", units=[s.name])
        v.call("BeginDiagnosis", unit=s.name)
        replies["Diagnose"] = v.call("Diagnose", unit=s.name, sinceBegin=True)
    for method, reply in replies.items():
        found = times(reply)
        check(found, f"{method} has no time: {json.dumps(reply)}")
        for key, value in found:
            check(abs(value / 10 ** 6 - time.time()) < 3600, f"{key} of {method}: {value}")


# Those that show a reading
INTERFACES = ("Requests", "Contention", "Storage", "Network")


def published():
    """Returns the metric of each D-Bus property, according to the XML of the interfaces."""
    metrics = {}
    for interface in INTERFACES:
        with open(f"/usr/share/dbus-1/interfaces/org.qosd1.{interface}.xml") as f:
            found = re.findall(r'<property name="(\w+)"[^>]*>\s*<annotation name="org.qosd1.Metric" value="([\w.]+)"/>',
                               f.read())
        metrics.update({(interface, property): metric for property, metric in found})
    return metrics


@test()
def properties_are_the_default_window():
    """Each property has the value of its metric over the default window. That of an absent metric is UINT64_MAX, NaN or
    an empty string."""
    s = start_served(mode="thread", delay_us=1000)
    load(s, connections=4, number=60)
    names = published()
    equal(set(names.values()), set(catalogue()), "metrics in the published XML and in the catalogue")
    for _ in range(SEQ_TRIES):
        p = {interface: dbus_properties(s, interface) for interface in INTERFACES}
        x = snapshot(s, "10s")
        if p["Requests"]["Seq"] == x["seq"]:
            break
        time.sleep(0.02)
    else:
        fail("never the same reading twice")
    m = metrics(x)
    for (interface, property), name in names.items():
        value = p[interface].get(property, "none")
        check(value != "none", f"no property {property}")
        if name in m:
            same({name: value}, {name: m[name]}, "D-Bus and qosctl")
        else:
            # busctl prints NaN as null
            check(value in (2 ** 64 - 1, None, ""), f"{property} is {value!r}, {name} is absent")
    for name in ("requests.server.count", "requests.server.rate", "requests.server.latency.p50"):
        check(name in m, f"{name} is absent")
    check("requests.server.latency.p99" not in m, "p99 of 60 samples")


@test()
def show_for_scripts():
    s = start_served(mode="thread")
    load(s, connections=4, number=60)
    x = wait_for("one second without change", lambda: snapshot(s, "10s"))
    equal(qosctl("show", s.name, "-P", "requests.server.count", "--value").stdout.strip(), "60", "count")
    lines = dict(line.split("=", 1) for line in qosctl("show", s.name).stdout.splitlines() if "=" in line)
    equal(lines["requests.server.count"], "60", "count in the list")
    for name in metrics(x):
        check(name in lines, f"{name} is not in show")
    check("requests.server.latency.p99" not in lines, "p99 of 60 samples")
    r = qosctl("show", s.name, "-P", "requests.server.nonsense", "--value", ok=False)
    check(r.returncode != 0 and r.stderr.strip(), "an unknown metric is no error")


@test()
def lists():
    a, b = start_served(mode="thread"), start_served(mode="thread")
    load(a, connections=4, number=60)
    units = {o["unit"]: o for o in qosctl_json("list")}
    check(a.name in units and b.name in units, f"listed: {sorted(units)}")
    with scenario.Varlink() as v:
        check({a.name, b.name} <= {o["unit"] for o in v.collect("List")}, "not in varlink's list")
    names = [u[0] for u in busctl_call("ListUnits")[0]]
    check(a.name in names and b.name in names, f"not in D-Bus' list: {names}")
    text = qosctl("list").stdout
    check(a.name in text, f"not in the table: {text}")
    text = qosctl("--no-legend", "list").stdout
    check(a.name in text.splitlines()[0] or b.name in text, f"a legend: {text}")
    # A unit with a listener that is not attached
    c = Server(mode="thread").start()
    check(c.name not in listed(), "a unit that was never attached is listed")
    check(c.name in qosctl("list", "--all").stdout, "list --all does not have a unit that listens")


@test(deadline=60)
def list_byte_for_byte():
    """An entry of varlink's List with continues, which qosd formats itself, has the bytes of the reply that libsystemd
    formats."""
    units = [start_served(mode="thread") for _ in range(2)]
    for u in units:
        load(u, connections=4, number=60)
    more = b',"continues":true}'

    def listed_as_text():
        """Returns the first entry of the two units in a list that is not the last one of the list."""
        with scenario.Varlink() as v:
            v.send("List", more=True)
            while (message := v.receive_raw()) is not None and message.endswith(more):
                unit = json.loads(message)["parameters"]["unit"]
                if unit in (u.name for u in units):
                    return unit, message.removesuffix(more)
        return None

    def same_reading():
        """Returns the unit's entry in both forms, or False unless both have the same seq."""
        unit, text = listed_as_text()
        with scenario.Varlink() as v:
            v.send("List", {"unit": unit}, more=True)
            other = v.receive_raw()
        check(other.endswith(b"}}"), f"of {unit}: {other}")
        seqs = [json.loads(m)["parameters"]["snapshot"]["seq"] for m in (text + b"}", other)]
        return seqs[0] == seqs[1] and (text, other.removesuffix(b"}"))

    text, other = wait_for("nothing happens between two readings", same_reading, timeout=20)
    check(b'"requests":' in text and b'"contention":' in text and b'"totals":' in text,
          f"not all of it is there: {text}")
    check(text == other, f"{text}\nis not\n{other}")


def on_terminal(*command, **environment):
    """Runs a command on a terminal, and returns its output."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, dict(os.environ, TERM="xterm-256color", **environment))
    text = b""
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                break
            text += data
    except OSError:
        pass    # the other end is closed
    os.close(fd)
    equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, f"exit status of {command}")
    return text.decode(errors="replace")


@test()
def status_for_people():
    s = start_served(mode="thread", delay_us=2000)
    load(s, connections=4, number=200)
    text = qosctl("status", s.name).stdout
    for word in (s.name, "p50", "p99", "queue", "service"):
        check(word.lower() in text.lower(), f"\"{word}\" is not in the page:\n{text}")
    check("\033[" not in text, "colours without a terminal")
    check("\033[" in on_terminal("qosctl", "--no-pager", "status", s.name), "no colours on a terminal")
    check("\033[" not in on_terminal("qosctl", "--no-pager", "status", s.name, NO_COLOR="1"),
          "colours despite NO_COLOR")
    # status does not attach a unit
    other = scenario.Server(mode="thread").start()
    equal(qosctl("status", other.name, ok=False).returncode, 3, "exit status for a unit that is not attached")
    check(other.name not in listed(), "status has attached a unit")


@test()
def top_in_a_pipe():
    s = start_served(mode="thread")
    c = scenario.Client(s, connections=4, duration_ms=4000, think_us=1000)
    p = subprocess.Popen(["qosctl", "--no-pager", "top", "--batch", s.name], stdout=subprocess.PIPE, text=True)
    frames = 0
    while frames < 2:
        line = p.stdout.readline()
        check(line, "top ended by itself")
        frames += s.name in line
    p.terminate()
    p.wait(timeout=10)
    c.wait()


@test()
def top_leases():
    """top attaches a named unit with a lease, for as long as it runs."""
    s = scenario.Server(mode="thread").start()
    p = subprocess.Popen(["qosctl", "--no-pager", "top", "--batch", s.name], stdout=subprocess.PIPE, text=True)
    wait_for("it is attached", lambda: s.name in listed())
    p.terminate()
    p.wait(timeout=10)
    wait_for("it is not attached any more", lambda: s.name not in listed())


@test()
def catalogue_and_probes():
    """Every metric of a snapshot is in the catalogue, with a description. Every unavailable program has a reason."""
    s = start_served(mode="thread")
    load(s, connections=4, number=600)
    known = catalogue()
    for name in metrics(snapshot(s)):
        check(name in known, f"{name} is not in the catalogue")
    for name in snapshot(s)["totals"]:
        check(name in known, f"{name} of totals is not in the catalogue")
        equal(known[name]["kind"], "counter", f"kind of {name}")
    for m in known.values():
        check(m["description"], f"{m['name']} has no description")
    equal({m["name"] for m in qosctl_json("list-metrics")}, set(known), "metrics of qosctl")
    text = qosctl("list-metrics").stdout
    check("requests.server.latency.p99" in text, "list-metrics for people")
    probes = programs()
    check(any(p["state"] == "attached" for p in probes), f"no program is attached: {probes}")
    for p in probes:
        check(p["state"] in ("idle", "attached", "unavailable"), f"state of {p}")
        # An idle program may have a reason, such as another one that is used instead
        check(p["state"] == "idle" or (p["state"] == "unavailable") == bool(p.get("reason")), f"reason of {p}")


@test()
def tools_of_the_buses():
    """busctl and varlinkctl can introspect and call qosd."""
    s = start_served(mode="thread")
    text = run("busctl", "introspect", "org.qosd1", "/org/qosd1").stdout
    for word in ("org.qosd1.Manager", "AttachUnit", "DetachUnit", "ListUnits", "Snapshot", "Subscribe"):
        check(word in text, f"{word} is not in busctl introspect")
    check("org.qosd1.Requests" in run("busctl", "introspect", "org.qosd1", unit_path(s.name)).stdout,
          "no Requests interface")
    tree = run("busctl", "tree", "--list", "org.qosd1").stdout
    check(unit_path(s.name) in tree, f"the unit is not in busctl tree: {tree}")
    objects = json.loads(run("busctl", "--json=short", "call", "org.qosd1", "/org/qosd1",
                             "org.freedesktop.DBus.ObjectManager",
                             "GetManagedObjects").stdout)["data"][0]
    check(unit_path(s.name) in objects, "the unit is no managed object")
    check("org.qosd.QoS" in run("varlinkctl", "info", VARLINK_SOCKET).stdout, "varlinkctl info")
    check("method Get" in run("varlinkctl", "introspect", VARLINK_SOCKET, "org.qosd.QoS").stdout,
          "varlinkctl introspect")
    r = run("varlinkctl", "call", "--json=short", VARLINK_SOCKET, "org.qosd.QoS.Get", json.dumps({"unit": s.name}))
    equal(json.loads(r.stdout)["unit"], s.name, "unit in varlinkctl call")
    r = run("varlinkctl", "call", "--more", "--json=short", VARLINK_SOCKET, "org.qosd.QoS.List", "{}")
    check(s.name in r.stdout, "varlinkctl call --more")
    with tempfile.NamedTemporaryFile("w", suffix=".varlink") as f:
        f.write(run("varlinkctl", "introspect", VARLINK_SOCKET, "org.qosd.QoS").stdout)
        f.flush()
        run("varlinkctl", "validate-idl", f.name)


@test()
def log_level_over_the_bus():
    old = systemctl("service-log-level", "qosd.service").stdout.strip()
    check(old, "no log level")
    systemctl("service-log-level", "qosd.service", "debug")
    equal(systemctl("service-log-level", "qosd.service").stdout.strip(), "debug", "log level")
    systemctl("service-log-level", "qosd.service", old)


@test()
def signals():
    """qosd sends UnitAttached and UnitDetached."""
    m = subprocess.Popen(["busctl", "--json=short", "monitor", "org.qosd1"], stdout=subprocess.PIPE, text=True)
    s = scenario.Server(mode="thread").start()
    seen = []

    def attach_and_see():
        """busctl does not report when it is subscribed, so that attaches are repeated until it is."""
        attach(s)
        qosctl("detach", s.name)
        while select.select([m.stdout], [], [], 0.3)[0]:
            line = m.stdout.readline()
            if not line:
                fail("busctl monitor ended")
            message = json.loads(line)
            if message.get("type") == "signal" and s.name in line:
                seen.append(message["member"])
        return "UnitAttached" in seen and "UnitDetached" in seen

    wait_for("both signals were seen", attach_and_see, 10, pause=0)
    m.terminate()
    m.wait()
