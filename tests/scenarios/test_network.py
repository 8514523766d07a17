# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bad networks: lost, duplicated, reordered and delayed segments, resets and full queues neither lose nor add a
request."""

import os
import re
import subprocess

import scenario
from capture import exchanges
from scenario import (MSEC, Cable, Client, NetemCable, Server, Talk, attach, check, count, equal, expect_total, load,
                      lookup, nsenter, run, server_figures, start_served, test, total, wait_for, within)


def all_is_over(server):
    return wait_for("nothing is in flight",
                    lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(server)))


def over_a_bad_cable(cable, per_connection=(0, 1), number=180):
    """Sends requests and responses of several segments over IPv4 and IPv6, on kept and on new connections. Returns what
    the cable did, and how many segments the server's kernel retransmitted."""
    s = Server(address="::", netns=cable.b, mode="thread", request=5000, response=20000)
    attach(s)
    s.start()
    requests = 0
    for address in (cable.address_b, cable.address6_b):
        for each in per_connection:
            r = load(s, netns=cable.a, address=address, connections=12, number=number, per_connection=each)
            equal(r["failed"], 0, "failures at the client")
            requests += number
    expect_total(s, requests)
    expect_total(s, requests * 5000, "requests.server.bytesIn")
    expect_total(s, requests * 20000, "requests.server.bytesOut")
    f = all_is_over(s)
    equal(f["latency"]["count"], requests, "latency.count")

    # The kernel's counter includes retransmitted SYN-ACKs, which belong to no connection yet; qosd's may include them
    sent_again = cable.counter("TcpRetransSegs")
    handshakes = cable.counter("TcpExtTCPSynRetrans")
    expect_total(s, sent_again - handshakes, "requests.server.connections.retransmits", up_to=sent_again)
    return cable.cut(), sent_again


def over_a_relay(must_happen, per_connection=(0, 1), **faults):
    did, sent_again = over_a_bad_cable(Cable(**faults), per_connection)
    for direction, what in must_happen:
        check(did[direction][what] > 0, f"a fault did not happen: {did}")
    equal(did["overflow"], 0, "packets that overflowed the relay")
    return sent_again


@test(deadline=60)
def lost():
    sent_again = over_a_relay([("forth", "dropped"), ("back", "dropped")], drop=20, delay_us=200, seed=1)
    check(sent_again > 0, "nothing was retransmitted")


@test(deadline=60)
def duplicated():
    over_a_relay([("forth", "duplicated"), ("back", "duplicated")], duplicate=200, delay_us=100, seed=2)


@test(deadline=60)
def out_of_order():
    over_a_relay([("forth", "reordered"), ("back", "reordered")], reorder=100, delay_us=200, seed=3)


@test(deadline=60)
def all_at_once():
    over_a_relay([("forth", "dropped"), ("forth", "duplicated"), ("forth", "reordered"), ("back", "dropped")],
                     drop=10, duplicate=30, reorder=50, delay_us=300, seed=4)


@test(deadline=60)
def lost_end_of_the_handshake():
    """The last ACK of the handshake is lost: a segment of the request, not always the first, establishes the
    connection."""
    over_a_relay([("forth", "handshakeDropped"), ("forth", "reordered")], per_connection=(1, 3), drop_handshake=500,
                 reorder=150, delay_us=200, seed=5)


@test(deadline=60, needs_vm="the development kernel has no netem")
def netem():
    _, sent_again = over_a_bad_cable(NetemCable(netem="loss 2% duplicate 3% delay 2ms 1ms reorder 20% 50%"), number=60)
    check(sent_again > 0, "nothing was retransmitted")


@test()
def fast_open():
    """A request in a SYN (TCP Fast Open) is counted, although it arrives before the connection is established."""
    cable = Cable()
    for ns in (cable.a, cable.b):
        # The container's own /proc/sys is read-only
        run(*nsenter(ns), "unshare", "--mount", "sh", "-c",
            "mount -t proc proc /mnt && echo 3 >/mnt/sys/net/ipv4/tcp_fastopen")
    s = Server(address=cable.address_b, netns=cable.b, mode="thread", fastopen=True)
    attach(s)
    s.start()
    load(s, netns=cable.a, address=cable.address_b, connections=4, number=100, per_connection=1, fastopen=True)
    load(s, netns=cable.a, address=cable.address_b, connections=4, number=100, fastopen=True)
    check(cable.counter("TcpExtTCPFastOpenPassive") >= 90, "there was no connection with TCP Fast Open")
    expect_total(s, 200)
    expect_total(s, 200 * 64, "requests.server.bytesIn")
    f = all_is_over(s)
    equal(f["latency"]["count"], 200, "latency.count")
    equal(lookup(f, "connections.open"), 0, "connections.open")
    cable.cut()


@test()
def delayed():
    """A round trip of 40 ms is in the latency that the client measures, and not in that of the server."""
    cable = Cable(delay_us=20000)
    s = Server(address=cable.address_b, netns=cable.b, mode="thread", delay_us=5000)
    attach(s)
    s.start()
    c = load(s, netns=cable.a, address=cable.address_b, connections=4, number=100)
    expect_total(s, 100)
    f = server_figures(s)
    for name in ("mean", "max"):
        most = c["latency"][name] - 40 * MSEC
        check(5 * MSEC <= f["latency"][name] <= most, f"latency.{name} {f['latency'][name]} instead of 5 ms to {most}")
    cable.cut()


@test()
def keep_alive_probes():
    """Keepalive probes from both sides on idle connections count as no requests."""
    cable = Cable()
    s = Server(address=cable.address_b, netns=cable.b, mode="thread", keepalive=True)
    attach(s)
    s.start()
    t = Talk(s, netns=cable.a, address=cable.address_b, connections=3, keepalive=True)
    t.say("run 2")
    wait_for("both sides have probed",
             lambda: min(cable.counter("TcpExtTCPKeepAlive", ns) for ns in (cable.a, cable.b)) >= 4,
             10, pause=0.2)
    f = server_figures(s)
    equal(f["count"], 6, "count")
    equal(f["inFlight"], 0, "inFlight")
    equal(lookup(f, "connections.open"), 3, "connections.open")
    equal(total(s, "requests.server.connections.retransmits"), 0, "retransmits")
    t.say("run 2")
    expect_total(s, 12)
    expect_total(s, 12 * 64, "requests.server.bytesIn")
    t.end()
    cable.cut()


@test()
def zero_windows():
    """Zero window probes, while the server or the client does not read, change no count; requests remain in flight."""
    cable = Cable()
    go = f"/run/{scenario.prefix}-go"
    s = Server(address=cable.address_b, netns=cable.b, mode="thread", request=400000, response=3000000, rcvbuf=16384,
               accept_when=go)
    attach(s)
    s.start()
    try:
        c = Client(s, netns=cable.a, address=cable.address_b, connections=2, number=2)
        wait_for("the client probes the server's window", lambda: cable.counter("TcpExtTCPWinProbe", cable.a) > 0, 10,
                 pause=0.1)
        f = server_figures(s)
        equal(f["count"], 0, "count while the server does not read")
        equal(f["inFlight"], 2, "inFlight while the server does not read")
        open(go, "w").close()
        equal(c.wait()["answered"], 2, "responses")
        expect_total(s, 2)
    finally:
        if os.path.exists(go):
            os.unlink(go)

    t = Talk(s, netns=cable.a, address=cable.address_b, connections=2, rcvbuf=16384)
    for n in range(2, 4):
        t.say("send")
        wait_for("its response began", lambda: count(s) == 2 * n, 10)
        before = cable.counter("TcpExtTCPWinProbe")
        wait_for("the server probes the client's window", lambda: cable.counter("TcpExtTCPWinProbe") > before, 10,
                 pause=0.1)
        equal(count(s), 2 * n, "count while the client does not read")
        equal(server_figures(s)["inFlight"], 2, "inFlight while the client does not read")
        t.say("take")
        wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    equal(count(s), 6, "count")
    expect_total(s, 6 * 400000, "requests.server.bytesIn")
    expect_total(s, 6 * 3000000, "requests.server.bytesOut")
    t.end()
    cable.cut()


@test(deadline=40, quiet="loaded")
def silent_death_of_a_client():
    """When the network fails during a request, it is in flight until the server's kernel gives up the connection: a
    timeout."""
    cable = Cable()
    s = Server(address=cable.address_b, netns=cable.b, mode="thread", keepalive=True, hang=True)
    attach(s)
    s.start()
    t = Talk(s, netns=cable.a, address=cable.address_b, connections=2)
    t.say("send")
    wait_for("two are in flight", lambda: server_figures(s)["inFlight"] == 2)
    # The server's keepalive probes get no response any more
    cable.cut()
    with scenario.occupied():
        wait_for("the kernel gave up",
                 lambda: "ESTAB" not in scenario.tcp_states(cable.b, f"sport = :{s.port}"), 15, pause=0.1)
    equal((server_figures(s)["inFlight"], count(s)), (0, 0), "inFlight, count")
    equal(total(s, "requests.server.errors.timeout"), 2, "errors.timeout")
    t.client.process.kill()


def accept_queue_overflows(netns, drops):
    go = f"/run/{scenario.prefix}-go"
    s = Server(address="127.0.0.1", netns=netns, backlog=4, accept_when=go, mode="thread")
    attach(s)
    s.start()
    before = drops()
    # The client sends a SYN that was dropped again after 1, 3, 7 and 15 s
    c = Client(s, netns=netns, connections=20, number=20, timeout_ms=40000, retry=True)
    try:
        # The accept queue has one entry more than the backlog, and another one where two arrive on two CPUs at once
        def full():
            f, listener = server_figures(s), run(*nsenter(netns), "ss", "-ltnH", f"sport = :{s.port}").stdout.split()
            return f if lookup(f, "connections.acceptQueue") == int(listener[1]) >= 5 else None
        f = wait_for("the accept queue is full", full)
        equal(lookup(f, "connections.acceptQueueMax"), 4, "acceptQueueMax")
        wait_for("attempts were dropped", lambda: total(s, "requests.server.connections.listenDrops") > 0)
        equal(count(s), 0, "count")
        f = wait_for("their requests are in flight",
                     lambda: (lambda f: f if f["inFlight"] >= 5 else None)(server_figures(s)))
        first = f["oldestInFlight"]
        wait_for("they get older", lambda: server_figures(s)["oldestInFlight"] > first)
    finally:
        open(go, "w").close()
    try:
        r = c.wait()
        equal(r["answered"], 20, "responses")
        expect_total(s, 20)
        all_is_over(s)
        # The server also accepts connections that the client closed without a request
        f = wait_for("the accept queue is empty",
                     lambda: (lambda f: f if lookup(f, "connections.acceptQueue") == 0 else None)
                     (server_figures(s)))
        check(f["queue"]["max"] > first, f"the wait for accept() is not in queue: {f['queue']}")
        return s, drops() - before
    finally:
        os.unlink(go)


@test(deadline=60)
def accept_queue():
    """A server that does not accept is visible in the accept queue and its limit, in listenDrops, and in the number and
    age of requests in flight."""
    cable = Cable()     # only for its namespace, whose counters no other program changes
    s, dropped = accept_queue_overflows(cable.b, lambda: cable.counter("TcpExtListenDrops"))
    check(dropped > 0, "the kernel dropped nothing")
    # The program looks at the queue before the kernel does, and the server may have taken one from it meanwhile
    within(total(s, "requests.server.connections.listenDrops"), dropped, 0, 2, "listenDrops")
    cable.cut()


class Connects:
    """Clients that connect and send nothing."""

    def __init__(self, netns, port, number):
        self.process = subprocess.Popen(nsenter(netns) + ["python3", "-c", f"""
import socket, sys
clients = [socket.socket() for _ in range({number})]
for c in clients:
    c.setblocking(False)
    c.connect_ex(("127.0.0.1", {port}))
sys.stdin.read()"""], stdin=subprocess.PIPE)

    def end(self):
        self.process.stdin.close()
        equal(self.process.wait(timeout=10), 0, "the clients")


def segments_dropped(cable, port):
    return int(re.search(r"skmem:\([^)]*,d(\d+)\)",
                         run(*nsenter(cable.b), "ss", "-ltnHm", f"sport = :{port}").stdout)[1])


@test(deadline=40)
def deferred_accept():
    """With TCP_DEFER_ACCEPT the kernel drops the last ACK of each handshake; only dropped connection attempts are in
    listenDrops."""
    cable = Cable()     # only for its namespace
    s = Server(address="127.0.0.1", netns=cable.b, defer=30, backlog=4, mode="single")
    attach(s)
    s.start()
    before = cable.counter("TcpExtListenDrops")
    load(s, netns=cable.b, connections=1, number=200, per_connection=1)
    expect_total(s, 200)
    check(segments_dropped(cable, s.port) >= 200, "nothing was deferred")
    equal((cable.counter("TcpExtListenDrops") - before, total(s, "requests.server.connections.listenDrops")), (0, 0),
          "drops")

    # Without SYN cookies the queue of incomplete handshakes overflows
    run(*nsenter(cable.b), "sysctl", "-q", "net.ipv4.tcp_syncookies=0")
    c = Connects(cable.b, s.port, 12)
    wait_for("attempts are dropped", lambda: cable.counter("TcpExtListenDrops") - before >= 7)
    c.end()
    expect_total(s, cable.counter("TcpExtListenDrops") - before, "requests.server.connections.listenDrops")
    equal((cable.counter("TcpExtListenOverflows"), cable.counter("TcpExtTCPReqQFullDrop") > 0), (0, True),
          "why they were dropped")
    cable.cut()


@test(deadline=40)
def deferred_accept_queue():
    """With TCP_DEFER_ACCEPT, connections that the kernel drops because the accept queue is full are in listenDrops."""
    cable = Cable()
    s = Server(address="127.0.0.1", netns=cable.b, defer=30, backlog=4, accept_when=f"/run/{scenario.prefix}-never",
               mode="thread")
    attach(s)
    s.start()
    before = cable.counter("TcpExtListenDrops")
    c = Client(s, netns=cable.b, connections=20, number=20, timeout_ms=1500, retry=True)
    wait_for("attempts are dropped", lambda: cable.counter("TcpExtListenOverflows") > 0)
    c.process.kill()
    c.process.wait(timeout=10)

    def counted():
        """Returns the kernel's overflows and drops, and qosd's listenDrops. They may increase after the clients have
        ended."""
        return (cable.counter("TcpExtListenOverflows"), cable.counter("TcpExtListenDrops") - before,
                total(s, "requests.server.connections.listenDrops"))

    wait_for("all count the same drops", lambda: len(set(counted())) == 1)
    cable.cut()


@test(deadline=60)
def accept_queue_in_the_main_namespace():
    s, _ = accept_queue_overflows(None, lambda: 0)
    backlog = run("ss", "-ltnH", f"sport = :{s.port}").stdout.split()
    equal(backlog[2], "4", "the kernel's limit")


@test()
def unit_with_its_own_network():
    """Requests on sockets in another network namespace, as with PrivateNetwork=, are counted for the unit."""
    cable = Cable()
    s = Server(address="127.0.0.1", netns=cable.b, mode="thread").start()
    t = Talk(s, netns=cable.b, connections=3)
    t.say("run 2")
    attach(s)
    t.say("run 10")
    expect_total(s, 30)
    load(s, netns=cable.b, connections=4, number=200, per_connection=1)
    expect_total(s, 230)
    t.end()
    wait_for("all connections are closed", lambda: lookup(server_figures(s), "connections.open") == 0)
    cable.cut()


@test()
def captured():
    """A packet capture has as many exchanges as qosd has counted, and as the clients have made."""
    s = start_served(mode="prefork")
    capture = scenario.Capture(f"{scenario.tools}/{scenario.prefix}.pcap", s.port)
    load(s, connections=16, number=3000)
    load(s, connections=16, number=500, per_connection=1)
    path = capture.stop()
    equal(exchanges(path, s.port), 3500, "exchanges in the capture")
    expect_total(s, 3500)
    os.unlink(path)
