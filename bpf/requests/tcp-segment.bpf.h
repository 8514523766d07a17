/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* TCP segments in packets */

#include "maps.h"
#include "exchange.h"

struct segment {
        __u32 seq;
        __u32 offset;           /* of the payload, from the beginning of the IP header */
        __u32 len;              /* of the payload */
        __be16 source;
        __u8 flags;             /* TCP_FLAG_* */
};

struct tcp_header {
        __be16 source;
        __be16 dest;
        __be32 seq;
        __be32 ack_seq;
        __u8 offset;            /* upper four bits: length in words */
        __u8 flags;
};

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_PSH 0x08
#define TCP_FLAG_ACK 0x10

/* Parses the headers of a packet, by its protocol, not the socket's family: an IPv6 socket carries IPv4
 * packets. */
static __always_inline bool segment_parse(struct __sk_buff *skb, struct segment *ret) {
        struct tcp_header header;
        __u32 offset, length;
        __u8 next;

        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                __u8 first;

                if (bpf_skb_load_bytes(skb, 0, &first, 1) < 0 || bpf_skb_load_bytes(skb, 9, &next, 1) < 0)
                        return false;
                offset = (first & 0xf) * 4;

        } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
                if (bpf_skb_load_bytes(skb, 6, &next, 1) < 0)
                        return false;
                offset = 40;

                /* Extension headers: hop-by-hop, routing, destination options. No server responds to packets
                 * with more than four of them */
                for (int i = 0; i < 4 && (next == 0 || next == 43 || next == 60); i++) {
                        __u8 extension[2];

                        if (bpf_skb_load_bytes(skb, offset, extension, 2) < 0)
                                return false;
                        next = extension[0];
                        offset += (extension[1] + 1) * 8;
                }
        } else
                return false;

        if (next != IPPROTO_TCP)
                return false;
        if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) < 0)
                return false;

        length = offset + (header.offset >> 4) * 4;
        ret->seq = bpf_ntohl(header.seq);
        ret->offset = length;
        ret->len = skb->len > length ? skb->len - length : 0;
        ret->source = header.source;
        ret->flags = header.flags;
        return true;
}

/* The same without helper calls, if the headers are in the linear part of the packet, as usual. */
static __always_inline bool segment_read(struct __sk_buff *skb, struct segment *ret) {
        void *data = (void*) (long) skb->data, *data_end = (void*) (long) skb->data_end;
        struct tcp_header *header;
        __u32 offset, length;

        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                __u8 *ip = data;

                if (data + 20 > data_end)
                        return segment_parse(skb, ret);
                if (ip[9] != IPPROTO_TCP)
                        return false;
                offset = (ip[0] & 0xf) * 4;
        } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
                __u8 *ip = data;

                if (data + 40 > data_end || ip[6] != IPPROTO_TCP)
                        return segment_parse(skb, ret);
                offset = 40;
        } else
                return false;

        header = data + offset;
        if ((void*) (header + 1) > data_end)
                return segment_parse(skb, ret);

        length = offset + (header->offset >> 4) * 4;
        ret->seq = bpf_ntohl(header->seq);
        ret->offset = length;
        ret->len = skb->len > length ? skb->len - length : 0;
        ret->source = header->source;
        ret->flags = header->flags;
        return true;
}

/* Results of segment_classify(): segments without a response, and SEGMENT_PUSHED */
#define SEGMENT_REMARK 1U
#define SEGMENT_FAREWELL 2U             /* possibly (EXCHANGE_FAREWELL) */
#define SEGMENT_LAST_FAREWELL 4U        /* the same, and earlier requests get no response either */
/* Added by the caller: the sender had no more data when it sent the segment (PSH) */
#define SEGMENT_PUSHED 8U

static __attribute__((noinline)) __u32 segment_classify(struct __sk_buff *skb, __u32 offset, __u32 length) {
        __u32 look = exchange_look(length);
        __u64 bytes = 0;

        BPF_BOUND(look, sizeof(bytes) + 1);
        if (!skb || look == 0 || bpf_skb_load_bytes(skb, offset, &bytes, look) < 0)
                return 0;
        return (exchange_is_remark(bytes, length) ? SEGMENT_REMARK : 0) |
                (exchange_is_farewell(bytes, length) ? SEGMENT_FAREWELL : 0) |
                (exchange_is_last_farewell(bytes, length) ? SEGMENT_LAST_FAREWELL : 0);
}
