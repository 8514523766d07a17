# SPDX-License-Identifier: LGPL-2.1-or-later
"""A unit with ten thousand control groups, which are assigned in turns: what root waits for meanwhile, and that all
requests are counted that were sent once the unit was attached, whatever happened in between. Counts are compared with
those of the clients."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

from scenario import (SEC, VARLINK, Client, Failed, Unit, Varlink, VarlinkError, attach, check, count, daemon_is_well,
                      equal, expect_total,
                      fail, kill_qosd, listed, load, lookup, programs, qosctl, qosd_pid, server_command, server_figures,
                      start_served,
                      test, unit_name, unused_port, varlink, wait_for)
from test_clients import LIMIT, as_nobody, cpu

WIDTH = 100
STATE = "/run/qosd/state/units"


class Tree(Unit):
    """A unit of the user nobody with 10,100 control groups, and servers in some of them."""
    def __init__(self, n_servers=0):
        super().__init__("/bin/sleep infinity", type="exec",
                         settings=f"User=nobody\nDelegate=yes\nSlice={unit_name('slice', '.slice')}\n")
        self.start()
        self.path = self.control_group
        for i in range(WIDTH):
            for k in range(WIDTH):
                os.makedirs(self.directory(f"g{i}/g{k}"))
        # In groups that are assigned early and late
        self.servers = [self.serve(f"g{n * (WIDTH - 1) // max(n_servers - 1, 1)}/g{n}") for n in range(n_servers)]

    def directory(self, group):
        return f"/sys/fs/cgroup{self.path}/{group}"

    def serve(self, group):
        """Starts a server in the group. Returns its port."""
        port = unused_port()
        process = subprocess.Popen(server_command(mode="thread", port=port).split())
        with open(self.directory(group) + "/cgroup.procs", "w") as f:
            f.write(str(process.pid))

        def listens():
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                return True
        wait_for("the server listens", listens)
        return port

    def load(self, number):
        """This many requests to each server. Returns their sum."""
        for port in self.servers:
            equal(load(port, connections=4, number=number)["answered"], number, "responses")
        return number * len(self.servers)

    def is_walked(self):
        """Whether some of its groups are not assigned yet, as the daemon keeps it for the next run."""
        with open(STATE) as f:
            return any(u.get("claiming") for u in json.load(f)["units"] if u["controlGroup"] == self.path)


def send(method, path, **parameters):
    """A call of nobody, whose turns have pauses between them."""
    with as_nobody():
        v = Varlink(timeout=60)
    v.send(method, dict(parameters, unit=path))
    return v


def is_idle(unit):
    """Returns the figures if nothing is in flight or open."""
    f = server_figures(unit)
    return f["inFlight"] == 0 and lookup(f, "connections.open") == 0 and f


def same(unit, n, what):
    """Checks the count, and that nothing is in flight or open."""
    expect_total(unit, n, what=what)
    f = wait_for("nothing is in flight and all is closed", lambda: is_idle(unit))
    equal(f["latency"]["count"], n, f"latency.count {what}")


@test(own_daemon=True, deadline=120)
def calls_of_root_meanwhile():
    """What root waits for while a user attaches and detaches such a unit: the CPU time of the daemon between a call of
    root's, sent once the other one is being served, and its reply. All groups at once take a hundred milliseconds."""
    s, t = start_served(mode="thread"), Tree()
    pid, root, took = qosd_pid(), Varlink(), []
    for _ in range(10):
        for method in "Attach", "Detach":
            begin = cpu(pid)
            v = send(method, t.path)
            # The time of a process that runs is brought up to date by the clock tick
            wait_for("the call is being served", lambda: cpu(pid) > begin + 1000000, pause=0)
            begin = cpu(pid)
            equal(root.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
            took.append(cpu(pid) - begin)
            v.reply()
            v.close()
    took.sort()
    check(took[len(took) // 2] <= LIMIT, f"CPU time of the daemon: median {took[len(took) // 2] / 1e6:.1f} ms, "
          f"longest {[round(t / 1e6, 1) for t in took[-5:]]} ms")
    equal(qosd_pid(), pid, "process of qosd")
    daemon_is_well()


@test(own_daemon=True, deadline=120)
def calls_of_root_while_scanned():
    """What root waits for, at most, while such a unit gets the probe tls, for which its processes are searched for
    OpenSSL."""
    s, t = start_served(mode="thread"), Tree()
    # The programs stay loaded
    attach(s, "--probes=requests,tls")
    check("attached" in {p["state"] for p in programs() if p["probe"] == "tls"}, "the kernel refuses the programs")
    pid, root, longest = qosd_pid(), Varlink(), []
    with Varlink(timeout=60) as v:
        for _ in range(10):
            v.send("Attach", {"unit": t.path, "probes": ["requests", "tls"]})
            took = []
            while not select.select([v.socket], [], [], 0)[0] or len(took) % 20:
                begin = cpu(pid)
                equal(root.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
                took.append(cpu(pid) - begin)
            v.reply()
            longest.append(max(took))
            v.call("Detach", unit=t.path)
    longest.sort()
    check(longest[len(longest) // 2] <= LIMIT,
          f"longest CPU times of the daemon: {[round(t / 1e6, 1) for t in longest]} ms")
    equal(qosd_pid(), pid, "process of qosd")
    daemon_is_well()


@test(own_daemon=True, deadline=120)
def requests_of_all_groups():
    """Requests that are sent once the unit is attached are counted in all groups, also in those that were created
    meanwhile, and under load not more than were sent."""
    start_served(mode="thread")
    t = Tree(n_servers=5)
    clients = [Client(port, connections=4, number=1000000, think_us=1000) for port in t.servers]
    v = send("Attach", t.path)
    wait_for("it is attached", lambda: t.name in listed() or t.path in listed())
    late = []
    for i in range(0, WIDTH, 9):
        os.mkdir(t.directory(f"g{i}/late"))
        os.rmdir(t.directory(f"g{i}/g{WIDTH - 1 - i}"))
        if i % 36 == 0:
            late.append(t.serve(f"g{i}/late"))
    v.reply()
    sent = sum(c.stop()["answered"] for c in clients)
    n = count(t.path)
    check(0 < n <= sent, f"{n} requests were counted of {sent}")
    t.servers += late
    n += t.load(100)
    expect_total(t.path, n, what="of all groups")
    f = wait_for("nothing is in flight and all is closed", lambda: is_idle(t.path))
    # Those that were in flight when it was attached have no latency
    check(n - 4 * 5 <= f["latency"]["count"] <= n, f"latency.count {f['latency']['count']} of {n}")
    v.close()


@test(own_daemon=True, deadline=120)
def detached_meanwhile():
    """A detach ends an attach that is under way; nothing is left of it for the next one."""
    start_served(mode="thread")
    t = Tree(n_servers=3)
    for _ in range(3):
        v = send("Attach", t.path)
        wait_for("its groups are being assigned", t.is_walked, pause=0)
        with send("Detach", t.path) as other:
            other.reply()
        try:
            v.reply()
            fail("the attach succeeded")
        except VarlinkError as e:
            equal(e.name, VARLINK + "NotAttached", "error of the attach")
        v.close()
        check(t.path not in listed() and t.name not in listed(), f"listed: {listed()}")
    t.load(10)
    # Again while the groups are still being released
    with send("Attach", t.path) as v:
        v.reply()
    same(t.path, t.load(100), "of all groups")
    qosctl("detach", t.path)
    # A lease that ends
    v = send("Attach", t.path, lease=True)
    wait_for("its groups are being assigned", t.is_walked, pause=0)
    v.close()
    wait_for("it is detached", lambda: t.path not in listed() and t.name not in listed())
    with send("Attach", t.path) as v:
        v.reply()
    same(t.path, t.load(100), "of all groups, once more")
    daemon_is_well()


@test(own_daemon=True, deadline=120)
def killed_meanwhile():
    """The next run of the daemon assigns what is left."""
    start_served(mode="thread")
    t = Tree(n_servers=5)
    v = send("Attach", t.path)
    wait_for("its groups are being assigned", t.is_walked, pause=0)
    kill_qosd()
    v.close()
    wait_for("all groups are assigned", lambda: not t.is_walked(), 20)
    same(t.path, t.load(100), "of all groups")
    kill_qosd()
    same(t.path, t.load(100) * 2, "of all groups, after another crash")


@test(own_daemon=True, deadline=120)
def nested_meanwhile():
    """Units inside it that are attached and detached while its groups are being assigned, and units around it."""
    start_served(mode="thread")
    t = Tree(n_servers=5)
    inner = t.path + "/g49"
    slice = os.path.dirname(t.path)
    n = WIDTH

    # The inner one meanwhile
    v = send("Attach", t.path)
    wait_for("its groups are being assigned", t.is_walked, pause=0)
    varlink("Attach", unit=inner)
    v.reply()
    equal(t.load(n), 5 * n, "requests")
    same(inner, n, "of the inner one")
    same(t.path, 5 * n, "of the outer one")

    # The outer one is detached and attached anew, the inner one detached meanwhile
    with send("Detach", t.path) as other:
        other.reply()
    with send("Attach", t.path) as v:
        wait_for("its groups are being assigned", t.is_walked, pause=0)
        qosctl("detach", inner)
        v.reply()
    t.load(n)
    same(t.path, 5 * n, "of the outer one, after the inner one was detached")

    # It is detached inside another one, which has all requests, before and after its groups have changed hands
    varlink("Attach", unit=slice)
    before = count(slice)
    with send("Detach", t.path) as other:
        other.reply()
    t.load(n)
    expect_total(slice, before + 5 * n, what="of the slice around it, meanwhile")
    varlink("Attach", unit=t.path)
    t.load(n)
    same(t.path, 5 * n, "of the one that is attached again")
    expect_total(slice, before + 10 * n, what="of the slice around it")
    qosctl("detach", t.path)
    qosctl("detach", slice)


SLEEPERS = r"""
import threading, time
threading.stack_size(65536)
for _ in range(3000):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


@test(own_daemon=True, deadline=180)
def calls_of_root_beside_many_threads():
    """What root waits for while a user has the 3000 threads of a unit read on 32 connections all the time: never for a
    whole reading."""
    s = start_served(mode="thread")
    # The programs that Diagnose needs stay loaded: loading them takes a hundred milliseconds
    attach(s, "--probes=requests,cpu,memory,block")
    t = Unit("/bin/sleep infinity", type="exec", settings="User=nobody\nDelegate=yes\nTasksMax=infinity\n")
    t.start()
    pid, stop = qosd_pid(), threading.Event()
    with subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True) as sleepers:
        try:
            with open(f"/sys/fs/cgroup{t.control_group}/cgroup.procs", "w") as f:
                f.write(str(sleepers.pid))
            equal(sleepers.stdout.readline(), "ready\n", "the threads")
            attach(t, "--probes=requests,cpu")
            for method, n in ("Threads", 64), ("Resources", 64), ("Diagnose", 8):
                longest, replies, errors = {}, [], set()
                with as_nobody():
                    clients = [Varlink(timeout=60) for _ in range(32)]

                def go_on(v, method=method, replies=replies, errors=errors):
                    # Until the connection is shut down
                    with contextlib.suppress(Failed, OSError):
                        while not stop.is_set():
                            try:
                                v.call(method, unit=t.control_group)
                                replies.append(method)
                            except VarlinkError as e:
                                errors.add(e.name)

                if method == "Threads":
                    begin = cpu(pid)
                    # The most in one reply
                    equal(len(clients[0].call(method, unit=t.control_group)["threads"]), 1000, "threads")
                    whole = cpu(pid) - begin
                stop.clear()
                threads = [threading.Thread(target=go_on, args=(v,)) for v in clients]
                for thread in threads:
                    thread.start()
                with Varlink() as root:
                    while len(longest) < 7 or len(replies) < n:
                        begin = cpu(pid)
                        equal(root.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
                        # One reading serves all for a second
                        second = time.monotonic_ns() // SEC
                        longest[second] = max(cpu(pid) - begin, longest.get(second, 0))
                stop.set()
                for v in clients:
                    v.socket.shutdown(socket.SHUT_RDWR)
                for thread in threads:
                    thread.join()
                equal(errors, {VARLINK + "TooManyDiagnoses"} if method == "Diagnose" else set(), f"errors of {method}")
                # A reply is made at once, which is two fifths of the whole; what it is about is read in turns
                typical = sorted(longest.values())[len(longest) // 2]
                check(typical <= whole // 2, f"CPU time of the daemon beside {method}: {typical / 1e6:.1f} ms, "
                      f"where all that one call of Threads needs takes {whole / 1e6:.1f} ms")
        finally:
            sleepers.kill()
    equal(qosd_pid(), pid, "process of qosd")
    daemon_is_well()
