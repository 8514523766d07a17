/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What TCP counts in a step of the history, as window_read_step() for requests. No I/O, no clock. */

#include "history.h"
#include "network-window.h"

/* Reads step n, which has to be over. The maxima of ret are not valid. -ENODATA: no longer in the maps, or
 * the unit was not observed then. */
int network_read_step(const NetworkSources *sources, uint64_t n, NetworkReading *ret);

/* Sets what the history keeps of it. */
void history_step_set_network(HistoryStep *s, const NetworkReading *reading);
