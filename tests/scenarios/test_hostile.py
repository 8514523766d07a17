# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients that send what no parser understands, beside others: the figures of a unit stay what they were, and there."""

import contextlib
import os
import socket
import threading
import time

import scenario
from scenario import check, equal, expect_total, qosctl, qosctl_json, server_figures, smaller, snapshot, test, total, wait_for
from test_http import Client, Nginx, get

JUNK = bytes(range(0x80, 0xa8))
HEAD = b"HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n"


def until_end(c):
    """All that the server says until it hangs up."""
    data = b""
    c.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while part := c.recv(65536):
            data += part
    return data


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def junk_behind(port, request, hang_up=True):
    """A request, three bytes of junk, forty more; hangs up at once, or when the server does. Returns what that said."""
    with connect(port) as c, contextlib.suppress(ConnectionError):
        c.sendall(request + JUNK[:3])
        c.sendall(JUNK)
        return b"" if hang_up else until_end(c)


class Attack:
    """One connection after the other, from several threads, as fast as they are served."""

    def __init__(self, function, *arguments):
        self.running, self.number = True, 0
        self.function, self.arguments = function, arguments
        self.threads = [threading.Thread(target=self.run) for _ in range(4)]

    def run(self):
        while self.running:
            with contextlib.suppress(OSError):
                self.function(*self.arguments)
            self.number += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        wait_for("the attack goes on", lambda: self.number > 20)
        return self

    def __exit__(self, *_):
        self.running = False
        for t in self.threads:
            t.join()


@test(deadline=60)
def junk_behind_requests():
    """A request with junk behind it is a request, and the junk another one, with the error that the server says."""
    n = Nginx()
    sent = refused = 0
    with n.connect() as c:
        for i in range(smaller(200)):
            c.ask(get("/file"))
            data = junk_behind(n.port, get("/file").encode() * (i % 4 + 1), hang_up=False)
            equal((data.count(b"HTTP/1.1 200"), data.count(b"HTTP/1.1 400")), (i % 4 + 1, 1), "responses")
            sent += i % 4 + 3
            refused += 1
    n.expect(sent, refused, what="with junk behind requests")
    equal(server_figures(n)["clientAborts"], 0, "clientAborts")


@test(deadline=60)
def pipelines_of_head():
    """Hundreds of HEAD at once are as many requests."""
    n = Nginx()
    before = 0
    for number in 60, 65, 200, 500:
        with n.connect() as c:
            c.send(HEAD * number + get("/file").encode())
            for _ in range(number):
                equal(c.answer(bare=True)[0], 200, "status")
            equal(len(c.answer()[1]), 3000, "length of the last response")
        before += number + 1
        n.expect(before, what=f"with {number} of HEAD at once")
