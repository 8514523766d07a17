# SPDX-License-Identifier: LGPL-2.1-or-later
"""The four phases of a request, compared with known delays of the server and with the times that the client measures.
The tolerances are those that qosd promises; the delays are long enough for them."""

import json
import time

from scenario import (MSEC, SEC, Client, Server, Talk, attach, check, count, equal, expect_total, load, lookup,
                      measurement, qosctl,
                      server_figures, snapshot, start_served, test, total, wait_for, within)


def phases_add_up(f):
    """Checks that the means of the phases add up to those of firstByte and latency."""
    parts = [f[p]["mean"] for p in ("receive", "queue", "service")]
    within(sum(parts), f["firstByte"]["mean"], 0.001, 3, "receive + queue + service (means)")
    within(sum(parts) + f["answer"]["mean"], f["latency"]["mean"], 0.001, 4, "all four phases (means)")


def one_thread_sixteen_clients_once():
    s = start_served(mode="single", delay_us=10000)
    c = load(s, connections=16, duration_ms=6000)
    f = server_figures(s)
    equal(f["count"], c["answered"], "count")
    phases_add_up(f)
    # Waits increase while the first 16 requests fill the queue, for the client as well as for qosd
    within(f["latency"]["p50"], c["latency"]["p50"], 0.03, 5000, "latency.p50")
    within(f["latency"]["p95"], c["latency"]["p95"], 0.03, 5000, "latency.p95")
    within(f["latency"]["mean"], c["latency"]["mean"], 0.02, 5000, "latency.mean")
    check(f["queue"]["p50"] > 0.85 * f["latency"]["p50"], f"not in queue: {f}")
    within(f["service"]["p50"], 10 * MSEC, 0.1, 0, "service.p50")
    check(f["receive"]["p95"] < MSEC, f"in receive: {f['receive']}")


@test(quiet="loaded", deadline=60)
def one_thread_sixteen_clients():
    """A server with one thread, 10 ms of service time and 16 clients has a latency of 160 ms, nearly all of it in
    queue."""
    measurement(one_thread_sixteen_clients_once)


def known_delay(phase, length, server, client):
    s = start_served(**server)
    c = load(s, connections=1, number=24, **client)
    f = server_figures(s)
    equal(f["count"], 24, "count")
    phases_add_up(f)
    # A sleep may take longer on a busy machine, and the client's times include that
    check(f[phase]["mean"] > 0.99 * length, f"{phase}.mean {f[phase]['mean']} with {server}")
    within(f["latency"]["mean"], c["latency"]["mean"], 0.02, 5000, f"latency.mean with {server}")
    within(f["latency"]["p50"], c["latency"]["p50"], 0.03, 5000, f"latency.p50 with {server}")
    within(f[phase]["mean"], c["latency"]["mean"], 0.04, 0, f"{phase}.mean with {server}")
    for other in {"receive", "queue", "service", "answer"} - {phase}:
        within(f[other]["mean"], 0, 0, 0.03 * length, f"{other}.mean with {server}")


@test(quiet="loaded", deadline=60)
def known_delays():
    """A known delay in one phase of a request is in that phase alone."""
    for phase, length, server, client in (
            ("service", 30 * MSEC, {"delay_us": 30000, "mode": "thread"}, {}),
            ("receive", 40 * MSEC, {"mode": "thread", "request": 5000}, {"segments": 5, "segment_us": 10000}),
            ("answer",  40 * MSEC, {"mode": "thread", "parts": 5, "gap_us": 10000, "response": 5000}, {}),
            # The server reads the request after 30 ms
            ("queue",   30 * MSEC, {"mode": "thread", "read_us": 30000}, {"per_connection": 1}),
            # The wait for accept() is in queue, too
            ("queue",   30 * MSEC, {"mode": "iterate", "accept_us": 30000, "after": "close"}, {"per_connection": 1})):
        measurement(lambda: known_delay(phase, length, server, client))


@test(deadline=40)
def slow_reader():
    """A response of 20 MB to a client that reads 2 MB/s has its first byte at once, and ten seconds in `answer`."""
    s = start_served(mode="thread", response=20000000)
    c = load(s, connections=1, number=1, read_rate=2000000, rcvbuf=32768)
    f = server_figures(s)
    equal(f["count"], 1, "count")
    # The client's own times include its waits for a CPU
    check(f["firstByte"]["max"] <= c["firstByte"]["max"], f"firstByte {f['firstByte']}, the client's {c['firstByte']}")
    check(f["latency"]["max"] <= c["latency"]["max"], f"latency {f['latency']}, the client's {c['latency']}")
    check(f["answer"]["max"] > 9 * SEC, f"the latency is not in 'answer': {f}")
    phases_add_up(f)


@test(deadline=40)
def slow_upload():
    """The time of a slow upload is in receive, not in service."""
    s = start_served(mode="thread", request=10000000)
    c = load(s, connections=1, number=1, send_rate=2000000)
    f = server_figures(s)
    equal(f["count"], 1, "count")
    # The client's own time includes its waits for a CPU
    check(f["latency"]["max"] <= c["latency"]["max"], f"latency {f['latency']}, the client's {c['latency']}")
    check(f["receive"]["max"] > 4.5 * SEC, f"the latency is not in receive: {f}")
    phases_add_up(f)


@test()
def burst_and_silence():
    """A window that no longer covers a burst is empty, longer ones and the total have it, and later requests are
    counted in all. Windows of all lengths, as time passes: tests/contract/test-figures.c."""
    s = start_served(mode="prefork")
    load(s, connections=32, number=5000)
    equal(server_figures(s, "60s")["count"], 5000, "count in the window of 60 s")
    f = wait_for("the window of 1 s is empty", lambda: (f := server_figures(s, "1s"))["count"] == 0 and f, 3)
    equal(f["latency"]["count"], 0, "latency.count in the window of 1 s")
    check("p50" not in f["latency"], "a quantile of nothing")
    equal((server_figures(s, "60s")["count"], count(s)), (5000, 5000), "count in the window of 60 s, and since attach")
    load(s, connections=32, number=700)
    f = server_figures(s, "60s")
    equal((f["count"], f["latency"]["count"], count(s)), (5700,) * 3, "counts after the silence")


@test()
def steady_rate():
    """The rate in a rolling window does not exceed that of the clients, and is the count divided by the time
    covered."""
    s = start_served(mode="thread")
    c = Client(s, connections=4, think_us=10000, duration_ms=6000)
    time.sleep(2.5)
    for _ in range(10):
        x = snapshot(s, "1s")
        f = lookup(x, "requests.server")
        within(f["rate"] * x["covered"] / SEC, f["count"], 0, 0.01, "rate x covered")
        equal(f["latency"]["count"], f["count"], "latency.count")
        # Windows begin at steps of a sixth of their length at most, and each of 4 clients has a pause of at least 10 ms
        check(x["window"] == SEC, f"window {x['window']}")
        check(5 * SEC / 6 <= x["covered"] <= 7 * SEC / 6, f"covered {x['covered']}")
        check(f["count"] <= 1.1 * 400 * x["covered"] / SEC,
              f"{f['count']} in {x['covered']} ns, there were at most 400/s")
        time.sleep(0.2)
    answered = c.wait()["answered"]
    equal(count(s), answered, "count since attach")


@test()
def covered_is_what_was_attached():
    """Rates are by the time covered, which is shorter than the window right after the attach."""
    s = start_served()
    load(s, connections=1, number=50)
    x = snapshot(s, "60s")
    check(x["covered"] < 30 * SEC, f"covered {x['covered']} of a unit that is attached for a second")
    within(lookup(x, "requests.server.rate"), 50 * SEC / x["covered"], 0.001, 0, "rate")
    equal(x["window"], 60 * SEC, "window")


@test()
def which_quantiles():
    """A quantile needs five samples beyond it; count and max need one."""
    s = start_served()
    sent = 0
    needed = {"p50": 10, "p75": 20, "p90": 50, "p95": 100, "p99": 500, "p999": 5000}
    for upto in (1, *(n - less for n in needed.values() for less in (1, 0))):
        there = [q for q, n in needed.items() if upto >= n]
        load(s, connections=1, number=upto - sent)
        sent = upto
        for name in ("latency", "firstByte", "receive", "queue", "service", "answer"):
            d = server_figures(s)[name]
            equal(d["count"], upto, f"{name}.count")
            check("max" in d and "mean" in d, f"{name} without max or mean: {d}")
            equal([q for q in needed if q in d], there, f"quantiles of {name} with {upto}")
            values = [d[q] for q in there] + [d["max"]]
            # A quantile may exceed max by at most the width of a bucket
            check(all(a <= b * 1.1 for a, b in zip(values, values[1:])), f"{name} does not ascend: {d}")


@test()
def histogram_is_the_distribution():
    """The buckets of a histogram add up to the count, and contain the quantiles."""
    s = start_served(mode="thread", delay_us=2000)
    load(s, connections=4, number=600)
    h = json.loads(qosctl("histogram", s.name, "requests.server.latency", "--window=total", "--json=short").stdout)
    f = server_figures(s)["latency"]
    equal(h["count"], 600, "count")
    equal(sum(b["count"] for b in h["buckets"]), 600, "sum of the buckets")
    within(h["sum"] / 600, f["mean"], 0.0001, 1, "mean")
    for b in h["buckets"]:
        check(b["lower"] < b["upper"], f"bucket {b}")
        check(b["count"] > 0, f"empty bucket {b}")
    last = h["buckets"][-1]
    check(last["lower"] <= f["max"] <= last["upper"], f"max {f['max']} is not in the last bucket {last}")
    for q, rank in (("p50", 300), ("p75", 450), ("p95", 570)):
        seen = 0
        for b in h["buckets"]:
            seen += b["count"]
            if seen >= rank:
                check(b["lower"] <= f[q] <= b["upper"], f"{q} {f[q]} is not in {b}")
                break
    # Bounds of the latency grow by a factor of 2 per 32 buckets
    for b in h["buckets"]:
        if b["lower"] >= 1000000:
            within(b["upper"] / b["lower"], 2 ** (1 / 32), 0.001, 0, "ratio of a bucket's bounds")


@test()
def time_to_the_first_byte_of_a_slow_response():
    """A request is counted at the first byte of its response, and is in flight until the client has read all of it."""
    s = start_served(mode="thread", response=30000000)
    t = Talk(s, rcvbuf=32768)
    t.say("send")
    wait_for("it is counted", lambda: count(s) == 1)
    f = server_figures(s)
    equal(f["inFlight"], 1, "inFlight")
    check(f["firstByte"]["max"] < SEC / 2, f"firstByte {f['firstByte']}")
    t.say("take")
    wait_for("it is done", lambda: server_figures(s)["inFlight"] == 0)
    equal(count(s), 1, "count")
    equal(total(s, "requests.server.bytesOut"), 30000000, "bytesOut")
    t.end()


@test()
def attached_by_path():
    """A control group path can be attached like a unit."""
    s = Server(mode="thread").start()
    path = s.control_group
    attach(path)
    load(s, connections=4, number=500)
    expect_total(path, 500)
    qosctl("detach", path)
