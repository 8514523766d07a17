/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Programs and maps of custom probes. */

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "elf-symbols.h"
#include "log.h"
#include "probe-custom.h"
#include "probe-custom-internal.h"
#include "probe-internal.h"

#define CUSTOM_CONSTANTS ".rodata.qosd"

static int custom_make_map(uint32_t elements, const struct qos_custom_header *header) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
        _cleanup_free_ union qos_custom_element *initial = new0(union qos_custom_element, 1);
        _cleanup_close_ int fd = -EBADF;
        uint32_t first = QOS_CUSTOM_HEADER;
        int r;

        if (!initial)
                return -ENOMEM;
        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_custom", sizeof(uint32_t),
                            sizeof(union qos_custom_element), elements, &options);
        if (fd < 0)
                return fd;
        initial->header = *header;
        r = bpf_map_update_elem(fd, &first, initial, BPF_ANY);
        /* From here on writable by programs only */
        if (r >= 0)
                r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

/* ---- constants ---------------------------------------------------------------------------------------- */

static struct bpf_map* object_find_constants(struct bpf_object *object) {
        struct bpf_map *map;

        bpf_object__for_each_map(map, object)
                if (endswith(bpf_map__name(map), CUSTOM_CONSTANTS))
                        return map;
        return NULL;
}

/* Place of a constant in its section. kind: name of its type. -ENOENT: there is none. */
static int constants_find(const struct btf *btf, const char *name, const char **ret_kind,
                          uint32_t *ret_offset) {
        const struct btf_type *section = NULL;
        const struct btf_var_secinfo *v;
        int id;

        id = btf__find_by_name_kind(btf, CUSTOM_CONSTANTS, BTF_KIND_DATASEC);
        if (id < 0)
                return -ENOENT;
        section = btf__type_by_id(btf, (uint32_t) id);
        v = btf_var_secinfos(section);
        for (unsigned i = 0; i < btf_vlen(section); i++, v++) {
                const struct btf_type *variable = btf__type_by_id(btf, v->type), *type;

                if (!streq(btf__name_by_offset(btf, variable->name_off), name))
                        continue;
                type = btf__type_by_id(btf, variable->type);
                while (btf_is_mod(type))
                        type = btf__type_by_id(btf, type->type);
                *ret_kind = btf__name_by_offset(btf, type->name_off);
                *ret_offset = v->offset;
                return 0;
        }
        return -ENOENT;
}

static int _printf_(2, 3) custom_fail(char **reason, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        if (vasprintf(reason, format, ap) < 0)
                *reason = NULL;
        va_end(ap);
        return *reason ? -EINVAL : -ENOMEM;
}

static int object_set_constants(struct bpf_object *object, const CustomSpec *spec, char **reason) {
        static const char *const kinds[_QOS_CUSTOM_TYPES] = {
                [QOS_CUSTOM_COUNTER]   = "qosd_counter",
                [QOS_CUSTOM_GAUGE]     = "qosd_gauge",
                [QOS_CUSTOM_HISTOGRAM] = "qosd_histogram",
        };
        struct bpf_map *map = object_find_constants(object);
        const struct btf *btf = bpf_object__btf(object);
        const char *kind;
        uint32_t offset;
        size_t size = 0;
        char *data;

        data = map ? bpf_map__initial_value(map, &size) : NULL;
        if (!data || !btf || constants_find(btf, "qosd_layout", &kind, &offset) < 0 ||
            offset + sizeof(spec->layout) > size)
                return custom_fail(reason, "the object file has no metrics of qosd-probe.h, or no BTF");
        if (*(const uint32_t*) (data + offset) != spec->layout.version)
                return custom_fail(reason,
                                   "the object file was compiled for another version of qosd, compile it "
                                   "again");
        memcpy(data + offset, &spec->layout, sizeof(spec->layout));

        for (size_t i = 0; i < spec->n_metrics; i++) {
                const CustomPlace *p = spec->metrics + i;

                if (constants_find(btf, p->name, &kind, &offset) < 0 || offset + sizeof(p->place) > size)
                        return custom_fail(reason, "the object file has no metric '%s'", p->name);
                if (!streq(kind, kinds[p->place.type]))
                        return custom_fail(reason,
                                           "the metric '%s' is a %s in the object file, but the manifest "
                                           "says %s",
                                           p->name, kind, kinds[p->place.type]);
                memcpy(data + offset, &p->place, sizeof(p->place));
        }
        return 0;
}

/* ---- attaching ---------------------------------------------------------------------------------------- */

static int custom_add_link(CustomObject *c, struct bpf_link *link) {
        struct bpf_link **links;
        int r = -errno;

        if (!link)
                return r;
        links = c->n_links < CUSTOM_LINKS_MAX ? reallocarray(c->links, c->n_links + 1, sizeof(*links)) :
                                                NULL;
        if (!links) {
                (void) bpf_link__destroy(link);
                return c->n_links < CUSTOM_LINKS_MAX ? -ENOMEM : -E2BIG;
        }
        c->links = links;
        links[c->n_links++] = link;
        return 0;
}

static int custom_attach_perf(CustomObject *c, struct bpf_program *program, const CustomAttachment *a) {
        struct perf_event_attr attr = {
                .type = a->perf_type,
                .size = sizeof(attr),
                .config = a->perf_config,
                .freq = 1,
                .sample_freq = a->frequency,
        };
        int r = 0;

        for (int cpu = 0; cpu < libbpf_num_possible_cpus() && r >= 0; cpu++) {
                int fd = (int) syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

                if (fd < 0 && errno == ENODEV)
                        continue; /* the CPU is offline */
                if (fd < 0)
                        return -errno;
                r = custom_add_link(c, bpf_program__attach_perf_event(program, fd));
                if (r < 0)
                        (void) close(fd);
        }
        return r;
}

static bool program_is_uprobe(const struct bpf_program *program) {
        const char *section = bpf_program__section_name(program);

        return streq(section, "uprobe") || streq(section, "uretprobe");
}

/* Offset of an exported function in a file. */
static int function_find(const char *path, const char *name, unsigned long *ret) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        Symbols *s;
        int r;

        if (fd < 0)
                return -errno;
        r = symbols_new(fd, &s);
        if (r < 0)
                return r;
        *ret = symbols_find(s, name);
        symbols_free(s);
        return *ret == 0 ? -ESRCH : 0;
}

static int custom_attach_uprobe(CustomObject *c, struct bpf_program *program, const CustomAttachment *a) {
        unsigned long offset;
        LIBBPF_OPTS(bpf_uprobe_multi_opts, options, .offsets = &offset, .cnt = 1,
                    .retprobe = streq(a->type, "uretprobe"));
        int r;

        r = function_find(a->path, a->symbol, &offset);
        if (r < 0)
                return r;
        return custom_add_link(c, bpf_program__attach_uprobe_multi(program, -1, a->path, NULL, &options));
}

static int custom_attach(CustomObject *c, struct bpf_program *program, const CustomSpec *spec) {
        const char *name = bpf_program__name(program);

        for (size_t i = 0; i < spec->n_attachments; i++) {
                const CustomAttachment *a = spec->attachments + i;

                if (!streq(a->program, name))
                        continue;
                if (streq(a->type, "perf-event"))
                        return custom_attach_perf(c, program, a);
                if (streq(a->type, "usdt"))
                        return custom_add_link(c, bpf_program__attach_usdt(program, -1, a->path, a->provider,
                                                                           a->symbol, NULL));
                return custom_attach_uprobe(c, program, a);
        }
        return custom_add_link(c, bpf_program__attach(program));
}

/* ---- loading ------------------------------------------------------------------------------------------ */

static int object_set_maps(const CustomMaps *maps, struct bpf_object *object, int prototype, char **reason) {
        struct bpf_map *map;
        int r;

        map = bpf_object__find_map_by_name(object, "qosd_custom_maps");
        if (!map)
                return custom_fail(reason, "the object file does not use qosd-probe.h");
        r = bpf_map__set_inner_map_fd(map, prototype);
        map = bpf_object__find_map_by_name(object, "qosd_groups");
        if (r >= 0 && map)
                r = bpf_map__reuse_fd(map, maps->groups);
        map = bpf_object__find_map_by_name(object, "qosd_sockets");
        if (r >= 0 && map)
                r = bpf_map__reuse_fd(map, maps->sockets);
        return r;
}

/* libbpf has closed all programs when it returns. */
static _Thread_local char failed_program[64];

void custom_see_warning(const char *warning) {
        (void) sscanf(warning, "libbpf: prog '%63[^']'", failed_program);
}

/* What the verifier said last, without the lines that count its work, and the states of a loop. */
static const char* log_get_last_line(char *log) {
        const char *last = "";
        char *state;

        for (char *line = strtok_r(log, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
                if (!startswith(line, "processed ") && !startswith(line, "verification time") &&
                    !startswith(line, "stack depth") && !startswith(line, "cur state:") &&
                    !startswith(line, "old state:") && *line)
                        last = line;
        return last;
}

static int object_load(struct bpf_object *object, char **reason) {
        _cleanup_free_ char *log = NULL;
        struct bpf_program *program;
        const char *line;
        size_t size = 1U << 20;
        int r, k;

        log = calloc(1, size);
        if (!log)
                return -ENOMEM;
        bpf_object__for_each_program(program, object) {
                /* Level 0 with a buffer: a log of the program that fails only */
                (void) bpf_program__set_log_buf(program, log, size);
                /* Needs no more than CAP_PERFMON, and one trap for all programs at a place */
                if (program_is_uprobe(program))
                        (void) bpf_program__set_expected_attach_type(program, BPF_TRACE_UPROBE_MULTI);
        }
        failed_program[0] = 0;
        r = bpf_object__load(object);
        if (r >= 0)
                return 0;
        /* The error is often that of the log, which does not have room for all lines */
        line = log_get_last_line(log);
        k = custom_fail(reason, "loading '%s': %s", *failed_program ? failed_program : "maps",
                        *line ? line : strerror(-r));
        return k == -ENOMEM ? k : r;
}

static int object_attach(CustomObject *c, const CustomSpec *spec, char **reason) {
        struct bpf_program *program;
        int r = 0;

        bpf_object__for_each_program(program, c->object) {
                r = custom_attach(c, program, spec);
                if (r == -E2BIG)
                        return r;
                if (r < 0) {
                        (void) custom_fail(reason, "attaching '%s': %s", bpf_program__name(program),
                                           strerror(-r));
                        return r;
                }
                r = custom_object_add_program(c, bpf_program__name(program),
                                              bpf_program__section_name(program), bpf_program__fd(program));
                if (r < 0)
                        return r;
        }
        return r;
}

int custom_object_new(const CustomMaps *maps, unsigned index, const CustomSpec *spec, CustomObject **ret,
                      char **ret_reason) {
        LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "custom");
        _cleanup_close_ int prototype = -EBADF;
        CustomObject *c;
        int r;

        *ret_reason = NULL;
        c = custom_object_make(index);
        if (!c)
                return -ENOMEM;
        custom_object_set_elements(c, spec->layout.elements);
        r = c->manifest_fd = fcntl(spec->manifest_fd, F_DUPFD_CLOEXEC, 3);
        if (r < 0)
                r = -errno;

        c->object = r >= 0 ? bpf_object__open_mem(spec->elf, spec->elf_size, &options) : NULL;
        if (r >= 0 && !c->object)
                r = -errno;
        if (r >= 0)
                r = prototype = custom_make_map(1, &(struct qos_custom_header) {});
        if (r >= 0)
                r = object_set_maps(maps, c->object, prototype, ret_reason);
        if (r >= 0)
                r = object_set_constants(c->object, spec, ret_reason);
        if (r >= 0)
                r = object_load(c->object, ret_reason);
        if (r >= 0) {
                c->maps_fd = bpf_map__fd(bpf_object__find_map_by_name(c->object, "qosd_custom_maps"));
                r = object_attach(c, spec, ret_reason);
        }
        if (r >= 0)
                r = custom_object_find_links(c);
        if (r == -E2BIG && !*ret_reason)
                (void) custom_fail(ret_reason,
                                   "its programs need more than %u links, of perf events one for each CPU",
                                   CUSTOM_LINKS_MAX);
        if (r < 0) {
                custom_object_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

/* ---- maps of units ------------------------------------------------------------------------------------ */

static int custom_view(CustomObject *c, unsigned slot) {
        void *view;

        view = mmap(NULL, c->size, PROT_READ, MAP_SHARED, c->map_fds[slot], 0);
        if (view == MAP_FAILED)
                return -errno;
        c->views[slot] = view;
        return 0;
}

int custom_object_add_unit(Probe *p, CustomObject *c, const CustomOwner *owner,
                           const union qos_custom_element **ret) {
        const struct qos_custom_header header = {
                .generation = owner->map,
                .unit = owner->unit,
                .slot = owner->slot,
                .epoch = owner->now / QOS_EPOCH_NSEC,
        };
        unsigned slot = owner->slot;
        int r;

        assert(slot < UNITS_MAX_LIMIT);

        custom_object_remove_unit(c, slot);
        r = c->map_fds[slot] = custom_make_map(c->elements, &header);
        if (r >= 0)
                r = custom_view(c, slot);
        if (r >= 0)
                r = bpf_map_update_elem(c->maps_fd, &slot, &c->map_fds[slot], BPF_ANY);
        if (r < 0) {
                custom_object_close(c, slot);
                return r;
        }
        custom_object_store_unit(p, c, slot);
        *ret = c->views[slot];
        return 0;
}

int custom_object_adopt_unit(CustomObject *c, unsigned slot, uint32_t generation,
                             const union qos_custom_element **ret) {
        struct bpf_map_info info = {};
        uint32_t size = sizeof(info);
        int r;

        assert(slot < UNITS_MAX_LIMIT);

        if (c->map_fds[slot] < 0)
                return -ENOENT;
        r = bpf_map_get_info_by_fd(c->map_fds[slot], &info, &size);
        if (r >= 0 &&
            (info.max_entries != c->elements || info.value_size != sizeof(union qos_custom_element)))
                r = -ESTALE;
        if (r >= 0 && !c->views[slot])
                r = custom_view(c, slot);
        if (r >= 0 && c->views[slot]->header.unit != generation)
                r = -ESTALE;
        if (r < 0)
                return r;
        *ret = c->views[slot];
        return 0;
}

void custom_object_remove_unit(CustomObject *c, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        if (c->map_fds[slot] < 0)
                return;
        (void) bpf_map_delete_elem(c->maps_fd, &slot);
        custom_object_drop_unit(c, slot);
        custom_object_close(c, slot);
}

bool custom_object_has_iterators(const CustomObject *c) {
        for (size_t i = 0; i < c->n_programs; i++)
                if (startswith(c->programs[i].hook, "iter/"))
                        return true;
        return false;
}

/* What a program writes has no reader. */
static void iterator_drain(int link) {
        _cleanup_close_ int fd = bpf_iter_create(link);
        char buffer[4096];
        ssize_t n;

        do
                n = fd >= 0 ? read(fd, buffer, sizeof(buffer)) : 0;
        while (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

void custom_object_run_iterators(const CustomObject *c) {
        for (size_t i = 0; i < c->n_link_fds; i++) {
                struct bpf_link_info info = {};
                uint32_t size = sizeof(info);

                if (bpf_link_get_info_by_fd(c->link_fds[i], &info, &size) >= 0 &&
                    info.type == BPF_LINK_TYPE_ITER)
                        iterator_drain(c->link_fds[i]);
        }
}

uint64_t custom_object_get_run_time(const CustomObject *c) {
        uint64_t nsec = 0;

        for (size_t i = 0; i < c->n_programs; i++) {
                struct bpf_prog_info info = {};
                uint32_t size = sizeof(info);

                if (bpf_prog_get_info_by_fd(c->programs[i].fd, &info, &size) >= 0)
                        nsec += info.run_time_ns;
        }
        return nsec;
}

void custom_object_foreach_program(CustomObject *c,
                                   void (*handler)(const CustomProgramInfo *i, void *userdata),
                                   void *userdata) {
        for (size_t i = 0; i < c->n_programs; i++) {
                struct bpf_prog_info info = {};
                uint32_t size = sizeof(info);

                if (bpf_prog_get_info_by_fd(c->programs[i].fd, &info, &size) < 0)
                        info = (struct bpf_prog_info) {};
                handler(&(CustomProgramInfo) {
                                .name = c->programs[i].name,
                                .hook = c->programs[i].hook,
                                .runs = info.run_cnt > 0 ? info.run_cnt : ABSENT,
                                .run_nsec = info.run_cnt > 0 ? info.run_time_ns : ABSENT,
                                .recursion_misses = info.recursion_misses,
                        },
                        userdata);
        }
}
