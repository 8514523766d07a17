# SPDX-License-Identifier: LGPL-2.1-or-later
"""What Prometheus makes of qosd's counters: the same numbers, and a reset where they begin anew, there and nowhere
else."""

import os
import re
import threading
import time

import scenario
from scenario import attach, check, equal, expect_total, load, qosctl, start_served, systemctl, test, varlink, wait_for
from test_endpoints import Nginx, ab, unused_ports
from test_exporter import OPENMETRICS, UNITS, Prometheus, configure, samples, scrape, serve

FEATURES = "--enable-feature=native-histograms,created-timestamp-zero-ingestion"
SUFFIXES = {"ns": "seconds", "bytes": "bytes"}


def counter(metric, unit):
    """The name that Prometheus has for a counter in totals."""
    words = [w.lower() for w in re.findall("[A-Z]?[^.A-Z]+", metric)]
    suffix = SUFFIXES.get(unit)
    words = [w for w in words if w not in (suffix, "count")] + [suffix] * (suffix is not None)
    return "_".join(["qosd", *words, "total"])


def created(unit):
    """Of all series of the unit's requests, in us."""
    times = {v for k, v in samples(scrape(accept=OPENMETRICS)[1], unit.name).items()
             if k.startswith("qosd_requests_") and k.split("{")[0].endswith("_created")}
    equal(len(times), 1, f"created timestamps: {times}")
    seconds, _, fraction = times.pop().partition(".")
    return int(seconds) * 10**6 + int(fraction.ljust(9, "0")) // 1000


@test()
def rules_have_metrics():
    """The shipped rules that record sums over hosts use metrics that there are."""
    with open(os.path.join(scenario.SOURCES, "../../docs/prometheus/qosd.rules.yml")) as f:
        used = set(re.findall(r"(?<!:)\bqosd_\w+", f.read().split("- name: qosd-fleet")[1]))
    known = set()
    for m in list_metrics():
        if m["name"].endswith(".count"):
            known.add(counter(m["name"].removesuffix(".count"), "ns").removesuffix("_total"))
        known.add(counter(m["name"], m["unit"]) if m["kind"] == "counter"
                  else counter(m["name"], m["unit"]).removesuffix("_total"))
    check(len(used) > 10, f"there are few metrics: {used}")
    equal(used - known, set(), "metrics that there are not")


class Watched:
    """A unit in Prometheus."""

    def __init__(self, unit):
        self.unit = unit
        self.selector = f'{{__name__=~"qosd_requests_.*_total",unit="{unit.name}"}}'
        self.histogram = f'qosd_requests_server_first_byte_seconds{{unit="{unit.name}"}}'
        self.prometheus = Prometheus(FEATURES)

    def counters(self):
        return {r["metric"]["__name__"]: float(r["value"][1]) for r in self.prometheus.results(self.selector)}

    def wait_scraped(self):
        """Until Prometheus has what there is now, from a scrape that has begun since."""
        now = time.time()
        wait_for("a scrape",
                 lambda: self.prometheus.query("timestamp(qosd_requests_server_total"
                                               f"{{unit='{self.unit.name}'}}) > {now}"), 30)

    def resets_of(self, series):
        r = self.prometheus.query(f"resets({series}[10m])")
        equal(len(r), 1, f"results for {series}")
        return r[0]

    def expect(self, want, what):
        for name in ("qosd_requests_server_total", "qosd_requests_server_in_bytes_total",
                     "qosd_requests_server_protocols_tcp_total"):
            equal(self.resets_of(f'{name}{{unit="{self.unit.name}"}}'), want, f"resets of {name} {what}")

    def equals_get(self):
        """Each counter of the unit at rest, between two readings that are the same."""
        units = {m["name"]: m["unit"] for m in list_metrics()}
        before = varlink("Get", unit=self.unit.name, window=0)
        self.wait_scraped()
        got = self.counters()
        after = varlink("Get", unit=self.unit.name, window=0)
        totals = {m: n for m, n in after["totals"].items() if m.startswith("requests.")}
        equal({m: before["totals"][m] for m in totals}, totals, "the counters of a unit at rest")
        check(len(totals) > 20, f"there are few counters: {totals}")
        want = {counter(m, units[m]): n / scenario.SEC if units[m] == "ns" else n for m, n in totals.items()}
        equal({name: got.get(name) for name in want}, want, "counters in Prometheus")


def list_metrics():
    with scenario.Varlink() as v:
        return v.collect("ListMetrics")


@test()
def essential_by_default():
    """The exporter has by default what ListMetrics marks as essential, and no other metric of a unit but three that are
    none of a window."""
    serve()
    s = start_served(mode="thread")
    load(s, connections=1, number=10)
    expect_total(s, 10)
    essential = [m for m in list_metrics() if m["essential"]]
    check(20 < len(essential) < 100, f"{len(essential)} essential metrics")
    want = {"qosd_unit_info", "qosd_drops_total", "qosd_cost_seconds_total"}
    for m in essential:
        distribution = m["name"].removesuffix(".count")
        if m["unit"] == "1" and any(o["name"] == distribution + ".p99" for o in essential):
            want.add(counter(distribution, "ns").removesuffix("total") + "count")
        elif m["unit"] != "ns":
            want.add(counter(m["name"], m["unit"]) if m["kind"] == "counter"
                     else counter(m["name"], m["unit"]).removesuffix("_total"))
    got = {name.split("{")[0] for name in samples(scrape()[1], s.name)}
    got = {name for name in got if not name.endswith(("_bucket", "_sum", "_created"))}
    equal(got - want, set(), "metrics that are not essential")
    # Some kinds of errors are not known of all protocols
    check(want - got <= {f"qosd_requests_server_errors_{of}_total" for of in ("status5xx", "grpc", "replies")},
          f"essential metrics that are missing: {want - got}")
    check(len(got) <= 32, f"{len(got)} series of a unit")


@test(deadline=120, own_daemon=True)
def no_reset_over_a_crash():
    """Behind kill -9 of qosd, with requests before, meanwhile and afterwards, all goes on."""
    serve()
    configure("[Exporter]\nExport=probes\n")
    try:
        s = start_served(mode="thread")
        load(s, connections=4, number=300)
        expect_total(s, 300)
        w, since = Watched(s), created(s)
        equal(since, varlink("Get", unit=s.name, window=0)["attachedSince"], "created timestamp")
        w.equals_get()
        for i in range(3):
            client = scenario.Client(s, connections=4, number=100)
            scenario.kill_qosd()
            equal(client.wait()["answered"], 100, "responses")
            expect_total(s, 300 + 100 * (i + 1))
            w.equals_get()
            equal(created(s), since, "created timestamp behind a crash")
        equal(w.prometheus.query(f'qosd_requests_server_total{{unit="{s.name}"}}'), [600], "requests")
        equal(w.prometheus.query(f"histogram_count({w.histogram})"), [600], "requests in the histogram")
        w.expect(0, "over crashes")
        equal(w.resets_of(w.histogram), 0, "resets of the histogram")
        equal(w.prometheus.query(f'max(max_over_time(qosd_requests_server_total{{unit="{s.name}"}}[10m]))'), [600],
              "the largest value")
    finally:
        configure(None)


@test(deadline=120, own_daemon=True)
def one_reset_over_an_attach():
    """A new attach is one, also if more was counted by the next scrape than before: the created timestamp says so."""
    serve()
    configure("[Exporter]\nExport=probes\n")
    try:
        # With no other unit the programs would be loaded anew, which takes seconds
        start_served()
        s = start_served(mode="thread")
        load(s, connections=4, number=100)
        expect_total(s, 100)
        w, since = Watched(s), created(s)
        w.equals_get()
        for i in range(2):
            # No scrape has any of the small numbers
            systemctl("stop", *UNITS)
            # Prometheus takes no created timestamp from before its mark that the series have ended
            wait_for("the exporter is missed", lambda: w.prometheus.query("up{job='qosd'}") == [0], 30)
            qosctl("detach", s.name)
            attach(s)
            load(s, connections=4, number=200 * (i + 1))
            expect_total(s, 200 * (i + 1))
            serve()
            w.equals_get()
            now = created(s)
            check(now > since, f"created {now} and before {since}")
            equal(now, varlink("Get", unit=s.name, window=0)["attachedSince"], "created timestamp")
            since = now
            equal(w.prometheus.query(f'qosd_requests_server_total{{unit="{s.name}"}}'), [200 * (i + 1)],
                  "requests since the attach")
            w.expect(i + 1, f"over {i + 1} new attaches")
    finally:
        configure(None)


@test(deadline=120, own_daemon=True)
def endpoints_without_reset():
    """With Export=everything the endpoints of a unit have the requests of their clients, and no reset while the other
    one is busy, nor over kill -9 of qosd."""
    serve()
    idle, busy = unused_ports(2)
    u = Nginx([f"127.0.0.1:{idle}", f"127.0.0.1:{busy}"])
    attach(u)
    u.start()
    ab(idle, 70)
    try:
        configure("[Exporter]\nExport=everything\n")
        p = Prometheus(FEATURES)

        def count(port):
            return p.query(f'qosd_requests_server_endpoint_total{{unit="{u.name}",endpoint="127.0.0.1:{port}"}}')

        wait_for("Prometheus has the first requests", lambda: count(idle) == [70], 30)
        client = threading.Thread(target=lambda: [ab(busy, 30000, connections=8) for _ in range(2)])
        client.start()
        wait_for("the other one is counted", lambda: count(busy) and count(busy)[0] > 0, 30)
        scenario.kill_qosd()
        client.join()
        wait_for("Prometheus has all", lambda: (count(idle), count(busy)) == ([70], [60000]), 30)
        for name in "total", "in_bytes_total", "out_bytes_total", "client_aborts_total":
            equal(p.query(f'resets(qosd_requests_server_endpoint_{name}{{unit="{u.name}"}}[10m])'), [0, 0],
                  f"resets of {name}")
        equal(p.query(f'qosd_requests_server_total{{unit="{u.name}"}}'), [60070], "requests of the unit")
        equal(p.query(f'sum by (unit) (qosd_requests_server_endpoint_total{{unit="{u.name}"}})'), [60070],
              "requests of the endpoints")
        for accept, name in (OPENMETRICS, "openmetrics"), ("text/plain", "prometheus"):
            served, printed = ({k: v for k, v in samples(text, u.name).items() if 'endpoint="' in k}
                               for text in (scrape(accept=accept)[1],
                                            qosctl("metrics", u.name, f"--format={name}",
                                                   "--export=everything").stdout))
            equal(served, printed, f"samples of endpoints in {name}")
            check(len(served) >= 14, f"there are few of them: {served}")
    finally:
        configure(None)
    check("endpoint=" not in scrape()[1], "there are endpoints without the setting")
