#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""An HTTP server whose responses have the status in a file: failing_server.py PORT FILE"""

import http.server
import os
import socket
import socketserver
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(sys.argv[2]) as f:
            status = int(f.read())
        self.wfile.write(b"HTTP/1.1 %d Status\r\nContent-Length: 3\r\n\r\nok\n" % status)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
server.serve_forever()
