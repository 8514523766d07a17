# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests of units to peers over HTTP/2, TLS and WebSockets, and what is no response."""

import scenario
import test_tls
from scenario import Unit, attach, check, equal, qosctl, run, server_figures, test, unused_port, wait_for
from test_endpoints import unused_ports
from test_peers import client_figures, run_to_its_end

WEBSOCKET = """import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"GET /ws HTTP/1.1\\r\\nHost: x\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
d = b""
while not d.endswith(b"\\r\\n\\r\\n"): d += s.recv(1)
for n in range(100):
    message = b"\\x81\\x05GET /"
    s.sendall(message)
    d = b""
    while len(d) < len(message): d += s.recv(9999)
"""


@test()
def websockets():
    """Messages over WebSocket are no requests to the peer, and nothing is in flight: the request is the upgrade."""
    path, text = f"/run/{scenario.unit_name('upgrade', '.py')}", """import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    s = listener.accept()[0]
    d = b""
    while not d.endswith(b"\\r\\n\\r\\n"): d += s.recv(9999)
    s.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
    while d := s.recv(9999): s.sendall(d)
    s.close()
"""
    with open(path, "w") as f:
        f.write(text)
    port = unused_port()
    Unit(f"/usr/bin/python3 {path} {port}", type="exec").start()
    wait_for("it listens", lambda: run("ss", "-tlnH", f"sport = :{port}").stdout)
    path = f"/run/{scenario.unit_name('websocket', '.py')}"
    with open(path, "w") as f:
        f.write(WEBSOCKET)
    c = attach(Unit(f"/usr/bin/python3 {path} {port}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight",
                 lambda: (f := client_figures(c))["inFlight"] == 0 and f["bytesOut"] > 700 and f)
    equal((f["count"], f["aborts"], f["errors"]), (1, 0, scenario.peer_errors()), "count, aborts, errors")


INTERIM = """import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
interim = (b"HTTP/1.1 100 Continue\\r\\n\\r\\n", b"HTTP/1.1 103 Early Hints\\r\\nLink: </" + b"x" * 300 + b">\\r\\nLink: </y>\\r\\n\\r\\n")
interim += interim[0] + interim[1], interim[1] * 2 + b"HTTP/1.1 102 Processing\\n\\n"
while True:
    s = listener.accept()[0]
    for status in 200, 503, 204:
        for head in interim:
            if not s.recv(9999): sys.exit("the client has closed the connection")
            s.sendall(head + b"HTTP/1.1 %d So\\r\\nContent-Length: 0\\r\\n\\r\\n" % status)
    s.close()
"""


@test()
def interim_and_final_in_one_segment():
    """A final response that is in one segment with interim ones is counted with its own status, in both roles."""
    port, path, n = unused_port(), f"/run/{scenario.prefix}-interim.py", 3
    with open(path, "w") as f:
        f.write(INTERIM)
    s = attach(Unit(f"/usr/bin/python3 {path} {port}", type="exec")).start()
    wait_for("it listens", lambda: run("ss", "-tlnH", f"sport = :{port}").stdout)
    client = f"/run/{scenario.prefix}-client.py"
    with open(client, "w") as f:
        f.write(f"import socket\n"
                f"for _ in range({n}):\n"
                f"    with socket.create_connection(('127.0.0.1', {port})) as s:\n"
                f"        for _ in range(12):\n"
                f"            s.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')\n"
                f"            d = b''\n"
                f"            while not d.endswith(b'Length: 0\\r\\n\\r\\n'): d += s.recv(9999)\n"
                f"        assert not s.recv(1)\n")
    c = attach(Unit(f"/usr/bin/python3 {client}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["count"], f["aborts"], f["errors"]), (12 * n, 0, scenario.peer_errors(status5xx=4 * n)),
          "count, aborts and errors of the client")
    f = server_figures(s)
    equal((f["count"], f["inFlight"], f["clientAborts"], f["errors"]["status5xx"]), (12 * n, 0, 0, 4 * n),
          "count, in flight, aborts and errors of the server")


@test(deadline=40)
def farewells_of_tls():
    """A close_notify of the client, which gets no response, is neither an abort nor an error."""
    nginx = test_tls.Nginx()
    nginx.start()
    nginx.listens()
    path = f"/run/{scenario.prefix}-tls.py"
    with open(path, "w") as f:
        f.write(f"import socket, ssl\n"
                f"for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):\n"
                f"    context = ssl.create_default_context(cafile='{nginx.certificate}')\n"
                f"    context.check_hostname = False\n"
                f"    context.minimum_version = context.maximum_version = version\n"
                f"    for _ in range(5):\n"
                f"        port = {{ssl.TLSVersion.TLSv1_2: {nginx.ports['TLSv1.2']}, ssl.TLSVersion.TLSv1_3: "
                f"{nginx.ports['TLSv1.3']}}}[version]\n"
                f"        s = context.wrap_socket(socket.create_connection(('127.0.0.1', port)))\n"
                f"        for _ in range(4):\n"
                f"            s.sendall(b'GET /small HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); d = b''\n"
                f"            while not d.endswith(b'small'): d += s.recv(999)\n"
                f"        try: s.unwrap()\n"
                f"        except OSError: pass\n"
                f"        s.close()\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["aborts"], f["errors"]), (0, scenario.peer_errors()), "aborts and errors")
    # With the round trips of the handshakes, which are not distinguished here
    check(2 * 5 * 4 <= f["count"] <= 2 * 5 * (4 + 2), f"{f['count']} counted")


ALERTED = """import socket, ssl, sys
version, port, number, send = getattr(ssl.TLSVersion, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "send"
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.minimum_version = context.maximum_version = version
for _ in range(number):
    try:
        s = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        if send: s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        if s.recv(1): sys.exit("there is a response")
    except (ssl.SSLError, ConnectionError):
        continue
    if send: sys.exit("there was no alert")
    s.close()
"""

CLOSES = """import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
context.num_tickets = int(sys.argv[4])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    s = listener.accept()[0]
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s = context.wrap_socket(s, server_side=True)
    try:
        s.unwrap()
    except (ssl.SSLError, OSError):
        pass
    s.close()
"""


@test(deadline=60)
def alerts_are_no_responses():
    """A TLS alert that ends a handshake, or refuses a client without a certificate after it, is an error and no
    response."""
    nginx = test_tls.Nginx(label="rejects", root="ssl_reject_handshake on;")
    nginx.start()
    nginx.listens()
    path = f"{nginx.directory}/alerted.py"
    with open(path, "w") as f:
        f.write(ALERTED)

    def expect(command, count, errors, what):
        c = attach(Unit(command, type="exec"))
        run_to_its_end(c)
        f = wait_for(f"nothing is in flight of {what}", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
        equal((f["count"], f["errors"], f["aborts"]), (count, scenario.peer_errors(reset=errors), 0),
              f"count, errors and aborts of {what}")
        qosctl("detach", c.name)

    number = 7
    for version, port in nginx.ports.items():
        # The alert is not encrypted; the client offers HTTP/2 or not
        curl = f"curl -sk https://127.0.0.1:{port}/small; "
        for options in "", "--no-alpn":
            expect(f"/bin/sh -c '{curl.replace('-sk', f'-sk {options}') * number} true'", 0, number,
                   f"curl {options} that is rejected, {version}")
        expect(f"/usr/bin/python3 {path} {version.replace('.', '_')} {port} {number} send", 0, number,
               f"Python that is rejected, {version}")

    # The server requests a certificate, and the client has none: the alert is encrypted in TLS 1.3, after the round
    # trip of the handshake
    for version in nginx.ports:
        port, = unused_ports(1)
        server = Unit(f"/usr/bin/openssl s_server -accept 127.0.0.1:{port} -cert {nginx.certificate} -key {nginx.key} "
                      f"-{version.replace('.', '_').lower().replace('tlsv', 'tls')}"
                      " -Verify 1 -quiet", type="exec").start()
        wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        expect(f"/usr/bin/python3 {path} {version.replace('.', '_')} {port} {number} send", number, number,
               f"a client without certificate, {version}")
        server.stop()

    # The server closes the connection with close_notify while the client waits: the Finished of the client is no
    # request, with session tickets or without
    server = f"{nginx.directory}/closes.py"
    with open(server, "w") as f:
        f.write(CLOSES)
    for version, tickets, count in ("TLSv1_2", 0, 4), ("TLSv1_3", 1, 4), ("TLSv1_3", 0, 2):
        port, = unused_ports(1)
        u = Unit(f"/usr/bin/python3 {server} {port} {nginx.certificate} {nginx.key} {tickets}", type="exec").start()
        wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        expect(f"/usr/bin/python3 {path} {version} {port} 2 wait", count, 0,
               f"a client that waits, {version} with {tickets} tickets")
        u.stop()
    nginx.stop()


@test(deadline=60)
def http2_in_tls_ends_in_order():
    """The GOAWAY of curl and Node, which gets no response, is neither an abort nor an error. A connection whose ALPN is
    HTTP/1.1 still has an abort when it is closed during a request."""
    nginx = test_tls.Nginx(http2=True)
    nginx.start()
    nginx.listens()
    script = f"{nginx.directory}/ask.js"
    with open(script, "w") as f:
        f.write(test_tls.NODE)
    for port in nginx.ports.values():
        curl = f"curl -sSk --http2 -o /dev/null https://127.0.0.1:{port}/small; "
        for command in f"/usr/bin/node {script} {port}", f"/bin/sh -c '{curl * 10}'":
            c = attach(Unit(command, type="exec"))
            run_to_its_end(c)
            f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
            equal((f["aborts"], f["errors"]), (0, scenario.peer_errors()), f"aborts and errors of {command}")

    path = f"{nginx.directory}/ask.py"
    with open(path, "w") as f:
        f.write(f"import socket, ssl\n"
                f"context = ssl.create_default_context(cafile='{nginx.certificate}')\n"
                f"context.check_hostname = False\n"
                f"context.set_alpn_protocols(['http/1.1'])\n"
                f"for port in {list(nginx.ports.values())}:\n"
                f"    s = context.wrap_socket(socket.create_connection(('127.0.0.1', port)))\n"
                f"    s.sendall(b'GET /small HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); d = b''\n"
                f"    while not d.endswith(b'small'): d += s.recv(999)\n"
                f"    s.sendall(b'GET /small HTTP/1.1\\r\\n')\n"
                f"    s.close()\n")
    c = attach(Unit(f"/usr/bin/python3 {path}", type="exec"))
    run_to_its_end(c)
    f = wait_for("nothing is in flight", lambda: (f := client_figures(c))["inFlight"] == 0 and f)
    equal((f["aborts"], f["errors"]), (2, scenario.peer_errors()), "aborts and errors of HTTP/1")
