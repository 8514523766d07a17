/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An attach that waits for PID 1 to resolve the name. */

#include "manager.h"

AttachOperation* attach_operation_free(AttachOperation *o);
