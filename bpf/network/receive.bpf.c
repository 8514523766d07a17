// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "network": the way of segments from the driver to the application.
 *
 *   network_ingress    cgroup_skb/ingress      a segment has passed the IP layer
 *   network_move       tcp_probe               TCP gets it (network.bpf.c, path_receive())
 *   network_read       tcp_rcv_space_adjust    the application has read
 *
 * Other packets cost a look-up each, and so do those of the unit that are not measured (sample-rate.h). */

#include "receive.bpf.h"

#define PREEMPTION_OBJECT receive
#include "preemption.h"

char LICENSE[] SEC("license") = "GPL";

void* bpf_cast_to_kern_ctx(void *context) __ksym;

/* A name of its own, as in preemption.h. */
void* bpf_rdonly_cast___receive(const void *object, __u32 type_id) __ksym;

BPF_ARRAY_MAP(network_clock, ARRAY, 1, struct qos_network_clock);

/* Arrival stamps are in CLOCK_REALTIME, which programs get from CLOCK_TAI. Returns CLOCK_MONOTONIC ns; 0:
 * the packet has no stamp, or the clock was set. A stamp that was taken before is wrong then, and the
 * difference of the clocks shows that before the daemon learns of it. */
static __always_inline __u64 segment_came_at(const struct __sk_buff *skb, __u64 now) {
        const struct qos_network_clock *clock;
        __u64 stamp = skb->tstamp, realtime, age;
        __u32 zero = 0;

        clock = bpf_map_lookup_elem(&network_clock, &zero);
        if (!clock || clock->realtime == 0 || stamp == 0)
                return 0;
        realtime = bpf_ktime_get_tai_ns() - clock->tai;
        if (realtime - now - clock->realtime + QOS_CLOCK_SLACK_NSEC > 2 * QOS_CLOCK_SLACK_NSEC ||
            (clock->set_at != 0 && now - clock->set_at < QOS_CLOCK_SETTLE_NSEC))
                return 0;
        age = realtime - stamp;
        if ((__s64) age < 0)
                return age + QOS_CLOCK_SLACK_NSEC < QOS_CLOCK_SLACK_NSEC ? now : 0;
        return now - age;
}

/* A process has locked the socket: TCP gets the segment when it is unlocked. */
static __attribute__((noinline)) int segment_delay(struct __sk_buff *skb, struct bpf_sock *sk,
                                                   const struct arrival *a) {
        struct segment segment = {};
        struct flow_path *p;
        __u64 i;

        if (!skb || !sk || !a || !segment_read(skb, &segment) || segment.len == 0)
                return 0;
        p = BPF_STORAGE_CREATE(sk, flow_paths, sk);
        if (!p)
                return 0;
        i = p->next++ % DELAYED_SEGMENTS;
        BPF_BOUND(i, DELAYED_SEGMENTS);
        p->delayed[i].seq = segment.seq;
        p->delayed[i].weight = a->weight;
        p->delayed[i].came_at = a->came_at;
        p->delayed[i].ip_at = a->ip_at;
        return 0;
}

/* Sockets other than full ones do not have these fields, and are ignored in any case. */
static __always_inline bool packet_is_of_no_unit(const struct bpf_sock *sk) {
        const struct sock *s = bpf_rdonly_cast___receive(sk, bpf_core_type_id_kernel(struct sock));

        return !s->sk_bpf_storage || s->sk_protocol != IPPROTO_TCP;
}

SEC("cgroup_skb/ingress")
int network_ingress(struct __sk_buff *skb) {
        struct bpf_sock *sk = skb->sk;
        struct arrival *a;
        struct tcp_sock *tp;
        __u32 zero = 0, weight;
        __u64 now, begin;
        struct flow *f;

        sk = sk && !packet_is_of_no_unit(sk) ? bpf_sk_fullsock(sk) : NULL;
        f = sk ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        a = f && f->owner.generation != 0 ? bpf_map_lookup_elem(&arrivals, &zero) : NULL;
        if (!a)
                return 1;
        begin = overhead_begin_sample(f);
        /* Without stamps, chance decides */
        weight = segment_get_weight(RATE_RECEIVED, skb->tstamp != 0 ? skb->tstamp : bpf_get_prandom_u32());
        if (weight == 0 && !f->awaits && !stamps_are_wanted()) {
                /* The address may be that of an earlier one */
                a->skb = 0;
                return 1;
        }
        now = bpf_ktime_get_ns();
        a->weight = weight;
        a->ip_at = now;
        a->came_at = segment_came_at(skb, now);
        a->skb = (__u64) bpf_cast_to_kern_ctx(skb);
        tp = bpf_skc_to_tcp_sock(sk);
        if (tp && ((struct sock*) tp)->sk_lock.owned)
                segment_delay(skb, sk, a);
        if (begin != 0)
                flow_record_overhead((struct sock*) tp, begin);
        return 1;
}

static __attribute__((noinline)) int path_record_read(const struct flow *f, const struct unread *u,
                                                      __u64 now) {
        struct qos_network_counts *live;
        __u32 generation;
        void *map;

        if (!f || !u)
                return 0;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, now) : NULL;
        if (!live)
                return 0;
        network_samples(map, live, now, QOS_NETWORK_RECEIVING_SOCKET, u->n, u->n * now - u->tcp_at);
        if (u->dated != 0)
                network_samples(map, live, now, QOS_NETWORK_RECEIVING_TOTAL, u->dated,
                                u->dated * now - u->came_at);
        return 0;
}

static __attribute__((noinline)) int path_read(struct sock *sk) {
        struct unread unread;
        struct tcp_sock *tp;
        struct flow *f;
        struct flow_path *p;
        __u64 begin, now;

        p = sk ? bpf_sk_storage_get(&flow_paths, sk, 0, 0) : NULL;
        f = p && p->unread.n != 0 ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        tp = f ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return 0;
        begin = overhead_begin_sample(f);
        now = bpf_ktime_get_ns();
        for (__u32 i = 0; i < UNREAD_ELEMENTS; i++) {
                if (!receive_queue_take(&p->unread, tp->copied_seq, &unread))
                        break;
                path_record_read(f, &unread, now);
        }
        if (begin != 0)
                flow_record_overhead(sk, begin);
        return 0;
}

/* Runs for every way to read, with copied_seq already moved. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(network_read, struct sock *sk) {
        if (!sk->sk_bpf_storage)
                return 0;
        preemption_disable();
        path_read(sk);
        preemption_enable();
        return 0;
}
