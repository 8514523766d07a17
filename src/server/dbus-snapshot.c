/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Snapshot(), SnapshotMounts() and SnapshotDrops() */

#include "dbus-client.h"
#include "dbus-custom.h"
#include "metric.h"
#include "mounts.h"

static int append_metric(sd_bus_message *reply, const Metric *metric, const Metrics *values) {
        const char *s;
        uint64_t n;
        double d;

        switch (metric->type) {
        case METRIC_INTEGER:
                return metric_get_integer(metric, values, &n) ? sd_bus_message_append(reply, "{sv}",
                                metric->name, "t", n) : 0;
        case METRIC_REAL:
                return metric_get_real(metric, values, &d) ?
                       sd_bus_message_append(reply, "{sv}", metric->name, "d", d) : 0;
        default:
                return metric_get_string(metric, values, &s) ? sd_bus_message_append(reply, "{sv}",
                                metric->name, "s", s) : 0;
        }
}

/* Reads unit and window. NULL: the method returns *ret_result. */
static Unit* read_arguments(BusServer *b, sd_bus_message *m, uint64_t *ret_window, int *ret_result,
                            sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        const char *name;
        Unit *u;

        *ret_result = sd_bus_message_read(m, "st", &name, ret_window);
        if (*ret_result < 0)
                return NULL;
        if (*ret_window == UINT64_MAX)
                *ret_window = b->manager->config.default_window_nsec;
        else if (*ret_window != WINDOW_TOTAL && !window_is_valid(*ret_window)) {
                *ret_result = sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                                "There is no window of %llu ns, expected " WINDOW_EXPECTED,
                                                (unsigned long long) *ret_window);
                return NULL;
        }
        u = manager_get_unit(b->manager, name, &e);
        if (!u)
                *ret_result = bus_reply_missing(b, m, name, &e, error);
        return u;
}

int method_snapshot(BusServer *b, sd_bus_message *m, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        uint64_t window;
        Snapshot s;
        Unit *u;
        int r;

        u = read_arguments(b, m, &window, &r, error);
        if (!u)
                return r;
        unit_get_snapshot(u, window, &s);

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(reply, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}",
                                          "unit", "s", u->name,
                                          "controlGroup", "s", strempty(u->control_group),
                                          "activeState", "s", u->active_state,
                                          "attachedSince", "t", u->attached_since / NSEC_PER_USEC,
                                          "seq", "t", s.seq,
                                          "timestamp", "t", s.timestamp / NSEC_PER_USEC,
                                          "covered", "t", s.covered,
                                          "drops", "t", s.drops);
        if (r >= 0 && window != WINDOW_TOTAL)
                r = sd_bus_message_append(reply, "{sv}", "window", "t", s.window);
        if (r >= 0 && !sd_id128_is_null(u->invocation_id))
                r = sd_bus_message_append(reply, "{sv}", "invocationId", "s",
                                          SD_ID128_TO_STRING(u->invocation_id));
        if (r >= 0 && !__builtin_isnan(s.cost_share))
                r = sd_bus_message_append(reply, "{sv}", "cost.share", "d", s.cost_share);
        for (size_t i = 0; i < metric_table_size && r >= 0; i++)
                r = append_metric(reply, metric_table + i, &s.metrics);
        if (r >= 0)
                r = append_custom_metrics(reply, u, window);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int append_mount(sd_bus_message *reply, const Mount *mount) {
        Metrics metrics;
        int r;

        mount_get_metrics(mount, &metrics);
        r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r >= 0 && isempty(mount->device))
                r = sd_bus_message_append(reply, "{sv}", "rest", "b", true);
        else if (r >= 0)
                r = sd_bus_message_append(reply, "{sv}{sv}", "type", "s", mount->type, "device", "s",
                                          mount->device);
        if (r >= 0 && !isempty(mount->point))
                r = sd_bus_message_append(reply, "{sv}", "mount", "s", mount->point);
        if (r >= 0 && mount->round_trips != ABSENT)
                r = sd_bus_message_append(reply, "{sv}{sv}", "machineRoundTrips", "t", mount->round_trips,
                                          "machineRoundTripTime", "t", mount->round_trip_nsec);
        for (size_t i = 0; i < metric_table_size && r >= 0; i++)
                r = append_metric(reply, metric_table + i, &metrics);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static void call_snapshot_mounts(Call *c) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Unit *u = manager_get_unit(c->server->manager, c->unit, &e);
        Snapshot s;
        int r;

        if (!u) {
                bus_reply_error(c->message, -ENXIO, &e);
                call_finish(c);
                return;
        }

        unit_get_snapshot(u, c->window, &s);
        r = sd_bus_message_new_method_return(c->message, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "a{sv}");
        for (size_t i = 0; i < s.n_mounts && r >= 0; i++)
                r = append_mount(reply, s.mounts + i);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        if (r < 0)
                bus_reply_error(c->message, r, NULL);
        call_finish(c);
}

static const Action action_snapshot_mounts = {
        .name = POLKIT_ACTION_INSPECT,
        .what = "Reading the file systems of a unit",
        .go_on = call_snapshot_mounts,
};

int method_snapshot_mounts(BusServer *b, sd_bus_message *m, sd_bus_error *error) {
        uint64_t window;
        Unit *u;
        Call *c;
        int r;

        u = read_arguments(b, m, &window, &r, error);
        if (!u)
                return r;
        r = call_new(b, m, &action_snapshot_mounts, u->name, &c);
        if (r < 0)
                return r;
        c->window = window;
        return call_submit(c, error);
}

int method_snapshot_drops(BusServer *b, sd_bus_message *m, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        uint64_t window;
        Snapshot s;
        Unit *u;
        int r;

        u = read_arguments(b, m, &window, &r, error);
        if (!u)
                return r;
        unit_get_snapshot(u, window, &s);

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(st)");
        for (size_t i = 0; i < s.n_drop_reasons && r >= 0; i++)
                r = sd_bus_message_append(reply, "(st)", s.drop_reasons[i].name, s.drop_reasons[i].count);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}
