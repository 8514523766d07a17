/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Formatting and parsing of values. The functions depend on their arguments and on the locale only. */

#include "util.h"

/* Buffer size for the format_…() functions. */
#define FORMAT_MAX 48U

/* Three significant digits: "327us", "1.18ms", "12.3s"; from one minute on as format_span(). */
char* format_duration(char buf[static FORMAT_MAX], uint64_t nsec);
/* The two largest units, as in systemd: "12min 3s", "3d 4h". */
char* format_span(char buf[static FORMAT_MAX], uint64_t nsec);
/* "10s", "60s", "5min", "total" (0). */
char* format_window(char buf[static FORMAT_MAX], uint64_t nsec);
/* "17", "15.1k", "3.40M". */
char* format_count(char buf[static FORMAT_MAX], uint64_t n);
/* "0/s", "0.40/s", "15.1k/s"; "-" for NaN. */
char* format_rate(char buf[static FORMAT_MAX], double per_second);
/* Powers of 1024, as in systemd: "512B", "3.2K", "1.5M". */
char* format_bytes(char buf[static FORMAT_MAX], uint64_t bytes);
/* "0.4%", "<0.1%", "31.0%"; "-" for NaN. */
char* format_percent(char buf[static FORMAT_MAX], double share);
/* The shortest decimal number that is parsed to the same double. */
char* format_real(char buf[static FORMAT_MAX], double value);
/* "Fri 2025-11-21 01:36:07 UTC", in local time. */
char* format_timestamp(char buf[static FORMAT_MAX], uint64_t nsec);

/* "09:15:20", or "Fri 09:15:20" if not today, in local time. */
char* format_time(char buf[static FORMAT_MAX], uint64_t nsec, uint64_t now);

/* Time spans of systemd ("10min", "1h 30min", "500ms"; a plain number is in seconds), in nanoseconds. */
int parse_span(const char *s, uint64_t *ret_nsec);
/* A time span other than 0, or "total" for 0. */
int parse_window(const char *s, uint64_t *ret_nsec);

/* A time in the past as CLOCK_REALTIME: relative ("10min", "2h ago", "-90s"), "today", "yesterday", "now",
 * "09:00", "09:00:30", "2025-11-21", date and time, "@1763683200". -ERANGE: in the future. */
int parse_since(const char *s, uint64_t now, uint64_t *ret_nsec);

/* Columns of s on a terminal. */
size_t text_width(const char *s);
/* Escapes characters that control the terminal ("\x1b") or are missing in its character set ("?"). */
char* text_clean(const char *s, bool utf8);
/* Shortens s to width columns with an ellipsis in the middle, which keeps the suffix of a unit. */
char* text_ellipsize(const char *s, size_t width, bool utf8);
/* Length of the longest prefix of s that fits into width columns and ends at a word boundary. Sequences of
 * colors have no width. */
size_t text_wrap(const char *s, size_t width);
/* A bar that fills a share of width columns. */
char* text_bar(double share, size_t width, bool utf8);
