# SPDX-License-Identifier: LGPL-2.1-or-later
"""Diagnoses of units, compared with faults that are known, as each unit is set up to suffer from them. Nothing else may
run meanwhile, as the CPU time of other tests would be a finding, too."""

import collections
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import types

import scenario
from scenario import Server, Unit, check, equal, fail, qosctl, test, unit_name, unused_port, wait_for
from test_udp_peers import unbound

SECONDS = 3     # of each diagnosis


def diagnose(unit, *options, status=0):
    """Returns the diagnosis. status: the exit status of qosctl to expect, or None for any."""
    r = qosctl("diagnose", unit.name, f"--for={SECONDS}s", "--json=short", *options, ok=False, timeout=40)
    if status is not None:
        equal(r.returncode, status, f"exit status, {r.stderr.strip() or r.stdout}")
    return json.loads(r.stdout)


helper = None


def prepare():
    """Loads the programs before there is a fault, as the verifier needs a second of CPU time for them. The unit itself
    is attached by the diagnosis."""
    global helper
    if not helper:
        helper = Unit("/bin/sleep infinity", type="exec").start()
        scenario.attach(helper, "--probes=requests,cpu,block,memory")


def calm(look, attempts=4):
    """Returns a diagnosis, which is repeated if other processes on the machine wanted the CPUs, as that is a true
    finding. It is not repeated because of other findings."""
    for attempt in range(attempts):
        d = look()
        if not any(f["kind"] == "cpu" for f in d["findings"]):
            break
    return d


def said(d):
    """Returns the diagnosis in a line, for the message of a failed test."""
    return json.dumps({k: d[k] for k in d if k not in ("baseline", "excluded")})


def found(d, kind):
    for f in d["findings"]:
        if f["kind"] == kind:
            return f
    fail(f"'{kind}' was not found: {said(d)}")


def noise(d):
    """Returns the kinds of findings that other processes on the machine may cause: {"cpu"}, unless half of the unit's
    CPUs were idle."""
    f = d["figures"]
    return {"cpu"} if scenario.in_vm or f.get("idleCpus", 0) < 0.5 * f.get("cpus", 0) else set()


def only(d, *kinds):
    """Checks that these kinds are found, and no others but those of noise(). Returns the findings in the order of the
    arguments."""
    got = {f["kind"] for f in d["findings"]}
    check(set(kinds) <= got <= set(kinds) | noise(d), f"not {kinds}: {said(d)}")
    equal(d["verdict"], "found" if got else "nothing", f"verdict of {said(d)}")
    return [found(d, k) for k in kinds]


@contextlib.contextmanager
def on_cpu(cpu):
    """Processes that are started in its body run on this CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def other_cpu(cpu=0):
    others = sorted(os.sched_getaffinity(0) - {cpu})
    return others[0] if others else cpu


# All units of a case, also those that cause its fault, have priority over other processes on the machine
FIRST = "Nice=-10\n"


class Toiler(Server):
    def __init__(self, settings="", **options):
        prepare()
        super().__init__(program="toiler", settings=FIRST + settings, **options)
        self.start()


def backend(delay_us):
    return Server(mode="thread", delay_us=delay_us, settings=FIRST).start()


@contextlib.contextmanager
def loaded(server, **options):
    """Runs its body while a client sends requests, as many at a time as there are connections."""
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    client = scenario.Client(server, duration_ms=60000, number=1 << 40, **options)
    try:
        yield client
    finally:
        client.stop()


def redis(cpu=None, settings=""):
    prepare()
    port = unused_port()
    u = Unit(f"/usr/bin/redis-server --port {port} --save '' --bind 127.0.0.1 --supervised systemd",
             settings=FIRST + settings + (f"CPUAffinity={cpu}" if cpu is not None else "")).start()
    u.port = port
    return u


@contextlib.contextmanager
def benchmark(u, connections=20, command=("-t", "get")):
    """Runs its body while redis-benchmark runs, on a CPU of its own."""
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    with on_cpu(other_cpu()):
        p = subprocess.Popen(["redis-benchmark", "-p", str(u.port), "-c", str(connections), "-n", "1000000000", "-q",
                              *command],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        p.kill()
        p.wait()


def hog(cpu=0, settings="", processes=1):
    loops = "while :; do :; done & " * processes
    return Unit(f"/bin/sh -c '{loops}wait'", name=unit_name("hog"), type="exec",
                settings=FIRST + settings + f"CPUAffinity={cpu}").start()


# ---- what units are made to suffer from -------------------------------------------------------------------------
#
# Each case sets up a unit with a fault, yields it, is sent its diagnosis, and checks that. A case with a baseline
# yields the unit several times, with options; then the last diagnosis is judged. Cases are tests, and the rows of the
# table of confusions in the benchmark (tests/bench/diagnosis.py).

CASES = []


class Case:
    def __init__(self, function, kinds, also, needs_vm, deadline, fails):
        self.function = function
        self.needs_vm = needs_vm
        self.deadline = deadline
        self.name = function.__name__
        self.truth = kinds[0] if kinds else "nothing"
        self.kinds = set(kinds)         # kinds of findings that are required
        self.also = set(also)           # kinds that may be found, too
        # The unit does not serve: that has to be the first finding, whatever else there is
        self.fails = fails

    def judge(self, d):
        """Checks that the findings are those required, and no others but those allowed and those of noise()."""
        got = {f["kind"] for f in d["findings"]}
        if self.fails:
            equal(d["findings"][0]["kind"] if d["findings"] else "nothing", self.truth, f"first finding of {said(d)}")
        else:
            check(self.kinds <= got <= self.kinds | self.also | noise(d), f"not {sorted(self.kinds)}: {said(d)}")
        equal(d["verdict"], "found" if got else "nothing", f"verdict of {said(d)}")

    def run(self, look):
        """Runs the case. look(unit, *options) makes a diagnosis."""
        suffering, d = self.function(), None
        try:
            while True:
                wanted = suffering.send(d)
                d = look(*wanted) if isinstance(wanted, tuple) else look(wanted)
        except StopIteration:
            self.judge(d)
            return d
        finally:
            suffering.close()


def case(*kinds, also=(), deadline=60, quiet="loaded", vm=False, needs_vm=None, fails=False, recorded=False,
         flaky=None):
    """recorded: the evidence of a run is in tests/unit/recorded-evidence.h, so that the rules are tested without the
    lab, and the whole only in nightly runs."""
    def register(function):
        c = Case(function, kinds, also, needs_vm, deadline, fails)
        CASES.append(c)

        def alone():
            # A case with the finding "cpu" is not repeated because of it
            c.run(diagnose if "cpu" in kinds or fails else lambda u, *options: calm(lambda: diagnose(u, *options)))
        alone.__name__, alone.__module__ = function.__name__, function.__module__
        test(deadline=deadline, quiet=quiet, vm=vm, needs_vm=needs_vm, nightly=recorded, flaky=flaky)(alone)
        return function
    return register


@case("cpu")
def cpu_hog():
    """Redis shares its CPU with another unit."""
    u, other = redis(cpu=0), hog()
    with benchmark(u):
        d = yield u
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case("cpu")
def hog_that_has_ended():
    """A unit that takes the CPU of Redis ends while the diagnosis goes on, so that its control group is gone at the
    end."""
    u, other = redis(cpu=0), hog()
    group = "/sys/fs/cgroup" + scenario.unit_property(other.name, "ControlGroup")

    def cpu_nsec():
        return int(scenario.unit_property(other.name, "CPUUsageNSec"))

    def end():
        wait_for("the diagnosis has begun", lambda: u.name in scenario.listed() and holds(u), 20)
        before = cpu_nsec()
        wait_for("the other unit had the CPU for some time", lambda: cpu_nsec() > before + scenario.SEC * 3 // 2, 20)
        other.stop()
    ends = threading.Thread(target=end)
    with benchmark(u):
        ends.start()
        try:
            d = yield u, "--for=6s"
        finally:
            ends.join()
    check(not os.path.exists(group), f"the control group {group} is still there")
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case(also=("limit",), quiet="loaded")
def hog_that_ended_before():
    """A unit that took the CPU of Redis ended before the diagnosis began: it is no finding of this, and keeps its name
    in the table of what Redis has waited for."""
    u, other = redis(cpu=0), hog()
    scenario.attach(u, "--probes=requests,cpu")

    def waits():
        return [r for r in scenario.varlink("Resources", unit=u.name)["resources"] if r.get("unit") == other.name]
    with benchmark(u):
        wait_for("Redis has waited for it", waits, 20)
        other.stop()
        d = yield u
        check(waits(), f"it has lost its name: {scenario.varlink('Resources', unit=u.name)}")
    check(other.name not in json.dumps(d), f"it is in the diagnosis: {said(d)}")


@case("cpu")
def hogs_that_come_and_go():
    """A unit that is restarted whenever it ends takes the CPU of Redis, each time in a control group of its own."""
    u = redis(cpu=0)
    other = Unit("/usr/bin/timeout 0.3 /bin/sh -c 'while :; do :; done'", name=unit_name("hog"), type="exec",
                 settings=FIRST + "CPUAffinity=0\nRestart=always\nRestartSec=10ms\n").start()
    with benchmark(u):
        d = yield u
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case("limit", recorded=True)
def one_busy_process():
    """A server with one thread, and more requests than that can serve."""
    s = Toiler(workers=1, cpu_us=500, settings="CPUAffinity=0")
    with on_cpu(other_cpu()), loaded(s, connections=8):
        d = yield s
    f = found(d, "limit")
    equal((f["state"], f["resource"]), ("running", f"process {s.main_pid}"), f"what saturates: {f}")


@case("limit", also=("cpu",), recorded=True)
def broker():
    """A stream of Redis gets more messages than Redis' one thread can process."""
    u = redis(cpu=0)
    # Messages of several fields, in pipelines, are more work for the server than for the client
    fields = [w for i in range(20) for w in (f"field{i}", "x" * 20)]
    with benchmark(u, connections=100, command=("-P", "16", "XADD", "stream", "MAXLEN", "1000", "*", *fields)):
        d = yield u
    f = found(d, "limit")
    check(f.get("state") == "running"
          and f["resource"] in (f"process {u.main_pid}", f"thread redis-server ({u.main_pid})"), f"what saturates: {f}")


@case("limit", quiet="light")
def pool_too_small():
    """Two workers that sleep serve eight connections, while the CPUs are idle."""
    s = Toiler(workers=2, sleep_us=10000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "limit")
    check("2.0 at a time" in f["text"], f"size of the pool: {f}")
    equal("CPUs are idle" in f["text"], d["figures"]["idleCpus"] >= 0.2, f"idle CPUs: {said(d)}")


@case("limit", recorded=True)
def batches():
    """One thread does the work of the threads of all connections, for several requests at once."""
    s = Toiler(batch=4, cpu_us=4000, settings="CPUAffinity=0")
    with on_cpu(other_cpu()), loaded(s, connections=12):
        d = yield s
    f = found(d, "limit")
    check(f["resource"].startswith("thread batcher (") and f["state"] == "running", f"what saturates: {f}")


@case("dependency", quiet="light")
def slow_dependency():
    """The unit sends requests to another server, which is slow."""
    slow = backend(20000)
    s = Toiler(ask=slow.port)
    with loaded(s, connections=4):
        d = yield s
    f = found(d, "dependency")
    equal((f["resource"], f["certainty"]), (f"127.0.0.1:{slow.port}", "certain"), f"the dependency: {f}")


# Servers of HTTP that need something else for each response, a function need()
NEEDS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *arguments):
        pass
    def do_GET(self):
        need()
        self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
"""

# A DNS server that takes its time for each response: 192.0.2.1 for A, and none for other types
SLOW_DNS = """
import socket, sys, threading
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 53))
def respond(query, client):
    end = query.index(b'\\0', 12) + 5
    a = query[end - 3] == 1
    s.sendto(query[:2] + b'\\x81\\x80\\0\\1\\0' + bytes([a]) + bytes(4) + query[12:end]
             + (b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4\\xc0\\0\\2\\1' if a else b''), client)
while True:
    threading.Timer(.03, respond, s.recvfrom(512)).start()
"""


@case("dependency", quiet="light", recorded=True)
def slow_dns():
    """Each response needs the address of a name, which glibc queries at a slow DNS server."""
    address = "127.0.53.1"
    path, configuration = (f"/run/{unit_name('dns', end)}" for end in (".py", ".conf"))
    for name, text in ((path, SLOW_DNS), (configuration, f"nameserver {address}\n")):
        with open(name, "w") as f:
            f.write(text)
    Unit(f"/usr/bin/python3 {path} {address}", type="exec", settings=FIRST).start()
    wait_for("the DNS server is there", lambda: scenario.run("ss", "-lunH", "src", f"{address}:53").stdout)
    u = script("import socket\ndef need():\n    socket.getaddrinfo('backend.example', 80)\n" + NEEDS,
               settings=f"BindReadOnlyPaths={configuration}:/etc/resolv.conf\n")
    with fetching(u.port, "/", n=4) as times:
        wait_for("some responses", lambda: len(times) > 20)
        d = yield u
    check(min(times) > .03, f"a response takes {min(times)} s")
    equal(found(d, "dependency")["resource"], f"{address}:53", f"the dependency: {said(d)}")


@case("lock", also=("dependency",), quiet="light", recorded=True)
def exhausted_pool():
    """Eight requests at a time share a pool of two connections to another server."""
    slow = backend(20000)
    u = script(f"""
import queue, socket
pool = queue.Queue()
for _ in range(2):
    pool.put(socket.create_connection(('127.0.0.1', {slow.port})))
def need():
    c = pool.get()
    c.sendall(bytes(64))
    c.recv(4096)
    pool.put(c)
""" + NEEDS)
    with fetching(u.port, "/", n=8) as times:
        wait_for("some responses", lambda: len(times) > 20)
        d = yield u
    f = found(d, "lock")
    check(f["state"] == "park" and "released by" in f["text"], f"what it waits for: {f}")


@case("lock", quiet="light")
def hot_mutex():
    """Each of eight threads holds one mutex for a while."""
    s = Toiler(lock_us=2000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "lock")
    equal((f["state"], f["certainty"]), ("lock", "certain"), f"what it waits for: {f}")
    check(f["resource"].endswith(":hot_mutex") and "released by toiler (" in f["text"], f"the lock and its holder: {f}")


@case("lock", quiet="light")
def hot_turn():
    """Eight threads wait for a single resource at a condition variable, where idle threads would wait as well."""
    s = Toiler(turn_us=2000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "lock")
    equal((f["state"], f["certainty"]), ("park", "possible"), f"what it waits for: {f}")
    check("toiler:hot_turn" in f["resource"] and "released by toiler (" in f["text"],
          f"the condition variable and the thread that signals it: {f}")


@case("lock", also=("cpu", "limit"), recorded=True)
def one_file():
    """Threads wait for the kernel's lock of a file that each response is written to. The file is in memory, so that no
    thread waits for a disk, and writing takes CPU time as well."""
    path = f"/run/{scenario.prefix}.file"
    s = Toiler(sync=path, sync_size=16 << 20)
    try:
        with loaded(s, connections=8):
            d = yield s
    finally:
        s.stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    f = found(d, "lock")
    check(f["state"] == "disk" and f["resource"].startswith("lock in ") and "released by toiler (" in f["text"],
          f"the lock and its holder: {f}")


@contextlib.contextmanager
def postgresql():
    """Yields a PostgreSQL server with a table. load() runs clients of it with a script of pgbench."""
    prepare()
    directory, binaries, port = f"/run/{scenario.prefix}-pg", "/usr/lib/postgresql/17/bin", unused_port()
    scenario.run("install", "-d", "-o", "postgres", directory)
    scenario.run("runuser", "-u", "postgres", "--", f"{binaries}/initdb", "-D", f"{directory}/data", "-A", "trust",
                 "--no-sync", timeout=60)
    u = Unit(f"{binaries}/postgres -D {directory}/data -k {directory} -c listen_addresses=127.0.0.1 -p {port} -c "
             "fsync=off -c autovacuum=off",
             settings=FIRST + "User=postgres\nEnvironment=LC_ALL=C").start()

    def ask(sql):
        return scenario.run(f"{binaries}/psql", "-h", directory, "-p", port, "-U", "postgres", "-At", "-c",
                            sql).stdout.strip()
    ask("create table accounts (id int primary key, n int); insert into accounts select i, 0 from "
        "generate_series(1, 1000) i")

    @contextlib.contextmanager
    def load(script, clients=1, name="load"):
        with open(f"{directory}/{name}", "w") as f:
            f.write(script)
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        p = subprocess.Popen([f"{binaries}/pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-n", "-f",
                              f"{directory}/{name}", "-c", str(clients),
                              "-T", "60", "postgres"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL,
                             env=dict(os.environ, PGAPPNAME=name))
        try:
            # psql has another application_name
            wait_for("all clients are connected",
                     lambda: int(ask("select count(*) from pg_stat_activity where application_name "
                                     f"= '{name}'")) == clients, 10)
            yield
        finally:
            p.kill()
            p.wait()
    u.load, u.ask = load, ask
    yield u
    u.stop()
    scenario.run("rm", "-rf", directory)


@case(quiet="light", recorded=True)
def rows():
    """Clients of PostgreSQL update different rows, and do not wait for each other."""
    with postgresql() as u:
        with u.load("\\set id random(1, 1000)\nbegin;\nupdate accounts set n = n + 1 where id = :id;\n\\sleep 5 "
                    "ms\nend;\n", clients=6):
            yield u


@case("lock", quiet="light", recorded=True)
def row_of_postgresql():
    """Two clients of PostgreSQL update one row, and one of them holds its lock for a while each time."""
    with postgresql() as u:
        with u.load("begin;\nupdate accounts set n = n + 1 where id = 1;\n\\sleep 30 ms\nend;\n", name="holder"), \
                u.load("update accounts set n = n + 1 where id = 1;\n\\sleep 5 ms\n", name="writer"):
            holder, writer = (u.ask(f"select pid from pg_stat_activity where application_name = '{name}'")
                              for name in ("holder", "writer"))
            d = yield u
    f = found(d, "lock")
    equal((f["certainty"], f["state"], f["resource"]), ("possible", "poll", f"a signal to process {writer}"),
          f"what it waits for: {f}")
    check(f"released by postgres ({holder})" in f["text"], f"the holder of the row is {holder}: {f}")


@contextlib.contextmanager
def mariadb():
    """Yields a MariaDB server with a table. session() runs a client of it, which repeats its statements; numbers are
    pauses in seconds between them. At the end of each round the client waits until the server has executed all
    statements."""
    prepare()
    directory, port = f"/run/{scenario.prefix}-maria", unused_port()
    scenario.run("install", "-d", "-o", "mysql", directory)
    scenario.run("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={directory}/data", "--skip-test-db",
                 timeout=60)
    u = Unit(f"/usr/sbin/mariadbd --no-defaults --datadir={directory}/data --socket={directory}/socket --port={port} "
             "--bind-address=127.0.0.1 "
             "--skip-networking=0 --skip-grant-tables --skip-ssl --innodb-flush-log-at-trx-commit=0",
             settings=FIRST + "User=mysql").start()
    client = ["mariadb", "--no-defaults", "--skip-ssl", "-B", "-N", "-D", "mysql", "-S", f"{directory}/socket",
              "--protocol=socket"]

    def ask(sql):
        return scenario.run(*client, "-e", sql).stdout.strip()
    ask("create table accounts (id int primary key, n int) engine=innodb; insert into accounts select seq, 0 from "
        "seq_1_to_1000")

    @contextlib.contextmanager
    def session(name, *steps):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        p = subprocess.Popen([*client[:-3], "-n", "-h", "127.0.0.1", "-P", str(port), "-u", name], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stop = threading.Event()

        def speak():
            with contextlib.suppress(OSError, ValueError):
                while not stop.is_set():
                    for s in steps:
                        if isinstance(s, str):
                            p.stdin.write(s + ";\n")
                            p.stdin.flush()
                        else:
                            stop.wait(s)
                    p.stdin.write("select 1;\n")
                    p.stdin.flush()
                    if not p.stdout.readline():
                        return
        t = threading.Thread(target=speak, daemon=True)
        t.start()
        try:
            wait_for("the client is connected",
                     lambda: ask(f"select count(*) from information_schema.processlist where user = '{name}'") == "1",
                     10)
            yield
        finally:
            stop.set()
            p.kill()
            p.wait()
            t.join()
            with contextlib.suppress(OSError):
                p.stdin.close()
            p.stdout.close()
    u.session, u.ask = session, ask
    yield u
    u.stop()
    scenario.run("rm", "-rf", directory)


def change(row):
    return f"update accounts set n = n + 1 where id = {row}"


@case("lock", quiet="light", recorded=True)
def row_of_mariadb():
    """Two clients of MariaDB update one row, and one of them holds its lock for a while each time."""
    with mariadb() as u:
        with u.session("holder", "begin", change(1), 0.03, "commit"), u.session("writer", change(1), 0.005):
            holder = u.ask("select tid from information_schema.processlist where user = 'holder'")
            d = yield u
    f = found(d, "lock")
    equal((f["certainty"], f["state"]), ("possible", "park"), f"what it waits for: {f}")
    check(f["resource"].startswith("0x") and f"({holder})" in f["text"], f"the holder of the row is {holder}: {f}")


@case(quiet="light", recorded=True)
def rows_of_mariadb():
    """Two clients of MariaDB update different rows, and do not wait for each other."""
    with mariadb() as u:
        with u.session("holder", "begin", change(1), 0.03, "commit"), u.session("writer", change(2), 0.005):
            yield u


def ss_limits(u, netns=None):
    """Returns what TCP waited for on all connections of a server, according to ss(8). busy: milliseconds with data to
    send; window: those of them in which the receive window of the client was the limit; connections; full: those of
    them with a full send buffer."""
    limits = collections.Counter()
    for _ in range(20):
        out = scenario.run(*scenario.nsenter(netns), "ss", "-tinmHO", "state", "established",
                           f"sport = :{u.port}").stdout
        limits.update(busy=sum(map(int, re.findall(r"\bbusy:(\d+)ms", out))),
                      window=sum(map(int, re.findall(r"\brwnd_limited:(\d+)ms", out))))
        for limit, queued in re.findall(r"\btb(\d+),f\d+,w(\d+),", out):
            limits.update(connections=1, full=int(queued) >= int(limit))
    return limits


def ss_counts(u, seconds=2):
    """Returns how often ss(8) shows each flag of the connections of a server: which of them have unsent data, and
    why."""
    counts = collections.Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for line in scenario.run("ss", "-tinHO", "state", "established", f"sport = :{u.port}").stdout.splitlines():
            counts.update({"connections"} | {word.partition(":")[0] for word in line.split()})
    return counts


# The HTTP server of Python's standard library, which writes head and body separately, with Nagle's algorithm or without
HTTP_SERVER = """
import functools, http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    disable_nagle_algorithm = sys.argv[2] == "nodelay"
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), functools.partial(Handler, directory=sys.argv[3])).serve_forever()
"""


@contextlib.contextmanager
def fetching(port, path, n=2):
    """Runs its body while clients send requests on connections that they keep. Yields the list of the seconds that each
    response took, which is appended to."""
    times, over = [], threading.Event()

    def fetch():
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as c:
            while not over.is_set():
                begin = time.monotonic()
                c.request("GET", path)
                c.getresponse().read()
                times.append(time.monotonic() - begin)
                time.sleep(0.002)

    clients = [threading.Thread(target=fetch) for _ in range(n)]
    for c in clients:
        c.start()
    try:
        yield times
    finally:
        over.set()
        for c in clients:
            c.join()


def head_and_body(option):
    """Yields the unit. Returns its diagnosis, the median of the seconds that a response took the client, and
    ss_counts()."""
    with tempfile.TemporaryDirectory(dir="/run") as path:
        os.chmod(path, 0o755)
        with open(f"{path}/index.html", "w") as f:
            f.write("x" * 500)
        u = script(HTTP_SERVER, option, path)
        with fetching(u.port, "/index.html") as times:
            wait_for("some responses", lambda: len(times) > 50)
            counts = ss_counts(u)
            del times[:]
            d = yield u
            seconds = sorted(times)[len(times) // 2]
    return d, seconds, counts


@case("nagle", deadline=120, quiet="light")
def nagle():
    """Head and body of responses are written separately, and clients delay acknowledgements."""
    d, seconds, counts = yield from head_and_body("nagle")
    check(seconds > 0.03, f"a response takes the client {seconds} s")
    check(counts["notsent"] > counts["connections"] / 2, f"unsent data: {counts}")
    check(counts["rwnd_limited"] == counts["sndbuf_limited"] == 0, f"windows and buffers: {counts}")
    f = found(d, "nagle")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("TCP_NODELAY" in f["text"], f"the remedy: {f}")
    check(abs(f["time"] / scenario.SEC - seconds) < seconds / 3, f"a response takes the client {seconds} s: {f}")


@case(deadline=120, quiet="light", recorded=True)
def head_and_body_without_delay():
    """Head and body of responses are written separately, with TCP_NODELAY."""
    d, seconds, counts = yield from head_and_body("nodelay")
    check(seconds < 0.03, f"a response takes the client {seconds} s")
    check(d["figures"]["sendNagle"] == 0, f"unsent parts: {said(d)}")


@case("receiveWindow", quiet="light")
def slow_readers():
    """Clients read responses slowly that are larger than all buffers."""
    s = Toiler(response=8 << 20)
    with loaded(s, connections=4, response=8 << 20, read_rate=16 << 20, rcvbuf=65536):
        d = yield s
        limits = ss_limits(s)
    check(limits["window"] > limits["busy"] / 2, f"what TCP waited for: {limits}")
    f = found(d, "receiveWindow")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("clients read too slowly" in f["text"], f"the cause: {f}")


def far_away(options, load, congestion="reno"):
    """Yields a unit with a round-trip time of 40 ms to its clients. Returns its diagnosis and ss_limits()."""
    prepare()
    cable = scenario.Cable(delay_us=20000)
    scenario.run("ip", "netns", "exec", cable.b, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}")
    s = Server(address="::", mode="thread", netns=cable.b, settings=FIRST, **options).start()
    with loaded(s, netns=cable.a, address=cable.address_b, **load):
        d = yield s
        limits = ss_limits(s, cable.b)
    cable.cut()
    return d, limits


@case("sendBuffer", quiet="light")
def small_send_buffer():
    """The contents of a small send buffer are in flight for 40 ms. The response is written in parts, as a single write
    may exceed the size of the buffer."""
    d, limits = yield from far_away(dict(response=60000, parts=30, sndbuf=8192), dict(connections=4))
    check(limits["full"] > limits["connections"] / 2 and limits["window"] < limits["busy"] / 2,
          f"what TCP waited for: {limits}")
    f = found(d, "sendBuffer")
    equal(f["certainty"], "certain", f"certainty: {f}")
    check("SO_SNDBUF" in f["text"], f"the remedy: {f}")


@case("network", quiet="light")
def slow_start():
    """Each connection has one response of ten times the initial congestion window."""
    yield from slow_path("reno")


@case("network", quiet="light", recorded=True)
def slow_path_bbr():
    """With BBR, each connection has one response of ten times the initial congestion window, with segments that are
    paced."""
    yield from slow_path("bbr")


def slow_path(congestion):
    d, limits = yield from far_away(dict(response=150000), dict(connections=4, per_connection=1), congestion)
    check(limits["window"] < limits["busy"] / 2, f"what TCP waited for: {limits}")
    f = found(d, "network")
    check("the path to clients is slow" in f["text"], f"the cause: {f}")
    check(35 * scenario.MSEC < d["figures"]["sendRtt"] < 80 * scenario.MSEC, f"round-trip time: {said(d)}")


def over_a_cable(cable):
    prepare()
    s = Server(address="::", mode="thread", response=100000, netns=cable.b, settings=FIRST).start()
    with loaded(s, netns=cable.a, address=cable.address_b, connections=4):
        d = yield s
    cable.cut()
    f = found(d, "network")
    check("segments are retransmitted" in f["text"] or "segments are lost" in f["text"], f"the cause: {f}")


@case("network", also=("cpu",), quiet="light")
def loss_towards_clients():
    """Three of a hundred packets are lost on the way to the clients."""
    yield from over_a_cable(scenario.Cable(drop=30, delay_us=500, seed=7))


@case("network", deadline=120, vm="nightly", needs_vm="the development kernel has no netem")
def netem_towards_clients():
    yield from over_a_cable(scenario.NetemCable(netem="loss 3% delay 5ms"))


@case("quota", deadline=120, vm="nightly", needs_vm="the CPU controller is not there")
def quota_too_small():
    s = Toiler(cpu_us=5000, settings="CPUQuota=10%")
    with loaded(s, connections=2):
        d = yield s
    f = found(d, "quota")
    check(f["state"] == "throttled" and "the quota was used up in" in f["text"], f"state and text: {f}")


def without_room(limit):
    """Each response reads pages of a mapped file that is larger than the memory of the unit, from a disk that is slow:
    a page that takes long to read is what a unit waits for, even if its own work takes long on an emulated CPU."""
    with files(1) as (path,):
        scenario.run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=64", "conv=fsync", timeout=60)
        # Pages in memory are charged to the control group that has written them
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        s = Toiler(map=path, settings=f"{limit}=20M\nMemorySwapMax=0\nIOReadIOPSMax=/var/tmp 150")
        with loaded(s, connections=2):
            d = yield s
    f = found(d, "memory")
    check("major faults" in f["text"], f"text: {f}")


@case("memory", also=("disk",), deadline=180, vm="nightly", needs_vm="the memory controller is not there")
def memory_too_small():
    yield from without_room("MemoryMax")


@case("memory", also=("disk",), deadline=180, vm="nightly", needs_vm="the memory controller is not there")
def memory_throttled():
    """Threads are throttled beyond MemoryHigh=, and no process is killed."""
    yield from without_room("MemoryHigh")


@contextlib.contextmanager
def files(n):
    """Yields paths on the disk of the machine, which are removed at the end."""
    paths = [f"/var/tmp/{scenario.prefix}.{i}" for i in range(n)]
    try:
        yield paths
    finally:
        for p in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(p)


@case("disk", also=("cpu",))
def own_syncs():
    """Each response waits until some MiB are on the disk, for which a CPU is woken up repeatedly."""
    with files(1) as (path,):
        s = Toiler(sync=path, sync_size=8 << 20)
        with loaded(s, connections=2):
            d = yield s
    f = found(d, "disk")
    check("of its bytes are the unit's own" in f["text"], f"the unit that writes: {f}")


def writer(*paths):
    """Starts a unit that keeps the disk busy with writes."""
    loops = "".join(f"while :; do dd if=/dev/zero of={p} bs=4M count=16 oflag=direct conv=fsync,notrunc "
                    "status=none; done & " for p in paths)
    return Unit(f"/bin/sh -c '{loops}wait'", name=unit_name("writer"), type="exec").start()


@case("disk", also=("cpu",), recorded=True)
def busy_neighbour_on_the_disk():
    """Each response waits until a page is on the disk, while another unit writes as much as it can."""
    with files(5) as (path, *others):
        s = Toiler(sync=path)
        other = writer(*others)
        with loaded(s, connections=2):
            d = yield s
        other.stop()
    f = found(d, "disk")
    equal((f["resource"], f["unit"]), (d["devices"][0]["name"], other.name),
          f"the device, and the unit that uses it: {said(d)}")


@case("cpu", "dependency", recorded=True)
def two_faults():
    """The unit shares its CPU with another one, and has a slow dependency."""
    slow = backend(10000)
    s, other = Toiler(ask=slow.port, cpu_us=5000, settings="CPUAffinity=0"), hog()
    with on_cpu(other_cpu()), loaded(s, connections=1):
        d = yield s
    equal((found(d, "cpu")["unit"], found(d, "dependency")["resource"]), (other.name, f"127.0.0.1:{slow.port}"),
          f"both: {said(d)}")


def waiter(*what):
    """Starts a unit that is no server, with threads that wait or run as given."""
    prepare()
    return Unit(f"{scenario.tools}/waiter {' '.join(what)}", settings=FIRST).start()


@case("lock", quiet="light")
def batch_behind_a_mutex():
    """In a unit that is no server, four threads wait for a mutex that a fifth does not release, and a sixth one works
    at times."""
    u = waiter("mutex:4", "work:1")
    d = yield u
    f = found(d, "lock")
    equal((f["state"], f["certainty"], d["figures"]["rate"]), ("lock", "likely", 0), f"what it waits for: {said(d)}")
    check(3.9 < d["figures"]["threads"]["lock"] < 4.1 and f["share"] > 0.5, f"number of threads, and share: {said(d)}")
    check(f["resource"].endswith(":mutex") and "4.0 threads on average" in f["text"], f"the lock: {f}")


@case("cpu", recorded=True)
def batch_beside_a_hog():
    """A unit that is no server shares its CPU with another one."""
    prepare()
    u = Unit(f"{scenario.tools}/waiter burn:1", settings=FIRST + "CPUAffinity=0").start()
    other = hog()
    f = found((yield u), "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


def mount_of(path):
    """Mount point of the file system."""
    return subprocess.run(["findmnt", "-nro", "TARGET", "-T", path], check=True, capture_output=True,
                          text=True).stdout.strip()


@case("disk", also=("cpu",))
def batch_beside_a_writer():
    """A unit that is no server writes to a disk that another unit writes to as much as it can."""
    prepare()
    with files(5) as (path, *others):
        other = writer(*others)
        u = Unit(f"/bin/sh -c 'while :; do dd if=/dev/zero of={path} bs=4k count=1 conv=fsync,notrunc "
                 "status=none; done'",
                 type="exec", settings=FIRST).start()
        d = yield u
        other.stop()
        u.stop()
    f = found(d, "disk")
    equal((f["resource"], f["unit"]), (d["devices"][0]["name"], other.name),
          f"the device, and the unit that uses it: {said(d)}")
    equal(f["mount"], mount_of("/var/tmp"), f"the file system: {said(d)}")


@case(recorded=True)
def batch_that_runs():
    """A unit that is no server has a CPU for itself, and pauses at times."""
    yield waiter("burn:1", "work:1", "sleep:2")


@case(quiet="light", recorded=True)
def idle_redis():
    yield redis()


@case(quiet="light", recorded=True)
def idle_pool():
    """The unit's threads wait for work."""
    yield Toiler(idle=50)


@case(quiet="light", recorded=True)
def busy_threads():
    """The unit serves its requests, and has idle threads."""
    s = Toiler(idle=50, cpu_us=100)
    with loaded(s, connections=2, think_us=10000):
        yield s


@case(quiet="light", recorded=True)
def busy_workers():
    s = Toiler(workers=4, sleep_us=2000)
    with loaded(s, connections=2, think_us=10000):
        yield s


@case(quiet="light", recorded=True)
def busy_batches():
    """One thread does the work of the threads of all connections, and is not saturated."""
    s = Toiler(batch=4, cpu_us=500)
    with loaded(s, connections=4, think_us=20000):
        yield s


@contextlib.contextmanager
def asked(url, per_second=200):
    """Runs its body while a client sends requests at this rate."""
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    p = subprocess.Popen(["hey", "-z", "60s", "-c", "4", "-q", str(per_second // 4), url],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        p.kill()
        p.wait()


def caddy():
    """Starts a server in Go. The runtime of Go has a thread for each CPU, and further ones that wait."""
    prepare()
    port = unused_port()
    u = Unit(f"/usr/bin/caddy respond --listen 127.0.0.1:{port} hello", type="exec",
             settings=FIRST + "Environment=HOME=/tmp").start()
    wait_for("caddy listens",
             lambda: scenario.run("curl", "-s", f"http://127.0.0.1:{port}/", ok=False).stdout == "hello", 10)
    u.port = port
    return u


@case(quiet="light", recorded=True)
def idle_go():
    yield caddy()


@case(quiet="light", recorded=True)
def busy_go():
    u = caddy()
    with asked(f"http://127.0.0.1:{u.port}/"):
        yield u


def nginx(server):
    prepare()
    port, directory = unused_port(), f"/run/{unit_name('nginx', '')}"
    os.makedirs(directory)
    with open(f"{directory}/conf", "w") as f:
        f.write(f"daemon off; pid {directory}/pid; error_log stderr; worker_processes 2; events {{}}\n"
                f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; {server} }} }}\n")
    u = Unit(f"/usr/sbin/nginx -c {directory}/conf", type="exec", settings=FIRST).start()
    wait_for("nginx listens", lambda: scenario.run("curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/",
                                                   ok=False).returncode == 0, 10)
    u.port = port
    return u


@case("dependency", quiet="light")
def nginx_before_a_slow_server():
    """nginx waits for a slow server that it forwards requests to."""
    port = unused_port()
    Unit(f"/usr/bin/python3 {scenario.SOURCES}/http_server.py {port}", settings=FIRST).start()
    u = nginx(f"location / {{ return 200 well; }} location /late/ {{ proxy_pass http://127.0.0.1:{port}; }}")
    with asked(f"http://127.0.0.1:{u.port}/late/20", per_second=40):
        d = yield u
    equal(found(d, "dependency")["resource"], f"127.0.0.1:{port}", f"the dependency: {said(d)}")


# Three processes that call accept() under a lock of that kind, as those of Apache and Postfix do. With "work", one more
# holds another lock of that kind all the time, and a fifth waits for that.
TAKES_TURNS = """
import ctypes, fcntl, mmap, os, socket, sys, time
s, kind = socket.create_server(('127.0.0.1', int(sys.argv[1]))), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
def mutex(robust):
    shared = ctypes.c_char.from_buffer(mmap.mmap(-1, 4096))
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutexattr_setrobust(attributes, robust)
    libc.pthread_mutex_init(ctypes.byref(shared), attributes)
    return [lambda f=f: f(ctypes.byref(shared)) for f in (libc.pthread_mutex_lock, libc.pthread_mutex_unlock)]
def semaphore():
    number = libc.semget(0, 1, 0o1600)
    operation = lambda n: libc.semop(number, (ctypes.c_short * 3)(0, n, 0), 1)
    operation(1)
    return lambda: operation(-1), lambda: operation(1)
def file(take, path):
    opened = {}
    def own():
        return opened.setdefault(os.getpid(), os.open(path, os.O_RDWR | os.O_CREAT))
    return lambda: take(own(), fcntl.LOCK_EX), lambda: take(own(), fcntl.LOCK_UN)
def new(name):
    return {'futex': lambda: mutex(0), 'robust': lambda: mutex(1), 'semaphore': semaphore,
            'flock': lambda: file(fcntl.flock, sys.argv[2] + name), 'fcntl': lambda: file(fcntl.lockf, sys.argv[2] + name)}[kind]()
(lock, unlock), (other_lock, _) = new('.turn'), new('.work')
if 'work' in sys.argv and (os.fork() == 0 or os.fork() == 0):
    other_lock()
    time.sleep(1000)
os.fork() and os.fork()
while True:
    lock()
    c, _ = s.accept()
    unlock()
    c.close()
"""

# An event loop that sends a chunk each half second after GET /watch, and no response to other requests
LETS_WAIT = """
import asyncio, sys
async def serve(reader, writer):
    if b'/watch' in await reader.readuntil(b'\\r\\n\\r\\n'):
        writer.write(b'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n')
        while True:
            writer.write(b'6\\r\\nevent\\n\\r\\n')
            await asyncio.sleep(.5)
    await reader.read()
async def run():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as s:
        await s.serve_forever()
asyncio.run(run())
"""


def wait_for_listener(port):
    wait_for("the script listens", lambda: str(port) in scenario.run("ss", "-ltnH", f"sport = :{port}").stdout)


def script(source, *arguments, settings=""):
    """Starts a service in Python that listens on a port of its own."""
    prepare()
    path, port = f"/run/{unit_name('script', '.py')}", unused_port()
    with open(path, "w") as f:
        f.write(source)
    u = Unit(f"/usr/bin/python3 {path} {port} {' '.join(arguments)}", type="exec", settings=FIRST + settings).start()
    wait_for_listener(port)
    u.port = port
    return u


@contextlib.contextmanager
def requested(u, path, holds=lambda f: f.get("oldestInFlight", 0) > 2 * scenario.SEC):
    """Sends a request, waits until that holds for the figures of the server, and yields these."""
    scenario.attach(u, "--probes=requests,cpu")
    with socket.create_connection(("127.0.0.1", u.port)) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        yield wait_for("the request has been there for a while",
                       lambda: (f := scenario.server_figures(u)) and holds(f) and f)


def takes_turns(kind, *options):
    """Starts processes that accept connections in turns. Those that wait for theirs are idle."""
    u = script(TAKES_TURNS, f"/run/{unit_name('turns', '')}", kind, *options)
    scenario.attach(u, "--probes=requests,cpu")
    if kind == "futex":
        # Its holder is known of waits that begin when the unit is attached
        scenario.systemctl("restart", u.name)
        wait_for_listener(u.port)
    return u


def states(u):
    return sorted(t["state"] for t in scenario.varlink("Threads", unit=u.name)["threads"])


@case(quiet="light")
def idle_behind_a_file_lock():
    """The states of processes behind the other kinds of locks are in turns_beside_a_lock(), and what states say is in
    test-diagnosis."""
    u = takes_turns("flock")
    wait_for("one process waits in accept(), two are idle", lambda: states(u) == ["park", "park", "socket"])
    yield u


KINDS = ("flock", "fcntl", "futex", "robust", "semaphore")


@test(deadline=60, vm="nightly")
def turns_beside_a_lock():
    """A process that waits for the lock of another one that sleeps is not idle, beside processes that accept
    connections in turns by a lock of the same kind. The waits begin before the unit is attached, and after that."""
    for kind in KINDS:
        u = takes_turns(kind, "work")
        wait_for(f"{kind}: two processes are idle, one is not",
                 lambda: states(u) == ["lock", "park", "park", "sleep", "socket"])
        scenario.systemctl("restart", u.name)
        wait_for(f"{kind}: the same after a restart", lambda: states(u) == ["lock", "park", "park", "sleep", "socket"])
        u.stop()


@test(deadline=60)
def turns_with_connections():
    """Processes that accept connections in turns are idle between these."""
    for kind in KINDS:
        u = takes_turns(kind)
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", u.port)) as c:
                c.recv(1)
            time.sleep(.005)
        threads = scenario.varlink("Threads", unit=u.name)["threads"]
        times = {s: sum(t["times"][s] for t in threads) for s in ("lock", "park", "socket")}
        check(times["lock"] < times["park"] / 10, f"{kind}: times by state: {times}")
        u.stop()


@case(quiet="light")
def watch_in_progress():
    """A stream of messages is no finding."""
    u = script(LETS_WAIT)
    with requested(u, "/watch", lambda f: f["streams"] == 1) as f:
        equal((f["inFlight"], f["waiting"], "oldestWaiting" in f), (0, 0, False), "inFlight, waiting, oldestWaiting")
        d = yield u
    equal(d["text"], "almost no requests", f"text: {said(d)}")


@case(quiet="light")
def consumer_without_work():
    """A request without a response to a server that has not responded before is no finding."""
    u = script(LETS_WAIT)
    with requested(u, "/work") as f:
        equal((f["inFlight"], f["waiting"]), (1, 1), "inFlight, waiting")
        check(abs(f["oldestWaiting"] - f["oldestInFlight"]) < 100 * scenario.MSEC, f"ages {f}")
        d = yield u
    check("1 request waits without a response" in d["text"], f"text: {said(d)}")


@case("dependency", quiet="light", recorded=True)
def nginx_before_a_server_that_hangs():
    s = Server(mode="thread", hang=True, settings=FIRST).start()
    scenario.attach(s)
    u = nginx(f"location / {{ return 200 well; }} location /late {{ proxy_pass http://127.0.0.1:{s.port}; }}")
    with requested(u, "/late"):
        d = yield u
    f = found(d, "dependency")
    equal((f["resource"], f["unit"]), (f"127.0.0.1:{s.port}", s.name),
          f"the dependency that does not respond: {said(d)}")
    check("does not respond" in d["summary"], f"summary: {said(d)}")


@case("limit", quiet="light")
def endless_loop():
    """A server of one thread is in a loop without an end, while others wait to be accepted."""
    u = script("""
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while True:
            pass
class Server(http.server.HTTPServer):
    request_queue_size = 64
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
""")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with requested(u, "/"):
            d = yield u
    f = found(d, "limit")
    equal((f["state"], f["resource"]), ("running", f"thread python3 ({u.main_pid})"), f"what is busy: {f}")
    check("has not responded; 3 connections are not accepted (limit 64)" in f["text"], f"text: {f}")


@case("limit", quiet="light", recorded=True)
def no_more_files():
    """A server that may not open more files accepts no connections."""
    u = script("""
import asyncio, sys
async def respond(reader, writer):
    await reader.readline()
    writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
async def main():
    await (await asyncio.start_server(respond, '127.0.0.1', int(sys.argv[1]))).serve_forever()
asyncio.run(main())
""", settings="LimitNOFILE=12\n")
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
        with requested(u, "/"):
            d = yield u
    f = found(d, "limit")
    check("not accepted" in f["text"], f"text: {f}")


@case(quiet="light")
def busy_dns():
    """A DNS server that is not saturated has no finding, and a mean time to first byte, though phases of UDP requests
    are not measured."""
    u = unbound()
    queries = f"/run/{scenario.prefix}-queries"
    with open(queries, "w") as f:
        f.write("www.example A\n")
    p = subprocess.Popen(["dnsperf", "-s", "127.0.0.1", "-p", str(u.port), "-d", queries, "-Q", "1000", "-l", "60"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        d = yield u
    finally:
        p.kill()
        p.wait()
        os.unlink(queries)
    check("requests/s; mean time to first byte" in d["text"], f"text: {said(d)}")


@case(quiet="light")
def steady_nginx():
    u = nginx('return 200 "hello";')
    with asked(f"http://127.0.0.1:{u.port}/"):
        yield u


@case("workload", also=("limit",), deadline=120)
def more_load():
    """A rate of requests above the usual one is a finding about the load."""
    s = Toiler(workers=1, cpu_us=1000, settings="CPUAffinity=0")
    path = f"/run/{scenario.prefix}.normal"
    try:
        with on_cpu(other_cpu()):
            with loaded(s, connections=1, think_us=4000):
                only((yield s, f"--save={path}"))
            with loaded(s, connections=1, think_us=4000):
                only((yield s, f"--against={path}"))
            with loaded(s, connections=8, think_us=4000):
                yield s, f"--against={path}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def steps(u):
    return len(scenario.varlink("History", unit=u.name, metrics=["requests.server.count"])["steps"])


@test(quiet="loaded")
def rivals_in_a_slice():
    """CPU time that one unit of a slice takes from another is a finding about the latter, and none about the slice."""
    slice = types.SimpleNamespace(name=unit_name("slice", ".slice").replace("-", ""))
    u, other = (f(cpu=0, settings=f"Slice={slice.name}\n") for f in (redis, hog))
    with benchmark(u):
        whole, part = diagnose(slice), diagnose(u)
    figures = whole["figures"]
    check(figures["runQueueOwn"] > 10 * figures["runQueueOthers"],
          f"waits for units in the slice and outside of it: {said(whole)}")
    check(all(f["kind"] != "cpu" for f in whole["findings"]), f"units outside of the slice have its CPU: {said(whole)}")
    check(all(n["unit"] not in (u.name, other.name) for n in whole.get("users", []) if "unit" in n),
          f"units of the slice as CPU occupants: {said(whole)}")
    equal(found(part, "cpu")["unit"], other.name, f"CPU occupant, for the service: {said(part)}")


@test(deadline=240, quiet="light")
def by_its_history():
    """A diagnosis compares a unit with its history, without a saved baseline. A fault that the unit has had all the
    time is found as well, and a time in which a threshold was violated is not compared with."""
    slow = backend(20000)
    well, never, known = Toiler(cpu_us=5000, settings="CPUAffinity=0"), Toiler(ask=slow.port), Toiler(ask=slow.port)
    for u in (well, never, known):
        scenario.attach(u, "--probes=requests,cpu,block,memory")
    qosctl("set-threshold", known.name, "slow: requests.server.firstByte.mean > 10ms over 1s")
    with on_cpu(other_cpu()), loaded(well, connections=1, think_us=20000), loaded(never, connections=1,
                                                                                  think_us=5000), \
            loaded(known, connections=1, think_us=5000):
        wait_for("a threshold is violated", lambda: qosctl("is-ok", known.name, ok=False).returncode == 1, 20)
        # Three steps are needed; the first one may be too short, and the last one is not complete
        wait_for("five steps have passed", lambda: steps(well) >= 5, 90, pause=0.5)
        for u, cited in ((never, True), (known, False)):
            d = calm(lambda: diagnose(u))
            equal(found(d, "dependency")["resource"], f"127.0.0.1:{slow.port}", f"the fault from the start: {said(d)}")
            equal(("; usually: " in d["text"], "baselineSource" in d), (cited, cited),
                  f"whether the history is the baseline: {said(d)}")
        # What others on the machine add to the baseline is less than two of them do
        other = hog(processes=2)
        d = diagnose(well)
        f = found(d, "cpu")
        equal(f["unit"], other.name, f"the CPU occupant: {f}")
        check("; usually: " in d["text"], f"no baseline in the text: {said(d)}")
        check(1.5 * d["baseline"]["firstByte"] <= d["figures"]["firstByte"], f"not worse than normal: {said(d)}")
        check(d["baseline"]["threads"]["runQueue"] < d["figures"]["threads"]["runQueue"],
              f"threads in the run queue, baseline: {json.dumps(d['baseline'])}")
        period = d["baselineSource"]
        check(30 * scenario.SEC <= period["covered"] + 10 * scenario.SEC
              and period["until"] <= d["timestamp"] - SECONDS * 10**6
              and period["since"] < period["until"], f"period of the baseline: {period}")
        check("Compared with its history, " in qosctl("diagnose", well.name, f"--for={SECONDS}s", timeout=40).stdout,
              "no baseline in the output of qosctl")


@test(deadline=90)
def contention_in_the_history():
    """The steps of the history have the states of threads, to one percent."""
    s = Toiler(idle=50)
    scenario.attach(s, "--probes=requests,cpu,block,memory")
    wait_for("two steps have passed", lambda: steps(s) >= 2, 60, pause=0.2)
    for step in scenario.varlink("History", unit=s.name,
                                 metrics=["contention.threads.park", "contention.shares.park"])["steps"][1:]:
        scenario.within(scenario.lookup(step, "contention.threads.park"), 50, 0.01, 0, "threads that park")
        check(scenario.lookup(step, "contention.shares.park") > 0.9, f"their share: {step}")


def holds(u):
    """Returns the types of the unit's holds."""
    with scenario.Varlink() as v:
        return [h["type"] for o in v.collect("List", unit=u.name) for h in o["holds"]]


# An event loop that responds to all requests but those for /late
HANGS = """
import asyncio, sys
async def serve(reader, writer):
    while b'/late' not in await reader.readuntil(b'\\r\\n\\r\\n'):
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
    await reader.read()
async def run():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as s:
        await s.serve_forever()
asyncio.run(run())
"""


@test(quiet="light")
def attached_too_late():
    """Requests that were read before the attach may be stuck, so that the diagnosis is inconclusive. That a client is
    connected, and has got all responses, is no reason for doubt."""
    u = script(HANGS)
    with contextlib.ExitStack() as stack:
        def requests(*paths):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
            for path in paths:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                if path != "/late":
                    check(s.recv(4096).startswith(b"HTTP/1.1 200"), "response")
        requests("/")
        requests("/", "/")
        d = diagnose(u)
        equal((d["verdict"], d["text"]), ("nothing", "almost no requests"), f"without such a request: {said(d)}")
        requests("/late")
        requests("/", "/late")
        d = diagnose(u, status=1)
        equal((d["verdict"], d["findings"]), ("unknown", []), f"with two: {said(d)}")
        check("on 2 connections the client was the last to send" in d["text"], f"text: {said(d)}")


@test(quiet="loaded")
def while_it_lasts():
    """A diagnosis holds the unit until its interval or its connection ends, and at most sixteen run at a time."""
    s = Server().start()
    connections = [scenario.Varlink() for _ in range(16)]
    for c in connections:
        c.send("Diagnose", {"unit": s.name, "window": 60 * scenario.SEC})
    wait_for("all diagnoses run", lambda: s.name in scenario.listed() and
             len(holds(s)) == 16, timeout=20)
    equal(scenario.varlink_error("Diagnose", unit=s.name), "TooManyDiagnoses", "error")
    connections.pop().close()
    wait_for("the hold of one has ended", lambda: len(holds(s)) == 15)
    with scenario.Varlink(timeout=30) as c:
        d = c.call("Diagnose", unit=s.name, window=scenario.SEC)
    equal((d["verdict"], d["findings"]), ("nothing", []), "verdict and findings of the short diagnosis")
    for c in connections:
        c.close()
    wait_for("no hold is left", lambda: s.name not in scenario.listed())


@test(quiet="light")
def interrupted():
    """Ctrl+C ends the interval early: qosctl prints the diagnosis of the shorter interval, and no hold is left."""
    b = backend(20000)
    u = Toiler(ask=b.port)
    with loaded(u, connections=1):
        p = subprocess.Popen(["qosctl", "diagnose", u.name, "--for=5min", "--json=short"], stdout=subprocess.PIPE)
        wait_for("the diagnosis runs", lambda: u.name in scenario.listed() and holds(u) == ["lease"], 20)
        begin = time.monotonic()
        wait_for("three seconds have passed", lambda: time.monotonic() > begin + 3.5, 20)
        p.send_signal(signal.SIGINT)
        d = json.loads(p.communicate(timeout=20)[0])
        passed = time.monotonic() - begin
    equal(p.returncode, 0, "exit status")
    equal(found(d, "dependency")["resource"], f"127.0.0.1:{b.port}", f"the peer: {said(d)}")
    check(2 <= d["figures"]["covered"] / scenario.SEC <= passed + 1,
          f"an interval of {d['figures']['covered']} ns after {passed} s")
    wait_for("no hold is left", lambda: u.name not in scenario.listed())


@test()
def not_for_everybody():
    """Unprivileged users cannot diagnose units of other users, whether these are attached or not."""
    s = Server().start()
    for attached in (False, True):
        if attached:
            scenario.attach(s, "--probes=requests,cpu,block,memory")
        r = scenario.run(*scenario.as_user(65534), "qosctl", "--no-ask-password", "diagnose", s.name, "--for=1s",
                         ok=False)
        check(r.returncode == 1 and not r.stdout, f"as nobody, attached: {attached}: {r}")
    equal(holds(s), ["administrator"], "holds")
