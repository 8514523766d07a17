/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics of custom probes. */

#include "format.h"
#include "qosctl.h"
#include "status-internal.h"
#include "value.h"

/* Entries of a metric that are shown, the largest first: "qosctl show" has all. */
#define ENTRIES_SHOWN 5U

static uint64_t entry_get_size(sd_json_variant *entry) {
        uint64_t n = 0;

        if (!value_unsigned(entry, "count", &n))
                (void) value_unsigned(entry, "value", &n);
        return n;
}

static int entry_compare(const void *a, const void *b) {
        uint64_t x = entry_get_size(*(sd_json_variant *const*) a),
                 y = entry_get_size(*(sd_json_variant *const*) b);

        return x < y ? 1 : x > y ? -1 : 0;
}

static void add_values(Table *t, sd_json_variant *v) {
        char buf[FORMAT_MAX];
        uint64_t n;
        double rate;

        if (value_real(v, "rate", &rate))
                table_add(t, COLOR_NONE, "%s", format_rate(buf, rate));
        else
                table_add_absent(t);
        table_add(t, COLOR_NONE, "%s", format_count(buf, entry_get_size(v)));
        if (value_unsigned(v, "mean", &n))
                table_add(t, COLOR_NONE, "%s", format_duration(buf, n));
        else
                table_add_absent(t);
        table_add_number(t, v, "p50", format_duration);
        table_add_number(t, v, "p99", format_duration);
}

/* The values of labels, as "read sda". */
static char* entry_get_name(sd_json_variant *entry) {
        sd_json_variant *labels = value_find(entry, "labels");
        char *name = strdup(labels ? "" : "all others");

        for (size_t i = 1; labels && i < sd_json_variant_elements(labels) && name; i += 2) {
                char *longer = NULL;

                if (asprintf(&longer, "%s%s%s", name, i > 1 ? " " : "",
                             strempty(sd_json_variant_string(sd_json_variant_by_index(labels, i)))) < 0)
                        longer = NULL;
                free(name);
                name = longer;
        }
        return name;
}

static int add_entries(Table *t, sd_json_variant *metric) {
        sd_json_variant *array = value_find(metric, "entries");
        size_t n = array ? sd_json_variant_elements(array) : 0;
        _cleanup_free_ sd_json_variant **entries = new0(sd_json_variant*, n + 1);

        if (!entries)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                entries[i] = sd_json_variant_by_index(array, i);
        qsort(entries, n, sizeof(*entries), entry_compare);
        for (size_t i = 0; i < MIN(n, (size_t) ENTRIES_SHOWN); i++) {
                _cleanup_free_ char *name = entry_get_name(entries[i]);

                if (!name)
                        return -ENOMEM;
                table_add(t, COLOR_NONE, "  %s", name);
                add_values(t, entries[i]);
        }
        return 0;
}

static int add_metrics(Table *t, const char *probe, sd_json_variant *metrics) {
        int r = 0;

        for (size_t i = 0; i + 1 < sd_json_variant_elements(metrics) && r >= 0; i += 2) {
                sd_json_variant *metric = sd_json_variant_by_index(metrics, i + 1);

                table_add(t, COLOR_NONE, "%s.%s", probe,
                          strempty(sd_json_variant_string(sd_json_variant_by_index(metrics, i))));
                add_values(t, metric);
                r = add_entries(t, metric);
        }
        return r;
}

/* As "started 0.2% of a CPU, disk <0.1% of a CPU". */
static void print_costs(sd_json_variant *costs) {
        char buf[FORMAT_MAX];

        print_key("Custom probes");
        for (size_t i = 0; costs && i + 1 < sd_json_variant_elements(costs); i += 2)
                line_add("%s%s %s of a CPU", i > 0 ? ", " : "",
                         strempty(sd_json_variant_string(sd_json_variant_by_index(costs, i))),
                         format_percent(buf,
                                        sd_json_variant_real(sd_json_variant_by_index(costs, i + 1))));
        line_end();
}

int reading_print_custom(sd_json_variant *custom, sd_json_variant *costs) {
        static const Column columns[] = {
                { "METRIC" },
                { "RATE", .right = true },
                { "VALUE", .right = true },
                { "MEAN", .right = true, .rank = 3 },
                { "P50", .right = true, .rank = 2 },
                { "P99", .right = true, .rank = 1 },
        };
        _cleanup_(table_freep) Table *t = table_new(columns, ELEMENTSOF(columns));
        int r = 0;

        if (!t)
                return -ENOMEM;
        for (size_t i = 0; i + 1 < sd_json_variant_elements(custom) && r >= 0; i += 2)
                r = add_metrics(t, strempty(sd_json_variant_string(sd_json_variant_by_index(custom, i))),
                                sd_json_variant_by_index(custom, i + 1));
        if (r < 0)
                return r;
        line_end();
        print_costs(costs);
        return table_print(t, stdout, terminal_style(), arg_legend, table_indent());
}
