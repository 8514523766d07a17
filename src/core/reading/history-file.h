/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* History of a unit in a file, kept over a restart of qosd. */

#include "history.h"

/* Replaces the file atomically. */
int history_save(const History *h, uint32_t generation, const char *path);
/* -ENOENT: no file; -EBADMSG: invalid contents. */
int history_load(const char *path, uint32_t generation, History **ret);
