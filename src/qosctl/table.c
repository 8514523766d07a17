/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdarg.h>

#include "table.h"
#include "value.h"

/* Limit of cells, far above any table of 256 units or some hundred metrics. */
#define CELLS_MAX (1024U * 1024U)

typedef struct Cell {
        char *text;
        Color color;
} Cell;

struct Table {
        const Column *columns;
        size_t n_columns;
        Cell *cells;
        size_t n_cells, n_allocated;
        size_t marked, marked_row;
        size_t *widths;                 /* required widths of all rows printed so far */
        bool failed;
};

Table* table_new(const Column *columns, size_t n_columns) {
        Table *t;

        assert(n_columns > 0);

        t = new0(Table, 1);
        if (!t)
                return NULL;
        t->widths = new0(size_t, n_columns);
        if (!t->widths) {
                free(t);
                return NULL;
        }

        t->columns = columns;
        t->n_columns = n_columns;
        t->marked = t->marked_row = SIZE_MAX;
        return t;
}

Table* table_free(Table *t) {
        if (!t)
                return NULL;

        table_clear(t);
        free(t->cells);
        free(t->widths);
        free(t);
        return NULL;
}

void table_add(Table *t, Color color, const char *format, ...) {
        _cleanup_free_ char *s = NULL;
        va_list ap;
        int r;

        if (t->n_cells == t->n_allocated) {
                size_t n = MAX(t->n_allocated * 2, (size_t) 64);
                Cell *cells = n > CELLS_MAX ? NULL : reallocarray(t->cells, n, sizeof(Cell));

                if (!cells) {
                        t->failed = true;
                        return;
                }
                t->cells = cells;
                t->n_allocated = n;
        }

        va_start(ap, format);
        r = vasprintf(&s, format, ap);
        va_end(ap);
        if (r < 0) {
                s = NULL;
                t->failed = true;
                return;
        }

        t->cells[t->n_cells++] = (Cell) {
                .text = TAKE_PTR(s),
                .color = color,
        };
}

void table_add_absent(Table *t) {
        table_add(t, COLOR_GREY, "-");
}

void table_add_number(Table *t, sd_json_variant *object, const char *field,
                      char* (*format)(char buf[static FORMAT_MAX], uint64_t)) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(object, field, &n))
                table_add(t, COLOR_NONE, "%s", format(buf, n));
        else
                table_add_absent(t);
}

void table_mark_column(Table *t, size_t column) {
        t->marked = column;
}

void table_mark_row(Table *t, size_t row) {
        t->marked_row = row;
}

size_t table_rows(const Table *t) {
        return t->n_cells / t->n_columns;
}

void table_clear(Table *t) {
        for (size_t i = 0; i < t->n_cells; i++)
                free(t->cells[i].text);
        t->n_cells = 0;
}

/* Minimum width of columns that may be shortened, if no further column can be omitted. */
#define WIDTH_LEAST 8U

static size_t least_width(const Column *c) {
        return MAX(text_width(c->header), (size_t) WIDTH_LEAST);
}

/* Determines the widths of columns, so that the table fits into the limit (0: none). Omitted columns have
 * width 0. */
static void table_layout(Table *t, char *const *texts, size_t limit, size_t *widths) {
        for (size_t c = 0; c < t->n_columns; c++)
                widths[c] = MAX(text_width(t->columns[c].header), t->widths[c]);
        for (size_t i = 0; i < t->n_cells; i++)
                widths[i % t->n_columns] = MAX(widths[i % t->n_columns], text_width(texts[i]));

        memcpy(t->widths, widths, t->n_columns * sizeof(size_t));

        if (limit == 0)
                return;

        for (;;) {
                size_t need = 0, most = 0, drop = SIZE_MAX, shrink = SIZE_MAX, squeeze = SIZE_MAX;

                for (size_t c = 0; c < t->n_columns; c++) {
                        unsigned minimum = t->columns[c].minimum;

                        if (widths[c] == 0)
                                continue;
                        need += (need > 0) + (minimum > 0 ? MIN(widths[c], (size_t) minimum) : widths[c]);
                        most += (most > 0) + widths[c];
                        if (t->columns[c].rank > 0 &&
                            (drop == SIZE_MAX || t->columns[c].rank >= t->columns[drop].rank))
                                drop = c;
                        if (minimum > 0 && widths[c] > minimum &&
                            (shrink == SIZE_MAX || widths[c] > widths[shrink]))
                                shrink = c;
                        if (minimum > 0 && widths[c] > least_width(t->columns + c) &&
                            (squeeze == SIZE_MAX || widths[c] > widths[squeeze]))
                                squeeze = c;
                }

                if (most <= limit)
                        return;
                if (need > limit && drop != SIZE_MAX)
                        widths[drop] = 0;
                else if (shrink != SIZE_MAX)
                        widths[shrink] -= MIN(most - limit, widths[shrink] - t->columns[shrink].minimum);
                else if (squeeze != SIZE_MAX)
                        widths[squeeze] -= MIN(most - limit,
                                               widths[squeeze] - least_width(t->columns + squeeze));
                else
                        return;
        }
}

static void print_spaces(FILE *f, size_t n) {
        (void) fprintf(f, "%*s", (int) n, "");
}

typedef struct Layout {
        char **texts;                   /* texts of all cells, escaped */
        size_t *widths;                 /* widths of all columns; 0: omitted */
        unsigned indent;
} Layout;

/* Prints a row, which may take several lines if the last column wraps. row: SIZE_MAX for the header. */
static void table_print_line(const Table *t, const Layout *layout, FILE *f, const Style *style, size_t row) {
        bool reverse = row != SIZE_MAX && row == t->marked_row;
        const size_t *widths = layout->widths;
        size_t last = 0, before = 0;
        const char *rest = NULL;

        for (size_t c = 0; c < t->n_columns; c++)
                if (widths[c] > 0)
                        last = c;

        if (reverse)
                (void) fputs("\x1b[7m", f);
        print_spaces(f, layout->indent);
        for (size_t c = 0; c <= last; c++) {
                const Cell *cell = row == SIZE_MAX ? NULL : t->cells + row * t->n_columns + c;
                Color color = reverse        ? COLOR_NONE :
                              cell           ? cell->color :
                              c == t->marked ? COLOR_UNDERLINE_BOLD :
                                               COLOR_UNDERLINE;
                const char *text = cell ? layout->texts[row * t->n_columns + c] : t->columns[c].header;
                _cleanup_free_ char *fitting = NULL;
                size_t w;

                if (widths[c] == 0)
                        continue;

                if (c == last && t->columns[c].wrap && text_width(text) > widths[c]) {
                        size_t n = text_wrap(text, widths[c]);

                        fitting = strndup(text, n);
                        rest = text + n + strspn(text + n, " ");
                } else
                        fitting = text_ellipsize(text, widths[c], style->utf8);
                text = strempty(fitting);
                w = text_width(text);
                w = widths[c] > w ? widths[c] - w : 0;

                /* The underline includes spaces in the header, but the color of a cell does not */
                if (!cell)
                        (void) fputs(color_on(style, color), f);
                if (before > 0)
                        print_spaces(f, 1);
                if (t->columns[c].right)
                        print_spaces(f, w);
                if (cell)
                        (void) fputs(color_on(style, color), f);
                (void) fputs(text, f);
                if (cell && color != COLOR_NONE)
                        (void) fputs(color_off(style), f);
                if (!t->columns[c].right && (c < last || reverse || (!cell && style->colors)))
                        print_spaces(f, w);
                if (!cell)
                        (void) fputs(color_off(style), f);
                before += (before > 0) + widths[c];
        }
        (void) fputs(reverse ? "\x1b[0m\n" : "\n", f);

        while (rest && *rest) {
                size_t n = text_wrap(rest, widths[last]);

                print_spaces(f, layout->indent + before - widths[last]);
                (void) fprintf(f, "%s%.*s%s\n", color_on(style, t->cells[row * t->n_columns + last].color),
                               (int) n, rest, color_off(style));
                rest += n;
                rest += strspn(rest, " ");
        }
}

int table_print(Table *t, FILE *f, const Style *style, bool legend, unsigned indent) {
        _cleanup_free_ size_t *widths = NULL;
        _cleanup_free_ char **texts = NULL;
        Layout layout;
        int r = -ENOMEM;

        if (t->failed)
                return -ENOMEM;
        assert(t->n_cells % t->n_columns == 0);

        widths = new0(size_t, t->n_columns);
        texts = new0(char*, t->n_cells);
        if (!widths || !texts)
                return -ENOMEM;

        for (size_t i = 0; i < t->n_cells; i++) {
                texts[i] = text_clean(t->cells[i].text, style->utf8);
                if (!texts[i])
                        goto finish;
        }

        table_layout(t, texts, style->width > indent ? style->width - indent : style->width, widths);

        layout = (Layout) { .texts = texts, .widths = widths, .indent = indent };
        for (size_t row = legend ? SIZE_MAX : 0; row == SIZE_MAX || row < table_rows(t); row++)
                table_print_line(t, &layout, f, style, row);
        r = 0;

finish:
        for (size_t i = 0; i < t->n_cells; i++)
                free(texts[i]);
        return r;
}
