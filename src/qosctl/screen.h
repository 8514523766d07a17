/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The whole screen of a terminal, and its keys one by one. */

#include "util.h"

/* Whether there is a terminal that can do it. */
bool screen_is_possible(void);

int screen_enter(void);
/* Gives the terminal back as it was; may be called at any time. */
void screen_leave(void);

/* Shows the lines of text, as many as fit. */
int screen_draw(const char *text);
