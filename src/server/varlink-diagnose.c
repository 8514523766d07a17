/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* BeginDiagnosis, Diagnose */

#include "diagnosis-json.h"
#include "varlink-connection.h"

/* Time after which an interval that the client has not ended is dropped: it is one of DIAGNOSES_MAX, and
 * holds the unit. Figures are those of its last 5 min at most. */
#define INTERVAL_MAX_NSEC (600 * NSEC_PER_SEC)

static void connection_drop_diagnosing(Connection *c) {
        c->diagnosing = diagnosing_free(c->server->manager, c->diagnosing);
}

/* ---- Diagnose ----------------------------------------------------------------------------------------- */

/* Returns the longest window within an interval of at least INTERVAL_MIN_NSEC. */
static uint64_t interval_get_window(uint64_t interval) {
        if (interval >= 300 * NSEC_PER_SEC)
                return 300 * NSEC_PER_SEC;
        if (interval >= 60 * NSEC_PER_SEC)
                return 60 * NSEC_PER_SEC;
        return MIN(interval / NSEC_PER_SEC, UINT64_C(10)) * NSEC_PER_SEC;
}

static int connection_reply_diagnosis(Connection *c, Unit *u, const HostSample *end) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Diagnosing *d = c->diagnosing;
        uint64_t interval = now_nsec(CLOCK_MONOTONIC) - d->begun_at,
                window = d->window ?: interval_get_window(interval);
        Conclusion found;
        int r;

        r = diagnosing_conclude(d, u, end, window, &found);
        if (r < 0)
                return r;
        r = diagnosis_to_json(u, &found.evidence, found.by_history ? &found.normal : NULL, &found.diagnosis,
                              &v);
        if (r < 0)
                return r;
        return sd_varlink_reply(c->link, v);
}

/* Replies with an error, and ends the call. */
static void connection_fail_diagnosis(Connection *c, int error, const QosError *e) {
        if (e)
                (void) vl_reply_error(c->link, error, e);
        else /* without effect if an error was sent already */
                (void) sd_varlink_error_errno(c->link, error);
        connection_forget_call(c);
        varlink_io_touch(c->io);
}

static int on_interval_over(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);

        c->diagnosing->state = DIAGNOSING_RESOURCES;
        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
        return 0;
}

static void on_names(uint64_t nsec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);

        names_were_read(varlink_io_get_user(c->io), nsec);
        (void) on_interval_over(NULL, 0, c);
}

/* until: CLOCK_MONOTONIC ns */
static int connection_await_interval(Connection *c, uint64_t until) {
        return sd_event_add_time(c->server->manager->event, &c->diagnosing->timer, CLOCK_MONOTONIC,
                                 until / NSEC_PER_USEC, 0, on_interval_over, c);
}

static int on_begun_expired(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);

        c->begun = diagnosing_free(c->server->manager, c->begun);
        return 0;
}

/* Replies to BeginDiagnosis(). The diagnosis is kept for Diagnose() on the same connection. */
static int connection_keep_begun(Connection *c) {
        int r;

        c->diagnosing->begins = false;
        c->begun = TAKE_PTR(c->diagnosing);
        c->begun->unit = TAKE_PTR(c->unit);
        r = sd_event_add_time(c->server->manager->event, &c->begun->timer, CLOCK_MONOTONIC,
                              (c->begun->begun_at + INTERVAL_MAX_NSEC) / NSEC_PER_USEC, 0,
                              on_begun_expired, c);
        if (r >= 0)
                r = sd_varlink_replybo(c->link, SD_JSON_BUILD_PAIR_STRING("unit", c->begun->unit));
        if (r < 0)
                c->begun = diagnosing_free(c->server->manager, c->begun);
        return r;
}

void connection_go_on_diagnosing(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Diagnosing *d = c->diagnosing;
        HostSample *sample;
        Unit *u;
        int r;

        if (d->state == DIAGNOSING_WAITS)
                return;
        u = manager_get_unit(c->server->manager, c->unit, &e);
        if (!u) {
                connection_fail_diagnosis(c, -ENXIO, &e);
                return;
        }

        do
                r = diagnosing_step(d, u, varlink_io_get_user(c->io));
        while (r > 0 && now_nsec(CLOCK_MONOTONIC) < begin + LIST_TURN_NSEC);
        if (d->state == DIAGNOSING_NAMES)
                return;
        if (r > 0) {
                (void) varlink_io_want_turn(c->io, /* when_written= */ false);
                return;
        }

        r = host_sample_new(u, &d->resources, &d->threads, &sample);
        if (r >= 0 && !d->begin) {
                d->begin = sample;
                /* The time of the event loop's iteration may be a second or two ago, as programs were
                 * loaded */
                d->begun_at = now_nsec(CLOCK_MONOTONIC);
                if (d->begins)
                        r = connection_keep_begun(c);
                else {
                        r = connection_await_interval(c, d->begun_at + d->window);
                        if (r >= 0)
                                return;
                }
        } else if (r >= 0) {
                r = connection_reply_diagnosis(c, u, sample);
                host_sample_free(sample);
        }
        if (r < 0)
                connection_fail_diagnosis(c, r, NULL);
        else {
                connection_forget_call(c);
                varlink_io_touch(c->io);
        }
}

static void on_diagnosis_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        Diagnosing *d = ASSERT_PTR(c->diagnosing);
        int r;

        c->attach = NULL;
        if (error < 0) {
                connection_fail_diagnosis(c, error, e);
                return;
        }

        r = free_and_strdup(&c->unit, u->name); /* may have been an alias */
        if (r < 0) {
                connection_fail_diagnosis(c, r, NULL);
                return;
        }
        d->state = DIAGNOSING_RESOURCES;
        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
}

static int connection_diagnose_attach(Connection *c) {
        _cleanup_free_ char *owner = NULL;
        AttachOperation *operation = NULL;
        pid_t pid = 0;
        int r;

        (void) sd_varlink_get_peer_pid(c->link, &pid);
        if (asprintf(&owner, "varlink, process %i, a diagnosis", (int) pid) < 0)
                r = -ENOMEM;
        else {
                const bool all = c->owner_uid == 0 && c->go_on == connection_diagnose_attach;
                AttachRequest request = {
                        .name = c->unit,
                        .probes = diagnosing_get_probes(all),
                        .type = HOLD_LEASE,
                        .uid = c->uid,
                        .owner_uid = c->owner_uid,
                        .owner = owner,
                        .lease_key = c->diagnosing,
                        .duration_usec = USEC_INFINITY,
                };

                r = manager_attach(c->server->manager, &request, on_diagnosis_attached, c, &operation);
        }
        if (r < 0)
                connection_forget_call(c);
        else if (c->diagnosing && c->diagnosing->state == DIAGNOSING_WAITS) /* the handler was not called */
                c->attach = operation;
        return r;
}

/* Loading programs for the unit needs the right to attach it, in addition to the one to inspect it. */
static int connection_diagnose(Connection *c) {
        const Unit *u = manager_get_unit(c->server->manager, c->unit, NULL);

        if (u && (u->probes & DIAGNOSE_PROBES) == DIAGNOSE_PROBES)
                return connection_diagnose_attach(c);
        c->action = POLKIT_ACTION_ATTACH;
        c->go_on = connection_diagnose_attach;
        return connection_authorize(c, c->diagnosing->interactive);
}

/* Checks whether another diagnosis may begin. 1: an error was sent. */
static int connection_check_limit(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        unsigned n = 0, own = 0;
        char limit[16];
        int r;

        for (Connection *i = c->server->connections; i; i = i->next)
                if (i->diagnosing || i->begun) {
                        n++;
                        own += i->uid == c->uid;
                }
        /* Root has a limit of its own */
        if (c->uid == 0 ? own < DIAGNOSES_MAX : n < DIAGNOSES_MAX && own < DIAGNOSES_PER_UID_MAX)
                return 0;

        (void) snprintf(limit, sizeof(limit), "%u",
                        c->uid != 0 && n < DIAGNOSES_MAX ? DIAGNOSES_PER_UID_MAX : DIAGNOSES_MAX);
        r = qos_error_set(&e, QOS_ERROR_TOO_MANY_DIAGNOSES, limit,
                          "%s diagnoses are under way, more at a time are not made", limit);
        r = vl_reply_error(c->link, r, &e);
        return r < 0 ? r : 1;
}

/* Parses the baseline. 1: an error was sent. */
static int diagnosing_set_normal(Diagnosing *d, sd_varlink *link, const Parameters *p) {
        const char *bad;
        int r;

        if (!p->normal || sd_json_variant_is_null(p->normal))
                return 0;
        r = diagnosis_figures_from_json(p->normal, &d->normal, &bad);
        if (r < 0) {
                r = sd_varlink_error_invalid_parameter_name(link, bad);
                return r < 0 ? r : 1;
        }
        d->has_normal = true;
        return 0;
}

/* Attaches the unit, and takes the first reading. */
static int connection_start_diagnosis(Connection *c, const Parameters *p, bool begins) {
        int r;

        c->unit = strdup(p->unit);
        c->diagnosing = new0(Diagnosing, 1);
        c->drop = connection_drop_diagnosing;
        if (!c->unit || !c->diagnosing) {
                connection_forget_call(c);
                return -ENOMEM;
        }
        c->diagnosing->window = begins ? 0 : p->window;
        c->diagnosing->begins = begins;
        c->diagnosing->on_names = on_names;
        c->diagnosing->userdata = c;
        c->diagnosing->interactive = p->interactive;
        r = diagnosing_set_normal(c->diagnosing, c->link, p);
        if (r != 0) {
                connection_forget_call(c);
                return r < 0 ? r : 0;
        }

        c->go_on = connection_diagnose;
        c->action = POLKIT_ACTION_INSPECT;
        c->needs_attached = false;
        c->restricted = false;
        r = connection_authorize(c, p->interactive);
        if (r < 0)
                connection_forget_call(c);
        return r;
}

/* Ends the interval of BeginDiagnosis(). */
static int connection_end_interval(Connection *c, const Parameters *p) {
        const Unit *u = manager_get_unit(c->server->manager, p->unit, NULL);
        int r;

        if (!c->begun || !u || !streq(u->name, c->begun->unit))
                return sd_varlink_error_invalid_parameter_name(c->link, "sinceBegin");
        r = diagnosing_set_normal(c->begun, c->link, p);
        if (r != 0)
                return r < 0 ? r : 0;

        c->diagnosing = TAKE_PTR(c->begun);
        c->drop = connection_drop_diagnosing;
        c->diagnosing->timer = sd_event_source_disable_unref(c->diagnosing->timer);
        c->unit = TAKE_PTR(c->diagnosing->unit);
        /* In the past, unless Diagnose() was called early */
        r = connection_await_interval(c, c->diagnosing->begun_at + INTERVAL_MIN_NSEC);
        if (r < 0)
                connection_forget_call(c);
        return r;
}

int vl_method_begin_diagnosis(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),        SD_JSON_MANDATORY },
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

        c->begun = diagnosing_free(c->server->manager, c->begun);
        r = connection_check_limit(c);
        if (r != 0)
                return r < 0 ? r : 0;
        return connection_start_diagnosis(c, &p, /* begins= */ true);
}

int vl_method_diagnose(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,
                  sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "window",                         _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window),      SD_JSON_NULLABLE  },
                { "sinceBegin",                     SD_JSON_VARIANT_BOOLEAN,       vl_dispatch_bool,
                  offsetof(Parameters, since_begin), SD_JSON_NULLABLE  },
                { "baseline",                       SD_JSON_VARIANT_OBJECT,
                  sd_json_dispatch_variant_noref, offsetof(Parameters, normal),     SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN,       vl_dispatch_bool,
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
        if (p.since_begin && p.window != ABSENT)
                return sd_varlink_error_invalid_parameter_name(link, "window");
        if (p.since_begin)
                return connection_end_interval(c, &p);
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;
        if (p.window < INTERVAL_MIN_NSEC) /* also 0, since the attach: of the machine there is no reading of
                                           * that time */
                return sd_varlink_error_invalid_parameter_name(link, "window");

        r = connection_check_limit(c);
        if (r != 0)
                return r < 0 ? r : 0;
        return connection_start_diagnosis(c, &p, /* begins= */ false);
}
