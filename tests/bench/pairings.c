/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs the programs of an object, pairings.bpf.c or tracer.bpf.c, for a control group, from the line "ready"
 * that it prints to the end of its standard input. Of pairings.bpf.c it writes the samples then, each when
 * it ended (CLOCK_REALTIME, as captures have it) and how long it took. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "pairings.h"

#define NSEC_PER_SEC UINT64_C(1000000000)

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        fprintf(stderr, "pairings: ");
        vfprintf(stderr, format, ap);
        fprintf(stderr, "\n");
        va_end(ap);
        exit(EXIT_FAILURE);
}

static uint64_t now(clockid_t clock) {
        struct timespec ts;

        clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static struct bpf_map* map_of(struct bpf_object *object, const char *name) {
        struct bpf_map *map = bpf_object__find_map_by_name(object, name);

        if (!map)
                die("there is no map %s", name);
        return map;
}

static void write_samples(struct bpf_object *object, const char *name, uint64_t n, uint64_t offset,
                          const char *directory) {
        char path[4096];
        struct sample *samples;
        FILE *f;

        if (n > SAMPLES_MAX)
                die("%s has %llu samples, and room for %u", name, (unsigned long long) n, SAMPLES_MAX);
        samples = mmap(NULL, sizeof(*samples) * SAMPLES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED,
                       bpf_map__fd(map_of(object, name)), 0);
        if (samples == MAP_FAILED)
                die("mapping %s: %m", name);
        for (uint64_t i = 0; i < n; i++)
                samples[i].at += offset;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        f = fopen(path, "we");
        if (!f || fwrite(samples, sizeof(*samples), n, f) != n || fclose(f) != 0)
                die("cannot write %s: %m", path);
}

int main(int argc, char *argv[]) {
        struct bpf_object *object;
        struct bpf_program *program;
        const struct taken *taken;
        struct stat st;
        uint64_t offset, group;
        size_t size;
        char *globals;

        if (argc != 3 && argc != 4) {
                fprintf(stderr, "usage: pairings OBJECT CONTROL-GROUP-DIRECTORY [OUTPUT-DIRECTORY]\n");
                return 2;
        }
        if (stat(argv[2], &st) < 0)
                die("%s: %m", argv[2]);
        group = st.st_ino;

        object = bpf_object__open(argv[1]);
        if (!object)
                die("opening %s: %m", argv[1]);
        globals = bpf_map__initial_value(map_of(object, ".rodata"), &size);
        if (!globals || size != sizeof(group))
                die("%s has other constants than the control group", argv[1]);
        memcpy(globals, &group, sizeof(group));
        if (bpf_object__load(object) < 0)
                die("loading %s: %m", argv[1]);
        bpf_object__for_each_program(program, object)
                if (!bpf_program__attach(program))
                        die("attaching %s: %m", bpf_program__name(program));
        printf("ready\n");
        fflush(stdout);

        while (getchar() != EOF)
                ;

        if (argc == 3)
                return EXIT_SUCCESS;

        bpf_object__for_each_program(program, object)
                bpf_program__unload(program);
        taken = bpf_map__initial_value(map_of(object, ".bss"), &size);
        if (!taken || size != sizeof(*taken))
                die("%s has other variables than the numbers of samples", argv[1]);
        offset = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC);
        write_samples(object, "accept_close", taken->accept_close, offset, argv[3]);
        write_samples(object, "read_send", taken->read_send, offset, argv[3]);
        return EXIT_SUCCESS;
}
