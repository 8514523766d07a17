/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Connecting to a Unix socket whose listen queue others may keep full. */

#include "util.h"

/* Waits up to the timeout for a place in the queue; 0: does not wait. Returns a descriptor, or -errno;
 * -EAGAIN: the queue is full. */
int unix_connect(const char *path, uint64_t timeout_usec);
