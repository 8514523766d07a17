/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Diagnoses: verdicts, what is usual, and limits. */

#include "util-diagnosis.h"

static void test_words(void) {
        for (FindingKind k = 0; k < _FINDING_KIND_MAX; k++)
                check(finding_kind_to_string(k));
        for (Certainty c = 0; c < _CERTAINTY_MAX; c++)
                check(certainty_to_string(c));
        for (Verdict v = 0; v < _VERDICT_MAX; v++)
                check(verdict_to_string(v));
        check(!qos_state_to_string(QOS_STATE_NONE));
        check(streq(qos_state_to_string(QOS_STATE_RUN_QUEUE), "runQueue"));
        check(streq(qos_state_to_string(QOS_STATE_OTHER), "other"));

        /* Each figure once */
        for (size_t i = 0; i < diagnosis_n_figures; i++)
                for (size_t k = 0; k < i; k++)
                        check(!streq(diagnosis_figures[i].name, diagnosis_figures[k].name) &&
                              diagnosis_figures[i].offset != diagnosis_figures[k].offset);
}

static void test_nothing(void) {
        DiagnosisEvidence e = evidence();

        nothing(&e);

        /* Threads that wait for work are no contention, however many there are */
        e.now.threads[QOS_STATE_PARK] = 500;
        e.now.threads[QOS_STATE_SLEEP] = 20;
        e.now.threads[QOS_STATE_SOCKET] = 50;
        nothing(&e);

        /* A thread that syncs in the background: the service time of a request cannot include that */
        e.now.threads[QOS_STATE_RUNNING] = 0.17;
        e.now.threads[QOS_STATE_DISK] = 0.9;
        nothing(&e);

        /* No requests, and threads that run now and then */
        e = evidence();
        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.03;
        nothing(&e);

        /* Processes that accept connections in turns, one of which has its turn */
        e.now.threads[QOS_STATE_POLL] = 0;
        e.now.threads[QOS_STATE_PARK] = 2;
        e.now.threads[QOS_STATE_SOCKET] = 1;
        nothing(&e);

        /* A proxy that waits for a backend for half a millisecond */
        e = evidence();
        set_times(&e.now, 20 * US, 600 * US);
        e.now.client_rate = 1000;
        e.now.client_latency = 500 * US;
        nothing(&e);

        /* A request of 20 ms, in which its thread sleeps */
        e = evidence();
        set_times(&e.now, 20 * US, 20 * MS);
        e.now.threads[QOS_STATE_SLEEP] = 20;
        nothing(&e);
}

/* Nine requests are too few for a verdict, ten are enough. */
static void test_few(void) {
        DiagnosisEvidence e = evidence();
        Diagnosis d;

        e.now.rate = 1;
        e.now.covered = 9 * NSEC_PER_SEC;
        diagnosis_make(&e, &d);
        check(streq(d.text, "almost no requests"));
        e.now.covered = 10 * NSEC_PER_SEC;
        diagnosis_make(&e, &d);
        check(d.text[0] && !streq(d.text, "almost no requests"));
}

/* A sentence that is too long for two names ends with a whole character. */
static void test_long_names(void) {
        DiagnosisEvidence e = evidence();
        Diagnosis d;

        set_times(&e.now, 1 * MS, 21 * MS);
        e.now.rate = 100;
        e.now.client_rate = 200;
        e.now.client_latency = 10 * MS;
        e.now.threads[QOS_STATE_SOCKET] = 5;
        e.peers[0] = (DiagnosisNamed) { .value = 10 * MS };
        e.n_peers = 1;
        for (size_t i = 0; i + 2 < DIAGNOSIS_NAME_MAX; i += 2)
                memcpy(e.peers[0].name + i, "\xc3\xa9", 3);
        memcpy(e.peers[0].unit, e.peers[0].name, sizeof(e.peers[0].name));
        for (unsigned i = 0; i < 2; i++) {
                const Finding *f = only(&e, FINDING_DEPENDENCY, &d);

                check(strlen(f->text) == DIAGNOSIS_TEXT_MAX - 1);
                check(text_is_valid(f->text, strlen(f->text)));
                e.peers[0].name[0] = 'x';
                memmove(e.peers[0].name + 1, e.peers[0].name + 2, sizeof(e.peers[0].name) - 2);
        }
}

/* Where each request has a thread of its own, what others do besides is of no request: those that wait until
 * it is their turn to accept a connection, and those that have work of their own. */
static void test_beside(void) {
        DiagnosisEvidence e = evidence();
        DiagnosisFigures normal;
        const Finding *f;
        Diagnosis d;

        set_times(&e.now, 20 * US, 40 * MS);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_RUNNING] = 1.6;
        e.now.threads[QOS_STATE_LOCK] = 12;
        e.now.client_rate = 100;
        e.now.client_latency = 22 * MS;
        e.now.blocked_by_requests = e.now.service_run_queue = e.now.service_lock = 0;
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_CERTAIN && f->time > 20 * MS);
        e.now.service_lock = 20 * MS;
        e.now.client_rate = 0;
        f = only(&e, FINDING_LOCK, &d);
        check(f->time > 19 * MS && f->time < 21 * MS);
        e.now.service_lock = NAN;
        diagnosis_make(&e, &d);
        f = find(&d, FINDING_LOCK);
        check(f && f->time > 22 * MS);

        e = evidence();
        set_times(&e.now, 50 * US, 2 * MS);
        e.now.rate = 400;
        e.now.threads[QOS_STATE_RUNNING] = 3.9;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 8;
        e.now.run_queue_wait = 4 * MS;
        e.now.run_queue_own = 3;
        e.now.run_queue_others = 5;
        e.now.cpus = 4;
        e.now.idle_cpus = 0;
        e.now.blocked_by_requests = e.now.service_lock = 0;
        e.now.service_run_queue = 10 * US;
        nothing(&e);
        /* A baseline without the exact times: they are not used on either side */
        normal = e.now;
        normal.blocked_by_requests = normal.service_lock = normal.service_run_queue = NAN;
        normal.threads[QOS_STATE_RUN_QUEUE] = 0;
        normal.queue = normal.service = 100 * US;
        normal.first_byte = 200 * US;
        e.normal = &normal;
        diagnosis_make(&e, &d);
        check(find(&d, FINDING_CPU));
}

static void test_normal(void) {
        DiagnosisEvidence e = evidence(), before = evidence();
        const Finding *f;
        Diagnosis d;

        e.normal = &before.now;
        nothing(&e);

        /* Three times as many requests, for one thread */
        set_times(&e.now, 2 * MS, 190 * US);
        e.now.rate = 3000;
        e.now.threads[QOS_STATE_RUNNING] = 0.3;
        diagnosis_make(&e, &d);
        check(find(&d, FINDING_WORKLOAD) && d.findings[0].kind == FINDING_WORKLOAD &&
              strstr(d.findings[0].text, "3.00k requests/s, baseline 1.00k"));

        /* Larger requests */
        e = evidence();
        e.normal = &before.now;
        set_times(&e.now, 20 * US, 900 * US);
        e.now.threads[QOS_STATE_RUNNING] = 0.2;
        e.now.bytes_out = 64000;
        f = only(&e, FINDING_WORKLOAD, &d);
        check(strstr(f->text, "larger"));

        /* Requests that take more CPU time */
        e.now.bytes_out = 128;
        e.now.threads[QOS_STATE_RUNNING] = 0.8;
        f = only(&e, FINDING_WORKLOAD, &d);
        check(strstr(f->text, "CPU time per request: 800us, baseline 100us"));

        /* A hundredth of a request at a time, on a machine that others have made slower */
        before.now.rate = 10;
        before.now.threads[QOS_STATE_RUNNING] = 0.004;
        before.now.service = 480 * US;
        before.now.first_byte = 500 * US;
        e = evidence();
        e.normal = &before.now;
        e.usual = 600 * US;
        set_times(&e.now, 20 * US, 980 * US);
        e.now.rate = 19;
        e.now.threads[QOS_STATE_RUNNING] = 0.015;
        nothing(&e);
        /* The same, and a millisecond more */
        set_times(&e.now, 20 * US, 1980 * US);
        e.now.rate = 10;
        e.now.threads[QOS_STATE_RUNNING] = 0.018;
        f = only(&e, FINDING_WORKLOAD, &d);
        check(strstr(f->text, "CPU time per request: 1.80ms, baseline 400us"));
        /* They wait for a CPU, none of which is idle */
        set_times(&e.now, 2140 * US, 150 * US);
        e.now.rate = 19;
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.04;
        e.now.idle_cpus = 0.01;
        f = only(&e, FINDING_CPU, &d);
        check(f->share > 0.9 && startswith(f->rule, "its threads waited for a CPU for half of the time"));
        /* With an idle CPU these are threads without requests */
        e.now.idle_cpus = 1;
        diagnosis_make(&e, &d);
        check(!find(&d, FINDING_CPU));
        before = evidence();

        /* Neither: a disk that has become slow, though below the limit without a baseline */
        e = evidence();
        e.normal = &before.now;
        set_times(&e.now, 20 * US, 900 * US);
        e.now.threads[QOS_STATE_DISK] = 0.7;
        (void) only(&e, FINDING_DISK, &d);
        check(d.n_excluded > 0);
        /* More requests at the same time as well: the wait explains it */
        e.now.rate = 2000;
        e.now.threads[QOS_STATE_DISK] = 1.4;
        e.now.threads[QOS_STATE_RUNNING] = 0.2;
        (void) only(&e, FINDING_DISK, &d);

        /* It always waits for its backend, but now it waits for a lock */
        set_times(&before.now, 20 * US, 5 * MS);
        before.now.client_rate = 1000;
        before.now.client_latency = 4.8 * MS;
        e = before;
        e.normal = &before.now;
        nothing(&e);
        set_times(&e.now, 20 * US, 15 * MS);
        e.now.threads[QOS_STATE_LOCK] = 10;
        (void) only(&e, FINDING_LOCK, &d);

        /* Slower for an unknown reason */
        e = before;
        e.normal = &before.now;
        set_times(&e.now, 20 * US, 15 * MS);
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN && d.n_findings == 0);
}

/* A cause that is excluded names the limit that it is below. */
static void test_limits(void) {
        DiagnosisEvidence e = evidence();
        DiagnosisFigures normal;
        Diagnosis d;

        /* A share */
        e.now.rate = 10;
        set_times(&e.now, 0, 50 * MS);
        e.now.threads[QOS_STATE_RUNNING] = 0.42;
        e.now.threads[QOS_STATE_DISK] = 0.08;
        check(streq(excluded(&e, FINDING_DISK, &d), "disk wait: 8.00ms of each request (16%), limit 20%"));

        /* A time */
        e = evidence();
        set_times(&e.now, 0, 900 * US);
        e.now.threads[QOS_STATE_RUNNING] = 0.7;
        e.now.threads[QOS_STATE_DISK] = 0.2;
        check(streq(excluded(&e, FINDING_DISK, &d), "disk wait: 200us of each request (22%), limit 1.00ms"));

        /* Threads */
        e = evidence();
        e.now.rate = 40;
        set_times(&e.now, 0, 2 * MS);
        e.now.threads[QOS_STATE_RUNNING] = 0.02;
        e.now.threads[QOS_STATE_LOCK] = 0.06;
        check(streq(excluded(&e, FINDING_LOCK, &d),
                    "lock wait: 1.50ms of each request (75%), but 0.06 threads on average, limit 0.10"));

        /* Responses that take 44 % of the latency */
        e = evidence();
        set_times(&e.now, 0, 56 * MS);
        e.now.rate = 1;
        e.now.covered = 60e9;
        e.now.answer = 44 * MS;
        e.now.threads[QOS_STATE_RUNNING] = 0.056;
        check(streq(excluded(&e, FINDING_NETWORK, &d),
                    "requests arrive in 0us, responses leave in 44.0ms (44% of the latency), limit 50%"));

        /* More than half of it, but no more than in the baseline */
        set_times(&e.now, 0, 6 * MS);
        normal = e.now;
        e.normal = &normal;
        check(streq(excluded(&e, FINDING_NETWORK, &d),
                    "requests arrive in 0us, responses leave in 44.0ms (88% of the latency), as in the "
                    "baseline"));

        /* Requests that wait to be read */
        e = evidence();
        set_times(&e.now, 90 * US, 110 * US);
        check(streq(excluded(&e, FINDING_LIMIT, &d), "queue time: 90.0us of each request (45%), limit 50%"));

        /* The same, with a time below its limit */
        set_times(&e.now, 150 * US, 50 * US);
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        check(streq(excluded(&e, FINDING_LIMIT, &d),
                    "queue time: 150us of each request (75%), limit 1.00ms"));
}

/* A history has the usual behaviour of the unit, which need not be good. */
static void test_history(void) {
        DiagnosisEvidence before = evidence(), e = evidence();
        const Finding *f;
        Diagnosis d;

        /* It has become slow */
        e.normal = &before.now;
        e.usual = 250 * US;
        set_times(&e.now, 1 * MS, 3 * MS);
        e.now.threads[QOS_STATE_LOCK] = 3;
        f = only(&e, FINDING_LOCK, &d);
        check(f->certainty == CERTAINTY_CERTAIN && strstr(d.text, "; usually: 1.00k requests/s, 200us"));

        /* It was always slow: that is found as well */
        before = e;
        before.normal = NULL;
        e.usual = 5 * MS;
        f = only(&e, FINDING_LOCK, &d);
        check(strstr(d.text, "; usually"));
        /* It is no finding if the baseline has it */
        e.usual = 0;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_NOTHING);

        /* Slower than mostly, but as slow as in a quarter of the time */
        e = evidence();
        before = evidence();
        e.normal = &before.now;
        e.usual = 900 * US;
        set_times(&e.now, 100 * US, 700 * US);
        e.now.threads[QOS_STATE_DISK] = 0.5;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_NOTHING);
        e.usual = 500 * US;
        (void) only(&e, FINDING_DISK, &d);

        /* The history has no waits: limits are those without a baseline, and the finding is less certain */
        before.now.threads[QOS_STATE_DISK] = NAN;
        diagnosis_make(&e, &d);
        check(!find(&d, FINDING_DISK));
        set_times(&e.now, 1 * MS, 7 * MS);
        e.now.threads[QOS_STATE_DISK] = 6.5;
        f = only(&e, FINDING_DISK, &d);
        check(f->certainty == CERTAINTY_LIKELY);

        /* A difference of some microseconds is none, one of milliseconds is */
        e = evidence();
        before = evidence();
        e.normal = &before.now;
        e.usual = 250 * US;
        set_times(&e.now, 20 * US, 500 * US);
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_NOTHING);
        set_times(&e.now, 20 * US, 5 * MS);
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
}

static void test_two(void) {
        DiagnosisEvidence e = evidence();
        Diagnosis d;

        set_times(&e.now, 100 * US, 21 * MS);
        e.now.rate = 40;
        e.now.threads[QOS_STATE_RUNNING] = 0.2;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.24;
        e.now.run_queue_wait = 3 * MS;
        e.now.idle_cpus = 1;
        e.now.client_rate = 40;
        e.now.client_latency = 10 * MS;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && find(&d, FINDING_CPU) && find(&d, FINDING_DEPENDENCY));
        check(d.findings[0].share >= d.findings[1].share);
}

static void test_unknown(void) {
        DiagnosisEvidence e = {};
        Diagnosis d;

        /* No figure is known */
        diagnosis_figures_set_absent(&e.now);
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN && d.n_findings == 0);

        /* Requests alone: waits of threads are neither found nor excluded */
        e = evidence();
        for (unsigned i = 0; i < QOS_STATES; i++)
                e.now.threads[i] = NAN;
        e.now.client_rate = e.now.client_latency = e.now.cpus = e.now.idle_cpus = e.now.busiest_process =
                e.now.throttled = NAN;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_NOTHING);
        for (size_t i = 0; i < d.n_excluded; i++)
                check(d.excluded[i].kind == FINDING_LIMIT || d.excluded[i].kind == FINDING_NETWORK);

        /* Slow enough to be noticed by people, and no known wait explains it */
        e = evidence();
        set_times(&e.now, 20 * US, 300 * MS);
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);

        /* It hangs */
        e = evidence();
        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.in_flight = e.now.waiting = 8;
        e.now.oldest = e.now.oldest_waiting = 20e9;
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.now.threads[QOS_STATE_PARK] = 8;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN && strstr(d.text, "8 requests wait without a response"));
        e.now.threads[QOS_STATE_PARK] = 0;
        e.now.threads[QOS_STATE_LOCK] = 8;
        (void) only(&e, FINDING_LOCK, &d);

        /* Requests overlap */
        e.now.rate = NAN;
        e.now.in_flight = e.now.waiting = 0;
        e.now.threads[QOS_STATE_LOCK] = 0;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
}

/* Requests over UDP: their latency is known, but not when they are read. */
static void test_without_parts(void) {
        DiagnosisEvidence e = evidence();
        Diagnosis d;

        e.now.rate = 7000;
        e.now.first_byte = 150 * US;
        e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        nothing(&e);
        diagnosis_make(&e, &d);
        check(strstr(d.text, "7.00k requests/s; mean time to first byte 150us") ||
              strstr(d.text, "7000 requests/s; mean time to first byte 150us"));

        e.now.first_byte = 50 * MS;
        nothing(&e);
        e.now.client_rate = 7000;
        e.now.client_latency = 40 * MS;
        check(only(&e, FINDING_DEPENDENCY, &d)->certainty == CERTAINTY_LIKELY);
        e.now.client_rate = 70;
        nothing(&e);

        /* Slow for an unknown reason */
        e.now.first_byte = 150 * MS;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);

        e.now.threads[QOS_STATE_DISK] = 1;
        check(strstr(only(&e, FINDING_DISK, &d)->rule, "when its requests are read"));
}

/* Fast failures, and 404s, are no bottleneck, however busy the threads are. */
static void test_faster_than_usual(void) {
        DiagnosisEvidence e = serving();
        DiagnosisFigures normal = e.now;
        Diagnosis d;

        e.normal = &normal;
        e.usual = 2 * MS;
        set_times(&normal, 300 * US, 1 * MS);
        e.now.rate = 20000;
        set_times(&e.now, 400 * US, 100 * US);
        e.now.threads[QOS_STATE_RUNNING] = 1.9;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 6;
        e.now.run_queue_wait = 300 * US;
        e.now.run_queue_own = 6;
        e.now.idle_cpus = 0.05;
        e.now.busiest_process = 1;
        nothing(&e);

        /* A unit that is as slow as ever may have been too slow all the time */
        set_times(&e.now, 900 * US, 100 * US);
        diagnosis_make(&e, &d);
        check(find(&d, FINDING_LIMIT));
}

int main(void) {
        test_words();
        test_nothing();
        test_few();
        test_long_names();
        test_beside();
        test_normal();
        test_limits();
        test_history();
        test_two();
        test_unknown();
        test_without_parts();
        test_faster_than_usual();
        return 0;
}
