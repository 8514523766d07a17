# SPDX-License-Identifier: LGPL-2.1-or-later
"""HTTP/2 and gRPC inside TLS, with the probe "tls"."""

import contextlib
import os
import re
import shutil
import ssl
import struct
import subprocess

import http2
import scenario
import test_http2
from scenario import (Unit, attach, check, equal, lookup, qosctl, run, server_figures, smaller, snapshot, systemctl,
                      test, unused_port, wait_for)
from test_tls import VERSIONS, Nginx
from test_tls_probe import is_seen, placed, watch


def h2load(unit, port, number, clients, streams, paths):
    """Requests the paths in turn. Returns the number of responses by class of status."""
    with open(f"{unit.directory}/paths", "w") as f:
        f.writelines(f"https://127.0.0.1:{port}{p}\n" for p in paths)
    out = run("h2load", "-n", number, "-c", clients, "-m", streams, "-i", f.name, timeout=60).stdout
    requests = re.search(r"^requests: \d+ total, \d+ started, (\d+) done, \d+ succeeded, \d+ failed, (\d+) errored",
                         out, re.M)
    check(requests and (int(requests[1]), int(requests[2])) == (number, 0), f"h2load said: {out}")
    return [int(n) for n in re.search(r"^status codes: (\d+) 2xx, \d+ 3xx, (\d+) 4xx, (\d+) 5xx", out, re.M).groups()]


@test(vm="nightly", deadline=60)
def http2_streams_at_once():
    """One stream, ten, a hundred at a time, 7 % of the responses 503, over both versions, and curl."""
    u = Nginx(http2=True)
    watch(u)
    u.start()
    u.listens()
    placed(u)
    sent = bad = gone = 0
    paths = ["/bad" if n in (3, 4, 5, 40, 71, 90, 99) else "/gone" if n % 50 == 7 else "/small" for n in range(100)]
    for port in u.ports.values():
        for clients, streams in (1, 1), (2, 10), (4, 100), (200, 10):
            number = max(smaller(2000) // clients, 1) * clients
            _, c, b = h2load(u, port, number, clients, streams, paths)
            sent, bad, gone = sent + number, bad + b, gone + c
            f = is_seen(u, sent, protocol="http2")
            equal((f["errors"]["status5xx"], f["status4xx"]), (bad, gone), f"5xx, 4xx with {streams} streams at once")
        run("curl", "-sk", "--http2", "-o", "/dev/null", *[f"https://127.0.0.1:{port}/large"] * 5)
        sent += 5
        is_seen(u, sent, protocol="http2")


class Sealed(test_http2.Scripted):
    """The server with responses by path, behind one that decrypts: what that one reads and writes is the HTTP/2 of its
    side."""

    def __init__(self, attach_first=True, newest="TLSv1.3", root=""):
        self.behind = test_http2.Scripted(attach_first=False)
        self.port = unused_port()
        # The service manager puts something on /run of root directories
        directory = f"{'/etc' if root else '/run'}/{scenario.unit_name('sealed')}"
        os.makedirs(root + directory)
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{root}{directory}/key", "-out",
            f"{root}{directory}/certificate", "-days", "2", "-subj", "/CN=localhost", timeout=60)
        self.context = ssl.create_default_context(cafile=f"{root}{directory}/certificate")
        self.context.check_hostname = False
        self.context.maximum_version = VERSIONS[newest]
        Unit.__init__(self,
                      "/usr/bin/socat "
                      f"OPENSSL-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork,nodelay,backlog=100,verify=0,"
                            f"key={directory}/key,cert={directory}/certificate "
                            f"TCP:127.0.0.1:{self.behind.port},nodelay",
                      type="exec",
                      settings="SuccessExitStatus=TERM KILL 143\n" + (f"RootDirectory={root}" if root else ""))
        self.begin(attach_first)

    def begin(self, attach_first=True):
        super().begin(attach_first)
        if attach_first:
            placed(self)

    def attach(self):
        watch(self)
        if systemctl("is-active", self.name, ok=False).returncode == 0:
            placed(self)

    def connect(self, **options):
        return http2.Client(self.port, context=self.context, **options)


@test(deadline=60)
def http2_cut_anywhere():
    test_http2.cut_anywhere(Sealed)


@test(deadline=60, vm="nightly")
def http2_all_kinds_of_responses():
    test_http2.all_kinds_of_responses(Sealed)


@test(deadline=60, vm="nightly")
def http2_streams_in_flight():
    test_http2.streams_in_flight(Sealed)


@test(deadline=60)
def http2_long_streams_beside_short_ones():
    test_http2.long_streams_beside_short_ones(Sealed)


@test(deadline=60)
def http2_control_frames():
    test_http2.control_frames_are_no_requests(Sealed)


@test(deadline=60)
def http2_held_back():
    test_http2.held_back(Sealed)


@test(deadline=60)
def http2_broken_off():
    test_http2.broken_off(Sealed)


@test(deadline=60)
def http2_clients_that_give_up():
    for newest in VERSIONS:
        test_http2.clients_that_give_up(lambda newest=newest: Sealed(newest=newest))


@test(deadline=60)
def http2_responses_out_of_order():
    test_http2.responses_out_of_order(Sealed)


@test(deadline=60)
def http2_joined_late():
    test_http2.joined_late(Sealed)


@test(deadline=60)
def http2_attached_again():
    test_http2.attached_again(Sealed)


@test(deadline=60, own_daemon=True)
def http2_restart_of_qosd():
    """Streams that are open meanwhile are in flight before and after, and requests on their connections count."""
    s = Sealed()
    clients = [s.connect() for _ in range(4)]
    held = [(c, c.start("/hang")) for c in clients for _ in range(5)]
    wait_for("20 are in flight", lambda: server_figures(s)["inFlight"] == 20)
    sent = 0
    for restart in scenario.kill_qosd, lambda: (systemctl("restart", "qosd.service"), scenario.wait_qosd()):
        for c in clients:
            equal([c.ask("/status/200").status for _ in range(10)], [200] * 10, "statuses")
        restart()
        for c in clients:
            equal([c.ask("/status/503").status for _ in range(10)], [503] * 10, "statuses")
        sent += 80
        s.expect(sent, 0, sent // 2, in_flight=20, what="with a restart")
    equal(clients[0].ask("/release").status, 200, "status")
    for c, stream in held:
        equal(c.wait(stream).status, 200, "status")
    s.expect(sent + 21, 0, sent // 2, what="when they were released")
    for c in clients:
        c.socket.close()


@test(deadline=60)
def http2_of_nghttpd():
    """Another server, with responses through HPACK's dynamic table."""
    directory = f"/run/{scenario.unit_name('nghttpd')}"
    os.makedirs(directory)
    with open(f"{directory}/small", "w") as f:
        f.write("s" * 100)
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{directory}/key", "-out",
        f"{directory}/certificate",
        "-days", "2", "-subj", "/CN=localhost", timeout=60)
    port = unused_port()
    u = Unit(f"/usr/sbin/nghttpd -n 2 -d {directory} {port} {directory}/key {directory}/certificate", type="exec")
    u.directory = directory
    watch(u)
    u.start()
    wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    placed(u)
    sent = gone = 0
    for clients, streams in (1, 1), (4, 10), (8, 100):
        number = smaller(4000) // clients * clients
        _, c, _ = h2load(u, port, number, clients, streams, ["/small", "/none", "/small"])
        sent, gone = sent + number, gone + c
        equal(is_seen(u, sent, protocol="http2")["status4xx"], gone, f"4xx with {streams} streams at once")


@test(deadline=60)
def in_a_root_directory_of_its_own():
    """A copy of the library, whose path is another file for everybody else."""
    root = f"/srv/{scenario.unit_name('root', '')}"
    try:
        libraries = re.findall(r"(/\S+) \(0x", run("ldd", "/usr/bin/socat").stdout)
        check(any("libssl" in f for f in libraries), f"{libraries}")
        for file in ["/usr/bin/socat"] + libraries:
            os.makedirs(os.path.dirname(root + file), exist_ok=True)
            shutil.copy(file, root + file)
        s = Sealed(root=root)
        with s.connect() as c:
            equal([c.ask(p).status for p in ["/status/200", "/status/503"] * 20], [200, 503] * 20, "statuses")
        s.expect(40, 0, 20, what="in a root directory of its own")
        check(f"Probing '{root}/" in run("journalctl", "-u", "qosd.service", "-o", "cat").stdout,
              "another file is watched")
        s.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


class SealedGrpc(test_http2.Grpc):
    """nginx, which has the calls from a library behind it."""

    def __init__(self):
        self.behind = test_http2.Grpc(attach_first=False)
        front = Nginx(http2=True, root=f"location /lab.Words/ {{ grpc_pass grpc://127.0.0.1:{self.behind.port}; }}")
        self.name, self.port, self.certificate = front.name, front.ports["TLSv1.3"], front.certificate
        self.begin()

    def attach(self):
        watch(self)

    def begin(self, attach_first=True):
        super().begin(attach_first)
        placed(self)


@test(deadline=60)
def grpc_calls():
    test_http2.grpc_calls(SealedGrpc)


@test(deadline=60)
def grpc_codes():
    test_http2.grpc_codes(SealedGrpc)


@test(deadline=60)
def grpc_in_flight():
    test_http2.grpc_in_flight(SealedGrpc)


@test(deadline=60)
def grpc_of_its_own_library():
    """It hands over encrypted bytes in buffers, so that their socket is unknown. Its connections are left out once
    requests overlap."""
    u = Nginx(http2=True) # has a key
    g = test_http2.Grpc(attach_first=False, settings=f"Environment=KEY={u.key} CERTIFICATE={u.certificate}")
    watch(g)
    placed(g)
    context = ssl.create_default_context(cafile=u.certificate)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])

    def call(c, method, message):
        return c.start(f"/lab.Words/{method}", method="POST",
                       fields=[("content-type", "application/grpc"), ("te", "trailers")],
                       body=struct.pack("!BI", 0, len(message)) + message)

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(http2.Client(g.port, context=context)) for _ in range(2)]
        # The socket cannot take this response as long as the client reads nothing, and meanwhile the server reads the
        # other calls
        calls = [(c, call(c, "Download", b"0 100".ljust(40000))) for c in clients]
        wait_for("responses do not fit", lambda: [int(line.split()[1]) > 0 for line in run(
            "ss", "-tnH", "state", "established", f"sport = :{g.port}").stdout.splitlines()] == [True] * 2)
        calls += [(c, call(c, "One", b"0 0")) for c in clients for _ in range(50)]
        r = wait_for("both are left out",
                     lambda: (r := snapshot(g)["requests"])["server"]["unparsed"]["connections"] == 2 and r)
        check(r.get("quality") in ("partial", "overlapping"), f"quality of {r}")
        # The beginning of each connection and the first call
        check(r["server"].get("count", 0) <= 10, f"{r}")
        equal({c.wait(stream).fields.get("grpc-status") for c, stream in calls}, {"0"}, "statuses of the calls")


@test(deadline=60)
def http2_under_load():
    """The probe is removed and added, and both ends close, while streams are open: nothing stays in flight, and later
    requests are counted."""
    u = Nginx(http2=True)
    attach(u)
    u.start()
    u.listens()
    port = u.ports["TLSv1.3"]

    def load():
        return subprocess.Popen(["h2load", "-n", "10000000", "-c", "4", "-m", "20", f"https://127.0.0.1:{port}/small"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def goes_on():
        before = lookup(snapshot(u), "requests.server.bytesOut")
        wait_for("it goes on", lambda: lookup(snapshot(u), "requests.server.bytesOut") > before + 100000)

    def is_idle(what):
        f = wait_for(f"nothing is in flight {what}",
                     lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(u)))
        check("oldestInFlight" not in f, f"something is old {what}: {f}")

    p = load()
    try:
        for _ in range(3):
            watch(u)
            placed(u)
            goes_on()
            attach(u, "--probes=requests")
            goes_on()
        watch(u)
        placed(u)
        goes_on()
        p.kill()
        p.wait()
        is_idle("when the client is killed")
        p = load()
        goes_on()
        u.restart()
        u.listens()
        p.wait(20)
        is_idle("when the server was restarted")
    finally:
        p.kill()
        p.wait()
    qosctl("detach", u.name)
    watch(u)
    placed(u)
    h2load(u, port, 1000, 4, 20, ["/small"])
    is_seen(u, 1000, protocol="http2")
