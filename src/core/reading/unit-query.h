/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Why a name is that of no attached unit: there may be no such unit at all. */

#include "manager.h"

typedef struct UnitQuery UnitQuery;

/* e: NotAttached or NoSuchUnit. Valid during the call. */
typedef void (*unit_query_handler_t)(const QosError *e, void *userdata);

/* Behind a failure of manager_get_unit(), whose error is e. Returns 1 if PID 1 has to reply before the
 * handler is called; 0: e is the error, which may have become NoSuchUnit. */
int unit_query_new(Manager *m, const char *written, QosError *e, unit_query_handler_t handler,
                   void *userdata, UnitQuery **ret);
UnitQuery* unit_query_free(UnitQuery *q);
