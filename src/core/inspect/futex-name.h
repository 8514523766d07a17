/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Symbolic names of addresses in processes. */

#include <sys/types.h>

#include "manager.h"

/* Returns "libfoo.so:the_lock", "libfoo.so:table+0x40" or, without a symbol, "libfoo.so+0x1234", to be
 * freed. *ret is unchanged if the address is not in a file, or on failure. */
int mapping_find_name(Probe *p, pid_t process, uint64_t address, char **ret);
