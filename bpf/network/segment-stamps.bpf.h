/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Times of certain bytes of streams, for the latency between two hosts: those at multiples of
 * QOS_STAMP_SPACING in sequence space, which are the same on both hosts, however segments are merged and
 * split on the way. */

#include "flow-map.bpf.h"

BPF_ARRAY_MAP(stamp_control, ARRAY, 1, struct qos_stamp_control) __weak;
BPF_ARRAY_MAP(stamp_ring, ARRAY, 1, struct qos_stamp_ring) __weak;

/* Bytes of one segment with times. More have none: a segment of 64 KiB has 64 of them. */
#define STAMPS_OF_SEGMENT 64U

static __always_inline bool stamps_are_wanted(void) {
        struct qos_stamp_control *control;
        __u32 zero = 0;

        control = bpf_map_lookup_elem(&stamp_control, &zero);
        if (!control || control->until == 0)
                return false;
        if (bpf_ktime_get_ns() < control->until)
                return true;
        control->until = 0;
        return false;
}

/* A segment with the bytes from seq (upper half) to end. kind: enum qos_stamp_kind. */
static __attribute__((noinline)) int segment_stamp(struct sock *sk, const struct flow *f, __u64 range,
                                                   __u64 at, __u32 kind) {
        __u32 zero = 0, end = range, position = (range >> 32) + QOS_STAMP_SPACING - 1 & -QOS_STAMP_SPACING;
        struct qos_stamp_ring *ring = bpf_map_lookup_elem(&stamp_ring, &zero);
        struct qos_stamp s = { .kind = kind };

        if (!sk || !f || !ring)
                return 0;
        s.slot = f->owner.slot;
        s.unit = f->owner.generation;
        s.local_port = sk->__sk_common.skc_num;
        s.peer_port = bpf_ntohs(sk->__sk_common.skc_dport);
        for (__u32 i = 0; i < STAMPS_OF_SEGMENT && (__s32) (end - position) > 0 && can_loop; i++) {
                __u64 index = __sync_fetch_and_add(&ring->next, 1) % QOS_STAMPS;

                BPF_BOUND(index, QOS_STAMPS);
                s.position = position;
                s.at = at;
                ring->stamps[index] = s;
                position += QOS_STAMP_SPACING;
        }
        return 0;
}
