/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>

#include "unit-name.h"

const char *const unit_observed_suffixes[] = { ".service", ".scope", ".slice", ".socket", NULL };

static bool unit_suffix_is_valid(const char *name) {
        static const char *const suffixes[] = {
                ".service", ".socket", ".target", ".device", ".mount", ".automount", ".swap", ".timer",
                        ".path",
                ".slice", ".scope",
        };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                if (endswith(name, suffixes[i]) && strlen(name) > strlen(suffixes[i]))
                        return true;
        return false;
}

int unit_name_mangle(const char *name, char **ret) {
        _cleanup_free_ char *n = NULL;

        assert(name);
        assert(ret);

        if (isempty(name) || strlen(name) > UNIT_NAME_MAX || streq(name, ".") || streq(name, ".."))
                return -EINVAL;
        for (const char *c = name; *c; c++)
                if (!isalnum((unsigned char) *c) && !strchr(":-_.\\@", *c))
                        return -EINVAL;

        if (unit_suffix_is_valid(name))
                n = strdup(name);
        else if (asprintf(&n, "%s.service", name) < 0)
                n = NULL;
        if (!n)
                return -ENOMEM;
        if (strlen(n) > UNIT_NAME_MAX || n[0] == '@')
                return -EINVAL;

        *ret = TAKE_PTR(n);
        return 0;
}
