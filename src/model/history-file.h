/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The history of a unit in a file, for a restart of qosd. */

#include "history.h"

/* The file is the old one or the new one, never a part. */
int history_save(const History *h, uint32_t generation, const char *path);
/* -ENOENT: there is no file; -EBADMSG: it makes no sense. */
int history_load(const char *path, uint32_t generation, History **ret);
