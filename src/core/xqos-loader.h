/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What unit files say about observing their units: found, applied, and taken back when it goes. What they
 * say is xqos-section.h's. */

#include "manager.h"

typedef struct XqosLoader XqosLoader;

int xqos_loader_new(Manager *m, XqosLoader **ret);
XqosLoader* xqos_loader_free(XqosLoader *d);

/* When those were looked at that are in force by now, CLOCK_MONOTONIC ns; 0: they never were. */
uint64_t xqos_loader_get_read(const XqosLoader *d);

/* Looks at all unit files, at the start and when the service manager has read them anew. */
void xqos_loader_scan(XqosLoader *d);
