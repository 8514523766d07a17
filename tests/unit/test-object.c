/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Object files of custom probes: what is refused without loading it, also if they are cut or changed.
 *
 *     test-object GOOD [REASON HOSTILE]... */

#include "check.h"
#include "object.h"

static char* read_file(const char *path, size_t *ret_size) {
        char *data = malloc(CUSTOM_OBJECT_SIZE_MAX);
        FILE *f = fopen(path, "re");

        check(data && f);
        *ret_size = fread(data, 1, CUSTOM_OBJECT_SIZE_MAX, f);
        check(*ret_size > 0 && fclose(f) == 0);
        return data;
}

/* The reason why it is invalid; NULL: it is valid. */
static char* check_object(const void *elf, size_t size, sd_json_variant **ret) {
        char *message;
        int r;

        *ret = NULL;
        r = object_check(elf, size, &message, ret);
        check(r >= 0 ? *ret && !message : r == -EINVAL && !*ret && message);
        return message;
}

static void test_good(const char *elf, size_t size) {
        sd_json_variant *object, *programs;
        char *message = check_object(elf, size, &object);

        check(!message);
        programs = sd_json_variant_by_key(object, "programs");
        check(sd_json_variant_elements(programs) == 2);
        check(strlen(sd_json_variant_string(sd_json_variant_by_key(object, "sha256"))) == 64);
        (void) sd_json_variant_unref(object);
}

static void test_hostile(const char *reason, const char *path) {
        sd_json_variant *object;
        size_t size;
        char *elf = read_file(path, &size), *message = check_object(elf, size, &object);

        if (!message || !strstr(message, reason)) {
                fprintf(stderr, "%s: %s, expected: %s\n", path, message ?: "valid", reason);
                exit(EXIT_FAILURE);
        }
        free(message);
        free(elf);
}

/* Cut at any place, and with any byte changed: whatever it is then, the check ends with a result. */
static void test_broken(const char *elf, size_t size) {
        char *copy = malloc(size);
        sd_json_variant *object;
        char *message;

        check(copy);
        memcpy(copy, elf, size);
        for (size_t n = 0; n < size; n += 7) {
                message = check_object(copy, n, &object);
                check(message);
                free(message);
        }
        for (size_t i = 0; i < size; i++) {
                copy[i] = (char) ~copy[i];
                free(check_object(copy, size, &object));
                (void) sd_json_variant_unref(object);
                copy[i] = elf[i];
        }
        free(copy);
}

int main(int argc, char **argv) {
        size_t size;
        char *elf;

        check(argc >= 2 && argc % 2 == 0);
        elf = read_file(argv[1], &size);
        test_good(elf, size);
        for (int i = 2; i < argc; i += 2)
                test_hostile(argv[i], argv[i + 1]);
        test_broken(elf, size);
        free(elf);
        return 0;
}
