/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Whether the running kernel is supported at all. Whether it supports a program is found out by loading
 * it. */

#include "util.h"

/* -EOPNOTSUPP: not supported; -EPERM: the process may not use BPF. ret_reason is a sentence without full
 * stop. */
int kernel_support_check(char **ret_reason);

/* release: as in uname(2); lockdown: contents of /sys/kernel/security/lockdown, NULL if there is no such
 * file. Pure. */
int kernel_support_classify(const char *release, const char *lockdown, char **ret_reason);
