/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The units that the command line names. */

#include "client.h"

typedef struct Names {
        char **items;
        size_t n;
} Names;

#define NAMES_INIT (Names) {}

void names_done(Names *n);
#define _cleanup_names_ _cleanup_(names_done)

/* Adds the name if it is not there yet; says so if memory runs out. */
int names_add(Names *n, const char *name);

bool is_glob(const char *s);

/* Replaces patterns by the attached units that match; all else is left to qosd, which knows aliases and suffixes.
 * Returns an exit status: a pattern that matches nothing is told and counts as "not attached". */
int names_expand_attached(Client *c, int argc, char **argv, Names *ret);
/* Replaces patterns by units that the service manager of this host has loaded. */
int names_expand_loaded(int argc, char **argv, Names *ret);
/* Whether a call failed as the unit is not attached, but exists, as far as the service manager of this host can tell. */
bool unit_is_detached(int r, const Replies *replies);
/* client_fail() of "read <unit>", for calls on attached units: tells a unit that is not attached from one that does not
 * exist, as somebody who mistyped a name shall not be told to attach it. */
int unit_read_fail(int r, const Replies *replies, const char *unit);
/* Adds the units of this host that listen on TCP. */
int names_find_listening(Names *ret);
