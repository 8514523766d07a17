/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <sys/socket.h>

#include "peers.h"
#include "snapshot-json.h"

#include "record-tables.h"

/* Metrics to be written as a tree: "a.b" becomes "b" in the object "a". Metrics of an object are consecutive
 * in the table. */
typedef struct MetricTree {
        const Metric *table;
        size_t n;
        const void *values;             /* struct with the fields */
        /* For arrays of records in objects of a snapshot; NULL: not a snapshot */
        const Snapshot *snapshot;
        const UnitIdentity *unit;
        bool peers;                     /* the client may see peers and paths */
} MetricTree;

static void add_records(JsonWriter *w, const MetricTree *t, const char *object, size_t length);

static void add_metric(JsonWriter *w, const char *key, const Metric *metric, const void *values) {
        const char *s;
        uint64_t u;
        double d;

        switch (metric->type) {

        case METRIC_INTEGER:
                if (metric_get_integer(metric, values, &u))
                        json_writer_add_unsigned(w, key, u);
                break;

        case METRIC_REAL:
                if (metric_get_real(metric, values, &d))
                        json_writer_add_real(w, key, d);
                break;

        case METRIC_QUALITY:
                if (metric_get_string(metric, values, &s))
                        json_writer_add_string(w, key, s);
                break;

        default:
                abort();
        }
}

int metric_to_json(const Metric *metric, const Metrics *values, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *object = NULL;
        _cleanup_json_writer_ JsonWriter w;
        sd_json_variant *value;
        int r;

        json_writer_begin(&w, /* text= */ false);
        add_metric(&w, "value", metric, values);
        r = json_writer_finish_variant(&w, &object);
        if (r < 0)
                return r;
        value = sd_json_variant_by_key(object, "value");
        if (!value)
                return 0;
        *ret = sd_json_variant_ref(value);
        return 1;
}

/* Adds all metrics whose names have the first prefix_length characters of that of metric *index. Advances
 * *index. */
static void add_metrics(JsonWriter *w, const MetricTree *t, size_t prefix_length, size_t *index) {
        const char *prefix = t->table[*index].name;

        while (*index < t->n && strncmp(t->table[*index].name, prefix, prefix_length) == 0) {
                const Metric *metric = t->table + *index;
                const char *key = metric->name + prefix_length, *dot = strchr(key, '.');

                if (!dot) {
                        add_metric(w, key, metric, t->values);
                        (*index)++;
                        continue;
                }
                json_writer_open_object(w, key, (size_t) (dot - key));
                add_metrics(w, t, (size_t) (dot + 1 - metric->name), index);
                if (t->snapshot)
                        add_records(w, t, metric->name, (size_t) (dot - metric->name));
                json_writer_close_some(w);
        }
}

static void add_totals(JsonWriter *w, const Metrics *totals) {
        json_writer_open_object(w, "totals", strlen("totals"));
        for (const Metric *metric = metric_table; metric < metric_table + metric_table_size; metric++)
                if (metric->kind == METRIC_COUNTER)
                        add_metric(w, metric->name, metric, totals);
        json_writer_close_some(w);
}

/* Adds a number unless it is absent. */
static void add_present(JsonWriter *w, const char *key, uint64_t value) {
        if (value != ABSENT)
                json_writer_add_unsigned(w, key, value);
}

/* Adds the metrics of a record. */
#define add_record_metrics(w, metrics, record)                                                          \
        add_metrics(w, &(MetricTree) { .table = metrics, .n = ELEMENTSOF(metrics), .values = record }, 0, \
                    &(size_t) { 0 })

/* named: the client may see paths. */
static void add_row(JsonWriter *w, const Row *row, const char *unit, bool named) {
        bool peer = row->kind == ROW_PEER;
        char buffer[ADDRESS_STRING_MAX];

        json_writer_open_object(w, NULL, 0);
        if (row->rest)
                json_writer_add_boolean(w, "rest", true);
        else if (named || row->family != AF_UNIX)
                json_writer_add_string(w, peer ? "peer" : "listen", row_format_address(row, buffer));
        if (unit)
                json_writer_add_string(w, "unit", unit);
        if (row->kind == ROW_EXCLUDED)
                json_writer_add_boolean(w, "excluded", true);
        if (row->measured && peer)
                add_record_metrics(w, peer_metrics, row);
        else if (row->measured)
                add_record_metrics(w, endpoint_metrics, row);
        if (row->measured) {
                add_present(w, "retransmits", row->retransmits);
                add_present(w, "rtt", row->rtt);
        }
        json_writer_close(w);
}

/* Adds the array of endpoints, or of peers, unless it is empty. */
static void add_rows(JsonWriter *w, const MetricTree *t, bool peers) {
        json_writer_open_array(w, peers ? "peers" : "endpoints");
        for (size_t i = 0; i < t->snapshot->n_rows; i++) {
                const Row *row = t->snapshot->rows + i;

                if ((row->kind == ROW_PEER) == peers)
                        add_row(w, row, peers ? t->unit->find_listening(t->unit, row) : NULL, t->peers);
        }
        json_writer_close_some(w);
}

static void add_devices(JsonWriter *w, const Snapshot *s) {
        json_writer_open_array(w, "devices");
        for (const BlockDevice *d = s->devices; d < s->devices + s->n_devices; d++) {
                json_writer_open_object(w, NULL, 0);
                if (isempty(d->name))
                        json_writer_add_boolean(w, "rest", true);
                else
                        json_writer_add_string(w, "device", d->name);
                add_record_metrics(w, block_device_metrics, d);
                if (!__builtin_isnan(d->share))
                        json_writer_add_real(w, "share", d->share);
                json_writer_close(w);
        }
        json_writer_close_some(w);
}

static void add_mounts(JsonWriter *w, const Snapshot *s) {
        json_writer_open_array(w, "mounts");
        for (const Mount *m = s->mounts; m < s->mounts + s->n_mounts; m++) {
                json_writer_open_object(w, NULL, 0);
                if (isempty(m->device))
                        json_writer_add_boolean(w, "rest", true);
                else {
                        if (*m->point)
                                json_writer_add_string(w, "mount", m->point);
                        json_writer_add_string(w, "type", m->type);
                        json_writer_add_string(w, "device", m->device);
                }
                add_record_metrics(w, mount_metrics, m);
                if (m->round_trips != ABSENT) {
                        json_writer_add_unsigned(w, "machineRoundTrips", m->round_trips);
                        json_writer_add_unsigned(w, "machineRoundTripTime", m->round_trip_nsec);
                }
                json_writer_close(w);
        }
        json_writer_close_some(w);
}

static void add_drop_reasons(JsonWriter *w, const Snapshot *s) {
        json_writer_open_array(w, "dropReasons");
        for (const DropReason *d = s->drop_reasons; d < s->drop_reasons + s->n_drop_reasons; d++) {
                json_writer_open_object(w, NULL, 0);
                if (isempty(d->name))
                        json_writer_add_boolean(w, "rest", true);
                else
                        json_writer_add_string(w, "reason", d->name);
                json_writer_add_unsigned(w, "count", d->count);
                json_writer_close(w);
        }
        json_writer_close_some(w);
}

/* Adds the array of records in an object, if it has one. */
static void add_records(JsonWriter *w, const MetricTree *t, const char *object, size_t length) {
#define IS(path) (length == strlen(path) && strncmp(object, path, length) == 0)
        if (IS("requests.server"))
                add_rows(w, t, /* peers= */ false);
        else if (IS("requests.client") && t->peers)
                add_rows(w, t, /* peers= */ true);
        else if (IS("contention.block") && t->peers)
                add_devices(w, t->snapshot);
        else if (IS("storage") && t->peers)
                add_mounts(w, t->snapshot);
        else if (IS("network"))
                add_drop_reasons(w, t->snapshot);
#undef IS
}

static void add_lifecycle(JsonWriter *w, const Lifecycle *l) {
        char ended[LIFECYCLE_EXIT_MAX];

        if (l->sub_state[0])
                json_writer_add_string(w, "subState", l->sub_state);
        if (l->result[0])
                json_writer_add_string(w, "result", l->result);
        add_present(w, "restarts", l->restarts);
        if (lifecycle_format_exit(l, ended))
                json_writer_add_string(w, "lastExit", ended);
        if (l->freezer_state[0])
                json_writer_add_string(w, "freezerState", l->freezer_state);
}

void snapshot_write(const UnitIdentity *u, const Snapshot *s, bool peers, JsonWriter *w) {
        const MetricTree tree = {
                .table = metric_table,
                .n = metric_table_size,
                .values = &s->metrics,
                .snapshot = s,
                .unit = u,
                .peers = peers,
        };
        size_t index = 0;

        json_writer_add_string(w, "unit", u->name);
        if (u->control_group)
                json_writer_add_string(w, "controlGroup", u->control_group);
        if (!sd_id128_is_null(u->invocation_id))
                json_writer_add_string(w, "invocationId", SD_ID128_TO_STRING(u->invocation_id));
        json_writer_add_string(w, "activeState", u->active_state);
        add_lifecycle(w, u->lifecycle);
        json_writer_add_unsigned(w, "attachedSince", u->attached_since / NSEC_PER_USEC);
        json_writer_add_unsigned(w, "seq", s->seq);
        json_writer_add_unsigned(w, "timestamp", s->timestamp / NSEC_PER_USEC);
        if (s->window != WINDOW_TOTAL)
                json_writer_add_unsigned(w, "window", s->window);
        json_writer_add_unsigned(w, "covered", s->covered);
        add_metrics(w, &tree, 0, &index);
        add_totals(w, &s->totals);
        /* NaN: not measured */
        if (!__builtin_isnan(s->cost_share)) {
                json_writer_open_object(w, "cost", strlen("cost"));
                json_writer_add_real(w, "share", s->cost_share);
                json_writer_close(w);
        }
        json_writer_add_unsigned(w, "drops", s->drops);
}

int snapshot_to_json(const UnitIdentity *u, const Snapshot *s, bool peers, sd_json_variant **ret) {
        _cleanup_json_writer_ JsonWriter w;

        json_writer_begin(&w, /* text= */ false);
        snapshot_write(u, s, peers, &w);
        return json_writer_finish_variant(&w, ret);
}

int snapshot_to_text(const UnitIdentity *u, const Snapshot *s, bool peers, char **ret) {
        _cleanup_json_writer_ JsonWriter w;

        json_writer_begin(&w, /* text= */ true);
        snapshot_write(u, s, peers, &w);
        return json_writer_finish_text(&w, ret);
}

/* Current values. All other gauges are values over a window. */
static const char *const exported_gauges[] = {
        "requests.server.inFlight",
        "requests.server.oldestInFlight",
        "requests.server.waiting",
        "requests.server.oldestWaiting",
        "requests.server.connections.open",
        "requests.server.connections.acceptQueue",
        "requests.server.connections.acceptQueueMax",
        "requests.client.inFlight",
        "storage.inFlight",
        "storage.oldestInFlight",
};

static void add_gauges(JsonWriter *w, const Metrics *values) {
        json_writer_open_object(w, "gauges", strlen("gauges"));
        for (size_t i = 0; i < ELEMENTSOF(exported_gauges); i++)
                add_metric(w, exported_gauges[i], ASSERT_PTR(metric_find(exported_gauges[i])), values);
        json_writer_close_some(w);
}

void exported_bins_write(JsonWriter *w, int schema, const uint64_t *bins, uint64_t sum) {
        unsigned n = window_bins_number(schema);
        uint64_t count = 0;

        json_writer_add_integer(w, "schema", schema);
        json_writer_add_unsigned(w, "sum", sum);
        json_writer_open_array(w, "indexes");
        for (unsigned i = 0; i < n; i++)
                if (bins[i] > 0)
                        json_writer_add_integer(w, NULL, window_bins_get_index(schema, i));
        json_writer_close(w);
        json_writer_open_array(w, "counts");
        for (unsigned i = 0; i < n; i++)
                if (bins[i] > 0) {
                        json_writer_add_unsigned(w, NULL, bins[i]);
                        count += bins[i];
                }
        json_writer_close(w);
        json_writer_add_unsigned(w, "count", count);
}

static void add_total_distribution(JsonWriter *w, const TotalDistribution *d) {
        json_writer_open_object(w, NULL, 0);
        json_writer_add_string(w, "metric", d->metric);
        exported_bins_write(w, d->schema, d->bins, d->sum);
        json_writer_close(w);
}

/* Adds the innermost slice at the beginning of the path, as in systemd: groups within a unit may have any
 * name. */
static void add_slice(JsonWriter *w, const char *control_group) {
        _cleanup_free_ char *slice = NULL;
        const char *found = NULL, *next;
        size_t length = 0;

        for (const char *p = control_group; p && *p == '/'; p = next) {
                next = strchrnul(++p, '/');
                if (*next != '/' || next - p <= (ptrdiff_t) strlen(".slice") ||
                    memcmp(next - strlen(".slice"), ".slice", strlen(".slice")) != 0)
                        break;
                found = p;
                length = (size_t) (next - p);
        }
        if (!control_group)
                return;
        slice = found ? strndup(found, length) : strdup("-.slice");
        if (slice)
                json_writer_add_string(w, "slice", slice);
}

/* Without peers and paths, as any user may read an export. */
static void add_tables(JsonWriter *w, const Snapshot *s) {
        json_writer_open_array(w, "endpoints");
        for (size_t i = 0; i < s->n_rows; i++)
                if (s->rows[i].kind == ROW_ENDPOINT && s->rows[i].family != AF_UNIX)
                        add_row(w, s->rows + i, /* unit= */ NULL, /* named= */ false);
        json_writer_close_some(w);
        add_devices(w, s);
        add_mounts(w, s);
        add_drop_reasons(w, s);
}

int totals_to_text(const UnitIdentity *u, const UnitTotals *t, char **ret) {
        _cleanup_json_writer_ JsonWriter w;

        json_writer_begin(&w, /* text= */ true);
        json_writer_open_object(&w, "unit", strlen("unit"));
        json_writer_add_string(&w, "name", u->name);
        add_slice(&w, u->control_group);
        json_writer_add_string(&w, "activeState", u->active_state);
        json_writer_add_unsigned(&w, "attachedSince", u->attached_since / NSEC_PER_USEC);
        json_writer_add_unsigned(&w, "seq", t->snapshot.seq);
        json_writer_add_unsigned(&w, "timestamp", t->snapshot.timestamp / NSEC_PER_USEC);
        add_totals(&w, &t->snapshot.totals);
        add_gauges(&w, &t->snapshot.totals);
        json_writer_open_array(&w, "histograms");
        for (size_t i = 0; i < t->n_distributions; i++)
                add_total_distribution(&w, t->distributions + i);
        json_writer_close(&w);
        json_writer_open_array(&w, "objectives");
        for (size_t i = 0; i < t->n_objectives; i++) {
                json_writer_open_object(&w, NULL, 0);
                json_writer_add_string(&w, "threshold", t->objectives[i].threshold);
                json_writer_add_real(&w, "target", t->objectives[i].target);
                json_writer_add_unsigned(&w, "good", t->objectives[i].counts.good);
                json_writer_add_unsigned(&w, "total", t->objectives[i].counts.total);
                json_writer_close(&w);
        }
        json_writer_close_some(&w);
        json_writer_open_object(&w, "cost", strlen("cost"));
        if (t->cost_requests != ABSENT)
                json_writer_add_unsigned(&w, "requests", t->cost_requests);
        if (t->cost_contention != ABSENT)
                json_writer_add_unsigned(&w, "contention", t->cost_contention);
        if (t->cost_storage != ABSENT)
                json_writer_add_unsigned(&w, "storage", t->cost_storage);
        if (t->cost_network != ABSENT)
                json_writer_add_unsigned(&w, "network", t->cost_network);
        json_writer_close_some(&w);
        json_writer_add_unsigned(&w, "drops", t->snapshot.drops);
        if (t->custom)
                json_writer_add_variant(&w, "custom", t->custom);
        if (t->tables)
                add_tables(&w, &t->snapshot);
        json_writer_close(&w);
        return json_writer_finish_text(&w, ret);
}

static int buckets_to_json(const Histogram *h, sd_json_variant **ret) {
        sd_json_variant **buckets;
        size_t n = 0;
        int r = 0;

        /* A single array, as appending would copy it each time */
        buckets = new0(sd_json_variant*, h->n_buckets);
        if (!buckets)
                return -ENOMEM;

        for (; n < h->n_buckets; n++) {
                const HistogramBucket *b = h->buckets + n;

                r = sd_json_buildo(buckets + n,
                                   SD_JSON_BUILD_PAIR_UNSIGNED("lower", b->lower),
                                   SD_JSON_BUILD_PAIR_CONDITION(b->upper != UINT64_MAX, "upper",
                                                                SD_JSON_BUILD_UNSIGNED(b->upper)),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("count", b->count));
                if (r < 0)
                        break;
        }
        if (r >= 0)
                r = sd_json_variant_new_array(ret, buckets, n);

        json_unref_all(buckets, n);
        free(buckets);
        return r;
}

int histogram_to_json(const char *unit, const char *metric, const Histogram *h, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *buckets = NULL;
        int r;

        r = buckets_to_json(h, &buckets);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("unit", unit),
                              SD_JSON_BUILD_PAIR_STRING("metric", metric),
                              SD_JSON_BUILD_PAIR_UNSIGNED("seq", h->seq),
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", h->timestamp / NSEC_PER_USEC),
                              SD_JSON_BUILD_PAIR_CONDITION(h->window != WINDOW_TOTAL, "window",
                                                           SD_JSON_BUILD_UNSIGNED(h->window)),
                              SD_JSON_BUILD_PAIR_UNSIGNED("covered", h->covered),
                              SD_JSON_BUILD_PAIR_INTEGER("schema", h->schema),
                              SD_JSON_BUILD_PAIR_UNSIGNED("count", h->count),
                              SD_JSON_BUILD_PAIR_UNSIGNED("sum", h->sum),
                              SD_JSON_BUILD_PAIR_VARIANT("buckets", buckets));
}

static int bins_to_json(const char *metric, const WindowBins *b, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        sd_json_variant *counts[WINDOW_BINS_MAX];
        unsigned first = WINDOW_BINS_MAX, last = 0;
        uint64_t count = 0;
        size_t n = 0;
        int r = 0;

        for (unsigned i = 0; i < window_bins_number(b->schema); i++)
                if (b->count[i] > 0) {
                        first = MIN(first, i);
                        last = i;
                        count += b->count[i];
                }

        for (unsigned i = first; i <= last && r >= 0; i++) {
                r = sd_json_variant_new_unsigned(counts + n, b->count[i]);
                if (r >= 0)
                        n++;
        }
        if (r >= 0)
                r = sd_json_variant_new_array(&array, counts, n);
        json_unref_all(counts, n);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("metric", metric),
                              SD_JSON_BUILD_PAIR_INTEGER("schema", b->schema),
                              SD_JSON_BUILD_PAIR_UNSIGNED("count", count),
                              SD_JSON_BUILD_PAIR_UNSIGNED("sum", b->sum),
                              SD_JSON_BUILD_PAIR_CONDITION(n > 0, "offset",
                                                           SD_JSON_BUILD_INTEGER(
                                                                   window_bins_get_index(b->schema, first))),
                              SD_JSON_BUILD_PAIR_VARIANT("counts", array));
}

int history_step_to_json(const HistoryStep *s, const Metrics *metrics, unsigned wanted,
                         sd_json_variant *values, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        const MetricTree tree = { .table = metric_table, .n = metric_table_size, .values = metrics };
        sd_json_variant *histograms[HISTORY_DISTRIBUTIONS];
        _cleanup_json_writer_ JsonWriter w;
        size_t index = 0, n = 0;
        int r = 0;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS && r >= 0; i++) {
                if (!(wanted & 1U << i) || !history_step_has_distribution(s, i))
                        continue;
                r = bins_to_json(history_distribution_name(i), &s->distributions[i], histograms + n);
                if (r >= 0)
                        n++;
        }
        if (r >= 0 && n > 0)
                r = sd_json_variant_new_array(&array, histograms, n);
        json_unref_all(histograms, n);
        if (r < 0)
                return r;

        json_writer_begin(&w, /* text= */ false);
        json_writer_add_unsigned(&w, "timestamp", s->timestamp / NSEC_PER_USEC);
        json_writer_add_unsigned(&w, "covered", s->covered);
        add_metrics(&w, &tree, 0, &index);
        if (array)
                json_writer_add_variant(&w, "histograms", array);
        if (values)
                json_writer_add_variant(&w, "values", values);
        return json_writer_finish_variant(&w, ret);
}

int threshold_value_to_json(const Metric *metric, double value, sd_json_variant **ret) {
        if (metric->type == METRIC_INTEGER)
                return sd_json_variant_new_unsigned(ret, (uint64_t) llround(value));
        return sd_json_variant_new_real(ret, value);
}
