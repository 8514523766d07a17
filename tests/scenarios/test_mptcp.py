# SPDX-License-Identifier: LGPL-2.1-or-later
"""MPTCP listeners, which are the default in Go since 1.24, and connections that are older than the attach."""

import os
import socket
import ssl
import subprocess

import scenario
from scenario import (SOURCES, Unit, attach, check, equal, expect_total, lookup, run, server_figures, snapshot, test,
                      total,
                      unused_port, wait_for)
from test_http import Client

IPPROTO_MPTCP = 262


class Caddy(Unit):
    """Caddy, started before it is attached, with HTTP/1.1 and cleartext HTTP/2 on one port and TLS on the other."""

    def __init__(self):
        self.directory = f"/run/{scenario.prefix}-caddy"
        os.makedirs(self.directory, exist_ok=True)
        self.key, self.certificate = f"{self.directory}/key", f"{self.directory}/certificate"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
            "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", timeout=60)
        self.port, self.tls_port = unused_port(), unused_port()
        with open(f"{self.directory}/Caddyfile", "w") as f:
            f.write(f"{{\n admin off\n auto_https off\n servers :{self.port} {{\n protocols h1 h2c\n }}\n"
                    f" servers :{self.tls_port} {{\n protocols h1\n }}\n}}\n"
                    f"http://:{self.port} {{\n respond /bad no 500\n respond hello\n}}\n"
                    f"https://localhost:{self.tls_port} {{\n tls {self.certificate} {self.key}\n respond hello\n}}\n")
        super().__init__(f"/usr/bin/caddy run --adapter caddyfile --config {self.directory}/Caddyfile", type="exec",
                         # The default of programs whose go.mod has Go 1.24 or later
                         settings=f"Environment=HOME={self.directory} GODEBUG=multipathtcp=2")
        self.start()
        for port in (self.port, self.tls_port):
            wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout, 20)
        check("mptcp" in run("ss", "-tlniH", f"sport = :{self.port}").stdout, "it does not listen with MPTCP")
        attach(self)


def figures(unit, quality, **protocols):
    """Checks that each request has its protocol and its latency, and that there are no errors. Returns the server's
    figures."""
    n = sum(protocols.values())
    expect_total(unit, n)
    f = server_figures(unit)
    equal((scenario.protocols(f), f["latency"]["count"]), (protocols, n), "protocols, latency.count")
    equal((f["errors"]["reset"], f["clientAborts"], f["inFlight"]), (0, 0, 0), "errors.reset, clientAborts, in flight")
    equal(snapshot(unit)["requests"]["quality"], quality, "quality")
    return f


@test(deadline=60)
def server_in_go():
    u = Caddy()
    f = server_figures(u)
    equal({e["listen"] for e in f["endpoints"]}, {f"[::]:{u.port}", f"[::]:{u.tls_port}"},
          "endpoints before there is a connection")
    check(f["connections"]["acceptQueueMax"] > 0, f"acceptQueueMax: {f['connections']}")

    clients = [Client(u.port) for _ in range(4)]
    for _ in range(5):
        for c in clients:
            equal(c.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")[0], 200, "status")
    for c in clients:
        c.socket.close()
    figures(u, "exact", http1=20)

    for _ in range(20):
        with Client(u.port) as c:
            equal(c.ask("GET /bad HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0], 500, "status")
    f = figures(u, "exact", http1=40)
    equal((f["errors"]["status5xx"], f["connections"]["accepted"]), (20, 24), "5xx, accepted")

    for _ in range(3):
        url = f"http://127.0.0.1:{u.port}/"
        r = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "-w", "%{http_version}\n", "-o", "/dev/null"]
                           + [url] * 4,
                           capture_output=True, text=True, timeout=20)
        equal(r.returncode, 0, r.stderr)
    figures(u, "exact", http1=40, http2=12)

    context = ssl.create_default_context(cafile=u.certificate)
    clients = [context.wrap_socket(socket.create_connection(("127.0.0.1", u.tls_port), timeout=10),
                                   server_hostname="localhost")
               for _ in range(4)]
    for _ in range(5):
        for s in clients:
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"hello"):
                answer += s.recv(65536)
    f = figures(u, "exchanges", http1=40, http2=12, tls=20)
    equal(f["connections"]["accepted"], 31, "accepted")
    for s in clients:
        s.close()
    rows = {e["listen"]: e["count"] for e in server_figures(u)["endpoints"]}
    equal(rows, {f"[::]:{u.port}": 52, f"[::]:{u.tls_port}": 20}, "count by endpoint")


class Server(Unit):
    """The HTTP server in Python, started before it is attached."""

    def __init__(self, *arguments):
        self.port = unused_port()
        super().__init__(" ".join(["/usr/bin/python3", f"{SOURCES}/http_server.py", str(self.port), *arguments]))
        self.start()


@test()
def continued():
    """A request with Expect: 100-continue is counted once."""
    u = attach(Server("mptcp"))
    with Client(u.port) as c:
        c.send("POST /size/5 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        equal([c.answer()[0], c.answer()[0]], [103, 100], "before the body is sent")
        c.send("body")
        equal(c.answer(), (200, b"b" * 5), "answer")
        figures(u, "exact", http1=1)


@test()
def accepted_after_the_attach():
    """The first request of a connection that was in the accept queue at the attach is parsed, too."""
    for arguments in (), ("mptcp",):
        u = Server(*arguments)
        u.kill("SIGSTOP", whom="main")
        clients = [Client(u.port) for _ in range(3)]
        for c in clients:
            c.send("GET /status/503 HTTP/1.1\r\nHost: x\r\n\r\n")
        attach(u)
        u.kill("SIGCONT", whom="main")
        for c in clients:
            equal(c.answer()[0], 503, "status")
            equal(c.ask("GET /status/404 HTTP/1.1\r\nHost: x\r\n\r\n")[0], 404, "status")
            c.socket.close()
        expect_total(u, 6)
        f = server_figures(u)
        equal((scenario.protocols(f), f["errors"]["status5xx"], f["status4xx"]), ({"http1": 6}, 3, 3),
              "protocols, 5xx, 4xx")
        equal(snapshot(u)["requests"]["quality"], "exact", "quality")


@test()
def both_sides():
    """Requests on a connection with MPTCP on both sides are not counted; quality is partial, and the connection is in
    unparsed."""
    for first in False, True:
        u = Server("mptcp")
        if first:
            u.stop()
        attach(u)
        u.start()
        with Client(u.port) as c:
            for _ in range(50):
                equal(c.ask("GET /status/200 HTTP/1.1\r\nHost: x\r\n\r\n")[0], 200, "status")
        figures(u, "exact", http1=50)
        bytes_in = total(u, "requests.server.bytesIn")

        c = Client(u.port, protocol=IPPROTO_MPTCP)
        for i in range(5):
            equal(c.ask("GET /status/500 HTTP/1.1\r\nHost: x\r\n\r\n")[0], 500, "status")
        x = wait_for("it is noticed", lambda: (x := snapshot(u))["requests"]["quality"] == "partial" and x)
        f = lookup(x, "requests.server")
        equal((f["count"], f["errors"]["status5xx"], f["unparsed"]["connections"]), (50, 0, 1),
              "count, 5xx, connections left out")
        equal((f["inFlight"], f["clientAborts"], f["errors"]["reset"], f["connections"]["open"]), (0, 0, 0, 1),
              "in flight, aborts, resets, open")
        check(total(u, "requests.server.bytesIn") > bytes_in, "its bytes are not counted")
        c.socket.close()
        wait_for("it is closed", lambda: server_figures(u)["connections"]["open"] == 0)
        f = server_figures(u)
        equal((f["inFlight"], f["clientAborts"], f["errors"]["reset"]), (0, 0, 0), "in flight, aborts, resets")
        u.stop()
