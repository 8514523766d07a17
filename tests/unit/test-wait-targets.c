/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rows of wait targets: the code of the programs (bpf/contention/wait-targets.h), compared with a plain list
 * of waits. */

#include <pthread.h>

#include "check.h"
#include "kernel-locks.h"
#include "util.h"
#include "wait-targets.h"

static struct qos_resource futex(uint64_t address) {
        return (struct qos_resource) { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1,
                                       .id = address };
}

/* As thread_find_row() and thread_end_wait() in bpf/contention/cpu.bpf.c. */
static void wait_for(struct qos_contention_map *c, const struct qos_resource *r, uint64_t nsec,
                     uint32_t waker) {
        const struct qos_waker w = { .thread = waker, .tid = waker };
        uint64_t row = resource_find(c, r) & ~(uint64_t) RESOURCE_NEW;

        if (row > 0)
                row |= (uint64_t) c->rows[row - 1].generation << 32;
        (void) resource_end(c, row, r->state | (waker ? RESOURCE_WOKEN : 0), nsec, &w);
}

static struct qos_wait_target* find(struct qos_contention_map *c, const struct qos_resource *r) {
        for (unsigned i = 0; i < QOS_WAIT_TARGETS; i++)
                if (c->rows[i].generation != 0 && resource_equal(&c->rows[i].resource, r))
                        return c->rows + i;
        return NULL;
}

static void check_sum(const struct qos_contention_map *c, uint64_t waits, uint64_t nsec) {
        for (unsigned i = 0; i < QOS_WAIT_TARGETS; i++) {
                waits -= c->rows[i].waits;
                nsec -= c->rows[i].nsec;
        }
        for (unsigned i = 0; i < QOS_STATES; i++) {
                waits -= c->rests[i].waits;
                nsec -= c->rests[i].nsec;
        }
        check(waits == 0 && nsec == 0);
}

/* Some resources are used all the time, among a hundred times as many that are used once: the former have
 * rows, and the sum is exact. */
static void test_churn(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        uint64_t waits = 0, nsec = 0;

        check(c);
        for (uint64_t round = 1; round <= 2000; round++) {
                for (uint64_t i = 0; i < 20; nsec += i, i++, waits++) {
                        struct qos_resource r = futex(4096 + i * 64);

                        wait_for(c, &r, i, 0);
                }
                for (uint64_t i = 0; i < 20; i++, waits++, nsec += 7) {
                        struct qos_resource r = futex((round * 20 + i) << 20);

                        wait_for(c, &r, 7, 0);
                }
        }
        check_sum(c, waits, nsec);
        for (uint64_t i = 0; i < 20; i++) {
                struct qos_resource r = futex(4096 + i * 64);
                struct qos_wait_target *row = find(c, &r);

                check(row && row->waits >= 1990 && row->waits <= 2000 && row->nsec == row->waits * i);
        }
        free(c);
}

/* An unused entry is reassigned. */
static void test_old(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        uint64_t waits = 0;

        check(c);
        for (uint64_t i = 0; i < 4096; i++)
                for (unsigned k = 0; k < 5000; k++, waits++) {
                        struct qos_resource r = futex(4096 + i * 64);

                        if (i >= QOS_WAIT_TARGETS && k == 100)
                                break;
                        wait_for(c, &r, 1, 0);
                }
        check_sum(c, waits, waits);
        for (unsigned k = 0; k < 5000; k++, waits++) {
                struct qos_resource r = futex(64);

                wait_for(c, &r, 1, 0);
        }
        struct qos_resource r = futex(64);
        check(find(c, &r));
        check_sum(c, waits, waits);
        free(c);
}

/* Resources that differ in any field are different. */
static void test_equal(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        const struct qos_resource all[] = {
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 8 },
                { .state = QOS_STATE_PARK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 8 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FILE, .process = 1, .id = 8 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 2, .id = 8 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 16 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 8, .device = 1 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 8, .port = 1 },
                { .state = QOS_STATE_LOCK, .kind = QOS_RESOURCE_FUTEX, .process = 1, .id = 8,
                  .address = { 0, 1 } },
        };

        check(c);
        for (size_t i = 0; i < ELEMENTSOF(all); i++)
                for (size_t k = 0; k <= i; k++)
                        wait_for(c, all + i, 10, 0);
        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                struct qos_wait_target *row = find(c, all + i);

                check(row && row->waits == i + 1 && row->nsec == 10 * (i + 1));
        }
        free(c);
}

/* A wait whose row was reassigned meanwhile is added to the rest. */
static void test_taken(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        struct qos_resource r = futex(8), other = futex(16);
        const struct qos_waker nobody = {};
        uint64_t row = resource_find(c, &r);

        check(c && row & RESOURCE_NEW);
        row &= ~(uint64_t) RESOURCE_NEW;
        check(resource_find(c, &r) == row);
        row |= (uint64_t) c->rows[row - 1].generation << 32;
        check(resource_end(c, row, QOS_STATE_LOCK, 5, &nobody) == 1);
        check(resource_take(c, c->rows + (uint32_t) row - 1, &other));
        check(c->rests[QOS_STATE_LOCK].waits == 1 && c->rests[QOS_STATE_LOCK].nsec == 5);
        check(resource_end(c, row, QOS_STATE_LOCK, 7, &nobody) == 0);
        check(resource_end(c, 0, QOS_STATE_SLEEP, 9, &nobody) == 0);
        check(c->rests[QOS_STATE_LOCK].waits == 2 && c->rests[QOS_STATE_LOCK].nsec == 12);
        check(c->rests[QOS_STATE_SLEEP].waits == 1 && c->rests[QOS_STATE_SLEEP].nsec == 9);
        check(find(c, &other)->waits == 0);
        free(c);
}

/* A thread that ends every second wait has an entry, however many others there are, with no more waits than
 * it ended. */
static void test_wakers(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        struct qos_resource r = futex(8);
        struct qos_wait_target *row;
        uint64_t most = 0, sum = 0;

        check(c);
        for (uint32_t i = 0; i < 10000; i++)
                wait_for(c, &r, 1, i % 2 ? 1 : 1000 + i);
        row = find(c, &r);
        check(row && row->waits == 10000);
        for (unsigned i = 0; i < QOS_WAKERS; i++) {
                sum += row->wakers[i].waits;
                if (row->wakers[i].thread == 1)
                        most = row->wakers[i].waits;
        }
        check(most >= 4990 && most <= 5000 && sum <= 10000);

        /* An entry that is no longer used is reassigned to a thread that ends all waits from then on */
        for (uint32_t i = 0; i < 10000; i++)
                wait_for(c, &r, 1, 2);
        most = 0;
        for (unsigned i = 0; i < QOS_WAKERS; i++)
                if (row->wakers[i].thread == 2)
                        most = row->wakers[i].waits;
        check(most >= 9900 && most <= 10000);
        free(c);
}

#define THREADS 4U
#define ROUNDS 200000U

static struct qos_contention_map *shared;

static void* run(void *data) {
        unsigned seed = (unsigned) (uintptr_t) data;

        for (unsigned i = 0; i < ROUNDS; i++) {
                struct qos_resource r =
                        futex(8 * (1 + (uint64_t) rand_r(&seed) % (i % 4 == 0 ? 100000 : 16)));

                wait_for(shared, &r, 3, 1 + (uint32_t) rand_r(&seed) % 5);
        }
        return NULL;
}

/* Concurrent updates lose nothing. */
static void test_threads(void) {
        pthread_t threads[THREADS];

        shared = new0(struct qos_contention_map, 1);
        check(shared);
        for (uintptr_t i = 0; i < THREADS; i++)
                check(pthread_create(threads + i, NULL, run, (void*) (i + 1)) == 0);
        for (size_t i = 0; i < THREADS; i++)
                check(pthread_join(threads[i], NULL) == 0);
        check_sum(shared, THREADS * ROUNDS, 3ULL * THREADS * ROUNDS);
        free(shared);
}

/* The part of a wait until a thread that processes a request ended it: kept in the row, and lost with it. */
static void test_held(void) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);
        struct qos_resource r = futex(4096), other;
        const struct qos_waker w = { .thread = 5, .tid = 5 };
        uint64_t row;

        check(c);
        row = resource_find(c, &r) & ~(uint64_t) RESOURCE_NEW;
        row |= (uint64_t) c->rows[row - 1].generation << 32;
        check(resource_end(c, row, r.state | RESOURCE_WOKEN | RESOURCE_BY_REQUEST, 100, &w) == 1);
        check(resource_end(c, row, r.state | RESOURCE_WOKEN, 30, &w) == 1);
        check(find(c, &r)->blocked_by_requests == 100 && find(c, &r)->nsec == 130 &&
              find(c, &r)->wakers[0].waits == 2);
        /* Without a row it is an ordinary wait */
        check(resource_end(c, 0, r.state | RESOURCE_WOKEN | RESOURCE_BY_REQUEST, 7, &w) == 0);
        check(c->rests[r.state].nsec == 7);
        check_sum(c, 3, 137);

        /* The new owner of the row begins without it */
        for (unsigned i = 1; find(c, &r); i++) {
                other = futex(4096 + i * 64);
                (void) resource_find(c, &other);
        }
        for (unsigned i = 0; i < QOS_WAIT_TARGETS; i++)
                check(c->rows[i].blocked_by_requests == 0);
        check_sum(c, 3, 137);
        free(c);
}

static void test_locks(void) {
        static const char *const yes[] = { "bpf_prog_6deef7357e7b4530_cpu_lock", "bpf_trace_run2",
                                           "__bpf_trace_contention_begin", "__traceiter_contention_begin",
                                           "rwsem_down_write_slowpath", "down_write", "down_read_killable",
                                           "down", "__down_common", "___down_common",
                                           "__mutex_lock.constprop.0",
                                           "mutex_lock_interruptible", "__ww_mutex_lock",
                                           "percpu_rwsem_wait", "__percpu_down_read", "rt_mutex_slowlock",
                                           "__rt_mutex_lock", "rwbase_read_lock",
                                           "schedule_preempt_disabled" };
        static const char *const no[] = { "pipe_write", "do_mprotect_pkey", "ext4_buffered_write_iter",
                                          "lock_mm_and_find_vma", "mm", "", "d", "bp", "__m",
                                          "0xffff888100000000",
                                          "rtnl_lock", "mute", "vm_mmap_pgoff", "lock_rename" };

        for (unsigned i = 0; i < ELEMENTSOF(yes) + ELEMENTSOF(no); i++) {
                const char *name = i < ELEMENTSOF(yes) ? yes[i] : no[i - ELEMENTSOF(yes)];
                struct lock_name n = {};

                memcpy(n.begin, name, strnlen(name, sizeof(n.begin)));
                check(lock_function(&n) == (i < ELEMENTSOF(yes)));
        }
}

int main(void) {
        test_churn();
        test_old();
        test_equal();
        test_taken();
        test_wakers();
        test_held();
        test_locks();
        test_threads();
        return EXIT_SUCCESS;
}
