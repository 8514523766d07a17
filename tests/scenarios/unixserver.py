# SPDX-License-Identifier: LGPL-2.1-or-later
"""A server on Unix sockets.

  unixserver.py TYPE PATH [--passed] [--held-up]     TYPE: stream, seqpacket or dgram
                                                     --passed: use the socket that the service manager has opened
                                                     --held-up: name the threads "held-up"

A request is a line of words, which determine its response. On sockets of type dgram only "hang" has an effect.
  size=N       send a response of N bytes (default 3)
  pieces=N     send the response in N pieces
  sleep=S      wait for S seconds before that
  hang         send no response
  close        close the connection instead of sending a response
  peek         from now on, peek at each request of the connection before reading it
  bytewise     from now on, read requests of the connection byte by byte
  splice       from now on, read requests of the connection with splice()
  exit         exit at once
"""

import os
import socket
import sys
import threading
import time


def notify(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(message, os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))


def read(s, how, packets):
    """Returns the next request, or several that were sent at once; nothing at the end of the connection."""
    if packets:
        return s.recv(65536)
    if how == "peek":
        s.recv(65536, socket.MSG_PEEK)
    data = b""
    while not data.endswith(b"\n"):
        if how == "splice":
            r, w = os.pipe()
            try:
                os.splice(s.fileno(), w, 65536)
                os.close(w)
                more = os.read(r, 65536)
            finally:
                os.close(r)
        else:
            more = s.recv(1 if how == "bytewise" else 65536)
        if not more:
            break
        data += more
    return data


def serve(s, packets):
    how = None
    with s:
        while True:
            data = read(s, how, packets)
            if not data:
                return
            # Requests that were read at once have one response
            size, pieces, close = 0, 1, False
            for line in data.decode().splitlines():
                words = dict((w.split("=") + [None])[:2] for w in line.split())
                if "hang" in words:
                    continue
                if "exit" in words:
                    os._exit(0)
                if "sleep" in words:
                    time.sleep(float(words["sleep"]))
                how = next((w for w in ("peek", "bytewise", "splice") if w in words), how)
                size += int(words.get("size", 3))
                pieces = max(pieces, int(words.get("pieces", 1)))
                close = close or "close" in words
            if close:
                return
            for i in range(pieces):
                n = size // pieces
                if n:
                    s.sendall(b"x" * (n - 1) + b"\n")


def main():
    if "--held-up" in sys.argv:
        with open("/proc/self/comm", "w") as f:
            f.write("held-up")
    kind = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET, "dgram": socket.SOCK_DGRAM}[sys.argv[1]]
    if "--passed" in sys.argv:
        listener = socket.socket(fileno=3)
    else:
        listener = socket.socket(socket.AF_UNIX, kind)
        path = sys.argv[2]
        if path.startswith("@"):
            path = "\0" + path[1:]
        elif os.path.exists(path):
            os.unlink(path)
        listener.bind(path)
        if kind != socket.SOCK_DGRAM:
            listener.listen(128)
    notify(b"READY=1")
    while kind == socket.SOCK_DGRAM:
        data, peer = listener.recvfrom(65536)
        if b"hang" not in data and peer:
            listener.sendto(b"ok\n", peer)
    while True:
        s, _ = listener.accept()
        threading.Thread(target=serve, args=(s, kind == socket.SOCK_SEQPACKET), daemon=True).start()


main()
