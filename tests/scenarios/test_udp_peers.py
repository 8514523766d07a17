# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client requests over UDP: DNS queries, compared with the counts of the clients."""

import os
import re

import scenario
from scenario import Cable, Unit, attach, check, equal, server_figures, smaller, test, unused_port, wait_for
from test_peers import client_figures, expect_asked, peers, run_to_its_end
from test_udp import UdpServer
from test_unix_peers import script

# Seconds: the timeout of a query, one more until qosd evaluates it, and a reserve for a busy machine
GIVEN_UP = 30


class Dnsperf(Unit):
    """dnsperf as a unit."""

    def __init__(self, address, port, names, *options, netns=None):
        name = scenario.unit_name("dnsperf")
        self.said = f"/run/{name}.said"
        self.names = f"/run/{name}.names"
        with open(self.names, "w") as f:
            f.write("".join(f"{n} A\n" for n in names))
        super().__init__(" ".join(map(str, ["/usr/bin/dnsperf", "-s", address, "-p", port, "-d", self.names,
                                            *options])), name=name,
                         type="exec", settings=f"StandardOutput=truncate:{self.said}\n"
                         + (f"NetworkNamespacePath=/run/netns/{netns}" if netns else ""))

    def run(self):
        """Returns how many queries were sent, had a response and were lost."""
        run_to_its_end(self)
        with open(self.said) as f:
            said = f.read()
        os.unlink(self.names)
        return tuple(int(re.search(rf"Queries {what}: +(\d+)", said)[1]) for what in ("sent", "completed", "lost"))


def unbound():
    """Starts a resolver with one name, over IPv4 and IPv6."""
    port = unused_port()
    path = f"/run/{scenario.prefix}-unbound-peer.conf"
    with open(path, "w") as f:
        f.write(f"""server:
  interface: 127.0.0.1@{port}
  interface: ::1@{port}
  do-daemonize: no
  chroot: ""
  username: ""
  use-syslog: no
  pidfile: ""
  module-config: "iterator"
  local-zone: "example." static
  local-data: "www.example. A 192.0.2.1"
remote-control:
  control-enable: no
""")
    u = attach(Unit(f"/usr/sbin/unbound -d -c {path}", type="notify"))
    u.port = port
    return u.start()


@test(vm="nightly", deadline=60)
def dnsperf_and_unbound():
    """With a hundred queries in flight, the client has as many requests by peer as dnsperf, and unbound as many
    responses."""
    u = unbound()
    n = smaller(10000) // 2 * 2
    answered = 0
    for address, peer in (("127.0.0.1", f"127.0.0.1:{u.port}"), ("::1", f"[::1]:{u.port}")):
        c = attach(Dnsperf(address, u.port, ["www.example", "none.example"], "-c", 3, "-q", 100, "-n", n // 2))
        equal(c.run(), (n, n, 0), "what dnsperf counts")
        expect_asked(c, {peer: n}, f"of {peer}")
        answered += n
        wait_for("unbound has responded to as many", lambda: server_figures(u)["count"] == answered)
        row = peers(c)[peer]
        equal((row["unit"], row["errors"]), (u.name, scenario.peer_errors()), "the peer's unit, and errors")
        check(row["latency"]["max"] > 0 and row["latency"]["mean"] > 0, f"latency {row['latency']}")
    f = server_figures(u)
    equal((row["bytesOut"] * 2, row["bytesIn"] * 2), (f["bytesIn"], f["bytesOut"]), "bytes")
    equal(client_figures(u)["count"], 0, "queries of unbound")


@test(deadline=90)
def one_in_ten_without_a_response():
    """Queries without a response are timeouts, whether their IDs are reused or not; the others are counted exactly."""
    s = attach(UdpServer("dns")).start()
    # dnsperf gives up a tenth of the queries after 5 s. The timeout of qosd is twice that, so that both have the same
    # queries as lost
    c = attach(Dnsperf("127.0.0.1", s.port, [f"name{i}.example" for i in range(1000)], "-c", 1, "-q", 100, "-t", 5,
                       "-n", 1))
    sent, completed, lost = c.run()
    check(lost > 0.05 * sent, f"only {lost} of {sent} were lost")
    f = wait_for("all have a response or a timeout", lambda: (f := client_figures(c))["inFlight"] == 0 and f, GIVEN_UP,
                 pause=0.2)
    equal((f["count"], f["errors"], f["latency"]["count"]), (completed, scenario.peer_errors(timeout=lost), completed),
          "with and without a response")
    equal(f["peers"][0]["peer"], f"127.0.0.1:{s.port}", "the peer")


QUESTIONS = """
import ctypes, socket, struct
def question(i):
    return struct.pack('>HHHHHH', i, 0x100, 1, 0, 0, 0) + b'\\3www\\7example\\0' + struct.pack('>HH', 1, 1)
def asks(s, ids, to=None):
    for i in ids:
        s.send(question(i)) if to is None else s.sendto(question(i), to)
def hears(s, ids):
    s.settimeout(20)
    got = {struct.unpack('>H', s.recv(9999)[:2])[0] for _ in ids}
    assert got == set(ids), got
class iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_char_p), ('length', ctypes.c_size_t)]
class msghdr(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint), ('iov', ctypes.POINTER(iovec)), ('iovlen', ctypes.c_size_t),
                ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int)]
class mmsghdr(ctypes.Structure):
    _fields_ = [('m', msghdr), ('length', ctypes.c_uint)]
def asks_at_once(s, ids):
    iov = (iovec * len(ids))(*[iovec(question(i), len(question(i))) for i in ids])
    m = (mmsghdr * len(ids))()
    for k in range(len(ids)):
        m[k].m.iov, m[k].m.iovlen = ctypes.pointer(iov[k]), 1
    assert ctypes.CDLL(None).sendmmsg(s.fileno(), m, len(ids), 0) == len(ids)
"""


@test(vm="nightly")
def on_all_kinds_of_sockets():
    """Queries are counted on connected and unconnected, bound and unbound sockets, with sendmmsg(), over IPv4-mapped
    addresses, and with the same ID to two peers."""
    u, other = unbound(), UdpServer("dns").start()
    c = attach(script(QUESTIONS + f"""
four, six, port = socket.AF_INET, socket.AF_INET6, {u.port}
s = socket.socket(four, socket.SOCK_DGRAM); s.connect(('127.0.0.1', port))
asks(s, range(1, 51)); hears(s, range(1, 51))
asks_at_once(s, range(100, 120)); hears(s, range(100, 120))
s = socket.socket(four, socket.SOCK_DGRAM)
asks(s, range(1, 41), ('127.0.0.1', port)); hears(s, range(1, 41))
# musl sends a query to all name servers, with the same ID
asks(s, range(1, 10), ('127.0.0.1', port)); asks(s, range(1, 10), ('127.0.0.1', {other.port}))
for _ in range(18): s.recv(9999)
s = socket.socket(four, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))
asks(s, range(1, 31), ('127.0.0.1', port)); hears(s, range(1, 31))
s = socket.socket(six, socket.SOCK_DGRAM)
asks(s, range(1, 21), ('::1', port)); hears(s, range(1, 21))
s = socket.socket(six, socket.SOCK_DGRAM); s.connect(('::ffff:127.0.0.1', port))
asks(s, range(1, 11)); hears(s, range(1, 11))
# Multicast, and a datagram that is no DNS query
s = socket.socket(four, socket.SOCK_DGRAM)
for to in (('224.0.0.251', port), ('127.0.0.1', port)):
    try: s.sendto(question(7) if to[0] != '127.0.0.1' else b'not a DNS datagram', to)
    except OSError: pass
"""))
    run_to_its_end(c)
    v4, v6, second = f"127.0.0.1:{u.port}", f"[::1]:{u.port}", f"127.0.0.1:{other.port}"
    expect_asked(c, {v4: 50 + 20 + 40 + 9 + 30 + 10, v6: 20, second: 9}, "of all kinds")
    equal(client_figures(c)["errors"], scenario.peer_errors(), "errors")
    equal(server_figures(c)["count"], 0, "its responses")


@test(deadline=90)
def queries_without_a_response():
    """A query without a response is in flight until its timeout, or until another one has its ID; both count as
    timeouts."""
    s = UdpServer("sink").start()
    go = f"/run/{scenario.prefix}-udp-go"
    c = attach(script(QUESTIONS + f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', {s.port}))
asks(s, range(1, 6))
while not os.path.exists({go!r}): time.sleep(.01)
asks(s, range(1, 4))
time.sleep(1000)
"""))
    c.start()
    wait_for("five are in flight", lambda: client_figures(c)["inFlight"] == 5)
    equal(client_figures(c)["errors"]["timeout"], 0, "errors while they are waited for")
    open(go, "w").close()
    f = wait_for("three are repeated", lambda: (f := client_figures(c))["errors"]["timeout"] >= 3 and f)
    f = wait_for("all are given up", lambda: (f := client_figures(c))["inFlight"] == 0 and f, GIVEN_UP, pause=0.2)
    equal((f["count"], f["errors"]), (0, scenario.peer_errors(timeout=8)), "count and errors")


@test(deadline=60)
def attached_under_load():
    """After an attach under load, the client has the count of the resolver's responses, except for queries in flight at
    the attach."""
    u = unbound()
    c = Dnsperf("127.0.0.1", u.port, ["www.example"], "-c", 2, "-q", 20, "-l", 1000).start()
    wait_for("load", lambda: server_figures(u)["count"] > 500, 20)
    before = server_figures(u)["count"]
    attach(c)
    after = server_figures(u)["count"]
    wait_for("some are counted", lambda: client_figures(c)["count"] > 2000, 20)
    c.kill("SIGSTOP")
    end = wait_for("all have a response",
                   lambda: (a := server_figures(u), b := client_figures(c)) and a["inFlight"] == 0 == b["inFlight"]
                   and a["count"])
    f = client_figures(c)
    # Up to 20 queries of each of the two clients were in flight at the attach and are not counted
    check(end - after - 40 <= f["count"] <= end - before,
          f"{f['count']} counted, unbound has {end - after} to {end - before}")
    equal(f["errors"]["timeout"], 0, "errors")
    c.kill("SIGKILL")


@test(deadline=90)
def on_a_bad_cable():
    """With lost, duplicated and reordered datagrams the client has each response once and each loss as a timeout, as
    dnsperf has. The server has as many responses as the kernel has sent."""
    cable = Cable(drop=20, duplicate=50, reorder=50, delay_us=200, seed=5)
    s = attach(UdpServer("dns", address=cable.address_b, settings=f"NetworkNamespacePath=/run/netns/{cable.b}")).start()
    answered = cable.counter("UdpOutDatagrams")
    c = attach(Dnsperf(cable.address_b, s.port, [f"name{i}.example" for i in range(1000)], "-c", 1, "-q", 50, "-t", 5,
                       "-n", 1, netns=cable.a))
    sent, completed, lost = c.run()
    check(0.05 * sent < lost < 0.5 * sent, f"{lost} of {sent} were lost")
    f = wait_for("all have a response or a timeout", lambda: (f := client_figures(c))["inFlight"] == 0 and f, GIVEN_UP,
                 pause=0.2)
    equal((f["count"], f["errors"]), (completed, scenario.peer_errors(timeout=lost)), "with and without a response")
    equal(server_figures(s)["count"], cable.counter("UdpOutDatagrams") - answered, "responses of the server")
