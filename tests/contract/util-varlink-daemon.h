/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The varlink server with the real manager, for tests over socket pairs. The other end of a D-Bus connection
 * stands in for PID 1 and polkit. No programs are loaded: attached units have no metrics. */

#include "manager.h"
#include "util-bus.h"
#include "util-varlink.h"

#define INVALID_PARAMETER "org.varlink.service.InvalidParameter"

/* More than are read in one step, in addition to those below. */
#define MANY_UNITS 200U
extern char many_names[MANY_UNITS][32];

extern Manager *manager;
extern sd_bus *daemon_side, *system_side;
extern FakeServiceManager pid1;
extern FakeUnit units[6 + MANY_UNITS + 1];

/* What polkit replies, and what it was called with. */
enum { POLKIT_YES, POLKIT_NO, POLKIT_CHALLENGE, POLKIT_SILENT };
extern unsigned polkit_mood, polkit_calls;
extern bool polkit_interactive;

/* seconds: after which the test is killed. False: it cannot run as this user. */
bool daemon_start(unsigned seconds);
void daemon_stop(void);
