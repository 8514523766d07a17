/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Charts over time as SVG 1.1: in a file of their own, or within a page of HTML. Colors are those of
 * svg_style(), for light and dark backgrounds. */

#include <stdio.h>

#include "heatmap-grid.h"
#include "util.h"

/* In user units, which are pixels unless the picture is scaled. */
#define SVG_WIDTH 900U
#define SVG_CHART_HEIGHT 230U
#define SVG_HEATMAP_HEIGHT 330U

/* Number of colors of lines and areas, of which the last one is grey. */
#define SVG_COLORS 9

typedef struct SvgSeries {
        const char *name;       /* in the legend */
        unsigned color;         /* less than SVG_COLORS */
        double *values;         /* by slot; NAN: absent */
} SvgSeries;

/* A slot is the time of one step of the history. */
typedef struct SvgChart {
        const char *title;
        const char *unit;       /* of the values: "ns", "1/s", "bytes", "share", else numbers */
        uint64_t begin, step;   /* ns since 1970, ns */
        size_t slots;
        const bool *observed;   /* by slot; the others have a grey background */
        const SvgSeries *series;
        size_t n_series;
        bool stacked;           /* areas on top of each other, instead of lines */
        bool logarithmic;       /* values that are not positive are not drawn */
} SvgChart;

/* Prints text between the tags of XML and HTML; control characters, also those of bidirectional text, are
 * escaped visibly. */
void svg_print_text(FILE *f, const char *s);

/* The rules of CSS for all pictures. */
void svg_print_style(FILE *f);

/* Begins a picture. alone: of a file of its own, with the style in it. */
void svg_begin(FILE *f, const char *title, unsigned height, bool alone);
void svg_end(FILE *f);

/* Draw a chart into the picture, from this height on. */
void svg_print_chart(FILE *f, const SvgChart *c, unsigned y);
void svg_print_heatmap(FILE *f, const Heatmap *h, const char *title, unsigned y);
