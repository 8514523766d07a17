/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parses the streams of a connection as the programs do: skipped bytes are not read, the window moves
 * when it is used up, and the bytes in it behind those of the stream are not read either. */

#include <string.h>

#include "check.h"
#include "exclude.h"
#include "pipeline.h"
#include "util.h"

static inline void pipeline_move(struct pipeline *p, const struct parser *parser, const char *data,
                                 size_t at, size_t size, size_t *ret_begin, size_t *ret_end) {
        static unsigned char left_over;

        /* As if something else had been there, each time */
        memset(&p->window, "x\n\r :0+*$"[left_over++ % 9], sizeof(p->window));
        *ret_begin = at;
        *ret_end = at + 1;
        if (protocol_is_blind(p->protocol, parser))
                return;
        *ret_end = MIN(at + WINDOW_SIZE, size);
        memcpy(p->window.bytes, data + at, *ret_end - at);
}

/* What is left out, where times->how says that anything is. */
static ExcludeList pipeline_excludes;

static inline void pipeline_look_up(struct pipeline *p) {
        uint32_t kind;
        uint64_t name = protocol_name(p->protocol, &p->in, &kind);

        for (size_t i = 0; i < pipeline_excludes.n; i++)
                if (pipeline_excludes.list[i].kind == kind && pipeline_excludes.list[i].name == name)
                        p->flags |= PIPELINE_EXCLUDING;
}

/* position: of the piece in the stream. */
static inline void pipeline_feed_requests(struct pipeline *p, struct parsed_chunk *piece, const char *data,
                                           size_t size, const struct arrival_times *times,
                                           uint32_t position) {
        size_t begin = 0, end = 0;

        for (size_t i = 0; !piece->lost; ) {
                struct arrival_times here = *times;
                uint32_t taken;

                i = window_skip(&p->in, (uint32_t) i, (uint32_t) size);
                if (i == size)
                        break;
                if (i >= end)
                        pipeline_move(p, &p->in, data, i, size, &begin, &end);
                here.how |= end < size ? PROTOCOL_MORE : 0;
                taken = pipeline_request_bytes(p, (uint64_t) (i - begin) << 32 | (end - begin), &here,
                                               position + (uint32_t) i, piece);
                check(piece->lost || i + taken <= end);
                check(piece->lost || taken > 0 || (i > begin && end < size));
                if (taken == 0)
                        end = i;
                check(!piece->named || times->how);
                if (piece->named)
                        pipeline_look_up(p);
                piece->named = 0;
                i += taken;
        }
        if (!piece->lost)
                pipeline_request_chunk(p, times, position + (uint32_t) size);
}

static inline void pipeline_feed_responses(struct pipeline *p, struct parsed_chunk *piece, const char *data,
                                         size_t size) {
        size_t begin = 0, end = 0;

        for (size_t i = 0; !piece->lost && !piece->tunnel; ) {
                uint32_t taken;

                i = window_skip(&p->out, (uint32_t) i, (uint32_t) size);
                if (i == size)
                        break;
                if (pipeline_end_body(p)) {
                        i++;
                        continue;
                }
                if (i >= end)
                        pipeline_move(p, &p->out, data, i, size, &begin, &end);
                taken = pipeline_response_bytes(p, (uint32_t) (i - begin), (uint32_t) (end - begin), piece);
                check(piece->lost || (taken > 0 && i + taken <= end));
                i += taken;
        }
}

/* Ends the requests with a response that begins in this piece; returns their number. */
static inline uint32_t pipeline_take_responses(struct pipeline *p, const struct parsed_chunk *piece,
                                             bool complete) {
        uint32_t n = pipeline_responses(p, piece, complete), taken, sum = 0;
        struct pipeline_batch g;

        while ((taken = pipeline_complete(p, n, &g)) > 0) {
                n -= taken;
                sum += taken;
        }
        return sum;
}
