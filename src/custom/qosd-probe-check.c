/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Checks a custom probe, and writes what its manifest and its object file have as JSON; "qosctl check-probe"
 * is for people. A process of its own, which needs no privileges, as parsers have bugs. */

#include <sys/resource.h>

#include "log.h"
#include "manifest.h"
#include "object.h"

/* Limit of its memory: a document of the largest size takes some 10 MiB, an object file some 20 MiB. */
#define MEMORY_MAX (256U << 20)

static void json_unrefp(sd_json_variant **v) {
        (void) sd_json_variant_unref(*v);
}

/* Reads a file of up to max bytes, or the first max + 1 of a larger one. */
static int read_file(const char *path, size_t max, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = malloc(max + 1);
        _cleanup_fclose_ FILE *f = NULL;

        if (!text)
                return -ENOMEM;
        f = fopen(path, "re");
        if (!f)
                return -errno;
        errno = 0;
        *ret_size = fread(text, 1, max + 1, f);
        if (ferror(f))
                return errno_or_else(EIO);
        *ret = TAKE_PTR(text);
        return 0;
}

/* What a program that is attached to has in the manifest, in its section */
static const char* element_to_section(const char *element) {
        return streq(element, "perf-event") ? "perf_event" : element;
}

static sd_json_variant* array_find(sd_json_variant *array, const char *field, const char *name) {
        for (size_t i = 0; array && i < sd_json_variant_elements(array); i++) {
                sd_json_variant *v = sd_json_variant_by_index(array, i);

                if (streq_ptr(sd_json_variant_string(sd_json_variant_by_key(v, field)), name))
                        return v;
        }
        return NULL;
}

static const char* text_of(sd_json_variant *v, const char *field) {
        return sd_json_variant_string(sd_json_variant_by_key(v, field));
}

/* Elements of the manifest have a program of their kind, and the other way around. */
static int programs_check(const char *path, sd_json_variant *elements, sd_json_variant *programs) {
        for (size_t i = 0; elements && i < sd_json_variant_elements(elements); i++) {
                sd_json_variant *e = sd_json_variant_by_index(elements, i);
                const char *name = text_of(e, "program"), *section = element_to_section(text_of(e, "type"));
                sd_json_variant *program = array_find(programs, "name", name);

                if (program && streq_ptr(text_of(program, "section"), section))
                        continue;
                fprintf(stderr, "%s: <%s> names the program '%s', which %s '%s' in the object file.\n", path,
                        text_of(e, "type"), name,
                        program ? "is not in section" : "does not exist in section", section);
                return -EINVAL;
        }
        for (size_t i = 0; i < sd_json_variant_elements(programs); i++) {
                sd_json_variant *p = sd_json_variant_by_index(programs, i);
                const char *name = text_of(p, "name");

                if (strchr(text_of(p, "section"), '/') || array_find(elements, "program", name))
                        continue;
                fprintf(stderr,
                        "%s: There is no element for the program '%s', which is in section '%s' of the "
                        "object file.\n",
                        path, name, text_of(p, "section"));
                return -EINVAL;
        }
        return 0;
}

/* path: for messages. */
static int check_manifest(const char *path, const char *contents, sd_json_variant **ret) {
        _cleanup_(manifest_error_done) ManifestError error = {};
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        int r;

        r = read_file(contents, CUSTOM_MANIFEST_SIZE_MAX, &text, &size);
        if (r < 0) {
                fprintf(stderr, "Failed to read '%s': %s\n", path, strerror(-r));
                return r;
        }
        r = manifest_parse(text, size, &error, ret);
        if (r < 0 && !error.message)
                fprintf(stderr, "Failed to check '%s': %s\n", path, strerror(-r));
        else if (r < 0 && error.line > 0)
                fprintf(stderr, "%s:%u: %s\n", path, error.line, error.message);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", path, error.message);
        return r;
}

static int check_object(const char *path, const char *contents, sd_json_variant **ret) {
        _cleanup_free_ char *elf = NULL, *message = NULL;
        size_t size = 0;
        int r;

        r = read_file(contents, CUSTOM_OBJECT_SIZE_MAX, &elf, &size);
        if (r < 0) {
                fprintf(stderr, "Failed to read '%s': %s\n", path, strerror(-r));
                return r;
        }
        r = object_check(elf, size, &message, ret);
        if (r < 0)
                fprintf(stderr, "%s: %s\n", path, message ?: strerror(-r));
        return r;
}

static int check_probe(const char *name, const char *path, const char *const contents[static 2]) {
        _cleanup_(json_unrefp) sd_json_variant *manifest = NULL, *object = NULL;
        _cleanup_free_ char *object_path = NULL;
        const char *sha256;
        int r;

        if (asprintf(&object_path, "%.*s.bpf.o", (int) (strlen(path) - strlen(".xml")), path) < 0)
                return -ENOMEM;
        r = check_manifest(path, contents[0] ?: path, &manifest);
        if (r >= 0)
                r = check_object(object_path, contents[1] ?: object_path, &object);
        if (r >= 0)
                r = programs_check(path, sd_json_variant_by_key(manifest, "programs"),
                                   sd_json_variant_by_key(object, "programs"));
        if (r < 0)
                return r;
        sha256 = text_of(manifest, "sha256");
        if (sha256 && !streq_ptr(sha256, text_of(object, "sha256"))) {
                fprintf(stderr, "%s: 'X-SHA256' does not match '%s', whose hash is %s.\n", path, object_path,
                        text_of(object, "sha256"));
                return -EINVAL;
        }
        r = sd_json_variant_set_field_string(&manifest, "name", name);
        if (r >= 0)
                r = sd_json_variant_set_field(&manifest, "object", object);
        if (r >= 0)
                r = sd_json_variant_dump(manifest, SD_JSON_FORMAT_NEWLINE, stdout, NULL);
        return r < 0 || fflush(stdout) == 0 ? r : -EIO;
}

int main(int argc, char **argv) {
        _cleanup_free_ char *name = NULL;

        if (argc != 2 && argc != 4) {
                fprintf(stderr, "Usage: %s NAME.xml [MANIFEST OBJECT]\n", argv[0]);
                return 2;
        }

#ifndef __SANITIZE_ADDRESS__ /* its shadow memory is larger */
        (void) setrlimit(RLIMIT_AS, &(struct rlimit) { MEMORY_MAX, MEMORY_MAX });
#endif
        name = manifest_get_name(argv[1]);
        if (!name) {
                fprintf(stderr,
                        "%s: The name of the file is invalid, expected NAME.xml, where NAME is a lower-case "
                        "letter, and up to %u letters and digits.\n",
                        argv[1], MANIFEST_NAME_MAX - 1);
                return EXIT_FAILURE;
        }
        return check_probe(name, argv[1], (const char *const[]) { argv[2], argc > 2 ? argv[3] : NULL }) < 0 ?
               EXIT_FAILURE : EXIT_SUCCESS;
}
