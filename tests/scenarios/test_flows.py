# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe network: what TCP counts of each connection, compared with sock_diag (ss) while connections are open, and
with what both sides have read and written when they have ended."""

import json
import re
import socket
import subprocess
import time

import scenario
from scenario import (Cable, Server, attach, busctl_call, check, equal, kill_qosd, load, lookup, programs, qosctl, run,
                      smaller, snapshot, systemctl, test, unused_port, varlink, varlink_error, wait_for, within)
from test_mptcp import IPPROTO_MPTCP
from test_storage import AGE, Worker

# What ss calls the counts of a connection
COUNTS = {"bytesSent": r"bytes_sent:(\d+)", "bytesAcked": r"bytes_acked:(\d+)",
          "bytesReceived": r"bytes_received:(\d+)", "retransmittedBytes": r"bytes_retrans:(\d+)",
          "retransmits": r" retrans:\d+/(\d+)"}


def network(unit, window="total"):
    figures = lookup(snapshot(unit, window), "network")
    check(figures is not None, "there is no network")
    return figures


def ss(*filter, netns=None):
    """The counts of each connection that matches, as the kernel has them."""
    lines = run(*scenario.nsenter(netns), "ss", "-tinemOH", "state", "connected", *filter).stdout.splitlines()
    return [{key: int(m[1]) if (m := re.search(pattern, line)) else 0 for key, pattern in COUNTS.items()}
            for line in lines]


def add(*parts):
    return {key: sum(part[key] for part in parts) for key in COUNTS}


def figures_of(unit):
    f = network(unit)
    return {key: f[key] for key in COUNTS}


class Flows(Worker):
    """A unit that serves and makes connections, by lines of Python."""

    def start(self):
        super().start()
        self.port = unused_port()
        self.do(f"server = socket.create_server(('::', {self.port}), family=socket.AF_INET6, dualstack_ipv6=True, "
                "backlog=200); conns = {}")


def receive(s, n):
    while n > 0:
        got = len(s.recv(n))
        check(got > 0, "the connection has ended")
        n -= got


@test(deadline=60, own_daemon=True)
def equal_to_sock_diag():
    """Open connections over IPv4, IPv6 and mapped addresses, as a server and as a client, with unread and unsent data:
    the unit has the sums of what sock_diag says, and what was read and written. What closed before is added up."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    read = written = 0
    peers = []
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    for i, address in enumerate(("127.0.0.1", "::1", "127.0.0.1", "::1")):
        s = socket.create_connection((address, u.port))
        u.do(f"conns[{i}] = server.accept()[0]")
        s.sendall(b"x" * (5000 + i))
        # The last one leaves a part unread
        u.do(f"n = {5000 + i if i < 3 else 4000}\nwhile n: n -= len(conns[{i}].recv(n))")
        if i < 3:
            u.do(f"conns[{i}].sendall(b'y' * {30000 + i})")
            receive(s, 30000 + i)
        read, written = read + (5000 + i if i < 3 else 4000), written + (30000 + i if i < 3 else 0)
        peers.append(s)
    u.do(f"conns[4] = socket.create_connection(('127.0.0.1', {port})); conns[4].sendall(b'z' * 70000)")
    peers.append(listener.accept()[0])
    receive(peers[4], 70000)
    peers[4].sendall(b"w" * 123)
    u.do("n = 123\nwhile n: n -= len(conns[4].recv(n))")
    read, written = read + 123, written + 70000

    def truth():
        return add(*ss("sport", "=", f":{u.port}"), *ss("dport", "=", f":{port}"))

    wait_for("all is acknowledged", lambda: truth()["bytesAcked"] == written + 1)
    equal(len(ss("sport", "=", f":{u.port}")), 4, "connections of the server")
    wait_for("the figures are equal", lambda: figures_of(u) == truth(), 2)
    f = network(u)
    equal((f["bytesRead"], f["bytesWritten"], f["duration"]["count"]), (read, written, 0), "read, written, ended")
    before = truth()

    # The unit closes the first one, and the client the second one, which takes a FIN in each direction
    u.do("conns[0].close()")
    equal(peers[0].recv(1), b"", "end of the stream")
    peers[0].close()
    peers[1].close()
    u.do("assert conns[1].recv(1) == b''; conns[1].close()")
    wait_for("two have ended", lambda: network(u)["duration"]["count"] == 2)
    f = network(u)
    equal((f["bytesRead"], f["bytesWritten"]), (read, written), "read and written, when two have ended")
    equal(f["bytesSent"], before["bytesSent"], "sent")
    # A FIN that arrives when the socket has given way to one in TIME_WAIT is not in its counts
    equal(f["bytesAcked"], before["bytesAcked"] + 2, "acknowledged, with a FIN of each")
    check(before["bytesReceived"] + 1 <= f["bytesReceived"] <= before["bytesReceived"] + 2, "received")

    # A reset ends the third one, with its data as it is; the rest of the fourth one is read after its end
    peers[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peers[2].close()
    u.do("conns[3].shutdown(socket.SHUT_WR)")
    equal(peers[3].recv(1), b"", "end of the stream")
    peers[3].close()
    wait_for("two more have ended", lambda: network(u)["duration"]["count"] == 4)
    equal(network(u)["bytesRead"], read, "read")
    u.do("n = 1003\nwhile n: n -= len(conns[3].recv(n))\nassert conns[3].recv(1) == b''")
    wait_for("the rest is read", lambda: network(u)["bytesRead"] == read + 1003, 2)
    equal(network(u)["bytesWritten"], written, "written")


@test(deadline=60, own_daemon=True)
def older_than_the_attach():
    """What was before the attach is not the unit's, and such a connection has no duration."""
    u = Flows()
    u.start()
    s = socket.create_connection(("127.0.0.1", u.port))
    u.do("conns[0] = server.accept()[0]")
    s.sendall(b"x" * 10000)
    u.do("n = 10000\nwhile n: n -= len(conns[0].recv(n))")
    attach(u, "--probes=requests,network")
    equal({key: value for key, value in figures_of(u).items() if value}, {}, "figures at the attach")
    s.sendall(b"x" * 777)
    u.do("n = 777\nwhile n: n -= len(conns[0].recv(n))")
    u.do("conns[0].sendall(b'y' * 50)")
    receive(s, 50)
    f = wait_for("it is counted", lambda: (lambda f: f if f["bytesAcked"] == 50 else None)(network(u)), 2)
    equal((f["bytesReceived"], f["bytesRead"], f["bytesWritten"], f["bytesSent"]), (777, 777, 50, 50), "bytes")
    u.do("conns[0].close()")
    s.close()
    time.sleep(AGE)
    equal(network(u)["duration"]["count"], 0, "durations")
    equal(network(u)["bytesWritten"], 50, "written")


def all_have_ended(unit):
    accepted = lookup(snapshot(unit), "requests.server.connections.accepted")
    return wait_for(f"{accepted} connections have ended",
                    lambda: (lambda f: f if f["duration"]["count"] == accepted else None)(network(unit)))


@test(deadline=120, own_daemon=True)
def many_short_connections():
    """Each of some thousand short connections counts once, over a restart and a crash of qosd, and a restart of the
    unit."""
    s = Server(request=700, response=3000, mode="prefork", workers=2)
    attach(s, "--probes=requests,network")
    s.start()
    third = smaller(3300)
    for change in (lambda: systemctl("restart", "qosd.service"), kill_qosd, s.restart):
        load(s, number=third, connections=8, per_connection=1)
        change()
    load(s, number=100, connections=4, per_connection=1)
    n = 3 * third + 100
    f = all_have_ended(s)
    check(f["duration"]["count"] >= n, f"{f['duration']['count']} connections ended, with {n} requests")
    equal((f["bytesRead"], f["bytesWritten"], f["bytesSent"] - f["retransmittedBytes"]),
          (700 * n, 3000 * n, 3000 * n), "bytes")
    check(3000 * n <= f["bytesAcked"] <= 3001 * n and 700 * n <= f["bytesReceived"] <= 701 * n, f"FINs: {f}")
    # Windows are differences of the same counts
    equal(network(s, "60s")["bytesRead"], 700 * n, "bytes read in 60 s")


@test(deadline=60)
def lost_segments():
    """Retransmissions on a link that loses segments are those that the kernel counts."""
    cable = Cable(drop=30, delay_us=200, seed=7)
    s = Server(address="::", netns=cable.b, mode="thread", request=2000, response=60000)
    attach(s, "--probes=requests,network")
    s.start()
    for address in (cable.address_b, cable.address6_b):
        load(s, netns=cable.a, address=address, connections=6, number=100, per_connection=10)
    f = all_have_ended(s)
    sent_again, handshakes = cable.counter("TcpRetransSegs"), cable.counter("TcpExtTCPSynRetrans")
    check(sent_again > 0, "nothing was retransmitted")
    check(sent_again - handshakes <= f["retransmits"] <= sent_again,
          f"{f['retransmits']} retransmits, the kernel has {sent_again}, of these {handshakes} in handshakes")
    equal(f["recoveries"], cable.counter("TcpExtTCPSackRecovery") + cable.counter("TcpExtTCPRenoRecovery"),
          "recoveries")
    equal(f["bytesSent"] - f["retransmittedBytes"], 200 * 60000, "bytes sent, without retransmissions")
    equal(f["bytesWritten"], 200 * 60000, "bytes written")
    equal(f["bytesRead"], 200 * 2000, "bytes read")
    cable.cut()


@test(deadline=60, own_daemon=True)
def limits_of_sending():
    """An application that pauses, a peer that does not read: the shares are those of the connection's own times."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    begin = time.monotonic()
    s.connect(("127.0.0.1", u.port))
    connected = time.monotonic()
    u.do("conns[0] = server.accept()[0]")
    time.sleep(1)
    shares = network(u)["limitedBy"]
    check(shares["application"] > 0.95, f"with nothing to send: {shares}")

    u.do("conns[0].setblocking(False); conns[0].send(b'x' * 100000)")
    time.sleep(3)
    read = time.monotonic()
    shares = network(u)["limitedBy"]
    line = run("ss", "-tinemOH", "state", "connected", "sport", "=", f":{u.port}").stdout
    after = time.monotonic()
    busy, limited = (int(re.search(rf"{key}:(\d+)ms", line)[1]) for key in ("busy", "rwnd_limited"))
    check(limited > 2500, f"the peer's window did not limit it: {line}")
    # Both have the time since the handshake, at slightly different moments
    within(shares["peerWindow"] / (shares["peerWindow"] + shares["network"] + shares["sendBuffer"]), limited / busy,
           0.02, 0.02, "share of the peer's window")
    least, most = (limited / 1000 - after + read) / (after - begin), limited / 1000 / (read - connected)
    check(least - 0.02 < shares["peerWindow"] < most + 0.02, f"{shares}, {line} in {after - begin} s")
    within(sum(shares.values()), 1, 0.001, 0, "sum of the shares")
    s.close()


@test(deadline=60)
def diagnosis_of_a_window():
    """A peer that does not read is a finding, of a unit without requests, as long as the connection exists."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    s.connect(("127.0.0.1", u.port))
    u.do("conns[0] = server.accept()[0]; conns[0].setblocking(False); conns[0].send(b'x' * 100000)")

    def findings():
        diagnosis = json.loads(qosctl("diagnose", u.name, "--for=2s", "--json=short").stdout)
        return {f["kind"]: f for f in diagnosis["findings"]}

    f = findings()
    check("receiveWindow" in f, f"findings: {f}")
    check("peers read too slowly" in f["receiveWindow"]["text"], f["receiveWindow"]["text"])
    equal(f["receiveWindow"]["next"], f"qosctl connections {u.name}", "the next step")
    u.do("conns[0].close()")
    s.close()
    # What it has waited until its end is in the next window
    wait_for("it is no finding any more", lambda: "receiveWindow" not in findings())


@test(deadline=90)
def history():
    """Steps of the history add up to the counts, with their round-trip times and what limited sending."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.create_connection(("127.0.0.1", u.port))
    u.do("conns[0] = server.accept()[0]")
    for _ in range(20):
        u.do("conns[0].send(b'x' * 1000)")
        receive(s, 1000)
    figures = network(u)
    names = [f"network.{name}" for name in ("bytesWritten", "rtt.count", "rtt.p50", "limitedBy.application")]

    def steps():
        rows = [{name: lookup(step, name) for name in names}
                for step in varlink("History", unit=u.name, metrics=names)["steps"]]
        return [row for row in rows if row["network.bytesWritten"] is not None]

    # Each has some of eight bits
    wait_for("the steps are over",
             lambda: abs(sum(step["network.bytesWritten"] for step in steps()) - figures["bytesWritten"]) <= 200,
             25)
    found = steps()
    within(sum(step["network.rtt.count"] for step in found), figures["rtt"]["count"], 0.01, 0, "round trips")
    shares = [step["network.limitedBy.application"] for step in found if step["network.limitedBy.application"]]
    check(shares and all(0.5 < share <= 1 for share in shares), f"shares: {found}")
    check(any(step["network.rtt.p50"] for step in found), f"medians: {found}")
    equal(varlink_error("History", unit=u.name, metrics=["network.receiving.total.p50"]), "NoHistory", "of layers")


@test(deadline=60)
def endpoints_and_peers():
    """Round-trip times and retransmissions of the endpoint and the peer that a slow, lossy link leads to, and not of
    those on the loopback device."""
    cable = Cable(delay_us=10000, drop=20, seed=3)
    # The namespace of the unit has both
    u = Flows(settings=f"NetworkNamespacePath=/run/netns/{cable.b}")
    attach(u, "--probes=requests,network")
    u.start()
    client = Flows(settings=f"NetworkNamespacePath=/run/netns/{cable.a}")
    client.start()
    other = unused_port()
    u.do(f"local = socket.create_server(('127.0.0.1', {other})); s = socket.create_connection(('127.0.0.1', {other})); "
         "t = local.accept()[0]")
    u.do("[(s.send(b'x' * 100), t.recv(100), t.send(b'y' * 100), s.recv(100)) for i in range(30)]")
    client.do(f"c = socket.create_connection(('{cable.address_b}', {u.port}))")
    u.do("conns[0] = server.accept()[0]")
    u.do("import threading; threading.Thread(target=conns[0].sendall, args=(b'z' * 400000,)).start()")
    client.do("n = 400000\nwhile n: n -= len(c.recv(n))")

    def truth():
        rows = ss("sport", "=", f":{u.port}", netns=cable.b)
        return rows[0]["retransmits"] if rows and rows[0]["bytesAcked"] >= 400000 else None

    retransmits = wait_for("all is acknowledged", truth)
    check(retransmits > 0, "nothing was lost")
    by_port = {}

    def shown():
        by_port.update((row["listen"].rpartition(":")[2], row)
                       for row in snapshot(u)["requests"]["server"]["endpoints"])
        return [by_port[str(port)]["retransmits"] for port in (u.port, other)]
    # A connection is recorded 100 ms after it has moved, at the latest
    wait_for(f"retransmits are {retransmits} and 0", lambda: shown() == [retransmits, 0])
    far, near = by_port[str(u.port)], by_port[str(other)]
    check(20e6 <= far["rtt"] * 1.05 and near["rtt"] < 20e6, f"round-trip times: {by_port}")
    peers = {row["peer"]: row for row in snapshot(u)["requests"]["client"]["peers"]}
    row = peers[f"127.0.0.1:{other}"]
    check(row["retransmits"] == 0 and 0 < row["rtt"] < 20e6, f"peers: {peers}")
    cable.cut()
    alone = Server()
    attach(alone, "--probes=requests")
    alone.start()
    load(alone, number=10, connections=1)
    check("rtt" not in snapshot(alone)["requests"]["server"]["endpoints"][0], "without the probe")


@test(deadline=60)
def limit_of_the_send_buffer():
    """Over a path of 40 ms, a send buffer that takes less than the congestion window: the share is what sock_diag says
    of the time since the connection was opened."""
    cable = Cable(delay_us=20000)
    u = Flows(settings=f"NetworkNamespacePath=/run/netns/{cable.b}")
    attach(u, "--probes=requests,network")
    u.start()
    client = Flows(settings=f"NetworkNamespacePath=/run/netns/{cable.a}")
    client.start()
    # A window for all of it, as nothing is read: SO_RCVBUFFORCE
    begin = time.monotonic()
    client.do("s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 33, 1 << 24); "
              f"s.connect(('{cable.address_b}', {u.port}))")
    connected = time.monotonic()
    u.do("conns[0] = server.accept()[0]; conns[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)")
    u.do("import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: conns[0].send(b'x' * 1000)")

    def chrono():
        line = run(*scenario.nsenter(cable.b), "ss", "-tinemOH", "state", "connected", "sport", "=",
                   f":{u.port}").stdout
        return {key: int(m[1]) if (m := re.search(rf" {key}:(\d+)ms", line)) else 0
                for key in ("busy", "rwnd_limited", "sndbuf_limited")} | {"queued": int(line.split()[1])}

    wait_for("all is acknowledged", lambda: chrono()["queued"] == 0)
    truth = chrono()
    read = time.monotonic()
    shares = network(u)["limitedBy"]
    after = time.monotonic()
    check(truth["sndbuf_limited"] > 1000, f"the send buffer did not limit it: {truth}")
    limited = truth["sndbuf_limited"] / 1000
    check(limited / (after - begin) - 0.02 < shares["sendBuffer"] < limited / (read - connected) + 0.02,
          f"{shares}, {truth} in {after - begin} s")
    busy = (truth["busy"] - truth["sndbuf_limited"] - truth["rwnd_limited"]) / 1000
    check(busy / (after - begin) - 0.02 < shares["network"] < busy / (read - connected) + 0.02,
          f"{shares}, {truth} in {after - begin} s")
    cable.cut()


@test(deadline=60)
def round_trips():
    """Round-trip times and handshakes over a link with a known delay, of both roles; older connections have none."""
    cable = Cable(delay_us=10000)
    s = Server(address="::", netns=cable.b, mode="thread", request=100, response=100)
    attach(s, "--probes=requests,network")
    s.start()
    load(s, netns=cable.a, address=cable.address_b, connections=2, number=60)
    # The acknowledgements of the last responses are under way when the client ends
    f = wait_for("there is a sample for each response", lambda: (f := network(s))["rtt"]["count"] >= 60 and f)
    # 10 ms in each direction; relays take some time themselves
    check(20e6 <= f["rtt"]["p50"] * 1.05 and f["rtt"]["p50"] < 40e6, f"round-trip times: {f['rtt']}")
    equal(f["connecting"]["handshake"]["count"], 0, "handshakes of a server")
    cable.cut()

    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    listener = socket.create_server(("127.0.0.1", 0))
    u.do(f"for i in range(5): conns[i] = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}))")
    f = network(u)
    equal((f["connecting"]["handshake"]["count"], f["connecting"]["synRetransmits"]), (5, 0), "handshakes of a client")
    check(0 < f["connecting"]["handshake"]["max"] < 10e9, f"their time: {f['connecting']}")


@test(deadline=60)
def local_ports():
    """With ten local ports the eleventh connection to one address fails and is counted; with a bound port it does not
    count."""
    netns = f"{scenario.prefix}-ports"
    run("ip", "netns", "add", netns)
    run("ip", "-n", netns, "link", "set", "lo", "up")
    run(*scenario.nsenter(netns), "sysctl", "-qw", "net.ipv4.ip_local_port_range=20000 20009")
    u = Flows(settings=f"NetworkNamespacePath=/run/netns/{netns}")
    attach(u, "--probes=requests,network")
    u.start()
    u.do("listener = socket.create_server(('127.0.0.1', 7)); peer = listener.getsockname()")
    u.do("for i in range(9): conns[i] = socket.create_connection(peer)")
    # One whose SYN may wait until there is data (TCP_FASTOPEN_CONNECT of linux/tcp.h)
    u.do("s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, 30, 1); s.connect(peer); s.send(b'x')")
    f = network(u)["connecting"]
    equal((f["portsExhausted"], f["ports"]["count"], f["handshake"]["count"]), (0, 9, 10), "while there are ports")
    check(0 < f["ports"]["mean"] * 9 < f["handshake"]["mean"] * 10 and f["ports"]["max"] < f["handshake"]["max"],
          f"the search is a part of the handshake: {f}")
    u.do("for i in range(3): failing(socket.create_connection, peer)")
    f = network(u)["connecting"]
    equal((f["portsExhausted"], f["ports"]["count"]), (3, 9), "when there are none")
    u.do("s = socket.socket(); s.bind(('127.0.0.2', 9)); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
         "failing(s.connect, ('127.0.0.1', 8))")
    equal(network(u)["connecting"]["portsExhausted"], 3, "with a port of its own")


@test(deadline=60)
def list_of_connections():
    """Connections as sock_diag has them, those of both roles of the unit, in the order that was requested, for the
    users that may see them."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    clients = [socket.create_connection((address, u.port)) for address in ("127.0.0.1", "::1", "127.0.0.1")]
    for i, s in enumerate(clients):
        u.do(f"conns[{i}] = server.accept()[0]")
        s.sendall(b"x" * 1000 * (i + 1))
        u.do(f"n = {1000 * (i + 1)}\nwhile n: n -= len(conns[{i}].recv(n))")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    u.do(f"conns[9] = socket.create_connection(('127.0.0.1', {port}))")
    rows = varlink("ListConnections", unit=u.name, sort="bytes")["connections"]
    equal([r["bytesReceived"] for r in rows], [3000, 2000, 1000, 0], "bytes received, in descending order")
    names = {f"127.0.0.1:{s.getsockname()[1]}" if ":" not in s.getsockname()[0] else f"[::1]:{s.getsockname()[1]}"
             for s in clients}
    equal({r["peer"] for r in rows if r["role"] == "server"}, names, "clients")
    equal([r["peer"] for r in rows if r["role"] == "client"], [f"127.0.0.1:{port}"], "servers")
    truth = {}
    for line in run("ss", "-tinemOH", "state", "connected", f"( sport = :{u.port} or dport = :{port} )").stdout \
            .splitlines():
        peer = line.split()[4].replace("[::ffff:127.0.0.1]", "127.0.0.1")
        truth[peer] = (int(re.search(r"bytes_received:(\d+)", line)[1]) if "bytes_received" in line else 0,
                       int(re.search(r" cwnd:(\d+)", line)[1]), int(re.search(r" mss:(\d+)", line)[1]))
    equal({r["peer"]: (r["bytesReceived"], r["congestionWindow"], r["mss"]) for r in rows}, truth, "as ss shows it")
    check(all(r["limitedBy"] == "application" and r["queuedBytes"] == 0 and r["state"] == "established" and
              0 < r["age"] < 60e9 for r in rows), f"at rest: {rows}")

    # A peer that does not read
    u.do("conns[0].setblocking(False)\ntry:\n    while True: conns[0].send(b'y' * 100000)\nexcept BlockingIOError: "
         "pass")
    row = wait_for("it is limited", lambda: (lambda r: r if r["limitedBy"] == "peerWindow" else None)(
        varlink("ListConnections", unit=u.name)["connections"][0]))
    check(row["unsentBytes"] > 0 and row["queuedBytes"] == row["unsentBytes"] + row["inFlightBytes"] <=
          row["maxQueuedBytes"], f"its queue: {row}")
    equal(varlink_error("ListConnections", unit=u.name, sort="size"), "org.varlink.service.InvalidParameter", "bad key")
    other = Server()
    attach(other, "--probes=requests")
    equal(varlink_error("ListConnections", unit=other.name), "NotMeasured", "without the probe")
    r = run(*scenario.as_user("nobody"), "qosctl", "connections", u.name, ok=False)
    check(r.returncode != 0, "another user has seen the connections")
    for s in clients:
        s.close()


@test(deadline=60, own_daemon=True)
def nested_and_detached():
    """A slice has the connections of its services; without the probe there are no figures, and the programs are
    unloaded."""
    u = Flows()
    u.start()
    check("network" not in snapshot_of_requests(u), "figures without the probe")
    attach(u, "--probes=requests,network")
    s = socket.create_connection(("::1", u.port))
    u.do("conns[0] = server.accept()[0]; conns[0].sendall(b'y' * 1000)")
    receive(s, 1000)
    wait_for("it is counted", lambda: network(u)["bytesAcked"] == 1000, 2)
    page = qosctl("status", u.name).stdout
    check("Limited by: application" in page, f"status: {page}")
    states = {p["program"]: p["state"] for p in programs() if p["probe"] == "network"}
    check("attached" in states.values() and "unavailable" not in states.values(), f"programs: {states}")
    qosctl("detach", u.name)


def snapshot_of_requests(unit):
    attach(unit, "--probes=requests")
    return snapshot(unit)


@test(deadline=60, own_daemon=True)
def mptcp():
    """The TCP connections of MPTCP listeners."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    port = unused_port()
    u.do(f"m = socket.socket(socket.AF_INET, socket.SOCK_STREAM, {IPPROTO_MPTCP}); "
         f"m.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); m.bind(('127.0.0.1', {port})); m.listen()")
    s = socket.create_connection(("127.0.0.1", port))
    u.do("conns[0] = m.accept()[0]")
    s.sendall(b"x" * 3000)
    u.do("n = 3000\nwhile n: n -= len(conns[0].recv(n))")
    u.do("conns[0].sendall(b'y' * 40000)")
    receive(s, 40000)
    f = wait_for("it is counted", lambda: (lambda f: f if f["bytesAcked"] == 40000 else None)(network(u)), 2)
    equal((f["bytesReceived"], f["bytesSent"]), (3000, 40000), "bytes")


def reasons(figures):
    return {row.get("reason", "others"): row["count"] for row in figures.get("dropReasons", [])}


# A classic BPF program that lets nothing through, as SO_ATTACH_FILTER and SO_DETACH_FILTER of socket(7) have it
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
FILTER = ("import ctypes\ncode = ctypes.create_string_buffer(bytes.fromhex('0600000000000000'))\n"
          "program = (1).to_bytes(8, 'little') + ctypes.addressof(code).to_bytes(8, 'little')")


@test(deadline=60, own_daemon=True)
def discarded_packets():
    """What a filter of the unit's sockets discards is counted with its reason, packet by packet; data that was sent
    twice, and connections that are reset, are no loss. Another unit has none."""
    other = Flows()
    attach(other, "--probes=requests,network")
    other.start()
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    clients = [socket.create_connection((address, u.port)) for address in ("127.0.0.1", "::1")]
    u.do(FILTER)
    for i, s in enumerate(clients):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        u.do(f"conns[{i}] = server.accept()[0]")
    equal(network(u)["drops"], 0, "before")
    for i, s in enumerate(clients):
        u.do(f"conns[{i}].setsockopt(socket.SOL_SOCKET, {SO_ATTACH_FILTER}, program)")
        # The first is sent anew, and so on
        s.sendall(b"x")
        s.sendall(b"y")

    def sent():
        lines = run("ss", "-tinOH", "state", "connected", "dport", "=", f":{u.port}").stdout
        return sum(int(n) for n in re.findall(r"data_segs_out:(\d+)", lines))

    wait_for("each is sent twice", lambda: sent() >= 8)
    for i in range(len(clients)):
        u.do(f"conns[{i}].setsockopt(socket.SOL_SOCKET, {SO_DETACH_FILTER}, 0)")
        u.do(f"n = 2\nwhile n: n -= len(conns[{i}].recv(n))")
    f = network(u)
    equal(reasons(f), {"SOCKET_FILTER": f["drops"]}, "reasons")
    # Those that were let through: one segment of both bytes, or two
    check(sent() - 4 <= f["drops"] <= sent() - 2, f"{f['drops']} discarded, {sent()} sent")
    equal(busctl_call("SnapshotDrops", "st", u.name, 0), [[["SOCKET_FILTER", f["drops"]]]], "on D-Bus")
    equal(busctl_call("SnapshotDrops", "st", other.name, 0), [[]], "on D-Bus, of another unit")
    page = " ".join(qosctl("network", u.name).stdout.split())
    check(f"Discarded: {f['drops']} packets: SOCKET_FILTER {f['drops']}" in page, page)
    for s in clients:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    wait_for("both have ended", lambda: network(u)["duration"]["count"] == 2)
    equal((network(u)["drops"], network(other)["drops"]), (f["drops"], 0), "after resets, and of another unit")
    exported = run("qosctl", "metrics", "--format=prometheus", "--export=everything").stdout
    check(f'qosd_network_drop_reason_total{{unit="{u.name}",reason="SOCKET_FILTER"}} {f["drops"]}\n' in exported,
          "it is exported")


# Discards packets: a process those of sockets that it closes, and an interrupt datagrams that nothing waits for
CLOSING = "import socket\nwhile True:\n a, b = socket.socketpair()\n a.send(b'x')\n a.close()\n b.close()"
SENDING = ("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
           "while True: s.sendto(b'x', ('127.0.0.1', 7))")


@test(deadline=60, quiet="alone")
def skipped_runs():
    """Packets that are discarded in an interrupt, while the same CPU handles another one that is discarded: the kernel
    skips that run of the program. These are drops of each unit with the probe, and of no other one."""
    u, other = Flows(), Flows()
    attach(u, "--probes=requests,network")
    attach(other, "--probes=requests")
    u.start()
    other.start()
    netns = f"{scenario.prefix}-skipped"
    run("ip", "netns", "add", netns)
    run("ip", "-n", netns, "link", "set", "lo", "up")
    # What another CPU sends arrives in interrupts of the first one
    run("ip", "netns", "exec", netns, "sh", "-c", "echo 1 >/sys/class/net/lo/queues/rx-0/rps_cpus")

    def skipped():
        return sum(p.get("recursion_misses", 0) for p in json.loads(run("bpftool", "-j", "prog", "show").stdout)
                   if p.get("name") in ("network_drop", "network_queue", "network_read", "network_xmit"))
    before = skipped()
    processes = [subprocess.Popen(["taskset", "-c", "0", "python3", "-c", CLOSING]),
                 subprocess.Popen([*scenario.nsenter(netns), "taskset", "-c", "1", "python3", "-c", SENDING])]
    try:
        wait_for("runs are skipped", lambda: skipped() >= before + 10, 30)
    finally:
        for p in processes:
            p.kill()
            p.wait()
    n = skipped() - before
    equal((snapshot(u)["drops"], snapshot(other)["drops"]), (n, 0), "drops of the unit, and of one without the probe")
