# SPDX-License-Identifier: LGPL-2.1-or-later
"""A server of HTTP/1.x that does what the path of a request says, also what servers rarely do. A thread per
connection."""

import os
import socket
import sys
import threading
import time

port = int(sys.argv[1])


class Connection:
    def __init__(self, s):
        self.socket = s
        self.buffer = b""
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self.buffer += data

    def take(self, n):
        while len(self.buffer) < n:
            self.fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def line(self):
        while b"\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r").decode()

    def head(self):
        first = self.line()
        while not first:
            first = self.line()
        fields = {}
        while line := self.line():
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        return first.split(), fields

    def body(self, fields):
        if "chunked" in fields.get("transfer-encoding", "").lower():
            while size := int(self.line().split(";")[0], 16):
                self.take(size)
                self.line()
            while self.line():
                pass
        left = int(fields.get("content-length", 0))
        while left > 0:
            left -= len(self.take(min(left, 65536)))

    def send(self, *parts):
        """Each by itself."""
        for part in parts:
            self.socket.sendall(part if isinstance(part, bytes) else part.encode())

    def echo(self):
        if self.buffer:
            self.send(self.buffer)
        while data := self.socket.recv(65536):
            self.send(data)

    def serve(self):
        while True:
            (method, path, version), fields = self.head()
            if method == "CONNECT":
                self.send("HTTP/1.1 200 Connection established\r\n\r\n")
                self.echo()
                return
            words = path.partition("?")[0].split("/")[1:]
            what, n = words[0], int(words[1]) if len(words) > 1 else 0
            if what == "early":
                self.send("HTTP/1.1 413 Too large\r\nContent-Length: 4\r\n\r\nno!\n")
                self.body(fields)
                continue
            if what == "early-close":
                self.send("HTTP/1.1 413 Too large\r\nConnection: close\r\n\r\nno!\n")
                time.sleep(.1)
                return
            if "expect" in fields:
                self.send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n")
            self.body(fields)

            if what == "status":
                body = b"" if method == "HEAD" or n in (204, 304) else b"x" * 10
                self.send(b"HTTP/1.1 %d So\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n" % n + body)
            elif what == "size":
                # Head and body in two segments
                self.send(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n", *([] if method == "HEAD" else [b"b" * n]))
            elif what in ("page", "halves"):
                # n bytes that look like heads, in one segment; or the second half half a second later
                body = (b"\r\nContent-Length: 1\r\n\r\n" * (n // 23 + 1))[:n]
                data = (f"HTTP/1.1 200 OK\r\nDate: {time.time():.3f}\r\nContent-Length: {n}\r\nX-Page: "
                        f"{'x' * (int(words[2]) if len(words) > 2 else 3)}\r\n\r\n").encode()
                if method != "HEAD":
                    data += body
                half = len(data) - n // 2 if what == "halves" else len(data)
                self.send(data[:half])
                if what == "halves":
                    time.sleep(.5)
                    self.send(data[half:])
            elif what == "event":
                self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: 1\n\n")
            elif what == "chunked":
                self.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for i in range(n):
                    self.send("%x;i=%d\r\n" % (100 * i + 1, i), b"HTTP/1.1 500 "[:1] + b"c" * 100 * i + b"\r\n")
                self.send("0\r\nX-Trailer: x\r\n\r\n")
            elif what == "slow":
                # The head, and n milliseconds later the rest
                self.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                time.sleep(n / 1000)
                self.send("0\r\n\r\n")
            elif what == "late":
                time.sleep(n / 1000)
                self.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            elif what == "close":
                self.send("HTTP/1.0 200 OK\r\n\r\n", b"d" * n)
                return
            elif what == "abort":
                self.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot all of it")
                return
            elif what == "events":
                self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                for i in range(n):
                    self.send("8\r\ndata: %d\n\r\n" % (i % 10))
                    time.sleep(.02)
                if method == "POST":
                    self.send("0\r\n\r\n")
                else:
                    self.echo() # until the client goes
                    return
            elif what == "ws":
                self.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                self.echo()
                return
            elif what == "h2c":
                self.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
                self.echo()
                return

    def run(self):
        try:
            self.serve()
        except (EOFError, OSError):
            pass
        self.socket.close()


listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if "mptcp" in sys.argv[2:] else 0) # IPPROTO_MPTCP
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
listener.listen(100)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
while True:
    threading.Thread(target=Connection(listener.accept()[0]).run, daemon=True).start()
