/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Names of metrics of a part of a unit: what is taken for one has a metric's name, and says what it selects
 * within the name. */

#include <sys/socket.h>

#include "check.h"
#include "fuzz.h"
#include "selector.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const struct {
                Row row;
                const char *unit;
        } rows[] = {
                { { .kind = ROW_PEER, .family = AF_INET, .port = 6379, .address = { 127, 0, 0, 1 } },
                  "redis-server.service" },
                { { .kind = ROW_ENDPOINT, .family = AF_INET6, .port = 443 }, NULL },
                { { .kind = ROW_ENDPOINT, .family = AF_UNIX, .path = "/run/a.sock" }, NULL },
                { { .kind = ROW_PEER, .rest = true }, NULL },
        };
        char metric[SELECTOR_METRIC_MAX];
        _cleanup_free_ char *name = NULL;
        Selector s;
        int r;

        name = strndup((const char*) data, size);
        check(name);
        r = selector_parse(name, &s, metric);
        if (r < 0) {
                check(r == -EINVAL || r == -ENAMETOOLONG);
                return 0;
        }
        check(strnlen(metric, sizeof(metric)) < sizeof(metric) && !strchr(metric, ']'));
        check((s.type == SELECTOR_NONE) == streq(name, metric));
        if (s.type == SELECTOR_PATH || s.type == SELECTOR_UNIT || s.type == SELECTOR_MOUNT)
                check(s.length > (s.type != SELECTOR_MOUNT) && s.text > name && s.text[-1] == '[' &&
                      s.text + s.length < name + strlen(name) && s.text[s.length] == ']');
        else
                check(!s.text && (s.type == SELECTOR_NONE) == (s.port == 0));
        for (size_t i = 0; i < ELEMENTSOF(rows); i++)
                if (selector_matches(&s, &rows[i].row, rows[i].unit))
                        check(!rows[i].row.rest && (rows[i].row.kind == ROW_PEER) == s.client &&
                              s.type != SELECTOR_NONE);
        return 0;
}
