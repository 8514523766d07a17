/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Divides the time of a request into run time and waits. */

#include <math.h>

#include "diagnosis-internal.h"
#include "util.h"

/* Maximum time that an idle CPU takes to wake up: some tens of microseconds, in a virtual machine more.
 * Waits for a CPU that others use take milliseconds. */
#define WAKE_MAX_NSEC (0.1 * NSEC_PER_MSEC)
/* Minimum ratio of refaulted pages to pages read: half of the pages read had been in memory before. */
#define REFAULTS_MIN 0.5
/* Minimum average number of throttled threads. */
#define THROTTLED_MIN 0.05

const PartRule part_table[_PART_MAX] = {
        [PART_RUNNING]   = { QOS_STATE_RUNNING,   _FINDING_KIND_MAX,  true,  0,              0,
                             NULL },
        [PART_RUN_QUEUE] = { QOS_STATE_RUN_QUEUE, FINDING_CPU,        false, 0,              THREADS_MIN,
                             "its threads waited for a CPU for a fifth or more of the time of a request, a "
                             "tenth of a thread or more on average, and no CPU was idle or each wait took "
                             "100 us or more" },
        [PART_THROTTLED] = { QOS_STATE_THROTTLED, FINDING_QUOTA,      false, 0,              THROTTLED_MIN,
                             "its threads were throttled for a fifth or more of the time of a request" },
        [PART_DISK]      = { QOS_STATE_DISK,      FINDING_DISK,       true,  WAIT_MIN_NSEC,  0,
                             "its threads waited for files and devices for a fifth or more of the time of a "
                             "request, and 1 ms or more" },
        [PART_LOCK]      = { QOS_STATE_LOCK,      FINDING_LOCK,       true,  STALL_MIN_NSEC, THREADS_MIN,
                             "its threads waited for what other threads held for a fifth or more of the "
                             "time of a request, and 100 us or more" },
        [PART_MEMORY]    = { QOS_STATE_MEMORY,    FINDING_MEMORY,     true,  STALL_MIN_NSEC, 0,
                             "its threads waited for memory for a fifth or more of the time of a request, "
                             "and 100 us or more" },
        [PART_PEERS]     = { QOS_STATE_NONE,      FINDING_DEPENDENCY, true,  WAIT_MIN_NSEC,  0,
                             "the unit waited for responses to its own requests for a fifth or more of the "
                             "time of a request, and 1 ms or more" },
};

const char *const wait_labels[_FINDING_KIND_MAX] = {
        [FINDING_CPU]        = "run-queue wait",
        [FINDING_QUOTA]      = "throttled by the CPU quota",
        [FINDING_DISK]       = "disk wait",
        [FINDING_LOCK]       = "lock wait",
        [FINDING_DEPENDENCY] = "wait for responses of peers",
        [FINDING_MEMORY]     = "memory wait",
};

bool parts_read(const DiagnosisFigures *f, bool exact, Parts *ret) {
        double read = f->queue + f->service, occupied = 0, sum = 0, in_service = 0, lower[_PART_MAX] = {},
                upper[_PART_MAX] = {};

        *ret = (Parts) {};
        if (!(f->rate > 0) || isnan(read))
                return false;

        for (Part p = 0; p < _PART_MAX; p++) {
                double n = p == PART_PEERS ? f->client_rate / f->rate * f->client_latency :
                           f->threads[part_table[p].state] / f->rate * NSEC_PER_SEC;

                ret->spent[p] = n > 0 ? n : 0; /* 0 if unknown */
                if (exact && !isnan(f->service_lock) && p == PART_LOCK)
                        ret->spent[p] = MIN(ret->spent[p], f->service_lock);
                if (exact && !isnan(f->service_lock) && p == PART_RUN_QUEUE)
                        ret->spent[p] = MIN(ret->spent[p], f->queue + f->service_run_queue);
                if (part_table[p].in_service)
                        in_service += ret->spent[p];
        }

        for (Part p = 0; p < _PART_MAX; p++) {
                if (part_table[p].in_service && p != PART_RUNNING)
                        lower[p] = MIN(ret->spent[p], fmax(0, f->service - (in_service - ret->spent[p])));
                else
                        lower[p] = MIN(ret->spent[p], part_table[p].in_service ? f->service : read);
                upper[p] = MIN(ret->spent[p], part_table[p].in_service ? f->service : read);
                sum += lower[p];
        }

        occupied = MAX(f->service, sum);
        if (occupied <= 0)
                return false;
        for (Part p = 0; p < _PART_MAX; p++) {
                ret->least[p] = lower[p] / occupied * read;
                ret->most[p] = upper[p] / MAX(occupied, upper[p]) * read;
        }
        ret->unexplained = (occupied - sum) / occupied * read;
        return true;
}

bool parts_are_exact(const DiagnosisEvidence *e) {
        return !e->normal || !isnan(e->normal->service_lock);
}

double figures_sleep_time(const DiagnosisFigures *f) {
        static const enum qos_state states[] = { QOS_STATE_SLEEP, QOS_STATE_CHILD, QOS_STATE_PIPE };
        double threads = 0;

        for (size_t i = 0; i < ELEMENTSOF(states); i++)
                threads += f->threads[states[i]] > 0 ? f->threads[states[i]] : 0;
        return threads / f->rate * NSEC_PER_SEC;
}

bool part_is_own(const DiagnosisEvidence *e, Part p) {
        const DiagnosisFigures *f = &e->now;

        return p == PART_RUN_QUEUE && f->threads[QOS_STATE_RUNNING] >= CPUS_MOST * f->cpus &&
               !(f->run_queue_others > f->run_queue_own);
}

bool part_is_waking(const DiagnosisEvidence *e, Part p) {
        return p == PART_RUN_QUEUE && e->now.run_queue_wait < WAKE_MAX_NSEC && e->now.idle_cpus >= IDLE_MIN;
}

bool part_has_threads(const DiagnosisEvidence *e, Part p, double time) {
        const DiagnosisFigures *f = &e->now;

        if (p == PART_PEERS || f->threads[part_table[p].state] >= part_table[p].threads)
                return true;
        /* Few requests, each of which waits for long, while its CPUs are busy */
        return p == PART_RUN_QUEUE && time >= WAIT_MIN_NSEC && time >= SHARE_MOST * f->first_byte &&
                f->idle_cpus < SHARE_MOST * f->cpus;
}

FindingKind part_find_kind(const DiagnosisEvidence *e, Part p, const DiagnosisNamed **ret_lock) {
        const DiagnosisFigures *f = &e->now;
        enum qos_state state = part_table[p].state;
        const DiagnosisNamed *kernel = e->kernel + state;

        /* Calls on files or memory that wait for a kernel lock, unless its holder waits for a device, which
         * is the cause */
        if ((p == PART_DISK || p == PART_MEMORY) && kernel->value >= SHARE_MOST * f->threads[state] &&
            f->threads[state] - kernel->value < SHARE_MOST) {
                *ret_lock = kernel;
                return FINDING_LOCK;
        }
        /* Evicted pages are read again */
        if (p == PART_DISK && f->refaults >= REFAULTS_MIN * f->reads && f->refaults > 0)
                return FINDING_MEMORY;
        return part_table[p].kind;
}
