/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Full screen output and single key input. */

#include "util.h"

/* Keys that are not characters. */
enum {
        KEY_ESCAPE = '\x1b',
        KEY_BACKSPACE = '\x7f',
        KEY_NONE = 256,         /* an unknown escape sequence */
        KEY_UP,
        KEY_DOWN,
        KEY_PAGE_UP,
        KEY_PAGE_DOWN,
        KEY_HOME,
        KEY_END,
};

/* Decodes the first key of n > 0 bytes of input. Returns a byte, or one of the above. */
int screen_decode_key(const char *bytes, size_t n, size_t *ret_length);

/* Whether standard output is a terminal with cursor addressing. */
bool screen_is_possible(void);

int screen_enter(void);
/* Restores the terminal; may be called at any time. */
void screen_leave(void);

/* Draws as many lines of the text as fit on the screen. */
int screen_draw(const char *text);
