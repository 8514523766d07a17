/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Selectors restrict a metric to a part of the unit: "requests.server[:443].latency.p99" is
 * "requests.server.latency.p99" of the endpoints with port 443,
 * "requests.client[redis-server.service].count" is "requests.client.count" of the peers that are this unit,
 * "storage.mounts[/srv].reads.count" is "storage.reads.count" of the file system mounted there. Pure. */

#include "snapshot.h"
#include "util.h"

typedef enum SelectorType {
        SELECTOR_NONE,          /* the whole unit */
        SELECTOR_PORT,          /* ":443": any address */
        SELECTOR_ADDRESS,       /* "127.0.0.1:443", "[::1]:443", "*:443", formatted as in snapshots */
        SELECTOR_PATH,          /* "/run/a.sock", "@abstract"; for peers also the control group path of a
                                 * unit */
        SELECTOR_UNIT,          /* "redis-server.service": peers only */
        SELECTOR_MOUNT,         /* "/srv", "8:1": a file system */
} SelectorType;

typedef struct Selector {
        SelectorType type;
        bool client;            /* peers instead of endpoints */
        uint16_t port, family;
        uint8_t address[16];    /* IPv4: the first 4 bytes */
        const char *text;       /* path, unit or file system; points into the parsed name, not NUL
                                 * terminated */
        size_t length;
} Selector;

/* Longest name without selector. */
#define SELECTOR_METRIC_MAX 64U

#define SELECTOR_EXPECTED \
        "an address and port like '127.0.0.1:443', '[::1]:443', '*:443' or ':443', the path of a socket, " \
        "or of a peer its unit; of 'storage.mounts' a mount point like '/srv', as 'qosctl mounts' shows " \
        "it, or a device number like '8:1'"

/* Splits a name into a selector and the name of a metric or distribution, which is not checked. Without
 * brackets: SELECTOR_NONE. The selector points into name. -EINVAL: invalid brackets or selector;
 * -ENAMETOOLONG. */
int selector_parse(const char *name, Selector *ret, char ret_metric[static SELECTOR_METRIC_MAX]);

/* For SELECTOR_MOUNT: whether it selects this mount point or device. */
bool selector_matches_text(const Selector *s, const char *text);

/* Whether the selector reveals peers or paths, which requires authorization. */
bool selector_is_private(const Selector *s);

/* Whether the row is selected. unit: unit that listens at the address of the row; NULL: unknown. The row of
 * others, which has no address, is never selected. */
bool selector_matches(const Selector *s, const Row *row, const char *unit);
