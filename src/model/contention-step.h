/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Contention metrics of a step of the history. Pure: no I/O, no clock. */

#include "contention-window.h"

/* As window_read_step(), for step n, which has to be over at now. Of ret, only covered and counts are valid.
 * -ENODATA: no longer in the maps, or the unit was not observed then; -EAGAIN as contention_read(). */
int contention_read_step(const ContentionSources *sources, uint64_t n, uint64_t now, ContentionReading *ret);
