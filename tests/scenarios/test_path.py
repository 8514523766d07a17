# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe network: the time that segments spend in each layer, compared with what the application does."""

import socket
import time

from scenario import attach, check, equal, test, wait_for, within
from test_flows import Flows, network


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


@test(deadline=90, own_daemon=True, needs_vm=True, vm="nightly")
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
    exchange(u, s, 3)
    r = receiving(u)
    equal((r["unstamped"], r["driver"]["count"], r["total"]["count"], r["socket"]["count"]), (3, 3, 3, 6), "stamped")

    for step in (3600, -3600):
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + step)
        exchange(u, s, 20)
        r = receiving(u)
        check(r["unstamped"] > 3, f"unstamped: {r}")
        time.sleep(1.1)
        exchange(u, s, 1)
    r = receiving(u)
    equal((r["unstamped"] + r["driver"]["count"], r["socket"]["count"]), (48, 48), "segments")
    check(r["driver"]["count"] >= 5 and r["driver"]["max"] < 60e9 and r["total"]["max"] < 60e9, f"times: {r}")
    s.close()
