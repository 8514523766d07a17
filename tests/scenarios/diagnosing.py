# SPDX-License-Identifier: LGPL-2.1-or-later
"""What scenarios of diagnoses share: units that suffer, and what their diagnoses are expected to find."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time

import scenario
from scenario import Server, Unit, check, equal, fail, qosctl, test, unit_name, unused_port, wait_for

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


def measure_alone(look, attempts=4):
    """Returns a diagnosis. It is a measurement, like scenario.measurement(): as a finding about the CPUs is right while
    other processes on the machine want them, it is made again then, but not because of any other finding."""
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


def case(*kinds, also=(), deadline=60, quiet="loaded", vm=False, needs_vm=None, fails=False, recorded=False):
    """recorded: the evidence of a run is in tests/unit/recorded-evidence.h, so that the rules are tested without the
    lab, and the whole only in nightly runs."""
    def register(function):
        c = Case(function, kinds, also, needs_vm, deadline, fails)
        CASES.append(c)

        def alone():
            # A case with the finding "cpu" is not repeated because of it
            c.run(diagnose if "cpu" in kinds or fails else
                  lambda u, *options: measure_alone(lambda: diagnose(u, *options)))
        alone.__name__, alone.__module__ = function.__name__, function.__module__
        test(deadline=deadline, quiet=quiet, vm=vm, needs_vm=needs_vm, nightly=recorded)(alone)
        return function
    return register


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


def writer(*paths):
    """Starts a unit that keeps the disk busy with writes."""
    loops = "".join(f"while :; do dd if=/dev/zero of={p} bs=4M count=16 oflag=direct conv=fsync,notrunc "
                    "status=none; done & " for p in paths)
    return Unit(f"/bin/sh -c '{loops}wait'", name=unit_name("writer"), type="exec").start()


def waiter(*what):
    """Starts a unit that is no server, with threads that wait or run as given."""
    prepare()
    return Unit(f"{scenario.tools}/waiter {' '.join(what)}", settings=FIRST).start()


def mount_of(path):
    """Mount point of the file system."""
    return subprocess.run(["findmnt", "-nro", "TARGET", "-T", path], check=True, capture_output=True,
                          text=True).stdout.strip()


@contextlib.contextmanager
def requests_from(url, per_second=200):
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


def holds(u):
    """Returns the types of the unit's holds."""
    with scenario.Varlink() as v:
        return [h["type"] for o in v.collect("List", unit=u.name) for h in o["holds"]]
