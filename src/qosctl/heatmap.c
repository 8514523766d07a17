/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "format.h"
#include "heatmap.h"
#include "heatmap-grid.h"
#include "value.h"

/* Appearance of the levels. */
static const struct {
        const char *utf8, *ascii;
        Color color;
} shades[HEATMAP_SHADES] = {
        { "\xc2\xb7",     ".", COLOR_GREY   },
        { "\xe2\x96\x91", ":", COLOR_GREEN  },
        { "\xe2\x96\x92", "+", COLOR_GREEN  },
        { "\xe2\x96\x93", "*", COLOR_YELLOW },
        { "\xe2\x96\x88", "#", COLOR_RED    },
};

static void print_cell(FILE *f, const Style *style, bool plain, size_t times, Color color,
                       const char *text) {
        (void) fputs(plain ? "" : color_on(style, color), f);
        for (size_t i = 0; i < times; i++)
                (void) fputs(text, f);
        (void) fputs(plain || color == COLOR_NONE ? "" : color_off(style), f);
}

static const char* shade_text(const Style *style, bool plain, size_t i) {
        return plain || !style->utf8 ? shades[i].ascii : shades[i].utf8;
}

/* Prints times below some of the columns. */
static void print_axis(FILE *f, const Heatmap *h, uint64_t now, size_t indent) {
        size_t at = 0, width = h->columns * h->step_columns;

        if (h->slots == 0)
                return;

        for (size_t column = 0; column < h->columns; column++) {
                size_t begin = column * h->step_columns, l;
                char buf[FORMAT_MAX];

                if (begin > 0 && begin < at + 3)
                        continue;
                /* Depends on the locale */
                l = text_width(format_time(buf, h->begin + column * h->per_column * h->step, now));
                if (begin > 0 && begin + l > width)
                        break;
                (void) fprintf(f, "%*s%s", (int) (begin - at + (begin == 0 ? indent : 0)), "", buf);
                at = begin + l;
        }
        (void) fputc('\n', f);
}

int heatmap_print(const Style *style, bool plain, sd_json_variant *reply, const char *metric, uint64_t now,
                  bool legend) {
        sd_json_variant *steps = value_find(reply, "steps");
        size_t width = style->width > 0 ? style->width : 80;
        const char *unit = value_string(reply, "unit");
        _cleanup_(heatmap_done) Heatmap h = {};
        char a[FORMAT_MAX], b[FORMAT_MAX], c[FORMAT_MAX];
        uint64_t total = 0, step;
        bool gaps = false;
        int r;

        if (!steps || !sd_json_variant_is_array(steps) || !value_unsigned(reply, "step", &step) || step == 0)
                return -EBADMSG;
        if (sd_json_variant_elements(steps) == 0) {
                if (legend)
                        (void) printf("No complete step of %s is recorded for this period.\n",
                                      format_window(a, step));
                return 0;
        }

        /* Space for "   1.05ms " and "   15.1k" */
        r = heatmap_make(steps, metric, step, width > 18 + 20 ? width - 18 : 20, &h);
        if (r < 0)
                return r;
        for (size_t i = 0; i < h.rows * h.columns; i++)
                total += h.cells[i];

        if (legend)
                (void) printf("%s%s%s of %s: %s since %s, steps of %s\n\n", color_on(style, COLOR_BOLD),
                              metric, color_off(style), unit ?: "?", format_count(a, total),
                              format_time(b, h.begin, now), format_window(c, step));

        if (legend && h.rows > 0)
                (void) printf("%9s %*s %7s\n", "UP TO", (int) (h.columns * h.step_columns), "", "COUNT");
        for (size_t row = 0; row < h.rows; row++) {
                uint64_t bound = heatmap_get_bound(&h, row), sum = 0;

                (void) printf("%9s ", bound == UINT64_MAX ? "longer" : format_duration(a, bound));
                for (size_t column = 0; column < h.columns; column++) {
                        unsigned shade = heatmap_get_shade(&h, row, column);

                        sum += h.cells[row * h.columns + column];
                        if (!h.observed[column]) {
                                gaps = true;
                                print_cell(stdout, style, plain, h.step_columns, COLOR_GREY, "/");
                                continue;
                        }
                        if (shade == 0) {
                                print_cell(stdout, style, plain, h.step_columns, COLOR_NONE, " ");
                                continue;
                        }
                        print_cell(stdout, style, plain, h.step_columns, shades[shade - 1].color,
                                   shade_text(style, plain, shade - 1));
                }
                (void) printf(" %7s\n", format_count(a, sum));
        }
        print_axis(stdout, &h, now, 10);

        if (legend && h.rows > 0) {
                (void) printf("\nShare of requests per column:");
                for (size_t i = 0; i < ELEMENTSOF(shades); i++) {
                        (void) putchar(' ');
                        print_cell(stdout, style, plain, 1, shades[i].color, shade_text(style, plain, i));
                        (void) printf(" %s", heatmap_shade_to_string((unsigned) i + 1));
                }
                (void) printf("%s\n", gaps ? ", / not observed" : "");
        }
        return 0;
}
