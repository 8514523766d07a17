# SPDX-License-Identifier: LGPL-2.1-or-later
"""Packaged services under load, compared with the counts of the load generators."""

import contextlib
import imaplib
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time

import scenario
import statements
from scenario import (SEC, attach, check, equal, expect_total, qosctl, run, server_figures, smaller, snapshot,
                      systemctl,
                      test, total, wait_for)


@contextlib.contextmanager
def attached(unit):
    systemctl("start", unit)
    attach(unit)
    try:
        yield
    finally:
        qosctl("detach", unit, ok=False)


def ab_completed(out):
    failed = int(re.search(r"^Failed requests:\s+(\d+)", out, re.M)[1])
    equal(failed, 0, "requests of ab that failed")
    return int(re.search(r"^Complete requests:\s+(\d+)", out, re.M)[1])


@test(vm="nightly", deadline=60)
def nginx():
    n = 0
    with attached("nginx.service"):
        for number, connections, options, url in ((smaller(4000), 16, ["-k"], "http://127.0.0.1/"),
                                                  (smaller(4000), 128, ["-k"], "http://127.0.0.1/"),
                                                  (smaller(2000), 32, [], "http://127.0.0.1/"),
                                                  (smaller(2000), 16, [], "http://[::1]/"),
                                                  # Errors are responses, too
                                                  (smaller(500), 4, ["-k"], "http://127.0.0.1/no-such-file")):
            out = run("ab", "-q", "-n", number, "-c", connections, *options, url, timeout=60).stdout
            equal(ab_completed(out), number, "requests that ab completed")
            n += number
            expect_total("nginx.service", n, what=f"count with ab {options} {url}")
        wait_for("nothing is in flight", lambda: server_figures("nginx.service")["inFlight"] == 0)

        # wrk reports the requests that it completed; those in flight at its end may have had a response or not
        before = total("nginx.service")
        out = run("wrk", "-t1", "-c16", "-d2s", "http://127.0.0.1/", timeout=60).stdout
        done = int(re.search(r"^\s+(\d+) requests in", out, re.M)[1])
        got = total("nginx.service") - before
        check(done <= got <= done + 16, f"{got} counted, wrk completed {done} and left at most 16")


@test(deadline=60)
def nginx_reloaded():
    """nginx reloads its workers under load, and sends large files by sendfile: no request is lost."""
    port, directory = scenario.unused_port(), f"/run/{scenario.prefix}-nginx"
    os.makedirs(directory)
    with open(f"{directory}/file", "wb") as f:
        f.write(b"x" * 300000)
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(f"worker_processes 2; pid {directory}/pid; error_log stderr; user root;\nevents {{}}\n"
                f"http {{ access_log off; sendfile on; keepalive_requests 100000;\n"
                f"server {{ listen 127.0.0.1:{port}; root {directory}; }} }}\n")
    u = scenario.Unit(f"/usr/sbin/nginx -c {directory}/nginx.conf -g 'daemon off;'", type="exec",
                      settings="ExecReload=/bin/kill -HUP $MAINPID")
    try:
        attach(u)
        u.start()
        wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
        p = subprocess.Popen(["ab", "-q", "-n", "3000", "-c", "8", f"http://127.0.0.1:{port}/file"],
                             stdout=subprocess.PIPE, text=True)
        for _ in range(5):
            before = total(u)
            systemctl("reload", u.name)
            wait_for("more were counted", lambda: total(u) > before or p.poll() is not None)
        equal(ab_completed(p.communicate()[0]), 3000, "requests that ab completed")
        expect_total(u, 3000)
        check(total(u, "requests.server.bytesOut") >= 3000 * 300000, "bytesOut")
    finally:
        u.stop()
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


def redis_commands():
    out = run("redis-cli", "info", "commandstats").stdout
    return sum(int(n) for n in re.findall(r":calls=(\d+),", out))


@test(vm="nightly", deadline=60)
def redis():
    """The count is exactly that of redis-benchmark, and of the commands that Redis itself counts."""
    with attached("redis-server.service"):
        for connections, number in ((1, 2000), (50, 20000), (200, 20000)):
            number = smaller(number)
            before = total("redis-server.service")
            commands = redis_commands()
            run("redis-benchmark", "-q", "-P", "1", "-c", connections, "-n", number, "-t", "get", timeout=60)
            commands = redis_commands() - commands
            check(commands >= number, f"Redis counted {commands} commands of {number}")
            # The second INFO is not in the count that it reports
            expect_total("redis-server.service", before + commands + 1, what=f"count with {connections} connections")
        f = server_figures("redis-server.service")
        equal(f["latency"]["count"], f["count"], "latency.count")


@test(deadline=60)
def haproxy_splices():
    """Requests to a proxy that splices in both directions count once; those that it sends itself do not count as
    served."""
    directory = f"/run/{scenario.prefix}-haproxy"
    back = scenario.start_served(mode="thread", request=20000, response=100000)
    port = scenario.unused_port()
    os.makedirs(directory)
    with open(f"{directory}/haproxy.cfg", "w") as f:
        f.write(f"defaults\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n"
                f" option splice-request\n option splice-response\n"
                f"listen x\n bind 127.0.0.1:{port}\n server y 127.0.0.1:{back.port}\n")
    u = scenario.Unit(f"/usr/sbin/haproxy -Ws -f {directory}/haproxy.cfg")
    try:
        attach(u)
        u.start()
        scenario.load(port, connections=8, number=400, request=20000, response=100000)
        scenario.load(port, connections=8, number=100, request=20000, response=100000, per_connection=1)
        expect_total(u, 500)
        expect_total(back, 500)
        expect_total(u, 500 * 20000, "requests.server.bytesIn")
        expect_total(u, 500 * 100000, "requests.server.bytesOut")
    finally:
        u.stop()
        os.unlink(f"{directory}/haproxy.cfg")
        os.rmdir(directory)


@test()
def memcached():
    """Eleven gets on one connection, one after the other, are eleven requests."""
    port = scenario.unused_port()
    u = scenario.Unit(f"/usr/bin/memcached -u nobody -l 127.0.0.1 -p {port} -U 0", type="exec")
    attach(u)
    u.start()
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    for n in range(4):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"set x 0 0 5\r\nhello\r\n")
            equal(s.recv(100), b"STORED\r\n", "response")
            for _ in range(10):
                s.sendall(b"get x\r\n")
                equal(s.recv(100), b"VALUE x 0 5\r\nhello\r\nEND\r\n", "response")
        expect_total(u, 11 * (n + 1))


@test(deadline=60)
def postgresql_farewells():
    """Terminate of PostgreSQL's clients gets no response: no error, and no abort."""
    directory, port = f"/run/{scenario.prefix}-pg", scenario.unused_port()
    binaries = "/usr/lib/postgresql/17/bin"
    run("install", "-d", "-o", "postgres", directory)
    run("runuser", "-u", "postgres", "--", f"{binaries}/initdb", "-D", f"{directory}/data", "-A", "trust", "--no-sync",
        timeout=60)
    u = scenario.Unit(f"{binaries}/postgres -D {directory}/data -k {directory} -c listen_addresses=127.0.0.1 -p {port} "
                      "-c fsync=off -c autovacuum=off",
                      settings="User=postgres\nEnvironment=LC_ALL=C")
    attach(u)
    u.start()
    with open(f"{directory}/script", "w") as f:
        f.write("select 1;\n")
    # -C: a connection for each transaction
    number = smaller(120)
    c = scenario.Unit(f"{binaries}/pgbench -h 127.0.0.1 -p {port} -U postgres -n -C -f {directory}/script -c 4 -j 2 -t "
                      f"{number} postgres", type="exec")
    attach(c)
    c.start()
    wait_for("the client has ended", lambda: scenario.unit_property(c.name, "ActiveState") in ("inactive", "failed"),
             30)
    equal(scenario.unit_property(c.name, "Result"), "success", "result of pgbench")
    f = wait_for("nothing is in flight",
                 lambda: (f := server_figures(u))["inFlight"] == 0 and f["connections"]["open"] == 0 and f)
    check(f["connections"]["accepted"] >= 4 * number, f"{f['connections']['accepted']} connections")
    equal((f["clientAborts"], f["errors"]), (0, {"reset": 0, "timeout": 0}), "clientAborts, errors")
    asked = wait_for("nothing is in flight",
                     lambda: (f := scenario.lookup(scenario.snapshot(c), "requests.client"))["inFlight"] == 0 and f)
    equal((asked["aborts"], asked["errors"], asked["count"]), (0, scenario.peer_errors(), f["count"]),
          "aborts, errors and count of the client")
    u.stop()
    run("rm", "-rf", directory)


@test()
def other_farewells():
    """The last messages of MySQL, LDAP, MQTT, memcached and NBD clients, which get no response, are no requests. One
    that gets a response is a request, and other bytes before the close are a request that was aborted, as is an earlier
    one, except with MQTT."""
    s = scenario.start_served(mode="thread", request=5, response=3)
    longer = scenario.start_served(mode="thread", request=40, response=3)

    def last(server, *words, after):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            c.sendall(after)
            equal(len(c.recv(3, socket.MSG_WAITALL)), 3, "response")
            for word in words:
                before = scenario.lookup(server_figures(server), "bytesIn")
                c.sendall(word)
                # Each word is read in a segment of its own
                wait_for("the word is read",
                         lambda: scenario.lookup(server_figures(server), "bytesIn") == before + len(word))
            if server is s:
                equal(len(c.recv(3, socket.MSG_WAITALL)), 3, "response")
        wait_for("the connection is closed", lambda: scenario.lookup(server_figures(server), "connections.open") == 0)
        return server_figures(server)

    n, aborted = 0, 0
    for words, more in (([b"\1\0\0\0\1"], 0), ([b"\x30\5\2\1\3\x42\0"], 0), ([b"\x30\6\2\2\1\3\x42\0"], 0),
                        ([b"\xe0\0"], 0), ([b"\xe0\2\4\0"], 0),
                        ([b"quit\r\n"], 0), ([b"QUIT\r\n"], 0), ([b"\1\0\0\7\0"], 0),
                        ([b"\5\0\0\3\0\0\0\1\0\0\0\1"], 0),
                        ([b"\x25\x60\x95\x13\0\0\0\2" + b"x" * 20], 0), ([b"\x25\x60\x95\x13\0\0\0\0" + b"x" * 20], 1),
                        ([b"\1\0\0\7\1"], 1), ([b"\x30\6\0\1xhi!", b"\xe0\0"], 0),
                        ([b"\1\0\0\0\2"], 1), ([b"\xe0\1"], 1), ([b"quit!\n"], 1), ([b"xyz", b"quit\r\n"], 1),
                        ([b"quit\r\n", b"xyz"], 1)):
        f = last(longer, *words, after=b"q" * 40)
        n, aborted = n + 1, aborted + more
        equal((f["count"], f["clientAborts"] + f["errors"]["reset"], f["inFlight"]), (n, aborted, 0),
              f"count, aborted, in flight after {words}")
    f = last(s, b"\1\0\0\0\1", after=b"q" * 5)
    equal((f["count"], f["clientAborts"], f["errors"]["reset"], f["inFlight"]), (2, 0, 0, 0),
          "count, clientAborts, errors, in flight of those with a response")


@test(deadline=120)
def mosquitto():
    """Messages of MQTT without confirmation are in flight only until they are read, and a client that is killed between
    them has aborted nothing. Messages that a stopped broker does not read are in flight."""
    directory, port = f"/run/{scenario.unit_name('mqtt', '')}", scenario.unused_port()
    os.mkdir(directory)
    with open(f"{directory}/conf", "w") as f:
        f.write(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    u = attach(scenario.Unit(f"/usr/sbin/mosquitto -c {directory}/conf", type="exec")).start()
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    subscribers = [subprocess.Popen(["mosquitto_sub", "-p", str(port), "-t", "t/#"], stdout=subprocess.DEVNULL)
                   for _ in range(3)]
    publisher = subprocess.Popen(["mosquitto_pub", "-p", str(port), "-t", "t/a", "-q", "0", "-l"],
                                 stdin=subprocess.PIPE)
    stop = threading.Event()

    def publish():
        with contextlib.suppress(BrokenPipeError):
            while not stop.wait(0.1):
                publisher.stdin.write(b"message\n")
                publisher.stdin.flush()
    t = threading.Thread(target=publish, daemon=True)
    t.start()

    try:
        # CONNECT of four clients, SUBSCRIBE of three
        wait_for("all have connected", lambda: total(u) == 7)
        # 16 bytes each. They are recognized as messages without response after ten seconds
        wait_for("enough messages are read",
                 lambda: server_figures(u)["bytesIn"] > 16 * 60 and total(u, "requests.server.bytesIn") > 16 * 120, 30)
        wait_for("no request is in flight for long", lambda: server_figures(u).get("oldestInFlight", 0) < SEC)
        d = json.loads(qosctl("diagnose", u.name, "--for=5s", "--json=short", timeout=40).stdout)
        check(d["verdict"] == "nothing" or {f["kind"] for f in d["findings"]} == {"cpu"}, f"diagnosis: {d}")
        latency = server_figures(u)["latency"]
        check(latency["max"] < 2 * SEC, f"messages to subscribers are in the latency: {latency}")
        for _ in range(20):
            time.sleep(0.1)
            check(server_figures(u).get("oldestInFlight", 0) < SEC, "something is in flight again")

        u.kill("SIGSTOP")
        wait_for("a message is in flight", lambda: server_figures(u).get("oldestInFlight", 0) > 2 * SEC)
        u.kill("SIGCONT")
        wait_for("the message is read", lambda: server_figures(u).get("oldestInFlight", 0) < SEC)
        publisher.kill()
        publisher.wait()
        f = wait_for("nothing is in flight",
                     lambda: (f := server_figures(u))["inFlight"] == 0 and f["connections"]["open"] == 3 and f)
        equal((f["clientAborts"], f["errors"]), (0, {"reset": 0, "timeout": 0}), "clientAborts, errors")
    finally:
        stop.set()
        for p in (publisher, *subscribers):
            p.kill()
            p.wait()
        t.join()
        with contextlib.suppress(BrokenPipeError):
            publisher.stdin.close()
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=90)
def dovecot():
    """Messages of Dovecot's processes to its own collector of statistics get no response, and are in flight for ten
    seconds at most."""
    directory, port = f"/run/{scenario.unit_name('imap', '')}", scenario.unused_port()
    run("install", "-d", directory)
    run("install", "-d", "-o", "nobody", f"{directory}/mail")
    with open(f"{directory}/users", "w") as f:
        f.write("joe:{PLAIN}secret\n")
    with open(f"{directory}/conf", "w") as f:
        f.write(f"""dovecot_config_version = 2.4.0
dovecot_storage_version = 2.4.0
base_dir = {directory}/base
state_dir = {directory}/state
log_path = /dev/stderr
protocols = imap
listen = 127.0.0.1
ssl = no
auth_allow_cleartext = yes
mail_driver = maildir
mail_path = {directory}/mail/%{{user}}
mail_uid = nobody
mail_gid = nogroup
first_valid_uid = 1
first_valid_gid = 1
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb passwd-file {{
  passwd_file_path = {directory}/users
}}
userdb static {{
  fields {{
    uid = nobody
    gid = nogroup
    home = {directory}/mail/%{{user}}
  }}
}}
""")
    # There are more sockets than entries for endpoints. That of the statistics is in the entry others, with sockets
    # that have responded
    u = scenario.Unit(f"/usr/sbin/dovecot -F -c {directory}/conf", type="exec").start()
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    attach(u)
    for _ in range(3):
        c = imaplib.IMAP4("127.0.0.1", port)
        equal(c.login("joe", "secret")[0], "OK", "login")
        equal(c.select()[0], "OK", "select")
        c.logout()
    # The processes still exchange messages with each other
    f = wait_for("nothing is in flight",
                 lambda: (f := server_figures(u))["inFlight"] == 0 and f["connections"]["open"] == 0 and f, 30)
    equal((f["clientAborts"], f["errors"]), (0, {"reset": 0, "timeout": 0}), "clientAborts, errors")
    d = json.loads(qosctl("diagnose", u.name, "--for=5s", "--json=short", timeout=40).stdout)
    check(d["verdict"] == "nothing" or {f["kind"] for f in d["findings"]} == {"cpu"}, f"diagnosis: {d}")
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=60)
def php_behind_nginx():
    """PHP responds before it has read the end of nginx's request, which is no request of its own and does not stay in
    flight: on Unix sockets and TCP, with one request or many per connection, and with responses in one piece or
    many."""
    directory = f"/run/{scenario.prefix}-php"
    os.mkdir(directory)
    fpm = next(f"/usr/sbin/{name}" for name in sorted(os.listdir("/usr/sbin")) if name.startswith("php-fpm"))
    front, tcp = scenario.unused_port(), scenario.unused_port()
    with open(f"{directory}/script.php", "w") as f:
        f.write("<?php header('X-Method: ' . $_SERVER['REQUEST_METHOD']); echo str_repeat('x', intval($_GET['n'])); "
                "echo strlen(file_get_contents('php://input'));")
    pools = "".join(f"[{name}]\nuser=www-data\nlisten={listen}\nlisten.mode=0666\npm=static\npm.max_children=4\n"
                    for name, listen in (("u", f"{directory}/socket"), ("t", f"127.0.0.1:{tcp}")))
    with open(f"{directory}/fpm.conf", "w") as f:
        f.write(f"[global]\nerror_log={directory}/log\ndaemonize=no\n{pools}")
    locations = "".join(f"location {path} {{ fastcgi_pass {to}; fastcgi_keep_conn {keep}; include "
                        "/etc/nginx/fastcgi.conf;"
                        f" fastcgi_param SCRIPT_FILENAME {directory}/script.php; }}\n"
                        for path, to, keep in (("/u", f"unix:{directory}/socket", "off"),
                                               ("/t", f"127.0.0.1:{tcp}", "off"),
                                               ("/ku", "u", "on"), ("/kt", "t", "on")))
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(f"daemon off; pid {directory}/pid; error_log {directory}/error; events {{}}\nhttp {{ access_log off;\n"
                f"upstream u {{ server unix:{directory}/socket; keepalive 2; }}\nupstream t {{ server 127.0.0.1:{tcp}; "
                f"keepalive 2; }}\n"
                f"server {{ listen 127.0.0.1:{front};\n{locations} }} }}\n")
    php = attach(scenario.Unit(f"{fpm} -y {directory}/fpm.conf")).start()
    nginx = attach(scenario.Unit(f"/usr/sbin/nginx -c {directory}/nginx.conf", type="exec")).start()
    wait_for("nginx listens", lambda: run("curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{front}/none",
                                          ok=False).returncode == 0, 10)
    base, n = total(nginx), 0
    number = smaller(200)
    with open(f"{directory}/body", "wb") as f:
        f.write(b"b" * 3000)
    for path in ("/u", "/t", "/ku", "/kt"):
        for more in (["-n", number, "-c", 2, f"http://127.0.0.1:{front}{path}?n=3"],
                     ["-n", number, "-c", 1, f"http://127.0.0.1:{front}{path}?n=50000"],
                     ["-n", number, "-c", 2, "-p", f"{directory}/body", "-T", "a/b",
                      f"http://127.0.0.1:{front}{path}?n=3"]):
            equal(ab_completed(run("ab", "-q", "-k", *more, timeout=40).stdout), number, "requests of ab")
            n += number
    expect_total(nginx, base + n)
    expect_total(php, n)
    f = wait_for("nothing is in flight", lambda: (f := server_figures(php))["inFlight"] == 0 and f)
    equal(f["protocols"], dict.fromkeys(f["protocols"], 0) | {"unix": n // 2, "tcp": n // 2}, "protocols")
    equal((f["clientAborts"], f["errors"]), (0, {"reset": 0, "timeout": 0}), "clientAborts, errors")
    nginx.stop()
    php.stop()
    run("rm", "-rf", directory)


class Postgres(scenario.Unit):
    """A PostgreSQL server that listens on TCP, on a port of its own."""

    def __init__(self):
        self.directory, self.port = f"/run/{scenario.unit_name('pg', '')}", scenario.unused_port()
        self.binaries = "/usr/lib/postgresql/17/bin"
        run("install", "-d", "-o", "postgres", self.directory, f"{self.directory}/wal")
        run("runuser", "-u", "postgres", "--", f"{self.binaries}/initdb", "-D", f"{self.directory}/data", "-A", "trust",
            "--no-sync", timeout=60)
        super().__init__(f"{self.binaries}/postgres -D {self.directory}/data -k {self.directory} -c "
                         f"listen_addresses=127.0.0.1 -p {self.port}"
                         " -c fsync=off -c autovacuum=off", settings="User=postgres\nEnvironment=LC_ALL=C")

    def psql(self, text):
        return run("runuser", "-u", "postgres", "--", "psql", "-h", self.directory, "-p", self.port, "-Atc", text,
                   "postgres").stdout.strip()


def certificate(directory, owner):
    run("runuser", "-u", owner, "--", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
        f"{directory}/key.pem",
        "-out", f"{directory}/certificate.pem", "-days", "2", "-subj", "/CN=localhost", timeout=60)


@test(deadline=60)
def postgresql_inside_tls():
    """A PostgreSQL client starts TLS after the connection was accepted: requests before it count as TCP, those in it as
    TLS, and the last, encrypted message is no request."""
    u = Postgres()
    certificate(u.directory, "postgres")
    attach(u)
    u.start()
    with open(f"{u.directory}/data/postgresql.auto.conf", "a") as f:
        f.write(f"ssl = on\nssl_cert_file = '{u.directory}/certificate.pem'\nssl_key_file = '{u.directory}/key.pem'\n")
    u.restart()
    number = smaller(40)
    for _ in range(number):
        out = run("runuser", "-u", "postgres", "--", "psql", "-Atc",
                  "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
                  f"host=127.0.0.1 port={u.port} user=postgres dbname=postgres sslmode=require").stdout
        equal(out.strip(), "t", "whether it is TLS")
    f = wait_for("the connections are closed", lambda: (f := server_figures(u))["connections"]["open"] == 0 and f)
    equal((f["inFlight"], f["clientAborts"], f["errors"]), (0, 0, {"reset": 0, "timeout": 0}),
          "in flight, clientAborts, errors")
    # Each connection has the request for TLS, the startup message, and the query
    equal((f["protocols"]["tcp"], f["protocols"]["tls"]), (number, 2 * number), "protocols.tcp, protocols.tls")
    u.stop()
    run("rm", "-rf", u.directory)


@test(deadline=90)
def mariadb():
    """MariaDB's server sends first, and its client starts TLS without waiting for a response: the login and each query
    count once, in TLS and without."""
    directory, port = f"/run/{scenario.unit_name('maria', '')}", scenario.unused_port()
    run("install", "-d", "-o", "mysql", directory)
    run("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={directory}/data", "--skip-test-db",
        timeout=60)
    certificate(directory, "mysql")
    u = scenario.Unit(f"/usr/sbin/mariadbd --no-defaults --datadir={directory}/data --socket={directory}/socket "
                      f"--port={port} "
                      f"--bind-address=127.0.0.1 --skip-grant-tables --skip-networking=0 "
                      f"--ssl-cert={directory}/certificate.pem --ssl-key={directory}/key.pem", settings="User=mysql")
    attach(u)
    u.start()
    number = smaller(40)
    client = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "-B"]
    inside = {"tcp": 0, "tls": 0}
    for tls, options in (("tls", ["--ssl", "--skip-ssl-verify-server-cert"]), ("tcp", ["--skip-ssl"]),
                         ("tcp", ["--skip-ssl", "--compress"])):
        for _ in range(number):
            out = run(*client, *options, "-e", "show status like 'Ssl_version'").stdout
            equal("TLS" in out, tls == "tls", f"whether it is TLS: {out!r}")
        inside[tls] += 2 * number       # the login, and the request
        f = wait_for("the connections are closed", lambda: (f := server_figures(u))["connections"]["open"] == 0 and f)
        equal((f["inFlight"], f["clientAborts"], f["errors"]), (0, 0, {"reset": 0, "timeout": 0}),
              "in flight, clientAborts, errors")
        equal({k: f["protocols"][k] for k in inside}, inside, "protocols")

        # A client that idles between its requests
        with subprocess.Popen([*client, *options, "-n"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as c:
            for _ in range(3):
                c.stdin.write("select 42 as result;\n")
                c.stdin.flush()
                equal([c.stdout.readline().strip() for _ in range(2)], ["result", "42"], "output of mariadb")
                wait_for("nothing is in flight", lambda: server_figures(u)["inFlight"] == 0)
            c.stdin.close()
            equal(c.wait(), 0, "exit status of mariadb")
        inside[tls] += 4
        expect_total(u, inside[tls], f"requests.server.protocols.{tls}")
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=90)
def mariadb_statements():
    """The release of a prepared statement, which gets no response, is no request, and does not add to the latency of
    the next one."""
    directory, port = f"/run/{scenario.unit_name('maria', '')}", scenario.unused_port()
    run("install", "-d", "-o", "mysql", directory)
    run("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={directory}/data", "--skip-test-db",
        timeout=60)
    u = scenario.Unit(f"/usr/sbin/mariadbd --no-defaults --datadir={directory}/data --socket={directory}/socket "
                      f"--port={port} "
                      "--bind-address=127.0.0.1 --skip-grant-tables --skip-networking=0 --skip-ssl",
                      settings="User=mysql")
    attach(u)
    u.start()
    number, asked = smaller(20), {"tcp": 0, "unix": 0}

    def quiet(what):
        f = wait_for(f"nothing is in flight {what}", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
        equal((f["clientAborts"], f["errors"]), (0, {"reset": 0, "timeout": 0}), f"clientAborts, errors {what}")
        equal({k: f["protocols"][k] for k in asked}, asked, f"protocols {what}")
        return f

    for kind, address in (("tcp", port), ("unix", f"{directory}/socket")):
        c = statements.Connection(address)
        for i in range(number):
            c.round(i)
        asked[kind] += 1 + 2 * number           # the login, and the request
        quiet(f"on {kind}, after statements without a response")
        pause = 2 + 2 * server_figures(u)["latency"]["max"] / SEC       # longer than any request has taken
        begun = time.monotonic()
        wait_for("a pause", lambda: time.monotonic() - begun > pause, pause + 10)
        equal(c.query(b"select 42"), b"42", "response")
        asked[kind] += 1
        f = quiet(f"on {kind}, after a pause")
        check(f["latency"]["max"] < pause * SEC, f"latency.max is {f['latency']['max']}: the pause is in it")
        c.round(7)
        c.quit()
        asked[kind] += 2
        quiet(f"on {kind}, after the client has closed")

        # The same with an attached client
        ready = f"{directory}/ready-{kind}"
        client = scenario.Unit(f"/usr/bin/python3 {scenario.SOURCES}/statements.py {address} {number} {ready}",
                               type="exec")
        attach(client)
        client.start()
        wait_for("the client idles", lambda: os.path.exists(ready))
        asked[kind] += 1 + 2 * number
        quiet(f"on {kind}, after requests of a unit")
        expect_total(client, 1 + 2 * number, "requests.client.count", f"requests of the client on {kind}")
        r = wait_for("the client waits for no response",
                     lambda: (r := scenario.lookup(snapshot(client), "requests.client"))["inFlight"] == 0 and r)
        equal((r["count"], r["errors"]), (1 + 2 * number, scenario.peer_errors()),
              f"count and errors of the client on {kind}")
        client.stop()
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=60)
def postgresql_cancels():
    """A cancel request of PostgreSQL, on a connection that the server closes without a response, is no abort and no
    error."""
    u = Postgres()
    attach(u)
    u.start()
    f = server_figures(u)
    for _ in range(smaller(40)):
        with socket.create_connection(("127.0.0.1", u.port), timeout=20) as s:
            s.sendall(struct.pack(">IIII", 16, 80877102, 1, 1))
            equal(s.recv(1), b"", "response to a cancel request")
    equal(u.psql("select 42"), "42", "response")
    f = wait_for("the connections are closed", lambda: (f := server_figures(u))["connections"]["open"] == 0 and f)
    equal((f["count"], f["inFlight"], f["clientAborts"], f["errors"]), (2, 0, 0, {"reset": 0, "timeout": 0}),
          "count, in flight, clientAborts, errors")
    u.stop()
    run("rm", "-rf", u.directory)


@test(deadline=60)
def postgresql_replicates():
    """Changes that PostgreSQL sends to a replica are no responses, and the replica's reports of its position are no
    requests, with few changes and with many."""
    u = attach(Postgres())
    u.start()
    c = scenario.Unit(f"{u.binaries}/pg_receivewal -h 127.0.0.1 -p {u.port} -U postgres -D {u.directory}/wal -s 1",
                      type="exec",
                      settings="User=postgres\nEnvironment=LC_ALL=C")
    attach(c)
    c.start()
    # protocols.tcp counts the replica's connection only: psql connects to the Unix socket
    wait_for("the replica receives changes", lambda: u.psql("select state from pg_stat_replication") == "streaming", 20,
             pause=0.2)

    def of_both():
        f, mine = server_figures(u), scenario.lookup(scenario.snapshot(c), "requests.client")
        return f["protocols"]["tcp"], mine["count"], f["inFlight"], mine["inFlight"]

    def told():
        return u.psql("select reply_time from pg_stat_replication")

    wait_for("nothing is in flight", lambda: of_both()[2:] == (0, 0))
    begun = of_both()
    for text in ("select 1", "create table t (a int)", "insert into t select generate_series(1, 100000)", "select 1"):
        u.psql(text)
        for _ in range(2):
            before = told()
            wait_for("the replica has reported its position", lambda: told() != before, 20, pause=0.2)
        wait_for("nothing is in flight", lambda: of_both()[2:] == (0, 0))
    equal(of_both(), begun, "requests at the server and of the client, in flight")
    u.stop()
    run("rm", "-rf", u.directory)


@test(deadline=60)
def rsync():
    """rsync clients send the last message, which the server reads before it closes: it is no request without a
    response."""
    directory, port = f"/run/{scenario.unit_name('rsync', '')}", scenario.unused_port()
    os.makedirs(f"{directory}/source")
    with open(f"{directory}/conf", "w") as f:
        f.write(f"use chroot = no\nport = {port}\naddress = 127.0.0.1\n[m]\npath = {directory}/source\nread only = "
                "no\nuid = root\ngid = root\n")
    for i in range(5):
        with open(f"{directory}/source/{i}", "wb") as f:
            f.write(os.urandom(50000))
    u = attach(scenario.Unit(f"/usr/bin/rsync --daemon --no-detach --config={directory}/conf", type="exec")).start()
    wait_for("the server listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    there, n = f"rsync://127.0.0.1:{port}/m/", 0
    for _ in range(smaller(6)):
        for words in ([there, f"{directory}/copy/"], [there, f"{directory}/copy/"],
                      [f"{directory}/source/", f"{there}up/"], [there], [there[:-2]]):
            run("rsync", "-a", *words)
            n += 1
            f = wait_for("the connection is closed", lambda: (f := server_figures(u))["connections"]["open"] == 0
                         and f["connections"]["accepted"] == n and f)
            equal((f["clientAborts"], f["errors"], f["inFlight"]), (0, {"reset": 0, "timeout": 0}, 0),
                  f"clientAborts, errors, in flight after {words}")
        run("rm", "-rf", f"{directory}/copy")
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=60)
def ssh_sessions():
    """Ends of SSH sessions, and of rsync over SSH, are no aborts or errors of requests, neither of the server nor of
    the client."""
    directory, port = f"/run/{scenario.unit_name('ssh', '')}", scenario.unused_port()
    run("install", "-d", "-m", "0700", directory, f"{directory}/source")
    run("install", "-d", "/run/sshd")
    for name in ("host", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{directory}/{name}")
    with open(f"{directory}/source/file", "wb") as f:
        f.write(os.urandom(50000))
    u = scenario.Unit(f"/usr/sbin/sshd -D -e -f /dev/null -p {port} -h {directory}/host -o ListenAddress=127.0.0.1 -o "
                      "UsePAM=no"
                      f" -o StrictModes=no -o PidFile=none -o AuthorizedKeysFile={directory}/key.pub", type="notify")
    attach(u).start()
    ssh = f"ssh -F /dev/null -i {directory}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p {port}"
    script = (f"for i in 1 2 3; do {ssh} root@127.0.0.1 true; rsync -a -e '{ssh}' root@127.0.0.1:{directory}/source/ "
              f"{directory}/copy$i/; done")
    with open(f"{directory}/script", "w") as f:
        f.write(f"set -e\n{script}\n")
    c = attach(scenario.Unit(f"/bin/sh {directory}/script", type="exec")).start()
    wait_for("the client has ended", lambda: scenario.unit_property(c.name, "ActiveState") in ("inactive", "failed"),
             30)
    equal(scenario.unit_property(c.name, "Result"), "success", "result of the script")
    f = wait_for("all is closed", lambda: (f := server_figures(u))["connections"]["open"] == 0
                 and f["connections"]["accepted"] == 6 and f)
    equal((f["clientAborts"], f["errors"], f["inFlight"]), (0, {"reset": 0, "timeout": 0}, 0),
          "clientAborts, errors, in flight")
    f = scenario.lookup(snapshot(c), "requests.client")
    equal((f["aborts"], f["errors"], f["inFlight"]), (0, scenario.peer_errors(), 0),
          "aborts, errors, in flight of the client")
    u.stop()
    run("rm", "-rf", directory)


@test(deadline=60)
def idle_ssh():
    """An idle SSH session has no request in flight, and nothing is counted."""
    directory, port = f"/run/{scenario.unit_name('ssh', '')}", scenario.unused_port()
    run("install", "-d", "-m", "0700", directory)
    run("install", "-d", "/run/sshd")
    for name in ("host", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{directory}/{name}")
    u = scenario.Unit(f"/usr/sbin/sshd -D -e -f /dev/null -p {port} -h {directory}/host -o ListenAddress=127.0.0.1 -o "
                      "UsePAM=no"
                      f" -o StrictModes=no -o PidFile=none -o AuthorizedKeysFile={directory}/key.pub", type="notify")
    attach(u)
    u.start()
    c = subprocess.Popen(["ssh", "-F", "/dev/null", "-i", f"{directory}/key", "-o", "StrictHostKeyChecking=no",
                          "-o", "UserKnownHostsFile=/dev/null", "-p", str(port), "root@127.0.0.1", "cat"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        def line(text):
            c.stdin.write(text)
            c.stdin.flush()
            equal(c.stdout.readline(), text, "what cat wrote")
        line(b"hello\n")
        for _ in range(3):
            # Both sides send at the same time while they agree on keys, which makes the quality overlapping: then there
            # is no count
            before = wait_for("nothing is in flight", lambda: (f := server_figures(u))["inFlight"] == 0 and f)
            # Nothing changes while the session is idle
            for _ in range(20):
                time.sleep(0.1)
                f = server_figures(u)
                equal((f.get("count"), f["inFlight"]), (before.get("count"), 0), "count and in flight while it is idle")
            line(b"again\n")
            wait_for("the bytes are counted", lambda: server_figures(u)["bytesIn"] > before["bytesIn"])
    finally:
        c.stdin.close()
        c.wait(timeout=10)
    wait_for("the connection has ended",
             lambda: (f := server_figures(u))["connections"]["open"] == 0 and f["inFlight"] == 0)
    run("rm", "-rf", directory)
