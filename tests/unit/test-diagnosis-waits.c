/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Diagnoses of what threads and requests wait for. */

#include "util-diagnosis.h"

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

/* What TCP counts of all connections, with requests and without. */
static void test_flows(void) {
        static const DiagnosisFlows idle = { .covered = 10e9, .bytes_sent = 1e6, .bytes_received = 1e5,
                                             .by_peer_window = 0.1, .by_network = 0.2, .rtt = 5 * MS };

        for (unsigned with = 0; with < 2; with++) {
                DiagnosisEvidence e = evidence();
                const Finding *f;
                Diagnosis d;

                e.unit = "a.service";
                if (!with)
                        e.now.rate = 0;
                e.flows = idle;
                nothing(&e);

                e.flows.bytes_retransmitted = 3e4;
                e.flows.retransmits = 21;
                f = only(&e, FINDING_NETWORK, &d);
                check(f->certainty == CERTAINTY_LIKELY && isnan(f->share));
                check(strstr(f->text, "3% of the bytes sent are retransmitted, 21 segments/s"));
                check(streq(f->next, "qosctl connections a.service"));
                e.flows.bytes_retransmitted = 1e4;
                nothing(&e);
                /* One segment of ten */
                e.flows = (DiagnosisFlows) { .covered = 10e9, .bytes_sent = 1400, .retransmits = 0.1,
                                             .bytes_retransmitted = 140, .rtt = NAN };
                nothing(&e);

                e.flows = idle;
                e.flows.drops = 20;
                (void) snprintf(e.flows.reason, sizeof(e.flows.reason), "QDISC_DROP");
                f = only(&e, FINDING_NETWORK, &d);
                check(f->certainty == CERTAINTY_CERTAIN);
                check(strstr(f->text, "discards packets of the unit, 20/s, mostly for the reason QDISC"));
                check(startswith(d.summary, "network: this machine discards"));
                e.flows.drops = 5;
                nothing(&e);
                /* Accept queues have a rule of their own */
                e.flows.drops = 20;
                (void) snprintf(e.flows.reason, sizeof(e.flows.reason), "TCP_LISTEN_OVERFLOW");
                nothing(&e);

                e.flows = idle;
                e.flows.by_peer_window = 0.4;
                f = only(&e, FINDING_RECEIVE_WINDOW, &d);
                check(strstr(f->text, "for 40% of the time of connections, which have data to send for "));
                check(startswith(d.summary, "receive windows: peers read too slowly"));
                e.flows.by_peer_window = 0.2;
                nothing(&e);

                e.flows = idle;
                e.flows.by_send_buffer = 0.9;
                e.flows.by_peer_window = e.flows.by_network = 0;
                f = only(&e, FINDING_SEND_BUFFER, &d);
                check(strstr(f->text, "SO_SNDBUF") && startswith(d.summary, "small send buffers: the send"));

                e.flows = idle;
                e.flows.by_network = 0.9;
                f = only(&e, FINDING_NETWORK, &d);
                check(strstr(f->text, "the path is slow"));
                /* Within a machine */
                e.flows.rtt = 0.1 * MS;
                nothing(&e);
                e.flows.rtt = NAN;
                nothing(&e);
                e.flows = (DiagnosisFlows) { .covered = 10e9, .by_peer_window = NAN, .by_send_buffer = NAN,
                                             .by_network = NAN, .rtt = NAN };
                nothing(&e);
        }
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

/* Requests that are read and wait in the application. */
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

int main(void) {
        test_cpu();
        test_quota();
        test_disk();
        test_lock_and_memory();
        test_nagle();
        test_sends();
        test_flows();
        test_network();
        test_limit();
        test_inside();
        test_threads();
        test_waits_by_intent();
        test_starved_thread();
        return 0;
}
