/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Threads, Resources */

#include "inspect-waits.h"
#include "varlink-connection.h"

/* -ENODATA: the unit's threads are not watched. */
static int connection_read_threads(const Connection *c, Unit *u, sd_json_variant **ret) {
        _cleanup_threads_reading_ ThreadsReading reading = {};
        int r;

        r = unit_read_threads(u, &reading);
        return r < 0 ? r : threads_reading_to_json(&reading, ret);
}

static int connection_read_resources(const Connection *c, Unit *u, sd_json_variant **ret) {
        _cleanup_resources_reading_ ResourcesReading reading = {};
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        bool names = connection_may_have_names(c, begin);
        int r;

        r = unit_read_resources(u, names, &reading);
        if (names)
                connection_note_names(c, begin);
        return r < 0 ? r : resources_reading_to_json(u, &reading, ret);
}

static int connection_inspect(Connection *c, const char *metric,
                              int (*read)(const Connection *c, Unit *u, sd_json_variant **ret)) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, c->unit, &e);
        connection_forget_call(c);
        if (!u)
                return vl_reply_error(c->link, -ENXIO, &e);
        r = read(c, u, &v);
        if (r == -ENODATA)
                return vl_reply_not_measured(c->link, metric);
        if (r < 0)
                return r;
        return sd_varlink_reply(c->link, v);
}

static int connection_show_threads(Connection *c) {
        return connection_inspect(c, "contention.threads", connection_read_threads);
}

static int connection_show_resources(Connection *c) {
        return connection_inspect(c, "contention.waits", connection_read_resources);
}

static int method_inspect(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                          Connection *c, int (*go_on)(Connection *c)) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,
                  offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = go_on;
        c->action = POLKIT_ACTION_INSPECT;
        c->needs_attached = true;
        return connection_authorize(c, p.interactive);
}

int vl_method_threads(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), connection_show_threads);
}

int vl_method_resources(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), connection_show_resources);
}
