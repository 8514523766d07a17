/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A diagnosis of one unit, for diagnose and why. */

#include "client.h"

/* Observes the unit for the interval (ns), or until Ctrl+C, and has it diagnosed; results as of client_call().
 * keep: the unit stays attached until the connection ends. */
int unit_diagnose(Client *c, const char *unit, uint64_t interval, sd_json_variant *baseline, bool keep,
                  bool *ret_interrupted, Replies *ret);

/* The words of a finding, and its next command. */
void finding_print(sd_json_variant *finding);
