/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Returns free memory to the system, which the C library keeps between allocations: replies of all clients
 * together may have taken many MiB. Not while clients have turns: it would be allocated again at once. */

#include <systemd/sd-event.h>

#include "turns.h"

typedef struct MemoryTrim MemoryTrim;

int memory_trim_new(sd_event *event, TurnQueue *turns, MemoryTrim **ret);
MemoryTrim* memory_trim_free(MemoryTrim *t);

/* handler: frees what is cached before memory is returned; true: not all of it yet. NULL: nothing is. */
void memory_trim_set_cache(MemoryTrim *t, bool (*handler)(void *userdata), void *userdata);

/* In a second. */
void memory_trim_schedule(MemoryTrim *t);
/* At once if the last time was a second ago or more, so that no timer wakes up a daemon that has nothing to
 * do; or else a second after that. */
void memory_trim_request(MemoryTrim *t);
