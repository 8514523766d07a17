/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Applies [X-QoS] of unit files, and drops settings that were removed from them. xqos-section.h has the
 * parser. */

#include "manager.h"

typedef struct XqosLoader XqosLoader;

/* Scans all unit files at startup and after a daemon-reload (observer.h). */
int xqos_loader_new(Manager *m, XqosLoader **ret);
XqosLoader* xqos_loader_free(XqosLoader *l);

/* Reads the section in the files of a unit (NULL: none) into s. ret_origin: the first file with a setting,
 * or NULL; may be NULL. Fails with -ENOMEM only. */
int xqos_read_files(const char *unit, char **files, XqosSection *s, const char **ret_origin);

/* CLOCK_MONOTONIC ns of the start of the last completed scan; 0: none. */
uint64_t xqos_loader_get_read(const XqosLoader *l);
