/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Diagnoses of evidence that scenarios have recorded. */

#include "check.h"
#include "diagnosis.h"
#include "recorded-evidence.h"
#include "state-label.h"
#include "util.h"

typedef struct Expected {
        FindingKind kind;
        Certainty certainty;
        enum qos_state state;
        const char *resource, *unit;    /* NULL: none */
        const char *text;               /* a part of it */
} Expected;

static const struct {
        const char *name;
        const DiagnosisEvidence *evidence;
        Expected findings[2];           /* all of them, in their order; no text: none */
} table[] = {
#define CASE(name, ...) { #name, &name, { __VA_ARGS__ } }

        /* The application's own limits */
        CASE(one_busy_process,
             { FINDING_LIMIT, CERTAINTY_CERTAIN, QOS_STATE_RUNNING, "process 2749", NULL,
               "queue time: 3.75ms of each request (88%), as one process is busy" }),
        CASE(broker,
             { FINDING_LIMIT, CERTAINTY_LIKELY, QOS_STATE_RUNNING, "thread redis-server (3038)", NULL,
               "wait for one busy thread" }),
        CASE(batches,
             { FINDING_LIMIT, CERTAINTY_LIKELY, QOS_STATE_RUNNING, "thread batcher (3327)", NULL,
               "11.8 requests at a time wait for one busy thread" }),
        CASE(no_more_files,
             { FINDING_LIMIT, CERTAINTY_LIKELY, QOS_STATE_NONE, NULL, NULL,
               "8 connections are not accepted (limit 100), and the oldest request waits for 5.04s" }),

        /* Peers */
        CASE(slow_dns,
             { FINDING_DEPENDENCY, CERTAINTY_CERTAIN, QOS_STATE_NONE, "127.0.53.1:53", NULL,
               "30.4ms of the 30.9ms to the first byte" }),
        CASE(nginx_before_a_server_that_hangs,
             { FINDING_DEPENDENCY, CERTAINTY_LIKELY, QOS_STATE_NONE, "127.0.0.1:15139", "unit-1.service",
               "does not respond: 1 request to it is in flight" }),

        /* Locks, also those of pools and databases */
        CASE(exhausted_pool,
             { FINDING_LOCK, CERTAINTY_POSSIBLE, QOS_STATE_PARK, "0x7f5d36ffc8c0", NULL,
               "a connection of a pool, mostly on 0x7f5d36ffc8c0, released by python3 (4756)" }),
        CASE(one_file,
             { FINDING_LOCK, CERTAINTY_CERTAIN, QOS_STATE_DISK, "lock in shmem_file_write_iter()", NULL,
               "of file system /run, released by toiler (5352)" }),
        CASE(row_of_postgresql,
             { FINDING_LOCK, CERTAINTY_POSSIBLE, QOS_STATE_POLL, "a signal to process 5983", NULL,
               "released by postgres (5976)" }),
        CASE(row_of_mariadb,
             { FINDING_LOCK, CERTAINTY_POSSIBLE, QOS_STATE_PARK, "0x7f229111a730", NULL,
               "released by one_connection (6328)" }),
        CASE(rows),
        CASE(rows_of_mariadb),

        /* Paths and disks */
        CASE(slow_path_bbr,
             { FINDING_NETWORK, CERTAINTY_LIKELY, QOS_STATE_NONE, NULL, NULL,
               "the path to clients is slow: responses wait for 137ms" }),
        CASE(head_and_body_without_delay),
        CASE(busy_neighbour_on_the_disk,
             { FINDING_DISK, CERTAINTY_CERTAIN, QOS_STATE_DISK, "vda", "writer-3.service",
               "100% of its bytes are of others" }),

        /* The CPU, also of units without requests */
        CASE(two_faults,
             { FINDING_DEPENDENCY, CERTAINTY_CERTAIN, QOS_STATE_NONE, "127.0.0.1:13650", NULL,
               "10.2ms per request" },
             { FINDING_CPU, CERTAINTY_LIKELY, QOS_STATE_RUN_QUEUE, "hog-4.service", "hog-4.service",
               "run-queue wait: 4.98ms of the 20.4ms to the first byte" }),
        CASE(batch_beside_a_hog,
             { FINDING_CPU, CERTAINTY_POSSIBLE, QOS_STATE_RUN_QUEUE, "hog-3.service", "hog-3.service",
               "50% of busy thread time" }),
        CASE(batch_that_runs),

        /* Threads that wait for work, or wait as little as they may */
        CASE(idle_redis),
        CASE(idle_pool),
        CASE(idle_go),
        CASE(busy_threads),
        CASE(busy_workers),
        CASE(busy_batches),
        CASE(busy_go),
};

static bool diagnose(const char *name, const DiagnosisEvidence *e, const Expected *expected, size_t n) {
        Diagnosis d;
        bool good;

        diagnosis_make(e, &d);
        good = d.n_findings == n && d.verdict == (n > 0 ? VERDICT_FOUND : VERDICT_NOTHING) &&
                !streq(d.summary, "") && streq(d.summary, "no bottleneck found") == (n == 0);
        for (size_t i = 0; good && i < n; i++) {
                const Finding *f = d.findings + i;

                good = f->kind == expected[i].kind && f->certainty == expected[i].certainty &&
                        f->state == expected[i].state &&
                        streq(f->resource, strempty(expected[i].resource)) &&
                        streq(f->unit, strempty(expected[i].unit)) && strstr(f->text, expected[i].text);
        }
        if (good)
                return true;

        fprintf(stderr, "%s: %s: %s\n", name, verdict_to_string(d.verdict), d.summary);
        for (size_t i = 0; i < d.n_findings; i++)
                fprintf(stderr, "  %s, %s, %s, '%s', '%s': %s\n", finding_kind_to_string(d.findings[i].kind),
                        certainty_to_string(d.findings[i].certainty),
                        strempty(qos_state_to_string(d.findings[i].state)), d.findings[i].resource,
                        d.findings[i].unit, d.findings[i].text);
        return false;
}

int main(void) {
        size_t n_bad = 0;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                size_t n = 0;

                while (n < ELEMENTSOF(table[i].findings) && table[i].findings[n].text)
                        n++;
                n_bad += !diagnose(table[i].name, table[i].evidence, table[i].findings, n);
        }
        check(n_bad == 0);
        return 0;
}
