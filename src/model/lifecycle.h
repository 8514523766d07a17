/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State and restarts of a unit, from the service manager. Pure: no I/O, no clock. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Lifecycle {
        char sub_state[32];             /* "running", "auto-restart"...; "": not known */
        char type[16];                  /* of a service: "simple", "notify", "oneshot"...; "": not known */
        char result[32];                /* why it ended last: "success", "exit-code", "signal"...; "": not
                                         * known */
        uint64_t changed;               /* CLOCK_REALTIME ns of the last change of its state; 0: not known */
        uint64_t restarts;              /* automatic restarts since it was started explicitly; ABSENT: not
                                         * a service */
        int32_t exit_code;              /* of the main process that ended last: CLD_EXITED, CLD_KILLED,
                                         * CLD_DUMPED; 0: none has ended */
        int32_t exit_status;            /* its exit status, or the signal */
        bool on_demand;                 /* a socket or another unit starts it when it is needed */
        char freezer_state[16];         /* "running", "frozen", "freezing"...; "": not known */
} Lifecycle;

#define LIFECYCLE_EXIT_MAX 48U

/* "exit status 1", "signal SEGV", "signal ABRT, core dumped". False: no main process has ended. */
bool lifecycle_format_exit(const Lifecycle *l, char ret[static LIFECYCLE_EXIT_MAX]);
