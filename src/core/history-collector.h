/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Collects the histories of all units, and stores them in files. */

#include "manager.h"

void unit_forget_history(Manager *m, unsigned slot);
/* Removes the files of slots without a unit. */
void manager_forget_histories(Manager *m);
void manager_collect_history(Manager *m);
void manager_begin_history(Manager *m);
void unit_load_history(Unit *u, uint32_t generation);
