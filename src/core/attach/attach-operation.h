/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An attach that waits for PID 1 to resolve the name, or until the next request is measured with all probes
 * of the unit. */

#include "observer.h"

typedef struct AttachOperation AttachOperation;
typedef struct Manager Manager;

typedef struct AttachOperations {
        AttachOperation *operations;
        ManagerObserver observer;
} AttachOperations;

void attach_operations_init(Manager *m);
/* Frees all operations. */
void attach_operations_done(Manager *m);
