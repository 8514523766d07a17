# SPDX-License-Identifier: LGPL-2.1-or-later
"""Finds requests in a packet capture, as the truth that qosd is compared with. Shares no code with qosd.

On one TCP connection, in the order of the capture, a request is the data that a client sends between the end of one
response and the beginning of the next. A request of HTTP/2 is a stream."""

import os
import re
import signal
import struct
import subprocess
import time
from array import array

# Headers of Ethernet, IPv4 and TCP with all their options; the payload is not needed
SNAPLEN = 134
# HTTP/2 needs the payload, as data of one direction may have several requests
SNAPLEN_STREAMS = 262144
BUFFER_KIB = 256 * 1024
DEADLINE_SEC = 30

PCAP_MAGIC_NSEC = 0xa1b23c4d
LINKTYPE_ETHERNET = 1
FILE_HEADER = struct.Struct("<I16xI")
# Seconds, nanoseconds, captured and real length
RECORD_HEADER = struct.Struct("<IIII")
# Ethernet; version and header length, total length; ports, sequence number, data offset, flags
PACKET = struct.Struct("!14xBxH16xHHI4xBB")
SYN = 2

# HTTP/2
PREFACE = 24
FRAME_HEADER = 9
DATA, HEADERS = 0, 1
END_STREAM = 1


class Void(Exception):
    """The capture is incomplete, and nothing can be compared with it."""


class Capture:
    """tcpdump of the packets from and to the port of a server."""

    def __init__(self, interface, port, path, snaplen=SNAPLEN):
        self.path = path
        self._log = open(path + ".log", "w+")
        self._process = subprocess.Popen(
            ["tcpdump", "-i", interface, "-n", "-Z", "root", "-s", str(snaplen), "-B", str(BUFFER_KIB),
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
        """Returns the numbers of packets written, seen and dropped, for each time that tcpdump printed them."""
        return [[int(n) for n in found] for found in re.findall(
            r"(\d+) packets? captured\W+(\d+) packets? received by filter\W+(\d+) packets? dropped by kernel",
            self._said())]

    def _ask(self):
        before = len(self._counts())
        self._process.send_signal(signal.SIGUSR1)
        self._wait(lambda: len(self._counts()) > before, "tcpdump does not print its counters")
        return self._counts()[-1]

    def stop(self):
        """Ends the capture. Returns the number of packets in it; raises Void if packets are missing."""
        self._deadline = time.monotonic() + DEADLINE_SEC

        # The kernel passes packets in blocks, with a delay of up to a second: wait for the last one
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
    """Times of requests with a response, in ns since 1970. Each array has one entry per request."""

    def __init__(self):
        self.first_in, self.last_in, self.first_out, self.last_out = array("Q"), array("Q"), array("Q"), array("Q")
        # A request is identified by the client's port, and its number on the connection
        self.port, self.index = array("H"), array("L")
        self.repeated = 0
        self.connections = 0

    def __len__(self):
        return len(self.first_in)

    def add(self, port, index, first_in, last_in, first_out, last_out):
        self.first_in.append(first_in)
        self.last_in.append(last_in)
        self.first_out.append(first_out)
        self.last_out.append(last_out)
        self.port.append(port)
        self.index.append(index)

    def durations(self, begin, end):
        return sorted(b - a for a, b in zip(begin, end))


def segments(data, port, result):
    """Yields the segments to and from the server on that port that open a connection or have new bytes, each as the
    client's port, whether the client sent it, whether it opens the connection, its time, the offset of its new bytes in
    the file, and their number on the wire, of which the file may have fewer."""
    ends = {}

    magic, link = FILE_HEADER.unpack_from(data)
    if magic != PCAP_MAGIC_NSEC or link != LINKTYPE_ETHERNET:
        raise ValueError("not an Ethernet capture with times in nanoseconds")

    offset, total = 24, len(data)
    while offset + 16 <= total:
        sec, nsec, captured, _ = RECORD_HEADER.unpack_from(data, offset)
        version, size, source, destination, sequence, data_offset, flags = PACKET.unpack_from(data, offset + 16)
        if version != 0x45:
            raise ValueError("an IPv4 header with options")
        header = 20 + (data_offset >> 4) * 4
        begin = offset + 16 + 14 + header
        size -= header
        offset += 16 + captured

        to_server = destination == port
        client = source if to_server else destination
        now = sec * 1000000000 + nsec
        if flags & SYN:
            ends.pop((client, to_server), None)
            if to_server:
                yield client, True, True, now, begin, 0
            continue
        if size <= 0:
            continue

        end = (sequence + size) & 0xffffffff
        before = ends.get((client, to_server))
        if before is not None:
            new = (end - before) & 0xffffffff
            if not 0 < new < 0x80000000:
                result.repeated += 1
                continue
            if new < size:
                begin += size - new
                size = new
        ends[client, to_server] = end
        yield client, to_server, False, now, begin, size


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    os.unlink(path)
    return data


class _Connection:
    __slots__ = ("asked", "answered", "index", "first_in", "last_in", "first_out", "last_out")

    def __init__(self):
        self.asked = self.answered = False
        self.index = 0


def pair(path, port):
    """Returns the requests to the server on that port."""
    result = Exchanges()
    connections = {}

    def book(client, c):
        result.add(client, c.index, c.first_in, c.last_in, c.first_out, c.last_out)
        c.index += 1
        c.asked = c.answered = False

    for client, to_server, begins, now, _, _ in segments(read(path), port, result):
        c = connections.get(client)
        if c is None or begins:
            if c is not None and c.answered:
                book(client, c)
            c = connections[client] = _Connection()
            result.connections += 1
            if begins:
                continue

        if to_server:
            if c.answered:
                book(client, c)
            if not c.asked:
                c.asked, c.first_in = True, now
            c.last_in = now
        else:
            if not c.asked:
                raise ValueError(f"the server on port {port} sends data without a request")
            if not c.answered:
                c.answered, c.first_out = True, now
            c.last_out = now

    for client, c in connections.items():
        if c.answered:
            book(client, c)
    return result


class _Direction:
    """Finds the frames of HTTP/2 in one direction of a connection."""

    def __init__(self, skip):
        self.skip = skip        # bytes before the first frame
        self.header = b""
        self.left = 0           # bytes of the payload of the frame that are missing

    def take(self, data, begin, size, now):
        """Yields type, flags, stream and begin of each frame that ends in these bytes."""
        end = begin + size
        while begin < end:
            if self.skip:
                n = min(self.skip, end - begin)
                self.skip -= n
                begin += n
                continue
            if len(self.header) < FRAME_HEADER:
                if not self.header:
                    self.began = now
                n = min(FRAME_HEADER - len(self.header), end - begin)
                self.header += data[begin:begin + n]
                begin += n
                if len(self.header) < FRAME_HEADER:
                    break
                self.left = int.from_bytes(self.header[:3], "big")
            n = min(self.left, end - begin)
            self.left -= n
            begin += n
            if self.left == 0:
                yield self.header[3], self.header[4], int.from_bytes(self.header[5:], "big"), self.began
                self.header = b""


def pair_streams(path, port):
    """The same for HTTP/2: a request is a stream, from the first byte of its headers to the last byte of its
    response."""
    result = Exchanges()
    connections = {}
    data = read(path)

    for client, to_server, begins, now, begin, size in segments(data, port, result):
        if begins:
            connections[client] = _Direction(PREFACE), _Direction(0), {}
            result.connections += 1
            continue
        inward, outward, streams = connections[client]
        for kind, flags, stream, began in (inward if to_server else outward).take(data, begin, size, now):
            if kind not in (HEADERS, DATA):
                continue
            if to_server:
                s = streams.setdefault(stream, [began, now, None])
                s[1] = now
            else:
                s = streams[stream]
                if s[2] is None:
                    s[2] = began
                if flags & END_STREAM:
                    result.add(client, stream // 2, *s, now)
                    del streams[stream]
    return result
