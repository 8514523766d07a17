# SPDX-License-Identifier: LGPL-2.1-or-later
"""Diagnoses of units that wait for locks of their own, of files, of databases, and for turns in accepting."""

import contextlib
import os
import socket
import time

import scenario
from diagnosing import (NEEDS, Toiler, backend, case, fetching, found, loaded, mariadb, postgresql, said, script,
                        wait_for_listener, waiter)
from scenario import check, equal, test, unit_name, wait_for


@case("lock", also=("dependency",), quiet="light", recorded=True)
def exhausted_pool():
    """Eight requests at a time share a pool of two connections to another server."""
    slow = backend(20000)
    u = script(f"""
import queue, socket
pool = queue.Queue()
for _ in range(2):
    pool.put(socket.create_connection(('127.0.0.1', {slow.port})))
def need():
    c = pool.get()
    c.sendall(bytes(64))
    c.recv(4096)
    pool.put(c)
""" + NEEDS)
    with fetching(u.port, "/", n=8) as times:
        wait_for("some responses", lambda: len(times) > 20)
        d = yield u
    f = found(d, "lock")
    check(f["state"] == "park" and "released by" in f["text"], f"what it waits for: {f}")


@case("lock", quiet="light")
def hot_mutex():
    """Each of eight threads holds one mutex for a while."""
    s = Toiler(lock_us=2000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "lock")
    equal((f["state"], f["certainty"]), ("lock", "certain"), f"what it waits for: {f}")
    check(f["resource"].endswith(":hot_mutex") and "released by toiler (" in f["text"], f"the lock and its holder: {f}")


@case("lock", quiet="light")
def hot_turn():
    """Eight threads wait for a single resource at a condition variable, where idle threads would wait as well."""
    s = Toiler(turn_us=2000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "lock")
    equal((f["state"], f["certainty"]), ("park", "possible"), f"what it waits for: {f}")
    check("toiler:hot_turn" in f["resource"] and "released by toiler (" in f["text"],
          f"the condition variable and the thread that signals it: {f}")


@case("lock", also=("cpu", "limit"), recorded=True)
def one_file():
    """Threads wait for the kernel's lock of a file that each response is written to. The file is in memory, so that no
    thread waits for a disk, and writing takes CPU time as well."""
    path = f"/run/{scenario.prefix}.file"
    s = Toiler(sync=path, sync_size=16 << 20)
    try:
        with loaded(s, connections=8):
            d = yield s
    finally:
        s.stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    f = found(d, "lock")
    check(f["state"] == "disk" and f["resource"].startswith("lock in ") and "released by toiler (" in f["text"],
          f"the lock and its holder: {f}")


@case(quiet="light", recorded=True)
def rows():
    """Clients of PostgreSQL update different rows, and do not wait for each other."""
    with postgresql() as u:
        with u.load("\\set id random(1, 1000)\nbegin;\nupdate accounts set n = n + 1 where id = :id;\n\\sleep 5 "
                    "ms\nend;\n", clients=6):
            yield u


@case("lock", quiet="light", recorded=True)
def row_of_postgresql():
    """Two clients of PostgreSQL update one row, and one of them holds its lock for a while each time."""
    with postgresql() as u:
        with u.load("begin;\nupdate accounts set n = n + 1 where id = 1;\n\\sleep 30 ms\nend;\n", name="holder"), \
                u.load("update accounts set n = n + 1 where id = 1;\n\\sleep 5 ms\n", name="writer"):
            holder, writer = (u.ask(f"select pid from pg_stat_activity where application_name = '{name}'")
                              for name in ("holder", "writer"))
            d = yield u
    f = found(d, "lock")
    equal((f["certainty"], f["state"], f["resource"]), ("possible", "poll", f"a signal to process {writer}"),
          f"what it waits for: {f}")
    check(f"released by postgres ({holder})" in f["text"], f"the holder of the row is {holder}: {f}")


def change(row):
    return f"update accounts set n = n + 1 where id = {row}"


@case("lock", quiet="light", recorded=True)
def row_of_mariadb():
    """Two clients of MariaDB update one row, and one of them holds its lock for a while each time."""
    with mariadb() as u:
        with u.session("holder", "begin", change(1), 0.03, "commit"), u.session("writer", change(1), 0.005):
            holder = u.ask("select tid from information_schema.processlist where user = 'holder'")
            d = yield u
    f = found(d, "lock")
    equal((f["certainty"], f["state"]), ("possible", "park"), f"what it waits for: {f}")
    check(f["resource"].startswith("0x") and f"({holder})" in f["text"], f"the holder of the row is {holder}: {f}")


@case(quiet="light", recorded=True)
def rows_of_mariadb():
    """Two clients of MariaDB update different rows, and do not wait for each other."""
    with mariadb() as u:
        with u.session("holder", "begin", change(1), 0.03, "commit"), u.session("writer", change(2), 0.005):
            yield u


@case("lock", quiet="light")
def batch_behind_a_mutex():
    """In a unit that is no server, four threads wait for a mutex that a fifth does not release, and a sixth one works
    at times."""
    u = waiter("mutex:4", "work:1")
    d = yield u
    f = found(d, "lock")
    equal((f["state"], f["certainty"], d["figures"]["rate"]), ("lock", "likely", 0), f"what it waits for: {said(d)}")
    check(3.9 < d["figures"]["threads"]["lock"] < 4.1 and f["share"] > 0.5, f"number of threads, and share: {said(d)}")
    check(f["resource"].endswith(":mutex") and "4.0 threads on average" in f["text"], f"the lock: {f}")


# Three processes that call accept() under a lock of that kind, as those of Apache and Postfix do. With "work", one more
# holds another lock of that kind all the time, and a fifth waits for that.
TAKES_TURNS = """
import ctypes, fcntl, mmap, os, socket, sys, time
s, kind = socket.create_server(('127.0.0.1', int(sys.argv[1]))), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
def mutex(robust):
    shared = ctypes.c_char.from_buffer(mmap.mmap(-1, 4096))
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutexattr_setrobust(attributes, robust)
    libc.pthread_mutex_init(ctypes.byref(shared), attributes)
    return [lambda f=f: f(ctypes.byref(shared)) for f in (libc.pthread_mutex_lock, libc.pthread_mutex_unlock)]
def semaphore():
    number = libc.semget(0, 1, 0o1600)
    operation = lambda n: libc.semop(number, (ctypes.c_short * 3)(0, n, 0), 1)
    operation(1)
    return lambda: operation(-1), lambda: operation(1)
def file(take, path):
    opened = {}
    def own():
        return opened.setdefault(os.getpid(), os.open(path, os.O_RDWR | os.O_CREAT))
    return lambda: take(own(), fcntl.LOCK_EX), lambda: take(own(), fcntl.LOCK_UN)
def new(name):
    return {'futex': lambda: mutex(0), 'robust': lambda: mutex(1), 'semaphore': semaphore,
            'flock': lambda: file(fcntl.flock, sys.argv[2] + name), 'fcntl': lambda: file(fcntl.lockf, sys.argv[2] + name)}[kind]()
(lock, unlock), (other_lock, _) = new('.turn'), new('.work')
if 'work' in sys.argv and (os.fork() == 0 or os.fork() == 0):
    other_lock()
    time.sleep(1000)
os.fork() and os.fork()
while True:
    lock()
    c, _ = s.accept()
    unlock()
    c.close()
"""


def takes_turns(kind, *options):
    """Starts processes that accept connections in turns. Those that wait for theirs are idle."""
    u = script(TAKES_TURNS, f"/run/{unit_name('turns', '')}", kind, *options)
    scenario.attach(u, "--probes=requests,cpu")
    if kind == "futex":
        # Its holder is known of waits that begin when the unit is attached
        scenario.systemctl("restart", u.name)
        wait_for_listener(u.port)
    return u


def states(u):
    return sorted(t["state"] for t in scenario.varlink("Threads", unit=u.name)["threads"])


@case(quiet="light")
def idle_behind_a_file_lock():
    """The states of processes behind the other kinds of locks are in turns_beside_a_lock(), and what states say is in
    test-diagnosis-waits."""
    u = takes_turns("flock")
    wait_for("one process waits in accept(), two are idle", lambda: states(u) == ["park", "park", "socket"])
    yield u


KINDS = ("flock", "fcntl", "futex", "robust", "semaphore")


@test(deadline=60, vm="nightly")
def turns_beside_a_lock():
    """A process that waits for the lock of another one that sleeps is not idle, beside processes that accept
    connections in turns by a lock of the same kind. The waits begin before the unit is attached, and after that."""
    for kind in KINDS:
        u = takes_turns(kind, "work")
        wait_for(f"{kind}: two processes are idle, one is not",
                 lambda: states(u) == ["lock", "park", "park", "sleep", "socket"])
        scenario.systemctl("restart", u.name)
        wait_for(f"{kind}: the same after a restart", lambda: states(u) == ["lock", "park", "park", "sleep", "socket"])
        u.stop()


@test(deadline=60)
def turns_with_connections():
    """Processes that accept connections in turns are idle between these."""
    for kind in KINDS:
        u = takes_turns(kind)
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", u.port)) as c:
                c.recv(1)
            time.sleep(.005)
        threads = scenario.varlink("Threads", unit=u.name)["threads"]
        times = {s: sum(t["times"][s] for t in threads) for s in ("lock", "park", "socket")}
        check(times["lock"] < times["park"] / 10, f"{kind}: times by state: {times}")
        u.stop()
