/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Prints how many nanoseconds this machine takes to read the clock, and to take and release a lock, in a BPF
 * program (calibration.bpf.c): the shortest of several measurements, as all that may interrupt one makes it
 * longer. */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "calibration.h"

#define RUNS 20000
#define MEASUREMENTS 7

static void __attribute__((noreturn)) die(const char *what) {
        fprintf(stderr, "calibration: %s: %s\n", what, strerror(errno));
        exit(EXIT_FAILURE);
}

/* Average run time of a program, in ns. */
static uint32_t run_time(struct bpf_object *object, const char *name) {
        struct bpf_program *program = bpf_object__find_program_by_name(object, name);
        char packet[64] = {};
        uint32_t best = UINT32_MAX;

        if (!program)
                die(name);
        for (unsigned i = 0; i < MEASUREMENTS; i++) {
                LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = sizeof(packet),
                            .repeat = RUNS);

                if (bpf_prog_test_run_opts(bpf_program__fd(program), &options) < 0)
                        die(name);
                if (options.duration < best)
                        best = options.duration;
        }
        return best;
}

int main(int argc, char *argv[]) {
        struct bpf_object *object;
        double nothing;

        if (argc != 2) {
                fprintf(stderr, "usage: calibration OBJECT\n");
                return 2;
        }
        object = bpf_object__open(argv[1]);
        if (!object || bpf_object__load(object) < 0)
                die(argv[1]);
        nothing = run_time(object, "nothing");
        printf("{\"clock read\":%.1f,\"lock and unlock\":%.1f}\n",
               (run_time(object, "clock_read") - nothing) / REPETITIONS,
               (run_time(object, "lock_pair") - nothing) / REPETITIONS);
        return EXIT_SUCCESS;
}
