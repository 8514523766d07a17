/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* probes, list-metrics */

#include "client.h"
#include "format.h"
#include "qosctl.h"
#include "table.h"
#include "value.h"

/* any_runs: a program has run while the kernel counted that. */
static void print_status(sd_json_variant *s, bool any_runs) {
        const Style *style = terminal_style();
        char a[FORMAT_MAX], b[FORMAT_MAX];
        sd_json_variant *lost;
        uint64_t n, max;

        (void) printf("\n");
        if (value_unsigned(s, "units", &n) && value_unsigned(s, "unitsMax", &max))
                (void) printf("%s unit%s attached, limit %s.\n", format_count(a, n), n == 1 ? "" : "s",
                              format_count(b, max));
        if (value_unsigned(s, "mapMemory", &n))
                (void) printf("%s of memory used by BPF maps.\n", format_bytes(a, n));
        if (value_unsigned(s, "mapMemoryPerUnit", &n) && value_unsigned(s, "memoryPerSocket", &max)) {
                char text[2 * FORMAT_MAX + 64];

                (void) snprintf(text, sizeof(text), "%s per attached unit, %s per open connection.",
                                format_bytes(a, n), format_bytes(b, max));
                print_colored("", text);
        }
        if (value_unsigned(s, "drops", &n) && n > 0)
                (void) printf("%s%s event%s not counted.%s\n", color_on(style, COLOR_RED),
                              format_count(a, n), n == 1 ? "" : "s", color_off(style));
        lost = value_find(s, "lostElements");
        for (size_t i = 0; lost && i < sd_json_variant_elements(lost); i++) {
                sd_json_variant *v = sd_json_variant_by_index(lost, i);

                if (value_unsigned(v, "count", &n))
                        (void) printf("%s%s element%s could not be allocated in map '%s'.%s\n",
                                      color_on(style, COLOR_RED), format_count(a, n), n == 1 ? "" : "s",
                                      value_string(v, "map") ?: "-", color_off(style));
        }
        if (!value_boolean(s, "statisticsEnabled"))
                (void) printf("Run counts and times are %s. To enable: sysctl "
                              "kernel.bpf_stats_enabled=1\n",
                              any_runs ? "those of samples, not collected all the time" : "not collected");
}

int verb_probes(int argc, char **argv) {
        static const Column columns[] = {
                { "PROGRAM",  .minimum = 15                              },
                { "PROBE",                                     .rank = 4 },
                { "HOOK",     .minimum = 22,                   .rank = 2 },
                { "STATE"                                                },
                { "RUNS",     .right = true,                   .rank = 1 },
                { "PER RUN",  .right = true,                   .rank = 1 },
                { "MISSES",   .right = true,                   .rank = 3 },
                { "PROVIDES", .minimum = 24, .wrap = true                },
        };
        _cleanup_replies_ Replies programs = REPLIES_INIT, status = REPLIES_INIT;
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_client_ Client *c = NULL;
        bool any_runs = false;
        uint64_t n;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;

        r = client_call_more(c, QOS_METHOD("Probes"), 0, NULL, &programs);
        if (r != 0)
                return client_fail(r, &programs, "list the probes");
        r = client_call(c, QOS_METHOD("GetStatus"), 0, NULL, &status);
        if (r != 0)
                return client_fail(r, &status, "read the state of qosd");

        if (arg_json != JSON_OFF) {
                for (size_t i = 0; i < programs.n; i++) {
                        r = json_print(programs.items[i]);
                        if (r < 0)
                                return r;
                }
                return json_print(status.items[0]);
        }

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();

        for (size_t i = 0; i < programs.n; i++) {
                sd_json_variant *p = programs.items[i];
                const char *state = value_string(p, "state") ?: "-", *reason = value_string(p, "reason");
                bool bad = streq(state, "unavailable");

                any_runs = any_runs || value_unsigned(p, "runs", &n);
                table_add(t, COLOR_NONE, "%s", value_string(p, "program") ?: "-");
                table_add(t, COLOR_NONE, "%s", value_string(p, "probe") ?: "-");
                table_add(t, COLOR_NONE, "%s", value_string(p, "hook") ?: "-");
                table_add(t,
                          streq(state, "attached") ? COLOR_GREEN :
                          bad                      ? COLOR_RED :
                                                     COLOR_GREY,
                          "%s", state);
                table_add_number(t, p, "runs", format_count);
                table_add_number(t, p, "runTimeMean", format_duration);
                table_add_number(t, p, "recursionMisses", format_count);
                table_add(t, bad ? COLOR_YELLOW : COLOR_NONE, "%s%s%s", value_string(p, "provides") ?: "-",
                          reason ? "; " : "", reason ?: "");
        }

        pager_open();
        r = table_print(t, stdout, terminal_style(), arg_legend, 0);
        if (r < 0)
                return log_out_of_memory();
        if (arg_legend)
                print_status(status.items[0], any_runs);

        return STATUS_OK;
}

int verb_list_metrics(int argc, char **argv) {
        static const Column columns[] = {
                { "METRIC"                                    },
                { "UNIT"                                      },
                { "KIND",                           .rank = 2 },
                { "PROBE",                          .rank = 3 },
                { "DESCRIPTION", .minimum = 24, .wrap = true  },
        };
        _cleanup_replies_ Replies metrics = REPLIES_INIT;
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_client_ Client *c = NULL;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;

        r = client_call_more(c, QOS_METHOD("ListMetrics"), 0, NULL, &metrics);
        if (r != 0)
                return client_fail(r, &metrics, "list metrics");

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();

        for (size_t i = 0; i < metrics.n; i++) {
                sd_json_variant *m = metrics.items[i];
                const char *unit = value_string(m, "unit");

                if (arg_json != JSON_OFF) {
                        r = json_print(m);
                        if (r < 0)
                                return r;
                        continue;
                }

                table_add(t, COLOR_NONE, "%s", value_string(m, "name") ?: "-");
                if (isempty(unit))
                        table_add_absent(t);
                else
                        table_add(t, COLOR_NONE, "%s", unit);
                table_add(t, COLOR_NONE, "%s", value_string(m, "kind") ?: "-");
                table_add(t, COLOR_NONE, "%s", value_string(m, "probe") ?: "-");
                table_add(t, COLOR_NONE, "%s", value_string(m, "description") ?: "-");
        }

        if (arg_json != JSON_OFF)
                return STATUS_OK;

        pager_open();
        r = table_print(t, stdout, terminal_style(), arg_legend, 0);
        if (r < 0)
                return log_out_of_memory();
        if (arg_legend)
                (void) printf("\n%zu metrics.\n"
                              "\nMany are also there for one endpoint, peer or file system:\n"
                              "requests.server[127.0.0.1:80].rate\n"
                              "requests.server[:443].latency.p99\n"
                              "requests.client[redis.service].rate\n"
                              "storage.mounts[/srv].reads.latency.p99\n", metrics.n);

        return STATUS_OK;
}
