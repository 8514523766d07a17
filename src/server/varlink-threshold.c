/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* SetThreshold, ClearThreshold, Monitor, Wait */

#include "log.h"
#include "snapshot-json.h"
#include "threshold-json.h"
#include "varlink-connection.h"

#define POLKIT_ACTION_CONFIGURE "org.qosd1.configure"

/* Interval in which subscribers with unread events are checked, while there are any. */
#define MONITORS_USEC (100 * USEC_PER_MSEC)

Monitor* monitor_free(Monitor *m) {
        if (!m)
                return NULL;

        strv_free(m->units);
        free(m);
        return NULL;
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

static int connection_set_threshold(Connection *c) {
        ThresholdRequest request = {
                .unit = c->unit,
                .threshold = c->threshold,
                .source = c->lease ? THRESHOLD_SOURCE_LEASE : THRESHOLD_SOURCE_ADMINISTRATOR,
                .uid = c->uid,
                .owner_uid = c->owner_uid,
                .lease_key = c->lease ? c : NULL,
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *whole = NULL;
        Threshold *t;
        int r;

        r = threshold_set(c->server->manager, &request, &t, &e);
        connection_forget_call(c);
        if (r < 0)
                return vl_reply_error(c->link, r, &e);
        r = threshold_rule_format(&t->rule, /* named= */ true, &whole);
        if (r < 0)
                return r;
        return sd_varlink_replybo(c->link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", t->unit->name),
                                  SD_JSON_BUILD_PAIR_STRING("threshold", whole));
}

static int connection_clear_threshold(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = threshold_clear(c->server->manager, c->unit, c->threshold, c->lease ? c : NULL, c->owner_uid,
                &e);
        connection_forget_call(c);
        if (r < 0)
                return vl_reply_error(c->link, r, &e);
        return sd_varlink_reply(c->link, NULL);
}

static int method_change_threshold(sd_varlink *link, sd_json_variant *parameters,
                                   sd_varlink_method_flags_t flags, Connection *c, bool set) {
        const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { set ? "threshold" : "name",       SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string,
                  offsetof(Parameters, threshold),   SD_JSON_MANDATORY },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,
                  offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, vl_dispatch_bool,
                  offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Manager *m = c->server->manager;
        ThresholdRule rule;
        int r;

        /* A one-way call has no reply to wait for: a later call could precede its end */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        /* Before the user is prompted for a password */
        if (set) {
                r = threshold_rule_parse(p.threshold, m->config.default_window_nsec, &rule, &e);
                if (r < 0)
                        return vl_reply_error(link, r, &e);
        }

        c->unit = strdup(p.unit);
        c->threshold = strdup(p.threshold);
        if (!c->unit || !c->threshold) {
                connection_forget_call(c);
                return -ENOMEM;
        }
        c->go_on = set ? connection_set_threshold : connection_clear_threshold;
        c->action = POLKIT_ACTION_CONFIGURE;
        c->needs_attached = true;
        c->restricted = false;
        c->lease = p.lease;
        /* A client may drop its own lease */
        return !set && c->lease ? c->go_on(c) : connection_authorize(c, p.interactive);
}

int vl_method_set_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata) {
        return method_change_threshold(link, parameters, flags, ASSERT_PTR(userdata), true);
}

int vl_method_clear_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata) {
        return method_change_threshold(link, parameters, flags, ASSERT_PTR(userdata), false);
}

static int connection_send_event(const ThresholdEvent *e, void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        if (strv_contains(c->monitor->units, e->unit)) {
                r = threshold_event_to_json(e, connection_may_see_peers_of(c, e->unit), &v);
                if (r >= 0)
                        r = sd_varlink_notifybo(c->link, SD_JSON_BUILD_PAIR_VARIANT("event", v));
                if (r < 0)
                        return r;
                varlink_io_touch(c->io);
        }
        c->monitor->seq = e->seq;
        return 0;
}

/* Ends the subscription with an error, which the client receives when it reads again. */
static void connection_end_monitor(Connection *c) {
        uint64_t seq = c->monitor->seq;

        c->monitor = monitor_free(c->monitor);
        log_notice("Subscriber of user %u to thresholds is too slow, ending the subscription.",
                   (unsigned) c->uid);
        (void) sd_varlink_errorbo(c->link, INTERFACE ".TooSlow",
                                  SD_JSON_BUILD_PAIR_UNSIGNED("seq", seq),
                                  SD_JSON_BUILD_PAIR_STRING("message",
                                                            "events were not fetched, no more are sent"));
        varlink_io_touch(c->io);
}

/* Sends the events that the subscriber has missed. False: they are no longer in the log. */
static bool connection_resume(Connection *c) {
        Manager *m = c->server->manager;

        c->monitor->unread_since = 0;
        return threshold_monitor_count_missed(m, c->monitor->seq) == 0 &&
               threshold_monitor_foreach_event(m, c->monitor->seq, connection_send_event, c) >= 0;
}

static void monitors_arm(VarlinkServer *v, uint64_t now) {
        bool any = false;

        for (Connection *c = v->connections; c; c = c->next)
                any = any || (c->monitor && c->monitor->unread_since != 0);
        if (any)
                (void) sd_event_source_set_time(v->monitors_timer, now + MONITORS_USEC);
        (void) sd_event_source_set_enabled(v->monitors_timer, any ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

int varlink_server_resume_monitors(sd_event_source *source, uint64_t usec, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC) / NSEC_PER_USEC;
        VarlinkServer *v = ASSERT_PTR(userdata);

        for (Connection *c = v->connections; c; c = c->next) {
                if (!c->monitor || c->monitor->unread_since == 0)
                        continue;
                if (connection_is_slow(c) ?
                    now > c->monitor->unread_since + SLOW_READER_USEC ||
                    threshold_monitor_count_missed(v->manager, c->monitor->seq) > 0 :
                    !connection_resume(c))
                        connection_end_monitor(c);
        }
        monitors_arm(v, now);
        return 0;
}

/* Does not free connections. */
void varlink_server_on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC) / NSEC_PER_USEC, round = now;
        VarlinkServer *v = ASSERT_PTR(userdata);

        (void) sd_event_now(v->manager->event, CLOCK_MONOTONIC, &round);
        for (Connection *c = v->connections; c; c = c->next) {
                if (!c->monitor || c->monitor->unread_since != 0)
                        continue;
                if (!strv_contains(c->monitor->units, e->unit)) {
                        c->monitor->seq = e->seq;
                        continue;
                }
                /* Checked once per round, as clients cannot read while all units cross their thresholds at
                 * once */
                if (c->monitor->round != round && connection_is_slow(c)) {
                        c->monitor->unread_since = now;
                        monitors_arm(v, now);
                        continue;
                }
                c->monitor->round = round;
                if (connection_send_event(e, c) < 0)
                        connection_end_monitor(c);
        }
}

/* Formats the first reply of Monitor(), with the listed thresholds. */
static int listing_format_states(const Listing *l, char **ret) {
        _cleanup_free_ char *missed = NULL;
        char *reply;

        if (l->missed > 0 && asprintf(&missed, ",\"missedEvents\":%" PRIu64, l->missed) < 0) {
                missed = NULL;
                return -ENOMEM;
        }
        if (asprintf(&reply, "{\"seq\":%" PRIu64 ",\"thresholds\":[%s]%s}", l->since, strempty(l->last),
                     strempty(missed)) < 0)
                return -ENOMEM;
        *ret = reply;
        return 0;
}

/* Sends the only reply of Monitor() without "more". */
static int connection_end_states(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_free_ char *reply = NULL;
        int r;

        r = listing_format_states(c->listing, &reply);
        if (r >= 0)
                r = sd_json_parse(reply, 0, &v, NULL, NULL);
        c->listing = listing_free(c->listing);
        return r < 0 ? r : sd_varlink_reply(c->link, v);
}

/* Sends the first reply of Monitor(), and the events since the listing began. */
static int connection_begin_monitor(Connection *c) {
        _cleanup_free_ char *reply = NULL;
        Listing *l = c->listing;
        int r;

        r = listing_format_states(l, &reply);
        if (r < 0)
                return r;
        r = connection_send_text(c, reply);
        if (r < 0)
                return r;

        c->monitor = new0(Monitor, 1);
        if (!c->monitor)
                return -ENOMEM;
        c->monitor->units = TAKE_PTR(l->units);
        c->monitor->seq = l->since;
        c->listing = listing_free(l);
        if (!connection_resume(c))
                connection_end_monitor(c);
        return 0;
}

int vl_method_monitor(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units", SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv, offsetof(Parameters, names),
                  SD_JSON_NULLABLE },
                { "since", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, since), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(strv_freep) char **units = NULL;
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        uint64_t seq = threshold_monitor_get_seq(m), missed = 0;
        bool resume, more = flags & SD_VARLINK_METHOD_MORE;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        /* Events since then need several replies */
        if (!more && p.since != ABSENT)
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = connection_resolve_units(m, link, p.names, &units);
        if (r != 0)
                return r < 0 ? r : 0;

        resume = p.since != ABSENT && p.since >= threshold_monitor_get_seq_begin(m) && p.since <= seq;
        if (resume)
                missed = threshold_monitor_count_missed(m, p.since);
        if (!resume || missed > 0) {
                c->listing = new0(Listing, 1);
                if (!c->listing)
                        return -ENOMEM;
                *c->listing = (Listing) {
                        .type = LISTING_MONITOR,
                        .end = more ? connection_begin_monitor : connection_end_states,
                        .units = TAKE_PTR(units),
                        .since = seq,
                        .missed = missed,
                };
                r = connection_go_on_listing(c);
                if (r < 0)
                        c->listing = listing_free(c->listing);
                return r;
        }
        r = sd_varlink_notifybo(link, SD_JSON_BUILD_PAIR_UNSIGNED("seq", seq));
        if (r < 0)
                return r;

        c->monitor = new0(Monitor, 1);
        if (!c->monitor)
                return -ENOMEM;
        c->monitor->units = TAKE_PTR(units);
        c->monitor->seq = seq;
        r = threshold_monitor_foreach_event(m, p.since, connection_send_event, c);
        if (r < 0)
                c->monitor = monitor_free(c->monitor);
        return r;
}

static void on_condition(const Threshold *t, const QosError *e, void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *value = NULL;
        Connection *c = ASSERT_PTR(userdata);

        if (e)
                (void) vl_reply_error(c->link, -ENXIO, e);
        else if (threshold_value_to_json(t->rule.metric, t->value, &value) >= 0)
                (void) sd_varlink_replybo(c->link,
                                          SD_JSON_BUILD_PAIR_STRING("unit", t->unit->name),
                                          SD_JSON_BUILD_PAIR_VARIANT("value", value));
        varlink_io_touch(c->io);
}

int vl_method_wait(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",      SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),      SD_JSON_MANDATORY },
                { "condition", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string,
                  offsetof(Parameters, threshold), SD_JSON_MANDATORY },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        ThresholdRequest request;
        ThresholdRule rule;
        Unit *u;
        int r;

        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        /* Not all users may see peers and paths of the unit */
        u = manager_get_unit(c->server->manager, p.unit, NULL);
        if (u && threshold_rule_parse_condition(p.threshold, c->server->manager->config.default_window_nsec,
                                                &rule, NULL) >= 0 &&
            !threshold_rule_is_for_all(&rule) && !connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
        request = (ThresholdRequest) {
                .unit = p.unit,
                .threshold = p.threshold,
                .source = THRESHOLD_SOURCE_CONDITION,
                .uid = c->uid,
                .lease_key = c,
                .handler = on_condition,
                .userdata = c,
        };
        r = threshold_set(c->server->manager, &request, NULL, &e);
        return r < 0 ? vl_reply_error(link, r, &e) : 0;
}
