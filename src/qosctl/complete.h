/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Candidates for the word at the cursor, for the completion of all shells. */

#include "command.h"

/* Prints the candidates for the last one of the words behind the name of the program, whether or not they
 * begin as it does: lines of WORD, a tab and a description, which may be missing. Words are whole:
 * "--window=10s". Other lines name what shells find themselves, for the value if the word is
 * "--OPTION=VALUE": ":units" of this host, ":files", ":hosts", ":command". Returns an exit status. */
int complete(const Verb *verbs, size_t n, int argc, char **argv);
