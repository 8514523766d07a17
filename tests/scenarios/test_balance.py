# SPDX-License-Identifier: LGPL-2.1-or-later
"""qos-balance: throttles batch units while a unit is too slow, and always releases them afterwards."""

import os
import random
import signal
import socket
import time

import scenario
from scenario import (Client, Unit, attach, check, equal, kill_qosd, qosd_pid, test, unit_name, unit_property,
                      unused_port, wait_for, wait_qosd)


class Victim(Unit):
    """A unit that is slow at one port and fast at the other."""

    def __init__(self, settings=""):
        self.fast, self.slow = unused_port(), unused_port()
        super().__init__(f"sh -c '{scenario.tools}/server --mode=thread --port={self.slow} --delay-us=300000 & "
                         f"exec {scenario.tools}/server --mode=thread --port={self.fast}'", settings=settings)

    def start(self):
        super().start()
        # Both servers notify the service manager: one may not listen yet
        for port in (self.fast, self.slow):
            wait_for(f"port {port} is open", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        return self


class Requesting:
    """A client with a few hundred requests per second to the fast or slow port."""

    def __init__(self, victim, slow):
        self.client = Client(victim.slow if slow else victim.fast, connections=60 if slow else 2, number=100000000,
                             **({} if slow else {"think_us": 5000}))

    def end(self):
        self.client.process.kill()
        self.client.process.wait()


def batch_units(n):
    units = [Unit("sleep infinity", name=unit_name("batch"), type="exec") for _ in range(n)]
    for u in units:
        u.start()
    return units


def frozen(units):
    return [unit_property(u.name, "FreezerState") for u in units]


class Balance(Unit):
    def __init__(self, victim, batch, by="freeze"):
        arguments = (f"--unit={victim.name} --target=100ms --quantile=0.9 --by={by} --verbose "
                     f"{' '.join(u.name for u in batch)}")
        self.guard = Unit(f"qos-balance --release {arguments}", name=unit_name("guard"), type="oneshot")
        super().__init__(f"qos-balance {arguments}", unit_settings=f"OnFailure={self.guard.name}")


@test(deadline=150)
def what_is_taken_is_given_back():
    """The batch units are frozen while the unit is too slow, and run again once it is fast."""
    victim, batch = Victim().start(), batch_units(2)
    b = Balance(victim, batch).start()
    asking = Requesting(victim, slow=True)
    wait_for("all are frozen", lambda: frozen(batch) == ["frozen"] * 2, 30, pause=0.1)
    # They stay frozen
    wait_for("time has passed", lambda: steps(b, "level=0/20") >= 20, 30, pause=0.2)
    equal(frozen(batch), ["frozen"] * 2, "the batch units")

    asking.end()
    asking = Requesting(victim, slow=False)
    wait_for("all CPU time is given back", lambda: steps(b, "give level=20/20") > 0, 90, pause=0.5)
    wait_for("all run", lambda: frozen(batch) == ["running"] * 2, 10, pause=0.1)
    asking.end()


def steps(b, word):
    out = scenario.run("journalctl", "-o", "cat", "--no-pager", "-u", b.name).stdout
    return sum(word in line for line in out.splitlines())


@test(deadline=150)
def killed_at_any_moment():
    """No unit stays frozen when qos-balance is terminated or killed, at whatever moment."""
    victim, batch = Victim().start(), batch_units(2)
    asking = Requesting(victim, slow=True)
    b = Balance(victim, batch)
    moments = random.Random(1)
    for i in range(8):
        b.start()
        wait_for("a batch unit is frozen", lambda: "frozen" in frozen(batch), 30, pause=0.01)
        time.sleep(moments.random() * 0.3)      # a different moment each time
        b.kill("SIGKILL" if i % 4 else "SIGTERM", "main" if i % 2 else "all")
        wait_for("qos-balance has ended", lambda: unit_property(b.name, "ActiveState") in ("inactive", "failed"), 20)
        wait_for(f"the batch units run after {i + 1} ends", lambda: frozen(batch) == ["running"] * 2, 20)
        wait_for("the unit of OnFailure= has ended", lambda: unit_property(b.guard.name, "ActiveState") == "inactive",
                 20)
        equal(frozen(batch), ["running"] * 2, f"the batch units after {i + 1} ends")
    asking.end()


@test(own_daemon=True, deadline=150)
def without_figures_nothing_is_held_back():
    victim, batch = Victim().start(), batch_units(1)
    b = Balance(victim, batch).start()
    asking = Requesting(victim, slow=True)
    wait_for("the batch unit is frozen", lambda: frozen(batch) == ["frozen"] and steps(b, "level=0/10") >= 5, 30,
             pause=0.1)
    for _ in range(2):
        pid = qosd_pid()
        lost = steps(b, "No metrics of")
        kill_qosd()
        wait_qosd(pid)
        wait_for("the lack of metrics is reported", lambda: steps(b, "No metrics of") > lost, 30, pause=0.1)
        # It has attached the unit again, and has metrics again
        wait_for("the batch unit is frozen again", lambda: frozen(batch) == ["frozen"], 60, pause=0.1)
    asking.end()


@test(own_daemon=True, deadline=240)
def a_unit_in_another_that_is_observed():
    """A unit in an observed slice has no view after a restart of qosd: qos-balance goes on with snapshots."""
    slice = attach(unit_name("slice", ".slice"))
    victim, batch = Victim(f"Slice={slice}").start(), batch_units(1)
    b = Balance(victim, batch).start()
    asking = Requesting(victim, slow=True)
    wait_for("the batch unit is frozen", lambda: frozen(batch) == ["frozen"], 30, pause=0.1)
    pid, lost = qosd_pid(), steps(b, "No metrics of")
    kill_qosd()
    wait_qosd(pid)
    wait_for("the lack of metrics is reported", lambda: steps(b, "No metrics of") > lost, 30, pause=0.1)
    wait_for("the batch unit is frozen again", lambda: frozen(batch) == ["frozen"], 60, pause=0.1)
    # It stays frozen, that is it is not left from the time before
    taken = steps(b, "level=0/10")
    wait_for("metrics are evaluated 20 times more", lambda: steps(b, "level=0/10") >= taken + 20, 60, pause=0.2)
    equal(frozen(batch), ["frozen"], "the batch unit")
    equal(steps(b, "opening the view"), 0, "complaints")
    # If qosd does not reply, the batch unit is released well before the usual timeout of calls
    pid = qosd_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for("the batch unit runs while qosd hangs", lambda: frozen(batch) == ["running"], 20, pause=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("the batch unit is frozen when qosd goes on", lambda: frozen(batch) == ["frozen"], 90, pause=0.1)
    asking.end()


def quotas(units):
    """The CPU quota of each unit in microseconds per 100 ms, or "max"."""
    words = []
    for u in units:
        try:
            with open(f"/sys/fs/cgroup{u.control_group}/cpu.max") as f:
                words.append(f.read().split()[0])
        except OSError:
            # Only units with a quota have the controller
            words.append("max")
    return words


@test(deadline=300, vm="nightly", needs_vm="a CPU quota needs the cpu controller")
def by_quota():
    """With --by=quota the batch units have a CPU quota while the unit is too slow, and none once qos-balance ends."""
    victim, batch = Victim().start(), batch_units(2)
    b = Balance(victim, batch, by="quota").start()
    asking = Requesting(victim, slow=True)
    # A hundredth of a CPU, which is 1 ms in 100
    wait_for("all batch units have the least quota", lambda: quotas(batch) == ["1000"] * 2, 30, pause=0.2)
    equal(frozen(batch), ["running"] * 2, "the batch units")
    b.kill("SIGKILL")
    wait_for("the quotas are removed", lambda: quotas(batch) == ["max"] * 2, 30, pause=0.2)
    asking.end()

    b.start()
    asking = Requesting(victim, slow=True)
    wait_for("the batch units have quotas again", lambda: "max" not in quotas(batch), 30, pause=0.2)
    b.stop()
    equal(quotas(batch), ["max"] * 2, "quotas of the batch units")
    asking.end()


@test()
def only_as_a_service():
    """qos-balance refuses to run outside of a service with OnFailure=, as nothing would thaw the units then."""
    batch = batch_units(1)
    r = scenario.run("qos-balance", "--unit=nonsense", "--target=1ms", batch[0].name, ok=False)
    check(r.returncode != 0 and "OnFailure=" in r.stderr, f"it runs outside of a service: {r}")
    for arguments, word in ((["--target=soon", "--unit=x", "y"], "soon"),
                            (["--target=4000s", "--unit=x", "y"], "4000s"), (["--quantile=2", "y"], "2"),
                            (["--by=force", "y"], "force"),
                            (["--unit=x", "--target=1ms"], "batch"), (["y"], "--target")):
        r = scenario.run("qos-balance", *arguments, ok=False)
        equal(r.returncode, 2, f"exit status of {arguments}")
        check(word in r.stderr, f"{arguments}: {r.stderr}")
    # The same unit by a name without suffix
    r = scenario.run("qos-balance", f"--unit={batch[0].name.removesuffix('.service')}", "--target=1ms", batch[0].name,
                     ok=False)
    check(r.returncode == 1 and "is the unit to be protected" in r.stderr,
          f"it throttles the unit to be protected: {r}")
    # Releasing units that are not frozen, or do not exist, succeeds
    scenario.run("qos-balance", "--release", batch[0].name, "nonsense.service")
