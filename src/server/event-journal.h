/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Journal entries for thresholds that have changed their state, with the metrics and the bottleneck of the
 * unit. */

#include "manager.h"

typedef struct EventJournal EventJournal;

/* Created after the servers, so that their clients are notified first. */
int event_journal_new(Manager *m, EventJournal **ret);
EventJournal* event_journal_free(EventJournal *j);
