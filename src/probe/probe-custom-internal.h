/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the files on custom probes. */

#include <bpf/libbpf.h>

#include "probe-custom.h"

/* Limit of links of a probe, of which each is a descriptor, here and in the store: those of perf events are
 * one for each CPU. */
#define CUSTOM_LINKS_MAX 512U

typedef struct CustomObjectProgram {
        char *name, *hook;
        int fd;
} CustomObjectProgram;

struct CustomObject {
        unsigned index;                         /* number of the probe */
        struct bpf_object *object;              /* with the programs and their links; NULL: adopted */
        struct bpf_link **links;
        size_t n_links;
        CustomObjectProgram *programs;
        size_t n_programs;
        int *link_fds;
        size_t n_link_fds;
        unsigned programs_stored, links_stored; /* if all are stored, that many */
        unsigned links_end;                     /* greatest number of a stored link, plus 1 */
        int maps_fd;                            /* the map of the maps of units */
        int manifest_fd;                        /* the checked manifest */
        size_t size;                            /* of the map of a unit */
        uint32_t elements;
        int map_fds[UNITS_MAX_LIMIT];
        union qos_custom_element *views[UNITS_MAX_LIMIT];
};

/* probe-custom-object.c */
void custom_object_close(CustomObject *c, unsigned slot);
CustomObject* custom_object_make(unsigned index);
void custom_object_set_elements(CustomObject *c, uint32_t elements);
int custom_object_add_program(CustomObject *c, const char *name, const char *hook, int fd);
int custom_object_add_link(CustomObject *c, int fd);

/* Maps of the daemon, for programs. */
typedef struct CustomMaps {
        int groups, sockets;
} CustomMaps;

/* probe-custom.c: loads and attaches all programs, or none. ret_reason: why it failed; NULL: see the
 * error. */
int custom_object_new(const CustomMaps *maps, unsigned index, const CustomSpec *spec, CustomObject **ret,
                      char **ret_reason);

/* probe-custom-store.c */
int custom_object_find_links(CustomObject *c);
void custom_object_store(Probe *p, const CustomObject *c);
void custom_object_store_unit(Probe *p, const CustomObject *c, unsigned slot);
void custom_object_drop_unit(const CustomObject *c, unsigned slot);
