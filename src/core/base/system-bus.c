/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdlib.h>

#include "log.h"
#include "manager.h"
#include "observer.h"
#include "service-manager.h"
#include "system-bus.h"

/* Default address of sd_bus_open_system(). */
#define SYSTEM_BUS_ADDRESS "unix:path=/run/dbus/system_bus_socket"

/* Interval of reconnects to the system bus. */
#define RECONNECT_USEC USEC_PER_SEC

static int on_reconnect(sd_event_source *source, uint64_t usec, void *userdata) {
        (void) manager_connect_bus(ASSERT_PTR(userdata));
        return 0;
}

static void manager_schedule_reconnect(Manager *m) {
        SystemBus *b = &m->system_bus;
        int r;

        b->reconnect = sd_event_source_disable_unref(b->reconnect);
        r = sd_event_add_time_relative(m->event, &b->reconnect, CLOCK_MONOTONIC, RECONNECT_USEC, 0,
                                       on_reconnect, m);
        if (r < 0)
                (void) log_error_errno(r, "Failed to schedule reconnecting to the system bus: %m");
}

static int on_bus_disconnected(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Manager *m = ASSERT_PTR(userdata);

        log_notice("Disconnected from the system bus, reconnecting.");
        (void) manager_set_bus(m, NULL);
        manager_schedule_reconnect(m);
        return 0;
}

int manager_set_bus(Manager *m, sd_bus *bus) {
        int r;

        if (m->system_bus.bus)
                manager_emit_bus_changed(m, NULL);
        (void) service_manager_set_bus(m->service_manager, NULL);
        if (m->system_bus.bus) {
                sd_bus_detach_event(m->system_bus.bus);
                m->system_bus.bus = sd_bus_close_unref(m->system_bus.bus);
        }
        if (!bus)
                return 0;

        m->system_bus.bus = sd_bus_ref(bus);
        r = service_manager_set_bus(m->service_manager, bus);
        if (r < 0)
                return log_warning_errno(r, "Failed to subscribe to the service manager: %m");
        manager_emit_bus_changed(m, bus);
        return 0;
}

/* As sd_bus_open_system(), but the bus refuses calls with file descriptors: those of calls that wait would
 * stay open. */
static int bus_open_system(sd_bus **ret) {
        _cleanup_(sd_bus_unrefp) sd_bus *bus = NULL;
        int r;

        r = sd_bus_new(&bus);
        if (r >= 0)
                r = sd_bus_set_description(bus, "qosd");
        if (r >= 0)
                r = sd_bus_set_address(bus, secure_getenv("DBUS_SYSTEM_BUS_ADDRESS") ?: SYSTEM_BUS_ADDRESS);
        if (r >= 0)
                r = sd_bus_set_bus_client(bus, true);
        if (r >= 0)
                r = sd_bus_negotiate_fds(bus, false);
        if (r >= 0)
                r = sd_bus_start(bus);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(bus);
        return 0;
}

int manager_connect_bus(Manager *m) {
        _cleanup_(sd_bus_unrefp) sd_bus *bus = NULL;
        int r;

        r = bus_open_system(&bus);
        if (r < 0) {
                (void) log_full_errno(m->system_bus.reconnect ? LOG_DEBUG : LOG_NOTICE, r,
                                      "Failed to connect to the system bus, will retry: %m");
                manager_schedule_reconnect(m);
                return r;
        }
        m->system_bus.reconnect = sd_event_source_disable_unref(m->system_bus.reconnect);

        r = sd_bus_attach_event(bus, m->event, PRIORITY_ROOT);
        if (r >= 0)
                r = sd_bus_match_signal_async(bus, NULL, "org.freedesktop.DBus.Local", NULL,
                                              "org.freedesktop.DBus.Local",
                                              "Disconnected", on_bus_disconnected, NULL, m);
        if (r < 0)
                return log_error_errno(r, "Failed to set up the system bus connection: %m");
        return manager_set_bus(m, bus);
}

void system_bus_done(SystemBus *b) {
        sd_event_source_disable_unref(b->reconnect);
        sd_bus_flush_close_unref(b->bus);
}
