/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "storage-slow.h"
#include "util.h"

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* false: there is none, or it is being replaced. */
static bool slow_read(const struct qos_storage_slow *slow, SlowOperation *ret) {
        uint64_t at = load(&slow->at);
        struct qos_storage_slow copy;
        int64_t result;

        if (at == 0)
                return false;
        copy = *slow;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (load(&slow->at) != at || copy.call >= QOS_STORAGE_CALLS)
                return false;

        result = (int64_t) copy.result;
        *ret = (SlowOperation) {
                .at = at,
                .nsec = copy.nsec,
                .call = copy.call,
                .bytes = copy.call <= QOS_STORAGE_WRITE && result >= 0 ? (uint64_t) result : ABSENT,
                .error = result < 0 ? (int) -result : 0,
                .device = copy.device,
                .pid = copy.pid,
        };
        for (unsigned i = 0; i < QOS_STATES; i++)
                ret->shares[i] = copy.divided ? 0 : NAN;
        for (unsigned i = 0; i < QOS_STORAGE_STATES && copy.divided; i++)
                ret->shares[storage_state_to_thread_state(i)] = copy.shares[i] / (double) UINT16_MAX;
        memcpy(ret->thread, copy.thread, sizeof(ret->thread) - 1);
        memcpy(ret->name, copy.name, sizeof(ret->name) - 1);
        return true;
}

static int slow_compare(const void *a, const void *b) {
        const SlowOperation *x = a, *y = b;

        return x->at > y->at ? -1 : x->at < y->at;
}

size_t slow_operations_read(const StorageSources *sources, SlowOperation *ret) {
        SlowOperation all[2 * QOS_STORAGE_SLOW_CALLS];
        size_t n = 0;

        assert(sources);
        assert(ret);

        for (size_t i = 0; i < sources->n; i++) {
                const struct qos_storage_slow *slow = sources->sources[i].map[QOS_STORAGE_SLOW].slow;

                for (size_t k = 0; k < QOS_STORAGE_SLOW_CALLS; k++)
                        if (slow_read(slow + k, all + n) && all[n].at >= sources->since)
                                n++;
                qsort(all, n, sizeof(*all), slow_compare);
                n = MIN(n, (size_t) QOS_STORAGE_SLOW_CALLS);
        }
        memcpy(ret, all, n * sizeof(*all));
        return n;
}

const char* storage_call_to_string(enum qos_storage_call call) {
        static const char *const names[QOS_STORAGE_CALLS] = {
                [QOS_STORAGE_READ]   = "read",
                [QOS_STORAGE_WRITE]  = "write",
                [QOS_STORAGE_SYNC]   = "sync",
                [QOS_STORAGE_OPEN]   = "open",
                [QOS_STORAGE_CREATE] = "create",
                [QOS_STORAGE_REMOVE] = "remove",
                [QOS_STORAGE_RENAME] = "rename",
                [QOS_STORAGE_LOOKUP] = "lookup",
                [QOS_STORAGE_CHANGE] = "change",
        };

        return call < QOS_STORAGE_CALLS ? names[call] : NULL;
}
