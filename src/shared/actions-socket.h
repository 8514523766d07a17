/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Protocol between qosd and qosd-actions: datagrams "EVENT UNIT", with an event of xqos_event_to_string();
 * or "log UNIT", followed by fields for the journal, one per line. */

#include "unit-name.h"

/* See qosd-actions.socket. Only qosd and root may send. */
#define ACTIONS_SOCKET "/run/qosd/actions"

/* First word of an entry for the journal. */
#define ACTIONS_LOG "log"

/* Limit of a datagram. Name, rule and metric, a message of these, and numbers take some 2 KiB. */
#define ACTIONS_MESSAGE_MAX 4096U

/* Limit of the fields of an entry. */
#define ACTIONS_FIELDS_MAX 16U
