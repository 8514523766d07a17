/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads and checks the files of a custom probe. */

#include "custom-manifest.h"

typedef struct CustomFiles {
        CustomManifest *manifest;
        void *elf;
        size_t elf_size;
} CustomFiles;

void custom_files_done(CustomFiles *f);

/* Only files that nobody but root can change are read, once, and what was read is checked. Waits for the
 * process that checks it. ret_reason: why it failed; NULL: see the error. */
int custom_files_read(const char *name, CustomFiles *ret, char **ret_reason);
