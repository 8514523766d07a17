#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prints the rate and the 99th percentile of units once a second, by varlink without a library: rates.py [UNIT...].

A larger client of the same interfaces is the page for Cockpit: docs/COCKPIT.md"""

import json
import socket
import sys


def stream(method, parameters, path="/run/qosd/org.qosd.QoS"):
    """The parameters of all replies to a call. A message is JSON, and ends with a byte of 0."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(json.dumps({"method": method, "parameters": parameters, "more": True}).encode() + b"\0")
        buffer = b""
        while data := s.recv(65536):
            *messages, buffer = (buffer + data).split(b"\0")
            for message in map(json.loads, messages):
                if "error" in message:
                    sys.exit(f"{message['error']}: {message['parameters'].get('message', '')}")
                yield message["parameters"]


for reply in stream("org.qosd.QoS.Subscribe", {"units": sys.argv[1:], "interval": 1000000000}):
    snapshot = reply["snapshot"]
    # What was not measured is left out
    server = snapshot.get("requests", {}).get("server", {})
    p99 = server.get("latency", {}).get("p99")
    print(snapshot["unit"], f"{server.get('rate', 0):.0f}/s", "-" if p99 is None else f"{p99 / 1e6:.2f}ms", flush=True)
