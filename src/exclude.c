/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "exclude.h"

static int list_insert(ExcludeList *l, uint16_t port) {
        size_t i = 0;

        while (i < l->n && l->ports[i] < port)
                i++;
        if (i < l->n && l->ports[i] == port)
                return 0;
        if (l->n >= EXCLUDES_MAX)
                return -E2BIG;

        memmove(l->ports + i + 1, l->ports + i, (l->n - i) * sizeof(l->ports[0]));
        l->ports[i] = port;
        l->n++;
        return 0;
}

int exclude_list_add(ExcludeList *l, const char *s) {
        const char *digits = startswith(s, "port:");
        unsigned long port = 0;

        if (isempty(digits) || strspn(digits, "0123456789") != strlen(digits))
                return -EINVAL;
        for (; *digits; digits++) {
                port = port * 10 + (unsigned long) (*digits - '0');
                if (port > UINT16_MAX)
                        return -EINVAL;
        }
        if (port == 0)
                return -EINVAL;

        return list_insert(l, (uint16_t) port);
}

int exclude_list_merge(ExcludeList *l, const ExcludeList *other) {
        int r;

        for (size_t i = 0; i < other->n; i++) {
                r = list_insert(l, other->ports[i]);
                if (r < 0)
                        return r;
        }
        return 0;
}

const char* exclude_list_format(const ExcludeList *l, size_t i, char buffer[static EXCLUDE_STRING_MAX]) {
        assert(i < l->n);

        (void) snprintf(buffer, EXCLUDE_STRING_MAX, "port:%u", l->ports[i]);
        return buffer;
}
