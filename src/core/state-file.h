/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a restart of qosd must know. */

#include "manager.h"

void manager_restore_state(Manager *m);
