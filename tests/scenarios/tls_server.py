#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""HTTP over TLS by Python's own means: tls_server.py PORT KEY CERTIFICATE HOW. threads: a thread for each connection,
SSL_read_ex() and SSL_write_ex() on the socket. memory: asyncio, which keeps the sealed bytes in buffers of its own.
later: as threads, but OpenSSL is loaded when the first client has connected. After the response to /end a thread sends
close_notify, waits for the client's, and closes the connection without reading it; after that to /closed it also waits
for the client to close."""

import os
import select
import socket
import sys
import threading

port, key, certificate, how = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]


ENDS = {"/end": select.POLLIN, "/closed": select.POLLRDHUP}


def ready():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.connect(os.environ["NOTIFY_SOCKET"])
    s.send(b"READY=1")
    s.close()


def answer(path):
    status = {"/bad": "503 Service Unavailable", "/gone": "404 Not Found"}.get(path, "200 OK")
    return f"HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nsmall".encode()


def context():
    import ssl
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(certificate, key)
    return c


def end(t, event):
    import ssl
    t.setblocking(False)
    try:
        t.unwrap()
    except ssl.SSLWantReadError:
        pass
    p = select.poll()
    p.register(t, event)
    p.poll()
    t.close()


def serve(s, c):
    with c.wrap_socket(s, server_side=True) as t:
        data = b""
        while True:
            while b"\r\n\r\n" in data:
                head, data = data.split(b"\r\n\r\n", 1)
                path = head.split()[1].decode()
                t.sendall(answer(path))
                if path in ENDS:
                    return end(t, ENDS[path])
            more = t.recv(1000)
            if not more:
                return
            data += more


def threads(c):
    listener = socket.create_server(("127.0.0.1", port))
    ready()
    while True:
        s, _ = listener.accept()
        c = c or context()
        threading.Thread(target=serve, args=(s, c), daemon=True).start()


async def memory():
    import asyncio
    async def talk(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(head.split()[1].decode()))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
    server = await asyncio.start_server(talk, "127.0.0.1", port, ssl=context())
    ready()
    await server.serve_forever()


if how == "memory":
    import asyncio # which loads OpenSSL
    asyncio.run(memory())
else:
    threads(context() if how == "threads" else None)
