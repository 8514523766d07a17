/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Between qosd and qosd-actions: datagrams of "EVENT UNIT", with an event of xqos_event_to_string(). */

#include "unit-name.h"

/* See qosd-actions.socket: only qosd and root may send. */
#define ACTIONS_SOCKET "/run/qosd/actions"

/* The longest event, a space, and a name. */
#define ACTIONS_MESSAGE_MAX (sizeof("violated ") - 1 + UNIT_NAME_MAX)
