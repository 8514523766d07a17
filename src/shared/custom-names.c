/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>

#include "custom-names.h"
#include "util.h"

const char *const custom_directories[] = { "/etc/qosd/probes.d", "/usr/lib/qosd/probes.d", NULL };

void custom_names_scan(ProbeMask used) {
        probe_mask_forget_custom(used);
        for (const char *const *d = custom_directories; *d; d++) {
                struct dirent **entries = NULL;
                int n;

                n = scandir(*d, &entries, NULL, alphasort);
                for (int i = 0; i < n; i++) {
                        const char *end = endswith(entries[i]->d_name, ".xml");

                        if (end)
                                (void) probe_mask_add_custom(entries[i]->d_name,
                                                             (size_t) (end - entries[i]->d_name));
                        free(entries[i]);
                }
                if (n >= 0)
                        free(entries);
        }
}
