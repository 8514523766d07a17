/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Non-blocking writer of journal entries that may occur in bursts: sd_journal_send() blocks while journald
 * does not read. Entries are queued, and delivered in order. */

#include <systemd/sd-event.h>

#include "util.h"

/* See systemd-journald.service(8) and systemd.io/JOURNAL_NATIVE_PROTOCOL. */
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Limit of the queue in bytes: sufficient if 256 units cross all thresholds at once. */
#define JOURNAL_QUEUE_MAX (1024 * 1024U)

/* Number of queued bytes above which long fields are omitted, to leave space for other entries. */
#define JOURNAL_QUEUE_LONG_MAX (256 * 1024U)

typedef struct Journal Journal;

int journal_new(sd_event *event, const char *path, Journal **ret);
/* Queued entries are lost. */
Journal* journal_free(Journal *j);

/* Queues an entry. fields: "NAME=value" each; more: a long field, omitted if much is queued, or NULL. Lost
 * entries are counted, and reported in the journal when journald reads again. */
void journal_send(Journal *j, const char *const *fields, size_t n, const char *more);

/* Number of lost entries that are not reported yet. */
uint64_t journal_get_lost(const Journal *j);
