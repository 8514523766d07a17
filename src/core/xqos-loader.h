/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What unit files say about observing their units: found, applied, and taken back when it goes. What they say is
 * xqos-section.h's. */

#include "manager.h"

typedef struct Declared Declared;

int declared_new(Manager *m, Declared **ret);
Declared* declared_free(Declared *d);

/* When those were looked at that are in force by now, CLOCK_MONOTONIC ns; 0: they never were. */
uint64_t declared_get_read(const Declared *d);

/* Looks at all unit files, at the start and when the service manager has read them anew. */
void declared_scan(Declared *d);
