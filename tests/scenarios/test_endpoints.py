# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests of a server by endpoint, the address that it listens at: counts are those of the clients of each address."""

import contextlib
import http.client
import os
import re
import socket
import subprocess

import scenario
from scenario import (Client, Talk, Unit, attach, check, equal, expect_total, kill_qosd, load, lookup, qosctl, run,
                      server_command,
                      server_figures, smaller, snapshot, test, unused_port, varlink, varlink_error, wait_for)
from test_activation import Activated, inetd
from test_redis import command
from test_udp import UdpServer
from test_unix import UnixServer, ask as unix_ask


class Nginx(Unit):
    """An nginx that listens on addresses as written in its configuration. location: the body of its location block."""

    def __init__(self, listen, location='return 200 "ok\\n";', more=""):
        name = scenario.unit_name("nginx")
        self.directory = f"/run/{name}"
        self.configure(listen, location, more)
        super().__init__(f"/usr/sbin/nginx -c {self.directory}/nginx.conf -g 'daemon off;'", name=name, type="exec",
                         settings="ExecReload=/bin/kill -HUP $MAINPID")

    def configure(self, listen, location='return 200 "ok\\n";', more=""):
        self.ports = sorted({int(re.search(r"(\d+)(?: .*)?$", a)[1]) for a in listen})
        os.makedirs(self.directory, exist_ok=True)
        with open(f"{self.directory}/nginx.conf", "w") as f:
            f.write(f"worker_processes 2; pid {self.directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                    f"http {{ access_log off; keepalive_requests 1000000; {more}\nserver {{\n"
                    + "".join(f"listen {a};\n" for a in listen) + f"location / {{ {location} }} }} }}\n")

    def start(self):
        super().start()
        for port in self.ports:
            wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        return self


def unused_ports(n):
    return sorted(unused_port() for _ in range(n))


def ab(port, number, host="127.0.0.1", connections=4, path="/", keepalive=True):
    """Runs ab, and returns the number of responses that it counts."""
    out = run("ab", "-q", "-n", number, "-c", min(connections, number), *(["-k"] if keepalive else []),
              f"http://{host}:{port}{path}", timeout=60).stdout
    equal(int(re.search(r"^Failed requests:\s+(\d+)", out, re.M)[1]), 0, "requests of ab that failed")
    return int(re.search(r"^Complete requests:\s+(\d+)", out, re.M)[1])


def endpoints(unit, window="total"):
    """Returns the endpoints of the unit by their address, and those with excluded requests by the address and "
    excluded"."""
    rows = server_figures(unit, window).get("endpoints", [])
    named = {("others" if r.get("rest") else r["listen"]) + (" excluded" if r.get("excluded") else ""): r for r in rows}
    equal(len(named), len(rows), f"endpoints with different names in {rows}")
    return named


def counts(unit):
    return {name: r["count"] for name, r in endpoints(unit).items()}


def expect_counts(unit, want, what, timed=True):
    """Checks the count of each endpoint, that the figures of the endpoints that are not excluded add up to those of the
    unit, and that nothing is in flight."""
    def settled():
        f = server_figures(unit)
        return counts(unit) == want and f["inFlight"] == 0
    try:
        wait_for(what, settled, 3)
    except scenario.Failed:
        equal(counts(unit), want, f"counts by endpoint {what}")
        raise
    f = server_figures(unit)
    rows = endpoints(unit)
    for key in ("count", "inFlight", "bytesIn", "bytesOut", "clientAborts"):
        equal(sum(r[key] for name, r in rows.items() if not name.endswith("excluded")), f[key], f"sum of {key} {what}")
    for name, r in rows.items():
        if timed:
            equal(r["latency"]["count"], r["count"], f"latency.count of {name} {what}")
        equal(r["inFlight"], 0, f"inFlight of {name} {what}")


@test(vm="nightly")
def exact_by_port():
    """Each port of a unit has exactly its own requests, also after a restart of the unit that opens the ports in
    another order."""
    a, b, c = unused_ports(3)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}", f"{c}"])).start()
    want = {f"127.0.0.1:{a}": 0, f"127.0.0.1:{b}": 0, f"*:{c}": 0}
    for name, port, number in ((f"127.0.0.1:{a}", a, 300), (f"127.0.0.1:{b}", b, 200), (f"*:{c}", c, 70)):
        want[name] += ab(port, smaller(number))
        expect_counts(u, want, "one after the other")
    clients = [subprocess.Popen(["ab", "-q", "-k", "-n", str(smaller(n)), "-c", "2", f"http://127.0.0.1:{port}/"],
                                stdout=subprocess.DEVNULL) for port, n in ((a, 1000), (b, 2000), (c, 3000))]
    for client in clients:
        equal(client.wait(60), 0, "ab's exit status")
    for name, n in ((f"127.0.0.1:{a}", 1000), (f"127.0.0.1:{b}", 2000), (f"*:{c}", 3000)):
        want[name] += smaller(n)
    expect_counts(u, want, "all at once")
    expect_total(u, sum(want.values()))

    u.stop()
    u.configure([f"{c}", f"127.0.0.1:{b}", f"127.0.0.1:{a}"])
    u.start()
    want[f"*:{c}"] += ab(c, 40, keepalive=False)
    want[f"127.0.0.1:{a}"] += ab(a, 30)
    expect_counts(u, want, "after a restart")


@test()
def more_than_there_are_rows():
    """Of twelve endpoints eight have entries of their own, and four share the entry others: the sum is exact."""
    ports = unused_ports(12)
    u = attach(Nginx([f"127.0.0.1:{p}" for p in ports])).start()
    asked = {p: ab(p, 10 + i) for i, p in enumerate(ports)}
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    got = counts(u)
    equal(len(got), 9, f"endpoints in {got}")
    for name, n in got.items():
        if name != "others":
            equal(n, asked[int(name.split(":")[1])], f"count of {name}")
    equal(sum(got.values()), sum(asked.values()), "count of all endpoints")
    expect_total(u, sum(asked.values()))
    check("others" in qosctl("status", u.name, "--window=total").stdout, "no others on the status page")


@test()
def same_port_on_both_families():
    port = unused_port()
    u = attach(Nginx([f"{port}", f"[::]:{port} ipv6only=on"])).start()
    want = {f"*:{port}": ab(port, 30), f"[::]:{port}": ab(port, 20, host="[::1]")}
    expect_counts(u, want, "of both families")
    name = f"requests.server[:{port}]."
    values = varlink("Get", unit=u.name, window=0, metrics=[
        name + "count", name + "latency.count", name + "latency.p50", name + "latency.p99",
        f"requests.server[*:{port}].count",
        f"requests.server[[::]:{port}].count", f"requests.server[127.0.0.1:{port}].count",
        "requests.server.count"])["values"]
    p50 = values.pop(name + "latency.p50")
    equal(values, {name + "count": 50, name + "latency.count": 50, f"requests.server[*:{port}].count": 30,
                   f"requests.server[[::]:{port}].count": 20, "requests.server.count": 50}, "metrics by name")
    check(p50 > 0, "the median of both")

    # One socket for both families
    port = unused_port()
    u = attach(Nginx([f"[::]:{port} ipv6only=off"])).start()
    expect_counts(u, {f"[::]:{port}": ab(port, 30) + ab(port, 20, host="[::1]")}, "through one socket")


@test()
def named_metrics():
    """Metrics of an endpoint are read by name, [ADDRESS:PORT] or [:PORT], and invalid names are refused with
    NoSuchMetric."""
    a, b = unused_ports(2)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}"])).start()
    ab(a, 12)
    ab(b, 600)
    expect_counts(u, {f"127.0.0.1:{a}": 12, f"127.0.0.1:{b}": 600}, "of both")
    row = endpoints(u)[f"127.0.0.1:{b}"]
    for key in ("count", "inFlight", "clientAborts", "bytesIn", "latency.p99", "errors.reset"):
        for selector in (f":{b}", f"127.0.0.1:{b}"):
            equal(qosctl("show", u.name, "--window=total", "--value", "-P",
                         f"requests.server[{selector}].{key}").stdout.strip(),
                  str(lookup(row, key)), key)
    # Without a value: too few requests for the quantile, addresses without a listener, and requests of a client
    for name in (f"requests.server[:{a}].latency.p99", "requests.server[:1].count", f"requests.server[*:{b}].count",
                 f"requests.client[:{b}].count"):
        equal(qosctl("show", u.name, "--window=total", "-P", name).stdout, f"{name}=\n", name)
    for name in ("requests.server[].count", f"requests.server[:{b}]", f"requests.server[:{b}].",
                 "requests.server[:0].count",
                 "requests.server[:65536].count", "requests.server[a.service].count", f"requests[:{b}].server.count",
                 f"requests.server[:{b}].nonsense", f"requests.server[:{b}].queue.p99", f"requests.server[:{b}].aborts",
                 f"requests.client[:{b}].clientAborts", "requests.server[1.2.3:80].count",
                 "requests.server[::1:80].count",
                 "requests.server]:80[.count", "x" * 300, "requests.server[" + "1" * 5000 + "].count"):
        equal(varlink_error("Get", unit=u.name, metrics=[name]), "NoSuchMetric", name)
        check(qosctl("show", u.name, "-P", name, ok=False).returncode == 1, f"exit status of show -P {name[:40]}")
    equal(varlink_error("Get", unit=u.name, metrics=["requests.server.count"] * 1025),
          "org.varlink.service.InvalidParameter", "too many")
    h = varlink("Histogram", unit=u.name, metric=f"requests.server[:{b}].latency", window=0)
    equal((h["count"], h["schema"], sum(x["count"] for x in h["buckets"])), (600, 3, 600), "the histogram")
    equal(varlink_error("Histogram", unit=u.name, metric="requests.server[:1].latency", window=0), "NotMeasured",
          "of nothing")
    equal(varlink_error("Histogram", unit=u.name, metric=f"requests.server[:{b}].queue"), "NoSuchMetric", "of a phase")
    equal(varlink_error("History", unit=u.name, metrics=[f"requests.server[:{b}].rate"]), "NoHistory", "over time")
    # In windows without figures by endpoint, qosctl status names the windows that have them
    equal(varlink("Get", unit=u.name, window=60 * scenario.SEC, metrics=[f"requests.server[:{b}].count"])["values"], {},
          "over a minute")
    for row in endpoints(u, "60s").values():
        equal(set(row), {"listen"}, "keys of an endpoint over a minute")
    check("windows from 2s to 10s" in qosctl("status", u.name, "--window=60s").stdout, "the status page over a minute")
    status = qosctl("status", u.name, "--window=total").stdout
    check(f"127.0.0.1:{a}" in status and f"127.0.0.1:{b}" in status, f"the status page: {status}")


class Two(Unit):
    """The C server at two ports, as one unit."""

    def __init__(self, address="127.0.0.1"):
        self.ports = unused_ports(2)
        one, other = (server_command(mode="thread", address=address, port=port) for port in self.ports)
        super().__init__(f"/bin/sh -c '{one} & exec {other}'", type="exec")

    def start(self):
        super().start()
        for port in self.ports:
            wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        return self


@test()
def attached_under_load():
    """Requests on connections from before the attach count for the endpoint that accepted the connection."""
    for address, listen in (("0.0.0.0", "*"), ("127.0.0.1", "127.0.0.1")):
        u = Two(address).start()
        names = [f"{listen}:{port}" for port in u.ports]
        clients = [Client(port, connections=3, number=10**9) for port in u.ports]
        for port in u.ports:
            wait_for("load",
                     lambda: run("ss", "-tnH", "state", "established", f"sport = :{port}").stdout.count("\n") == 3)
        attach(u)
        wait_for("both are counted", lambda: set(counts(u)) == set(names) and all(n > 100 for n in counts(u).values()))
        for c in clients:
            c.stop()
        wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
        before = counts(u)
        equal(set(before), set(names), "endpoints")
        equal(sum(before.values()), server_figures(u)["count"], "the sum")
        for i, number in enumerate((50, 60)):
            before[names[i]] += load(u.ports[i], number=number, connections=2)["answered"]
        expect_counts(u, before, "after the load", timed=False)


# ---- excluded requests -----------------------------------------------------------------------------------------------

def held_without(unit):
    with scenario.Varlink() as v:
        return [h.get("exclude", []) for h in v.collect("List", unit=unit.name)[0]["holds"]]


@test()
def excluded_from_the_beginning():
    """Requests at an excluded port are not in the figures of the unit, and are in those of an endpoint of their own."""
    a, b = unused_ports(2)
    # nginx opens the excluded port first
    u = attach(Nginx([f"{b}", f"127.0.0.1:{a}"]), f"--exclude=port:{b}").start()
    n = ab(a, 100)
    m = ab(b, 250)
    expect_counts(u, {f"127.0.0.1:{a}": n, f"*:{b} excluded": m}, "with one excluded")
    f = server_figures(u)
    equal((f["count"], f["latency"]["count"], sum(f["protocols"].values())), (n, n, n), "the unit's own")
    equal(held_without(u), [[f"port:{b}"]], "the hold")
    status = qosctl("status", u.name).stdout
    check(f"*:{b} (excluded)" in status and f"excluding port:{b}" in status, f"the status page: {status}")
    equal(varlink("Get", unit=u.name, window=0, metrics=[f"requests.server[:{b}].count"])["values"],
          {f"requests.server[:{b}].count": m}, "the excluded endpoint by name")
    # A snapshot in which only excluded figures have changed is a new one
    seq = snapshot(u)["seq"]
    expect_counts(u, {f"127.0.0.1:{a}": n, f"*:{b} excluded": m + ab(b, 5)}, "again")
    check(snapshot(u)["seq"] > seq, "seq")


@test(deadline=60)
def excluded_under_load():
    """While a port is excluded and included under load, each request counts on one side, as configured when it is
    recorded."""
    u = attach(Two()).start()
    a, b = u.ports
    c = Client(b, connections=8, number=10**9)
    want, name = 0, f"127.0.0.1:{b}"
    for excluded in (True, False, True, False, True):
        wait_for("requests count as configured", lambda: counts(u).get(name, 0) > 100)
        attach(u, *([f"--exclude=port:{b}"] if excluded else []))
        name = f"127.0.0.1:{b}" + (" excluded" if excluded else "")
        own, seen = server_figures(u)["count"], counts(u).get(name, 0)
        wait_for("requests count on the other side", lambda: counts(u).get(name, 0) > seen + 100)
        if excluded:
            equal(server_figures(u)["count"], own, "the unit's count while all requests are excluded")
            want += load(a, number=20)["answered"]
            equal(server_figures(u)["count"], own + 20, "the unit's count with 20 requests at the other port")
    answered = c.stop()["answered"]
    wait_for("nothing is in flight", lambda: all(r["inFlight"] == 0 for r in endpoints(u).values()))
    equal(server_figures(u)["inFlight"], 0, "inFlight")
    got = counts(u)
    equal(got[f"127.0.0.1:{b}"] + got[f"127.0.0.1:{b} excluded"], answered, "count on both sides together")
    equal(got[f"127.0.0.1:{a}"], want, "count of the other endpoint")
    equal(server_figures(u)["count"], got[f"127.0.0.1:{b}"] + want, "the unit's count")


@test()
def connections_of_others_stay_there():
    """A connection to an endpoint in the entry others stays there when the targets of all connections are found
    anew."""
    ports = unused_ports(12)
    u = attach(Nginx([f"127.0.0.1:{p}" for p in ports])).start()
    want = dict.fromkeys([f"127.0.0.1:{p}" for p in ports[:8]] + ["others"], 0)
    for p in ports:
        want[f"127.0.0.1:{p}" if p in ports[:8] else "others"] += ab(p, 10)
    expect_counts(u, want, "one after the other")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", ports[11], timeout=10 * scenario.patience())) as c:
        for excluded in [], [f"--exclude=port:{unused_port()}"], []:
            attach(u, *excluded)
            for _ in range(5):
                c.request("GET", "/")
                c.getresponse().read()
                want["others"] += 1
            expect_counts(u, want, f"with {excluded}")


@test()
def in_flight_moves_with_it():
    """Requests in flight move to the other side when a port is excluded or included, whether their connections are
    accepted or not."""
    for number, wait in enumerate(("answer_when", "accept_when")):
        go = f"/run/{scenario.prefix}-go-{number}"
        s = scenario.start_served(mode="thread", **{wait: go})
        own, excluded = f"127.0.0.1:{s.port}", f"127.0.0.1:{s.port} excluded"
        t = Talk(s, connections=5)
        t.say("send")
        try:
            wait_for("five are in flight", lambda: (f := server_figures(s))["inFlight"] == 5 and
                     lookup(f, "connections.acceptQueue") == (5 if wait == "accept_when" else 0))
            for _ in range(2):
                attach(s, f"--exclude=port:{s.port}")
                f = server_figures(s)
                equal((f["inFlight"], "oldestInFlight" in f), (0, False), "in flight when it is excluded")
                equal(endpoints(s)[excluded]["inFlight"], 5, "in flight, excluded")
                attach(s)
                equal(server_figures(s)["inFlight"], 5, "in flight when it is not")
                equal(endpoints(s)[excluded]["inFlight"], 0, "in flight, no longer excluded")
            attach(s, f"--exclude=port:{s.port}")
        finally:
            open(go, "w").close()
        t.say("take")
        t.end()
        expect_counts(s, {own: 0, excluded: 5}, "after all responses")


@test()
def pipeline_moves_with_it():
    """All requests of a pipeline are excluded with their port."""
    port = unused_port()
    u = attach(Unit(f"/usr/bin/redis-server --port {port} --save '' --supervised systemd",
                    settings="Environment=LC_ALL=C")).start()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(command("BLPOP", "nothing", 0) + command("PING") * 9)
        wait_for("all are in flight", lambda: server_figures(u)["inFlight"] == 10)
        attach(u, f"--exclude=port:{port}")
        equal(server_figures(u)["inFlight"], 0, "in flight when it is excluded")
        equal(sum(r["inFlight"] for r in endpoints(u).values()), 10, "in flight, including excluded requests")
    wait_for("nothing is in flight", lambda: all(r["inFlight"] == 0 for r in endpoints(u).values()))
    f = server_figures(u)
    equal((f["inFlight"], f["count"], f["clientAborts"]), (0, 0, 0), "the unit's own")
    run("redis-benchmark", "-q", "-p", port, "-P", "16", "-c", "10", "-n", smaller(8000) // 16 * 16, "-t", "get")
    equal(server_figures(u)["count"], 0, "the unit's own")


@test()
def excluded_while_systemd_listens():
    """A port can be excluded if only PID 1 has its listener: of a service that is started by the first request, and of
    instances, one for each connection."""
    s = Activated().open()
    unit = s.name
    attach(unit)
    attach(unit, f"--exclude=port:{s.port}")
    load(s.port, number=1)
    load(s.port, connections=4, number=40, per_connection=2)
    name = f"127.0.0.1:{s.port}"
    expect_counts(unit, {name: 0, name + " excluded": 41}, "when excluded")
    s.service.stop()
    attach(unit)
    load(s.port, connections=4, number=20, per_connection=2)
    expect_counts(unit, {name: 20, name + " excluded": 41}, "when it is not")

    port = unused_port()
    unit = inetd(scenario.unit_name("inetd", ""), port)
    name = f"127.0.0.1:{port}"
    scenario.systemctl("start", unit)
    attach(unit)
    load(port, connections=2, number=4, per_connection=1, response=64)
    expect_counts(unit, {name: 4}, "before")
    attach(unit, f"--exclude=port:{port}")
    load(port, connections=2, number=6, per_connection=1, response=64)
    expect_counts(unit, {name: 4, name + " excluded": 6}, "of instances")


@test()
def excluded_on_udp():
    """A UDP port can be excluded before its socket is opened, and while it is open."""
    u = UdpServer()
    name = f"127.0.0.1:{u.port}"
    attach(u, f"--exclude=port:{u.port}").start()
    with u.connect() as s:
        for number, excluded in ((20, True), (30, False), (40, True)):
            attach(u, *([f"--exclude=port:{u.port}"] if excluded else []))
            for _ in range(number):
                s.send(b"q")
                s.recv(100)
    expect_counts(u, {name: 30, name + " excluded": 60}, "on UDP")


@test()
def path_by_name():
    u = attach(UnixServer()).start()
    with u.connect() as s:
        for _ in range(12):
            unix_ask(s)
    scenario.expect_total(u, 12)
    values = varlink("Get", unit=u.name, window=0,
                     metrics=[f"requests.server[{u.path}].count", f"requests.server[{u.path}x].count"])["values"]
    equal(values, {f"requests.server[{u.path}].count": 12}, "by path")
    equal(varlink("Histogram", unit=u.name, metric=f"requests.server[{u.path}].latency", window=0)["count"], 12,
          "the histogram")


@test(own_daemon=True, deadline=60)
def exclusions_of_several_holds():
    """The exclusions of all holds apply together, those of the administrator are kept after a crash of qosd, and
    invalid or too many exclusions are refused."""
    a, b = unused_ports(2)
    u = attach(Nginx([f"127.0.0.1:{a}", f"127.0.0.1:{b}"]), f"--exclude=port:{a},port:9100").start()
    with scenario.Varlink() as v:
        v.call("Attach", unit=u.name, lease=True, exclude=[f"port:{b}"])
        equal(sorted(held_without(u)),
              sorted([sorted([f"port:{a}", "port:9100"], key=lambda x: int(x[5:])), [f"port:{b}"]]), "holds")
        n, m = ab(a, 10), ab(b, 20)
        # Port b was observed before it was excluded: both of its endpoints are there
        expect_counts(u, {f"127.0.0.1:{a} excluded": n, f"127.0.0.1:{b}": 0, f"127.0.0.1:{b} excluded": m}, "by both")
        # The exclusions of all holds together are limited to 16
        v.call("Attach", unit=u.name, lease=True, exclude=[f"port:{p}" for p in range(1, 15)])
        try:
            v.call("Attach", unit=u.name, lease=True, exclude=[f"port:{p}" for p in range(1, 16)])
            scenario.fail("the 17th exclusion was accepted")
        except scenario.VarlinkError as e:
            equal((e.name, e.parameters["limit"]), (scenario.VARLINK + "TooManyExcludes", 16), "one too many")
        v.call("Attach", unit=u.name, lease=True, exclude=[f"port:{b}"])
    wait_for("the lease has ended", lambda: len(held_without(u)) == 1)
    m2 = ab(b, 7)
    expect_counts(u, {f"127.0.0.1:{a} excluded": n, f"127.0.0.1:{b} excluded": m, f"127.0.0.1:{b}": m2}, "by one")
    kill_qosd()
    equal(len(held_without(u)), 1, "holds after a crash")
    n += ab(a, 3)
    m2 += ab(b, 4)
    expect_counts(u, {f"127.0.0.1:{a} excluded": n, f"127.0.0.1:{b} excluded": m, f"127.0.0.1:{b}": m2},
                  "after a crash")
    for what in ("port:", "port:0", "port:65536", "port:-1", "port:+1", "port: 1", "port:1 ", "9100", "http:healthz",
                 "http:/a*", "redis:", "", "port:1x",
                 "port:" + "9" * 4000):
        try:
            varlink("Attach", unit=u.name, exclude=["port:1", what])
            scenario.fail(f"{what!r} was accepted")
        except scenario.VarlinkError as e:
            equal((e.name, e.parameters["exclude"]), (scenario.VARLINK + "InvalidExclude", what), repr(what))
    r = qosctl("attach", u.name, "--exclude=port:9100,nonsense", ok=False)
    check(r.returncode == 2 and "nonsense" in r.stderr and "port:" in r.stderr, f"qosctl said: {r.stderr}")
    equal(varlink_error("Attach", unit=u.name, exclude=[f"port:{p}" for p in range(1, 18)]), "TooManyExcludes",
          "too many")
    # A hold that is renewed has the exclusions that it was renewed with, without duplicates
    attach(u, "--exclude=port:7,port:7", "--exclude=port:6")
    equal(held_without(u), [["port:6", "port:7"]], "the renewed hold")
    n2 = ab(a, 5)
    expect_counts(u, {f"127.0.0.1:{a} excluded": n, f"127.0.0.1:{a}": n2, f"127.0.0.1:{b} excluded": m,
                      f"127.0.0.1:{b}": m2},
                  "with others")
