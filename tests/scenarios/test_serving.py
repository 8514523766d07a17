# SPDX-License-Identifier: LGPL-2.1-or-later
"""The serving clock, and the states of threads while requests are in flight. Compared with a server with a known number
of threads, each of which is in one state at any time, and with the latencies of its requests; the clock stands while
nothing is in flight."""

import contextlib
import json
import re

import scenario
import test_http2
import test_redis
import test_tls
import test_tls_http2
import test_tls_probe
import test_unix
from scenario import (MSEC, SOURCES, Server, Talk, Unit, attach, check, equal, load, lookup, qosctl, run,
                      server_figures, smaller, snapshot,
                      start_served, systemctl, test, unit_name, unused_port, wait_for, within)

# A double holds a share to less than a nanosecond of an hour
ROUNDING = 2


def serving(unit, window="total"):
    """Returns contention.serving of a snapshot, with absolute times in nanoseconds instead of shares."""
    c = lookup(snapshot(unit, window), "contention")
    s = lookup(c, "serving")
    check(s is not None, f"no serving in {c}")
    s["covered"] = c["covered"]
    s["served"] = round(s["share"] * c["covered"]) if "share" in s else None
    s["time"] = {state: share * s["threadTime"] for state, share in s.get("shares", {}).items()}
    s["all"] = c
    if s["threadTime"] > 0:
        within(sum(s["shares"].values()), 1, 1e-9, 0, "sum of all shares")
    return s


def stands(unit, window="total"):
    """Checks that nothing is in flight and that the serving clock stands. Returns the figures."""
    wait_for("nothing is in flight", lambda: server_figures(unit)["inFlight"] == 0)
    before = serving(unit, window)
    after = wait_for("some time has passed",
                     lambda: (s := serving(unit, window))["covered"] >= before["covered"] + 200 * MSEC and s)
    check(abs(after["served"] - before["served"]) <= ROUNDING, f"the clock went on: {before} {after}")
    check(abs(after["threadTime"] - before["threadTime"]) <= ROUNDING, f"the thread time increased: {before} {after}")
    for state, nsec in after["time"].items():
        all = after["all"]["time"][state]
        check(nsec <= all + MSEC / 10,
              f"time in {state} while requests were in flight exceeds its total: {nsec} of {all}")
    return after


def goes(unit, n, threads=None):
    """Checks that n requests are in flight, that the serving clock advances with time, and thread time with that of
    each thread."""
    wait_for(f"{n} are in flight", lambda: server_figures(unit)["inFlight"] == n)
    before = serving(unit)
    after = wait_for("some time has passed",
                     lambda: (s := serving(unit))["covered"] >= before["covered"] + 200 * MSEC and s)
    took = after["covered"] - before["covered"]
    check(abs(after["served"] - before["served"] - took) <= ROUNDING,
          f"the clock did not advance by {took}: {before} {after}")
    if threads:
        check(abs(after["threadTime"] - before["threadTime"] - threads * took) <= threads * ROUNDING,
              f"the thread time did not advance by {threads} times {took}: {before} {after}")
    return after


def wait_threads(unit, n):
    """Waits for the threads of connections, which the server creates some time after it has accepted them."""
    return wait_for(f"it has {n} threads", lambda: len(unit.threads()) == n and n, 20)


@test(vm="nightly")
def while_it_serves():
    """With one request at a time, the serving clock has the sum of their latencies, and the states of the server's
    thread meanwhile."""
    n, delay = smaller(100), 5 * MSEC
    s = start_served(mode="single", delay_us=delay // 1000)
    qosctl("attach", s.name, "--probes=requests,cpu")
    equal(len(s.threads()), 1, "threads of the server")
    load(s, connections=1, number=n, think_us=2000)
    after = stands(s)
    f = server_figures(s)
    equal(f["latency"]["count"], n, "requests")
    check(after["served"] >= n * delay, f"served for {after['served']}, {n} times {delay} at least")
    # A request is in flight from its first byte to the last one of its response, which is the latency as well
    within(after["served"], f["latency"]["mean"] * n, 0.02, n * 20000,
           "time in which requests were in flight, as their latencies")
    within(after["threadTime"], after["served"], 1e-6, 50000, "time of the only thread")
    # The server sleeps only during requests, and waits on sockets only between them
    within(after["time"]["sleep"], after["all"]["time"]["sleep"], 0.01, MSEC, "sleep for requests")
    waits = ("socket", "poll")
    check(sum(after["all"]["time"][w] for w in waits) >= n * MSEC,
          f"it did not wait for requests: {after['all']['time']}")
    # A request is in flight before it wakes the thread: on an emulated CPU that takes a millisecond
    most = (0.25 if scenario.in_vm else 0.05) * after["served"]
    within(sum(after["time"][w] for w in waits), 0, 0, most, "waits for requests while there is one")
    s.stop()


@test()
def nothing_in_a_window():
    """A window since the last request has no serving time, and a longer one has all of it."""
    s = start_served(mode="prefork", workers=3, delay_us=20000)
    qosctl("attach", s.name, "--probes=requests,cpu")
    load(s, connections=6, number=60)
    total = stands(s)
    within(total["threadTime"], len(s.threads()) * total["served"], 1e-6, 4 * 50000, "time of all threads")

    def over():
        c = serving(s, "300ms")
        return c["share"] == 0 and c
    c = wait_for("the window is past it", over)
    equal((c["threadTime"], "shares" in c), (0, False), "thread time while nothing was in flight, and shares of it")
    c = serving(s, "5min")
    equal((c["served"], c["threadTime"]), (total["served"], total["threadTime"]), "over 5 min")
    text = qosctl("show", s.name, "-P", "contention.serving.shares.sleep", "--value", "--window=total").stdout
    within(float(text), total["shares"]["sleep"], 0.001, 0.001, "the metric by its name")


@test()
def hangs_and_ends():
    """The serving clock advances while requests are in flight, and stands after a reset, a kill, a restart and a new
    attach."""
    s = start_served(mode="thread", hang=True)
    qosctl("attach", s.name, "--probes=requests,cpu")
    t = Talk(s, connections=5)
    stands(s)
    t.say("send")
    goes(s, 5, threads=wait_threads(s, 1 + 5))
    t.say("reset")
    stands(s)
    t.end()

    t = Talk(s, connections=3)
    t.say("send")
    goes(s, 3)
    s.kill()
    stands(s)
    t.end()

    s.start()
    t = Talk(s, connections=2)
    t.say("send")
    goes(s, 2, threads=wait_threads(s, 1 + 2))
    systemctl("restart", s.name)
    equal(stands(s)["served"] > 0, True, "served includes the time before the restart")
    t.end()

    t = Talk(s, connections=2)
    t.say("send")
    goes(s, 2)
    # Requests from before the attach do not start the clock
    qosctl("detach", s.name)
    qosctl("attach", s.name, "--probes=requests,cpu")
    equal(stands(s)["served"], 0, "served since it was attached anew")
    t.say("reset")
    equal(stands(s)["served"], 0, "served when the requests from before the attach are over")
    t.end()


@test(own_daemon=True)
def over_a_restart_of_qosd():
    """The serving clock includes the time in which qosd was not running."""
    s = start_served(mode="thread", hang=True)
    qosctl("attach", s.name, "--probes=requests,cpu")
    t = Talk(s, connections=2)
    t.say("send")
    before = goes(s, 2)
    scenario.kill_qosd()
    scenario.wait_qosd()
    after = goes(s, 2)
    check(abs(after["served"] - before["served"] - (after["covered"] - before["covered"])) <= ROUNDING,
          f"a part is missing: {before} {after}")
    t.say("reset")
    stands(s)
    t.end()


@test()
def many_at_once():
    """After concurrent requests on all CPUs nothing is in flight and the serving clock stands."""
    s = start_served(mode="thread")
    qosctl("attach", s.name, "--probes=requests,cpu")
    for connections in (1, 2, 3, 16):
        load(s, connections=connections, number=smaller(4000))
        after = stands(s)
        check(0 < after["served"] <= after["covered"], f"{after}")


@test(deadline=60)
def killed_workers():
    """The serving clock stands after workers were killed during a request, and after clients have reset their
    connections."""
    s = start_served(mode="fork", delay_us=5000000)
    qosctl("attach", s.name, "--probes=requests,cpu")
    for how in ("kill", "reset"):
        t = Talk(s, connections=4)
        t.say("send")
        wait_for("four are in flight", lambda: server_figures(s)["inFlight"] == 4)
        children = wait_for("a worker for each",
                            lambda: len(c := run("pgrep", "-P", s.main_pid, ok=False).stdout.split()) == 4 and c)
        if how == "kill":
            run("kill", "-KILL", *children, ok=False)
        else:
            t.say("reset")
        stands(s)
        t.end()
        # The worker of a reset connection finishes its sleep before it exits
        wait_for("all workers have gone", lambda: not run("pgrep", "-P", s.main_pid, ok=False).stdout.split(), 20)


@test()
def units_in_units():
    """Requests in flight are reassigned to an attached service. Service and slice have a serving clock each, and the
    slice has the sum of their thread times."""
    slice = unit_name("slice", ".slice")
    s = Server(settings=f"Slice={slice}", mode="thread", hang=True)
    other = Server(settings=f"Slice={slice}", mode="thread", delay_us=20000)
    attach(slice, "--probes=requests,cpu")
    s.start()
    other.start()
    t = Talk(s, connections=2)
    t.say("send")
    goes(slice, 2, threads=wait_threads(s, 1 + 2) + wait_threads(other, 1))
    attach(s, "--probes=requests,cpu")
    wait_for("what is in flight is the service's", lambda: server_figures(s)["inFlight"] == 2)
    goes(s, 2, threads=len(s.threads()))
    # Both clocks have advanced, and it is unknown how much of that was at the same time: the slice has no share
    both = serving(slice)
    check("share" not in both and both["threadTime"] > 0, f"of two clocks: {both}")
    # In a window in which only the service's clock advanced, the slice has its share and its thread time
    def alone():
        c = serving(slice, "300ms")
        return c.get("share") == 1 and abs(c["threadTime"] - len(s.threads()) * c["covered"]) <= ROUNDING * 8
    wait_for("the slice has what the service has", alone)
    qosctl("detach", s.name)
    wait_for("what is in flight is the slice's", lambda: serving(slice, "300ms").get("share") == 1)
    t.say("reset")
    t.end()
    wait_for("nothing is in flight", lambda: serving(slice, "300ms").get("share") == 0)
    systemctl("stop", slice)


@test(deadline=60)
def streams():
    """The serving clock stands after HTTP/2 requests, overlapping or not, in plain text and with the tls probe."""
    n = test_http2.Nghttpd()
    qosctl("attach", n.name, "--probes=requests,cpu")
    test_http2.h2load(n, smaller(4000), 4, 100, ["/file", "/large"])
    check(stands(n)["served"] > 0, "nothing was served")
    with n.connect() as c:
        for _ in range(8):
            c.ask("/file")
    stands(n)

    sealed = test_tls.Nginx(http2=True)
    attach(sealed, "--probes=requests,cpu,tls")
    sealed.start()
    sealed.listens()
    test_tls_probe.placed(sealed)
    sent = smaller(400) // 4 * 4
    equal(test_tls_http2.h2load(sealed, sealed.ports["TLSv1.3"], sent, 4, 100, ["/small"])[0], sent, "responses")
    test_tls_probe.is_seen(sealed, sent, protocol="http2")
    check(stands(sealed)["served"] > 0, "nothing was served")


@test()
def blocking_commands_are_in_flight():
    """A blocking command of Redis is in flight, so that the serving clock advances. A subscription is not in flight."""
    r = test_redis.Redis()
    qosctl("attach", r.name, "--probes=requests,cpu")
    with r.connect() as s:
        s.sendall(test_redis.command("SUBSCRIBE", "c"))
        test_redis.receive(s, len(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"))
        stands(r)
        with r.connect() as other:
            other.sendall(test_redis.command("BLPOP", "list", 0))
            goes(r, 1)
            r.cli("rpush", "list", "x")
            test_redis.receive(other, len(b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n"))
        stands(r)


@test()
def not_seen_to_end():
    """contention.serving is absent for protocols without a visible end of requests."""
    u = test_unix.UnixServer()
    attach(u, "--probes=requests,cpu")
    u.start()
    check(serving(u)["served"] == 0, "there was time with requests in flight")
    with u.connect() as s:
        test_unix.ask(s)
        wait_for("it is counted", lambda: server_figures(u)["count"] == 1)
        for window in ("total", "10s"):
            c = lookup(snapshot(u, window), "contention")
            check("serving" not in c and c["threadTime"] > 0, f"{c}")


@test()
def a_threshold_of_it():
    """A threshold can be set on a metric of contention.serving."""
    s = start_served(mode="thread", delay_us=50000)
    qosctl("attach", s.name, "--probes=requests,cpu")
    qosctl("set-threshold", s.name, "slow: contention.serving.shares.sleep > 1% over 10s")

    def state():
        return next(t["state"] for t in scenario.qosctl_json("list-thresholds", s.name) if t["name"] == "slow")
    equal(state() in ("ok", "unknown"), True, "before the first request")
    load(s, connections=1, number=20)
    wait_for("it is violated", lambda: state() == "violated")


class Phases(Unit):
    """A server that measures the time of each phase of its requests, and writes the sums to a file when a client has
    disconnected."""

    def __init__(self, compute, sleep, lock, pipe, *more):
        self.port = unused_port()
        name = unit_name("phases")
        super().__init__(f"/usr/bin/python3 -B {SOURCES}/phases.py {self.port} {compute} {sleep} {lock} {pipe} "
                         f"{' '.join(more)}",
                         name=name, settings=f"RuntimeDirectory={name}")
        self.took_path = f"/run/{name}/took"

    def took(self):
        def whole():
            with open(self.took_path) as f:
                text = f.read()
            return text.endswith("}") and json.loads(text)
        return wait_for("the server has written its times", whole)


def service(unit, window="total"):
    s = lookup(snapshot(unit, window), "requests.server")
    return dict(s["service"], requests=s["count"])


@test()
def states_of_a_request():
    """The shares of service time are the states of the thread that reads a request and sends its response, as measured
    by the server."""
    p = Phases(4, 7, 11, 5)
    attach(p, "--probes=requests,cpu")
    p.start()
    n = 10
    load(p.port, connections=1, number=n, think_us=3000)
    s = wait_for("all are counted", lambda: (s := service(p))["requests"] == n and s)
    equal(s["attributed"], 1, "attributed")
    within(sum(s["shares"].values()), 1, 1e-9, 0, "sum of all shares")
    took = wait_for("the client has gone", lambda: (t := p.took())["running"] >= n * 4 * MSEC and t)
    all = s["mean"] * n
    within(s["shares"]["running"] * all, took["running"], 0.03, n * MSEC / 2, "running")
    # The server's time of a call also includes the wait for a CPU after it
    for state, ms in ("sleep", 7), ("lock", 11), ("pipe", 5):
        nsec = s["shares"][state] * all
        check(0.95 * n * ms * MSEC <= nsec <= took[state] + MSEC,
              f"{state}: {nsec}, of {took[state]}, or {n} times {ms} ms")
    within(sum(s["shares"][state] * all for state in ("running", "runQueue", "sleep", "lock", "pipe")), all, 0.02, 0,
           "all of these")
    # The wait for the next request, in a call on a socket, is not part of service time
    within(s["shares"]["socket"] * all, 0, 0, n * MSEC / 10, "socket")
    check(lookup(snapshot(p), "contention.time.socket") >= n * 2 * MSEC, "it did not wait for requests")
    for window in ("10s", "60s"):
        within(service(p, window)["shares"]["lock"], s["shares"]["lock"], 1e-6, 0, f"share over {window}")
    p.stop()


@test()
def handed_on():
    """Requests that one thread reads and another one responds to are not attributed, and there are no shares."""
    p = Phases(1, 1, 1, 1, "handed")
    attach(p, "--probes=requests,cpu")
    p.start()
    load(p.port, connections=1, number=20)
    s = wait_for("all are counted", lambda: (s := service(p))["requests"] == 20 and s)
    equal((s["attributed"], "shares" in s), (0, False), "attributed, shares")


# A thread that follows a process of the supervisor of the development kernel runs unseen, see occupied(): of 400
# requests of such a server 0 to 11 were not attributed on a busy machine, and in occupied() none of 1600
ABOVE = "CPUSchedulingPolicy=fifo\nCPUSchedulingPriority=2\n"


def load_alone(*arguments, **options):
    with contextlib.nullcontext() if scenario.in_vm else scenario.occupied():
        load(*arguments, **options)


@test(quiet="loaded")
def held_by_others():
    """blockedByRequests is the share of service time in which requests waited for other ones, without waits that a
    thread without a request ends."""
    for options, others in (dict(turn_us=3000), True), (dict(batch=4, cpu_us=3000), False):
        s = Server(program="toiler", settings=ABOVE, **options)
        attach(s, "--probes=requests,cpu")
        s.start()
        n = smaller(200)
        load_alone(s, connections=4, number=n)
        f = wait_for("all are counted", lambda: (f := service(s))["requests"] == n and f)
        check(f["attributed"] >= 0.99, f"attributed: {f}")
        # A request waits for three others, or at least for one batch
        check(f["shares"]["park"] > 0.3, f"requests do not wait for others: {f}")
        if others:
            # Less than park, as a thread may wake another one after its response has begun to leave
            check(0.9 * f["shares"]["park"] <= f["blockedByRequests"] <= f["shares"]["park"] + 1e-9,
                  f"blockedByRequests is not all of park: {f}")
            text = qosctl("show", s.name, "-P", "requests.server.service.blockedByRequests", "--value",
                          "--window=total").stdout
            within(float(text), f["blockedByRequests"], 0.001, 0.001, "the metric by its name")
        else:
            check(f["blockedByRequests"] < 0.02, f"threads that end these waits have no request: {f}")
        s.stop()


@test(quiet="loaded", vm="nightly")
def all_are_attributed():
    """Requests of a server with one thread, with threads and with processes are attributed. Without the cpu probe there
    are no shares."""
    n = smaller(200)
    for mode in ("thread",) if scenario.in_vm else ("single", "thread", "prefork"):
        s = Server(mode=mode, delay_us=2000, settings=ABOVE)
        attach(s, "--probes=requests")
        s.start()
        load(s, connections=4, number=8)
        f = wait_for("all are counted", lambda: (f := service(s))["requests"] == 8 and f)
        check("attributed" not in f and "shares" not in f, f"without the probe: {f}")

        qosctl("detach", s.name)
        qosctl("attach", s.name, "--probes=requests,cpu")
        load_alone(s, connections=4, number=n)
        f = wait_for(f"all are counted, {mode}", lambda: (f := service(s))["requests"] == n and f)
        # A response that leaves in an interrupt, or after its thread was migrated to another CPU, is not attributed
        check(f["attributed"] >= 0.99, f"attributed, {mode}: {f}")
        # The server sleeps only during requests. A request that arrives while another one is served waits for that
        # one's sleep, too
        check(f["shares"]["sleep"] * f["mean"] * n >= n * 2 * MSEC * 0.9, f"the sleep is not in the shares: {f}")
        s.stop()


@test()
def worst_wait():
    """list and status show as the top wait what requests wait for, not what idle threads do."""
    def shown(unit):
        line = next(l for l in qosctl("list", "--no-legend", "--no-pager", unit.name).stdout.splitlines()
                    if l.startswith(unit.name))
        return line
    idle = start_served(mode="prefork", workers=8)
    qosctl("attach", idle.name, "--probes=requests,cpu")
    check(not re.search(r" [a-zA-Z]+ +<?\d+% ", shown(idle)), f"an idle pool: {shown(idle)}")
    s = start_served(mode="prefork", workers=8, delay_us=30000)
    qosctl("attach", s.name, "--probes=requests,cpu")

    def sleeps():
        load(s, connections=1, number=10)
        out = qosctl("status", s.name, "--no-pager").stdout
        check("SERVING SERVICE" in out, f"the page: {out}")
        return re.search(r" sleep ([6-9]\d|100)% ", shown(s)) and re.search(r"Top wait: sleep \(\d+% of service time\)",
                                                                            out)
    # On a busy machine the top wait may be the run queue at first
    wait_for("it is the sleep", sleeps, timeout=20)
