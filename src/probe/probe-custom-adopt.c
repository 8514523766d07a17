/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Adopts custom probes of the previous run. */

#include <stdarg.h>
#include <sys/types.h>

#include "probe-custom-internal.h"
#include "probe-internal.h"

static bool take_single(int *place, int fd) {
        if (*place >= 0)
                return false;
        *place = fd;
        return true;
}

static bool take_program(CustomObject *c, const char *name, int fd) {
        _cleanup_free_ char *copy = strdup(name);
        char *hook = copy ? strchr(copy, '-') : NULL;

        if (!hook)
                return false;
        *hook++ = 0;
        return custom_object_add_program(c, copy, hook, fd) >= 0;
}

bool custom_take_fd(Probe *p, const char *name, int fd) {
        unsigned index, number;
        CustomObject *c;
        int n = 0;

        if (sscanf(name, "%u-%n", &index, &n) != 1 || n == 0 || index >= CUSTOM_PROBES_MAX)
                return false;
        name += n;
        if (!p->customs[index])
                p->customs[index] = custom_object_make(index);
        c = p->customs[index];
        if (!c)
                return false;
        if (streq(name, "maps"))
                return take_single(&c->maps_fd, fd);
        if (sscanf(name, "manifest-%u-%u-%u", &number, &c->programs_stored, &c->links_stored) == 3)
                return number == QOS_CUSTOM_VERSION && take_single(&c->manifest_fd, fd);
        if (sscanf(name, "link-%u", &number) == 1) {
                if (number >= CUSTOM_LINKS_MAX || custom_object_add_link(c, fd) < 0)
                        return false;
                c->links_end = MAX(c->links_end, number + 1);
                return true;
        }
        if (sscanf(name, "unit-%u", &number) == 1)
                return number < UNITS_MAX_LIMIT && take_single(c->map_fds + number, fd);
        name = startswith(name, "program-");
        return name && take_program(c, name, fd);
}

int custom_get_manifest(const Probe *p, unsigned index) {
        const CustomObject *c = p->customs[index];

        if (!c)
                return -ENOENT;
        return c->manifest_fd < 0 || c->maps_fd < 0 || c->n_programs == 0 ||
                               c->n_programs != c->programs_stored || c->n_link_fds != c->links_stored ?
                       -ESTALE : c->manifest_fd;
}

CustomObject* custom_object_adopt(Probe *p, unsigned index, uint32_t elements) {
        CustomObject *c = TAKE_PTR(p->customs[index]);

        custom_object_set_elements(c, elements);
        return c;
}

void custom_discard(Probe *p, unsigned index) {
        p->customs[index] = custom_object_unload(p->customs[index]);
}
