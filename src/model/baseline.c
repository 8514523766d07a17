/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "baseline.h"

/* Minimum number of steps, as single ones are random. */
#define STEPS_MIN 3U
/* Minimum number of requests in a step, as the mean of fewer is random. */
#define REQUESTS_MIN 10U
/* Share of the time in the fastest steps that the figures are taken from. Failures that lasted for less than
 * the rest are not included then, even if no threshold was violated. */
#define PART 0.5
/* Share of the time in the fastest steps of which the latency is considered usual. */
#define USUAL 0.75
/* Share of failed or aborted requests up to which a step is always included: a few aborts are not an
 * outage. */
#define FAILED_MIN 0.01
/* The usual share of failures is the first quartile over all steps, as an outage may last for more than half
 * of the history. Steps with more than twice that share are excluded. */
#define FAILED_PART 4U
#define FAILED_GROWN 2.0

typedef struct Step {
        HistoryLevel level;
        uint64_t index;
        uint64_t timestamp, covered;
        double first_byte, rate;
        double failed;                  /* share of its requests */
        bool chosen;
} Step;

/* Figures per request that are known for some of the steps only. */
typedef enum KnownKind {
        KNOWN_CLIENT,
        KNOWN_CPU,
        _KNOWN_MAX,
} KnownKind;

static const HistoryAmount known_table[_KNOWN_MAX] = {
        [KNOWN_CLIENT] = HISTORY_CLIENT_COVERED,
        [KNOWN_CPU]   = HISTORY_CPU_COVERED,
};

/* Sums of the steps for which they are known. */
typedef struct Known {
        double covered, count;
} Known;

typedef enum StepError {
        ERROR_STATUS5XX,
        ERROR_GRPC,
        ERROR_REPLY,
        ERROR_RESET,
        ERROR_TIMEOUT,
        ERROR_ABORT,
        _ERROR_MAX,
} StepError;

static const size_t error_table[_ERROR_MAX] = {
        [ERROR_STATUS5XX] = offsetof(Server, errors_status5xx),
        [ERROR_GRPC]      = offsetof(Server, errors_grpc),
        [ERROR_REPLY]     = offsetof(Server, errors_replies),
        [ERROR_RESET]     = offsetof(Server, errors_reset),
        [ERROR_TIMEOUT]   = offsetof(Server, errors_timeout),
        [ERROR_ABORT]     = offsetof(Server, client_aborts),
};

typedef struct Walk {
        HistoryLevel level;
        uint64_t end;                   /* CLOCK_MONOTONIC ns */
        uint64_t first;                 /* CLOCK_MONOTONIC ns of the beginning of the oldest step */
        const uint64_t *starts;         /* of the unit, CLOCK_MONOTONIC ns */
        size_t n_starts;
        uint64_t all, busy;             /* ns of all steps, and of those with requests */

        Step *steps;
        size_t n;

        double covered, count, bytes_in, bytes_out, first_bytes, first_byte_time;
        double errors[_ERROR_MAX];
        double amounts[_HISTORY_AMOUNT_MAX];
        Known known[_KNOWN_MAX];
} Walk;

static uint64_t server_get_errors(const Server *s, StepError error) {
        return *(const uint64_t*) ((const char*) s + error_table[error]);
}

/* Share of requests that failed or were aborted. */
static double server_get_failed(const Server *s) {
        double failed = 0, unanswered = 0;

        for (StepError i = 0; i < _ERROR_MAX; i++) {
                uint64_t n = server_get_errors(s, i);

                if (n == ABSENT)
                        continue;
                failed += (double) n;
                if (i >= ERROR_RESET)
                        unanswered += (double) n;
        }
        return failed > 0 ? failed / ((double) s->count + unanswered) : 0;
}

static bool step_has_start(const Walk *w, uint64_t begin, uint64_t end) {
        for (size_t i = 0; i < w->n_starts; i++)
                if (w->starts[i] >= begin && w->starts[i] < end)
                        return true;
        return false;
}

/* Collects steps with requests, without violated thresholds and starts of the unit. */
static int step_collect(const HistoryStep *s, void *userdata) {
        Walk *w = userdata;
        uint64_t length = history_level_nsec(w->level);
        Metrics m;

        w->first = MIN(w->first, s->index * length);
        if ((s->index + 1) * length > w->end || s->covered == 0)
                return 0;
        history_step_get_metrics(s, 1, &m);
        w->all += s->covered;
        if (m.requests.server.first_byte.count == ABSENT ||
            m.requests.server.first_byte.count < REQUESTS_MIN)
                return 0;
        w->busy += s->covered;
        if (s->violated || step_has_start(w, s->index * length, (s->index + 1) * length))
                return 0;
        assert(w->n < HISTORY_FINE_STEPS + HISTORY_COARSE_STEPS + 1);
        w->steps[w->n++] = (Step) {
                .level = w->level,
                .index = s->index,
                .timestamp = s->timestamp,
                .covered = s->covered,
                .first_byte = m.requests.server.first_byte.mean,
                .rate = m.requests.server.rate,
                .failed = server_get_failed(&m.requests.server),
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
        for (StepError k = 0; k < _ERROR_MAX; k++) {
                uint64_t n = server_get_errors(&m.requests.server, k);

                w->errors[k] += n == ABSENT ? NAN : (double) n;
        }
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

static int failed_compare(const void *a, const void *b) {
        const Step *x = a, *y = b;

        return x->failed < y->failed ? -1 : x->failed > y->failed;
}

/* Excludes steps of an outage, as failures are fast. */
static void steps_drop_failed(Walk *w) {
        double most;

        if (w->n == 0)
                return;
        qsort(w->steps, w->n, sizeof(Step), failed_compare);
        most = MAX(FAILED_MIN, FAILED_GROWN * w->steps[(w->n - 1) / FAILED_PART].failed);
        while (w->n > 0 && w->steps[w->n - 1].failed > most)
                w->n--;
}

static int step_compare(const void *a, const void *b) {
        const Step *x = a, *y = b;

        return x->first_byte < y->first_byte ? -1 : x->first_byte > y->first_byte;
}

/* Finds the number of fastest steps that make up a share of the time. Returns the time to first byte of the
 * slowest of these. */
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

/* An amount per request. It is known for some steps only, whose rate may differ. */
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
        f->status5xx = w->errors[ERROR_STATUS5XX] / w->covered * NSEC_PER_SEC;
        f->grpc_errors = w->errors[ERROR_GRPC] / w->covered * NSEC_PER_SEC;
        f->error_replies = w->errors[ERROR_REPLY] / w->covered * NSEC_PER_SEC;
        f->resets = w->errors[ERROR_RESET] / w->covered * NSEC_PER_SEC;
        f->timeouts = w->errors[ERROR_TIMEOUT] / w->covered * NSEC_PER_SEC;
        f->client_aborts = w->errors[ERROR_ABORT] / w->covered * NSEC_PER_SEC;
        f->first_byte = w->first_byte_time / w->first_bytes;
        f->receive = a[HISTORY_RECEIVE] / a[HISTORY_PHASED];
        f->queue = a[HISTORY_QUEUE] / a[HISTORY_PHASED];
        f->service = a[HISTORY_SERVICE] / a[HISTORY_PHASED];
        f->answer = a[HISTORY_ANSWER] / a[HISTORY_PHASED];
        f->bytes_in = w->bytes_in / w->count;
        f->bytes_out = w->bytes_out / w->count;
        if (a[HISTORY_CLIENT_COVERED] > 0) {
                f->client_rate = for_each_request(w, KNOWN_CLIENT, a[HISTORY_CLIENT]) * NSEC_PER_SEC;
                f->client_latency = a[HISTORY_CLIENT] > 0 ? a[HISTORY_CLIENT_TIME] / a[HISTORY_CLIENT] : 0;
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
        memset(w->errors, 0, sizeof(w->errors));
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

/* w->steps: sorted by time to first byte. */
static int steps_choose(const History *h, Walk *w, Baseline *ret) {
        double usual;
        size_t n;
        int r;

        usual = steps_find(w->steps, w->n, USUAL, &n);
        (void) steps_find(w->steps, w->n, PART, &n);
        r = steps_sum(h, w, n, ret);
        ret->usual = usual;
        ret->busy = w->all > 0 ? (double) w->busy / (double) w->all : 0;
        return r;
}

int baseline_read(const History *h, uint64_t before, double rate, const uint64_t *starts, size_t n_starts,
                  Baseline *ret) {
        _cleanup_free_ Step *steps = NULL;
        /* Without the last step: the trouble to be diagnosed has begun before the diagnosis */
        Walk w = {
                .end = before - MIN(before, HISTORY_FINE_NSEC),
                .first = UINT64_MAX,
                .starts = starts,
                .n_starts = n_starts,
        };
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
        /* Steps of five minutes, before the oldest one of ten seconds */
        w.end = MIN(w.end, w.first);
        w.level = HISTORY_COARSE;
        r = history_foreach(h, HISTORY_COARSE, step_collect, &w);
        if (r < 0)
                return r;
        steps_drop_failed(&w);
        if (w.n < STEPS_MIN)
                return -ENODATA;

        qsort(w.steps, w.n, sizeof(Step), step_compare);
        r = steps_choose(h, &w, ret);
        if (r < 0 || rate < DIAGNOSIS_MORE_REQUESTS * ret->figures.rate)
                return r;

        /* More load than usual: prefer steps with similar load, if there were enough */
        for (size_t i = 0; i < w.n; i++)
                if (rate < DIAGNOSIS_MORE_REQUESTS * w.steps[i].rate)
                        w.steps[more++] = w.steps[i];
        if (more < STEPS_MIN)
                return 0;
        w.n = more;
        return steps_choose(h, &w, ret);
}
