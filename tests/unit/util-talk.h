/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A connection's streams through a parser, as the programs do it: what is skipped is not looked at, the window moves on when
 * it is used up. What lies in it behind the bytes of the stream is not to be looked at either. */

#include <string.h>

#include "check.h"
#include "talk.h"
#include "util.h"

static inline void talk_load(struct talk *t, const void *data, size_t size) {
        static unsigned char left_over;

        /* As if something else had been there, each time */
        memset(&t->window, "x\n\r :0+*$"[left_over++ % 9], sizeof(t->window));
        memcpy(t->window.bytes, data, size);
}

/* position: of the piece in the stream. */
static inline void talk_feed_questions(struct talk *t, struct talk_piece *piece, const char *data, size_t size,
                                       const struct talk_times *times, uint32_t position) {
        size_t begin = 0, end = 0;

        for (size_t i = 0; !piece->lost; ) {
                uint32_t taken;

                i = window_skip(&t->in, (uint32_t) i, (uint32_t) size);
                if (i == size)
                        break;
                if (i >= end) {
                        begin = i;
                        end = MIN(i + WINDOW_SIZE, size);
                        talk_load(t, data + begin, end - begin);
                }
                taken = talk_question_bytes(t, (uint32_t) (i - begin), (uint32_t) (end - begin), times,
                                            position + (uint32_t) i, piece);
                check(piece->lost || (taken > 0 && i + taken <= end));
                i += taken;
        }
        if (!piece->lost)
                talk_question_piece(t, times, position + (uint32_t) size);
}

static inline void talk_feed_answers(struct talk *t, struct talk_piece *piece, const char *data, size_t size) {
        size_t begin = 0, end = 0;

        for (size_t i = 0; !piece->lost && !piece->tunnel; ) {
                uint32_t taken;

                i = window_skip(&t->out, (uint32_t) i, (uint32_t) size);
                if (i == size)
                        break;
                if (i >= end) {
                        begin = i;
                        end = MIN(i + WINDOW_SIZE, size);
                        talk_load(t, data + begin, end - begin);
                }
                taken = talk_answer_bytes(t, (uint32_t) (i - begin), (uint32_t) (end - begin), piece);
                check(piece->lost || (taken > 0 && i + taken <= end));
                i += taken;
        }
}

/* Takes the questions that this piece begins to answer; returns how many. */
static inline uint32_t talk_take_answers(struct talk *t, const struct talk_piece *piece, bool complete) {
        uint32_t n = talk_answers(t, piece, complete), taken, sum = 0;
        struct talk_group g;

        while ((taken = talk_answer(t, n, &g)) > 0) {
                n -= taken;
                sum += taken;
        }
        return sum;
}
