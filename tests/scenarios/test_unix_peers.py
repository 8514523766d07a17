# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client requests over Unix sockets, compared with the figures of the server and with the counts of programs."""

import os
import platform

import scenario
from scenario import (MSEC, SOURCES, Unit, attach, check, equal, qosctl, run, server_figures, smaller, test, varlink,
                      wait_for)
from test_peers import client_figures, peers, run_to_its_end
from test_unix import UnixServer, ends_are_reported


def script(text, **keywords):
    """Returns a unit that runs this Python program."""
    path = f"/run/{scenario.unit_name('ask', '.py')}"
    with open(path, "w") as f:
        f.write("import os, socket, sys, threading, time\n" + text)
    return Unit(f"/usr/bin/python3 {path}", type="exec", **keywords)


ASK = """
def connect(path, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind)
    s.connect(path.replace('@', chr(0), 1))
    return s
def ask(s, request='', size=3):
    s.sendall(request.encode() + b'\\n')
    n = 0
    while n < size:
        d = s.recv(65536)
        if not d:
            raise EOFError
        n += len(d)
def crowd(path, threads, number, request='', kind=socket.SOCK_STREAM, per_connection=10**9):
    def one():
        s = None
        for i in range(number):
            if i % per_connection == 0:
                s = connect(path, kind)
            ask(s, request)
    all = [threading.Thread(target=one) for _ in range(threads)]
    for t in all: t.start()
    for t in all: t.join()
"""


def expect_asked(unit, want, what):
    def got():
        return {name: r["count"] for name, r in peers(unit).items()}
    try:
        wait_for(what, lambda: got() == want and client_figures(unit)["inFlight"] == 0, 3)
    except scenario.Failed:
        equal(got(), want, f"count by peer {what}")
        raise
    f = client_figures(unit)
    equal((f["count"], f["latency"]["count"], f["inFlight"]), (sum(want.values()), sum(want.values()), 0),
          f"of all {what}")
    for name, r in peers(unit).items():
        equal(r["latency"]["count"], r["count"], f"latency.count of {name} {what}")
        if name[0] in "/@":
            equal(set(r) & {"bytesIn", "bytesOut"}, set(), f"absent figures of {name}")
            if ends_are_reported():
                equal((r["errors"], r["aborts"]), ({"reset": 0}, 0), f"errors of {name}")
            else:
                equal(set(r) & {"errors", "aborts"}, set(), f"figures without support by this kernel, of {name}")


@test(vm="nightly", deadline=60)
def both_ends():
    """The client's count by peer is the server's count, on stream and seqpacket sockets and on an abstract address,
    with one request per connection or many."""
    for kind, path, constant in (("stream", None, "socket.SOCK_STREAM"), ("seqpacket", None, "socket.SOCK_SEQPACKET"),
                                 ("stream", "@" + scenario.unit_name("abstract", ""), "socket.SOCK_STREAM")):
        s = attach(UnixServer(kind, path)).start()
        n = smaller(2000)
        c = attach(script(ASK
                          + f"crowd({s.path!r}, 4, {n}, kind={constant})\ncrowd({s.path!r}, 4, {n // 10}, "
                            f"kind={constant}, per_connection=1)\n"))
        run_to_its_end(c)
        n = 4 * (n + n // 10)
        expect_asked(c, {s.path: n}, f"over {kind}")
        scenario.expect_total(s, n)
        row = peers(c)[s.path]
        equal(row["unit"], s.name, "the peer's unit")
        equal(server_figures(c)["count"], 0, "server requests of the client")
        equal(client_figures(s)["count"], 0, "client requests of the server")
        for selector in (s.path, s.name):
            equal(varlink("Get", unit=c.name, window=0, metrics=[f"requests.client[{selector}].count"])["values"],
                  {f"requests.client[{selector}].count": n}, f"count of {selector}")
        status = qosctl("status", c.name, "--window=total").stdout
        check(s.path in status and s.name in status, f"the status page: {status}")
        s.stop()


@test(deadline=60, quiet="loaded")
def held_up():
    """Requests are counted although qosd sees a send late, when the peer has already read it, sent its response and
    closed the connection."""
    directory = f"/run/{scenario.unit_name('held', '')}"
    pin = f"/sys/fs/bpf/{scenario.unit_name('held', '')}"
    os.makedirs(directory)
    # Attached before the programs of qosd, so that it runs first
    scenario.fresh_qosd()
    run("clang", "-O2", "-g", "-target", "bpf", "-isystem", f"/usr/include/{platform.machine()}-linux-gnu", "-c",
        f"{SOURCES}/held_up.bpf.c",
        "-o", f"{directory}/o")
    run("bpftool", "prog", "load", f"{directory}/o", pin, "autoattach")
    try:
        for kind, constant in (("seqpacket", "socket.SOCK_SEQPACKET"), ("stream", "socket.SOCK_STREAM")):
            n = smaller(500)
            s = attach(UnixServer(kind, held_up=True)).start()
            # Up to three requests on each connection. The client polls for the responses and does not sleep
            c = attach(script(ASK + f"""
for i in range({n}):
    s = connect({s.path!r}, {constant})
    s.setblocking(False)
    for _ in range(1 + i % 3):
        s.send(b'\\n')
        data = b''
        while len(data) < 3:
            try:
                data += s.recv(100)
            except BlockingIOError:
                os.sched_yield()
    s.close()
"""))
            run_to_its_end(c)
            sent = sum(1 + i % 3 for i in range(n))
            # A few requests are lost: those where client and server are delayed at the same time, on the same CPU
            for what, unit, figures in (("received", s, server_figures), ("sent", c, client_figures)):
                wait_for(f"nothing is in flight of requests that were {what}", lambda: figures(unit)["inFlight"] == 0)
                wait_for(f"requests are counted that were {what}", lambda: figures(unit)["count"] >= sent * 0.99)
                check(figures(unit)["count"] <= sent,
                      f"{figures(unit)['count']} instead of {sent} requests were {what} over {kind}")
            s.stop()
    finally:
        os.unlink(pin)


@test()
def times_are_those_of_the_peer():
    """Latencies of the client are those of the server with a known delay, also with responses in pieces and requests in
    parts."""
    s = attach(UnixServer()).start()
    said = f"/run/{scenario.prefix}-unix-said"
    c = attach(script(ASK + f"s = connect({s.path!r})\nbegun = time.monotonic_ns()\n"
                      "for _ in range(20): ask(s, 'sleep=0.02')\n"
                      "for _ in range(10): ask(s, 'size=300 pieces=3', 300)\n"
                      "for _ in range(10):\n s.sendall(b'size=3 '); time.sleep(.01); ask(s, 'sleep=0.02')\n"
                      f"open({said!r}, 'w').write(str(time.monotonic_ns() - begun))\n"))
    run_to_its_end(c)
    expect_asked(c, {s.path: 40}, "of a slow server")
    with open(said) as f:
        most = int(f.read()) / 40
    for what, d in (("client", client_figures(c)["latency"]), ("server", server_figures(s)["latency"])):
        check(20 * MSEC <= d["max"], f"latency of the {what}: {d}")
        # One request is in flight at a time: 20 of 20 ms, and 10 of 30 ms
        check(700 / 40 * MSEC <= d["mean"] <= most,
              f"mean of the {what}: {d['mean']} instead of {700 / 40 * MSEC} to {most}")


@test(vm="nightly")
def ends():
    """A close during a request is an abort if the unit closes the connection, and a reset if the peer does, where the
    kernel reports it."""
    s = attach(UnixServer()).start()
    c = attach(script(ASK + f"""
def connect_and_send(request):
    c = connect({s.path!r})
    c.sendall(request)
    return c
ask(connect({s.path!r}))
for i in range(3):
    connect_and_send(b'hang\\n').close()
for i in range(2):
    connect_and_send(b'close\\n').recv(1)
with connect({s.path!r}) as bye:
    ask(bye)
    bye.sendall(b'X' + bytes(3) + bytes([4]))
last = connect_and_send(b'hang\\n')
"""))
    run_to_its_end(c)
    if not ends_are_reported():
        expect_asked(c, {s.path: 2}, "without reports of closed sockets")
        return
    want = (2, 4, {"reset": 2})
    wait_for(f"count, aborts and errors are {want}",
             lambda: (r := peers(c)[s.path]) and (r["count"], r["aborts"], r["errors"]) == want)
    f = client_figures(c)
    equal((f["count"], f["aborts"], f["errors"]["reset"], f["inFlight"]), (2, 4, 2, 0), "figures of all peers")
    wait_for("the server's are the same",
             lambda: (f := server_figures(s)) and (f["count"], f["clientAborts"], f["errors"]["reset"]) == (2, 4, 2))


@test()
def datagrams_and_streams_without_responses():
    """Streams without responses, the journal, the bus, notifications, datagrams and socket pairs are no client
    requests."""
    s = UnixServer().start()
    c = attach(script(ASK + f"""
for i in range(100): print('hello', i, flush=True)
a, b = socket.socketpair()
for i in range(100): a.sendall(b'x'); b.recv(9); b.sendall(b'y'); a.recv(9)
os.system('busctl --system call org.freedesktop.DBus / org.freedesktop.DBus ListNames >&2')
d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for i in range(10): d.sendto(b'X=1', os.environ['NOTIFY_SOCKET'])
n = connect({s.path!r})
n.sendall(b'hang')
time.sleep(1000)
""", settings="NotifyAccess=all\nStandardOutput=journal\nStandardError=journal"))
    c.start()
    wait_for("the program has connected", lambda: s.path in run("ss", "-xH").stdout)
    run("journalctl", "--sync")
    check("hello 99" in run("journalctl", "-u", c.name, "-o", "cat").stdout, "the journal does not have its output")
    f = client_figures(c)
    equal((f["count"], f["inFlight"], f.get("peers", [])), (0, 0, []), "count, in flight, peers")


@test()
def in_flight():
    """A request is in flight until its response, or until an end closes the connection."""
    s = UnixServer().start()
    go = f"/run/{scenario.prefix}-unix-go"
    c = attach(script(ASK + f"s = connect({s.path!r})\nask(s)\ns.sendall(b'hang\\n')\n"
                      f"while not os.path.exists({go!r}): "
                      "time.sleep(.01)\nask(s)\ns.sendall(b'hang\\n')\ntime.sleep(1000)\n"))
    c.start()
    wait_for("it waits", lambda: client_figures(c)["inFlight"] == 1)
    equal(peers(c)[s.path]["inFlight"], 1, "in flight at the peer")
    equal(server_figures(c)["inFlight"], 0, "server requests in flight")
    open(go, "w").close()
    wait_for("it has a response", lambda: client_figures(c)["count"] == 2)
    wait_for("the next waits", lambda: client_figures(c)["inFlight"] == 1)
    s.kill()
    wait_for("the server has ended", lambda: client_figures(c)["inFlight"] == 0)
    s.start()
    c.restart()
    wait_for("it waits again", lambda: client_figures(c)["inFlight"] == 1)
    c.kill()
    wait_for("it is gone", lambda: client_figures(c)["inFlight"] == 0)


@test()
def remarks_read_in_parts():
    """A message without a response is no request, and does not cancel the next request if the server has read a part of
    it before that is sent, and the rest afterwards, as MariaDB reads the header first."""
    path, read, sent = (f"/run/{scenario.unit_name(name, '')}" for name in ("remark", "read", "sent"))
    remark = bytes.fromhex("05000000") + bytes.fromhex("1907000000")    # COM_STMT_CLOSE
    rounds = 10
    server = script(f"""
def wait(name, i):
    while not os.path.exists(f'{{name}}{{i}}'):
        time.sleep(0.001)
def take(s, n):
    data = b''
    while len(data) < n:
        data += s.recv(n - len(data))
    return data
l = socket.socket(socket.AF_UNIX)
l.bind({path!r})
l.listen()
s = l.accept()[0]
for i in range({rounds}):
    assert take(s, 5) == b'first'
    s.sendall(b'done')
    take(s, 4)
    open(f'{read}{{i}}', 'w')
    wait({sent!r}, i)
    take(s, {len(remark) - 4})
    assert take(s, 6) == b'second'
    s.sendall(b'done')
s.recv(1)
""").start()
    wait_for("it listens", lambda: os.path.exists(path))
    c = attach(script(ASK + f"""
s = connect({path!r})
for i in range({rounds}):
    s.sendall(b'first')
    assert s.recv(100) == b'done'
    s.sendall({remark!r})
    while not os.path.exists(f'{read}{{i}}'):
        time.sleep(0.001)
    s.sendall(b'second')
    open(f'{sent}{{i}}', 'w')
    assert s.recv(100) == b'done'
time.sleep(1000)
"""))
    c.start()
    expect_asked(c, {path: 2 * rounds}, "with remarks read in parts")
    equal(client_figures(c)["errors"], scenario.peer_errors(), "errors")
    server.stop()


@test(deadline=60)
def redis_by_its_socket():
    """redis-benchmark, with one command at a time on each connection, has as many requests as Redis."""
    path = f"/run/{scenario.prefix}-redis-peer.sock"
    r = attach(Unit(f"/usr/bin/redis-server --port 0 --unixsocket {path} --save '' --supervised systemd",
                    settings="Environment=LC_ALL=C"))
    r.start()
    n = smaller(20000)
    c = attach(Unit(f"/usr/bin/redis-benchmark -q -s {path} -c 8 -n {n} -t get,set", type="exec"))
    run_to_its_end(c)
    wait_for("nothing is in flight", lambda: server_figures(r)["inFlight"] == 0)
    # redis-benchmark also requests the configuration
    total = server_figures(r)["count"]
    check(2 * n <= total <= 2 * n + 10, f"count of Redis: {total}")
    expect_asked(c, {path: total}, "of Redis")
    mine, its = client_figures(c)["latency"]["mean"], server_figures(r)["latency"]["mean"]
    check(mine >= its * 0.9, f"mean: the client's {mine}, the server's {its}")
    equal(peers(c)[path]["unit"], r.name, "the peer's unit")


@test(deadline=60)
def attached_under_load():
    s = attach(UnixServer()).start()
    c = script(ASK + f"crowd({s.path!r}, 3, 10**9)\n").start()
    wait_for("load", lambda: server_figures(s)["count"] > 100)
    attach(c)
    wait_for("it is counted", lambda: peers(c).get(s.path, {}).get("count", 0) > 500)
    first, its, second = client_figures(c)["count"], server_figures(s)["count"], client_figures(c)["count"]
    wait_for("it goes on", lambda: client_figures(c)["count"] > second + 2000)
    c.stop()
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    f = client_figures(c)
    equal(f["inFlight"], 0, "in flight")
    # Both have the same count since, except for a request on each of the three connections at either moment
    n = server_figures(s)["count"] - its
    check(f["count"] - second - 3 <= n <= f["count"] - first + 3,
          f"the server {n}, the client {f['count'] - first} to {f['count'] - second}")
