# SPDX-License-Identifier: LGPL-2.1-or-later
"""Helpers of the scenario tests: units under test, clients that count requests, faulty links, and the interfaces of
qosd to its users (qosctl, Varlink, D-Bus). Standard library only."""

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time

import capture

SOURCES = os.path.dirname(os.path.abspath(__file__))
UNIT_DIR = "/run/systemd/system"
QOSD_CONF_DIR = "/run/qosd.conf.d"
QOSD_CONF = f"{QOSD_CONF_DIR}/99-scenario.conf"
QOSD_DROP_IN_DIR = "/run/systemd/system/qosd.service.d"
QOSD_DROP_IN = f"{QOSD_DROP_IN_DIR}/99-scenario.conf"
VARLINK_SOCKET = "/run/qosd/org.qosd.QoS"
VARLINK = "org.qosd.QoS."
DBUS_ERROR = "org.qosd1.Error."

MSEC = 1000000      # in nanoseconds, as all times of qosd
SEC = 1000 * MSEC


# ---- the registry of tests, and variables that the runner sets before it runs one ------------------------------

TESTS = []
tools = None        # directory of the compiled helpers, and of a file for each port that was returned by unused_port()
prefix = None       # of all names of units, network namespaces and files of the running test
in_vm = False       # software emulation: too slow to test more than functions


class Failed(Exception):
    pass


class Off(Failed):
    """A figure is not within its tolerance."""


class Test:
    def __init__(self, function, marks):
        self.function = function
        self.name = function.__module__.removeprefix("test_") + "." + function.__name__
        self.marks = marks


def test(deadline=30, own_daemon=False, quiet=None, vm=False, needs_vm=None, nightly=False, reboots=False,
         needs_program=None, flaky=None):
    """Marks a function as a test. The arguments become marks of pytest, and those of the function are fixtures.

    own_daemon: the test restarts or configures qosd, or counts attached units, so that no other test may run at the
    same time. quiet: what else may run at the same time, as the test measures times, or changes a setting of the whole
    machine. "alone": nothing, and no programs are loaded when it begins; "loaded": nothing, and they are loaded;
    "light": tests that use as little CPU time as this one. vm: the test is part of the smoke test in the VM, too;
    "nightly": only in nightly runs, as another test runs the same BPF programs. needs_vm: the reason why the test
    cannot run in a container. nightly: the test takes minutes, and runs only in nightly runs, or if it is selected by
    name. reboots: the test is called with None; then the machine reboots, and the test is called with the value that it
    returned (as JSON). needs_program: a BPF program that the test depends on, and that some kernels reject. If the
    kernel of the machine does, the test runs only in the VM. flaky: a date and a reason; up to the date (2026-12-31) a
    failure counts as skipped."""
    marks = locals()

    def register(function):
        TESTS.append(Test(function, marks))
        return function
    return register


# ---- failures ---------------------------------------------------------------------------------------------------

def fail(message):
    raise Failed(message)


def check(condition, message):
    if not condition:
        fail(message)


def equal(got, want, what):
    if got != want:
        fail(f"{what}: {got!r} instead of {want!r}")


def within(got, want, ratio, floor, what):
    """Fails if got differs from want by more than ratio * want, or floor if that is larger."""
    if got is None:
        fail(f"{what} is absent")
    if abs(got - want) > max(ratio * want, floor):
        raise Off(f"{what}: {got} instead of {want} ({100 * (got - want) / want if want else 0:+.2f} %)")


def measurement(measure, attempts=3):
    """Compares times of qosd with those of a client, as accurately as qosd promises. That is no test but a measurement,
    for parts of a run in which a machine is idle: the client measures too long times while other processes have its
    CPU. Therefore it fails only if the times differ in all attempts. Failures of another kind are final."""
    for attempt in range(attempts):
        try:
            return measure()
        except Off:
            if attempt + 1 == attempts:
                raise


def patience():
    """Returns the factor by which timeouts are longer than on an idle machine: other parts of a run, and other labs,
    use the CPUs, too. (The load average is a minute late.)"""
    return 6 if in_vm else 3


def wait_for(what, probe, timeout=5.0, pause=0.02):
    """Waits until probe() returns a true value, and returns that."""
    timeout *= patience()
    deadline = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            fail(f"waited {timeout} s in vain until {what}; last value: {value!r}")
        time.sleep(pause)


@contextlib.contextmanager
def occupied():
    """Runs its body while all CPUs are busy with processes that have priority over all but the test itself. The
    development kernel runs no BPF program while a process of its supervisor is the current one, and does not count
    that: in the body no timer of TCP expires above one, and no thread follows one."""
    def occupy(cpu):
        pid = os.fork()
        if pid == 0:
            os.sched_setaffinity(0, [cpu])
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            while True:
                pass
        return pid
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    busy = [occupy(cpu) for cpu in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.sched_setscheduler(0, policy, parameters)


# ---- processes --------------------------------------------------------------------------------------------------

def run(*command, ok=True, timeout=20, stdin=None, env=None):
    """Runs a command and returns the CompletedProcess. With ok, the test fails if the command does."""
    r = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, input=stdin,
                       stdin=subprocess.DEVNULL if stdin is None else None,
                       timeout=timeout * patience(), env=env, errors="replace", text=True)
    if ok and r.returncode != 0:
        fail(f"{' '.join(str(c) for c in command)}: exit status {r.returncode}: {(r.stderr or r.stdout).strip()}")
    return r


def systemctl(*arguments, **keywords):
    return run("systemctl", *arguments, **keywords)


def unit_property(unit, name):
    return systemctl("show", unit, "-P", name).stdout.strip()


def certificate():
    """Returns the files of a certificate and of its key, and the context of clients that trust it."""
    files = [f"/run/{unit_name('tls', end)}" for end in (".certificate", ".key")]
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", files[1], "-out", files[0], "-days", "2",
        "-subj", "/CN=localhost", timeout=60)
    context = ssl.create_default_context(cafile=files[0])
    context.check_hostname = False
    return files, context


def tcp_states(netns, filter):
    """Returns the states of TCP connections in a network namespace, by a filter of ss(8)."""
    return [line.split()[0] for line in run(*nsenter(netns), "ss", "-tnH", *filter.split()).stdout.splitlines()]


def nsenter(netns):
    return ["nsenter", f"--net=/run/netns/{netns}"] if netns else []


# ---- units under test -------------------------------------------------------------------------------------------

def unused_port():
    """Returns a free port below the range of ephemeral ports, which no test of this run has got before."""
    while True:
        # The state of the default generator is inherited from the runner, and the same in all tests
        port = random.SystemRandom().randrange(10000, 32000)
        try:
            # Its server may not have begun to listen
            os.close(os.open(f"{tools}/port-{port}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
            try:
                s.bind(("::", port))
            except OSError:
                continue
            return port


_serial = 0


def unit_name(label="unit", suffix=".service"):
    global _serial
    _serial += 1
    return f"{prefix}-{label}-{_serial}{suffix}"


def write_unit(name, text, directory=UNIT_DIR):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w") as f:
        f.write(text)
    return name


def is_stopped(thread):
    """The thread that a signal wakes up may have to wait for a CPU before it stops the others, which run on until
    then."""
    try:
        with open(f"/proc/{thread}/stat") as f:
            name, state = f.read().split("(", 1)[1].rsplit(") ", 1)
    except (FileNotFoundError, ProcessLookupError):
        return True
    # Workers of io_uring in the kernel
    return state[0] in "TtZX" or name.startswith("iou-")


class Unit:
    """A service with a unit file. It is not started by the constructor. The runner removes it at the end of the
    test."""

    def __init__(self, command, name=None, type="notify", settings="", unit_settings=""):
        self.name = name or unit_name()
        write_unit(self.name, f"[Unit]\nDescription=Unit under test\nStartLimitIntervalSec=0\n{unit_settings}\n"
                              f"[Service]\nType={type}\nNotifyAccess=all\nTimeoutStartSec=60s\nTimeoutStopSec=10s\n"
                              f"ExecStart={command}\n{settings}\n")

    def start(self):
        systemctl("start", self.name)
        return self

    def stop(self):
        systemctl("stop", self.name)

    def restart(self):
        systemctl("restart", self.name)

    def kill(self, sig="SIGKILL", whom="all"):
        systemctl("kill", f"--kill-whom={whom}", f"--signal={sig}", self.name)
        if sig == "SIGSTOP":
            wait_for("all threads are stopped", lambda: all(is_stopped(t) for t in self.threads(whom)))

    def freeze(self, verb="freeze", state="frozen"):
        # PID 1 forgets its clients, and does not reply, if it is reloaded before the processes have stopped
        with subprocess.Popen(["systemctl", verb, self.name]) as client:
            wait_for(f"it is {state}", lambda: unit_property(self.name, "FreezerState") == state)
            client.kill()

    def thaw(self):
        self.freeze("thaw", "running")

    def threads(self, whom="all"):
        """Returns the numbers of its threads, or of those of its main process."""
        if whom == "main":
            return os.listdir(f"/proc/{self.main_pid}/task")
        with open(f"/sys/fs/cgroup{self.control_group}/cgroup.threads") as f:
            return f.read().split()

    @property
    def main_pid(self):
        return int(unit_property(self.name, "MainPID"))

    @property
    def control_group(self):
        return unit_property(self.name, "ControlGroup")


class Server(Unit):
    """The server in C, or another program with the same options, as a unit. Options are keywords: mode="prefork",
    delay_us=10000."""

    def __init__(self, name=None, settings="", port=None, netns=None, unit_settings="", program="server", **options):
        self.port = port or unused_port()
        self.options = dict(options, port=self.port)
        if netns:
            settings += f"\nNetworkNamespacePath=/run/netns/{netns}"
        super().__init__(server_command(program, **self.options), name=name, settings=settings,
                         unit_settings=unit_settings)


def _options(options):
    words = []
    for key, value in options.items():
        if value is False or value is None:
            continue
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def server_command(program="server", **options):
    return " ".join([f"{tools}/{program}"] + _options(options))


# ---- load -------------------------------------------------------------------------------------------------------

class Client:
    """The client in C in the background; wait() returns its counts."""

    def __init__(self, server, netns=None, **options):
        port = server.port if isinstance(server, Server) else server
        if isinstance(server, Server):
            for size in ("request", "response", "greet", "until_eof"):
                if size in server.options:
                    options.setdefault(size, server.options[size])
        self.process = subprocess.Popen(nsenter(netns) + [f"{tools}/client"] + _options(dict(options, port=port)),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

    def wait(self, timeout=60):
        timeout *= patience()
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            fail(f"the client did not end within {timeout} s")
        if self.process.returncode != 0:
            fail(f"the client failed: {err.strip()}")
        return json.loads(out)

    def stop(self):
        """Ends the client after the requests in flight."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()


def load(server, expect_all=True, **options):
    """Runs the client until it ends. With expect_all, each request must get a response."""
    r = Client(server, **options).wait()
    if expect_all and "number" in options:
        equal(r["answered"], options["number"], "responses that the client received")
    return r


class Talk:
    """The client in C in interactive mode: a test controls each of its connections by commands."""

    def __init__(self, server, **options):
        self.client = Client(server, interactive=True, **options)
        self.read()

    def read(self):
        line = self.client.process.stdout.readline()
        check(line, f"the interactive client died: {line!r}")
        r = json.loads(line)
        check(r["ok"], "the interactive client failed")
        return r["answered"]

    def say(self, command):
        self.client.process.stdin.write(command + "\n")
        self.client.process.stdin.flush()
        return self.read()

    def end(self):
        self.client.process.stdin.close()
        self.client.process.wait(timeout=10 * patience())


def smaller(n):
    """Returns the number of requests for a test, which is a twentieth of n in the VM because of its emulated CPUs."""
    return max(n // 20, 1) if in_vm else n


# ---- network namespaces and the faulty link between them ----------------------------------------------------------

class Cable:
    """Two network namespaces (.a for clients, .b for the server) and a relay between them with faults: drop=,
    duplicate=, reorder= and drop_handshake= per thousand packets, delay_us= (of both directions, unless
    delay_back_us= is that from .b), seed=."""

    count = 0

    def __init__(self, **faults):
        Cable.count += 1
        self.a, self.b = f"{prefix}-{Cable.count}a", f"{prefix}-{Cable.count}b"
        self.address_a, self.address_b = "10.77.0.1", "10.77.0.2"
        self.address6_a, self.address6_b = "fd77::1", "fd77::2"
        for ns in (self.a, self.b):
            run("ip", "netns", "add", ns)
        self.connect(faults)

    def configure(self, ns, more):
        v4, v6 = (self.address_a, self.address6_a) if ns == self.a else (self.address_b, self.address6_b)
        run("ip", "-n", ns, "-batch", "-", stdin=f"{more}\nlink set lo up\naddr add {v4}/24 dev t0\n"
            f"addr add {v6}/64 dev t0 nodad\nlink set t0 mtu 1500 up\n")

    def connect(self, faults):
        for ns in (self.a, self.b):
            self.configure(ns, "tuntap add mode tun name t0")
        self.process = subprocess.Popen([f"{tools}/relay"] + _options(faults) + [self.a, "t0", self.b, "t0"],
                                        stdout=subprocess.PIPE, text=True)
        equal(self.process.stdout.readline(), "ready\n", "the relay")

    def counter(self, name, side=None):
        """Returns a counter of the kernel's network stack in one of the namespaces, by default in that of the
        server."""
        for line in run(*nsenter(side or self.b), "nstat", "-asz", name).stdout.splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        fail(f"no counter {name}")

    def cut(self):
        """Removes the link. Returns the counters of the relay."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=10 * patience())
        return json.loads(out)


class NetemCable(Cable):
    """The same with the faults of tc-netem(8), in its syntax."""

    def connect(self, faults):
        run("ip", "-n", self.a, "link", "add", "t0", "type", "veth", "peer", "name", "t0", "netns", self.b)
        for ns in (self.a, self.b):
            self.configure(ns, "")
            run("tc", "-n", ns, "qdisc", "add", "dev", "t0", "root", "netem", *faults["netem"].split())

    def cut(self):
        run("ip", "-n", self.a, "link", "del", "t0")


class Capture:
    """tcpdump in the background. The test fails if it lost packets."""

    def __init__(self, path, port):
        self.path = path
        self.port = port
        self.process = subprocess.Popen(
            ["tcpdump", "-i", "lo", "-w", path, "-B", "65536", "-s", "96", "-n", "--immediate-mode", "-U",
             "tcp", "port", str(port)], stderr=subprocess.PIPE, text=True)
        while True:
            line = self.process.stderr.readline()
            check(line, "tcpdump died")
            if "listening on" in line:
                break

    def stop(self):
        # tcpdump writes packets in order: the capture is complete when it has those of a connection that is opened now
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            mine = s.getsockname()[1]
        wait_for("the capture has seen the last packet",
                 lambda: any(mine in p[:2] for p in capture.packets(self.path)), 20, pause=0.2)
        self.process.send_signal(signal.SIGINT)
        err = self.process.communicate(timeout=20 * patience())[1]
        for line in err.splitlines():
            if line.endswith("packets dropped by kernel"):
                equal(int(line.split()[0]), 0, "packets that the capture lost")
                return self.path
        fail(f"tcpdump did not say what it lost: {err}")


# ---- qosctl -------------------------------------------------------------------------------------------------------

def qosctl(*arguments, ok=True, **keywords):
    return run("qosctl", "--no-pager", *arguments, ok=ok, **keywords)


def qosctl_json(*arguments):
    """Returns the objects that a verb prints with --json=short, whether as one array or one per line, as a list."""
    out = qosctl(*arguments, "--json=short").stdout.strip()
    values = [json.loads(line) for line in out.splitlines() if line]
    return values[0] if len(values) == 1 and isinstance(values[0], list) else values


def attach(unit, *arguments):
    # The first attach loads the programs, which takes long on a busy machine
    qosctl("attach", *arguments, unit.name if isinstance(unit, Unit) else unit, timeout=60)
    return unit


def snapshot(unit, window="total"):
    name = unit.name if isinstance(unit, Unit) else unit
    out = qosctl("status", name, f"--window={window}", "--json=short").stdout
    return json.loads(out)


def lookup(object, path, default=None):
    """Returns the value of a metric by its path."""
    for key in path.split("."):
        if not isinstance(object, dict) or key not in object:
            return default
        object = object[key]
    return object


def server_figures(unit, window="total"):
    s = snapshot(unit, window)
    r = lookup(s, "requests.server")
    check(r is not None, f"no requests.server in {s}")
    return r


def protocols(figures):
    """Returns the protocols with requests."""
    return {name: n for name, n in figures["protocols"].items() if n != 0}


def peer_errors(reset=0, timeout=0, status5xx=0, replies=0):
    """Returns errors as they are reported for the client role."""
    return {"reset": reset, "timeout": timeout, "status5xx": status5xx, "replies": replies}


def total(unit, metric="requests.server.count"):
    s = snapshot(unit)
    check("totals" in s, "no totals in the snapshot")
    check(metric in s["totals"], f"{metric} is not in totals: {s['totals']}")
    return s["totals"][metric]


def count(unit):
    return total(unit)


def expect_total(unit, want, metric="requests.server.count", what=None, up_to=None):
    """Waits until the total reaches the number. Fails if it does not, or exceeds up_to, which by default is the same
    number."""
    deadline = time.monotonic() + 3 * patience()
    while True:
        got = total(unit, metric)
        if got >= want or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if not want <= got <= (want if up_to is None else up_to):
        fail(f"{what or metric}: {got} instead of {want}" + (f" to {up_to}" if up_to not in (None, want) else ""))


def listed():
    """Returns the names of the attached units."""
    return [o["unit"] for o in qosctl_json("list") if o.get("attached", True)]


def programs():
    """Returns the BPF programs, without the summary at the end."""
    return [o for o in qosctl_json("probes") if "program" in o]


def start_served(attach_first=True, **options):
    """Returns a new server that is attached and started."""
    s = Server(**options)
    if attach_first:
        attach(s)
        s.start()
    else:
        s.start()
        attach(s)
    return s


# ---- Varlink --------------------------------------------------------------------------------------------------------

class VarlinkError(Exception):
    def __init__(self, name, parameters):
        super().__init__(f"{name} {parameters}")
        self.name = name
        self.parameters = parameters


class Varlink:
    def __init__(self, timeout=10, rcvbuf=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout * patience())
        if rcvbuf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.connect(VARLINK_SOCKET)
        self.buffer = b""

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_raw(self, data):
        self.socket.sendall(data)

    def send(self, method, parameters=None, **flags):
        message = {"method": method if method.count(".") > 2 else VARLINK + method, "parameters": parameters or {}}
        message.update(flags)
        self.send_raw(json.dumps(message).encode() + b"\0")

    def receive_raw(self):
        """Returns the bytes of the next message, or None if the server closed the connection."""
        while b"\0" not in self.buffer:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return message

    def receive(self):
        """Returns the next message, or None if the server closed the connection."""
        message = self.receive_raw()
        return None if message is None else json.loads(message)

    def reply(self):
        m = self.receive()
        check(m is not None, "the Varlink connection was closed without a reply")
        if "error" in m:
            raise VarlinkError(m["error"], m.get("parameters", {}))
        return m.get("parameters", {})

    def call(self, method, **parameters):
        self.send(method, parameters)
        return self.reply()

    def collect(self, method, **parameters):
        """Returns all replies of a method with "more"."""
        self.send(method, parameters, more=True)
        replies = []
        while True:
            m = self.receive()
            check(m is not None, "the Varlink connection was closed without a reply")
            if "error" in m:
                raise VarlinkError(m["error"], m.get("parameters", {}))
            replies.append(m.get("parameters", {}))
            if not m.get("continues"):
                return replies


def varlink(method, **parameters):
    with Varlink() as v:
        return v.call(method, **parameters)


def varlink_error(method, **parameters):
    """Returns the name of the error that a call fails with, without the interface."""
    try:
        r = varlink(method, **parameters)
    except VarlinkError as e:
        return e.name.removeprefix(VARLINK)
    fail(f"{method} {parameters} went well: {r}")


# ---- D-Bus
# ------------------------------------------------------------------------------------------------------------

def busctl_call(method, signature="", *arguments, path="/org/qosd1", interface="org.qosd1.Manager", ok=True):
    """Returns what the method returned, as a list."""
    words = ["busctl", "--json=short", "call", "org.qosd1", path, interface, method]
    if signature:
        words += [signature] + [str(a) for a in arguments]
    out = run(*words, ok=ok).stdout
    return json.loads(out)["data"] if out.strip() else []


def dbus_error(method, *arguments, path="/org/qosd1", interface="org.qosd1.Manager", user=None):
    """Returns the name of the error that a call fails with. busctl shows only its text, dbus-send its name."""
    words = ["dbus-send", "--system", "--print-reply", "--dest=org.qosd1", path,
             f"{interface}.{method}"] + list(arguments)
    r = run(*as_user(user), *words, ok=False)
    check(r.returncode != 0, f"{method} {arguments} went well: {r.stdout}")
    check(r.stderr.startswith("Error "), f"dbus-send said: {r.stderr}")
    return r.stderr.removeprefix("Error ").split(":")[0]


def dbus_attach_error(unit, probes="", user=None):
    """The same for AttachUnit() with a hold of the administrator that has no time limit."""
    return dbus_error("AttachUnit", f"string:{unit}", f"array:string:{probes}", "uint64:0", "boolean:false", user=user)


def as_user(user):
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--"] if user else []


def plain(value):
    """Returns the values of busctl without their types."""
    if isinstance(value, dict) and set(value) == {"type", "data"}:
        return plain(value["data"])
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


# ---- qosd itself
# --------------------------------------------------------------------------------------------------------

def qosd_pid():
    return int(unit_property("qosd.service", "MainPID"))


def wake_ups(pid):
    """Returns how often the process has waited. On a busy machine it may have been preempted as well."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches:"))


def wait_qosd(previous_pid=None, timeout=15):
    """Waits until qosd replies to GetStatus, and is not the previous process any more. Returns its PID."""
    def alive():
        pid = qosd_pid()
        if pid == 0 or pid == previous_pid:
            return False
        if unit_property("qosd.service", "ActiveState") != "active":
            return False
        try:
            varlink("GetStatus")
        except (OSError, Failed):
            return False
        return pid
    return wait_for("qosd replies to GetStatus", alive, timeout, pause=0.05)


def kill_qosd():
    """Kills qosd as a crash would. Returns when the next process serves requests."""
    pid = qosd_pid()
    os.kill(pid, signal.SIGKILL)
    pid = wait_qosd(pid)
    # So that restarts which no scenario has made are seen
    systemctl("reset-failed", "qosd.service")
    return pid


def configure_qosd(text):
    """Writes a drop-in of qosd.conf, or removes it. Stops and starts qosd, so that no state is left, as it would be
    after a restart."""
    if text:
        os.makedirs(QOSD_CONF_DIR, exist_ok=True)
        with open(QOSD_CONF, "w") as f:
            f.write(text)
    elif os.path.exists(QOSD_CONF):
        os.unlink(QOSD_CONF)
    fresh_qosd()


def fresh_qosd():
    systemctl("stop", "qosd.service")
    systemctl("reset-failed", "qosd.service", ok=False)
    systemctl("start", "qosd.service")
    wait_qosd()


def preload_qosd(environment, *settings):
    """Writes a drop-in of qosd.service with environment variables and other settings, or removes it. Stops and starts
    qosd."""
    if environment or settings:
        os.makedirs(QOSD_DROP_IN_DIR, exist_ok=True)
        with open(QOSD_DROP_IN, "w") as f:
            f.write("[Service]\n" + "".join(f"Environment={k}={v}\n" for k, v in environment.items()) +
                    "".join(f"{s}\n" for s in settings))
    elif os.path.exists(QOSD_DROP_IN):
        os.unlink(QOSD_DROP_IN)
    systemctl("daemon-reload")
    fresh_qosd()


def restore_qosd():
    """Removes the drop-ins that a test has left of the two above."""
    left = [path for path in (QOSD_CONF, QOSD_DROP_IN) if os.path.exists(path)]
    for path in left:
        os.unlink(path)
    if left:
        systemctl("daemon-reload")
        fresh_qosd()


def daemon_is_well():
    """Fails if the daemon does not reply on Varlink and D-Bus."""
    check("version" in varlink("GetStatus"), "GetStatus without a version")
    run("busctl", "call", "org.qosd1", "/org/qosd1", "org.freedesktop.DBus.Peer", "Ping")
