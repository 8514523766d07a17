/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

#include <linux/types.h>

/* Of one run: at 120,000 requests per second 17 seconds */
#define SAMPLES_MAX (1U << 21)

struct sample {
        __u64 at;                       /* CLOCK_MONOTONIC ns, when it ended */
        __u64 took;                     /* ns */
};

/* How many samples there were, also those that there was no room for */
struct taken {
        __u64 accept_close;
        __u64 read_send;
};
