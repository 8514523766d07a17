/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Requests that were delayed by intent (intent.h), when their responses begin. */

#include "maps.h"

/* The current thread has read a request, or a part of one. */
__attribute__((noinline, weak)) int request_note_read(struct qos_unit_map *u, __u64 at) {
        struct pending_responses *a;
        struct intent_run now;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a || !u)
                return 0;
        task_get_run(bpf_get_current_task_btf(), at, &now);
        intent_read(&a->run, &now, &u->read_at);
        return 0;
}

/* Whether the trigger of a response that the current thread sends now shows that the request, read at
 * read_at, was delayed by intent (enum intent). */
__attribute__((noinline, weak)) int request_get_intent(__u64 read_at, __u64 now) {
        struct intent_run run;
        struct pending_responses *a;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a)
                return INTENT_NONE;
        if (a->watched && intent_is_parked(&a->park, read_at, now))
                return INTENT_SHOWN;
        task_get_run(bpf_get_current_task_btf(), now, &run);
        return intent_of_run(&a->run, &run, read_at);
}

/* Records requests delayed by intent: they are counted, but in no distribution. */
static __attribute__((noinline)) int request_record_intended(struct qos_unit_map *u,
                                                             const struct pipeline_batch *group,
                                                             __u32 n, __u64 now, __u32 target) {
        if (!u || !group)
                return 0;
        record_count(u, target, QOS_COUNTER_COUNT, QOS_ENTRY_COUNT, n);
        if (target & TARGET_ONLY) {
                window_count(u, QOS_COUNTER_EXCLUDED, n);
                return 0;
        }
        __sync_fetch_and_add(&u->sums[QOS_SUM_INTENDED],
                             exchange_between(group->first_at ?: group->read_at ?: now, now) * n);
        window_count(u, QOS_COUNTER_INTENDED, n);
        if (group->waits)
                window_count(u, QOS_COUNTER_WAITS, n);
        return 0;
}
