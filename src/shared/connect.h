/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Connects to a Unix socket whose backlog other users may keep full. */

#include "util.h"

/* Waits up to the timeout for space in the backlog; 0: does not wait. Returns a descriptor. -EAGAIN: the
 * backlog is full. */
int unix_connect(const char *path, uint64_t timeout_usec);
