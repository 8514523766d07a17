/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* threads */

#include <ctype.h>

#include "format.h"
#include "progress.h"
#include "qosctl.h"
#include "state-label.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Default of --for=: long enough for typical shares of states, short enough for interactive use. */
#define FOR_DEFAULT (1 * NSEC_PER_SEC)

/* Columns of states. busy: a state in which threads have work; rows are sorted by the time in these. */
static const struct {
        bool busy;
        unsigned rank;
} state_columns[QOS_STATES] = {
        [QOS_STATE_RUNNING]   = { .busy = true            },
        [QOS_STATE_RUN_QUEUE] = { .busy = true, .rank = 1 },
        [QOS_STATE_THROTTLED] = { .busy = true, .rank = 9 },
        [QOS_STATE_LOCK]      = { .busy = true, .rank = 1 },
        [QOS_STATE_PARK]      = {               .rank = 3 },
        [QOS_STATE_DISK]      = { .busy = true, .rank = 1 },
        [QOS_STATE_SOCKET]    = {               .rank = 2 },
        [QOS_STATE_POLL]      = {               .rank = 2 },
        [QOS_STATE_PIPE]      = {               .rank = 4 },
        [QOS_STATE_SLEEP]     = {               .rank = 4 },
        [QOS_STATE_MEMORY]    = { .busy = true, .rank = 5 },
        [QOS_STATE_CHILD]     = {               .rank = 6 },
        [QOS_STATE_STOPPED]   = {               .rank = 8 },
        [QOS_STATE_OTHER]     = {               .rank = 8 },
};

typedef struct KnownThread {
        uint64_t tid;
        sd_json_variant *thread;
} KnownThread;

static int known_compare(const void *a, const void *b) {
        const KnownThread *x = a, *y = b;

        return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Returns the threads of the first reply, sorted by TID. NULL: out of memory. */
static KnownThread* known_new(sd_json_variant *threads, size_t *ret_n) {
        size_t all = threads ? sd_json_variant_elements(threads) : 0, n = 0;
        KnownThread *known;

        known = new0(KnownThread, all);
        if (!known)
                return NULL;
        for (size_t i = 0; i < all; i++) {
                known[n].thread = sd_json_variant_by_index(threads, i);
                if (value_unsigned(known[n].thread, "tid", &known[n].tid))
                        n++;
        }
        qsort(known, n, sizeof(*known), known_compare);
        *ret_n = n;
        return known;
}

/* Finds the thread in the first reply. NULL: it is new, also if the TID was reused, as counters have
 * decreased then. */
static sd_json_variant* find_before(const KnownThread *known, size_t n, sd_json_variant *thread) {
        const KnownThread *found;
        KnownThread key = {};
        uint64_t a, b;

        if (!value_unsigned(thread, "tid", &key.tid))
                return NULL;
        found = bsearch(&key, known, n, sizeof(*known), known_compare);
        for (enum qos_state s = QOS_STATE_RUNNING; found && s < QOS_STATES; s++) {
                char path[32];

                (void) snprintf(path, sizeof(path), "times.%s", qos_state_to_string(s));
                if (value_unsigned(found->thread, path, &a) && value_unsigned(thread, path, &b) && a > b)
                        return NULL;
        }
        return found ? found->thread : NULL;
}

typedef struct ThreadRow {
        sd_json_variant *thread, *before;
        uint64_t times[QOS_STATES];
        uint64_t all, busy;
} ThreadRow;

static int row_compare(const void *a, const void *b) {
        const ThreadRow *x = a, *y = b;

        if (x->busy != y->busy)
                return x->busy > y->busy ? -1 : 1;
        return x->all != y->all ? (x->all > y->all ? -1 : 1) : 0;
}

static void row_fill(ThreadRow *row, sd_json_variant *thread, sd_json_variant *before) {
        char path[32];

        *row = (ThreadRow) { .thread = thread, .before = before };
        for (enum qos_state s = QOS_STATE_RUNNING; s < QOS_STATES; s++) {
                (void) snprintf(path, sizeof(path), "times.%s", qos_state_to_string(s));
                row->times[s] = value_since(before, thread, path);
                row->all += row->times[s];
                if (state_columns[s].busy)
                        row->busy += row->times[s];
        }
}

static void table_add_row(Table *t, const ThreadRow *row) {
        char buf[FORMAT_MAX];
        const char *state;
        uint64_t n;

        for (size_t i = 0; i < 2; i++)
                if (value_unsigned(row->thread, i == 0 ? "tid" : "pid", &n))
                        table_add(t, COLOR_NONE, "%" PRIu64, n);
                else
                        table_add_absent(t);
        if (value_unsigned(row->thread, "threads", &n))
                table_add(t, COLOR_NONE, "(%" PRIu64 " others)", n);
        else
                table_add(t, COLOR_NONE, "%s", value_string(row->thread, "name") ?: "?");
        state = value_string(row->thread, "state");
        if (state)
                table_add(t, COLOR_NONE, "%s", thread_state_label(state));
        else
                table_add_absent(t);
        for (enum qos_state s = QOS_STATE_RUNNING; s < QOS_STATES; s++)
                if (row->times[s] == 0)
                        table_add_absent(t);
                else
                        table_add(t, COLOR_NONE, "%s",
                                  format_percent(buf, (double) row->times[s] / (double) row->all));
        table_add(t, COLOR_NONE, "%s",
                  format_count(buf, value_since(row->before, row->thread, "voluntary")));
        table_add(t, COLOR_NONE, "%s",
                  format_count(buf, value_since(row->before, row->thread, "involuntary")));
        table_add(t, COLOR_NONE, "%s",
                  format_count(buf, value_since(row->before, row->thread, "migrations")));
}

/* Buffer size for the header of a column. */
#define HEADER_MAX 16U

static int print_threads(sd_json_variant *before, sd_json_variant *after) {
        static const Column first[] = {
                { "TID",       .right = true             },
                { "PID",       .right = true, .rank = 10 },
                { "NAME",      .minimum = 8              },
                { "STATE"                                },
        }, last[] = {
                { "WAITS",     .right = true, .rank = 5  },
                { "PREEMPTED", .right = true, .rank = 7  },
                { "MIGRATED",  .right = true, .rank = 11 },
        };
        Column columns[ELEMENTSOF(first) + QOS_STATES + ELEMENTSOF(last)];
        char headers[QOS_STATES][HEADER_MAX];
        sd_json_variant *threads = value_find(after, "threads"), *rest = value_find(after, "rest");
        size_t n = threads ? sd_json_variant_elements(threads) : 0;
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_free_ ThreadRow *rows = NULL;
        _cleanup_free_ KnownThread *known = NULL;
        const Style *style = terminal_style();
        size_t n_known, n_columns = 0;

        for (size_t i = 0; i < ELEMENTSOF(first); i++)
                columns[n_columns++] = first[i];
        for (enum qos_state s = QOS_STATE_RUNNING; s < QOS_STATES; s++) {
                const char *label = thread_state_label(qos_state_to_string(s));
                size_t i;

                for (i = 0; i < HEADER_MAX - 1 && label[i]; i++)
                        headers[s][i] = (char) toupper(label[i]);
                headers[s][i] = 0;
                columns[n_columns++] = (Column) { headers[s], .right = true, .rank = state_columns[s].rank };
        }
        for (size_t i = 0; i < ELEMENTSOF(last); i++)
                columns[n_columns++] = last[i];

        known = known_new(value_find(before, "threads"), &n_known);
        rows = new0(ThreadRow, n + 1);
        t = table_new(columns, n_columns);
        if (!known || !rows || !t)
                return log_out_of_memory();

        for (size_t i = 0; i < n; i++) {
                sd_json_variant *thread = sd_json_variant_by_index(threads, i);

                row_fill(rows + i, thread, find_before(known, n_known, thread));
        }
        qsort(rows, n, sizeof(*rows), row_compare);
        if (rest)
                row_fill(rows + n++, rest, value_find(before, "rest"));
        for (size_t i = 0; i < n; i++)
                table_add_row(t, rows + i);
        if (n == 0) {
                (void) printf("%sNo threads.%s\n", color_on(style, COLOR_GREY), color_off(style));
                return 0;
        }
        return table_print(t, stdout, style, arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

static int threads_call(Client *c, const char *unit, Replies *ret) {
        int r;

        r = client_callbo(c, QOS_METHOD("Threads"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        return r != 0 ? unit_read_fail(r, ret, unit) : 0;
}

static int threads_unit(Client *c, const char *unit, bool first) {
        _cleanup_replies_ Replies before = REPLIES_INIT, after = REPLIES_INIT;
        const Style *style = terminal_style();
        int r;

        r = threads_call(c, unit, &before);
        if (r != STATUS_OK)
                return r;
        if (arg_json != JSON_OFF)
                return json_print(before.items[0]);

        progress_begin(arg_for > 0 ? arg_for : FOR_DEFAULT, /* interruptible= */ true, "Observing %s", unit);
        (void) progress_sleep(c, unit);
        progress_end();
        r = threads_call(c, unit, &after);
        if (r != STATUS_OK)
                return r;
        (void) printf("%s%s%s%s\n", first ? "" : "\n", color_on(style, COLOR_BOLD), unit, color_off(style));
        return print_threads(before.items[0], after.items[0]);
}

int verb_threads(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        if (arg_json != JSON_OFF && arg_for > 0) {
                (void) log_failure(-EINVAL, "--for= cannot be combined with --json=, which prints totals "
                                            "since each thread was first observed.");
                return STATUS_USAGE;
        }
        r = client_connect(&c);
        if (r < 0)
                return r;
        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        polkit_agent_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, threads_unit(c, names.items[i], i == 0));
        polkit_agent_close();
        return status;
}
