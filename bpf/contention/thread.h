/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Attribution of the time that a thread spends on a request, between reading it and responding to it. */

#include "thread-storage.h"

/* Requests read by a thread. */
BPF_STORAGE_MAP(services, TASK, struct service) __weak;

/* Snapshot of a thread's times. Only for the current task or in sched_switch, so that no transition
 * intervenes. */
static __always_inline void thread_get_account(const struct thread *t, struct request_cpu_run *ret) {
        ret->state = *(const volatile __u64*) &t->word & THREAD_STATE;
        ret->since = t->since;
        for (int i = 0; i < QOS_STATES; i++)
                ret->times[i] = t->times[i];
}

__attribute__((noinline, weak)) int service_record(struct service *s, struct pending_responses *a,
                                                   const struct response *response) {
        if (!s || !a || !response)
                return 0;
        return request_cpu_finish(s, &a->account, response->read_at, response->now, response->n, a->sums);
}

/* Attributes the first n pending responses. */
__attribute__((noinline, weak)) int pending_responses_add(struct thread *t, struct service *s,
                                                          struct pending_responses *a, __u32 n) {
        __u32 slot, zero = 0, before, attributed = 0;
        struct qos_unit_map *u;
        void *map;

        if (!t || !s || !a)
                return 0;
        if (s->map_id != (*(volatile __u64*) &t->word & THREAD_MAP_ID))
                return 0; /* the thread has changed its contention map since it read */
        before = *(volatile __u32*) &t->writes;
        slot = (t->word & THREAD_SLOT) >> THREAD_SLOT_SHIFT;
        map = bpf_map_lookup_elem(&units, &slot);
        u = map ? bpf_map_lookup_elem(map, &zero) : NULL;
        if (!u)
                return 0;

        thread_get_account(t, &a->account);
        for (int i = 0; i < QOS_STATES; i++)
                a->sums[i] = 0;
        for (__u64 i = 0; i < RESPONSES_MAX; i++) {
                struct response *response = &a->list[i];

                if (i >= n)
                        break;
                if (response->generation == u->generation && service_record(s, a, response))
                        attributed += response->n;
        }
        /* Preempted meanwhile */
        if (attributed == 0 || before % 2 != 0 || *(volatile __u32*) &t->writes != before)
                return 0;
        for (int i = QOS_STATE_BLOCKED_BY_REQUESTS; i < QOS_STATES; i++)
                if (a->sums[i] != 0)
                        __sync_fetch_and_add(&u->sums[QOS_SUM_STATES + i], a->sums[i]);
        __sync_fetch_and_add(&u->sums[QOS_SUM_ATTRIBUTED], attributed);
        return 0;
}

/* Attributes the responses sent since the thread was scheduled to the requests that it has read. Does not
 * advance the window: the sender has done so, and the locks of the scheduler may be held. Responses added by
 * an interrupt meanwhile are not attributed. */
static __always_inline void pending_responses_settle(struct thread *t, struct service *s,
                                                     struct pending_responses *a) {
        __u32 watched = a->watched, n;

        *(volatile __u32*) &a->watched = 0;
        n = *(volatile __u32*) &a->n;
        a->n = 0;
        pending_responses_add(t, s, a, n);
        *(volatile __u32*) &a->watched = watched;
}

/* A thread is descheduled, or scheduled. */
static __always_inline void pending_responses_turn(struct task_struct *task, struct thread *t, bool comes) {
        struct pending_responses *a;
        struct service *s;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a)
                return;
        if (comes) {
                a->watched = 1;
                a->n = 0;
                a->park = t->park;
                return;
        }
        a->watched = 0;
        if (a->n == 0)
                return;
        s = bpf_task_storage_get(&services, task, 0, 0);
        if (s)
                pending_responses_settle(t, s, a);
}

/* Time at which the current task has read the request that it is processing, of the unit of this contention
 * map; 0: none. */
static __always_inline __u64 task_get_request_time(struct task_struct *task, __u64 map_id) {
        const struct service *s = bpf_task_storage_get(&services, task, 0, 0);
        const struct pending_responses *a;
        __u32 zero = 0;

        if (!s || !s->open || s->map_id != map_id)
                return 0;
        a = bpf_map_lookup_elem(&responses, &zero);
        /* Responses sent in this run have not been matched to requests yet */
        return a && a->n == 0 ? s->read_at[(s->notes - 1) % SERVICE_NOTES] : 0;
}

/* The current task has read a part of a request. at: time of the read, which is also stored with the
 * connection. */
__attribute__((noinline, weak)) int thread_read_request(struct qos_unit_map *u, __u64 at) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct request_cpu_run *run;
        struct service *s;
        struct pending_responses *a;
        struct intent_run now;
        struct thread *t;
        __u32 zero = 0, before;
        __u64 map_id;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a || !u)
                return 0;
        task_get_run(task, at, &now);
        intent_read(&a->run, &now, &u->read_at);
        /* Cheapest check first: most readers are not observed */
        if (!a->watched)
                return 0;
        t = thread_of(task);
        if (!t || !contention_cpu_get(*(volatile __u64*) &t->word, cpus))
                return 0; /* not observed, or no longer */
        s = BPF_STORAGE_CREATE(task, services, task);
        if (!s) {
                contention_lost(QOS_STATISTIC_LOST_SERVICES, *(volatile __u64*) &t->word);
                return 0;
        }
        map_id = *(volatile __u64*) &t->word & THREAD_MAP_ID;
        if (s->map_id != map_id) {
                s->map_id = map_id;
                s->notes = s->runs = 0;
                for (int i = 0; i < (int) SERVICE_NOTES; i++)
                        s->read_at[i] = 0;
        }
        if (a->n > 0)
                pending_responses_settle(t, s, a);

        before = *(volatile __u32*) &t->writes;
        run = request_cpu_begin(s, t->since);
        if (run)
                thread_get_account(t, run);
        /* If it was preempted meanwhile, the snapshot is inconsistent */
        if (before % 2 != 0 || *(volatile __u32*) &t->writes != before) {
                if (run)
                        run->since = 0;
                return 0;
        }
        request_cpu_note(s, at);
        return 0;
}
