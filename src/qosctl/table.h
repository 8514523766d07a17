/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Table of aligned columns that adapts to a width: shortens columns that may be shortened, then omits the
 * least important ones. */

#include "terminal.h"

typedef struct Column {
        const char *header;
        bool right;             /* right-aligned, for numbers */
        bool wrap;              /* continue in the next line; last column only */
        unsigned minimum;       /* may be shortened to this width, further only if nothing more can be
                                 * omitted; 0: never */
        unsigned rank;          /* columns with the highest rank are omitted first; 0: never */
} Column;

typedef struct Table Table;

/* columns have to live as long as the table. */
Table* table_new(const Column *columns, size_t n_columns);
Table* table_free(Table *t);
static inline void table_freep(Table **t) {
        (void) table_free(*t);
}

/* Adds a cell, row by row. -ENOMEM is returned by table_print(). */
void table_add(Table *t, Color color, const char *format, ...) _printf_(3, 4);
/* Adds a cell for an absent value. */
void table_add_absent(Table *t);
/* Highlights the header of a column. */
void table_mark_column(Table *t, size_t column);

/* Prints a row in reverse video; SIZE_MAX: none. For terminals only. */
void table_mark_row(Table *t, size_t row);

size_t table_rows(const Table *t);
/* Removes the rows. Columns keep at least their widths, so that later rows are aligned with those
 * printed. */
void table_clear(Table *t);

/* Prints the table, with a header if legend is set, indented by indent columns. */
int table_print(Table *t, FILE *f, const Style *style, bool legend, unsigned indent);
