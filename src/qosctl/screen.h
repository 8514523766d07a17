/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Full screen output and single key input. */

#include "util.h"

/* Whether the terminal supports it. */
bool screen_is_possible(void);

int screen_enter(void);
/* Restores the terminal; may be called at any time. */
void screen_leave(void);

/* Draws as many lines of the text as fit. */
int screen_draw(const char *text);
