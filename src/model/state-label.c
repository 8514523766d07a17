/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stddef.h>

#include "state-label.h"
#include "util.h"

static const struct {
        const char *name, *label;
} state_table[QOS_STATES] = {
        [QOS_STATE_RUNNING]   = { "running",   "running"       },
        [QOS_STATE_RUN_QUEUE] = { "runQueue",  "CPU run queue" },
        [QOS_STATE_THROTTLED] = { "throttled", "throttled"     },
        [QOS_STATE_LOCK]      = { "lock",      "lock"          },
        [QOS_STATE_PARK]      = { "park",      "idle futex"    },
        [QOS_STATE_DISK]      = { "disk",      "disk"          },
        [QOS_STATE_SOCKET]    = { "socket",    "socket"        },
        [QOS_STATE_POLL]      = { "poll",      "poll"          },
        [QOS_STATE_PIPE]      = { "pipe",      "pipe"          },
        [QOS_STATE_SLEEP]     = { "sleep",     "sleep"         },
        [QOS_STATE_MEMORY]    = { "memory",    "memory"        },
        [QOS_STATE_CHILD]     = { "child",     "child"         },
        [QOS_STATE_STOPPED]   = { "stopped",   "stopped"       },
        [QOS_STATE_OTHER]     = { "other",     "other"         },
};

const char* qos_state_to_string(enum qos_state s) {
        return s < QOS_STATES ? state_table[s].name : NULL;
}

const char* thread_state_label(const char *name) {
        for (size_t i = 0; i < ELEMENTSOF(state_table); i++)
                if (state_table[i].name && streq(state_table[i].name, name))
                        return state_table[i].label;
        return name;
}
