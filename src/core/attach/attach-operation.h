/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An attach that waits for PID 1 to resolve the name, or until all control groups are assigned. */

#include "manager.h"

AttachOperation* attach_operation_free(AttachOperation *o);
/* The control groups of the unit are assigned; or it is about to be detached. */
void attach_operations_end(Unit *u, bool detached);
