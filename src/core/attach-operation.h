/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An attach that waits until PID 1 has resolved the name. */

#include "manager.h"

AttachOperation* attach_operation_free(AttachOperation *o);
