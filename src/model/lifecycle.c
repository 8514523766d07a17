/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <signal.h>
#include <sys/wait.h>

#include "lifecycle.h"
#include "util.h"

bool lifecycle_format_exit(const Lifecycle *l, char ret[static LIFECYCLE_EXIT_MAX]) {
        const char *name;

        assert(l);

        switch (l->exit_code) {

        case CLD_EXITED:
                (void) snprintf(ret, LIFECYCLE_EXIT_MAX, "exit status %i", l->exit_status);
                return true;

        case CLD_KILLED:
        case CLD_DUMPED:
                name = sigabbrev_np(l->exit_status);
                if (name)
                        (void) snprintf(ret, LIFECYCLE_EXIT_MAX, "signal %s", name);
                else
                        (void) snprintf(ret, LIFECYCLE_EXIT_MAX, "signal %i", l->exit_status);
                if (l->exit_code == CLD_DUMPED)
                        (void) snprintf(ret + strlen(ret), LIFECYCLE_EXIT_MAX - strlen(ret),
                                        ", core dumped");
                return true;

        default:
                ret[0] = 0;
                return false;
        }
}
