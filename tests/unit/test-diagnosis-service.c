/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Diagnoses of failures, peers, and the state of the unit. */

#include <signal.h>

#include "util-diagnosis.h"

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

int main(void) {
        test_dependency();
        test_errors();
        test_failing_peer();
        test_silent_peer();
        test_inattention();
        test_asleep();
        test_busy_peer();
        test_status4xx();
        test_peer_errors();
        test_dropped();
        test_down();
        test_restarts();
        test_stopped();
        test_no_requests();
        return 0;
}
