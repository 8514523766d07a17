/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* File descriptors passed by the service manager. */

#include <errno.h>

typedef struct Probe Probe;

/* Negative: not passed, or taken by another owner. */
typedef struct PassedFds {
        int varlink, varlink_root;      /* listening sockets */
        int sock_diag;                  /* sock_diag(7) of the host */
} PassedFds;

#define PASSED_FDS_INIT { .varlink = -EBADF, .varlink_root = -EBADF, .sock_diag = -EBADF }

/* Takes all passed descriptors: those above, and those of the descriptor store, which are handed to the
 * probe. Unknown ones are closed, and removed from the store. */
void passed_fds_take(PassedFds *fds, Probe *probe);
void passed_fds_done(PassedFds *fds);
