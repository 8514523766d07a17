# SPDX-License-Identifier: LGPL-2.1-or-later
"""Boots of the whole machine: the settings of unit files are in force before their units start."""

import json
import os
import shutil

import scenario
from scenario import (check, count, equal, listed, qosctl_json, run, server_command, systemctl, test, unit_name,
                      unit_property, unused_port, wait_for, write_unit)

ETC = "/etc/systemd/system"
REQUESTS = 400


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


@test(deadline=300, needs_vm="the machine boots anew", reboots=True)
def first_request_after_boot(before):
    """After a boot, a service with an [X-QoS] section has all requests counted, from the first one on, and its
    thresholds are evaluated. (Another service sends the requests as soon as the first one is ready.)"""
    if before is None:
        directory = f"/var/lib/{scenario.prefix}-boot"
        os.mkdir(directory)
        os.chmod(directory, 0o755)
        for tool in ("server", "client"):
            shutil.copy(f"{scenario.tools}/{tool}", directory)
        port, server, asking = unused_port(), unit_name("server"), unit_name("asking")
        command = server_command(mode="thread", port=port).replace(scenario.tools, directory)
        write_unit(server,
                   f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={command}\n[Install]\n"
                   "WantedBy=multi-user.target\n"
                           "[X-QoS]\nObserve=requests\nThreshold=busy: requests.server.inFlight > 1000 over 1s\n"
                           "Threshold=alone: requests.server.connections.open < 1 over 1s\n", ETC)
        write_unit(asking, f"[Unit]\nAfter={server}\nRequires={server}\n"
                           f"[Service]\nType=oneshot\nRemainAfterExit=yes\nStandardOutput=file:{directory}/said\n"
                           f"ExecStart={directory}/client --port={port} --connections=4 "
                           f"--number={REQUESTS}\n[Install]\nWantedBy=multi-user.target\n", ETC)
        systemctl("daemon-reload")
        systemctl("enable", server, asking)
        return {"boot": boot_id(), "server": server, "asking": asking, "directory": directory}

    check(boot_id() != before["boot"], "the machine was not booted")
    server = before["server"]
    wait_for("all requests were sent", lambda: unit_property(before["asking"], "ActiveState") == "active", 60,
             pause=0.2)
    with open(os.path.join(before["directory"], "said")) as f:
        equal(json.load(f)["answered"], REQUESTS, "responses that the client received")
    wait_for("the server is observed", lambda: server in listed(), 60, pause=0.2)

    # Units wait for a minute for the programs, which an emulated CPU may need for itself where others use the machine
    def late():
        journal = run("journalctl", "-b", "-u", "qosd.service", "-o", "cat").stdout
        return "Startup exceeded the ordering timeout" in journal
    wait_for("all requests are counted, or the service did not wait, which is logged",
             lambda: count(server) == REQUESTS or late(), 20)
    check(count(server) <= REQUESTS, f"{count(server)} requests were counted")

    def states():
        return {t["name"]: (t["state"], t["source"]) for t in qosctl_json("list-thresholds", server)}
    wait_for("the thresholds are in their states",
             lambda: states() == {"busy": ("ok", "unitFile"), "alone": ("violated", "unitFile")}, 20)
    equal(os.listdir(f"/run/qosd/violated/{server}"), ["alone"], "files of violated thresholds")
    shutil.rmtree(before["directory"])
