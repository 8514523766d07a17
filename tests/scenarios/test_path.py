# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe network: the time that segments spend in each layer, compared with what the application does."""

import json
import os
import re
import socket
import subprocess
import time

import scenario
from scenario import attach, check, equal, qosctl, run, test, wait_for, within
from test_flows import COUNTS, Flows, network, ss


def receiving(unit):
    return network(unit)["receiving"]


@test(deadline=60, own_daemon=True)
def reader_that_sleeps():
    """A reader that comes later: the time in the socket is that between the arrival and the read, of each segment; the
    layers add up to the total."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.create_connection(("127.0.0.1", u.port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    u.do("conns[0] = server.accept()[0]")
    least = most = 0
    for _ in range(5):
        before = time.monotonic_ns()
        s.sendall(b"x" * 100)
        sent = time.monotonic_ns()
        time.sleep(0.1)
        reads = time.monotonic_ns()
        u.do("assert len(conns[0].recv(1000)) == 100")
        least, most = least + reads - sent, most + time.monotonic_ns() - before
    r = wait_for("it is recorded", lambda: (r := receiving(u))["socket"]["count"] >= 5 and r)
    counts = {key: r[key]["count"] for key in ("driver", "socket", "total")}
    equal((counts, r["ip"]["count"] + r["backlog"]["count"]), ({"driver": 5, "socket": 5, "total": 5}, 5), "segments")
    equal(r["unstamped"], 0, "segments without arrival")
    check(least / 5 * 0.99 <= r["socket"]["mean"] <= most / 5, f"{least / 5} to {most / 5} ns in the socket: {r}")
    parts = sum(r[key]["mean"] * r[key]["count"] for key in ("driver", "ip", "backlog", "socket") if r[key]["count"])
    within(r["total"]["mean"] * 5, parts, 0, 40, "sum of the layers")
    # More segments than are kept one by one
    for _ in range(40):
        s.sendall(b"x" * 10)
        time.sleep(0.002)
    u.do("n = 400\nwhile n: n -= len(conns[0].recv(n))")
    r = wait_for("all is recorded", lambda: (r := receiving(u))["socket"]["count"] >= 45 and r)
    equal(r["socket"]["count"], 45, "segments")
    s.close()


def exchange(unit, s, n):
    for _ in range(n):
        s.sendall(b"x")
        unit.do("conns[0].recv(1)")


@test(deadline=90, own_daemon=True, needs_vm="the clock, and arrival stamps, are those of all labs", vm="nightly")
def arrival_stamps(qosd_conf):
    """With ReceiveTimestamps=no the kernel stamps no packets, unless others request that: what begins at the stamp is
    absent, and counted. The same holds while the clock is set, and no time is wrong by the step."""
    qosd_conf("[QoS]\nReceiveTimestamps=no\n")
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.create_connection(("127.0.0.1", u.port))
    u.do("conns[0] = server.accept()[0]")
    exchange(u, s, 3)
    r = receiving(u)
    equal((r["unstamped"], r["driver"]["count"], r["total"]["count"], r["socket"]["count"]), (3, 0, 0, 3),
          "unstamped, driver, total and socket")
    qosd_conf("[QoS]\nReceiveTimestamps=yes\n")
    attach(u, "--probes=requests,network")
    exchange(u, s, 3)
    r = receiving(u)
    equal((r["unstamped"], r["driver"]["count"], r["total"]["count"], r["socket"]["count"]), (0, 3, 3, 3), "stamped")

    for step in (3600, -3600):
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + step)
        exchange(u, s, 20)
        r = receiving(u)
        check(r["unstamped"] > 0, f"unstamped: {r}")
        time.sleep(1.1)
        exchange(u, s, 1)
    r = receiving(u)
    equal((r["unstamped"] + r["driver"]["count"], r["socket"]["count"]), (45, 45), "segments")
    check(r["driver"]["count"] >= 5 and r["driver"]["max"] < 60e9 and r["total"]["max"] < 60e9, f"times: {r}")
    s.close()


@test(deadline=60, own_daemon=True)
def segments_on_their_way_out():
    """Each segment that a unit sends counts at the queue of the device and at the driver, mere acknowledgements do
    not."""
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    s = socket.create_connection(("127.0.0.1", u.port))
    u.do("conns[0] = server.accept()[0]; conns[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
    exchange(u, s, 20)
    equal(network(u)["transmitting"]["total"]["count"], 0, "acknowledgements")
    for _ in range(30):
        u.do("conns[0].sendall(b'y')")
        s.recv(1)
    t = network(u)["transmitting"]
    equal((t["ip"]["count"], t["total"]["count"], t["pacing"]["count"]), (30, 30, 0), "segments")
    check(0 < t["ip"]["mean"] <= t["total"]["mean"], f"times: {t}")
    within(t["qdisc"], t["total"]["mean"] - t["ip"]["mean"], 0, 1, "mean time in the queue")
    s.close()


@test(deadline=60, own_daemon=True)
def parts_of_round_trips():
    """Round trips over a link with a known delay: nearly all of it is on the wire; both parts together are not longer
    than the client sees."""
    cable = scenario.Cable(delay_us=10000)
    u = Flows(settings=f"NetworkNamespacePath=/run/netns/{cable.b}")
    attach(u, "--probes=requests,network")
    u.start()
    client = subprocess.Popen([*scenario.nsenter(cable.a), "python3", "-c", f"""
import socket
s = socket.create_connection(("{cable.address_b}", {u.port}))
for _ in range(20): s.sendall(b"x"); s.recv(1)
s.close()"""])
    u.do("conns[0] = server.accept()[0]\nwhile conns[0].recv(1): conns[0].sendall(b'y')")
    equal(client.wait(), 0, "client")
    f = wait_for("all is recorded", lambda: (f := network(u))["rttWire"]["count"] >= 20 and f)
    equal((f["rttWire"]["count"], f["rttKernel"]["count"]), (20, 20), "samples")
    # 10 ms in each direction; relays take some time themselves
    check(20e6 <= f["rttWire"]["p50"] * 1.2 and f["rttKernel"]["mean"] < f["rttWire"]["mean"] / 2, f"parts: {f}")
    cable.cut()


# Run instead of ssh: passes messages of varlink on to this qosd. The times of the other host are ahead by {ahead} ns
SSH = """#!/usr/bin/python3
import json, socket, sys, threading
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[sys.argv.index("-W") + 1])
def requests():
    while data := sys.stdin.buffer.raw.read(65536):
        s.sendall(data)
threading.Thread(target=requests, daemon=True).start()
rest = b""
while data := s.recv(1 << 20):
    *replies, rest = (rest + data).split(b"\\0")
    for r in map(json.loads, replies):
        p = r.get("parameters", {{}})
        if "times" in p:
            p["times"] = [t + {ahead} for t in p["times"]]
        sys.stdout.buffer.write(json.dumps(r).encode() + b"\\0")
        sys.stdout.buffer.flush()
"""


def path(unit, *arguments, ahead=0, **more):
    """qosctl path to this host, by another name."""
    name = f"/run/{scenario.unit_name('ssh', '')}"
    with open(name, "w") as f:
        f.write(SSH.format(ahead=ahead))
    os.chmod(name, 0o755)
    r = qosctl("path", unit, "elsewhere", "--for=2s", *arguments, env=os.environ | {"SYSTEMD_SSH": name}, **more)
    os.unlink(name)
    return r


@test(deadline=60, own_daemon=True)
def path_between_hosts():
    """Two units on the ends of a link with 10 ms there and 2 ms back: the sum is that of both, and the truth is within
    the bounds of both directions, also if the clock of the other host is 3 s ahead."""
    cable = scenario.Cable(delay_us=10000, delay_back_us=2000)
    near, far = (Flows(settings=f"NetworkNamespacePath=/run/netns/{ns}") for ns in (cable.a, cable.b))
    for u in near, far:
        attach(u, "--probes=requests,network")
        u.start()
    near.do(f"""
def talk():
    s = socket.create_connection(("{cable.address_b}", {far.port}))
    while True:
        s.sendall(b"x" * 1500)
        n = 1500
        while n > 0: n -= len(s.recv(n))
import threading
threading.Thread(target=talk, daemon=True).start()""")
    far.do("""
def echo(s):
    while data := s.recv(65536): s.sendall(data)
import threading
threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()""")
    for ahead in 0, 3000000000:
        p = json.loads(path(near.name, "--json=short", ahead=ahead).stdout)
        check(p["there"]["samples"] >= 20 and p["back"]["samples"] >= 20, f"samples: {p}")
        # Relays take some time themselves, and hold packets longer than that
        check(12e6 <= p["sum"] * 1.02 and p["sum"] < 30e6, f"sum: {p}")
        check(p["there"]["lowest"] <= 10e6 * 1.02 and 10e6 <= p["there"]["highest"] * 1.02, f"there: {p}")
        check(p["back"]["lowest"] <= 2e6 * 1.02 and 2e6 <= p["back"]["highest"] * 1.02, f"back: {p}")
        check(p["clockOffset"]["lowest"] <= ahead <= p["clockOffset"]["highest"], f"clock: {p}")
    text = path(near.name, ahead=3000000000).stdout
    for pattern in (r"There: P50 between \S+ and \S+, \d+ samples", r"Back: P50 between \S+ and \S+, \d+ samples",
                    r"Both ways: P50 1\S+ms", r"Clocks: that of elsewhere is ahead by 2\.99\d+s to 3\.01\d+s"):
        check(re.search(pattern, " ".join(text.split())), f"no {pattern}: {text}")
    other = Flows()
    attach(other, "--probes=requests,network")
    r = path(other.name, ok=False)
    equal((r.returncode, "Found no data on connections of" in r.stderr), (1, True), f"no connection: {r.stderr}")
    attach(other, "--probes=requests")
    r = path(other.name, ok=False)
    check(r.returncode == 1 and r.stderr.count("\n") == 1, f"without the probe: {r.stderr}")
    cable.cut()


@test(deadline=120, needs_vm="the development kernel has no tbf", vm="nightly")
def token_bucket():
    """A segment of each of ten connections in a token bucket filter: the last one waits until the others have left."""
    netns, device = f"{scenario.prefix}-tbf", f"{scenario.prefix[-8:]}t"
    run("ip", "netns", "add", netns)
    run("ip", "link", "add", device, "type", "veth", "peer", "name", "peer", "netns", netns)
    for command in (("addr", "add", "10.203.0.1/24", "dev", device), ("link", "set", device, "up")):
        run("ip", *command)
    for command in (("addr", "add", "10.203.0.2/24", "dev", "peer"), ("link", "set", "peer", "up")):
        run("ip", "-n", netns, *command)
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    clients = []
    for i in range(10):
        code = f"import socket, time; s = socket.create_connection(('10.203.0.1', {u.port})); time.sleep(99)"
        clients.append(subprocess.Popen([*scenario.nsenter(netns), "python3", "-c", code]))
        u.do(f"conns[{i}] = server.accept()[0]")
    equal(network(u)["transmitting"]["total"]["count"], 0, "segments before")
    run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", "1mbit", "burst", "1600", "limit", "100000")
    begin = time.monotonic_ns()
    u.do("for i in range(10): conns[i].sendall(b'y' * 1400)")
    spread = time.monotonic_ns() - begin
    t = wait_for("all have left", lambda: (t := network(u)["transmitting"])["total"]["count"] == 10 and t)
    # 1400 bytes with the headers of TCP (with timestamps), IP and Ethernet, at 1 Mbit/s
    each = (1400 + 32 + 20 + 14) * 8 * 1000
    for key, segments in ("max", 9), ("mean", 4.5):
        # As much less as later ones were sent later
        check(segments * each * 0.9 - spread <= t["total"][key] <= segments * each * 1.1 + 5e6,
              f"{key}, with {segments} segments before, sent within {spread} ns: {t}")
    for client in clients:
        client.kill()
    run("ip", "link", "del", device)


def link_in_the_vm(netns, device):
    """A veth device here, with its peer in the namespace, and a VLAN on both; their addresses here."""
    run("ip", "netns", "add", netns)
    run("ip", "link", "add", device, "type", "veth", "peer", "name", "peer", "netns", netns)
    for ns, name, host in ([], device, 1), (["-n", netns], "peer", 2):
        vlan = f"{name}.5"
        for command in (("link", "add", "link", name, "name", vlan, "type", "vlan", "id", "5"),
                        ("addr", "add", f"10.204.0.{host}/24", "dev", name),
                        ("addr", "add", f"10.205.0.{host}/24", "dev", vlan),
                        ("link", "set", name, "up"), ("link", "set", vlan, "up")):
            run("ip", *ns, *command)
    return {device: "10.204.0.1", f"{device}.5": "10.205.0.1"}


@test(deadline=120, needs_vm="the development kernel has no VLAN and no fq", vm="nightly")
def links_of_all_kinds():
    """Over a veth, a VLAN on it, with each queueing discipline, with and without segmentation by the device, bytes are
    those that sock_diag has, and segments have times on both ways. Only those that fq delays are paced."""
    netns, device = f"{scenario.prefix}-links", f"{scenario.prefix[-8:]}l"
    addresses = link_in_the_vm(netns, device)
    u = Flows()
    attach(u, "--probes=requests,network")
    u.start()
    for name, address in addresses.items():
        for discipline, segments in ("pfifo", 65535), ("fq_codel", 65535), ("fq", 65535), ("fq", 1):
            what = f"{name}, {discipline}, {segments}"
            run("tc", "qdisc", "replace", "dev", device, "root", discipline)
            run("ip", "link", "set", "dev", name, "gso_max_segs", str(segments))
            before = network(u)
            code = f"""
import socket
s = socket.create_connection(('{address}', {u.port}))
for i in range(20):
    s.sendall(b'x' * 5000)
    n = 40000
    while n: n -= len(s.recv(n))
print('done', flush=True)
s.recv(1)"""
            client = subprocess.Popen([*scenario.nsenter(netns), "python3", "-c", code], stdout=subprocess.PIPE,
                                      text=True)
            u.do("s = server.accept()[0]")
            if discipline == "fq":
                u.do("s.setsockopt(socket.SOL_SOCKET, 47, 4000000)")     # SO_MAX_PACING_RATE, bytes/s
            u.do("for i in range(20):\n n = 5000\n while n: n -= len(s.recv(n))\n s.sendall(b'y' * 40000)")
            equal(client.stdout.readline(), "done\n", what)
            kernel, = ss("sport", f"= :{u.port}")
            f = wait_for("all is recorded",
                         lambda: (f := network(u))["bytesAcked"] - before["bytesAcked"] == kernel["bytesAcked"] and f)
            equal({key: f[key] - before[key] for key in COUNTS}, kernel, what)
            equal(f["bytesReceived"] - before["bytesReceived"], 100000, what)
            for way in "receiving", "transmitting":
                equal(f[way]["total"]["count"] > before[way]["total"]["count"], True, f"{what}: segments {way}")
            equal(f["transmitting"]["pacing"]["count"] > before["transmitting"]["pacing"]["count"],
                  discipline == "fq", f"{what}: paced")
            equal(f["rtt"]["count"] > before["rtt"]["count"], True, f"{what}: round trips")
            # No state is left on this side
            client.kill()
            u.do("s.recv(1); s.close()")
            wait_for("the connection is gone", lambda: not ss("sport", f"= :{u.port}"))
    run("ip", "link", "del", device)
