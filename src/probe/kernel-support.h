/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Whether the running kernel can measure anything at all. What single programs need is found out by loading
 * them. */

#include "util.h"

/* -EOPNOTSUPP: it cannot, and ret_reason says why, as a sentence without its full stop. */
int kernel_support_check(char **ret_reason);

/* Of a release as uname() has it, and of the text of /sys/kernel/security/lockdown (NULL: there is no such
 * file). Pure. */
int kernel_support_classify(const char *release, const char *lockdown, char **ret_reason);
