/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fnmatch.h>

#include "screen.h"
#include "top-rows.h"

void top_rows_select_none(TopRows *r) {
        free(r->selected);
        r->selected = NULL;
        r->first = 0;
}

void top_rows_done(TopRows *r) {
        top_rows_select_none(r);
}

bool top_rows_match(const TopRows *r, const char *unit) {
        if (strpbrk(r->filter, "*?["))
                return fnmatch(r->filter, unit, 0) == 0;
        return strstr(unit, r->filter);
}

bool top_rows_type(TopRows *r, int key) {
        size_t l = strlen(r->filter);

        if (!r->typing)
                return false;

        if (key == '\r' || key == '\n')
                r->typing = false;
        else if (key == KEY_ESCAPE) {
                r->typing = false;
                r->filter[0] = 0;
        } else if (key == KEY_BACKSPACE)
                r->filter[l > 0 ? l - 1 : 0] = 0;
        /* Names of units are ASCII */
        else if (key > ' ' && key < 0x7f && l < TOP_FILTER_MAX) {
                r->filter[l] = (char) key;
                r->filter[l + 1] = 0;
        } else
                return false;
        return true;
}

static size_t find_selected(const TopRows *r, const char *const *units, size_t n) {
        for (size_t i = 0; r->selected && i < n; i++)
                if (streq(units[i], r->selected))
                        return i;
        return SIZE_MAX;
}

int top_rows_move(TopRows *r, const char *const *units, size_t n, size_t height, int key) {
        size_t at = find_selected(r, units, n), page = MAX(height, (size_t) 1);
        char *copy;

        if (key < KEY_UP || key > KEY_END)
                return 0;
        if (n == 0)
                return 1;

        switch (key) {

        case KEY_UP:
                at = at == SIZE_MAX ? r->first : at - MIN(at, (size_t) 1);
                break;
        case KEY_DOWN:
                at = at == SIZE_MAX ? r->first : at + 1;
                break;
        case KEY_PAGE_UP:
                at = at == SIZE_MAX ? r->first : at;
                at -= MIN(at, page);
                break;
        case KEY_PAGE_DOWN:
                at = (at == SIZE_MAX ? r->first : at) + page;
                break;
        case KEY_HOME:
                at = 0;
                break;
        default:
                at = n - 1;
        }
        at = MIN(at, n - 1);

        copy = strdup(units[at]);
        if (!copy)
                return -ENOMEM;
        free(r->selected);
        r->selected = copy;
        return 1;
}

size_t top_rows_place(TopRows *r, const char *const *units, size_t n, size_t height) {
        size_t at = find_selected(r, units, n);

        r->first = MIN(r->first, n > height ? n - height : 0);
        if (at != SIZE_MAX && at < r->first)
                r->first = at;
        if (at != SIZE_MAX && at - r->first >= height)
                r->first = at - height + 1;
        return at;
}
