/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Custom probes in the descriptor store of the service manager. Names are "custom-0-maps",
 * "custom-0-program-on_exec-tp_btf/sched_process_exec", "custom-0-link-3", "custom-0-unit-17", and, stored
 * last and with the version of the maps and the numbers of programs and links, "custom-0-manifest-1-1-4". */

#include <dirent.h>
#include <stdarg.h>
#include <sys/types.h>

#include <bpf/bpf.h>

#include "probe-custom-internal.h"
#include "probe-internal.h"

/* ---- links -------------------------------------------------------------------------------------------- */

/* ID of the program of a link, by the number of the descriptor in this process; 0: it is no link. */
static unsigned link_get_program(const char *number) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_free_ char *line = NULL, *path = NULL;
        unsigned program = 0;
        bool link = false;
        size_t size = 0;

        if (asprintf(&path, "/proc/self/fdinfo/%s", number) < 0)
                return 0;
        f = fopen(path, "re");
        while (f && getline(&line, &size, f) >= 0) {
                link = link || startswith(line, "link_type:");
                (void) sscanf(line, "prog_id: %u", &program);
        }
        return link ? program : 0;
}

/* libbpf does not have those of a USDT probe. */
int custom_object_find_links(CustomObject *c) {
        struct dirent *entry;
        DIR *directory;
        int r = 0;

        directory = opendir("/proc/self/fdinfo");
        if (!directory)
                return -errno;
        while (r >= 0 && (entry = readdir(directory))) {
                unsigned program = link_get_program(entry->d_name);

                for (size_t i = 0; i < c->n_programs && program > 0 && r >= 0; i++) {
                        struct bpf_prog_info info = {};
                        uint32_t size = sizeof(info);

                        r = bpf_prog_get_info_by_fd(c->programs[i].fd, &info, &size);
                        if (r >= 0 && info.id == program)
                                r = custom_object_add_link(c, atoi(entry->d_name));
                }
        }
        (void) closedir(directory);
        c->programs_stored = (unsigned) c->n_programs;
        c->links_stored = c->links_end = (unsigned) c->n_link_fds;
        return r;
}

/* ---- storing ------------------------------------------------------------------------------------------ */

#define NAME_MAX_SIZE 256U

static void _printf_(3, 4) name_make(const CustomObject *c, char ret[static NAME_MAX_SIZE],
                                     const char *format, ...) {
        int n = snprintf(ret, NAME_MAX_SIZE, "%u-", c->index);
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(ret + n, NAME_MAX_SIZE - (size_t) n, format, ap);
        va_end(ap);
}

static void name_of_manifest(const CustomObject *c, char ret[static NAME_MAX_SIZE]) {
        name_make(c, ret, "manifest-%u-%u-%u", QOS_CUSTOM_VERSION, c->programs_stored, c->links_stored);
}

static void name_of_program(const CustomObject *c, size_t i, char ret[static NAME_MAX_SIZE]) {
        name_make(c, ret, "program-%s-%s", c->programs[i].name, c->programs[i].hook);
}

/* Maps before the programs that use them. */
void custom_object_store(Probe *p, const CustomObject *c) {
        char name[NAME_MAX_SIZE];

        name_make(c, name, "maps");
        store_push(p, "custom", name, c->maps_fd);
        for (size_t i = 0; i < c->n_programs; i++) {
                name_of_program(c, i, name);
                store_push(p, "custom", name, c->programs[i].fd);
        }
        for (size_t i = 0; i < c->n_link_fds; i++) {
                name_make(c, name, "link-%zu", i);
                store_push(p, "custom", name, c->link_fds[i]);
        }
        name_of_manifest(c, name);
        store_push(p, "custom", name, c->manifest_fd);
}

void custom_object_store_unit(Probe *p, const CustomObject *c, unsigned slot) {
        char name[NAME_MAX_SIZE];

        name_make(c, name, "unit-%u", slot);
        store_push(p, "custom", name, c->map_fds[slot]);
}

void custom_object_drop_unit(const CustomObject *c, unsigned slot) {
        char name[NAME_MAX_SIZE];

        name_make(c, name, "unit-%u", slot);
        store_drop("custom", name);
}

CustomObject* custom_object_unload(CustomObject *c) {
        char name[NAME_MAX_SIZE];

        if (!c)
                return NULL;
        name_of_manifest(c, name);
        store_drop("custom", name);
        for (unsigned i = 0; i < c->links_end; i++) {
                name_make(c, name, "link-%u", i);
                store_drop("custom", name);
        }
        for (size_t i = 0; i < c->n_programs; i++) {
                name_of_program(c, i, name);
                store_drop("custom", name);
        }
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (c->map_fds[i] >= 0)
                        custom_object_drop_unit(c, i);
        name_make(c, name, "maps");
        store_drop("custom", name);
        return custom_object_free(c);
}
