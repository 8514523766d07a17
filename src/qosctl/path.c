/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Latency of the network between a unit and another host. */

#include <inttypes.h>
#include <sys/timex.h>

#include "format.h"
#include "path.h"
#include "progress.h"
#include "qosctl.h"
#include "replies.h"
#include "status-internal.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* As SEGMENTS_NSEC_MAX of qosd. */
#define PATH_NSEC_MAX (60 * NSEC_PER_SEC)
#define PATH_NSEC (10 * NSEC_PER_SEC)

/* What a host has recorded. */
typedef struct Side {
        Client *client;
        const char *host;               /* NULL: the one of the unit */
        Replies units;                  /* of the other host: its attached units */
        Segment *segments;
        size_t n;
        bool any;                       /* a unit has the probe */
} Side;

static int list_segments(Side *s, const char *unit, uint64_t duration, Replies *ret) {
        return client_callbo(s->client, QOS_METHOD("ListSegments"), ret,
                             SD_JSON_BUILD_PAIR_STRING("unit", unit),
                             SD_JSON_BUILD_PAIR_CONDITION(duration > 0, "duration",
                                                          SD_JSON_BUILD_UNSIGNED(duration)),
                             SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
}

static uint64_t number_at(sd_json_variant *array, size_t i) {
        sd_json_variant *v = sd_json_variant_by_index(array, i);

        return v && sd_json_variant_is_unsigned(v) ? sd_json_variant_unsigned(v) : 0;
}

static int side_add(Side *s, sd_json_variant *reply) {
        sd_json_variant *kinds = value_find(reply, "kinds"), *local = value_find(reply, "localPorts"),
                *peer = value_find(reply, "peerPorts"), *positions = value_find(reply, "positions"),
                *times = value_find(reply, "times");
        size_t n = kinds ? sd_json_variant_elements(kinds) : 0;
        Segment *segments;

        if (n == 0)
                return STATUS_OK;
        segments = reallocarray(s->segments, s->n + n, sizeof(Segment));
        if (!segments)
                return log_out_of_memory();
        s->segments = segments;
        for (size_t i = 0; i < n; i++)
                s->segments[s->n++] = (Segment) {
                        .kind = (unsigned) number_at(kinds, i),
                        .local_port = (uint16_t) number_at(local, i),
                        .peer_port = (uint16_t) number_at(peer, i),
                        .position = (uint32_t) number_at(positions, i),
                        .at = (int64_t) number_at(times, i),
                };
        return STATUS_OK;
}

/* Has a unit recorded for the duration; 0: reads what it has. Returns an exit status. */
static int side_visit(Side *s, const char *unit, uint64_t duration) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = list_segments(s, unit, duration, &replies);
        if (s->host && r > 0) {
                if (streq(replies.error, QOS_METHOD("NotMeasured")) ||
                    streq(replies.error, QOS_METHOD("NotAttached")))
                        return STATUS_OK;
                if (streq(replies.error, "org.varlink.service.MethodNotFound"))
                        return log_failure(-EOPNOTSUPP,
                                           "Failed to observe '%s': its qosd is older, and does not record "
                                           "segments.", s->host);
                return client_fail(r, &replies, "observe '%s' on '%s'", unit, s->host);
        }
        if (r != 0)
                return unit_fail(r, &replies, "observe", unit);
        s->any = true;
        return duration > 0 ? STATUS_OK : side_add(s, replies.items[0]);
}

/* The same for all units of the other host: which one is the peer is not known. */
static int side_visit_all(Side *s, uint64_t duration) {
        int status = STATUS_OK;

        for (size_t i = 0; i < s->units.n && status == STATUS_OK; i++) {
                const char *unit = value_string(s->units.items[i], "unit");

                if (unit && value_boolean(s->units.items[i], "attached"))
                        status = side_visit(s, unit, duration);
        }
        return status;
}

static int side_connect(Side *s) {
        const char *before = arg_host;
        int r;

        if (s->host)
                arg_host = s->host;
        r = client_connect(&s->client);
        arg_host = before;
        if (r < 0 || !s->host)
                return r;
        r = client_call_more(s->client, QOS_METHOD("List"), 0, NULL, &s->units);
        return r != 0 ? client_fail(r, &s->units, "list the units of '%s'", s->host) : STATUS_OK;
}

static void side_done(Side *s) {
        client_free(s->client);
        replies_done(&s->units);
        free(s->segments);
}

static const char* format_signed(char buf[static FORMAT_MAX + 1], int64_t nsec) {
        *buf = '-';
        (void) format_duration(buf + 1, (uint64_t) (nsec < 0 ? -nsec : nsec));
        return nsec < 0 ? buf : buf + 1;
}

/* By how much this host's clock may be wrong as far as it knows, ns; UINT64_MAX: it is not synchronized. */
static uint64_t clock_get_error(void) {
        struct timex t = {};

        if (arg_host || adjtimex(&t) == TIME_ERROR || t.maxerror < 0)
                return UINT64_MAX;
        return (uint64_t) t.maxerror * NSEC_PER_USEC;
}

typedef struct Path {
        const char *unit, *host;
        Way there, back;
        int64_t lowest, highest;        /* of the offset of the clock */
        uint64_t error;
} Path;

static int path_to_json(const Path *p) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        int64_t there = way_quantile(&p->there, 0.5), back = way_quantile(&p->back, 0.5);
        int r;

        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_STRING("unit", p->unit),
                           SD_JSON_BUILD_PAIR_STRING("host", p->host),
                           SD_JSON_BUILD_PAIR("there", SD_JSON_BUILD_OBJECT(
                                   SD_JSON_BUILD_PAIR_UNSIGNED("samples", p->there.n),
                                   SD_JSON_BUILD_PAIR_INTEGER("lowest", there - p->highest),
                                   SD_JSON_BUILD_PAIR_INTEGER("highest", there - p->lowest))),
                           SD_JSON_BUILD_PAIR("back", SD_JSON_BUILD_OBJECT(
                                   SD_JSON_BUILD_PAIR_UNSIGNED("samples", p->back.n),
                                   SD_JSON_BUILD_PAIR_INTEGER("lowest", back + p->lowest),
                                   SD_JSON_BUILD_PAIR_INTEGER("highest", back + p->highest))),
                           SD_JSON_BUILD_PAIR_INTEGER("sum", there + back),
                           SD_JSON_BUILD_PAIR("clockOffset", SD_JSON_BUILD_OBJECT(
                                   SD_JSON_BUILD_PAIR_INTEGER("lowest", p->lowest),
                                   SD_JSON_BUILD_PAIR_INTEGER("highest", p->highest))),
                           SD_JSON_BUILD_PAIR_CONDITION(p->error != UINT64_MAX, "maxError",
                                                        SD_JSON_BUILD_UNSIGNED(p->error)));
        return r < 0 ? log_out_of_memory() : json_print(v);
}

/* by_clocks: P50 as the clocks have it, which is right if they are equal. */
static void print_way(const char *key, const Way *w, int64_t by_clocks, int64_t lowest, int64_t highest,
                      bool clocks_are_possible) {
        char low[FORMAT_MAX + 1], high[FORMAT_MAX + 1], value[FORMAT_MAX + 1];

        print_key(key);
        line_add("P50 between %s and %s", format_signed(low, lowest), format_signed(high, highest));
        if (clocks_are_possible)
                line_add(", by the clocks %s", format_signed(value, by_clocks));
        line_add(", %zu samples", w->n);
        line_end();
}

static int path_print(const Path *p) {
        int64_t there = way_quantile(&p->there, 0.5), back = way_quantile(&p->back, 0.5);
        bool possible = p->lowest <= 0 && p->highest >= 0;
        char buf[FORMAT_MAX + 1];

        print_way("There", &p->there, there, there - p->highest, there - p->lowest, possible);
        print_way("Back", &p->back, back, back + p->lowest, back + p->highest, possible);
        print_line("Both ways", "P50 %s", format_signed(buf, there + back));
        print_key("Clocks");
        line_add("that of %s is ahead by", p->host);
        /* Three digits would hide the bounds of clocks that are seconds apart */
        line_add(" %.6fs to %.6fs", (double) p->lowest / NSEC_PER_SEC, (double) p->highest / NSEC_PER_SEC);
        if (p->error != UINT64_MAX)
                line_add(", error of this host's clock at most %s", format_duration(buf, p->error));
        line_end();
        return STATUS_OK;
}

/* Joins what both have recorded. */
static int path_show(Path *p, Side *here, Side *there) {
        int r;

        if (!there->any)
                return log_failure(-ENOENT, "No unit on '%s' is observed with the probe network.", p->host);
        r = way_join(here->segments, here->n, there->segments, there->n, &p->there);
        if (r >= 0)
                r = way_join(there->segments, there->n, here->segments, here->n, &p->back);
        if (r < 0)
                return log_out_of_memory();
        if (p->there.n == 0 && p->back.n == 0)
                return log_failure(-ENOENT,
                                   "Found no data on connections of '%s' with units on '%s' that are "
                                   "observed with the probe network.", p->unit, p->host);
        if (p->there.n == 0 || p->back.n == 0)
                return log_failure(-ENODATA,
                                   "Found data on connections of '%s' with units on '%s' in one direction "
                                   "only, by which the clocks cannot be compared.", p->unit, p->host);
        if (!ways_get_offset(&p->there, &p->back, &p->lowest, &p->highest))
                return log_failure(-ERANGE,
                                   "A clock was set while segments of '%s' were recorded, try again.",
                                   p->unit);
        p->error = clock_get_error();
        return arg_json != JSON_OFF ? path_to_json(p) : path_print(p);
}

int verb_path(int argc, char **argv) {
        uint64_t duration = arg_for > 0 ? arg_for : PATH_NSEC;
        Side here = { .units = REPLIES_INIT }, there = { .host = argv[1], .units = REPLIES_INIT };
        Path p = { .unit = argv[0], .host = argv[1] };
        int status;

        if (duration > PATH_NSEC_MAX) {
                (void) log_failure(-EINVAL, "Invalid --for=%s, expected at most 60s.", arg_for_text);
                return STATUS_USAGE;
        }
        status = side_connect(&here);
        if (status == STATUS_OK)
                status = side_connect(&there);
        polkit_agent_open();
        if (status == STATUS_OK)
                status = side_visit(&here, argv[0], duration);
        if (status == STATUS_OK)
                status = side_visit_all(&there, duration);
        polkit_agent_close();
        if (status == STATUS_OK && there.any) {
                progress_begin(duration, /* interruptible= */ true, "Observing %s and %s", argv[0], argv[1]);
                (void) progress_sleep(here.client, argv[0]);
                progress_end();
                status = side_visit(&here, argv[0], 0);
                if (status == STATUS_OK)
                        status = side_visit_all(&there, 0);
        }
        if (status == STATUS_OK)
                status = path_show(&p, &here, &there);
        way_done(&p.there);
        way_done(&p.back);
        side_done(&here);
        side_done(&there);
        return status;
}
