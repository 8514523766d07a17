/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A diagnosis and its figures as JSON. */

#include <systemd/sd-json.h>

#include "baseline.h"
#include "diagnosis.h"
#include "unit.h"

/* -EINVAL: not what diagnosis_to_json() writes as "figures"; ret_bad: the field that is wrong, in v or a
 * constant. */
int diagnosis_figures_from_json(sd_json_variant *v, DiagnosisFigures *ret, const char **ret_bad);

/* by_history: where the baseline in the evidence is from; NULL: not from the history. */
int diagnosis_to_json(const Unit *u, const DiagnosisEvidence *e, const Baseline *by_history,
                      const Diagnosis *d, sd_json_variant **ret);
