/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the client of PID 1 and the reader of its replies share. */

#include "service-manager.h"
#include "unit-map.h"

/* What PID 1 says of one unit. */
typedef struct Properties {
        sd_bus_message *message;        /* info points into it */
        UnitInfo info;
        char *names, *triggers, *triggered_by;
        char *fragment, **drop_ins, **files;
        struct qos_address *listen;
        size_t n_listen;
} Properties;

/* unit-properties.c */
void properties_done(Properties *p);
int listen_append(Properties *p, const struct qos_address *addresses, size_t n);
int properties_read(sd_bus_message *m, Properties *ret);
