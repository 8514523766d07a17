/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What lies at an address in the memory of a process. */

#include <sys/types.h>

#include "manager.h"

/* "libfoo.so:the_lock", "libfoo.so:table+0x40", or, where no variable is known, "libfoo.so+0x1234"; *ret is
 * left alone if it is in no file, or nothing is known. */
int mapping_find_name(Probe *p, pid_t process, uint64_t address, char **ret);
