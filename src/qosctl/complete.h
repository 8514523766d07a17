/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Completion of command lines, for all shells. */

#include "verbs.h"

/* Prints all candidates for the last argument, without regard to what it begins with, one per line: the
 * complete word ("--window=10s"), optionally followed by a tab and a description. The lines ":units" (units
 * of this host), ":files", ":hosts" and ":command" request candidates that the shell finds itself, for the
 * value if the argument is "--OPTION=VALUE". Returns an exit status. */
int complete(const Verb *verbs, size_t n, int argc, char **argv);
