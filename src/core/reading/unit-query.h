/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Queries of PID 1 whether a unit that is not attached exists, for the error of a call. */

#include "manager.h"

typedef struct UnitQuery UnitQuery;

/* e: NotAttached or NoSuchUnit; valid during the call. */
typedef void (*unit_query_handler_t)(const QosError *e, void *userdata);

/* To be called when manager_get_unit() has failed with e. Returns 1 if PID 1 was queried: the handler will
 * be called. 0: e is the result, which may have been changed to NoSuchUnit. */
int unit_query_new(Manager *m, const char *written, QosError *e, unit_query_handler_t handler,
                   void *userdata, UnitQuery **ret);
UnitQuery* unit_query_free(UnitQuery *q);
