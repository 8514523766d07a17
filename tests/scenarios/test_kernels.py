# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the lab also runs on the newest kernel of Debian's archive: each request counts there, too."""

import os
import subprocess

import scenario
from scenario import Talk, attach, check, equal, expect_total, lookup, qosctl_json, run, server_figures, snapshot, start_served, test, wait_for
from test_apps import ab_completed
from test_unix import UnixServer, ask

REQUESTS = 12000


def is_clean(u, protocol, count):
    """All requests count, and nothing went wrong. Kernels since 7.0 skip programs that are preempted: such misses are said, and then
    a request may be without its protocol."""
    expect_total(u, count)
    s = snapshot(u, "total")
    figures = s["requests"]["server"]
    equal(sum(figures["protocols"].values()), count, f"requests by protocol, {figures['protocols']}")
    if s["drops"] == 0:
        equal(figures["protocols"].get(protocol), count, f"requests by protocol {figures['protocols']}, of {protocol}")
    equal(figures["clientAborts"], 0, "clientAborts")
    equal({k: n for k, n in figures["errors"].items() if n}, {}, "errors")
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    wait_for("no connection is open", lambda: server_figures(u)["connections"]["open"] == 0)


@test(vm=True, deadline=300)
def nginx():
    """Four workers, more connections than CPUs, keep-alive."""
    port, directory = scenario.unused_port(), f"/run/{scenario.prefix}-nginx"
    os.makedirs(directory)
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(f"worker_processes 4; pid {directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                f"http {{ access_log off; keepalive_requests 100000;\n"
                f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 'response'; }} }} }}\n")
    u = scenario.Unit(f"/usr/sbin/nginx -c {directory}/nginx.conf -g 'daemon off;'", type="exec")
    attach(u)
    u.start()
    wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    completed = sum(ab_completed(run("ab", "-q", "-k", "-n", REQUESTS // 3, "-c", 32, f"http://127.0.0.1:{port}/", timeout=120).stdout)
                    for _ in range(3))
    equal(completed, REQUESTS, "requests that ab completed")
    is_clean(u, "http1", REQUESTS)


@test(vm=True, deadline=300)
def redis():
    """Over a Unix socket, where requests are not parsed: the two by which the benchmark asks for the configuration come at once, and are one."""
    path = f"/run/{scenario.prefix}-redis.sock"
    u = scenario.Unit(f"/usr/bin/redis-server --port 0 --unixsocket {path} --save '' --appendonly no", type="exec")
    attach(u)
    u.start()
    wait_for("it listens", lambda: os.path.exists(path))
    run("redis-benchmark", "-q", "-s", path, "-n", REQUESTS, "-c", 32, "-t", "get", timeout=120)
    is_clean(u, "unix", REQUESTS + 1)


@test(vm=True, deadline=120)
def sockets_of_many_processes():
    """What only the sockets themselves tell, in however many processes they are open, and while they wait to be accepted: through
    iterators over sockets, or through the files of all processes, where the kernel refuses those."""
    s = start_served(mode="prefork", workers=4, backlog=20)
    programs = {p["program"]: p for p in scenario.programs()}
    for name, alternative in (("requests_oldest", "units_walk_tcp"), ("requests_unix_open", "units_walk_unix")):
        if programs[name]["state"] == "attached":
            equal(programs[alternative]["state"], "idle", f"state of {alternative}")
        else:
            equal((programs[name]["state"], programs[alternative]["state"]), ("idle", "attached"), f"states of {name} and {alternative}")
            check(alternative in programs[name]["reason"], f"{name} does not name {alternative}: {programs[name]['reason']}")
    equal([o.get("degraded") for o in qosctl_json("list") if o["unit"] == s.name], [None], "degraded")

    s.kill("SIGSTOP")
    t = Talk(s, connections=5)
    t.say("send")
    f = wait_for("five wait to be accepted", lambda: (f := server_figures(s))["inFlight"] == 5 and f)
    equal((lookup(f, "connections.acceptQueue"), lookup(f, "connections.acceptQueueMax")), (5, 20), "acceptQueue, acceptQueueMax")
    check(f["oldestInFlight"] > 0, "no oldestInFlight")
    s.kill("SIGCONT")
    t.say("take")
    f = wait_for("nothing is in flight", lambda: (f := server_figures(s))["inFlight"] == 0 and f)
    check("oldestInFlight" not in f, "oldestInFlight of nothing")
    equal(lookup(f, "connections.acceptQueue"), 0, "acceptQueue")
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
