/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* States of a thread, which is in exactly one at any time, see contention-map.h. */
enum qos_state {
        QOS_STATE_NONE,         /* not in any contention map */
        QOS_STATE_RUNNING,      /* on a CPU, in user or kernel mode */
        QOS_STATE_RUN_QUEUE,    /* runnable, waiting for a CPU */
        QOS_STATE_THROTTLED,    /* runnable, CPU quota of the control group exhausted */
        QOS_STATE_LOCK,         /* waiting for a mutex, a file lock or a kernel lock */
        QOS_STATE_PARK,         /* waiting in futex(2) for work: condition variables, idle pools */
        QOS_STATE_DISK,         /* waiting for files and block devices */
        QOS_STATE_SOCKET,       /* blocked in a call on one socket */
        QOS_STATE_POLL,         /* waiting for several descriptors, or for one that is no socket, pipe or
                                 * file */
        QOS_STATE_PIPE,         /* blocked in a call on a pipe or message queue */
        QOS_STATE_SLEEP,        /* waiting for a timeout or a signal */
        QOS_STATE_MEMORY,       /* page faults, reclaim, dirty page throttling */
        QOS_STATE_CHILD,        /* waiting for another process to exit or start */
        QOS_STATE_STOPPED,      /* by a signal, a tracer, or the freezer of its control group */
        QOS_STATE_OTHER,        /* none of the above */
        QOS_STATES,

        /* No thread of a unit has QOS_STATE_NONE. Its word has the part of QOS_STATE_PARK and QOS_STATE_POLL
         * that ended with a wakeup by another thread of the unit that was processing a request. */
        QOS_STATE_BLOCKED_BY_REQUESTS = QOS_STATE_NONE,
};
