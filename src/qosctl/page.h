/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The status of a unit as another process of qosctl prints it, to be scrolled on the screen. */

#include <systemd/sd-event.h>

#include "util.h"

typedef struct Page Page;

/* The output is complete, and replaces that of the previous run. */
typedef int (*PageHandler)(void *userdata);

/* NULL: out of memory. */
Page* page_new(sd_event *event, PageHandler handler, void *userdata);
/* Also ends a process that runs. */
Page* page_free(Page *p);

/* Reads the status, unless it is being read, for this number of columns. */
int page_run(Page *p, const char *unit, unsigned columns);

/* Scrolls. lines: number of lines that are shown. Returns false if it is no key for that. */
bool page_move(Page *p, size_t lines, int key);

/* The output from the first line shown on; NULL: no output yet. */
const char* page_get_text(Page *p, size_t lines, size_t *ret_first, size_t *ret_count);
