/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The varlink interface over a socket pair, with the real manager. No system bus, no service manager: units
 * are attached by path. The argument is the published interface. */

#include <sys/socket.h>

#include <systemd/sd-varlink.h>
#include <systemd/sd-varlink-idl.h>

#include "check.h"
#include "manager.h"
#include "metric.h"
#include "varlink-org.qosd.QoS.h"
#include "varlink-server.h"

static sd_event *event;
static Manager *manager;
static VarlinkServer *varlink_server;

static sd_varlink* connect_client(void) {
        sd_varlink *link;
        int fds[2];

        check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
        check(varlink_server_add_connection(varlink_server, fds[0]) >= 0);
        check(sd_varlink_connect_fd(&link, fds[1]) >= 0);
        check(sd_varlink_attach_event(link, event, 0) >= 0);
        return link;
}

typedef struct Result {
        bool done;
        unsigned replies;
        char *error;
        sd_json_variant *last;
} Result;

static void result_done(Result *r) {
        free(r->error);
        sd_json_variant_unref(r->last);
}

static int on_reply(sd_varlink *link, sd_json_variant *parameters, const char *error,
                    sd_varlink_reply_flags_t flags, void *userdata) {
        Result *r = userdata;

        r->replies++;
        r->done = !(flags & SD_VARLINK_REPLY_CONTINUES);
        check(free_and_strdup(&r->error, error) >= 0);
        sd_json_variant_unref(r->last);
        r->last = sd_json_variant_ref(parameters);
        return 0;
}

/* One method call to its end, in the one event loop that client and server share. */
static Result call(const char *method, bool more, const char *json) {
        sd_json_variant *parameters = NULL;
        sd_varlink *link = connect_client();
        Result result = {};

        check(sd_json_parse(json, 0, &parameters, NULL, NULL) >= 0);
        sd_varlink_set_userdata(link, &result);
        check(sd_varlink_bind_reply(link, on_reply) >= 0);
        check((more ? sd_varlink_observe(link, method, parameters) :
               sd_varlink_invoke(link, method, parameters)) >= 0);
        while (!result.done)
                check(sd_event_run(event, 10 * USEC_PER_SEC) > 0);

        sd_json_variant_unref(parameters);
        sd_varlink_close_unref(link);
        return result;
}

static void expect_error(const char *method, bool more, const char *json, const char *error) {
        __attribute__((cleanup(result_done))) Result r = call(method, more, json);

        if (!streq_ptr(r.error, error)) {
                fprintf(stderr, "%s %s: error '%s' instead of '%s'\n", method, json, strempty(r.error),
                        error);
                exit(EXIT_FAILURE);
        }
}

static void test_errors(void) {
        static const char invalid[] = "org.varlink.service.InvalidParameter";
        static const struct {
                const char *method;
                bool more;
                const char *json;
                const char *error;
        } table[] = {
                { "org.qosd.QoS.Get",       false, "{}",
                  invalid                                },
                { "org.qosd.QoS.Get",       false, "{\"unit\":5}",
                  invalid                                },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"x\",\"surplus\":1}",
                  invalid                                },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"x\",\"window\":17}",
                  invalid                                },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"x\",\"window\":-1}",
                  invalid                                },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"x\"}",
                  "org.qosd.QoS.NotAttached"             },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"a b\"}",
                  "org.qosd.QoS.InvalidUnitName"         },
                { "org.qosd.QoS.Get",       false, "{\"unit\":\"../x\"}",
                  "org.qosd.QoS.InvalidUnitName"         },
                { "org.qosd.QoS.Detach",    false, "{\"unit\":\"x\"}",
                  "org.qosd.QoS.NotAttached"             },
                { "org.qosd.QoS.Detach",    false, "{\"unit\":\"x\",\"lease\":true}",
                  "org.qosd.QoS.NotAttached"             },
                { "org.qosd.QoS.Histogram", false, "{\"unit\":\"x\",\"metric\":\"y\"}",
                  "org.qosd.QoS.NotAttached"             },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"/no/such/group\"}",
                  "org.qosd.QoS.NoSuchUnit"              },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"/../etc\"}",
                  "org.qosd.QoS.InvalidUnitName"         },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"/a//b\"}",
                  "org.qosd.QoS.InvalidUnitName"         },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"x\"}",
                  "org.qosd.QoS.ServiceManagerFailed"    },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"x\",\"probes\":[\"nonsense\"]}",
                  "org.qosd.QoS.NoSuchProbe"             },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"x\",\"duration\":0}",
                  invalid                                },
                { "org.qosd.QoS.Attach",    false, "{\"unit\":\"x\",\"lease\":true,\"duration\":5000000}",
                  invalid                       },
                { "org.qosd.QoS.List",      true,  "{}",
                  "org.qosd.QoS.NoEntries"               },
                { "org.qosd.QoS.List",      false, "{}",
                  "org.varlink.service.ExpectedMore"     },
                { "org.qosd.QoS.Subscribe", false, "{}",
                  "org.varlink.service.ExpectedMore"     },
                { "org.qosd.QoS.Subscribe", true,  "{\"interval\":1}",
                  invalid                                },
                { "org.qosd.QoS.Subscribe", true,  "{\"units\":[\"x\"]}",
                  "org.qosd.QoS.NotAttached"             },
                { "org.qosd.QoS.Probes",    false, "{}",
                  "org.varlink.service.ExpectedMore"     },
                { "org.qosd.QoS.Probes",    true,  "{\"surplus\":1}",
                  invalid                                },
                { "org.qosd.QoS.Nonsense",  false, "{}",
                  "org.varlink.service.MethodNotFound"   },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                expect_error(table[i].method, table[i].more, table[i].json, table[i].error);
}

static void test_catalogue(void) {
        __attribute__((cleanup(result_done))) Result metrics = call("org.qosd.QoS.ListMetrics", true, "{}");
        __attribute__((cleanup(result_done))) Result probes = call("org.qosd.QoS.Probes", true, "{}");
        __attribute__((cleanup(result_done))) Result status = call("org.qosd.QoS.GetStatus", false, "{}");

        check(!metrics.error && metrics.replies == metric_table_size);
        check(!probes.error && probes.replies > 5);
        check(!status.error && sd_json_variant_unsigned(sd_json_variant_by_key(status.last, "units")) == 0);
        check(!status.error && sd_json_variant_unsigned(sd_json_variant_by_key(status.last,
                                                                               "minimumSamples")) == 5);

        for (size_t i = 0; i < metric_table_size; i++) {
                check(metric_find(metric_table[i].name) == metric_table + i); /* names are unique */
                check(startswith(metric_table[i].name, "requests.") ||
                      startswith(metric_table[i].name, "contention.") ||
                      startswith(metric_table[i].name, "storage.") ||
                      startswith(metric_table[i].name, "network."));
                check(!isempty(metric_table[i].description));
        }
}

/* Whoever sends what is no varlink loses the connection, and nobody else notices. */
static void test_garbage(void) {
        static const char garbage[][64] = { "x", "{}", "{\"method\":5}", "[]", "\xff\xfe",
                                            "{\"method\":\"org.qosd.QoS.Get\",\"parameters\":7}" };

        for (size_t i = 0; i < ELEMENTSOF(garbage); i++) {
                char buffer[512];
                ssize_t n;
                int fds[2];

                check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
                check(varlink_server_add_connection(varlink_server, fds[0]) >= 0);
                check(write(fds[1], garbage[i], strlen(garbage[i]) + 1) == (ssize_t) strlen(garbage[i]) + 1);
                do {
                        check(sd_event_run(event, 5 * USEC_PER_SEC) > 0);
                        n = read(fds[1], buffer, sizeof(buffer));
                } while (n < 0 && errno == EAGAIN);
                (void) close(fds[1]);
        }
        expect_error("org.qosd.QoS.Get", false, "{\"unit\":\"x\"}", "org.qosd.QoS.NotAttached");
}

/* The published interface is the live one, to the letter. */
static void test_golden(const char *path) {
        _cleanup_free_ char *live = NULL, *golden = NULL;
        size_t size = 0;
        FILE *f;

        check(sd_varlink_idl_format(&vl_interface_org_qosd_QoS, &live) >= 0);
        f = fopen(path, "re");
        check(f);
        check(getdelim(&golden, &size, 0, f) > 0);
        (void) fclose(f);

        if (!streq(live, golden)) {
                fprintf(stderr, "The interface differs from %s. If that is meant: "
                        "ninja varlink-interface\n%s", path, live);
                exit(EXIT_FAILURE);
        }
}

static int write_interface(const char *path) {
        _cleanup_free_ char *live = NULL;
        FILE *f;

        check(sd_varlink_idl_format(&vl_interface_org_qosd_QoS, &live) >= 0);
        f = fopen(path, "we");
        if (!f || fputs(live, f) < 0 || fclose(f) < 0) {
                fprintf(stderr, "Failed to write %s: %m\n", path);
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}

int main(int argc, char *argv[]) {
        if (argc == 3 && streq(argv[1], "--write"))
                return write_interface(argv[2]);
        check(argc == 2);
        check(unsetenv("RUNTIME_DIRECTORY") >= 0);

        check(sd_event_default(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);

        test_golden(argv[1]);
        test_catalogue();
        test_errors();
        test_garbage();

        varlink_server_free(varlink_server);
        manager_free(manager);
        sd_event_unref(event);
        return EXIT_SUCCESS;
}
