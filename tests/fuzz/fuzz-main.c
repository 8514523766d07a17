/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Without libFuzzer: feeds all files of a directory to a fuzzer, once. */

#include <dirent.h>

#include "check.h"
#include "fuzz.h"
#include "util.h"

static void run_file(const char *path) {
        static uint8_t data[1U << 20];
        _cleanup_fclose_ FILE *f = NULL;
        size_t size;

        f = fopen(path, "re");
        check(f);
        size = fread(data, 1, sizeof(data), f);
        check(feof(f));

        fprintf(stderr, "%s\n", path);
        check(LLVMFuzzerTestOneInput(data, size) == 0);
}

int main(int argc, char *argv[]) {
        unsigned n = 0;
        DIR *d;

        check(argc == 2);
        d = opendir(argv[1]);
        check(d);
        for (struct dirent *de; (de = readdir(d)); ) {
                _cleanup_free_ char *path = NULL;

                if (de->d_name[0] == '.')
                        continue;
                check(asprintf(&path, "%s/%s", argv[1], de->d_name) > 0);
                run_file(path);
                n++;
        }
        (void) closedir(d);

        check(n > 0);
        return EXIT_SUCCESS;
}
