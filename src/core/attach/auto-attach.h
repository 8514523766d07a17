/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Observe=auto of qosd.conf: attaches the units with processes that listen on TCP, while the daemon runs,
 * and drops the hold of those that exist no longer. */

typedef struct AutoAttach AutoAttach;
typedef struct Manager Manager;

int auto_attach_new(Manager *m, AutoAttach **ret);
AutoAttach* auto_attach_free(AutoAttach *a);

/* The configuration was read. */
void auto_attach_update(AutoAttach *a);
