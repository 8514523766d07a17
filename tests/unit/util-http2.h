/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The two streams of a connection with frames through the parser, as the programs do it: what need not be
 * looked at is not in the window, which moves on when it is used up. */

#include <string.h>

#include "check.h"
#include "http2.h"
#include "util.h"

typedef void (*h2_event_t)(struct h2_piece *piece, void *userdata);

/* Is this path left out? */
typedef bool (*h2_excludes_t)(const struct hpack_path *path);
static __attribute__((unused)) h2_excludes_t h2_excludes;

/* What the programs keep of a connection. */
struct h2_storage {
        struct h2_conn conn;
        struct h2_more more;
};

static __attribute__((unused)) struct h2_conn* h2_storage_new(void) {
        struct h2_storage *s = new0(struct h2_storage, 1);

        check(s);
        memset(&s->more, 0xff, sizeof(s->more));
        return &s->conn;
}

/* As h2_conn_more(). */
static inline struct h2_more* h2_get_more(struct h2_conn *h) {
        struct h2_storage *s = (struct h2_storage*) h;

        if (h2_wants_more(h))
                h2_more_begin(h, &s->more);
        return h->more == H2_MORE_HERE ? &s->more : NULL;
}

/* As much as can be parsed of size bytes that end in the same piece. position: of the first in the
 * stream. times: when requests arrived; NULL for responses. */
static inline void h2_feed(struct h2_conn *h, struct h2_piece *piece, const uint8_t *data, size_t size,
                           uint32_t position, const struct arrival_times *times, h2_event_t on_event,
                           void *userdata) {
        const struct h2_frames *f = times ? &h->in : &h->out;
        static uint8_t left_over;
        size_t begin = 0, end = 0;

        if (times)
                h->times = *times;
        for (size_t at = 0; at < size && !piece->lost; ) {
                uint64_t window;
                uint32_t taken;

                if (at >= end) {
                        begin = at;
                        end = h2_is_blind(f, !times) ? at : MIN(at + WINDOW_SIZE, size);
                        memset(&h->window, ++left_over, sizeof(h->window));
                        memcpy(h->window.bytes, data + begin, end - begin);
                }
                window = (uint64_t) (at - begin) << 32 | (end - begin);
                piece->position = position + (uint32_t) begin;
                if (times)
                        taken = h2_parse_requests(h, h2_get_more(h), window, (uint32_t) (size - end), piece);
                else
                        taken = h2_parse_responses(h, h2_get_more(h), window, (uint32_t) (size - end),
                                                   piece);
                check(taken > 0 && at + taken <= size);
                at += taken;
                if (piece->event & H2_NAMED) {
                        piece->event &= ~H2_NAMED;
                        if (h2_excludes(&h2_get_more(h)->paths.path))
                                h2_exclude(h, h2_get_more(h));
                }
                if (piece->event) {
                        on_event(piece, userdata);
                        piece->event = 0;
                }
        }
}
