/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Units of the service manager of the calling user (--user), which qosd identifies by their control
 * groups. */

#include "verbs.h"
/* Replaces units and patterns among the arguments of a verb by control groups and patterns of these. If the
 * verb has no arguments, adds a pattern for all units of the manager. Returns an exit status, or a negative
 * errno that is logged. ret: NULL-terminated list, to be freed with strv_free(). */
int user_units_resolve(const Verb *verb, int argc, char **argv, char ***ret);
