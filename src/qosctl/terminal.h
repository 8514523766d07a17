/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Properties of the terminal, and messages on it. */

#include "util.h"

typedef enum Color {
        COLOR_NONE,
        COLOR_BOLD,
        COLOR_GREY,
        COLOR_GREEN,
        COLOR_YELLOW,
        COLOR_RED,
        COLOR_UNDERLINE,
        COLOR_UNDERLINE_BOLD,
        _COLOR_MAX,
} Color;

typedef struct Style {
        unsigned width;         /* columns; 0: no limit */
        bool utf8;
        bool colors;
} Style;

/* Returns the style of standard output. To be called before standard output is redirected to a pager. */
const Style* terminal_style(void);
bool terminal_is_tty(void);
/* Updates the size after a resize of the terminal. */
void terminal_forget_size(void);
unsigned terminal_lines(void);

/* Return the sequences that set a color, and that reset all attributes; "" without colors. */
const char* color_on(const Style *style, Color color);
const char* color_off(const Style *style);

/* Prints text after a label, wrapped to the width of the terminal, as the pager cuts longer lines.
 * Continuations are aligned with the text in the first line, unless the label takes more than half of the
 * width or a word would have to be cut. Words that fit into a line are never cut, so that they can be
 * copied. on, off: sequences for the text. */
void print_wrapped(const char *label, const char *words, const char *on, const char *off);
/* The same for text with color sequences, and without other control characters. */
void print_colored(const char *label, const char *text);

/* Logs a message to standard error, in one line, with control characters escaped. "%m" is the error, an
 * errno of either sign, which is returned as a negative one. */
int log_failure(int error, const char *format, ...) _printf_(2, 3);
#define log_out_of_memory() log_failure(-ENOMEM, "Out of memory.")

/* Parses a boolean as systemd does for environment variables. Returns -EINVAL, or -ENXIO for NULL. */
int parse_boolean(const char *s);
