# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is exported for systems that store metrics: the same numbers that everybody else is shown, and nothing that
begins anew unless it says so."""

import math
import os
import re
import signal
import threading

import scenario
from scenario import (Server, Talk, attach, check, equal, expect_total, load, qosctl, qosd_pid, start_served, test,
                      varlink,
                      wait_for, wait_qosd)
from test_block import BLOCK, Disk, block, counted
from test_endpoints import Nginx, ab, endpoints, unused_ports
from test_peers import ClientUnit


def export(*names, **parameters):
    """By unit. The last reply says how many there were."""
    with scenario.Varlink() as v:
        *units, end = v.collect("Export", **({"unit": names[0]} if names else {}), **parameters)
    equal(end, {"units": len(units)}, "the last reply")
    return {u["unit"]["name"]: u["unit"] for u in units}


def index(bucket, schema):
    """Of a native histogram of Prometheus in seconds. The last bucket has no upper bound."""
    if "upper" not in bucket:
        return 6 * 2 ** schema + 1
    return round(math.log2(bucket["upper"] / scenario.SEC) * 2 ** schema)


def equals_the_rest(unit):
    """Counters, levels and buckets are those of Get and Histogram, of a unit at rest."""
    wait_for("its start is complete", lambda: export(unit.name)[unit.name]["activeState"] == "active")
    e = export(unit.name)[unit.name]
    reading = varlink("Get", unit=unit.name, window=0)
    for key in ("attachedSince", "activeState", "drops"):
        equal(e[key], reading[key], key)
    equal(e["slice"], reading["controlGroup"].split("/")[-2], "slice")
    at_rest = {name: n for name, n in e["totals"].items() if name.startswith(("requests.", "contention.block."))}
    equal(at_rest, {name: reading["totals"][name] for name in at_rest}, "the counters")
    equal(set(e["totals"]), set(reading["totals"]), "which counters there are")
    for name, n in e["gauges"].items():
        if not name.startswith("requests.server.oldest"):
            equal(n, scenario.lookup(reading, name), name)
    for h in e["histograms"]:
        equal(sum(h["counts"]), h["count"], f"the buckets of {h['metric']}")
        if h["metric"].startswith("contention.run"):
            continue
        there = varlink("Histogram", unit=unit.name, metric=h["metric"], window=0)
        equal((h["schema"], h["count"], h["sum"]), (there["schema"], there["count"], there["sum"]), h["metric"])
        equal(dict(zip(h["indexes"], h["counts"])), {index(b, h["schema"]): b["count"] for b in there["buckets"]},
              f"the buckets of {h['metric']}")
    return e


@test(own_daemon=True)
def equals_what_is_shown():
    """Integer by integer, with all that has been counted, over kill -9 of qosd, a restart of the unit, and a new
    attach, which is the only one that begins anew."""
    s = Server(mode="thread")
    attach(s, "--probes=requests,cpu")
    s.start()
    load(s, connections=4, number=500)
    expect_total(s, 500)
    e = equals_the_rest(s)
    since = e["attachedSince"]
    equal({h["metric"]: h["count"] for h in e["histograms"] if h["metric"].startswith("requests.server.")},
          {f"requests.server.{d}": 500 for d in ("latency", "firstByte", "receive", "queue", "service", "answer")},
          "distributions")
    check("contention.runQueueLatency" in [h["metric"] for h in e["histograms"]], "no distribution of the probe cpu")

    pid = qosd_pid()
    os.kill(pid, signal.SIGKILL)
    wait_qosd(pid)
    s.restart()
    load(s, connections=4, number=300)
    expect_total(s, 800)
    e = equals_the_rest(s)
    equal(e["attachedSince"], since, "since when it counts, after kill -9 and a restart")
    equal(e["totals"]["requests.server.count"], 800, "count after kill -9 and a restart")

    qosctl("detach", s.name)
    equal(varlink_error_of_export(s.name), "NotAttached", "of a unit that is not attached")
    attach(s)
    load(s, connections=1, number=20)
    expect_total(s, 20)
    e = equals_the_rest(s)
    check(e["attachedSince"] > since, "it counts since the first attach")


@test(deadline=60)
def responses_that_go_on():
    """While responses go on, their samples move to longer durations. No bucket falls for it, and all together are the
    count, of the server and of the client."""
    s = Server(mode="thread", parts=24, gap_us=100000, response=2400)
    attach(s.start())
    c = attach(ClientUnit(port=s.port, connections=3, number=9, response=2400))
    moving = ((s, "requests.server.latency"), (s, "requests.server.answer"), (c, "requests.client.latency"))
    last, shown, fallen = {}, {}, set()

    def compare():
        """Compares an export with the one before, and notes which distributions of Histogram have fallen meanwhile."""
        for unit in s, c:
            for h in export(unit.name)[unit.name]["histograms"]:
                name, now = (unit.name, h["metric"]), dict(zip(h["indexes"], h["counts"]))
                equal(sum(h["counts"]), h["count"], f"the buckets of {name}")
                for i, n in last.get(name, {}).items():
                    check(now.get(i, 0) >= n, f"bucket {i} of {name} has fallen from {n} to {now.get(i, 0)}")
                last[name] = now
        for unit, metric in moving:
            r = varlink_or_none("Histogram", unit=unit.name, metric=metric, window=0)
            now = {index(b, r["schema"]): b["count"] for b in r["buckets"]} if r else {}
            if any(now.get(i, 0) < n for i, n in shown.get(metric, {}).items()):
                fallen.add(metric)
            shown[metric] = now

    c.start()
    wait_for("the client has ended", lambda: compare() or scenario.unit_property(c.name, "ActiveState") == "inactive",
             40)
    expect_total(s, 9)
    compare()
    equal(fallen, {metric for _, metric in moving}, "distributions in which samples have moved")
    for unit, metric in moving:
        h = next(h for h in export(unit.name)[unit.name]["histograms"] if h["metric"] == metric)
        there = varlink("Histogram", unit=unit.name, metric=metric, window=0)
        equal((h["count"], h["sum"]), (9, there["sum"]), f"count and sum of {metric}")


def varlink_or_none(method, **parameters):
    """Returns None while nothing is measured."""
    try:
        return varlink(method, **parameters)
    except scenario.VarlinkError as e:
        equal(e.name.removeprefix(scenario.VARLINK), "NotMeasured", "the error")
        return None


def varlink_error_of_export(name):
    with scenario.Varlink() as v:
        try:
            v.collect("Export", unit=name)
        except scenario.VarlinkError as e:
            return e.name.removeprefix(scenario.VARLINK)
    return None


@test()
def thresholds_are_objectives():
    """What a threshold on a quantile has counted since it was set: that of ListThresholds, and of known delays."""
    s = start_served(mode="thread", delay_us=20000)
    load(s, connections=4, number=40)
    expect_total(s, 40)
    qosctl("set-threshold", s.name, "near: requests.server.latency.p99 > 5ms")
    qosctl("set-threshold", s.name, "far: requests.server.firstByte.p999 > 30s")
    qosctl("set-threshold", s.name, "other: requests.server.rate > 5")
    load(s, connections=4, number=60)
    expect_total(s, 100)
    objectives = export(s.name)[s.name]["objectives"]
    equal({o["threshold"]: (o["target"], o["good"], o["total"]) for o in objectives},
          {"near": (0.99, 0, 60), "far": (0.999, 60, 60)},
          "objectives")
    with scenario.Varlink() as v:
        there = {t["threshold"]["name"]: t["threshold"] for t in v.collect("ListThresholds", unit=s.name)}
    for o in objectives:
        equal((o["good"], o["total"]), (there[o["threshold"]]["good"], there[o["threshold"]]["total"]), o["threshold"])
    lines = qosctl("metrics", s.name).stdout.splitlines()
    for line in (f'qosd_objective_good_total{{unit="{s.name}",threshold="near"}} 0',
                 f'qosd_objective_requests_total{{unit="{s.name}",threshold="far"}} 60',
                 f'qosd_objective_target_ratio{{unit="{s.name}",threshold="far"}} 0.999'):
        check(line in lines, f"{line} is not printed")


@test()
def printed_for_prometheus():
    """Both text formats have the numbers of the export, in seconds and by powers of two."""
    s = start_served(mode="thread")
    load(s, connections=4, number=400)
    expect_total(s, 400)
    wait_for("it is known as active", lambda: export(s.name)[s.name]["activeState"] == "active")
    e = equals_the_rest(s)
    with scenario.Varlink() as v:
        catalogue = v.collect("ListMetrics")
    for form in "openmetrics", "prometheus":
        lines = qosctl("metrics", s.name, f"--format={form}").stdout.splitlines()
        samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        equal(samples[f'qosd_requests_server_total{{unit="{s.name}"}}'], "400", "count")
        equal(samples[f'qosd_requests_server_in_bytes_total{{unit="{s.name}"}}'],
              str(e["totals"]["requests.server.bytesIn"]), "bytes")
        for h in e["histograms"]:
            name = "qosd_" + re.sub("[A-Z]", lambda m: "_" + m[0].lower(), h["metric"]).replace(".", "_") + "_seconds"
            equal(samples[f'{name}_count{{unit="{s.name}"}}'], str(h["count"]), name)
            # Not "Number of samples of ...", which only its count is
            description = next(m["description"] for m in catalogue
                               if m["name"] == h["metric"] + ".max").removeprefix("Maximum of ")
            check(f"# HELP {name} {description[0].upper()}{description[1:]}" in lines, f"{name} is described otherwise")
            equal(samples[f'{name}_sum{{unit="{s.name}"}}'], f"{h['sum'] // scenario.SEC}.{h['sum'] % scenario.SEC:09}",
                  name)
            buckets = {k.split('le="')[1][:-2]: int(n) for k, n in samples.items() if k.startswith(name + "_bucket")}
            equal(len(buckets), 30, f"buckets of {name}")
            for le, n in buckets.items():
                equal(n, sum(c for i, c in zip(h["indexes"], h["counts"]) if 2 ** (i / 2 ** h["schema"]) <= float(le)),
                      f"{name} to {le}")


@test()
def levels_of_the_moment():
    """Requests in flight and open connections are there while they last."""
    s = start_served(mode="thread", delay_us=3000000)
    t = Talk(s, connections=3)
    t.say("send")
    wait_for("they are in flight", lambda: export(s.name)[s.name]["gauges"].get("requests.server.inFlight") == 3)
    equal(export(s.name)[s.name]["gauges"]["requests.server.connections.open"], 3, "open connections")
    t.end()


ENDPOINT_COUNTERS = "count", "errors.reset", "errors.timeout", "clientAborts", "bytesIn", "bytesOut"


def exported_endpoints(unit):
    """By the address, as a varlink client gets them."""
    return {"others" if e.get("rest") else e["listen"]: e
            for e in export(unit.name, tables=True)[unit.name].get("endpoints", [])}


@test(deadline=120, own_daemon=True)
def endpoints_do_not_fall():
    """No counter of an endpoint is less than in an export before, whichever of them is busy, also over kill -9 of qosd;
    at rest all are those of the clients, and of Get. A Unix socket and an excluded endpoint are not among them."""
    ports = unused_ports(3)
    path = f"/run/{scenario.unit_name('exported', '')}"
    u = Nginx([*(f"127.0.0.1:{p}" for p in ports), f"unix:{path}"])
    u.ports = ports
    attach(u, f"--exclude=port:{ports[2]}")
    u.start()
    sent = {}
    for port in ports:
        sent[port] = ab(port, 100)
    wait_for("they are counted", lambda: {n: e["count"] for n, e in exported_endpoints(u).items()} ==
             {f"127.0.0.1:{p}": 100 for p in ports[:2]})
    check("endpoints" not in export(u.name)[u.name] and "devices" not in export(u.name)[u.name],
          "there are tables without a request")

    before, fallen, exports, total = {}, [], 0, 0

    def compare():
        nonlocal exports
        exports += 1
        for name, e in exported_endpoints(u).items():
            for counter in ENDPOINT_COUNTERS:
                n = scenario.lookup(e, counter)
                if n is not None and n < before.get((name, counter), 0):
                    fallen.append(f"{counter} of {name}: {n} behind {before[name, counter]}")
                before[name, counter] = n or 0

    for port in ports[0], ports[1]:
        clients = [threading.Thread(target=lambda port=port: ab(port, 30000, connections=8)) for _ in range(2)]
        for c in clients:
            c.start()
        for i in range(100000):
            if not any(c.is_alive() for c in clients):
                break
            compare()
            if i == 60:
                scenario.kill_qosd()
        for c in clients:
            c.join()
        sent[port] += 60000
    check(exports > 100, f"there were only {exports} exports meanwhile")
    equal(fallen, [], f"counters that have fallen in {exports} exports")

    want = {f"127.0.0.1:{p}": sent[p] for p in ports[:2]}
    wait_for("all are counted", lambda: {n: e["count"] for n, e in exported_endpoints(u).items()} == want)
    there, got = exported_endpoints(u), endpoints(u)
    equal({n for n, e in got.items() if n not in there}, {f"127.0.0.1:{ports[2]} excluded", path},
          "endpoints of Get alone")
    for name, e in there.items():
        for counter in (*ENDPOINT_COUNTERS, "inFlight"):
            equal(scenario.lookup(e, counter), scenario.lookup(got[name], counter), f"{counter} of {name}")
        equal("rate" in e or "latency" in e, False, f"whether {e} has figures over a window")
        total += e["count"]
    equal(total, export(u.name)[u.name]["totals"]["requests.server.count"], "sum of the endpoints")


@test(deadline=60, own_daemon=True, vm="nightly")
def devices_of_a_unit():
    """Each device has the kernel's bytes of the process, and what Get has, without the share."""
    u = Disk()
    attach(u, "--probes=block")
    u.start()

    def devices():
        return export(u.name, tables=True)[u.name].get("devices", [])

    def sums():
        return [sum(d[key] for d in devices()) for key in ("writes", "writeBytes", "reads", "readBytes")]

    before, figures = sums(), block(u)
    writes, reads = u.go("write-50"), u.go("read-20")
    counted(u, figures, writes=50, reads=20)
    equal([n - b for n, b in zip(sums(), before)], [50, 50 * BLOCK, 20, reads["read_bytes"] - writes["read_bytes"]],
          "counters")
    there = varlink("Get", unit=u.name, window=0)["contention"]["block"]["devices"]
    equal(devices(), [{k: v for k, v in d.items() if k != "share"} for d in there], "devices")
    line = (f'qosd_contention_block_device_write_bytes_total{{unit="{u.name}",device="{devices()[0]["device"]}"}} '
            f'{devices()[0]["writeBytes"]}')
    check(line in qosctl("metrics", u.name, "--export=everything").stdout.splitlines(), f"{line} is not printed")
