/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Numbers and words as people read them. Pure: no terminal, no locale but what the caller says. */

#include "util.h"

/* Long enough for what any of the format_…() functions writes. */
#define FORMAT_MAX 48U

/* Three significant digits: "327us", "1.18ms", "12.3s"; from a minute on as format_span(). */
char* format_duration(char buf[static FORMAT_MAX], uint64_t nsec);
/* The two largest units, as systemd says how long ago something was: "12min 3s", "3d 4h". */
char* format_span(char buf[static FORMAT_MAX], uint64_t nsec);
/* "10s", "60s", "5min", "total" (0). */
char* format_window(char buf[static FORMAT_MAX], uint64_t nsec);
/* "17", "15.1k", "3.40M". */
char* format_count(char buf[static FORMAT_MAX], uint64_t n);
/* "0/s", "0.40/s", "15.1k/s"; "-" if it is no number. */
char* format_rate(char buf[static FORMAT_MAX], double per_second);
/* Powers of 1024, as systemd writes them: "512B", "3.2K", "1.5M". */
char* format_bytes(char buf[static FORMAT_MAX], uint64_t bytes);
/* "0.4%", "<0.1%", "31.0%"; "-" if it is no number. */
char* format_percent(char buf[static FORMAT_MAX], double share);
/* The shortest decimal number that reads back as the same double. */
char* format_real(char buf[static FORMAT_MAX], double value);
/* "Fri 2025-11-21 01:36:07 UTC", in the local time zone. */
char* format_timestamp(char buf[static FORMAT_MAX], uint64_t nsec);

/* "09:15:20", on another day than now "Fri 09:15:20", in the local time zone. */
char* format_time(char buf[static FORMAT_MAX], uint64_t nsec, uint64_t now);

/* systemd's time spans ("10min", "1h 30min", "500ms"; a plain number is seconds), in nanoseconds. */
int parse_span(const char *s, uint64_t *ret_nsec);
/* The same and more than 0, or "total", which is 0. */
int parse_window(const char *s, uint64_t *ret_nsec);

/* A moment that has passed, as CLOCK_REALTIME: how long ago it was ("10min", "2h ago", "-90s"), "today", "yesterday", "now",
 * "09:00", "09:00:30", "2025-11-21", that and a time, "@1763683200". -ERANGE: it has not passed yet. */
int parse_since(const char *s, uint64_t now, uint64_t *ret_nsec);

/* How many columns of a terminal s fills. */
size_t text_width(const char *s);
/* s, safe to be written to a terminal: what could control it, and what its character set does not have, is shown
 * as "\x1b" or "?". */
char* text_clean(const char *s, bool utf8);
/* s in at most width columns; what does not fit is left out in the middle, so that a unit's suffix stays. */
char* text_ellipsize(const char *s, size_t width, bool utf8);
/* The length of the longest start of s that fits into width columns and ends at a word. */
size_t text_wrap(const char *s, size_t width);
/* A bar that fills share of width columns. */
char* text_bar(double share, size_t width, bool utf8);
