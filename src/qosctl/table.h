/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Tables of aligned columns that adapt to the width of the terminal: columns are shortened if possible, and
 * the least important ones are omitted. */

#include <systemd/sd-json.h>

#include "format.h"
#include "terminal.h"

typedef struct Column {
        const char *header;
        bool right;             /* whether it is right-aligned, for numbers */
        bool wrap;              /* whether text continues in the next line; last column only */
        unsigned minimum;       /* width to which it may be shortened, further only if no other column can be
                                 * omitted; 0: never shortened */
        unsigned rank;          /* order of omission, the highest rank first; 0: never omitted */
} Column;

typedef struct Table Table;

/* columns has to be valid as long as the table. NULL: out of memory. */
Table* table_new(const Column *columns, size_t n_columns);
Table* table_free(Table *t);
static inline void table_freep(Table **t) {
        (void) table_free(*t);
}

/* Adds the next cell, in row-major order. Errors are returned by table_print(). */
void table_add(Table *t, Color color, const char *format, ...) _printf_(3, 4);
/* Adds a cell for an absent value. */
void table_add_absent(Table *t);
/* Adds a field of an object as text; without it, a cell for an absent value. */
void table_add_number(Table *t, sd_json_variant *object, const char *field,
                      char* (*format)(char buf[static FORMAT_MAX], uint64_t));
/* Highlights the header of a column. */
void table_mark_column(Table *t, size_t column);

/* Prints a row in reverse video; SIZE_MAX: none. For terminals only. */
void table_mark_row(Table *t, size_t row);

size_t table_rows(const Table *t);
/* Removes the rows, but keeps the widths of columns, so that later rows are aligned with those that were
 * printed. */
void table_clear(Table *t);

/* Prints the table, with a header if legend is set, indented by indent columns. Returns -ENOMEM. */
int table_print(Table *t, FILE *f, const Style *style, bool legend, unsigned indent);
