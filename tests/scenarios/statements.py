# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that prepares statements on a MySQL server. It implements the protocol, as no library for that is on all
machines.

    statements.py (PORT | PATH) NUMBER READY    executes NUMBER statements, creates the file READY, and keeps the idle
    connection open"""

import socket
import struct
import sys
import time

QUERY, PREPARE, EXECUTE, CLOSE, QUIT = 3, 0x16, 0x17, 0x19, 1


class Connection:
    def __init__(self, address):
        if str(address).isdigit():
            self.socket = socket.create_connection(("127.0.0.1", int(address)), timeout=20)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(20)
            self.socket.connect(address)
        self.read = self.socket.makefile("rb").read
        self.packet()
        # CLIENT_LONG_PASSWORD, CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION, CLIENT_PLUGIN_AUTH; utf8
        self.say(struct.pack("<IIB23x", 1 | 0x200 | 0x8000 | 0x80000, 1 << 24, 33) + b"root\0\0mysql_native_password\0",
                 number=1)
        assert self.packet()[0] == 0, "login refused"

    def say(self, payload, number=0):
        self.socket.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)

    def packet(self):
        size = int.from_bytes(self.read(4)[:3], "little")
        return self.read(size)

    def until_end(self):
        rows = []
        while (p := self.packet())[0] != 0xfe or len(p) >= 9:
            rows.append(p)
        return rows

    def prepare(self, text):
        self.say(bytes([PREPARE]) + text)
        status, statement, columns, parameters = struct.unpack_from("<BIHH", self.packet())
        assert status == 0
        for n in parameters, columns:
            if n:
                self.until_end()
        return statement

    def execute(self, statement, value):
        # One parameter, which is not NULL, of eight bytes
        self.say(bytes([EXECUTE]) + struct.pack("<IBI", statement, 0, 1) + b"\0\1\x08\0" + struct.pack("<q", value))
        assert self.packet()[0] == 1, "expected one column"
        self.until_end()
        return struct.unpack_from("<q", self.until_end()[0], 2)[0]

    def close_statement(self, statement):
        self.say(bytes([CLOSE]) + struct.pack("<I", statement))

    def query(self, text):
        self.say(bytes([QUERY]) + text)
        assert self.packet()[0] == 1
        self.until_end()
        return self.until_end()[0][1:]

    def round(self, value):
        """Sends two commands that have a response, and one that has none."""
        statement = self.prepare(b"select ? + 0")
        assert self.execute(statement, value) == value
        self.close_statement(statement)

    def quit(self):
        self.say(bytes([QUIT]))
        assert self.read(1) == b""
        self.socket.close()


if __name__ == "__main__":
    c = Connection(sys.argv[1])
    for i in range(int(sys.argv[2])):
        c.round(i)
    with open(sys.argv[3], "w"):
        pass
    time.sleep(600)
