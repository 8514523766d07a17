/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Between qosd and qosd-actions: datagrams of "EVENT UNIT", with an event of xqos_event_to_string(); or
 * "log UNIT" and fields for the journal, each on a line of its own. */

#include "unit-name.h"

/* See qosd-actions.socket: only qosd and root may send. */
#define ACTIONS_SOCKET "/run/qosd/actions"

/* The word before the unit of an entry for the journal. */
#define ACTIONS_LOG "log"

/* A name, a rule with its metric, a message of these, and numbers: some 2 KiB. */
#define ACTIONS_MESSAGE_MAX 4096U

/* Fields of an entry. */
#define ACTIONS_FIELDS_MAX 16U
