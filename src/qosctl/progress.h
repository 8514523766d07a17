/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Progress of operations that take time: a line on standard error with a description, the time left or
 * passed, and the rate of requests. It is erased at the end, and only shown on terminals. */

#include "client.h"

/* Begins an operation, of which only one is possible at a time. duration: ns; 0: unknown. interruptible: the
 * first Ctrl+C ends progress_sleep(), not the program. format: description, "Observing nginx.service". */
void progress_begin(uint64_t duration, bool interruptible, const char *format, ...) _printf_(3, 4);
/* Updates the line, at most twice a second. If the duration is unknown, it is shown after a second. */
void progress_draw(void);
/* Reads the rate of the unit, and updates the line. */
void progress_update(Client *c, const char *unit);
/* Returns the time to wait before the next update, in us; UINT64_MAX: no line is shown. */
uint64_t progress_get_timeout(void);
/* Ends the operation, and erases the line. May be called without one. */
void progress_end(void);

/* Sleeps until the duration has passed since progress_begin(), or until Ctrl+C. Returns the time that has
 * passed, in ns, at most the duration. unit: unit with the rate to show. */
uint64_t progress_sleep(Client *c, const char *unit);
