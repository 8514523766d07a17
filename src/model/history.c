/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "history.h"

/* A step as it is kept, in memory and in the file: a record.
 *
 *   length of the rest, schema - WINDOW_BINS_SCHEMA_MIN and flags (one byte), index, timestamp in ms, length of the step - covered,
 *   overlaps, bitmap of what is there (values, then distributions), bitmap of the values that are not 0, these values,
 *   where there are any: bitmap of the amounts that are not 0, these amounts; for each distribution its sum, its maximum, and its bins.
 *
 * All numbers have 7 bits in a byte, the lowest first, the highest bit says that there are more. A distribution is kept as
 * its difference from the one before it: time to first byte and latency are the same where answers leave in one piece. */

/* The longest one: 5 and HISTORY_VALUES_MAX numbers, three bitmaps, the amounts, and for each distribution two numbers, and a number for
 * each bin, for its run and for the gap before it. */
#define RECORD_MAX (10 * (6 + HISTORY_VALUES_MAX + HISTORY_DISTRIBUTIONS * (3 + 3 * WINDOW_BINS_MAX)) + 1 + 2 * BITMAP_SIZE + \
                    AMOUNTS_BITMAP_SIZE + 2 * _HISTORY_AMOUNT_MAX)
#define AMOUNTS_BITMAP_SIZE ((_HISTORY_AMOUNT_MAX + 7) / 8)

/* In the byte of the schema. */
#define RECORD_AMOUNTS 0x80U
#define RECORD_VIOLATED 0x40U
#define RECORD_MISSED 0x20U
#define RECORD_SCHEMA 0x1fU
#define BITMAP_SIZE ((HISTORY_VALUES_MAX + HISTORY_DISTRIBUTIONS + 7) / 8)

/* Where there is no room, distributions lose precision down to this first, two bins an octave, from which quantiles can still be told
 * apart; then amounts go. */
#define SCHEMA_KEPT 1

/* Memory is taken in pieces of this size: most units are quiet. */
#define ALLOCATION_STEP 4096U

struct History {
        uint8_t *data;                  /* the records of 10 s, then those of 5 min, each from old to new */
        size_t allocated;
        size_t size[_HISTORY_LEVEL_MAX];
};

typedef struct Header {
        uint64_t magic;
        uint64_t checksum;              /* of all that follows */
        uint64_t catalogue;             /* the values are by their place in it */
        uint32_t generation;
        uint32_t size[_HISTORY_LEVEL_MAX];
        uint32_t _padding;
} Header;

/* "qSoHist2": the first one had no amounts */
#define MAGIC UINT64_C(0x32747369486f5371)
#define DATA_MAX (HISTORY_SIZE_MAX - sizeof(Header) - sizeof(History))

static const struct {
        const char *name;
        enum qos_distribution distribution;
        size_t offset;
} distributions[HISTORY_DISTRIBUTIONS] = {
        { "requests.server.firstByte", QOS_FIRST_BYTE, offsetof(Metrics, requests.server.first_byte) },
        { "requests.server.latency",   QOS_LATENCY,    offsetof(Metrics, requests.server.latency)    },
};

/* Gauges whose value at the end of a step is known. */
static const size_t gauges[] = {
        offsetof(Metrics, requests.server.in_flight),
        offsetof(Metrics, requests.server.connections.open),
};

static const uint64_t level_nsec[_HISTORY_LEVEL_MAX] = {
        [HISTORY_FINE]   = HISTORY_FINE_NSEC,
        [HISTORY_COARSE] = HISTORY_COARSE_NSEC,
};

uint64_t history_level_nsec(HistoryLevel level) {
        return level_nsec[level];
}

/* ---- amounts -------------------------------------------------------------------------------------------------- */

#define AMOUNT_BITS 8

/* As floating-point numbers are: seven bits below the highest one, and how far these are shifted. */
static uint64_t amount_encode(uint64_t n) {
        unsigned shift = 0;

        while (n >> shift >= 1U << AMOUNT_BITS)
                shift++;
        if (shift > 0) {
                n = (n >> shift) + (n >> (shift - 1) & 1);
                if (n >> AMOUNT_BITS && shift == 64 - AMOUNT_BITS)
                        n--; /* for the next one 64 bits have no room */
                else if (n >> AMOUNT_BITS) {
                        n >>= 1;
                        shift++;
                }
        } else if (n < 1U << (AMOUNT_BITS - 1))
                return n;
        return (uint64_t) (shift + 1) << (AMOUNT_BITS - 1) | (n & ((1U << (AMOUNT_BITS - 1)) - 1));
}

static uint64_t amount_decode(uint64_t code) {
        uint64_t shift = code >> (AMOUNT_BITS - 1), n = code & ((1U << (AMOUNT_BITS - 1)) - 1);

        return shift == 0 ? n : (n | 1U << (AMOUNT_BITS - 1)) << (shift - 1);
}

/* Of the largest amount. */
#define AMOUNT_CODE_MAX ((uint64_t) (64 - AMOUNT_BITS + 2) << (AMOUNT_BITS - 1))

/* What is known of one step by who looked at it first, and no longer by who looks at it again. */
static void amounts_keep(uint64_t *amounts, const uint64_t *before) {
        static const struct {
                HistoryAmount covered, end;
        } groups[] = {
                { HISTORY_ASKED_COVERED,  HISTORY_QUOTA_COVERED  },
                { HISTORY_QUOTA_COVERED,  HISTORY_CPU_COVERED    },
                { HISTORY_CPU_COVERED,    HISTORY_BLOCK_COVERED  },
                { HISTORY_BLOCK_COVERED,  HISTORY_MEMORY_COVERED },
                { HISTORY_MEMORY_COVERED, _HISTORY_AMOUNT_MAX    },
        };

        for (size_t i = 0; i < ELEMENTSOF(groups); i++)
                if (amounts[groups[i].covered] == 0)
                        memcpy(amounts + groups[i].covered, before + groups[i].covered, (groups[i].end - groups[i].covered) * sizeof(*amounts));
}

static void mean_get(const HistoryStep *s, HistoryAmount count, HistoryAmount time, Distribution *ret) {
        ret->count = s->amounts[count];
        if (ret->count > 0)
                ret->mean = s->amounts[time] / ret->count;
}

/* What is not there stays as it is. */
static void step_get_contention(const HistoryStep *s, Contention *ret) {
        const uint64_t *a = s->amounts;
        double all = 0;

        if (a[HISTORY_CPU_COVERED] > 0) {
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        all += a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING];
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                        double n = a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING];

                        ret->threads[i] = n / a[HISTORY_CPU_COVERED];
                        if (all > 0)
                                ret->shares[i] = n / all;
                }
                mean_get(s, HISTORY_RUN_QUEUES, HISTORY_RUN_QUEUE_TIME, &ret->run_queue_latency);
        }
        if (a[HISTORY_BLOCK_COVERED] > 0) {
                for (unsigned i = 0; i < QOS_BLOCK_COUNTERS; i++) {
                        ret->block.counts.operations[i] = a[HISTORY_BLOCK_OPERATIONS + i];
                        ret->block.counts.bytes[i] = a[HISTORY_BLOCK_BYTES + i];
                }
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_READS, HISTORY_BLOCK_TIMES, &ret->block.read_queue);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_READS, HISTORY_BLOCK_TIMES + 1, &ret->block.read_device);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_WRITES, HISTORY_BLOCK_TIMES + 2, &ret->block.write_queue);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_WRITES, HISTORY_BLOCK_TIMES + 3, &ret->block.write_device);
        }
        if (a[HISTORY_MEMORY_COVERED] > 0) {
                ret->memory.major_faults = a[HISTORY_MAJOR_FAULTS];
                ret->memory.major_fault_time = a[HISTORY_MAJOR_FAULT_TIME];
                ret->memory.reclaim_time = a[HISTORY_RECLAIM_TIME];
                ret->memory.dirty_throttle_time = a[HISTORY_DIRTY_THROTTLE_TIME];
                ret->memory.oom_kills = a[HISTORY_OOM_KILLS];
        }
}

/* ---- which metrics -------------------------------------------------------------------------------------------- */

/* Kept as a value. */
static bool metric_is_kept(const Metric *metric) {
        if (metric->type != METRIC_INTEGER)
                return false;
        if (metric->offset >= offsetof(Metrics, contention))
                return false;
        /* Rows, which these are made of, have no checkpoints of a step's length */
        if (metric->offset >= offsetof(Metrics, requests.client) && metric->offset < offsetof(Metrics, requests.client) + sizeof(ClientRole))
                return false;
        if (metric->kind == METRIC_COUNTER)
                return true;
        for (size_t i = 0; i < ELEMENTSOF(gauges); i++)
                if (metric->offset == gauges[i])
                        return true;
        return false;
}

/* Made of amounts: what a step with some of each tells. */
static bool contention_is_kept(const Metric *metric) {
        HistoryStep s = {};
        Metrics m;

        if (metric->offset < offsetof(Metrics, contention) || metric->offset >= offsetof(Metrics, contention) + sizeof(Contention))
                return false;
        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                s.amounts[i] = 1;
        metrics_set_absent(&m);
        step_get_contention(&s, &m.contention);
        return metric_is_present(metric, &m);
}

bool history_has_metric(const Metric *metric) {
        if (metric_is_kept(metric) ||
            metric->offset == offsetof(Metrics, requests.quality) ||
            metric->offset == offsetof(Metrics, requests.server.rate))
                return true;
        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (metric->offset >= distributions[i].offset && metric->offset < distributions[i].offset + sizeof(Distribution))
                        return true;
        return contention_is_kept(metric);
}

int history_find_distribution(const char *name) {
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (streq(name, distributions[i].name))
                        return (int) i;
        return -ENOENT;
}

const char* history_distribution_name(unsigned i) {
        return distributions[i].name;
}

enum qos_distribution history_distribution(unsigned i) {
        return distributions[i].distribution;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t size) {
        for (const uint8_t *p = data; size > 0; p++, size--)
                h = (h ^ *p) * UINT64_C(0x100000001b3); /* FNV-1a */
        return h;
}
#define HASH_INIT UINT64_C(0xcbf29ce484222325)

/* Of the names, so that a build with another catalogue does not take one value for another. */
static uint64_t catalogue_hash(void) {
        uint64_t h = HASH_INIT;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m))
                        h = hash_bytes(h, m->name, strlen(m->name) + 1);
        return h;
}

/* ---- one step ------------------------------------------------------------------------------------------------- */

void history_step_set_metrics(HistoryStep *s, const Metrics *metrics) {
        size_t n = 0;

        for (size_t i = 0; i < HISTORY_VALUES_MAX; i++)
                s->values[i] = ABSENT;
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m)) {
                        assert(n < HISTORY_VALUES_MAX);
                        if (!metric_get_integer(m, metrics, &s->values[n]))
                                s->values[n] = ABSENT;
                        n++;
                }
}

/* The count, before it is decided whether it is shown. */
static uint64_t step_count(const HistoryStep *s) {
        size_t n = 0;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m)) {
                        if (m->offset == offsetof(Metrics, requests.server.count))
                                return s->values[n];
                        n++;
                }
        return ABSENT;
}

bool history_step_has_distribution(const HistoryStep *s, unsigned i) {
        uint64_t count = step_count(s);

        return s->measured[i] && !(count != ABSENT && window_is_overlapping(s->overlaps, count));
}

void history_step_get_metrics(const HistoryStep *s, unsigned minimum_samples, Metrics *ret) {
        Server *server = &ret->requests.server;
        size_t n = 0;

        metrics_set_absent(ret);
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m))
                        *(uint64_t*) ((char*) ret + m->offset) = s->values[n++];

        window_classify(s->overlaps, s->missed, &ret->requests);
        step_get_contention(s, &ret->contention);

        if (server->count != ABSENT && s->covered > 0)
                server->rate = server->count * (double) NSEC_PER_SEC / s->covered;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (history_step_has_distribution(s, i))
                        window_bins_get_distribution(&s->distributions[i], minimum_samples,
                                                     (Distribution*) ((char*) ret + distributions[i].offset));
}

static void step_coarsen(HistoryStep *s) {
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                window_bins_coarsen(&s->distributions[i]);
}

/* Adds a later step. */
static void step_add(HistoryStep *s, const HistoryStep *later) {
        size_t n = 0;

        s->covered += later->covered;
        s->overlaps += later->overlaps;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++) {
                if (!metric_is_kept(m))
                        continue;
                if (m->kind == METRIC_GAUGE)
                        s->values[n] = later->values[n];
                else if (s->values[n] == ABSENT || later->values[n] == ABSENT)
                        s->values[n] = ABSENT; /* a sum of what is not all known */
                else
                        s->values[n] += later->values[n];
                n++;
        }

        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                s->amounts[i] += later->amounts[i];
        s->violated = s->violated || later->violated;
        s->missed = s->missed || later->missed;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                s->measured[i] = s->measured[i] && later->measured[i];
                window_bins_add(&s->distributions[i], &later->distributions[i]);
        }
}

/* ---- records -------------------------------------------------------------------------------------------------- */

static uint8_t* put_number(uint8_t *p, uint64_t n) {
        for (; n >= 0x80; n >>= 7)
                *p++ = n | 0x80;
        *p++ = n;
        return p;
}

/* Small numbers, also below zero, become small ones. */
static uint8_t* put_difference(uint8_t *p, uint64_t n, uint64_t from) {
        int64_t d = (int64_t) (n - from);

        return put_number(p, (uint64_t) d << 1 ^ (uint64_t) (d >> 63));
}

typedef struct Parser {
        const uint8_t *p, *end;
        bool failed;
} Parser;

static uint8_t get_byte(Parser *in) {
        if (in->p >= in->end) {
                in->failed = true;
                return 0;
        }
        return *in->p++;
}

static uint64_t get_number(Parser *in) {
        uint64_t n = 0;

        for (unsigned shift = 0; shift < 64; shift += 7) {
                uint8_t byte = get_byte(in);

                n |= (uint64_t) (byte & 0x7f) << shift;
                if (!(byte & 0x80))
                        return n;
        }
        in->failed = true;
        return 0;
}

static uint64_t get_difference(Parser *in, uint64_t from) {
        uint64_t n = get_number(in);

        return from + (n >> 1 ^ -(n & 1));
}

/* Runs of bins, with at most one zero in a row in them: the number of runs, and for each the gap before it, its length and
 * what it has. */
static uint8_t* put_bins(uint8_t *p, const WindowBins *b, const WindowBins *from) {
        unsigned n = window_bins_number(b->schema), n_runs = 0, end = 0;
        struct {
                uint8_t first, length;
        } runs[WINDOW_BINS_MAX];

        _Static_assert(WINDOW_BINS_MAX <= UINT8_MAX, "a bin's number is a byte");

        for (unsigned i = 0; i < n; i++) {
                if (b->count[i] == from->count[i])
                        continue;
                if (n_runs == 0 || i > end + 1)
                        runs[n_runs++].first = i;
                end = i + 1;
                runs[n_runs - 1].length = end - runs[n_runs - 1].first;
        }

        p = put_number(p, n_runs);
        end = 0;
        for (unsigned r = 0; r < n_runs; r++) {
                p = put_number(p, runs[r].first - end);
                p = put_number(p, runs[r].length);
                end = runs[r].first + runs[r].length;
                for (unsigned i = runs[r].first; i < end; i++)
                        p = put_difference(p, b->count[i], from->count[i]);
        }
        return p;
}

static void get_bins(Parser *in, const WindowBins *from, WindowBins *ret) {
        unsigned n = window_bins_number(ret->schema), i = 0;
        uint64_t n_runs;

        memcpy(ret->count, from->count, sizeof(ret->count));
        n_runs = get_number(in);
        for (; n_runs > 0 && !in->failed; n_runs--) {
                uint64_t gap = get_number(in), length = get_number(in);

                if (gap > n - i || length > n - i - gap) {
                        in->failed = true;
                        return;
                }
                for (i += gap; length > 0; length--, i++)
                        ret->count[i] = get_difference(in, from->count[i]);
        }
}

static size_t kept_number(void) {
        size_t n = 0;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                n += metric_is_kept(m);
        return n;
}

static bool step_has_amounts(const HistoryStep *s) {
        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                if (s->amounts[i] != 0)
                        return true;
        return false;
}

/* Returns the length. */
static size_t record_write(const HistoryStep *s, HistoryLevel level, uint8_t *ret) {
        static const WindowBins nothing = {};
        uint8_t rest[RECORD_MAX], present[BITMAP_SIZE] = {}, not_zero[BITMAP_SIZE] = {}, amounts[AMOUNTS_BITMAP_SIZE] = {}, *p = rest, *q;
        size_t n = kept_number();
        const WindowBins *from = &nothing;

        for (size_t i = 0; i < n; i++) {
                if (s->values[i] == ABSENT)
                        continue;
                present[i / 8] |= 1U << i % 8;
                if (s->values[i] != 0)
                        not_zero[i / 8] |= 1U << i % 8;
        }
        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (s->measured[i])
                        present[(n + i) / 8] |= 1U << (n + i) % 8;

        *p++ = (uint8_t) (s->distributions[0].schema - WINDOW_BINS_SCHEMA_MIN) | (step_has_amounts(s) ? RECORD_AMOUNTS : 0) | (s->violated ? RECORD_VIOLATED : 0) |
                (s->missed ? RECORD_MISSED : 0);
        p = put_number(p, s->index);
        p = put_number(p, s->timestamp / NSEC_PER_MSEC);
        p = put_number(p, level_nsec[level] - s->covered);
        p = put_number(p, s->overlaps);
        p = mempcpy(p, present, (n + HISTORY_DISTRIBUTIONS + 7) / 8);
        p = mempcpy(p, not_zero, (n + 7) / 8);
        for (size_t i = 0; i < n; i++)
                if (not_zero[i / 8] & 1U << i % 8)
                        p = put_number(p, s->values[i]);

        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                if (s->amounts[i] != 0)
                        amounts[i / 8] |= 1U << i % 8;
        if (step_has_amounts(s))
                p = mempcpy(p, amounts, sizeof(amounts));
        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                if (s->amounts[i] != 0)
                        p = put_number(p, amount_encode(s->amounts[i]));

        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                if (!s->measured[i])
                        continue;
                p = put_difference(p, s->distributions[i].sum, from->sum);
                p = put_difference(p, s->distributions[i].max, from->max);
                p = put_bins(p, &s->distributions[i], from);
                from = &s->distributions[i];
        }

        q = put_number(ret, p - rest);
        q = mempcpy(q, rest, p - rest);
        return q - ret;
}

/* The record at data, which has a length: that of the whole, and where its rest begins. 0 if it does not lie within size. */
static size_t record_length(const uint8_t *data, size_t size, const uint8_t **ret_rest) {
        Parser in = { .p = data, .end = data + size };
        uint64_t n;

        n = get_number(&in);
        if (in.failed || n == 0 || n > (size_t) (in.end - in.p))
                return 0;
        *ret_rest = in.p;
        return in.p + n - data;
}

/* Believes nothing: records may come from a file. */
static int record_read(const uint8_t *rest, size_t size, HistoryLevel level, HistoryStep *ret) {
        static const WindowBins nothing = {};
        Parser in = { .p = rest, .end = rest + size };
        uint8_t present[BITMAP_SIZE] = {}, not_zero[BITMAP_SIZE] = {}, amounts[AMOUNTS_BITMAP_SIZE] = {};
        const WindowBins *from = &nothing;
        size_t n = kept_number();
        uint64_t missing, msec;
        uint8_t first;
        int schema;

        *ret = (HistoryStep) {};

        first = get_byte(&in);
        schema = (int) (first & RECORD_SCHEMA) + WINDOW_BINS_SCHEMA_MIN;
        ret->violated = first & RECORD_VIOLATED;
        ret->missed = first & RECORD_MISSED;
        ret->index = get_number(&in);
        msec = get_number(&in);
        missing = get_number(&in);
        ret->overlaps = get_number(&in);
        if (in.failed || schema > WINDOW_BINS_SCHEMA_MAX || missing > level_nsec[level] ||
            msec > INT64_MAX / NSEC_PER_MSEC || ret->index > UINT64_MAX / level_nsec[level])
                return -EBADMSG;
        ret->timestamp = msec * NSEC_PER_MSEC;
        ret->covered = level_nsec[level] - missing;

        for (size_t i = 0; i < (n + HISTORY_DISTRIBUTIONS + 7) / 8; i++)
                present[i] = get_byte(&in);
        for (size_t i = 0; i < (n + 7) / 8; i++)
                not_zero[i] = get_byte(&in);
        for (size_t i = 0; i < HISTORY_VALUES_MAX; i++)
                ret->values[i] = i >= n || !(present[i / 8] & 1U << i % 8) ? ABSENT :
                                 not_zero[i / 8] & 1U << i % 8 ? get_number(&in) : 0;

        for (size_t i = 0; first & RECORD_AMOUNTS && i < sizeof(amounts); i++)
                amounts[i] = get_byte(&in);
        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++) {
                uint64_t code = amounts[i / 8] & 1U << i % 8 ? get_number(&in) : 0;

                if (code >= AMOUNT_CODE_MAX)
                        return -EBADMSG;
                ret->amounts[i] = amount_decode(code);
        }

        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                WindowBins *b = &ret->distributions[i];

                b->schema = schema;
                ret->measured[i] = present[(n + i) / 8] & 1U << (n + i) % 8;
                if (!ret->measured[i])
                        continue;
                b->sum = get_difference(&in, from->sum);
                b->max = get_difference(&in, from->max);
                get_bins(&in, from, b);
                from = b;
        }

        return in.failed || in.p != in.end ? -EBADMSG : 0;
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

int history_new(History **ret) {
        History *h;

        h = new0(History, 1);
        if (!h)
                return -ENOMEM;
        *ret = h;
        return 0;
}

History* history_free(History *h) {
        if (!h)
                return NULL;

        free(h->data);
        free(h);
        return NULL;
}

static size_t level_begin(const History *h, HistoryLevel level) {
        return level == HISTORY_FINE ? 0 : h->size[HISTORY_FINE];
}

/* One of the records, and where it lies. */
typedef struct Position {
        HistoryLevel level;
        size_t offset, length;
        const uint8_t *rest;
        size_t rest_size;
} Position;

static void position_begin(const History *h, HistoryLevel level, Position *p) {
        *p = (Position) {
                .level = level,
                .offset = level_begin(h, level),
        };
}

/* Moves on to the next one, or the first. They have been looked at when they came in. */
static bool position_next(const History *h, Position *p) {
        size_t end = level_begin(h, p->level) + h->size[p->level];

        p->offset += p->length;
        if (p->offset >= end)
                return false;
        p->length = record_length(h->data + p->offset, end - p->offset, &p->rest);
        assert(p->length > 0);
        p->rest_size = h->data + p->offset + p->length - p->rest;
        return true;
}

static void position_read(const Position *p, HistoryStep *ret) {
        int r;

        r = record_read(p->rest, p->rest_size, p->level, ret);
        assert(r >= 0);
}

static uint64_t position_index(const Position *p) {
        Parser in = { .p = p->rest + 1, .end = p->rest + p->rest_size };

        return get_number(&in);
}

static int position_schema(const Position *p) {
        return (int) (p->rest[0] & RECORD_SCHEMA) + WINDOW_BINS_SCHEMA_MIN;
}

/* Puts data in the place of what is there. */
static int history_splice(History *h, HistoryLevel level, size_t offset, size_t length, const uint8_t *data, size_t size) {
        size_t all = h->size[HISTORY_FINE] + h->size[HISTORY_COARSE], need = all - length + size;

        assert(need <= DATA_MAX);
        if (need > h->allocated) {
                size_t n = MIN((need + ALLOCATION_STEP - 1) / ALLOCATION_STEP * ALLOCATION_STEP, DATA_MAX);
                uint8_t *p = realloc(h->data, n);

                if (!p)
                        return -ENOMEM;
                h->data = p;
                h->allocated = n;
        }

        if (all > offset + length)
                memmove(h->data + offset + size, h->data + offset + length, all - offset - length);
        if (size > 0)
                memcpy(h->data + offset, data, size);
        h->size[level] += size - length;
        return 0;
}

/* The largest record that is finer than the schema, the oldest if there are several. */
static bool history_find_largest(const History *h, int schema, Position *ret) {
        Position p;

        *ret = (Position) {};
        for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++)
                for (position_begin(h, level, &p); position_next(h, &p); )
                        if (position_schema(&p) > schema && p.length > ret->length)
                                *ret = p;
        return ret->length > 0;
}

/* Records become no longer by what is done to them here: two bins that are not 0 become one number, of at most one bit more than the
 * larger. */
static void history_replace(History *h, const Position *p, const HistoryStep *s) {
        uint8_t record[RECORD_MAX];
        size_t n;

        n = record_write(s, p->level, record);
        assert(n <= p->length);
        (void) history_splice(h, p->level, p->offset, p->length, record, n);
}

static void history_coarsen(History *h, const Position *p) {
        HistoryStep s;

        position_read(p, &s);
        step_coarsen(&s);
        history_replace(h, p, &s);
}

/* The first step of 5 min that has not been made. */
static uint64_t history_next_coarse(const History *h) {
        uint64_t next = 0;
        Position p;

        for (position_begin(h, HISTORY_COARSE, &p); position_next(h, &p); )
                next = position_index(&p) + 1;
        return next;
}

/* Of the oldest record before that step that has any. */
static bool level_forget_amounts(History *h, HistoryLevel level, uint64_t before) {
        HistoryStep s;
        Position p;

        for (position_begin(h, level, &p); position_next(h, &p) && position_index(&p) < before; ) {
                if (!(p.rest[0] & RECORD_AMOUNTS))
                        continue;
                position_read(&p, &s);
                memset(s.amounts, 0, sizeof(s.amounts));
                history_replace(h, &p, &s);
                return true;
        }
        return false;
}

/* First what the steps of 5 min know as well: those of the day are what a unit is compared with, and have them only of steps of 10 s
 * that still do when they are merged. */
static bool history_forget_amounts(History *h) {
        return level_forget_amounts(h, HISTORY_FINE, history_next_coarse(h) * (HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC)) ||
               level_forget_amounts(h, HISTORY_COARSE, UINT64_MAX) ||
               level_forget_amounts(h, HISTORY_FINE, UINT64_MAX);
}

static void history_forget_oldest(History *h) {
        Position p;

        position_begin(h, h->size[HISTORY_FINE] > 0 ? HISTORY_FINE : HISTORY_COARSE, &p);
        if (position_next(h, &p))
                (void) history_splice(h, p.level, p.offset, p.length, NULL, 0);
}

static size_t history_size(const History *h) {
        return h->size[HISTORY_FINE] + h->size[HISTORY_COARSE];
}

static int level_put(History *h, HistoryLevel level, const HistoryStep *step) {
        uint8_t record[RECORD_MAX];
        HistoryStep s = *step;
        Position p;
        size_t n;

        _Static_assert(RECORD_MAX < DATA_MAX, "one always fits");

        for (position_begin(h, level, &p); position_next(h, &p); )
                if (position_index(&p) == s.index) {
                        HistoryStep before;

                        /* The sooner it was said when that was, the less has the clock been set meanwhile */
                        position_read(&p, &before);
                        s.timestamp = before.timestamp;
                        amounts_keep(s.amounts, before.amounts);
                        s.violated = s.violated || before.violated;
                        s.missed = s.missed || before.missed;
                        (void) history_splice(h, level, p.offset, p.length, NULL, 0);
                        break;
                }

        n = record_write(&s, level, record);
        while (history_size(h) + n > DATA_MAX) {
                Position largest;
                int schema;

                for (schema = SCHEMA_KEPT;; schema = WINDOW_BINS_SCHEMA_MIN) {
                        bool any = history_find_largest(h, schema, &largest);

                        if (s.distributions[0].schema > schema && n >= largest.length) {
                                step_coarsen(&s);
                                n = record_write(&s, level, record);
                        } else if (any)
                                history_coarsen(h, &largest);
                        else if (schema == SCHEMA_KEPT && !history_forget_amounts(h))
                                continue;
                        else if (schema < SCHEMA_KEPT)
                                history_forget_oldest(h);
                        break;
                }
        }

        for (position_begin(h, level, &p); position_next(h, &p); )
                if (position_index(&p) > s.index)
                        break;
        return history_splice(h, level, p.offset, 0, record, n);
}

int history_put(History *h, const HistoryStep *step) {
        return level_put(h, HISTORY_FINE, step);
}

/* The steps of 10 s within one of 5 min, as one. False if there are none. */
static bool history_merge(const History *h, uint64_t index, HistoryStep *ret) {
        bool any = false;
        Position p;

        for (position_begin(h, HISTORY_FINE, &p); position_next(h, &p); ) {
                uint64_t i = position_index(&p);
                HistoryStep s;

                if (i / (HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC) != index)
                        continue;
                position_read(&p, &s);
                if (any)
                        step_add(ret, &s);
                else {
                        *ret = s;
                        ret->index = index;
                        /* When the whole of it began, also if nobody looked then */
                        ret->timestamp -= MIN(ret->timestamp, i * HISTORY_FINE_NSEC - index * HISTORY_COARSE_NSEC);
                        any = true;
                }
        }
        return any;
}

static void level_expire(History *h, HistoryLevel level, uint64_t first) {
        Position p;

        for (;;) {
                position_begin(h, level, &p);
                if (!position_next(h, &p) || position_index(&p) >= first)
                        return;
                (void) history_splice(h, level, p.offset, p.length, NULL, 0);
        }
}

int history_roll(History *h, uint64_t newest) {
        const uint64_t steps = HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC;
        uint64_t next = history_next_coarse(h);
        Position p;

        for (;;) {
                HistoryStep s;
                bool found = false;
                uint64_t index = 0;
                int r;

                for (position_begin(h, HISTORY_FINE, &p); !found && position_next(h, &p); ) {
                        index = position_index(&p) / steps;
                        found = index >= next;
                }
                /* Those that the kernel still knows may change */
                if (!found || (index + 1) * steps + WINDOW_STEPS > newest + 1)
                        break;

                (void) history_merge(h, index, &s);
                r = level_put(h, HISTORY_COARSE, &s);
                if (r < 0)
                        return r;
                next = index + 1;
        }

        if (newest >= HISTORY_FINE_STEPS)
                level_expire(h, HISTORY_FINE, newest - HISTORY_FINE_STEPS + 1);
        if (newest / steps >= HISTORY_COARSE_STEPS)
                level_expire(h, HISTORY_COARSE, newest / steps - HISTORY_COARSE_STEPS + 1);
        return 0;
}

int history_foreach(const History *h, HistoryLevel level, int (*each)(const HistoryStep *s, void *userdata), void *userdata) {
        const uint64_t steps = HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC;
        uint64_t next;
        HistoryStep s;
        Position p;
        int r;

        for (position_begin(h, level, &p); position_next(h, &p); ) {
                position_read(&p, &s);
                r = each(&s, userdata);
                if (r < 0)
                        return r;
        }
        if (level == HISTORY_FINE)
                return 0;

        next = history_next_coarse(h);
        for (position_begin(h, HISTORY_FINE, &p); position_next(h, &p); ) {
                uint64_t index = position_index(&p) / steps;

                if (index < next)
                        continue;
                next = index + 1;
                (void) history_merge(h, index, &s);
                r = each(&s, userdata);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- the file ------------------------------------------------------------------------------------------------- */

static uint64_t header_checksum(const Header *header, const void *data, size_t size) {
        size_t begin = offsetof(Header, catalogue);

        return hash_bytes(hash_bytes(HASH_INIT, (const uint8_t*) header + begin, sizeof(Header) - begin), data, size);
}

int history_serialize(const History *h, uint32_t generation, void **ret, size_t *ret_size) {
        Header header = {
                .magic = MAGIC,
                .catalogue = catalogue_hash(),
                .generation = generation,
                .size = { h->size[HISTORY_FINE], h->size[HISTORY_COARSE] },
        };
        size_t size = history_size(h);
        uint8_t *data;

        data = malloc(sizeof(Header) + size);
        if (!data)
                return -ENOMEM;
        header.checksum = header_checksum(&header, h->data, size);
        memcpy(data, &header, sizeof(Header));
        if (size > 0)
                memcpy(data + sizeof(Header), h->data, size);

        *ret = data;
        *ret_size = sizeof(Header) + size;
        return 0;
}

int history_deserialize(const void *data, size_t size, uint32_t generation, History **ret) {
        _cleanup_history_ History *h = NULL;
        Header header;
        int r;

        if (size < sizeof(Header) || size > HISTORY_SIZE_MAX)
                return -EBADMSG;
        memcpy(&header, data, sizeof(Header));
        size -= sizeof(Header);
        data = (const uint8_t*) data + sizeof(Header);
        if (header.magic != MAGIC || header.catalogue != catalogue_hash() || header.generation != generation ||
            size > DATA_MAX || header.size[HISTORY_FINE] > size || header.size[HISTORY_COARSE] != size - header.size[HISTORY_FINE] ||
            header.checksum != header_checksum(&header, data, size))
                return -EBADMSG;

        r = history_new(&h);
        if (r < 0)
                return r;

        for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++) {
                size_t left = header.size[level], length;
                const uint8_t *p = data, *rest;
                unsigned n = 0;
                uint64_t next = 0;
                HistoryStep s;

                if (level == HISTORY_COARSE)
                        p += header.size[HISTORY_FINE];
                for (; left > 0; left -= length, p += length) {
                        length = record_length(p, left, &rest);
                        if (length == 0 || record_read(rest, p + length - rest, level, &s) < 0 || s.index < next ||
                            ++n > (level == HISTORY_FINE ? HISTORY_FINE_STEPS : HISTORY_COARSE_STEPS))
                                return -EBADMSG;
                        next = s.index + 1;
                }
        }

        r = history_splice(h, HISTORY_FINE, 0, 0, data, size);
        if (r < 0)
                return r;
        h->size[HISTORY_FINE] = header.size[HISTORY_FINE];
        h->size[HISTORY_COARSE] = header.size[HISTORY_COARSE];

        *ret = TAKE_PTR(h);
        return 0;
}
