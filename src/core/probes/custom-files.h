/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads and checks the files of a custom probe. */

#include <systemd/sd-event.h>

#include "custom-manifest.h"

typedef struct CustomFiles {
        CustomManifest *manifest;
        int manifest_fd;                /* its JSON */
        void *elf;
        size_t elf_size;
} CustomFiles;

void custom_files_done(CustomFiles *f);

/* Parses the JSON of a checked manifest. -E2BIG: see custom_manifest_new(). */
int custom_files_parse(int fd, CustomManifest **ret);

/* Only files that nobody but root can change are read, once, and what was read is checked by a process
 * beside the event loop. */
typedef struct CustomCheck CustomCheck;

/* Called once, from the event loop; frees the check. reason: why it failed; NULL: see the error. files: what
 * may be taken from it. */
typedef void (*custom_check_handler_t)(int error, const char *reason, CustomFiles *files, void *userdata);

/* ret_reason: why it failed; NULL: see the error. */
int custom_check_new(sd_event *event, const char *name, custom_check_handler_t handler, void *userdata,
                     CustomCheck **ret, char **ret_reason);
/* Kills the process, and waits for its end. */
CustomCheck* custom_check_free(CustomCheck *c);
