/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Unit names on the command line. */

#include <systemd/sd-bus.h>

#include "client.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"

typedef struct Names {
        char **items;
        size_t n;
} Names;

#define NAMES_INIT (Names) {}

void names_done(Names *n);
#define _cleanup_names_ _cleanup_(names_done)

/* Adds a name unless it is present; logs -ENOMEM. */
int names_add(Names *n, const char *name);

bool is_glob(const char *s);

/* Expands patterns to attached units; names are resolved by qosd. Returns an exit status: a pattern without
 * match is reported, and counts as "not attached". */
int names_expand_attached(Client *c, int argc, char **argv, Names *ret);
/* Expands patterns to units loaded by the local service manager. */
int names_expand_loaded(int argc, char **argv, Names *ret);
/* Loads a unit by its name, an alias, or the name without suffix. Returns an exit status, and logs.
 * ret_path: of the D-Bus object. */
int unit_load(sd_bus *bus, const char *name, char **ret_path, char **ret_id);
/* Whether a call failed because the unit is not attached, although it exists as far as the local service
 * manager knows. */
bool unit_is_detached(int r, const Replies *replies);
/* Says that units of the type of this one have no processes. Returns an exit status. */
int unit_type_fail(const char *unit);
/* As client_fail() with "<what> '<unit>'": distinguishes units that are not attached from those that do not
 * exist, so that a typo does not yield a hint to attach it, and says which unit was probably meant. */
int unit_fail(int r, const Replies *replies, const char *what, const char *unit);
int unit_read_fail(int r, const Replies *replies, const char *unit);
/* Adds local units that listen on TCP. */
int names_find_listening(Names *ret);
/* The local unit that listens at an address as qosd writes it ("127.0.0.1:80", "/run/x.sock"). -ENOENT: none
 * is known, -EREMOTE: not an address of this host, -EINVAL: no address. */
int listener_find_unit(const char *address, char **ret);
