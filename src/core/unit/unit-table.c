/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>

#include "manager.h"
#include "observer.h"
#include "service-manager.h"
#include "unit-internal.h"
#include "unit-map.h"
#include "unit-name.h"
#include "unit-table.h"

Unit* manager_find_unit(Manager *m, const char *name) {
        FOREACH_UNIT(u, m)
                if (unit_has_name(u, name))
                        return u;
        return NULL;
}

/* Accepts canonical paths as in /proc/PID/cgroup: "/a/b". The root is not a unit. */
int control_group_path_check(const char *path) {
        const char *s = path;

        if (strlen(path) >= PATH_MAX)
                return -EINVAL; /* too long */

        do {
                size_t l;

                s++;
                l = strcspn(s, "/");
                if (l == 0 || l > 255 || (l == 1 && s[0] == '.') || (l == 2 && s[0] == '.' && s[1] == '.'))
                        return -EINVAL;
                for (size_t i = 0; i < l; i++)
                        if ((unsigned char) s[i] < ' ' || s[i] == 0x7f)
                                return -EINVAL;
                s += l;
        } while (*s == '/');

        return 0;
}

/* Completes a name passed by a client. */
int unit_name_complete(const char *written, char **ret, QosError *e) {
        int r;

        if (written[0] == '/') {
                r = control_group_path_check(written);
                if (r >= 0) {
                        *ret = strdup(written);
                        r = *ret ? 0 : -ENOMEM;
                }
        } else
                r = unit_name_mangle(written, ret);
        if (r == -EINVAL)
                return qos_error_set(e, QOS_ERROR_INVALID_UNIT_NAME, written,
                                     "'%.*s%s' is neither a unit's name nor the path of a control group",
                                     300, written, strlen(written) > 300 ? "..." : "");
        return r;
}

Unit* manager_get_unit(Manager *m, const char *name, QosError *e) {
        _cleanup_free_ char *n = NULL;
        Unit *u;

        if (unit_name_complete(name, &n, e) < 0)
                return NULL;

        u = manager_find_unit(m, n);
        if (!u)
                (void) qos_error_set(e, QOS_ERROR_NOT_ATTACHED, n, "'%s' is not attached", n);
        return u;
}
