/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Descriptors of a custom probe. */

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <bpf/bpf.h>

#include "probe-custom-internal.h"

void custom_object_close(CustomObject *c, unsigned slot) {
        if (c->views[slot])
                (void) munmap(c->views[slot], c->size);
        c->views[slot] = NULL;
        c->map_fds[slot] = close_fd(c->map_fds[slot]);
}

/* libbpf disables perf events, also those of tracepoints, with their links, of which the descriptor store
 * has copies. */
static void link_leave(struct bpf_link *link) {
        struct bpf_link_info info = {};
        uint32_t size = sizeof(info);

        if (bpf_link_get_info_by_fd(bpf_link__fd(link), &info, &size) >= 0 &&
            info.type == BPF_LINK_TYPE_PERF_EVENT)
                bpf_link__disconnect(link);
}

CustomObject* custom_object_leave(CustomObject *c) {
        for (size_t i = 0; c && i < c->n_links; i++)
                link_leave(c->links[i]);
        return custom_object_free(c);
}

CustomObject* custom_object_free(CustomObject *c) {
        if (!c)
                return NULL;

        /* Links first: no program must run on partially closed maps. Descriptors of what was loaded by
         * libbpf are its own */
        for (size_t i = 0; i < c->n_links; i++)
                (void) bpf_link__destroy(c->links[i]);
        free(c->links);
        for (size_t i = 0; i < c->n_link_fds && !c->object; i++)
                (void) close_fd(c->link_fds[i]);
        free(c->link_fds);
        for (size_t i = 0; i < c->n_programs; i++) {
                if (!c->object)
                        (void) close_fd(c->programs[i].fd);
                free(c->programs[i].name);
                free(c->programs[i].hook);
        }
        free(c->programs);
        if (!c->object)
                (void) close_fd(c->maps_fd);
        bpf_object__close(c->object);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                custom_object_close(c, i);
        (void) close_fd(c->manifest_fd);
        free(c);
        return NULL;
}

CustomObject* custom_object_make(unsigned index) {
        CustomObject *c = new0(CustomObject, 1);

        if (!c)
                return NULL;
        c->index = index;
        c->maps_fd = c->manifest_fd = -EBADF;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                c->map_fds[i] = -EBADF;
        return c;
}

void custom_object_set_elements(CustomObject *c, uint32_t elements) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);

        c->elements = elements;
        c->size = (elements * sizeof(union qos_custom_element) + page - 1) / page * page;
}

int custom_object_add_program(CustomObject *c, const char *name, const char *hook, int fd) {
        CustomObjectProgram *programs = reallocarray(c->programs, c->n_programs + 1, sizeof(*programs)), *p;

        if (!programs)
                return -ENOMEM;
        c->programs = programs;
        p = programs + c->n_programs;
        *p = (CustomObjectProgram) { .name = strdup(name), .hook = strdup(hook), .fd = fd };
        if (!p->name || !p->hook) {
                free(p->name);
                free(p->hook);
                return -ENOMEM;
        }
        c->n_programs++;
        return 0;
}

int custom_object_add_link(CustomObject *c, int fd) {
        int *fds;

        if (c->n_link_fds >= CUSTOM_LINKS_MAX)
                return -E2BIG;
        fds = reallocarray(c->link_fds, c->n_link_fds + 1, sizeof(int));
        if (!fds)
                return -ENOMEM;
        c->link_fds = fds;
        fds[c->n_link_fds++] = fd;
        return 0;
}
