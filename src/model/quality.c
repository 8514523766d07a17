/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The quality of request metrics: how much of a window was parsed, and which metrics are absent
 * otherwise. */

#include <math.h>

#include "window-internal.h"

const char* quality_to_string(Quality q) {
        static const char *const table[_QUALITY_MAX] = {
                [QUALITY_EXACT]       = "exact",
                [QUALITY_EXCHANGES]   = "exchanges",
                [QUALITY_PARTIAL]     = "partial",
                [QUALITY_OVERLAPPING] = "overlapping",
        };

        return table[q];
}

/* Maximum percentage of requests, or of bytes, on unparsed connections. Above it, quality is partial. */
#define UNPARSED_PERCENT 1

bool window_is_overlapping(uint64_t overlaps, uint64_t count, uint64_t known) {
        return known == 0 && overlaps > count;
}

uint64_t window_count_known(const WindowReading *reading) {
        uint64_t known = 0;

        for (enum qos_counter i = QOS_COUNTER_HTTP1; i <= QOS_COUNTER_TLS; i++)
                known += reading->cells[i];
        return known;
}

bool window_reading_is_overlapping(const WindowReading *reading) {
        return window_is_overlapping(reading->cells[QOS_COUNTER_OVERLAPS], reading->cells[QOS_COUNTER_COUNT],
                                     window_count_known(reading));
}

uint64_t window_get_bytes_in(const WindowReading *reading) {
        return reading->sums[QOS_SUM_BYTES_IN] + reading->sums[QOS_SUM_UNPARSED_IN];
}

uint64_t window_get_bytes_out(const WindowReading *reading) {
        return reading->sums[QOS_SUM_BYTES_OUT] + reading->sums[QOS_SUM_UNPARSED_OUT];
}

bool window_is_incomplete(const WindowReading *reading) {
        return reading->cells[QOS_COUNTER_MISSED] > 0 || reading->cells[QOS_COUNTER_DROPS] > 0;
}

static bool is_some(uint64_t n) {
        return n != ABSENT && n > 0;
}

double unparsed_get_share(uint64_t unparsed, uint64_t bytes_in, uint64_t bytes_out) {
        uint64_t bytes = bytes_in + bytes_out;

        if (unparsed == ABSENT || bytes_in == ABSENT || bytes_out == ABSENT)
                return NAN;
        return bytes > 0 ? fmin((double) unparsed / (double) bytes, 1) : 0;
}

bool unparsed_is_partial(uint64_t overlaps, uint64_t count, double share) {
        return overlaps * 100 > count * UNPARSED_PERCENT || share * 100 > UNPARSED_PERCENT;
}

void window_classify(uint64_t overlaps, bool incomplete, Requests *requests) {
        Server *s = &requests->server;
        uint64_t *const plain[] = { &s->protocol_tls, &s->protocol_unix, &s->protocol_udp };
        uint64_t *const others[] = {
                &s->count, &s->protocol_tcp, &s->blocking, &s->intended.count,
                        &s->intended.latency, &s->streams, &s->status4xx, &s->status_unknown,
                        &s->errors_status5xx, &s->errors_grpc, &s->errors_replies,
        };
        bool unknown = is_some(s->status_unknown);
        uint64_t n = 0, m = 0;

        s->unparsed.share = unparsed_get_share(s->unparsed.bytes, s->bytes_in, s->bytes_out);

        if (unknown ||
            !(is_some(s->parsed[PARSED(HTTP1)]) || is_some(s->parsed[PARSED(HTTP2)]) ||
              is_some(s->parsed[PARSED(GRPC)])))
                s->status4xx = s->errors_status5xx = ABSENT;
        if (unknown || !is_some(s->parsed[PARSED(GRPC)]))
                s->errors_grpc = ABSENT;
        if (!is_some(s->parsed[PARSED(REDIS)]) && !is_some(s->parsed[PARSED(MEMCACHED)]))
                s->errors_replies = ABSENT;

        if (s->count == ABSENT) {
                requests->quality = QUALITY_ABSENT;
                s->protocol_tcp = ABSENT;
                return;
        }

        for (size_t i = 0; i < PARSED_PROTOCOLS; i++)
                if (s->parsed[i] != ABSENT)
                        n += s->parsed[i];
        for (size_t i = 0; i < ELEMENTSOF(plain); i++)
                if (*plain[i] != ABSENT)
                        m += *plain[i];
        s->protocol_tcp = s->count - MIN(n + m, s->count);
        /* Whether these are HTTP/2 or gRPC is unknown as well */
        if (unknown)
                s->parsed[PARSED(HTTP2)] = s->parsed[PARSED(GRPC)] = ABSENT;

        if (!window_is_overlapping(overlaps, s->count,
                                   n + (s->protocol_tls != ABSENT ? s->protocol_tls : 0))) {
                if (unparsed_is_partial(overlaps, s->count, s->unparsed.share))
                        requests->quality = QUALITY_PARTIAL;
                else if (s->count == 0 && !incomplete)
                        requests->quality = QUALITY_ABSENT; /* no requests to assume anything about */
                else
                        requests->quality = n >= s->count && !incomplete ? QUALITY_EXACT : QUALITY_EXCHANGES;
                return;
        }
        requests->quality = QUALITY_OVERLAPPING;
        for (size_t i = 0; i < PARSED_PROTOCOLS; i++)
                s->parsed[i] = ABSENT;
        for (size_t i = 0; i < ELEMENTSOF(plain); i++)
                *plain[i] = ABSENT;
        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                *others[i] = ABSENT;
}
