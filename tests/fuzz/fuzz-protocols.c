/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Protocols from the network, parsed by the code that runs in the kernel. The first byte of the input has
 * the protocol, and how much is known of arrival times; the second one where the requests end and the
 * responses begin; the third where both are cut. The result is the same for each cut. Some requests are
 * excluded. */

#include "fuzz.h"
#include "util-pipeline.h"

/* What of a connection must not depend on where it was cut. */
struct meaning {
        uint32_t pending, responded, status4xx, failed, streams;
        uint64_t bare[PIPELINE_BODYLESS_MAX / 64], excluded[2];
        bool tunnel_asked, questions_lost, answers_lost, tunnel, halfway, answering, streaming;
};

static size_t cut_length(unsigned *seed, size_t left) {
        static const size_t lengths[] = { 1, 2, 3, 7, 8, 15, 16, 17, 40, 255, 256, 257, 300, SIZE_MAX };
        size_t n;

        *seed = *seed * 1103515245 + 12345;
        n = lengths[(*seed >> 16) % ELEMENTSOF(lengths)];
        return MIN(n, left);
}

/* seed: 0 for not cut at all. */
static struct meaning understand(uint32_t protocol, bool timed, bool named,
                                 const char *requests, size_t n_requests,
                                 const char *responses, size_t n_responses, unsigned seed) {
        struct arrival_times times = { .came_at = timed, .how = named ? PROTOCOL_NAMES : 0 };
        struct parsed_chunk piece = {};
        struct meaning m = {};
        struct pipeline_batch g;
        struct pipeline t = {};

        pipeline_begin(&t, protocol, 0, 0);

        for (size_t i = 0, n; i < n_requests && !piece.lost; i += n) {
                n = seed == 0 ? n_requests : cut_length(&seed, n_requests - i);
                pipeline_feed_requests(&t, &piece, requests + i, n, &times, (uint32_t) i);
                pipeline_read(&t, 2);
        }
        m.pending = t.pending;
        memcpy(m.bare, t.bare, sizeof(m.bare));
        memcpy(m.excluded, t.excluded, sizeof(m.excluded));
        check(piece.lost || pipeline_count_excluded(&t, UINT32_MAX) == t.excluding);
        m.tunnel_asked = t.flags & PIPELINE_TUNNEL;
        m.questions_lost = piece.lost;
        m.halfway = !piece.lost && t.in.state != 0;
        if (piece.lost) /* as the programs have it, nothing else is parsed then */
                return m;

        for (size_t i = 0, n; i < n_responses && !m.answers_lost && !m.tunnel; i += n) {
                piece = (struct parsed_chunk) {};
                n = seed == 0 ? n_responses : cut_length(&seed, n_responses - i);
                pipeline_feed_responses(&t, &piece, responses + i, n);
                m.responded += pipeline_take_responses(&t, &piece, false);
                m.status4xx += piece.status4xx;
                m.failed += piece.failed;
                m.streams += piece.streams;
                m.answers_lost = piece.lost;
                m.tunnel = piece.tunnel;
        }
        m.answering = t.flags & PIPELINE_RESPONDING;
        m.streaming = pipeline_is_streaming(&t);
        check(m.status4xx + m.failed <= m.responded);

        /* In any case requests are in the batches, and responses take them from there */
        while (pipeline_complete(&t, UINT32_MAX, &g) > 0)
                ;
        check(t.pending == 0 && t.n_groups == 0 && t.excluded[0] == 0 && t.excluded[1] == 0);
        return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *p = (const char*) data + 3;
        struct meaning whole, cut;
        size_t requests;
        uint32_t protocol;

        if (size < 3)
                return 0;
        protocol = data[0] % PROTOCOLS;
        size -= 3;
        requests = size * data[1] / 256;

        if (pipeline_excludes.n == 0) {
                check(exclude_list_add(&pipeline_excludes, "http:/a") == 0 &&
                      exclude_list_add(&pipeline_excludes, "http:/b/*") == 0);
                check(exclude_list_add(&pipeline_excludes, "redis:PING") == 0 &&
                      exclude_list_add(&pipeline_excludes, "redis:ZREMRANGEBYLEX") == 0);
        }

        whole = understand(protocol, data[0] < 128, data[0] & 64, p, requests, p + requests,
                           size - requests, 0);
        cut = understand(protocol, data[0] < 128, data[0] & 64, p, requests, p + requests,
                         size - requests, data[2] + 1U);

        check(whole.pending == cut.pending && whole.responded == cut.responded);
        check(whole.excluded[0] == cut.excluded[0] && whole.excluded[1] == cut.excluded[1]);
        check(memcmp(whole.bare, cut.bare, sizeof(cut.bare)) == 0 && whole.tunnel_asked == cut.tunnel_asked);
        check(whole.questions_lost == cut.questions_lost && whole.answers_lost == cut.answers_lost);
        check(whole.halfway == cut.halfway && whole.answering == cut.answering &&
              whole.streaming == cut.streaming);
        check(whole.status4xx == cut.status4xx && whole.failed == cut.failed);
        check(whole.streams == cut.streams && whole.tunnel == cut.tunnel);
        return 0;
}
