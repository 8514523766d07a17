#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prints the rate and the 99th percentile of units when they change, by D-Bus without a library in C:
rates-jeepney.py UNIT...

A larger client of the same interfaces is the page for Cockpit: docs/COCKPIT.md"""

import sys

from jeepney import DBusAddress, DBusErrorResponse, HeaderFields, MatchRule, Properties, message_bus, new_method_call
from jeepney.io.blocking import Proxy, open_dbus_connection

NOT_KNOWN = 2**64 - 1
MANAGER = DBusAddress("/org/qosd1", "org.qosd1", "org.qosd1.Manager")

with open_dbus_connection("SYSTEM") as bus:
    def call(message):
        reply = bus.send_and_get_reply(message)
        if reply.header.message_type.name == "error":
            sys.exit(DBusErrorResponse(reply).name)
        return reply.body

    paths = [call(new_method_call(MANAGER, "GetUnit", "s", (unit,)))[0] for unit in sys.argv[1:]]
    rule = MatchRule(type="signal", interface="org.freedesktop.DBus.Properties", member="PropertiesChanged")
    rule.add_arg_condition(0, "org.qosd1.Unit")
    Proxy(message_bus, bus).AddMatch(rule)
    with bus.filter(rule) as signals:
        # For as long as this program is on the bus
        call(new_method_call(MANAGER, "Subscribe"))
        while path := bus.recv_until_filtered(signals).header.fields[HeaderFields.path]:
            if path in paths:
                unit = DBusAddress(path, "org.qosd1", "org.qosd1.Unit")
                name, rate, p99 = (call(Properties(unit).get(p))[0][1] for p in ("Name", "Rate", "LatencyP99NSec"))
                print(name, f"{rate:.0f}/s", "-" if p99 == NOT_KNOWN else f"{p99 / 1e6:.2f}ms", flush=True)
