/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a unit has of the machine: block devices, memory, and for what its threads are held up. */

#include "qosctl.h"
#include "qosctl-format.h"
#include "qosctl-table.h"
#include "qosctl-terminal.h"
#include "qosctl-units.h"
#include "qosctl-value.h"

static void add_number(Table *t, sd_json_variant *v, const char *name, char* (*format)(char buf[static FORMAT_MAX], uint64_t)) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(v, name, &n))
                table_add(t, COLOR_NONE, "%s", format(buf, n));
        else
                table_add_absent(t);
}

/* The time of one request, on average. */
static void add_mean(Table *t, sd_json_variant *v, const char *time) {
        static const char *const counts[] = { "reads", "writes", "flushes", "discards" };
        uint64_t nsec, n, all = 0;
        char buf[FORMAT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(counts); i++)
                if (value_unsigned(v, counts[i], &n))
                        all += n;
        if (all > 0 && value_unsigned(v, time, &nsec))
                table_add(t, COLOR_NONE, "%s", format_duration(buf, nsec / all));
        else
                table_add_absent(t);
}

static int print_devices(sd_json_variant *block) {
        static const Column columns[] = {
                { "DEVICE"                               },
                { "READS",    .right = true              },
                { "READ",     .right = true, .rank = 3   },
                { "WRITES",   .right = true              },
                { "WRITTEN",  .right = true, .rank = 3   },
                { "FLUSHES",  .right = true, .rank = 2   },
                { "DISCARDS", .right = true, .rank = 4   },
                { "QUEUED",   .right = true, .rank = 1   },
                { "SERVED",   .right = true, .rank = 1   },
                { "SHARE",    .right = true, .rank = 1   },
        };
        sd_json_variant *devices = value_find(block, "devices");
        _cleanup_(table_freep) Table *t = NULL;
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        double share;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return complain_oom();

        for (size_t i = 0; devices && i < sd_json_variant_elements(devices); i++) {
                sd_json_variant *d = sd_json_variant_by_index(devices, i);

                table_add(t, COLOR_NONE, "%s", value_string(d, "device") ?: "(others)");
                add_number(t, d, "reads", format_count);
                add_number(t, d, "readBytes", format_bytes);
                add_number(t, d, "writes", format_count);
                add_number(t, d, "writeBytes", format_bytes);
                add_number(t, d, "flushes", format_count);
                add_number(t, d, "discards", format_count);
                add_mean(t, d, "queueTime");
                add_mean(t, d, "deviceTime");
                if (value_real(d, "share", &share))
                        table_add(t, COLOR_NONE, "%s", format_percent(buf, share));
                else
                        table_add_absent(t);
        }
        if (table_rows(t) == 0) {
                (void) printf("%sNo block device was used.%s\n", color_on(style, COLOR_GREY), color_off(style));
                return 0;
        }
        return table_print(t, stdout, style, arg_legend, 0) < 0 ? complain_oom() : 0;
}

/* "Label: 15 of this (1.2ms), 3 of that": those that are not 0. */
static void print_counts(const char *label, sd_json_variant *v, const char *const (*table)[3], size_t n) {
        bool any = false;
        char buf[FORMAT_MAX];
        uint64_t count, time;

        for (size_t i = 0; i < n; i++) {
                if (!value_unsigned(v, table[i][0], &count) || count == 0)
                        continue;
                (void) printf("%s%s %s", any ? ", " : label, format_count(buf, count), table[i][2]);
                if (table[i][1] && value_unsigned(v, table[i][1], &time))
                        (void) printf(" (%s)", format_duration(buf, time));
                any = true;
        }
        if (any)
                (void) printf("\n");
}

static void print_memory(sd_json_variant *contention) {
        static const char *const memory[][3] = {
                { "majorFaults",    "majorFaultTime",    "major faults"   },
                { "minorFaults",    "minorFaultTime",    "minor faults"   },
                { "reclaims",       "reclaimTime",       "reclaims"       },
                { "dirtyThrottles", "dirtyThrottleTime", "writers slowed" },
                { "swapIns",        NULL,                "pages swapped in" },
                { "refaults",       NULL,                "pages read again" },
                { "oomKills",       NULL,                "OOM kills"      },
        };
        static const char *const quota[][3] = {
                { "throttledPeriods", "throttledTime", "periods throttled" },
        };

        print_counts("  Memory: ", value_find(contention, "memory"), memory, ELEMENTSOF(memory));
        print_counts("   Quota: ", value_find(contention, "quota"), quota, ELEMENTSOF(quota));
}

static void print_pressure(sd_json_variant *contention) {
        static const char *const table[] = { "cpu", "memory", "io" };
        char some[FORMAT_MAX], full[FORMAT_MAX], path[64];
        bool any = false;
        double a, b;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                (void) snprintf(path, sizeof(path), "pressure.%s.some", table[i]);
                if (!value_real(contention, path, &a))
                        continue;
                (void) snprintf(path, sizeof(path), "pressure.%s.full", table[i]);
                (void) printf("%s%s %s", any ? ", " : "Pressure: ", table[i], format_percent(some, a));
                if (value_real(contention, path, &b))
                        (void) printf(" (all threads %s)", format_percent(full, b));
                any = true;
        }
        if (any)
                (void) printf("\n");
}

static int resources_unit(Client *c, const char *unit, bool first) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        sd_json_variant *contention, *block;
        const Style *style = terminal_style();
        int r;

        r = client_callbo(c, QOS_METHOD("Get"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);

        contention = value_find(replies.items[0], "contention");
        if (arg_json != JSON_OFF)
                return contention ? json_print(contention) : STATUS_FINE;

        block = value_find(contention, "block");
        (void) printf("%s%s%s%s\n", first ? "" : "\n", color_on(style, COLOR_BOLD), value_string(replies.items[0], "unit") ?: unit,
                      color_off(style));
        if (block) {
                r = print_devices(block);
                if (r < 0)
                        return r;
        }
        print_memory(contention);
        print_pressure(contention);
        if (!block || !value_find(contention, "memory.minorFaults"))
                (void) printf("%sTo measure more: qosctl attach --probes=requests,cpu,block,memory %s%s\n", color_on(style, COLOR_GREY), unit,
                              color_off(style));
        return STATUS_FINE;
}

int verb_resources(int argc, char **argv) {
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
                status = status_combine(status, resources_unit(c, names.items[i], i == 0));

        return status;
}
