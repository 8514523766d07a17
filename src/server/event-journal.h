/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The journal's entries of thresholds whose state has changed, with the reading and what holds the unit
 * back. */

#include "manager.h"

typedef struct EventJournal EventJournal;

/* Created after the servers, so that their clients are notified first. */
int event_journal_new(Manager *m, EventJournal **ret);
EventJournal* event_journal_free(EventJournal *j);
