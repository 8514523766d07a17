# SPDX-License-Identifier: LGPL-2.1-or-later
"""Diagnoses of units whose responses the network, or their own way of sending, holds up."""

import collections
import os
import re
import tempfile
import time

import scenario
from diagnosing import FIRST, Toiler, case, fetching, found, loaded, prepare, said, script
from scenario import Server, check, equal, wait_for


def ss_limits(u, netns=None):
    """Returns what TCP waited for on all connections of a server, according to ss(8). busy: milliseconds with data to
    send; window: those of them in which the receive window of the client was the limit; connections; full: those of
    them with a full send buffer."""
    limits = collections.Counter()
    for _ in range(20):
        out = scenario.run(*scenario.nsenter(netns), "ss", "-tinmHO", "state", "established",
                           f"sport = :{u.port}").stdout
        limits.update(busy=sum(map(int, re.findall(r"\bbusy:(\d+)ms", out))),
                      window=sum(map(int, re.findall(r"\brwnd_limited:(\d+)ms", out))))
        for limit, queued in re.findall(r"\btb(\d+),f\d+,w(\d+),", out):
            limits.update(connections=1, full=int(queued) >= int(limit))
    return limits


def ss_counts(u, seconds=2):
    """Returns how often ss(8) shows each flag of the connections of a server: which of them have unsent data, and
    why."""
    counts = collections.Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for line in scenario.run("ss", "-tinHO", "state", "established", f"sport = :{u.port}").stdout.splitlines():
            counts.update({"connections"} | {word.partition(":")[0] for word in line.split()})
    return counts


# The HTTP server of Python's standard library, which writes head and body separately, with Nagle's algorithm or without
HTTP_SERVER = """
import functools, http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    disable_nagle_algorithm = sys.argv[2] == "nodelay"
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), functools.partial(Handler, directory=sys.argv[3])).serve_forever()
"""


def head_and_body(option):
    """Yields the unit. Returns its diagnosis, the median of the seconds that a response took the client, and
    ss_counts()."""
    with tempfile.TemporaryDirectory(dir="/run") as path:
        os.chmod(path, 0o755)
        with open(f"{path}/index.html", "w") as f:
            f.write("x" * 500)
        u = script(HTTP_SERVER, option, path)
        with fetching(u.port, "/index.html") as times:
            wait_for("some responses", lambda: len(times) > 50)
            counts = ss_counts(u)
            del times[:]
            d = yield u
            seconds = sorted(times)[len(times) // 2]
    return d, seconds, counts


@case("nagle", deadline=120, quiet="light")
def nagle():
    """Head and body of responses are written separately, and clients delay acknowledgements."""
    d, seconds, counts = yield from head_and_body("nagle")
    check(seconds > 0.03, f"a response takes the client {seconds} s")
    check(counts["notsent"] > counts["connections"] / 2, f"unsent data: {counts}")
    check(counts["rwnd_limited"] == counts["sndbuf_limited"] == 0, f"windows and buffers: {counts}")
    f = found(d, "nagle")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("TCP_NODELAY" in f["text"], f"the remedy: {f}")
    check(abs(f["time"] / scenario.SEC - seconds) < seconds / 3, f"a response takes the client {seconds} s: {f}")


@case(deadline=120, quiet="light", recorded=True)
def head_and_body_without_delay():
    """Head and body of responses are written separately, with TCP_NODELAY."""
    d, seconds, counts = yield from head_and_body("nodelay")
    check(seconds < 0.03, f"a response takes the client {seconds} s")
    check(d["figures"]["sendNagle"] == 0, f"unsent parts: {said(d)}")


@case("receiveWindow", quiet="light")
def slow_readers():
    """Clients read responses slowly that are larger than all buffers."""
    s = Toiler(response=8 << 20)
    with loaded(s, connections=4, response=8 << 20, read_rate=16 << 20, rcvbuf=65536):
        d = yield s
        limits = ss_limits(s)
    check(limits["window"] > limits["busy"] / 2, f"what TCP waited for: {limits}")
    f = found(d, "receiveWindow")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("clients read too slowly" in f["text"], f"the cause: {f}")


def far_away(options, load, congestion="reno"):
    """Yields a unit with a round-trip time of 40 ms to its clients. Returns its diagnosis and ss_limits()."""
    prepare()
    cable = scenario.Cable(delay_us=20000)
    scenario.run("ip", "netns", "exec", cable.b, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}")
    s = Server(address="::", mode="thread", netns=cable.b, settings=FIRST, **options).start()
    with loaded(s, netns=cable.a, address=cable.address_b, **load):
        d = yield s
        limits = ss_limits(s, cable.b)
    cable.cut()
    return d, limits


@case("sendBuffer", quiet="light")
def small_send_buffer():
    """The contents of a small send buffer are in flight for 40 ms. The response is written in parts, as a single write
    may exceed the size of the buffer."""
    d, limits = yield from far_away(dict(response=60000, parts=30, sndbuf=8192), dict(connections=4))
    check(limits["full"] > limits["connections"] / 2 and limits["window"] < limits["busy"] / 2,
          f"what TCP waited for: {limits}")
    f = found(d, "sendBuffer")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("SO_SNDBUF" in f["text"], f"the remedy: {f}")


@case("network", quiet="light")
def slow_start():
    """Each connection has one response of ten times the initial congestion window."""
    yield from slow_path("reno")


@case("network", quiet="light", recorded=True)
def slow_path_bbr():
    """With BBR, each connection has one response of ten times the initial congestion window, with segments that are
    paced."""
    yield from slow_path("bbr")


def slow_path(congestion):
    d, limits = yield from far_away(dict(response=150000), dict(connections=4, per_connection=1), congestion)
    check(limits["window"] < limits["busy"] / 2, f"what TCP waited for: {limits}")
    f = found(d, "network")
    check("the path to clients is slow" in f["text"], f"the cause: {f}")
    check(35 * scenario.MSEC < d["figures"]["sendRtt"] < 80 * scenario.MSEC, f"round-trip time: {said(d)}")


def over_a_cable(cable):
    prepare()
    s = Server(address="::", mode="thread", response=100000, netns=cable.b, settings=FIRST).start()
    with loaded(s, netns=cable.a, address=cable.address_b, connections=4):
        d = yield s
    cable.cut()
    f = found(d, "network")
    check("segments are retransmitted" in f["text"] or "segments are lost" in f["text"], f"the cause: {f}")


@case("network", also=("cpu",), quiet="light")
def loss_towards_clients():
    """Three of a hundred packets are lost on the way to the clients."""
    yield from over_a_cable(scenario.Cable(drop=30, delay_us=500, seed=7))


@case("network", deadline=120, vm="nightly", needs_vm="the development kernel has no netem")
def netem_towards_clients():
    yield from over_a_cable(scenario.NetemCable(netem="loss 3% delay 5ms"))
