/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps BPF run-time statistics on for as long as it runs, and with them two empty programs, one for each
 * packet of a control group and one at a tracepoint: their run time is the cost of measuring. For each
 * line on standard input it prints one line of JSON: the time and number of runs of all programs by ID. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

static const struct bpf_insn nothing[] = {
        { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1 },
        { .code = BPF_JMP | BPF_EXIT },
};

static void __attribute__((noreturn)) die(const char *what) {
        fprintf(stderr, "programs: %s: %s\n", what, strerror(errno));
        exit(EXIT_FAILURE);
}

static uint32_t program_id(int fd) {
        struct bpf_prog_info info = {};
        uint32_t length = sizeof(info);

        if (bpf_prog_get_info_by_fd(fd, &info, &length) < 0)
                die("information about a program");
        return info.id;
}

static int load_nothing(enum bpf_prog_type type, enum bpf_attach_type attach, uint32_t btf_id) {
        LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = attach, .attach_btf_id = btf_id);
        int fd;

        fd = bpf_prog_load(type, "nothing", "GPL", nothing, sizeof(nothing) / sizeof(nothing[0]), &options);
        if (fd < 0)
                die("loading an empty program");
        return fd;
}

static void print_programs(void) {
        const char *comma = "";
        uint32_t id = 0;

        printf("{");
        while (bpf_prog_get_next_id(id, &id) == 0) {
                struct bpf_prog_info info = {};
                uint32_t length = sizeof(info);
                int fd;

                fd = bpf_prog_get_fd_by_id(id);
                if (fd < 0) {
                        /* Went away between the two calls */
                        if (errno == ENOENT)
                                continue;
                        die("opening a program");
                }
                if (bpf_prog_get_info_by_fd(fd, &info, &length) < 0)
                        die("information about a program");
                close(fd);
                printf("%s\"%" PRIu32 "\":{\"name\":\"%s\",\"type\":%" PRIu32
                       ",\"time\":%llu,\"runs\":%llu}",
                       comma, id, info.name, info.type,
                       (unsigned long long) info.run_time_ns, (unsigned long long) info.run_cnt);
                comma = ",";
        }
        printf("}\n");
        fflush(stdout);
}

int main(int argc, char *argv[]) {
        int cgroup, skb, tracepoint, btf_id;
        char line[16];

        if (argc != 3) {
                fprintf(stderr, "usage: programs CONTROL-GROUP-DIRECTORY TRACEPOINT\n");
                return 2;
        }

        if (bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
                die("switching statistics on");

        cgroup = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (cgroup < 0)
                die(argv[1]);
        skb = load_nothing(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, 0);
        if (bpf_link_create(skb, cgroup, BPF_CGROUP_INET_EGRESS, NULL) < 0)
                die("attaching to the control group");

        btf_id = libbpf_find_vmlinux_btf_id(argv[2], BPF_TRACE_RAW_TP);
        if (btf_id < 0)
                die(argv[2]);
        tracepoint = load_nothing(BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, (uint32_t) btf_id);
        if (bpf_raw_tracepoint_open(NULL, tracepoint) < 0)
                die(argv[2]);

        printf("{\"cgroup_skb\":%" PRIu32 ",\"tracing\":%" PRIu32 "}\n", program_id(skb),
               program_id(tracepoint));
        fflush(stdout);

        while (fgets(line, sizeof(line), stdin))
                print_programs();
        return EXIT_SUCCESS;
}
