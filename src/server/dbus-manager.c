/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "config-build.h"
#include "dbus-client.h"
#include "dbus-manager.h"
#include "log.h"
#include "vtable-manager.h"

#define BUS_NAME "org.qosd1"

#define LOG_CONTROL_PATH "/org/freedesktop/LogControl1"
#define LOG_CONTROL_INTERFACE "org.freedesktop.LogControl1"

/* ---- attach and detach -------------------------------------------------------------------------------- */

static int manager_method_attach_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);
        AttachOptions o = {};
        const char *unit;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        r = read_probes(m, &o.probes, error);
        if (r < 0)
                return r;
        r = sd_bus_message_read(m, "tb", &o.duration_nsec, &o.lease);
        if (r < 0)
                return r;
        return method_attach(b, m, unit, &o, error);
}

static int manager_method_attach_unit_with_options(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);
        AttachOptions o = {};
        const char *unit;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        r = read_options(m, &o, error);
        if (r < 0)
                return r;
        return method_attach(b, m, unit, &o, error);
}

static int manager_method_detach_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        const char *unit;
        int r, lease;
        Call *c;

        r = sd_bus_message_read(m, "sb", &unit, &lease);
        if (r < 0)
                return r;

        r = check_attached(b, m, unit, error);
        if (r < 0)
                return r;
        if (lease && !client_find(b, m) && !client_waits(b, m)) {
                r = qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, unit, "the caller has no lease of '%s'", unit);
                return bus_error_set_qos(error, r, &e);
        }

        r = call_new(b, m, &action_detach, unit, &c);
        if (r < 0)
                return r;
        c->lease = lease;
        return call_submit(c, error);
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

static int manager_method_set_threshold(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_change_threshold(ASSERT_PTR(userdata), m, &action_set, error);
}

static int manager_method_clear_threshold(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_change_threshold(ASSERT_PTR(userdata), m, &action_clear, error);
}

/* For one unit, and for peer-to-peer connections; of all units, see dbus-reply.h. */
static int manager_method_list_thresholds(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        const char *unit;
        Unit *only = NULL;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        if (!isempty(unit)) {
                only = manager_get_unit(b->manager, unit, &e);
                if (!only)
                        return bus_error_set_qos(error, -ENXIO, &e);
        }

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', BUS_THRESHOLD_SIGNATURE);
        FOREACH_UNIT(u, b->manager)
                if (r >= 0 && (!only || u == only))
                        r = unit_append_thresholds(u, reply);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static int manager_method_list_units(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        BusServer *b = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssstasso)");
        FOREACH_UNIT(u, b->manager) {
                _cleanup_free_ char *path = NULL, *degraded = NULL;

                if (r >= 0)
                        r = unit_get_bus_path(u, &path);
                if (r >= 0)
                        r = unit_get_degraded_reason(u, &degraded);
                if (r >= 0)
                        r = sd_bus_message_open_container(reply, 'r', "ssstasso");
                if (r >= 0)
                        r = sd_bus_message_append(reply, "ssst", u->name, strempty(u->control_group),
                                                  u->active_state, u->attached_since / NSEC_PER_USEC);
                if (r >= 0)
                        r = append_probes(reply, u->probes);
                if (r >= 0)
                        r = sd_bus_message_append(reply, "so", strempty(degraded), path);
                if (r >= 0)
                        r = sd_bus_message_close_container(reply);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int manager_method_get_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        _cleanup_free_ char *path = NULL;
        const char *name;
        Unit *u;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        u = manager_get_unit(b->manager, name, &e);
        if (!u)
                return bus_reply_missing(b, m, name, &e, error);
        r = unit_get_bus_path(u, &path);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "o", path);
}

static int manager_method_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_snapshot(ASSERT_PTR(userdata), m, error);
}

static int manager_method_snapshot_mounts(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_snapshot_mounts(ASSERT_PTR(userdata), m, error);
}

static int manager_method_snapshot_drops(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_snapshot_drops(ASSERT_PTR(userdata), m, error);
}

static int manager_method_diagnose(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        uint64_t interval_nsec;
        const char *unit;
        int r;

        r = sd_bus_message_read(m, "st", &unit, &interval_nsec);
        return r < 0 ? r : method_diagnose(ASSERT_PTR(userdata), m, unit, interval_nsec, error);
}

/* ---- Subscribe ---------------------------------------------------------------------------------------- */

/* At full seconds, as streams of varlink, so that all clients are served by the same reading. */
static void dbus_server_arm_timer(BusServer *b) {
        (void) sd_event_source_set_time(b->tick,
                                        (now_usec(CLOCK_MONOTONIC) / USEC_PER_SEC + 1) * USEC_PER_SEC);
        (void) sd_event_source_set_enabled(b->tick, SD_EVENT_ONESHOT);
}

static int overview_new(BusServer *b, sd_bus_message **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = sd_bus_message_new_signal(b->bus, &m, BUS_PATH, Manager_INTERFACE, "Overview");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "a{sv}");
        if (r < 0)
                return r;

        *ret = TAKE_PTR(m);
        return 0;
}

static int overview_send(BusServer *b, sd_bus_message *m) {
        int r;

        r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_send(b->bus, m, NULL);
}

/* Sends metrics of some units per turn, and one overview of these, also without any unit, by which clients
 * see that they are subscribed. A unit takes up to some hundred us. */
static void on_tick_turn(void *userdata) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + TURN_NSEC;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *overview = NULL;
        BusServer *b = ASSERT_PTR(userdata);
        bool more = false;
        int r = 0;

        if (b->n_subscribed > 0)
                r = overview_new(b, &overview);
        if (r < 0)
                log_debug_errno(r, "Failed to create an overview, ignoring: %m");
        while (b->n_subscribed > 0 && b->tick_next < UNITS_MAX_LIMIT && !more) {
                Unit *u = b->manager->units.slots[b->tick_next++];

                if (!u)
                        continue;
                r = unit_objects_emit_reading(b->objects, u);
                if (r >= 0 && overview)
                        r = unit_objects_append_overview(b->objects, u, overview);
                if (r < 0)
                        log_debug_errno(r, "Failed to emit metrics of '%s', ignoring: %m", u->name);
                if (now_nsec(CLOCK_MONOTONIC) >= end)
                        more = turn_request(&b->tick_turn) >= 0;
        }
        if (overview) {
                r = overview_send(b, overview);
                if (r < 0)
                        log_debug_errno(r, "Failed to emit an overview, ignoring: %m");
        }
        if (b->n_subscribed > 0 && !more)
                dbus_server_arm_timer(b);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);

        b->tick_next = 0;
        on_tick_turn(b);
        return 0;
}

static void call_subscribe(Call *c) {
        BusServer *b = c->server;

        if (c->client->subscribed) {
                (void) sd_bus_reply_method_errorf(c->message, BUS_ERROR_PREFIX "AlreadySubscribed",
                                                  "The caller is subscribed already");
                call_finish(c);
                return;
        }

        c->client->subscribed = true;
        if (++b->n_subscribed == 1) {
                unit_objects_set_subscribed(b->objects, true);
                dbus_server_arm_timer(b);
        }
        (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static void call_unsubscribe(Call *c) {
        BusServer *b = c->server;

        if (!c->client->subscribed) {
                (void) sd_bus_reply_method_errorf(c->message, BUS_ERROR_PREFIX "NotSubscribed",
                                                  "The caller is not subscribed");
                call_finish(c);
                return;
        }

        c->client->subscribed = false;
        if (--b->n_subscribed == 0) {
                unit_objects_set_subscribed(b->objects, false);
                (void) sd_event_source_set_enabled(b->tick, SD_EVENT_OFF);
        }
        (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static int manager_method_subscribe(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_subscribe };
        Call *c;
        int r;

        r = call_new(ASSERT_PTR(userdata), m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

static int manager_method_unsubscribe(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_unsubscribe };
        BusServer *b = ASSERT_PTR(userdata);
        Call *c;
        int r;

        if (!client_find(b, m) && !client_waits(b, m))
                return sd_bus_error_set(error, BUS_ERROR_PREFIX "NotSubscribed",
                                        "The caller is not subscribed");

        r = call_new(b, m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

/* ---- properties --------------------------------------------------------------------------------------- */

static int manager_property_get_version(sd_bus *bus, const char *path, const char *interface,
                                        const char *property, sd_bus_message *reply, void *userdata,
                                        sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", QOSD_VERSION);
}

static int manager_property_get_probes(sd_bus *bus, const char *path, const char *interface,
                                       const char *property, sd_bus_message *reply, void *userdata,
                                       sd_bus_error *error) {
        const char *name;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "s");
        for (unsigned i = 0; r >= 0 && (name = probe_mask_name(i)); i++)
                r = sd_bus_message_append(reply, "s", name);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int manager_property_get_n_units(sd_bus *bus, const char *path, const char *interface,
                                        const char *property, sd_bus_message *reply, void *userdata,
                                        sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "u", (uint32_t) b->manager->units.n);
}

static int manager_property_get_units_max(sd_bus *bus, const char *path, const char *interface,
                                          const char *property, sd_bus_message *reply, void *userdata,
                                          sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "u", (uint32_t) b->manager->config.units_max);
}

static int manager_property_get_default_window_n_sec(sd_bus *bus, const char *path, const char *interface,
                                                     const char *property,
                                                     sd_bus_message *reply, void *userdata,
                                                     sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "t", b->manager->config.default_window_nsec);
}

/* ---- LogControl1: systemctl service-log-level qosd ---------------------------------------------------- */

static int log_property_get_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", log_level_to_string(log_get_max_level()));
}

static int log_property_set_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                                  sd_bus_message *value, void *userdata, sd_bus_error *error) {
        const char *s;
        int r;

        r = sd_bus_message_read(value, "s", &s);
        if (r < 0)
                return r;
        r = log_level_from_string(s);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "There is no log level '%s', expected emerg … debug", s);
        log_set_max_level(r);
        return 0;
}

static int log_property_get_target(sd_bus *bus, const char *path, const char *interface,
                                   const char *property, sd_bus_message *reply, void *userdata,
                                   sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "journal");
}

static int log_property_set_target(sd_bus *bus, const char *path, const char *interface,
                                   const char *property, sd_bus_message *value, void *userdata,
                                   sd_bus_error *error) {
        return sd_bus_error_set(error, SD_BUS_ERROR_NOT_SUPPORTED, "qosd logs to the journal only");
}

static int log_property_get_identifier(sd_bus *bus, const char *path, const char *interface,
                                       const char *property, sd_bus_message *reply, void *userdata,
                                       sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "qosd");
}

/* The setters are called by call_set_log() only: on_log_set() takes all calls of them. */
static const sd_bus_vtable log_control_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", log_property_get_level, log_property_set_level, 0, 0),
        SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", log_property_get_target, log_property_set_target, 0, 0),
        SD_BUS_PROPERTY("SyslogIdentifier", "s", log_property_get_identifier, 0,
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_VTABLE_END
};

/* Replies to a Set() of LogLevel or LogTarget. */
static void call_set_log(Call *c) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *property;
        int r;

        if (c->client->uid != 0 && c->client->uid != getuid()) {
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                  "Only root may change what is logged");
                call_finish(c);
                return;
        }

        r = sd_bus_message_rewind(c->message, true);
        if (r >= 0)
                r = sd_bus_message_read(c->message, "ss", NULL, &property);
        if (r >= 0)
                r = sd_bus_message_enter_container(c->message, 'v', "s");
        if (r >= 0)
                r = (streq(property, "LogLevel") ? log_property_set_level : log_property_set_target)
                        (c->server->bus, LOG_CONTROL_PATH, LOG_CONTROL_INTERFACE, property, c->message,
                         c->server, &error);
        if (r < 0)
                (void) sd_bus_reply_method_errno(c->message, r, &error);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

/* Takes Set() of LogControl1 from sd-bus, which would block on the bus to query the sender's privileges. */
static int on_log_set(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_set_log };
        const char *interface, *property, *value;
        Call *c;
        int r;

        if (sd_bus_message_is_method_call(m, DBUS_NAME ".Properties", "Set") <= 0 ||
            !streq_ptr(sd_bus_message_get_path(m), LOG_CONTROL_PATH))
                return 0;
        if (!sd_bus_message_has_signature(m, "ssv"))
                return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS,
                                        "Expected an interface, a property and its value");
        if (sd_bus_message_read(m, "ssv", &interface, &property, "s", &value) < 0 ||
            !streq(interface, LOG_CONTROL_INTERFACE) ||
            (!streq(property, "LogLevel") && !streq(property, "LogTarget"))) {
                (void) sd_bus_message_rewind(m, true);
                return 0; /* refused by sd-bus */
        }
        if (strlen(value) > EXCERPT_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "There is no %s '%s'", property,
                                         excerpt(value, (char[EXCERPT_MAX + 1]) {}));

        r = call_new(ASSERT_PTR(userdata), m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

/* ---- events of the manager ---------------------------------------------------------------------------- */

static void emit_n_units(BusServer *b) {
        if (b->n_subscribed > 0)
                (void) sd_bus_emit_properties_changed(b->bus, BUS_PATH, Manager_INTERFACE, "NUnits", NULL);
}

static void on_unit_attached(Unit *u, void *userdata) {
        _cleanup_free_ char *path = NULL;
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus || unit_get_bus_path(u, &path) < 0)
                return;

        (void) sd_bus_emit_interfaces_added(b->bus, path, BUS_UNIT_INTERFACES, NULL);
        (void) sd_bus_emit_signal(b->bus, BUS_PATH, Manager_INTERFACE, "UnitAttached", "so", u->name, path);
        emit_n_units(b);
}

static void on_unit_detaching(Unit *u, void *userdata) {
        _cleanup_free_ char *path = NULL;
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus)
                return;

        if (unit_get_bus_path(u, &path) >= 0) {
                (void) sd_bus_emit_interfaces_removed(b->bus, path, BUS_UNIT_INTERFACES, NULL);
                (void) sd_bus_emit_signal(b->bus, BUS_PATH, Manager_INTERFACE, "UnitDetached", "so", u->name,
                                          path);
        }
        emit_n_units(b);
        for (Client *i = b->clients; i; i = i->next)
                for (Call *c = i->calls; c; c = c->next)
                        if (c->diagnosing && streq(c->unit, u->name))
                                diagnosing_restart(c->diagnosing);
        bus_queue_forget_unit(b->queue, u);
        unit_objects_forget(b->objects, u);
}

static void on_unit_changed(Unit *u, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);

        if (b->bus)
                (void) unit_objects_emit_unit(b->objects, u);
}

/* For clients that read D-Bus as JSON, which has no NaN. */
static int emit_threshold_changed(BusServer *b, const ThresholdEvent *e) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = sd_bus_message_new_signal(b->bus, &m, BUS_PATH, Manager_INTERFACE, "ThresholdChanged");
        if (r >= 0)
                r = threshold_event_append(e, m);
        return r < 0 ? r : sd_bus_send(b->bus, m, NULL);
}

static void on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus)
                return;

        (void) unit_objects_emit_crossed(b->objects, u, e);
        (void) emit_threshold_changed(b, e);
        (void) unit_objects_emit_unit(b->objects, u);
}

/* ---- server ------------------------------------------------------------------------------------------- */

static void bus_server_disconnect(BusServer *b) {
        while (b->clients)
                client_free(b->clients);
        while (b->failed)
                failed_call_free(b->failed);
        b->tick = sd_event_source_disable_unref(b->tick);
        turn_done(&b->tick_turn);
        while (b->n_slots > 0)
                sd_bus_slot_unref(b->slots[--b->n_slots]);
        b->objects = unit_objects_free(b->objects);
        b->queue = bus_queue_free(b->queue);
        b->bus = sd_bus_unref(b->bus);
        assert(b->n_clients == 0 && b->n_subscribed == 0);
}

/* Called twice: for the system bus, and for the local connection of BusQueue. */
static int bus_server_add_objects(BusServer *b, sd_bus *bus) {
        int r;

        r = sd_bus_add_object_vtable(bus, b->slots + b->n_slots++, BUS_PATH, Manager_INTERFACE,
                                     manager_vtable, b);
        if (r >= 0)
                r = sd_bus_add_object_manager(bus, b->slots + b->n_slots++, BUS_PATH);
        if (r >= 0)
                r = sd_bus_add_object_vtable(bus, b->slots + b->n_slots++, LOG_CONTROL_PATH,
                                             LOG_CONTROL_INTERFACE, log_control_vtable, b);
        if (r >= 0)
                r = sd_bus_add_filter(bus, b->slots + b->n_slots++, on_log_set, b);
        if (r >= 0)
                r = unit_objects_add_to(b->objects, bus);
        return r;
}

static int bus_server_connect(BusServer *b, sd_bus *bus) {
        Manager *m = b->manager;
        int r;

        assert(!b->bus);

        b->bus = sd_bus_ref(bus);

        r = sd_event_add_time(m->event, &b->tick, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_tick, b);
        if (r >= 0)
                r = sd_event_source_set_enabled(b->tick, SD_EVENT_OFF);
        if (r >= 0)
                r = turn_init(&b->tick_turn, m->turns, /* uid= */ 0, on_tick_turn, b);
        if (r >= 0)
                r = unit_objects_new(m, bus, &b->objects);
        if (r >= 0)
                r = bus_server_add_objects(b, bus);
        if (r >= 0)
                r = bus_queue_new(m, b->objects, bus, &b->queue);
        if (r >= 0)
                r = bus_server_add_objects(b, bus_queue_get_bus(b->queue));
        if (r < 0)
                bus_server_disconnect(b);
        return r;
}

BusServer* bus_server_free(BusServer *b) {
        if (!b)
                return NULL;

        bus_server_disconnect(b);
        manager_remove_observer(b->manager, &b->observer);
        free(b);
        return NULL;
}

static int bus_server_allocate(Manager *m, BusServer **ret) {
        BusServer *b;

        b = new0(BusServer, 1);
        if (!b)
                return -ENOMEM;

        *b = (BusServer) {
                .manager = m,
                .observer = {
                        .unit_attached = on_unit_attached,
                        .unit_changed = on_unit_changed,
                        .unit_detaching = on_unit_detaching,
                        .threshold_event = on_threshold_event,
                        .userdata = b,
                },
        };
        manager_add_observer(m, &b->observer);
        *ret = b;
        return 0;
}

static void on_peer_bus_changed(sd_bus *bus, void *userdata) {
        if (!bus)
                bus_server_disconnect(ASSERT_PTR(userdata));
}

int bus_server_new_peer(Manager *m, sd_bus *bus, BusServer **ret) {
        BusServer *b;
        int r;

        r = bus_server_allocate(m, &b);
        if (r < 0)
                return r;
        b->observer.bus_changed = on_peer_bus_changed;
        r = bus_server_connect(b, bus);
        if (r < 0) {
                bus_server_free(b);
                return r;
        }

        *ret = b;
        return 0;
}

static int on_name_requested(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        uint32_t code;
        int r;

        if (e) {
                log_warning("Failed to acquire the name '" BUS_NAME
                            "', qosd is not reachable over D-Bus: %s", e->message);
                return 0;
        }

        /* DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER and DBUS_REQUEST_NAME_REPLY_ALREADY_OWNER */
        r = sd_bus_message_read(m, "u", &code);
        if (r < 0 || (code != 1 && code != 4))
                log_warning("The name '" BUS_NAME
                            "' is owned by another process, qosd is not reachable over D-Bus.");
        else
                log_debug("Acquired the name '" BUS_NAME "'.");
        return 0;
}

static int on_name_lost(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;

        if (sd_bus_message_read(m, "s", &name) >= 0 && streq(name, BUS_NAME))
                log_warning("Lost the name '" BUS_NAME "', qosd is no longer reachable over D-Bus.");
        return 0;
}

static void on_bus_changed(sd_bus *bus, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);
        int r;

        bus_server_disconnect(b);
        if (!bus)
                return;

        r = bus_server_connect(b, bus);
        if (r >= 0)
                r = sd_bus_match_signal_async(bus, b->slots + b->n_slots++, DBUS_NAME, DBUS_PATH, DBUS_NAME,
                                              "NameLost", on_name_lost, NULL, NULL);
        if (r >= 0)
                r = sd_bus_request_name_async(bus, b->slots + b->n_slots++, BUS_NAME, 0, on_name_requested,
                                              NULL);
        if (r < 0) {
                (void) log_error_errno(r, "Failed to register objects on the system bus: %m");
                bus_server_disconnect(b);
        }
}

int bus_server_new(Manager *m, BusServer **ret) {
        BusServer *b;
        int r;

        r = bus_server_allocate(m, &b);
        if (r < 0)
                return r;
        b->observer.bus_changed = on_bus_changed;
        if (m->system_bus.bus)
                on_bus_changed(m->system_bus.bus, b);

        *ret = b;
        return 0;
}
