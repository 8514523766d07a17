/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "network-source.h"

NetworkSource unit_get_network_source(const Unit *u) {
        return (NetworkSource) { .map = u->network.map, .since = u->network.since };
}

static void unit_add_network(Unit *u, const Unit *inner, int times) {
        NetworkSource source;

        if (!u->network.map || !inner->network.map)
                return;
        if (!u->network.base) {
                u->network.base = new0(NetworkCounts, 1);
                if (!u->network.base) {
                        (void) log_oom();
                        return;
                }
        }
        source = unit_get_network_source(inner);
        network_counts_add(u->network.base, &source, times);
}

void unit_open_network(Unit *u, const Unit *inner) {
        unit_add_network(u, inner, 1);
}

void unit_close_network(Unit *u, const Unit *inner) {
        unit_add_network(u, inner, -1);
}
