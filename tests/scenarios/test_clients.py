# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients of the daemon that misbehave, and clients without privileges."""

import contextlib
import json
import os
import select
import socket
import threading
import time

import scenario
from scenario import (VARLINK, Failed, Server, Varlink, VarlinkError, as_user, attach, check, daemon_is_well,
                      dbus_attach_error, dbus_error, equal, expect_total, fail, fresh_qosd, listed, load, qosctl,
                      qosctl_json, qosd_pid, run, start_served, test, varlink, wait_for)
from test_daemon import ours

NOBODY = 65534
# ns of the daemon's CPU time between a call of root's and its reply, at most
LIMIT = 20000000
REFUSED = ("org.varlink.service.PermissionDenied", "io.systemd.InteractiveAuthenticationRequired",
           "org.varlink.service.InteractiveAuthenticationRequired")


@contextlib.contextmanager
def as_nobody():
    """Runs its body with the effective user and group nobody."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def ended(v):
    """Returns whether the other side has closed the connection. Reads what was sent before."""
    v.socket.settimeout(5)
    try:
        while True:
            if not v.socket.recv(1 << 20):
                return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@test(deadline=90)
def subscriber_that_never_reads():
    """A subscriber that does not read is disconnected after a while, and does not delay other subscribers."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    sleepers = [Varlink(rcvbuf=4096) for _ in range(3)]
    for v in sleepers:
        v.send("Subscribe", {"units": [s.name], "interval": 100000000}, more=True)
    reader = Varlink()
    reader.send("Subscribe", {"units": [s.name], "interval": 100000000}, more=True)
    load(s, connections=4, number=100)

    def is_cut_off():
        # The other subscriber is served meanwhile
        check(reader.reply()["snapshot"]["unit"] == s.name, "the stream of a subscriber that reads")
        return unread_connections() == 0

    def unread_connections():
        """Returns how many of the sleepers' connections qosd still has open, without reading from them."""
        n = 0
        for v in sleepers:
            with contextlib.suppress(OSError):
                v.socket.setblocking(False)
                try:
                    # Fails with EPIPE once the peer has closed, even if there is data to be read
                    v.socket.send(b"\0")
                    n += 1
                except BrokenPipeError:
                    pass
                except BlockingIOError:
                    n += 1
        return n

    wait_for("the sleepers are disconnected", is_cut_off, 75, pause=0)
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, 100)
    for v in sleepers + [reader]:
        v.close()
    daemon_is_well()


@test()
def vanishing_in_the_middle():
    """Many clients that disconnect while replies to them are under way leave no hold, and do not harm the daemon."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    for n in range(100):
        v = Varlink()
        v.send(*(("Subscribe", {"units": [s.name], "interval": 100000000}), ("ListMetrics", {}), ("List", {}),
                 ("Probes", {}))[n % 4], more=True)
        if n % 3 == 0:
            v.receive()
        v.close()
    # While the call Attach is under way
    for n in range(20):
        v = Varlink()
        v.send("Attach", {"unit": s.name, "lease": True})
        v.close()
    equal(qosd_pid(), pid, "process of qosd")
    load(s, connections=4, number=100)
    expect_total(s, 100)

    def holds():
        with Varlink() as v:
            return [h["type"] for u in v.collect("List") if u["unit"] == s.name for h in u["holds"]]

    wait_for("only the administrator's hold is left", lambda: holds() == ["administrator"])
    daemon_is_well()


def anonymous_memory():
    """KiB of the daemon."""
    with open(f"/proc/{qosd_pid()}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))


@test(own_daemon=True, deadline=60)
def flood_of_a_user():
    """A user that sends calls all the time, on as many connections as allowed, does not delay root's calls, and the
    memory of the replies is freed."""
    s = start_served(mode="thread")
    fresh = [Varlink() for _ in range(2)]
    with as_nobody():
        flood = [Varlink() for _ in range(100)]
    calls = b'{"method":"org.qosd.QoS.List","parameters":{},"more":true}\0' * 100
    poll = select.poll()
    for f in flood:
        f.socket.setblocking(False)
        poll.register(f.socket, select.POLLIN | select.POLLOUT)
    sockets = {f.socket.fileno(): f.socket for f in flood}
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            for fd, events in poll.poll(100):
                with contextlib.suppress(BlockingIOError):
                    sockets[fd].recv(1 << 20) if events & select.POLLIN else sockets[fd].send(calls)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for v in fresh * 50:
            equal(v.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
        varlink("GetStatus")
        run("systemctl", "reload", "qosd")
    finally:
        stop.set()
        thread.join()
    for f in flood:
        f.close()

    wait_for("the memory of the replies is freed", lambda: anonymous_memory() < 8 * 1024)


def cpu(pid):
    """ns of CPU time."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0])


@test(own_daemon=True, deadline=60)
def large_messages():
    """What root waits for behind a message of the largest size, 128 KiB, with as many elements as it can have: the CPU
    time of the daemon between both and root's reply."""
    s = start_served(mode="thread")
    pid = qosd_pid()

    def message(method, argument, element):
        unit = f'"unit":"{s.name}",' if argument != "units" else ""
        begin, end = f'{{"method":"org.qosd.QoS.{method}","parameters":{{{unit}"{argument}":[{element}', "]}}\0"
        return (begin + f",{element}" * ((131000 - len(begin) - len(end)) // (len(element) + 1)) + end).encode()

    with Varlink() as root:
        for what in (("GetMany", "units", '"a"'), ("GetMany", "units", "1"), ("Get", "metrics", '"a"'),
                     ("Get", "metrics", "[]"),
                     ("Get", "metrics", '"requests.server.count"'), ("Subscribe", "units", '"a"'),
                     ("Monitor", "units", f'"{s.name}"'),
                     ("History", "metrics", '"a"'), ("Attach", "probes", '"cpu"'), ("Attach", "exclude", '"http:/a"')):
            took = []
            for _ in range(5):
                with as_nobody():
                    v = Varlink()
                v.call("GetStatus")
                begin = cpu(pid)
                v.send_raw(message(*what))
                v.receive_raw()
                equal(root.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
                took.append(cpu(pid) - begin)
                v.close()
            check(sorted(took)[2] <= LIMIT,
                  f"CPU time of the daemon with {what}: {[round(t / 1e6, 1) for t in took]} ms")
    equal(qosd_pid(), pid, "process of qosd")
    daemon_is_well()


@test(own_daemon=True, deadline=90)
def large_messages_of_many_users():
    """A person with many user ids, each of which has some connections with a large message, complete or not: those
    beyond 64 MiB are disconnected with an error, which is logged, and the memory is freed. Other calls of users, and
    all of root, are served meanwhile."""
    s = start_served(mode="thread")
    call = b'{"method":"org.qosd.QoS.GetStatus","parameters":{}'
    refused, held = [], []
    for uid in range(100000, 100024):
        os.seteuid(uid)
        clients = [Varlink() for _ in range(30)]
        os.seteuid(0)
        for i, v in enumerate(clients):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                v.send_raw(call + b" " * 125000 + (b"}\0" if i % 2 else b""))
            if i % 2 or refused:
                reply = v.receive_raw()
                check(not reply or b"ENOBUFS" in reply or b'"units"' in reply, f"reply {reply}")
                if not reply or b"ENOBUFS" in reply:
                    refused.append(reply)
        held += clients
    check(len(refused) > 100 and any(refused),
          f"{len(refused)} of {len(held)} were refused, {sum(map(bool, refused))} with an error")
    check(anonymous_memory() < 160 * 1024, f"{anonymous_memory()} KiB of memory")
    with as_nobody():
        check("units" in varlink("GetStatus"), "a call of another user is not served")
        with Varlink() as v:
            v.send_raw(call + b" " * 125000 + b"}\0")
            check(b"ENOBUFS" in v.receive_raw(), "a large message of another user is served")
    with Varlink() as v:
        v.send_raw(call + b" " * 125000 + b"}\0")
        check(b'"units"' in v.receive_raw(), "a large message of root is not served")
    equal(varlink("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
    log = run("journalctl", "-u", "qosd", f"_PID={qosd_pid()}", "-o", "cat").stdout
    equal(log.count("users other than root take 63 MiB, disconnecting"), 1, f"log messages in {log}")
    for v in held:
        v.close()
    wait_for("the memory is freed", lambda: anonymous_memory() < 16 * 1024)
    with as_nobody(), Varlink() as v:
        v.send_raw(call + b" " * 125000 + b"}\0")
        check(b'"units"' in v.receive_raw(), "a large message is not served")


@test(own_daemon=True, deadline=60)
def a_thousand_connections():
    """Of many connections at once those above the limit are refused, and others are served. Once they are closed, no
    file descriptor is left."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    first = Varlink()

    def open_descriptors():
        """Counts qosd's descriptors but those of the unit's control group, which stay open once they were read."""
        n = 0
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                n += not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/sys/fs/cgroup/")
        return n

    descriptors = open_descriptors()
    connections = []
    for _ in range(1000):
        c = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        c.settimeout(2)
        try:
            c.connect(scenario.VARLINK_SOCKET)
            connections.append(c)
        except OSError:
            c.close()
    check(len(connections) > 100, f"only {len(connections)} connections were accepted")
    # The client that connected before them is served, and counting goes on
    equal(first.call("Get", unit=s.name)["unit"], s.name, "unit of the first client's snapshot")
    load(s, connections=16, number=1000)
    equal(first.call("Get", unit=s.name)["totals"]["requests.server.count"], 1000, "count")
    served = 0
    for c in connections[:50]:
        c.sendall(b'{"method":"org.qosd.QoS.GetStatus","parameters":{}}\0')
        with contextlib.suppress(OSError):
            served += len(c.recv(65536)) > 0
    check(served > 0, "none of the thousand connections is served")
    for c in connections:
        c.close()
    wait_for("the descriptors are closed", lambda: open_descriptors() <= descriptors + 2)
    equal(qosd_pid(), pid, "process of qosd")
    first.close()
    daemon_is_well()


@test(own_daemon=True)
def limit_of_connections_per_user():
    """The connections of an unprivileged user are limited, so that other users can still connect."""
    s = start_served(mode="thread")
    connections, served = [], 0
    with as_nobody():
        for _ in range(200):
            v = Varlink(timeout=2)
            connections.append(v)
            try:
                served += "version" in v.call("GetStatus")
            except (Failed, OSError, VarlinkError):
                pass
    equal(served, 128, "connections of one user that are served")
    varlink("Get", unit=s.name)
    qosctl("status", s.name)
    for v in connections:
        v.close()

    def again():
        with as_nobody(), Varlink() as v:
            try:
                return v.call("GetStatus")
            except (Failed, OSError):
                return None
    wait_for("the user is served again", again)


@test(own_daemon=True, deadline=90)
def programs_of_a_user_stay_for_a_while():
    """Programs that an unprivileged user's attach has loaded are kept for a while after the detach: if the user
    attaches and detaches repeatedly, they are loaded once only, which takes seconds of CPU time."""
    fresh_qosd()
    s = Server(settings="User=nobody\nDelegate=yes\n", mode="thread").start()
    with as_nobody():
        v = Varlink()
    loaded = set()
    for probes in ["requests", "cpu"], ["requests"], ["requests", "cpu"]:
        v.call("Attach", unit=s.control_group, probes=probes)
        loaded.add(tuple(sorted(ours()["prog"])))
        v.call("Detach", unit=s.control_group)
    equal(len(loaded), 1, f"sets of programs that were loaded: {loaded}")
    wait_for("the programs are gone", lambda: not ours()["prog"], timeout=40)
    # Programs that root has loaded are unloaded at once
    attach(s)
    qosctl("detach", s.name)
    wait_for("the programs are gone", lambda: not ours()["prog"])
    v.close()


@test(own_daemon=True)
def limit_of_leases_per_user(qosd_conf):
    units = [Server(settings="User=nobody\nDelegate=yes\n", mode="thread") for _ in range(3)]
    qosd_conf("[QoS]\nLeasesPerUserMax=2\n")
    for u in units:
        u.start()
    with as_nobody():
        v = Varlink()
    for u in units[:2]:
        v.call("Attach", unit=u.control_group, lease=True)
    try:
        v.call("Attach", unit=units[2].control_group, lease=True)
        fail("a third lease")
    except VarlinkError as e:
        equal(e.name, VARLINK + "TooManyLeases", "error")
        equal(e.parameters["limit"], 2, "limit")
    v.close()
    wait_for("the leases are gone", lambda: listed() == [])


@test()
def figures_are_everybodys():
    """Rates, counts and quantiles may be read without privileges."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    r = run(*as_user(NOBODY), "qosctl", "--no-pager", "status", s.name, "--window=total", "--json=short")
    equal(json.loads(r.stdout)["requests"]["server"]["count"], 100, "count that is shown to nobody")
    run(*as_user(NOBODY), "qosctl", "--no-pager", "list")
    with as_nobody(), Varlink() as v:
        equal(v.call("Get", unit=s.name, window=0)["totals"]["requests.server.count"], 100, "count over varlink")
        check(v.collect("ListMetrics"), "no metrics")
    run(*as_user(NOBODY), "busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "Snapshot", "st", s.name,
        10000000000)


@test()
def attaching_is_not():
    """Attach and Detach need root or polkit's permission over D-Bus and varlink, and have no effect if refused."""
    s = Server(mode="thread").start()
    with as_nobody(), Varlink() as v:
        for lease in (False, True):
            try:
                v.call("Attach", unit=s.name, lease=lease)
                fail("nobody attached a unit of root's")
            except VarlinkError as e:
                check(e.name in REFUSED, f"error {e.name}")
    error = dbus_attach_error(s.name, user=NOBODY)
    check(error in ("org.freedesktop.DBus.Error.AccessDenied",
                    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"), f"D-Bus error {error}")
    r = run(*as_user(NOBODY), "qosctl", "attach", s.name, ok=False)
    equal(r.returncode, 1, "exit status of qosctl attach")
    check(r.stderr.strip(), "qosctl attach fails silently")
    check(s.name not in listed(), "attached")

    attach(s)
    with as_nobody(), Varlink() as v:
        try:
            v.call("Detach", unit=s.name)
            fail("nobody detached a unit of root's")
        except VarlinkError as e:
            check(e.name in REFUSED, f"error {e.name}")
    error = dbus_error("DetachUnit", f"string:{s.name}", "boolean:false", user=NOBODY)
    check(error.startswith("org.freedesktop.DBus.Error."), f"D-Bus error {error}")
    equal(run(*as_user(NOBODY), "qosctl", "detach", s.name, ok=False).returncode, 1, "exit status of qosctl detach")
    check(s.name in listed(), "detached")


@test()
def the_socket_of_root():
    """Root has a socket that other users cannot connect to, and root's qosctl connects to that one."""
    path = scenario.VARLINK_SOCKET + ".root"
    equal((os.stat(path).st_mode & 0o777, os.stat(path).st_uid), (0o600, 0), "mode and owner of the socket")

    def connect():
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        return s

    with as_nobody():
        try:
            connect()
            fail("nobody has connected to root's socket")
        except PermissionError:
            pass
    with connect() as s:
        s.sendall(b'{"method":"org.qosd.QoS.GetStatus","parameters":{}}\0')
        check(b"version" in s.recv(65536), "root is served")
    out = run("strace", "-f", "-e", "trace=connect", "qosctl", "--no-pager", "list").stderr
    check(f'"{path}"' in out and f'"{scenario.VARLINK_SOCKET}"' not in out, f"where qosctl connects to: {out}")


@test()
def the_socket_of_others():
    """An unprivileged user cannot attach control groups of other users, by whatever path."""
    with as_nobody(), Varlink() as v:
        for name in ("/", "/system.slice", "/init.scope", "/system.slice/nginx.service", "/user.slice/../system.slice"):
            try:
                v.call("Attach", unit=name)
                fail(f"nobody attached {name}")
            except VarlinkError as e:
                check(e.name in REFUSED or e.name.startswith(VARLINK), f"error {e.name}")


@test(deadline=60)
def client_that_never_reads():
    """A client that does not read its replies is disconnected, and one that reads them slowly is not."""
    def fill(v):
        """Sends calls until the daemon reads no more of them, as the client does not read the replies."""
        v.socket.settimeout(1)
        try:
            while True:
                v.send("ListMetrics", more=True)
        except TimeoutError:
            return v

    never, slow = fill(Varlink(rcvbuf=4096)), fill(Varlink(rcvbuf=4096))
    hung_up = select.poll()
    hung_up.register(never.socket, 0)
    slow.socket.settimeout(5)

    def cut_off():
        # Reads a part of the replies each time
        check(slow.socket.recv(65536), "the client that reads slowly was disconnected")
        return hung_up.poll(500)
    wait_for("the client that does not read is disconnected", cut_off, 40, pause=0)
    check(slow.socket.recv(65536), "the client that reads slowly was disconnected")
    daemon_is_well()


@test()
def own_control_group():
    """A user may attach a control group that is owned by the user, by its path."""
    s = Server(mode="thread", settings="User=nobody\nDelegate=yes").start()
    path = s.control_group
    equal(os.stat("/sys/fs/cgroup" + path).st_uid, NOBODY, "owner of the control group")
    with as_nobody():
        v = Varlink()
    v.call("Attach", unit=path, lease=True)
    load(s, connections=4, number=100)
    equal(v.call("Get", unit=path, window=0)["totals"]["requests.server.count"], 100, "count")
    v.close()
    wait_for("the lease is gone", lambda: path not in listed() and s.name not in listed())


@test()
def own_control_group_not_all_probes():
    """The owner of a control group may not use probes that slow down all processes of the machine, and the owner's
    diagnosis runs without them."""
    s = Server(mode="thread", settings="User=nobody\nDelegate=yes").start()
    path = s.control_group
    with as_nobody():
        v = Varlink()
    for probes in ["tls"], ["requests", "cpu", "memory"]:
        try:
            v.call("Attach", unit=path, probes=probes, lease=True)
            fail(f"nobody attached {path} with {probes}")
        except VarlinkError as e:
            equal((e.name, e.parameters["probe"]), (VARLINK + "ProbeNotPermitted", probes[-1]), "error")
        equal(scenario.dbus_error("AttachUnit", f"string:{path}", f"array:string:{probes[-1]}", "uint64:0",
                                  "boolean:true", user=NOBODY),
              scenario.DBUS_ERROR + "ProbeNotPermitted", "error over D-Bus")
    check(path not in listed() and s.name not in listed(), "the unit is attached")

    with as_nobody():
        d = Varlink()
    d.send("Diagnose", {"unit": path, "window": 10 * scenario.SEC})
    with Varlink() as root:
        probes = wait_for("the diagnosis has a hold", lambda: [h["probes"] for u in root.collect("List")
                                                               if u["unit"] in (path, s.name) for h in u["holds"]])
    equal(probes, [["requests", "cpu", "block"]], "probes of the diagnosis")
    d.close()
    wait_for("the hold of the diagnosis has ended", lambda: path not in listed())
    v.call("Diagnose", unit=path, window=scenario.SEC)
    v.call("Attach", unit=path, probes=["requests", "cpu", "block"], lease=True)
    v.close()


def holds_of(unit):
    with Varlink() as v:
        return sorted((h["type"], h["uid"]) for u in v.collect("List") if u["unit"] == unit.name for h in u["holds"])


@test(own_daemon=True)
def own_control_group_and_the_administrator():
    """The owner of a control group has a hold of its own, and cannot change what the administrator has configured."""
    s = Server(mode="thread", settings="User=nobody\nDelegate=yes").start()
    path, limit = s.control_group, "busy: requests.server.rate > 1000000"
    attach(s)
    qosctl("set-threshold", s.name, limit)
    with as_nobody():
        v = Varlink()
    # With a limited duration
    v.call("Attach", unit=path, duration=1000, exclude=[f"port:{s.port}"])
    wait_for("the owner's hold has ended", lambda: holds_of(s) == [("administrator", 0)])
    # Without a limit of time. The exclusion has no effect as long as the administrator's hold has none
    v.call("Attach", unit=path, exclude=[f"port:{s.port}"])
    equal(holds_of(s), [("administrator", 0), ("administrator", NOBODY)], "holds")
    load(s, connections=4, number=100)
    expect_total(s, 100)
    for method, parameters in (("ClearThreshold", {"name": "busy"}),
                               ("SetThreshold", {"threshold": "busy: requests.server.rate > 5"})):
        try:
            v.call(method, unit=path, **parameters)
            fail(f"{method} of the administrator's threshold")
        except VarlinkError as e:
            equal(e.name, VARLINK + "ThresholdExists", "error")
    scenario.kill_qosd()
    with as_nobody():
        v = Varlink()
    equal(holds_of(s), [("administrator", 0), ("administrator", NOBODY)], "holds after a crash")
    v.call("Detach", unit=path)
    equal(holds_of(s), [("administrator", 0)], "holds")
    try:
        v.call("Detach", unit=path)
        fail("the administrator's hold was released")
    except VarlinkError as e:
        equal(e.name, VARLINK + "NotAttached", "error")
    equal([t["name"] for t in qosctl_json("list-thresholds", s.name)], ["busy"], "thresholds")
    expect_total(s, 100)
    # The administrator's detach ends the holds of all users
    v.call("Attach", unit=path)
    qosctl("detach", s.name)
    check(s.name not in listed(), "still attached")
    v.call("Attach", unit=path, exclude=[f"port:{s.port}"])
    load(s, connections=4, number=100)
    equal(v.call("Get", unit=path, window=0)["totals"]["requests.server.count"], 0, "count of excluded requests")
    v.call("Detach", unit=path)
    v.close()


@test()
def stream():
    """A subscription has snapshots of all its units at its interval, with a seq that never decreases."""
    a, b = start_served(mode="thread"), start_served(mode="thread")
    with Varlink() as v:
        begin = time.monotonic()
        v.send("Subscribe", {"units": [a.name, b.name], "interval": 200000000, "window": 1000000000}, more=True)
        load(a, connections=4, number=100)
        seq, times = {}, {}
        end = time.monotonic() + 2
        while time.monotonic() < end:
            x = v.reply()["snapshot"]
            check(x["unit"] in (a.name, b.name), f"snapshot of {x['unit']}")
            check(x["seq"] >= seq.get(x["unit"], 0), "seq went back")
            check(x["window"] == 1000000000, f"window {x['window']}")
            seq[x["unit"]] = x["seq"]
            times.setdefault(x["unit"], []).append(time.monotonic())
        # The first snapshot is sent at once, the others at the interval or later on a busy machine, never earlier.
        # Those sent during the load have waited in the socket, so the time is that since the call
        took = time.monotonic() - begin
        for name, t in times.items():
            check(4 <= len(t) <= took / 0.2 + 2,
                  f"{len(t)} snapshots of {name} in {took:.1f} seconds with an interval of 200 ms")
        equal(len(times), 2, "units in the stream")


@test()
def stream_of_a_unit_that_is_detached():
    s = start_served(mode="thread")
    with Varlink() as v:
        v.send("Subscribe", {"units": [s.name], "interval": 100000000}, more=True)
        v.reply()
        qosctl("detach", s.name)
        for _ in range(100):
            m = v.receive()
            if m is None or "error" in m or not m.get("continues"):
                break
        else:
            fail("the stream of a unit that is no longer attached goes on")
        check(m is None or m.get("error") == VARLINK + "NotAttached" or not m.get("continues"), f"last message {m}")
