/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Checks the manifest of a custom probe, and writes it as JSON; "qosctl check-probe" is for people. A
 * process of its own, which needs no privileges, as parsers of XML have bugs. */

#include <sys/resource.h>

#include "log.h"
#include "manifest.h"

/* Limit of its memory: a document of the largest size takes some 10 MiB. */
#define MEMORY_MAX (256U << 20)

static void json_unrefp(sd_json_variant **v) {
        (void) sd_json_variant_unref(*v);
}

static int read_file(const char *path, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = malloc(MANIFEST_SIZE_MAX + 1);
        _cleanup_fclose_ FILE *f = NULL;

        if (!text)
                return -ENOMEM;
        f = fopen(path, "re");
        if (!f)
                return -errno;
        errno = 0;
        *ret_size = fread(text, 1, MANIFEST_SIZE_MAX + 1, f);
        if (ferror(f))
                return errno_or_else(EIO);
        *ret = TAKE_PTR(text);
        return 0;
}

int main(int argc, char **argv) {
        _cleanup_(json_unrefp) sd_json_variant *manifest = NULL;
        _cleanup_(manifest_error_done) ManifestError error = {};
        _cleanup_free_ char *text = NULL, *name = NULL;
        size_t size = 0;
        int r;

        if (argc != 2) {
                fprintf(stderr, "Usage: %s FILE\n", argv[0]);
                return 2;
        }

        (void) setrlimit(RLIMIT_AS, &(struct rlimit) { MEMORY_MAX, MEMORY_MAX });
        name = manifest_get_name(argv[1]);
        if (!name) {
                fprintf(stderr,
                        "%s: The name of the file is invalid, expected NAME.xml, where NAME is a lower-case "
                        "letter, and up to %u letters and digits.\n",
                        argv[1], MANIFEST_NAME_MAX - 1);
                return EXIT_FAILURE;
        }
        r = read_file(argv[1], &text, &size);
        if (r < 0) {
                fprintf(stderr, "Failed to read '%s': %s\n", argv[1], strerror(-r));
                return EXIT_FAILURE;
        }

        r = manifest_parse(text, size, &error, &manifest);
        if (r >= 0)
                r = sd_json_variant_set_field_string(&manifest, "name", name);
        if (r < 0 && !error.message)
                fprintf(stderr, "Failed to check '%s': %s\n", argv[1], strerror(-r));
        else if (r < 0 && error.line > 0)
                fprintf(stderr, "%s:%u: %s\n", argv[1], error.line, error.message);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", argv[1], error.message);
        if (r < 0)
                return EXIT_FAILURE;

        r = sd_json_variant_dump(manifest, SD_JSON_FORMAT_NEWLINE, stdout, NULL);
        return r < 0 || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
