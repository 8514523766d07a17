#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""An HTTP server with long polls: intent_server.py PORT threads, or intent_server.py PORT loop [PORT...]

/fast            responds at once
/poll/SECONDS    responds when there is an event, or after that time
/event           makes one
/sleep/SECONDS   is slow: the request's own thread, or its own timer, sleeps
/hold/SECONDS    has the lock for that long
/lock            wants the lock
/watch/N/SECONDS a response with a line every so often
"""

import asyncio
import http.server
import os
import socket
import socketserver
import sys
import threading
import time


def ready():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))


event = threading.Condition()
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        verb, *arguments = self.path.strip("/").split("/")
        if verb == "poll":
            with event:
                event.wait(float(arguments[0]))
        elif verb == "event":
            with event:
                event.notify_all()
        elif verb == "sleep":
            time.sleep(float(arguments[0]))
        elif verb == "hold":
            with lock:
                time.sleep(float(arguments[0]))
        elif verb == "lock":
            with lock:
                pass
        if verb == "watch":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(int(arguments[0])):
                self.wfile.write(b"3\r\nab\n\r\n")
                time.sleep(float(arguments[1]))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Loop(asyncio.Protocol):
    waiting = set()
    reads = 0

    def connection_made(self, transport):
        self.transport = transport
        self.timer = None

    def respond(self):
        self.waiting.discard(self)
        if self.timer:
            self.timer.cancel()
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def wake(self, reads=None):
        # A response in the turn of the loop that has read another request looks like one that the other set off
        if reads == Loop.reads:
            self.respond()
        else:
            self.timer = asyncio.get_running_loop().call_later(0.005, self.wake, Loop.reads)

    def data_received(self, data):
        Loop.reads += 1
        verb, *arguments = data.split()[1].decode().strip("/").split("/")
        if verb == "poll":
            self.waiting.add(self)
            self.timer = asyncio.get_running_loop().call_later(float(arguments[0]), self.respond)
            return
        if verb == "sleep":
            self.timer = asyncio.get_running_loop().call_later(float(arguments[0]), self.wake)
            return
        if verb == "event":
            for other in list(self.waiting):
                other.respond()
        self.respond()


async def loop():
    for port in (sys.argv[1], *sys.argv[3:]):
        await asyncio.get_running_loop().create_server(Loop, "127.0.0.1", int(port))
    ready()
    await asyncio.Event().wait()


if sys.argv[2] == "loop":
    asyncio.run(loop())
else:
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    ready()
    server.serve_forever()
