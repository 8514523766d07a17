# SPDX-License-Identifier: LGPL-2.1-or-later
"""The truth: a packet capture, and the requests in it, found by their order on the wire alone.

Knows nothing of how qosd does it: a request is the data that a client sends from the end of one answer to the
beginning of the next, on one TCP connection, in the order of the capture."""

import os
import re
import signal
import struct
import subprocess
import time
from array import array

# Ethernet, IPv4 and TCP with all their options: no byte of payload is of interest
SNAPLEN = 134
BUFFER_KIB = 256 * 1024
DEADLINE_SEC = 30

PCAP_MAGIC_NSEC = 0xa1b23c4d
LINKTYPE_ETHERNET = 1
FILE_HEADER = struct.Struct("<I16xI")
# Seconds, nanoseconds, captured and real length
RECORD_HEADER = struct.Struct("<IIII")
# Ethernet; version and header length, total length; ports, sequence number, data offset, flags
PACKET = struct.Struct("!14xBxH16xHHI4xBB")
FIN, SYN, RST = 1, 2, 4


class Void(Exception):
    """The capture does not hold everything: nothing can be said from it."""


class Capture:
    """tcpdump, for one server's port."""

    def __init__(self, interface, port, path):
        self.path = path
        self._log = open(path + ".log", "w+")
        self._process = subprocess.Popen(
            ["tcpdump", "-i", interface, "-n", "-Z", "root", "-s", str(SNAPLEN), "-B", str(BUFFER_KIB),
             "--time-stamp-precision=nano", "-w", path, f"tcp port {port} and ip"],
            stdin=subprocess.DEVNULL, stderr=self._log)
        self._deadline = time.monotonic() + DEADLINE_SEC
        self._wait(lambda: "listening on" in self._said(), "tcpdump does not start")

    def _said(self):
        with open(self._log.name) as f:
            return f.read()

    def _wait(self, condition, otherwise):
        while not condition():
            if time.monotonic() > self._deadline or self._process.poll() is not None:
                self.abort()
                raise Void(f"{otherwise}: {self._said().strip()}")
            time.sleep(.02)

    def _counts(self):
        """Packets written, seen and dropped, each time that tcpdump said it."""
        return [[int(n) for n in found] for found in re.findall(
            r"(\d+) packets? captured\W+(\d+) packets? received by filter\W+(\d+) packets? dropped by kernel",
            self._said())]

    def _ask(self):
        before = len(self._counts())
        self._process.send_signal(signal.SIGUSR1)
        self._wait(lambda: len(self._counts()) > before, "tcpdump does not answer")
        return self._counts()[-1]

    def stop(self):
        """Returns how many packets there are; raises Void if there were more."""
        self._deadline = time.monotonic() + DEADLINE_SEC

        # The kernel hands packets over in blocks, each after up to a second: wait until all are here
        def drained():
            written, seen, dropped = self._ask()
            return written + dropped >= seen

        self._wait(drained, "not all of the capture arrived")
        self._process.send_signal(signal.SIGINT)
        self._process.wait(DEADLINE_SEC)
        written, seen, dropped = self._counts()[-1]
        self._log.close()
        if dropped:
            raise Void(f"the kernel dropped {dropped} of {seen} packets")
        return written

    def abort(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Exchanges:
    """Times in ns since 1970, one entry of each per request that was answered."""

    def __init__(self):
        self.first_in, self.last_in, self.first_out, self.last_out = array("Q"), array("Q"), array("Q"), array("Q")
        # Which request this is: the client's port, and the number of the request on its connection
        self.port, self.index = array("H"), array("L")
        self.repeated = 0
        self.connections = 0

    def __len__(self):
        return len(self.first_in)

    def durations(self, begin, end):
        return sorted(b - a for a, b in zip(begin, end))


class _Connection:
    __slots__ = ("asked", "answered", "index", "end_in", "end_out", "first_in", "last_in", "first_out", "last_out")

    def __init__(self):
        self.asked = self.answered = False
        self.index = 0
        self.end_in = self.end_out = None


def pair(path, port):
    """The requests to the server on that port."""
    result = Exchanges()
    connections = {}

    def book(client, c):
        result.first_in.append(c.first_in)
        result.last_in.append(c.last_in)
        result.first_out.append(c.first_out)
        result.last_out.append(c.last_out)
        result.port.append(client)
        result.index.append(c.index)
        c.index += 1
        c.asked = c.answered = False

    with open(path, "rb") as f:
        data = f.read()
    magic, link = FILE_HEADER.unpack_from(data)
    if magic != PCAP_MAGIC_NSEC or link != LINKTYPE_ETHERNET:
        raise ValueError("not a capture as it was asked for")

    offset, total = 24, len(data)
    while offset + 16 <= total:
        sec, nsec, captured, _ = RECORD_HEADER.unpack_from(data, offset)
        version, size, source, destination, sequence, data_offset, flags = PACKET.unpack_from(data, offset + 16)
        offset += 16 + captured
        if version != 0x45:
            raise ValueError("an IPv4 header with options")
        size -= 20 + (data_offset >> 4) * 4

        to_server = destination == port
        client = source if to_server else destination
        c = connections.get(client)
        if c is None or (flags & SYN and to_server):
            if c is not None and c.answered:
                book(client, c)
            c = connections[client] = _Connection()
            result.connections += 1
        if size <= 0:
            continue

        # Only bytes that were not there before
        end = (sequence + size) & 0xffffffff
        before = c.end_in if to_server else c.end_out
        if before is not None and not 0 < (end - before) & 0xffffffff < 0x80000000:
            result.repeated += 1
            continue

        now = sec * 1000000000 + nsec
        if to_server:
            c.end_in = end
            if c.answered:
                book(client, c)
            if not c.asked:
                c.asked, c.first_in = True, now
            c.last_in = now
        else:
            c.end_out = end
            if not c.asked:
                raise ValueError(f"the server on port {port} speaks unasked")
            if not c.answered:
                c.answered, c.first_out = True, now
            c.last_out = now

    for client, c in connections.items():
        if c.answered:
            book(client, c)
    os.unlink(path)
    return result
