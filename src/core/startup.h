/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Starts a thread that notifies readiness after a timeout, unless ready_notify() was called before: the
 * event loop is blocked while programs are loaded, and units ordered after qosd must not wait longer.
 * Effective once per process. Negative: there will be no timeout. */
int ready_watch(uint64_t usec);

/* Notifies readiness. Returns false if that was already done. */
bool ready_notify(void);
