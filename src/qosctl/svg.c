/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <time.h>

#include "format.h"
#include "svg.h"

/* Space around a chart, for its title and the labels of the axes. */
#define LEFT 76.0
#define RIGHT 12.0
#define TOP 44.0
#define BOTTOM 26.0
/* Labels at the axes, at most. */
#define TICKS_X 9U
#define TICKS_Y 5U
/* Approximate width of a character of the legend. */
#define CHARACTER 6.6

/* After Okabe and Ito, distinguishable also by the color-blind. */
static const char *const colors[SVG_COLORS][2] = { /* on light and dark backgrounds */
        { "#0072b2", "#4aa8e0" },
        { "#d55e00", "#f08a3c" },
        { "#009e73", "#2cc79b" },
        { "#cc79a7", "#e09cc2" },
        { "#56b4e9", "#86cbf2" },
        { "#b8860b", "#e0b040" },
        { "#7a52a1", "#b08fd6" },
        { "#a03030", "#e07070" },
        { "#999999", "#888888" },
};

/* Levels of the heatmap. */
static const char *const shade_colors[HEATMAP_SHADES][2] = {
        { "#d6e6f4", "#1d3a55" },
        { "#9ecae1", "#275f8c" },
        { "#4292c6", "#3d8ec9" },
        { "#08519c", "#7cc0f0" },
        { "#08306b", "#d6ecff" },
};

void svg_print_text(FILE *f, const char *s) {
        for (const unsigned char *p = (const unsigned char*) strempty(s); *p; p++)
                if (*p == '&')
                        (void) fputs("&amp;", f);
                else if (*p == '<')
                        (void) fputs("&lt;", f);
                else if (*p == '>')
                        (void) fputs("&gt;", f);
                else if (*p < 0x20 || *p == 0x7f)
                        (void) fprintf(f, "\\x%02x", *p);
                else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
                        (void) fprintf(f, "\\u%04x", *++p);
                else if (*p == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) ||
                                        (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9))) {
                        (void) fprintf(f, "\\u%04x", 0x2000U | (p[1] & 0x3fU) << 6 | (p[2] & 0x3fU));
                        p += 2;
                } else if (*p == 0xef && p[1] == 0xbf && p[2] >= 0xbe) {
                        (void) fprintf(f, "\\uff%02x", 0xc0U | (p[2] & 0x3fU));
                        p += 2;
                } else
                        (void) fputc(*p, f);
}

/* ---- style -------------------------------------------------------------------------------------------- */

static void print_colors(FILE *f, unsigned theme) {
        for (unsigned i = 0; i < SVG_COLORS; i++)
                (void) fprintf(f, ".l%u{stroke:%s}.a%u{fill:%s}", i, colors[i][theme], i, colors[i][theme]);
        for (unsigned i = 0; i < HEATMAP_SHADES; i++)
                (void) fprintf(f, ".h%u{fill:%s}", i + 1, shade_colors[i][theme]);
}

void svg_print_style(FILE *f) {
        (void) fputs(".qos text{font:12px system-ui,sans-serif;fill:#333}"
                     ".qos .t{font-weight:600;font-size:14px}"
                     ".qos .g{stroke:#ccc;stroke-width:1;fill:none}"
                     ".qos .n{fill:#8882}"
                     ".qos .l{fill:none;stroke-width:1.5;stroke-linejoin:round}"
                     ".qos .e{text-anchor:end}.qos .m{text-anchor:middle}", f);
        print_colors(f, 0);
        (void) fputs("@media (prefers-color-scheme:dark){.qos text{fill:#ddd}.qos .g{stroke:#444}", f);
        print_colors(f, 1);
        (void) fputs("}", f);
}

void svg_begin(FILE *f, const char *title, unsigned height, bool alone) {
        (void) fprintf(f, "<svg class=\"qos\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                       "viewBox=\"0 0 %u %u\"", SVG_WIDTH, height);
        if (alone)
                (void) fprintf(f, " width=\"%u\" height=\"%u\"", SVG_WIDTH, height);
        (void) fputs("><title>", f);
        svg_print_text(f, title);
        (void) fputs("</title>", f);
        if (alone) {
                (void) fputs("<style>svg{background:#fff}@media (prefers-color-scheme:dark)"
                             "{svg{background:#181818}}", f);
                svg_print_style(f);
                (void) fputs("</style>", f);
        }
        (void) fputc('\n', f);
}

void svg_end(FILE *f) {
        (void) fputs("</svg>\n", f);
}

/* ---- axes --------------------------------------------------------------------------------------------- */

typedef struct Area {
        double x, y, width, height;     /* of what is within the axes */
        double low, high;               /* of the values; logarithms if the axis is logarithmic */
        bool logarithmic;
} Area;

static double area_get_y(const Area *a, double value) {
        double v = a->logarithmic ? log10(value) : value;

        return a->y + a->height * (1 - (v - a->low) / (a->high - a->low));
}

static void print_label(FILE *f, const char *class, double x, double y, const char *text) {
        (void) fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
        svg_print_text(f, text);
        (void) fputs("</text>\n", f);
}

static const char* format_value(char buf[static FORMAT_MAX], const char *unit, double value) {
        if (streq_ptr(unit, "ns"))
                return format_duration(buf, (uint64_t) (value + 0.5));
        if (streq_ptr(unit, "bytes"))
                return format_bytes(buf, (uint64_t) (value + 0.5));
        if (streq_ptr(unit, "1/s"))
                return format_rate(buf, value);
        if (streq_ptr(unit, "share"))
                return format_percent(buf, value);
        if (value >= 10 || value - floor(value) < 1e-9)
                return format_count(buf, (uint64_t) (value + 0.5));
        (void) snprintf(buf, FORMAT_MAX, "%.2g", value);
        return buf;
}

static void print_line_at(FILE *f, const Area *a, const char *unit, double value) {
        char buf[FORMAT_MAX];
        double y = area_get_y(a, value);

        (void) fprintf(f, "<path class=\"g\" d=\"M%.1f %.1fh%.1f\"/>\n", a->x, y, a->width);
        print_label(f, "e", a->x - 6, y + 4, format_value(buf, unit, value));
}

/* Lines at 1, 2 or 5 times a power of ten. */
static void print_values(FILE *f, const Area *a, const char *unit) {
        double step, unit_step;

        if (a->logarithmic) {
                /* Only powers of ten if there are many */
                bool few = a->high - a->low <= 2;

                for (long power = lround(floor(a->low)); power <= lround(ceil(a->high)); power++)
                        for (unsigned i = 0; i < 3; i++) {
                                static const double in[] = { 1, 2, 5 };
                                double v = log10(in[i]) + (double) power;

                                if ((i == 0 || few) && v >= a->low - 1e-9 && v <= a->high + 1e-9)
                                        print_line_at(f, a, unit, pow(10, v));
                        }
                return;
        }
        step = (a->high - a->low) / TICKS_Y;
        if (streq_ptr(unit, "bytes"))
                unit_step = exp2(floor(log2(fmax(step, 1)) / 10) * 10); /* as they are written */
        else
                unit_step = 1;
        unit_step *= pow(10, floor(log10(step / unit_step)));
        step /= unit_step;
        step = (step <= 1 ? 1 : step <= 2 ? 2 : step <= 5 ? 5 : 10) * unit_step;
        for (unsigned i = 0; i * step <= a->high * 1.000001; i++)
                print_line_at(f, a, unit, i * step);
}

/* Round times of the local time zone below the chart. */
static void print_times(FILE *f, const Area *a, uint64_t begin, uint64_t duration) {
        static const unsigned steps[] = {
                10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400,
        };
        uint64_t end = begin + duration, first = begin / NSEC_PER_SEC;
        unsigned step = steps[ELEMENTSOF(steps) - 1];
        time_t at = (time_t) first;
        struct tm tm = {};

        for (size_t i = 0; i < ELEMENTSOF(steps); i++)
                if (duration / NSEC_PER_SEC / steps[i] < TICKS_X) {
                        step = steps[i];
                        break;
                }
        /* From midnight on: time zones are not always whole hours apart */
        if (localtime_r(&at, &tm))
                at -= (tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec) % (time_t) step;
        for (; (uint64_t) at * NSEC_PER_SEC <= end; at += step) {
                char buf[FORMAT_MAX] = "?";
                double x;

                if ((uint64_t) at * NSEC_PER_SEC < begin)
                        continue;
                x = a->x + a->width * (double) ((uint64_t) at * NSEC_PER_SEC - begin) / (double) duration;
                if (localtime_r(&at, &tm))
                        (void) strftime(buf, sizeof(buf), step < 60 ? "%H:%M:%S" : "%H:%M", &tm);
                (void) fprintf(f, "<path class=\"g\" d=\"M%.1f %.1fv4\"/>\n", x, a->y + a->height);
                print_label(f, "m", x, a->y + a->height + 18, buf);
        }
}

static void print_key(FILE *f, double *x, double y, const char *class, const char *text) {
        (void) fprintf(f, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>\n",
                       class, *x, y - 9);
        print_label(f, "k", *x + 14, y, text);
        *x += 14 + CHARACTER * (double) text_width(text) + 14;
}

/* ---- charts ------------------------------------------------------------------------------------------- */

static bool is_drawn(const SvgChart *c, double value) {
        return !isnan(value) && (!c->logarithmic || value > 0);
}

/* Sum of the areas up to this one. */
static double chart_get(const SvgChart *c, size_t series, size_t slot) {
        double sum = 0;

        if (!c->stacked)
                return c->series[series].values[slot];
        for (size_t i = 0; i <= series; i++)
                sum += c->series[i].values[slot];
        return sum;
}

static void chart_get_range(const SvgChart *c, Area *a) {
        double low = INFINITY, high = -INFINITY;

        for (size_t k = 0; k < c->n_series; k++)
                for (size_t i = 0; i < c->slots; i++) {
                        double v = chart_get(c, k, i);

                        if (!is_drawn(c, v))
                                continue;
                        low = fmin(low, v);
                        high = fmax(high, v);
                }
        a->logarithmic = c->logarithmic && high > 0;
        if (a->logarithmic) {
                /* At least from one power of ten to the next */
                a->low = floor(log10(low) * 2) / 2;
                a->high = ceil(log10(high) * 2) / 2;
                a->high = fmax(a->high, a->low + 1);
                return;
        }
        a->low = 0;
        a->high = streq_ptr(c->unit, "share") ? 1 : high > 0 ? high * 1.08 : 1;
}

/* Slots with values, from this one on. Returns their end; begin >= slots: there are none. */
static size_t find_run(const SvgChart *c, size_t series, size_t *begin) {
        size_t end;

        while (*begin < c->slots && !is_drawn(c, chart_get(c, series, *begin)))
                (*begin)++;
        for (end = *begin; end < c->slots && is_drawn(c, chart_get(c, series, end));)
                end++;
        return end;
}

/* A value is that of its whole slot: the line has steps. */
static void print_series(FILE *f, const SvgChart *c, const Area *a, size_t series) {
        const SvgSeries *s = &c->series[series];
        double width = a->width / (double) c->slots;

        (void) fprintf(f, "<path class=\"%s%u\" d=\"", c->stacked ? "a" : "l l", s->color);
        for (size_t begin = 0, end; end = find_run(c, series, &begin), begin < c->slots; begin = end) {
                double x = a->x + width * (double) begin;

                (void) fprintf(f, "M%.1f %.1f", x, area_get_y(a, chart_get(c, series, begin)));
                for (size_t i = begin; i < end; i++)
                        (void) fprintf(f, "V%.1fH%.1f", area_get_y(a, chart_get(c, series, i)),
                                       a->x + width * (double) (i + 1));
                if (!c->stacked)
                        continue;
                for (size_t i = end; i > begin; i--)
                        (void) fprintf(f, "V%.1fH%.1f",
                                       series == 0 ? area_get_y(a, 0) :
                                                     area_get_y(a, chart_get(c, series - 1, i - 1)),
                                       a->x + width * (double) (i - 1));
                (void) fputc('z', f);
        }
        (void) fputs("\"><title>", f);
        svg_print_text(f, s->name);
        (void) fputs("</title></path>\n", f);
}

static Area area_of(unsigned y, unsigned height) {
        return (Area) { LEFT, y + TOP, SVG_WIDTH - LEFT - RIGHT, height - TOP - BOTTOM, 0, 1, false };
}

/* Time that was not observed. */
static void print_gap(FILE *f, const Area *a, size_t slots, size_t begin, size_t end) {
        double width = a->width / (double) slots;

        if (end > begin)
                (void) fprintf(f, "<path class=\"n\" d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"/>\n",
                               a->x + width * (double) begin, a->y, width * (double) (end - begin),
                               a->height, width * (double) (end - begin));
}

void svg_print_chart(FILE *f, const SvgChart *c, unsigned y) {
        Area a = area_of(y, SVG_CHART_HEIGHT);
        double x = LEFT;
        size_t begin = 0;

        print_label(f, "t", LEFT, y + 18, c->title);
        chart_get_range(c, &a);
        for (size_t i = 0; i <= c->slots; i++) {
                if (i < c->slots && !c->observed[i])
                        continue;
                print_gap(f, &a, c->slots, begin, i);
                begin = i + 1;
        }
        print_values(f, &a, c->unit);
        print_times(f, &a, c->begin, c->slots * c->step);
        for (size_t i = 0; i < c->n_series; i++) {
                char class[8];

                print_series(f, c, &a, i);
                (void) snprintf(class, sizeof(class), "a%u", c->series[i].color);
                print_key(f, &x, y + 36, class, c->series[i].name);
        }
}

void svg_print_heatmap(FILE *f, const Heatmap *h, const char *title, unsigned y) {
        Area a = area_of(y, SVG_HEATMAP_HEIGHT);
        double width = a.width / (double) h->columns, height = a.height / (double) MAX(h->rows, (size_t) 1),
               x = LEFT;
        size_t begin = 0;

        print_label(f, "t", LEFT, y + 18, title);
        for (size_t i = 0; i <= h->columns; i++)
                if (i == h->columns || h->observed[i]) {
                        print_gap(f, &a, h->columns, begin, i);
                        begin = i + 1;
                }
        for (size_t row = 0; row < h->rows; row++) {
                uint64_t bound = heatmap_get_bound(h, row);
                char buf[FORMAT_MAX];

                if (row % (h->rows / (TICKS_Y * 2) + 1) == 0)
                        print_label(f, "e", a.x - 6, a.y + a.height - height * (double) (row + 1) + 4,
                                    bound == UINT64_MAX ? "longer" : format_duration(buf, bound));
        }
        for (unsigned shade = 1; shade <= HEATMAP_SHADES; shade++) {
                char class[8];

                (void) snprintf(class, sizeof(class), "h%u", shade);
                print_key(f, &x, y + 36, class, heatmap_shade_to_string(shade));
                (void) fprintf(f, "<path class=\"%s\" d=\"", class);
                for (size_t row = 0; row < h->rows; row++)
                        for (size_t column = 0, n; column < h->columns; column += n) {
                                n = 1;
                                if (heatmap_get_shade(h, row, column) != shade)
                                        continue;
                                while (column + n < h->columns &&
                                       heatmap_get_shade(h, row, column + n) == shade)
                                        n++;
                                (void) fprintf(f, "M%.1f %.1fh%.1fv%.1fh-%.1fz",
                                               a.x + width * (double) column,
                                               a.y + a.height - height * (double) (row + 1),
                                               width * (double) n, height, width * (double) n);
                        }
                (void) fputs("\"/>\n", f);
        }
        (void) fprintf(f, "<path class=\"g\" d=\"M%.1f %.1fv%.1fh%.1f\"/>\n", a.x, a.y, a.height, a.width);
        if (h->slots > 0)
                print_times(f, &a, h->begin, h->columns * h->per_column * h->step);
}
