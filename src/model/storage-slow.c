/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "storage-slow.h"
#include "util.h"

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Whether another file system has got the device number of the call's, as far as rows show. */
static bool device_is_reused(const union qos_storage_element *map, const struct qos_storage_slow *slow) {
        const struct qos_storage_header *h = &map[QOS_STORAGE_HEADER].header;

        for (unsigned i = 1; i < QOS_STORAGE_ROWS && slow->mount != 0; i++) {
                const struct qos_mount *m = h->mounts + i;

                if (__atomic_load_n(&m->used, __ATOMIC_ACQUIRE) && QOS_MOUNT_DEVICE(m) == slow->device &&
                    *(const uint64_t*) m->key.address != slow->mount)
                        return true;
        }
        return false;
}

/* false: there is none, or it is being replaced. */
static bool slow_read(const union qos_storage_element *map, unsigned i, SlowOperation *ret) {
        const struct qos_storage_slow *slow = map[QOS_STORAGE_SLOW].slow + i;
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
                .reused = device_is_reused(map, &copy),
                .pid = copy.pid,
        };
        for (unsigned k = 0; k < QOS_STATES; k++)
                ret->shares[k] = copy.divided ? 0 : NAN;
        for (unsigned k = 0; k < QOS_STORAGE_STATES && copy.divided; k++)
                ret->shares[storage_state_to_thread_state(k)] = copy.shares[k] / (double) UINT16_MAX;
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
                for (unsigned k = 0; k < QOS_STORAGE_SLOW_CALLS; k++)
                        if (slow_read(sources->sources[i].map, k, all + n) && all[n].at >= sources->since)
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
