/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Diagnosis of one unit, for the verbs diagnose and why. */

#include "client.h"

typedef struct DiagnoseOptions {
        uint64_t interval;              /* ns */
        sd_json_variant *baseline;      /* NULL: history of the unit */
        bool keep;                      /* whether the unit remains attached until the connection ends */
} DiagnoseOptions;

/* Observes the unit for the interval, or until Ctrl+C, and diagnoses it. Returns the same as
 * client_call(). */
int unit_diagnose(Client *c, const char *unit, const DiagnoseOptions *options, bool *ret_interrupted,
                  Replies *ret);

/* Prints the text of a finding, and the suggested command; if follow is false, not "qosctl why". */
void finding_print(sd_json_variant *finding, bool follow);

/* Whether --for= is a time over which a unit can be diagnosed; logs. Returns an exit status. */
int diagnose_check_interval(void);
/* That of --for=, or the default; ns. */
uint64_t diagnose_get_interval(void);
