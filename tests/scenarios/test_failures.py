# SPDX-License-Identifier: LGPL-2.1-or-later
"""Failures come first in a diagnosis: each of these units does not serve, and is not slow."""

import contextlib
import os
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import scenario
import test_healthy
from diagnosing import case, diagnose, found, holds, nginx, prepare, redis, requests_from, said
from scenario import Server, Talk, Unit, check, equal, run, systemctl, test, unit_name, unused_port, wait_for
from test_clients import NOBODY


class Failing(Unit):
    """HTTP with the status that the test sets."""

    def __init__(self, status, **keywords):
        prepare()
        self.port = unused_port()
        self.path = f"/run/{unit_name('status', '')}"
        self.set(status)
        super().__init__(f"/usr/bin/python3 {scenario.SOURCES}/failing_server.py {self.port} {self.path}", **keywords)

    def set(self, status):
        with open(self.path + ".new", "w") as f:
            f.write(str(status))
        os.rename(self.path + ".new", self.path)


@contextlib.contextmanager
def requests_to(port, pause=0.01):
    """Sends one request after the other, whatever the responses. Yields a function that returns how many these are."""
    end, n = threading.Event(), [0]

    def go_on():
        while not end.wait(pause):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                    pass
            except urllib.error.HTTPError:
                pass
            except OSError:
                continue
            n[0] += 1

    t = threading.Thread(target=go_on)
    t.start()
    try:
        yield lambda: n[0]
    finally:
        end.set()
        t.join()


def first(d, kind):
    """Returns the finding of that kind, which has to be the first one, and the verdict."""
    equal(d["findings"][0]["kind"] if d["findings"] else None, kind, f"the first finding of {said(d)}")
    equal(d["verdict"], "found", f"verdict of {said(d)}")
    return d["findings"][0]


@case("errors", quiet="light", fails=True)
def all_503():
    """503 for every request is a failure, however fast the service is."""
    u = Failing(503).start()
    with requests_to(u.port):
        f = first((yield u), "errors")
    # A quotient of two rates
    equal((f["certainty"], round(f["share"], 9)), ("certain", 1), f"certainty and share of {f}")
    check(f["text"].startswith("100% of ") and "HTTP 5xx" in f["text"], f"text of {f}")


@test(deadline=60, quiet="light")
def all_503_on_dbus():
    """Diagnose() of D-Bus finds the same, with a lease for as long as it takes, for those that may inspect the unit and
    attach it."""
    u = Failing(503).start()

    def attached():
        return u.name in scenario.listed()
    check(not attached(), "the unit is attached")
    with requests_to(u.port):
        d = scenario.plain(scenario.busctl_call("Diagnose", "st", u.name, 2000000000))
        refused = scenario.dbus_error("Diagnose", f"string:{u.name}", "uint64:2000000000", user=NOBODY)
        check(refused.rsplit(".", 1)[1] in ("AccessDenied", "InteractiveAuthorizationRequired"),
              f"error of somebody else: {refused}")
    equal((d[0], d[3][0]["kind"], d[3][0]["certainty"]), ("found", "errors", "certain"),
          f"verdict and first finding of {d}")
    check("HTTP 5xx" in d[3][0]["text"] and d[1] and d[2], f"texts of {d}")
    equal(round(d[3][0]["share"], 9), 1, f"share of {d}")
    wait_for("the lease has ended", lambda: not attached())

    # A caller that leaves the bus leaves no lease behind
    calls = [subprocess.Popen(["busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "Diagnose", "st",
                               u.name, "60000000000"])
             for _ in range(16)]
    wait_for("all have a lease", lambda: attached() and len(holds(u)) == 16, 20)
    equal(scenario.dbus_error("Diagnose", f"string:{u.name}", "uint64:1000000000"), "org.qosd1.Error.TooManyDiagnoses",
          "error of one more")
    for p in calls:
        p.kill()
        p.wait()
    wait_for("the leases have ended", lambda: not attached())


@case("errors", quiet="loaded", fails=True)
def all_503_of_nginx():
    """The same of a server that takes all of the CPUs for it."""
    u = nginx("location / { return 200; } location /bad { return 503; }")
    with requests_from(f"http://127.0.0.1:{u.port}/bad", per_second=20000):
        first((yield u), "errors")


@case(quiet="light")
def all_200():
    """The same without a failure."""
    u = Failing(200).start()
    with requests_to(u.port):
        d = yield u
    equal((d["figures"]["status5xx"], d["figures"]["resets"]), (0, 0), f"figures of {said(d)}")


@case(also=("workload",), quiet="light")
def flood_of_404():
    """Responses with status 404 are no failure of the service, and faster than others."""
    u = nginx('location / { return 200 "hello"; } location /none { return 404; }')
    path = f"/run/{scenario.prefix}.normal"
    try:
        with requests_from(f"http://127.0.0.1:{u.port}/"):
            yield u, f"--save={path}"
        with requests_from(f"http://127.0.0.1:{u.port}/none"):
            yield u, f"--against={path}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


@case("idle", quiet="light", fails=True)
def no_requests_any_more():
    """A service that had hundreds of requests per second, and has none: the diagnosis points to its clients."""
    u = nginx('return 200 "hello";')
    path = f"/run/{scenario.prefix}.normal"
    try:
        with requests_from(f"http://127.0.0.1:{u.port}/"):
            yield u, f"--save={path}"
        yield u, f"--against={path}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def proxy(back, more=""):
    """nginx before the server on that port."""
    prepare()
    port, path = unused_port(), f"/run/{unit_name('nginx', '.conf')}"
    with open(path, "w") as f:
        f.write(f"daemon off; pid /run/{unit_name('nginx', '.pid')}; worker_processes 1; error_log stderr "
                f"crit;\nevents {{}}\n"
                f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass "
                f"http://127.0.0.1:{back}; {more} }} "
                "location @instead { return 200 instead; } } }\n")
    u = Unit(f"/usr/sbin/nginx -c {path}", type="exec").start()
    u.port = port
    return u


@case("errors", quiet="light", fails=True)
def refused_upstream():
    """nginx returns 502 as its upstream refuses connections: its errors, then the peer by its address."""
    back = unused_port()
    u = proxy(back)
    with requests_to(u.port) as answered:
        wait_for("there is a response of nginx", answered, 20)
        d = yield u
    f = first(d, "errors")
    check("HTTP 5xx" in f["text"], f"text of {f}")
    f = found(d, "dependency")
    equal(f["resource"], f"127.0.0.1:{back}", f"the peer of {f}")
    check("share" not in f and f["certainty"] == "certain", f"a failing peer is no matter of time: {f}")


def given_up(back):
    """nginx before a server that does not respond to it, neither to requests nor to attempts to connect."""
    u = proxy(back.port, "proxy_connect_timeout 200ms; proxy_read_timeout 200ms;")
    with requests_to(u.port) as answered:
        wait_for("nginx has given up", answered, 20)
        d = yield u
    f = first(d, "errors")
    check(f"of its requests to 127.0.0.1:{back.port}" in f["text"], f"text of {f}")
    f = found(d, "dependency")
    equal(f["resource"], f"127.0.0.1:{back.port}", f"the peer of {f}")
    check("/s given up by the unit without a response" in f["text"], f"text of {f}")


@case("errors", quiet="light", fails=True)
def silent_upstream():
    """nginx returns 504 as its upstream does not respond to requests."""
    yield from given_up(accepts_nobody(1000))


@case("errors", quiet="light", fails=True)
def unreachable_upstream():
    """nginx returns 504 as its upstream does not respond to attempts to connect: its accept queue is full."""
    back = accepts_nobody(0)
    with socket.create_connection(("127.0.0.1", back.port)):
        yield from given_up(back)


def failures_of(f):
    """Share in percent, and number, of the requests to a peer that failed, from the text of the finding."""
    m = re.match(r"(\d+)% of .* fail, (\d+) in ", f["text"])
    return int(m[1]), int(m[2])


@test(quiet="light")
def failing_upstream():
    """The unit behind the proxy returns 503, and so does the proxy; then neither has a failure any more."""
    back = Failing(503).start()
    scenario.attach(back)
    u = proxy(back.port)
    with requests_to(u.port) as answered:
        wait_for("there is a response of nginx", answered, 20)
        before = answered()
        d = diagnose(u)
        passed = answered() - before
        back.set(200)
        before = answered()
        wait_for("there are others", lambda: answered() > before + 5)
        well = diagnose(u)
    f = first(d, "errors")
    equal((f["resource"], f["unit"], f["next"]), (f"127.0.0.1:{back.port}", back.name, f"qosctl diagnose {back.name}"),
          f"the cause of {f}")
    check(back.name in d["summary"], f"summary of {said(d)}")
    f = found(d, "dependency")
    equal((f["resource"], f["unit"], f["certainty"], "share" in f),
          (f"127.0.0.1:{back.port}", back.name, "certain", False), f"the peer of {f}")
    share, n = failures_of(f)
    # Those before it has attached the unit, and after the interval, are not in it
    check(share == 100 and passed / 2 < n <= passed, f"{passed} requests of the client, the text has {n}: {f}")
    scenario.within(d["figures"]["peerStatus5xx"], d["figures"]["status5xx"], 0.1, 1,
                    "errors of the peer and of the unit")
    # On a busy machine it may wait for its peer, which is a share of its time, and no failure
    check(not any(f["kind"] == "errors" or f["kind"] == "dependency" and "share" not in f for f in well["findings"]),
          f"well again: {said(well)}")
    equal(well["figures"]["peerStatus5xx"], 0, f"figures of {said(well)}")


@case("dependency", quiet="light", fails=True)
def failing_upstream_with_a_fallback():
    """The proxy has a fallback: it returns no errors, its peer does."""
    back = Failing(503).start()
    u = proxy(back.port, "proxy_intercept_errors on; error_page 503 =200 @instead;")
    with requests_to(u.port) as answered:
        wait_for("there is a response of nginx", answered, 20)
        d = yield u
    f = first(d, "dependency")
    equal((f["resource"], "unit" in f, d["figures"]["status5xx"]), (f"127.0.0.1:{back.port}", False, 0),
          f"the peer of {said(d)}")
    check(not any(f["kind"] == "errors" for f in d["findings"]), f"errors: {said(d)}")


# A client of Redis: its commands, one after the other, again and again
TALKS = """
import socket, sys, time
with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as s:
    while True:
        for command in sys.argv[2:]:
            words = command.split('_')
            s.sendall(''.join([f'*{len(words)}\\r\\n'] + [f'${len(w)}\\r\\n{w}\\r\\n' for w in words]).encode())
            reply = b''
            while not reply.endswith(b'\\r\\n'):
                reply += s.recv(4096)
            time.sleep(0.005)
"""


def talking(port, *commands):
    path = f"/run/{unit_name('talk', '.py')}"
    with open(path, "w") as f:
        f.write(TALKS)
    return Unit(f"/usr/bin/python3 {path} {port} {' '.join(commands)}", type="exec").start()


@test(quiet="light")
def error_replies():
    """Clients of one Redis, of which it refuses all commands, each third, and none."""
    server = redis()
    scenario.attach(server)
    run("redis-cli", "-p", str(server.port), "set", "text", "x")
    for commands, wanted in ((["INCR_text"], 100), (["INCR_text", "PING", "PING"], 33),
                             (["PING", "INCR_number"], None)):
        u = talking(server.port, *commands)
        d = diagnose(u)
        u.stop()
        if wanted is None:
            equal((d["verdict"], d["figures"]["peerErrorReplies"]), ("nothing", 0), f"nothing is wrong: {said(d)}")
            continue
        f = first(d, "dependency")
        equal((f["resource"], f["unit"]), (f"127.0.0.1:{server.port}", server.name), f"the peer of {f}")
        equal(f["certainty"], "certain" if wanted == 100 else "likely", f"certainty of {f}")
        share, n = failures_of(f)
        check(abs(share - wanted) <= 1 and n > 50 and "error replies" in f["text"], f"text of {f}")


@case("down", quiet="light", fails=True)
def failed():
    """A unit whose process was killed."""
    prepare()
    s = Server(mode="thread", settings="Restart=no").start()
    scenario.attach(s)
    s.kill("SIGKILL")
    wait_for("it has failed", lambda: scenario.unit_property(s.name, "ActiveState") == "failed")
    f = first((yield s), "down")
    check("failed for " in f["text"] and "result signal" in f["text"] and "signal KILL" in f["text"], f"text of {f}")


@case("down", quiet="light", fails=True)
def stopped_unit():
    """A unit that was stopped with systemctl."""
    prepare()
    s = Server(mode="thread", settings="Restart=no").start()
    scenario.attach(s)
    s.stop()
    f = first((yield s), "down")
    check(re.fullmatch(r"inactive for [0-9.]+(us|ms|s|min.*), result success", f["text"]), f"text of {f}")


@case("restarts", quiet="light", fails=True)
def restart_loop():
    """A service that ends with status 7 twice a second, and is started again each time."""
    prepare()
    u = Unit("/bin/sh -c 'sleep 0.2; exit 7'", type="exec", settings="Restart=always\nRestartSec=100ms").start()
    f = first((yield u), "restarts")
    check("exit status 7" in f["text"], f"text of {f}")
    n = int(f["text"].split()[1])
    check(n >= 2, f"restarts in the interval: {f}")


@case("down", quiet="light", fails=True)
def never_ready():
    """A service that does not report that it is ready, however long the service manager waits."""
    prepare()
    u = Unit("/bin/sleep infinity", type="notify", settings="TimeoutStartSec=infinity")
    run("systemctl", "start", "--no-block", u.name)
    wait_for("it is being started", lambda: run("systemctl", "is-active", u.name, ok=False).stdout == "activating\n")
    f = first((yield u), "down")
    check(f["text"].startswith("activating (start) for "), f"text of {f}")


@case("limit", quiet="light", fails=True)
def clients_hold_all_workers():
    """Apache has two processes, each of which waits for the next request of a client. Others connect, and that is all:
    no request of theirs is read."""
    prepare()
    u, _ = test_healthy.apache("prefork", "StartServers 2\nServerLimit 2\nMaxRequestWorkers 2\nKeepAliveTimeout 300")
    with contextlib.ExitStack() as stack:
        for i in range(5):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", u.port), timeout=20))
            s.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
            if i < 2:
                check(s.recv(4096).startswith(b"HTTP/1.1 200"), "response of a worker")
        f = found((yield u), "limit")
    check(f["text"].startswith("3 connections are not accepted"), f"text of {f}")


def accepts_nobody(backlog):
    prepare()
    port = unused_port()
    u = Unit(f"/usr/bin/python3 -c 'import socket, time; s = socket.socket(); s.bind((\"127.0.0.1\", {port})); "
             f"s.listen({backlog}); time.sleep(1e6)'",
             type="exec").start()
    wait_for("it listens", lambda: f":{port} " in run("ss", "-lnt").stdout)
    u.port = port
    return u


@case("dropped", quiet="light", fails=True)
def accept_queue_full():
    """Clients of a server that does not accept connections, with a backlog of one."""
    u = accepts_nobody(1)
    port = u.port
    clients = [subprocess.Popen(["python3", "-c",
                                 f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.recv(1)"],
                                stderr=subprocess.DEVNULL) for _ in range(10)]
    try:
        d = yield u
    finally:
        for c in clients:
            c.kill()
            c.wait()
    f = first(d, "dropped")
    check("(limit 1)" in f["text"], f"text of {f}")


def processes(s):
    scenario.attach(s)
    with open(f"/sys/fs/cgroup{s.control_group}/cgroup.procs") as f:
        return sorted(int(line) for line in f)


@case("stopped", quiet="light", fails=True)
def stopped_worker():
    """SIGSTOP of one of two workers."""
    prepare()
    s = Server(mode="prefork", workers=2).start()
    n, worker = len(processes(s)), processes(s)[-1]
    run("kill", "-STOP", worker)
    f = first((yield s), "stopped")
    check(f" 1 of {n} processes (PID {worker})" in f["text"] and f["state"] == "stopped", f"{f}")


@case("stopped", quiet="light", fails=True)
def stopped_processes():
    """SIGSTOP of all of them."""
    prepare()
    s = Server(mode="prefork", workers=2).start()
    n = len(processes(s))
    s.kill("SIGSTOP")
    f = first((yield s), "stopped")
    check(f" {n} of {n} processes (PID " in f["text"] and f["next"] == f"systemctl kill --signal=SIGCONT {s.name}",
          f"{f}")


@case(quiet="light")
def continued():
    prepare()
    s = Server(mode="prefork", workers=2).start()
    processes(s)
    s.kill("SIGSTOP")
    first((yield s), "stopped")
    s.kill("SIGCONT")
    yield s


@case("stopped", quiet="light", fails=True)
def frozen():
    """A frozen unit is not stuck for an unknown reason."""
    prepare()
    s = Server(mode="thread").start()
    talk = Talk(s)
    scenario.attach(s)
    s.freeze()
    try:
        f = first((yield s), "stopped")
        check("frozen" in f["text"] and f["next"] == f"systemctl thaw {s.name}", f"{f}")
    finally:
        s.thaw()
    talk.end()


@case(quiet="light")
def thawed():
    prepare()
    s = Server(mode="thread").start()
    scenario.attach(s)
    systemctl("freeze", s.name)
    try:
        first((yield s), "stopped")
    finally:
        systemctl("thaw", s.name)
    yield s
