# SPDX-License-Identifier: LGPL-2.1-or-later
"""A gRPC server without a schema. A message has two numbers as text, "CODE MESSAGES": the status code with which the
call ends, and the number of messages that Download sends.

    grpc_server.py PORT [ADDRESS]

With CERTIFICATE= and KEY= in the environment the server uses TLS."""

import os
import socket
import sys
import threading
from concurrent import futures

import grpc

CODES = {code.value[0]: code for code in grpc.StatusCode}
released = threading.Event()


def end(context, code):
    if code:
        context.abort(CODES[code], "as requested")


def one(request, context):
    code, _ = map(int, request.split())
    end(context, code)
    return request


def hang(request, context):
    while context.is_active() and not released.wait(.05):
        pass
    return request


def download(request, context):
    code, messages = map(int, request.split())
    for _ in range(messages):
        yield request
    end(context, code)


def stalled(request, context):
    """Sends the first message of the response, and the second one after Release."""
    yield request
    yield hang(request, context)


def upload(requests, context):
    last = b"0 0"
    for last in requests:
        pass
    return one(last, context)


def talk(requests, context):
    code = 0
    for request in requests:
        code = int(request.split()[0])
        yield request
    end(context, code)


def release(request, context):
    released.set()
    return request


server = grpc.server(futures.ThreadPoolExecutor(64), options=[("grpc.so_reuseport", 0)], handlers=[
    grpc.method_handlers_generic_handler("lab.Words", {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Hang": grpc.unary_unary_rpc_method_handler(hang),
        "Release": grpc.unary_unary_rpc_method_handler(release),
        "Download": grpc.unary_stream_rpc_method_handler(download),
        "Stalled": grpc.unary_stream_rpc_method_handler(stalled),
        "Upload": grpc.stream_unary_rpc_method_handler(upload),
        "Talk": grpc.stream_stream_rpc_method_handler(talk)}),
    grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(one)})])
address = f"{sys.argv[2] if len(sys.argv) > 2 else '127.0.0.1'}:{sys.argv[1]}"
if "CERTIFICATE" in os.environ:
    with open(os.environ["KEY"], "rb") as key, open(os.environ["CERTIFICATE"], "rb") as certificate:
        server.add_secure_port(address, grpc.ssl_server_credentials([(key.read(), certificate.read())]))
else:
    server.add_insecure_port(address)
server.start()
if "NOTIFY_SOCKET" in os.environ:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
server.wait_for_termination()
