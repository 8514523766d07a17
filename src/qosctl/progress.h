/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A line on the terminal while something takes time: what is under way, how much longer, and the rate of
 * requests so far. It is written to standard error, and erased at the end. */

#include "client.h"

/* Begins what takes time. duration: ns; 0: not known. interruptible: the first Ctrl+C ends progress_sleep()
 * instead of the program. The format makes the words in front, "Observing nginx.service". */
void progress_begin(uint64_t duration, bool interruptible, const char *format, ...) _printf_(3, 4);
/* Shows the line if a second or more has passed, or the duration is known. At most twice a second. */
void progress_draw(void);
/* The same with the rate of the unit, which it reads. */
void progress_update(Client *c, const char *unit);
/* How long to wait until the line is drawn again, usec; UINT64_MAX: there is none. */
uint64_t progress_get_timeout(void);
/* Erases the line. */
void progress_end(void);

/* Sleeps until the duration has passed since the beginning, or until Ctrl+C. Returns the time that was
 * observed, ns. unit: the one whose rate is shown. */
uint64_t progress_sleep(Client *c, const char *unit);
