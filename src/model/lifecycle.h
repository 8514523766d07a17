/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State and restarts of a unit, from the service manager. Pure: no I/O, no clock. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Lifecycle {
        char sub_state[32];             /* "running", "auto-restart"...; "": unknown */
        char type[16];                  /* of a service: "simple", "notify", "oneshot"...; "": unknown */
        char result[32];                /* of the last run: "success", "exit-code", "signal"...; "":
                                         * unknown */
        uint64_t changed;               /* CLOCK_REALTIME ns of the last state change; 0: unknown */
        uint64_t restarts;              /* automatic restarts since the last explicit start; ABSENT: not a
                                         * service */
        int32_t exit_code;              /* of the last main process: CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0:
                                         * none has ended */
        int32_t exit_status;            /* exit status, or signal */
        bool on_demand;                 /* activated by another unit, such as a socket */
        char freezer_state[16];         /* "running", "frozen", "freezing"...; "": unknown */
} Lifecycle;

#define LIFECYCLE_EXIT_MAX 48U

/* Formats "exit status 1", "signal SEGV", "signal ABRT, core dumped". False: no main process has ended. */
bool lifecycle_format_exit(const Lifecycle *l, char ret[static LIFECYCLE_EXIT_MAX]);
