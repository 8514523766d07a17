/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Storage maps: the code that the programs run (bpf/storage/storage-record.h) and the reader's
 * (storage-window.c), against a plain list of calls. */

#include "check.h"
#include "storage-window.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() UINT32_C(0)
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })

#define CPUS 4U

static union qos_storage_element* storage_element(void *map, __u32 i) {
        return i < QOS_STORAGE_ELEMENTS(CPUS) ? (union qos_storage_element*) map + i : NULL;
}

#include "storage-record.h"

#define START (1000 * NSEC_PER_SEC)

static union qos_storage_element* map_new(uint64_t now) {
        union qos_storage_element *map = new0(union qos_storage_element, QOS_STORAGE_ELEMENTS(CPUS));

        check(map);
        map->header.cpus = CPUS;
        map->header.epoch = now / QOS_EPOCH_NSEC;
        return map;
}

static StorageReading read_at(const union qos_storage_element *map, uint64_t now, uint64_t window,
                              const StorageCounts *before) {
        const StorageSource source = { .map = map, .since = START };
        const StorageSources sources = { .sources = &source, .n = 1, .since = START, .before = before };
        StorageReading r;

        check(storage_read(&sources, now, window, &r, NULL) == 0);
        return r;
}

/* A reproducible sequence of calls; each window is compared with those of them that ended in it. */
static void test_windows(void) {
        static const uint64_t windows[] = { WINDOW_TOTAL, NSEC_PER_SEC, 10 * NSEC_PER_SEC,
                                            60 * NSEC_PER_SEC };
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        struct {
                uint64_t at, nsec;
                enum qos_storage_call call;
                int64_t result;
        } calls[3000];
        uint64_t now = START, random = 1;

        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                /* Some times nothing happens for a while */
                now += i % 500 == 499 ? 25 * NSEC_PER_SEC : (random >> 40) * 4;
                calls[i].at = now;
                calls[i].nsec = random >> 33;
                calls[i].call = (random >> 20) % QOS_STORAGE_CALLS;
                calls[i].result = (random >> 16) % 8 == 0 ? -(int64_t) (random % 4095) - 1 :
                                  (int64_t) (random % 5000);
                storage_record(map, i % CPUS, now, calls[i].call, calls[i].result, calls[i].nsec);

                for (size_t w = 0; w < ELEMENTSOF(windows) && i % 100 == 99; w++) {
                        StorageReading r = read_at(map, now, windows[w], NULL);
                        uint64_t since = now - r.covered, count[QOS_STORAGE_CALLS] = {},
                                 errors[QOS_STORAGE_CALLS] = {}, bytes[2] = {}, nsec[QOS_STORAGE_TIMED] = {},
                                 longest[QOS_STORAGE_TIMED] = {};

                        for (size_t k = 0; k <= i; k++) {
                                enum qos_storage_call call = calls[k].call;

                                if (calls[k].at < since)
                                        continue;
                                count[call]++;
                                errors[call] += calls[k].result < 0;
                                if (call <= QOS_STORAGE_WRITE && calls[k].result > 0)
                                        bytes[call] += (uint64_t) calls[k].result;
                                if (call < QOS_STORAGE_TIMED) {
                                        nsec[call] += calls[k].nsec;
                                        longest[call] = MAX(longest[call], calls[k].nsec);
                                }
                        }
                        for (enum qos_storage_call call = 0; call < QOS_STORAGE_CALLS; call++) {
                                Distribution d;

                                check(r.counts.sums[QOS_STORAGE_COUNT + call] == count[call]);
                                check(r.counts.sums[QOS_STORAGE_ERRORS + call] == errors[call]);
                                if (call <= QOS_STORAGE_WRITE)
                                        check(r.counts.sums[QOS_STORAGE_BYTES_READ + call] == bytes[call]);
                                if (call >= QOS_STORAGE_TIMED)
                                        continue;
                                check(r.counts.sums[QOS_STORAGE_NSEC + call] == nsec[call]);
                                storage_get_latency(&r, call, 5, &d);
                                check(d.count == count[call]);
                                check(d.max >= longest[call]); /* the first sub-window begins earlier */
                                if (windows[w] == WINDOW_TOTAL)
                                        check(d.max == longest[call]);
                                check(d.count == 0 || d.mean == nsec[call] / count[call]);
                        }
                }
        }
}

/* Functions that return a pointer succeed with what is a negative number. */
static void test_results(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        StorageReading r;

        storage_record(map, 0, START, QOS_STORAGE_CREATE, (int64_t) UINT64_C(0xffff888100000000), 0);
        storage_record(map, 0, START, QOS_STORAGE_CREATE, -4096, 0);
        storage_record(map, 0, START, QOS_STORAGE_CREATE, -4095, 0);
        storage_record(map, 0, START, QOS_STORAGE_CREATE, -1, 0);
        storage_record(map, 0, START, QOS_STORAGE_CREATE, 0, 0);
        /* -ENOENT as an int, and the most bytes of a call */
        storage_record(map, 0, START, QOS_STORAGE_CREATE, (int64_t) UINT32_MAX - 1, 0);
        storage_record(map, 0, START, QOS_STORAGE_READ, INT32_MAX, 0);
        r = read_at(map, START + 1, WINDOW_TOTAL, NULL);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_CREATE] == 6);
        check(r.counts.sums[QOS_STORAGE_ERRORS + QOS_STORAGE_CREATE] == 3);
        check(r.counts.sums[QOS_STORAGE_ERRORS + QOS_STORAGE_READ] == 0);
        check(r.counts.sums[QOS_STORAGE_BYTES_READ] == INT32_MAX);
}

/* A bin of a CPU has 32 bits. */
static void test_wraparound(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        unsigned bin = QOS_STORAGE_READ * HISTOGRAM_COARSE_BINS +
                       histogram_coarse_bin(histogram_fine_bin(1000));
        StorageReading r;
        Distribution d;

        map[QOS_STORAGE_SHARD(2)].counts.bins[bin] = UINT32_MAX - 1;
        for (unsigned i = 0; i < 5; i++)
                storage_record(map, 2, START, QOS_STORAGE_READ, 1, 1000);
        r = read_at(map, START + 1, WINDOW_TOTAL, NULL);
        storage_get_latency(&r, QOS_STORAGE_READ, 5, &d);
        check(d.count == (UINT64_C(1) << 32) + 3);
        /* A window over it has the five */
        storage_record(map, 2, START + 1500 * NSEC_PER_MSEC, QOS_STORAGE_READ, 1, 1000);
        storage_record(map, 2, START + 2 * NSEC_PER_SEC, QOS_STORAGE_READ, 1, 1000);
        r = read_at(map, START + 2 * NSEC_PER_SEC, NSEC_PER_SEC, NULL);
        storage_get_latency(&r, QOS_STORAGE_READ, 5, &d);
        check(d.count == 2);
}

/* What a map had counted before it became a source, and what was counted by one that is none any more. */
static void test_before(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        const StorageSource source = { .map = map, .since = START };
        StorageCounts before = {};
        StorageReading r;

        storage_record(map, 0, START, QOS_STORAGE_WRITE, 10, 1000);
        storage_counts_add(&before, &source, 1);
        storage_record(map, 1, START, QOS_STORAGE_WRITE, 7, 1000);
        r = read_at(map, START + 1, WINDOW_TOTAL, &before);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == 1);
        check(r.counts.sums[QOS_STORAGE_BYTES_WRITTEN] == 7);
        storage_counts_add(&before, &source, -1);
        r = read_at(map, START + 1, WINDOW_TOTAL, &before);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == 3);
}

int main(void) {
        test_windows();
        test_results();
        test_wraparound();
        test_before();
        return 0;
}
