/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Who is ordered after us waits until we say that we are ready. Says so after that time in any case, also
 * while the event loop does not run since the kernel looks at programs. Once in a process. Negative: nobody
 * will, ready_notify() alone does. */
int ready_watch(uint64_t usec);

/* Whether that was news: false, if it was said before. */
bool ready_notify(void);
