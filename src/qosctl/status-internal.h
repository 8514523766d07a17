/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parts of the status page. */

#include "snapshot-view.h"

#define SERVER "requests.server."
#define KEY_WIDTH 16

/* Adds to the line that is being composed. Nothing else may print before line_end(). */
void line_add(const char *format, ...) _printf_(1, 2);
/* Prints the line. What is behind a key, or indented as if it were, continues there on a narrow terminal. */
void line_end(void);
/* Begins a line with the key, aligned; "": a continuation of the last one. */
void print_key(const char *key);
/* A whole line. */
void print_line(const char *key, const char *format, ...) _printf_(2, 3);

/* Whether tables have more columns below their key than behind it, and where they begin. */
bool terminal_is_narrow(void);
unsigned table_indent(void);

/* The line on unparsed connections of a role, by the path of their metrics. */
void print_unparsed(const Reading *r, const char *path, const char *quality);

/* Paragraphs; nothing if there is nothing to show. */
int reading_print_endpoints(const Reading *r);
int reading_print_peers(const Reading *r);
int reading_print_contention(const Reading *r);
int reading_print_storage(const Reading *r);
