/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "baseline.h"

/* Half a minute: a single step is too noisy. */
#define STEPS_MIN 3U
/* Means of fewer requests are those of individual ones. */
#define REQUESTS_MIN 10U
/* The faster half of the time is the baseline. A problem present for less than the other half is excluded,
 * even if it was never reported. */
#define PART 0.5
/* Quantile of the step means considered usual: the slowest quarter recurs regularly. */
#define USUAL 0.75

typedef struct Step {
        HistoryLevel level;
        uint64_t index;
        uint64_t timestamp, covered;
        double first_byte, rate;
        bool chosen;
} Step;

/* Amounts that only some of the steps have, normalized per request. */
typedef enum KnownKind {
        KNOWN_ASKED,
        KNOWN_CPU,
        _KNOWN_MAX,
} KnownKind;

static const HistoryAmount known_table[_KNOWN_MAX] = {
        [KNOWN_ASKED] = HISTORY_ASKED_COVERED,
        [KNOWN_CPU]   = HISTORY_CPU_COVERED,
};

/* Sums over the steps that have the amount. */
typedef struct Known {
        double covered, count;
} Known;

typedef struct Walk {
        HistoryLevel level;
        uint64_t end;                   /* CLOCK_MONOTONIC ns; later steps are ignored */
        uint64_t first;                 /* CLOCK_MONOTONIC ns of the first step of the level */

        Step *steps;
        size_t n;

        double covered, count, bytes_in, bytes_out, first_bytes, first_byte_time;
        double amounts[_HISTORY_AMOUNT_MAX];
        Known known[_KNOWN_MAX];
} Walk;

/* Collects the steps with requests and without known problems. */
static int step_collect(const HistoryStep *s, void *userdata) {
        Walk *w = userdata;
        uint64_t length = history_level_nsec(w->level);
        Metrics m;

        w->first = MIN(w->first, s->index * length);
        if ((s->index + 1) * length > w->end || s->covered == 0 || s->violated)
                return 0;
        history_step_get_metrics(s, 1, &m);
        if (m.requests.server.first_byte.count == ABSENT ||
            m.requests.server.first_byte.count < REQUESTS_MIN)
                return 0;
        assert(w->n < HISTORY_FINE_STEPS + HISTORY_COARSE_STEPS + 1);
        w->steps[w->n++] = (Step) {
                .level = w->level,
                .index = s->index,
                .timestamp = s->timestamp,
                .covered = s->covered,
                .first_byte = m.requests.server.first_byte.mean,
                .rate = m.requests.server.rate,
        };
        return 0;
}

static int step_sum(const HistoryStep *s, void *userdata) {
        Walk *w = userdata;
        Metrics m;
        size_t i;

        for (i = 0; i < w->n; i++)
                if (w->steps[i].chosen && w->steps[i].level == w->level && w->steps[i].index == s->index)
                        break;
        if (i == w->n)
                return 0;

        history_step_get_metrics(s, 1, &m);
        w->covered += s->covered;
        w->count += m.requests.server.count;
        w->bytes_in += m.requests.server.bytes_in == ABSENT ? NAN : m.requests.server.bytes_in;
        w->bytes_out += m.requests.server.bytes_out == ABSENT ? NAN : m.requests.server.bytes_out;
        w->first_bytes += m.requests.server.first_byte.count;
        w->first_byte_time += (double) m.requests.server.first_byte.count *
                              m.requests.server.first_byte.mean;
        for (size_t k = 0; k < _HISTORY_AMOUNT_MAX; k++)
                w->amounts[k] += s->amounts[k];
        for (KnownKind k = 0; k < _KNOWN_MAX; k++)
                if (s->amounts[known_table[k]] > 0) {
                        w->known[k].covered += s->covered;
                        w->known[k].count += m.requests.server.count;
                }
        return 0;
}

static int step_compare(const void *a, const void *b) {
        const Step *x = a, *y = b;

        return x->first_byte < y->first_byte ? -1 : x->first_byte > y->first_byte;
}

/* Finds the fastest steps that make up the given part of the time; steps are sorted. Returns their mean time
 * to first byte, and their number in ret. */
static double steps_find(const Step *steps, size_t n, double part, size_t *ret) {
        double all = 0, some = 0;
        size_t i = 0;

        for (size_t k = 0; k < n; k++)
                all += steps[k].covered;
        while (i < n && (some < part * all || i < STEPS_MIN))
                some += steps[i++].covered;
        *ret = i;
        return steps[i - 1].first_byte;
}

static double per_second(const Walk *w, HistoryAmount amount, HistoryAmount covered) {
        return w->amounts[covered] > 0 ? w->amounts[amount] / w->amounts[covered] * NSEC_PER_SEC : NAN;
}

/* Amount per request over the steps that have it: their request rate may differ from that of the others. */
static double for_each_request(const Walk *w, KnownKind kind, double amount) {
        const Known *known = w->known + kind;

        return amount / w->amounts[known_table[kind]] * (w->count / w->covered) /
               (known->count / known->covered);
}

static void figures_fill(const Walk *w, DiagnosisFigures *f) {
        const double *a = w->amounts;

        diagnosis_figures_set_absent(f);
        f->covered = w->covered;
        f->rate = w->count / w->covered * NSEC_PER_SEC;
        f->first_byte = w->first_byte_time / w->first_bytes;
        f->receive = a[HISTORY_RECEIVE] / a[HISTORY_PHASED];
        f->queue = a[HISTORY_QUEUE] / a[HISTORY_PHASED];
        f->service = a[HISTORY_SERVICE] / a[HISTORY_PHASED];
        f->answer = a[HISTORY_ANSWER] / a[HISTORY_PHASED];
        f->bytes_in = w->bytes_in / w->count;
        f->bytes_out = w->bytes_out / w->count;
        if (a[HISTORY_ASKED_COVERED] > 0) {
                f->client_rate = for_each_request(w, KNOWN_ASKED, a[HISTORY_ASKED]) * NSEC_PER_SEC;
                f->client_latency = a[HISTORY_ASKED] > 0 ? a[HISTORY_ASKED_TIME] / a[HISTORY_ASKED] : 0;
        }
        if (a[HISTORY_QUOTA_PERIODS] > 0)
                f->throttled = a[HISTORY_QUOTA_THROTTLED] / a[HISTORY_QUOTA_PERIODS];
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES && a[HISTORY_CPU_COVERED] > 0; i++)
                f->threads[i] = for_each_request(w, KNOWN_CPU,
                                                 a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING]);
        if (a[HISTORY_RUN_QUEUES] > 0)
                f->run_queue_wait = a[HISTORY_RUN_QUEUE_TIME] / a[HISTORY_RUN_QUEUES];
        f->major_faults = per_second(w, HISTORY_MAJOR_FAULTS, HISTORY_MEMORY_COVERED);
        f->oom_kills = per_second(w, HISTORY_OOM_KILLS, HISTORY_MEMORY_COVERED);
}

static int steps_sum(const History *h, Walk *w, size_t n_chosen, Baseline *ret) {
        int r;

        *ret = (Baseline) { .since = UINT64_MAX };
        for (size_t i = 0; i < w->n; i++) {
                Step *s = w->steps + i;

                s->chosen = i < n_chosen;
                if (!s->chosen)
                        continue;
                ret->since = MIN(ret->since, s->timestamp);
                ret->until = MAX(ret->until, s->timestamp + history_level_nsec(s->level));
                ret->covered += s->covered;
        }

        w->covered = w->count = w->bytes_in = w->bytes_out = w->first_bytes = w->first_byte_time = 0;
        memset(w->amounts, 0, sizeof(w->amounts));
        memset(w->known, 0, sizeof(w->known));
        for (w->level = 0; w->level < _HISTORY_LEVEL_MAX; w->level++) {
                r = history_foreach(h, w->level, step_sum, w);
                if (r < 0)
                        return r;
        }
        figures_fill(w, &ret->figures);
        return 0;
}

/* Reduces the n sorted steps of w to the faster part, and determines the usual time to first byte. */
static int steps_choose(const History *h, Walk *w, Baseline *ret) {
        double usual;
        size_t n;
        int r;

        usual = steps_find(w->steps, w->n, USUAL, &n);
        (void) steps_find(w->steps, w->n, PART, &n);
        r = steps_sum(h, w, n, ret);
        ret->usual = usual;
        return r;
}

int baseline_read(const History *h, uint64_t before, double rate, Baseline *ret) {
        _cleanup_free_ Step *steps = NULL;
        Walk w = { .end = before, .first = UINT64_MAX };
        size_t more = 0;
        int r;

        assert(h);
        assert(ret);

        steps = new0(Step, HISTORY_FINE_STEPS + HISTORY_COARSE_STEPS + 1);
        if (!steps)
                return -ENOMEM;
        w.steps = steps;

        r = history_foreach(h, HISTORY_FINE, step_collect, &w);
        if (r < 0)
                return r;
        /* Earlier times have steps of 5 min only */
        w.end = MIN(w.end, w.first);
        w.level = HISTORY_COARSE;
        r = history_foreach(h, HISTORY_COARSE, step_collect, &w);
        if (r < 0)
                return r;
        if (w.n < STEPS_MIN)
                return -ENODATA;

        qsort(w.steps, w.n, sizeof(Step), step_compare);
        r = steps_choose(h, &w, ret);
        if (r < 0 || rate < DIAGNOSIS_MORE_REQUESTS * ret->figures.rate)
                return r;

        /* Higher load than usual, but seen before: compare with the steps of similar load only */
        for (size_t i = 0; i < w.n; i++)
                if (rate < DIAGNOSIS_MORE_REQUESTS * w.steps[i].rate)
                        w.steps[more++] = w.steps[i];
        if (more < STEPS_MIN)
                return 0;
        w.n = more;
        return steps_choose(h, &w, ret);
}
