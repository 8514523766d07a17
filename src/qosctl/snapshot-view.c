/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <time.h>

#include "format.h"
#include "qosctl.h"
#include "snapshot.h"
#include "snapshot-view.h"
#include "state-label.h"
#include "value.h"
#include "worst-wait.h"

#define LATENCY "requests.server.latency"

static const uint64_t wider_windows[READING_WIDER_MAX] = { 60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC, 0 };

uint64_t reading_wider_window(size_t wider) {
        return wider_windows[wider];
}

void reading_set(Reading *r, sd_json_variant *item) {
        sd_json_variant *old = r->item;

        r->item = sd_json_variant_ref(item);
        r->unit = value_string(item, "unit") ?: "";
        r->snapshot = value_find(item, "snapshot");
        (void) sd_json_variant_unref(old);
}

void reading_done(Reading *r) {
        (void) sd_json_variant_unref(r->item);
        for (size_t i = 0; i < READING_WIDER_MAX; i++)
                (void) sd_json_variant_unref(r->wider[i].snapshot);
        *r = (Reading) {};
}

bool reading_unsigned(const Reading *r, const char *metric, uint64_t *ret) {
        return value_unsigned(r->snapshot, metric, ret);
}

bool reading_real(const Reading *r, const char *metric, double *ret) {
        return value_real(r->snapshot, metric, ret);
}

static int add_unsigned(const char *path, sd_json_variant *value, void *userdata) {
        if (sd_json_variant_is_unsigned(value))
                *(uint64_t*) userdata += sd_json_variant_unsigned(value);
        return 0;
}

bool reading_errors(const Reading *r, uint64_t *ret_count, double *ret_rate) {
        sd_json_variant *errors = value_find(r->snapshot, "requests.server.errors");
        uint64_t n = 0, covered = 0;

        if (!errors)
                return false;

        /* All kinds of errors */
        (void) value_walk(errors, add_unsigned, &n);
        (void) reading_unsigned(r, "covered", &covered);
        *ret_count = n;
        *ret_rate = covered > 0 ? (double) n * (double) NSEC_PER_SEC / (double) covered : NAN;
        return true;
}

static bool quantile_in(sd_json_variant *snapshot, const char *distribution, const char *quantile,
                        uint64_t *ret) {
        return value_unsigned(value_find(snapshot, distribution), quantile, ret);
}

bool reading_quantile(const Reading *r, const char *distribution, const char *quantile, uint64_t *ret,
                      uint64_t *ret_window) {
        if (quantile_in(r->snapshot, distribution, quantile, ret)) {
                if (!reading_unsigned(r, "window", ret_window))
                        *ret_window = 0;
                return true;
        }

        for (size_t i = 0; i < READING_WIDER_MAX; i++)
                if (quantile_in(r->wider[i].snapshot, distribution, quantile, ret)) {
                        *ret_window = wider_windows[i];
                        return true;
                }

        return false;
}

/* Whether this many samples are sufficient by default. If MinimumSamples= is higher, some windows are read
 * in vain, but the setting need not be queried. */
static bool samples_suffice(uint64_t n, const char *quantile) {
        for (const Quantile *q = quantile_table; q < quantile_table + QUANTILES; q++)
                if (streq(q->name, quantile))
                        return quantile_is_known(n, q->q, SAMPLES_MIN);
        return false;
}

bool reading_wants(const Reading *r, const char *distribution, const char *quantile, uint64_t now,
                   size_t *ret_wider) {
        uint64_t value, window, total;

        /* A window given on the command line is used exclusively */
        if (arg_window != WINDOW_UNSET || !r->snapshot)
                return false;
        if (!reading_unsigned(r, "window", &window) ||
            quantile_in(r->snapshot, distribution, quantile, &value))
                return false;
        if (!value_unsigned(value_find(r->snapshot, "totals"), "requests.server.count", &total) ||
            !samples_suffice(total, quantile))
                return false;

        for (size_t i = 0; i < READING_WIDER_MAX; i++) {
                uint64_t age = wider_windows[i] > 0 ? wider_windows[i] / NSEC_PER_USEC / 12 :
                                                      60 * USEC_PER_SEC;

                if (wider_windows[i] > 0 && wider_windows[i] <= window)
                        continue;
                /* Read again after a twelfth of the window, or after a minute for the total */
                if (r->wider[i].at == 0 || now > r->wider[i].at + age) {
                        *ret_wider = i;
                        return true;
                }
                if (quantile_in(r->wider[i].snapshot, distribution, quantile, &value))
                        return false;
        }

        return false;
}

void reading_set_wider(Reading *r, size_t wider, sd_json_variant *snapshot, uint64_t now) {
        (void) sd_json_variant_unref(r->wider[wider].snapshot);
        r->wider[wider].snapshot = sd_json_variant_ref(snapshot);
        r->wider[wider].at = now;
}

int reading_complete(Reading *r, Client *c, const char *distribution, const char *quantile) {
        size_t i;

        /* Any time other than 0, as the readings are used once and do not get outdated */
        while (reading_wants(r, distribution, quantile, 1, &i)) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                int k;

                k = client_callbo(c, QOS_METHOD("Get"), &replies,
                                  SD_JSON_BUILD_PAIR_STRING("unit", r->unit),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("window", wider_windows[i]));
                if (k < 0)
                        return client_fail(k, &replies, "read '%s'", r->unit);
                /* Detached meanwhile: there is no value over this window */
                reading_set_wider(r, i, k == 0 ? replies.items[0] : NULL, 1);
        }

        return 0;
}

/* ---- table of units ----------------------------------------------------------------------------------- */

bool reading_worst_wait(const Reading *r, const char **ret_state, double *ret_share, bool *ret_of_service) {
        double attributed, shares[QOS_STATES];
        enum qos_state state;
        sd_json_variant *v;
        bool of_service;

        of_service = reading_real(r, "requests.server.service.attributed", &attributed) &&
                     worst_wait_is_of_service(attributed);
        v = value_find(r->snapshot,
                       of_service ? "requests.server.service.shares" : "contention.serving.shares");
        for (unsigned i = 0; i < QOS_STATES; i++)
                if (!v || i == QOS_STATE_NONE || !value_real(v, qos_state_to_string(i), shares + i))
                        shares[i] = NAN;
        if (!worst_wait_find(shares, of_service, &state, ret_share))
                return false;
        *ret_state = qos_state_to_string(state);
        *ret_of_service = of_service;
        return true;
}

/* In the order of importance. Ranks determine which columns are omitted on narrow terminals. */
const Column unit_columns[] = {
        { "UNIT",     .minimum = 22          },
        { "ACTIVE",                .rank = 3 },
        { "RATE",     .right = true          },
        { "ERRORS",   .right = true          },
        { "P50",      .right = true, .rank = 2 },
        { "P99",      .right = true          },
        { "INFLIGHT", .right = true, .rank = 1 },
        { "WAIT",                  .rank = 4 },
        { "OLDEST",   .right = true, .rank = 5 },
        { "MAX",      .right = true, .rank = 6 },
        { "CONN",     .right = true, .rank = 7 },
        { "ACCEPTQ",  .right = true, .rank = 8 },
        { "IN",       .right = true, .rank = 9 },
        { "OUT",      .right = true, .rank = 9 },
        { "OVERHEAD", .right = true, .rank = 10 },
};
const size_t n_unit_columns = ELEMENTSOF(unit_columns);

Color active_state_color(const char *state) {
        if (streq_ptr(state, "active"))
                return COLOR_GREEN;
        if (streq_ptr(state, "failed"))
                return COLOR_RED;
        return streq_ptr(state, "inactive") ? COLOR_GREY : COLOR_YELLOW;
}

static void add_quantile(const Reading *r, Table *t, const char *quantile) {
        char buf[FORMAT_MAX], over[FORMAT_MAX];
        uint64_t value, window, requested = 0;

        (void) reading_unsigned(r, "window", &requested);
        if (!reading_quantile(r, LATENCY, quantile, &value, &window))
                table_add_absent(t);
        else if (window == requested)
                table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
        else
                table_add(t, COLOR_NONE, "%s (%s)", format_duration(buf, value),
                          format_window(over, window));
}

/* of: metric with the number of samples; NULL: there always is a value */
static void add_duration(const Reading *r, Table *t, const char *metric, const char *of) {
        char buf[FORMAT_MAX];
        uint64_t value, n;

        if (reading_unsigned(r, metric, &value) && (!of || (reading_unsigned(r, of, &n) && n > 0)))
                table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
        else
                table_add_absent(t);
}

static void add_count(const Reading *r, Table *t, const char *metric, Color color) {
        char buf[FORMAT_MAX];
        uint64_t value;

        if (reading_unsigned(r, metric, &value))
                table_add(t, color, "%s", format_count(buf, value));
        else
                table_add_absent(t);
}

static void add_traffic(const Reading *r, Table *t, const char *metric) {
        uint64_t bytes, covered;
        char buf[FORMAT_MAX];

        if (reading_unsigned(r, metric, &bytes) && reading_unsigned(r, "covered", &covered) && covered > 0)
                table_add(t, COLOR_NONE, "%s/s",
                          format_bytes(buf, (uint64_t) ((double) bytes * (double) NSEC_PER_SEC /
                                                        (double) covered)));
        else
                table_add_absent(t);
}

static bool is_violated(const Reading *r) {
        sd_json_variant *thresholds = value_find(r->item, "thresholds");

        for (size_t i = 0; thresholds && i < sd_json_variant_elements(thresholds); i++)
                if (streq_ptr(value_string(sd_json_variant_by_index(thresholds, i), "state"), "violated"))
                        return true;
        return false;
}

/* Minimum share and number of failed requests in the window for an active unit to be shown as failing. */
#define FAILING_SHARE_MIN 0.5
#define FAILING_COUNT_MIN 5U

static bool reading_is_failing(const Reading *r) {
        uint64_t errors, count;
        double rate;

        /* Requests that end without a response count as errors, but not as requests */
        return streq_ptr(value_string(r->snapshot, "activeState"), "active") &&
               reading_errors(r, &errors, &rate) && errors >= FAILING_COUNT_MIN &&
               reading_unsigned(r, "requests.server.count", &count) &&
               (double) errors >= FAILING_SHARE_MIN * (double) MAX(count, errors);
}

void reading_add_row(const Reading *r, Table *t) {
        const char *state = value_string(r->snapshot, "activeState");
        uint64_t errors, queued, limit;
        double rate, share;
        char buf[FORMAT_MAX];
        bool degraded = value_string(r->item, "degraded"), of_service;
        const char *wait;

        table_add(t,
                  is_violated(r) ? COLOR_RED :
                  degraded       ? COLOR_YELLOW :
                  r->snapshot    ? COLOR_NONE :
                                   COLOR_GREY,
                  "%s", r->unit);
        if (reading_is_failing(r))
                table_add(t, COLOR_RED, "failing");
        else if (state)
                table_add(t, active_state_color(state), "%s", state);
        else
                table_add_absent(t);

        if (reading_real(r, "requests.server.rate", &rate))
                table_add(t, COLOR_NONE, "%s", format_rate(buf, rate));
        else
                table_add_absent(t);

        if (reading_errors(r, &errors, &rate))
                table_add(t, errors > 0 ? COLOR_RED : COLOR_NONE, "%s", format_rate(buf, rate));
        else
                table_add_absent(t);

        add_quantile(r, t, "p50");
        add_quantile(r, t, "p99");
        add_count(r, t, "requests.server.inFlight", COLOR_NONE);
        if (reading_worst_wait(r, &wait, &share, &of_service))
                table_add(t, COLOR_NONE, "%s %.0f%%", thread_state_label(wait), share * 100);
        else
                table_add_absent(t);
        add_duration(r, t, "requests.server.oldestInFlight", NULL);
        add_duration(r, t, LATENCY ".max", LATENCY ".count");
        add_count(r, t, "requests.server.connections.open", COLOR_NONE);
        /* Connections are dropped while the accept queue is full */
        add_count(r, t, "requests.server.connections.acceptQueue",
                  reading_unsigned(r, "requests.server.connections.acceptQueue", &queued) &&
                  reading_unsigned(r, "requests.server.connections.acceptQueueMax", &limit) &&
                  limit > 0 && queued >= limit ? COLOR_RED : COLOR_NONE);
        add_traffic(r, t, "requests.server.bytesIn");
        add_traffic(r, t, "requests.server.bytesOut");
        if (reading_real(r, "cost.share", &share))
                table_add(t, COLOR_NONE, "%s", format_percent(buf, share));
        else
                table_add_absent(t);
}
