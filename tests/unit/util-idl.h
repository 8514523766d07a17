/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Holds JSON against the interface description: sd-varlink only notes differences at debug level. */

#include <stdbool.h>

#include <systemd/sd-json.h>
#include <systemd/sd-varlink-idl.h>

/* A type, method or error of org.qosd.QoS; fails when there is none. */
const sd_varlink_symbol* idl_find(sd_varlink_symbol_type_t type, const char *name);

/* The field of that name, of the direction (SD_VARLINK_REGULAR for types and errors); NULL when there is
 * none. */
const sd_varlink_field* idl_find_field(const sd_varlink_symbol *symbol,
                                       sd_varlink_field_direction_t direction, const char *name);

/* No field that is not described, none missing that must be there, all of their type, down to the leaves,
 * and nothing that is null or empty where it ought to be absent. Says what is wrong. */
bool idl_matches(const sd_varlink_symbol *symbol, sd_varlink_field_direction_t direction,
                 sd_json_variant *object);
