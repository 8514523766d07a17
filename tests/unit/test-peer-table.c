/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rows of endpoints and peers: recording (bpf/core/peer-table.h) and reading, compared with plain
 * arithmetic. */

#include <arpa/inet.h>
#include <pthread.h>

#include "check.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() ((uint32_t) gettid())
#define window_now() UINT64_C(0)
#define WINDOW_WAITS UINT32_MAX
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })
#include "util-window.h"
#include "window-record.h"

#define STEP (QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) * QOS_EPOCH_NSEC)

static struct qos_unit_map* unit_new_at(uint64_t now) {
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);

        check(u);
        u->epoch = now / QOS_EPOCH_NSEC;
        u->epoch_end = (u->epoch + 1) * QOS_EPOCH_NSEC;
        return u;
}

static struct qos_address address_of(uint8_t last, uint16_t port) {
        return (struct qos_address) { .address = { 127, 0, 0, last }, .port = port, .family = AF_INET };
}

static void record(struct qos_unit_map *u, unsigned row, uint64_t now, uint64_t nsec) {
        window_advance(u, now);
        if (row > 0) {
                entry_count(entry_get(u, row), QOS_ENTRY_COUNT, 1);
                row_add(entry_get(u, row), now / QOS_EPOCH_NSEC, nsec, 1);
        }
}

static void record_in_unit(struct qos_unit_map *u, unsigned row, uint64_t now, uint64_t nsec) {
        record(u, row, now, nsec);
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_add(u, QOS_FIRST_BYTE, nsec, 1);
}

static uint64_t samples(const WindowRow *r) {
        uint64_t n = 0;

        for (unsigned i = 0; i < HISTOGRAM_COARSE_BINS; i++)
                n += r->cells[i];
        return n;
}

/* Owners of rows. */
static void test_find(void) {
        struct qos_unit_map *u = unit_new_at(NSEC_PER_SEC);
        struct qos_address a;

        /* The first endpoint has none, further ones have one each, then all share one */
        for (unsigned round = 0; round < 2; round++)
                for (uint8_t i = 0; i < 20; i++) {
                        a = address_of(1, 1000 + i);
                        check(entry_find(u, &a, QOS_ENTRY_ENDPOINT) ==
                              (i == 0 ? 0 : i <= QOS_ENDPOINT_ENTRIES_MAX ? QOS_ENTRY_FIRST + i - 1 :
                               QOS_ENTRY_ENDPOINTS_OTHERS));
                }
        check(u->names[0].kind == QOS_ENTRY_ENDPOINT && u->names[0].address.port == 1000);

        /* None is left for an endpoint that is not part of the unit's metrics: it has none */
        a = address_of(1, 2000);
        check(entry_find(u, &a, QOS_ENTRY_EXCLUDED) == 0);

        /* Peers have the remaining ones */
        for (unsigned round = 0; round < 2; round++)
                for (uint8_t i = 0; i < 20; i++) {
                        int row = QOS_ENTRY_FIRST + QOS_ENDPOINT_ENTRIES_MAX + i;

                        a = address_of(i, 80);
                        check(entry_find(u, &a, QOS_ENTRY_PEER) == (row <= QOS_ENTRIES
                                ? row : QOS_ENTRY_PEERS_OTHERS));
                }
        free(u);

        /* Names that differ in any field are different, and so are an excluded endpoint and the same one
         * included */
        u = unit_new_at(NSEC_PER_SEC);
        a = address_of(1, 80);
        check(entry_find(u, &a, QOS_ENTRY_EXCLUDED) == QOS_ENTRY_FIRST);
        check(entry_find(u, &a, QOS_ENTRY_ENDPOINT) == 0);
        check(entry_find(u, &a, QOS_ENTRY_EXCLUDED) == QOS_ENTRY_FIRST);
        check(entry_find(u, &a, QOS_ENTRY_PEER) == QOS_ENTRY_FIRST + 1);
        a.family = AF_INET6;
        check(entry_find(u, &a, QOS_ENTRY_ENDPOINT) == QOS_ENTRY_FIRST + 2);
        a.address[15] = 1;
        check(entry_find(u, &a, QOS_ENTRY_ENDPOINT) == QOS_ENTRY_FIRST + 3);
        a = address_of(2, 80);
        check(entry_find(u, &a, QOS_ENTRY_ENDPOINT) == QOS_ENTRY_FIRST + 4);
        free(u);
}

/* A connection older than the attach belongs to the listener that TCP would have chosen. */
static void test_find_listener(void) {
        struct qos_unit_map *u = unit_new_at(NSEC_PER_SEC);
        struct qos_address any = { .port = 80, .family = AF_INET },
                any6 = { .port = 80, .family = AF_INET6 };
        struct qos_address special = address_of(1, 80), a;

        a = special;
        check(entry_find_listener(u, &a) == 0 && address_equal(&a, &special));

        (void) entry_find(u, &any6, QOS_ENTRY_ENDPOINT);
        a = special;
        check(entry_find_listener(u, &a) == 0 && address_equal(&a, &special));
        a.family = AF_INET6; /* IPv4 through a socket of IPv6 has the family of the socket */
        check(entry_find_listener(u, &a) == 1 && address_equal(&a, &any6));

        (void) entry_find(u, &any, QOS_ENTRY_EXCLUDED);
        a = special;
        check(entry_find_listener(u, &a) == 1 && address_equal(&a, &any));
        a = address_of(1, 81);
        check(entry_find_listener(u, &a) == 0);

        (void) entry_find(u, &special, QOS_ENTRY_ENDPOINT);
        a = special;
        check(entry_find_listener(u, &a) == 1 && address_equal(&a, &special));
        a = address_of(2, 80);
        check(entry_find_listener(u, &a) == 1 && address_equal(&a, &any));

        /* A peer is not a listener */
        a = address_of(9, 9);
        (void) entry_find(u, &a, QOS_ENTRY_PEER);
        check(entry_find_listener(u, &a) == 0);
        free(u);
}

/* An endpoint with an unknown listener gets no entry. It is among the others if no entry is left for another
 * endpoint: all have one, or peers have taken them. */
static void test_find_others(void) {
        for (unsigned peers = 0; peers <= 1; peers++) {
                unsigned n = peers ? QOS_ENTRIES - QOS_ENTRY_FIRST + 1 : QOS_ENDPOINT_ENTRIES_MAX;
                struct qos_address a, unknown = address_of(1, 9), first = address_of(2, 80);
                struct qos_unit_map *u = unit_new_at(NSEC_PER_SEC);

                for (unsigned i = 0; i < n; i++) {
                        if (!peers)
                                (void) entry_find(u, &first, QOS_ENTRY_ENDPOINT);
                        check(entry_find(u, &unknown, ENTRY_ENDPOINT_WITHOUT_LISTENER) == 0);
                        a = address_of(2, 1000 + i);
                        (void) entry_find(u, &a, peers ? QOS_ENTRY_PEER : QOS_ENTRY_ENDPOINT);
                }

                /* The first endpoint needs no entry */
                if (peers) {
                        check(entry_find(u, &unknown, ENTRY_ENDPOINT_WITHOUT_LISTENER) == 0);
                        (void) entry_find(u, &first, QOS_ENTRY_ENDPOINT);
                }
                check(entry_find(u, &unknown, ENTRY_ENDPOINT_WITHOUT_LISTENER) ==
                      QOS_ENTRY_ENDPOINTS_OTHERS);
                check(address_equal(&u->names[0].address, &first));
                free(u);
        }
}

/* Three rows that begin at different times, over two minutes with pauses: all windows of all rows at each
 * moment, and the first endpoint as the remainder. */
static void test_windows(void) {
        enum { N = 4000, ROWS = 4 };
        static struct { uint64_t at, nsec; unsigned row; } recorded[N];
        uint64_t attached = 1000 * NSEC_PER_SEC + 123 * NSEC_PER_MSEC, now = attached;
        static const uint64_t windows[] = { 2, 3, 5, 6, 7, 10, 0 };
        struct qos_unit_map *u = unit_new_at(attached);
        unsigned seed = 3;
        size_t n = 0;

        while (n < N) {
                unsigned r = rand_r(&seed) % 1000;

                now += r == 0 ? 25 * NSEC_PER_SEC : r < 10 ? 1500 * NSEC_PER_MSEC :
                       rand_r(&seed) % (60 * NSEC_PER_MSEC);
                /* Row 0 from the beginning, the others later */
                unsigned k = rand_r(&seed) % MIN((size_t) ROWS, n / 500 + 1);
                struct qos_address a = address_of(1, 80 + k);
                int row = entry_find(u, &a, QOS_ENTRY_ENDPOINT);

                check((row == 0) == (k == 0));
                recorded[n].at = now;
                recorded[n].row = k;
                recorded[n].nsec = 300 + rand_r(&seed) % (50 * NSEC_PER_MSEC);
                record_in_unit(u, row, now, recorded[n].nsec);
                n++;

                if (rand_r(&seed) % 8 != 0)
                        continue;
                for (size_t i = 0; i < ELEMENTSOF(windows); i++) {
                        uint64_t at = now + rand_r(&seed) % (3 * NSEC_PER_SEC),
                                window = windows[i] * NSEC_PER_SEC;
                        WindowRow first, value;
                        WindowReading reading;

                        check(window_read(sources_of(u, attached), at, window, &reading) >= 0);
                        window_get_row(&reading, &first);
                        for (unsigned j = ROWS; j-- > 0;) {
                                uint64_t count = 0, sum = 0, max = 0;
                                Distribution d;

                                for (size_t b = n; b > 0 && recorded[b - 1].at >= reading.boundary; b--)
                                        if (recorded[b - 1].row == j) {
                                                count++;
                                                sum += recorded[b - 1].nsec;
                                                max = MAX(max, recorded[b - 1].nsec);
                                        }

                                a = address_of(1, 80 + j);
                                row = -1;
                                for (int name = 0; name <= QOS_ENTRIES; name++)
                                        if (u->names[name].kind == QOS_ENTRY_ENDPOINT &&
                                            address_equal(&u->names[name].address, &a))
                                                row = name;
                                if (row < 0)
                                        continue;
                                if (row > 0) {
                                        check(window_read_row(u, row, at, attached, window, &value) >= 0);
                                        check(value.maximum == max);
                                        window_row_subtract(&first, &value);
                                } else
                                        value = first;
                                check(value.cells[QOS_ENTRY_COUNT] == count);
                                check(samples(&value) == count);
                                check(value.sums[QOS_ENTRY_SUM_LATENCY] == sum);
                                window_row_get_distribution(&value, 5, &d);
                                check(d.count == count && (count == 0 || row == 0 || d.max == max));
                        }
                }
        }
        free(u);
}

/* A burst, then silence: windows are empty although no sub-window was begun. */
static void test_silence(void) {
        uint64_t attached = 100 * NSEC_PER_SEC, now = attached + 50 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(attached);
        struct qos_address a = address_of(1, 80);
        int row = entry_find(u, &a, QOS_ENTRY_PEER);
        WindowRow r;

        for (unsigned i = 0; i < 100; i++)
                record(u, row, now, 1000);
        check(window_read_row(u, row, now, attached, 2 * NSEC_PER_SEC, &r) >= 0 && samples(&r) == 100);
        now += 3600 * NSEC_PER_SEC;
        for (uint64_t w = 2 * NSEC_PER_SEC; w <= 10 * NSEC_PER_SEC; w += NSEC_PER_SEC)
                check(window_read_row(u, row, now, attached, w, &r) >= 0 && samples(&r) == 0 &&
                      r.cells[QOS_ENTRY_COUNT] == 0);
        check(window_read_row(u, row, now, attached, WINDOW_TOTAL, &r) >= 0 && samples(&r) == 100 &&
              r.maximum == 1000);

        /* An event of another row */
        record(u, 0, now, 5000);
        check(window_read_row(u, row, now, attached, 10 * NSEC_PER_SEC, &r) >= 0 && samples(&r) == 0);
        record(u, row, now, 5000);
        check(window_read_row(u, row, now, attached, 10 * NSEC_PER_SEC, &r) >= 0 && samples(&r) == 1 &&
              r.maximum == 5000);
        free(u);
}

/* A sample that grows over many sub-windows: once in the total, at most once in a window, and never below
 * zero. */
static void test_move(void) {
        uint64_t attached = 100 * NSEC_PER_SEC, start = 200 * NSEC_PER_SEC, last = start;
        struct qos_unit_map *u = unit_new_at(attached);
        struct qos_address a = address_of(1, 80);
        int row = entry_find(u, &a, QOS_ENTRY_PEER);
        WindowRow r;

        for (unsigned i = 0; i < 50; i++)
                record(u, row, start, 3 * NSEC_PER_MSEC);
        record(u, row, start, 0);
        for (uint64_t age = 0; age < 40 * NSEC_PER_SEC; age += age < 100 * NSEC_PER_MSEC ? NSEC_PER_MSEC :
             370 * NSEC_PER_MSEC) {
                uint64_t now = start + age;

                window_advance(u, now);
                entry_move_sample(entry_get(u, row), last, last - start, now, age);
                last = now;
                check(window_read_row(u, row, now, attached, WINDOW_TOTAL, &r) >= 0);
                check(samples(&r) == 51 && r.cells[QOS_ENTRY_COUNT] == 51);
                check(r.sums[QOS_ENTRY_SUM_LATENCY] == 50 * 3 * NSEC_PER_MSEC + age);
                check(r.maximum == MAX(age, 3 * NSEC_PER_MSEC));
                if (age < 12 * NSEC_PER_SEC)
                        continue;
                for (uint64_t w = 2 * NSEC_PER_SEC; w <= 10 * NSEC_PER_SEC; w += NSEC_PER_SEC) {
                        check(window_read_row(u, row, now, attached, w, &r) >= 0);
                        check(samples(&r) == 1 && r.cells[QOS_ENTRY_COUNT] == 0);
                        check(r.sums[QOS_ENTRY_SUM_LATENCY] == age && r.maximum == age);
                }
        }
        free(u);
}

/* Counters wrap at 2^32. */
static void test_carry(void) {
        uint64_t attached = 100 * NSEC_PER_SEC, now = 200 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(attached);
        struct qos_address a = address_of(1, 80);
        int row = entry_find(u, &a, QOS_ENTRY_PEER);
        WindowRow r;

        window_advance(u, now);
        entry_count(entry_get(u, row), QOS_ENTRY_ERRORS_RESET, UINT32_MAX);
        now += 5 * NSEC_PER_SEC;
        window_advance(u, now);
        for (unsigned i = 0; i < 4; i++)
                entry_count(entry_get(u, row), QOS_ENTRY_ERRORS_RESET, 1);
        check(window_read_row(u, row, now, attached, WINDOW_TOTAL, &r) >= 0);
        check(r.cells[QOS_ENTRY_ERRORS_RESET] == (uint64_t) UINT32_MAX + 4);
        check(window_read_row(u, row, now, attached, 2 * NSEC_PER_SEC, &r) >= 0);
        check(r.cells[QOS_ENTRY_ERRORS_RESET] == 4);
        entry_uncount(entry_get(u, row), QOS_ENTRY_ERRORS_RESET, 4);
        check(window_read_row(u, row, now, attached, WINDOW_TOTAL, &r) >= 0);
        check(r.cells[QOS_ENTRY_ERRORS_RESET] == UINT32_MAX);
        free(u);
}

static void test_arithmetic(void) {
        WindowRow a = { .cells = { [7] = 5, [QOS_ENTRY_COUNT] = 5 }, .sums = { 500, 50, 5 }, .in_flight = 2,
                        .maximum = 100 };
        WindowRow b = { .cells = { [7] = 2, [9] = 1, [QOS_ENTRY_COUNT] = 3 }, .sums = { 300, 30, 3 },
                        .in_flight = 3, .maximum = 900 };
        WindowRow none = {}, sum = a;
        Distribution d;

        window_row_add(&sum, &b);
        check(sum.cells[7] == 7 && sum.cells[9] == 1 && sum.cells[QOS_ENTRY_COUNT] == 8 &&
              sum.sums[0] == 800 && sum.sums[2] == 8);
        check(sum.in_flight == 5 && sum.maximum == 900);

        /* If nothing is subtracted, the maximum is still known */
        window_row_subtract(&sum, &none);
        check(sum.maximum == 900);
        window_row_subtract(&sum, &b);
        check(sum.cells[7] == 5 && sum.cells[9] == 0 && sum.cells[QOS_ENTRY_COUNT] == 5 &&
              sum.sums[0] == 500 && sum.in_flight == 2);
        check(sum.maximum == ABSENT);
        window_row_get_distribution(&sum, 1, &d);
        check(d.count == 5 && d.mean == 100 && d.max == ABSENT && d.p50 != ABSENT);
        window_row_add(&sum, &a);
        check(sum.maximum == ABSENT);

        /* Read a moment later, it may have more: not below zero */
        window_row_subtract(&a, &b);
        window_row_subtract(&a, &b);
        window_row_subtract(&a, &b);
        check(samples(&a) == 0 && a.cells[QOS_ENTRY_COUNT] == 0 && a.in_flight == 0 && a.sums[0] == 0);
}

/* Branch-free selections. */
static void test_choices(void) {
        static const uint64_t values[] = { 0, 1, 2, UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 63) - 1,
                                           UINT64_C(1) << 63, UINT64_MAX };

        for (size_t i = 0; i < ELEMENTSOF(values); i++) {
                check(histogram_if_zero(values[i]) == (values[i] == 0 ? UINT64_MAX : 0));
                for (size_t k = 0; k < ELEMENTSOF(values); k++) {
                        check(histogram_choose(UINT64_MAX, values[i], values[k]) == values[i]);
                        check(histogram_choose(0, values[i], values[k]) == values[k]);
                        if (MAX(values[i], values[k]) < UINT64_C(1) << 63)
                                check(histogram_if_less(values[i], values[k]) == (values[i] < values[k] ?
                                                                                  UINT64_MAX : 0));
                }
        }
}

/* The peers with most time have rows: a peer without one gets that of the peer with the least time when it
 * exceeds that, whose metrics are added to the rest. */
static void test_challenge(void) {
        struct qos_unit_map *u = unit_new_at(NSEC_PER_SEC);
        const struct qos_address small = address_of(200, 1), large = address_of(201, 1);
        uint64_t now = NSEC_PER_SEC;
        uint32_t generation;
        struct qos_address a;
        int least, row;

        for (unsigned i = 0; i <= QOS_ENTRIES - QOS_ENTRY_FIRST; i++) {
                a = address_of(i, 1);
                row = entry_find(u, &a, QOS_ENTRY_PEER);
                check(row == (int) (QOS_ENTRY_FIRST + i));
                /* The fourth has the least time */
                record(u, row, now, (i == 3 ? 10 : 100 + i) * NSEC_PER_MSEC);
        }
        a = address_of(3, 1);
        least = entry_find(u, &a, QOS_ENTRY_PEER);
        generation = u->names[least].generation;
        check(entry_find(u, &small, QOS_ENTRY_PEER) == QOS_ENTRY_PEERS_OTHERS);

        /* Not before it exceeds the least, and not immediately after another one */
        check(peer_challenge(u, &small, 4 * NSEC_PER_MSEC, now) == 0);
        check(peer_challenge(u, &small, 6 * NSEC_PER_MSEC, now) == 0);
        check(peer_challenge(u, &small, 1, now) == least);
        check(u->names[least].generation == generation + 1);
        check(entry_find(u, &small, QOS_ENTRY_PEER) == least);
        check(entry_find(u, &a, QOS_ENTRY_PEER) == QOS_ENTRY_PEERS_OTHERS);
        check(entry_get(u, QOS_ENTRY_PEERS_OTHERS)->cells[QOS_ENTRY_COUNT] == 1);
        check(entry_get(u, QOS_ENTRY_PEERS_OTHERS)->sums[QOS_ENTRY_SUM_LATENCY] == 10 * NSEC_PER_MSEC);
        check(entry_get(u, least)->cells[QOS_ENTRY_COUNT] == 0 &&
              entry_get(u, least)->sums[QOS_ENTRY_SUM_LATENCY] == 0);
        check(u->folds == 2);
        check(peer_challenge(u, &large, NSEC_PER_SEC, now + HEAVY_HITTERS_PAUSE_NSEC - 1) == 0);
        check(peer_challenge(u, &large, 1, now + HEAVY_HITTERS_PAUSE_NSEC) == least);

        /* Many equal peers lower each other's counts: the list of candidates is short, and none gets a
         * row */
        for (unsigned round = 0; round < 50; round++)
                for (unsigned i = 0; i < 3 * QOS_CHALLENGERS; i++) {
                        a = address_of(100 + i, 2);
                        now += HEAVY_HITTERS_PAUSE_NSEC;
                        check(peer_challenge(u, &a, 20 * NSEC_PER_MSEC, now) == 0);
                }
        free(u);
}

/* As record_count() and record_sum(): the entry, then the unit. row: 0 for the first endpoint. */
static void count_in(struct qos_unit_map *u, unsigned row) {
        if (row > 0)
                entry_count(entry_get(u, row), QOS_ENTRY_COUNT, 1);
        window_count(u, QOS_COUNTER_COUNT, 1);
        if (row > 0)
                __sync_fetch_and_add(&entry_get(u, row)->sums[QOS_ENTRY_SUM_BYTES_IN], 100);
        __sync_fetch_and_add(&u->sums[QOS_SUM_BYTES_IN], 100);
}

#define FIRST_EVENTS 2000000U

static uint64_t first_counted;

static void* count_first(void *userdata) {
        for (unsigned i = 0; i < FIRST_EVENTS; i++) {
                /* The others have most */
                if (i % 1000 == 0)
                        __atomic_fetch_add(&first_counted, 1, __ATOMIC_SEQ_CST);
                count_in(userdata, i % 1000 == 0 ? 0 : i % 2 == 0 ? 3 : QOS_ENTRY_ENDPOINTS_OTHERS);
        }
        return NULL;
}

/* The first endpoint is never more than it was, even if an event of another one is recorded in part, and it
 * is exact at rest. */
static void test_first(void) {
        struct qos_unit_map *u = unit_new_at(NSEC_PER_SEC);
        uint64_t largest = 0, readings = 0;
        pthread_t threads[2];
        WindowRow first;

        u->names[0].kind = u->names[3].kind = QOS_ENTRY_ENDPOINT;
        u->names[4].kind = QOS_ENTRY_PEER;
        u->names[5].kind = QOS_ENTRY_EXCLUDED;
        count_in(u, 0);
        count_in(u, 3);
        /* The unit has nothing of peers and excluded endpoints */
        entry_count(entry_get(u, 4), QOS_ENTRY_COUNT, 7);
        entry_count(entry_get(u, 5), QOS_ENTRY_COUNT, 7);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == 1 && first.sums[QOS_ENTRY_SUM_BYTES_IN] == 100);
        __sync_fetch_and_add(&u->sums[QOS_SUM_UNPARSED_IN], 11);
        __sync_fetch_and_add(&u->sums[QOS_SUM_UNPARSED_OUT], 13);
        window_read_first(u, &first);
        check(first.sums[QOS_ENTRY_SUM_BYTES_IN] == 111 && first.sums[QOS_ENTRY_SUM_BYTES_OUT] == 13);

        /* In part: one less, and never below zero */
        entry_count(entry_get(u, 3), QOS_ENTRY_COUNT, 1);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == 0);
        entry_count(entry_get(u, 3), QOS_ENTRY_COUNT, 1);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == 0);
        window_count(u, QOS_COUNTER_COUNT, 2);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == 1);

        /* Beyond 32 bits */
        window_count(u, QOS_COUNTER_COUNT, UINT32_MAX);
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == (UINT64_C(1) << 32) + 1);
        free(u);

        u = unit_new_at(NSEC_PER_SEC);
        u->names[0].kind = u->names[3].kind = QOS_ENTRY_ENDPOINT;
        for (size_t i = 0; i < ELEMENTSOF(threads); i++)
                check(pthread_create(&threads[i], NULL, count_first, u) == 0);
        do {
                uint64_t counted;

                window_read_first(u, &first);
                counted = __atomic_load_n(&first_counted, __ATOMIC_SEQ_CST);
                check(first.cells[QOS_ENTRY_COUNT] <= counted);
                check(first.sums[QOS_ENTRY_SUM_BYTES_IN] <= counted * 100);
                largest = MAX(largest, first.cells[QOS_ENTRY_COUNT]);
                readings++;
        } while (__atomic_load_n(&u->cells[QOS_COUNTER_COUNT], __ATOMIC_SEQ_CST) <
                 ELEMENTSOF(threads) * FIRST_EVENTS);
        for (size_t i = 0; i < ELEMENTSOF(threads); i++)
                check(pthread_join(threads[i], NULL) == 0);
        check(readings > 1);
        window_read_first(u, &first);
        check(first.cells[QOS_ENTRY_COUNT] == first_counted && largest <= first_counted);
        check(first.sums[QOS_ENTRY_SUM_BYTES_IN] == first_counted * 100);
        free(u);
}

static void test_valid(void) {
        check(window_is_for_rows(WINDOW_TOTAL));
        for (uint64_t w = 2; w <= 10; w++)
                check(window_is_for_rows(w * NSEC_PER_SEC));
        check(!window_is_for_rows(900 * NSEC_PER_MSEC));
        check(!window_is_for_rows(NSEC_PER_SEC));
        check(!window_is_for_rows(60 * NSEC_PER_SEC));
        check(!window_is_for_rows(300 * NSEC_PER_SEC));
}

int main(void) {
        test_valid();
        test_find();
        test_find_listener();
        test_find_others();
        test_choices();
        test_challenge();
        test_arithmetic();
        test_windows();
        test_silence();
        test_move();
        test_carry();
        test_first();
        return EXIT_SUCCESS;
}
