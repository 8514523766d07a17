/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parsers of protocols, fed with what comes over the network: the same code that runs in the kernel. The first byte says
 * which protocol, and where each direction is cut. */

#include "check.h"
#include "fuzz.h"
#include "talk.h"
#include "util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct talk_times times = { .came_at = 1 };
        struct talk_piece piece = {};
        struct talk_group g;
        struct talk t = {};
        size_t cut;

        if (size < 2)
                return 0;
        t.protocol = data[0] % PROTOCOLS;
        if (data[0] >= 128) /* no piece came at once */
                times.came_at = 0;
        cut = 2 + (size - 2) * data[1] / 256;

        for (size_t i = 2; i < cut && !piece.lost; ) {
                size_t n = MIN(WINDOW_SIZE, cut - i);

                if (t.in.skip > 0) {
                        i = window_skip(&t.in, i, cut);
                        continue;
                }
                memcpy(t.window.bytes, data + i, n);
                i += talk_question_bytes(&t, 0, n, &times, (uint32_t) i, &piece);
        }
        talk_read(&t, 2);

        piece = (struct talk_piece) {};
        for (size_t i = cut; i < size && !piece.lost; ) {
                size_t n = MIN(WINDOW_SIZE, size - i);

                if (t.out.skip > 0) {
                        i = window_skip(&t.out, i, size);
                        continue;
                }
                memcpy(t.window.bytes, data + i, n);
                i += talk_answer_bytes(&t, 0, n, &piece);
        }

        /* Whatever it was: what is asked is in the groups, and answers take it from there */
        for (uint32_t n = talk_answers(&t, &piece, true); n > 0; n -= g.n)
                if (talk_answer(&t, n, &g) == 0)
                        break;
        while (talk_answer(&t, UINT32_MAX, &g) > 0)
                ;
        check(t.asked == 0 && t.n_groups == 0);
        return 0;
}
