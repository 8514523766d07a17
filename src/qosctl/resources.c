/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* resources */

#include <stdarg.h>

#include "format.h"
#include "mounts.h"
#include "progress.h"
#include "qosctl.h"
#include "state-label.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Adds the mean time per request. */
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
                { "READS",     .right = true             },
                { "READ",      .right = true, .rank = 3  },
                { "WRITES",    .right = true             },
                { "WRITTEN",   .right = true, .rank = 3  },
                { "FLUSHES",   .right = true, .rank = 2  },
                { "DISCARDS",  .right = true, .rank = 4  },
                { "QUEUETIME", .right = true, .rank = 1  },
                { "DEVTIME",   .right = true, .rank = 1  },
                { "SHARE",     .right = true, .rank = 1  },
        };
        sd_json_variant *devices = value_find(block, "devices");
        _cleanup_(table_freep) Table *t = NULL;
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        double share;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();

        for (size_t i = 0; devices && i < sd_json_variant_elements(devices); i++) {
                sd_json_variant *d = sd_json_variant_by_index(devices, i);

                table_add(t, COLOR_NONE, "%s", value_string(d, "device") ?: "(others)");
                table_add_number(t, d, "reads", format_count);
                table_add_number(t, d, "readBytes", format_bytes);
                table_add_number(t, d, "writes", format_count);
                table_add_number(t, d, "writeBytes", format_bytes);
                table_add_number(t, d, "flushes", format_count);
                table_add_number(t, d, "discards", format_count);
                add_mean(t, d, "queueTime");
                add_mean(t, d, "deviceTime");
                if (value_real(d, "share", &share))
                        table_add(t, COLOR_NONE, "%s", format_percent(buf, share));
                else
                        table_add_absent(t);
        }
        if (table_rows(t) == 0) {
                (void) printf("%sNo block I/O.%s\n", color_on(style, COLOR_GREY), color_off(style));
                return 0;
        }
        return table_print(t, stdout, style, arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

#define COUNTS_TEXT_MAX 512U

_printf_(2, 3) static void append(char line[static COUNTS_TEXT_MAX], const char *format, ...) {
        size_t length = strlen(line);
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(line + length, COUNTS_TEXT_MAX - length, format, ap);
        va_end(ap);
}

/* Prints "Label: 15 of this (1.2ms), 3 of that", omitting zeros. */
static void print_counts(const char *label, sd_json_variant *v, const char *const (*table)[3], size_t n) {
        char buf[FORMAT_MAX], line[COUNTS_TEXT_MAX] = "";
        uint64_t count, time;

        for (size_t i = 0; i < n; i++) {
                if (!value_unsigned(v, table[i][0], &count) || count == 0)
                        continue;
                append(line, "%s%s %s", *line ? ", " : "", format_count(buf, count), table[i][2]);
                if (table[i][1] && value_unsigned(v, table[i][1], &time))
                        append(line, " (%s)", format_duration(buf, time));
        }
        print_wrapped(label, line, "", "");
}

static void print_memory(sd_json_variant *contention) {
        static const char *const memory[][3] = {
                { "majorFaults",    "majorFaultTime",    "major faults"   },
                { "minorFaults",    "minorFaultTime",    "minor faults"   },
                { "reclaims",       "reclaimTime",       "reclaims"       },
                { "dirtyThrottles", "dirtyThrottleTime", "throttled writes" },
                { "swapIns",        NULL,                "pages swapped in" },
                { "refaults",       NULL,                "refaulted pages" },
                { "oomKills",       NULL,                "OOM kills"      },
        };
        static const char *const quota[][3] = {
                { "throttledPeriods", "throttledTime", "throttled periods" },
        };

        print_counts("  Memory: ", value_find(contention, "memory"), memory, ELEMENTSOF(memory));
        print_counts("   Quota: ", value_find(contention, "quota"), quota, ELEMENTSOF(quota));
}

static void print_pressure(sd_json_variant *contention) {
        static const char *const table[] = { "cpu", "memory", "io" };
        char some[FORMAT_MAX], full[FORMAT_MAX], path[64], line[COUNTS_TEXT_MAX] = "";
        double a, b;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                (void) snprintf(path, sizeof(path), "pressure.%s.some", table[i]);
                if (!value_real(contention, path, &a))
                        continue;
                (void) snprintf(path, sizeof(path), "pressure.%s.full", table[i]);
                append(line, "%s%s %s", *line ? ", " : "", table[i], format_percent(some, a));
                if (value_real(contention, path, &b))
                        append(line, " (full %s)", format_percent(full, b));
        }
        print_wrapped("Pressure: ", line, "", "");
}

/* Finds the wait target in an earlier reply. NULL: none. */
static sd_json_variant* find_before(sd_json_variant *before, sd_json_variant *resource) {
        static const char *const fields[] = { "state", "kind", "name", "address" };
        sd_json_variant *resources = value_find(before, "resources");
        uint64_t a, b;

        for (size_t i = 0; resources && i < sd_json_variant_elements(resources); i++) {
                sd_json_variant *v = sd_json_variant_by_index(resources, i);
                bool same = value_unsigned(v, "pid", &a) == value_unsigned(resource, "pid", &b) &&
                            (!value_unsigned(v, "pid", &a) || a == b);

                for (size_t k = 0; k < ELEMENTSOF(fields) && same; k++)
                        same = streq_ptr(value_string(v, fields[k]), value_string(resource, fields[k]));
                if (same)
                        return v;
        }
        return NULL;
}

typedef struct WaitRow {
        sd_json_variant *resource;
        uint64_t waits, time;
} WaitRow;

static int wait_compare(const void *a, const void *b) {
        const WaitRow *x = a, *y = b;

        return x->time != y->time ? (x->time > y->time ? -1 : 1) : 0;
}

/* Adds the wakers, with their units if these are others: "worker 1234, nginx 99 (nginx.service)". */
static int add_wakers(Table *t, sd_json_variant *resource, const char *unit) {
        sd_json_variant *wakers = value_find(resource, "wakers");
        _cleanup_free_ char *text = NULL;

        for (size_t i = 0; wakers && i < sd_json_variant_elements(wakers); i++) {
                sd_json_variant *w = sd_json_variant_by_index(wakers, i);
                const char *owner = value_string(w, "unit");
                bool other = owner && !streq(owner, unit);
                char *longer;
                uint64_t tid = 0;

                (void) value_unsigned(w, "tid", &tid);
                if (asprintf(&longer, "%s%s%s %" PRIu64 "%s%s%s", strempty(text), text ? ", " : "",
                             value_string(w, "name") ?: "?", tid, other ? " (" : "", other ? owner : "",
                             other ? ")" : "") < 0)
                        return log_out_of_memory();
                free(text);
                text = longer;
        }
        if (text)
                table_add(t, COLOR_NONE, "%s", text);
        else
                table_add_absent(t);
        return 0;
}

/* Limit of wait targets that are shown. */
#define WAITS_SHOWN 20U

static int print_waits(sd_json_variant *before, sd_json_variant *after, const char *unit) {
        static const Column columns[] = {
                { "STATE"                                              },
                { "KIND",                               .rank = 3      },
                { "RESOURCE",            .minimum = 20                 },
                { "WAITS",  .right = true                              },
                { "TIME",   .right = true                              },
                { "MEAN",   .right = true,              .rank = 2      },
                { "WOKEN BY",            .minimum = 10, .rank = 1      },
        };
        sd_json_variant *resources = value_find(after, "resources");
        size_t n = resources ? sd_json_variant_elements(resources) : 0, shown = 0;
        _cleanup_free_ WaitRow *rows = NULL;
        _cleanup_(table_freep) Table *t = NULL;
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        int r;

        rows = new0(WaitRow, n);
        t = table_new(columns, ELEMENTSOF(columns));
        if (!rows || !t)
                return log_out_of_memory();
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *resource = sd_json_variant_by_index(resources, i),
                                *old = find_before(before, resource);

                rows[i] = (WaitRow) { resource, value_since(old, resource, "waits"),
                                      value_since(old, resource, "time") };
        }
        qsort(rows, n, sizeof(*rows), wait_compare);
        for (size_t i = 0; i < n && shown < WAITS_SHOWN; i++) {
                const WaitRow *row = rows + i;

                if (row->time == 0)
                        continue;
                shown++;
                table_add(t, COLOR_NONE, "%s",
                          thread_state_label(value_string(row->resource, "state") ?: "?"));
                table_add(t, COLOR_NONE, "%s", value_string(row->resource, "kind") ?: "?");
                table_add(t, COLOR_NONE, "%s", value_string(row->resource, "name") ?: "?");
                table_add(t, COLOR_NONE, "%s", format_count(buf, row->waits));
                table_add(t, COLOR_NONE, "%s", format_duration(buf, row->time));
                if (row->waits > 0)
                        table_add(t, COLOR_NONE, "%s", format_duration(buf, row->time / row->waits));
                else
                        table_add_absent(t); /* the first wait has not ended yet */
                r = add_wakers(t, row->resource, unit);
                if (r < 0)
                        return r;
        }
        if (shown == 0) {
                (void) printf("%sNo waits.%s\n", color_on(style, COLOR_GREY), color_off(style));
                return 0;
        }
        return table_print(t, stdout, style, arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

/* Probes that all parts of the output need. */
#define PROBES_SHOWN "requests,cpu,block,memory"

typedef struct UnitReading {
        int status;             /* exit status of reading_fill() */
        Replies snapshot;
        Replies before, waits;  /* replies to Resources() at the beginning of --for= and at the end; waits
                                 * may be an error */
        uint64_t interval;      /* time between before and waits, ns */
} UnitReading;

static void readings_free(UnitReading *readings, size_t n) {
        for (size_t i = 0; i < n; i++) {
                replies_done(&readings[i].snapshot);
                replies_done(&readings[i].before);
                replies_done(&readings[i].waits);
        }
        free(readings);
}

static int waits_call(Client *c, const char *unit, Replies *ret) {
        return client_callbo(c, QOS_METHOD("Resources"), ret,
                             SD_JSON_BUILD_PAIR_STRING("unit", unit),
                             SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
}

/* Called for errors of waits, which are optional without --for=. */
static int waits_fail(int r, const Replies *replies, const char *unit) {
        if (r <= 0 || !streq(replies->error, QOS_METHOD("NotMeasured")))
                return unit_read_fail(r, replies, unit);
        (void) log_failure(-ENODATA,
                           "Failed to read '%s': waits are not measured. To measure them: qosctl attach "
                           "--probes=%s %s",
                           unit, PROBES_SHOWN, unit);
        return STATUS_FAILED;
}

static int reading_fill(UnitReading *reading, Client *c, const char *unit) {
        int r;

        if (arg_for > 0) {
                r = waits_call(c, unit, &reading->before);
                if (r != 0)
                        return waits_fail(r, &reading->before, unit);
                progress_begin(arg_for, /* interruptible= */ true, "Observing %s", unit);
                reading->interval = progress_sleep(c, unit);
                progress_end();
        }

        r = client_callbo(c, QOS_METHOD("Get"), &reading->snapshot, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &reading->snapshot, unit);

        r = waits_call(c, unit, &reading->waits);
        if (r < 0 || (r > 0 && arg_for > 0))
                return waits_fail(r, &reading->waits, unit);
        return STATUS_OK;
}

/* Prints contention, mounts, and waits as returned by qosd. With --for=, number and duration of waits are
 * those of the interval; wakers are those since the attach. */
static int resources_print_json(sd_json_variant *contention, sd_json_variant *mounts,
                                sd_json_variant *before, sd_json_variant *after) {
        _cleanup_json_ sd_json_variant *v = sd_json_variant_ref(contention), *rows = NULL;
        sd_json_variant *resources = value_find(after, "resources");
        int r = 0;

        for (size_t i = 0; resources && i < sd_json_variant_elements(resources) && r >= 0; i++) {
                sd_json_variant *resource = sd_json_variant_by_index(resources, i),
                                *old = find_before(before, resource);
                _cleanup_json_ sd_json_variant *row = sd_json_variant_ref(resource);

                if (before) {
                        r = sd_json_variant_set_field_unsigned(&row, "waits",
                                                               value_since(old, resource, "waits"));
                        if (r >= 0)
                                r = sd_json_variant_set_field_unsigned(&row, "time",
                                                                       value_since(old, resource, "time"));
                }
                if (r >= 0)
                        r = sd_json_variant_append_array(&rows, row);
        }
        if (r >= 0 && mounts)
                r = sd_json_variant_set_field(&v, "mounts", mounts);
        if (r >= 0 && rows)
                r = sd_json_variant_set_field(&v, "resources", rows);
        if (r < 0)
                return log_out_of_memory();
        return v ? json_print(v) : STATUS_OK;
}

static int print_reading(const UnitReading *reading, const char *unit, bool first) {
        sd_json_variant *snapshot = reading->snapshot.items[0],
                        *contention = value_find(snapshot, "contention"),
                        *block = value_find(contention, "block"),
                        *mounts = value_find(snapshot, "storage.mounts"),
                        *before = reading->before.n > 0 ? reading->before.items[0] : NULL,
                        *waits = reading->waits.n > 0 ? reading->waits.items[0] : NULL;
        const Style *style = terminal_style();
        const char *name = value_string(snapshot, "unit") ?: unit;
        uint64_t covered = 0;
        int r;

        if (arg_json != JSON_OFF)
                return resources_print_json(contention, mounts, before, waits);
        (void) printf("%s%s%s%s\n", first ? "" : "\n", color_on(style, COLOR_BOLD), name, color_off(style));
        if (block) {
                r = print_devices(block);
                if (r < 0)
                        return r;
        }
        if (mounts) {
                (void) value_unsigned(snapshot, "storage.covered", &covered);
                (void) printf("\n");
                r = mounts_print(mounts, covered);
                if (r < 0)
                        return r;
        }
        print_memory(contention);
        print_pressure(contention);
        if (waits) {
                char buf[FORMAT_MAX];

                (void) printf("\n   Waits: %s%s\n", arg_for > 0 ? "last " : "since observation started",
                              arg_for > 0 ? format_duration(buf, reading->interval) : "");
                r = print_waits(before, waits, name);
                if (r < 0)
                        return r;
        } else {
                _cleanup_free_ char *why = client_error_message(1, reading->waits.error,
                                                                reading->waits.parameters);

                if (!why)
                        return log_out_of_memory();
                print_wrapped("   Waits: ", why, "", "");
        }
        if (!block || !value_find(contention, "memory.minorFaults") ||
            streq_ptr(reading->waits.error, QOS_METHOD("NotMeasured"))) {
                _cleanup_free_ char *command = NULL;

                if (asprintf(&command, "For more metrics: qosctl attach --probes=%s %s", PROBES_SHOWN,
                             unit) < 0)
                        return log_out_of_memory();
                print_wrapped("", command, color_on(style, COLOR_GREY), color_off(style));
        }
        return STATUS_OK;
}

int verb_resources(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        UnitReading *readings;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        readings = new0(UnitReading, names.n);
        if (!readings)
                return log_out_of_memory();

        /* A pager and the polkit agent would compete for the terminal */
        polkit_agent_open();
        for (size_t i = 0; i < names.n; i++) {
                readings[i].status = reading_fill(readings + i, c, names.items[i]);
                status = status_combine(status, readings[i].status);
        }
        polkit_agent_close();

        pager_open();
        for (size_t i = 0, shown = 0; i < names.n; i++)
                if (readings[i].status == STATUS_OK)
                        status = status_combine(status,
                                                print_reading(readings + i, names.items[i], shown++ == 0));

        readings_free(readings, names.n);
        return status;
}
