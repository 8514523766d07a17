/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The paragraph of the status page on thread states. */

#include "format.h"
#include "qosctl.h"
#include "state-label.h"
#include "status-internal.h"
#include "value.h"

#define CONTENTION "contention."
/* Width of bars for a line of 80 columns, without and with columns on requests. */
#define STATE_BAR_WIDTH 24U
#define STATE_BAR_WIDTH_SERVING 8U

/* Colors of states in which threads are delayed. */
static const Color state_colors[QOS_STATES] = {
        [QOS_STATE_RUN_QUEUE] = COLOR_YELLOW,
        [QOS_STATE_THROTTLED] = COLOR_RED,
        [QOS_STATE_LOCK]      = COLOR_YELLOW,
        [QOS_STATE_DISK]      = COLOR_YELLOW,
        [QOS_STATE_MEMORY]    = COLOR_RED,
        [QOS_STATE_STOPPED]   = COLOR_RED,
};

static bool print_rate(const Reading *r, const char *metric, double seconds, const char *separator,
                       const char *what) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!reading_unsigned(r, metric, &n))
                return false;
        line_add("%s%s %s", separator, format_rate(buf, (double) n / seconds), what);
        return true;
}

/* Adds the share of a state, which may be absent. */
static void add_state_share(const Reading *r, Table *t, const char *metric, const char *state) {
        char full[64], buf[FORMAT_MAX];
        double share;

        (void) snprintf(full, sizeof(full), "%s.%s", metric, state);
        if (reading_real(r, full, &share))
                table_add(t, COLOR_NONE, "%s", format_percent(buf, share));
        else
                table_add_absent(t);
}

static void print_top_wait(const Reading *r) {
        const char *state;
        bool of_service;
        double share;

        if (reading_worst_wait(r, &state, &share, &of_service))
                print_line("Top wait", "%s (%.0f%% of %s)", thread_state_label(state), share * 100,
                           of_service ? "service time" : "active thread time during requests");
}

int reading_print_contention(const Reading *r) {
        static const Column columns[] = {
                { "STATE" }, { "THREADS", .right = true }, { "SHARE", .right = true },
                { "WAITS", .right = true }, { "", .rank = 1 },
        }, serving_columns[] = {
                { "STATE" }, { "THREADS", .right = true }, { "SHARE", .right = true },
                { "SERVING", .right = true, .rank = 2 }, { "SERVICE", .right = true, .rank = 1 },
                { "WAITS", .right = true, .rank = 3 }, { "", .rank = 4 },
        };
        const Style *style = terminal_style();
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered, thread_time, n;
        char a[FORMAT_MAX];
        double seconds;
        bool some, serving;
        int k;

        if (!reading_unsigned(r, CONTENTION "covered", &covered) ||
            !reading_unsigned(r, CONTENTION "threadTime", &thread_time) || covered == 0)
                return 0;
        seconds = (double) covered / (double) NSEC_PER_SEC;

        line_end();
        print_line("Threads", "%.2f on average over %s", (double) thread_time / (double) covered,
                   format_duration(a, covered));

        print_top_wait(r);
        serving = value_find(r->snapshot, CONTENTION "serving.shares") ||
                  value_find(r->snapshot, SERVER "service.shares");
        t = serving ? table_new(serving_columns, ELEMENTSOF(serving_columns)) :
                      table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return -ENOMEM;
        for (enum qos_state s = QOS_STATE_RUNNING; s < QOS_STATES; s++) {
                const char *state = qos_state_to_string(s);
                _cleanup_free_ char *bar = NULL;
                char metric[64];
                double share, threads;

                (void) snprintf(metric, sizeof(metric), CONTENTION "shares.%s", state);
                if (!reading_real(r, metric, &share) || share <= 0)
                        continue;
                (void) snprintf(metric, sizeof(metric), CONTENTION "threads.%s", state);
                if (!reading_real(r, metric, &threads))
                        continue;

                table_add(t, state_colors[s], "%s", thread_state_label(state));
                table_add(t, COLOR_NONE, "%.2f", threads);
                table_add(t, COLOR_NONE, "%s", format_percent(a, share));
                if (serving) {
                        add_state_share(r, t, CONTENTION "serving.shares", state);
                        add_state_share(r, t, SERVER "service.shares", state);
                }
                (void) snprintf(metric, sizeof(metric), CONTENTION "waits.%s", state);
                if (reading_unsigned(r, metric, &n))
                        table_add(t, COLOR_NONE, "%s", format_rate(a, (double) n / seconds));
                else
                        table_add_absent(t);
                bar = text_bar(share, serving ? STATE_BAR_WIDTH_SERVING : STATE_BAR_WIDTH, style->utf8);
                if (!bar)
                        return -ENOMEM;
                table_add(t, state_colors[s] == COLOR_NONE ? COLOR_GREY : state_colors[s], "%s", bar);
        }
        k = table_print(t, stdout, style, arg_legend, table_indent());
        if (k < 0)
                return k;

        if (reading_unsigned(r, CONTENTION "runQueueLatency.count", &n) && n > 0) {
                static const char *const shown[] = { "p50", "p99", "max" };

                some = false;
                print_key("Run-queue wait");
                for (size_t i = 0; i < ELEMENTSOF(shown); i++) {
                        char metric[64];

                        (void) snprintf(metric, sizeof(metric), CONTENTION "runQueueLatency.%s", shown[i]);
                        if (!reading_unsigned(r, metric, &n))
                                continue;
                        line_add("%s%s %s", some ? ", " : "", shown[i], format_duration(a, n));
                        some = true;
                }
                line_end();
        }
        print_key("Context switches");
        some = print_rate(r, CONTENTION "contextSwitches.voluntary", seconds, "", "voluntary");
        some = print_rate(r, CONTENTION "contextSwitches.involuntary", seconds, some ? ", " : "",
                          "involuntary") ||
               some;
        (void) print_rate(r, CONTENTION "migrations", seconds, some ? ", " : "", "migrations");
        line_end();
        return 0;
}
