/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Idioms of systemd that libsystemd does not export. */

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))

/* Value of an unknown number. */
#define ABSENT UINT64_MAX

#define NSEC_PER_USEC UINT64_C(1000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)
#define USEC_PER_MSEC UINT64_C(1000)
#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_INFINITY UINT64_MAX

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))

#define MIN(a, b)                                                               \
        ({                                                                      \
                __typeof__(a) _a = (a);                                         \
                __typeof__(b) _b = (b);                                         \
                _a < _b ? _a : _b;                                              \
        })

#define MAX(a, b)                                                               \
        ({                                                                      \
                __typeof__(a) _a = (a);                                         \
                __typeof__(b) _b = (b);                                         \
                _a > _b ? _a : _b;                                              \
        })

#define TAKE_GENERIC(var, type, nullvalue)                                      \
        ({                                                                      \
                type *_p = &(var);                                              \
                type _v = *_p;                                                  \
                *_p = nullvalue;                                                \
                _v;                                                             \
        })
#define TAKE_PTR(ptr) TAKE_GENERIC(ptr, __typeof__(ptr), NULL)
#define TAKE_FD(fd) TAKE_GENERIC(fd, int, -EBADF)

#define ASSERT_PTR(p)                                                           \
        ({                                                                      \
                __typeof__(p) _p = (p);                                         \
                assert(_p);                                                     \
                _p;                                                             \
        })

#define new0(t, n) ((t*) calloc((n) ?: 1, sizeof(t)))

/* FNV-1a by words, in four independent chains to hide the latency of the multiplication. */
static inline uint64_t hash_words(uint64_t h, const uint64_t *words, size_t n) {
        const uint64_t prime = UINT64_C(0x100000001b3);
        uint64_t chains[4] = { h, h + 1, h + 2, h + 3 };
        size_t i = 0;

        for (; i + 4 <= n; i += 4)
                for (unsigned k = 0; k < 4; k++)
                        chains[k] = (chains[k] ^ words[i + k]) * prime;
        for (; i < n; i++)
                chains[0] = (chains[0] ^ words[i]) * prime;
        for (unsigned k = 1; k < 4; k++)
                chains[0] = (chains[0] ^ chains[k]) * prime;
        return chains[0];
}

/* A quarter of each global limit is reserved for root, so that users cannot lock out the administrator. */
static inline unsigned limit_for_unprivileged(unsigned max) {
        return max - max / 4;
}

static inline uint64_t now_nsec(clockid_t clock) {
        struct timespec ts;

        (void) clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static inline uint64_t now_usec(clockid_t clock) {
        return now_nsec(clock) / NSEC_PER_USEC;
}

static inline void freep(void *p) {
        free(*(void**) p);
}
#define _cleanup_free_ _cleanup_(freep)

static inline int close_fd(int fd) {
        if (fd >= 0)
                (void) close(fd);
        return -EBADF;
}

static inline void closep(int *fd) {
        (void) close_fd(*fd);
}
#define _cleanup_close_ _cleanup_(closep)

static inline void fclosep(FILE **f) {
        if (*f)
                (void) fclose(*f);
}
#define _cleanup_fclose_ _cleanup_(fclosep)

static inline bool streq(const char *a, const char *b) {
        return strcmp(a, b) == 0;
}

static inline bool streq_ptr(const char *a, const char *b) {
        return a && b ? streq(a, b) : a == b;
}

static inline const char* startswith(const char *s, const char *prefix) {
        size_t l = strlen(prefix);

        return strncmp(s, prefix, l) == 0 ? s + l : NULL;
}

static inline const char* endswith(const char *s, const char *suffix) {
        size_t a = strlen(s), b = strlen(suffix);

        return a >= b && streq(s + a - b, suffix) ? s + a - b : NULL;
}

static inline void strv_free(char **l) {
        for (char **i = l; i && *i; i++)
                free(*i);
        free(l);
}

static inline void strv_freep(char ***l) {
        strv_free(*l);
}

static inline bool isempty(const char *s) {
        return !s || !*s;
}

/* Limit of input that is repeated in error messages, in bytes. Truncated at a UTF-8 character, as the buses
 * reject invalid strings. */
#define EXCERPT_MAX 100

static inline const char* excerpt(const char *s, char buffer[static EXCERPT_MAX + 1]) {
        size_t n = strnlen(s, EXCERPT_MAX + 1);

        if (n <= EXCERPT_MAX)
                return s;
        for (n = EXCERPT_MAX; n > 0 && (s[n] & 0xc0) == 0x80; n--)
                ;
        memcpy(buffer, s, n);
        buffer[n] = 0;
        return buffer;
}

static inline const char* strempty(const char *s) {
        return s ?: "";
}

/* Replaces *p by a copy of s (may be NULL); unchanged on -ENOMEM. */
static inline int free_and_strdup(char **p, const char *s) {
        char *t = NULL;

        if (s) {
                t = strdup(s);
                if (!t)
                        return -ENOMEM;
        }

        free(*p);
        *p = t;
        return 0;
}

/* As in systemd: a negative errno, even if errno is not set. */
static inline int errno_or_else(int fallback) {
        return errno > 0 ? -errno : -abs(fallback);
}
