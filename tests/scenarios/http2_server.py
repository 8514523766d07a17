# SPDX-License-Identifier: LGPL-2.1-or-later
"""An HTTP/2 server. The path of a request says what the server does. One thread serves all connections, and sends
responses when they are due, in any order. With files of a certificate and its key, it uses TLS, whose library reads
from sockets and writes to them."""

import asyncio
import os
import random
import socket
import ssl
import sys
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

port = int(sys.argv[1])
hanging = []


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.local_settings.max_header_list_size = 1 << 20
        self.h2.decoder.max_header_list_size = 1 << 20
        self.begun = False
        self.head = b""
        self.stays = False      # after an error of the client
        self.seed = None        # set: data is sent in pieces of random size
        self.paths = {}
        self.left = {}          # by stream: data that waits for flow control, and whether it ends the stream

    def connection_lost(self, error):
        self.transport = None

    def flush(self):
        data = self.h2.data_to_send()
        if not self.transport:
            return
        while data:
            n = self.seed.choice([1, 2, 5, 9, 10, 50, len(data)]) if self.seed else len(data)
            self.transport.write(data[:n])
            data = data[n:]

    def data_received(self, data):
        if not self.begun:
            self.head += data
            if b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".startswith(self.head[:24]):
                if len(self.head) < 24:
                    return
                self.h2.initiate_connection()
                data = self.head
            else:
                if b"\r\n\r\n" not in self.head:
                    return
                head, data = self.head.split(b"\r\n\r\n", 1)
                lines = head.decode().split("\r\n")
                fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
                self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
                self.h2.initiate_upgrade_connection(fields["http2-settings"])
                self.answer(1, lines[0].split()[1], time.monotonic_ns())
            # The client sends without regard to flow control
            self.h2.increment_flow_control_window(1 << 30)
            self.begun = True
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError as e:
            print(repr(e), flush=True)
            self.flush()
            if self.transport and not self.stays:
                self.transport.close()
            return
        for e in events:
            if isinstance(e, h2.events.RequestReceived):
                self.received(e)
            elif isinstance(e, h2.events.DataReceived):
                self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                path, since = self.paths.pop(e.stream_id)
                if not path.startswith("/early"):
                    self.answer(e.stream_id, path, since)
            elif isinstance(e, h2.events.WindowUpdated):
                for stream in list(self.left):
                    self.send(stream, *self.left.pop(stream))
        self.flush()

    def received(self, e):
        fields = dict(e.headers)
        self.stays = self.stays or "x-stay" in fields
        if "x-cut" in fields:
            self.seed = random.Random(fields["x-cut"])
        self.paths[e.stream_id] = fields[":path"], time.monotonic_ns()
        if fields[":path"].startswith("/early"):
            self.head_of(e.stream_id, 413)
            self.send(e.stream_id, b"no!", True)
            self.h2.reset_stream(e.stream_id, h2.errors.ErrorCodes.NO_ERROR)

    def head_of(self, stream, status, *fields, end=False):
        self.h2.send_headers(stream, [(":status", str(status)), ("x-serial", str(time.monotonic_ns())), *fields],
                             end_stream=end)

    def send(self, stream, data, end):
        """Sends as much as the windows of the stream and the connection allow, and the rest when they are updated."""
        while True:
            n = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if n < len(data) and n <= 0:
                self.left[stream] = data, end
                return
            self.h2.send_data(stream, data[:n], end_stream=end and n == len(data))
            data = data[n:]
            if not data:
                return

    def later(self, ms, what, *arguments):
        def now():
            if self.transport:
                try:
                    what(*arguments)
                except h2.exceptions.ProtocolError:
                    pass        # the client has reset the stream
                self.flush()
        asyncio.get_running_loop().call_later(ms / 1000, now)

    def answer(self, stream, path, since):
        words = path.split("?")[0].split("/")[1:]
        what, n = words[0], int(words[1]) if len(words) > 1 else 0

        if what == "status":
            if n == 204:
                self.head_of(stream, n, end=True)
            else:
                self.head_of(stream, n)
                self.send(stream, b"x" * 10, True)
        elif what == "size":
            self.head_of(stream, 200)
            self.send(stream, b"b" * n, True)
        elif what == "headers":
            # Larger than one frame, and than the dynamic table of HPACK
            self.head_of(stream, 200, *((f"x-{i}", "%032x" % random.getrandbits(128)) for i in range(n)))
            self.send(stream, b"h", True)
        elif what == "late":
            # The body of the response has the time since the request, in nanoseconds
            def late():
                self.head_of(stream, words[2])
                self.send(stream, str(time.monotonic_ns() - since).encode(), True)
            self.later(n, late)
        elif what == "slow":
            # The body follows n milliseconds after the head
            self.head_of(stream, 200)
            self.later(n, lambda: self.send(stream, str(time.monotonic_ns() - since).encode(), True))
        elif what == "hang":
            hanging.append((self, stream))
        elif what == "release":
            for connection, held in hanging:
                connection.later(0, connection.answer, held, "/status/200", 0)
            hanging.clear()
            self.answer(stream, "/status/200", since)
        elif what == "interim":
            self.h2.send_headers(stream, [(":status", "103"), ("link", "</x>")])
            self.answer(stream, "/status/200", since)
        elif what == "trailers":
            self.head_of(stream, 200)
            self.send(stream, b"t" * n, False)
            self.h2.send_headers(stream, [("x-trailer", "503")], end_stream=True)
        elif what == "refuse":
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif what == "abort":
            self.head_of(stream, 200)
            self.send(stream, b"not all of it", False)
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif what == "goaway":
            self.answer(stream, "/status/200", since)
            self.h2.close_connection()
            self.flush()
            self.transport.close()
        elif what == "ping":
            self.h2.ping(b"12345678")
            self.answer(stream, "/status/200", since)


class Secure:
    """The transport of a connection with TLS. That of asyncio passes what it has read to the library."""

    def __init__(self, s, protocol):
        self.socket, self.protocol = s, protocol
        asyncio.get_running_loop().add_reader(s, self.read)
        protocol.connection_made(self)

    def read(self):
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        if data:
            self.protocol.data_received(data)
        else:
            self.close()

    def write(self, data):
        self.socket.sendall(data)

    def close(self):
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()
        self.protocol.connection_lost(None)


async def main():
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[2:])
        listener = context.wrap_socket(socket.create_server(("0.0.0.0", port), backlog=100), server_side=True)
        asyncio.get_running_loop().add_reader(listener, lambda: Secure(listener.accept()[0], Connection()))
    else:
        await asyncio.get_running_loop().create_server(Connection, "0.0.0.0", port, backlog=100)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
    await asyncio.Event().wait()

asyncio.run(main())
