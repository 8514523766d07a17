/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What happened in a step of the history by the books of contention: as window_read_step() of those of
 * requests. No I/O, no clock. */

#include "contention-window.h"

/* Of the step n, which has passed at now; of what is in ret covered and counts mean something. -ENODATA: the
 * maps no longer know, or the unit was not watched then; -EAGAIN as contention_read(). */
int contention_read_step(const ContentionSources *sources, uint64_t n, uint64_t now, ContentionReading *ret);
