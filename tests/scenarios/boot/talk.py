# SPDX-License-Identifier: LGPL-2.1-or-later
"""The server and the client of the units in this directory."""

import socket
import sys
import time


def serve(port):
    with socket.create_server(("127.0.0.1", port)) as s:
        while True:
            c = s.accept()[0]
            while c.recv(100):
                c.sendall(b"answer")


def ask(port, number):
    while True:
        try:
            s = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    for _ in range(number):
        s.sendall(b"question")
        s.recv(100)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    ask(int(sys.argv[2]), int(sys.argv[3]))
