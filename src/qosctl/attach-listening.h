/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "client.h"
#include "unit-names.h"

/* Adds the units of this host that listen on TCP and are not attached. Shows them with the memory that
 * attaching them needs, and prompts for confirmation unless --yes is given. Returns an exit status, or a
 * negative errno that is logged. */
int attach_find_listening(Client *c, Names *ret);
