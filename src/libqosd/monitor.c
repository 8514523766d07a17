/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Monitors of threshold states on an event loop. */

#include "connection.h"
#include "util.h"

/* Delay of a reconnect. After a crash, qosd restarts within a tenth of that. */
#define AGAIN_USEC USEC_PER_SEC

struct qosd_event {
        sd_json_variant *v;
        bool initial;
};

struct qosd_monitor {
        unsigned n_ref;
        sd_event *event;
        char *address;                  /* NULL: the default */
        sd_json_variant *units;         /* NULL: all units */
        qosd_event_handler_t handler;
        void *userdata;

        sd_varlink *link;               /* NULL: waiting for the timer */
        sd_event_source *again;
        uint64_t seq;                   /* newest event known */
        bool resumed, begun;            /* seq is valid; the first reply on this connection was received */
};

static void monitor_done(qosd_monitor *m) {
        sd_varlink_close_unref(m->link);
        sd_event_source_disable_unref(m->again);
        sd_event_unref(m->event);
        sd_json_variant_unref(m->units);
        free(m->address);
}

DEFINE_REF_UNREF(qosd_monitor, monitor_done)

static void monitor_report(qosd_monitor *m, sd_json_variant *v, bool initial) {
        qosd_event e = { .v = v, .initial = initial };

        if (sd_json_variant_is_object(v))
                m->handler(m, &e, 0, m->userdata);
}

static int monitor_wait(qosd_monitor *m) {
        m->link = sd_varlink_close_unref(m->link);
        if (m->n_ref == 1) /* the handler has dropped its reference */
                return 0;
        (void) sd_event_source_set_time_relative(m->again, AGAIN_USEC);
        return sd_event_source_set_enabled(m->again, SD_EVENT_ONESHOT);
}

static int on_reply(sd_varlink *link, sd_json_variant *reply, const char *error_id,
                    sd_varlink_reply_flags_t flags, void *userdata) {
        _cleanup_(qosd_monitor_unrefp) qosd_monitor *m = qosd_monitor_ref(userdata);
        sd_json_variant *seq, *thresholds, *missed, *event;

        /* Connection closed: qosd has stopped, the client was too slow, or the unit does not exist (yet) */
        if (error_id)
                return monitor_wait(m);

        seq = sd_json_variant_by_key(reply, "seq");
        thresholds = sd_json_variant_by_key(reply, "thresholds");
        missed = sd_json_variant_by_key(reply, "missedEvents");
        event = sd_json_variant_by_key(reply, "event");

        if (!m->begun) {
                m->begun = true;
                if (m->resumed && thresholds)
                        m->handler(m, NULL, sd_json_variant_is_unsigned(missed) ?
                                   sd_json_variant_unsigned(missed) : 0, m->userdata);
                /* Without thresholds, all events after the newest known one follow */
                if (sd_json_variant_is_unsigned(seq) && (thresholds || !m->resumed)) {
                        m->seq = sd_json_variant_unsigned(seq);
                        m->resumed = true;
                }
                for (size_t i = 0; sd_json_variant_is_array(thresholds) &&
                     i < sd_json_variant_elements(thresholds) && m->n_ref > 1; i++)
                        monitor_report(m, sd_json_variant_by_index(thresholds, i), true);
        } else if (event) {
                seq = sd_json_variant_by_key(event, "seq");
                if (sd_json_variant_is_unsigned(seq))
                        m->seq = sd_json_variant_unsigned(seq);
                monitor_report(m, event, false);
        }

        return flags & SD_VARLINK_REPLY_CONTINUES ? 0 : monitor_wait(m);
}

static int monitor_connect(qosd_monitor *m, uint64_t timeout_usec) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = NULL;
        int r;

        r = connection_open(m->address, timeout_usec, &link);
        if (r < 0)
                return r;
        (void) sd_varlink_set_userdata(link, m);
        r = sd_varlink_bind_reply(link, on_reply);
        if (r >= 0)
                r = sd_varlink_set_relative_timeout(link, UINT64_MAX); /* there may be no events for days */
        if (r >= 0)
                r = sd_varlink_attach_event(link, m->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_json_buildo(&v,
                                   SD_JSON_BUILD_PAIR_CONDITION(!!m->units, "units",
                                                                SD_JSON_BUILD_VARIANT(m->units)),
                                   SD_JSON_BUILD_PAIR_CONDITION(m->resumed, "since",
                                                                SD_JSON_BUILD_UNSIGNED(m->seq)));
        if (r >= 0)
                r = sd_varlink_observe(link, INTERFACE ".Monitor", v);
        if (r < 0) {
                (void) sd_varlink_close(link);
                return r;
        }
        m->begun = false;
        m->link = TAKE_PTR(link);
        return 0;
}

static int on_again(sd_event_source *s, uint64_t usec, void *userdata) {
        qosd_monitor *m = ASSERT_PTR(userdata);

        /* Must not block the event loop of the caller: retry later */
        if (monitor_connect(m, /* timeout_usec= */ 0) >= 0)
                return 0;
        (void) sd_event_source_set_time_relative(s, AGAIN_USEC);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

int qosd_monitor_new(const char *address, sd_event *event, const char *const *units,
                     qosd_event_handler_t handler, void *userdata, qosd_monitor **ret) {
        _cleanup_(qosd_monitor_unrefp) qosd_monitor *m = NULL;
        int r;

        if (!event || !handler || !ret)
                return -EINVAL;
        m = new0(qosd_monitor, 1);
        if (!m)
                return -ENOMEM;
        m->n_ref = 1;
        m->event = sd_event_ref(event);
        m->handler = handler;
        m->userdata = userdata;
        m->address = address ? strdup(address) : NULL;
        if (address && !m->address)
                return -ENOMEM;
        for (size_t i = 0; units && units[i]; i++) {
                r = sd_json_variant_append_arrayb(&m->units, SD_JSON_BUILD_STRING(units[i]));
                if (r < 0)
                        return r;
        }
        r = sd_event_add_time(event, &m->again, CLOCK_MONOTONIC, 0, 0, on_again, m);
        if (r >= 0)
                r = sd_event_source_set_enabled(m->again, SD_EVENT_OFF);
        if (r >= 0)
                r = monitor_connect(m, CONNECT_USEC);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(m);
        return 0;
}

/* ---- events ------------------------------------------------------------------------------------------- */

static const char* event_get_string(qosd_event *e, const char *key) {
        sd_json_variant *v = sd_json_variant_by_key(e->v, key);

        return sd_json_variant_is_string(v) ? sd_json_variant_string(v) : "";
}

const char *qosd_event_get_unit(qosd_event *e) {
        return event_get_string(e, "unit");
}

const char *qosd_event_get_name(qosd_event *e) {
        return event_get_string(e, "name");
}

const char *qosd_event_get_metric(qosd_event *e) {
        return event_get_string(e, "metric");
}

qosd_state qosd_event_get_state(qosd_event *e) {
        const char *state = event_get_string(e, "state");

        return streq(state, "ok") ? QOSD_OK : streq(state, "violated") ? QOSD_VIOLATED : QOSD_UNKNOWN;
}

bool qosd_event_is_initial(qosd_event *e) {
        return e->initial;
}

uint64_t qosd_event_get_seq(qosd_event *e) {
        sd_json_variant *v = sd_json_variant_by_key(e->v, "seq");

        return sd_json_variant_is_unsigned(v) ? sd_json_variant_unsigned(v) : 0;
}

static int event_get_real(qosd_event *e, const char *key, double *ret) {
        sd_json_variant *v = sd_json_variant_by_key(e->v, key);

        if (!sd_json_variant_is_number(v))
                return -ENODATA;
        *ret = sd_json_variant_real(v);
        return 0;
}

int qosd_event_get_value(qosd_event *e, double *ret) {
        return event_get_real(e, "value", ret);
}

int qosd_event_get_limit(qosd_event *e, double *ret) {
        return event_get_real(e, "limit", ret);
}

int qosd_event_get_slack(qosd_event *e, double *ret) {
        return event_get_real(e, "slack", ret);
}
