# SPDX-License-Identifier: LGPL-2.1-or-later
"""qosctl with several hosts, over ssh itself. Two of them are this machine by other addresses, so that all is there
twice."""

import json
import os

import scenario
from scenario import check, equal, expect_total, fail, load, qosctl, qosctl_json, run, start_served, test


class Sshd:
    """On loopback addresses of both families, with a program to be run as ssh that has its key."""

    def __init__(self):
        self.directory, self.port = f"/run/{scenario.unit_name('ssh', '')}", scenario.unused_port()
        run("install", "-d", "-m", "0700", self.directory)
        run("install", "-d", "/run/sshd")
        for name in ("host", "key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.directory}/{name}")
        self.unit = scenario.Unit(f"/usr/sbin/sshd -D -e -f /dev/null -p {self.port} -h {self.directory}/host -o "
                                  "ListenAddress=127.0.0.1"
                                  f" -o ListenAddress=::1 -o UsePAM=no -o StrictModes=no -o PidFile=none"
                                  f" -o AuthorizedKeysFile={self.directory}/key.pub", type="notify").start()
        with open(f"{self.directory}/ssh", "w") as f:
            f.write(f'#!/bin/sh\nexec ssh -F /dev/null -i {self.directory}/key -o StrictHostKeyChecking=no'
                    f' -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"\n')
        os.chmod(f"{self.directory}/ssh", 0o755)
        self.hosts = [f"root@127.0.0.1:{self.port}", f"root@[::1]:{self.port}"]

    def qosctl(self, hosts, *arguments, **more):
        return qosctl("-H", ",".join(hosts), *arguments, env=os.environ | {"SYSTEMD_SSH": f"{self.directory}/ssh"},
                      **more)


def buckets(reply):
    return {(b["lower"], b.get("upper")): b["count"] for b in reply["buckets"]}


@test(deadline=60)
def several_hosts():
    """What both have is added bucket by bucket; a host without sshd is named, and the others are shown."""
    d = Sshd()
    s = start_served(mode="thread", delay_us=200)
    for connections, number in (1, 200), (8, 1800):
        load(s, connections=connections, number=number)
    expect_total(s, 2000)
    nobody = f"root@127.0.0.1:{scenario.unused_port()}"

    for metric in "latency", "firstByte":
        words = "histogram", s.name, f"requests.server.{metric}", "--window=total"
        one = qosctl_json(*words)[0]
        for hosts, status in (d.hosts, 0), ([*d.hosts, nobody], 1):
            r = d.qosctl(hosts, *words, "--json=short", ok=False)
            equal(r.returncode, status, f"exit status with {hosts}: {r.stderr}")
            both = json.loads(r.stdout)
            equal(buckets(both), {k: 2 * n for k, n in buckets(one).items()}, "buckets")
            equal((both["count"], both["sum"], both["schema"]), (2 * one["count"], 2 * one["sum"], one["schema"]),
                  "count, sum, schema")
            equal([(h["host"], h["count"]) for h in both["hosts"]], [(h, 2000) for h in d.hosts], "hosts")
            check((nobody in r.stderr) == (status == 1), f"what is said: {r.stderr}")
            equal(all(line.startswith(f"{nobody}: ") for line in r.stderr.splitlines()), True,
                  f"messages without a host: {r.stderr}")

    r = json.loads(d.qosctl(d.hosts, "status", s.name, "--window=total", "--json=short").stdout)
    own = scenario.server_figures(s)
    equal(r["requests"]["server"]["count"], 4000, "count")
    for name in "latency", "firstByte", "queue", "service":
        for key in "mean", "p50", "p90", "p99", "max":
            equal(r["requests"]["server"][name][key], own[name][key], f"{key} of {name} of twice the same")
    equal([h["host"] for h in r["hosts"]], d.hosts, "hosts of status")
    for verb in "status", "list":
        text = d.qosctl([*d.hosts, nobody], verb, s.name, ok=False)
        equal(text.returncode, 1, f"exit status of {verb}: {text.stderr}")
        equal([sum(line.startswith(h) for line in text.stdout.splitlines()) for h in d.hosts], [1, 1],
              f"rows of {verb}: {text.stdout}")

    items = [json.loads(line) for line in d.qosctl(d.hosts, "diagnose", s.name, "--for=1s", "--json=short",
                                                   ok=False).stdout.splitlines()]
    equal([(i["host"], i["unit"]) for i in items], [(h, s.name) for h in d.hosts], "diagnoses")
    run("rm", "-rf", d.directory)


@test(deadline=60)
def detached_on_one():
    """A unit that one host does not observe is none of its failures to be hidden."""
    d = Sshd()
    s = scenario.Server(mode="thread")
    s.start()
    r = d.qosctl(d.hosts, "histogram", s.name, ok=False)
    equal((r.returncode, r.stdout), (3, ""), f"of a unit that is not attached: {r.stderr}")
    for h in d.hosts:
        if f"{h}: Failed to read '{s.name}': " not in r.stderr:
            fail(f"{h} is not named: {r.stderr}")
    run("rm", "-rf", d.directory)
