/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* History of a unit in a file, kept over a restart of qosd. */

#include "history.h"

/* The beginning of the paths of all histories, in the runtime directory; NULL: there is none. */
int history_find_prefix(char **ret);
/* Path of the history of the unit in a slot. -ENOENT: there is no prefix. */
int history_path(const char *prefix, unsigned slot, char **ret);

/* Replaces the file atomically. */
int history_save(const History *h, uint32_t generation, const char *path);
/* -ENOENT: no file; -EBADMSG: invalid contents. */
int history_load(const char *path, uint32_t generation, History **ret);
