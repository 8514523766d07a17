/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* HTTP/1 responses that need not be parsed, as they look like the previous one. Pure: compiled for BPF and
 * for the unit tests. */

#include "http1.h"

/* Shape of a response that was sent as a whole. The next response, if it has the same shape, ends with its
 * data and need not be parsed. Response heads of a server mostly differ in values of constant length (Date)
 * and in Content-Length, which is compared with the length of the data. */
struct http_shape {
        __u64 first[2];         /* its first bytes with the status, first one most significant */
        __u16 length_at;        /* position of the line with Content-Length; 0: no shape known */
        __u16 head;             /* length of the head without the digits of Content-Length */
        __u8 misses;            /* consecutive responses of another shape */
};

/* Consecutive responses of different shapes after which a connection is no longer examined */
#define HTTP_SHAPE_MISSES_MAX 16U

/* Length of the head, if the line is a Content-Length according to which the rest of bytes is the body,
 * otherwise 0. line: in words, beginning with the "\n" before it. ret_digits: number of digits of the
 * value. */
static inline __attribute__((always_inline)) __u32 http_shape_head(const __u64 line[3], __u32 bytes,
                                                                   __u32 *ret_digits) {
        __u32 number;

        *ret_digits = 0;
        if ((line[0] | HTTP_LOWER >> 8) != WORD_OF("\ncontent", 8) ||
            (line[1] | (HTTP_LOWER >> 8 & ~0xffULL)) != WORD_OF("-length:", 8) || line[2] >> 56 != ' ')
                return 0;
        *ret_digits = http_number_fast(line[2] << 8, &number);
        return *ret_digits > 0 && number < bytes ? bytes - number : 0;
}

/* Whether a response with these first bytes may have a body. */
static inline __attribute__((always_inline)) int http_shape_fits(const __u64 first[2]) {
        __u32 status = http_begins_with(first[0], first[1] >> 32);

        return status >= 200 && status < 400 && status != 204 && status != 304;
}
