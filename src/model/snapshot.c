/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdlib.h>

#include "snapshot.h"

void histogram_done(Histogram *h) {
        free(h->buckets);
        *h = (Histogram) {};
}
