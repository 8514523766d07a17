/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State kept over restarts of qosd. */

#include "manager.h"

void manager_restore_state(Manager *m);
