#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prints the rate and the 99th percentile of units when they change, by D-Bus with Gio: rates-gio.py UNIT...

A larger client of the same interfaces is the page for Cockpit: docs/COCKPIT.md"""

import sys

from gi.repository import Gio, GLib

NOT_KNOWN = 2**64 - 1


def open_proxy(path, interface):
    return Gio.DBusProxy.new_for_bus_sync(Gio.BusType.SYSTEM, Gio.DBusProxyFlags.NONE, None, "org.qosd1", path,
                                          interface, None)


def on_changed(proxy, changed, invalidated):
    name, rate, p99 = (proxy.get_cached_property(p).unpack() for p in ("Name", "Rate", "LatencyP99NSec"))
    print(name, f"{rate:.0f}/s", "-" if p99 == NOT_KNOWN else f"{p99 / 1e6:.2f}ms", flush=True)


try:
    manager = open_proxy("/org/qosd1", "org.qosd1.Manager")
    units = [open_proxy(manager.GetUnit("(s)", unit), "org.qosd1.Unit") for unit in sys.argv[1:]]
    for proxy in units:
        proxy.connect("g-properties-changed", on_changed)
    # For as long as this program is on the bus
    manager.Subscribe()
except GLib.Error as e:
    sys.exit(e.message)
GLib.MainLoop().run()
