/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Encoding of steps as records. */

#include "history-internal.h"

#define RECORD_VIOLATED 0x40U
#define RECORD_MISSED 0x20U

#define AMOUNT_BITS 8

/* ---- amounts ------------------------------------------------------------------------------------------ */

/* Floating-point format: exponent, and seven bits after the most significant one. */
static uint64_t amount_encode(uint64_t n) {
        unsigned shift = 0;

        while (n >> shift >= 1U << AMOUNT_BITS)
                shift++;
        if (shift > 0) {
                n = (n >> shift) + (n >> (shift - 1) & 1);
                if (n >> AMOUNT_BITS && shift == 64 - AMOUNT_BITS)
                        n--; /* the next larger number does not fit into 64 bits */
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

/* Code of the largest amount. */
#define AMOUNT_CODE_MAX ((uint64_t) (64 - AMOUNT_BITS + 2) << (AMOUNT_BITS - 1))

/* ---- records ------------------------------------------------------------------------------------------ */

static uint8_t* put_number(uint8_t *p, uint64_t n) {
        for (; n >= 0x80; n >>= 7)
                *p++ = n | 0x80;
        *p++ = n;
        return p;
}

/* Zigzag encoding: small differences of either sign become small numbers. */
static uint8_t* put_difference(uint8_t *p, uint64_t n, uint64_t from) {
        int64_t d = (int64_t) (n - from);

        return put_number(p, (uint64_t) d << 1 ^ (uint64_t) (d >> 63));
}

static uint8_t get_byte(Parser *in) {
        if (in->p >= in->end) {
                in->failed = true;
                return 0;
        }
        return *in->p++;
}

uint64_t get_number(Parser *in) {
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

/* Encodes n bins as runs without two consecutive zeros: number of runs, and for each the gap before it, its
 * length and its counts. */
static uint8_t* put_bins(uint8_t *p, unsigned n, const uint64_t *bins, const uint64_t *from) {
        unsigned n_runs = 0, end = 0;
        struct {
                uint8_t first, length;
        } runs[WINDOW_BINS_MAX];

        _Static_assert(WINDOW_BINS_MAX <= UINT8_MAX, "a bin's number is a byte");

        for (unsigned i = 0; i < n; i++) {
                if (bins[i] == from[i])
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
                        p = put_difference(p, bins[i], from[i]);
        }
        return p;
}

/* ret: has the bins of from. */
static void get_bins(Parser *in, unsigned n, const uint64_t *from, uint64_t *ret) {
        unsigned i = 0;
        uint64_t n_runs;

        n_runs = get_number(in);
        for (; n_runs > 0 && !in->failed; n_runs--) {
                uint64_t gap = get_number(in), length = get_number(in);

                if (gap > n - i || length > n - i - gap) {
                        in->failed = true;
                        return;
                }
                for (i += gap; length > 0; length--, i++)
                        ret[i] = get_difference(in, from[i]);
        }
}

static size_t kept_number(void) {
        size_t n = 0;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                n += metric_is_kept(m);
        return n;
}

/* Number of amounts up to the last one that is not 0. */
static size_t step_count_amounts(const HistoryStep *s) {
        size_t n = _HISTORY_AMOUNT_MAX;

        while (n > 0 && s->amounts[n - 1] == 0)
                n--;
        return n;
}

#define MOUNT_BINS (QOS_MOUNT_TIMED * QOS_MOUNT_BINS)

static const uint64_t no_bins[WINDOW_BINS_MAX];

static uint8_t* put_mount(uint8_t *p, const HistoryMount *m) {
        const uint64_t *counts = (const uint64_t*) &m->value.counts;
        uint8_t *bitmap;

        _Static_assert(MOUNT_BINS <= WINDOW_BINS_MAX, "a bin's number is a byte");

        p = mempcpy(p, &m->identity, sizeof(m->identity));
        bitmap = p;
        memset(bitmap, 0, MOUNT_BITMAP_SIZE);
        p += MOUNT_BITMAP_SIZE;
        for (size_t i = 0; i < MOUNT_NUMBERS; i++) {
                uint64_t n = i < QOS_MOUNT_WORDS ? counts[i] : m->value.maxima[i - QOS_MOUNT_WORDS];

                if (n == 0)
                        continue;
                bitmap[i / 8] |= 1U << i % 8;
                p = put_number(p, n);
        }
        return put_bins(p, MOUNT_BINS, m->value.bins, no_bins);
}

static void get_identity(Parser *in, uint64_t *ret) {
        uint8_t *identity = (uint8_t*) ret;

        for (size_t i = 0; i < sizeof(*ret); i++)
                identity[i] = get_byte(in);
}

static void get_mount(Parser *in, HistoryMount *ret) {
        uint64_t *counts = (uint64_t*) &ret->value.counts;
        uint8_t bitmap[MOUNT_BITMAP_SIZE];

        get_identity(in, &ret->identity);
        for (size_t i = 0; i < sizeof(bitmap); i++)
                bitmap[i] = get_byte(in);
        for (size_t i = 0; i < MOUNT_NUMBERS; i++) {
                uint64_t n = bitmap[i / 8] & 1U << i % 8 ? get_number(in) : 0;

                *(i < QOS_MOUNT_WORDS ? counts + i : ret->value.maxima + i - QOS_MOUNT_WORDS) = n;
        }
        memset(ret->value.bins, 0, sizeof(ret->value.bins));
        get_bins(in, MOUNT_BINS, no_bins, ret->value.bins);
}

/* Flags in the byte of the type. To earlier versions the last two are bits of the type, with which they no
 * longer accept the file. */
#define CUSTOM_LABELED 0x80U
#define CUSTOM_ENTRIES 0x40U            /* they follow */
#define CUSTOM_COMPLETE 0x20U
#define CUSTOM_TYPE 0x1fU

static uint8_t* put_cells(uint8_t *p, uint32_t type, bool labeled, const uint64_t *cells) {
        p = put_number(p, cells[0]);
        return type != QOS_CUSTOM_HISTOGRAM ? p : put_bins(p, QOS_CUSTOM_CELLS(type, labeled) - 1, cells + 1,
                                                           no_bins);
}

/* ret: has the cells of a histogram. */
static void get_cells(Parser *in, uint32_t type, bool labeled, uint64_t *ret) {
        ret[0] = get_number(in);
        memset(ret + 1, 0, (QOS_CUSTOM_CELLS(QOS_CUSTOM_HISTOGRAM, labeled) - 1) * sizeof(*ret));
        if (type == QOS_CUSTOM_HISTOGRAM)
                get_bins(in, QOS_CUSTOM_CELLS(type, labeled) - 1, no_bins, ret + 1);
}

static uint8_t* put_custom(uint8_t *p, HistoryLevel level, const HistoryCustom *c) {
        p = mempcpy(p, &c->identity, sizeof(c->identity));
        *p++ = (uint8_t) c->type | (c->labeled ? CUSTOM_LABELED : 0) |
                (c->n_entries > 0 ? CUSTOM_ENTRIES : 0) | (c->complete ? CUSTOM_COMPLETE : 0);
        p = put_number(p, history_level_nsec(level) - c->covered);
        p = put_cells(p, c->type, c->labeled, c->cells);
        if (c->n_entries > 0)
                p = put_number(p, c->n_entries);
        for (unsigned i = 0; i < c->n_entries; i++) {
                p = mempcpy(p, &c->entries[i].identity, sizeof(c->entries[i].identity));
                p = put_cells(p, c->type, /* labeled= */ true, c->entries[i].cells);
        }
        return p;
}

static void get_custom(Parser *in, HistoryLevel level, HistoryCustom *ret) {
        uint64_t missing, n_entries = 0;
        uint8_t type;

        get_identity(in, &ret->identity);
        type = get_byte(in);
        ret->labeled = type & CUSTOM_LABELED;
        ret->complete = type & CUSTOM_COMPLETE;
        ret->type = type & CUSTOM_TYPE;
        missing = get_number(in);
        if (ret->type >= _QOS_CUSTOM_TYPES || missing > history_level_nsec(level)) {
                in->failed = true;
                return;
        }
        ret->covered = history_level_nsec(level) - missing;
        memset(ret->cells, 0, sizeof(ret->cells));
        get_cells(in, ret->type, ret->labeled, ret->cells);

        if (type & CUSTOM_ENTRIES)
                n_entries = get_number(in);
        if (n_entries > HISTORY_ENTRIES_MAX || (n_entries > 0) != !!(type & CUSTOM_ENTRIES) ||
            (!ret->labeled && type & (CUSTOM_ENTRIES | CUSTOM_COMPLETE))) {
                in->failed = true;
                return;
        }
        ret->n_entries = (unsigned) n_entries;
        for (unsigned i = 0; i < ret->n_entries; i++) {
                get_identity(in, &ret->entries[i].identity);
                get_cells(in, ret->type, /* labeled= */ true, ret->entries[i].cells);
        }
}

/* Returns the length of the record. */
size_t record_write(const HistoryStep *s, HistoryLevel level, uint8_t *ret) {
        static const WindowBins nothing = {};
        uint8_t rest[RECORD_MAX], present[BITMAP_SIZE] = {}, not_zero[BITMAP_SIZE] = {},
                amounts[AMOUNTS_BITMAP_SIZE] = {}, *p = rest, *q;
        size_t n = kept_number(), n_amounts = step_count_amounts(s);
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

        *p++ = (uint8_t) (s->distributions[0].schema - WINDOW_BINS_SCHEMA_MIN) |
               (n_amounts > 0 ? RECORD_AMOUNTS : 0) | (s->n_mounts > 0 ? RECORD_MOUNTS : 0) |
               (s->n_custom > 0 ? RECORD_CUSTOM : 0) |
               (s->violated ? RECORD_VIOLATED : 0) | (s->missed ? RECORD_MISSED : 0);
        p = put_number(p, s->index);
        p = put_number(p, s->timestamp / NSEC_PER_MSEC);
        p = put_number(p, history_level_nsec(level) - s->covered);
        p = put_number(p, s->overlaps);
        p = mempcpy(p, present, (n + HISTORY_DISTRIBUTIONS + 7) / 8);
        p = mempcpy(p, not_zero, (n + 7) / 8);
        for (size_t i = 0; i < n; i++)
                if (not_zero[i / 8] & 1U << i % 8)
                        p = put_number(p, s->values[i]);

        for (size_t i = 0; i < n_amounts; i++)
                if (s->amounts[i] != 0)
                        amounts[i / 8] |= 1U << i % 8;
        if (n_amounts > 0) {
                p = put_number(p, (n_amounts + 7) / 8);
                p = mempcpy(p, amounts, (n_amounts + 7) / 8);
        }
        for (size_t i = 0; i < n_amounts; i++)
                if (s->amounts[i] != 0)
                        p = put_number(p, amount_encode(s->amounts[i]));

        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                if (!s->measured[i])
                        continue;
                p = put_difference(p, s->distributions[i].sum, from->sum);
                p = put_difference(p, s->distributions[i].max, from->max);
                p = put_bins(p, window_bins_number(s->distributions[i].schema), s->distributions[i].count,
                             from->count);
                from = &s->distributions[i];
        }

        if (s->n_mounts > 0)
                p = put_number(p, s->n_mounts);
        for (unsigned i = 0; i < s->n_mounts; i++)
                p = put_mount(p, s->mounts + i);
        if (s->n_custom > 0)
                p = put_number(p, s->n_custom);
        for (unsigned i = 0; i < s->n_custom; i++)
                p = put_custom(p, level, s->custom + i);

        q = put_number(ret, p - rest);
        q = mempcpy(q, rest, p - rest);
        return q - ret;
}

/* Returns the length of the record at data, 0 if it exceeds size. *ret_rest: its contents. */
size_t record_length(const uint8_t *data, size_t size, const uint8_t **ret_rest) {
        Parser in = { .p = data, .end = data + size };
        uint64_t n;

        n = get_number(&in);
        if (in.failed || n == 0 || n > (size_t) (in.end - in.p))
                return 0;
        *ret_rest = in.p;
        return in.p + n - data;
}

/* Decodes a record. -EBADMSG: invalid; records may have been read from a file. */
int record_read(const uint8_t *rest, size_t size, HistoryLevel level, HistoryStep *ret) {
        static const WindowBins nothing = {};
        Parser in = { .p = rest, .end = rest + size };
        uint8_t present[BITMAP_SIZE] = {}, not_zero[BITMAP_SIZE] = {}, amounts[AMOUNTS_BITMAP_SIZE] = {};
        const WindowBins *from = &nothing;
        size_t n = kept_number();
        uint64_t missing, msec;
        uint8_t first;
        int schema;

        /* There are none mostly */
        memset(ret, 0, offsetof(HistoryStep, mounts));

        first = get_byte(&in);
        schema = (int) (first & RECORD_SCHEMA) + WINDOW_BINS_SCHEMA_MIN;
        ret->violated = first & RECORD_VIOLATED;
        ret->missed = first & RECORD_MISSED;
        ret->index = get_number(&in);
        msec = get_number(&in);
        missing = get_number(&in);
        ret->overlaps = get_number(&in);
        if (in.failed || schema > WINDOW_BINS_SCHEMA_MAX || missing > history_level_nsec(level) ||
            msec > INT64_MAX / NSEC_PER_MSEC || ret->index > UINT64_MAX / history_level_nsec(level))
                return -EBADMSG;
        ret->timestamp = msec * NSEC_PER_MSEC;
        ret->covered = history_level_nsec(level) - missing;

        for (size_t i = 0; i < (n + HISTORY_DISTRIBUTIONS + 7) / 8; i++)
                present[i] = get_byte(&in);
        for (size_t i = 0; i < (n + 7) / 8; i++)
                not_zero[i] = get_byte(&in);
        for (size_t i = 0; i < HISTORY_VALUES_MAX; i++)
                ret->values[i] = i >= n || !(present[i / 8] & 1U << i % 8) ? ABSENT :
                                 not_zero[i / 8] & 1U << i % 8 ? get_number(&in) : 0;

        if (first & RECORD_AMOUNTS) {
                uint64_t n_bytes = get_number(&in);

                if (n_bytes == 0 || n_bytes > sizeof(amounts))
                        return -EBADMSG;
                for (size_t i = 0; i < n_bytes; i++)
                        amounts[i] = get_byte(&in);
        }
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
                memcpy(b->count, from->count, sizeof(b->count));
                get_bins(&in, window_bins_number(schema), from->count, b->count);
                from = b;
        }

        if (first & RECORD_MOUNTS) {
                uint64_t n_mounts = get_number(&in);

                if (n_mounts == 0 || n_mounts > HISTORY_MOUNTS_MAX)
                        return -EBADMSG;
                ret->n_mounts = (unsigned) n_mounts;
        }
        for (unsigned i = 0; i < ret->n_mounts; i++)
                get_mount(&in, ret->mounts + i);

        if (first & RECORD_CUSTOM) {
                uint64_t n_custom = get_number(&in);

                if (n_custom == 0 || n_custom > HISTORY_CUSTOM_MAX)
                        return -EBADMSG;
                ret->n_custom = (unsigned) n_custom;
        }
        for (unsigned i = 0; i < ret->n_custom; i++)
                get_custom(&in, level, ret->custom + i);

        return in.failed || in.p != in.end ? -EBADMSG : 0;
}
