/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Breakdown of the service time of requests by state of the thread. Pure: compiled for BPF and for the unit
 * tests.
 *
 * The times of a thread change only when it is descheduled or scheduled. The times at the moment when a
 * request was read are thus those at the beginning of that run plus the time since; requests read within a
 * run share a snapshot of the times. */

#include "unit-map.h"

/* Number of requests stored that were read by a thread and have no response yet, the newest ones: an event
 * loop first reads the requests of all clients, and then sends all responses. Older ones are not
 * attributed. */
#define SERVICE_NOTES 32U
/* Number of runs with a snapshot: a thread that responds in a later run was descheduled in between, and may
 * have read other requests. */
#define SERVICE_RUNS 4U

/* Snapshot of the times of a thread. */
struct request_cpu_run {
        __u64 state;            /* current state */
        __u64 since;            /* CLOCK_MONOTONIC ns of entering it; time before that is in times */
        __u64 times[QOS_STATES];
};

struct service {
        __u64 map_id;           /* contention map with the times of the thread (THREAD_MAP_ID) */
        __u32 notes;            /* number of requests noted, modulo 2^32 */
        __u32 runs;
        __u32 next;             /* index of the request expected to be responded to next */
        __u32 open;             /* 1: the last request read has no known response, the thread is processing
                                 * it */
        __u64 read_at[SERVICE_NOTES]; /* identify the requests: no two threads read in the same nanosecond */
        __u32 run[SERVICE_NOTES];
        struct request_cpu_run list[SERVICE_RUNS];
};

/* Returns the snapshot to fill in if a new run has begun, NULL if it exists already. */
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

/* Adds the time in each state between reading the request (at) and its response (now) to sums, n times. The
 * sum over all states is now - at, even if clock differences make one of them negative. Returns 0 if this
 * thread did not read the request. */
static inline __attribute__((always_inline)) int request_cpu_finish(struct service *s,
                                                                    const struct request_cpu_run *account,
                                                                    __u64 at, __u64 now, __u64 n,
                                                                    __u64 *sums) {
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
        s->next = place; /* other requests may have been read at the same time */
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
