/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Properties of the terminal: width, colors and character set; and the pager. */

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

/* Style of standard output, determined before a pager was started. */
const Style* terminal_style(void);
bool terminal_is_tty(void);
/* Updates the width after a resize. */
void terminal_forget_size(void);
unsigned terminal_lines(void);

/* Sequences that switch a color on, and all attributes off; "" without colors. */
const char* color_on(const Style *style, Color color);
const char* color_off(const Style *style);

/* Prints words behind a label, wrapped at the width of the terminal: the pager cuts longer lines. Lines are
 * aligned with the first one, as far as the label leaves half of the width, and no word has to be cut. Words
 * that fit into an empty line are never cut, so that they can be copied. on, off: color of the words. */
void print_wrapped(const char *label, const char *words, const char *on, const char *off);
/* The same for text without control characters other than those of colors. */
void print_colored(const char *label, const char *text);

/* Logs a message to standard error in a single line, without control characters. "%m" is the error, which is
 * returned as negative errno. */
int log_failure(int error, const char *format, ...) _printf_(2, 3);
#define log_out_of_memory() log_failure(-ENOMEM, "Out of memory.")

/* Parses booleans as systemd does for environment variables; negative if invalid. */
int parse_boolean(const char *s);
