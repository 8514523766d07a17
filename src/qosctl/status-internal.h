/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parts of the status page. */

#include "snapshot-view.h"

#define SERVER "requests.server."
#define KEY_WIDTH 16

/* Appends to the current line. Nothing else may be printed before line_end(). */
void line_add(const char *format, ...) _printf_(1, 2);
/* Prints the current line, wrapped to the width of the terminal. Continuations are aligned with the text
 * after a key, or with an equal indentation. */
void line_end(void);
/* Begins a line with the aligned key; "": a continuation of the last one. */
void print_key(const char *key);
/* Prints a line with the key. */
void print_line(const char *key, const char *format, ...) _printf_(2, 3);

/* Whether tables begin at the left, as the terminal is too narrow for them beside their key, and the
 * indentation of tables. */
bool terminal_is_narrow(void);
unsigned table_indent(void);

/* Prints the line on unparsed connections of a role. path: path of their metrics. */
void print_unparsed(const Reading *r, const char *path, const char *quality);

/* Print paragraphs, or nothing if there is nothing to show. */
int reading_print_endpoints(const Reading *r);
int reading_print_peers(const Reading *r);
int reading_print_contention(const Reading *r);
int reading_print_storage(const Reading *r);
int reading_print_network(const Reading *r);
/* custom, costs: as in the reply to Get; costs may be NULL. */
int reading_print_custom(sd_json_variant *custom, sd_json_variant *costs);
/* What TCP counts: in short, or all of it. False: it is not measured. */
bool network_print(const Reading *r, bool all);
