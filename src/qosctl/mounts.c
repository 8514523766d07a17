/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* mounts */

#include "client.h"
#include "format.h"
#include "mounts.h"
#include "qosctl.h"
#include "replies.h"
#include "state-label.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

static void add_rate(Table *t, sd_json_variant *row, const char *path, double seconds, bool bytes) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!value_unsigned(row, path, &n))
                table_add_absent(t);
        else if (bytes)
                table_add(t, COLOR_NONE, "%s/s", format_bytes(buf, (uint64_t) ((double) n / seconds)));
        else
                table_add(t, COLOR_NONE, "%s", format_rate(buf, (double) n / seconds));
}

static void add_duration(Table *t, sd_json_variant *row, const char *path) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(row, path, &n))
                table_add(t, COLOR_NONE, "%s", format_duration(buf, n));
        else
                table_add_absent(t);
}

static void add_errors(Table *t, sd_json_variant *row) {
        static const char *const paths[] = { "reads.errors", "writes.errors", "syncs.errors", "opens.errors",
                                             "changes.errors" };
        uint64_t sum = 0, n;
        char buf[FORMAT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(paths); i++)
                if (value_unsigned(row, paths[i], &n))
                        sum += n;
        table_add(t, sum > 0 ? COLOR_YELLOW : COLOR_NONE, "%s", format_count(buf, sum));
}

static void add_text(Table *t, sd_json_variant *row, const char *key) {
        const char *s = value_string(row, key);

        if (s)
                table_add(t, COLOR_NONE, "%s", s);
        else
                table_add_absent(t);
}

int mounts_print(sd_json_variant *mounts, uint64_t covered) {
        static const Column columns[] = {
                { "MOUNT", .minimum = 12 },
                { "TYPE", .rank = 8 }, { "DEVICE", .rank = 10 },
                { "READS", .right = true },
                { "RBYTES", .right = true, .rank = 5 }, { "RP99", .right = true, .rank = 2 },
                { "WRITES", .right = true },
                { "WBYTES", .right = true, .rank = 4 }, { "WP99", .right = true, .rank = 1 },
                { "SYNCS", .right = true, .rank = 6 }, { "SP99", .right = true, .rank = 3 },
                { "OPENS", .right = true, .rank = 9 }, { "CHANGES", .right = true, .rank = 11 },
                { "ERRORS", .right = true, .rank = 7 },
        };
        double seconds = (double) MAX(covered, UINT64_C(1)) / (double) NSEC_PER_SEC;
        _cleanup_(table_freep) Table *t = NULL;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < sd_json_variant_elements(mounts); i++) {
                sd_json_variant *row = sd_json_variant_by_index(mounts, i);
                const char *device = value_string(row, "device");

                table_add(t, device ? COLOR_NONE : COLOR_GREY, "%s",
                          value_string(row, "mount") ?: device ?: "others");
                add_text(t, row, "type");
                add_text(t, row, "device");
                add_rate(t, row, "reads.count", seconds, /* bytes= */ false);
                add_rate(t, row, "reads.bytes", seconds, /* bytes= */ true);
                add_duration(t, row, "reads.latency.p99");
                add_rate(t, row, "writes.count", seconds, /* bytes= */ false);
                add_rate(t, row, "writes.bytes", seconds, /* bytes= */ true);
                add_duration(t, row, "writes.latency.p99");
                add_rate(t, row, "syncs.count", seconds, /* bytes= */ false);
                add_duration(t, row, "syncs.latency.p99");
                add_rate(t, row, "opens.count", seconds, /* bytes= */ false);
                add_rate(t, row, "changes.count", seconds, /* bytes= */ false);
                add_errors(t, row);
        }
        return table_print(t, stdout, terminal_style(), arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

void mounts_add_state(Table *t, sd_json_variant *shares) {
        const char *state = NULL;
        char buf[FORMAT_MAX];
        double most = 0;

        for (enum qos_state s = QOS_STATE_RUNNING; s < QOS_STATES && shares; s++) {
                double share;

                if (!value_real(shares, qos_state_to_string(s), &share) || share <= most)
                        continue;
                most = share;
                state = qos_state_to_string(s);
        }
        if (state)
                table_add(t, COLOR_NONE, "%s %s", thread_state_label(state), format_percent(buf, most));
        else
                table_add_absent(t);
}

static void add_bytes(Table *t, sd_json_variant *operation) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_string(operation, "error"))
                table_add(t, COLOR_YELLOW, "%s", value_string(operation, "error"));
        else if (value_unsigned(operation, "bytes", &n))
                table_add(t, COLOR_NONE, "%s", format_bytes(buf, n));
        else
                table_add_absent(t);
}

static void add_thread(Table *t, sd_json_variant *operation) {
        const char *thread = value_string(operation, "thread");
        uint64_t tid;

        if (value_unsigned(operation, "tid", &tid))
                table_add(t, COLOR_NONE, "%s[%" PRIu64 "]", thread ?: "", tid);
        else
                add_text(t, operation, "thread");
}

static int print_slow(sd_json_variant *operations) {
        static const Column columns[] = {
                { "AT" },
                { "CALL" },
                { "TIME", .right = true },
                { "MOUNT", .minimum = 8, .rank = 2 },
                { "FILE", .minimum = 8 },
                { "BYTES", .right = true, .rank = 4 },
                { "THREAD", .minimum = 8, .rank = 3 },
                { "STATE", .rank = 1 },
        };
        uint64_t now = now_nsec(CLOCK_REALTIME), at;
        _cleanup_(table_freep) Table *t = NULL;
        char buf[FORMAT_MAX];

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < sd_json_variant_elements(operations); i++) {
                sd_json_variant *operation = sd_json_variant_by_index(operations, i);

                if (value_time(operation, "timestamp", &at))
                        table_add(t, COLOR_NONE, "%s", format_time(buf, at, now));
                else
                        table_add_absent(t);
                add_text(t, operation, "operation");
                add_duration(t, operation, "time");
                add_text(t, operation, value_string(operation, "mount") ? "mount" : "device");
                add_text(t, operation, "name");
                add_bytes(t, operation);
                add_thread(t, operation);
                mounts_add_state(t, value_find(operation, "shares"));
        }
        (void) printf("\nSlow calls, newest first:\n");
        return table_print(t, stdout, terminal_style(), arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

/* Returns the slow calls; NULL if the client may not read them, or qosd does not support them. */
static sd_json_variant* slow_read(Client *c, const char *unit, Replies *replies) {
        return client_callbo(c, QOS_METHOD("SlowOperations"), replies,
                             SD_JSON_BUILD_PAIR_STRING("unit", unit)) == 0 ?
                value_find(replies->items[0], "operations") : NULL;
}

/* Prints why there is no table. */
static void print_no_mounts(sd_json_variant *snapshot, const char *unit) {
        uint64_t n;

        if (!value_find(snapshot, "storage"))
                (void) printf("%s is not observed with the probe storage (to do so: qosctl attach "
                              "--probes=storage %s)\n",
                              unit, unit);
        else if (!value_unsigned(snapshot, "storage.reads.count", &n))
                (void) printf("Calls on files are not measured on this kernel, see 'qosctl probes'\n");
        else if (n == 0)
                (void) printf("No calls on files\n");
        else
                (void) printf("File systems are shown to root and to the owner of the control group, over "
                              "windows from 2s to 10s and for --window=total\n");
}

static int mounts_unit(Client *c, const char *unit, bool several, bool first) {
        _cleanup_replies_ Replies replies = REPLIES_INIT, more = REPLIES_INIT;
        sd_json_variant *mounts, *slow;
        uint64_t covered = 0;
        const char *name;
        int r;

        r = client_callbo(c, QOS_METHOD("Get"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);

        name = value_string(replies.items[0], "unit") ?: unit;
        mounts = value_find(replies.items[0], "storage.mounts");
        slow = mounts ? slow_read(c, unit, &more) : NULL;
        if (arg_json != JSON_OFF) {
                _cleanup_json_ sd_json_variant *v = NULL;

                r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", name),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!mounts, "mounts",
                                                                SD_JSON_BUILD_VARIANT(mounts)),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!slow, "slow",
                                                                SD_JSON_BUILD_VARIANT(slow)));
                return r < 0 ? log_out_of_memory() : json_print(v);
        }

        if (several)
                (void) printf("%s%s:\n", first ? "" : "\n", name);
        if (!mounts) {
                print_no_mounts(replies.items[0], name);
                return 0;
        }
        (void) value_unsigned(replies.items[0], "storage.covered", &covered);
        r = mounts_print(mounts, covered);
        return r == 0 && slow && sd_json_variant_elements(slow) > 0 ? print_slow(slow) : r;
}

int verb_mounts(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        pager_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, mounts_unit(c, names.items[i], names.n > 1, i == 0));
        return status;
}
