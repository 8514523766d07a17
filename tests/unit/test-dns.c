/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parser of DNS over TCP (bpf/protocols/dns.h): queries, and responses in any order, which belong to the
 * query with their ID. */

#include "util-pipeline.h"

#define MESSAGE_SIZE 40U

/* Writes a message with its length in front. Returns its end. */
static uint8_t* message(uint8_t *at, unsigned id, bool response) {
        const uint8_t head[] = {
                0, MESSAGE_SIZE - 2, (uint8_t) (id >> 8), (uint8_t) id, response ? 0x81 : 1,
                response ? 0x80 : 0x20, 0, 1,
        };

        memset(at, 0xff, MESSAGE_SIZE);
        memcpy(at, head, sizeof(head));
        return at + MESSAGE_SIZE;
}

static uint32_t detect(const char *data, size_t size) {
        uint64_t bytes = 0;

        memcpy(&bytes, data, MIN(size, sizeof(bytes)));
        return protocol_detect(bytes, (uint32_t) size);
}

#define DETECT(data) detect(data, sizeof(data) - 1)

static void test_detect(void) {
        check(DETECT("\0\x1d\x12\x34\1\x20\0\1") == PROTOCOL_DNS);
        /* A notification, an update, with DNSSEC; the shortest and the longest query */
        check(DETECT("\0\x1d\x12\x34\x20\0\0\1") == PROTOCOL_DNS);
        check(DETECT("\0\x1d\x12\x34\x28\0\0\1") == PROTOCOL_DNS);
        check(DETECT("\0\x1d\x12\x34\1\x10\0\1") == PROTOCOL_DNS);
        check(DETECT("\0\x11\x12\x34\1\0\0\1") == PROTOCOL_DNS);
        check(DETECT("\x10\0\x12\x34\1\0\0\1") == PROTOCOL_DNS);
        check(DETECT("\0\x10\x12\x34\1\0\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\x10\1\x12\x34\1\0\0\1") == PROTOCOL_PLAIN);
        /* Cut, a response, another opcode, truncated, an error, the bit that must be zero, no query, two */
        check(DETECT("\0\x1d\x12\x34\1\x20\0") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\x81\x20\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\x31\x20\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\3\x20\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\1\2\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\1\x40\0\1") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\1\x20\0\0") == PROTOCOL_PLAIN);
        check(DETECT("\0\x1d\x12\x34\1\x20\0\2") == PROTOCOL_PLAIN);
}

/* n queries with the IDs from first on, which arrive at these times; in pieces of that size. */
static void request(struct pipeline *t, unsigned first, unsigned n, uint64_t at, size_t piece) {
        struct arrival_times times = { .came_at = at };
        uint8_t bytes[16 * MESSAGE_SIZE], *end = bytes;
        struct parsed_chunk chunk = {};

        for (unsigned i = 0; i < n; i++)
                end = message(end, first + i, false);
        for (uint8_t *p = bytes; p < end; p += MIN(piece, (size_t) (end - p)))
                pipeline_feed_requests(t, &chunk, (char*) p, MIN(piece, (size_t) (end - p)), &times, 0);
        pipeline_read(t, at + 1);
        check(!chunk.lost);
}

/* A response, in pieces of that size. Returns when its query has arrived; 0: there is none. */
static uint64_t respond(struct pipeline *t, unsigned id, size_t piece) {
        uint8_t bytes[MESSAGE_SIZE], *end = message(bytes, id, true);
        struct pipeline_batch g;
        uint64_t at = 0;

        for (uint8_t *p = bytes; p < end; p += MIN(piece, (size_t) (end - p))) {
                struct parsed_chunk chunk = {};

                pipeline_feed_responses(t, &chunk, (char*) p, MIN(piece, (size_t) (end - p)));
                check(!chunk.lost && chunk.begun <= 1);
                if (pipeline_responses(t, &chunk, true) == 1 && pipeline_complete(t, 1, &g) == 1)
                        at = g.first_at;
        }
        check(!(t->flags & PIPELINE_RESPONDING));
        return at;
}

static void test_any_order(size_t piece) {
        struct pipeline t = {};

        pipeline_begin(&t, PROTOCOL_DNS, 0, 0);
        for (unsigned i = 0; i < 8; i++)
                request(&t, 100 + i, 1, 10 * (i + 1), piece);
        check(t.pending == 8 && pipeline_oldest(&t) == 10);
        check(respond(&t, 103, piece) == 40);
        check(respond(&t, 107, piece) == 80);
        check(respond(&t, 100, piece) == 10);
        check(t.pending == 5 && pipeline_oldest(&t) == 20 && t.oldest_at == 20);

        /* Twice, with an ID that none has, which is that to the oldest, and with one that was used before */
        check(respond(&t, 100, piece) == 0 && t.pending == 5);
        check(respond(&t, 500, piece) == 20 && respond(&t, 101, piece) == 30);
        request(&t, 100, 1, 90, piece);
        check(respond(&t, 100, piece) == 90 && respond(&t, 105, piece) == 60);
        check(respond(&t, 104, piece) == 50 && respond(&t, 106, piece) == 70);
        check(t.pending == 0 && respond(&t, 1, piece) == 0);
}

/* More than have times of their own. */
static void test_many(void) {
        struct pipeline t = {};
        unsigned n = 0;

        pipeline_begin(&t, PROTOCOL_DNS, 0, 0);
        for (unsigned i = 0; i < 4; i++)
                request(&t, 16 * i, 16, i + 1, 640);
        check(t.pending == 64 && t.n_groups == PIPELINE_BATCHES);
        for (unsigned i = 64; i-- > 0; )
                n += respond(&t, i, 640) != 0;
        check(n == 64 && t.pending == 0 && t.n_groups == 0);
}

/* All responses leave at once, those of a zone with them. */
static void test_transfer(void) {
        uint8_t bytes[6 * MESSAGE_SIZE], *end = bytes;
        struct parsed_chunk chunk = {};
        struct pipeline_batch g;
        struct pipeline t = {};

        pipeline_begin(&t, PROTOCOL_DNS, 0, 0);
        for (unsigned i = 0; i < 3; i++)
                request(&t, i, 1, i + 1, 1);
        for (unsigned i = 0; i < 4; i++)
                end = message(end, 1, true);
        end = message(end, 2, true);
        pipeline_feed_responses(&t, &chunk, (char*) bytes, (size_t) (end - bytes));
        check(!chunk.lost && pipeline_responses(&t, &chunk, true) == 2);
        check(pipeline_complete(&t, 2, &g) == 1 && pipeline_complete(&t, 1, &g) == 1 && t.pending == 1);
        check(respond(&t, 0, 7) == 1);
}

/* What is no DNS. */
static void test_lost(void) {
        struct arrival_times times = { .came_at = 1 };
        uint8_t bytes[MESSAGE_SIZE];
        struct parsed_chunk chunk = {};
        struct pipeline t = {};

        pipeline_begin(&t, PROTOCOL_DNS, 0, 0);
        message(bytes, 1, true);
        pipeline_feed_requests(&t, &chunk, (char*) bytes, MESSAGE_SIZE, &times, 0);
        check(chunk.lost && t.pending == 0);

        pipeline_begin(&t, PROTOCOL_DNS, 0, 0);
        request(&t, 1, 1, 1, 40);
        chunk = (struct parsed_chunk) {};
        message(bytes, 1, false);
        pipeline_feed_responses(&t, &chunk, (char*) bytes, MESSAGE_SIZE);
        check(chunk.lost && pipeline_has_lost_sync(&t, &chunk, 0));
}

int main(void) {
        static const size_t pieces[] = { 1, 2, 3, 7, 8, 9, 10, 39, 40 };

        test_detect();
        for (size_t i = 0; i < ELEMENTSOF(pieces); i++)
                test_any_order(pieces[i]);
        test_many();
        test_transfer();
        test_lost();
        return 0;
}
