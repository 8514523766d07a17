/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A diagnosis of one unit, for diagnose and why. */

#include "client.h"

typedef struct DiagnoseOptions {
        uint64_t interval;              /* ns */
        sd_json_variant *baseline;      /* NULL: that of qosd */
        bool keep;                      /* the unit stays attached until the connection ends */
} DiagnoseOptions;

/* Observes the unit for the interval, or until Ctrl+C, and has it diagnosed; results as of client_call(). */
int unit_diagnose(Client *c, const char *unit, const DiagnoseOptions *options, bool *ret_interrupted,
                  Replies *ret);

/* The words of a finding, and its next command, unless that is "qosctl why" and follow is false. */
void finding_print(sd_json_variant *finding, bool follow);
