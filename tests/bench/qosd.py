# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon under test from outside: its Varlink interface, and figures of the kernel about its process."""

import glob
import json
import re
import socket
import time

from workload import systemctl

SOCKET = "/run/qosd/org.qosd.QoS"
SERVICE = "qosd.service"
QUIET_SEC = 10


class Error(Exception):
    pass


def _call(method, parameters, timeout=None, **flags):
    """Yields the parameters of each reply; raises TimeoutError if there is no data for timeout seconds."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(timeout)
        s.connect(SOCKET)
        message = {"method": f"org.qosd.QoS.{method}", "parameters": parameters, **flags}
        s.sendall(json.dumps(message).encode() + b"\0")
        with s.makefile("rb") as stream:
            said = b""
            while True:
                byte = stream.peek(1)
                if not byte:
                    raise Error(f"{method}: connection closed")
                end = byte.find(b"\0")
                said += stream.read(len(byte) if end < 0 else end + 1)
                if end < 0:
                    continue
                reply, said = json.loads(said[:-1]), b""
                if "error" in reply:
                    raise Error(f"{method}: {reply['error']}: {reply.get('parameters', {})}")
                yield reply.get("parameters", {})
                if not reply.get("continues"):
                    return


def call(method, **parameters):
    return next(_call(method, parameters))


class Attached:
    """Attaches a unit for as long as the "with" block."""

    def __init__(self, unit, **more):
        self.unit = unit
        self.more = more

    def __enter__(self):
        degraded = call("Attach", unit=self.unit, **self.more).get("degraded")
        if degraded:
            raise Error(f"{self.unit} is observed only in part: {degraded}")
        return self

    def __exit__(self, *_):
        call("Detach", unit=self.unit)

    def settled(self):
        """Returns the reading since the attach, after the last byte is recorded."""
        deadline = time.monotonic() + QUIET_SEC
        before = None
        while True:
            reading = call("Get", unit=self.unit, window=0)
            server = reading["requests"]["server"]
            # The count is absent if requests overlap
            now = server["bytesOut"], server.get("count")
            if now == before:
                return reading
            if time.monotonic() > deadline:
                raise Error(f"{self.unit} does not come to rest")
            before = now
            time.sleep(.1)

    def buckets(self, metric):
        return call("Histogram", unit=self.unit, window=0, metric=f"requests.server.{metric}")["buckets"]


def pid():
    return int(systemctl("show", "--value", "--property=MainPID", SERVICE))


def programs(process=None):
    """Returns the IDs of the BPF programs that the daemon, or another process, keeps attached."""
    found = set()
    for path in glob.glob(f"/proc/{process or pid()}/fdinfo/*"):
        try:
            with open(path) as f:
                found.update(int(i) for i in re.findall(r"^prog_id:\s*(\d+)", f.read(), re.MULTILINE))
        except FileNotFoundError:
            pass
    return found


def program_name(name):
    """Returns the name of a program, of which the kernel keeps the first 15 characters."""
    return next((p["program"] for p in _call("Probes", {}, more=True) if p["program"].startswith(name)), name)


class Process:
    """CPU time and voluntary context switches, which are wake-ups, of all threads of a process since the object was
    created."""

    def __init__(self, process):
        self.process = process
        self.began = self._read()

    def _read(self):
        switches = run = 0
        for task in glob.glob(f"/proc/{self.process}/task/*"):
            with open(f"{task}/status") as f:
                switches += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", f.read(), re.MULTILINE).group(1))
            with open(f"{task}/schedstat") as f:
                run += int(f.read().split()[0])
        return time.monotonic(), switches, run

    def read(self):
        """Returns seconds, wake-ups and nanoseconds of CPU time since the object was created."""
        return tuple(b - a for a, b in zip(self.began, self._read()))


def anonymous_memory():
    """Returns the anonymous memory of the daemon in bytes."""
    with open(f"/proc/{pid()}/status") as f:
        return int(re.search(r"^RssAnon:\s*(\d+) kB", f.read(), re.MULTILINE).group(1)) * 1024
