# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that wait by intent are no latency, and one of the same kind that is stuck is found. The client knows which
are which."""

import contextlib
import http.client
import threading
import time

import http2
import scenario
from scenario import (MSEC, SEC, Unit, attach, check, equal, protocols, qosctl, qosctl_json, server_figures, test,
                      total, unused_port, wait_for)
from test_tls_probe import placed


class Polled(Unit):
    """intent_server.py, with a client for each of its verbs."""

    def __init__(self, kind):
        self.port, self.other_port = unused_port(), unused_port()
        self.turn = threading.Lock()
        # What sets off the responses of an event loop that is preempted meanwhile is no proof, see METRICS.md
        super().__init__(f"/usr/bin/python3 {scenario.SOURCES}/intent_server.py {self.port} {kind}"
                         f"{f' {self.other_port}' if kind == 'loop' else ''}",
                         settings="CPUSchedulingPolicy=fifo" if kind == "loop" else "")

    def get(self, path, timeout=60, port=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)) as c:
            begun = time.monotonic_ns()
            c.request("GET", path)
            equal(c.getresponse().read(), b"ok\n", path)
            return time.monotonic_ns() - begun

    @contextlib.contextmanager
    def requests(self, pause=0.02):
        """Fast ones, beside all else, on a connection of their own. Yields a list with the time of each."""
        end, times = threading.Event(), []

        def load():
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as c:
                while not end.wait(pause):
                    with self.turn:
                        begun = time.monotonic_ns()
                        c.request("GET", "/fast")
                        c.getresponse().read()
                        times.append(time.monotonic_ns() - begun)
        thread = threading.Thread(target=load)
        thread.start()
        try:
            yield times
        finally:
            end.set()
            thread.join()

    @contextlib.contextmanager
    def polls(self, n, seconds, verb="poll"):
        """Such requests, which have all been read when this yields the list of the times of those that have got their
        response."""
        # Without a fast one
        with self.turn:
            before, times = server_figures(self)["inFlight"], []
        threads = [threading.Thread(target=lambda: times.append(self.get(f"/{verb}/{seconds}")), daemon=True)
                   for _ in range(n)]
        for t in threads:
            t.start()
        # Short ones may have ended before
        wait_for("all wait", lambda: len(times) == n or server_figures(self)["inFlight"] >= before + n)
        yield times
        for t in threads:
            t.join()

    def poll_for(self, seconds, n=3):
        """Long polls that end with an event after that time. Returns their times."""
        with self.polls(n, 50) as times:
            time.sleep(seconds)
            # No other request shortly before
            with self.turn:
                time.sleep(0.1)
                self.get("/event")
        return times


def counted(unit, requests, intended, times=()):
    """Waits until all of these count, and returns the figures. times: what clients saw of those that waited."""
    wait_for(f"{requests} requests count", lambda: total(unit) == requests)
    f = server_figures(unit)
    equal(f["intended"]["count"], intended, f"requests that have waited by intent, clients {times}, of {f}")
    equal(f["latency"]["count"], requests - intended, "latency.count")
    return f


def mean_of(times, f):
    """All clients were at it at once, so that their own times are a little longer."""
    mean, want = f["intended"]["latency"], sum(times) / len(times)
    check(0.8 * want < mean <= want, f"mean of waits by intent: {mean / SEC} s, of which clients saw {want / SEC} s")


@test(deadline=60)
def event_loop():
    """A long poll that another request ends, in an event loop, is not in the latency; a slow request of the same length
    is."""
    u = Polled("loop")
    attach(u)
    u.start()
    with u.requests() as fast:
        times = u.poll_for(1.5) + u.poll_for(2)
    f = counted(u, len(fast) + 6 + 2, intended=6, times=times)
    check(f["latency"]["max"] < max(fast) + 500 * MSEC, f"latency with long polls: {f['latency']}")
    mean_of(times, f)

    with u.requests() as more:
        u.get("/sleep/1")
    f = counted(u, len(fast) + len(more) + 6 + 2 + 1, intended=6)
    check(f["latency"]["max"] >= SEC, f"latency with a slow request: {f['latency']}")


@test(deadline=60)
def threads():
    """With a thread for each request: an event and a timeout end a long poll, the end of a lock and of a sleep do
    not."""
    u = Polled("threads")
    attach(u, "--probes=requests,cpu")
    u.start()
    with u.requests() as fast:
        times = u.poll_for(1.5)
        with u.polls(2, 1.2) as more:
            pass
    f = counted(u, len(fast) + 3 + 1 + 2, intended=5, times=times + more)
    check(f["latency"]["max"] < max(fast) + 500 * MSEC, f"latency with long polls: {f['latency']}")
    mean_of(times + more, f)

    with u.polls(1, 1, verb="hold"), u.polls(3, 0, verb="lock"):
        pass
    u.get("/sleep/0.5")
    f = counted(u, len(fast) + 3 + 1 + 2 + 4 + 1, intended=5)
    check(f["latency"]["max"] >= SEC, f"latency with a lock: {f['latency']}")


@test(deadline=60)
def watch():
    """A response with a line each half second ends with its first second, and is not in flight from then on."""
    u = Polled("threads")
    attach(u)
    u.start()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", u.port, timeout=60)) as c:
        c.request("GET", "/watch/8/0.5")
        r = c.getresponse()
        equal(r.read(3 * 5), b"ab\n" * 5, "the first lines")
        f = wait_for("it is a stream", lambda: (f := server_figures(u))["streams"] == 1 and f)
        check(f["inFlight"] == 0 and "oldestInFlight" not in f, f"a stream is in flight: {f}")
        equal(r.read(), b"ab\n" * 3, "the others")
        c.request("GET", "/fast")
        equal(c.getresponse().read(), b"ok\n", "a request behind it")
    f = counted(u, 2, intended=0)
    equal(f["streams"], 1, "streams")
    check(f["latency"]["max"] < 2 * SEC, f"its messages are in the latency: {f['latency']}")


@test(deadline=90)
def stuck():
    """Of a unit with long polls the oldest request in flight is not one of these, until one waits for far longer than
    they do."""
    u = Polled("loop")
    attach(u)
    u.start()
    u.poll_for(2.5)
    equal(server_figures(u)["intended"]["count"], 3, "long polls")
    qosctl("set-threshold", u.name, "stuck: requests.server.oldestInFlight > 500ms over 2s")

    def state():
        return {t["name"]: t["state"] for t in qosctl_json("list-thresholds", u.name)}["stuck"]

    with u.polls(1, 50):
        begun = time.monotonic()
        # A usual one
        while time.monotonic() < begun + 1.2:
            f = server_figures(u)
            equal(f["inFlight"], 1, "in flight")
            check(f.get("oldestInFlight", 0) < 500 * MSEC, f"a long poll is taken for a stuck request: {f}")
            check(state() != "violated", "the threshold is violated by a long poll")
        # It has no end
        wait_for("it is stuck", lambda: server_figures(u)["waiting"] == 1, timeout=20)
        wait_for("the threshold is violated", lambda: state() == "violated", timeout=20)
        u.get("/event")


@test(deadline=60)
def other_endpoint():
    """Long polls of one endpoint say nothing of another one: a request there that takes long is slow, and stuck as long
    as it is in flight; those that are slow there do not change what is known of the first one."""
    u = Polled("loop")
    attach(u)
    u.start()
    u.poll_for(2.5)
    equal(server_figures(u)["intended"]["count"], 3, "long polls")
    for _ in range(10):
        u.get("/sleep/0.2", port=u.other_port)
    other = threading.Thread(target=lambda: u.get("/poll/50", port=u.other_port), daemon=True)
    with u.polls(1, 50):
        other.start()
        f = wait_for("the other one is stuck",
                     lambda: (f := server_figures(u)).get("oldestInFlight", 0) > 500 * MSEC and f)
        equal((f["inFlight"], f["waiting"], f["intended"]["inFlight"]), (2, 1, 1), f"in flight: {f}")
        # No other request shortly before
        time.sleep(0.1)
        u.get("/event")
    other.join()
    # The event has ended both
    counted(u, 3 + 1 + 10 + 2 + 1, intended=5)


def http2_polls(*files, probes="requests", context=None):
    """An event loop with HTTP/2, where long polls share a connection with other requests."""
    port = unused_port()
    u = Unit(f"/usr/bin/python3 -B {scenario.SOURCES}/http2_server.py {port} {' '.join(files)}",
             settings="CPUSchedulingPolicy=fifo").start()
    attach(u, f"--probes={probes}")
    if context:
        # Connections made before are counted by their TLS records
        placed(u)
    with http2.Client(port, context=context) as c:
        def release(streams):
            equal([s.status for s in c.wait_all([*streams, c.start("/release")])], [200] * (len(streams) + 1), "status")

        def poll(n):
            streams = [c.start("/hang") for _ in range(n)]
            wait_for("all wait", lambda: server_figures(u)["inFlight"] == n)
            return streams
        streams = poll(1)
        time.sleep(2)
        release(streams)
        # Known by now, also while they are in flight
        streams = poll(3)
        wait_for("three are delayed by intent", lambda: (f := server_figures(u))["intended"].get("inFlight") == 3 and
                 f.get("waiting") == 0 and "oldestInFlight" not in f)
        release(streams)
        equal(c.ask("/late/300/200").status, 200, "status of a slow request")
        # It begins, and goes on
        equal(c.ask("/slow/300").status, 200, "status of a long response")
    f = counted(u, 8, 4)
    equal(protocols(f), {"http2": 8}, "protocols")
    # The response of no long poll is recorded with its end either
    check(2 * 300 * MSEC < f["latency"]["mean"] * f["latency"]["count"] < 2 * 300 * MSEC + SEC, f"latency of {f}")


@test(deadline=60)
def http2_event_loop():
    http2_polls()


@test(deadline=60)
def http2_event_loop_with_tls():
    files, context = scenario.certificate()
    http2_polls(*files, probes="requests,tls", context=context)
