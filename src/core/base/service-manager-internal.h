/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the PID 1 client and the parser of its replies. */

#include "service-manager.h"
#include "unit-map.h"

/* Properties of a unit. */
typedef struct Properties {
        sd_bus_message *message;        /* owns what info points to */
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
