# SPDX-License-Identifier: LGPL-2.1-or-later
"""Servers as systemd units, and load generators with the figures that they measure themselves."""

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
COMPILE = ["gcc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]
HELPERS = {
    "load": ["-pthread", "-lm"],
    "server": ["-pthread"],
    "programs": ["-lbpf"],
    "calibration": ["-lbpf"],
    "datagrams": [],
    "query": ["-lsystemd"],
    "pairings": ["-lbpf"],
    "busy": ["-pthread"],
}
OBJECTS = "pairings", "tracer", "calibration"
# Names of architectures in bpf_tracing.h
ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}
LARGE = 256 * 1024
READY_SEC = 20


def compile_helpers(directory):
    for name, libraries in HELPERS.items():
        subprocess.run(COMPILE + [f"{HERE}/{name}.c", "-o", f"{directory}/{name}"] + libraries, check=True)
    # clang -target bpf does not search this directory for headers
    multiarch = subprocess.run(["gcc", "-print-multiarch"], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.strip()
    machine = os.uname().machine
    for name in OBJECTS:
        subprocess.run(["clang", "-std=gnu11", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra",
                        f"-D__TARGET_ARCH_{ARCHITECTURES.get(machine, machine)}", "-isystem",
                        f"/usr/include/{multiarch}",
                        "-c", f"{HERE}/{name}.bpf.c", "-o", f"{directory}/{name}.bpf.o"], check=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Network:
    """A link between the servers and a network namespace for the clients, for as long as the "with" block. On the
    loopback interface a capture would see a response only when it is received, microseconds after it was sent."""

    NAME = "qosd-bench"
    INTERFACE = "qosd-bench"
    SERVER, CLIENT = "192.0.2.1", "192.0.2.2"

    def __enter__(self):
        self._delete()
        for command in (
            f"ip netns add {self.NAME}",
            f"ip link add {self.INTERFACE} type veth peer name clients netns {self.NAME}",
            f"ip address add {self.SERVER}/30 dev {self.INTERFACE}",
            f"ip link set {self.INTERFACE} up",
            f"ip -n {self.NAME} address add {self.CLIENT}/30 dev clients",
            f"ip -n {self.NAME} link set clients up",
        ):
            subprocess.run(command.split(), check=True)
        # With one connection per request, a client would run out of ports after a second or two. /proc/sys of the
        # container is read-only.
        subprocess.run(["nsenter", f"--net=/run/netns/{self.NAME}", "unshare", "--mount", "sh", "-c",
                        "mount -t proc proc /mnt && cd /mnt/sys/net/ipv4 && echo 1024 65535 >ip_local_port_range && "
                        "echo 1 >tcp_tw_reuse"], check=True)
        return self

    def __exit__(self, *_):
        self._delete()

    def _delete(self):
        # The kernel deletes the link with the namespace
        subprocess.run(["ip", "netns", "delete", self.NAME], check=False, stderr=subprocess.DEVNULL)


def systemctl(*args):
    return subprocess.run(["systemctl", *args], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


class Unit:
    """Runs a server as a transient service for as long as the "with" block."""

    def __init__(self, name, directory, properties=()):
        self.name = f"qosd-bench-{name}.service"
        self.directory = directory
        self.address = "127.0.0.1"
        # First arguments of the command of a client
        self.client = []
        self.port = free_port()
        self.properties = properties

    def across(self, network):
        """Makes clients connect from the namespace of network."""
        self.address = network.SERVER
        self.client = ["nsenter", f"--net=/run/netns/{network.NAME}"]
        return self

    def command(self):
        raise NotImplementedError

    def connect(self):
        """Raises ConnectionRefusedError if the server is not ready."""
        socket.create_connection((self.address, self.port)).close()

    def __enter__(self):
        # A run that was killed may have left the unit
        self.stop()
        options = [f"--property={p}" for p in self.properties]
        subprocess.run(["systemd-run", "--quiet", "--collect", f"--unit={self.name}", "--service-type=exec",
                        *options, "--", *self.command()], check=True)
        deadline = time.monotonic() + READY_SEC
        while True:
            try:
                self.connect()
                return self
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise
                time.sleep(.02)

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        subprocess.run(["systemctl", "stop", self.name], check=False, stderr=subprocess.DEVNULL)

    def control_group(self):
        return "/sys/fs/cgroup" + systemctl("show", "--value", "--property=ControlGroup", self.name)

    def pids(self):
        with open(f"{self.control_group()}/cgroup.procs") as f:
            return [int(line) for line in f]


class Nginx(Unit):
    """Configured as by Debian's package, except for the log, which would be a large part of the cost, and for the limit
    of requests per connection, at which load generators count errors."""

    def __init__(self, directory, workers="auto", properties=(), directives=""):
        super().__init__("nginx", directory, properties)
        self.directives = f"{directives};" if directives else ""
        root = f"{directory}/www"
        os.makedirs(root, exist_ok=True)
        for name, size in ("index.html", 612), ("large", LARGE):
            with open(f"{root}/{name}", "wb") as f:
                f.write(b"x" * size)
        self.workers = workers

    def command(self):
        config, directory = f"{self.directory}/nginx.conf", self.directory
        with open(config, "w") as f:
            f.write(f"""
                daemon off;
                worker_processes {self.workers};
                {self.directives}
                pid {directory}/nginx.pid;
                error_log stderr crit;
                events {{ worker_connections 1024; }}
                http {{
                    access_log off;
                    sendfile on;
                    tcp_nopush on;
                    keepalive_requests 1000000000;
                    client_body_temp_path {directory}/nginx-temp;
                    server {{
                        listen {self.address}:{self.port};
                        root {directory}/www;
                        location = /status {{ stub_status; }}
                    }}
                }}
                """)
        return ["nginx", "-c", config]

    def served(self):
        """Returns the number of requests so far, including the one for this figure."""
        c = http.client.HTTPConnection(self.address, self.port)
        c.request("GET", "/status")
        said = c.getresponse().read().decode()
        c.close()
        return int(said.splitlines()[2].split()[2])


class Redis(Unit):
    def __init__(self, directory, properties=(), local=False):
        """local: on a Unix socket, too."""
        super().__init__("redis", directory, properties)
        self.path = f"{directory}/redis" if local else None

    def command(self):
        return ["redis-server", "--bind", self.address, "--port", str(self.port),
                *(["--unixsocket", self.path] if self.path else []), "--save", "", "--appendonly", "no",
                "--daemonize", "no", "--logfile", "/dev/null", "--protected-mode", "no"]

    def ask(self, *words):
        with socket.create_connection((self.address, self.port)) as s:
            s.sendall((f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)).encode())
            said = b""
            while not said.endswith(b"\r\n"):
                said += s.recv(65536)
            return said.decode()

    def __enter__(self):
        super().__enter__()
        self.ask("SET", "bench", "xxx")
        return self

    def served(self):
        return int(re.search(r"total_commands_processed:(\d+)", self.ask("INFO", "stats")).group(1))


class Datagrams(Unit):
    """datagrams.c: UDP. The server keeps the number of its responses in a file."""

    def __init__(self, directory, properties=()):
        super().__init__("datagrams", directory, properties)
        self.count = f"{directory}/datagrams-sent"

    def command(self):
        return [f"{self.directory}/datagrams", "serve", str(self.port), self.count]

    def connect(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(READY_SEC)
            s.connect((self.address, self.port))
            s.send(b"x")
            s.recv(64)

    def served(self):
        with open(self.count, "rb") as f:
            return int.from_bytes(f.read(8), sys.byteorder)


class Grpc(Unit):
    """gRPC's own library, in Python."""

    def __init__(self, directory):
        super().__init__("grpc", directory)

    def command(self):
        return [sys.executable, "-B", f"{HERE}/../scenarios/grpc_server.py", str(self.port), self.address]


class Known(Unit):
    """server.c: a server with known times."""

    def __init__(self, directory, *options):
        super().__init__("known", directory)
        self.options = options
        self.records = f"{directory}/records"

    def command(self):
        return [f"{self.directory}/server", "--address", self.address, "--port", str(self.port),
                "--output", self.records, *self.options]

    def reads(self):
        """Returns the times at which the server has read requests, by the client's port and the number of the request;
        after stop()."""
        times = array("Q")
        with open(self.records, "rb") as f:
            times.frombytes(f.read())
        return {(t & 0xffffffff, t >> 32): read for read, t in zip(times[0::2], times[1::2])}


# ---- loads: each takes a unit, and returns the figures of the load generator, with sorted durations in ns ---------

def load(protocol, what, requests, connections, rate=0, options=()):
    """Returns a load by load.c."""
    def run(unit):
        samples = array("Q")
        path = f"{unit.directory}/samples"
        took = subprocess.run(
            [*unit.client, f"{unit.directory}/load", "--address", unit.address, "--port", str(unit.port),
             "--requests", str(requests), "--connections", str(connections), "--rate", str(rate),
             "--output", path, *options, protocol, what],
            check=True, text=True, stdout=subprocess.PIPE).stdout
        with open(path, "rb") as f:
            samples.frombytes(f.read())
        os.unlink(path)
        sent, first, last = samples[0::3], samples[1::3], samples[2::3]
        return {
            "count": requests,
            "exact": True,
            "rate": requests / float(took),
            "firstByte": sorted(b - a for a, b in zip(sent, first)),
            "latency": sorted(b - a for a, b in zip(sent, last)),
        }
    return run


UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9}


def wrk(connections, seconds):
    def run(unit):
        said = subprocess.run(
            [*unit.client, "wrk", "--latency", "-t1", f"-c{connections}", f"-d{seconds}s",
             f"http://{unit.address}:{unit.port}/"],
            check=True, text=True, stdout=subprocess.PIPE).stdout

        def time_of(pattern):
            value, suffix = re.search(pattern + r"\s+([\d.]+)(us|ms|s|m)\b", said).groups()
            return float(value) * UNITS[suffix]

        count, took = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()
        if re.search(r"Socket errors|Non-2xx", said):
            raise RuntimeError(f"wrk met errors:\n{said}")
        return {
            "count": int(count),
            # wrk does not count requests in flight at its end
            "exact": False,
            "rate": int(count) / float(took),
            "latency": {"mean": time_of(r"Latency"), "p50": time_of("50%"), "p90": time_of("90%"),
                        "p99": time_of("99%")},
        }
    return run


def redis_benchmark(connections, requests, pipeline=1):
    def run(unit):
        said = subprocess.run(
            [*unit.client, "redis-benchmark", "-h", unit.address, "-p", str(unit.port), "-t", "get",
             "-n", str(requests), "-c", str(connections), "-P", str(pipeline), "--csv"],
            check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        names, values = [[field.strip('"') for field in line.split(",")] for line in said.split("\n")[:2]]
        figures = dict(zip(names, values))

        return {
            # With a pipeline, the commands that travel together are one exchange
            "count": requests // pipeline,
            # redis-benchmark first sends requests for the configuration of the server, which it does not count
            "exact": False,
            "rate": float(figures["rps"]) / pipeline,
            "latency": {name: float(figures[f"{theirs}_latency_ms"]) * 1e6
                        for name, theirs in (("mean", "avg"), ("p50", "p50"), ("p99", "p99"))},
        }
    return run
