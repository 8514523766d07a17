/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* JSON of readings, histograms and holds: which keys are present or absent, and that it matches the
 * interface. */

#include <math.h>
#include <sys/socket.h>

#include "check.h"
#include "history.h"
#include "hold-json.h"
#include "mounts.h"
#include "manager.h"
#include "metric.h"
#include "peers.h"
#include "snapshot-json.h"
#include "unit-map.h"
#include "util-idl.h"

static char name[] = "a.service", control_group[] = "/system.slice/a.service", active_state[] = "active";

static Unit unit = {
        .name = name,
        .control_group = control_group,
        .active_state = active_state,
        .lifecycle.restarts = ABSENT,
        .attached_since = UINT64_C(1763683200000000000),
};

static const UnitIdentity* identity_of(const Unit *u) {
        static UnitIdentity identity;

        unit_get_identity(u, &identity);
        return &identity;
}

/* "a.b.c" → object a → object b → c */
static sd_json_variant* by_path(sd_json_variant *v, const char *path) {
        while (v) {
                const char *dot = strchr(path, '.');
                char key[64];

                if (!dot)
                        return sd_json_variant_by_key(v, path);

                (void) snprintf(key, sizeof(key), "%.*s", (int) (dot - path), path);
                v = sd_json_variant_by_key(v, key);
                path = dot + 1;
        }
        return NULL;
}

static void set_metric(Metrics *m, const Metric *metric, uint64_t n) {
        void *p = (char*) m + metric->offset;

        switch (metric->type) {
        case METRIC_INTEGER:
                *(uint64_t*) p = n;
                break;
        case METRIC_REAL:
                *(double*) p = n == ABSENT ? NAN : n + 0.5;
                break;
        case METRIC_QUALITY:
                *(Quality*) p = n == ABSENT ? QUALITY_ABSENT : QUALITY_EXCHANGES;
                break;
        default:
                abort();
        }
}

static Snapshot make_snapshot(void) {
        Snapshot s = {
                .seq = 812,
                .timestamp = UINT64_C(1763683260000000000),
                .window = 10 * NSEC_PER_SEC,
                .covered = 9 * NSEC_PER_SEC,
                .cost_share = NAN,
        };

        for (size_t i = 0; i < metric_table_size; i++) {
                set_metric(&s.metrics, metric_table + i, ABSENT);
                set_metric(&s.totals, metric_table + i, ABSENT);
        }
        return s;
}

/* The text equals that of the library for the variant. */
static void check_same(const Snapshot *s, bool peers) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_free_ char *text = NULL, *expected = NULL;

        check(snapshot_to_text(identity_of(&unit), s, peers, &text) >= 0);
        check(snapshot_to_json(identity_of(&unit), s, peers, &v) >= 0);
        check(sd_json_variant_format(v, 0, &expected) >= 0);
        if (!streq(text, expected)) {
                fprintf(stderr, "Is:       %s\nShall be: %s\n", text, expected);
                exit(EXIT_FAILURE);
        }
}

static sd_json_variant* to_json(const Snapshot *s) {
        sd_json_variant *v;

        check_same(s, true);
        check_same(s, false);
        check(snapshot_to_json(identity_of(&unit), s, true, &v) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_STRUCT_TYPE, "Snapshot"), SD_VARLINK_REGULAR, v));
        check(idl_matches(idl_find(SD_VARLINK_METHOD, "Get"), SD_VARLINK_OUTPUT, v));
        return v;
}

static void check_text(sd_json_variant *v, const char *expected) {
        _cleanup_free_ char *text = NULL;

        check(sd_json_variant_format(v, 0, &text) >= 0);
        if (!streq(text, expected)) {
                fprintf(stderr, "Is:       %s\nShall be: %s\n", text, expected);
                exit(EXIT_FAILURE);
        }
}

/* A unit without metrics has its name only. */
static void test_absent(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Snapshot s = make_snapshot();

        v = to_json(&s);
        check_text(v,
                   "{\"unit\":\"a.service\","
                   "\"controlGroup\":\"/system.slice/a.service\",\"activeState\":\"active\","
                   "\"attachedSince\":1763683200000000,\"seq\":812,\"timestamp\":1763683260000000,"
                   "\"window\":10000000000,\"covered\":9000000000,\"drops\":0}");
}

static void test_identity(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Snapshot s = make_snapshot();

        check(sd_id128_from_string("0123456789abcdef0123456789abcdef", &unit.invocation_id) >= 0);
        s.window = WINDOW_TOTAL;
        s.cost_share = 0.25;
        s.drops = 3;
        v = to_json(&s);
        unit.invocation_id = SD_ID128_NULL;

        check(streq(sd_json_variant_string(by_path(v, "invocationId")), "0123456789abcdef0123456789abcdef"));
        check(!by_path(v, "window"));
        check(by_path(v, "cost.share") &&
              fabs(sd_json_variant_real(by_path(v, "cost.share")) - 0.25) < 1e-9);
        check(sd_json_variant_unsigned(by_path(v, "drops")) == 3);
}

/* Each metric by itself is at its path with its value, and nothing else is present. */
static void test_each_metric(void) {
        for (size_t i = 0; i < metric_table_size; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
                const Metric *metric = metric_table + i;
                Snapshot s = make_snapshot();
                sd_json_variant *m;

                set_metric(&s.metrics, metric, 0); /* which is a value */
                check(snapshot_to_json(identity_of(&unit), &s, true, &v) >= 0);

                m = by_path(v, metric->name);
                check(m);
                check(!sd_json_variant_by_key(v, "totals"));
                for (size_t k = 0; k < metric_table_size; k++)
                        check(k == i || !by_path(v, metric_table[k].name));
        }
}

static void test_all_metrics(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Snapshot s = make_snapshot();
        sd_json_variant *totals;
        size_t n_totals = 0;

        for (size_t i = 0; i < metric_table_size; i++) {
                set_metric(&s.metrics, metric_table + i, 1000 + i);
                set_metric(&s.totals, metric_table + i, 5000 + i);
        }
        v = to_json(&s);
        totals = sd_json_variant_by_key(v, "totals");
        check(totals);

        for (size_t i = 0; i < metric_table_size; i++) {
                const Metric *metric = metric_table + i;
                sd_json_variant *m = by_path(v, metric->name),
                        *t = sd_json_variant_by_key(totals, metric->name);

                check(m);
                check(!t == (metric->kind != METRIC_COUNTER));
                if (t)
                        n_totals++;

                switch (metric->type) {
                case METRIC_INTEGER:
                        check(sd_json_variant_unsigned(m) == 1000 + i);
                        check(!t || sd_json_variant_unsigned(t) == 5000 + i);
                        break;
                case METRIC_REAL:
                        check(fabs(sd_json_variant_real(m) - (1000.5 + i)) < 1e-9);
                        break;
                case METRIC_QUALITY:
                        check(streq(sd_json_variant_string(m), "exchanges"));
                        break;
                default:
                        check(false);
                }
        }

        check(n_totals > 0);
        check(sd_json_variant_elements(totals) == 2 * n_totals);
}

/* The largest numbers other than ABSENT are preserved. */
static void test_large(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Snapshot s = make_snapshot();

        s.metrics.requests.server.bytes_out = UINT64_MAX - 1;
        check(snapshot_to_json(identity_of(&unit), &s, true, &v) >= 0);
        check(sd_json_variant_unsigned(by_path(v, "requests.server.bytesOut")) == UINT64_MAX - 1);
}

/* All metrics at once, in all magnitudes. */
static void test_text(void) {
        static const double reals[] = { 0, -0.0, 0.1, 1, 100, 1.0 / 3, 64.7e3, 1e-300,
                                        1.7976931348623157e308, INFINITY };
        static const char *const states[] = { "", "plain", "\"quoted\" \\ back", "tab\tnew\nline\r\b\f",
                                              "\x01\x1f", "\x7f", "\u00e9\u20ac" };
        char *before = unit.active_state;
        _cleanup_free_ char *text = NULL;
        Snapshot s = make_snapshot();

        for (size_t k = 0; k < ELEMENTSOF(reals); k++) {
                for (size_t i = 0; i < metric_table_size; i++) {
                        Metrics *both[] = { &s.metrics, &s.totals };

                        for (size_t m = 0; m < ELEMENTSOF(both); m++)
                                if (metric_table[i].type == METRIC_REAL)
                                        *(double*) ((char*) both[m] + metric_table[i].offset) = reals[k];
                                else
                                        set_metric(both[m], metric_table + i,
                                                   metric_table[i].type == METRIC_INTEGER ? i * 7919 : 0);
                }
                check_same(&s, true);
        }

        for (size_t i = 0; i < ELEMENTSOF(states); i++) {
                unit.active_state = (char*) states[i];
                check_same(&s, true);
        }
        unit.active_state = (char*) "\xff";
        check(snapshot_to_text(identity_of(&unit), &s, true, &text) < 0);
        unit.active_state = before;
}

/* The interface lists all metrics, and no other. */
static void count_leaves(const sd_varlink_symbol *symbol, const char *prefix, size_t *n) {
        for (const sd_varlink_field *f = symbol->fields; f->name; f++) {
                char path[256];

                /* Endpoints and peers are not metrics of the unit */
                if (f->field_type >= _SD_VARLINK_FIELD_COMMENT || f->field_flags & SD_VARLINK_ARRAY)
                        continue;
                (void) snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "", f->name);
                if (f->field_type == SD_VARLINK_NAMED_TYPE &&
                    f->symbol->symbol_type == SD_VARLINK_STRUCT_TYPE) {
                        count_leaves(f->symbol, path, n);
                        continue;
                }
                if (!metric_find(path)) {
                        fprintf(stderr, "The interface describes '%s', which is no metric.\n", path);
                        exit(EXIT_FAILURE);
                }
                (*n)++;
        }
}

static void test_description(void) {
        size_t n = 0;

        /* That all metrics are described is tested by a reading with all of them */
        count_leaves(idl_find(SD_VARLINK_STRUCT_TYPE, "Requests"), "requests", &n);
        count_leaves(idl_find(SD_VARLINK_STRUCT_TYPE, "Contention"), "contention", &n);
        count_leaves(idl_find(SD_VARLINK_STRUCT_TYPE, "Storage"), "storage", &n);
        count_leaves(idl_find(SD_VARLINK_STRUCT_TYPE, "Network"), "network", &n);
        check(n == metric_table_size);
}

static void test_histogram(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *empty = NULL;
        HistogramBucket buckets[] = {
                { 0,    238,        1 },
                { 953,  974,        7 },
                { 5000, UINT64_MAX, 2 },
        };
        Histogram h = {
                .seq = 5,
                .timestamp = 6999,
                .window = NSEC_PER_SEC,
                .covered = 7,
                .schema = 5,
                .count = 10,
                .sum = 99,
                .buckets = buckets,
                .n_buckets = ELEMENTSOF(buckets),
        };

        check(histogram_to_json(unit.name, "requests.server.latency", &h, &v) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_METHOD, "Histogram"), SD_VARLINK_OUTPUT, v));
        check_text(v,
                   "{\"unit\":\"a.service\","
                   "\"metric\":\"requests.server.latency\",\"seq\":5,\"timestamp\":6,\"window\":1000000000,"
                   "\"covered\":7,\"schema\":5,\"count\":10,\"sum\":99,\"buckets\":["
                   "{\"lower\":0,"
                   "\"upper\":238,"
                   "\"count\":1},"
                   "{\"lower\":953,\"upper\":974,\"count\":7},{\"lower\":5000,\"count\":2}]}");

        h.window = WINDOW_TOTAL;
        h.n_buckets = 0;
        check(histogram_to_json(unit.name, "requests.server.latency", &h, &empty) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_METHOD, "Histogram"), SD_VARLINK_OUTPUT, empty));
        check(!by_path(empty, "window"));
        check(sd_json_variant_elements(by_path(empty, "buckets")) == 0);
}

/* Exports: totals and gauges, nothing over a window, and buckets by the index of Prometheus. */
static void test_totals(void) {
        static const uint64_t fine[HISTOGRAM_FINE_BINS] = { [0] = 2, [704] = 5, [705] = 1,
                                                            [HISTOGRAM_FINE_BINS - 1] = 1 },
                coarse[HISTOGRAM_COARSE_BINS] = { [HISTOGRAM_COARSE_BINS - 2] = 4 };
        static UnitTotals t = {
                .snapshot = { .seq = 5, .timestamp = 6999, .drops = 7 },
                .distributions = {
                        { "requests.server.latency", 5, fine, HISTOGRAM_FINE_BINS, 1234 },
                        { "requests.server.queue", 3, coarse, HISTOGRAM_COARSE_BINS, 99 },
                },
                .n_distributions = 2,
                .cost_requests = 11,
                .cost_contention = ABSENT,
                .cost_storage = ABSENT,
                .cost_network = ABSENT,
        };
        static TotalObjective objective = { "slow", 0.99, { 7, 9 } };
        static const struct {
                const char *control_group, *expected;
        } slices[] = {
                { "/system.slice/x.service/inner.service",   "\"slice\":\"system.slice\"," },
                { "/a.slice/a-b.slice/x.scope",              "\"slice\":\"a-b.slice\","   },
                { "/a.slice/a@1.service/system.slice/x",     "\"slice\":\"a.slice\","     },
                { "/a.slice/a-b.slice",                      "\"slice\":\"a.slice\","     },
                { "/system.slice",                           "\"slice\":\"-.slice\","     },
                { "/.slice/x",                               "\"slice\":\"-.slice\","     },
                { NULL,                                      ""                           },
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *with = NULL;
        _cleanup_free_ char *text = NULL, *text_with = NULL;

        metrics_set_absent(&t.snapshot.totals);
        t.snapshot.totals.requests.server.count = 9;
        t.snapshot.totals.requests.server.rate = 0.5;
        t.snapshot.totals.requests.server.latency.p99 = 77;
        t.snapshot.totals.requests.server.in_flight = 3;
        t.snapshot.totals.requests.client.in_flight = 0;

        check(totals_to_text(identity_of(&unit), &t, &text) >= 0);
        check(sd_json_parse(text, 0, &v, NULL, NULL) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_METHOD, "Export"), SD_VARLINK_OUTPUT, v));
        check_text(v,
                   "{\"unit\":{\"name\":\"a.service\",\"slice\":\"system.slice\",\"activeState\":\"active\","
                   "\"attachedSince\":1763683200000000,\"seq\":5,\"timestamp\":6,"
                   "\"totals\":{\"requests.server.count\":9},"
                   "\"gauges\":{\"requests.server.inFlight\":3,\"requests.client.inFlight\":0},"
                   "\"histograms\":["
                   "{\"metric\":\"requests.server.latency\",\"schema\":5,\"sum\":1234,"
                   "\"indexes\":[-704,0,1,193],\"counts\":[2,5,1,1],\"count\":9},"
                   "{\"metric\":\"requests.server.queue\",\"schema\":3,\"sum\":99,"
                   "\"indexes\":[48],\"counts\":[4],\"count\":4}],"
                   "\"cost\":{\"requests\":11},"
                   "\"drops\":7}}");

        t.objectives = &objective;
        t.n_objectives = 1;
        check(totals_to_text(identity_of(&unit), &t, &text_with) >= 0);
        check(sd_json_parse(text_with, 0, &with, NULL, NULL) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_METHOD, "Export"), SD_VARLINK_OUTPUT, with));
        with = sd_json_variant_unref(with);
        check(strstr(text_with, "{\"threshold\":\"slow\",\"target\":"));
        check(strstr(text_with, ",\"good\":7,\"total\":9}]"));

        for (size_t i = 0; i < ELEMENTSOF(slices); i++) {
                _cleanup_free_ char *with_slice = NULL, *expected = NULL;
                Unit u = unit;

                u.control_group = (char*) slices[i].control_group;
                check(totals_to_text(identity_of(&u), &t, &with_slice) >= 0);
                check(asprintf(&expected, "\"a.service\",%s\"activeState\"", slices[i].expected) > 0);
                check(strstr(with_slice, expected));
        }
}

/* In both forms. */
static sd_json_variant* check_holds(const char *expected) {
        _cleanup_free_ char *text = NULL, *whole = NULL;
        sd_json_variant *v, *holds;

        check(asprintf(&whole, "{\"holds\":%s}", expected) > 0);
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_json_writer_ JsonWriter w;

                json_writer_begin(&w, i > 0);
                holds_write(unit.holds, 1000, &w);
                check((i > 0 ? json_writer_finish_text(&w, &text) : json_writer_finish_variant(&w, &v)) >=
                      0);
        }
        check(streq(text, whole));
        check_text(v, whole);
        holds = sd_json_variant_ref(sd_json_variant_by_key(v, "holds"));
        sd_json_variant_unref(v);
        return holds;
}

static void test_holds(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *none = NULL;
        char owner[] = "varlink, process 17";
        Hold over = { .type = HOLD_ADMINISTRATOR, .probes = PROBE_REQUESTS, .uid = 0, .expires = 900 };
        Hold lease = { .type = HOLD_LEASE, .probes = PROBE_REQUESTS, .excludes = { { { .text =
                        "http:/healthz" }, { .text = "port:9100" } }, 2 }, .uid = 1000, .owner = owner,
                        .expires = USEC_INFINITY, .next = &over };
        Hold timed = { .type = HOLD_ADMINISTRATOR, .probes = 0, .uid = 0, .expires = 1500, .next = &lease };
        const sd_varlink_symbol *symbol = idl_find(SD_VARLINK_STRUCT_TYPE, "Hold");

        none = check_holds("[]");

        unit.holds = &timed;
        v = check_holds("[{\"type\":\"administrator\",\"probes\":[],\"uid\":0,\"remaining\":500000},"
                        "{\"type\":\"lease\","
                        "\"probes\":[\"requests\"],"
                        "\"exclude\":[\"http:/healthz\",\"port:9100\"],\"uid\":1000,\"owner\":\"varlink, "
                        "process 17\"},"
                        "{\"type\":\"administrator\",\"probes\":[\"requests\"],\"uid\":0,\"remaining\":0}]");
        unit.holds = NULL;
        for (size_t i = 0; i < sd_json_variant_elements(v); i++)
                check(idl_matches(symbol, SD_VARLINK_REGULAR, sd_json_variant_by_index(v, i)));
}

static Row make_row(RowKind kind, uint8_t last, uint16_t port) {
        Row row = {
                .kind = kind,
                .address = { 127, 0, 0, last },
                .port = port,
                .family = AF_INET,
                .measured = true,
                .count = 1,
                .rate = 0.5,
                .errors_reset = 2,
                .errors_timeout = 3,
                .errors_status5xx = 10,
                .errors_replies = 11,
                .aborts = 4,
                .in_flight = 5,
                .bytes_in = 6,
                .bytes_out = 7,
                .quality = QUALITY_PARTIAL,
                .unparsed = { 1, 2, 0.5 },
                .retransmits = 12,
                .rtt = 13,
        };

        distribution_set_absent(&row.latency);
        row.latency.count = 8;
        row.latency.mean = 9;
        return row;
}

/* Endpoints and peers have metrics of their own, as far as known. Peers are left out for users that may not
 * see them. */
static void test_rows(void) {
        static const char figures[] =
                "\"count\":1,"
                "\"rate\":5.000000000000000000000e-01,"
                "\"errors\":{\"reset\":2,\"timeout\":3%s},\"%s\":4,\"inFlight\":5,"
                                      "\"latency\":{\"count\":8,\"mean\":9},\"bytesIn\":6,\"bytesOut\":7,"
                                      "\"retransmits\":12,\"rtt\":13";
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *hidden = NULL, *none = NULL;
        char other_name[] = "b.service", server[256], client[256], expected[1024];
        struct qos_unit_map *view = new0(struct qos_unit_map, 1);
        Manager *manager = new0(Manager, 1);
        Unit other = { .manager = manager, .name = other_name, .view = view };
        Snapshot s = make_snapshot();

        check(view && manager);
        manager->units.slots[3] = &other;
        unit.manager = manager;
        view->names[0] = (struct qos_peer_key) { .kind = QOS_ENTRY_ENDPOINT,
                                                 .address = { .port = 6379, .family = AF_INET } };
        (void) snprintf(server, sizeof(server), figures, "", "clientAborts");
        (void) snprintf(client, sizeof(client), figures, ",\"status5xx\":10,\"replies\":11", "aborts");

        none = to_json(&s);
        check(!by_path(none, "requests"));

        s.rows[s.n_rows++] = make_row(ROW_ENDPOINT, 1, 80);
        s.rows[s.n_rows++] = make_row(ROW_EXCLUDED, 2, 9100);
        s.rows[s.n_rows] = make_row(ROW_ENDPOINT, 0, 0);
        s.rows[s.n_rows++].rest = true;
        s.rows[s.n_rows++] = make_row(ROW_PEER, 1, 6379);
        s.rows[s.n_rows] = make_row(ROW_PEER, 1, 6380);
        s.rows[s.n_rows].count = ABSENT; /* requests overlap */
        s.rows[s.n_rows].rate = NAN;
        s.rows[s.n_rows].latency.count = s.rows[s.n_rows].latency.mean = ABSENT;
        s.n_rows++;
        s.rows[s.n_rows] = make_row(ROW_PEER, 0, 0);
        s.rows[s.n_rows++].rest = true;
        /* There is an object that contains them */
        s.metrics.requests.server.count = 1;
        s.metrics.requests.client.count = 1;

        v = to_json(&s);
        (void) snprintf(expected, sizeof(expected),
                        "[{\"listen\":\"127.0.0.1:80\","
                        "%s},{\"listen\":\"127.0.0.2:9100\",\"excluded\":true,%s},{\"rest\":true,%s}]",
                        server, server, server);
        check_text(by_path(v, "requests.server.endpoints"), expected);
        (void) snprintf(expected, sizeof(expected),
                        "[{\"peer\":\"127.0.0.1:6379\",\"unit\":\"b.service\",%s},"
                        "{\"peer\":\"127.0.0.1:6380\","
                        "\"errors\":{\"reset\":2,\"timeout\":3,\"status5xx\":10,\"replies\":11},"
                        "\"aborts\":4,\"inFlight\":5,\"bytesIn\":6,\"bytesOut\":7,\"retransmits\":12,"
                        "\"rtt\":13},"
                        "{\"rest\":true,%s}]", client, client);
        check_text(by_path(v, "requests.client.peers"), expected);

        check(snapshot_to_json(identity_of(&unit), &s, false, &hidden) >= 0);
        check(by_path(hidden, "requests.server.endpoints") && by_path(hidden, "requests.client.count"));
        check(!by_path(hidden, "requests.client.peers"));

        /* In windows without their metrics only their existence is known */
        for (size_t i = 0; i < s.n_rows; i++)
                s.rows[i].measured = false;
        sd_json_variant_unref(v);
        v = to_json(&s);
        check_text(by_path(v, "requests.server.endpoints"),
                   "[{\"listen\":\"127.0.0.1:80\"},"
                   "{\"listen\":\"127.0.0.2:9100\",\"excluded\":true},{\"rest\":true}]");

        unit.manager = NULL;
        free(view);
        free(manager);
}

/* As a metric of its own an endpoint has the same value as in a reading. */
/* All counters of a device in the order of the metric table; its name, or that it stands for all others; its
 * share. */
static void test_devices(void) {
        static const char expected[] =
                "[{\"device\":\"sda\",\"reads\":1,\"writes\":2,\"flushes\":3,\"discards\":4,"
                "\"merges\":9,"
                "\"readBytes\":10,\"writeBytes\":20,\"discardBytes\":40,\"queueTime\":5,\"deviceTime\":6,"
                "\"share\":5.000000000000000000000e-01},"
                "{\"rest\":true,\"reads\":0,\"writes\":7,\"flushes\":0,\"discards\":0,"
                "\"merges\":0,"
                "\"readBytes\":0,\"writeBytes\":0,\"discardBytes\":0,\"queueTime\":0,\"deviceTime\":0}]";
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *others = NULL;
        Snapshot s = make_snapshot();

        s.metrics.contention.block.sectors = 8;
        s.devices[0] = (BlockDevice) {
                .name = "sda",
                .counts = {
                        .operations = { [QOS_BLOCK_READS] = 1, [QOS_BLOCK_WRITES] = 2,
                                        [QOS_BLOCK_FLUSHES] = 3, [QOS_BLOCK_DISCARDS] = 4 },
                        .sums = { [QOS_BLOCK_BYTES + QOS_BLOCK_READS] = 10,
                                  [QOS_BLOCK_BYTES + QOS_BLOCK_WRITES] = 20,
                                  [QOS_BLOCK_BYTES + QOS_BLOCK_DISCARDS] = 40,
                                  [QOS_BLOCK_QUEUE_NSEC] = 5,
                                  [QOS_BLOCK_DEVICE_NSEC] = 6,
                                  [QOS_BLOCK_MERGES] = 9 },
                },
                .share = 0.5,
        };
        s.devices[1] = (BlockDevice) { .counts.operations[QOS_BLOCK_WRITES] = 7, .share = NAN };
        s.n_devices = 2;

        v = to_json(&s);
        check_text(by_path(v, "contention.block.devices"), expected);

        /* Not for users that may not see peers */
        check(snapshot_to_json(identity_of(&unit), &s, false, &others) >= 0);
        check(by_path(others, "contention.block.sectors") && !by_path(others, "contention.block.devices"));
}

/* Metrics of a file system by its name, for users that may see peers. */
static void test_mounts(void) {
        static const char expected[] =
                "[{\"mount\":\"/srv\",\"type\":\"ext4\",\"device\":\"8:1\","
                "\"reads\":{\"count\":1,\"errors\":2,\"bytes\":3,\"latency\":{\"count\":1,\"mean\":5}},"
                "\"opens\":{\"count\":7,\"errors\":0},\"changes\":{\"count\":0,\"errors\":0},"
                "\"machineRoundTrips\":9,\"machineRoundTripTime\":1000000},"
                "{\"rest\":true,\"opens\":{\"count\":0,\"errors\":0},"
                "\"changes\":{\"count\":0,\"errors\":0}}]";
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *others = NULL;
        static const StorageTimedCalls none = { .calls = { ABSENT, ABSENT } };
        Snapshot s = make_snapshot();
        Selector selector;
        Metrics m;
        char metric[SELECTOR_METRIC_MAX];
        uint64_t n;

        s.metrics.storage.covered = 8;
        s.mounts[0] = (Mount) {
                .point = "/srv", .type = "ext4", .device = "8:1",
                .timed = { [QOS_STORAGE_READ] = { .calls = { 1, 2 } }, none, none },
                .bytes = { 3, ABSENT },
                .opens = { 7, 0 },
        };
        s.mounts[1] = (Mount) { .timed = { none, none, none }, .bytes = { ABSENT, ABSENT } };
        s.n_mounts = 2;
        for (size_t i = 0; i < s.n_mounts; i++) {
                for (unsigned call = 0; call < QOS_MOUNT_TIMED; call++)
                        distribution_set_absent(&s.mounts[i].timed[call].latency);
                for (unsigned call = 0; call <= QOS_STORAGE_WRITE; call++)
                        s.mounts[i].submitted[call] = (StorageRequests) { { ABSENT, ABSENT }, ABSENT,
                                                                          ABSENT };
                s.mounts[i].round_trips = i == 0 ? 9 : ABSENT;
        }
        s.mounts[0].round_trip_nsec = 1000000;
        s.mounts[0].timed[QOS_STORAGE_READ].latency.count = 1;
        s.mounts[0].timed[QOS_STORAGE_READ].latency.mean = 5;

        v = to_json(&s);
        check_text(by_path(v, "storage.mounts"), expected);
        check(snapshot_to_json(identity_of(&unit), &s, false, &others) >= 0);
        check(by_path(others, "storage.covered") && !by_path(others, "storage.mounts"));

        check(selector_parse("storage.mounts[/srv].reads.count", &selector, metric) == 0);
        mount_get_metrics(mounts_find(s.mounts, s.n_mounts, &selector), &m);
        check(metric_get_integer(metric_find(metric), &m, &n) && n == 1);
        check(!metric_get_integer(metric_find("storage.writes.count"), &m, &n));
        check(selector_parse("storage.mounts[8:1].opens.count", &selector, metric) == 0);
        mount_get_metrics(mounts_find(s.mounts, s.n_mounts, &selector), &m);
        check(metric_get_integer(metric_find(metric), &m, &n) && n == 7);
        check(selector_parse("storage.mounts[/].opens.count", &selector, metric) == 0);
        check(!mounts_find(s.mounts, s.n_mounts, &selector));
}

static void test_row_metrics(void) {
        Row rows[] = { make_row(ROW_ENDPOINT, 1, 80), make_row(ROW_PEER, 1, 80), {} };
        Metrics m;

        for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
                size_t n = 0;

                row_get_metrics(rows + i, &m);
                for (size_t k = 0; k < metric_table_size; k++) {
                        bool there = metric_is_present(metric_table + k, &m);

                        check(!there ||
                              startswith(metric_table[k].name, i == 0 ? "requests.server." :
                                         "requests.client."));
                        n += there;
                }
                /* count, rate, two errors, aborts, in flight, two of the latency, bytes in and out; of a
                 * peer two more errors, quality and three of unparsed connections */
                check(n == (i == 0 ? 10 : i == 1 ? 16 : 0));
        }
        row_get_metrics(rows, &m);
        check(m.requests.server.client_aborts == 4 && m.requests.server.latency.mean == 9 &&
              m.requests.client.count == ABSENT);
}

/* Steps of units that are observed with all probes. */
static void test_history(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        HistoryStep s = { .timestamp = 1, .covered = 10 * NSEC_PER_SEC };
        Metrics m;

        metrics_set_absent(&m);
        history_step_set_metrics(&s, &m);
        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                s.amounts[i] = 1;
        s.amounts[HISTORY_NETWORK_RTT_BINS] = 10000; /* enough for all quantiles */
        history_step_get_metrics(&s, 5, &m);
        check(history_step_to_json(&s, &m, 0, NULL, &v) >= 0);
        check(idl_matches(idl_find(SD_VARLINK_STRUCT_TYPE, "HistoryStep"), SD_VARLINK_REGULAR, v));
        check(sd_json_variant_unsigned(by_path(v, "contention.memory.majorFaults")) == 1);
        for (size_t i = 0; i < metric_table_size; i++)
                if (startswith(metric_table[i].name, "contention.") ||
                    startswith(metric_table[i].name, "storage.") ||
                    startswith(metric_table[i].name, "network."))
                        check(!!by_path(v, metric_table[i].name) == history_has_metric(metric_table + i));
}

int main(void) {
        test_rows();
        test_devices();
        test_mounts();
        test_row_metrics();
        test_absent();
        test_identity();
        test_each_metric();
        test_all_metrics();
        test_large();
        test_text();
        test_description();
        test_histogram();
        test_totals();
        test_history();
        test_holds();
        return EXIT_SUCCESS;
}
