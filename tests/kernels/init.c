/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The only process of a virtual machine that boots some kernel: loads all BPF programs of qosd, attaches
 * each where that needs nothing but the program, and reports what the verifier spent on it. Then it looks
 * whether what kernels do differently is the same to the programs. On its standard output, one line each:
 *
 *   kernel RELEASE
 *   program NAME VERDICT INSTRUCTIONS STATES MEMORY [MESSAGE]
 *   check NAME passed, or what is wrong
 *   end
 *
 * VERDICT: "attached", "loaded" (attaching takes more than the program), or "refused". INSTRUCTIONS:
 * verified, by the kernel's own count. STATES: the most that the verifier kept at a time. MEMORY: by how
 * many KiB the machine's free memory fell at most while the program was loaded. MESSAGE: what the kernel
 * said last.
 *
 * Most of the time that one program takes is that of the object around it (BTF, relocations, maps). The
 * programs are loaded together, and by halves where that fails, down to the one that the kernel refuses. */

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "contention-map.h"
#include "owner.skel.h"
#include "qosd.skel.h"

#define LOG_SIZE (1U << 20)
#define LOG_STATISTICS 4        /* BPF_LOG_STATS of the kernel */
#define SAMPLE_NSEC 5000000L

struct result {
        char verdict[16];
        unsigned long instructions, states, memory;
        char message[512];
        char log[LOG_SIZE];     /* of the kernel, once it has verified the program */
};

static char complaint[512];

static int on_print(enum libbpf_print_level level, const char *format, va_list ap) {
        char line[512];

        if (level != LIBBPF_WARN)
                return 0;
        (void) vsnprintf(line, sizeof(line), format, ap);
        if (strstr(line, "failed"))
                (void) snprintf(complaint, sizeof(complaint), "%s", line);
        return 0;
}

/* The kernel's last words but for the statistics, on one line. */
static void message_take(struct result *result) {
        const char *last = complaint;
        char *line, *save = NULL;

        for (line = strtok_r(result->log, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (*line && strncmp(line, "processed ", 10) != 0 &&
                    strncmp(line, "verification time", 17) != 0 &&
                    strncmp(line, "stack depth", 11) != 0 && strncmp(line, "subprog ", 8) != 0 &&
                    strncmp(line, "mark_precise", 12) != 0)
                        last = line;
        (void) snprintf(result->message, sizeof(result->message), "%s", last);
        for (char *c = result->message; *c; c++)
                if (*c == '\n')
                        *c = ' ';
}

/* Returns a file descriptor, -errno, or -EOPNOTSUPP for programs that need more than themselves to be
 * attached. */
static int attach(const struct bpf_program *program) {
        const char *section = bpf_program__section_name(program);
        int fd, group;

        switch (bpf_program__type(program)) {

        case BPF_PROG_TYPE_TRACING:
                if (strncmp(section, "iter/", 5) == 0) {
                        if (strncmp(section, "iter/task", 9) != 0)
                                return -EOPNOTSUPP; /* of a map */
                        fd = bpf_link_create(bpf_program__fd(program), 0, BPF_TRACE_ITER, NULL);
                } else
                        fd = bpf_raw_tracepoint_open(NULL, bpf_program__fd(program));
                break;

        case BPF_PROG_TYPE_CGROUP_SKB:
        case BPF_PROG_TYPE_CGROUP_SOCK:
        case BPF_PROG_TYPE_SOCK_OPS:
                group = open("/sys/fs/cgroup", O_RDONLY|O_DIRECTORY);
                if (group < 0)
                        return -errno;
                fd = bpf_link_create(bpf_program__fd(program), group,
                                     bpf_program__expected_attach_type(program), NULL);
                break;

        default:
                return -EOPNOTSUPP;
        }

        return fd < 0 ? -errno : fd;
}

static struct qosd_bpf* skeleton_open(void) {
        struct qosd_bpf *skeleton;

        skeleton = qosd_bpf__open();
        if (!skeleton) {
                printf("error cannot open the programs: %s\n", strerror(errno));
                exit(EXIT_FAILURE);
        }
        return skeleton;
}

/* What is not in the programs' own object: as src/probe/probe.c sets it, since the verifier follows
 * constants. */
static int skeleton_prepare(struct qosd_bpf *skeleton) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        int fd;

        skeleton->rodata->root_group_id = 1;
        skeleton->rodata->cpus = libbpf_num_possible_cpus();
        skeleton->rodata->page_size = sysconf(_SC_PAGESIZE);
        skeleton->rodata->tick_nsec = 4000000;
        skeleton->rodata->loaded_at = 1;

        /* A map of maps takes the shape of those that it is to have from one of them */
        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "shards", sizeof(__u32), sizeof(struct qos_contention_cpu),
                            libbpf_num_possible_cpus() + QOS_CONTENTION_CPUS_MORE, &options);
        if (fd < 0)
                return fd;
        return bpf_map__set_inner_map_fd(skeleton->maps.contention_cpus, fd);
}

/* As object_set_targets() in src/probe/probe.c. */
static int set_target(struct bpf_program *program) {
        struct btf *btf;
        int r = 0;

        if (!strstr(bpf_program__section_name(program), "/do_filp_open"))
                return 0;
        btf = btf__load_vmlinux_btf();
        if (btf && btf__find_by_name_kind(btf, "do_filp_open", BTF_KIND_FUNC) < 0)
                r = bpf_program__set_attach_target(program, 0, "do_file_open");
        btf__free(btf);
        return r;
}

static void log_get_statistics(struct result *result) {
        const char *statistics;

        statistics = strstr(result->log, "peak_states ");
        if (statistics)
                (void) sscanf(statistics, "peak_states %lu", &result->states);
        /* That of Linux 7.2 begins with a part of the sum */
        statistics = strstr(result->log, "processed ");
        if (statistics)
                (void) sscanf(statistics, "processed %lu", &result->instructions);
}

static void verdict_set(struct result *result, const char *verdict) {
        (void) snprintf(result->verdict, sizeof(result->verdict), "%s", verdict);
}

/* What became of a loaded program. */
static void program_take(const struct bpf_program *program, struct result *result) {
        struct bpf_prog_info info = {};
        uint32_t length = sizeof(info);
        int r;

        if (bpf_prog_get_info_by_fd(bpf_program__fd(program), &info, &length) >= 0)
                result->instructions = info.verified_insns;

        r = attach(program);
        if (r >= 0) {
                close(r);
                verdict_set(result, "attached");
        } else if (r == -EOPNOTSUPP)
                verdict_set(result, "loaded");
        else {
                verdict_set(result, "refused");
                (void) snprintf(result->message, sizeof(result->message), "attaching failed: %s",
                                strerror(-r));
        }
}

/* Loads n programs from the one numbered first on. Leaves their results empty if not all can be loaded,
 * unless there is one only. */
static void programs_try(struct qosd_bpf *skeleton, size_t first, size_t n, struct result *results) {
        struct bpf_program *program;
        size_t i = 0;
        int r;

        r = skeleton_prepare(skeleton);
        bpf_object__for_each_program(program, skeleton->obj) {
                bool wanted = i >= first && i < first + n;

                (void) bpf_program__set_autoload(program, wanted);
                if (wanted) {
                        (void) bpf_program__set_log_level(program, LOG_STATISTICS);
                        (void) bpf_program__set_log_buf(program, results[i - first].log, LOG_SIZE);
                        if (r >= 0)
                                r = set_target(program);
                }
                i++;
        }
        if (r >= 0)
                r = qosd_bpf__load(skeleton);
        if (r < 0 && n > 1)
                return;

        for (size_t k = 0; k < n; k++)
                log_get_statistics(results + k);
        if (r < 0) {
                /* The reason is in the log alone */
                verdict_set(results, "refused");
                message_take(results);
                return;
        }

        i = 0;
        bpf_object__for_each_program(program, skeleton->obj) {
                if (i >= first && i < first + n)
                        program_take(program, results + i - first);
                i++;
        }
}

static unsigned long free_kib(void) {
        struct sysinfo info;

        return sysinfo(&info) < 0 ? 0 : (unsigned long) (info.freeram * info.mem_unit / 1024);
}

/* In a process of its own: what the programs leave in the kernel goes with it. libbpf loads them in their
 * order, so that those without a log are yet to be verified. */
static void programs_load(struct qosd_bpf *skeleton, size_t first, size_t n, struct result *results) {
        const struct timespec sample = { .tv_nsec = SAMPLE_NSEC };
        unsigned long before, now;
        size_t current = 0;
        sigset_t child;
        pid_t pid;

        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);

        before = free_kib();
        pid = fork();
        if (pid == 0) {
                programs_try(skeleton, first, n, results);
                _exit(EXIT_SUCCESS);
        }
        while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
                now = free_kib();
                while (current + 1 < n && *(volatile char*) results[current].log != 0) {
                        current++;
                        before = now;
                }
                if (now < before && before - now > results[current].memory)
                        results[current].memory = before - now;
                (void) sigtimedwait(&child, NULL, &sample);
        }
}

static void programs_report(struct qosd_bpf *skeleton, size_t first, size_t n) {
        size_t size = n * sizeof(struct result), i = 0;
        struct bpf_program *program;
        struct result *results;

        results = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
        if (results == MAP_FAILED) {
                printf("error %s\n", strerror(errno));
                return;
        }
        programs_load(skeleton, first, n, results);
        if (n > 1 && !*results[n - 1].verdict) {
                (void) munmap(results, size);
                programs_report(skeleton, first, n / 2);
                programs_report(skeleton, first + n / 2, n - n / 2);
                return;
        }
        bpf_object__for_each_program(program, skeleton->obj) {
                const struct result *result = results + i - first;

                if (i >= first && i < first + n)
                        printf("program %s %s %lu %lu %lu %s\n", bpf_program__name(program),
                               *result->verdict ? result->verdict : "refused", result->instructions,
                               result->states, result->memory,
                               *result->verdict ? result->message : "the loader was killed");
                i++;
        }
        (void) munmap(results, size);
}

/* The owner of a control group is found also while something else on the same CPU is using the storage of
 * one, as here a system call: group_owner() relies on it. */
static const char* owner_check(void) {
        struct qos_owner owner = { .slot = 1, .generation = 1 };
        struct owner_bpf *skeleton;
        int group;

        skeleton = owner_bpf__open_and_load();
        if (!skeleton)
                return "the program was refused";
        if (owner_bpf__attach(skeleton) < 0)
                return "the program could not be attached";
        group = open("/sys/fs/cgroup", O_RDONLY|O_DIRECTORY);
        if (group < 0 || bpf_map_update_elem(bpf_map__fd(skeleton->maps.groups), &group, &owner,
                                             BPF_ANY) < 0)
                return "the control group could not be given an owner";
        if (skeleton->bss->found.generation != 0)
                return "an owner was found before there was one";

        owner.generation = 2;
        if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.groups), &group, &owner, BPF_ANY) < 0)
                return "the control group could not be given another owner";
        if (skeleton->bss->found.slot != 1 || skeleton->bss->found.generation != 1)
                return "the owner was not found";
        return NULL;
}

int main(void) {
        struct bpf_program *program;
        struct qosd_bpf *skeleton;
        struct utsname name;
        const char *failure;
        sigset_t child;
        size_t n = 0;
        int console;

        (void) mkdir("/dev", 0755);
        (void) mkdir("/proc", 0755);
        (void) mkdir("/sys", 0755);
        (void) mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
        (void) mount("proc", "/proc", "proc", 0, NULL);
        (void) mount("sysfs", "/sys", "sysfs", 0, NULL);
        (void) mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
        (void) mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL);

        console = open("/dev/ttyS0", O_RDWR);
        if (console >= 0) {
                (void) dup2(console, STDOUT_FILENO);
                (void) dup2(console, STDERR_FILENO);
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        (void) sigprocmask(SIG_BLOCK, &child, NULL);

        libbpf_set_print(on_print);
        skeleton = skeleton_open();
        bpf_object__for_each_program(program, skeleton->obj)
                n++;
        if (uname(&name) < 0)
                printf("error %s\n", strerror(errno));
        else {
                /* Kernel messages that come in the midst of a line are only those of trouble: the machine is
                 * booted with "quiet" */
                printf("kernel %s\n", name.release);
                programs_report(skeleton, 0, n);
                failure = owner_check();
                printf("check owner %s\nend\n", failure ?: "passed");
        }
        (void) tcdrain(console);
        (void) reboot(RB_AUTOBOOT); /* which is where the virtual machine ends */
        return EXIT_FAILURE;
}
