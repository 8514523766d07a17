/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is on the other end of standard output: its width, colours and character set, and a pager in between. */

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

/* The style of standard output, as it was before a pager was put there. */
const Style* terminal_style(void);
bool terminal_is_tty(void);
/* Asks anew: after the window changed its size. */
void terminal_forget_size(void);
unsigned terminal_lines(void);

/* The sequences that switch the colour on and everything off; "" without colours. */
const char* color_on(const Style *style, Color color);
const char* color_off(const Style *style);

/* Tells on standard error what went wrong: the message, of which no part is trusted to be fit for a terminal, in one
 * line. "%m" is the error, which is returned, negative. */
int log_failure(int error, const char *format, ...) _printf_(2, 3);
#define log_out_of_memory() log_failure(-ENOMEM, "Out of memory.")

/* What systemd takes for yes and no in environment variables; negative for anything else. */
int parse_boolean(const char *s);
