/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Report on the size of a scrape. */

#include "exposition.h"

/* Prints the number of series of each unit by scope, the schemas of the exported histograms, and the number
 * of dropped series. Same errors as exposition_write(). */
int exposition_report(FILE *file, bool legend, const ExpositionOptions *options, const Replies *catalogue,
                      const Replies *exports);
