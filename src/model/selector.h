/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Names of metrics that are about a part of a unit: "requests.server[:443].latency.p99" is
 * "requests.server.latency.p99" of the endpoints with port 443,
 * "requests.client[redis-server.service].count" is "requests.client.count" of the peers that are this unit.
 * Pure. */

#include "snapshot.h"
#include "util.h"

typedef enum SelectorType {
        SELECTOR_NONE,          /* the whole unit */
        SELECTOR_PORT,          /* ":443": whatever the address */
        SELECTOR_ADDRESS,       /* "127.0.0.1:443", "[::1]:443", "*:443", as endpoints and peers are shown */
        SELECTOR_PATH,          /* "/run/a.sock", "@abstract"; of peers also a unit, by the path of its
                                 * control group */
        SELECTOR_UNIT,          /* "redis-server.service": peers alone */
} SelectorType;

typedef struct Selector {
        SelectorType type;
        bool client;            /* peers, not endpoints */
        uint16_t port, family;
        uint8_t address[16];    /* IPv4: the first four */
        const char *text;       /* the path, or the unit, in the name that was parsed, not terminated */
        size_t length;
} Selector;

/* No name of a metric has more beside the selector. */
#define SELECTOR_METRIC_MAX 64U

#define SELECTOR_EXPECTED \
        "an address and port like '127.0.0.1:443', '[::1]:443', '*:443' or ':443', the path of a socket, " \
        "or of a peer its unit"

/* Splits a name into the selector and what remains without it, the name of a metric (or of a distribution),
 * of which it is not known here whether it exists. Without brackets: SELECTOR_NONE, and the name as it is.
 * The selector points into name. -EINVAL: the brackets, or what is in them, make no sense; -ENAMETOOLONG. */
int selector_parse(const char *name, Selector *ret, char ret_metric[static SELECTOR_METRIC_MAX]);

/* Whether it says with whom a unit talks, or where on the file system: which is not for everybody. */
bool selector_is_private(const Selector *s);

/* unit: who is known to listen at the row's address; NULL: nobody is. Never the rest, which has no
 * address. */
bool selector_matches(const Selector *s, const Row *row, const char *unit);
