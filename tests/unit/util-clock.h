/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Clocks that stand still until a test sets them, for itself and for all libraries of the process. Timers of
 * the event loop elapse by them. */

#include <stdint.h>

/* Lets so much time pass. Timers that elapse meanwhile are due when it has passed. */
void clock_advance(uint64_t nsec);
