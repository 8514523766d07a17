/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Frames of HTTP/2 from the network, parsed by the code that runs in the kernel. The first byte of the
 * input has whether the connection was seen from its beginning, and whether paths are wanted, some of
 * which are excluded; the second one where the requests end and the responses begin; the third where both
 * are cut. The result is the same for each cut. */

#include "fuzz.h"
#include "util-http2.h"

struct meaning {
        uint32_t open, begun, ended, dropped, unseen, unknown, grpc, status, streaming, excluded;
        bool lost;
};

static bool is_excluded(const struct hpack_path *path) {
        check(path->known && path->n_directories <= NAME_DIRECTORIES);
        return path->name & 1;
}

static void on_event(struct h2_piece *piece, void *userdata) {
        const struct h2_stream *s = &piece->stream;
        struct meaning *m = userdata;

        check(piece->event != 0);
        check(s->id != 0 && s->id & 1 && s->flags & H2_STREAM_BEGUN && s->first_out_at != 0 &&
              s->last_out_at != 0);
        check(s->status <= 5);
        if (piece->event & H2_BEGUN) {
                m->begun++;
                m->excluded += !!(s->flags & H2_STREAM_EXCLUDED);
                m->streaming += !!(piece->event & H2_STREAMING);
                m->unknown += !!(s->flags & H2_STREAM_UNKNOWN);
                m->status += s->status * s->id;
        }
        if (piece->event & H2_ENDED) {
                m->ended++;
                m->grpc += !!h2_is_failed_call(s);
                m->unknown += !!h2_is_unknown_call(s);
        }
}

static size_t cut_length(unsigned *seed, size_t left) {
        static const size_t lengths[] = { 1, 2, 3, 7, 8, 9, 10, 17, 40, 255, 256, 257, 300, SIZE_MAX };
        size_t n;

        *seed = *seed * 1103515245 + 12345;
        n = lengths[(*seed >> 16) % ELEMENTSOF(lengths)];
        return MIN(n, left);
}

static void feed(struct h2_conn *h, struct meaning *m, const uint8_t *data, size_t size,
                 const struct arrival_times *times, unsigned seed) {
        for (size_t i = 0, n; i < size && !m->lost; i += n) {
                struct h2_piece piece = { .now = 2 };

                n = seed == 0 ? size : cut_length(&seed, size - i);
                h2_feed(h, &piece, data + i, n, (uint32_t) i, times, on_event, m);
                m->dropped += piece.dropped;
                m->unseen += piece.unseen;
                m->lost = piece.lost;
        }
}

/* seed: 0 for not cut at all. */
static struct meaning understand(bool late, bool names, const uint8_t *requests, size_t n_requests,
                                 const uint8_t *responses, size_t n_responses, unsigned seed) {
        static struct h2_storage storage;
        struct h2_conn *h = &storage.conn;
        struct arrival_times times = { .came_at = 1 };
        struct meaning m = {};
        uint32_t open = 0, taken = 0;

        storage = (struct h2_storage) {};
        h2_begin(h, 0, late);
        h->names = names;
        h2_excludes = is_excluded;
        if (late)
                h->out.synced = H2_SYNCED;
        feed(h, &m, requests, n_requests, &times, seed);
        if (!m.lost)
                feed(h, &m, responses, n_responses, NULL, seed);
        m.open = h->open;
        check(m.ended <= m.begun);

        for (unsigned i = 0; i < H2_STREAMS; i++) {
                const struct h2_stream *s = &h->streams.list[i % (H2_STREAMS / 2)];

                if (i >= H2_STREAMS / 2 && !h2_get_more(h))
                        break;
                if (i >= H2_STREAMS / 2)
                        s = &h2_get_more(h)->streams.list[i % (H2_STREAMS / 2)];
                open += s->id != 0 && !(s->flags & H2_STREAM_ASIDE);
                taken += s->id != 0;
        }
        check(open == h->open && taken == h->taken);
        h2_clear(h, h2_get_more(h));
        (void) h2_extra(h);
        check(h->extra == 0);
        return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct meaning whole, cut;
        size_t requests;

        if (size < 3)
                return 0;
        requests = (size - 3) * data[1] / 255;
        whole = understand(data[0] & 1, data[0] & 2, data + 3, requests, data + 3 + requests,
                           size - 3 - requests, 0);
        cut = understand(data[0] & 1, data[0] & 2, data + 3, requests, data + 3 + requests,
                         size - 3 - requests, data[2] + 1);
        check(memcmp(&whole, &cut, sizeof(whole)) == 0);
        return 0;
}
