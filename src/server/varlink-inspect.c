/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Threads, Resources, ListConnections, ListSegments, SlowOperations */

#include "segment-stamps.h"
#include "slow-operations.h"
#include "varlink-connection.h"

/* CPU time from which on a reading is cached for users other than root, for INSPECTION_NSEC_MAX. */
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

static Inspecting* inspecting_free(Inspecting *i) {
        if (!i)
                return NULL;

        waits_query_free(i->query);
        connections_query_free(i->connections);
        free(i->unit);
        free(i);
        return NULL;
}

void connection_end_inspecting(Connection *c) {
        bool begun = c->inspecting && c->inspecting->begun;

        if (!c->inspecting)
                return;
        c->inspecting = inspecting_free(c->inspecting);
        connection_resume_readers(c, begun);
}

void connection_restart_inspecting(Connection *c) {
        Inspecting *i = c->inspecting;

        i->query = waits_query_free(i->query);
        i->connections = connections_query_free(i->connections);
        i->waits = false;
        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
}

static void on_names(uint64_t nsec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);

        c->inspecting->waits = false;
        names_were_read(varlink_io_get_user(c->io), nsec);
        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
}

/* Keeps a reading that took long. begin: of its last step. */
static void inspection_keep(VarlinkServer *server, const Inspecting *i, Inspection *kept, sd_json_variant *v,
                            uint64_t begin) {
        kept->v = sd_json_variant_unref(kept->v);
        kept->until = 0;
        if (i->cpu < INSPECTION_COST_MIN)
                return;
        kept->v = sd_json_variant_ref(v);
        kept->until = begin + INSPECTION_NSEC_MAX;
        /* It is freed then, also if no connection ends */
        memory_trim_schedule(server->manager->trim);
}

/* Replies, once the reading is complete; 1: it is not. */
static int connection_step_connections(Connection *c, Unit *u) {
        Inspecting *i = c->inspecting;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        uint64_t begin;
        int r;

        if (!i->connections) {
                r = free_and_strdup(&i->unit, u->name); /* it may have been an alias */
                if (r < 0)
                        return r;
                r = connections_query_new(u, i->type - INSPECTION_CONNECTIONS, &i->connections);
                if (r >= 0)
                        return 1;
        } else
                r = connections_query_step(i->connections, u);
        if (r == -ENODATA)
                return vl_reply_not_measured(c->link, "network.covered");
        if (r != 0)
                return r;

        begin = now_nsec(CLOCK_MONOTONIC);
        r = connections_query_to_json(i->connections, &v);
        if (r != 0)
                return r;
        inspection_keep(c->server, i, &c->server->inspections[u->index][i->type], v, begin);
        return sd_varlink_reply(c->link, v);
}

/* The same of threads and wait targets. */
static int connection_step_waits(Connection *c, Unit *u) {
        Inspecting *i = c->inspecting;
        Inspection *kept = &c->server->inspections[u->index][i->type];
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        uint64_t begin;
        int r;

        if (!i->query) {
                r = free_and_strdup(&i->unit, u->name); /* may have been an alias */
                if (r < 0)
                        return r;
                r = i->type == INSPECTION_THREADS ? threads_query_new(u, &i->query) :
                    resources_query_new(u, &i->query);
                if (r >= 0)
                        return 1;
        } else
                r = waits_query_step(i->query, u);
        if (r == -ENODATA)
                return vl_reply_not_measured(c->link, i->type == INSPECTION_THREADS ? "contention.threads" :
                                             "contention.waits");
        if (r != 0)
                return r;

        if (i->type == INSPECTION_RESOURCES_NAMES &&
            resources_query_find_names(i->query, u, c->uid == 0, on_names, c) > 0) {
                i->waits = true;
                return 1;
        }
        begin = now_nsec(CLOCK_MONOTONIC);
        r = i->type == INSPECTION_THREADS ? threads_query_to_json(i->query, &v) :
            resources_query_to_json(i->query, u, &v);
        if (r != 0)
                return r;

        inspection_keep(c->server, i, kept, v, begin);
        return sd_varlink_reply(c->link, v);
}

int connection_go_on_inspecting(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC), cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        TurnUser *user = varlink_io_get_user(c->io);
        Inspecting *i = c->inspecting;
        const Inspection *kept;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, i->unit, &e);
        if (!u)
                r = vl_reply_error(c->link, -ENXIO, &e);
        else {
                if (!i->query && i->type == INSPECTION_RESOURCES && names_may_be_read(user, begin))
                        i->type = INSPECTION_RESOURCES_NAMES;
                kept = &c->server->inspections[u->index][i->type];
                if (c->uid != 0 && kept->v && begin < kept->until)
                        r = sd_varlink_reply(c->link, kept->v);
                else if (user && user->reads_many && !i->begun)
                        return 0; /* resumed by connection_resume_readers() */
                else {
                        if (user)
                                user->reads_many = true;
                        i->begun = true;
                        do
                                r = i->type >= INSPECTION_CONNECTIONS ? connection_step_connections(c, u) :
                                    connection_step_waits(c, u);
                        while (r > 0 && !i->waits && now_nsec(CLOCK_MONOTONIC) < begin + LIST_TURN_NSEC);
                        i->cpu += now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu;
                        if (r > 0 && !i->waits)
                                (void) varlink_io_want_turn(c->io, /* when_written= */ false);
                        if (r > 0)
                                return 0;
                }
        }
        connection_end_inspecting(c);
        return r < 0 ? sd_varlink_error_errno(c->link, r) : 0;
}

static int connection_inspect(Connection *c, InspectionType type) {
        c->inspecting = new0(Inspecting, 1);
        if (c->inspecting)
                *c->inspecting = (Inspecting) { .type = type, .unit = TAKE_PTR(c->unit) };
        connection_forget_call(c);
        return c->inspecting ? connection_go_on_inspecting(c) : -ENOMEM;
}

static int connection_show_threads(Connection *c) {
        return connection_inspect(c, INSPECTION_THREADS);
}

static int connection_show_resources(Connection *c) {
        return connection_inspect(c, INSPECTION_RESOURCES);
}

static int connection_show_connections(Connection *c) {
        return connection_inspect(c, INSPECTION_CONNECTIONS + c->sort);
}

static int connection_show_slow_operations(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, c->unit, &e);
        connection_forget_call(c);
        if (!u)
                return vl_reply_error(c->link, -ENXIO, &e);
        r = unit_get_slow_operations(u, &v);
        if (r == -ENODATA)
                return vl_reply_not_measured(c->link, "storage.reads.latency");
        return r < 0 ? sd_varlink_error_errno(c->link, r) : sd_varlink_reply(c->link, v);
}

static int connection_show_segments(Connection *c) {
        uint64_t duration = c->duration_usec * NSEC_PER_USEC;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, c->unit, &e);
        connection_forget_call(c);
        if (!u)
                return vl_reply_error(c->link, -ENXIO, &e);
        r = unit_get_segments(u, duration, &v);
        if (r == -ENODATA)
                return vl_reply_not_measured(c->link, "network.covered");
        return r < 0 ? sd_varlink_error_errno(c->link, r) : sd_varlink_reply(c->link, v);
}

#define INSPECT_FIELDS                                                                                      \
        { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,         \
          offsetof(Parameters, unit),        SD_JSON_MANDATORY },                                           \
        { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,                      \
          offsetof(Parameters, interactive), SD_JSON_NULLABLE  }

static const sd_json_dispatch_field inspect_table[] = { INSPECT_FIELDS, {} };
static const sd_json_dispatch_field connections_table[] = {
        INSPECT_FIELDS,
        { "sort", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, sort),
          SD_JSON_NULLABLE },
        {}
};

static const sd_json_dispatch_field segments_table[] = {
        INSPECT_FIELDS,
        { "duration", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
          offsetof(Parameters, duration), SD_JSON_NULLABLE },
        {}
};

static int method_inspect(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                          Connection *c, const sd_json_dispatch_field *table, int (*go_on)(Connection *c)) {
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        /* A one-way call has no reply to wait for: a later call could precede its end */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        c->sort = CONNECTION_BY_QUEUED;
        if (p.sort && connection_sort_from_string(p.sort, &c->sort) < 0)
                return sd_varlink_error_invalid_parameter_name(link, "sort");
        if (p.duration == ABSENT)
                p.duration = 0;
        if (p.duration > SEGMENTS_NSEC_MAX)
                return sd_varlink_error_invalid_parameter_name(link, "duration");
        c->duration_usec = p.duration / NSEC_PER_USEC;
        if (!manager_get_unit(c->server->manager, p.unit, &e))
                return connection_reply_missing(c, flags, p.unit, &e);
        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = go_on;
        c->action = POLKIT_ACTION_INSPECT;
        c->needs_attached = true;
        c->restricted = false;
        return connection_authorize(c, p.interactive);
}

int vl_method_threads(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), inspect_table,
                              connection_show_threads);
}

int vl_method_resources(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), inspect_table,
                              connection_show_resources);
}

int vl_method_slow_operations(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), inspect_table,
                              connection_show_slow_operations);
}

int vl_method_list_connections(sd_varlink *link, sd_json_variant *parameters,
                               sd_varlink_method_flags_t flags, void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), connections_table,
                              connection_show_connections);
}

int vl_method_list_segments(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), segments_table,
                              connection_show_segments);
}
