/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the kernel counts of the servers of network file systems. */

#include "mountinfo.h"

/* Operations of NFS to which the server has responded since the mount, and their time in ns: of the whole
 * machine. -ENOENT: nothing is known of it. */
int mount_server_read(const MountLine *mount, uint64_t *ret_round_trips, uint64_t *ret_nsec);
