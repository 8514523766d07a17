#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A server that measures how long it waits, and for what:

    phases.py PORT COMPUTE SLEEP LOCK PIPE [handed]

For each request of 64 bytes it computes, sleeps, waits for a lock that another process holds, waits for that process to
write to a pipe, and sends a response; the arguments are the times for this in ms. When a client has disconnected, the
server writes to a file how long it was in each of these calls and how long it ran, in nanoseconds as JSON. With
"handed", one thread reads requests, and another one sends the responses."""

import fcntl
import json
import os
import queue
import socket
import sys
import threading
import time

port = int(sys.argv[1])
compute, sleep, lock, pipe = (int(ms) / 1000 for ms in sys.argv[2:6])
handed = sys.argv[6:] == ["handed"]
took = {"running": 0, "sleep": 0, "lock": 0, "pipe": 0}


def receive(s, size):
    data = b""
    while len(data) < size:
        more = s.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def partner(path, orders, answers, thread):
    def waits():
        # What has just been woken is not asleep until it waits for the next thing
        while True:
            with open(f"/proc/{thread}/stat") as stat:
                if stat.read().rsplit(") ", 1)[1][0] == "S":
                    return

    with open(path) as f:
        while os.read(orders, 1):
            fcntl.flock(f, fcntl.LOCK_EX)
            os.write(answers, b"x") # the lock is held
            waits()
            time.sleep(lock)
            fcntl.flock(f, fcntl.LOCK_UN)
            waits()
            time.sleep(pipe)
            os.write(answers, b"x")
    os._exit(0)


listener = socket.create_server(("127.0.0.1", port))
path = f"{os.environ['RUNTIME_DIRECTORY']}/lock"
open(path, "w").close()
orders, answers = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(orders[1])
    listener.close()
    partner(path, orders[0], answers[1], thread=os.getppid())
file = open(path)


def phase(name, action):
    begin = time.monotonic_ns()
    action()
    took[name] += time.monotonic_ns() - begin


def spin():
    end = time.thread_time() + compute
    while time.thread_time() < end:
        pass


def answer(s):
    begin = time.thread_time_ns()
    spin()
    phase("sleep", lambda: time.sleep(sleep))
    os.write(orders[1], b"x")
    phase("pipe", lambda: os.read(answers[0], 1))
    phase("lock", lambda: fcntl.flock(file, fcntl.LOCK_EX))
    fcntl.flock(file, fcntl.LOCK_UN)
    phase("pipe", lambda: os.read(answers[0], 1))
    took["running"] += time.thread_time_ns() - begin
    s.sendall(b"a" * 128)


def work(q):
    while True:
        answer(q.get())


waiting = queue.SimpleQueue()
if handed:
    threading.Thread(target=work, args=(waiting,), daemon=True).start()

if "NOTIFY_SOCKET" in os.environ:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
while True:
    s, _ = listener.accept()
    with open(f"{os.environ['RUNTIME_DIRECTORY']}/took", "w") as f:
        json.dump(took, f)
    while receive(s, 64):
        if handed:
            waiting.put(s)
        else:
            answer(s)
    with open(f"{os.environ['RUNTIME_DIRECTORY']}/took", "w") as f:
        json.dump(took, f)
