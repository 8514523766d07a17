# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client of grpc_server.py. Prints as JSON how many calls ended with which status:

    grpc_client.py PORT METHOD NUMBER [CODES]

METHOD is a method of lab.Words, or with a slash one of any service; with several, separated by commas, calls take
turns. CODES are the status codes that the calls request from the server, in turn; the default is 14 (UNAVAILABLE) for 7
of 100 calls, and 0 for the others. Calls of Hang and Stalled end after a line on standard input: with "release" the
server completes them, with "cancel" the client cancels them. With CERTIFICATE= in the environment the client uses TLS,
and expects this certificate of the server."""

import itertools
import json
import os
import sys
from collections import Counter

import grpc

AT_ONCE = 50    # calls on one connection
port, method, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
codes = [int(c) for c in sys.argv[4].split(",")] if len(sys.argv) > 4 else [14 if n % 15 == 3 else 0
                                                                            for n in range(100)]
options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost")]


def connect():
    if "CERTIFICATE" not in os.environ:
        return grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
    with open(os.environ["CERTIFICATE"], "rb") as f:
        return grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(f.read()), options=options)


channels = [connect() for _ in range(2)]
make = {"Download": "unary_stream", "Stalled": "unary_stream", "Upload": "stream_unary", "Talk": "stream_stream"}
streaming = make.get(method, "").endswith("stream")
callables = [getattr(c, make.get(method, "unary_unary"))(m if "/" in m else f"/lab.Words/{m}")
             for m in method.split(",") for c in channels]
ended = Counter()


def start(n, code):
    call, message = callables[n % len(callables)], b"%d 5" % code
    question = iter([message] * 5) if make.get(method, "").startswith("stream") else message
    return call(question) if streaming else call.future(question)


def finish(call):
    try:
        if streaming:
            for _ in call:
                pass
        else:
            call.result()
    except (grpc.RpcError, grpc.FutureCancelledError):
        pass
    ended[call.code().name] += 1


source = itertools.cycle(codes)
for first in range(0, number, AT_ONCE):
    calls = [start(n, next(source)) for n in range(first, min(first + AT_ONCE, number))]
    if method == "Stalled":
        for c in calls:
            next(c)
    if method in ("Hang", "Stalled"):
        print("started", flush=True)
        if sys.stdin.readline() == "cancel\n":
            for c in calls:
                c.cancel()
        else:
            channels[0].unary_unary("/lab.Words/Release")(b"0 0")
    for c in calls:
        finish(c)
print(json.dumps(ended), flush=True)
# All calls have ended. On a busy machine, a regular exit of the interpreter may wait forever for a thread of grpcio
# 1.51
os._exit(0)
