/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which rows of top are on the screen: those that match the filter, as many as fit, around the selected
 * one. */

#include "util.h"

/* A part of a unit's name that a person types. */
#define TOP_FILTER_MAX 64U

typedef struct TopRows {
        char *selected;                         /* name of the unit; NULL: none */
        size_t first;                           /* row in the first line */
        char filter[TOP_FILTER_MAX + 1]; /* part of the name, or a pattern of the whole name; "": all */
        bool typing;                            /* keys are for the filter */
} TopRows;

void top_rows_done(TopRows *r);

bool top_rows_match(const TopRows *r, const char *unit);

/* Handles a key while the filter is typed. Returns whether it was one for the filter. */
bool top_rows_type(TopRows *r, int key);

/* Moves the selection to another one of n units. height: number of lines. Returns 0 if it is no key for
 * that. */
int top_rows_move(TopRows *r, const char *const *units, size_t n, size_t height, int key);

/* Determines the first of n rows for this number of lines. Returns the selected row; SIZE_MAX: none. */
size_t top_rows_place(TopRows *r, const char *const *units, size_t n, size_t height);

void top_rows_select_none(TopRows *r);
