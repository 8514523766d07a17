/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How many series a scrape has, and in which schema its histograms are, for people. */

#include "exposition.h"

/* Prints the series of each unit by scope, the schemas of the histograms that are exported, and how many
 * series are left out. Same errors as exposition_write(). */
int exposition_report(FILE *file, bool legend, const ExpositionOptions *options, const Replies *catalogue,
                      const Replies *exports);
