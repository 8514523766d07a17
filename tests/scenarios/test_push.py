# SPDX-License-Identifier: LGPL-2.1-or-later
"""Protocols in which the server sends messages of its own: what a client sends in reaction to one is no request, and
the next message no response to it."""

import contextlib
import socket
import time

import scenario
from scenario import Unit, attach, check, equal, expect_total, run, server_figures, test, unused_port, wait_for

# An event loop that passes requests of a client to a worker, and its replies to the client
BROKER = """
import selectors, socket, sys
loop, peers = selectors.DefaultSelector(), {}
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
loop.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in loop.select():
        s = key.fileobj
        if s is listener:
            c, _ = s.accept()
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop.register(c, selectors.EVENT_READ)
            continue
        word = s.recv(4096)
        if not word:
            loop.unregister(s)
            s.close()
        elif word in (b'~su', b'~as'):
            peers[word] = s
            s.sendall(b'+OK')
        elif word == b'~sn':
            peers[b'~su'] = s
        elif word == b'~rq':
            peers[word] = s
            peers[b'~su'].sendall(b'MSG')
        elif word == b'~rp':
            peers[b'~rq'].sendall(b'RES')
        elif word == b'~de':
            s.sendall(b'+OK')
"""


def broker():
    path, port = f"/run/{scenario.unit_name('broker', '.py')}", unused_port()
    with open(path, "w") as f:
        f.write(BROKER)
    # What sets off the responses of an event loop that is preempted meanwhile is no proof
    u = attach(Unit(f"/usr/bin/python3 {path} {port}", type="exec", settings="CPUSchedulingPolicy=fifo"))
    u.start()
    wait_for("it listens", lambda: str(port) in run("ss", "-ltnH", f"sport = :{port}").stdout)
    u.port = port
    return u


def connect(u):
    s = socket.create_connection(("127.0.0.1", u.port), timeout=20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def exchange(s, word):
    s.sendall(word)
    equal(len(s.recv(3, socket.MSG_WAITALL)), 3, f"response to {word}")


@test()
def requests_of_one_client_to_another():
    """A broker passes two hundred requests to a worker: they are requests of the client, and the replies of the worker
    are none. Those that the worker sends itself are."""
    u = broker()
    with contextlib.ExitStack() as stack:
        worker, client = (stack.enter_context(connect(u)) for _ in range(2))

        def pass_on(n):
            for _ in range(n):
                client.sendall(b"~rq")
                equal(worker.recv(3, socket.MSG_WAITALL), b"MSG", "message to the worker")
                worker.sendall(b"~rp")
                equal(client.recv(3, socket.MSG_WAITALL), b"RES", "response to the client")
        exchange(worker, b"~su")
        # What follows sooner is part of the response
        time.sleep(1.1)
        pass_on(200)
        expect_total(u, 201)
        # Its requests have responses, right behind which messages come
        for _ in range(10):
            exchange(worker, b"~as")
            pass_on(10)
        expect_total(u, 311)
        f = server_figures(u)
        equal((f["latency"]["count"], f["unparsed"]["connections"]), (311, 0), "latency.count, unparsed connections")
        check(f["latency"]["max"] < scenario.SEC, f"longest latency: {f['latency']}")


@test()
def worker_without_acknowledgements():
    """As in NATS: a worker subscribes, and nothing but the first message responds to that. It has waited by intent. The
    requests that follow are the client's, fast and slow ones, and none is in flight behind the last reply."""
    u = broker()
    with contextlib.ExitStack() as stack:
        worker, client = (stack.enter_context(connect(u)) for _ in range(2))

        def pass_on(n, pause):
            for _ in range(n):
                client.sendall(b"~rq")
                equal(worker.recv(3, socket.MSG_WAITALL), b"MSG", "message to the worker")
                time.sleep(pause)
                worker.sendall(b"~rp")
                equal(client.recv(3, socket.MSG_WAITALL), b"RES", "response to the client")
        worker.sendall(b"~sn")
        wait_for("the subscription is read", lambda: server_figures(u)["inFlight"] == 1)
        time.sleep(0.3)
        pass_on(1, 0)
        expect_total(u, 2)
        pass_on(200, 0.002)
        pass_on(5, 0.15)
        pass_on(50, 0)
        expect_total(u, 257)
        f = server_figures(u)
        equal((f["latency"]["count"], f["intended"]["count"]), (256, 1), "latency.count, intended.count")
        wait_for("no request waits but by intent", lambda: "oldestInFlight" not in server_figures(u))


@test()
def worker_that_requests_jobs():
    """As in beanstalkd: a job responds to a request that has waited by intent, and so does what deletes it. Jobs that
    come soon respond to requests as well, and all are counted."""
    u = broker()
    with contextlib.ExitStack() as stack:
        worker, client = (stack.enter_context(connect(u)) for _ in range(2))
        for pause in [0.3] + [0.02] * 20:
            worker.sendall(b"~sn")
            time.sleep(pause)
            client.sendall(b"~rq")
            equal(worker.recv(3, socket.MSG_WAITALL), b"MSG", "job")
            exchange(worker, b"~de")
        worker.sendall(b"~rp")
        equal(client.recv(3, socket.MSG_WAITALL), b"RES", "response to the client")
        expect_total(u, 43)
        equal(server_figures(u)["intended"]["count"], 1, "intended.count")
