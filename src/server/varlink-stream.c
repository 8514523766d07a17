/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Subscribe */

#include "snapshot-json.h"
#include "varlink-connection.h"

/* Limit of streams of readings of one user other than root. */
#define STREAMS_PER_USER_MAX 8U

Stream* stream_free(Stream *s) {
        if (!s)
                return NULL;

        if (s->user)
                s->user->n_streams--;
        sd_event_source_disable_unref(s->timer);
        strv_free(s->units);
        free(s);
        return NULL;
}

/* ---- Subscribe ---------------------------------------------------------------------------------------- */

void frames_free(Frame **frames) {
        while (*frames) {
                Frame *f = *frames;

                *frames = f->next;
                varlink_text_unref(f->text);
                free(f);
        }
}

/* Returns the reading as text, which all streams share that need it at the same tick with the same window
 * and permission. */
static int connection_get_frame(Connection *c, Unit *u, uint64_t tick, VarlinkText **ret) {
        Frame **frames = &c->server->frames[u->index], *f;
        _cleanup_free_ char *json = NULL, *text = NULL;
        bool peers = connection_may_see_peers(c, u);
        uint64_t window = c->stream->window;
        UnitIdentity identity;
        Snapshot s;
        int r;

        if (*frames && (*frames)->tick != tick)
                frames_free(frames);
        for (f = *frames; f; f = f->next)
                if (f->window == window && f->peers == peers) {
                        *ret = f->text;
                        return 0;
                }

        unit_get_snapshot(u, window, &s);
        unit_get_identity(u, &identity);
        r = snapshot_to_text(&identity, &s, peers, &json);
        if (r < 0)
                return r;
        if (asprintf(&text, "{\"parameters\":{\"snapshot\":%s", json) < 0)
                return -ENOMEM;

        f = new0(Frame, 1);
        if (!f)
                return -ENOMEM;
        *f = (Frame) {
                .window = window,
                .peers = peers,
                .tick = tick,
                .text = varlink_text_new(text),
                .next = *frames,
        };
        if (!f->text) {
                free(f);
                return -ENOMEM;
        }
        *frames = f;
        *ret = f->text;
        return 0;
}

/* Sends readings for the time of a turn, and the rest in the next turns. */
int connection_send_round(Connection *c) {
        char end[64] = "},\"continues\":true}";
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Manager *m = c->server->manager;
        Stream *s = c->stream;

        if (s->next == 0)
                s->reported = s->skipped;
        if (s->reported > 0)
                (void) snprintf(end, sizeof(end), ",\"skipped\":%llu},\"continues\":true}",
                                (unsigned long long) s->reported);
        while (s->next < UNITS_MAX_LIMIT) {
                Unit *u = m->units.slots[s->next++];
                VarlinkText *text;
                int r;

                if (!u || !strv_contains(s->units, u->name))
                        continue;

                r = connection_get_frame(c, u, s->tick, &text);
                if (r < 0) {
                        unit_log_unshowable(u, r);
                        continue;
                }
                r = varlink_io_send(c->io, text, end);
                if (r < 0)
                        return r;
                if (s->next < UNITS_MAX_LIMIT && now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
                        return 0;
                }
        }

        s->skipped -= s->reported;
        s->next = 0;
        return 0;
}

static int on_stream_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        Stream *s = c->stream;

        /* At multiples of the interval, so that streams share readings */
        (void) sd_event_source_set_time(source, (now_usec(CLOCK_MONOTONIC) / s->interval_usec + 1) *
                                        s->interval_usec);
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);

        if (!varlink_io_want_turn(c->io, /* when_written= */ false))
                s->skipped++;
        return 0;
}

int vl_method_subscribe(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units",    SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, names),    SD_JSON_NULLABLE },
                { "window",   _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window),   SD_JSON_NULLABLE },
                { "interval", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, interval), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(strv_freep) char **units = NULL;
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        TurnUser *user = varlink_io_get_user(c->io);
        uint64_t now;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = parameters_check_window(m, link, &p);
        if (r != 0)
                return r;
        if (p.interval < m->config.interval_min_usec * NSEC_PER_USEC ||
            p.interval / NSEC_PER_USEC > 24 * 3600 * USEC_PER_SEC)
                return sd_varlink_error_invalid_parameter_name(link, "interval");

        r = connection_resolve_units(m, link, p.names, &units);
        if (r != 0)
                return r < 0 ? r : 0;

        if (user && user->n_streams >= STREAMS_PER_USER_MAX) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", STREAMS_PER_USER_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_STREAMS, limit,
                                  "user %u has %s streams, more are not allowed", (unsigned) c->uid, limit);
                return vl_reply_error(link, r, &e);
        }

        c->stream = new0(Stream, 1);
        if (!c->stream)
                return -ENOMEM;
        c->stream->user = user;
        if (user)
                user->n_streams++;
        c->stream->window = p.window;
        c->stream->interval_usec = p.interval / NSEC_PER_USEC;
        c->stream->units = TAKE_PTR(units);

        c->stream->tick = now = now_usec(CLOCK_MONOTONIC);
        r = sd_event_add_time(m->event, &c->stream->timer, CLOCK_MONOTONIC,
                              (now / c->stream->interval_usec + 1) * c->stream->interval_usec, USEC_PER_MSEC,
                              on_stream_tick, c);
        if (r >= 0)
                r = connection_send_round(c);
        if (r < 0)
                c->stream = stream_free(c->stream);
        return r;
}
