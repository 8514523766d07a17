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

int unit_name_expand(const char *pattern, const char *unit, char **ret) {
        _cleanup_free_ char *mangled = NULL;
        char buffer[UNIT_NAME_MAX + 1];
        const char *dot, *at;
        size_t n = 0;
        int r;

        assert(pattern);
        assert(unit);
        assert(ret);

        dot = strrchr(unit, '.');
        if (!dot)
                return -EINVAL;
        at = memchr(unit, '@', dot - unit);

        for (const char *p = pattern; *p; p++) {
                const char *part = p;
                size_t l = 1;

                if (*p == '%')
                        switch (*++p) {
                        case 'n':
                                part = unit;
                                l = strlen(unit);
                                break;
                        case 'N':
                                part = unit;
                                l = dot - unit;
                                break;
                        case 'p':
                                part = unit;
                                l = (at ?: dot) - unit;
                                break;
                        case 'i':
                                part = at ? at + 1 : dot;
                                l = dot - part;
                                break;
                        case '%':
                                break;
                        default:
                                return -EINVAL;
                        }
                if (l >= sizeof(buffer) - n)
                        return -EINVAL;
                memcpy(buffer + n, part, l);
                n += l;
        }
        buffer[n] = 0;

        r = unit_name_mangle(buffer, &mangled);
        if (r < 0)
                return r;
        if (!streq(mangled, buffer))
                return -EINVAL;
        *ret = TAKE_PTR(mangled);
        return 0;
}

int control_group_get_top_unit(const char *path, char **ret) {
        static const char *const suffixes[] = { ".service", ".scope", ".socket" };

        for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
                size_t l = strcspn(path, "/");
                _cleanup_free_ char *name = NULL;

                /* The service manager prefixes names that the kernel reserves with "_" */
                name = strndup(path + (*path == '_'), l - (*path == '_'));
                if (!name)
                        return -ENOMEM;
                path += l;

                if (endswith(name, ".slice"))
                        continue;
                for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                        if (endswith(name, suffixes[i])) {
                                *ret = TAKE_PTR(name);
                                return 1;
                        }
                return 0;
        }

        return 0;
}

static bool has_unit_suffix(const char *s, size_t n) {
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket", ".mount",
                                                ".swap" };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
                size_t l = strlen(suffixes[i]);

                if (n > l && memcmp(s + n - l, suffixes[i], l) == 0)
                        return true;
        }
        return false;
}

size_t control_group_find_unit(const char *path, group_is_roots_t is_roots, void *userdata,
                               size_t *ret_length) {
        const char *begin = NULL, *end = NULL;
        bool outer = true;              /* only slices owned by root so far */

        assert(path);
        assert(is_roots);
        assert(ret_length);

        for (const char *p = path, *next; *p == '/'; p = next) {
                const char *name = p + 1;
                size_t n = strcspn(name, "/");
                bool unit = has_unit_suffix(name, n), slice;

                next = name + n;
                slice = outer && unit && memcmp(next - strlen(".slice"), ".slice", strlen(".slice")) == 0 &&
                        is_roots(path, (size_t) (next - path), userdata);
                if (outer || (unit && is_roots(path, (size_t) (next - path), userdata)))
                        begin = name;
                if (unit)
                        end = next;
                outer = slice;
        }
        if (!end)
                return 0;
        /* The control group of a slice itself, or groups in it that are not units */
        if (begin > end)
                for (begin = end; begin[-1] != '/'; begin--)
                        ;

        *ret_length = (size_t) (end - begin);
        return (size_t) (begin - path);
}
