/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls on files. */

#include "format.h"
#include "mounts.h"
#include "qosctl.h"
#include "status-internal.h"
#include "value.h"

#define STORAGE "storage."

static const struct {
        const char *path, *label;
} call_table[] = {
        { "reads",   "read"    },
        { "writes",  "write"   },
        { "syncs",   "sync"    },
        { "opens",   "open"    },
        { "creates", "create"  },
        { "removes", "remove"  },
        { "renames", "rename"  },
        { "lookups", "look up" },
        { "changes", "change"  },
};

static bool call_find(const Reading *r, const char *path, const char *key, uint64_t *ret) {
        char metric[64];

        (void) snprintf(metric, sizeof(metric), STORAGE "%s.%s", path, key);
        return reading_unsigned(r, metric, ret);
}

/* As the kernel counts in each task: where calls on files are not known. */
static void print_counted(const Reading *r, double seconds) {
        uint64_t reads, writes, read_bytes, write_bytes;
        char a[FORMAT_MAX], b[FORMAT_MAX], c[FORMAT_MAX], d[FORMAT_MAX];

        if (!call_find(r, "calls", "reads", &reads) || !call_find(r, "calls", "writes", &writes) ||
            !call_find(r, "calls", "readBytes", &read_bytes) ||
            !call_find(r, "calls", "writeBytes", &write_bytes))
                return;
        print_line("Reads, writes", "%s reads (%s/s), %s writes (%s/s), sockets and pipes included",
                   format_rate(a, (double) reads / seconds),
                   format_bytes(b, (uint64_t) ((double) read_bytes / seconds)),
                   format_rate(c, (double) writes / seconds),
                   format_bytes(d, (uint64_t) ((double) write_bytes / seconds)));
}

int reading_print_storage(const Reading *r) {
        /* The last one only where it is known */
        static const Column columns[] = {
                { "CALL" },
                { "RATE", .right = true },
                { "BYTES", .right = true, .rank = 1 },
                { "ERRORS", .right = true },
                { "P50", .right = true, .rank = 2 },
                { "P99", .right = true },
                { "MAX", .right = true, .rank = 3 },
                { "MOSTLY", .rank = 4 },
        };
        const bool divided = value_find(r->snapshot, STORAGE "reads.shares") ||
                             value_find(r->snapshot, STORAGE "writes.shares") ||
                             value_find(r->snapshot, STORAGE "syncs.shares");
        static const char *const shown[] = { "latency.p50", "latency.p99", "latency.max" };
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered, count, n;
        char buf[FORMAT_MAX];
        bool known = false, some = false;
        double seconds;

        if (!reading_unsigned(r, STORAGE "covered", &covered) || covered == 0)
                return 0;
        seconds = (double) covered / (double) NSEC_PER_SEC;

        t = table_new(columns, ELEMENTSOF(columns) - (divided ? 0 : 1));
        if (!t)
                return -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(call_table); i++) {
                if (!call_find(r, call_table[i].path, "count", &count))
                        continue;
                known = true;
                if (count == 0)
                        continue;
                some = true;
                table_add(t, COLOR_NONE, "%s", call_table[i].label);
                table_add(t, COLOR_NONE, "%s", format_rate(buf, (double) count / seconds));
                if (call_find(r, call_table[i].path, "bytes", &n))
                        table_add(t, COLOR_NONE, "%s/s",
                                  format_bytes(buf, (uint64_t) ((double) n / seconds)));
                else
                        table_add_absent(t);
                (void) call_find(r, call_table[i].path, "errors", &n);
                table_add(t, n > 0 ? COLOR_YELLOW : COLOR_NONE, "%s", format_count(buf, n));
                for (size_t k = 0; k < ELEMENTSOF(shown); k++)
                        if (call_find(r, call_table[i].path, shown[k], &n))
                                table_add(t, COLOR_NONE, "%s", format_duration(buf, n));
                        else
                                table_add_absent(t);
                if (divided) {
                        char path[64];

                        (void) snprintf(path, sizeof(path), STORAGE "%s.shares", call_table[i].path);
                        mounts_add_state(t, value_find(r->snapshot, path));
                }
        }

        line_end();
        if (!known) {
                print_counted(r, seconds);
                return 0;
        }
        print_line("Files", "calls over %s%s", format_duration(buf, covered), some ? ":" : ": none");
        if (reading_unsigned(r, STORAGE "inFlight", &count) && count > 0 &&
            reading_unsigned(r, STORAGE "oldestInFlight", &n)) {
                char age[FORMAT_MAX];

                print_line("", "%s in flight, the oldest for %s", format_count(buf, count),
                           format_duration(age, n));
        }
        return some ? table_print(t, stdout, terminal_style(), arg_legend, table_indent()) : 0;
}
