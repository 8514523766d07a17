# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests over UDP: many in flight on one port, responses in any order or none, and datagrams that are no requests."""

import re
import socket
import threading
import time

import scenario
from scenario import (MSEC, SOURCES, Unit, attach, check, equal, expect_total, patience, run, server_figures, smaller,
                      snapshot,
                      test, total, unused_port, wait_for)
from test_dns import queried_unbound


class UdpServer(Unit):
    def __init__(self, mode="echo", address="127.0.0.1", port=None, **keywords):
        self.port = port or unused_port()
        self.address = address
        super().__init__(f"/usr/bin/python3 -B {SOURCES}/udpserver.py {address} {self.port} {mode}", **keywords)

    def connect(self, address=None):
        address = address or self.address
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(10 * patience())
        s.connect((address, self.port))
        return s


def ask(s, request=b"q", answers=1):
    """Sends a request and reads its response. Returns the time that both took."""
    begun = time.monotonic_ns()
    s.send(request)
    for _ in range(answers):
        s.recv(65536)
    return time.monotonic_ns() - begun


def expect_exchanges(unit, n, quality="exchanges"):
    """Checks that there are n requests over UDP, each with its latency, and no others. Returns the figures."""
    expect_total(unit, n)
    f = server_figures(unit)
    equal({k: v for k, v in f["protocols"].items() if v}, {"udp": n} if n else {}, "protocols")
    equal((f["latency"]["count"], f["firstByte"]["count"]), (n, n), "latency.count and firstByte.count")
    equal(snapshot(unit)["requests"].get("quality"), quality if n else None, "quality")
    return f


def settled(unit, n):
    expect_exchanges(unit, n)
    return wait_for("nothing is in flight", lambda: (f := server_figures(unit))["inFlight"] == 0 and f, 3)


@test(vm="nightly")
def exchanges():
    """Requests are counted from the first datagram on, over IPv4, IPv6 and IPv4 on an IPv6 socket, also on sockets that
    are older than the attach."""
    for address, client in (("127.0.0.1", None), ("::1", None), ("::", "127.0.0.1")):
        for first in (True, False):
            u = UdpServer(address=address)
            if first:
                attach(u).start()
            else:
                attach(u.start())
            n = smaller(200)
            for _ in range(3):
                with u.connect(client) as s:
                    for _ in range(n):
                        ask(s, b"question")
            f = settled(u, 3 * n)
            equal((f["bytesIn"], f["bytesOut"]), (3 * n * 8, 3 * n * 3), "bytes")
            equal([(e["listen"].split(":")[-1], e["count"]) for e in f["endpoints"]], [(str(u.port), 3 * n)],
                  "endpoints")
            u.stop()


@test()
def times_and_responses_of_several():
    """A response of several datagrams is one. A request without a response is in flight until its timeout."""
    u = attach(UdpServer()).start()
    with u.connect() as s, u.connect() as other:
        took = ask(s, b"sleep=0.05")
        f = settled(u, 1)
        check(50 * MSEC <= f["latency"]["max"] <= took, f"latency.max {f['latency']['max']}, the client's {took}")
        ask(s, b"pieces=10 size=1000", 10)
        f = settled(u, 2)
        equal(f["bytesOut"], 3 + 10000, "bytesOut")
        for _ in range(5):
            ask(other, b"size=60000")
        other.send(b"hang")
        f = wait_for("one is in flight", lambda: (f := server_figures(u))["inFlight"] == 1 and f)
        check("oldestInFlight" in f, "no oldestInFlight")
        wait_for("it has timed out", lambda: server_figures(u)["inFlight"] == 0, 15, pause=0.5)
        ask(other)
        settled(u, 8)


@test()
def bytes_of_several_open():
    """Bytes of several requests of one client, sent before the first response, are counted once."""
    u = attach(UdpServer()).start()
    questions = [b"sleep=0.3", b"size=500".ljust(300), b"size=700".ljust(1000), b"size=1".ljust(20)]
    with u.connect() as s:
        for q in questions:
            s.send(q)
        answers = [s.recv(65536) for _ in questions]
    # The requests overlap, so that the unit has no count
    expect_total(u, sum(map(len, answers)), "requests.server.bytesOut")
    expect_total(u, sum(map(len, questions)), "requests.server.bytesIn")


@test(deadline=60)
def dns_out_of_order():
    """With a hundred DNS queries in flight on one port, as many are counted as have a response: a tenth has none."""
    u = attach(UdpServer("dns")).start()
    path = f"/run/{scenario.prefix}-queries"
    with open(path, "w") as f:
        for i in range(1000):
            f.write(f"name{i}.example A\n")
    out = run("dnsperf", "-s", "127.0.0.1", "-p", u.port, "-d", path, "-c", 1, "-q", 100, "-t", 5, "-n", 1,
              timeout=60).stdout
    sent, completed, lost = (int(re.search(rf"Queries {what}: +(\d+)", out)[1])
                             for what in ("sent", "completed", "lost"))
    check(lost > 0.05 * sent, f"only {lost} of {sent} were lost")
    expect_exchanges(u, completed)


@test(deadline=60)
def unbound():
    """The count of unbound's responses is that of dnsperf."""
    settled(*queried_unbound("-q", 50))


@test()
def no_requests():
    """Datagrams without responses, responses to a client with a bound port, and QUIC are no requests, and not in
    flight."""
    sink, quic, server = (attach(UdpServer(mode)).start() for mode in ("sink", "echo", "echo"))
    client = attach(UdpServer("ask", port=server.port))
    with sink.connect() as s:
        for _ in range(5000):
            s.send(b"<13>a line")
    many = [sink.connect() for _ in range(100)]
    for s in many:
        s.send(b"one")
        s.close()
    client.start()
    settled(server, 50)
    settled(client, 0)
    settled(sink, 0)
    with quic.connect() as s:
        for _ in range(10):
            s.send(b"\xc3\0\0\0\1\x08" + bytes(1300))
            s.recv(100)
    equal(server_figures(quic)["inFlight"], 0, "in flight, QUIC")
    equal(total(quic), 0, "count, QUIC")
    with quic.connect() as s:
        ask(s)
    equal(total(quic), 1, "count, after QUIC of others")


@test()
def in_the_middle():
    """When a unit is attached under load, only later requests are counted, and all of these."""
    u = UdpServer().start()
    stop = threading.Event()
    sent = []

    def load():
        with u.connect() as s:
            n = 0
            while not stop.is_set():
                ask(s)
                n += 1
            sent.append(n)
    threads = [threading.Thread(target=load) for _ in range(2)]
    for t in threads:
        t.start()
    attach(u)
    wait_for("some are counted", lambda: total(u) > 100)
    stop.set()
    for t in threads:
        t.join()
    before = total(u)
    check(before <= sum(sent), f"{before} were counted of {sum(sent)}")
    with u.connect() as s:
        for _ in range(50):
            ask(s)
    settled(u, before + 50)
