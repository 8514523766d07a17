/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Journal entries for state changes of thresholds, with metrics and bottleneck of the unit. */

#include "manager.h"

typedef struct EventJournal EventJournal;

/* Created after the servers, so that their clients are notified first. */
int event_journal_new(Manager *m, EventJournal **ret);
EventJournal* event_journal_free(EventJournal *j);
