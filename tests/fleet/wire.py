#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The time to first byte of each HTTP request to this host, in ns, as a capture has it, until standard input ends.
wire.py INTERFACE PORT"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "bench"))

from capture import Capture, pair  # noqa: E402 (its path is set above)


def main():
    interface, port = sys.argv[1], int(sys.argv[2])
    c = Capture(interface, port, "/run/fleet.pcap")
    print("ready", flush=True)
    sys.stdin.read()
    c.stop()
    wire = pair(c.path, port)
    print(json.dumps(wire.durations(wire.first_in, wire.first_out)))


if __name__ == "__main__":
    main()
