/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Entries in the journal of which many come at once, and for which nobody may have to wait:
 * sd_journal_send() waits for a journal that does not read. These are queued, and in the order they were
 * sent. */

#include <systemd/sd-event.h>

#include "util.h"

/* Where the journal listens, see systemd-journald.service(8) and systemd.io/JOURNAL_NATIVE_PROTOCOL. */
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* What waits at most: of a machine full of units that all cross their thresholds at once, each with its name
 * and its rule, and … */
#define JOURNAL_QUEUE_MAX (1024 * 1024U)

/* … beyond that without what is long, so that there is room for the others. */
#define JOURNAL_QUEUE_LONG_MAX (256 * 1024U)

typedef struct Journal Journal;

int journal_new(sd_event *event, const char *path, Journal **ret);
/* What still waits is lost. */
Journal* journal_free(Journal *j);

/* "NAME=value" each; more: one that is long, which is left out when much waits; or NULL. What is lost is
 * counted, and the journal told how much that was as soon as it reads. */
void journal_send(Journal *j, const char *const *fields, size_t n, const char *more);

/* What was lost and is not told yet. */
uint64_t journal_get_lost(const Journal *j);
