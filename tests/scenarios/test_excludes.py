# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that are excluded by path or command, compared with servers and clients that count by themselves."""

import random
import socket
import struct
import threading

import http2
import scenario
from scenario import (attach, check, equal, kill_qosd, lookup, qosctl, run, server_figures, smaller, snapshot, test,
                      varlink, wait_for)
import test_http2
import test_tls_http2
from test_endpoints import Nginx, ab, counts, held_without, unused_ports
from test_http import Server as HttpServer, get
from test_redis import Redis, command, receive


def expect(unit, count, excluded, what, **others):
    """Checks the counts of requests that are included and excluded, and that nothing is in flight. Returns the
    figures."""
    def figures():
        f = server_figures(unit)
        return f["count"], f["excluded"], f["inFlight"]
    try:
        wait_for(what, lambda: figures() == (count, excluded, 0), 3)
    except scenario.Failed:
        equal(figures(), (count, excluded, 0), f"count, excluded, in flight {what}")
        raise
    f = server_figures(unit)
    for name, value in dict(others, **{"latency.count": count, "firstByte.count": count, "queue.count": count,
                                       "service.count": count,
                                       "answer.count": count, "receive.count": count}).items():
        if value is not None:
            equal(lookup(f, name), value, f"{name} {what}")
    equal(sum(f["protocols"].values()), count, f"protocols {what}")
    equal(snapshot(unit)["requests"]["quality"], "exact", f"quality {what}")
    return f


class Stubs(Nginx):
    """An nginx with a failing health check, and a location that is not found."""

    def __init__(self, ports):
        super().__init__([f"127.0.0.1:{p}" for p in ports],
                         location='return 200 "ok\\n"; } location /healthz { return 503 "no\\n"; } location /missing { '
                                  'return 404 "no\\n";')


@test(vm="nightly", deadline=60)
def paths_of_nginx():
    """Excluded paths, as those of failing health checks, are not in the figures of the unit, and other paths are. (ab
    completes requests with any status.)"""
    a, b = unused_ports(2)
    u = attach(Stubs([a, b]), "--exclude=http:/healthz,http:/static/*").start()
    n = excluded = 0
    for path, number, is_excluded in (("/", 300, False), ("/healthz", 200, True), ("/healthz?verbose=1", 50, True),
                                      ("/healthz/", 20, False),
                                      ("/healthzz", 20, False), ("/static/a.css", 70, True), ("/static", 30, False),
                                      ("/Static/a", 10, False), ("/static/a/b/c/d/e?f", 11, True),
                                      ("/missing", 12, False)):
        for port in (a, b):
            number = smaller(number)
            run("ab", "-q", "-k", "-n", number, "-c", min(4, number), f"http://127.0.0.1:{port}{path}", timeout=60)
            n, excluded = n + number * (not is_excluded), excluded + number * is_excluded
    f = expect(u, n, excluded, "with health checks")
    equal((f["errors"]["status5xx"], f["status4xx"]), (2 * (smaller(20) + smaller(20)), 2 * smaller(12)), "5xx, 4xx")
    equal(sum(counts(u).values()), n, "count of all endpoints")
    equal(varlink("Get", unit=u.name, window=0, metrics=["requests.server.excluded"])["values"],
          {"requests.server.excluded": excluded}, "by name")
    equal(held_without(u), [["http:/healthz", "http:/static/*"]], "the hold")
    status = qosctl("status", u.name, "--window=total").stdout
    check("excluding http:/healthz http:/static/*" in status and "Excluded" in status, f"the status page: {status}")
    bus = scenario.plain(scenario.busctl_call("Snapshot", "st", u.name, 0)[0])
    equal(bus["requests.server.excluded"], excluded, "on D-Bus")
    # A request that both a port and a path exclude counts once
    attach(u, f"--exclude=http:/healthz,port:{b}")
    m = ab(b, 40) + ab(b, 30, path="/?healthz")
    run("ab", "-q", "-k", "-n", 25, f"http://127.0.0.1:{b}/healthz")
    n += ab(a, 10)
    expect(u, n, excluded + m + 25, "with a port")


@test(deadline=60)
def pipelined_with_others():
    """Excluded and other requests in one pipeline are distinguished, in any order, with segments that end anywhere, and
    for responses of all lengths and statuses."""
    s = HttpServer()
    attach(s, "--exclude=http:/status/503,http:/size/*,http:/chunked/7")
    seed = random.Random(3)
    n = excluded = errors = 0
    with s.connect() as c:
        for _ in range(smaller(60)):
            stream, asked = b"", 0
            for _ in range(seed.randrange(1, 60)):
                path = seed.choice(["/status/200", "/status/503", "/status/503?x", "/status/500", "/size/0",
                                    "/size/500", "/chunked/3", "/chunked/7"])
                is_excluded = path.startswith(("/status/503", "/size/", "/chunked/7"))
                method = seed.choice(["GET", "GET", "POST"])
                stream += get(path.split("?")[0] + ("?" + "y" * seed.choice([1, 300]) if "?" in path else ""), method,
                              "Content-Length: 10\r\n" if method == "POST"
                              else "").encode() + (b"GET /x HTT" if method == "POST" else b"")
                n, excluded, errors, asked = (n + (not is_excluded), excluded + is_excluded,
                                              errors + (path == "/status/500"), asked + 1)
            while stream:
                length = seed.choice([1, 7, 100, 1000, len(stream)])
                c.send(stream[:length])
                stream = stream[length:]
            for _ in range(asked):
                c.answer()
    f = expect(s, n, excluded, "pipelined", **{"errors.reset": 0, "clientAborts": 0})
    equal(f["errors"]["status5xx"], errors, "5xx")


@test()
def in_flight_and_aborted():
    """An excluded request is not in flight once its path is read, and neither a reset nor an abort of it counts as an
    error."""
    s = HttpServer()
    attach(s, "--exclude=http:/late/*,http:/abort")
    with s.connect() as c, s.connect() as other:
        c.send(get("/late/900"))
        wait_for("the request was read", lambda: (f := server_figures(s))["bytesIn"] > 0 and f["inFlight"] == 0)
        check("oldestInFlight" not in server_figures(s), "the excluded request has an age")
        # The next request on the same connection waits for the excluded one, and is in flight
        c.send(get("/status/200"))
        wait_for("the next is in flight", lambda: server_figures(s)["inFlight"] == 1)
        equal(other.ask(get("/status/200"))[0], 200, "status")
        equal((c.answer()[0], c.answer()[0]), (200, 200), "statuses")
        # A body in several segments
        other.send(get("/late/1", "POST", "Content-Length: 10\r\n") + "12345")
        wait_for("the head was read", lambda: server_figures(s)["inFlight"] == 0)
        other.send("67890")
        equal(other.answer()[0], 200, "status")
    expect(s, 2, 2, "with an excluded request that took long")
    with s.connect() as c:
        c.send(get("/abort"))
        while c.socket.recv(1000):
            pass
    with s.connect() as c:
        c.send(get("/late/300"))
        wait_for("the request was read", lambda: server_figures(s)["inFlight"] == 0)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with s.connect() as c:
        equal(c.ask(get("/status/200"))[0], 200, "status")
    f = wait_for("all has ended", lambda: (f := server_figures(s))["connections"]["open"] == 0 and f)
    equal((f["count"], f["inFlight"], f["errors"]["reset"], f["clientAborts"]), (3, 0, 0, 0),
          "count, in flight, errors, aborts")


@test(deadline=60)
def commands_of_redis():
    """Excluded commands of Redis are not in the figures of the unit, by Redis' own count of each command."""
    r = Redis()
    attach(r, "--exclude=redis:brpop,redis:PING,redis:INFO")
    with r.connect() as s, r.connect() as other:
        for key in ("a", "b"):
            s.sendall(command("BRPOP", key, 0))
            wait_for("BRPOP was read, and is not in flight",
                     lambda: "cmd=brpop" in r.cli("client", "list") and server_figures(r)["inFlight"] == 0)
            other.sendall(command("LPUSH", key, "v"))
            receive(other, len(b":1\r\n"))
            receive(s, len(b"*2\r\n$1\r\na\r\n$1\r\nv\r\n"))
        s.sendall(command("BLPOP", "k", 0.01))
        receive(s, len(b"*-1\r\n"))
    for pipeline, connections in ((1, 10), (16, 10), (128, 3)):
        number = smaller(20000) // pipeline * pipeline
        run("redis-benchmark", "-q", "-p", r.port, "-P", pipeline, "-c", connections, "-n", number, "-t",
            "set,ping_mbulk,get", timeout=60)
    stats = {}
    for line in r.cli("info", "commandstats").splitlines():
        if line.startswith("cmdstat_"):
            name, _, values = line[len("cmdstat_"):].partition(":")
            name = name.split("|")[0]
            stats[name] = stats.get(name, 0) + int(values.split(",")[0].split("=")[1])
    left_out = {"brpop", "ping", "info"}
    excluded = sum(n for name, n in stats.items() if name in left_out) + 1 # the INFO that has read them
    n = sum(n for name, n in stats.items() if name not in left_out)
    check(stats["ping"] > 0 and stats["brpop"] == 2 and stats["blpop"] == 1, f"{stats}")
    wait_for("all commands are counted", lambda: server_figures(r)["count"] == n, 3)
    f = server_figures(r)
    equal((f["count"], f["excluded"], f["blocking"], f["inFlight"]), (n, excluded, 1, 0),
          "count, excluded, blocking, in flight")
    equal((f["latency"]["count"], f["protocols"]["redis"]), (n - 1, n), "latency.count, protocols")
    equal(snapshot(r)["requests"]["quality"], "exact", "quality")


@test()
def mixed_in_one_pipeline():
    r = Redis()
    attach(r, "--exclude=redis:PING,redis:ECHO")
    seed = random.Random(5)
    n = excluded = 0
    with r.connect() as s:
        for _ in range(smaller(200)):
            stream, answer = b"", b""
            for _ in range(seed.randrange(1, 100)):
                kind = seed.randrange(4)
                stream += (b"ping\r\n", command("SET", "PING", "*1\r\n$4\r\nPING\r\n"), command("Echo", "x"),
                           command("EXISTS", "nothing"))[kind]
                answer += (b"+PONG\r\n", b"+OK\r\n", b"$1\r\nx\r\n", b":0\r\n")[kind]
                n, excluded = n + kind % 2, excluded + (kind % 2 == 0)
            while stream:
                length = seed.choice([1, 2, 3, 10, 100, 1000, len(stream)])
                s.sendall(stream[:length])
                stream = stream[length:]
            equal(receive(s, len(answer)), answer, "replies of Redis")
    expect(r, n, excluded, "in one pipeline")


@test(deadline=60, own_daemon=True)
def changed_under_load():
    """While exclusions change under load, each request is counted once, on one side. After a crash of qosd exclusions
    still apply."""
    a, = unused_ports(1)
    u = attach(Stubs([a])).start()
    ends, answered = threading.Event(), [0] * 4

    def client(i):
        with socket.create_connection(("127.0.0.1", a)) as s:
            while not ends.is_set():
                s.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
                data = b""
                while data.count(b"ok\n") < 2:
                    more = s.recv(9999)
                    check(more, "nginx has closed the connection")
                    data += more
                answered[i] += 2

    clients = [threading.Thread(target=client, args=(i,)) for i in range(len(answered))]
    for c in clients:
        c.start()
    try:
        for rules in (["http:/a"], ["http:/a", "http:/b"], [], ["http:/*"], ["http:/b"], ["http:/zzz"], ["http:/a"]):
            attach(u, *([f"--exclude={','.join(rules)}"] if rules else []))
            f = server_figures(u)
            wait_for("more requests count", lambda: (g := server_figures(u))
                     and g["count"] + g["excluded"] > f["count"] + f["excluded"] + 200)
        kill_qosd()
        equal(held_without(u), [["http:/a"]], "the hold after a crash")
        f = server_figures(u)
        wait_for("more requests count on both sides", lambda: (g := server_figures(u))
                 and g["count"] > f["count"] + 100 and g["excluded"] > f["excluded"] + 100)
    finally:
        ends.set()
        for c in clients:
            c.join()
    wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
    f = server_figures(u)
    equal(f["count"] + f["excluded"], sum(answered), "count on both sides together")
    n, excluded = f["count"], f["excluded"]
    attach(u)
    n += ab(a, 50, path="/a")
    expect(u, n, excluded, "without exclusions")


# ---- HTTP/2 ----

class Scripted(test_http2.Scripted):
    def __init__(self, *rules, **options):
        self.rules = rules
        super().__init__(**options)

    def attach(self):
        attach(self, *([f"--exclude={','.join(self.rules)}"] if self.rules else []))


class SealedScripted(test_tls_http2.Sealed):
    def __init__(self, *rules):
        self.rules = rules
        super().__init__()

    def attach(self):
        attach(self, "--probes=requests,tls", f"--exclude={','.join(self.rules)}")


class Grpc(test_http2.Grpc):
    def attach(self):
        attach(self, "--exclude=http:/grpc.health.v1.Health/Check")


class Http2Nginx(test_http2.Nginx):
    def attach(self):
        attach(self, "--exclude=http:/bad,http:/none/*")


@test(vm="nightly", deadline=60)
def paths_of_http2():
    """Excluded paths of HTTP/2, of failing health checks, are distinguished from others on the same connections, with
    up to a hundred streams at a time."""
    u = Http2Nginx()
    n = excluded = 0
    paths = ["/bad", "/file", "/none/here", "/file?bad", "/bad?verbose=1", "/badly", "/none", "/file", "/file", "/file"]
    for clients, streams, each in ((1, 1, 100), (4, 100, 1000), (20, 10, 100)):
        each = max(smaller(each) // 10, 1) * 10
        answered = test_http2.h2load(u, clients * each, clients, streams, paths)
        n, excluded = n + clients * each * 7 // 10, excluded + clients * each * 3 // 10
        # nginx sends 503 for "/badly" as well, as its location is a prefix, and 404 for "/none"
        equal((answered["5xx"], answered["4xx"]), (clients * each * 3 // 10, clients * each * 2 // 10),
              "responses with 5xx, 4xx")
        f = expect(u, n, excluded, f"with {streams} streams at once")
        equal((f["errors"]["status5xx"], f["status4xx"]), (n // 7, n // 7), "5xx, 4xx")
        equal(f["protocols"]["http2"], n, "protocols.http2")


def by_hand(server):
    """Checks exclusions of HTTP/2 paths with segments that end at any byte, headers in several frames, and any size of
    HPACK's dynamic table."""
    u = server("http:/status/503", "http:/size/*")
    seed = random.Random(4)
    n = excluded = errors = 0
    kinds = ["/status/200", "/status/503", "/status/503?" + "y" * 300, "/status/500", "/status/200?/status/503",
             "/size/0", "/size/5000",
             "/trailers/10", "/headers/100", "/status/404?{}\\~"]
    for first, options in (({}, {}), ({"seed": 1}, {}), ({"seed": 2}, {"header_table_size": 0}),
                           ({"seed": 3}, {"header_table_size": 200})):
        with u.connect(**first, **options) as c:
            c.encoder.header_table_size = min(options.get("header_table_size", 4096), 4096)
            for _ in range(smaller(20)):
                streams, data = [], b""
                for _ in range(seed.randrange(1, 20)):
                    path = seed.choice(kinds)
                    is_excluded = path.startswith(("/status/503", "/size/"))
                    keywords = {"pieces": seed.choice([1, 1, 2, 5]), "padding": seed.choice([None, None, 0, 255]),
                                "priority": seed.random() < .3}
                    if seed.random() < .3:
                        keywords.update(method="POST", body=bytes(seed.choice([0, 1, 700])))
                    if seed.random() < .2:
                        keywords.update(trailers=[("x-trailer", path)])
                    fields = [("x-" + "y" * seed.randrange(40), "%x" % seed.getrandbits(400))] * seed.randrange(3)
                    stream, frames = c.request(path, fields=fields, **keywords)
                    streams.append(stream)
                    data += frames
                    n, excluded, errors = (n + (not is_excluded), excluded + is_excluded,
                                           errors + (path == "/status/500"))
                c.send(data)
                c.wait_all(streams)
        f = expect(u, n, excluded, f"with {first} {options}", **{"errors.reset": 0, "clientAborts": 0})
        equal(f["errors"]["status5xx"], errors, "5xx")


@test(deadline=60, vm="nightly")
def paths_of_http2_by_hand():
    by_hand(Scripted)


@test(deadline=60, vm="nightly")
def paths_of_http2_in_tls():
    by_hand(SealedScripted)


@test(deadline=60)
def health_checks_of_grpc():
    """Health checks of gRPC are excluded on connections with other calls, though the library refers to paths by the
    dynamic table once it has sent them."""
    u = Grpc()
    n = smaller(400) // 4 * 4
    # The first two of four calls, one on each connection, are of One, the others are health checks
    ended = u.call("One,/grpc.health.v1.Health/Check", n, [0, 0, 14, 14])
    f = expect(u, n // 2, n // 2, "with health checks")
    equal((f["protocols"]["grpc"], f["errors"]["grpc"]), (n // 2, 0), "protocols.grpc, errors.grpc")
    equal(ended, {"OK": n // 2, "UNAVAILABLE": n // 2}, "calls by status")


@test()
def streams_that_are_left_out():
    """Excluded streams are not in flight once their path is read, and their ends are no errors. A rule that is added
    later applies from then on, but not to paths that are in the dynamic table of a connection already."""
    s = Scripted("http:/hang", "http:/refuse", "http:/abort")
    with s.connect() as c, s.connect() as other:
        held = [c.start("/hang") for _ in range(5)]
        wait_for("the streams were read", lambda: (f := server_figures(s))["bytesIn"] > 0 and f["inFlight"] == 0)
        check("oldestInFlight" not in server_figures(s), "an excluded stream has an age")
        late = c.start("/late/900/200")
        wait_for("the stream of another path is in flight", lambda: server_figures(s)["inFlight"] == 1)
        equal(c.wait(late).status, 200, "status")
        c.reset(held[0])
        equal([c.ask(p).end for p in ("/refuse", "/abort")], [http2.INTERNAL_ERROR] * 2, "error codes")
        equal(other.ask("/release").status, 200, "status")
        c.wait_all(held[1:])
        # A stream that ends after its response has begun counts as excluded; streams that are refused or aborted before
        # do not count
        expect(s, 2, 5, "with streams that ended in every way", **{"errors.reset": 0, "clientAborts": 0})
        for _ in range(3):
            c.start("/hang")
        equal(c.ask("/status/200").status, 200, "status")
        expect(s, 3, 5, "while they hang", **{"errors.reset": 0, "clientAborts": 0})
    f = wait_for("all has ended", lambda: (f := server_figures(s))["connections"]["open"] == 0 and f)
    equal((f["count"], f["inFlight"], f["errors"]["reset"], f["clientAborts"]), (3, 0, 0, 0),
          "count, in flight, errors, aborts")

    s = Scripted()
    with s.connect() as c:
        equal([c.ask(p).status for p in ("/status/200", "/status/200", "/status/404")], [200, 200, 404], "statuses")
        expect(s, 3, 0, "without a rule")
        attach(s, "--exclude=http:/status/200,http:/status/204")
        # The client has put /status/200 into the dynamic table before the rule: it is not excluded
        equal([c.ask(p).status for p in ("/status/200", "/status/204", "/status/204", "/status/404")],
              [200, 204, 204, 404], "statuses")
        expect(s, 5, 2, "with a rule that was added later")
        with s.connect() as d:
            equal([d.ask(p).status for p in ("/status/200", "/status/200", "/status/404")], [200, 200, 404], "statuses")
        expect(s, 6, 4, "on a new connection")


@test()
def over_dbus():
    """Exclusions can be set over D-Bus, and invalid options are refused with an error that names them."""
    a, = unused_ports(1)
    u = Stubs([a])
    path = "/org/qosd1/unit/" + u.name.replace("-", "_2d").replace(".", "_2e")

    def attach_with(*options):
        return scenario.busctl_call("AttachUnitWithOptions", "sa{sv}", u.name, len(options),
                                    *[w for o in options for w in o])

    equal(attach_with(("exclude", "as", 2, "http:/healthz", "port:9100"), ("probes", "as", 1, "requests")), [path],
          "the object")
    u.start()
    n = ab(a, 40)
    run("ab", "-q", "-k", "-n", 25, f"http://127.0.0.1:{a}/healthz")
    expect(u, n, 25, "attached over D-Bus")
    equal(held_without(u), [["http:/healthz", "port:9100"]], "the hold")
    properties = scenario.plain(scenario.busctl_call("GetAll", "s", "org.qosd1.Unit", path=path,
                                                     interface="org.freedesktop.DBus.Properties")[0])
    equal(properties["Exclude"], ["http:/healthz", "port:9100"], "the property")
    for options, want in (((("exclude", "as", 1, "http:healthz"),), "invalid exclusion 'http:healthz', expected"),
                          ((("exclude", "as", 1, "redis:"),), "invalid exclusion 'redis:', expected"),
                          ((("nonsense", "b", "true"),), "There is no option 'nonsense', expected"),
                          ((("exclude", "s", "port:1"),), "Option 'exclude' has type 's', expected 'as'"),
                          ((("lease", "b", "true"), ("duration_nsec", "t", 5)), "duration_nsec must be 0")):
        r = run("busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "AttachUnitWithOptions", "sa{sv}",
                u.name, len(options),
                *[w for o in options for w in o], ok=False)
        check(r.returncode != 0 and want in r.stderr, f"busctl said: {r.stderr}")
    # AttachUnit, which has no exclusions, replaces the hold. A duration ends it
    scenario.busctl_call("AttachUnit", "sastb", u.name, 0, 0, "false")
    run("ab", "-q", "-k", "-n", 10, f"http://127.0.0.1:{a}/healthz")
    expect(u, n + 10, 25, "attached again")
    attach_with(("duration_nsec", "t", 1000000))
    wait_for("the unit is detached", lambda: u.name not in scenario.listed())
