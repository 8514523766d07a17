/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Loads the programs of a custom probe, which record in maps of units (custom-map.h). All are stored in the
 * descriptor store, with the checked manifest. */

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
        int manifest_fd;                        /* what the process wrote that has checked the manifest */
} CustomSpec;

/* Loads and attaches all programs, or none, in a thread. index: number of the probe. What spec points to is
 * needed until the handler is called, once and from the event loop, which frees the start. reason: why it
 * failed; NULL: see the error. object: to be taken. */
typedef struct CustomStart CustomStart;
typedef void (*custom_start_handler_t)(int error, const char *reason, CustomObject *object, void *userdata);
int custom_start_new(Probe *p, unsigned index, const CustomSpec *spec, custom_start_handler_t handler,
                     void *userdata, CustomStart **ret);
/* Waits for the end of the thread. */
CustomStart* custom_start_free(CustomStart *s);

/* Finds out which program cannot be loaded, from a warning of libbpf in the thread that loads. */
void custom_see_warning(const char *warning);

/* Closes all, also maps of units. */
CustomObject* custom_object_free(CustomObject *c);
/* The same, before the process ends: what is in the descriptor store continues to count. */
CustomObject* custom_object_leave(CustomObject *c);
/* Closes all, and removes it from the descriptor store. */
CustomObject* custom_object_unload(CustomObject *c);

/* What the previous run has stored. custom_get_manifest(): a descriptor. -ENOENT: nothing is stored.
 * -ESTALE: not all of it is; to be discarded. custom_object_adopt(): to be called with the number of
 * elements of a map, which the manifest says. */
int custom_get_manifest(const Probe *p, unsigned index);
CustomObject* custom_object_adopt(Probe *p, unsigned index, uint32_t elements);
void custom_discard(Probe *p, unsigned index);

typedef struct CustomOwner {
        unsigned slot;
        uint32_t unit, map;             /* generations */
        uint64_t now;
} CustomOwner;

/* Creates and maps the map of a unit, as probe_add_network(). */
int custom_object_add_unit(Probe *p, CustomObject *c, const CustomOwner *owner,
                           const union qos_custom_element **ret);
/* Maps the map of the previous run. -ENOENT: there is none. -ESTALE: it is of another unit. */
int custom_object_adopt_unit(CustomObject *c, unsigned slot, uint32_t generation,
                             const union qos_custom_element **ret);
void custom_object_remove_unit(CustomObject *c, unsigned slot);

typedef struct CustomProgramInfo {
        const char *name, *hook;
        uint64_t runs, run_nsec, recursion_misses; /* ABSENT: unknown */
} CustomProgramInfo;

/* Whether it has programs that are iterators, and runs these, for as long as they take: not in the event
 * loop. */
bool custom_object_has_iterators(const CustomObject *c);
void custom_object_run_iterators(const CustomObject *c);

/* Time that all programs have run, in ns, as far as the kernel measures it (kernel.bpf_stats_enabled). */
uint64_t custom_object_get_run_time(const CustomObject *c);

void custom_object_foreach_program(CustomObject *c,
                                   void (*handler)(const CustomProgramInfo *i, void *userdata),
                                   void *userdata);
