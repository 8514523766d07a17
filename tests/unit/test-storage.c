/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Storage maps: the code that the programs run (bpf/storage/storage-record.h) and the reader's
 * (storage-window.c), against a plain list of calls. */

#include <math.h>

#include "check.h"
#include "storage-mounts.h"
#include "storage-slow.h"
#include "storage-step.h"
#include "util.h"
#include "window.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() UINT32_C(0)
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })

#define CPUS 4U

static union qos_storage_element* storage_element(void *map, __u32 i) {
        return i < QOS_STORAGE_ELEMENTS(CPUS) ? (union qos_storage_element*) map + i : NULL;
}

#define storage_roll_due(map, h, epoch) storage_roll(map, h, epoch)
#define mount_read_type(buffer, size, name) (void) snprintf(buffer, size, "%s", (const char*) (name))

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

/* A reproducible sequence of calls. Each window is compared with the calls that ended in it. */
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
                /* Pauses, in which sub-windows are skipped */
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

/* A successful call that returns a pointer may look like a negative number. */
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

static void states_add(union qos_storage_element *map, uint32_t cpu, uint64_t now,
                       enum qos_storage_call call, const uint64_t *times, uint64_t nsec) {
        __u64 begun[QOS_STATES], ended[QOS_STATES];
        struct storage_states states;
        struct storage_shard s;

        for (unsigned i = 0; i < QOS_STATES; i++) {
                begun[i] = 1000 * i;
                ended[i] = begun[i] + times[i];
        }
        storage_divide(begun, ended, nsec, states.nsec);
        storage_record(map, cpu, now, call, 0, nsec);
        check(storage_shard_enter(map, cpu, now, &s));
        storage_record_states(&s, call, &states);
}

static bool is_close(double a, double b, double error) {
        return fabs(a - b) <= error;
}

/* Shares are together 1; a counter of a CPU has 32 bits, a single wait may take longer. */
static void test_states(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        uint64_t times[QOS_STATES] = { [QOS_STATE_DISK] = 30 * NSEC_PER_SEC,
                                       [QOS_STATE_LOCK] = 10 * NSEC_PER_SEC },
                 now = START + 2 * NSEC_PER_SEC;
        double shares[QOS_STATES], sum = 0;
        StorageReading r;

        for (unsigned i = 0; i < 20; i++)
                states_add(map, i % CPUS, START, QOS_STORAGE_SYNC, times, 50 * NSEC_PER_SEC);
        r = read_at(map, now, WINDOW_TOTAL, NULL);
        storage_get_shares(&r, QOS_STORAGE_SYNC, shares);
        check(is_close(shares[QOS_STATE_DISK], 0.6, 1e-9) && is_close(shares[QOS_STATE_LOCK], 0.2, 1e-9) &&
              is_close(shares[QOS_STATE_RUNNING], 0.2, 1e-9));
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                sum += shares[i];
        check(is_close(sum, 1, 1e-9));
        storage_get_shares(&r, QOS_STORAGE_READ, shares);
        check(isnan(shares[QOS_STATE_DISK]));

        /* A window has what ended in it, with the rounding of its checkpoints; states that no call on a file
         * has are others */
        times[QOS_STATE_DISK] = 0;
        times[QOS_STATE_LOCK] = 2 * NSEC_PER_MSEC;
        times[QOS_STATE_PARK] = 1 * NSEC_PER_MSEC;
        for (unsigned i = 0; i < CPUS; i++)
                states_add(map, i, now, QOS_STORAGE_SYNC, times, 4 * NSEC_PER_MSEC);
        r = read_at(map, now, NSEC_PER_SEC, NULL);
        storage_get_shares(&r, QOS_STORAGE_SYNC, shares);
        check(is_close(shares[QOS_STATE_LOCK], 0.5, 0.002) &&
              is_close(shares[QOS_STATE_OTHER], 0.25, 0.002) &&
              is_close(shares[QOS_STATE_RUNNING], 0.25, 0.002) && is_close(shares[QOS_STATE_DISK], 0, 0));

        /* Clocks of two programs may differ: a thread never runs for less than nothing */
        times[QOS_STATE_LOCK] = 5 * NSEC_PER_SEC;
        states_add(map, 0, now, QOS_STORAGE_WRITE, times, 4 * NSEC_PER_SEC);
        r = read_at(map, now, WINDOW_TOTAL, NULL);
        storage_get_shares(&r, QOS_STORAGE_WRITE, shares);
        check(is_close(shares[QOS_STATE_RUNNING], 0, 0) && shares[QOS_STATE_LOCK] > 0.99);

        /* Beyond what checkpoints can count */
        r.counts.sums[QOS_STORAGE_NSEC + QOS_STORAGE_WRITE] = UINT64_C(1) << (32 + QOS_STORAGE_STATE_SHIFT);
        storage_get_shares(&r, QOS_STORAGE_WRITE, shares);
        check(isnan(shares[QOS_STATE_LOCK]));
}

/* A counter of 32 bits. */
static void test_count_wraparound(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        unsigned i = QOS_STORAGE_COUNT + QOS_STORAGE_WRITE - QOS_STORAGE_WIDE;
        uint64_t now = START + 1500 * NSEC_PER_MSEC;
        StorageReading r;

        map[QOS_STORAGE_SHARD(1)].counts.counts[i] = UINT32_MAX - 1;
        for (unsigned k = 0; k < 3; k++)
                storage_record(map, 1, START, QOS_STORAGE_WRITE, 1, 1000);
        r = read_at(map, START + 1, WINDOW_TOTAL, NULL);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == (UINT64_C(1) << 32) + 1);
        storage_record(map, 2, now, QOS_STORAGE_WRITE, 1, 1000);
        r = read_at(map, now, NSEC_PER_SEC, NULL);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == 1);
}

static void test_slow(void) {
        _cleanup_free_ union qos_storage_element *a = map_new(START), *b = map_new(START);
        const StorageSource list[] = { { .map = a, .since = START }, { .map = b, .since = START } };
        const StorageSources sources = { .sources = list, .n = 2, .since = START };
        SlowOperation slow[QOS_STORAGE_SLOW_CALLS];
        struct qos_storage_slow *s = a[QOS_STORAGE_SLOW].slow;

        check(slow_operations_read(&sources, slow) == 0);
        for (unsigned i = 0; i < QOS_STORAGE_SLOW_CALLS; i++) {
                s[i] = (struct qos_storage_slow) { .at = START + i, .nsec = i, .call = QOS_STORAGE_READ,
                                                   .result = 10 };
                b[QOS_STORAGE_SLOW].slow[i] = s[i];
                b[QOS_STORAGE_SLOW].slow[i].at += QOS_STORAGE_SLOW_CALLS / 2;
        }
        /* Of both maps the latest ones */
        check(slow_operations_read(&sources, slow) == QOS_STORAGE_SLOW_CALLS);
        check(slow[0].at == START + QOS_STORAGE_SLOW_CALLS * 3 / 2 - 1);
        for (unsigned i = 1; i < QOS_STORAGE_SLOW_CALLS; i++)
                check(slow[i].at <= slow[i - 1].at);

        /* From before, and being replaced */
        memset(a, 0, sizeof(*a) * QOS_STORAGE_ELEMENTS(CPUS));
        memset(b, 0, sizeof(*b) * QOS_STORAGE_ELEMENTS(CPUS));
        s[0] = (struct qos_storage_slow) { .at = START - 1, .call = QOS_STORAGE_SYNC };
        s[1] = (struct qos_storage_slow) { .at = 0, .call = QOS_STORAGE_SYNC };
        s[2] = (struct qos_storage_slow) { .at = START, .call = QOS_STORAGE_CALLS };
        s[3] = (struct qos_storage_slow) { .at = START, .call = QOS_STORAGE_WRITE,
                                           .result = (__u64) -ENOSPC, .divided = 1 };
        s[3].shares[QOS_STORAGE_DISK] = UINT16_MAX;
        memset(s[3].name, 'x', sizeof(s[3].name));
        check(slow_operations_read(&sources, slow) == 1);
        check(slow[0].error == ENOSPC && slow[0].bytes == ABSENT);
        check(is_close(slow[0].shares[QOS_STATE_DISK], 1, 0) &&
              is_close(slow[0].shares[QOS_STATE_RUNNING], 0, 0));
        check(strlen(slow[0].name) == sizeof(s[3].name) - 1);

        /* The file system of a call, and another one that has its device number since */
        s[3].mount = 77;
        s[3].device = 5;
        a[QOS_STORAGE_HEADER].header.mounts[1].used = 1;
        *(uint64_t*) a[QOS_STORAGE_HEADER].header.mounts[1].key.address = 77;
        *(uint32_t*) (a[QOS_STORAGE_HEADER].header.mounts[1].key.address + 8) = 5;
        check(slow_operations_read(&sources, slow) == 1 && slow[0].device == 5 && !slow[0].reused);
        *(uint64_t*) a[QOS_STORAGE_HEADER].header.mounts[1].key.address = 78;
        check(slow_operations_read(&sources, slow) == 1 && slow[0].device == 5 && slow[0].reused);
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

/* Counts of a map from before it became a source, and of one that is no longer a source. */
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

/* Steps have the calls that ended in them, whether others followed or not, and nothing of before the unit
 * was observed. */
static void test_steps(void) {
        const uint64_t step = WINDOW_STEP_NSEC, first = START / step;
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        const StorageSource source = { .map = map, .since = START };
        StorageSources sources = { .sources = &source, .n = 1, .since = START };
        StorageCounts before = {};
        StorageReading r;

        for (unsigned i = 0; i < 3; i++)
                storage_record(map, i, START + i, QOS_STORAGE_READ, 100, 1000);
        storage_counts_add(&before, &source, 1);
        storage_record(map, 0, START + step / 2, QOS_STORAGE_READ, 50, 2000);
        storage_record(map, 1, START + step / 2, QOS_STORAGE_SYNC, -EIO, 3000);
        /* The map counts modulo 2^32 */
        map[QOS_STORAGE_SHARD(2)].counts.counts[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE - QOS_STORAGE_WIDE] =
                UINT32_MAX;
        before.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] += UINT32_MAX;
        storage_record(map, 2, START + step + 1, QOS_STORAGE_WRITE, 7, 4000);
        storage_record(map, 2, START + 2 * step - 1, QOS_STORAGE_WRITE, 7, 4000);
        storage_record(map, 2, START + 2 * step, QOS_STORAGE_WRITE, 7, 4000);

        check(storage_read_step(&sources, first, &r) == 0 && r.covered == step);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_READ] == 4);
        sources.before = &before;
        check(storage_read_step(&sources, first, &r) == 0);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_READ] == 1 &&
              r.counts.sums[QOS_STORAGE_BYTES_READ] == 50 &&
              r.counts.sums[QOS_STORAGE_NSEC + QOS_STORAGE_READ] == 2000 &&
              r.counts.sums[QOS_STORAGE_ERRORS + QOS_STORAGE_SYNC] == 1);
        check(storage_read_step(&sources, first + 1, &r) == 0);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == 2 &&
              r.counts.sums[QOS_STORAGE_BYTES_WRITTEN] == 14 &&
              r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_READ] == 0);
        /* Without a later call, too */
        check(storage_read_step(&sources, first + 2, &r) == 0);
        check(r.counts.sums[QOS_STORAGE_COUNT + QOS_STORAGE_WRITE] == 1);
        check(storage_read_step(&sources, first - 1, &r) == -ENODATA);
}

/* Calls in flight count if the last session has written them. */
static void test_in_flight(void) {
        _cleanup_free_ union qos_storage_element *a = map_new(START), *b = map_new(START);
        const StorageSource list[] = { { .map = a, .since = START }, { .map = b, .since = START } };
        StorageSources sources = { .sources = list, .n = 2, .since = START, .session = 7 };
        StorageReading r, total;

        a->header.in_flight = (struct qos_storage_in_flight) { .session = 7, .count = 2, .oldest_at = 50 };
        b->header.in_flight = (struct qos_storage_in_flight) { .session = 7, .count = 1, .oldest_at = 40 };
        check(storage_read(&sources, START + 1, NSEC_PER_SEC, &r, &total) == 0);
        check(r.in_flight == 3 && r.oldest_at == 40 && total.in_flight == 3);
        b->header.in_flight.session = 6;
        check(storage_read(&sources, START + 1, NSEC_PER_SEC, &r, NULL) == 0);
        check(r.in_flight == 2 && r.oldest_at == 50);
        sources.session = 0;
        check(storage_read(&sources, START + 1, NSEC_PER_SEC, &r, NULL) == 0);
        check(r.in_flight == 0);
}

/* ---- rows by file system ------------------------------------------------------------------------------ */

typedef struct FileSystem {
        uint32_t device;
        uint64_t super_block;
        __u64 uuid[2];
        const char *type;
} FileSystem;

/* As mount_get() of storage-call.bpf.h. */
static void record_on(union qos_storage_element *map, const FileSystem *fs, uint64_t now,
                      enum qos_storage_call call, int64_t result, uint64_t nsec) {
        struct qos_address key __attribute__((aligned(8)));
        unsigned row = 0;

        if (fs) {
                mount_set_key(&key, fs->device, fs->super_block, fs->uuid);
                row = (unsigned) mount_find(&map->header, &key);
                if (row == 0)
                        row = mount_enter(map, &map->header, &key, (uint64_t) fs->type, nsec, now);
        }
        storage_record(map, now / 1000 % CPUS, now, call, result, nsec);
        mount_record(map, row, now, call, result, nsec);
}

static MountsReading mounts_at(const union qos_storage_element *map, uint64_t now, uint64_t window) {
        const StorageSource source = { .map = map, .since = START };
        const StorageSources sources = { .sources = &source, .n = 1, .since = START };
        struct qos_mount_counts sum = {};
        StorageReading unit;
        MountsReading m;

        mounts_read(&sources, now, window, &m);
        check(m.measured);
        check(storage_read(&sources, now, window, &unit, NULL) == 0);
        mounts_settle(&m, &unit);
        for (size_t k = 0; k < m.n; k++)
                for (size_t i = 0; i < QOS_MOUNT_WORDS; i++)
                        ((uint64_t*) &sum)[i] += ((const uint64_t*) &m.rows[k].value.counts)[i];
        for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++) {
                unsigned call = i == QOS_MOUNT_CHANGE ? QOS_STORAGE_CHANGE : i;

                check(sum.count[i] == unit.counts.sums[QOS_STORAGE_COUNT + call]);
                check(sum.errors[i] == unit.counts.sums[QOS_STORAGE_ERRORS + call]);
                check(i > QOS_STORAGE_WRITE || sum.bytes[i] == unit.counts.sums[QOS_STORAGE_BYTES_READ + i]);
                check(i >= QOS_MOUNT_TIMED || sum.nsec[i] == unit.counts.sums[QOS_STORAGE_NSEC + i]);
        }
        return m;
}

static const MountReading* mount_on(const MountsReading *m, uint32_t device) {
        for (size_t k = 1; k < m->n; k++)
                if (mount_reading_get_device(m->rows + k) == device)
                        return m->rows + k;
        return NULL;
}

/* Rows over windows, compared with the calls that ended in them. The rows add up to the unit. */
static void test_mounts(void) {
        static const uint64_t windows[] = { WINDOW_TOTAL, 2 * NSEC_PER_SEC, 10 * NSEC_PER_SEC };
        static const FileSystem list[] = {
                { 8 << 20 | 1, 0xffff888100000000, {},       "ext4"  },
                { 26,          0xffff888100004000, { 1, 2 }, "tmpfs" },
                { 27,          0xffff888100004000, { 3, 2 }, "tmpfs" },
                { 0x10300001,  0xffff888100008000, {},       "xfs"   },
        };
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        struct {
                uint64_t at, nsec;
                unsigned fs;
                enum qos_storage_call call;
                int64_t result;
        } calls[2000];
        uint64_t now = START, random = 7;

        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                now += i % 500 == 499 ? 25 * NSEC_PER_SEC : (random >> 40) * 4;
                calls[i].at = now;
                calls[i].nsec = random >> 37;
                calls[i].fs = (random >> 24) % (ELEMENTSOF(list) + 1);
                calls[i].call = (random >> 20) % QOS_STORAGE_CALLS;
                calls[i].result = (random >> 16) % 8 == 0 ? -(int64_t) (random % 4095) - 1 :
                                  (int64_t) (random % 5000);
                record_on(map, calls[i].fs < ELEMENTSOF(list) ? list + calls[i].fs : NULL, now,
                          calls[i].call, calls[i].result, calls[i].nsec);

                for (size_t w = 0; w < ELEMENTSOF(windows) && i % 100 == 99; w++) {
                        uint64_t since = now - read_at(map, now, windows[w], NULL).covered;
                        MountsReading m = mounts_at(map, now, windows[w]);

                        for (unsigned fs = 0; fs < ELEMENTSOF(list); fs++) {
                                const MountReading *row = mount_on(&m, list[fs].device);
                                uint64_t count[QOS_MOUNT_CALLS] = {}, longest = 0, reads = 0;
                                Distribution d;

                                for (size_t k = 0; k <= i; k++) {
                                        if (calls[k].fs != fs)
                                                continue;
                                        reads += calls[k].call == QOS_STORAGE_READ &&
                                                 calls[k].at + 20 * NSEC_PER_SEC >= now;
                                        if (calls[k].at < since)
                                                continue;
                                        if (calls[k].call < QOS_STORAGE_TIMED)
                                                count[calls[k].call]++;
                                        else if (calls[k].call == QOS_STORAGE_CHANGE)
                                                count[QOS_MOUNT_CHANGE]++;
                                        if (calls[k].call == QOS_STORAGE_READ)
                                                longest = MAX(longest, calls[k].nsec);
                                }
                                if (!row) /* quiet: no call in the window */
                                        row = &(MountReading) {};
                                check(memcmp(row->value.counts.count, count, sizeof(count)) == 0);
                                check(row->type[0] == 0 || streq(row->type, list[fs].type));
                                mount_get_latency(&row->value, QOS_STORAGE_READ, 5, &d);
                                check(d.count == count[QOS_STORAGE_READ]);
                                check(d.count == 0 || d.max >= longest);
                                reads = windows[w] == WINDOW_TOTAL ? count[QOS_STORAGE_READ] : reads;
                                for (unsigned b = 0; b < QOS_MOUNT_BINS; b++)
                                        reads -= row->value.bins[b];
                                check((int64_t) reads >= 0); /* no more than in the 20 s before */
                                check(windows[w] != WINDOW_TOTAL || reads == 0);
                        }
                }
        }
}

/* A device number is reused by another file system: the calls of the first one are in no row. */
static void test_mount_reused(void) {
        static const FileSystem first = { 50, 0xffff888100000000, { 1, 1 }, "tmpfs" },
                                second = { 50, 0xffff888100000000, { 2, 2 }, "tmpfs" },
                                other = { 51, 0xffff888100000000, { 1, 1 }, "tmpfs" };
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        const MountReading *row;
        MountsReading m;

        for (unsigned i = 0; i < 100; i++)
                record_on(map, &first, START + i * NSEC_PER_SEC / 10, QOS_STORAGE_WRITE, 10, 1000);
        record_on(map, &other, START + 10 * NSEC_PER_SEC, QOS_STORAGE_WRITE, 10, 1000);
        record_on(map, &second, START + 10 * NSEC_PER_SEC, QOS_STORAGE_WRITE, 7, 1000);
        for (size_t w = 0; w < 2; w++) {
                m = mounts_at(map, START + 10 * NSEC_PER_SEC, w == 0 ? WINDOW_TOTAL : 5 * NSEC_PER_SEC);
                check(m.n == 3);
                row = mount_on(&m, 50);
                check(row && row->value.counts.count[QOS_STORAGE_WRITE] == 1 &&
                      row->value.counts.bytes[QOS_STORAGE_WRITE] == 7);
                check(m.rows[0].value.counts.count[QOS_STORAGE_WRITE] == (w == 0 ? 100 : 50));
        }
        check(m.rows[0].value.bins[QOS_MOUNT_BINS + 5] == 100); /* 1 us, of the last 20 s */
}

static bool has_device(uint32_t device, void *userdata) {
        return device == *(const uint32_t*) userdata;
}

/* Steps of rows, read right after their end, whether other calls followed or not; and the identity, which a
 * file system with the same device number does not have. */
static void test_mount_steps(void) {
        static const FileSystem first = { 50, 0xffff888100000000, { 1, 1 }, "tmpfs" },
                                second = { 50, 0xffff888100000000, { 2, 2 }, "tmpfs" };
        const uint64_t step = WINDOW_STEP_NSEC, n = START / step;
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        const StorageSource source = { .map = map, .since = START };
        const StorageSources sources = { .sources = &source, .n = 1, .since = START };
        uint64_t identity, next;
        uint32_t device = 50;
        MountsReading m;
        Distribution d;

        for (unsigned i = 0; i < 100; i++)
                record_on(map, &first, START + i * NSEC_PER_SEC / 5, QOS_STORAGE_WRITE, 10,
                          i < 50 ? 5000000 : 3000);
        record_on(map, &first, START + 20 * NSEC_PER_SEC - 1, QOS_STORAGE_READ, -EIO, 1000);

        /* That it is over is not known to the programs */
        check(mounts_read_step(&sources, n + 1, &m) == 0 && m.n == 2);
        check(m.rows[1].value.counts.count[QOS_STORAGE_WRITE] == 50 &&
              m.rows[1].value.counts.bytes[QOS_STORAGE_WRITE] == 500 &&
              m.rows[1].value.counts.errors[QOS_STORAGE_READ] == 1);
        mount_get_latency(&m.rows[1].value, QOS_STORAGE_WRITE, 5, &d);
        check(d.count == 50 && d.mean == 3000 && d.max == 3000 && d.p50 <= 3600);

        record_on(map, &first, START + 21 * NSEC_PER_SEC, QOS_STORAGE_WRITE, 10, 7000000);
        check(mounts_read_step(&sources, n + 1, &m) == 0 && m.n == 2);
        check(m.rows[1].value.counts.count[QOS_STORAGE_WRITE] == 50 &&
              m.rows[1].value.maxima[QOS_STORAGE_WRITE] == 3000 &&
              m.rows[1].value.bins[QOS_MOUNT_BINS + mount_bin(histogram_coarse_bin(
                                              histogram_fine_bin(3000)))] == 50);
        check(mounts_read_step(&sources, n + 2, &m) == 0);
        check(m.rows[1].value.counts.count[QOS_STORAGE_WRITE] == 1);
        check(mounts_read_step(&sources, n + 3, &m) == 0 && m.n == 1);
        for (unsigned i = 0; i < 20; i++)
                record_on(map, &first, START + (40 + i) * NSEC_PER_SEC, QOS_STORAGE_WRITE, 10, 1000);
        check(mounts_read_step(&sources, n + 1, &m) == -ENODATA);

        check(mounts_find_identity(&sources, has_device, &device, &identity) == 0);
        record_on(map, &second, START + 60 * NSEC_PER_SEC, QOS_STORAGE_WRITE, 10, 1000);
        check(mounts_find_identity(&sources, has_device, &device, &next) == 0 && next != identity);
        device = 51;
        check(mounts_find_identity(&sources, has_device, &device, &next) == -ENOENT);
}

/* With more file systems than rows, those with most time have a row, also if that changes later. */
static void test_mounts_many(void) {
        _cleanup_free_ union qos_storage_element *map = map_new(START);
        FileSystem list[40];
        MountsReading m;
        uint64_t now = START;

        for (unsigned i = 0; i < ELEMENTSOF(list); i++)
                list[i] = (FileSystem) { 100 + i, UINT64_C(0xffff888100000000) + i * 4096, {}, "ext4" };
        for (unsigned round = 0; round < 1000; round++)
                for (unsigned i = 0; i < ELEMENTSOF(list); i++, now += 100 * NSEC_PER_USEC)
                        record_on(map, list + i, now, QOS_STORAGE_READ, 100, i >= 30 ? 100000 : 100);
        m = mounts_at(map, now, WINDOW_TOTAL);
        check(m.n == QOS_STORAGE_ROWS);
        for (unsigned i = 30; i < ELEMENTSOF(list); i++)
                check(mount_on(&m, list[i].device));
        check(m.rows[0].value.counts.count[QOS_STORAGE_READ] > 20000);
        /* In descending order */
        for (size_t k = 2; k < m.n; k++)
                check(m.rows[k - 1].value.counts.nsec[QOS_STORAGE_READ] >=
                      m.rows[k].value.counts.nsec[QOS_STORAGE_READ]);
}

/* Maps of nested units: rows of the same file system are one. */
static void test_mounts_nested(void) {
        static const FileSystem fs = { 8 << 20 | 1, 0xffff888100000000, {}, "ext4" };
        _cleanup_free_ union qos_storage_element *a = map_new(START), *b = map_new(START);
        const StorageSource list[] = { { .map = a, .since = START }, { .map = b, .since = START } };
        StorageSources sources = { .sources = list, .n = 2, .since = START };
        StorageCounts before = {};
        MountsReading m;

        record_on(a, &fs, START, QOS_STORAGE_READ, 1, 1000);
        record_on(b, &fs, START, QOS_STORAGE_READ, 1, 1000);
        mounts_read(&sources, START + 1, WINDOW_TOTAL, &m);
        check(m.measured && m.n == 2 && m.rows[1].value.counts.count[QOS_STORAGE_READ] == 2);
        /* Windows of level 0 have no rows, nor have windows that began before the unit was observed */
        mounts_read(&sources, START + 1, NSEC_PER_SEC, &m);
        check(!m.measured);
        sources.before = &before;
        mounts_read(&sources, START + 1, WINDOW_TOTAL, &m);
        check(m.measured);
        before.sums[QOS_STORAGE_COUNT + QOS_STORAGE_READ] = 1;
        mounts_read(&sources, START + 1, WINDOW_TOTAL, &m);
        check(!m.measured);
}

int main(void) {
        test_windows();
        test_results();
        test_states();
        test_count_wraparound();
        test_slow();
        test_wraparound();
        test_before();
        test_steps();
        test_in_flight();
        test_mounts();
        test_mount_reused();
        test_mount_steps();
        test_mounts_many();
        test_mounts_nested();
        return 0;
}
