/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Responses of HTTP/1 that need not be parsed, as they look like the one before. Pure: compiled for BPF and
 * for the unit tests. */

#include "http1.h"

/* The shape of a response of which all was sent at once: the next one, if it has the same, ends where its
 * data ends, and need not be parsed. Heads of a server mostly differ in values of the same length (Date) and
 * in Content-Length, which is compared with the length of the data. */
struct http_shape {
        __u64 first[2];         /* its first bytes, the first one highest: they have the status */
        __u16 length_at;        /* place of the line with Content-Length; 0: no response had a shape */
        __u16 head;             /* length of the head without the digits of that value */
        __u8 misses;            /* responses in succession that had another shape */
};

/* A connection whose responses have other shapes each time is not examined any more */
#define HTTP_SHAPE_MISSES_MAX 16U

/* The length of the head, if this line says that the rest of so many bytes is the body; 0: it does not. The
 * line is in words, from the "\n" in front of it on. ret_digits: number of digits of its value. */
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

/* Whether a response with these first bytes has a body if its head says so. */
static inline __attribute__((always_inline)) int http_shape_fits(const __u64 first[2]) {
        __u32 status = http_begins_with(first[0], first[1] >> 32);

        return status >= 200 && status < 400 && status != 204 && status != 304;
}
