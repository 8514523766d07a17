/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <signal.h>

#include "check.h"
#include "diagnosis.h"
#include "parse.h"
#include "state-label.h"
#include "util.h"

#define US 1e3
#define MS 1e6

/* A healthy server: 1000 requests per second, 200 us each, 100 us of CPU time, on two CPUs. */
static DiagnosisEvidence evidence(void) {
        DiagnosisEvidence e = {};
        DiagnosisFigures *f = &e.now;

        memset(f, 0, sizeof(*f));
        f->service_lock = NAN; /* its threads do whatever there is to do */
        f->covered = 10e9;
        f->rate = 1000;
        f->queue = 20 * US;
        f->service = 180 * US;
        f->first_byte = 200 * US;
        f->bytes_in = 64;
        f->bytes_out = 128;
        f->threads[QOS_STATE_RUNNING] = 0.1;
        f->threads[QOS_STATE_POLL] = 4;
        f->run_queue_wait = 5 * US;
        f->cpus = 2;
        f->idle_cpus = 1.8;
        e.accept_queue = e.accept_queue_max = NAN;
        f->busiest_process = 0.1;
        return e;
}

static void set_times(DiagnosisFigures *f, double queue, double service) {
        f->queue = queue;
        f->service = service;
        f->first_byte = f->receive + queue + service;
}

static const Finding* find(const Diagnosis *d, FindingKind kind) {
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind == kind)
                        return d->findings + i;
        return NULL;
}

static void diagnose_none(const DiagnosisEvidence *e, Diagnosis *d) {
        diagnosis_make(e, d);
        check(d->verdict == VERDICT_NOTHING && d->n_findings == 0);
}

/* This kind is found, and no other. */
static const Finding* only(const DiagnosisEvidence *e, FindingKind kind, Diagnosis *d) {
        diagnosis_make(e, d);
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind != kind)
                        fprintf(stderr, "%s: %s\n", finding_kind_to_string(d->findings[i].kind),
                                d->findings[i].text);
        check(d->n_findings == 1 && d->findings[0].kind == kind);
        check(d->verdict == VERDICT_FOUND);
        check(d->findings[0].text[0] && d->findings[0].rule);
        for (size_t i = 0; i < d->n_excluded; i++)
                check(d->excluded[i].kind != kind && d->excluded[i].text[0]);
        return d->findings;
}

static void nothing(const DiagnosisEvidence *e) {
        Diagnosis d;

        diagnosis_make(e, &d);
        for (size_t i = 0; i < d.n_findings; i++)
                fprintf(stderr, "%s: %s\n", finding_kind_to_string(d.findings[i].kind), d.findings[i].text);
        check(d.verdict == VERDICT_NOTHING && d.n_findings == 0 && d.text[0]);
}

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

static void test_cpu(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        /* One thread that has half of a CPU, and clients that wait for it */
        e.now.rate = 10000;
        set_times(&e.now, 1.9 * MS, 100 * US);
        e.now.threads[QOS_STATE_RUNNING] = 0.5;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.5;
        e.now.threads[QOS_STATE_POLL] = 0;
        e.now.run_queue_wait = 3 * MS;
        e.now.cpus = 1;
        e.now.idle_cpus = 0;
        e.now.busiest_process = 0.5;
        f = only(&e, FINDING_CPU, &d);
        check(f->state == QOS_STATE_RUN_QUEUE && !f->unit[0] && strstr(f->text, "no competitor was seen"));
        check(fabs(f->share - 0.5) < 0.05);

        e.users[0] = (DiagnosisNamed) { .name = "hog.service", .unit = "hog.service", .value = 0.45 };
        e.n_users = 1;
        e.now.run_queue_own = 0.05;
        e.now.run_queue_others = 0.45;
        f = only(&e, FINDING_CPU, &d);
        check(streq(f->unit, "hog.service") && streq(f->resource, "hog.service") &&
              strstr(f->text, "; hog.service had it for 90% of that"));
        check(!strstr(f->text, ", then "));

        /* Another unit used the CPU as well, or for less than a tenth of the time; the kernel is no unit */
        e.users[0] = (DiagnosisNamed) { .name = "the kernel", .value = 0.3 };
        e.users[1] = (DiagnosisNamed) { .name = "hog.service", .unit = "hog.service", .value = 0.1 };
        e.n_users = 2;
        f = only(&e, FINDING_CPU, &d);
        check(streq(f->resource, "the kernel") && !f->unit[0] &&
              strstr(f->text, "the kernel had it for 60% of that, then "
                              "hog.service"));
        e.users[1].value = 0.04;
        check(!strstr(only(&e, FINDING_CPU, &d)->text, ", then "));
        e.users[0].value = 0.04;
        check(strstr(only(&e, FINDING_CPU, &d)->text, "no competitor was seen"));
        e.n_users = 0;
        e.now.run_queue_own = e.now.run_queue_others = NAN;
        check(!strstr(only(&e, FINDING_CPU, &d)->text, "seen"));

        /* An event loop that has read several requests: each of them waits for the work on the others, and
         * for the CPU meanwhile */
        e = evidence();
        e.now.rate = 14600;
        set_times(&e.now, 530 * US, 170 * US);
        e.now.threads[QOS_STATE_RUNNING] = 0.42;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.37;
        e.now.run_queue_wait = 306 * US;
        e.now.cpus = 1;
        e.now.idle_cpus = 0;
        nothing(&e);
        e.now.service_run_queue = 80 * US;
        f = only(&e, FINDING_CPU, &d);
        check(fabs(f->share - 80.0 / 170) < 0.01 && f->certainty == CERTAINTY_LIKELY);
        /* For a short time each, while CPUs are idle */
        e.now.run_queue_wait = 30 * US;
        e.now.cpus = 2;
        e.now.idle_cpus = 1;
        nothing(&e);

        /* Woken after others: nearly all of the time is in the queue */
        e = evidence();
        set_times(&e.now, 4 * MS, 100 * US);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.4;
        e.now.run_queue_wait = 4 * MS;
        f = only(&e, FINDING_CPU, &d);
        check(f->certainty == CERTAINTY_CERTAIN && f->share > 0.9);

        /* CPUs that were idle and have to wake up, fifty times per request */
        e.now.run_queue_wait = 30 * US;
        nothing(&e);
        /* The same, and no CPU was idle */
        e.now.idle_cpus = 0;
        (void) only(&e, FINDING_CPU, &d);

        /* No requests, and its threads wait for a CPU */
        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        nothing(&e);
        e.now.threads[QOS_STATE_RUN_QUEUE] = 3;
        f = only(&e, FINDING_CPU, &d);
        check(f->certainty == CERTAINTY_POSSIBLE && isnan(f->share));
}

static void test_quota(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        set_times(&e.now, 20 * MS, 30 * MS);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_RUNNING] = 0.2;
        e.now.threads[QOS_STATE_THROTTLED] = 0.8;
        e.now.throttled = 0.9;
        f = only(&e, FINDING_QUOTA, &d);
        check(f->state == QOS_STATE_THROTTLED && strstr(f->text, "90% of the periods"));
}

static void test_disk(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        set_times(&e.now, 1 * MS, 10 * MS);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_RUNNING] = 0.02;
        e.now.threads[QOS_STATE_DISK] = 0.95;
        e.devices[0] = (DiagnosisNamed) { .name = "sda", .value = 0.9 };
        e.n_devices = 1;
        f = only(&e, FINDING_DISK, &d);
        check(streq(f->resource, "sda") && strstr(f->text, "90% of its bytes are the unit's own") &&
              f->certainty == CERTAINTY_CERTAIN);

        e.devices[0].value = 0.1;
        f = only(&e, FINDING_DISK, &d);
        check(strstr(f->text, "90% of its bytes are of others or of unknown origin") && !f->unit[0]);
        (void) snprintf(e.devices[0].unit, sizeof(e.devices[0].unit), "backup.service");
        f = only(&e, FINDING_DISK, &d);
        check(streq(f->unit, "backup.service") &&
              strstr(f->text, "90% of its bytes are of others, mostly backup.service"));
        e.devices[0].value = NAN;
        f = only(&e, FINDING_DISK, &d);
        check(streq(f->resource, "sda") && !f->unit[0]);

        /* The file system, unless threads wait for others as well */
        e.devices[0].value = 0.1;
        e.mount = (DiagnosisMount) { .point = "/srv", .threads = 0.9 };
        f = only(&e, FINDING_DISK, &d);
        check(streq(f->mount, "/srv") && streq(f->resource, "sda") && streq(f->unit, "backup.service") &&
              strstr(f->text, "; file system /srv; device sda, "));
        check(strstr(d.summary, "(/srv, sda, used by backup.service)"));
        e.mount.threads = 0.4;
        f = only(&e, FINDING_DISK, &d);
        check(!f->mount[0] && !strstr(f->text, "file system"));
        /* No disk of this machine is used for one of a server */
        e.mount = (DiagnosisMount) { .point = "/srv", .remote = "files:/export", .threads = 0.9 };
        f = only(&e, FINDING_DISK, &d);
        check(streq(f->mount, "/srv") && streq(f->resource, "files:/export") && !f->unit[0] &&
              strstr(f->text, "; file system /srv, which is files:/export") && !strstr(f->text, "sda"));
        check(strstr(d.summary, "(/srv, files:/export)"));

        /* The pages that it reads had been in memory */
        e.now.reads = 100;
        e.now.refaults = 800;
        f = only(&e, FINDING_MEMORY, &d);
        check(f->state == QOS_STATE_DISK && strstr(f->text, "in memory before"));
}

static void test_lock_and_memory(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        set_times(&e.now, 20 * US, 16 * MS);
        e.now.rate = 500;
        e.now.threads[QOS_STATE_LOCK] = 7;
        e.now.threads[QOS_STATE_SLEEP] = 1;
        f = only(&e, FINDING_LOCK, &d);
        check(f->state == QOS_STATE_LOCK && fabs(f->share - 14.0 / 16) < 0.03);

        /* Threads in calls on one file, to which one at a time may write */
        e = evidence();
        set_times(&e.now, 20 * US, 10 * MS);
        e.now.rate = 400;
        e.now.threads[QOS_STATE_DISK] = 3.4;
        e.kernel[QOS_STATE_DISK] = (DiagnosisNamed) { .name = "lock in ext4_buffered_write_iter()",
                                                      .holder = "writer (12)", .value = 3.2 };
        f = only(&e, FINDING_LOCK, &d);
        check(f->state == QOS_STATE_DISK && streq(f->resource, "lock in ext4_buffered_write_iter()") &&
              strstr(f->text, "released by writer (12)") && !f->mount[0]);
        strcpy(e.kernel[QOS_STATE_DISK].mount, "/srv");
        f = only(&e, FINDING_LOCK, &d);
        check(streq(f->mount, "/srv") && strstr(f->text, "() of file system /srv, released by writer (12)"));
        /* The holder waits for the disk, which is the cause */
        e.kernel[QOS_STATE_DISK].value = 2.5;
        (void) only(&e, FINDING_DISK, &d);
        /* Two kinds of locks are one finding */
        e.kernel[QOS_STATE_DISK].value = 3.2;
        e.now.threads[QOS_STATE_LOCK] = 2;
        set_times(&e.now, 20 * US, 14 * MS);
        (void) only(&e, FINDING_LOCK, &d);

        /* A row in a database: threads that wait for it sleep like idle ones */
        e = evidence();
        set_times(&e.now, 20 * US, 10 * MS);
        e.now.rate = 100;
        e.now.blocked_by_requests = 9.5 * MS;
        f = only(&e, FINDING_LOCK, &d);
        check(f->certainty == CERTAINTY_POSSIBLE && fabs(f->share - 0.9) < 0.01 &&
              f->state == QOS_STATE_NONE && !f->resource[0]);
        e.blocked[0] = (DiagnosisNamed) { .name = "a signal to process 12", .holder = "postgres (34)",
                                          .value = 0.9 };
        e.n_blocked = 1;
        e.blocked_state = QOS_STATE_POLL;
        f = only(&e, FINDING_LOCK, &d);
        check(f->state == QOS_STATE_POLL && streq(f->resource, "a signal to process 12") &&
              strstr(f->text, "released by postgres (34)"));
        /* Waits of less than a millisecond, as for a group commit, or rare ones */
        set_times(&e.now, 20 * US, 1 * MS);
        e.now.rate = 1000;
        e.now.blocked_by_requests = 0.9 * MS;
        nothing(&e);
        set_times(&e.now, 20 * US, 10 * MS);
        e.now.rate = 5;
        e.now.blocked_by_requests = 9.5 * MS;
        nothing(&e);
        /* The other thread waits for a backend, which is the cause */
        e.now.rate = 100;
        e.now.client_rate = 100;
        e.now.client_latency = 9.6 * MS;
        (void) only(&e, FINDING_DEPENDENCY, &d);
        /* The baseline has the same wait, and something else was added */
        {
                DiagnosisEvidence before = evidence();

                set_times(&before.now, 20 * US, 10 * MS);
                before.now.rate = 100;
                before.now.blocked_by_requests = 9.5 * MS;
                e = before;
                e.normal = &before.now;
                nothing(&e);
                set_times(&e.now, 20 * US, 30 * MS);
                e.now.threads[QOS_STATE_DISK] = 2;
                (void) only(&e, FINDING_DISK, &d);
                e.now.threads[QOS_STATE_DISK] = 0;
                e.now.blocked_by_requests = 29 * MS;
                (void) only(&e, FINDING_LOCK, &d);
                /* A history does not have it */
                before.now.blocked_by_requests = NAN;
                (void) only(&e, FINDING_LOCK, &d);
        }

        e = evidence();
        set_times(&e.now, 20 * US, 5 * MS);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_MEMORY] = 0.4;
        e.now.major_faults = 300;
        f = only(&e, FINDING_MEMORY, &d);
        check(f->state == QOS_STATE_MEMORY && strstr(f->text, "300 major faults/s"));

        e = evidence();
        e.now.oom_kills = 0.1;
        f = only(&e, FINDING_MEMORY, &d);
        check(isnan(f->share) && strstr(f->text, "killed"));
        check(streq(d.summary, "memory: the kernel killed processes of the unit for want of memory (OOM)"));
}

static void test_dependency(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        set_times(&e.now, 1 * MS, 21 * MS);
        e.now.rate = 100;
        e.now.client_rate = 200;
        e.now.client_latency = 10 * MS;
        e.now.threads[QOS_STATE_SOCKET] = 5;
        e.peers[0] = (DiagnosisNamed) { .name = "10.0.0.7:5432", .unit = "postgresql.service",
                                        .value = 10 * MS };
        e.n_peers = 1;
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(streq(f->resource, "10.0.0.7:5432") && streq(f->unit, "postgresql.service") &&
              strstr(f->text, "10.0ms"));

        /* Requests to peers beside the unit's own requests: more than fit into their time */
        e = evidence();
        set_times(&e.now, 20 * US, 5 * MS);
        e.now.rate = 100;
        e.now.threads[QOS_STATE_LOCK] = 0.45;
        e.now.client_rate = 50;
        e.now.client_latency = 1 * MS;
        (void) only(&e, FINDING_LOCK, &d);

        /* Either wait may be the cause, and one of them is */
        e.now.client_rate = 100;
        e.now.client_latency = 4.5 * MS;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_FOUND && d.n_findings == 2);
        for (size_t i = 0; i < 2; i++)
                check(d.findings[i].certainty == CERTAINTY_POSSIBLE);
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

/* 42 ms of each request, 44 % of the latency: a connection of 10 requests per second waits in 42 of 100
 * countings. */
static void test_nagle(void) {
        DiagnosisEvidence e = evidence();
        DiagnosisFigures normal;
        const Finding *f;
        Diagnosis d;

        e.now.rate = 10;
        set_times(&e.now, 20 * US, 53 * MS);
        e.now.answer = 42 * MS;
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        e.n_sends = 100;
        nothing(&e);
        e.now.sends[QOS_SEND_WAIT_NAGLE] = 0.42;
        f = only(&e, FINDING_NAGLE, &d);
        check(f->certainty == CERTAINTY_LIKELY && fabs(f->share - 0.44) < 0.01);
        check(fabs(f->time - 42 * MS) < 1);
        check(strstr(f->text, "TCP_NODELAY") && strstr(d.summary, "44% of the latency"));
        e.unit = "a.service";
        f = only(&e, FINDING_NAGLE, &d);
        check(streq(f->next, "ss -tin state established"));

        /* Found waiting too seldom */
        e.n_sends = 10;
        nothing(&e);
        e.n_sends = 100;

        /* The baseline has the same */
        normal = e.now;
        e.normal = &normal;
        nothing(&e);
        normal.answer = 20 * MS;
        normal.sends[QOS_SEND_WAIT_NAGLE] = NAN;
        (void) only(&e, FINDING_NAGLE, &d);
        e.normal = NULL;

        /* Less than a millisecond; and a fifth of the latency */
        e.now.sends[QOS_SEND_WAIT_NAGLE] = 0.19;
        e.now.answer = 42 * MS;
        nothing(&e);
        set_times(&e.now, 20 * US, 500 * US);
        e.now.answer = 950 * US;
        e.now.rate = 1000;
        e.now.sends[QOS_SEND_WAIT_NAGLE] = 0.9;
        nothing(&e);

        /* Half of the time is certain */
        e.now.answer = 40 * MS;
        e.now.sends[QOS_SEND_WAIT_NAGLE] = 39;
        f = only(&e, FINDING_NAGLE, &d);
        check(f->certainty == CERTAINTY_CERTAIN);
}

/* The same response, sent for 400 of 500 ms, for each of the causes outside of the unit. */
static void test_sends(void) {
        static const struct {
                enum qos_send_wait wait;
                FindingKind kind;
                Certainty certainty;
                const char *words;
        } table[] = {
                { QOS_SEND_WAIT_BUFFER, FINDING_SEND_BUFFER, CERTAINTY_CERTAIN, "SO_SNDBUF" },
                { QOS_SEND_WAIT_WINDOW, FINDING_RECEIVE_WINDOW, CERTAINTY_CERTAIN, "clients read" },
                { QOS_SEND_WAIT_WINDOW_FULL, FINDING_NETWORK, CERTAINTY_LIKELY, "tcp_rmem" },
                { QOS_SEND_WAIT_PATH, FINDING_NETWORK, CERTAINTY_LIKELY, "acknowledgements take 40.0ms" },
                { QOS_SEND_WAIT_OTHER, FINDING_NETWORK, CERTAINTY_POSSIBLE, "not known" },
        };
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        e.now.answer = 500 * MS;
        e.now.rate = 10;
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        e.now.send_rtt = 40 * MS;
        e.n_sends = 100;
        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                e.now.sends[table[i].wait] = 4;
                f = only(&e, table[i].kind, &d);
                check(f->certainty == table[i].certainty && strstr(f->text, table[i].words));
                check(strstr(d.summary, "80% of the latency"));

                /* Below half only causes that the unit can avoid are found */
                e.now.sends[table[i].wait] = 2;
                if (table[i].kind == FINDING_SEND_BUFFER) {
                        f = only(&e, table[i].kind, &d);
                        check(f->certainty == CERTAINTY_LIKELY);
                } else
                        nothing(&e);
                e.now.sends[table[i].wait] = 0;
        }

        /* Two causes at once */
        e.now.sends[QOS_SEND_WAIT_WINDOW] = 2.6;
        e.now.sends[QOS_SEND_WAIT_BUFFER] = 2.4;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind == FINDING_RECEIVE_WINDOW &&
              d.findings[1].kind == FINDING_SEND_BUFFER);
}

static void test_network(void) {
        DiagnosisEvidence e = evidence();
        DiagnosisFigures normal;
        const Finding *f;
        Diagnosis d;

        e.now.answer = 500 * MS;
        e.now.rate = 10;
        e.now.threads[QOS_STATE_RUNNING] = 0.01;
        e.now.threads[QOS_STATE_SOCKET] = 5;
        f = only(&e, FINDING_NETWORK, &d);
        check(f->certainty == CERTAINTY_POSSIBLE && strstr(f->text, "not known"));

        /* Five connections at each count */
        e.n_sends = 100;
        e.now.sends[QOS_SEND_WAIT_PATH] = 5;
        f = only(&e, FINDING_NETWORK, &d);
        check(f->certainty == CERTAINTY_LIKELY && strstr(f->text, "clients") &&
              !(f->time < e.now.answer) && !(f->time > e.now.answer));

        /* The application itself is slow with the rest of the response */
        e.now.sends[QOS_SEND_WAIT_PATH] = 0.1;
        nothing(&e);
        diagnosis_make(&e, &d);
        check(d.n_excluded > 0 && strstr(d.excluded[d.n_excluded - 1].text, "leaves at once"));
        e.now.sends[QOS_SEND_WAIT_PATH] = 5;

        e.now.retransmits = 3;
        f = only(&e, FINDING_NETWORK, &d);
        check(f->certainty == CERTAINTY_CERTAIN && strstr(f->text, "retransmit"));

        /* Subscribers get more from time to time, and each part leaves at once: nothing is in flight
         * meanwhile */
        e = evidence();
        e.now.rate = 10;
        e.now.answer = 500 * MS;
        e.now.serving = 0.01;
        nothing(&e);
        e.now.rate = 0.5;
        e.now.covered = 60e9;
        e.now.serving = 0.2;
        (void) only(&e, FINDING_NETWORK, &d);
        /* Losses on the path to them are a finding nevertheless */
        e.now.rate = 100;
        e.now.serving = 0.01;
        e.now.retransmits = 50;
        f = only(&e, FINDING_NETWORK, &d);
        check(isnan(f->share));

        /* Requests that arrive slowly */
        e = evidence();
        e.now.receive = 30 * MS;
        set_times(&e.now, 20 * US, 180 * US);
        f = only(&e, FINDING_NETWORK, &d);
        check(strstr(f->text, "to arrive"));

        /* Losses alone */
        e = evidence();
        e.now.retransmits = 50;
        f = only(&e, FINDING_NETWORK, &d);
        check(isnan(f->share));
        check(streq(d.summary, "network: segments are lost on the path to clients: 50 retransmits/s (5%)"));
        e.now.retransmits = 5;
        nothing(&e);
        /* As many as some clients cause, unless the baseline has less */
        e.now.retransmits = 15;
        nothing(&e);
        normal = e.now;
        e.normal = &normal;
        e.now.retransmits = 50;
        f = only(&e, FINDING_NETWORK, &d);
        check(f->certainty == CERTAINTY_LIKELY);
        normal.retransmits = 40;
        nothing(&e);
        /* Large responses have many segments each */
        e.normal = NULL;
        e.now.bytes_out = 140000;
        nothing(&e);
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

static void test_limit(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        /* One busy process */
        set_times(&e.now, 3.5 * MS, 500 * US);
        e.now.rate = 1960;
        e.now.threads[QOS_STATE_RUNNING] = 0.98;
        e.now.busiest_process = 0.98;
        e.now.idle_cpus = 1;
        e.busiest_pid = 4711;
        f = only(&e, FINDING_LIMIT, &d);
        check(f->certainty == CERTAINTY_CERTAIN && streq(f->resource, "process 4711") &&
              f->state == QOS_STATE_RUNNING);

        /* The same, on the only CPU that it may use */
        e.now.cpus = 1;
        e.now.idle_cpus = 0.02;
        f = only(&e, FINDING_LIMIT, &d);
        check(streq(f->resource, "process 4711"));

        /* Two workers, each with 10 ms of its own, and idle CPUs */
        e = evidence();
        set_times(&e.now, 30 * MS, 10 * MS);
        e.now.rate = 200;
        e.now.threads[QOS_STATE_SLEEP] = 2;
        f = only(&e, FINDING_LIMIT, &d);
        check(strstr(f->text, "2.0 at a time") && strstr(f->text, "CPUs are idle") &&
              f->certainty == CERTAINTY_LIKELY);
        /* They wait for a lock, which explains it, and not their number */
        e.now.threads[QOS_STATE_LOCK] = 1.9;
        (void) only(&e, FINDING_LOCK, &d);

        /* Four threads on the only CPU that they may use wait for each other */
        e = evidence();
        set_times(&e.now, 1 * MS, 3 * MS);
        e.now.rate = 1000;
        e.now.threads[QOS_STATE_RUNNING] = 1;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 3;
        e.now.run_queue_wait = 3 * MS;
        e.now.cpus = 1;
        e.now.idle_cpus = 0;
        e.now.busiest_process = 1;
        (void) only(&e, FINDING_LIMIT, &d);
        e.now.threads[QOS_STATE_RUNNING] = 0.85;
        e.users[0] = (DiagnosisNamed) { .name = "hog.service", .unit = "hog.service", .value = 0.45 };
        e.n_users = 1;
        e.now.run_queue_own = 2;
        e.now.run_queue_others = 0.45;
        (void) only(&e, FINDING_LIMIT, &d);
        /* They wait for another unit, if that had the CPU for most of the time */
        e.users[0].value = e.now.run_queue_others = 2.1;
        diagnosis_make(&e, &d);
        check(find(&d, FINDING_CPU) && streq(find(&d, FINDING_CPU)->unit, "hog.service"));

        /* A lock and its holder */
        e = evidence();
        set_times(&e.now, 0, 10 * MS);
        e.now.rate = 400;
        e.now.threads[QOS_STATE_LOCK] = 3.5;
        e.locks[0] = (DiagnosisNamed) { .name = "app:mutex", .holder = "writer (12)", .value = 3.4 };
        e.n_locks = 1;
        f = only(&e, FINDING_LOCK, &d);
        check(streq(f->resource, "app:mutex") && strstr(f->text,
                                                        "app:mutex, released by writer (12)"));

        /* All CPUs, used by many threads that compete with each other */
        e = evidence();
        set_times(&e.now, 1 * MS, 15 * MS);
        e.now.rate = 500;
        e.now.threads[QOS_STATE_RUNNING] = 1.95;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 6;
        e.now.run_queue_wait = 3 * MS;
        e.now.idle_cpus = 0.01;
        e.now.busiest_process = 1.95;
        e.now.cpus = 2;
        (void) only(&e, FINDING_LIMIT, &d);
        e.now.busiest_process = 0.25;
        f = only(&e, FINDING_LIMIT, &d);
        check(strstr(f->text, "1.95 of the 2 CPUs"));
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

/* Requests that are read and wait in the application. */
static const char* excluded(const DiagnosisEvidence *e, FindingKind kind, Diagnosis *d) {
        diagnose_none(e, d);
        for (size_t i = 0; i < d->n_excluded; i++)
                if (d->excluded[i].kind == kind)
                        return d->excluded[i].text;
        return "";
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

static void test_inside(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        /* One thread serves all requests, in batches */
        e.now.rate = 400;
        set_times(&e.now, 50 * US, 30 * MS);
        e.now.threads[QOS_STATE_RUNNING] = e.now.busiest_process = e.now.busiest_thread = 0.95;
        e.now.threads[QOS_STATE_PARK] = 11;
        strcpy(e.busiest_thread, "batcher (17)");
        f = only(&e, FINDING_LIMIT, &d);
        check(f->certainty == CERTAINTY_LIKELY && streq(f->resource, "thread batcher (17)") &&
              strstr(f->text, "12.0 requests at a time"));
        /* Each request has a thread that sleeps, and another thread is busy */
        e.now.threads[QOS_STATE_PARK] = 0;
        e.now.threads[QOS_STATE_SLEEP] = 11;
        f = only(&e, FINDING_LIMIT, &d);
        check(f->certainty == CERTAINTY_POSSIBLE);
        e.now.threads[QOS_STATE_SLEEP] = 0;
        e.now.threads[QOS_STATE_PARK] = 11;
        /* Others have the CPU of the thread for a third of the time, in which it is not idle either */
        e.now.threads[QOS_STATE_RUNNING] = e.now.busiest_process = e.now.busiest_thread = 0.65;
        diagnose_none(&e, &d);
        e.busiest_thread_ready = 0.3;
        f = only(&e, FINDING_LIMIT, &d);
        check(streq(f->resource, "thread batcher (17)"));
        /* Others have it for half of the time: without them the thread might not be busy */
        e.now.threads[QOS_STATE_RUNNING] = e.now.busiest_process = e.now.busiest_thread = 0.5;
        e.busiest_thread_ready = 0.5;
        diagnose_none(&e, &d);
        e.now.threads[QOS_STATE_RUNNING] = e.now.busiest_process = e.now.busiest_thread = 0.95;
        e.busiest_thread_ready = 0;
        /* They wait for something else, and the thread is busy in the background */
        e.now.client_rate = 400;
        e.now.client_latency = 29 * MS;
        (void) only(&e, FINDING_DEPENDENCY, &d);
        /* One request at a time waits for no other */
        e.now.client_rate = 0;
        e.now.rate = 40;
        diagnose_none(&e, &d);

        /* An event loop that sends all responses of a round at its end */
        e = evidence();
        e.now.rate = 117000;
        set_times(&e.now, 225 * US, 129 * US);
        e.now.cpus = 2;
        e.now.threads[QOS_STATE_RUNNING] = e.now.busiest_process = e.now.busiest_thread = 0.87;
        strcpy(e.busiest_thread, "redis-server (4)");
        f = only(&e, FINDING_LIMIT, &d);
        check(f->certainty == CERTAINTY_LIKELY && streq(f->resource, "thread redis-server (4)"));

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

/* Units without requests: states of threads while they are not idle. */
static DiagnosisEvidence batch(void) {
        DiagnosisEvidence e = evidence();

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.now.run_queue_own = e.now.run_queue_others = NAN;
        return e;
}

static void test_threads(void) {
        DiagnosisEvidence e = batch(), before;
        const Finding *f;
        Diagnosis d;

        /* All of them wait for one lock with a known name and holder */
        e.now.threads[QOS_STATE_LOCK] = 2.6;
        e.now.threads[QOS_STATE_RUNNING] = 0.4;
        e.locks[0] = (DiagnosisNamed) { .name = "worker:queue_mutex", .holder = "worker (12)",
                                        .value = 2.6 };
        e.n_locks = 1;
        f = only(&e, FINDING_LOCK, &d);
        check(f->certainty == CERTAINTY_LIKELY && f->state == QOS_STATE_LOCK &&
              fabs(f->share - 2.6 / 3) < 0.001 && isnan(f->time));
        check(streq(f->resource, "worker:queue_mutex") && strstr(f->text, "released by worker (12)") &&
              strstr(f->text, "2.6 threads on average"));
        /* Beside more threads that run */
        e.now.threads[QOS_STATE_RUNNING] = 7;
        f = only(&e, FINDING_LOCK, &d);
        check(f->certainty == CERTAINTY_POSSIBLE);
        e.now.threads[QOS_STATE_RUNNING] = 11;
        nothing(&e);
        /* A baseline has the same; a history may include the bottleneck */
        e.now.threads[QOS_STATE_RUNNING] = 0.4;
        before = e;
        e.normal = &before.now;
        nothing(&e);
        e.usual = 1;
        (void) only(&e, FINDING_LOCK, &d);
        e.usual = 0;
        before.now.threads[QOS_STATE_LOCK] = 0.2;
        (void) only(&e, FINDING_LOCK, &d);

        /* A single thread that waits for two things */
        e = batch();
        e.now.threads[QOS_STATE_RUNNING] = 0.15;
        e.now.threads[QOS_STATE_DISK] = e.now.threads[QOS_STATE_LOCK] = 0.42;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind + d.findings[1].kind == FINDING_DISK + FINDING_LOCK);
        /* One of them hardly, or both hardly */
        e.now.threads[QOS_STATE_LOCK] = 0.22;
        (void) only(&e, FINDING_DISK, &d);
        e.now.threads[QOS_STATE_DISK] = 0.22;
        nothing(&e);

        /* A thread that shares its CPU equally with another one */
        e = batch();
        e.now.threads[QOS_STATE_RUNNING] = 0.5001;
        e.now.threads[QOS_STATE_RUN_QUEUE] = e.now.run_queue_others = 0.4999;
        e.now.run_queue_own = 0;
        e.now.run_queue_wait = 4 * MS;
        e.now.cpus = 1;
        e.now.idle_cpus = 0;
        (void) only(&e, FINDING_CPU, &d);

        /* Threads that just run, on as many CPUs as there are, and more threads than that */
        e = batch();
        e.now.threads[QOS_STATE_RUNNING] = 1;
        nothing(&e);
        e.now.threads[QOS_STATE_RUNNING] = 1.9;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 6;
        e.now.run_queue_own = 5.9;
        e.now.run_queue_others = 0.1;
        e.now.run_queue_wait = 3 * MS;
        e.now.idle_cpus = 0;
        nothing(&e);
        /* Others have the CPUs */
        e.now.threads[QOS_STATE_RUNNING] = 0.3;
        e.now.run_queue_own = 0.1;
        e.now.run_queue_others = 5.9;
        e.users[0] = (DiagnosisNamed) { .name = "hog.service", .unit = "hog.service", .value = 5 };
        e.n_users = 1;
        f = only(&e, FINDING_CPU, &d);
        check(streq(f->unit, "hog.service"));
        /* The CPUs only wake up */
        e.now.run_queue_wait = 20 * US;
        e.now.idle_cpus = 1;
        nothing(&e);

        e = batch();
        e.now.threads[QOS_STATE_RUNNING] = 0.1;
        e.now.threads[QOS_STATE_THROTTLED] = 0.9;
        e.now.throttled = 0.95;
        f = only(&e, FINDING_QUOTA, &d);
        check(strstr(f->text, "95% of the periods"));

        e = batch();
        e.now.threads[QOS_STATE_RUNNING] = 0.2;
        e.now.threads[QOS_STATE_DISK] = 0.8;
        e.now.reads = 1000;
        f = only(&e, FINDING_DISK, &d);
        check(f->state == QOS_STATE_DISK && f->certainty == CERTAINTY_LIKELY);
        /* Pages that had been in memory, or another thread in the kernel */
        e.now.refaults = 900;
        (void) only(&e, FINDING_MEMORY, &d);
        e.kernel[QOS_STATE_DISK] = (DiagnosisNamed) { .name = "lock in ext4_buffered_write_iter()",
                                                      .value = 0.7 };
        f = only(&e, FINDING_LOCK, &d);
        check(streq(f->resource, "lock in ext4_buffered_write_iter()"));
        /* Now and then, as in an idle daemon */
        e.now.threads[QOS_STATE_DISK] = 0.3;
        nothing(&e);

        e = batch();
        e.now.threads[QOS_STATE_MEMORY] = 0.7;
        e.now.major_faults = 300;
        (void) only(&e, FINDING_MEMORY, &d);
        e = batch();
        e.now.oom_kills = 0.1;
        f = only(&e, FINDING_MEMORY, &d);
        check(f->certainty == CERTAINTY_CERTAIN && strstr(f->text, "killed"));
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

/* Units that wait for work, and requests that wait by intent. */
static void test_waits_by_intent(void) {
        DiagnosisEvidence e = evidence();
        DiagnosisFigures normal;
        Diagnosis d;

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.now.in_flight = e.now.waiting = 0;

        /* Idle processes that take turns at accept() */
        e.now.threads[QOS_STATE_LOCK] = 3;
        e.accept_queue_max = 128;
        e.accept_queue = 1;
        (void) only(&e, FINDING_LOCK, &d);
        e.accept_queue = 0;
        nothing(&e);
        e.now.threads[QOS_STATE_RUNNING] = 0.5;
        (void) only(&e, FINDING_LOCK, &d);
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.accept_queue_max = 0;
        (void) only(&e, FINDING_LOCK, &d);
        e.now.threads[QOS_STATE_LOCK] = 0;

        /* Responses in progress: streams, watches, subscribers */
        e.now.in_flight = 2;
        e.now.oldest = 11e9;
        nothing(&e);
        diagnosis_make(&e, &d);
        check(strstr(d.text, "2 responses in progress, the oldest request 11.0s old"));

        /* A consumer that waits for work of an event loop */
        e.now.waiting = 1;
        e.now.oldest_waiting = 11e9;
        nothing(&e);
        /* The unit usually responds */
        normal = e.now;
        normal.rate = 100;
        normal.first_byte = 1 * MS;
        e.normal = &normal;
        e.usual = 2 * MS;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        e.normal = NULL;
        e.usual = 0;
        /* A thread that sleeps may be stuck as well */
        e.now.threads[QOS_STATE_SLEEP] = 1;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        e.now.threads[QOS_STATE_SLEEP] = 0;

        /* The unit itself waits for a peer */
        e.n_peers = 2;
        e.peers[0] = (DiagnosisNamed) { .name = "10.0.0.1:80", .rate = 10, .value = 1 * MS, .in_flight = 1 };
        e.peers[1] = (DiagnosisNamed) { .name = "10.0.0.2:80", .unit = "b.service", .in_flight = 7 };
        check(streq(only(&e, FINDING_DEPENDENCY, &d)->unit, "b.service"));
        check(strstr(d.findings[0].text, "10.0.0.2:80 (b.service) does not respond: 7 requests"));
        check(strstr(d.summary, "dependency fails"));
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

/* A unit that serves requests, with failures that PID 1 and the counters report. */
static DiagnosisEvidence serving(void) {
        DiagnosisEvidence e = evidence();

        e.unit = "app.service";
        e.run.active_state = "active";
        e.run.restarts = 0;
        e.run.now = 2000 * NSEC_PER_SEC;
        (void) snprintf(e.run.lifecycle.sub_state, sizeof(e.run.lifecycle.sub_state), "running");
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "success");
        return e;
}

static void test_errors(void) {
        DiagnosisEvidence e = serving();
        DiagnosisFigures normal = e.now;
        const Finding *f;
        Diagnosis d;

        nothing(&e);

        /* All of them fail, at full speed */
        e.now.status5xx = 1000;
        f = only(&e, FINDING_ERRORS, &d);
        check(f->certainty == CERTAINTY_CERTAIN && fabs(f->share - 1) < 1e-9);
        check(streq(f->text, "100% of 1.00k requests/s fail: 1.00k/s HTTP 5xx"));
        check(streq(d.summary, f->text) && strstr(f->next, "journalctl -u app.service"));

        /* Requests without a response are not in the rate, but count */
        e.now.status5xx = NAN;
        e.now.grpc_errors = NAN;
        e.now.resets = 1000;
        e.now.timeouts = 2000;
        f = only(&e, FINDING_ERRORS, &d);
        check(fabs(f->share - 0.75) < 1e-9 && strstr(f->text, "75% of 4.00k requests/s fail"));

        /* Less than 1 % is no finding, exactly 1 % is */
        e = serving();
        e.now.status5xx = 9.9;
        nothing(&e);
        e.now.status5xx = 10;
        (void) only(&e, FINDING_ERRORS, &d);

        /* A few are a finding only if there are nearly no other requests */
        e.now.rate = 40;
        e.now.covered = 1 * NSEC_PER_SEC;
        e.now.status5xx = 4;
        e.now.threads[QOS_STATE_RUNNING] = 0.001;
        nothing(&e);
        e.now.status5xx = 5;
        (void) only(&e, FINDING_ERRORS, &d);
        e.now.rate = 2;
        e.now.status5xx = 1;
        f = only(&e, FINDING_ERRORS, &d);
        check(f->certainty == CERTAINTY_LIKELY);

        /* As many as usual, and more; 10 % are too many in any case */
        e = serving();
        e.normal = &normal;
        e.usual = 300 * US;
        normal.status5xx = 30;
        e.now.status5xx = 40;
        nothing(&e);
        e.now.status5xx = 45;
        check(strstr(only(&e, FINDING_ERRORS, &d)->text, "usually 3%"));
        normal.status5xx = 100;
        e.now.status5xx = 100;
        (void) only(&e, FINDING_ERRORS, &d);

        /* It precedes the cause of most of the time */
        e = serving();
        e.now.status5xx = 500;
        set_times(&e.now, 20 * US, 900 * US);
        e.now.threads[QOS_STATE_LOCK] = 0.8;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind == FINDING_ERRORS &&
              d.findings[1].kind == FINDING_LOCK);

        /* Clients abort before there is a response */
        e = serving();
        e.now.rate = 10;
        e.now.client_aborts = 9;
        nothing(&e);
        e.now.client_aborts = 30;
        check(strstr(only(&e, FINDING_ERRORS, &d)->text, "clients give up"));
}

static void test_failing_peer(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.n_peers = 1;
        e.peers_covered = 3.0 * NSEC_PER_SEC;
        e.peers[0] = (DiagnosisNamed) { .name = "127.0.0.1:9000", .unit = "backend.service", .value = NAN,
                                        .rate = 0, .errors = 1000 };
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_CERTAIN && isnan(f->share) && streq(f->unit, "backend.service"));
        check(strstr(d.summary, "100% of 1.00k requests/s to 127.0.0.1:9000 (backend.service) fail, 3000 in "
                     "3.00s: 1.00k/s connections refused"));
        check(streq(f->next, "qosctl diagnose backend.service"));

        /* The errors of the unit come first, with their cause */
        e.now.status5xx = 1000;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind == FINDING_ERRORS &&
              d.findings[1].kind == FINDING_DEPENDENCY);
        check(strstr(d.summary, "; so do 100% of its requests to 127.0.0.1:9000 (backend.service)"));
        check(streq(d.findings[0].unit, "backend.service") &&
              streq(d.findings[0].next, "qosctl diagnose backend.service"));

        /* Most of the errors have another cause */
        e.now.status5xx = 2001;
        e.now.rate = 4000;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && !strstr(d.summary, "127.0.0.1:9000") && !d.findings[0].unit[0]);
        check(strstr(d.findings[0].next, "journalctl"));

        /* A connection that a pool finds closed, now and then */
        e = serving();
        e.n_peers = 1;
        e.peers_covered = 3.0 * NSEC_PER_SEC;
        e.peers[0] = (DiagnosisNamed) {
                .name = "127.0.0.1:9000", .value = 50 * US, .rate = 1000, .errors = 3
        };
        nothing(&e);
}

/* Requests to a peer that the unit aborts, or that are still in flight. */
static void test_silent_peer(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        /* A protocol without responses */
        e.n_peers = 1;
        e.peers_covered = 3.0 * NSEC_PER_SEC;
        e.peers[0] = (DiagnosisNamed) { .name = "127.0.0.1:9000", .unit = "backend.service", .value = NAN,
                                        .aborts = 10 };
        e.now.rate = 10;
        nothing(&e);

        /* The unit fails as often */
        e.now.status5xx = 10;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind == FINDING_ERRORS &&
              d.findings[1].kind == FINDING_DEPENDENCY && d.findings[1].certainty == CERTAINTY_CERTAIN);
        check(streq(d.findings[1].text, "100% of 10 requests/s to 127.0.0.1:9000 (backend.service) fail, "
                    "30 in 3.00s: 10/s given up by the unit without a response"));
        check(strstr(d.summary, "so do 100% of its requests to 127.0.0.1:9000 (backend.service)"));
        check(streq(d.findings[0].unit, "backend.service"));

        /* The unit fails for other reasons; the peer responds to most requests */
        e.peers[0].aborts = 4;
        (void) only(&e, FINDING_ERRORS, &d);
        e.peers[0].aborts = 10;
        e.peers[0].rate = 11;
        (void) only(&e, FINDING_ERRORS, &d);
        e.peers[0].rate = 0;

        /* Clients abort, and so does the unit */
        e.now.status5xx = 0;
        e.now.client_aborts = 20;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[0].kind == FINDING_ERRORS &&
              d.findings[1].kind == FINDING_DEPENDENCY);
        e.now.client_aborts = 0;

        /* None of them has failed yet, while the unit fails; a connection of its own kind beside others */
        e.now.status5xx = 10;
        e.peers[0].aborts = 0;
        e.peers[0].in_flight = 15;
        diagnosis_make(&e, &d);
        check(d.n_findings == 2 && d.findings[1].kind == FINDING_DEPENDENCY);
        check(strstr(d.findings[1].text, "127.0.0.1:9000 (backend.service) does not respond: 15 requests to "
                     "it are in flight"));
        check(strstr(d.summary, "; 127.0.0.1:9000 (backend.service) does not respond"));
        e.peers[0].in_flight = 14;
        (void) only(&e, FINDING_ERRORS, &d);

        /* The unit does not fail, but waits for that long */
        e.now.status5xx = 0;
        e.peers[0].in_flight = 0;
        e.peers[0].aborts = 10;
        e.now.service = 300 * MS;
        e.now.first_byte = e.now.queue + e.now.service;
        e.now.client_rate = 0;
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_POSSIBLE && streq(f->unit, "backend.service"));
        check(strstr(f->text, "100% of 10 requests/s to 127.0.0.1:9000 (backend.service) are given up"));
        e.peers[0].aborts = 1.6;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
}

/* Requests wait while the unit is busy otherwise. */
static void test_inattention(void) {
        DiagnosisEvidence e = evidence();
        const Finding *f;
        Diagnosis d;

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.in_flight = e.now.waiting = 4;
        e.now.oldest = e.now.oldest_waiting = 11e9;
        e.now.threads[QOS_STATE_RUNNING] = 0.45;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.4;
        e.now.busiest_thread = 0.45;
        e.busiest_thread_ready = 0.4;
        (void) snprintf(e.busiest_thread, sizeof(e.busiest_thread), "python3 (12)");
        f = only(&e, FINDING_LIMIT, &d);
        check(f->certainty == CERTAINTY_LIKELY && streq(f->resource, "thread python3 (12)"));
        check(strstr(d.summary, "saturated: python3 (12) used 0.45 of a CPU and has not responded"));
        e.accept_queue = 3;
        e.accept_queue_max = 64;
        check(strstr(only(&e, FINDING_LIMIT, &d)->text,
                     "responded; 3 connections are not accepted (limit 64)"));

        /* It may wait by intent, but not with connections in its accept queue */
        e.now.threads[QOS_STATE_RUNNING] = e.now.threads[QOS_STATE_RUN_QUEUE] = 0;
        e.now.busiest_thread = e.busiest_thread_ready = 0;
        f = only(&e, FINDING_LIMIT, &d);
        check(strstr(f->text, "3 connections are not accepted (limit 64), and the oldest request waits for "
                     "11.0s") && !f->resource[0]);
        e.accept_queue = 0;
        nothing(&e);
        /* Nor while it runs */
        e.now.threads[QOS_STATE_RUNNING] = 0.6;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.now.threads[QOS_STATE_PARK] = 4;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        check(streq(d.summary, "inconclusive: requests wait without a response, 4.0 threads on average are "
                    "in state idle futex, for a lock that is not released, or an event"));

        /* A kernel that refuses the iterators does not say whether they are stuck */
        e = serving();
        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.in_flight = 4;
        e.now.waiting = e.now.oldest_waiting = e.now.oldest = NAN;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        check(streq(d.text, "almost no requests; 4 in flight, it is not known for how long"));

        /* Requests from before the attach: only that their clients were the last to send is known */
        e.now.in_flight = e.now.waiting = e.now.oldest_waiting = e.now.oldest = 0;
        e.awaiting = 3;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        check(streq(d.text, "almost no requests; on 3 connections the client was the last to send, before "
                    "the unit was attached"));
        check(strstr(d.summary, "requests from before the attach may wait without a response"));
        e.awaiting = 0.1;
        nothing(&e);

        /* Nothing has been read, and connections are older than the interval: a pool of processes, all of
         * which wait for clients */
        e = evidence();
        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.accept_queue = 4;
        e.accept_queue_max = 511;
        e.handshakes = 3;
        f = only(&e, FINDING_LIMIT, &d);
        check(streq(f->text, "4 connections are not accepted (limit 511), some of them for longer than "
                    "10.0s"));
        check(strstr(d.summary, "saturated: 4 connections"));
        /* They may have come just now */
        e.handshakes = 4;
        nothing(&e);
        e.handshakes = NAN;
        nothing(&e);
        /* Beside requests that are served */
        e = serving();
        e.accept_queue = 4;
        e.accept_queue_max = 511;
        e.handshakes = 3;
        (void) only(&e, FINDING_LIMIT, &d);
        e.handshakes = 1000;
        nothing(&e);

        /* Other requests are served */
        e = serving();
        e.now.in_flight = e.now.waiting = 4;
        e.now.oldest = e.now.oldest_waiting = 11e9;
        diagnosis_make(&e, &d);
        check(strstr(d.text, "; 4 requests wait without a response, the oldest for 11.0s"));
}

/* A unit that is slow for an unknown reason sleeps, or waits for a child. */
static void test_asleep(void) {
        DiagnosisEvidence e = serving();
        Diagnosis d;

        e.now.rate = 10;
        e.now.service = 500 * MS;
        e.now.first_byte = e.now.queue + e.now.service;
        e.now.threads[QOS_STATE_SLEEP] = 5;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        check(strstr(d.summary, "inconclusive: its threads sleep for up to 500ms of the 5"));
        e.now.threads[QOS_STATE_CHILD] = 2.6;
        diagnosis_make(&e, &d);
        check(strstr(d.summary,
                     "inconclusive: its threads wait for child processes for up to 260ms of the 5"));
        e.now.threads[QOS_STATE_SLEEP] = e.now.threads[QOS_STATE_CHILD] = 2.4;
        diagnosis_make(&e, &d);
        check(streq(d.summary, "inconclusive"));
}

/* A proxy or a pool lets one request at a time pass to a peer, which is never idle. */
static void test_busy_peer(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.now.rate = 16;
        e.now.service = 420 * MS;
        e.now.first_byte = e.now.queue + e.now.service;
        e.now.client_rate = 18;
        e.now.client_latency = 53 * MS;
        e.n_peers = 1;
        e.peers[0] = (DiagnosisNamed) {
                .name = "127.0.0.1:81", .unit = "back.service", .value = 53 * MS, .rate = 18,
        };
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_POSSIBLE && streq(f->unit, "back.service"));
        check(f->share > 0.99 && f->share <= 1);
        check(streq(d.summary, "slow dependency: 100% of each request is wait for responses of "
                    "back.service"));
        check(streq(f->text, "of 6.7 requests at a time, 0.95 wait for a response of 127.0.0.1:81 "
                    "(back.service); the others may wait for a connection to it"));

        /* It is idle for half of the time, or has half of the requests */
        e.now.client_rate = 9;
        diagnosis_make(&e, &d);
        check(d.verdict == VERDICT_UNKNOWN);
        e.now.client_rate = 18;
        e.now.rate = 4;
        diagnosis_make(&e, &d);
        check(!find(&d, FINDING_DEPENDENCY) || d.findings[0].certainty != CERTAINTY_POSSIBLE);
}

/* Requests for what is not there are no failure, and are mentioned. */
static void test_status4xx(void) {
        DiagnosisEvidence e = serving();
        Diagnosis d;

        e.now.status4xx = 90;
        nothing(&e);
        diagnosis_make(&e, &d);
        check(!strstr(d.text, "4xx"));
        e.now.status4xx = 1000;
        nothing(&e);
        diagnosis_make(&e, &d);
        check(strstr(d.text, "requests/s, 100% with HTTP 4xx; mean time"));
}

/* The only thread that all requests wait for has its CPU for less time than others. */
static void test_starved_thread(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.now.rate = 146;
        e.now.service = 80 * MS;
        e.now.first_byte = e.now.queue + e.now.service;
        e.now.threads[QOS_STATE_RUNNING] = 0.41;
        e.now.threads[QOS_STATE_RUN_QUEUE] = 0.6;
        e.now.busiest_thread = e.now.busiest_process = 0.4;
        e.busiest_thread_ready = 0.58;
        e.now.run_queue_others = 0.58;
        e.now.run_queue_own = 0.01;
        e.now.run_queue_wait = 3 * MS;
        (void) snprintf(e.busiest_thread, sizeof(e.busiest_thread), "batcher (12)");
        e.n_users = 1;
        e.users[0] = (DiagnosisNamed) { .name = "hog.service", .unit = "hog.service", .value = 0.5 };
        f = only(&e, FINDING_CPU, &d);
        check(f->certainty == CERTAINTY_LIKELY && streq(f->unit, "hog.service"));
        check(strstr(f->text, "11.7 requests at a time wait for one thread: ") &&
              strstr(f->text, "in which batcher (12) waits for a CPU; hog.service had it for 85% of that"));
        /* Nothing waits while it runs */
        e.busiest_thread_ready = 0.3;
        diagnosis_make(&e, &d);
        check(d.n_findings == 0);
}

/* Peers with responses that report errors. */
static void test_peer_errors(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.n_peers = 2;
        e.peers_covered = 2.0 * NSEC_PER_SEC;
        e.peers[0] = (DiagnosisNamed) { .name = "127.0.0.1:1", .value = 50 * US, .rate = 500 };
        e.peers[1] = (DiagnosisNamed) { .name = "127.0.0.1:6379", .value = 50 * US, .rate = 100,
                                        .error_replies = 20 };
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_LIKELY && streq(f->resource, "127.0.0.1:6379") && !f->unit[0]);
        check(streq(f->text, "20% of 100 requests/s to 127.0.0.1:6379 fail, 40 in 2.00s: "
                    "20/s error replies"));

        /* The peer that fails most is named, with all kinds of failures */
        e.peers[0].status5xx = 490;
        e.peers[0].errors = 10;
        f = only(&e, FINDING_DEPENDENCY, &d);
        check(f->certainty == CERTAINTY_CERTAIN);
        check(streq(f->text, "98% of 510 requests/s to 127.0.0.1:1 fail, 1000 in 2.00s: 490/s HTTP 5xx, "
                    "10/s connections refused, ended or timed out"));

        /* Less than a tenth; less than five; of an unknown number of responses */
        e.peers[0].status5xx = e.peers[0].errors = 0;
        e.peers[1].error_replies = 9.9;
        nothing(&e);
        e.peers[1].rate = e.peers[1].error_replies = 2.4;
        nothing(&e);
        e.peers[1].rate = e.peers[1].error_replies = 2.5;
        (void) only(&e, FINDING_DEPENDENCY, &d);
        e.peers[1].rate = NAN;
        e.peers[1].errors = 10;
        nothing(&e);
}

static void test_dropped(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.now.listen_drops = 5.8;
        e.accept_queue_max = 1;
        f = only(&e, FINDING_DROPPED, &d);
        check(streq(f->text, "5.8 connections/s dropped: the accept queue is full (limit 1)"));
}

static void test_down(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.run.active_state = "failed";
        e.run.lifecycle.changed = 1000 * NSEC_PER_SEC;
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "exit-code");
        e.run.lifecycle.exit_code = CLD_EXITED;
        e.run.lifecycle.exit_status = 3;
        f = only(&e, FINDING_DOWN, &d);
        check(streq(f->text, "failed for 16min 40s, result exit-code, exit status 3"));
        check(streq(d.summary, f->text) && f->certainty == CERTAINTY_CERTAIN);

        e.run.lifecycle.exit_code = CLD_DUMPED;
        e.run.lifecycle.exit_status = SIGSEGV;
        check(strstr(only(&e, FINDING_DOWN, &d)->text, "signal SEGV, core dumped"));

        /* It was stopped by an administrator */
        e.run.active_state = "inactive";
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "success");
        check(streq(only(&e, FINDING_DOWN, &d)->text, "inactive for 16min 40s, result success"));

        /* A socket waits for the first connection */
        e.run.lifecycle.on_demand = true;
        nothing(&e);
        check(strstr(d.text, "inactive"));
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "exit-code");
        (void) only(&e, FINDING_DOWN, &d);

        /* It has not become ready for longer than the interval. Services of type oneshot do their work */
        e.run.active_state = "activating";
        (void) snprintf(e.run.lifecycle.sub_state, sizeof(e.run.lifecycle.sub_state), "start");
        f = only(&e, FINDING_DOWN, &d);
        check(streq(f->text, "activating (start) for 16min 40s: it is not ready yet"));
        check(f->certainty == CERTAINTY_LIKELY);
        e.now.rate = 10;
        nothing(&e);
        e.now.rate = 0;
        e.run.lifecycle.changed = 1991 * NSEC_PER_SEC;
        nothing(&e);
        e.run.lifecycle.changed = 1000 * NSEC_PER_SEC;
        (void) snprintf(e.run.lifecycle.type, sizeof(e.run.lifecycle.type), "oneshot");
        nothing(&e);

        /* The state of a control group that is no unit is not known */
        e.run.active_state = NULL;
        nothing(&e);
}

static void test_restarts(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        /* Between two starts, and just after one */
        e.run.active_state = "activating";
        (void) snprintf(e.run.lifecycle.sub_state, sizeof(e.run.lifecycle.sub_state), "auto-restart");
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "exit-code");
        e.run.lifecycle.exit_code = CLD_EXITED;
        e.run.lifecycle.exit_status = 1;
        e.run.lifecycle.restarts = 12;
        e.run.restarts = 6;
        f = only(&e, FINDING_RESTARTS, &d);
        check(streq(f->text, "restarted 6 times in 10.0s, 12 times since it was started; last end: exit "
                             "status 1; it waits for the next restart"));
        e.run.active_state = "active";
        f = only(&e, FINDING_RESTARTS, &d);
        check(strstr(f->text, "6 times") && !strstr(f->text, "waits"));
        e.run.restarts = 0;
        nothing(&e);
        e.run.restarts = ABSENT;
        nothing(&e);

        /* A start that takes long is no restart */
        e.run.active_state = "activating";
        (void) snprintf(e.run.lifecycle.sub_state, sizeof(e.run.lifecycle.sub_state), "start");
        e.run.restarts = 0;
        nothing(&e);
}

static void test_stopped(void) {
        DiagnosisEvidence e = serving();
        const Finding *f;
        Diagnosis d;

        e.run.frozen = true;
        f = only(&e, FINDING_STOPPED, &d);
        check(strstr(f->text, "frozen") && streq(f->next, "systemctl thaw app.service"));

        /* One of two workers, and more than are named */
        e.run.frozen = false;
        e.run.n_processes = 2;
        nothing(&e);
        e.run.n_stopped = 1;
        e.run.stopped[0] = 17;
        f = only(&e, FINDING_STOPPED, &d);
        check(strstr(f->text, "1 of 2 processes (PID 17)") && f->state == QOS_STATE_STOPPED);
        check(streq(f->next, "systemctl kill --signal=SIGCONT app.service"));
        e.run.n_processes = 9;
        e.run.n_stopped = 5;
        for (int i = 0; i < 4; i++)
                e.run.stopped[i] = 17 + i;
        check(strstr(only(&e, FINDING_STOPPED, &d)->text, "5 of 9 processes (PID 17, 18, 19, 20, ...)"));
}

static void test_no_requests(void) {
        DiagnosisEvidence e = serving();
        DiagnosisFigures normal = e.now;
        const Finding *f;
        Diagnosis d;

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        nothing(&e);

        e.normal = &normal;
        e.usual = 300 * US;
        e.busy = 1;
        f = only(&e, FINDING_IDLE, &d);
        check(streq(f->text, "no requests arrive: 0/s, usually 1.00k/s") &&
              f->certainty == CERTAINTY_LIKELY);

        /* A health check goes on */
        e.now.rate = 0.5;
        check(strstr(only(&e, FINDING_IDLE, &d)->text, "almost no requests arrive: 0.50/s"));
        e.now.rate = 0;

        /* It has pauses of its own, or so few requests that there may be none for a while */
        e.busy = 0.8;
        nothing(&e);
        e.busy = 1;
        normal.rate = 1.9;
        nothing(&e);
        normal.rate = 1000;

        /* Requests that hang are not missing */
        e.now.in_flight = e.now.waiting = 3;
        e.now.oldest = e.now.oldest_waiting = 9e9;
        diagnosis_make(&e, &d);
        check(!find(&d, FINDING_IDLE));
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
        test_errors();
        test_failing_peer();
        test_peer_errors();
        test_silent_peer();
        test_inattention();
        test_asleep();
        test_busy_peer();
        test_status4xx();
        test_starved_thread();
        test_dropped();
        test_down();
        test_restarts();
        test_stopped();
        test_no_requests();
        test_faster_than_usual();
        test_words();
        test_nothing();
        test_few();
        test_cpu();
        test_quota();
        test_disk();
        test_lock_and_memory();
        test_dependency();
        test_long_names();
        test_nagle();
        test_sends();
        test_network();
        test_beside();
        test_limit();
        test_normal();
        test_limits();
        test_inside();
        test_history();
        test_two();
        test_threads();
        test_unknown();
        test_waits_by_intent();
        test_without_parts();
        return 0;
}
