/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Loads the programs of a custom probe, which record in maps of units (custom-map.h). They are not kept
 * over a restart of qosd. */

#include "custom-map.h"
#include "probe.h"

typedef struct CustomObject CustomObject;

/* A metric that the object file has. */
typedef struct CustomPlace {
        const char *name;
        struct qos_custom_metric place;
} CustomPlace;

/* What a program is attached to, if its section does not say so, see CustomProgram. */
typedef struct CustomAttachment {
        const char *program, *type, *path, *symbol, *provider;
        uint32_t perf_type;
        uint64_t perf_config, frequency;
} CustomAttachment;

typedef struct CustomSpec {
        const void *elf;
        size_t elf_size;
        struct qos_custom_layout layout;
        const CustomPlace *metrics;
        size_t n_metrics;
        const CustomAttachment *attachments;
        size_t n_attachments;
} CustomSpec;

/* Loads and attaches all programs, or none. ret_reason: why it failed; NULL: see the error. */
int custom_object_new(Probe *p, const CustomSpec *spec, CustomObject **ret, char **ret_reason);
/* Maps of units are closed as well. */
CustomObject* custom_object_free(CustomObject *c);

/* Creates and maps the map of a unit, as probe_add_network(). */
int custom_object_add_unit(CustomObject *c, unsigned slot, uint32_t generation, uint32_t map, uint64_t now,
                           const union qos_custom_element **ret);
void custom_object_remove_unit(CustomObject *c, unsigned slot);

typedef struct CustomProgramInfo {
        const char *name, *hook;
        uint64_t runs, run_nsec, recursion_misses; /* ABSENT: unknown */
} CustomProgramInfo;

void custom_object_foreach_program(CustomObject *c,
                                   void (*handler)(const CustomProgramInfo *i, void *userdata),
                                   void *userdata);
