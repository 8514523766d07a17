/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sockets opened by PID 1 for units. */

#include "manager.h"
#include "service-manager.h"

void manager_mark_listeners(Manager *m);
void unit_own_socket_groups(Unit *u);
void unit_disown_socket_groups(Unit *u, const char *keep);
void unit_set_sockets(Unit *u, const UnitInfo *info);
