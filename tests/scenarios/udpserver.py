# SPDX-License-Identifier: LGPL-2.1-or-later
"""A server on UDP.

  udpserver.py ADDRESS PORT MODE [--passed]    --passed: use the socket that the service manager has opened

Modes:
  "echo"   sends a response to each datagram. Words in the datagram change it: "size=N" to N bytes, "pieces=N" to N
           datagrams, "sleep=S" delays it by S seconds, "hang" omits it
  "dns"    sends each DNS query back as its response, of two queries the later one first; no response if the ID is a
  multiple of 10
  "sink"   sends no responses
  "ask"    is a client: sends requests to PORT, one after the other, from a port of its own that never sends a response
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
    # A port outside of the ranges that unused_port() and the kernel give to the tests' servers and clients
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
