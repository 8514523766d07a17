/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A table of aligned columns that fits itself to a width: first what may be shortened is shortened, then the columns
 * that matter least are left out. */

#include "terminal.h"

typedef struct Column {
        const char *header;
        bool right;             /* align to the right, as numbers */
        bool wrap;              /* only the last: continue in the next line what does not fit */
        unsigned minimum;       /* may be shortened down to so many columns; 0: never */
        unsigned rank;          /* the highest are left out first; 0: never */
} Column;

typedef struct Table Table;

/* columns must live as long as the table. */
Table* table_new(const Column *columns, size_t n_columns);
Table* table_free(Table *t);
static inline void table_freep(Table **t) {
        (void) table_free(*t);
}

/* The next cell, row by row; running out of memory is told by table_print(). */
void table_add(Table *t, Color color, const char *format, ...) _printf_(3, 4);
/* The next cell, of something that is not there. */
void table_add_absent(Table *t);
/* Draws attention to one column's header. */
void table_mark_column(Table *t, size_t column);

size_t table_rows(const Table *t);
/* Takes the rows away: those that come are printed below them, with columns that are at least as wide. */
void table_clear(Table *t);

/* With header as legend says; indent columns stay empty before each line. */
int table_print(Table *t, FILE *f, const Style *style, bool legend, unsigned indent);
