/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which file system the threads of a unit have waited for, from its wait targets. */

#include "diagnosis.h"
#include "inspect-waits.h"

/* Mount point, or the device number where it is not mounted in the mount namespace of qosd. device: kernel
 * encoding; 0: "" */
void evidence_format_mount(Manager *m, uint32_t device, char ret[static DIAGNOSIS_NAME_MAX]);

/* That with most time between two readings, passed ns apart. */
void evidence_fill_mount(Manager *m, const ResourcesReading *begin, const ResourcesReading *end,
                         double passed, DiagnosisMount *ret);
