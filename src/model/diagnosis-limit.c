/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rules for limits of the application: requests wait for a busy thread or process, for the CPUs that the
 * unit may use, or for one of its workers. */

#include <math.h>

#include "diagnosis-internal.h"
#include "util.h"

/* Minimum CPU time of a busy process, as a share: others take some of its CPU. A process that shares a CPU
 * has a half. */
#define BUSIEST_MIN 0.7
/* Minimum CPU time of a busy thread, as a share: it runs longer than it waits for a CPU. */
#define BUSIEST_THREAD_MIN 0.6
/* CPU time from which on a process has several busy threads. */
#define BUSIEST_MAX 1.2
/* Minimum number of concurrent requests, of which one waits for another. */
#define AT_ONCE_MIN 2.0

void diagnose_starved_thread(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double at_once = f->rate * (f->queue + f->service) / NSEC_PER_SEC, busy, time;

        busy = f->busiest_thread + e->busiest_thread_ready;
        time = parts->unexplained * e->busiest_thread_ready / busy;
        if (!(busy >= CPUS_MOST) || f->busiest_thread >= BUSIEST_THREAD_MIN || at_once < AT_ONCE_MIN ||
            parts->unexplained < SHARE_MOST * f->first_byte || time < SHARE_MIN * f->first_byte ||
            !(f->run_queue_others > f->run_queue_own) || diagnosis_has(d, FINDING_CPU))
                return;
        finding_name(diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_CPU, .certainty = CERTAINTY_LIKELY, .state = QOS_STATE_RUN_QUEUE,
                        .share = time / f->first_byte, .time = time,
                        .rule = "two requests or more are there at a time, half of their time or more is no "
                        "wait for a resource, and one thread runs or waits for a CPU for four fifths of the "
                        "time or more, and runs for less than three fifths",
                }, "%.1f requests at a time wait for one thread: %s of the %s to the first byte (%s), in "
                "which %s waits for a CPU", at_once, SPAN(time), SPAN(f->first_byte),
                PERCENT(time / f->first_byte), e->busiest_thread), e);
}

void diagnose_limit(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double queue = f->queue / f->first_byte,
                running = parts->least[PART_RUNNING] / (f->queue + f->service), at_once, resources = 0;
        Finding *finding;
        bool one;

        for (Part p = PART_RUN_QUEUE; p < _PART_MAX; p++)
                resources += parts->least[p] / (f->queue + f->service);

        one = f->busiest_process >= BUSIEST_MIN && f->busiest_process < BUSIEST_MAX &&
              f->threads[QOS_STATE_RUNNING] < WORSE * f->busiest_process;
        if ((!one || (queue < SHARE_MOST && !diagnosis_has(d, FINDING_CPU))) &&
            f->threads[QOS_STATE_RUNNING] >= CPUS_MOST * f->cpus &&
            (queue >= SHARE_MOST || parts->least[PART_RUN_QUEUE] / f->first_byte >= SHARE_MIN)) {
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_CERTAIN,
                                .state = QOS_STATE_RUNNING,
                                .share = (parts->least[PART_RUNNING] + parts->least[PART_RUN_QUEUE]) /
                                f->first_byte,
                                .time = parts->least[PART_RUNNING] + parts->least[PART_RUN_QUEUE],
                                .rule = "it uses four fifths or more of the CPUs that it may use, and its "
                                "requests or threads wait",
                        }, "the unit itself uses %.2f of the %.0f CPUs that it may use",
                        f->threads[QOS_STATE_RUNNING], f->cpus);
                return;
        }

        /* Requests wait in the application after they were read, or for the last one of a batch */
        at_once = f->rate * (f->queue + f->service) / NSEC_PER_SEC;
        if (f->busiest_thread >= BUSIEST_THREAD_MIN &&
            f->busiest_thread + e->busiest_thread_ready >= CPUS_MOST && at_once >= AT_ONCE_MIN &&
            parts->unexplained >= SHARE_MOST * f->first_byte &&
            (!one || queue < SHARE_MOST || running < SHARE_MOST)) {
                /* Never certain: requests may wait for something unobserved, as long polls do, while the
                 * thread is busy otherwise */
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT,
                                .certainty = figures_sleep_time(f) >= SHARE_MOST * f->service ?
                                CERTAINTY_POSSIBLE : CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = parts->unexplained / f->first_byte,
                                .time = parts->unexplained,
                                .rule = "two requests or more are there at a time, half of their time or "
                                "more is no wait for a resource, and one thread runs or waits for a CPU for "
                                "four fifths of the time or more, and runs for three fifths or more",
                        }, "%.1f requests at a time wait for one busy thread: %s of the %s to the first "
                        "byte (%s); %s used %.2f of a CPU", at_once, SPAN(parts->unexplained),
                        SPAN(f->first_byte), PERCENT(parts->unexplained / f->first_byte), e->busiest_thread,
                        f->busiest_thread);
                (void) snprintf(finding->resource, sizeof(finding->resource), "thread %s",
                                e->busiest_thread);
                return;
        }

        if (queue < SHARE_MOST) {
                diagnosis_exclude(d, FINDING_LIMIT, queue, "queue time: %s of each request (%s)%s",
                                  SPAN(f->queue), PERCENT(queue),
                                  LIMIT(queue, SHARE_MOST, f->queue, WAIT_MIN_NSEC));
                return;
        }

        if (running >= SHARE_MOST && one) {
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT,
                                .certainty = f->busiest_process >= 0.9 ? CERTAINTY_CERTAIN :
                                CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = queue, .time = f->queue,
                                .rule = "requests wait to be read for half of their time or more, one "
                                "process uses 0.7 CPUs or more, and most of the time of a request is its "
                                "run time",
                        }, "queue time: %s of each request (%s), as one process is busy: process %i used "
                        "%.2f of a CPU", SPAN(f->queue), PERCENT(queue), e->busiest_pid, f->busiest_process);
                (void) snprintf(finding->resource, sizeof(finding->resource), "process %i", e->busiest_pid);
                return;
        }

        if (running + resources >= SHARE_MOST || f->queue < WAIT_MIN_NSEC) {
                diagnosis_exclude(d, FINDING_LIMIT, running + resources >= SHARE_MOST ? 0 : queue,
                                  "queue time: %s of each request (%s)%s", SPAN(f->queue), PERCENT(queue),
                                  running + resources >= SHARE_MOST ? ", explained by run time and waits" :
                                  LIMIT(queue, SHARE_MOST, f->queue, WAIT_MIN_NSEC));
                return;
        }
        at_once = f->rate * f->service / NSEC_PER_SEC;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_LIMIT,
                        .certainty = f->idle_cpus >= IDLE_MIN ? CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                        .share = queue, .time = f->queue,
                        .rule = "requests wait to be read for half of their time or more, and 1 ms or more, "
                        "while those that are worked on wait for no resource and no peer",
                }, "queue time: %s of each request (%s); the application works on %.1f at a time, %s each%s",
                SPAN(f->queue), PERCENT(queue), at_once, SPAN(f->service), f->idle_cpus >= IDLE_MIN ?
                ", and CPUs are idle" : "");
}
