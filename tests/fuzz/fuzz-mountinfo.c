/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Lines of /proc/self/mountinfo, with paths that users may choose. The input is the path of a file, from its
 * own name up to the root's with a line each, an empty line, and the mounts, of which those of device 8:1
 * are meant. */

#include "check.h"
#include "fuzz.h"
#include "mountinfo.h"
#include "util.h"

#define SIZE_MAX_BYTES 65536U
#define DEVICE (8U << 20 | 1U)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL, *file = NULL;
        char *lines;
        size_t n;

        if (size > SIZE_MAX_BYTES)
                return 0;
        text = new0(char, size + 1);
        check(text);
        if (size > 0)
                memcpy(text, data, size);

        lines = strstr(text, "\n\n");
        n = lines ? (size_t) (lines - text) + 1 : 0;
        lines = lines ? lines + 2 : text;
        for (size_t i = 0; i < n; i++)
                if (text[i] == '\n')
                        text[i] = 0;
        if (mounts_file_path(text, n, &file) < 0) {
                file = strdup("/usr/lib/libssl.so.3");
                check(file);
        }
        check(file[0] == '/');

        for (char *line = lines; line && *line; ) {
                char *next = strchr(line, '\n'), *path = NULL;

                if (next)
                        *next++ = 0;
                if (mounts_line_find(line, DEVICE, file, &path) >= 0) {
                        /* A mount, and the end of the file's path below it */
                        check((path[0] == '/' || !path[0]) && strlen(path) <= strlen(line) + strlen(file));
                        free(path);
                }
                line = next;
        }
        return 0;
}
