# SPDX-License-Identifier: LGPL-2.1-or-later
"""Counts requests with a response in a packet capture: changes of the direction of data, in sequence space. Shares no
code with qosd."""

import struct


def packets(path):
    """Yields (source port, destination port, flags, sequence number, payload length, addresses) of each TCP packet."""
    with open(path, "rb") as f:
        data = f.read()
    if len(data) < 24:
        return
    magic = struct.unpack_from("<I", data)[0]
    if magic not in (0xa1b2c3d4, 0xa1b23c4d):
        raise ValueError("not a little-endian pcap file")
    link = struct.unpack_from("<I", data, 20)[0]
    offset = 24
    while offset + 16 <= len(data):
        captured = struct.unpack_from("<I", data, offset + 8)[0]
        p = data[offset + 16:offset + 16 + captured]
        offset += 16 + captured
        if offset > len(data):
            return      # tcpdump has not written the whole packet yet
        p = p[{1: 14, 101: 0, 113: 16}[link]:]
        if p[0] >> 4 == 4:
            header, size = (p[0] & 15) * 4, struct.unpack_from("!H", p, 2)[0]
            addresses = p[12:16], p[16:20]
        else:
            header, size = 40, 40 + struct.unpack_from("!H", p, 4)[0]
            addresses = p[8:24], p[24:40]
        source, destination, sequence = struct.unpack_from("!HHI", p, header)
        yield (source, destination, p[header + 13], sequence, size - header - (p[header + 12] >> 4) * 4, addresses)


def exchanges(path, port):
    """Returns the number of requests to which the server on that port sent a response."""
    asked, last, n = {}, {}, 0
    for source, destination, flags, sequence, size, addresses in packets(path):
        to_server = destination == port
        key = (addresses[0], source) if to_server else (addresses[1], destination)
        if flags & 2:
            asked[key] = False
            last.pop((key, to_server), None)
        if size == 0:
            continue
        # Data below the highest sequence number seen is a retransmission
        end = (sequence + size) & 0xffffffff
        if (key, to_server) in last and (end - last[key, to_server]) & 0xffffffff in range(0x80000000, 0x100000000):
            continue
        if last.get((key, to_server)) == end:
            continue
        last[key, to_server] = end
        if to_server:
            asked[key] = True
        elif asked.get(key):
            asked[key] = False
            n += 1
    return n
