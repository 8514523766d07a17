/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A source of systemd-report: serves one connection of qosd-report.socket with data of Export() of qosd. */

#include <systemd/sd-daemon.h>
#include <systemd/sd-varlink.h>

#include "config-build.h"
#include "connect.h"
#include "log.h"
#include "replies.h"
#include "sparse-histogram.h"
#include "value.h"
#include "varlink-io.systemd.Metrics.h"

/* Prefix of the names of families, which systemd-report requires to be the name of the socket. */
#define PREFIX "org.qosd."

/* Timeout of calls of qosd. The one of systemd-report is 30 s. */
#define QOSD_USEC (10 * USEC_PER_SEC)

/* A counter or gauge of a unit. There are about 20 only, as systemd-report accepts 4096 from all sources
 * together. Rates, means and shares can be derived from two reports. */
typedef struct ReportMetric {
        const char *path;               /* path in an ExportedUnit */
        const char *field, *value;      /* key and value in "fields"; NULL: none */
        bool sum;                       /* whether path is a distribution, of which the sum is returned, in
                                         * ns */
} ReportMetric;

typedef struct ReportFamily {
        const char *name, *description;
        bool gauge;
        const ReportMetric metrics[6];
} ReportFamily;

static const ReportFamily families[] = {
        { PREFIX "Requests", "Requests that the unit has served, or has made of others", false, {
                { "totals.requests.server.count", "role", "server" },
                { "totals.requests.client.count", "role", "client" },
        } },
        { PREFIX "RequestErrors", "Requests to the unit that failed", false, {
                { "totals.requests.server.errors.reset",     "type", "reset"     },
                { "totals.requests.server.errors.timeout",   "type", "timeout"   },
                { "totals.requests.server.errors.status5xx", "type", "status5xx" },
                { "totals.requests.server.errors.grpc",      "type", "grpc"      },
                { "totals.requests.server.errors.replies",   "type", "replies"   },
        } },
        { PREFIX "RequestLatencyNSec", "Sum of the times from requests to the ends of their responses, in "
                                       "nanoseconds", false, {
                { "requests.server.latency", "role", "server", .sum = true },
                { "requests.client.latency", "role", "client", .sum = true },
        } },
        { PREFIX "RequestClientAborts", "Requests that their clients have given up", false, {
                { "totals.requests.server.clientAborts" },
        } },
        { PREFIX "RequestBytes", "Bytes of requests to the unit, and of its responses", false, {
                { "totals.requests.server.bytesIn",  "direction", "in"  },
                { "totals.requests.server.bytesOut", "direction", "out" },
        } },
        { PREFIX "RequestsInFlight", "Requests without a complete response at the moment", true, {
                { "gauges.requests.server.inFlight", "role", "server" },
                { "gauges.requests.client.inFlight", "role", "client" },
        } },
        { PREFIX "ConnectionsAccepted", "Connections that the unit has accepted", false, {
                { "totals.requests.server.connections.accepted" },
        } },
        { PREFIX "ConnectionsOpen", "Connections to the unit at the moment", true, {
                { "gauges.requests.server.connections.open" },
        } },
        { PREFIX "ListenDrops", "Connections that the unit's listen queues have dropped", false, {
                { "totals.requests.server.connections.listenDrops" },
        } },
        { PREFIX "WaitNSec", "Time that threads of the unit have waited, in nanoseconds", false, {
                { "totals.contention.time.runQueue",  "type", "runQueue"  },
                { "totals.contention.time.throttled", "type", "throttled" },
                { "totals.contention.time.lock",      "type", "lock"      },
                { "totals.contention.time.disk",      "type", "disk"      },
        } },
        { PREFIX "Drops", "Events of the unit that could not be recorded", false, {
                { "drops" },
        } },
};

/* Returns the value of the metric. NULL: the unit has none. */
static sd_json_variant* find_value(sd_json_variant *unit, const ReportMetric *m) {
        sd_json_variant *histogram;

        if (!m->sum)
                return value_find(unit, m->path);
        histogram = sparse_histogram_find(value_find(unit, "histograms"), m->path);
        return histogram ? value_find(histogram, "sum") : NULL;
}

/* Replies to a call. Each is held until the next one is added, as the last one ends the call. */
typedef struct Sequence {
        sd_varlink *link;
        sd_json_variant *last;
} Sequence;

static int sequence_add(Sequence *s, sd_json_variant *v) {
        int r = s->last ? sd_varlink_notify(s->link, s->last) : 0;

        (void) sd_json_variant_unref(s->last);
        s->last = v;
        return r;
}

static int sequence_end(Sequence *s) {
        int r;

        if (!s->last)
                return sd_varlink_error(s->link, "io.systemd.Metrics.NoSuchMetric", NULL);
        r = sd_varlink_reply(s->link, s->last);
        s->last = sd_json_variant_unref(s->last);
        return r;
}

static void sequence_done(Sequence *s) {
        (void) sd_json_variant_unref(s->last);
}

static int sequence_add_metric(Sequence *s, const char *family, const char *unit, const ReportMetric *m,
                               sd_json_variant *value) {
        sd_json_variant *v = NULL;
        int r;

        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_STRING("name", family),
                           SD_JSON_BUILD_PAIR_STRING("object", unit),
                           SD_JSON_BUILD_PAIR_CONDITION(!!m->field, "fields",
                                                        SD_JSON_BUILD_OBJECT(SD_JSON_BUILD_PAIR_STRING(
                                                                        m->field, m->value))),
                           SD_JSON_BUILD_PAIR_VARIANT("value", value));
        return r < 0 ? r : sequence_add(s, v);
}

static int check_call(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags) {
        static const sd_json_dispatch_field table[] = { {} }; /* NULL is refused by systemd 257 */
        int r;

        r = sd_varlink_dispatch(link, parameters, table, NULL);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        return 0;
}

/* Reads all units. This blocks, as the process serves a single client. ret: replies to Export(). */
static int read_qosd(sd_json_variant **ret) {
        _cleanup_(sd_varlink_close_unrefp) sd_varlink *qosd = NULL;
        _cleanup_close_ int fd = -EBADF;
        sd_json_variant *replies = NULL;
        const char *error = NULL;
        int r;

        fd = unix_connect(QOS_ADDRESS, QOSD_USEC);
        if (fd < 0)
                return log_error_errno(fd, "Failed to connect to qosd: %m");
        r = sd_varlink_connect_fd(&qosd, fd);
        if (r >= 0) {
                (void) TAKE_FD(fd);
                r = sd_varlink_set_relative_timeout(qosd, QOSD_USEC);
        }
        if (r >= 0)
                r = sd_varlink_collect(qosd, QOS_METHOD("Export"), NULL, &replies, &error);
        if (r < 0)
                return log_error_errno(r, "Failed to read metrics of qosd: %m");
        if (error)
                return log_error_errno(-EIO, "Failed to read metrics of qosd: %s", error);
        *ret = sd_json_variant_ref(replies);
        return 0;
}

static int vl_method_list(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                          void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *replies = NULL;
        _cleanup_(sequence_done) Sequence s = { .link = link };
        int r;

        r = check_call(link, parameters, flags);
        if (r != 0)
                return r;
        r = read_qosd(&replies);
        if (r < 0)
                return r;

        for (size_t i = 0; i < ELEMENTSOF(families); i++)
                for (size_t k = 0; k < sd_json_variant_elements(replies); k++) {
                        sd_json_variant *unit = value_find(sd_json_variant_by_index(replies, k), "unit");
                        const char *name = unit ? value_string(unit, "name") : NULL;

                        for (const ReportMetric *m = families[i].metrics; name && m->path; m++) {
                                sd_json_variant *v = find_value(unit, m);

                                if (!v || !sd_json_variant_is_unsigned(v))
                                        continue;
                                r = sequence_add_metric(&s, families[i].name, name, m, v);
                                if (r < 0)
                                        return r;
                        }
                }
        return sequence_end(&s);
}

static int vl_method_describe(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata) {
        _cleanup_(sequence_done) Sequence s = { .link = link };
        int r;

        r = check_call(link, parameters, flags);
        if (r != 0)
                return r;
        for (size_t i = 0; i < ELEMENTSOF(families); i++) {
                sd_json_variant *v = NULL;

                r = sd_json_buildo(&v,
                                   SD_JSON_BUILD_PAIR_STRING("name", families[i].name),
                                   SD_JSON_BUILD_PAIR_STRING("description", families[i].description),
                                   SD_JSON_BUILD_PAIR_STRING("type", families[i].gauge ? "gauge" :
                                                             "counter"));
                if (r >= 0)
                        r = sequence_add(&s, v);
                if (r < 0)
                        return r;
        }
        return sequence_end(&s);
}

static int run(void) {
        _cleanup_(sd_varlink_server_unrefp) sd_varlink_server *server = NULL;
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        int r;

        r = sd_event_new(&event);
        if (r >= 0)
                r = sd_varlink_server_new(&server, SD_VARLINK_SERVER_INHERIT_USERDATA);
        if (r >= 0)
                r = sd_varlink_server_set_info(server, "qosd", "qosd-report", QOSD_VERSION, NULL);
        if (r >= 0)
                r = sd_varlink_server_add_interface(server, &vl_interface_io_systemd_Metrics);
        if (r >= 0)
                r = sd_varlink_server_bind_method_many(server,
                                                       "io.systemd.Metrics.List",     vl_method_list,
                                                       "io.systemd.Metrics.Describe", vl_method_describe);
        if (r >= 0)
                r = sd_varlink_server_set_exit_on_idle(server, true);
        if (r >= 0)
                r = sd_varlink_server_attach_event(server, event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_varlink_server_add_connection(server, SD_LISTEN_FDS_START, NULL);
        if (r < 0)
                return log_error_errno(r, "Failed to serve varlink: %m");
        return sd_event_loop(event);
}

int main(int argc, char **argv) {
        if (argc == 2 && streq(argv[1], "--version")) {
                puts("qosd-report " QOSD_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc > 1) {
                (void) log_error_errno(-EINVAL, "Unexpected argument '%s', expected --version.", argv[1]);
                return EXIT_FAILURE;
        }
        if (sd_listen_fds(true) != 1 || sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_STREAM, 0) <= 0) {
                (void) log_error_errno(-EINVAL, "Expected a connection of qosd-report.socket.");
                return EXIT_FAILURE;
        }
        return run() < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
