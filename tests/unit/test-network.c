/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What is recorded of a connection (bpf/network/flow.h), against a plain model of TCP; and network maps: the
 * code that the programs run (network-record.h) and the reader's (network-window.c), against a list of
 * events. */

#include <math.h>

#include "check.h"
#include "network-step.h"
#include "snapshot-fill.h"
#include "util.h"
#include "window.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() UINT32_C(0)

static union qos_network_element* network_element(void *map, __u32 i) {
        return i < QOS_NETWORK_ELEMENTS ? (union qos_network_element*) map + i : NULL;
}

#define network_roll_due(map, h, epoch) network_roll(map, h, epoch)

#include "network-record.h"
#include "drops.h"
#include "flow.h"
#include "receive-queue.h"
#include "sample-rate.h"
#include "sent-segments.h"

#define START (1000 * NSEC_PER_SEC)

static union qos_network_element* map_new(uint64_t now) {
        union qos_network_element *map = new0(union qos_network_element, QOS_NETWORK_ELEMENTS);

        check(map);
        map->header.epoch = now / QOS_EPOCH_NSEC;
        return map;
}

static NetworkReading read_at(const union qos_network_element *map, uint64_t now, uint64_t window) {
        const NetworkSource source = { .map = map, .since = START };
        const NetworkSources sources = { .sources = &source, .n = 1, .since = START };
        NetworkReading r;

        check(network_read(&sources, now, window, &r, NULL) == 0);
        return r;
}

/* Each window is compared with the events in it. */
static void test_windows(void) {
        static const uint64_t windows[] = { WINDOW_TOTAL, NSEC_PER_SEC, 10 * NSEC_PER_SEC,
                                            60 * NSEC_PER_SEC };
        _cleanup_free_ union qos_network_element *map = map_new(START);
        struct {
                uint64_t at, bytes, nsec;
        } events[2000];
        uint64_t now = START, random = 1;

        for (size_t i = 0; i < ELEMENTSOF(events); i++) {
                struct qos_network_counts *live;

                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                /* Pauses, in which sub-windows are skipped */
                now += i % 500 == 499 ? 25 * NSEC_PER_SEC : (random >> 40) * 4;
                events[i].at = now;
                events[i].bytes = random >> 20 & 0xffffff;
                events[i].nsec = random >> 33;
                live = network_enter(map, now);
                check(live);
                network_add(live, QOS_NETWORK_FLOWS + QOS_FLOW_BYTES_SENT, events[i].bytes);
                network_sample(map, live, now, QOS_NETWORK_DURATION, events[i].nsec);

                for (size_t w = 0; w < ELEMENTSOF(windows) && i % 100 == 99; w++) {
                        NetworkReading r = read_at(map, now, windows[w]);
                        uint64_t since = now - r.covered, count = 0, bytes = 0, nsec = 0, longest = 0;
                        Distribution d;

                        for (size_t k = 0; k <= i; k++)
                                if (events[k].at >= since) {
                                        count++;
                                        bytes += events[k].bytes;
                                        nsec += events[k].nsec;
                                        longest = MAX(longest, events[k].nsec);
                                }
                        check(r.counts.sums[QOS_NETWORK_FLOWS + QOS_FLOW_BYTES_SENT] == bytes);
                        network_get_distribution(&r, QOS_NETWORK_DURATION, 5, &d);
                        check(d.count == count);
                        check(count == 0 || d.mean == nsec / count);
                        check(d.max >= longest); /* the first sub-window begins earlier */
                        if (windows[w] == WINDOW_TOTAL)
                                check(d.max == longest);
                }
        }
}

/* Bytes in each direction, without SYN and FIN; the positions of TCP begin close to their wraparound. */
typedef struct Connection {
        struct flow_fields f;
        struct flow_counts counts;
        uint64_t sums[QOS_FLOW_COUNTERS];
} Connection;

#define ISS UINT32_C(0xffffff00)
#define IRS UINT32_C(0xfffff000)

static void record(Connection *c) {
        __u64 n[QOS_FLOW_COUNTERS];

        flow_step(&c->counts, &c->f, n);
        for (unsigned i = 0; i < QOS_FLOW_COUNTERS; i++)
                c->sums[i] += n[i];
}

static void connection_init(Connection *c, bool client) {
        *c = (Connection) { .f = { .write_seq = ISS + 1, .snd_una = ISS + 1, .rcv_nxt = IRS + 1,
                                   .copied_seq = IRS + 1, .opened = 1, .jiffies = UINT32_MAX - 5 } };
        flow_begin(&c->counts, &c->f, client);
        if (client)
                c->f.bytes_acked = 1; /* the SYN */
}

static void sent(Connection *c, uint32_t n) {
        c->f.write_seq += n;
        c->f.bytes_sent += n;
}

static void acked(Connection *c, uint32_t n) {
        c->f.snd_una += n;
        c->f.bytes_acked += n;
}

static void received(Connection *c, uint32_t n) {
        c->f.rcv_nxt += n;
        c->f.bytes_received += n;
}

static void test_bytes(void) {
        for (unsigned client = 0; client < 2; client++) {
                Connection c;

                connection_init(&c, client);
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_WRITTEN] == 0 && c.sums[QOS_FLOW_BYTES_READ] == 0);

                /* Written, and not acknowledged; received, and not read; beyond 4 GiB; over a wraparound */
                for (unsigned i = 0; i < 5; i++) {
                        sent(&c, UINT32_C(1) << 30);
                        record(&c);
                        acked(&c, UINT32_C(1) << 30);
                        received(&c, 1000);
                        record(&c);
                }
                check(c.sums[QOS_FLOW_BYTES_WRITTEN] == UINT64_C(5) << 30);
                check(c.sums[QOS_FLOW_BYTES_SENT] == UINT64_C(5) << 30);
                check(c.sums[QOS_FLOW_BYTES_ACKED] == (UINT64_C(5) << 30) + client);
                check(c.sums[QOS_FLOW_BYTES_RECEIVED] == 5000 && c.sums[QOS_FLOW_BYTES_READ] == 0);
                c.f.copied_seq += 1500;
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_READ] == 1500);

                /* FIN in both directions */
                sent(&c, 10);
                c.f.write_seq++;
                c.f.fin_sent = 1;
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_WRITTEN] == (UINT64_C(5) << 30) + 10);
                acked(&c, 11);
                received(&c, 1);
                c.f.fin_received = 1;
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_WRITTEN] == (UINT64_C(5) << 30) + 10);
                check(c.sums[QOS_FLOW_BYTES_READ] == 1500);

                /* The connection has ended: the rest is still read, and then the FIN. The socket has neither
                 * of the other flags any more */
                c.counts.ended = 1;
                c.f.fin_sent = 0;
                c.f.copied_seq += 3500;
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_READ] == 5000);
                c.f.copied_seq++;
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_READ] == 5000);
                check(c.sums[QOS_FLOW_BYTES_WRITTEN] == (UINT64_C(5) << 30) + 10);

                /* Disconnected, which clears the counts */
                c.f = (struct flow_fields) { .opened = 1 };
                record(&c);
                check(c.sums[QOS_FLOW_BYTES_READ] == 5000 && c.sums[QOS_FLOW_BYTES_RECEIVED] == 5001);
        }
}

/* No counter falls when a reading sees bytes as acknowledged that are still counted as in flight. */
static void test_torn(void) {
        Connection c;

        connection_init(&c, false);
        sent(&c, 100);
        c.f.bytes_acked = 100;
        record(&c);
        check(c.sums[QOS_FLOW_BYTES_WRITTEN] == 200);
        c.f.snd_una += 100;
        record(&c);
        check(c.sums[QOS_FLOW_BYTES_WRITTEN] == 200);
        sent(&c, 150);
        record(&c);
        check(c.sums[QOS_FLOW_BYTES_WRITTEN] == 250);
}

/* A connection from before the attach, whose counts are in the middle of their ranges. */
static void test_join(void) {
        Connection c = { .f = { .bytes_sent = 1 << 20, .bytes_acked = 1 << 20, .total_retrans = UINT32_MAX,
                                .total_rto = UINT16_MAX, .opened = 1, .jiffies = 7 } };

        flow_join(&c.counts, &c.f);
        record(&c);
        for (unsigned i = 0; i < QOS_FLOW_COUNTERS; i++)
                check(c.sums[i] == 0);
        c.f.total_retrans += 3;
        c.f.total_rto = 1;
        c.f.bytes_retrans = 1000;
        sent(&c, 20);
        record(&c);
        check(c.sums[QOS_FLOW_RETRANSMITS] == 3 && c.sums[QOS_FLOW_TIMEOUTS] == 2);
        check(c.sums[QOS_FLOW_BYTES_RETRANSMITTED] == 1000);
        check(c.sums[QOS_FLOW_BYTES_SENT] == 20 && c.sums[QOS_FLOW_BYTES_WRITTEN] == 20);
}

/* Time by what limits sending, of a type that goes on and of those before; jiffies wrap around. */
static void test_limits(void) {
        const ReadingContext context = { .measured = UINT64_C(1) << MEASURED_FLOWS, .minimum_samples = 5 };
        NetworkReading r = { .covered = NSEC_PER_SEC };
        Metrics m;
        Connection c;

        connection_init(&c, false);
        /* Idle for 10 */
        c.f.jiffies += 10;
        /* Busy for 20, then limited by the peer, for 30 until now */
        c.f.chrono_stat[QOS_FLOW_BY_NETWORK - 1] = 20;
        c.f.chrono_type = QOS_FLOW_BY_PEER_WINDOW;
        c.f.chrono_start = c.f.jiffies += 20;
        c.f.jiffies += 30;
        record(&c);
        check(c.sums[QOS_FLOW_TICKS] == 60 && c.sums[QOS_FLOW_TICKS_BUSY] == 20 &&
              c.sums[QOS_FLOW_TICKS_PEER_WINDOW] == 30 && c.sums[QOS_FLOW_TICKS_SEND_BUFFER] == 0);
        /* 10 more of that, then the send buffer, for 30 */
        c.f.jiffies += 10;
        c.f.chrono_stat[QOS_FLOW_BY_PEER_WINDOW - 1] = 40;
        c.f.chrono_type = QOS_FLOW_BY_SEND_BUFFER;
        c.f.chrono_start = c.f.jiffies;
        c.f.jiffies += 30;
        record(&c);
        check(c.sums[QOS_FLOW_TICKS] == 100 && c.sums[QOS_FLOW_TICKS_SEND_BUFFER] == 30 &&
              c.sums[QOS_FLOW_TICKS_PEER_WINDOW] == 40);

        memcpy(r.counts.sums + QOS_NETWORK_FLOWS, c.sums, sizeof(c.sums));
        network_set_absent(&m);
        network_metrics_fill(&context, &r, &m.network);
        check(fabs(m.network.limited_by.application - 0.1) < 1e-9);
        check(fabs(m.network.limited_by.network - 0.2) < 1e-9);
        check(fabs(m.network.limited_by.peer_window - 0.4) < 1e-9);
        check(fabs(m.network.limited_by.send_buffer - 0.3) < 1e-9);
        check(m.network.recoveries == ABSENT);

        /* Without connections there are no shares */
        memset(&r.counts, 0, sizeof(r.counts));
        network_set_absent(&m);
        network_metrics_fill(&context, &r, &m.network);
        check(isnan(m.network.limited_by.application) && m.network.flows[QOS_FLOW_RETRANSMITS] == 0);
}

/* Neither positions nor the time of a connection count during the handshake, retransmitted SYNs do. */
static void test_handshake(void) {
        Connection c;

        connection_init(&c, true);
        c.f.bytes_acked = 0;
        c.f.opened = 0;
        c.f.total_retrans = 2;
        c.f.total_rto = 2;
        c.f.jiffies += 100;
        record(&c);
        check(c.sums[QOS_FLOW_RETRANSMITS] == 2 && c.sums[QOS_FLOW_TIMEOUTS] == 2);
        check(c.sums[QOS_FLOW_BYTES_WRITTEN] == 0 && c.sums[QOS_FLOW_TICKS] == 0);
}

static void queue_add(struct receive_queue *q, uint32_t rcv_nxt, uint32_t end, uint64_t tcp_at,
                      uint64_t came_at) {
        const struct received s = { rcv_nxt, end, tcp_at, came_at, 1 };

        receive_queue_add(q, &s);
}

/* What has been read in parts, more segments than there are elements, and segments that TCP has dropped; the
 * positions begin close to their wraparound. */
static void test_receive_queue(void) {
        struct receive_queue q = {};
        struct unread u;
        uint32_t seq = IRS;

        check(!receive_queue_take(&q, seq, &u));
        for (unsigned round = 0; round < 5; round++) {
                uint32_t begin = seq;

                for (unsigned i = 0; i < 12; i++, seq += 1000)
                        queue_add(&q, seq, seq + 1000, 100 * (i + 1), i % 2 ? 10 * (i + 1) : 0);
                check(!receive_queue_take(&q, begin + 999, &u));
                for (unsigned i = 0; i < 7; i++) {
                        check(receive_queue_take(&q, begin + 7500, &u));
                        check(u.n == 1 && u.tcp_at == 100 * (i + 1) && u.dated == i % 2);
                        check(u.came_at == (i % 2 ? 10 * (i + 1) : 0));
                }
                /* The last element has the rest */
                check(!receive_queue_take(&q, seq - 1, &u));
                check(receive_queue_take(&q, seq, &u));
                check(u.n == 5 && u.tcp_at == 100 * (8 + 9 + 10 + 11 + 12));
                check(u.dated == 3 && u.came_at == 10 * (8 + 10 + 12));
                check(!receive_queue_take(&q, seq, &u));
        }

        /* One that stands for four */
        receive_queue_add(&q, &(struct received) { seq, seq + 10, 1000, 900, 4 });
        check(receive_queue_take(&q, seq + 10, &u) && u.n == 4 && u.dated == 4);
        check(4 * 1100 - u.tcp_at == 400 && 4 * 1100 - u.came_at == 800);

        /* Dropped, and retransmitted with more; and another connection of the same socket */
        queue_add(&q, seq, seq + 1000, 1, 0);
        queue_add(&q, seq, seq + 2000, 7, 0);
        check(receive_queue_take(&q, seq + 2000, &u) && u.n == 1 && u.tcp_at == 7);
        check(!receive_queue_take(&q, seq + 2000, &u));
        queue_add(&q, seq, seq + 2000, 7, 0);
        queue_add(&q, seq - 100000, seq - 99000, 8, 0);
        check(receive_queue_take(&q, seq - 99000, &u) && u.tcp_at == 8);
        check(!receive_queue_take(&q, seq - 99000, &u));
}

/* Steps of 10 s have what was in them, whenever they are read, and the history returns it. */
static void test_steps(void) {
        const uint64_t step = 10 * NSEC_PER_SEC, first = START / step;
        _cleanup_free_ union qos_network_element *map = map_new(START);
        NetworkSource source = { .map = map, .since = START };
        NetworkSources sources = { .sources = &source, .n = 1, .since = START + step / 2 };
        NetworkCounts before = {};
        NetworkReading r;

        for (unsigned n = 0; n < 5; n++)
                for (unsigned i = 0; i < 100; i++) {
                        uint64_t now = START + n * step + i * step / 100;
                        struct qos_network_counts *live;

                        if (n == 2)
                                continue; /* nothing moves */
                        if (n == 0 && i == 50)
                                network_counts_add(&before, &source, 1);
                        live = network_enter(map, now);
                        check(live);
                        network_add(live, QOS_NETWORK_FLOWS + QOS_FLOW_BYTES_SENT, 2 * n + 1);
                        network_add(live, QOS_NETWORK_FLOWS + QOS_FLOW_TICKS, 2);
                        network_add(live, QOS_NETWORK_FLOWS + QOS_FLOW_TICKS_PEER_WINDOW, 1);
                        network_add(live, QOS_NETWORK_DROPS + i % QOS_DROP_ROWS, 1);
                        network_sample(map, live, now, QOS_NETWORK_RTT, (i + 1) * 1000);
                        network_sample(map, live, now, QOS_NETWORK_PORTS, 3000);
                }
        sources.before = &before;
        check(network_read_step(&sources, first - 1, &r) == -ENODATA);
        for (unsigned n = 0; n < 5; n++) {
                uint64_t events = n == 2 ? 0 : n == 0 ? 50 : 100;
                HistoryStep s = { .index = first + n };
                Metrics m;

                check(network_read_step(&sources, first + n, &r) == 0);
                check(r.covered == (n == 0 ? step / 2 : step));
                check(r.counts.sums[QOS_NETWORK_FLOWS + QOS_FLOW_BYTES_SENT] == events * (2 * n + 1));

                history_step_set_network(&s, &r);
                history_step_get_metrics(&s, 5, &m);
                check(m.network.covered == r.covered && m.network.drops == events);
                check(m.network.flows[QOS_FLOW_BYTES_SENT] == events * (2 * n + 1));
                check(m.network.rtt.count == events && m.network.rtt.max == ABSENT);
                check(m.network.connecting.ports.count == events && m.network.duration.count == 0);
                check(m.network.receiving.total.count == ABSENT);
                if (events == 0) {
                        check(isnan(m.network.limited_by.peer_window) && m.network.rtt.p50 == ABSENT);
                        continue;
                }
                check(m.network.connecting.ports.mean == 3000);
                check(fabs(m.network.limited_by.peer_window - 0.5) < 1e-9);
                check(m.network.rtt.mean == (n == 0 ? 75500 : 50500));
                check(fabs((double) m.network.rtt.p50 - (n == 0 ? 75500 : 50500)) < 0.18 * 75500);
                check((m.network.rtt.p95 == ABSENT) == (n == 0));
        }
}

/* Each reason has a row of its own, in all maps the same, as long as there are any. */
static void test_drops(void) {
        const ReadingContext context = { .measured = UINT64_C(1) << MEASURED_DROPS, .minimum_samples = 5 };
        _cleanup_free_ union qos_network_element *map = map_new(START);
        struct qos_drop_reasons reasons = {};
        struct qos_network_counts *live;
        NetworkReading r;
        Metrics m;

        for (unsigned reason = 40; reason > 20; reason--) {
                unsigned row = MIN(40 - reason, QOS_DROP_ROWS - 1);

                check(drop_get_row(&reasons, reason) == row);
                check(drop_get_row(&reasons, 40) == 0);
                check(row == QOS_DROP_ROWS - 1 || reasons.reasons[row] == reason);
                live = network_enter(map, START);
                check(live);
                network_add(live, QOS_NETWORK_DROPS + row, reason);
        }
        r = read_at(map, START + 1, WINDOW_TOTAL);
        network_set_absent(&m);
        network_metrics_fill(&context, &r, &m.network);
        check(m.network.drops == 610);
        check(r.counts.sums[QOS_NETWORK_DROPS + 3] == 37);
        check(r.counts.sums[QOS_NETWORK_DROPS + QOS_DROP_ROWS - 1] == 25 + 24 + 23 + 22 + 21);
        check(r.counts.sums[QOS_NETWORK_NSEC] == 0);
}

/* Acknowledgements of the last segments, and after retransmissions. */
static void test_sent_segments(void) {
        struct sent_segments q = {};
        struct sent_segment s;
        uint32_t seq = ISS;

        check(!sent_segments_take(&q, 0, 0, &s));
        for (unsigned i = 0; i < 6; i++, seq += 1000)
                check(sent_segments_add(&q, &(struct sent_segment) { seq + 1000, i, 100 + i, 1 }, 0));
        /* The first two are forgotten */
        check(!sent_segments_take(&q, ISS + 1000, 0, &s) && !sent_segments_take(&q, ISS + 2000, 0, &s));
        check(!sent_segments_take(&q, ISS + 3500, 0, &s));
        check(sent_segments_take(&q, ISS + 3000, 0, &s) && s.kernel == 2 && s.left_at == 102);
        check(!sent_segments_take(&q, ISS + 3000, 0, &s));
        check(!sent_segments_are_over(&q, ISS + 5999) && sent_segments_are_over(&q, ISS + 6000));

        /* TCP has retransmitted one, which has not left yet, and then has */
        check(!sent_segments_take(&q, ISS + 4000, 1, &s));
        check(!sent_segments_add(&q, &(struct sent_segment) { ISS + 4000, 0, 200, 1 }, 1));
        check(!sent_segments_take(&q, ISS + 4000, 1, &s) && !sent_segments_take(&q, ISS + 5000, 1, &s));
        check(sent_segments_add(&q, &(struct sent_segment) { ISS + 7000, 0, 300, 8 }, 1));
        check(sent_segments_take(&q, ISS + 7000, 1, &s) && s.left_at == 300 && s.weight == 8);
}

/* All of few segments are measured, and of many about as many, which stand for all. */
static void test_sample_rate(void) {
        static const unsigned numbers[] = { 1, 32, 33, 100, 1000, 5000, 100000 };

        for (size_t k = 0; k < ELEMENTSOF(numbers); k++) {
                struct sample_rate r = {};
                uint64_t stamp = 12345, sum = 0, all = 0, measured = 0;

                for (uint64_t interval = 0; interval < 400; interval++)
                        for (unsigned i = 0; i < numbers[k]; i++) {
                                uint32_t shift = sample_rate_count(&r, interval << SAMPLE_INTERVAL_SHIFT);

                                stamp = stamp * UINT64_C(6364136223846793005) + 1442695040888963407;
                                if (interval == 0)
                                        continue;
                                all++;
                                if (sample_is_taken(stamp >> 20, shift)) {
                                        measured++;
                                        sum += 1U << shift;
                                }
                        }
                check(fabs((double) sum / (double) all - 1) < 0.05);
                if (numbers[k] <= SAMPLES_EACH_INTERVAL)
                        check(measured == all);
                else if (numbers[k] >> SAMPLE_SHIFT_MAX <= SAMPLES_EACH_INTERVAL)
                        check(measured <= SAMPLES_EACH_INTERVAL * 400 * 11 / 10);
                /* After a pause there are few again */
                check(sample_rate_count(&r, UINT64_C(1000) << SAMPLE_INTERVAL_SHIFT) == 0);
        }
}

int main(void) {
        test_drops();
        test_steps();
        test_windows();
        test_receive_queue();
        test_sent_segments();
        test_sample_rate();
        test_bytes();
        test_torn();
        test_join();
        test_limits();
        test_handshake();
        return EXIT_SUCCESS;
}
