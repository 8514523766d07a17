# SPDX-License-Identifier: LGPL-2.1-or-later
"""An HTTP/2 client with which a test controls each frame, and if needed each byte of it. With an SSL context, it uses
TLS."""

import base64
import random
import socket
import struct
import time

import hpack
from scenario import check, equal

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITISED = 0x4, 0x8, 0x20
INTERNAL_ERROR, CANCEL = 2, 8
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE = 1, 2, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(type, flags=0, stream=0, payload=b""):
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", type, flags, stream) + payload


def settings(values):
    return b"".join(struct.pack("!HI", *v) for v in values.items())


class Stream:
    def __init__(self):
        self.status = None
        self.interim = []
        self.fields = {}
        self.body = b""
        self.end = None         # "end", or the error code of the RST_STREAM
        self.since = time.monotonic_ns()
        self.headed = None      # ns from then until the header of the response was read
        self.took = None        # and its end

    def finish(self):
        self.end = "end"
        self.took = time.monotonic_ns() - self.since


class Client:
    """A connection whose flow control windows are so large that they never limit the server."""

    def __init__(self, port, address="127.0.0.1", begin=True, seed=None, context=None, **values):
        self.socket = socket.create_connection((address, port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket)
        self.port = port
        self.buffer = b""
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.decoder.max_allowed_table_size = max(values.get("header_table_size", 4096), 4096)
        self.streams = {}
        self.last = -1
        self.goaway = None
        self.seed = seed and random.Random(seed)
        self.settings = settings({INITIAL_WINDOW_SIZE: 0x70000000, ENABLE_PUSH: values.get("push", 0),
                                  HEADER_TABLE_SIZE: values.get("header_table_size", 4096)})
        if begin:
            self.begin()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def begin(self):
        self.send(PREFACE + frame(SETTINGS, 0, 0, self.settings)
                  + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 0x70000000)))

    def send(self, data):
        """Sends data; with a seed in pieces of random size, each in a segment of its own."""
        while data:
            n = self.seed.choice([1, 2, 5, 9, 10, 50, 1000, len(data)]) if self.seed else len(data)
            self.socket.sendall(data[:n])
            data = data[n:]

    def request(self, path, method="GET", body=None, fields=(), pieces=1, padding=None, priority=False, trailers=()):
        """Returns the number of a new stream, and the frames of a request on it."""
        self.last += 2
        self.streams[self.last] = Stream()
        block = self.encoder.encode([(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path),
                                     *fields])
        pieces = min(pieces, len(block))
        cuts = [len(block) * i // pieces for i in range(pieces + 1)]
        parts = [block[a:b] for a, b in zip(cuts, cuts[1:])]
        flags = (0 if body is not None or trailers else END_STREAM) | (END_HEADERS if pieces == 1 else 0)
        first = parts[0]
        if priority:
            flags |= PRIORITISED
            first = struct.pack("!IB", 0x80000000, 200) + first
        if padding is not None:
            flags |= PADDED
            first = bytes([padding]) + first + bytes(padding)
        frames = [frame(HEADERS, flags, self.last, first)]
        frames += [frame(CONTINUATION, END_HEADERS if p is parts[-1] else 0, self.last, p) for p in parts[1:]]
        if body is not None:
            for i in range(0, max(len(body), 1), 16000):
                part, end = body[i:i + 16000], END_STREAM if i + 16000 >= len(body) and not trailers else 0
                # The server's library rejects padding of an empty DATA frame, although HTTP/2 allows it
                if padding is None or not part:
                    frames.append(frame(DATA, end, self.last, part))
                else:
                    frames.append(frame(DATA, end | PADDED, self.last, bytes([padding]) + part + bytes(padding)))
        if trailers:
            frames.append(frame(HEADERS, END_STREAM | END_HEADERS, self.last, self.encoder.encode(trailers)))
        return self.last, b"".join(frames)

    def start(self, path, **keywords):
        stream, data = self.request(path, **keywords)
        self.send(data)
        return stream

    def ask(self, path, **keywords):
        return self.wait(self.start(path, **keywords))

    def upgrade(self, path):
        """Sends the first request as HTTP/1.1 with an upgrade to HTTP/2, in which the server sends the response."""
        encoded = base64.urlsafe_b64encode(self.settings).rstrip(b"=").decode()
        self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                  f"HTTP2-Settings: {encoded}\r\n\r\n".encode())
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        equal(head.split()[1], b"101", "status of the upgrade")
        self.last = 1
        self.streams[1] = Stream()
        self.begin()
        return self.wait(1)

    def reset(self, stream, code=CANCEL):
        self.send(frame(RST_STREAM, 0, stream, struct.pack("!I", code)))

    def fill(self):
        data = self.socket.recv(262144)
        check(data, f"the connection ended; GOAWAY: {self.goaway}")
        self.buffer += data

    def read(self):
        """Reads and handles the next frame of the server."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            self.fill()
        size = int.from_bytes(self.buffer[:3], "big")
        type, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
        payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
        if type in (DATA, HEADERS, PUSH_PROMISE) and flags & PADDED:
            payload = payload[1:len(payload) - payload[0]]
        if type == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK))
        elif type == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif type in (HEADERS, PUSH_PROMISE):
            if type == HEADERS and flags & PRIORITISED:
                payload = payload[5:]
            if type == PUSH_PROMISE:
                stream, payload = int.from_bytes(payload[:4], "big"), payload[4:]
                self.streams[stream] = Stream()
            self.block, self.block_end, self.promise = payload, flags & END_STREAM, type == PUSH_PROMISE
        elif type == CONTINUATION:
            self.block += payload
        if type in (HEADERS, PUSH_PROMISE, CONTINUATION) and flags & END_HEADERS:
            fields = dict(self.decoder.decode(self.block))
            s = self.streams[stream]
            if ":status" in fields and fields[":status"].startswith("1"):
                s.interim.append(int(fields[":status"]))
            elif not self.promise:
                s.status = int(fields.get(":status", s.status or 0))
                s.fields.update(fields)
                s.headed = s.headed or time.monotonic_ns() - s.since
                if self.block_end:
                    s.finish()
        elif type == DATA:
            self.streams[stream].body += payload
            if flags & END_STREAM:
                self.streams[stream].finish()
        elif type == RST_STREAM and self.streams[stream].end is None:
            self.streams[stream].end = int.from_bytes(payload, "big")
        elif type == GOAWAY:
            self.goaway = struct.unpack("!II", payload[:8])
        return type, flags, stream, payload

    def wait(self, stream):
        while self.streams[stream].end is None:
            self.read()
        return self.streams[stream]

    def wait_all(self, streams):
        return [self.wait(s) for s in streams]
