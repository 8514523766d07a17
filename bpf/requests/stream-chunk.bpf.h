/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Parsing of a chunk of a stream, window by window. */

#include "maps.h"
#include "pipeline.h"

/* Maximum size of a chunk: what skb->len and a TCP window allow at once (BIG TCP) */
#define PIECE_MAX (1U << 20)

/* A chunk of a stream while it is parsed. All are offsets in the chunk. */
struct chunk {
        struct parsed_chunk piece;
        __u32 at;               /* next byte to parse */
        __u32 end;              /* length of the chunk */
        __u32 window_begin;     /* part that is in the window */
        __u32 window_end;
};

/* Initializes the chunk in the connection's memory. end: its length. On the stack, the verifier would know
 * its values and treat each iteration of a loop as a different state. */
static __always_inline struct chunk* chunk_init(struct pipeline *p, __u32 end) {
        struct chunk *f = (struct chunk*) p->work;

        _Static_assert(sizeof(*f) <= sizeof(p->work), "no room for the place of a piece");
        __builtin_memset(f, 0, sizeof(*f));
        f->end = end;
        return f;
}

/* Skips what the parser does not need. Returns false if no byte is left. */
static __always_inline bool chunk_skip(struct chunk *f, struct parser *p) {
        if (p->skip > 0)
                f->at = window_skip(p, f->at, f->end);
        return f->at < f->end;
}

/* Moves the window if needed. Returns the number of bytes to be loaded into it, 0 … WINDOW_SIZE. */
static __always_inline __u32 chunk_advance(struct chunk *f, const struct pipeline *p,
                const struct parser *parser) {
        if (f->at < f->window_end)
                return 0;
        f->window_begin = f->at;
        if (protocol_is_blind(p->protocol, parser)) {
                f->window_end = f->at + 1;
                return 0;
        }
        f->window_end = f->end - f->at > WINDOW_SIZE ? f->at + WINDOW_SIZE : f->end;
        return f->window_end - f->window_begin;
}

/* Unparsed part of the window: begin in the upper half, end in the lower one. */
static __always_inline __u64 chunk_window(const struct chunk *f) {
        return (__u64) (f->at - f->window_begin) << 32 | (f->window_end - f->window_begin);
}

/* Source of the bytes of a chunk: which of the first three is set is known at compile time. */
struct chunk_source {
        struct __sk_buff *skb;
        const struct bpf_dynptr *data;
        const void *buffer;     /* memory of the current process */
        __u32 offset;           /* of the chunk in skb or data */
        bool restarts;          /* a window may begin before the previous one ends (PROTOCOL_MORE) */
};

static __always_inline long chunk_load(const struct chunk_source *s, void *window, __u32 n, __u32 at) {
        if (s->skb)
                return bpf_skb_load_bytes(s->skb, s->offset + at, window, n);
        if (s->data)
                return bpf_dynptr_read(window, n, s->data, s->offset + at, 0);
        return bpf_probe_read_user(window, n, s->buffer + at);
}

/* Loads the next bytes into the window. Returns false if that fails: the chunk is lost. */
static __always_inline bool chunk_fill(struct chunk *f, struct pipeline *p, const struct parser *parser,
                                       const struct chunk_source *s) {
        __u32 n = chunk_advance(f, p, parser);

        BPF_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && chunk_load(s, p->window.bytes, n, f->window_begin) < 0) {
                f->piece.lost = 1;
                return false;
        }
        return true;
}

/* Parses responses in the window. */
static __always_inline void chunk_parse_response(struct chunk *f, struct pipeline *p) {
        f->at += pipeline_response_bytes(p, f->at - f->window_begin, f->window_end - f->window_begin,
                                         &f->piece);
}

/* Whether any requests of the unit are excluded by name. */
static __always_inline bool names_are_wanted(const struct qos_owner *owner) {
        const struct qos_filter *filter = bpf_map_lookup_elem(&filters, &owner->slot);

        return filter && filter->names && filter->generation == owner->generation;
}

/* Whether requests with this name are excluded from the metrics of a unit. */
static __always_inline bool name_is_excluded(const struct qos_owner *owner, __u32 kind, __u64 name) {
        struct qos_exclude exclude = { .owner = *owner, .name = name, .kind = kind };

        return bpf_map_lookup_elem(&excludes, &exclude) != NULL;
}

/* Looks up the name of the request that is being read. A separate function, for its stack. */
__attribute__((noinline, weak)) int request_find_name(struct pipeline *p, const struct qos_owner *owner) {
        __u32 kind;
        __u64 name;

        if (!p || !owner)
                return 0;
        name = protocol_name(p->protocol, &p->in, &kind);
        if (name_is_excluded(owner, kind, name))
                p->flags |= PIPELINE_EXCLUDING;
        return 0;
}

/* Parses a chunk of requests. position: of the chunk in the stream; owner: of the connection, to look up the
 * names of requests; NULL: neither is known. */
static __always_inline void chunk_parse_requests(struct chunk *f, struct pipeline *p,
                                                 const struct chunk_source *s,
                                                 const struct arrival_times *times, __u32 position,
                                                 const struct qos_owner *owner) {
        __u32 n;

        while (!f->piece.lost && chunk_skip(f, &p->in) && can_loop) {
                if (chunk_fill(f, p, &p->in, s)) {
                        if (s->restarts)
                                p->times.how = (p->times.how & PROTOCOL_NAMES) |
                                               (f->window_end < f->end ? PROTOCOL_MORE : 0);
                        n = pipeline_request_bytes(p, chunk_window(f), times, owner ? position + f->at : 0,
                                                   &f->piece);
                        if (s->restarts && n == 0)
                                f->window_end = f->at; /* the next window begins here */
                        f->at += n;
                }
                if (owner && f->piece.named) {
                        f->piece.named = 0;
                        request_find_name(p, owner);
                }
        }
}

/* Number of attempts to detect the protocol of a connection, each at the beginning of a request: a first
 * chunk of a single byte shows nothing, and a connection that was open before the attach may be in the
 * middle of a request. */
#define TRIES_MAX 4
