/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Threads, Resources */

#include "inspect-waits.h"
#include "varlink-connection.h"

/* A reading visits all threads of the machine, at once. One that takes so much CPU time serves all users but
 * root for INSPECTION_NSEC_MAX. */
#define INSPECTION_COST_MIN (2 * NSEC_PER_MSEC)
#define INSPECTION_NSEC_MAX NSEC_PER_SEC

bool inspections_forget(VarlinkServer *v, unsigned index, uint64_t now) {
        bool left = false;

        for (InspectionType i = 0; i < _INSPECTION_MAX; i++) {
                Inspection *inspection = &v->inspections[index][i];

                if (now >= inspection->until)
                        inspection->v = sd_json_variant_unref(inspection->v);
                left = left || inspection->v;
        }
        return left;
}

/* -ENODATA: the unit's threads are not observed. */
static int unit_inspect(Unit *u, InspectionType type, sd_json_variant **ret) {
        _cleanup_resources_reading_ ResourcesReading resources = {};
        _cleanup_threads_reading_ ThreadsReading threads = {};
        int r;

        if (type == INSPECTION_THREADS) {
                r = unit_read_threads(u, &threads);
                return r < 0 ? r : threads_reading_to_json(&threads, ret);
        }
        r = unit_read_resources(u, type == INSPECTION_RESOURCES_NAMES, &resources);
        return r < 0 ? r : resources_reading_to_json(u, &resources, ret);
}

static int connection_inspect(Connection *c, const char *metric, InspectionType type) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC), cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        VarlinkServer *v = c->server;
        Inspection *inspection;
        Unit *u;
        int r;

        u = manager_get_unit(v->manager, c->unit, &e);
        connection_forget_call(c);
        if (!u)
                return vl_reply_error(c->link, -ENXIO, &e);
        if (type == INSPECTION_RESOURCES && connection_may_have_names(c, begin))
                type = INSPECTION_RESOURCES_NAMES;

        inspection = &v->inspections[u->index][type];
        if (!inspection->v || begin >= inspection->until || c->uid == 0) {
                inspection->v = sd_json_variant_unref(inspection->v);
                r = unit_inspect(u, type, &inspection->v);
                if (type == INSPECTION_RESOURCES_NAMES)
                        connection_note_names(c, begin);
                if (r == -ENODATA)
                        return vl_reply_not_measured(c->link, metric);
                if (r < 0)
                        return r;
                cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu;
                inspection->until = cpu < INSPECTION_COST_MIN ? 0 : begin + INSPECTION_NSEC_MAX;
        }
        /* It is freed then, also if no connection ends */
        if (inspection->until != 0 && sd_event_source_get_enabled(v->trim_timer, NULL) == 0) {
                (void) sd_event_source_set_time(v->trim_timer, inspection->until / NSEC_PER_USEC);
                (void) sd_event_source_set_enabled(v->trim_timer, SD_EVENT_ONESHOT);
        }
        r = sd_varlink_reply(c->link, inspection->v);
        if (inspection->until == 0)
                inspection->v = sd_json_variant_unref(inspection->v);
        return r;
}

static int connection_show_threads(Connection *c) {
        return connection_inspect(c, "contention.threads", INSPECTION_THREADS);
}

static int connection_show_resources(Connection *c) {
        return connection_inspect(c, "contention.waits", INSPECTION_RESOURCES);
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
