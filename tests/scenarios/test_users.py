# SPDX-License-Identifier: LGPL-2.1-or-later
"""A person with many user ids, each of which is a user of its own to the daemon: a user namespace has 65536 of them.
What root waits for is the CPU time of the daemon between a call of root's, on a new connection or not, and its
reply."""

import socket
import subprocess
import sys

from scenario import VARLINK_SOCKET, Varlink, check, daemon_is_well, equal, qosd_pid, start_served, test
from test_clients import LIMIT, cpu

FIRST, USERS, EACH = 100000, 22, 100
ROUNDS = 200

# Calls with large replies all the time, of which little is read, and connections that come and go
FLOOD = r"""
import contextlib, itertools, os, resource, select, socket, sys
path, first, users, each = sys.argv[1], *(int(a) for a in sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (users * each + 64,) * 2)
calls = b'{"method":"org.qosd.QoS.List","parameters":{},"more":true}\0' * 40
poll, sockets = select.poll(), {}
def connect(user, block):
    os.seteuid(first + user)
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(block)
    with contextlib.suppress(BlockingIOError):
        s.connect(path)
        s.setblocking(False)
        sockets[s.fileno()] = s, user
        poll.register(s, select.POLLIN | select.POLLOUT)
    os.seteuid(0)
def end(fd):
    poll.unregister(fd)
    s, user = sockets.pop(fd)
    s.close()
    connect(user, False)
for i in range(users * each):
    connect(i % users, True)
print("ready", flush=True)
for n in itertools.count():
    for fd, events in poll.poll(100):
        try:
            s = sockets[fd][0]
            if events & select.POLLIN:
                s.recv(512)
            elif events & select.POLLOUT:
                s.send(calls)
            else:
                end(fd)
        except BlockingIOError:
            pass
        except OSError:
            end(fd)
    end(next(iter(sockets)))
"""


class Root(Varlink):
    """A connection to the socket of root."""
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(VARLINK_SOCKET + ".root")
        self.buffer = b""


@test(own_daemon=True, deadline=120)
def many_user_ids():
    """More than two thousand connections of 22 users that send calls all the time, and come and go."""
    s = start_served(mode="thread")
    pid = qosd_pid()
    flood = subprocess.Popen([sys.executable, "-c", FLOOD, VARLINK_SOCKET, str(FIRST), str(USERS), str(EACH)],
                             stdout=subprocess.PIPE, text=True)
    try:
        equal(flood.stdout.readline(), "ready\n", "the connections")
        kept, new, old = Root(), [], []
        for _ in range(ROUNDS):
            begin = cpu(pid)
            with Root() as root:
                equal(root.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
            new.append(cpu(pid) - begin)
            begin = cpu(pid)
            equal(kept.call("Get", unit=s.name)["unit"], s.name, "unit of root's snapshot")
            old.append(cpu(pid) - begin)
        equal(flood.poll(), None, "exit status of the clients")
    finally:
        flood.kill()
        flood.wait()
    for what, took in ("new", new), ("kept", old):
        took.sort()
        check(took[ROUNDS * 99 // 100] <= LIMIT,
              f"CPU time of the daemon for root's calls on {what} connections: median "
              f"{took[ROUNDS // 2] / 1e6:.1f} ms, longest {[round(t / 1e6, 1) for t in took[-5:]]} ms")
    equal(qosd_pid(), pid, "process of qosd")
    daemon_is_well()
