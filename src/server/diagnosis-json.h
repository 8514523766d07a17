/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of diagnoses and their figures. */

#include <systemd/sd-json.h>

#include "baseline.h"
#include "diagnosis.h"
#include "unit.h"

/* Parses "figures" of diagnosis_to_json(). -EINVAL: invalid; *ret_bad: name of the invalid field, owned by v
 * or constant. */
int diagnosis_figures_from_json(sd_json_variant *v, DiagnosisFigures *ret, const char **ret_bad);

/* by_history: the baseline, if it is from the history; otherwise NULL. */
int diagnosis_to_json(const Unit *u, const DiagnosisEvidence *e, const Baseline *by_history,
                      const Diagnosis *d, sd_json_variant **ret);
