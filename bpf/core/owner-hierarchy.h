/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Reassignment of sockets between a unit and its descendants */

#include "maps.h"

/* Whether sockets of one unit are to be reassigned to that of their task: the latter is a descendant, or the
 * former is detached. Verified on its own. */
__attribute__((noinline, weak)) int owner_is_superseded(const struct qos_owner *owner,
                                                        const struct qos_owner *by) {
        const struct qos_hierarchy *h;
        struct qos_owner outer, o;

        if (!owner || !by)
                return 0;
        outer = *owner;
        o = *by;
        h = bpf_map_lookup_elem(&hierarchies, &outer.slot);
        if (h && h->generation == outer.generation && h->flags & QOS_HIERARCHY_RETAINED)
                return 1;
        for (int i = 0; i < QOS_HIERARCHY_DEPTH; i++) {
                h = bpf_map_lookup_elem(&hierarchies, &o.slot);
                if (!h || h->generation != o.generation)
                        return 0;
                o = owner_read(&h->outer);
                if (o.generation == 0)
                        return 0;
                if (owner_equal(&o, &outer))
                        return 1;
        }
        return 0;
}
