/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Cycles, instructions and cache misses of the unit, sampled: instructions divided by cycles are those per
 * cycle (IPC). Unavailable on machines without counters for them, as most virtual ones. */

#include <linux/bpf_perf_event.h>

#include <qosd/qosd-probe.h>

QOSD_COUNTER(cycles);
QOSD_COUNTER(instructions);
QOSD_COUNTER(misses);

/* A sample stands for all events since the one before it. */
static __always_inline void count(const volatile struct qosd_counter *counter,
                                  struct bpf_perf_event_data *ctx) {
        struct qosd_unit unit;

        if (qosd_unit_of_current(&unit))
                qosd_count(counter, &unit, ctx->sample_period);
}

SEC("perf_event")
int on_cycles(struct bpf_perf_event_data *ctx) {
        count(&cycles, ctx);
        return 0;
}

SEC("perf_event")
int on_instructions(struct bpf_perf_event_data *ctx) {
        count(&instructions, ctx);
        return 0;
}

SEC("perf_event")
int on_misses(struct bpf_perf_event_data *ctx) {
        count(&misses, ctx);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
