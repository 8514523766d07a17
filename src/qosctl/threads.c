/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* States of each thread of a unit over an interval. */

#include "format.h"
#include "progress.h"
#include "qosctl.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Long enough for a typical share of states, short enough for interactive use. */
#define FOR_DEFAULT (1 * NSEC_PER_SEC)

static const char *const states[] = {
        "running", "runQueue", "throttled", "lock", "park", "disk", "socket", "poll", "pipe", "sleep", "memory", "child", "stopped", "other",
};

typedef struct KnownThread {
        uint64_t tid;
        sd_json_variant *thread;
} KnownThread;

static int known_compare(const void *a, const void *b) {
        const KnownThread *x = a, *y = b;

        return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Threads of the first snapshot, sorted by number. */
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

/* The thread in the first snapshot; NULL: new. If its number was reused, counters have decreased. */
static sd_json_variant* find_before(const KnownThread *known, size_t n, sd_json_variant *thread) {
        const KnownThread *found;
        KnownThread key = {};
        uint64_t a, b;

        if (!value_unsigned(thread, "tid", &key.tid))
                return NULL;
        found = bsearch(&key, known, n, sizeof(*known), known_compare);
        for (size_t k = 0; found && k < ELEMENTSOF(states); k++) {
                char path[32];

                (void) snprintf(path, sizeof(path), "times.%s", states[k]);
                if (value_unsigned(found->thread, path, &a) && value_unsigned(thread, path, &b) && a > b)
                        return NULL;
        }
        return found ? found->thread : NULL;
}

typedef struct ThreadRow {
        sd_json_variant *thread, *before;
        uint64_t times[ELEMENTSOF(states)];
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
        for (size_t i = 0; i < ELEMENTSOF(states); i++) {
                (void) snprintf(path, sizeof(path), "times.%s", states[i]);
                row->times[i] = value_since(before, thread, path);
                row->all += row->times[i];
                if (!streq(states[i], "park") && !streq(states[i], "socket") && !streq(states[i], "poll") && !streq(states[i], "pipe") &&
                    !streq(states[i], "sleep") && !streq(states[i], "child") && !streq(states[i], "stopped") && !streq(states[i], "other"))
                        row->busy += row->times[i];
        }
}

static void table_add_row(Table *t, const ThreadRow *row) {
        char buf[FORMAT_MAX];
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
        if (value_string(row->thread, "state"))
                table_add(t, COLOR_NONE, "%s", value_string(row->thread, "state"));
        else
                table_add_absent(t);
        for (size_t i = 0; i < ELEMENTSOF(states); i++)
                if (row->times[i] == 0)
                        table_add_absent(t);
                else
                        table_add(t, COLOR_NONE, "%s", format_percent(buf, (double) row->times[i] / (double) row->all));
        table_add(t, COLOR_NONE, "%s", format_count(buf, value_since(row->before, row->thread, "voluntary")));
        table_add(t, COLOR_NONE, "%s", format_count(buf, value_since(row->before, row->thread, "involuntary")));
        table_add(t, COLOR_NONE, "%s", format_count(buf, value_since(row->before, row->thread, "migrations")));
}

static int print_threads(sd_json_variant *before, sd_json_variant *after) {
        static const Column columns[] = {
                { "TID",       .right = true                           },
                { "PID",       .right = true,             .rank = 9    },
                { "NAME",      .minimum = 8                            },
                { "STATE"                                              },
                { "RUNNING",   .right = true                           },
                { "RUNQUEUE",  .right = true                           },
                { "THROTTLED", .right = true,             .rank = 8    },
                { "LOCK",      .right = true                           },
                { "PARK",      .right = true,             .rank = 2    },
                { "DISK",      .right = true                           },
                { "SOCKET",    .right = true,             .rank = 1    },
                { "POLL",      .right = true,             .rank = 1    },
                { "PIPE",      .right = true,             .rank = 3    },
                { "SLEEP",     .right = true,             .rank = 3    },
                { "MEMORY",    .right = true,             .rank = 4    },
                { "CHILD",     .right = true,             .rank = 5    },
                { "STOPPED",   .right = true,             .rank = 7    },
                { "OTHER",     .right = true,             .rank = 7    },
                { "WAITS",     .right = true,             .rank = 4    },
                { "PREEMPTED", .right = true,             .rank = 6    },
                { "MIGRATED",  .right = true,             .rank = 10   },
        };
        sd_json_variant *threads = value_find(after, "threads"), *rest = value_find(after, "rest");
        size_t n = threads ? sd_json_variant_elements(threads) : 0;
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_free_ ThreadRow *rows = NULL;
        _cleanup_free_ KnownThread *known = NULL;
        const Style *style = terminal_style();
        size_t n_known;

        known = known_new(value_find(before, "threads"), &n_known);
        rows = new0(ThreadRow, n + 1);
        t = table_new(columns, ELEMENTSOF(columns));
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
                (void) log_failure(-EINVAL, "--for= cannot be combined with --json=, which prints totals since each thread was first observed.");
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
