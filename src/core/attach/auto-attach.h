/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Observe=auto of qosd.conf: attaches units with processes that listen on TCP, and drops the holds of units
 * that no longer exist. */

typedef struct AutoAttach AutoAttach;
typedef struct Manager Manager;

int auto_attach_new(Manager *m, AutoAttach **ret);
AutoAttach* auto_attach_free(AutoAttach *a);

/* To be called when the configuration was read. */
void auto_attach_update(AutoAttach *a);
