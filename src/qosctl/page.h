/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The output of "qosctl status" for a unit, which is read from another process, and can be scrolled. */

#include <systemd/sd-event.h>

#include "util.h"

typedef struct Page Page;

/* Called when the output is complete and has replaced the previous one. */
typedef int (*PageHandler)(void *userdata);

/* NULL: out of memory. */
Page* page_new(sd_event *event, PageHandler handler, void *userdata);
/* Kills a running process. Returns NULL. */
Page* page_free(Page *p);

/* Starts a process that prints the status with this number of columns, unless one is running. */
int page_run(Page *p, const char *unit, unsigned columns);

/* Scrolls. lines: number of lines on the screen. Returns false if the key does not scroll. */
bool page_move(Page *p, size_t lines, int key);

/* Returns the output from the first line that is shown on; NULL: no output yet. ret_count: total number of
 * lines. Valid until the next output. */
const char* page_get_text(Page *p, size_t lines, size_t *ret_first, size_t *ret_count);
