/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The probe "tls": which units have it, and where their processes have OpenSSL's library. They are looked at
 * when a unit gets the probe, when it has started, and when the kernel has seen one of them read sealed
 * bytes without a library that is known: one that has loaded it since, or another version, or something that
 * is not OpenSSL and never will be. */

#include "manager.h"

/* Holds have changed, or what is observed. started: a unit whose processes are others now; NULL: none is. */
void openssl_update(Manager *m, Unit *started);

/* Nothing is observed any more. */
void openssl_stop(Manager *m);
