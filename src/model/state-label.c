/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stddef.h>

#include "state-label.h"
#include "util.h"

const char* thread_state_label(const char *state) {
        static const struct {
                const char *state, *label;
        } table[] = {
                { "runQueue", "CPU run queue"   },
                { "lock",     "lock wait"       },
                { "park",     "idle futex wait" },
                { "disk",     "disk wait"       },
                { "socket",   "socket wait"     },
                { "poll",     "poll wait"       },
                { "pipe",     "pipe wait"       },
                { "memory",   "memory stall"    },
                { "child",    "child wait"      },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (streq(table[i].state, state))
                        return table[i].label;
        return state;
}
