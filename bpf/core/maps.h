/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Shared by all programs: owners of sockets and groups, and recording. Maps are weak: every object has them,
 * and the linker keeps one. */

#include "kernel.h"
#include "map-definition.h"

#define window_copy(to, from, size) bpf_probe_read_kernel(to, size, from)
#define window_cpu() bpf_get_smp_processor_id()
#define window_now() bpf_ktime_get_ns()
/* Iterations of the wait for another CPU that writes checkpoints: they take about 20 us, writing takes less
 * than 10 us. */
#define WINDOW_WAITS (1U << 13)
#define row_loop(n, step, data) bpf_loop(n, step, data, 0)
#include "window-record.h"
#include "overhead.h"
#include "exchange.h"
#include "request-cpu.h"
#include "intent.h"

/* Inode of the daemon's root control group. In a container it is not the root of the hierarchy. */
const volatile __u64 root_group_id __weak = 1;

/* Length of a jiffy in ns. */
const volatile __u64 tick_nsec __weak = 4000000;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, UNITS_MAX_LIMIT);
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                __uint(max_entries, 1);
                __type(key, __u32);
                __uint(value_size, sizeof(struct qos_unit_map));
        });
} units SEC(".maps") __weak;

BPF_STORAGE_MAP(groups, CGRP, struct qos_owner) __weak;

BPF_ARRAY_MAP(hierarchies, ARRAY, UNITS_MAX_LIMIT, struct qos_hierarchy) __weak;

BPF_ARRAY_MAP(statistics, ARRAY, QOS_STATISTICS, __u64) __weak;

BPF_ARRAY_MAP(probe_configs, ARRAY, UNITS_MAX_LIMIT, struct qos_probe_config) __weak;

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, QOS_EXCLUDES);
        __type(key, struct qos_exclude);
        __type(value, __u8);
} excludes SEC(".maps") __weak;

BPF_ARRAY_MAP(filters, ARRAY, UNITS_MAX_LIMIT, struct qos_filter) __weak;

/* Notifies the daemon of changes in read_checks and unix_uses. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);      /* the minimum; a notification that does not fit is redundant */
} read_events SEC(".maps") __weak;

static __always_inline void statistics_count(__u32 which) {
        __u64 *n = bpf_map_lookup_elem(&statistics, &which);

        if (n)
                __sync_fetch_and_add(n, 1);
}

static __always_inline struct qos_owner owner_read(const struct qos_owner *owner) {
        union {
                __u64 word;
                struct qos_owner owner;
        } o = { .word = *(const volatile __u64*) owner };

        return o.owner;
}

static __always_inline bool owner_equal(const struct qos_owner *a, const struct qos_owner *b) {
        return a->slot == b->slot && a->generation == b->generation;
}

/* The unit's map; NULL if the unit was detached, and its slot possibly reused. */
static __always_inline struct qos_unit_map* unit_get(const struct qos_owner *owner) {
        struct qos_owner o = owner_read(owner);
        struct qos_unit_map *u;
        __u32 zero = 0;
        void *map;

        map = bpf_map_lookup_elem(&units, &o.slot);
        if (!map)
                return NULL;
        u = bpf_map_lookup_elem(map, &zero);
        if (!u || u->generation != o.generation)
                return NULL;
        return u;
}

/* A map element could not be allocated, or the map is full: counted for the map, and in the drops of the
 * unit (owner, NULL: unknown). Verified on its own. */
__attribute__((noinline, weak)) int element_lost(__u32 statistic, const struct qos_owner *owner) {
        struct qos_unit_map *u;

        statistics_count(statistic);
        u = owner ? unit_get(owner) : NULL;
        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        window_count(u, statistic < QOS_STATISTIC_LOST_THREADS ? QOS_COUNTER_DROPS :
                     QOS_COUNTER_DROPS_CONTENTION, 1);
        return 0;
}

/* ---- overhead ----------------------------------------------------------------------------------------- */

/* A run of a program, from the point where its unit is known. */
struct overhead {
        struct qos_owner owner;
        __u64 begin;            /* CLOCK_MONOTONIC ns; 0: not measured */
};

/* Program runs on this CPU since the last measured one, for all units: all CPUs would write a counter of the
 * unit in each run. */
BPF_ARRAY_MAP(overhead_turns, PERCPU_ARRAY, 1, __u32) __weak;

/* Start of this run if it is measured, otherwise 0. The 0 is loaded from a field of unknown value: with a
 * constant, the verifier would explore everything after it twice. */
#define overhead_begin_sample(of) (overhead_sample(&(of)->turn) ? bpf_ktime_get_ns() : \
                                   *(const volatile __u32*) &(of)->never)

static __always_inline void overhead_begin(struct overhead *overhead, const struct qos_owner *owner,
                                           const struct qos_unit_map *u) {
        __u32 zero = 0, *turn;

        turn = bpf_map_lookup_elem(&overhead_turns, &zero);
        overhead->owner = owner_read(owner);
        overhead->begin = turn && overhead_sample(turn) ? bpf_ktime_get_ns() :
                          *(const volatile __u64*) &u->never;
}

__attribute__((noinline, weak)) int overhead_record(const struct overhead *overhead) {
        __u64 now = bpf_ktime_get_ns();
        struct qos_unit_map *u;

        if (!overhead)
                return 0;
        u = unit_get(&overhead->owner);
        if (!u)
                return 0;
        /* The run may not have recorded anything else */
        window_advance(u, now);
        __sync_fetch_and_add(&u->sums[QOS_SUM_COST],
                overhead_nsec(overhead->begin, now) * OVERHEAD_SAMPLE_PERIOD);
        return 0;
}

static __always_inline void overhead_end(struct overhead *overhead) {
        if (overhead->begin != 0)
                overhead_record(overhead);
        overhead->begin = 0;
}

/* ---- recording ---------------------------------------------------------------------------------------- */

/* Target: where the metrics of a socket are recorded besides the unit, or instead. */
#define TARGET_ENTRY 0x7fU      /* number of the entry (unit-map.h), 0: none */
#define TARGET_ONLY 0x80U       /* not part of the unit's metrics: excluded endpoints and the client role */
#define TARGET_GENERATION_SHIFT 8 /* the bits above are the generation of the entry */

static __always_inline void sock_local(const struct sock *sk, struct qos_address *ret) {
        ret->family = sk->__sk_common.skc_family;
        ret->port = sk->__sk_common.skc_num;
        if (ret->family == AF_INET6)
                bpf_core_read(ret->address, sizeof(ret->address), &sk->__sk_common.skc_v6_rcv_saddr);
        else
                *(volatile __be32*) ret->address = sk->__sk_common.skc_rcv_saddr;
}

static __always_inline bool fin_received(__u32 state) {
        return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

/* Target of the listener at this address. unsure: there may be no listener; no entry is assigned, and the
 * socket can be retargeted later. */
static __always_inline __u32 endpoint_find(struct qos_unit_map *u, const struct qos_owner *owner,
                                           const struct qos_address *a, bool unsure) {
        struct qos_exclude exclude = { .owner = *owner, .name = a->port, .kind = QOS_EXCLUDE_PORT };

        if (bpf_map_lookup_elem(&excludes, &exclude))
                return entry_find(u, a, QOS_ENTRY_EXCLUDED) | TARGET_ONLY;
        return entry_find(u, a, unsure ? ENTRY_ENDPOINT_WITHOUT_LISTENER : QOS_ENTRY_ENDPOINT);
}

/* State of the detection of long polls of the target's endpoint. */
static __always_inline struct qos_intended* target_intended(struct qos_unit_map *u, __u32 target) {
        __u64 i = target & TARGET_ENTRY;

        BPF_BOUND(i, QOS_ENTRIES + 1);
        return u->intended + i;
}


/* Target to record in. If the entry of a peer was reassigned meanwhile, and thus merged into that of all
 * other peers, it is the latter. If it is reassigned between this check and the recording, the new peer gets
 * one event of the old one: the sum is right, and entries are reassigned at most ten times a second. */
static __always_inline __u32 target_resolve(struct qos_unit_map *u, __u32 target) {
        __u32 row = target & TARGET_ENTRY;

        if (row < QOS_ENTRY_FIRST)
                return target;
        BPF_BOUND(row, QOS_ENTRIES + 1);
        if ((u->names[row].generation & 0xff) != target >> TARGET_GENERATION_SHIFT)
                return QOS_ENTRY_PEERS_OTHERS | TARGET_ONLY;
        return target;
}

BPF_SUBPROG int entry_apply(struct qos_unit_map *u, __u32 target, __s32 in_flight, __u32 overlaps) {
        struct qos_peer_entry *row;

        BPF_REQUIRE(u);
        if (!(target & TARGET_ENTRY))
                return 0;
        row = entry_get(u, target & TARGET_ENTRY);
        if (in_flight != 0)
                __sync_fetch_and_add(&row->in_flight, in_flight);
        if (overlaps > 0)
                entry_count(row, QOS_ENTRY_OVERLAPS, overlaps);
        return 0;
}

/* A subprogram: the verifier would explore everything after inlined code once for each case. */
BPF_SUBPROG int overlap_count(struct qos_unit_map *u, __u32 overlaps, __u32 unparsed) {
        BPF_REQUIRE(u);
        window_count(u, QOS_COUNTER_OVERLAPS, overlaps);
        window_count(u, QOS_COUNTER_UNPARSED, unparsed);
        return 0;
}

/* seen, now: as for window_add_in_flight_at(). */
static __always_inline void record_effect_at(struct qos_unit_map *u, __u32 target,
                                             const struct exchange_effect *effect, __u64 seen, __u64 now) {
        if (target) {
                entry_apply(u, target, effect->in_flight, effect->overlap);
                if (target & TARGET_ONLY)
                        return;
        }
        if (effect->in_flight != 0)
                window_add_in_flight_at(u, effect->in_flight, seen, now);
        if (effect->overlap | effect->unparsed)
                overlap_count(u, effect->overlap, effect->unparsed);
}

static __always_inline void record_effect(struct qos_unit_map *u, __u32 target,
                                          const struct exchange_effect *effect) {
        record_effect_at(u, target, effect, QOS_SERVING, 0);
}

/* Whether the target has ever sent a response. Responses of the first endpoint, which has no entry, are
 * those of the unit minus those of all other endpoints. */
static __attribute__((noinline)) int target_has_responded(struct qos_unit_map *u, __u32 target) {
        struct qos_peer_entry *row;
        __u32 n;

        if (!u)
                return 0;
        if (target & TARGET_ENTRY) {
                row = entry_get(u, target & TARGET_ENTRY);
                return row->cells[QOS_ENTRY_COUNT] > 0 || row->carry[QOS_ENTRY_COUNT] > 0;
        }

        n = u->cells[QOS_COUNTER_COUNT];
        for (int i = 1; i <= QOS_ENTRIES; i++)
                if (i == QOS_ENTRY_ENDPOINTS_OTHERS || u->names[i].kind == QOS_ENTRY_ENDPOINT)
                        n -= entry_get(u, i)->cells[QOS_ENTRY_COUNT];
        return n != 0 || u->carry[QOS_COUNTER_COUNT] > 0;
}

/* Records n events with counters in both the unit and its entries. */
static __always_inline void record_count(struct qos_unit_map *u, __u32 target, __u32 cell, __u32 row_cell,
                                         __u32 n) {
        if (target & TARGET_ENTRY)
                entry_count(entry_get(u, target & TARGET_ENTRY), row_cell, n);
        if (!(target & TARGET_ONLY))
                window_count(u, cell, n);
}

static __always_inline void record_sum(struct qos_unit_map *u, __u32 target, __u32 sum, __u32 row_sum,
                                       __u32 n) {
        BPF_BOUND(row_sum, QOS_ENTRY_SUMS);
        if (target & TARGET_ENTRY)
                __sync_fetch_and_add(&entry_get(u, target & TARGET_ENTRY)->sums[row_sum], n);
        if (!(target & TARGET_ONLY))
                __sync_fetch_and_add(&u->sums[sum], n);
}

/* Index of the sum for the payload of a connection: sum, or its counterpart for unparsed connections.
 * Branchless, since the verifier would explore everything after a branch twice. */
static __always_inline __u32 exchange_sum(const struct exchange *x, __u32 sum) {
        return sum + (x->flags / EXCHANGE_UNPARSED & 1) * (QOS_SUM_UNPARSED_IN - QOS_SUM_BYTES_IN);
}

/* Moves the payload of a response that turns out to be unparsed after it was recorded. */
static __always_inline void record_unparsed(struct qos_unit_map *u, __u32 target, __u32 bytes) {
        if (target & TARGET_ONLY)
                return;
        __sync_fetch_and_add(&u->sums[QOS_SUM_UNPARSED_OUT], bytes);
        __sync_fetch_and_add(&u->sums[QOS_SUM_BYTES_OUT], -(__u64) bytes);
}

/* Parameters of recording n responses that begin, or one that continues. */
struct request_record {
        __u64 now;
        __u64 first_at;         /* as in struct exchange */
        __u64 last_at;
        __u64 read_at;
        __u64 first_out_at;
        __u64 before;           /* when the previous part was sent */
        __u32 n;
        __u32 target;
};

/* Responses sent since the current thread was scheduled on this CPU. They are attributed to it when it is
 * descheduled or reads again, since programs on packets cannot look up task storage. */
#define RESPONSES_MAX SERVICE_NOTES
struct pending_responses {
        __u32 watched;          /* 1: the states of the current thread are observed */
        __u32 n;
        struct response {
                __u64 read_at;
                __u64 now;
                __u32 n;
                __u32 generation; /* generation of the unit in which it was recorded */
        } list[RESPONSES_MAX];
        struct request_cpu_run account; /* scratch */
        __u64 sums[QOS_STATES];
        struct intent_park park; /* of the current thread, if it is observed */
        struct intent_run run;
};

BPF_ARRAY_MAP(responses, PERCPU_ARRAY, 1, struct pending_responses) __weak;

static __always_inline void task_get_run(const struct task_struct *task, __u64 now, struct intent_run *ret) {
        *ret = (struct intent_run) {
                .thread = task->pid,
                .waits = task->nvcsw,
                .preempted = task->nivcsw,
                .begun_at = now,
        };
}

/* The current thread reads data of a peer: what it sends from now on may be caused by that instead of by a
 * request. */
static __always_inline void peer_note_read(void) {
        struct pending_responses *a;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (a)
                a->run.thread = 0;
}

static __always_inline void response_begin(const struct qos_unit_map *u, const struct request_record *b) {
        struct pending_responses *a;
        __u32 zero = 0;
        __u64 i;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a || !a->watched || a->n >= RESPONSES_MAX)
                return;
        i = a->n;
        BPF_BOUND(i, RESPONSES_MAX);
        a->list[i].read_at = b->read_at;
        a->list[i].now = b->now;
        a->list[i].n = b->n;
        a->list[i].generation = u->generation;
        a->n = i + 1;
}

BPF_SUBPROG int entry_record(struct qos_unit_map *u, const struct request_record *b) {
        struct qos_peer_entry *row;

        BPF_REQUIRE(u);
        BPF_REQUIRE(b);
        if (!(b->target & TARGET_ENTRY))
                return 0;
        row = entry_get(u, b->target & TARGET_ENTRY);
        entry_count(row, QOS_ENTRY_COUNT, b->n);
        if (b->first_at != 0)
                row_add(row, b->now / QOS_EPOCH_NSEC, exchange_between(b->first_at, b->now), b->n);
        return 0;
}

BPF_SUBPROG int entry_record_more(struct qos_unit_map *u, const struct request_record *b) {
        BPF_REQUIRE(u);
        BPF_REQUIRE(b);
        if (!(b->target & TARGET_ENTRY) || b->first_at == 0)
                return 0;
        entry_move_sample(entry_get(u, b->target & TARGET_ENTRY), b->before,
                exchange_between(b->first_at, b->before),
                 b->now, exchange_between(b->first_at, b->now));
        return 0;
}

/* The first byte of n responses is sent: counts the requests and records their times. Distributions stored
 * as differences (unit-map.h) are skipped if the difference is 0. Like the next function it is global, and
 * thus verified once. */
BPF_SUBPROG int record_request(struct qos_unit_map *u, const struct request_record *b) {
        __u64 receive;

        BPF_REQUIRE(u);
        BPF_REQUIRE(b);
        if (b->target) {
                entry_record(u, b);
                if (b->target & TARGET_ONLY) {
                        window_count(u, QOS_COUNTER_EXCLUDED, b->n);
                        return 0;
                }
        }

        window_count(u, QOS_COUNTER_COUNT, b->n);
        window_add(u, QOS_SERVICE, exchange_between(b->read_at, b->now), b->n);
        response_begin(u, b);

        if (b->first_at == 0)
                return 0; /* older than the attach, or arrivals are not observed: unknown */

        window_add(u, QOS_FIRST_BYTE, exchange_between(b->first_at, b->now), b->n);
        window_add(u, QOS_QUEUE, exchange_between(b->last_at, b->read_at), b->n);
        receive = exchange_between(b->first_at, b->last_at);
        if (receive > 0)
                window_move_sample(u, QOS_RECEIVE, 0, receive, b->n);
        return 0;
}

/* Later bytes of a response are sent. */
BPF_SUBPROG int record_request_more(struct qos_unit_map *u, const struct request_record *b) {
        BPF_REQUIRE(u);
        BPF_REQUIRE(b);
        if (b->target) {
                entry_record_more(u, b);
                if (b->target & TARGET_ONLY)
                        return 0;
        }

        window_move(u, QOS_ANSWER, b->before, exchange_between(b->first_out_at, b->before),
                    b->now, exchange_between(b->first_out_at, b->now));
        if (b->first_at != 0)
                window_move(u, QOS_LATENCY, b->before, exchange_between(b->first_at, b->before),
                            b->now, exchange_between(b->first_at, b->now));
        return 0;
}

static __always_inline void waiting_reset(struct qos_waiting *w) {
        *w = (struct qos_waiting) { .oldest_at = ~0ULL };
}

/* Adds n requests without a response that began to arrive at this time. */
static __always_inline void waiting_add(struct qos_waiting *w, __u64 now, __u64 at, __u32 n) {
        __u64 octaves = (now > at ? now - at : 0) / QOS_WAITING_NSEC(0), bin = 0;

        if (at < w->oldest_at)
                w->oldest_at = at;
        for (int i = 1; i < QOS_WAITING_BINS; i++)
                bin += ~histogram_if_zero(octaves >> i) & 1;
        BPF_BOUND(bin, QOS_WAITING_BINS);
        w->ages[bin] += n;
}

/* Requests in flight that an iterator has found. */
struct found_in_flight {
        __u32 target;
        __u32 n;
        __u64 at;               /* since this time */
        __u32 waiting;          /* of these, without a response */
};

/* Adds requests in flight, for the given session of the iterator. */
static __always_inline void record_in_flight(struct qos_unit_map *u, enum qos_gauge gauge, __u64 session,
                                             const struct found_in_flight *found) {
        struct qos_open_requests *g = &u->gauges[gauge];
        __u32 row = found->target & TARGET_ENTRY;

        if (g->session != session) {
                g->in_flight = 0;
                g->oldest_at = ~0ULL;
                waiting_reset(&g->waiting);
                for (int i = 0; i <= QOS_ENTRIES; i++)
                        g->rows[i] = 0;
                g->session = session;
        }
        if (row > 0 && row <= QOS_ENTRIES)
                g->rows[row] += found->n;
        if (found->target & TARGET_ONLY)
                return;
        g->in_flight += found->n;
        if (found->waiting > 0)
                waiting_add(&g->waiting, bpf_ktime_get_ns(), found->at, found->waiting);
        if (found->at < g->oldest_at)
                g->oldest_at = found->at;
}

/* Finds the owner of a control group. Groups without any storage, as most are, cost one load.
 *
 * A failed lookup means that there is no owner, whatever this program has interrupted: lookups take no lock.
 * Before Linux 6.15 and 6.12.26 (f4edc66e48a6) it could also mean that group storage was in use on this CPU.
 * Creating storage fails for that reason before 7.0, see units_mkdir(). tests/kernels/owner.bpf.c tests
 * lookups on each kernel. */
static __always_inline bool group_owner(struct cgroup *group, struct qos_owner *ret) {
        struct qos_owner *owner;

        owner = group->bpf_cgrp_storage ? bpf_cgrp_storage_get(&groups, group, 0, 0) : NULL;
        if (!owner)
                return false;
        *ret = owner_read(owner);
        return true;
}

/* Finds the owner of an unknown socket by the current task. Sockets waiting for accept() at the attach, and
 * those from a listener opened by another process, get their owner here. */
static __always_inline bool task_owner(struct qos_owner *ret) {
        return group_owner(bpf_get_current_task_btf()->cgroups->dfl_cgrp, ret);
}

/* Whether task_owner() is certain to find none. */
static __always_inline bool task_is_unowned(void) {
        return !bpf_get_current_task_btf()->cgroups->dfl_cgrp->bpf_cgrp_storage;
}

/* Whether an open file of a task of the unit (both from an iterator) is still a file of the service manager:
 * the task was forked by it and has not executed its program yet, which takes microseconds, or as long as it
 * is not scheduled. At first it shares the memory with the service manager; in execve() it gets its own, and
 * close-on-exec files are closed later, possibly since the iterator has seen this one. Forks within the unit
 * do not count, even if their parent has exited. */
static __attribute__((noinline)) int file_is_managers(struct task_struct *task,
                                                      const struct qos_owner *owner, struct file *file,
                                                      __u32 fd) {
        unsigned long *bits, word = 0;
        struct task_struct *parent;
        struct qos_owner group;
        struct file **open, *now;

        if (!task || !owner)
                return 0;
        parent = task->real_parent;
        if (!parent)
                return 0;
        if (group_owner(parent->cgroups->dfl_cgrp, &group) && owner_equal(&group, owner))
                return 0;
        if (task->flags & PF_FORKNOEXEC &&
            BPF_CORE_READ(task, mm, exe_file) == BPF_CORE_READ(parent, mm, exe_file))
                return 1;
        bits = BPF_CORE_READ(task, files, fdt, close_on_exec);
        if (BPF_CORE_READ_BITFIELD(task, in_execve) &&
            bpf_probe_read_kernel(&word, sizeof(word), bits + fd / (8 * sizeof(word))) == 0 &&
            word & 1UL << fd % (8 * sizeof(word)))
                return 1;
        open = BPF_CORE_READ(task, files, fdt, fd);
        return bpf_probe_read_kernel(&now, sizeof(now), open + fd) < 0 || now != file;
}
