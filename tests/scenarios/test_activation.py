# SPDX-License-Identifier: LGPL-2.1-or-later
"""Services with socket activation: the requests are recorded for the service, the first one with all its times, too."""

import os
import socket

import scenario
from scenario import (MSEC, Client, Talk, Unit, attach, check, count, equal, expect_total, listed, load, lookup,
                      qosctl, run, server_command, server_figures, snapshot, systemctl, test, unit_name, unused_port,
                      varlink_error, wait_for, write_unit)


class Activated:
    """A .socket and its .service, a server that uses the file descriptors that systemd passes."""

    def __init__(self, listen=None, socket="", settings="", name=None, **options):
        self.stem = name or unit_name("activated", "")
        self.port = unused_port()
        self.options = options
        self.write(listen or [f"127.0.0.1:{self.port}"], socket)
        options.setdefault("mode", "thread")
        self.service = Unit(server_command(listen_fd=True, **options), name=self.stem + ".service", settings=settings)
        self.name = self.service.name
        self.socket = self.stem + ".socket"

    def write(self, listen, more=""):
        write_unit(self.stem + ".socket", "[Socket]\nTriggerLimitIntervalSec=0\n" +
                   "".join(f"ListenStream={a}\n" for a in listen) + more + "\n")

    def open(self):
        systemctl("start", self.socket)
        return self


def complete(unit, n):
    """Checks that the unit has n requests, each with the time of its arrival, and that no request or connection is
    left."""
    name = unit if isinstance(unit, str) else unit.name
    expect_total(name, n)
    figures = wait_for("all is closed",
                       lambda: (lambda f: f if f["inFlight"] == 0 and lookup(f, "connections.open") == 0 else None)
                       (server_figures(name)))
    for d in ("latency", "firstByte", "queue", "service"):
        equal(figures[d]["count"], n, f"{d}.count")
    equal(figures["clientAborts"], 0, "clientAborts")
    equal(figures["errors"]["reset"], 0, "errors.reset")
    return figures


@test(vm="nightly")
def first_request_starts_the_service():
    """The first request starts the service, and the time of the start counts as time in the queue."""
    s = Activated(settings="ExecStartPre=/bin/sleep 0.4").open()
    attach(s.name)
    said = load(s.port, number=1)
    figures = complete(s, 1)
    check(figures["queue"]["max"] >= 400 * MSEC, f"queue.max {figures['queue']['max']}")
    most = said["latency"]["max"] - 400 * MSEC
    check(figures["service"]["max"] <= most,
          f"service.max {figures['service']['max']}, of which the client saw {most} at most")
    equal(figures["bytesIn"], 64, "bytesIn")
    equal(lookup(figures, "connections.accepted"), 1, "accepted")
    load(s.port, connections=8, number=400, per_connection=3)
    complete(s, 401)


@test()
def in_flight_while_it_starts():
    """Requests that wait for the service to start are in flight meanwhile."""
    go = f"/run/{scenario.prefix}-go"
    s = Activated(settings=f"ExecStartPre=/bin/sh -c 'until test -e {go}; do sleep .02; done'").open()
    attach(s.name)
    t = Talk(s.port, connections=5)
    t.say("send")
    try:
        # The queue is read anew after 20 ms only
        figures = wait_for("five wait",
                           lambda: (f := server_figures(s.name)) and f["inFlight"] == 5 and
                           lookup(f, "connections.acceptQueue") == 5 and f)
        check(figures["oldestInFlight"] > 0, "no oldestInFlight")
        equal(count(s.name), 0, "count")
    finally:
        open(go, "w").close()
    t.say("take")
    t.end()
    os.unlink(go)
    complete(s, 5)


@test()
def socket_opened_after_the_attach():
    for settings in ("", "SocketProtocol=mptcp", "DeferAcceptSec=2", "BindToDevice=lo", "ReusePort=yes\nFreeBind=yes"):
        s = Activated(socket=settings)
        systemctl("daemon-reload")
        attach(s.name)
        s.open()
        load(s.port, number=1)
        complete(s, 1)
        load(s.port, connections=8, number=200, per_connection=1)
        complete(s, 201)


@test()
def socket_of_another_name():
    """A socket of another name that activates the service by Service= is found, also if it is started after the
    attach."""
    s = Activated()
    other = unit_name("other", "")
    port = unused_port()
    write_unit(other + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nService={s.name}\n")
    # Loaded by PID 1 before the attach
    systemctl("start", other + ".socket")
    attach(s.name)
    load(port, connections=1, number=1)
    load(port, connections=4, number=100, per_connection=1)
    complete(s, 101)
    # Loaded by PID 1 after the attach
    third = unit_name("third", "")
    port = unused_port()
    write_unit(third + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nService={s.name}\n")
    s.service.stop()
    systemctl("start", third + ".socket")
    wait_for("the listener of the third socket is known",
             lambda: lookup(server_figures(s.name), "connections.acceptQueueMax") > 4096)
    load(port, connections=4, number=100, per_connection=1)
    complete(s, 201)


@test(own_daemon=True, deadline=40)
def restarts():
    """After a restart of the service, the socket, both or qosd, the first request is counted with all its times."""
    s = Activated().open()
    attach(s.name)
    n = 0
    for what in ("", s.name, s.socket, "both", "qosd.service", "kill", s.name, "reload", s.socket):
        if what == "both":
            systemctl("stop", s.socket, s.name)
            systemctl("start", s.socket)
        elif what == "kill":
            scenario.kill_qosd()
        elif what == "reload":
            systemctl("daemon-reload")
        elif what == s.socket:
            # systemd does not restart a socket while its service runs
            systemctl("stop", s.name)
            systemctl("restart", s.socket)
        elif what:
            systemctl("restart", what)
        load(s.port, number=1)
        load(s.port, connections=4, number=50, per_connection=1)
        n += 51
        complete(s, n)


@test()
def socket_moves():
    """The socket listens at another address after an edit: requests there are the service's, those at the old one are
    not."""
    s = Activated().open()
    attach(s.name)
    load(s.port, connections=2, number=20)
    old, s.port = s.port, unused_port()
    s.write([f"127.0.0.1:{s.port}"])
    systemctl("daemon-reload")
    systemctl("stop", s.name)
    systemctl("restart", s.socket)
    other = Activated(listen=[f"127.0.0.1:{old}"]).open()
    load(old, connections=2, number=30, per_connection=1)
    load(s.port, connections=2, number=20, per_connection=1)
    complete(s, 40)
    attach(other.name)
    load(old, connections=2, number=30, per_connection=1)
    complete(other, 30)
    complete(s, 40)


@test(own_daemon=True, deadline=60)
def twenty_activations_under_load():
    """No request is lost when a service exits after some requests and the next connection starts it again, while qosd
    is restarted."""
    lives = f"/run/{scenario.prefix}-lives"
    s = Activated(mode="serial", exit_after=40, settings=f"ExecStartPre=/bin/sh -c 'echo >>{lives}'").open()
    attach(s.name)
    c = Client(s.port, connections=8, number=840, per_connection=1)
    wait_for("the service has been started some times", lambda: os.path.exists(lives) and os.path.getsize(lives) >= 6,
             20)
    systemctl("restart", "qosd.service")
    r = c.wait()
    equal(r["answered"], 840, "responses")
    check(os.path.getsize(lives) >= 20, f"{os.path.getsize(lives)} activations")
    os.unlink(lives)
    complete(s, 840)


@test()
def many_addresses_in_one_socket():
    """All IP listeners of a socket are the service's: IPv4, IPv6 and dual stack, beside Unix sockets, whatever
    FileDescriptorName= is."""
    v4, v6, dual = (unused_port() for _ in range(3))
    s = Activated(listen=[f"127.0.0.1:{v4}", f"[::1]:{v6}", dual, f"/run/{scenario.prefix}.sock",
                          f"@{scenario.prefix}"],
                  socket="FileDescriptorName=http\nBacklog=77").open()
    attach(s.name)
    wait_for("all three listeners are the service's",
             lambda: lookup(server_figures(s.name), "connections.acceptQueueMax") == 3 * 77)
    load(v4, number=1)
    load(v4, connections=4, number=50, per_connection=1)
    load(v6, address="::1", connections=4, number=50, per_connection=1)
    load(dual, connections=4, number=50, per_connection=1)
    load(dual, address="::1", connections=4, number=50, per_connection=1)
    complete(s, 201)


@test()
def only_its_own_sockets():
    """Each service has the requests of its own socket only, though PID 1 opens those of all, also of one that is not
    attached."""
    a, b, c = Activated().open(), Activated().open(), Activated().open()
    attach(a.name)
    attach(b.name)
    clients = [Client(s.port, connections=4, number=n, per_connection=2) for s, n in ((a, 100), (b, 200), (c, 300))]
    for client in clients:
        client.wait()
    complete(a, 100)
    complete(b, 200)
    equal(qosctl("status", c.name, ok=False).returncode, 3, "exit status for the third")


def frozen(unit, go):
    unit.kill("SIGSTOP" if go else "SIGCONT")


@test()
def one_socket_for_two_services():
    """If two services are passed the same socket, a request is recorded for the one that reads it."""
    a = Activated().open()
    b = Unit(server_command(listen_fd=True, mode="thread"), settings=f"Sockets={a.socket}")
    a.service.start()
    b.start()
    attach(a.name)
    attach(b.name)
    for one, other, n in ((a.service, b, 50), (b, a.service, 70), (a.service, b, 20)):
        before = count(one.name)
        frozen(other, True)
        load(a.port, connections=4, number=n, per_connection=2)
        frozen(other, False)
        expect_total(one.name, before + n)
    equal(count(a.name), 70, "count of the one")
    equal(count(b.name), 70, "count of the other")
    for u in (a, b):
        wait_for("nothing is open", lambda: lookup(server_figures(u.name), "connections.open") == 0
                 and server_figures(u.name)["inFlight"] == 0)
    # One of the two is detached: its requests are not recorded at all
    qosctl("detach", b.name)
    frozen(a.service, True)
    load(a.port, connections=4, number=50, per_connection=2)
    frozen(a.service, False)
    load(a.port, connections=1, number=0)
    f = wait_for("nothing is open",
                 lambda: (lambda f: f if lookup(f, "connections.open") == 0 and f["inFlight"] == 0 else None)
                 (server_figures(a.name)))
    equal(f["count"], 70, "count of the one when only the other responded")
    equal(f["clientAborts"], 0, "clientAborts")


@test()
def one_address_for_two_sockets():
    """Each of several sockets with the same address (SO_REUSEPORT) belongs to its own service."""
    port = unused_port()
    a, b = (Activated(listen=[f"127.0.0.1:{port}"], socket="ReusePort=yes").open() for _ in range(2))
    attach(a.name)
    attach(b.name)
    load(port, connections=8, number=200, per_connection=1)
    wait_for("all are counted", lambda: count(a.name) + count(b.name) >= 200)
    equal(count(a.name) + count(b.name), 200, "count of both")
    check(count(a.name) > 20 and count(b.name) > 20, f"{count(a.name)} and {count(b.name)}")
    # One of the two is detached: the other one has its own requests only
    one = count(a.name)
    qosctl("detach", b.name)
    load(port, connections=8, number=200, per_connection=1)
    check(one < count(a.name) < one + 180, f"{count(a.name) - one} of 200")


@test()
def waiting_when_attached():
    """Requests that have arrived, but are not accepted yet at the attach are counted. Those from before the attach have
    no latency."""
    go = f"/run/{scenario.prefix}-go"
    s = Activated(accept_when=go).open()
    s.service.start()
    t = Talk(s.port, connections=3)
    t.say("send")
    wait_for("the requests have arrived", lambda: [int(line.split()[0]) > 0 for line in run(
        "ss", "-tnH", "state", "established", f"sport = :{s.port}").stdout.splitlines()] == [True] * 3)
    attach(s.name)
    u = Talk(s.port, connections=2)
    u.say("send")
    open(go, "w").close()
    for x in (t, u):
        x.say("take")
        x.end()
    expect_total(s.name, 5)
    equal(server_figures(s.name)["latency"]["count"], 2, "latency.count: of requests that arrived after the attach")
    os.unlink(go)


SLOW_READER = """
import os, socket, sys, time
port, accept, accepted, read = sys.argv[1:]
def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)
s = socket.create_server(("127.0.0.1", int(port)))
wait(accept)
c = s.accept()[0]
open(accepted, "w").close()
wait(read)
c.recv(100)
c.send(b"response")
time.sleep(60)
"""


@test()
def accepted_when_another_is_attached():
    """A request that arrived before the attach has no latency, even if it is read after another unit was attached."""
    port = unused_port()
    program, accept, accepted, read = (f"/run/{scenario.prefix}-{what}"
                                       for what in ("program", "accept", "accepted", "read"))
    with open(program, "w") as f:
        f.write(SLOW_READER)
    u = Unit(f"/usr/bin/python3 {program} {port} {accept} {accepted} {read}", type="exec").start()
    wait_for("the program listens", lambda: run("ss", "-tlnH", f"sport = :{port}").stdout)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as c:
        c.sendall(b"request")
        attach(u.name)
        open(accept, "w").close()
        wait_for("the connection is accepted", lambda: os.path.exists(accepted))
        attach(Unit("/usr/bin/sleep 60", type="exec").start().name)
        open(read, "w").close()
        equal(c.recv(100), b"response", "the response")
        expect_total(u.name, 1)
        equal(server_figures(u.name)["latency"]["count"], 0, "latency.count: the time of arrival is not known")
    for path in (program, accept, accepted, read):
        os.unlink(path)


def inetd(name, port, socket=""):
    write_unit(name + ".socket", f"[Socket]\nListenStream=127.0.0.1:{port}\nAccept=yes\nMaxConnections=200\n"
                                 f"TriggerLimitIntervalSec=0\nPollLimitIntervalSec=0\n{socket}\n")
    write_unit(name + "@.service", "[Unit]\nCollectMode=inactive-or-failed\n[Service]\nExecStart=-/bin/cat\n"
                                   "StandardInput=socket\nStandardOutput=socket\n")
    return name + ".socket"


@test(own_daemon=True, deadline=40)
def instances():
    """A socket with Accept=yes has the requests of all instances, one per connection that PID 1 accepts."""
    port, other_port = unused_port(), unused_port()
    name = inetd(unit_name("inetd", ""), port)
    other = inetd(unit_name("inetd", ""), other_port)
    attach(name)
    equal(snapshot(name)["activeState"], "inactive", "activeState")
    systemctl("start", name, other)
    wait_for("the socket is shown active", lambda: snapshot(name)["activeState"] == "active")
    load(port, number=1, response=64)
    complete(name, 1)
    load(other_port, connections=2, number=10, per_connection=1, response=64)
    load(port, connections=4, number=40, per_connection=2, response=64)
    complete(name, 41)
    systemctl("restart", "qosd.service")
    scenario.wait_qosd()
    load(port, connections=4, number=40, per_connection=2, response=64)
    complete(name, 81)
    systemctl("restart", name)
    load(port, connections=2, number=10, per_connection=1, response=64)
    complete(name, 91)
    # Connections that are open at the attach
    t = Talk(port, connections=3, response=64)
    t.say("run 2")
    complete_open(name, 97, 3)
    qosctl("detach", name)
    attach(name)
    t.say("run 2")
    complete_open(name, 6, 3)
    t.end()


def complete_open(name, n, connections):
    expect_total(name, n)
    f = server_figures(name)
    equal(f["latency"]["count"], n, "latency.count")
    equal(lookup(f, "connections.open"), connections, "connections.open")


@test()
def socket_that_passes_itself_on():
    """A socket without Accept= cannot be attached, and the error names the service to attach instead."""
    s = Activated()
    r = qosctl("attach", s.socket, ok=False)
    equal(r.returncode, 1, "exit status")
    check(s.name in r.stderr, f"no word of {s.name}: {r.stderr}")
    equal(varlink_error("Attach", unit=s.socket), "NoControlGroup", "error")
    check(s.socket not in listed(), "attached all the same")
    s.open()
    check(s.socket in qosctl("list", "--all").stdout, "list --all does not have a socket that listens")
    attach(s.name)
    check(s.socket not in qosctl("list", "--all").stdout, "list --all has the socket of an attached service")


@test()
def socket_in_another_namespace():
    """A socket in a network namespace has its own requests, though another service has the same address on the host."""
    ns = f"{scenario.prefix}-ns"
    run("ip", "netns", "add", ns)
    run("ip", "-n", ns, "link", "set", "lo", "up")
    a = Activated().open()
    inside = f"NetworkNamespacePath=/run/netns/{ns}"
    b = Activated(listen=[f"127.0.0.1:{a.port}"], socket=inside, settings=inside)
    b.port = a.port
    # Opened after the attach, and before it
    systemctl("daemon-reload")
    attach(b.name)
    b.open()
    attach(a.name)
    n = 0
    for what in ("", "attach", b.name, b.socket):
        if what == "attach":
            qosctl("detach", b.name)
            attach(b.name)
            n = 0
        elif what == b.socket:
            systemctl("stop", b.name)
            systemctl("restart", b.socket)
        elif what:
            systemctl("restart", b.name)
        load(b.port, netns=ns, connections=3, number=30, per_connection=1)
        load(a.port, connections=2, number=10, per_connection=1)
        n += 30
        complete(b, n)
    complete(a, 40)


@test()
def given_up_while_it_starts():
    """Requests of clients that abort while the service starts are counted as aborts only, and none stays in flight."""
    go = f"/run/{scenario.prefix}-go"
    s = Activated(settings=f"ExecStartPre=/bin/sh -c 'until test -e {go}; do sleep .02; done'").open()
    attach(s.name)
    t = Talk(s.port, connections=4)
    t.say("send")
    wait_for("four wait", lambda: server_figures(s.name)["inFlight"] == 4)
    t.say("reset")
    t.end()
    f = wait_for("none is in flight", lambda: (lambda f: f if f["inFlight"] == 0 else None)(server_figures(s.name)))
    equal(f["clientAborts"], 4, "clientAborts")
    open(go, "w").close()
    load(s.port, connections=2, number=20)
    os.unlink(go)
    expect_total(s.name, 20)
    wait_for("all is closed", lambda: lookup(server_figures(s.name), "connections.open") == 0)
    equal(server_figures(s.name)["clientAborts"], 4, "clientAborts in the end")


@test()
def detached_and_left_alone():
    """After a detach the traffic of the service and its socket is not recorded, and the next attach starts at zero."""
    s = Activated().open()
    attach(s.name)
    load(s.port, connections=2, number=20, per_connection=1)
    complete(s, 20)
    other = Activated().open()
    attach(other.name)
    qosctl("detach", s.name)
    load(s.port, connections=2, number=20, per_connection=1)
    systemctl("stop", s.name)
    systemctl("restart", s.socket)
    load(s.port, connections=2, number=20, per_connection=1)
    attach(s.name)
    equal(count(s.name), 0, "count")
    equal(lookup(server_figures(s.name), "connections.accepted"), 0, "accepted")
    load(s.port, connections=2, number=20, per_connection=1)
    complete(s, 20)
    equal(count(other.name), 0, "count of the other")
