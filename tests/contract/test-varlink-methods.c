/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Every method and error of org.qosd.QoS, over socket pairs. */

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <systemd/sd-varlink.h>

#include "history.h"
#include "log.h"
#include "util-varlink-daemon.h"
#include "varlink-connection.h"
#include "varlink-io.h"
#include "varlink-server.h"

/* ---- methods ------------------------------------------------------------------------------------------ */

static void test_attach(void) {
        _cleanup_client_ Client *c = client_new(0);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *again = NULL;

        v = client_call(c, "Attach", "{\"unit\":\"alias\"}");
        check(streq(sd_json_variant_string(message_parameter(v, "unit")), "a.service"));
        check(message_parameter(v, "degraded")); /* no programs are loaded */
        check(manager->units.n == 1);

        /* null equals a missing parameter */
        again = client_call(c, "Attach",
                            "{\"unit\":\"a.service\",\"probes\":null,\"lease\":null,\"duration\":null}");
        check(streq(sd_json_variant_string(message_parameter(again, "unit")), "a.service"));
        check(manager->units.n == 1);

        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        check(manager->units.n == 0);

        /* An inactive unit is awaited */
        call_succeeds(c, "Attach", "{\"unit\":\"b\",\"probes\":[\"requests\"],\"duration\":3600000000000}");
        check(manager->units.n == 1);
        /* An hour, to a minute */
        check(manager->units.slots[0]->holds->expires > now_usec(CLOCK_BOOTTIME) + 59 * 60 * USEC_PER_SEC &&
              manager->units.slots[0]->holds->expires <= now_usec(CLOCK_BOOTTIME) + 60 * 60 * USEC_PER_SEC);
        call_succeeds(c, "Detach", "{\"unit\":\"b.service\"}");
}

/* The ancestor that is reported: inner is in the control group of a.service. NULL: none. */
static void expect_nest(Client *c, const char *unit, const char *outer, const char *inner) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        sd_json_variant *contains;
        char parameters[64];

        (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\"}", unit);
        client_send(c, "more", "List", parameters);
        v = client_expect_reply(c, "List");
        check(!message_continues(v));
        check(outer ? streq(sd_json_variant_string(message_parameter(v, "parentUnit")), outer) :
              !message_parameter(v, "parentUnit"));
        contains = message_parameter(v, "descendantUnits");
        check(inner ? sd_json_variant_elements(contains) == 1 &&
                      streq(sd_json_variant_string(sd_json_variant_by_index(contains, 0)), inner) :
                      !contains);
}

/* Attached and detached in any order. */
static void test_nested(void) {
        static const char *const orders[][2] = { { "a", "inner" }, { "inner", "a" } };
        _cleanup_client_ Client *c = client_new(0);
        char parameters[64];

        for (unsigned i = 0; i < 2 * ELEMENTSOF(orders); i++) {
                const char *const *attach = orders[i % 2], *const *detach = orders[i / 2];

                for (unsigned k = 0; k < 2; k++) {
                        (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\"}", attach[k]);
                        call_succeeds(c, "Attach", parameters);
                }
                check(manager->units.n == 2);
                expect_nest(c, "a", NULL, "inner.service");
                expect_nest(c, "inner", "a.service", NULL);

                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\"}", detach[0]);
                call_succeeds(c, "Detach", parameters);
                check(manager->units.n == 1);
                call_fails(c, NULL, "Get", parameters, PREFIX "NotAttached", "unit", NULL);
                expect_nest(c, detach[1], NULL, NULL);

                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\"}", detach[1]);
                call_succeeds(c, "Detach", parameters);
                check(manager->units.n == 0);
        }

        /* Units with a common prefix of their paths do not contain each other */
        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        expect_nest(c, "a", NULL, NULL);
        expect_nest(c, "b", NULL, NULL);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
}

/* Steps with all kinds of values, in place of those from the kernel: all that History() can return. */
static void test_history(void) {
        static const uint64_t values[] = { 0, 1, 100000 };
        _cleanup_client_ Client *c = client_new(0);
        uint64_t now = (uint64_t) time(NULL) * NSEC_PER_SEC;
        HistoryStep s = {};
        Metrics metrics;
        Unit *u;

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_call(c, "History",
                                                                                   "{\"unit\":\"a\","
                                                                                   "\"metrics\":null,"
                                                                                   "\"since\":null,"
                                                                                   "\"step\":null}");

                check(sd_json_variant_elements(message_parameter(v, "steps")) == 0);
                check(sd_json_variant_unsigned(message_parameter(v, "step")) == 10 * NSEC_PER_SEC);
        }

        u = manager_get_unit(manager, "a", NULL);
        check(u);
        for (unsigned i = 0; i < ELEMENTSOF(values); i++) {
                metrics_set_absent(&metrics);
                metrics.requests.server.count = metrics.requests.server.protocol_tcp = values[i];
                s.index = 1000 + i;
                s.covered = 10 * NSEC_PER_SEC;
                s.timestamp = now - (ELEMENTSOF(values) - i) * 10 * NSEC_PER_SEC;
                s.overlaps = i == 1 ? 2 : 0; /* the second one has no metrics */
                history_step_set_metrics(&s, &metrics);
                for (unsigned d = 0; d < HISTORY_DISTRIBUTIONS; d++) {
                        s.measured[d] = true;
                        s.distributions[d] = (WindowBins) { .schema = WINDOW_BINS_SCHEMA_MAX,
                                                            .sum = values[i] * 1000, .max = 2000 };
                        s.distributions[d].count[10] = values[i];
                }
                for (size_t k = 0; k < _HISTORY_AMOUNT_MAX; k++)
                        s.amounts[k] = 1;
                check(history_put(u->history.steps, &s) >= 0);
        }

        /* Each one by itself matches the interface, too */
        for (size_t i = 0; i < metric_table_size; i++) {
                char parameters[256];

                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"a\",\"metrics\":[\"%s\"]}",
                                metric_table[i].name);
                if (history_has_metric(metric_table + i))
                        call_succeeds(c, "History", parameters);
        }

        {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant
                        *all = client_call(c, "History", "{\"unit\":\"a\"}"),
                        *one = client_call(c, "History",
                                           "{\"unit\":\"a\","
                                           "\"metrics\":[\"requests.server.latency.p99\","
                                           "\"requests.server.firstByte\"]}"),
                        *day = client_call(c, "History", "{\"unit\":\"a\",\"since\":1}"), *later = NULL;
                char parameters[64];
                uint64_t begin;
                sd_json_variant *steps = message_parameter(one, "steps"), *step, *histogram;

                check(sd_json_variant_elements(message_parameter(all, "steps")) == 3);
                step = sd_json_variant_by_index(message_parameter(all, "steps"), 1);
                check(streq(sd_json_variant_string(sd_json_variant_by_key(sd_json_variant_by_key(step,
                                "requests"), "quality")), "overlapping"));
                check(!sd_json_variant_by_key(sd_json_variant_by_key(step, "requests"), "server"));
                check(!sd_json_variant_by_key(step, "histograms"));

                check(sd_json_variant_elements(steps) == 3);
                step = sd_json_variant_by_key(sd_json_variant_by_index(steps, 2), "requests");
                step = sd_json_variant_by_key(sd_json_variant_by_key(step, "server"), "latency");
                check(sd_json_variant_elements(step) == 2 * 2); /* count and p99 */
                check(sd_json_variant_unsigned(sd_json_variant_by_key(step, "count")) == 100000);
                histogram = sd_json_variant_by_index(sd_json_variant_by_key(sd_json_variant_by_index(steps,
                                2), "histograms"), 0);
                check(streq(sd_json_variant_string(sd_json_variant_by_key(histogram, "metric")),
                            "requests.server.firstByte"));
                check(sd_json_variant_unsigned(sd_json_variant_by_key(histogram, "count")) == 100000);
                check(sd_json_variant_elements(sd_json_variant_by_key(histogram, "counts")) == 1);
                check(sd_json_variant_integer(sd_json_variant_by_key(histogram, "offset")) == -22 * 8 + 10);
                histogram = sd_json_variant_by_index(sd_json_variant_by_key(sd_json_variant_by_index(steps,
                                0), "histograms"), 0);
                check(sd_json_variant_elements(sd_json_variant_by_key(histogram, "counts")) == 0);
                check(!sd_json_variant_by_key(histogram, "offset"));

                check(sd_json_variant_unsigned(message_parameter(day, "step")) == 300 * NSEC_PER_SEC);
                check(sd_json_variant_elements(message_parameter(day, "steps")) == 1);

                step = sd_json_variant_by_index(message_parameter(all, "steps"), 0);
                begin = sd_json_variant_unsigned(sd_json_variant_by_key(step, "timestamp"));
                check(begin == (now - 30 * NSEC_PER_SEC) / NSEC_PER_USEC);
                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"a\",\"since\":%" PRIu64 "}",
                                begin + 10 * USEC_PER_SEC);
                later = client_call(c, "History", parameters);
                check(sd_json_variant_elements(message_parameter(later, "steps")) == 2);
        }
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

static void test_attach_errors(void) {
        static const struct {
                const char *method, *parameters, *error, *field, *value;
        } table[] = {
                { "Attach",    "{\"unit\":\"none.service\"}",                      PREFIX "NoSuchUnit",
                  "unit",   "none.service"  },
                { "Attach",    "{\"unit\":\"t@\"}",                                PREFIX "NoSuchUnit",
                  "unit",   NULL            },
                { "Attach",    "{\"unit\":\"x.target\"}",                          PREFIX
                  "NoControlGroup",  "unit",   "x.target"      },
                { "Attach",    "{\"unit\":\"exited.service\"}",                    PREFIX
                  "NoControlGroup",  "unit",   NULL            },
                { "Attach",    "{\"unit\":\"\"}",                                  PREFIX
                  "InvalidUnitName", "unit",   ""              },
                { "Attach",    "{\"unit\":\"a\\u0001\"}",                          PREFIX
                  "InvalidUnitName", "unit",   "a\x01"         },
                { "Attach",    "{\"unit\":\"\xc3\xa4.service\"}",                  PREFIX
                  "InvalidUnitName", "unit",   NULL            },
                { "Attach",    "{\"unit\":\"a\",\"probes\":[\"gpu\"]}",            PREFIX "NoSuchProbe",
                  "probe",  "gpu"           },
                { "Attach",    "{\"unit\":\"a\",\"probes\":[\"requests\",\"\"]}",  PREFIX "NoSuchProbe",
                  "probe",  ""              },
                { "Attach",    "{\"unit\":\"a\",\"probes\":\"requests\"}",         INVALID_PARAMETER,
                  "parameter", "probes"     },
                { "Attach",    "{\"unit\":\"a\",\"probes\":[5]}",                  INVALID_PARAMETER,
                  "parameter", "probes"     },
                { "Attach",    "{\"unit\":null}",                                  INVALID_PARAMETER,
                  "parameter", "unit"       },
                { "Attach",    "{\"unit\":\"a\",\"lease\":1}",                     INVALID_PARAMETER,
                  "parameter", "lease"      },
                { "Attach",    "{\"unit\":\"a\",\"duration\":-1}",                 INVALID_PARAMETER,
                  "parameter", "duration"   },
                { "Attach",    "{\"unit\":\"a\",\"duration\":1.5}",                INVALID_PARAMETER,
                  "parameter", "duration"   },
                { "Attach",    "{\"unit\":\"a\",\"duration\":99999999999999999999}", INVALID_PARAMETER,
                  "parameter", "duration"   },
                { "Attach",    "{\"unit\":\"a\",\"lease\":true,\"duration\":1000000}", INVALID_PARAMETER,
                  "parameter", "duration"   },
                { "Attach",    "{\"unit\":\"a\",\"Unit\":\"a\"}",                  INVALID_PARAMETER,
                  "parameter", "Unit"       },
                { "Detach",    "{\"unit\":\"b\"}",                                 PREFIX "NotAttached",
                  "unit",   NULL            },
                { "Detach",    "{\"unit\":\"a\",\"lease\":true}",                  PREFIX "NotAttached",
                  "unit",   NULL            },
                { "Detach",    "{}",                                               INVALID_PARAMETER,
                  "parameter", "unit"       },
                { "Get",       "{\"unit\":\"b\"}",                                 PREFIX "NotAttached",
                  "unit",   NULL            },
                { "Get",       "{\"unit\":\"none\"}",                              PREFIX "NoSuchUnit",
                  "unit",   "none"          },
                { "Get",       "{\"unit\":\"/no/such/group\"}",                    PREFIX "NoSuchUnit",
                  "unit",   "/no/such/group" },
                { "Get",       "{\"unit\":\"a\",\"window\":\"10s\"}",              INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Get",       "{\"unit\":\"a\",\"window\":11000000000}",          INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Get",       "{\"unit\":\"a\",\"window\":18446744073709551615}", INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Histogram", "{\"unit\":\"a\"}",                                 INVALID_PARAMETER,
                  "parameter", "metric"     },
                { "Histogram", "{\"unit\":\"a\",\"metric\":\"requests.server.latency.p99\"}",
                  PREFIX "NoSuchMetric", "metric", "requests.server.latency.p99" },
                { "Histogram", "{\"unit\":\"a\",\"metric\":\"contention.shares\"}", PREFIX
                  "NoSuchMetric", "metric", "contention.shares" },
                { "Histogram", "{\"unit\":\"a\",\"metric\":\"contention.runQueueLatency\"}",
                  PREFIX "NotMeasured", "metric", "contention.runQueueLatency" },
                { "Histogram", "{\"unit\":\"a\",\"metric\":\"requests.server.latency\"}",
                  PREFIX "NotMeasured", "metric", "requests.server.latency" },
                { "ListConnections", "{\"unit\":\"b\"}",                           PREFIX "NotAttached",
                  "unit",   NULL            },
                { "ListConnections", "{\"unit\":\"none\"}",                        PREFIX "NoSuchUnit",
                  "unit",   "none"          },
                { "Threads",   "{\"unit\":\"none\"}",                              PREFIX "NoSuchUnit",
                  "unit",   "none"          },
                { "ListConnections", "{\"unit\":\"a\"}",                           PREFIX "NotMeasured",
                  "metric", "network.covered" },
                { "ListConnections", "{\"unit\":\"a\",\"sort\":\"size\"}",         INVALID_PARAMETER,
                  "parameter", "sort"       },
                { "ListConnections", "{\"unit\":\"a\",\"sort\":5}",                INVALID_PARAMETER,
                  "parameter", "sort"       },
                { "ListConnections", "{\"sort\":\"age\"}",                         INVALID_PARAMETER,
                  "parameter", "unit"       },
                { "History",   "{\"unit\":\"b\"}",                                 PREFIX "NotAttached",
                  "unit",   NULL            },
                { "History",   "{\"unit\":\"none\"}",                              PREFIX "NoSuchUnit",
                  "unit",   "none"          },
                { "History",   "{\"unit\":\"a\",\"metrics\":[\"none\"]}",          PREFIX "NoSuchMetric",
                  "metric", "none"          },
                { "History",   "{\"unit\":\"a\",\"metrics\":[\"requests.server.queue\"]}",
                  PREFIX "NoHistory", "metric", "requests.server.queue" },
                { "History",   "{\"unit\":\"a\",\"metrics\":[\"requests.server.oldestInFlight\"]}",
                  PREFIX "NoHistory", "metric", "requests.server.oldestInFlight" },
                { "History",   "{\"unit\":\"a\",\"metrics\":\"requests\"}",        INVALID_PARAMETER,
                  "parameter", "metrics"    },
                { "History",   "{\"unit\":\"a\",\"since\":9000000000000000000}",   INVALID_PARAMETER,
                  "parameter", "since"      },
                { "History",   "{\"unit\":\"a\",\"since\":-1}",                    INVALID_PARAMETER,
                  "parameter", "since"      },
                { "History",   "{\"unit\":\"a\",\"step\":60000000000}",            INVALID_PARAMETER,
                  "parameter", "step"       },
                { "Diagnose",  "{\"unit\":\"a\",\"window\":0}",                    INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Diagnose",  "{\"unit\":\"a\",\"window\":500000000}",            INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Diagnose",  "{\"unit\":\"a\",\"window\":11000000000}",          INVALID_PARAMETER,
                  "parameter", "window"     },
                { "Diagnose",  "{\"unit\":\"a\",\"baseline\":[]}",                   INVALID_PARAMETER,
                  "parameter", "baseline"   },
                { "Diagnose",  "{\"unit\":\"a\",\"baseline\":{\"rate\":\"x\"}}",     INVALID_PARAMETER,
                  "parameter", "baseline"   },
                { "Diagnose",  "{\"unit\":\"a\",\"baseline\":{\"rate\":-1}}",        INVALID_PARAMETER,
                  "parameter", "rate"       },
                { "Diagnose",  "{\"unit\":\"a\",\"baseline\":{\"threads\":1}}",      INVALID_PARAMETER,
                  "parameter", "baseline"   },
                { "Diagnose",  "{\"unit\":\"a\",\"sinceBegin\":true}",             INVALID_PARAMETER,
                  "parameter", "sinceBegin" },
                { "Diagnose",  "{\"unit\":\"a\",\"sinceBegin\":true,\"window\":1000000000}",
                  INVALID_PARAMETER, "parameter", "window" },
                { "Mark",      "{\"unit\":\"b\"}",                                 PREFIX "NotAttached",
                  "unit",   NULL            },
                { "Mark",      "{\"unit\":\"none\"}",                              PREFIX "NoSuchUnit",
                  "unit",   "none"          },
                { "Mark",      "{\"unit\":\"a\"}",                                 PREFIX
                  "ProbeUnavailable", "probe", "requests"      },
                { "Get",       "{\"unit\":\"a\",\"sinceMark\":true}",              PREFIX "NotMarked",
                  "unit",   "a.service"     },
                { "Get",       "{\"unit\":\"a\",\"sinceMark\":true,\"window\":0}", INVALID_PARAMETER,
                  "parameter", "window"     },
                { "GetStatus", "{\"verbose\":true}",                               INVALID_PARAMETER,
                  "parameter", "verbose"    },
        };
        _cleanup_client_ Client *c = client_new(0);

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                call_fails(c, NULL, table[i].method, table[i].parameters, table[i].error, table[i].field,
                           table[i].value);
        call_fails(c, NULL, "org.qosd.QoS2.Get", "{}", "org.varlink.service.MethodNotFound", NULL, NULL);

        manager->config.units_max = 1;
        call_fails(c, NULL, "Attach", "{\"unit\":\"b\"}", PREFIX "TooManyUnits", NULL, NULL);
        manager->config.units_max = UNITS_MAX_LIMIT;

        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

static void test_readings(void) {
        _cleanup_client_ Client *c = client_new(0);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *ten = NULL, *total = NULL, *one = NULL;

        call_fails(c, "more", "List", "{}", PREFIX "NoEntries", NULL, NULL);
        check(call_more(c, "Export", "{}") == 1);

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");

        ten = client_call(c, "Get", "{\"unit\":\"a\"}");
        check(sd_json_variant_unsigned(message_parameter(ten, "window")) == 10 * NSEC_PER_SEC);
        total = client_call(c, "Get", "{\"unit\":\"alias.service\",\"window\":0}");
        check(!message_parameter(total, "window"));
        check(streq(sd_json_variant_string(message_parameter(total, "unit")), "a.service"));
        check(!message_parameter(total, "requests"));
        check(sd_json_variant_unsigned(message_parameter(total, "seq")) >
              sd_json_variant_unsigned(message_parameter(ten, "seq")));

        check(call_more(c, "List", "{}") == 2);
        check(call_more(c, "List", "{\"unit\":\"b\",\"window\":60000000000}") == 1);
        call_fails(c, NULL, "List", "{}", "org.varlink.service.ExpectedMore", NULL, NULL);
        one = client_call(c, "List", "{\"unit\":\"b\"}");
        check(!message_continues(one) && message_parameter(one, "snapshot"));
        call_fails(c, NULL, "List", "{\"unit\":\"c\"}", PREFIX "NotAttached", "unit", NULL);
        call_fails(c, "more", "List", "{\"unit\":\"c\"}", PREFIX "NotAttached", "unit", NULL);
        check(call_more(c, "Export", "{}") == 3);
        check(call_more(c, "Export", "{\"unit\":\"b\"}") == 2);
        call_fails(c, NULL, "Export", "{}", "org.varlink.service.ExpectedMore", NULL, NULL);
        call_fails(c, "more", "Export", "{\"unit\":\"c\"}", PREFIX "NotAttached", "unit", NULL);
        check(call_more(c, "Export", "{\"unit\":\"b\",\"tables\":true}") == 2);
        call_fails(c, "more", "Export", "{\"window\":0}", INVALID_PARAMETER, "parameter", "window");
        call_fails(c, "more", "Export", "{\"tables\":1}", INVALID_PARAMETER, "parameter", "tables");
        call_succeeds(c, "GetMany", "{\"units\":[\"b\",\"a\"]}");
        call_fails(c, NULL, "GetMany", "{\"units\":[\"a\",\"b\",\"alias\"]}", PREFIX "DuplicateUnit",
                   "unit", "a.service");
        check(call_more(c, "Probes", "{}") > 0);
        check(call_more(c, "ListMetrics", "{}") > 0);
        call_succeeds(c, "GetStatus", "{}");

        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
}

/* An interval that its client never ends is dropped, and so is the hold of the unit. */
static void test_begun_diagnosis(void) {
        _cleanup_client_ Client *c = client_new(0);
        sd_event_source *timer;
        uint64_t now, then;

        call_succeeds(c, "BeginDiagnosis", "{\"unit\":\"a\"}");
        check(manager_get_unit(manager, "a.service", NULL));
        timer = varlink_server->connections->begun->timer;
        check(sd_event_now(event, CLOCK_MONOTONIC, &now) >= 0);
        check(sd_event_source_get_time(timer, &then) >= 0);
        check(then > now + 590 * USEC_PER_SEC && then < now + 610 * USEC_PER_SEC);

        check(sd_event_source_set_time(timer, now) >= 0);
        while (varlink_server->connections->begun)
                check(sd_event_run(event, UINT64_MAX) >= 0);
        check(!manager_get_unit(manager, "a.service", NULL));
        call_fails(c, NULL, "Diagnose", "{\"unit\":\"a\",\"sinceBegin\":true}", INVALID_PARAMETER,
                   "parameter", "sinceBegin");
}

static bool client_has_reply(const Client *c) {
        struct pollfd pollfd = { .fd = c->fd, .events = POLLIN };

        return poll(&pollfd, 1, 0) > 0;
}

/* Many units are sent in steps: other connections of the same user, which have no priority, are served in
 * between. */
static void test_many_units(void) {
        _cleanup_client_ Client *root = client_new(0), *c = client_new(TEST_OTHER_UID),
                *second = client_new(TEST_OTHER_UID), *third = client_new(TEST_OTHER_UID);
        _cleanup_client_ Client *watcher = client_new(0);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *again = NULL, *first = NULL,
                *states = NULL;
        char names[MANY_UNITS * 32] = "", call[sizeof(names) + 128];
        static const char end[] = ",\"continues\":true}";
        sd_json_variant *snapshots, *thresholds;
        uint64_t now, deferred;
        const TurnUser *user;
        bool more = true;
        unsigned n = 0;

        for (unsigned i = 0; i < MANY_UNITS; i++) {
                (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\"}", many_names[i]);
                call_succeeds(root, "Attach", call);
                (void) sprintf(names + strlen(names), "%s\"%s\"", i > 0 ? "," : "", many_names[i]);
        }
        (void) snprintf(call, sizeof(call), "{\"units\":[%s]}", names);

        /* All are read, the reply is not sent yet */
        client_send(c, NULL, "GetMany", call);
        test_wait(event, manager_get_unit(manager, many_names[MANY_UNITS - 1], NULL)->cache.seq > 0);
        client_send(second, NULL, "GetMany", call);
        call_succeeds(third, "GetStatus", "{}");
        check(!client_has_reply(c));

        /* A unit that is detached meanwhile is in the reply */
        (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\"}", many_names[MANY_UNITS - 1]);
        call_succeeds(root, "Detach", call);
        v = client_expect_reply(c, "GetMany");
        snapshots = message_parameter(v, "snapshots");
        check(sd_json_variant_elements(snapshots) == MANY_UNITS);
        for (unsigned i = 0; i < MANY_UNITS; i++) {
                sd_json_variant *s = sd_json_variant_by_index(snapshots, i);

                check(streq(sd_json_variant_string(sd_json_variant_by_key(s, "unit")), many_names[i]));
                check(sd_json_variant_equal(sd_json_variant_by_key(s, "timestamp"),
                                            message_parameter(v, "timestamp")));
        }

        /* The second call was made after the detach: the unit is missing */
        client_expect_error(second, PREFIX "NotAttached", "unit", many_names[MANY_UNITS - 1]);

        /* A client that disconnects during its reply does not block the next one */
        call_succeeds(root, "Attach", call);
        (void) snprintf(call, sizeof(call), "{\"units\":[%s]}", names);
        client_send(c, NULL, "GetMany", call);
        client_send(second, NULL, "GetMany", call);
        test_wait(event, manager_get_unit(manager, many_names[MANY_UNITS - 1], NULL)->cache.seq > 0);
        c = client_free(c);
        again = client_expect_reply(second, "GetMany");
        check(sd_json_variant_elements(message_parameter(again, "snapshots")) == MANY_UNITS);

        /* A list has begun, and is not complete */
        client_send(second, "more", "List", "{}");
        test_wait(event, client_has_reply(second));
        call_succeeds(root, "GetStatus", "{}");
        while (client_has_reply(second)) {
                ssize_t size = recv(second->fd, second->buffer + second->size,
                                    sizeof(second->buffer) - second->size, 0);

                check(size > 0);
                second->size += size;
        }
        check(second->size > strlen(end) &&
              memcmp(second->buffer + second->size - strlen(end) - 1, end, strlen(end)) == 0);
        while (more) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *one = client_expect_reply(second, "List");

                more = message_continues(one);
                n++;
        }
        check(n == MANY_UNITS);

        /* So is an export. Its last reply has the number of units, without one attached meanwhile in a slot
         * that was passed */
        client_send(second, "more", "Export", "{}");
        test_wait(event, client_has_reply(second));
        /* The pauses between its turns follow the reply */
        user = turn_queue_find_user(manager->turns, TEST_OTHER_UID);
        now = now_nsec(CLOCK_MONOTONIC);
        deferred = user->reply_nsec;
        check(deferred > 0);
        (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\"}", many_names[0]);
        call_succeeds(root, "Detach", call);
        call_succeeds(root, "Attach", call);
        for (n = 0;; n++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *one = client_expect_reply(second,
                                "Export");
                sd_json_variant *unit = message_parameter(one, "unit");

                if (!message_continues(one)) {
                        check(!unit && sd_json_variant_unsigned(message_parameter(one, "units")) == n);
                        break;
                }
                check(streq(sd_json_variant_string(sd_json_variant_by_key(unit, "name")), many_names[n]));
                check(sd_json_variant_elements(sd_json_variant_by_key(unit, "histograms")) == 0);
                check(!sd_json_variant_by_key(unit, "totals") && !message_parameter(one, "units"));
        }
        check(n == MANY_UNITS);
        check(user->reply_nsec == 0 && user->not_before >= now + 4 * deferred);

        /* So are thresholds, one by one: one that is cleared meanwhile is no longer listed */
        for (unsigned i = 0; i < MANY_UNITS; i++) {
                (void) snprintf(call, sizeof(call),
                                "{\"unit\":\"%s\",\"threshold\":\"slow: requests.server.firstByte.p99 > "
                                "20ms\"}", many_names[i]);
                call_succeeds(root, "SetThreshold", call);
        }
        client_send(second, "more", "ListThresholds", "{}");
        test_wait(event, client_has_reply(second));
        (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\",\"name\":\"slow\"}",
                        many_names[MANY_UNITS - 1]);
        call_succeeds(root, "ClearThreshold", call);
        n = 0;
        do {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *one = client_expect_reply(second,
                                "ListThresholds");

                check(streq(sd_json_variant_string(sd_json_variant_by_key(message_parameter(one,
                                "threshold"), "unit")), many_names[n]));
                more = message_continues(one);
                n++;
        } while (more);
        check(n == MANY_UNITS - 1);

        /* and together, for a client that calls once */
        states = client_call(second, "Monitor", "{}");
        check(!message_continues(states) && message_parameter(states, "seq"));
        check(sd_json_variant_elements(message_parameter(states, "thresholds")) == MANY_UNITS - 1);
        call_fails(second, NULL, "Monitor", "{\"since\":0}", "org.varlink.service.ExpectedMore",
                   NULL, NULL);
        call_succeeds(second, "GetStatus", "{}");
        client_send(watcher, "more", "Monitor", "{}");
        (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\",\"name\":\"slow\"}",
                        many_names[MANY_UNITS - 2]);
        call_succeeds(root, "ClearThreshold", call);
        first = client_expect_reply(watcher, "Monitor");
        check(message_continues(first) && message_parameter(first, "seq") &&
              !message_parameter(first, "missedEvents"));
        thresholds = message_parameter(first, "thresholds");
        check(sd_json_variant_elements(thresholds) == MANY_UNITS - 2);
        for (unsigned i = 0; i < MANY_UNITS - 2; i++)
                check(streq(
                        sd_json_variant_string(sd_json_variant_by_key(sd_json_variant_by_index(thresholds,
                                        i), "unit")), many_names[i]));

        for (unsigned i = 0; i < MANY_UNITS; i++) {
                (void) snprintf(call, sizeof(call), "{\"unit\":\"%s\"}", many_names[i]);
                call_succeeds(root, "Detach", call);
        }
}

/* The interface of systemd's daemons; methods that change something are for root alone. */
static void test_service(void) {
        _cleanup_client_ Client *c = client_new(0);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *info = NULL;
        int level = log_get_max_level();
        sd_json_variant *interfaces;
        bool found = false;

        client_send(c, NULL, "io.systemd.service.Ping", "{}");
        v = client_receive(c);
        check(v && !message_error(v));
        call_fails(c, NULL, "io.systemd.service.Ping", "{\"x\":1}", INVALID_PARAMETER, NULL, NULL);

        client_send(c, NULL, "org.varlink.service.GetInfo", "{}");
        info = client_receive(c);
        check(info);
        check(startswith(sd_json_variant_string(message_parameter(info, "url")), "file:///"));
        interfaces = message_parameter(info, "interfaces");
        for (size_t i = 0; i < sd_json_variant_elements(interfaces); i++)
                found = found || streq(sd_json_variant_string(sd_json_variant_by_index(interfaces, i)),
                                       "io.systemd.service");
        check(found);

        for (int i = LOG_EMERG; i <= LOG_DEBUG; i++) {
                char parameters[32];

                (void) snprintf(parameters, sizeof(parameters), "{\"level\":%d}", i);
                client_send(c, NULL, "io.systemd.service.SetLogLevel", parameters);
                sd_json_variant_unref(v);
                v = client_receive(c);
                check(v && !message_error(v) && log_get_max_level() == i);
                client_send(c, NULL, "io.systemd.service.GetLogLevel", "{}");
                sd_json_variant_unref(v);
                v = client_receive(c);
                check(v && sd_json_variant_integer(message_parameter(v, "level")) == i);
        }
        call_fails(c, NULL, "io.systemd.service.SetLogLevel", "{\"level\":8}", INVALID_PARAMETER,
                   NULL, NULL);
        call_fails(c, NULL, "io.systemd.service.SetLogLevel", "{\"level\":-1}", INVALID_PARAMETER,
                   NULL, NULL);
        call_fails(c, NULL, "io.systemd.service.SetLogLevel", "{}", INVALID_PARAMETER, NULL, NULL);
        check(log_get_max_level() == LOG_DEBUG);

        manager->config.units_max = 7;
        client_send(c, NULL, "io.systemd.service.Reload", "{}");
        sd_json_variant_unref(v);
        v = client_receive(c);
        check(v && !message_error(v) && manager->config.units_max != 7);

        if (test_has_other_user()) {
                _cleanup_client_ Client *other = client_new(TEST_OTHER_UID);

                client_send(other, NULL, "io.systemd.service.Ping", "{}");
                sd_json_variant_unref(v);
                v = client_receive(other);
                check(v && !message_error(v));
                manager->config.units_max = 7;
                call_fails(other, NULL, "io.systemd.service.Reload", "{}",
                           "org.varlink.service.PermissionDenied", NULL, NULL);
                check(manager->config.units_max == 7);
                call_fails(other, NULL, "io.systemd.service.SetLogLevel", "{\"level\":3}",
                           "org.varlink.service.PermissionDenied", NULL, NULL);
                check(log_get_max_level() == LOG_DEBUG);
                call_fails(other, NULL, "io.systemd.service.GetLogLevel", "{}",
                           "org.varlink.service.PermissionDenied", NULL, NULL);
        }
        manager->config.units_max = UNITS_MAX_LIMIT;
        log_set_max_level(level);
}

/* A unit with invalid UTF-8 in a string does not hide the others. */
static void test_unshown(void) {
        _cleanup_client_ Client *c = client_new(0), *stream = client_new(0);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *first = NULL, *second = NULL;

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        manager_get_unit(manager, "a", NULL)->active_state[0] = '\xff';

        check(call_more(c, "List", "{}") == 1);
        client_send(c, "more", "List", "{\"unit\":\"a\"}");
        client_expect_error(c, "io.systemd.System", NULL, NULL);
        v = client_call(c, "GetMany", "{\"units\":[\"a\",\"b\"]}");
        check(sd_json_variant_elements(message_parameter(v, "snapshots")) == 1);
        client_send(stream, "more", "Subscribe", "{\"interval\":100000000}");
        first = client_expect_reply(stream, "Subscribe");
        second = client_expect_reply(stream, "Subscribe");
        check(streq(sd_json_variant_string(sd_json_variant_by_key(message_parameter(second, "snapshot"),
                                                                  "unit")), "b.service"));

        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
}

static void test_lease(void) {
        _cleanup_client_ Client *administrator = client_new(0), *client = client_new(0),
                *other = client_new(0);

        call_succeeds(client, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        check(manager->units.n == 1);
        check(manager->units.slots[0]->holds->type == HOLD_LEASE && manager->units.slots[0]->holds->owner);

        /* The lease is of this client only */
        call_fails(other, NULL, "Detach", "{\"unit\":\"a\",\"lease\":true}", PREFIX "NotAttached", "unit",
                   NULL);
        call_fails(administrator, NULL, "Detach", "{\"unit\":\"a\"}", PREFIX "NotAttached", "unit", NULL);

        call_succeeds(client, "Detach", "{\"unit\":\"a\",\"lease\":true}");
        check(manager->units.n == 0);

        /* Two leases and the hold of the administrator: observed until the last one is dropped */
        call_succeeds(client, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_succeeds(client, "Attach", "{\"unit\":\"b\",\"lease\":true}");
        call_succeeds(other, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_succeeds(administrator, "Attach", "{\"unit\":\"a\"}");
        check(manager->units.n == 2);
        check(manager_count_leases(manager, 0) == 3);

        client = client_free(client);
        test_wait(event, manager_count_leases(manager, 0) == 1);
        check(manager->units.n == 1);
        call_succeeds(administrator, "Detach", "{\"unit\":\"a\"}");
        check(manager->units.n == 1);
        other = client_free(other);
        test_wait(event, manager->units.n == 0);
}

/* A client that disconnects before the reply of PID 1. */
static void test_vanish_while_attaching(void) {
        _cleanup_client_ Client *c = client_new(0);

        client_send(c, NULL, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        test_wait(event, manager->attaches.operations);
        c = client_free(c);
        test_wait(event, !manager->attaches.operations && manager->units.n == 0);
}

/* Oneway calls are ignored: their errors would be unnoticed, and a later call might precede them. */
static void test_oneway(void) {
        _cleanup_client_ Client *c = client_new(0);

        client_send(c, "oneway", "Attach", "{\"unit\":\"a\"}");
        client_send(c, "oneway", "Detach", "{\"unit\":\"a\"}");
        client_send(c, "oneway", "Get", "{\"unit\":\"a\"}");
        client_send(c, "oneway", "Subscribe", "{}");
        client_send(c, "oneway", "Nonsense", "{}");
        call_succeeds(c, "GetStatus", "{}");
        check(manager->units.n == 0);
}

int main(void) {
        if (!daemon_start(100))
                return 77;

        test_attach();
        test_nested();
        test_history();
        test_attach_errors();
        test_readings();
        test_service();
        test_begun_diagnosis();
        test_unshown();
        test_lease();
        test_vanish_while_attaching();
        test_oneway();
        if (test_has_other_user())
                test_many_units();

        daemon_stop();
        return EXIT_SUCCESS;
}
