/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Every method and error of org.qosd.QoS, and misbehaving clients, over socket pairs with the real manager.
 * The other end of a D-Bus connection stands in for PID 1 and polkit. No programs are loaded: attached units
 * have no metrics. */

#include <math.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <systemd/sd-varlink.h>

#include "connect.h"
#include "history.h"
#include "log.h"
#include "manager.h"
#include "util-bus.h"
#include "util-idl.h"
#include "util-varlink.h"
#include "varlink-connection.h"
#include "varlink-io.h"
#include "varlink-listen.h"
#include "varlink-server.h"

#define INVALID_PARAMETER "org.varlink.service.InvalidParameter"

static Manager *manager;
static sd_bus *daemon_side, *system_side;
static FakeServiceManager pid1;

/* More than are read in one step, in addition to those below. */
#define MANY_UNITS 200U
static char many_names[MANY_UNITS][32];

static FakeUnit units[6 + MANY_UNITS + 1] = {
        { .id = "a.service", .alias = "alias.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        { .id = "c.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        { .id = "exited.service", .active_state = "active", .sub_state = "exited", .slice = "system.slice" },
        { .id = "x.target", .active_state = "active", .sub_state = "active" },
        { .id = "inner.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service/inner.service", .slice = "system.slice" },
};

/* ---- polkit ------------------------------------------------------------------------------------------- */

static enum { POLKIT_YES, POLKIT_NO, POLKIT_CHALLENGE, POLKIT_SILENT } polkit_mood;
static unsigned polkit_calls;
static bool polkit_interactive;

static int method_check_authorization(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *kind, *key, *action;
        uint32_t flags;
        int pidfd, uid;

        check(sd_bus_message_enter_container(m, 'r', "sa{sv}") > 0);
        check(sd_bus_message_read(m, "s", &kind) > 0 && streq(kind, "unix-process"));
        check(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        check(sd_bus_message_read(m, "{sv}", &key, "h", &pidfd) > 0 && streq(key, "pidfd") && pidfd >= 0);
        check(sd_bus_message_read(m, "{sv}", &key, "i", &uid) > 0 && streq(key, "uid") &&
              uid == TEST_OTHER_UID);
        check(sd_bus_message_exit_container(m) >= 0 && sd_bus_message_exit_container(m) >= 0);
        check(sd_bus_message_read(m, "s", &action) > 0 && streq(action, "org.qosd1.attach"));
        check(sd_bus_message_skip(m, "a{ss}") > 0);
        check(sd_bus_message_read(m, "u", &flags) > 0);

        polkit_calls++;
        polkit_interactive = flags & 1;
        if (polkit_mood == POLKIT_SILENT)
                return 1;
        return sd_bus_reply_method_return(m, "(bba{ss})", polkit_mood == POLKIT_YES,
                                          polkit_mood == POLKIT_CHALLENGE, 0);
}

static int method_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, NULL);
}

static const sd_bus_vtable polkit_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", method_check_authorization,
                      SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("CancelCheckAuthorization", "s", "", method_cancel, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

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

/* ---- streams ------------------------------------------------------------------------------------------ */

static uint64_t expect_frame(Client *c, const char *unit) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(c, "Subscribe");
        sd_json_variant *snapshot = message_parameter(v, "snapshot");

        check(message_continues(v));
        check(!unit || streq(sd_json_variant_string(sd_json_variant_by_key(snapshot, "unit")), unit));
        return sd_json_variant_unsigned(sd_json_variant_by_key(snapshot, "seq"));
}

static void test_subscribe(void) {
        _cleanup_client_ Client *c = client_new(0), *named = client_new(0), *all = client_new(0);
        uint64_t seq, next;

        call_fails(c, "more", "Subscribe", "{\"interval\":99999999}", INVALID_PARAMETER, "parameter",
                   "interval");
        call_fails(c, "more", "Subscribe", "{\"interval\":0}", INVALID_PARAMETER, "parameter", "interval");
        call_fails(c, "more", "Subscribe", "{\"interval\":18446744073709551615}", INVALID_PARAMETER,
                   "parameter", "interval");
        call_fails(c, "more", "Subscribe", "{\"window\":5}", INVALID_PARAMETER, "parameter", "window");
        call_fails(c, "more", "Subscribe", "{\"units\":[\"a\"]}", PREFIX "NotAttached", "unit", NULL);
        call_fails(c, "more", "Subscribe", "{\"units\":[\"a b\"]}", PREFIX "InvalidUnitName", "unit",
                   NULL);
        call_fails(c, NULL, "Subscribe", "{}", "org.varlink.service.ExpectedMore", NULL, NULL);

        /* Without attached units the stream is silent */
        client_send(all, "more", "Subscribe", "{\"units\":[],\"interval\":100000000}");
        settle();
        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        seq = expect_frame(all, "a.service");
        next = expect_frame(all, "a.service");
        check(next > seq);

        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        client_send(named, "more", "Subscribe",
                    "{\"units\":[\"b\",\"b.service\",\"alias\"],\"interval\":100000000}");
        (void) expect_frame(named, "a.service");
        (void) expect_frame(named, "b.service");

        /* Units are detached, the last one at the end */
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        (void) expect_frame(named, "b.service");
        (void) expect_frame(named, "b.service");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
        client_expect_error(named, PREFIX "NotAttached", "unit", "b.service");

        /* The connection can be used for another call, and the stream of all units continues */
        call_succeeds(named, "GetStatus", "{}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        for (;;) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(all, "Subscribe");
                sd_json_variant *unit = sd_json_variant_by_key(message_parameter(v, "snapshot"), "unit");

                if (streq(sd_json_variant_string(unit), "b.service") && manager->units.n == 1)
                        break;
        }
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");

        /* Other clients disconnect meanwhile */
        all = client_free(all);
        settle();
        call_succeeds(c, "GetStatus", "{}");
}

/* All subscribers get the same readings. */
static void test_shared_stream(void) {
        _cleanup_client_ Client *c = client_new(0), *first = client_new(0), *second = client_new(0);
        uint64_t seq[6];
        unsigned same = 0;

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        client_send(first, "more", "Subscribe", "{\"interval\":100000000}");
        client_send(second, "more", "Subscribe", "{\"interval\":100000000}");
        for (unsigned i = 0; i < ELEMENTSOF(seq); i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(first,
                                "Subscribe");

                seq[i] = sd_json_variant_unsigned(sd_json_variant_by_key(message_parameter(v, "snapshot"),
                                                                         "seq"));
        }
        for (unsigned i = 0; i < ELEMENTSOF(seq); i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(second,
                                "Subscribe");

                for (unsigned k = 0; k < ELEMENTSOF(seq); k++)
                        same += seq[k] ==
                                sd_json_variant_unsigned(sd_json_variant_by_key(message_parameter(v,
                                                "snapshot"), "seq"));
        }
        /* Each reading of this unit has its own number */
        check(same > 0);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* A slow reader misses frames, and gets their number; other subscribers get all frames. */
static void test_slow_subscriber(void) {
        _cleanup_client_ Client *c = client_new(0), *slow = client_new(0), *reader = client_new(0);
        uint64_t frames = 0, skipped = 0, most = 0;
        enum { ROUNDS = 400 };

        manager->config.interval_min_usec = USEC_PER_MSEC;
        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        client_send(slow, "more", "Subscribe", "{\"interval\":1000000}");
        client_send(reader, "more", "Subscribe", "{\"interval\":1000000}");
        for (unsigned i = 0; i < ROUNDS; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(reader,
                                "Subscribe");

                check(!message_parameter(v, "skipped"));
        }

        while (skipped == 0) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(slow,
                                "Subscribe");
                sd_json_variant *n = message_parameter(v, "skipped");

                frames++;
                if (n)
                        skipped = sd_json_variant_unsigned(n);
                most = MAX(most, frames);
        }
        /* The time of the reader; the difference is the work of the event loop at the end */
        check(frames < ROUNDS / 2);
        check(frames + skipped >= ROUNDS * 9 / 10);

        manager->config.interval_min_usec = 100 * USEC_PER_MSEC;
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

static void test_pieces(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\"}";
        _cleanup_client_ Client *c = client_new(0);

        /* Byte by byte, with iterations of the event loop in between */
        for (unsigned round = 0; round < 3; round++) {
                for (size_t i = 0; i < sizeof(message); i++) {
                        client_write(c, message + i, 1);
                        settle();
                }
                sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
        }

        /* One and a half, then the rest */
        client_write(c, message, sizeof(message));
        client_write(c, message, sizeof(message) / 2);
        sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
        settle();
        client_write(c, message + sizeof(message) / 2, sizeof(message) - sizeof(message) / 2);
        sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
}

/* Many calls before the first reply is read: none is lost, and they wait in the sockets instead of the
 * daemon. */
static void test_pipeline(void) {
        enum { CALLS = 3000 };
        _cleanup_client_ Client *c = client_new(0);
        _cleanup_free_ char *calls = NULL;
        unsigned replies = 0;
        size_t size = 0, sent = 0;

        calls = new0(char, CALLS * 64);
        check(calls);
        for (unsigned i = 0; i < CALLS; i++)
                size += sprintf(calls + size, "{\"method\":\"org.qosd.QoS.GetStatus\",\"parameters\":{}}") +
                        1;

        /* As many calls as the socket takes, without reading: the daemon stops reading while replies are not
         * sent */
        for (;;) {
                ssize_t n = send(c->fd, calls + sent, size - sent, MSG_NOSIGNAL);

                if (n < 0) {
                        check(errno == EAGAIN);
                        if (sd_event_run(event, 0) == 0)
                                break;
                        continue;
                }
                sent += n;
                if (sent == size)
                        break;
        }
        settle();

        while (replies < CALLS) {
                if (sent < size) {
                        ssize_t n = send(c->fd, calls + sent, size - sent, MSG_NOSIGNAL);

                        if (n > 0)
                                sent += n;
                }
                sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
                replies++;
        }
}

/* Memory that a client without reading can occupy in the daemon: of 3000 times 30 KiB nearly nothing. */
static void test_never_reads(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.ListMetrics\",\"more\":true}";
        _cleanup_client_ Client *c = client_new(0), *other = client_new(0);
        unsigned sent = 0;

        for (;;) {
                ssize_t n = send(c->fd, message, sizeof(message), MSG_NOSIGNAL);

                if (n < 0) {
                        check(errno == EAGAIN);
                        if (sd_event_run(event, 0) == 0)
                                break;
                        continue;
                }
                check((size_t) n == sizeof(message)); /* the kernel takes such a short message as a whole */
                check(++sent < 100000);
        }

        /* That means that it had to wait */
        call_succeeds(other, "GetStatus", "{}");
}

/* As many calls without a reply as the socket takes. */
static unsigned client_fill(Client *c) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\",\"oneway\":true}";
        unsigned n = 0;

        while (send(c->fd, message, sizeof(message), MSG_NOSIGNAL) > 0)
                n++;
        check(errno == EAGAIN);
        return n;
}

/* A client whose socket is always full of calls gets its turns only. */
static void test_flood(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\"}";
        _cleanup_client_ Client *flood = client_new(0), *other = client_new(0);
        unsigned steps = 0;
        ssize_t n;

        check(client_fill(flood) > 100);
        for (unsigned i = 0; i < 100; i++) { /* until it has been served for a while */
                check(sd_event_run(event, 0) > 0);
                (void) client_fill(flood);
        }

        client_write(other, message, sizeof(message));
        while ((n = recv(other->fd, other->buffer, sizeof(other->buffer), 0)) < 0) {
                check(errno == EAGAIN);
                check(++steps <= 10);
                check(sd_event_run(event, 0) > 0);
                (void) client_fill(flood);
        }
        check(n > 0);
}

/* Calls of a client that has disconnected, or does not receive any more, are dropped. */
static void test_dead(void) {
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_client_ Client *dead = client_new(0);
                unsigned steps = 0;

                check(client_fill(dead) > 100);
                if (i == 0)
                        check(shutdown(dead->fd, SHUT_RD) >= 0);
                else
                        dead = client_free(dead);
                while (sd_event_run(event, 0) > 0)
                        check(++steps <= 10);
                check(!dead || (send(dead->fd, "", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE));
        }
}

static void test_oversized(void) {
        static char junk[64 * 1024];
        _cleanup_client_ Client *c = client_new(0), *large = client_new(0), *other = client_new(0);
        _cleanup_free_ char *message = NULL, *name = NULL;
        size_t sent = 0;

        /* Below the limit it is an invalid name only */
        name = new0(char, VARLINK_MESSAGE_MAX - 1024 + 1);
        check(name);
        memset(name, 'x', VARLINK_MESSAGE_MAX - 1024);
        check(asprintf(&message, "{\"unit\":\"%s\"}", name) > 0);
        call_fails(large, NULL, "Get", message, PREFIX "InvalidUnitName", "unit", name);

        /* A message without an end */
        memset(junk, ' ', sizeof(junk));
        for (;;) {
                ssize_t n = send(c->fd, junk, sizeof(junk), MSG_NOSIGNAL);

                if (n > 0)
                        sent += n;
                else if (errno == EPIPE || errno == ECONNRESET)
                        break;
                else {
                        check(errno == EAGAIN);
                        test_run(event);
                }
                check(sent < 4 * 1024 * 1024);
                settle();
        }
        client_expect_end(c);

        call_succeeds(other, "GetStatus", "{}");
}

/* Disconnects the sender. */
static void test_garbage(void) {
        static const struct {
                const char *bytes;
                size_t size;
        } table[] = {
#define BYTES(s) { s, sizeof(s) }
                BYTES(""),
                BYTES("\0\0\0"),
                BYTES("nonsense"),
                BYTES("{"),
                BYTES("{}"),
                BYTES("[]"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":[]}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"\xff\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"a\\u0000b\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"a\nb\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"surplus\":1}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"method\":\"org.qosd.QoS.Get\"}"),
                BYTES("{\"method\":\"org.qosd.QoS.List\",\"more\":true,\"oneway\":true}"),
                BYTES("{\"method\":\"org.qosd.QoS.List\",\"more\":1}"),
#undef BYTES
        };
        _cleanup_client_ Client *other = client_new(0);

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_client_ Client *c = client_new(0);

                client_write(c, table[i].bytes, table[i].size);
                client_expect_end(c);
        }

        /* So do clients that disconnect, amid a message or before one */
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_client_ Client *c = client_new(0);

                client_write(c, "{\"method\"", i * 9);
                check(shutdown(c->fd, SHUT_WR) >= 0);
                client_expect_end(c);
        }

        call_succeeds(other, "GetStatus", "{}");
}

/* ---- permissions -------------------------------------------------------------------------------------- */

static void test_polkit(void) {
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID), *root = client_new(0);

        /* polkit is not queried if its reply makes no difference */
        polkit_calls = 0;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a b\"}", PREFIX "InvalidUnitName", "unit", "a b");
        call_fails(c, NULL, "Detach", "{\"unit\":\"a\"}", PREFIX "NotAttached", "unit", NULL);
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\",\"probes\":[\"gpu\"]}", PREFIX "NoSuchProbe",
                   "probe", "gpu");
        call_fails(c, "more", "List", "{}", PREFIX "NoEntries", NULL, NULL);
        check(polkit_calls == 0);

        polkit_mood = POLKIT_NO;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        check(polkit_calls == 1 && !polkit_interactive);
        call_fails(c, NULL, "Attach",
                   "{\"unit\":\"a\",\"lease\":true,\"allowInteractiveAuthentication\":true}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);
        check(polkit_calls == 2 && polkit_interactive);

        polkit_mood = POLKIT_CHALLENGE;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\"}", "io.systemd.InteractiveAuthenticationRequired",
                   NULL, NULL);
        check(manager->units.n == 0);

        polkit_mood = POLKIT_YES;
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        check(polkit_calls == 4);
        check(manager->units.slots[0]->holds->uid == TEST_OTHER_UID);

        /* Only root and the owner of the control group see its peers */
        call_fails(c, NULL, "GetView", "{\"unit\":\"a\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        call_fails(root, NULL, "GetView", "{\"unit\":\"a\"}", PREFIX "ViewUnavailable", "unit",
                   "a.service");
        call_fails(c, NULL, "Get", "{\"unit\":\"a\",\"metrics\":[\"requests.client[b.service].rate\"]}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);

        /* A user may drop an own lease, but not the hold of the administrator */
        call_succeeds(root, "Attach", "{\"unit\":\"b\"}");
        polkit_mood = POLKIT_NO;
        call_succeeds(c, "Detach", "{\"unit\":\"a\",\"lease\":true}");
        call_fails(c, NULL, "Detach", "{\"unit\":\"b\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        polkit_mood = POLKIT_YES;
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
        check(manager->units.n == 0);
        check(polkit_calls == 6);

        /* The client disconnects while polkit waits for a password */
        polkit_mood = POLKIT_SILENT;
        client_send(c, NULL, "Attach",
                    "{\"unit\":\"a\",\"lease\":true,\"allowInteractiveAuthentication\":true}");
        test_wait(event, polkit_calls == 7);
        c = client_free(c);
        call_succeeds(root, "GetStatus", "{}");
        test_wait(event, !manager->attaches.operations && manager->units.n == 0);
}

static void test_limits(void) {
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID);
        int fds[200];

        polkit_mood = POLKIT_YES;
        manager->config.leases_per_uid_max = 1;
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_fails(c, NULL, "Attach", "{\"unit\":\"b\",\"lease\":true}", PREFIX "TooManyLeases", NULL,
                   NULL);
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        manager->config.leases_per_uid_max = 64;

        manager->config.units_per_uid_max = 1;
        call_fails(c, NULL, "Attach", "{\"unit\":\"b\"}", PREFIX "TooManyUnits", NULL, NULL);
        manager->config.units_per_uid_max = 32;
        call_succeeds(c, "Detach", "{\"unit\":\"a\",\"lease\":true}");

        /* Connections are limited by user; closed ones do not count, and root has no limit */
        manager->config.connections_per_uid_max = 10;
        for (unsigned i = 0; i < 9; i++) {
                fds[i] = open_connection(TEST_OTHER_UID);
                check(fds[i] >= 0);
        }
        check(open_connection(TEST_OTHER_UID) == -EUSERS);
        check(open_connection(TEST_OTHER_UID) == -EUSERS);
        call_succeeds(c, "GetStatus", "{}");
        (void) close(fds[0]);
        /* After the pause of the user */
        test_wait(event, (fds[0] = open_connection(TEST_OTHER_UID)) >= 0);
        for (unsigned i = 0; i < 9; i++)
                (void) close(fds[i]);
        settle();

        for (unsigned i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = open_connection(0);
                check(fds[i] >= 0);
        }
        call_succeeds(c, "GetStatus", "{}");
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++)
                (void) close(fds[i]);
        settle();
        manager->config.connections_per_uid_max = 128;
}

static unsigned count_readable(const int *fds, size_t n_fds) {
        unsigned n = 0;

        for (size_t i = 0; i < n_fds; i++)
                n += poll(&(struct pollfd) { .fd = fds[i], .events = POLLIN }, 1, 0) > 0;
        return n;
}

/* The work that a user causes delays requests of that user, and none of root's. */
static void test_budget(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.ListMetrics\",\"more\":true}";
        _cleanup_client_ Client *flood = client_new(TEST_OTHER_UID), *root = client_new(0);
        int fds[UNREAD_CONNECTIONS_MAX + 4];
        unsigned rounds = 0;

        /* Until no turn is due, although the client always has calls */
        do {
                (void) client_fill(flood);
                check(++rounds < 1000);
        } while (sd_event_run(event, 0) > 0);
        check(client_fill(flood) < 100);
        call_succeeds(root, "GetStatus", "{}");
        flood = client_free(flood);
        settle();

        /* Unread replies are kept for this many connections */
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = open_connection_with(TEST_OTHER_UID, 4096);
                check(fds[i] >= 0);
                check(send(fds[i], message, sizeof(message), MSG_NOSIGNAL) == sizeof(message));
        }
        do
                test_run(event);
        while (count_readable(fds, ELEMENTSOF(fds)) < UNREAD_CONNECTIONS_MAX);
        for (unsigned i = 0; i < 1000; i++)
                call_succeeds(root, "GetStatus", "{}");
        check(count_readable(fds, ELEMENTSOF(fds)) == UNREAD_CONNECTIONS_MAX);

        /* When one of them disconnects, the next one has its turn */
        for (size_t n = ELEMENTSOF(fds); n > 0; n--) {
                size_t i = 0;

                test_wait(event, count_readable(fds, n) == MIN(n, (size_t) UNREAD_CONNECTIONS_MAX));
                while (count_readable(fds + i, 1) == 0)
                        i++;
                (void) close(fds[i]);
                fds[i] = fds[n - 1];
        }
        settle();
}

/* All users other than root share their time, so that many user ids do not give more of it. */
static void test_many_users(void) {
        _cleanup_client_ Client *root = client_new(0);
        Client *flood[40];
        unsigned rounds = 0;

        for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                flood[i] = client_new(100000 + i);
        /* Until no turn is due, although a user without a pause always has calls */
        do {
                for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                        (void) client_fill(flood[i]);
                check(++rounds < 1000);
        } while (sd_event_run(event, 0) > 0);
        call_succeeds(root, "GetStatus", "{}");
        for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                client_free(flood[i]);
        settle();
}

static int connect_as(uid_t uid, const char *path) {
        int fd;

        check(uid == 0 || seteuid(uid) >= 0);
        fd = unix_connect(path, /* timeout_usec= */ 0);
        check(uid == 0 || seteuid(0) >= 0);
        return fd;
}

static void test_listeners(void) {
        char directory[] = "/tmp/test-varlink-clients-XXXXXX", all[64], roots[64];
        _cleanup_client_ Client *root = new0(Client, 1);
        VarlinkServer *server;
        unsigned n = 0, steps = 0;
        int fds[1000];

        check(root);
        check(mkdtemp(directory) && chmod(directory, 0755) >= 0);
        (void) snprintf(all, sizeof(all), "%s/all", directory);
        (void) snprintf(roots, sizeof(roots), "%s/root", directory);
        manager->fds.varlink = varlink_listen_at(all, 0666);
        manager->fds.varlink_root = varlink_listen_at(roots, 0600);
        check(manager->fds.varlink >= 0 && manager->fds.varlink_root >= 0);
        check(varlink_server_new(manager, &server) >= 0);

        check(connect_as(TEST_OTHER_UID, roots) == -EACCES);
        /* Each of another user: all are within the limit by user */
        for (; n < ELEMENTSOF(fds); n++) {
                fds[n] = connect_as(100000 + n, all);
                if (fds[n] == -EAGAIN) /* the backlog of this system is as long */
                        break;
                check(fds[n] >= 0);
        }
        check(n > 100);

        /* Root's connection is not queued behind these */
        root->fd = connect_as(0, roots);
        check(root->fd >= 0);
        client_send(root, NULL, "GetStatus", "{}");
        while (recv(root->fd, root->buffer, 1, MSG_PEEK|MSG_DONTWAIT) < 0) {
                check(errno == EAGAIN);
                check(++steps < 20);
                test_run(event);
        }
        sd_json_variant_unref(client_expect_reply(root, "GetStatus"));

        /* All are accepted and served */
        for (unsigned i = 0; i < n; i += 50) {
                _cleanup_client_ Client *c = new0(Client, 1);

                check(c);
                c->fd = fds[i];
                call_succeeds(c, "GetStatus", "{}");
                fds[i] = -EBADF;
        }
        for (unsigned i = 0; i < n; i++)
                (void) close_fd(fds[i]);
        varlink_server_free(server);
        check(unlink(all) >= 0 && unlink(roots) >= 0 && rmdir(directory) >= 0);
}

/* Streams are limited by user; ended ones do not count, and root has no limit. */
static void test_streams(void) {
        _cleanup_client_ Client *root = client_new(0), *c = client_new(TEST_OTHER_UID);
        Client *streams[8 + 1];

        call_succeeds(root, "Attach", "{\"unit\":\"a\"}");
        for (unsigned i = 0; i < ELEMENTSOF(streams); i++) {
                streams[i] = client_new(i < 8 ? TEST_OTHER_UID : 0);
                client_send(streams[i], "more", "Subscribe", "{\"interval\":3600000000000}");
                sd_json_variant_unref(client_expect_reply(streams[i], "Subscribe"));
        }
        call_fails(c, "more", "Subscribe", "{}", PREFIX "TooManyStreams", NULL, NULL);
        streams[0] = client_free(streams[0]);
        /* The daemon notices the end of a stream after the pause of its user. */
        for (bool freed = false; !freed;) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                client_send(c, "more", "Subscribe", "{\"interval\":3600000000000}");
                v = client_receive(c);
                check(v);
                freed = !message_error(v);
                check(freed || streq(message_error(v), PREFIX "TooManyStreams"));
        }
        for (unsigned i = 1; i < ELEMENTSOF(streams); i++)
                client_free(streams[i]);
        call_succeeds(root, "Detach", "{\"unit\":\"a\"}");
}

/* Limits of all users together do not limit root. */
static void test_reserve(void) {
        static const char *const names[] = { "a", "b", "inner" };
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID), *root = client_new(0);
        char parameters[64];
        int fds[2048];
        unsigned n;

        polkit_mood = POLKIT_YES;
        manager->config.units_max = 4;
        for (unsigned i = 0; i < ELEMENTSOF(names); i++) {
                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\",\"lease\":true}",
                                names[i]);
                call_succeeds(c, "Attach", parameters);
        }
        call_fails(c, NULL, "Attach", "{\"unit\":\"c\",\"lease\":true}", PREFIX "TooManyUnits", NULL,
                   NULL);
        call_succeeds(root, "Attach", "{\"unit\":\"c\",\"lease\":true}");
        check(manager->units.n == 4);
        /* What root holds, too, does not count for them */
        call_succeeds(root, "Detach", "{\"unit\":\"c\",\"lease\":true}");
        call_succeeds(root, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_succeeds(c, "Attach", "{\"unit\":\"c\",\"lease\":true}");
        manager->config.units_max = UNITS_MAX_LIMIT;
        root = client_free(root);
        c = client_free(c);
        test_wait(event, manager->units.n == 0);

        manager->config.connections_per_uid_max = ELEMENTSOF(fds);
        for (n = 0; n < ELEMENTSOF(fds); n++) {
                fds[n] = open_connection(TEST_OTHER_UID);
                if (fds[n] < 0)
                        break;
        }
        check(n > 0 && n < ELEMENTSOF(fds) && fds[n] == -EUSERS);
        root = client_new(0);
        call_succeeds(root, "GetStatus", "{}");
        for (unsigned i = 0; i < n; i++)
                (void) close(fds[i]);
        settle();
        manager->config.connections_per_uid_max = 128;
}

/* The event loop ends although a client does not read. */
static void test_exit(void) {
        _cleanup_client_ Client *c = client_new(0), *waiting = client_new(0);

        for (unsigned i = 0; i < 100; i++)
                client_send(c, "more", "ListMetrics", "{}");
        settle();
        /* It also ends before the reply of PID 1 about the unit: main() frees everything */
        client_send(waiting, NULL, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        test_wait(event, manager->attaches.operations);
        check(sd_event_exit(event, 0) >= 0);
        check(sd_event_loop(event) >= 0);
        check(manager->attaches.operations);
}

int main(void) {
        struct rlimit limit;

        if (!test_become_plain_root())
                return 77;

        /* Timeout of the test */
        (void) alarm(100);
        check(getrlimit(RLIMIT_NOFILE, &limit) >= 0);
        limit.rlim_cur = MIN(limit.rlim_max, 4096U);
        check(setrlimit(RLIMIT_NOFILE, &limit) >= 0);
        check(unsetenv("RUNTIME_DIRECTORY") >= 0);

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &system_side);
        for (unsigned i = 0; i < MANY_UNITS; i++) {
                (void) snprintf(many_names[i], sizeof(many_names[i]), "many-%u.service", i);
                units[6 + i] = (FakeUnit) { .id = many_names[i], .active_state = "inactive",
                                            .sub_state = "dead", .slice = "system.slice" };
        }
        fake_service_manager_start(&pid1, system_side, units);
        check(sd_bus_add_object_vtable(system_side, NULL, "/org/freedesktop/PolicyKit1/Authority",
                                       "org.freedesktop.PolicyKit1.Authority",
                                       polkit_vtable, NULL) >= 0);
        check(manager_set_bus(manager, daemon_side) >= 0);
        /* The limit of connections follows from that of descriptors at startup */
        check(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { .rlim_cur = 1024, .rlim_max = limit.rlim_max }) >=
              0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);
        check(setrlimit(RLIMIT_NOFILE, &limit) >= 0);

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
        test_subscribe();
        test_shared_stream();
        test_slow_subscriber();
        test_pieces();
        test_pipeline();
        test_never_reads();
        test_flood();
        test_dead();
        test_oversized();
        test_garbage();
        if (test_has_other_user()) {
                test_polkit();
                test_limits();
                test_budget();
                test_many_users();
                test_listeners();
                test_streams();
                test_many_units();
                test_reserve();
        }
        test_exit();

        varlink_server_free(varlink_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(system_side);
        sd_event_unref(event);
        return EXIT_SUCCESS;
}
