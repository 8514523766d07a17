/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <sys/socket.h>

#include "json.h"
#include "peers.h"

/* The most keys that one object of a snapshot has. More would be a bug, that test-json finds: it is a matter of
 * dbus/ alone. */
#define KEYS_MAX 192

typedef struct Object {
        sd_json_variant *pairs[KEYS_MAX * 2];
        size_t n;
} Object;

static void object_done(Object *o) {
        json_unref_all(o->pairs, o->n);
}
#define _cleanup_object_ _cleanup_(object_done)

/* Consumes value. */
static int object_add(Object *o, const char *key, size_t key_length, sd_json_variant *value) {
        int r;

        assert(o->n < ELEMENTSOF(o->pairs));

        r = sd_json_variant_new_stringn(o->pairs + o->n, key, key_length);
        if (r < 0) {
                sd_json_variant_unref(value);
                return r;
        }

        o->pairs[o->n + 1] = value;
        o->n += 2;
        return 0;
}

static int object_add_unsigned(Object *o, const char *key, uint64_t value) {
        sd_json_variant *v;
        int r;

        r = sd_json_variant_new_unsigned(&v, value);
        if (r < 0)
                return r;

        return object_add(o, key, strlen(key), v);
}

static int object_add_string(Object *o, const char *key, const char *value) {
        sd_json_variant *v;
        int r;

        r = sd_json_variant_new_string(&v, value);
        if (r < 0)
                return r;

        return object_add(o, key, strlen(key), v);
}

/* Adds the object under the key, unless it is empty. */
static int object_add_object(Object *o, const char *key, size_t key_length, Object *value) {
        sd_json_variant *v;
        int r;

        if (value->n == 0)
                return 0;

        r = sd_json_variant_new_object(&v, value->pairs, value->n);
        if (r < 0)
                return r;

        return object_add(o, key, key_length, v);
}

int metric_to_json(const Metric *metric, const Metrics *values, sd_json_variant **ret) {
        const char *s;
        uint64_t u;
        double d;
        int r;

        switch (metric->type) {

        case METRIC_INTEGER:
                if (!metric_get_integer(metric, values, &u))
                        return 0;
                r = sd_json_variant_new_unsigned(ret, u);
                break;

        case METRIC_REAL:
                if (!metric_get_real(metric, values, &d))
                        return 0;
                r = sd_json_variant_new_real(ret, d);
                break;

        case METRIC_QUALITY:
                if (!metric_get_string(metric, values, &s))
                        return 0;
                r = sd_json_variant_new_string(ret, s);
                break;

        default:
                abort();
        }

        return r < 0 ? r : 1;
}

/* What goes beside the metrics into one of their objects. */
typedef struct Rows {
        const Unit *unit;
        const Snapshot *snapshot;
        bool peers;             /* whether who asks may know these, and paths */
} Rows;

static int object_add_rows(Object *o, const Rows *rows, bool peers);
static int object_add_devices(Object *o, const Snapshot *s);

/* Adds all metrics whose names begin with the first prefix_length characters of that of *index, as a tree: "a.b" goes
 * into the object "a" as "b". They stand together in the table, *index is moved past them. */
static int object_add_metrics(Object *o, const Metrics *values, const Rows *rows, size_t prefix_length, size_t *index) {
        const char *prefix = metric_table[*index].name;
        int r;

        while (*index < metric_table_size && strncmp(metric_table[*index].name, prefix, prefix_length) == 0) {
                const Metric *metric = metric_table + *index;
                const char *key = metric->name + prefix_length, *dot = strchr(key, '.');

                if (dot) {
                        _cleanup_object_ Object child = {};

                        r = object_add_metrics(&child, values, rows, dot + 1 - metric->name, index);
                        if (r >= 0 && rows && startswith(key, "server."))
                                r = object_add_rows(&child, rows, /* peers= */ false);
                        if (r >= 0 && rows && rows->peers && startswith(key, "client."))
                                r = object_add_rows(&child, rows, /* peers= */ true);
                        if (r >= 0 && rows && rows->peers && startswith(key, "block."))
                                r = object_add_devices(&child, rows->snapshot);
                        if (r < 0)
                                return r;

                        r = object_add_object(o, key, dot - key, &child);
                } else {
                        sd_json_variant *v;

                        r = metric_to_json(metric, values, &v);
                        if (r > 0)
                                r = object_add(o, key, strlen(key), v);

                        (*index)++;
                }
                if (r < 0)
                        return r;
        }

        return 0;
}

static int object_add_totals(Object *o, const Metrics *totals) {
        _cleanup_object_ Object child = {};
        int r;

        for (const Metric *metric = metric_table; metric < metric_table + metric_table_size; metric++) {
                sd_json_variant *v;

                if (metric->kind != METRIC_COUNTER)
                        continue;

                r = metric_to_json(metric, totals, &v);
                if (r > 0)
                        r = object_add(&child, metric->name, strlen(metric->name), v);
                if (r < 0)
                        return r;
        }

        return object_add_object(o, "totals", strlen("totals"), &child);
}

static int object_add_cost(Object *o, double share) {
        _cleanup_object_ Object child = {};
        sd_json_variant *v;
        int r;

        /* The only figure that is not a number is the one that there is none of */
        if (__builtin_isnan(share))
                return 0;

        r = sd_json_variant_new_real(&v, share);
        if (r < 0)
                return r;

        r = object_add(&child, "share", strlen("share"), v);
        if (r < 0)
                return r;

        return object_add_object(o, "cost", strlen("cost"), &child);
}

/* Adds a number unless it is absent. */
static int object_add_present(Object *o, const char *key, uint64_t value) {
        return value == ABSENT ? 0 : object_add_unsigned(o, key, value);
}

static int distribution_to_object(const Distribution *d, Object *o) {
        int r;

        r = object_add_present(o, "count", d->count);
        if (r >= 0)
                r = object_add_present(o, "mean", d->mean);
        for (size_t i = 0; i < QUANTILES && r >= 0; i++)
                r = object_add_present(o, quantile_table[i].name, distribution_get_quantile(d, quantile_table + i));
        if (r >= 0)
                r = object_add_present(o, "max", d->max);
        return r;
}

/* named: who asks may know paths, too. */
static int row_to_json(const Row *row, const char *unit, bool named, sd_json_variant **ret) {
        _cleanup_object_ Object o = {}, errors = {}, latency = {};
        bool peer = row->kind == ROW_PEER;
        char buffer[ADDRESS_STRING_MAX];
        sd_json_variant *v;
        int r = 0;

        if (row->rest) {
                r = sd_json_variant_new_boolean(&v, true);
                if (r >= 0)
                        r = object_add(&o, "rest", strlen("rest"), v);
        } else if (named || row->family != AF_UNIX)
                r = object_add_string(&o, peer ? "peer" : "listen", row_format_address(row, buffer));
        if (r >= 0 && unit)
                r = object_add_string(&o, "unit", unit);
        if (r >= 0 && row->kind == ROW_EXCLUDED) {
                r = sd_json_variant_new_boolean(&v, true);
                if (r >= 0)
                        r = object_add(&o, "excluded", strlen("excluded"), v);
        }
        if (r >= 0 && row->measured) {
                r = object_add_present(&o, "count", row->count);
                if (r >= 0 && !__builtin_isnan(row->rate)) {
                        r = sd_json_variant_new_real(&v, row->rate);
                        if (r >= 0)
                                r = object_add(&o, "rate", strlen("rate"), v);
                }
                if (row->errors_reset != ABSENT) {
                        if (r >= 0)
                                r = object_add_unsigned(&errors, "reset", row->errors_reset);
                        if (r >= 0)
                                r = object_add_present(&errors, "timeout", row->errors_timeout);
                        if (r >= 0)
                                r = object_add_object(&o, "errors", strlen("errors"), &errors);
                }
                if (r >= 0)
                        r = object_add_present(&o, peer ? "aborts" : "clientAborts", row->aborts);
                if (r >= 0)
                        r = object_add_unsigned(&o, "inFlight", row->in_flight);
                if (r >= 0)
                        r = distribution_to_object(&row->latency, &latency);
                if (r >= 0)
                        r = object_add_object(&o, "latency", strlen("latency"), &latency);
                if (r >= 0)
                        r = object_add_present(&o, "bytesIn", row->bytes_in);
                if (r >= 0)
                        r = object_add_present(&o, "bytesOut", row->bytes_out);
        }
        if (r < 0)
                return r;

        return sd_json_variant_new_object(ret, o.pairs, o.n);
}

/* The endpoints, or the peers. Adds nothing if there are none. */
static int object_add_rows(Object *o, const Rows *from, bool peers) {
        const Snapshot *s = from->snapshot;
        sd_json_variant *rows[SNAPSHOT_ROWS_MAX], *v;
        size_t n = 0;
        int r = 0;

        for (size_t i = 0; i < s->n_rows && r >= 0; i++) {
                const Row *row = s->rows + i;

                if ((row->kind == ROW_PEER) != peers)
                        continue;
                r = row_to_json(row, peers ? unit_find_listening(from->unit, row) : NULL, from->peers, rows + n);
                if (r >= 0)
                        n++;
        }
        if (r >= 0 && n > 0) {
                r = sd_json_variant_new_array(&v, rows, n);
                if (r >= 0)
                        r = object_add(o, peers ? "peers" : "endpoints", strlen(peers ? "peers" : "endpoints"), v);
        }
        json_unref_all(rows, n);
        return r;
}

static int device_to_json(const BlockDevice *d, sd_json_variant **ret) {
        const struct {
                const char *key;
                uint64_t value;
        } fields[] = {
                { "reads",        d->counts.operations[QOS_BLOCK_READS]    },
                { "writes",       d->counts.operations[QOS_BLOCK_WRITES]   },
                { "flushes",      d->counts.operations[QOS_BLOCK_FLUSHES]  },
                { "discards",     d->counts.operations[QOS_BLOCK_DISCARDS] },
                { "readBytes",    d->counts.bytes[QOS_BLOCK_READS]         },
                { "writeBytes",   d->counts.bytes[QOS_BLOCK_WRITES]        },
                { "discardBytes", d->counts.bytes[QOS_BLOCK_DISCARDS]      },
                { "queueTime",    d->counts.queue_time                     },
                { "deviceTime",   d->counts.device_time                    },
        };
        _cleanup_object_ Object o = {};
        sd_json_variant *v;
        int r;

        if (isempty(d->name)) {
                r = sd_json_variant_new_boolean(&v, true);
                if (r >= 0)
                        r = object_add(&o, "rest", strlen("rest"), v);
        } else
                r = object_add_string(&o, "device", d->name);
        for (size_t i = 0; i < ELEMENTSOF(fields) && r >= 0; i++)
                r = object_add_unsigned(&o, fields[i].key, fields[i].value);
        if (r >= 0 && !__builtin_isnan(d->share)) {
                r = sd_json_variant_new_real(&v, d->share);
                if (r >= 0)
                        r = object_add(&o, "share", strlen("share"), v);
        }
        if (r < 0)
                return r;

        return sd_json_variant_new_object(ret, o.pairs, o.n);
}

static int object_add_devices(Object *o, const Snapshot *s) {
        sd_json_variant *devices[QOS_BLOCK_ROWS], *v;
        size_t n = 0;
        int r = 0;

        while (n < s->n_devices && r >= 0) {
                r = device_to_json(s->devices + n, devices + n);
                if (r >= 0)
                        n++;
        }
        if (r >= 0 && n > 0) {
                r = sd_json_variant_new_array(&v, devices, n);
                if (r >= 0)
                        r = object_add(o, "devices", strlen("devices"), v);
        }
        json_unref_all(devices, n);
        return r;
}

int snapshot_to_json(const Unit *u, const Snapshot *s, bool peers, sd_json_variant **ret) {
        const Rows rows = { .unit = u, .snapshot = s, .peers = peers };
        _cleanup_object_ Object o = {};
        size_t index = 0;
        int r;

        r = object_add_string(&o, "unit", u->name);
        if (r < 0)
                return r;

        if (u->control_group) {
                r = object_add_string(&o, "controlGroup", u->control_group);
                if (r < 0)
                        return r;
        }

        if (!sd_id128_is_null(u->invocation_id)) {
                r = object_add_string(&o, "invocationId", SD_ID128_TO_STRING(u->invocation_id));
                if (r < 0)
                        return r;
        }

        r = object_add_string(&o, "activeState", u->active_state);
        if (r < 0)
                return r;

        r = object_add_unsigned(&o, "attachedSince", u->attached_since);
        if (r < 0)
                return r;

        r = object_add_unsigned(&o, "seq", s->seq);
        if (r < 0)
                return r;

        r = object_add_unsigned(&o, "timestamp", s->timestamp);
        if (r < 0)
                return r;

        if (s->window != WINDOW_TOTAL) {
                r = object_add_unsigned(&o, "window", s->window);
                if (r < 0)
                        return r;
        }

        r = object_add_unsigned(&o, "covered", s->covered);
        if (r < 0)
                return r;

        r = object_add_metrics(&o, &s->metrics, &rows, 0, &index);
        if (r < 0)
                return r;

        r = object_add_totals(&o, &s->totals);
        if (r < 0)
                return r;

        r = object_add_cost(&o, s->cost_share);
        if (r < 0)
                return r;

        r = object_add_unsigned(&o, "drops", s->drops);
        if (r < 0)
                return r;

        return sd_json_variant_new_object(ret, o.pairs, o.n);
}

static int buckets_to_json(const Histogram *h, sd_json_variant **ret) {
        sd_json_variant **buckets;
        size_t n = 0;
        int r = 0;

        /* One array made at once: appending to one would copy it each time */
        buckets = new0(sd_json_variant*, h->n_buckets);
        if (!buckets)
                return -ENOMEM;

        for (; n < h->n_buckets; n++) {
                const HistogramBucket *b = h->buckets + n;

                r = sd_json_buildo(buckets + n,
                                   SD_JSON_BUILD_PAIR_UNSIGNED("lower", b->lower),
                                   SD_JSON_BUILD_PAIR_CONDITION(b->upper != UINT64_MAX, "upper", SD_JSON_BUILD_UNSIGNED(b->upper)),
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

int histogram_to_json(const Unit *u, const char *metric, const Histogram *h, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *buckets = NULL;
        int r;

        r = buckets_to_json(h, &buckets);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                              SD_JSON_BUILD_PAIR_STRING("metric", metric),
                              SD_JSON_BUILD_PAIR_UNSIGNED("seq", h->seq),
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", h->timestamp),
                              SD_JSON_BUILD_PAIR_CONDITION(h->window != WINDOW_TOTAL, "window", SD_JSON_BUILD_UNSIGNED(h->window)),
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
                              SD_JSON_BUILD_PAIR_CONDITION(n > 0, "offset", SD_JSON_BUILD_INTEGER(window_bins_get_index(b->schema, first))),
                              SD_JSON_BUILD_PAIR_VARIANT("counts", array));
}

int history_step_to_json(const HistoryStep *s, const Metrics *metrics, unsigned wanted, sd_json_variant **ret) {
        sd_json_variant *histograms[HISTORY_DISTRIBUTIONS];
        _cleanup_object_ Object o = {};
        size_t index = 0, n = 0;
        int r;

        r = object_add_unsigned(&o, "timestamp", s->timestamp);
        if (r >= 0)
                r = object_add_unsigned(&o, "covered", s->covered);
        if (r >= 0)
                r = object_add_metrics(&o, metrics, NULL, 0, &index);

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS && r >= 0; i++) {
                if (!(wanted & 1U << i) || !history_step_has_distribution(s, i))
                        continue;
                r = bins_to_json(history_distribution_name(i), &s->distributions[i], histograms + n);
                if (r >= 0)
                        n++;
        }
        if (r >= 0 && n > 0) {
                sd_json_variant *v;

                r = sd_json_variant_new_array(&v, histograms, n);
                if (r >= 0)
                        r = object_add(&o, "histograms", strlen("histograms"), v);
        }
        json_unref_all(histograms, n);
        if (r < 0)
                return r;

        return sd_json_variant_new_object(ret, o.pairs, o.n);
}

static int probes_to_json(ProbeMask probes, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        const char *name;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        if (r < 0)
                return r;

        for (unsigned i = 0; (name = probe_mask_name(i)); i++) {
                if (!(probes & 1U << i))
                        continue;

                r = sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(name));
                if (r < 0)
                        return r;
        }

        *ret = TAKE_PTR(array);
        return 0;
}

int excludes_to_json(const ExcludeList *l, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        for (size_t i = 0; i < l->n && r >= 0; i++)
                r = sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(l->list[i].text));
        if (r < 0)
                return r;

        *ret = TAKE_PTR(array);
        return 0;
}

int threshold_value_to_json(const Metric *metric, double value, sd_json_variant **ret) {
        return metric->type == METRIC_INTEGER ? sd_json_variant_new_unsigned(ret, (uint64_t) llround(value)) : sd_json_variant_new_real(ret, value);
}

/* What a threshold and its event have in common. */
static int threshold_to_json(const char *unit, const ThresholdRule *rule, bool peers, ThresholdState state, double value, uint64_t samples,
                             sd_json_variant **ret) {

        _cleanup_(sd_json_variant_unrefp) sd_json_variant *limit_json = NULL, *value_json = NULL;
        double slack = threshold_get_slack(rule, value);
        _cleanup_free_ char *whole = NULL;
        int r;

        r = threshold_format(rule, peers, &whole);
        if (r >= 0)
                r = threshold_value_to_json(rule->metric, rule->limit, &limit_json);
        if (r >= 0 && !isnan(value))
                r = threshold_value_to_json(rule->metric, value, &value_json);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("unit", unit),
                              SD_JSON_BUILD_PAIR_STRING("name", rule->name),
                              SD_JSON_BUILD_PAIR_STRING("threshold", whole),
                              SD_JSON_BUILD_PAIR_STRING("metric", threshold_format_metric(rule, peers, (char[THRESHOLD_METRIC_MAX]) {})),
                              SD_JSON_BUILD_PAIR_STRING("state", threshold_state_to_string(state)),
                              SD_JSON_BUILD_PAIR_VARIANT("limit", limit_json),
                              SD_JSON_BUILD_PAIR_CONDITION(!!value_json, "value", SD_JSON_BUILD_VARIANT(value_json)),
                              SD_JSON_BUILD_PAIR_CONDITION(!isnan(slack), "slack", SD_JSON_BUILD_REAL(slack)),
                              SD_JSON_BUILD_PAIR_CONDITION(samples != ABSENT, "samples", SD_JSON_BUILD_UNSIGNED(samples)));
}

static int set_real(sd_json_variant **v, const char *key, double value) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *real = NULL;
        int r;

        if (isnan(value))
                return 0;
        r = sd_json_variant_new_real(&real, value);
        return r < 0 ? r : sd_json_variant_set_field(v, key, real);
}

int alarm_to_json(const Alarm *a, bool peers, bool accounts, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        AlarmAccount account;
        int r;

        r = threshold_to_json(a->unit->name, &a->rule, peers, a->machine.state, a->value, a->samples, &v);
        if (r >= 0)
                r = sd_json_variant_set_field_string(&v, "source", alarm_source_to_string(a->source));
        if (r >= 0 && a->origin)
                r = sd_json_variant_set_field_string(&v, "origin", a->origin);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "since", a->since);
        if (r >= 0 && accounts && alarm_get_account(a, &account)) {
                r = sd_json_variant_set_field_unsigned(&v, "good", account.good);
                if (r >= 0)
                        r = sd_json_variant_set_field_unsigned(&v, "total", account.total);
                if (r >= 0)
                        r = set_real(&v, "burnShort", account.burn_short);
                if (r >= 0)
                        r = set_real(&v, "burnLong", account.burn_long);
        }
        if (r >= 0)
                *ret = TAKE_PTR(v);
        return r;
}

int alarm_event_to_json(const AlarmEvent *e, bool peers, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *shares = NULL;
        int r;

        r = threshold_to_json(e->unit, &e->rule, peers, e->state, e->value, e->samples, &v);
        if (r >= 0)
                r = sd_json_variant_set_field_string(&v, "previous", threshold_state_to_string(e->previous));
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "seq", e->seq);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "timestamp", e->timestamp);
        for (size_t i = 0; i < e->n_shares && r >= 0; i++)
                r = sd_json_variant_append_arraybo(&shares,
                                SD_JSON_BUILD_PAIR_STRING("state", alarm_share_name(e->shares + i)),
                                SD_JSON_BUILD_PAIR_REAL("share", e->shares[i].share),
                                SD_JSON_BUILD_PAIR_REAL("usual", e->shares[i].usual));
        if (r >= 0 && e->left_out > 0)
                r = sd_json_variant_set_field_unsigned(&v, "leftOut", e->left_out);
        if (r >= 0 && shares)
                r = sd_json_variant_set_field(&v, "shares", shares);
        if (r >= 0)
                *ret = TAKE_PTR(v);
        return r;
}

int holds_to_json(const Unit *u, uint64_t now, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        if (r < 0)
                return r;

        for (const Hold *h = u->holds; h; h = h->next) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *probes = NULL, *excludes = NULL;

                r = probes_to_json(h->probes, &probes);
                if (r >= 0)
                        r = excludes_to_json(&h->excludes, &excludes);
                if (r < 0)
                        return r;

                r = sd_json_variant_append_arraybo(
                                &array,
                                SD_JSON_BUILD_PAIR_STRING("type", hold_type_to_string(h->type)),
                                SD_JSON_BUILD_PAIR_VARIANT("probes", probes),
                                SD_JSON_BUILD_PAIR_CONDITION(h->excludes.n > 0, "exclude", SD_JSON_BUILD_VARIANT(excludes)),
                                SD_JSON_BUILD_PAIR_UNSIGNED("uid", h->uid),
                                SD_JSON_BUILD_PAIR_CONDITION(!!h->owner, "owner", SD_JSON_BUILD_STRING(h->owner)),
                                SD_JSON_BUILD_PAIR_CONDITION(h->expires != USEC_INFINITY, "remaining",
                                                             SD_JSON_BUILD_UNSIGNED((h->expires - MIN(h->expires, now)) * NSEC_PER_USEC)));
                if (r < 0)
                        return r;
        }

        *ret = TAKE_PTR(array);
        return 0;
}
