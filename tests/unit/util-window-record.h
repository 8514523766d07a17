/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The code of the programs that records in the map of a unit (bpf/core/window-record.h), in a process. */

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() ((uint32_t) gettid())
#define window_now() UINT64_C(0)
#define WINDOW_WAITS UINT32_MAX
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })
#include "util-window.h"
#include "window-record.h"
#include "window.h"

static inline struct qos_unit_map* unit_new_at(uint64_t now) {
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);

        check(u);
        u->epoch = now / QOS_EPOCH_NSEC;
        u->epoch_end = (u->epoch + 1) * QOS_EPOCH_NSEC;
        return u;
}

static inline void record(struct qos_unit_map *u, uint64_t now, uint64_t nsec) {
        window_advance(u, now);
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_add(u, QOS_FIRST_BYTE, nsec, 1);
}
