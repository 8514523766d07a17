/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "kernel-support.h"
#include "log.h"
#include "probe-custom.h"
#include "probe-internal.h"
#include "probe.h"
#include "qosd.skel.h"

_Static_assert(_PROBE_ALL + 1 == 1 << ELEMENTSOF(group_table), "each probe has its programs");

/* Minimum number of elements of LRU maps per CPU. Each CPU caches up to 128 free elements, and evicts as
 * many of other CPUs when it runs out: with fewer elements, recently used ones would be evicted. */
#define LRU_ELEMENTS_PER_CPU 256U

/* Watchdog timeout while programs are loaded, five times the longest duration seen. */
#define LOAD_USEC_MAX 900000000ULL

/* Last error message of libbpf, as error codes are too coarse, and its messages too many for the journal. */
static char libbpf_last_error[256];

_printf_(2, 0) static int on_libbpf_print(enum libbpf_print_level level, const char *format, va_list ap) {
        char buffer[1024];
        va_list copy;

        va_copy(copy, ap);
        (void) vsnprintf(buffer, sizeof(buffer), format, copy);
        va_end(copy);
        buffer[strcspn(buffer, "\n")] = 0;

        log_debug("%s", buffer);
        if (level == LIBBPF_WARN)
                custom_see_warning(buffer);
        if (level == LIBBPF_WARN && strstr(buffer, "failed"))
                (void) snprintf(libbpf_last_error, sizeof(libbpf_last_error), "%.*s",
                                (int) sizeof(libbpf_last_error) - 1, buffer);
        return 0;
}

int probe_new(sd_event *event, Probe **ret) {
        Probe *p;

        p = new0(Probe, 1);
        if (!p)
                return -ENOMEM;
        p->event = sd_event_ref(event);

        for (unsigned i = 0; i < _MAP_MAX; i++)
                p->map_fds[i] = -EBADF;
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->program_fds[i] = p->link_fds[i] = p->unloading.program_fds[i] = p->unloading.link_fds[i] =
                        -EBADF;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                p->unit_fds[i] = p->contention_fds[i] = p->shards_fds[i] = p->storage_fds[i] =
                        p->network_fds[i] = -EBADF;
        p->machine_fd = -EBADF;

        libbpf_set_print(on_libbpf_print);

        *ret = p;
        return 0;
}

static void unloading_close(Probe *p) {
        Unloading *u = &p->unloading;

        u->barrier = sd_event_source_disable_unref(u->barrier);
        for (size_t i = 0; i < u->n_libraries; i++)
                library_close(u->libraries + i);
        u->n_libraries = 0;
        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                u->link_fds[i] = close_fd(u->link_fds[i]);
                u->program_fds[i] = close_fd(u->program_fds[i]);
        }
}

void probe_close(Probe *p) {
        /* Close links first: no program must run on partially closed maps */
        unloading_close(p);
        for (size_t i = 0; i < p->n_libraries; i++)
                library_close(p->libraries + i);
        p->n_libraries = 0;
        p->loaded_groups = 0;
        ring_buffer__free(p->wanted);
        p->wanted = NULL;
        ring_buffer__free(p->moves);
        p->moves = NULL;
        ring_buffer__free(p->read_events);
        p->read_events = NULL;

        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->link_fds[i] = close_fd(p->link_fds[i]);

        machine_close(p);
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                p->customs[i] = custom_object_free(p->customs[i]);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                contention_close(p, i);
                storage_close(p, i);
                network_close(p, i);
                if (p->views[i])
                        (void) munmap(p->views[i], sizeof(struct qos_unit_map));
                p->views[i] = NULL;
                p->unit_fds[i] = close_fd(p->unit_fds[i]);
        }
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->program_fds[i] = close_fd(p->program_fds[i]);
        for (unsigned i = 0; i < _MAP_MAX; i++)
                p->map_fds[i] = close_fd(p->map_fds[i]);

        p->started = false;
}

Probe* probe_free(Probe *p) {
        if (!p)
                return NULL;

        probe_close(p);
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                free(p->reasons[i]);
        free(p->failure);
        free(p->library_reason);
        sd_event_unref(p->event);
        free(p);
        return NULL;
}

bool probe_is_started(Probe *p) {
        return p->started;
}

const char* probe_get_failure(Probe *p) {
        return p->failure;
}

const char* probe_get_checksum(void) {
        static char checksum[17];       /* constant, as the object is part of the daemon */
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        const unsigned char *elf;
        size_t size;

        if (checksum[0])
                return checksum;
        /* FNV-1a over the object file, which has the programs, the layout of maps and the types. */
        elf = qosd_bpf__elf_bytes(&size);
        for (size_t i = 0; i < size; i++)
                h = (h ^ elf[i]) * UINT64_C(0x100000001b3);
        (void) snprintf(checksum, sizeof(checksum), "%016llx", (unsigned long long) h);
        return checksum;
}

Bitmap probe_get_programs(Probe *p) {
        Bitmap programs = {}, unneeded = {};

        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (p->started && program_table[i].alternative != 0)
                        bitmap_add(&unneeded, program_table[i].alternative);

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                Program alternative = program_table[i].alternative;
                bool works = program_works(p, i);

                if (alternative != 0 && !works) {
                        bitmap_remove(&unneeded, alternative);
                        works = program_works(p, alternative);
                }
                if (works)
                        bitmap_add(&programs, i);
        }

        for (unsigned i = 0; (i = bitmap_next(&unneeded, i)) < BITMAP_CAPACITY; i++)
                bitmap_add(&programs, i);
        /* Either program records when requests are read */
        if (program_works(p, PROGRAM_CONTENT))
                bitmap_add(&programs, PROGRAM_READ);
        if (p->program_fds[PROGRAM_UNIX] >= 0 && !p->reasons[PROGRAM_UNIX])
                bitmap_add(&programs, PROGRAM_UNIX);
        return programs;
}

/* ---- loading ------------------------------------------------------------------------------------------ */

static uint64_t root_group_id(void) {
        struct stat st;

        /* The id of a control group is the inode number of its directory */
        return stat("/sys/fs/cgroup", &st) >= 0 ? st.st_ino : 1;
}

/* Length of a jiffy, which the kernel only exports as the resolution of the coarse clock. */
static uint64_t tick_nsec(void) {
        struct timespec ts = {};

        (void) clock_getres(CLOCK_MONOTONIC_COARSE, &ts);
        return (uint64_t) ts.tv_nsec;
}

static int dup_cloexec(int fd) {
        int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        return r < 0 ? -errno : r;
}

/* Sets the targets of programs at functions that have another name in this kernel. */
static int object_set_targets(struct qosd_bpf *skeleton, const Bitmap *programs) {
        struct btf *btf = NULL;
        int r = 0;

        for (unsigned i = 0; r >= 0 && (i = bitmap_next(programs, i)) < _PROGRAM_MAX; i++) {
                const ProgramDescription *d = program_table + i;

                if (!d->renamed)
                        continue;
                if (!btf)
                        btf = btf__load_vmlinux_btf();
                if (btf && btf__find_by_name_kind(btf, strchr(d->hook, '/') + 1, BTF_KIND_FUNC) < 0)
                        r = bpf_program__set_attach_target(
                                        bpf_object__find_program_by_name(skeleton->obj, d->name), 0,
                                        d->renamed);
        }
        btf__free(btf);
        return r;
}

/* Sets the prototype of inner maps, whose size depends on the number of CPUs. It has to be open until the
 * object is loaded. */
static int object_set_inner_map(struct bpf_object *object, Map i, int prototype) {
        return prototype < 0 ? prototype :
               bpf_map__set_inner_map_fd(bpf_object__find_map_by_name(object, map_table[i]), prototype);
}

/* Opens the object, reuses or creates the maps, and loads the given programs, if any. */
static int object_load(Probe *p, const Bitmap *programs) {
        _cleanup_close_ int contention_cpus = -EBADF, storage = -EBADF;
        uint64_t watchdog_usec = 0;
        struct qosd_bpf *skeleton;
        bool watched;
        int r = 0;

        libbpf_last_error[0] = 0;

        skeleton = qosd_bpf__open();
        if (!skeleton)
                return errno_or_else(ENOMEM);

        skeleton->rodata->root_group_id = root_group_id();
        skeleton->rodata->cpus = shards_number() - QOS_CONTENTION_CPUS_MORE;
        skeleton->rodata->page_size = (uint32_t) sysconf(_SC_PAGESIZE);
        skeleton->rodata->tick_nsec = tick_nsec();
        skeleton->rodata->loaded_at = p->loaded_at;
        if (bitmap_contains(programs, PROGRAM_NETWORK_DROP)) {
                r = drops_set_up(skeleton->rodata->drops_not_lost, &skeleton->rodata->drops_have_receiver);
                if (r < 0)
                        goto finish;
        }
        if (p->map_fds[MAP_CONTENTION_CPUS] < 0) {
                contention_cpus = shards_make_map(0, 0);
                r = object_set_inner_map(skeleton->obj, MAP_CONTENTION_CPUS, contention_cpus);
        }
        if (r >= 0 && p->map_fds[MAP_STORAGE_MAPS] < 0) {
                storage = storage_make_map(&(struct qos_storage_header) {});
                r = object_set_inner_map(skeleton->obj, MAP_STORAGE_MAPS, storage);
        }
        if (r < 0)
                goto finish;

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                struct bpf_program *program = bpf_object__find_program_by_name(skeleton->obj,
                                                                               program_table[i].name);

                assert(program);
                (void) bpf_program__set_autoload(program, bitmap_contains(programs, i));
                (void) bpf_program__set_autoattach(program, false);
        }

        r = object_set_targets(skeleton, programs);
        if (r < 0)
                goto finish;

        for (Map i = 0; i < _MAP_MAX; i++) {
                struct bpf_map *map = bpf_object__find_map_by_name(skeleton->obj, map_table[i]);

                assert(map);
                if (p->map_fds[i] >= 0)
                        r = bpf_map__reuse_fd(map, p->map_fds[i]);
                else if (bpf_map__type(map) == BPF_MAP_TYPE_LRU_HASH)
                        r = bpf_map__set_max_entries(map, MAX(bpf_map__max_entries(map),
                                                              LRU_ELEMENTS_PER_CPU *
                                                              skeleton->rodata->cpus));
                if (r < 0)
                        goto finish;
        }

        /* Takes a second or two, but minutes on an emulated CPU under load. Blocks the event loop, unless
         * run in a thread */
        watched = !p->in_thread && sd_watchdog_enabled(false, &watchdog_usec) > 0;
        if (watched)
                (void) sd_notifyf(false, "WATCHDOG_USEC=%llu\nWATCHDOG=1", LOAD_USEC_MAX);
        r = qosd_bpf__load(skeleton);
        if (watched)
                (void) sd_notifyf(false, "WATCHDOG_USEC=%" PRIu64 "\nWATCHDOG=1", watchdog_usec);
        if (r < 0)
                goto finish;

        for (Map i = 0; i < _MAP_MAX; i++)
                if (p->map_fds[i] < 0) {
                        r = dup_cloexec(bpf_map__fd(bpf_object__find_map_by_name(skeleton->obj,
                                                                                 map_table[i])));
                        if (r < 0)
                                goto finish;
                        p->map_fds[i] = r;
                }

        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (bitmap_contains(programs, i)) {
                        r = dup_cloexec(bpf_program__fd(bpf_object__find_program_by_name(skeleton->obj,
                                        program_table[i].name)));
                        if (r < 0)
                                goto finish;
                        p->program_fds[i] = r;
                }

        r = 0;
finish:
        qosd_bpf__destroy(skeleton);
        return r;
}

int program_attach(Probe *p, Program i) {
        union bpf_iter_link_info info = {};
        LIBBPF_OPTS(bpf_link_create_opts, options);
        _cleanup_close_ int group = -EBADF;
        int fd;

        switch (program_table[i].type) {

        case HOOK_TRACEPOINT:
        case HOOK_FUNCTION:
                fd = bpf_raw_tracepoint_open(NULL, p->program_fds[i]);
                break;

        case HOOK_CGROUP_INGRESS:
        case HOOK_CGROUP_EGRESS:
        case HOOK_CGROUP_BIND4:
        case HOOK_CGROUP_BIND6:
        case HOOK_CGROUP_SOCKOPS:
                group = open("/sys/fs/cgroup", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
                if (group < 0)
                        return -errno;
                fd = bpf_link_create(p->program_fds[i], group,
                                     program_table[i].type == HOOK_CGROUP_INGRESS ? BPF_CGROUP_INET_INGRESS :
                                     program_table[i].type == HOOK_CGROUP_EGRESS ? BPF_CGROUP_INET_EGRESS :
                                     program_table[i].type == HOOK_CGROUP_BIND4 ?
                                             BPF_CGROUP_INET4_POST_BIND :
                                     program_table[i].type == HOOK_CGROUP_BIND6 ?
                                             BPF_CGROUP_INET6_POST_BIND :
                                     BPF_CGROUP_SOCK_OPS,
                                     NULL);
                break;

        case HOOK_ITERATOR_MAP:
                info.map.map_fd = p->map_fds[program_table[i].map];
                options.iter_info = &info;
                options.iter_info_len = sizeof(info);
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, &options);
                break;

        case HOOK_ITERATOR_MANAGER:
                info.task.pid = 1;
                options.iter_info = &info;
                options.iter_info_len = sizeof(info);
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, &options);
                break;

        case HOOK_ITERATOR:
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, NULL);
                break;

        case HOOK_ITERATOR_PROCESS:
        case HOOK_CALL:
        case HOOK_LIBRARY:
        default:
                assert(false);
                return -EINVAL;
        }

        if (fd < 0)
                return fd;
        p->link_fds[i] = fd;
        return 0;
}

static void program_set_reason(Probe *p, Program i, int error, const char *step) {
        free(p->reasons[i]);
        if (asprintf(&p->reasons[i], "%s: %s%s%s", step, strerror(-error),
                     isempty(libbpf_last_error) ? "" : " - ", libbpf_last_error) < 0)
                p->reasons[i] = NULL;
}

static void program_refuse(Probe *p, Program i, int error, const char *step) {
        program_set_reason(p, i, error, step);
        if (program_table[i].alternative != 0)
                (void) log_full_errno(LOG_INFO, error,
                                      "BPF program '%s' (%s) is not available, %s failed: %m. Trying '%s' "
                                      "instead.",
                                      program_table[i].name, program_table[i].hook, step,
                                      program_table[program_table[i].alternative].name);
        else
                (void) log_warning_errno(error, "BPF program '%s' (%s) is not available, %s failed: %m. "
                                                "Unavailable without it: %s.",
                                         program_table[i].name, program_table[i].hook, step,
                                         program_table[i].provides);
}

/* Returned by kernels without this program type; errno.h does not have it. */
#ifndef ENOTSUPP
#define ENOTSUPP 524
#endif

/* To be called when the kernel refuses all programs at functions: does not try those from first on. */
static void functions_refuse(Probe *p, const Bitmap *programs, unsigned first, int error) {
        unsigned n = 0;

        for (unsigned i = first; (i = bitmap_next(programs, i)) < _PROGRAM_MAX; i++, n++)
                program_set_reason(p, i, error, "loading");
        if (n > 0)
                (void) log_warning_errno(error, "Neither are %u other BPF programs at kernel functions, see "
                                                "'qosctl probes'.", n);
}

/* Loads programs all at once, which is fast; one by one if that fails. Those that some kernels do not
 * support are loaded separately, so that these kernels do not load everything twice. */
static void programs_load(Probe *p, const Bitmap *programs) {
        enum { OTHERS, FUNCTIONS, MAPS, PARTS };
        Bitmap parts[PARTS] = {};

        for (unsigned i = 0; (i = bitmap_next(programs, i)) < _PROGRAM_MAX; i++)
                bitmap_add(parts + (program_table[i].type == HOOK_FUNCTION ? FUNCTIONS :
                                    program_table[i].type == HOOK_ITERATOR_MAP ? MAPS : OTHERS), i);

        for (unsigned part = 0; part < ELEMENTSOF(parts); part++) {
                const Bitmap *these = parts + part;
                unsigned first = bitmap_next(these, 0);
                bool single;
                int all;

                if (first >= _PROGRAM_MAX)
                        continue;
                single = bitmap_next(these, first + 1) >= _PROGRAM_MAX;
                all = object_load(p, these);

                for (unsigned i = first; i < _PROGRAM_MAX && all < 0; i = bitmap_next(these, i + 1)) {
                        Bitmap one = {};
                        int r;

                        bitmap_add(&one, i);
                        r = single ? all : object_load(p, &one);
                        if (r >= 0)
                                continue;
                        program_refuse(p, i, r, "loading");
                        if (part == FUNCTIONS && (r == -EPERM || r == -ENOTSUPP)) {
                                functions_refuse(p, these, i + 1, r);
                                break;
                        }
                }
        }
}

static void programs_start(Probe *p, const Bitmap *programs) {
        programs_load(p, programs);

        for (unsigned i = 0; (i = bitmap_next(programs, i)) < _PROGRAM_REQUESTS_MAX; i++) {
                int r;

                if (p->program_fds[i] < 0 || !program_has_link(i))
                        continue;
                libbpf_last_error[0] = 0;
                r = program_attach(p, i);
                if (r < 0)
                        program_refuse(p, i, r, "attaching");
        }
}

/* Loads and attaches the programs of "requests", without storing them. May run in a thread: must not modify
 * global variables, except for libbpf_last_error. */
int probe_load(Probe *p) {
        Bitmap none = {}, alternatives = {}, programs = {}, needed = {};
        int r;

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                free(p->reasons[i]);
                p->reasons[i] = NULL;
        }
        free(p->failure);
        p->failure = NULL;

        r = kernel_support_check(&p->failure);
        if (r < 0)
                return r;

        r = object_load(p, &none);
        if (r < 0) {
                if (asprintf(&p->failure, "Failed to create BPF maps: %s%s%s", strerror(-r),
                             isempty(libbpf_last_error) ? "" : " - ", libbpf_last_error) < 0)
                        p->failure = NULL;
                probe_close(p);
                return r;
        }

        for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                if (program_table[i].alternative != 0)
                        bitmap_add(&alternatives, program_table[i].alternative);
        for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                if (!bitmap_contains(&alternatives, i))
                        bitmap_add(&programs, i);
        programs_start(p, &programs);
        for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                if (bitmap_contains(&alternatives, i) && program_is_needed(p, i))
                        bitmap_add(&needed, i);
        programs_start(p, &needed);

        p->started = true;
        return 0;
}

/* Stores loaded maps and programs for the next run of the daemon. */
void probe_store(Probe *p) {
        store_push_all(p);
        /* libbpf has freed the kernel's BTF, which takes some 10 MiB */
        (void) malloc_trim(0);
}

int probe_start(Probe *p) {
        int r;

        if (p->started)
                return 0;

        r = probe_load(p);
        if (r >= 0)
                probe_store(p);
        return r;
}

void probe_stop(Probe *p) {
        if (p->started)
                store_drop_all(p);
        probe_close(p);
}

/* ---- groups that are not always loaded ---------------------------------------------------------------- */

/* Alternatives are not needed while all programs work that they replace. */
bool program_is_needed(const Probe *p, Program i) {
        bool needed = true;

        for (Program k = 0; k < _PROGRAM_MAX; k++)
                if (program_table[k].alternative == i && i != 0) {
                        if (!program_works(p, k))
                                return true;
                        needed = false;
                }
        return needed;
}

static int on_barrier(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        unloading_close(ASSERT_PTR(userdata));
        return 0;
}

/* Keeps unloaded programs until the service manager has removed them from the descriptor store, as signalled
 * by a barrier. Asynchronous, as the service manager may be busy. */
static void unloading_add_barrier(Probe *p) {
        _cleanup_close_ int fd = -EBADF;
        sd_event_source *source = NULL;
        int fds[2];
        int r;

        if (pipe2(fds, O_CLOEXEC|O_NONBLOCK) < 0) {
                unloading_close(p);
                return;
        }
        fd = fds[0];

        /* The service manager closes its copy when it has processed all earlier messages */
        r = sd_pid_notify_with_fds(0, /* unset_environment= */ false, "BARRIER=1", fds + 1, 1);
        fds[1] = close_fd(fds[1]);
        if (r > 0)
                (void) sd_event_add_io(p->event, &source, fd, 0, on_barrier, p);
        if (!source) {
                unloading_close(p);
                return;
        }
        (void) sd_event_source_set_io_fd_own(source, true);
        TAKE_FD(fd);
        sd_event_source_disable_unref(p->unloading.barrier);
        p->unloading.barrier = source;
}

static void program_unload(Probe *p, Program i) {
        Unloading *u = &p->unloading;

        store_drop_program(p, i);
        (void) close_fd(u->link_fds[i]);
        (void) close_fd(u->program_fds[i]);
        u->link_fds[i] = TAKE_FD(p->link_fds[i]);
        u->program_fds[i] = TAKE_FD(p->program_fds[i]);
}

/* Resumes programs that are still running: if loaded again, all would run twice, and count twice. */
static void group_resume(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;
        Unloading *u = &p->unloading;

        for (Program i = first; i < end; i++) {
                if (p->program_fds[i] >= 0 || u->program_fds[i] < 0)
                        continue;
                p->program_fds[i] = TAKE_FD(u->program_fds[i]);
                p->link_fds[i] = TAKE_FD(u->link_fds[i]);
                store_push_program(p, i);
        }
        if (probe != PROBE_TLS)
                return;
        for (; u->n_libraries > 0 && p->n_libraries < LIBRARIES_MAX; p->n_libraries++) {
                p->libraries[p->n_libraries] = u->libraries[--u->n_libraries];
                store_push_library(p, p->libraries + p->n_libraries);
        }
}

/* Loads and attaches missing programs of the group. fallbacks: those with ProgramDescription.unless,
 * otherwise those without. */
static void group_start(Probe *p, Program first, Program end, bool fallbacks) {
        Bitmap missing = {};
        int r;

        for (Program i = first; i < end; i++)
                if (p->program_fds[i] < 0 && (program_table[i].unless != 0) == fallbacks &&
                    !program_is_superseded(p, i))
                        bitmap_add(&missing, i);
        if (bitmap_next(&missing, 0) < _PROGRAM_MAX) {
                /* Fallbacks belong to the same load: records of threads by other programs of the group
                 * remain valid */
                if (!fallbacks)
                        p->loaded_at = now_nsec(CLOCK_MONOTONIC);
                programs_load(p, &missing);
                for (Program i = first; i < end; i++)
                        if (bitmap_contains(&missing, i))
                                store_push_program(p, i);
                (void) malloc_trim(0);
        }

        for (Program i = first; i < end; i++) {
                if (p->program_fds[i] < 0 || p->link_fds[i] >= 0 || !program_has_link(i))
                        continue;
                libbpf_last_error[0] = 0;
                r = program_attach(p, i);
                if (r < 0)
                        program_refuse(p, i, r, "attaching");
                else
                        store_push_link(p, i);
        }
}

int probe_load_group(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;

        if (!p->started)
                return -ENODATA;
        if (p->loaded_groups & probe)
                return 0;
        p->loaded_groups |= probe; /* no retry: a rejected program is always rejected */
        group_resume(p, probe);
        group_start(p, first, end, /* fallbacks= */ false);
        group_start(p, first, end, /* fallbacks= */ true);
        return 0;
}

/* Clears pending responses, as no program maintains the current thread of a CPU any more. */
static void pending_responses_drop(Probe *p) {
        _cleanup_free_ void *nothing = NULL;
        struct bpf_map_info info = {};
        uint32_t length = sizeof(info), zero = 0;

        if (p->map_fds[MAP_RESPONSES] < 0 ||
            bpf_map_get_info_by_fd(p->map_fds[MAP_RESPONSES], &info, &length) < 0)
                return;
        /* Elements of per-CPU maps are padded to 8 bytes */
        nothing = calloc((size_t) libbpf_num_possible_cpus(), (info.value_size + 7U) & ~7U);
        if (nothing)
                /* element of an array: cannot fail */
                (void) bpf_map_update_elem(p->map_fds[MAP_RESPONSES], &zero, nothing, BPF_ANY);
}

void probe_unload_group(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;

        bool unloaded = false;

        if (probe == PROBE_TLS) {
                for (; p->n_libraries > 0; p->n_libraries--) {
                        const Library *l = p->libraries + p->n_libraries - 1;

                        store_drop_library(l);
                        if (l->enter_fd >= 0 && l->leave_fd >= 0 && p->unloading.n_libraries < LIBRARIES_MAX)
                                p->unloading.libraries[p->unloading.n_libraries++] = *l;
                        else
                                library_close(p->libraries + p->n_libraries - 1);
                }
                unloaded = p->unloading.n_libraries > 0;
                free(p->library_reason);
                p->library_reason = NULL;
                p->library_limit = 0;
        }
        for (Program i = first; i < end; i++) {
                unloaded = unloaded || p->link_fds[i] >= 0 || p->program_fds[i] >= 0;
                program_unload(p, i);
                free(p->reasons[i]);
                p->reasons[i] = NULL;
        }
        if (unloaded)
                unloading_add_barrier(p);
        if (probe == PROBE_CPU)
                pending_responses_drop(p);
        p->loaded_groups &= ~probe;
}

const char* probe_group_failure(Probe *p, ProbeMask probe) {
        for (Program i = group_table[group_of(probe)].first; i < group_table[group_of(probe)].end; i++)
                if (p->reasons[i])
                        return p->reasons[i];
        return NULL;
}
