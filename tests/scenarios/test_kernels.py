# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each request counts, whatever its protocol. The lab also runs these tests on the newest kernel of Debian's
archive."""

import contextlib
import os
import socket
import subprocess
import threading

import pytest

import scenario
import test_http2
import test_tls
import test_tls_http2
import test_tls_probe
from scenario import (Talk, Varlink, attach, check, equal, expect_total, lookup, qosctl_json, qosd_pid, run,
                      server_figures,
                      snapshot, start_served, test, unused_port, wait_for)
from test_apps import ab_completed
from test_missed import misses
from test_udp import UdpServer
from test_unix import UnixServer, ask

# The others take the emulated CPU of the lab's machines half a minute to load
pytestmark = pytest.mark.probes("requests")
REQUESTS = 12000


def is_clean(u, protocol, count, up_to=None):
    """Checks that all requests count, without errors, drops, and with their protocol. Since Linux 7.0 the kernel skips
    runs of a program that is preempted on the same CPU: if any were skipped, a request may lack its protocol, and drops
    are at most the skipped runs."""
    expect_total(u, count, up_to=up_to)
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    wait_for("no connection is open", lambda: server_figures(u)["connections"]["open"] == 0)
    s = snapshot(u, "total")
    figures = s["requests"]["server"]
    equal(sum(figures["protocols"].values()), figures["count"], f"requests by protocol, {figures['protocols']}")
    skipped = sum(misses().values()) if int(os.uname().release.split(".")[0]) >= 7 else 0
    check(s["drops"] <= skipped, f"{s['drops']} drops, and {skipped} skipped runs")
    if not skipped:
        equal(figures["protocols"].get(protocol), figures["count"],
              f"requests by protocol {figures['protocols']}, of {protocol}")
    equal(figures["clientAborts"], 0, "clientAborts")
    equal({k: n for k, n in figures["errors"].items() if n}, {}, "errors")


def count_http1(load):
    """Four workers of nginx, more connections than CPUs, keep-alive."""
    port, directory = unused_port(), f"/run/{scenario.unit_name('nginx')}"
    os.makedirs(directory)
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(f"worker_processes 4; pid {directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                f"http {{ access_log off; keepalive_requests 100000;\n"
                f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 'response'; }} }} }}\n")
    u = scenario.Unit(f"/usr/sbin/nginx -c {directory}/nginx.conf -g 'daemon off;'", type="exec")
    attach(u)
    u.start()
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    with load:
        completed = sum(ab_completed(run("ab", "-q", "-k", "-n", REQUESTS // 3, "-c", 32, f"http://127.0.0.1:{port}/",
                                         timeout=200).stdout)
                        for _ in range(3))
    equal(completed, REQUESTS, "requests that ab completed")
    is_clean(u, "http1", REQUESTS)


def count_http2(load):
    """Up to 250 streams at a time on a connection, for which its state needs both parts, h2_conns and h2_mores."""
    u = test_http2.Nginx()
    with load:
        n = sum(sum(test_http2.h2load(u, 1000, clients, streams).values())
                for clients, streams in ((1, 1), (2, 100), (1, 250)))
    equal(n, 3000, "requests that h2load completed")
    is_clean(u, "http2", n)


def count_grpc(load):
    u = test_http2.Grpc()
    with load:
        ended = u.call("One", 300, codes=[0])
    equal(ended, {"OK": 300}, "calls that ended")
    is_clean(u, "grpc", 300)


def redis_unit(options):
    u = scenario.Unit(f"/usr/bin/redis-server {options} --save '' --appendonly no", type="exec")
    attach(u)
    return u.start()


def count_redis(load):
    """Commands one at a time, and in pipelines of sixteen."""
    port = unused_port()
    u = redis_unit(f"--bind 127.0.0.1 --port {port}")
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    n = 0
    with load:
        for pipelined in 1, 16:
            run("redis-benchmark", "-q", "-p", port, "-n", REQUESTS // 2, "-c", 16, "-P", pipelined, "-t", "get",
                timeout=200)
            # redis-benchmark requests the configuration
            n += REQUESTS // 2 + 2
    is_clean(u, "redis", n)


def count_unix(load):
    """Redis on a Unix socket, where requests are not parsed, so that the two for the configuration, which are sent
    together, count as one."""
    path = f"/run/{scenario.unit_name('redis', '.sock')}"
    u = redis_unit(f"--port 0 --unixsocket {path}")
    wait_for("the server listens", lambda: os.path.exists(path))
    with load:
        run("redis-benchmark", "-q", "-s", path, "-n", REQUESTS, "-c", 32, "-t", "get", timeout=200)
    is_clean(u, "unix", REQUESTS + 1)


def count_tls(load):
    """HTTP/1 and HTTP/2 in TLS, with the probe "tls"."""
    with load:
        for http2 in False, True:
            u = test_tls.Nginx(http2=http2, label=f"tls-{scenario.unit_name()}")
            test_tls_probe.watched(u)
            u.listens()
            test_tls_probe.placed(u)
            port = u.ports["TLSv1.3"]
            if http2:
                n = test_tls_http2.h2load(u, port, 600, 2, 100, ["/small"])[0]
            else:
                n = ab_completed(run("ab", "-q", "-k", "-n", 1200, "-c", 8, f"https://127.0.0.1:{port}/small",
                                     timeout=200).stdout)
            equal(n, 600 if http2 else 1200, "requests that the client completed")
            is_clean(u, "http2" if http2 else "http1", n)


def count_tls_records(load):
    """TLS without the probe, where requests are distinguished by records."""
    u = test_tls.Nginx(label=f"records-{scenario.unit_name()}", idle=300)
    attach(u).start()
    u.listens()
    n = 0
    with load:
        for version in test_tls.VERSIONS:
            n += ab_completed(run("ab", "-q", "-k", "-n", 600, "-c", 8, f"https://127.0.0.1:{u.ports[version]}/small",
                                  timeout=200).stdout)
    equal(n, 600 * len(test_tls.VERSIONS), "requests that ab completed")
    is_clean(u, "tls", n)


def count_udp(load):
    """Eight clients, each of which waits for its responses."""
    u = UdpServer()
    attach(u).start()
    answered = []

    def client():
        with u.connect() as s:
            for _ in range(100):
                s.send(b"q")
                answered.append(len(s.recv(100)))
    with load:
        clients = [threading.Thread(target=client) for _ in range(8)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
    equal(len(answered), 800, "responses that the clients received")
    is_clean(u, "udp", 800)


@test(vm=True, deadline=300)
def http1():
    count_http1(contextlib.nullcontext())


@test(vm=True, deadline=300)
def http2():
    count_http2(contextlib.nullcontext())


@test(vm=True, deadline=300)
def grpc():
    count_grpc(contextlib.nullcontext())


@test(vm=True, deadline=300)
def redis():
    count_redis(contextlib.nullcontext())


@test(vm=True, deadline=300)
def unix():
    count_unix(contextlib.nullcontext())


@test(vm=True, deadline=300)
def tls():
    count_tls(contextlib.nullcontext())


@test(vm="nightly", deadline=300)
def tls_records():
    count_tls_records(contextlib.nullcontext())


@test(vm=True, deadline=300)
def udp():
    count_udp(contextlib.nullcontext())


@test(vm=True, deadline=120)
def sockets_of_many_processes():
    """Figures of sockets, as accept queues and the age of requests, are right if several processes have a socket open,
    or none yet. They are read by iterators over sockets, or over the files of all processes where the kernel refuses
    the former."""
    s = start_served(mode="prefork", workers=4, backlog=20)
    programs = {p["program"]: p for p in scenario.programs()}
    for name, alternative in (("requests_oldest", "units_walk_tcp"), ("requests_unix_open", "units_walk_unix")):
        if programs[name]["state"] == "attached":
            equal(programs[alternative]["state"], "idle", f"state of {alternative}")
        else:
            equal((programs[name]["state"], programs[alternative]["state"]), ("idle", "attached"),
                  f"states of {name} and {alternative}")
            check(alternative in programs[name]["reason"],
                  f"{name} does not name {alternative}: {programs[name]['reason']}")
    equal([o.get("degraded") for o in qosctl_json("list") if o["unit"] == s.name], [None], "degraded")

    s.kill("SIGSTOP")
    t = Talk(s, connections=5)
    t.say("send")
    # The queue is read anew after 20 ms only
    f = wait_for("five wait to be accepted",
                 lambda: (f := server_figures(s))["inFlight"] == lookup(f, "connections.acceptQueue") == 5 and f)
    equal(lookup(f, "connections.acceptQueueMax"), 20, "acceptQueueMax")
    check(f["oldestInFlight"] > 0, "no oldestInFlight")
    s.kill("SIGCONT")
    t.say("take")
    f = wait_for("nothing waits or is in flight",
                 lambda: (f := server_figures(s))["inFlight"] == lookup(f, "connections.acceptQueue") == 0 and f)
    check("oldestInFlight" not in f, "oldestInFlight without a request")
    t.end()

    u = attach(UnixServer()).start()
    with u.connect() as first:
        ask(first)
        u.kill("SIGSTOP")
        with u.connect() as a, u.connect() as b:
            other = subprocess.Popen(["sleep", "60"], pass_fds=[first.fileno(), a.fileno(), b.fileno()])
            try:
                for c in first, a, b:
                    c.sendall(b"\n")
                f = wait_for("three are in flight", lambda: (f := server_figures(u))["inFlight"] == 3 and f)
                check(f["oldestInFlight"] > 0, "no oldestInFlight")
                u.kill("SIGCONT")
                for c in first, a, b:
                    check(c.recv(100), "no response")
                wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
            finally:
                other.kill()
                other.wait()


@test(vm="nightly")
def varlink_sockets_are_marked():
    """Where sockets have extended attributes, which they do since Linux 7.0, those of varlink have their role in
    one."""
    with socket.socket(socket.AF_UNIX) as own:
        try:
            os.setxattr(own.fileno(), "user.test", b"1")
            expected = {b"listen", b"server"}
        except OSError:
            expected = set()
    descriptors, roles = f"/proc/{qosd_pid()}/fd", set()
    with Varlink() as v:
        v.call("GetStatus")
        for fd in os.listdir(descriptors):
            with contextlib.suppress(OSError):
                roles.add(os.getxattr(f"{descriptors}/{fd}", "user.varlink"))
    equal(roles, expected, "roles of sockets")
