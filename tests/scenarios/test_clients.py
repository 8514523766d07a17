# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients of the daemon that behave badly, and clients without rights."""

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
REFUSED = ("org.varlink.service.PermissionDenied", "io.systemd.InteractiveAuthenticationRequired",
           "org.varlink.service.InteractiveAuthenticationRequired")


@contextlib.contextmanager
def as_nobody():
    """Whatever connects in here is nobody's."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def ended(v):
    """Whether the other side has ended the connection, having read all that was sent before."""
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
    """Frames are skipped for it, others get theirs, and in the end it is cut off."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    sleepers = [Varlink(rcvbuf=4096) for _ in range(3)]
    for v in sleepers:
        v.send("Subscribe", {"units": [s.name], "interval": 100000000}, more=True)
    reader = Varlink()
    reader.send("Subscribe", {"units": [s.name], "interval": 100000000}, more=True)
    load(s, connections=4, number=100)

    def is_cut_off():
        # The others are served all the while
        check(reader.reply()["snapshot"]["unit"] == s.name, "the stream of one who reads")
        return unread_connections() == 0

    def unread_connections():
        """How many of the sleepers' connections qosd still has open: their own end says it, without reading."""
        n = 0
        for v in sleepers:
            with contextlib.suppress(OSError):
                v.socket.setblocking(False)
                try:
                    # A peer that closed makes writing fail, whatever is still to be read
                    v.socket.send(b"\0")
                    n += 1
                except BrokenPipeError:
                    pass
                except BlockingIOError:
                    n += 1
        return n

    wait_for("they are cut off", is_cut_off, 75, pause=0)
    equal(qosd_pid(), pid, "process of qosd")
    expect_total(s, 100)
    for v in sleepers + [reader]:
        v.close()
    daemon_is_well()


@test()
def vanishing_in_the_middle():
    """Clients that go away while they are being answered, many of them."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    for n in range(100):
        v = Varlink()
        v.send(*(("Subscribe", {"units": [s.name], "interval": 100000000}), ("ListMetrics", {}), ("List", {}),
                 ("Probes", {}))[n % 4], more=True)
        if n % 3 == 0:
            v.receive()
        v.close()
    # With a request of attach under way
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


@test(own_daemon=True, deadline=60)
def flood_of_a_user():
    """A user who asks all the time, on as many connections as allowed, does not delay root; the memory of all the replies comes back."""
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
            equal(v.call("Get", unit=s.name)["unit"], s.name, "what root gets")
        varlink("GetStatus")
        run("systemctl", "reload", "qosd")
    finally:
        stop.set()
        thread.join()
    for f in flood:
        f.close()

    def memory():
        with open(f"/proc/{qosd_pid()}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))

    wait_for("the memory comes back", lambda: memory() < 8 * 1024)


@test(own_daemon=True, deadline=60)
def a_thousand_connections():
    """Many connections at once: those above what there is room for are refused, the others and the daemon live; after
    them all is as before."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    first = Varlink()

    def open_descriptors():
        """Without the files of the unit's control group, which stay open once they were read."""
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
    # Who was there before is served, and counting goes on
    equal(first.call("Get", unit=s.name)["unit"], s.name, "what the first client gets")
    load(s, connections=16, number=1000)
    equal(first.call("Get", unit=s.name)["totals"]["requests.server.count"], 1000, "count")
    served = 0
    for c in connections[:50]:
        c.sendall(b'{"method":"org.qosd.QoS.GetStatus","parameters":{}}\0')
        with contextlib.suppress(OSError):
            served += len(c.recv(65536)) > 0
    check(served > 0, "none of the many is served")
    for c in connections:
        c.close()
    wait_for("the descriptors are closed", lambda: open_descriptors() <= descriptors + 2)
    equal(qosd_pid(), pid, "process of qosd")
    first.close()
    daemon_is_well()


@test(own_daemon=True)
def limit_of_connections_per_user():
    """A user without rights cannot take the room of the others."""
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
    wait_for("that user is served again", again)


@test(own_daemon=True, deadline=90)
def programs_of_a_user_stay_for_a_while():
    """Loading takes seconds of CPU time: attaching and detaching again and again loads once."""
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
    # What root does not need any more goes at once
    attach(s)
    qosctl("detach", s.name)
    wait_for("the programs are gone", lambda: not ours()["prog"])
    v.close()


@test(own_daemon=True)
def limit_of_leases_per_user():
    units = [Server(settings="User=nobody\nDelegate=yes\n", mode="thread") for _ in range(3)]
    scenario.configure_qosd("[QoS]\nLeasesPerUserMax=2\n")
    try:
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
    finally:
        scenario.configure_qosd(None)


@test()
def figures_are_everybodys():
    """Rates, counts and quantiles need no rights."""
    s = start_served(mode="thread")
    load(s, connections=4, number=100)
    r = run(*as_user(NOBODY), "qosctl", "--no-pager", "status", s.name, "--window=total", "--json=short")
    equal(json.loads(r.stdout)["requests"]["server"]["count"], 100, "count that nobody sees")
    run(*as_user(NOBODY), "qosctl", "--no-pager", "list")
    with as_nobody(), Varlink() as v:
        equal(v.call("Get", unit=s.name, window=0)["totals"]["requests.server.count"], 100, "count over varlink")
        check(v.collect("ListMetrics"), "no metrics")
    run(*as_user(NOBODY), "busctl", "call", "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "Snapshot", "st", s.name, 10000000)


@test()
def attaching_is_not():
    """Attach and detach need root or polkit's yes, on both buses, and are refused before anything happens."""
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
    """Root has a socket that others cannot connect to, and qosctl takes it."""
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
    """Names that would lead out of what is one's own stay outside."""
    with as_nobody(), Varlink() as v:
        for name in ("/", "/system.slice", "/init.scope", "/system.slice/nginx.service", "/user.slice/../system.slice"):
            try:
                v.call("Attach", unit=name)
                fail(f"nobody attached {name}")
            except VarlinkError as e:
                check(e.name in REFUSED or e.name.startswith(VARLINK), f"error {e.name}")


@test(deadline=60)
def client_that_never_reads():
    """Whose replies nobody fetches is cut off, and who fetches them slowly is not."""
    def fill(v):
        """Until the daemon takes no more, as its replies do not leave."""
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
        # Some of it, each time
        check(slow.socket.recv(65536), "who reads slowly was cut off")
        return hung_up.poll(500)
    wait_for("it is cut off", cut_off, 40, pause=0)
    check(slow.socket.recv(65536), "who reads slowly was cut off")
    daemon_is_well()


@test()
def own_control_group():
    """What belongs to a user's own uid that user may attach, by its path."""
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
    """What slows down every process of the machine is not for the owner of a control group, and a diagnosis by the owner goes without it."""
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
        equal(scenario.dbus_error("AttachUnit", f"string:{path}", f"array:string:{probes[-1]}", "uint64:0", "boolean:true", user=NOBODY),
              scenario.DBUS_ERROR + "ProbeNotPermitted", "error over D-Bus")
    check(path not in listed() and s.name not in listed(), "it is attached")

    with as_nobody():
        d = Varlink()
    d.send("Diagnose", {"unit": path, "window": 10 * scenario.SEC})
    with Varlink() as root:
        probes = wait_for("it is diagnosed", lambda: [h["probes"] for u in root.collect("List") if u["unit"] in (path, s.name) for h in u["holds"]])
    equal(probes, [["requests", "cpu", "block"]], "probes of the diagnosis")
    d.close()
    wait_for("that is over", lambda: path not in listed())
    v.call("Diagnose", unit=path, window=scenario.SEC)
    v.call("Attach", unit=path, probes=["requests", "cpu", "block"], lease=True)
    v.close()


def holds_of(unit):
    with Varlink() as v:
        return sorted((h["type"], h["uid"]) for u in v.collect("List") if u["unit"] == unit.name for h in u["holds"])


@test(own_daemon=True)
def own_control_group_and_the_administrator():
    """Whose control group it is has a hold of his own, and changes nothing of what the administrator has asked for."""
    s = Server(mode="thread", settings="User=nobody\nDelegate=yes").start()
    path, limit = s.control_group, "busy: requests.server.rate > 1000000"
    attach(s)
    qosctl("set-threshold", s.name, limit)
    with as_nobody():
        v = Varlink()
    # Neither for a moment …
    v.call("Attach", unit=path, duration=1000, exclude=[f"port:{s.port}"])
    wait_for("that is over", lambda: holds_of(s) == [("administrator", 0)])
    # … nor for good; what is left out counts when the other one is gone
    v.call("Attach", unit=path, exclude=[f"port:{s.port}"])
    equal(holds_of(s), [("administrator", 0), ("administrator", NOBODY)], "holds")
    load(s, connections=4, number=100)
    expect_total(s, 100)
    for method, parameters in (("ClearThreshold", {"name": "busy"}), ("SetThreshold", {"threshold": "busy: requests.server.rate > 5"})):
        try:
            v.call(method, unit=path, **parameters)
            fail(f"{method} of what the administrator has set")
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
    # The administrator's word is about all
    v.call("Attach", unit=path)
    qosctl("detach", s.name)
    check(s.name not in listed(), "still attached")
    v.call("Attach", unit=path, exclude=[f"port:{s.port}"])
    load(s, connections=4, number=100)
    equal(v.call("Get", unit=path, window=0)["totals"]["requests.server.count"], 0, "count of what is left out")
    v.call("Detach", unit=path)
    v.close()


@test()
def stream():
    """Snapshots at the interval that was asked for, of all units that were named, with seq that never goes back."""
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
        # On a busy machine they come late, and never sooner: the first one is at once, the last may be over the time. What
        # came during the load has waited in the socket, so the time is that since the call
        took = time.monotonic() - begin
        for name, t in times.items():
            check(4 <= len(t) <= took / 0.2 + 2,
                  f"{len(t)} snapshots of {name} in {took:.1f} seconds, one each 200 ms was asked for")
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
