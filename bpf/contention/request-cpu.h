/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Where a thread's time went between reading a question and answering it. Pure: compiled for BPF and for the
 * unit tests.
 *
 * A thread's account changes only when it leaves the CPU or comes back. So what it was when a question was
 * read is that of the run in which it was read, and the time of the reading; questions that are read in one
 * run share it. */

#include "unit-map.h"

/* Questions that a thread has read and not answered yet, those read last: an event loop reads what all its
 * clients have sent, and then answers all. What is more is not attributed. */
#define SERVICE_NOTES 32U
/* Of so many runs: who answers in another run than it has read in has waited in between, and may have read
 * something else. */
#define SERVICE_RUNS 4U

/* A thread's account. */
struct request_cpu_run {
        __u64 state;            /* in which it is … */
        __u64 since;            /* … since then; what it had taken before is in times */
        __u64 times[QOS_STATES];
};

struct service {
        __u64 book;             /* in which the thread's account is kept (THREAD_BOOK) */
        __u32 notes;            /* written so far, modulo 2^32 */
        __u32 runs;
        __u32 next;             /* where the next one to be answered is, most likely */
        __u32 open;             /* 1: what it has read last is not answered, as far as is known: it works on
                                 * that */
        __u64 read_at[SERVICE_NOTES]; /* by which it is known: nobody else reads at the same nanosecond */
        __u32 run[SERVICE_NOTES];
        struct request_cpu_run list[SERVICE_RUNS];
};

/* Where a run goes that is not the last one. NULL: it is. */
static inline __attribute__((always_inline)) struct request_cpu_run* request_cpu_begin(struct service *s,
                __u64 since) {
        __u64 last = (s->runs - 1) % SERVICE_RUNS, i = s->runs % SERVICE_RUNS;

        if (s->runs > 0 && s->list[last].since == since)
                return 0;
        s->runs++;
        return &s->list[i];
}

static inline __attribute__((always_inline)) void request_cpu_note(struct service *s, __u64 at) {
        __u64 i = s->notes % SERVICE_NOTES;

        s->read_at[i] = at;
        s->run[i] = s->runs;
        s->notes++;
        s->open = 1;
}

/* Adds to sums, n times, what the thread was in from when it read that to now, of its account now. The sum
 * of all states is the time in between, also where one of them is below zero by what the clocks differ by.
 * 0: it has not read it, as far as is known. */
static inline __attribute__((always_inline)) int request_cpu_answer(struct service *s,
                                                                    const struct request_cpu_run *account,
                                                                    __u64 at, __u64 now,
                                                                __u64 n, __u64 *sums) {
        const struct request_cpu_run *from;
        __u64 place = SERVICE_NOTES, run;

        for (__u32 k = 0; k < SERVICE_NOTES; k++) {
                __u64 i = (s->next + k) % SERVICE_NOTES;

                if (s->read_at[i] == at) {
                        place = i;
                        break;
                }
        }
        if (at == 0 || place >= SERVICE_NOTES)
                return 0;
        s->next = place; /* others may have been read at once with it */
        if (place == (s->notes - 1) % SERVICE_NOTES)
                s->open = 0;
        if (s->runs - s->run[place] >= SERVICE_RUNS)
                return 0;
        run = (s->run[place] - 1) % SERVICE_RUNS;
        from = &s->list[run];

        for (__u32 i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                __u64 nsec = account->times[i] - from->times[i];

                if (i == account->state)
                        nsec += now - account->since;
                if (i == from->state)
                        nsec -= at - from->since;
                sums[i] += nsec * n;
        }
        sums[QOS_STATE_BLOCKED_BY_REQUESTS] += (account->times[QOS_STATE_BLOCKED_BY_REQUESTS] -
                                                from->times[QOS_STATE_BLOCKED_BY_REQUESTS]) * n;
        return 1;
}
