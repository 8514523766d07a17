/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Rows of top: filter, selection and scrolling. */

#include "util.h"

/* Maximum length of a filter. */
#define TOP_FILTER_MAX 64U

typedef struct TopRows {
        char *selected;                         /* name of the selected unit; NULL: none */
        size_t first;                           /* index of the row in the first line */
        char filter[TOP_FILTER_MAX + 1]; /* part of the name, or a glob pattern; "": all */
        bool typing;                            /* whether keys are appended to the filter */
} TopRows;

void top_rows_done(TopRows *r);

bool top_rows_match(const TopRows *r, const char *unit);

/* Handles a key while the filter is typed. Returns whether the key was handled. */
bool top_rows_type(TopRows *r, int key);

/* Moves the selection within n units. height: number of lines. Returns 1, 0 if the key does not move the
 * selection, or -ENOMEM. */
int top_rows_move(TopRows *r, const char *const *units, size_t n, size_t height, int key);

/* Updates first so that the selected row is visible in height lines. Returns the index of the selected row;
 * SIZE_MAX: none. */
size_t top_rows_place(TopRows *r, const char *const *units, size_t n, size_t height);

void top_rows_select_none(TopRows *r);
