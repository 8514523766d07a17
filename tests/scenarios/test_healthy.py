# SPDX-License-Identifier: LGPL-2.1-or-later
"""Healthy services of many kinds, idle, with little load, and with a client that sends one request after the other:
none of their diagnoses has a finding. Each is diagnosed again and again with each load, for HEALTHY_SEC seconds if that
is in the environment, then at most DIAGNOSES times. The benchmark (tests/bench/diagnosis.py) makes one diagnosis with
each load."""

import collections
import contextlib
import fcntl
import itertools
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

import diagnosing
import scenario
import test_udp_peers
from diagnosing import CASES, FIRST, SECONDS, Case, diagnose, noise, prepare, said
from scenario import Unit, check, run, test, unit_name, unused_port, wait_for

HEALTHY_SEC = 6
# Of one service. In half an hour that is one in 18 s, so that those of many services side by side leave them a CPU
DIAGNOSES = 100
# At a time, of all services: qosd makes no more than 16
SIDE_BY_SIDE = 12
LIGHT_PAUSE_SEC = 0.05

KINDS = {}              # functions that yield a unit, and one that connects a client and returns what makes a request
LOADS = {"idle": None, "light": LIGHT_PAUSE_SEC, "closed_loop": 0}


def kind(function):
    """Registers a kind of service. The function yields the unit, and a function that connects a client, and returns one
    that sends a request and reads its response."""
    KINDS[function.__name__] = contextlib.contextmanager(function)
    return function


def listening(u, port):
    wait_for("the service listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout, 20)
    return u


def service(command, port, **keywords):
    prepare()
    keywords["settings"] = FIRST + keywords.get("settings", "")
    return listening(Unit(command, type="exec", **keywords).start(), port)


def directory():
    path = f"/run/{unit_name('healthy', '')}"
    os.makedirs(path)
    return path


def written(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


@contextlib.contextmanager
def requests(connect, pause):
    """Runs its body while a client sends requests, with so many seconds between them. Yields how many had a
    response."""
    end, state = threading.Event(), {"n": 0}

    def go_on():
        try:
            once = connect()
            while not end.is_set():
                once()
                state["n"] += 1
                end.wait(pause)
        except Exception as e:          # for the thread of the test
            if not end.is_set():
                state["failed"] = repr(e)
    t = threading.Thread(target=go_on, daemon=True)
    if pause is not None:
        t.start()
    try:
        yield state
    finally:
        end.set()
        if pause is not None:
            t.join(20)
    check("failed" not in state, f"the client: {state.get('failed')}")


def exchange(s, request, is_whole):
    def once():
        s.sendall(request)
        data = b""
        while not is_whole(data):
            more = s.recv(65536)
            check(more, f"the service has closed the connection behind {data[-100:]}")
            data += more
    return once


def is_http(data):
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return body.endswith(b"0\r\n\r\n")


def connected(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=30)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def http(port, path="/"):
    return lambda: exchange(connected(port), f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), is_http)


# ---- web servers ------------------------------------------------------------------------------------------------

@kind
def nginx():
    u = diagnosing.nginx('return 200 "hello";')
    yield u, http(u.port)


@kind
def nginx_tls():
    where, port = directory(), unused_port()
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{where}/key", "-out",
        f"{where}/certificate", "-days", "2",
        "-subj", "/CN=localhost", timeout=60)
    written(f"{where}/conf",
            f"daemon off; pid {where}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; keepalive_requests "
            "1000000;\n"
            f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {where}/certificate; ssl_certificate_key "
            f"{where}/key; return 200 hello; }} }}\n")
    u = service(f"/usr/sbin/nginx -c {where}/conf", port)
    context = ssl.create_default_context(cafile=f"{where}/certificate")
    yield u, lambda: exchange(context.wrap_socket(connected(port), server_hostname="localhost"),
                              b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", is_http)


def apache(module, settings, mutex="file:{}"):
    where, ports = directory(), (unused_port(), unused_port())
    os.makedirs(f"{where}/www")
    written(f"{where}/www/small", "small")
    modules = "".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"
                      for m in (f"mpm_{module}", "authz_core"))
    # Two sockets to listen on: the processes call accept() under a lock
    written(f"{where}/conf",
            f"{modules}ServerName localhost\nUser www-data\nGroup www-data\nPidFile {where}/pid\n"
            f"DefaultRuntimeDir {where}\n"
            f"Mutex {mutex.format(where)}\nErrorLog {where}/error\nDocumentRoot {where}/www\nMaxKeepAliveRequests 0\n"
            f"{settings}\n"
            + "".join(f"Listen 127.0.0.1:{p}\n" for p in ports))
    u = service(f"/usr/sbin/apache2 -f {where}/conf -DFOREGROUND", ports[0], settings="SuccessExitStatus=TERM KILL 143")
    u.port = ports[0]
    return u, http(ports[0], "/small")


@kind
def apache_prefork():
    yield apache("prefork", "StartServers 3\nMinSpareServers 3")


@kind
def apache_event():
    yield apache("event", "StartServers 2")


@test(deadline=60)
def apache_prefork_by_lock():
    """Of the processes of Apache one waits for connections, and those that wait for its lock are idle, whatever kind of
    lock that is."""
    for mutex in ("fcntl:{}", "flock:{}", "sysvsem", "pthread"):
        u, _ = apache("prefork", "StartServers 4\nMinSpareServers 4\nMaxSpareServers 4", mutex)
        scenario.attach(u, "--probes=requests,cpu")

        def states():
            return collections.Counter(t["state"] for t in scenario.varlink("Threads", unit=u.name)["threads"])
        wait_for(f"{mutex}: all but one wait for their turn", lambda: states()["park"] >= 3 and states()["lock"] == 0)
        for _ in range(20):
            run("curl", "-sS", "-o", "/dev/null", f"http://127.0.0.1:{u.port}/small")
        try:
            wait_for(f"{mutex}: the same after requests", lambda: states()["park"] >= 3 and states()["lock"] == 0)
        except scenario.Failed as e:
            raise scenario.Failed(f"{e}; states: {dict(states())}") from None
        u.stop()


@kind
def caddy():
    u = diagnosing.caddy()
    yield u, http(u.port)


@kind
def haproxy():
    back, where, port = diagnosing.nginx('return 200 "hello";'), directory(), unused_port()
    written(f"{where}/conf", "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
            f"listen x\n bind 127.0.0.1:{port}\n server y 127.0.0.1:{back.port}\n")
    yield service(f"/usr/sbin/haproxy -Ws -f {where}/conf", port), http(port)


@kind
def node():
    where, port = directory(), unused_port()
    written(f"{where}/server.js",
            f"require('http').createServer((q, r) => {{ r.setHeader('Content-Length', 5); r.end('hello'); "
            f"}}).listen({port}, '127.0.0.1');")
    yield service(f"/usr/bin/node {where}/server.js", port), http(port)


@kind
def asyncio():
    u = diagnosing.script("""
import asyncio, sys
async def serve(reader, writer):
    try:
        while await reader.readuntil(b'\\r\\n\\r\\n'):
            writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def run():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as s:
        await s.serve_forever()
asyncio.run(run())
""")
    yield u, http(u.port)


@kind
def threads():
    """A thread for each connection, with a connection for each request."""
    u = diagnosing.script("""
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b'HTTP/1.0 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
""")

    def connect():
        def once():
            with connected(u.port) as s:
                exchange(s, b"GET / HTTP/1.0\r\n\r\n", is_http)()
        return once
    yield u, connect


@kind
def php_fpm():
    where, port = directory(), unused_port()
    fpm = next(f"/usr/sbin/{name}" for name in sorted(os.listdir("/usr/sbin")) if name.startswith("php-fpm"))
    written(f"{where}/script.php", "<?php echo 'hello';")
    written(f"{where}/conf",
            f"[global]\nerror_log={where}/log\ndaemonize=no\n[x]\nuser=www-data\nlisten=127.0.0.1:{port}\npm=static\n"
            "pm.max_children=3\n")
    u = service(f"{fpm} -y {where}/conf", port)
    env = dict(os.environ, SCRIPT_FILENAME=f"{where}/script.php", REQUEST_METHOD="GET", SCRIPT_NAME="/script.php")
    yield u, lambda: lambda: check("hello" in run("cgi-fcgi", "-bind", "-connect", f"127.0.0.1:{port}", env=env).stdout,
                                   "response of PHP")


# ---- data -------------------------------------------------------------------------------------------------------

@kind
def redis():
    u = diagnosing.redis()
    yield u, lambda: exchange(connected(u.port), b"*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n", lambda d: d.endswith(b"\r\n"))


@kind
def memcached():
    port = unused_port()
    u = service(f"/usr/bin/memcached -u nobody -l 127.0.0.1 -p {port} -U 0", port)
    yield u, lambda: exchange(connected(port), b"get x\r\n", lambda d: d.endswith(b"END\r\n"))


def query_of_postgresql(port):
    s = connected(port)
    start = struct.pack(">I", 196608) + b"user\0postgres\0database\0postgres\0\0"

    def ready(data):
        return data.endswith(b"Z\0\0\0\5I")
    exchange(s, struct.pack(">I", len(start) + 4) + start, ready)()
    text = b"select n from accounts where id = 1\0"
    return exchange(s, b"Q" + struct.pack(">I", len(text) + 4) + text, ready)


@kind
def postgresql():
    with diagnosing.postgresql() as u:
        port = int(u.ask("show port"))
        yield u, lambda: query_of_postgresql(port)


@kind
def mariadb():
    with diagnosing.mariadb() as u, contextlib.ExitStack() as stack:
        port = int(u.ask("select @@port"))

        def connect():
            p = stack.enter_context(subprocess.Popen(["mariadb", "--no-defaults", "--skip-ssl", "-B", "-N", "-n", "-D",
                                                      "mysql", "-h", "127.0.0.1",
                                                      "-P", str(port)], text=True, stdin=subprocess.PIPE,
                                                     stdout=subprocess.PIPE))
            stack.callback(p.kill)

            def once():
                p.stdin.write("select n from accounts where id = 1;\n")
                p.stdin.flush()
                check(p.stdout.readline(), "the client has ended")
            return once
        yield u, connect


# ---- others -----------------------------------------------------------------------------------------------------

@kind
def unbound():
    u = test_udp_peers.unbound()
    query = struct.pack(">HBBHHHH", 7, 1, 0x20, 1, 0, 0, 0) + b"\3www\7example\0\0\1\0\1"

    def connect():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(30)
        s.connect(("127.0.0.1", u.port))

        def once():
            s.send(query)
            s.recv(4096)
        return once
    yield u, connect


@kind
def mosquitto():
    where, port = directory(), unused_port()
    written(f"{where}/conf", f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    u = service(f"/usr/sbin/mosquitto -c {where}/conf", port)

    def connect():
        s = connected(port)
        exchange(s, b"\x10\x0d\0\4MQTT\4\2\0\0\0\1x", lambda d: len(d) >= 4)()
        return exchange(s, b"\x32\x07\0\1t\0\1hi", lambda d: len(d) >= 4)
    yield u, connect


@kind
def grpc():
    port = unused_port()
    u = service(f"/usr/bin/python3 -B {scenario.SOURCES}/grpc_server.py {port}", port)

    def connect():
        import grpc as library
        call = library.insecure_channel(f"127.0.0.1:{port}").unary_unary("/lab.Words/One")
        return lambda: call(b"0 1", timeout=30)
    yield u, connect


@kind
def unix_socket():
    prepare()
    path = f"/run/{unit_name('healthy', '.socket')}"
    u = Unit(f"/usr/bin/python3 -B {scenario.SOURCES}/unixserver.py stream {path}", settings=FIRST).start()
    wait_for("the service listens", lambda: os.path.exists(path))

    def connect():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        s.connect(path)
        return exchange(s, b"size=3\n", lambda d: len(d) >= 3)
    yield u, connect


# ---- cases of the benchmark, and nightly tests -------------------------------------------------------------------

def case_of(name, start, pause):
    def suffers_from_nothing():
        with start() as (u, connect), requests(connect, pause) as state:
            if pause is not None:
                wait_for("there are responses", lambda: state["n"] > 3 or "failed" in state, 20)
            yield u
    suffers_from_nothing.__name__ = name
    CASES.append(Case(suffers_from_nothing, (), (), None, 60, False))


def watch_of(number, name, start, load, pause):
    seconds = int(os.environ.get("HEALTHY_SEC", HEALTHY_SEC))

    def watch():
        with start() as (u, connect):
            scenario.attach(u, "--probes=requests,cpu,block,memory")
            with requests(connect, pause) as state:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    with open(f"/run/healthy-{number % SIDE_BY_SIDE}.lock", "w") as lock:
                        fcntl.flock(lock, fcntl.LOCK_EX)
                        d = diagnose(u)
                    alarms = {f["kind"] for f in d["findings"]} - noise(d)
                    check(not alarms, f"alarm of a healthy service: {said(d)}")
                    check("failed" not in state, f"the client: {state.get('failed')}")
                    time.sleep(max(0, seconds / DIAGNOSES - SECONDS))
                check(pause is None or state["n"] > 0, "no response")
    watch.__name__, watch.__module__ = f"{name}_{load}", __name__
    test(nightly=True, quiet="light", deadline=120 + seconds * 2)(watch)


for _number, ((_name, _start), (_load, _pause)) in enumerate(itertools.product(KINDS.items(), LOADS.items())):
    case_of(f"{_name}_{_load}", _start, _pause)
    watch_of(_number, _name, _start, _load, _pause)
