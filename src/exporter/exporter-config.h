/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Settings of qosd-exporter.conf and its drop-ins, see conf-file.h. */

#include "exposition.h"

void exporter_config_set_defaults(ExpositionOptions *options);

/* Parses all files into ret. Invalid lines are logged and ignored. root: directory prefix for tests,
 * normally "". Returns 0 or -ENOMEM. */
int exporter_config_load(const char *root, ExpositionOptions *ret);
