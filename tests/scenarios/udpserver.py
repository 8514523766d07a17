# SPDX-License-Identifier: LGPL-2.1-or-later
"""A server on UDP.

  udpserver.py ADDRESS PORT MODE [--passed]    --passed: the service manager has opened the socket

Modes:
  echo     answers each datagram; "size=N" asks for N bytes, "pieces=N" for N datagrams, "sleep=S" to wait first, "hang" for none
  dns      answers questions of DNS with what they are, in pairs the later one first; none whose ID can be divided by 10
  sink     answers nothing
  ask      as a client: asks the given port, again and again, from a port of its own, and never answers
"""

import os
import socket
import sys
import time


def notify(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(message, os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))


def echo(s):
    while True:
        data, peer = s.recvfrom(65536)
        words = dict((w.split("=") + [None])[:2] for w in data.decode(errors="replace").split())
        if "hang" in words:
            continue
        if "sleep" in words:
            time.sleep(float(words["sleep"]))
        for _ in range(int(words.get("pieces", 1))):
            s.sendto(b"x" * int(words.get("size", 3)), peer)


def dns(s):
    held = None
    s.settimeout(0.05)
    while True:
        try:
            data, peer = s.recvfrom(65536)
        except TimeoutError:
            data = None
        else:
            if int.from_bytes(data[:2], "big") % 10 == 0:
                continue
            answer = data[:2] + bytes([data[2] | 0x80, data[3] | 0x80]) + data[4:]
            if not held:
                held = answer, peer
                continue
            s.sendto(answer, peer)
        if held:
            s.sendto(*held)
            held = None


def ask(port):
    # A port of its own, and far away from those of the tests' servers
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 32000 + os.getpid() % 700))
    s.settimeout(1)
    for i in range(50):
        s.sendto(b"question", ("127.0.0.1", port))
        s.recvfrom(65536)
    notify(b"READY=1")
    time.sleep(1000)


def main():
    address, port, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if mode == "ask":
        ask(port)
    if "--passed" in sys.argv:
        s = socket.socket(fileno=3)
    else:
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((address, port))
    notify(b"READY=1")
    if mode == "echo":
        echo(s)
    elif mode == "dns":
        dns(s)
    while True:
        s.recvfrom(65536)


main()
