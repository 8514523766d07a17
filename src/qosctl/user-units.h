/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Units of the calling user's own service manager (--user). qosd knows them by their control groups. */

#include "command.h"
/* Replaces units and patterns among the arguments of a verb by control groups and patterns of these. Without
 * arguments the verb gets a pattern of all that the manager has. Returns an exit status, or a negative errno
 * that is logged. ret: a list of argc or more strings, to be freed with each of them. */
int user_units_resolve(const Verb *verb, int argc, char **argv, char ***ret);
