/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Attach, Detach */

#include "log.h"
#include "varlink-connection.h"

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *degraded = NULL;

        connection_forget_call(c);
        if (error < 0)
                (void) vl_reply_error(c->link, error, e);
        else {
                if (unit_get_degraded_reason(u, &degraded) < 0)
                        (void) log_oom(); /* the unit is attached nevertheless */
                (void) sd_varlink_replybo(c->link,
                                          SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                          SD_JSON_BUILD_PAIR_CONDITION(!!degraded, "degraded",
                                                                       SD_JSON_BUILD_STRING(degraded)));
        }
        varlink_io_touch(c->io);
}

static int connection_attach(Connection *c) {
        _cleanup_free_ char *owner = NULL;
        AttachOperation *operation = NULL;
        pid_t pid = 0;

        (void) sd_varlink_get_peer_pid(c->link, &pid);
        if (c->lease && asprintf(&owner, "varlink, process %i", (int) pid) < 0)
                return -ENOMEM;

        AttachRequest request = {
                .name = c->unit,
                .probes = c->probes,
                .excludes = c->excludes,
                .type = c->lease ? HOLD_LEASE : HOLD_ADMINISTRATOR,
                .uid = c->uid,
                .owner_uid = c->owner_uid,
                .owner = owner,
                .lease_key = c->lease ? c : NULL,
                .duration_usec = c->duration_usec,
        };
        int r;

        r = manager_attach(c->server->manager, &request, on_attached, c, &operation);
        if (r < 0)
                return r;
        if (c->unit) /* NULL if the handler was called already */
                c->attach = operation;
        return 0;
}

static int connection_detach(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = manager_detach(c->server->manager, c->unit, c->lease ? c : NULL, c->owner_uid, &e);
        connection_forget_call(c);
        if (r < 0)
                return vl_reply_error(c->link, r, &e);
        return sd_varlink_reply(c->link, NULL);
}

/* 1: an error was sent. */
static int parse_probes(sd_varlink *link, char **names, ProbeMask *ret) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = probe_mask_parse(names, ret, &e);
        if (r >= 0)
                return 0;
        r = vl_reply_error(link, r, &e);
        return r < 0 ? r : 1;
}

/* 1: an error was sent. */
static int parse_excludes(sd_varlink *link, char **words, ExcludeList *ret) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = exclude_list_parse(words, ret, &e);
        if (r >= 0)
                return 0;
        r = vl_reply_error(link, r, &e);
        return r < 0 ? r : 1;
}

int vl_method_attach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,
                  sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "probes",                         SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, names),       SD_JSON_NULLABLE  },
                { "exclude",                        SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, excludes),    SD_JSON_NULLABLE  },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN,       vl_dispatch_bool,
                  offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "duration",                       _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, duration),    SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN,       vl_dispatch_bool,
                  offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        ProbeMask probes;
        int r;

        /* A one-way call has no reply to wait for: a later call could precede its end */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (p.duration != ABSENT && (p.duration < NSEC_PER_USEC || p.lease))
                return sd_varlink_error_invalid_parameter_name(link, "duration");
        r = parse_probes(link, p.names, &probes);
        if (r != 0)
                return r;
        r = parse_excludes(link, p.excludes, &c->excludes);
        if (r != 0)
                return r;

        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = connection_attach;
        c->action = manager_probes_are_custom(c->server->manager, probes) ? POLKIT_ACTION_PROBE :
                    POLKIT_ACTION_ATTACH;
        c->needs_attached = false;
        c->restricted = true;
        c->probes = probes;
        c->lease = p.lease;
        c->duration_usec = p.duration == ABSENT ? USEC_INFINITY : p.duration / NSEC_PER_USEC;
        return connection_authorize(c, p.interactive);
}

int vl_method_detach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,
                  offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,
                  offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        /* A one-way call has no reply to wait for: a later call could precede its end */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;

        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = connection_detach;
        c->action = POLKIT_ACTION_ATTACH;
        c->needs_attached = true;
        c->restricted = false;
        c->lease = p.lease;

        /* A client may drop its own lease */
        return c->lease ? connection_detach(c) : connection_authorize(c, p.interactive);
}
