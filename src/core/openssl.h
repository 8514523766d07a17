/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The probe "tls": units that have it, and instances of libssl in their processes. Processes are scanned
 * when a unit gets the probe, when it has started, and when the kernel finds it reading TLS records by an
 * unknown library: one loaded later, another version, or something other than OpenSSL. */

#include "manager.h"

/* To be called when holds or the hierarchy have changed. started: unit with new processes; or NULL. */
void openssl_update(Manager *m, Unit *started);

/* Nothing is observed any more. */
void openssl_stop(Manager *m);
