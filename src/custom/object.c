/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <elf.h>
#include <linux/bpf.h>
#include <stdarg.h>

#include <bpf/libbpf.h>
#include <gnutls/gnutls.h>
#include <gnutls/crypto.h>

#include "object.h"
#include "parse.h"

#define SHA256_SIZE 32U

/* What libbpf says is wrong */
static char libbpf_message[256];

static int _printf_(2, 3) object_fail(char **message, const char *format, ...) {
        va_list ap;
        int r;

        va_start(ap, format);
        r = vasprintf(message, format, ap);
        va_end(ap);
        if (r < 0) {
                *message = NULL;
                return -ENOMEM;
        }
        return -EINVAL;
}

/* ---- instructions ------------------------------------------------------------------------------------- */

/* Helpers that read, or write to maps and to memory of the program alone. All others may change what a
 * process or the kernel does. */
static const uint8_t helpers[] = {
        BPF_FUNC_map_lookup_elem,
        BPF_FUNC_map_update_elem,
        BPF_FUNC_map_delete_elem,
        BPF_FUNC_map_lookup_percpu_elem,
        BPF_FUNC_for_each_map_elem,
        BPF_FUNC_loop,
        BPF_FUNC_probe_read,
        BPF_FUNC_probe_read_str,
        BPF_FUNC_probe_read_user,
        BPF_FUNC_probe_read_user_str,
        BPF_FUNC_probe_read_kernel,
        BPF_FUNC_probe_read_kernel_str,
        BPF_FUNC_ktime_get_ns,
        BPF_FUNC_ktime_get_boot_ns,
        BPF_FUNC_ktime_get_coarse_ns,
        BPF_FUNC_ktime_get_tai_ns,
        BPF_FUNC_jiffies64,
        BPF_FUNC_get_prandom_u32,
        BPF_FUNC_get_smp_processor_id,
        BPF_FUNC_get_numa_node_id,
        BPF_FUNC_get_current_pid_tgid,
        BPF_FUNC_get_ns_current_pid_tgid,
        BPF_FUNC_get_current_uid_gid,
        BPF_FUNC_get_current_comm,
        BPF_FUNC_get_current_task,
        BPF_FUNC_get_current_task_btf,
        BPF_FUNC_task_pt_regs,
        BPF_FUNC_get_current_cgroup_id,
        BPF_FUNC_get_current_ancestor_cgroup_id,
        BPF_FUNC_current_task_under_cgroup,
        BPF_FUNC_task_storage_get,
        BPF_FUNC_task_storage_delete,
        BPF_FUNC_cgrp_storage_get,
        BPF_FUNC_cgrp_storage_delete,
        BPF_FUNC_sk_storage_get,
        BPF_FUNC_sk_storage_delete,
        BPF_FUNC_inode_storage_get,
        BPF_FUNC_inode_storage_delete,
        BPF_FUNC_skc_to_tcp_sock,
        BPF_FUNC_skc_to_tcp6_sock,
        BPF_FUNC_skc_to_udp6_sock,
        BPF_FUNC_skc_to_tcp_timewait_sock,
        BPF_FUNC_skc_to_tcp_request_sock,
        BPF_FUNC_skc_to_unix_sock,
        BPF_FUNC_skc_to_mptcp_sock,
        BPF_FUNC_sock_from_file,
        BPF_FUNC_get_socket_cookie,
        BPF_FUNC_get_func_ip,
        BPF_FUNC_get_func_arg,
        BPF_FUNC_get_func_ret,
        BPF_FUNC_get_func_arg_cnt,
        BPF_FUNC_get_attach_cookie,
        BPF_FUNC_perf_prog_read_value,
        BPF_FUNC_per_cpu_ptr,
        BPF_FUNC_this_cpu_ptr,
        BPF_FUNC_spin_lock,
        BPF_FUNC_spin_unlock,
        BPF_FUNC_get_stackid,
        BPF_FUNC_get_stack,
        BPF_FUNC_get_task_stack,
        BPF_FUNC_strtol,
        BPF_FUNC_strtoul,
        BPF_FUNC_strncmp,
        BPF_FUNC_snprintf,
        BPF_FUNC_seq_printf,
        BPF_FUNC_seq_write,
};

static bool helper_is_allowed(int32_t id) {
        for (size_t i = 0; i < ELEMENTSOF(helpers); i++)
                if (helpers[i] == id)
                        return true;
        return false;
}

static const char* helper_to_name(int32_t id) {
#define NAME(name, value, ...) [value] = #name,
        static const char *const names[] = { ___BPF_FUNC_MAPPER(NAME) };
#undef NAME

        return id > 0 && (size_t) id < ELEMENTSOF(names) ? names[id] : NULL;
}

/* Each instruction of the section, whether or not the program gets there. */
static int section_check(const char *name, const struct bpf_insn *insns, size_t n, char **message) {
        for (size_t i = 0; i < n; i++) {
                const struct bpf_insn *insn = insns + i;

                if (insn->code == (BPF_LD | BPF_IMM | BPF_DW)) {
                        i++; /* its second half is no instruction */
                        continue;
                }
                if (insn->code != (BPF_JMP | BPF_CALL) || insn->src_reg == BPF_PSEUDO_CALL)
                        continue;
                if (insn->src_reg != 0)
                        return object_fail(message,
                                           "Section '%s', instruction %zu, calls a function of the kernel, "
                                           "which is not allowed.",
                                           name, i);
                if (!helper_is_allowed(insn->imm))
                        return object_fail(message,
                                           "Section '%s', instruction %zu, calls the helper %i (%s), which "
                                           "is not allowed.",
                                           name, i, insn->imm, helper_to_name(insn->imm) ?: "unknown");
        }
        return 0;
}

/* ---- sections ----------------------------------------------------------------------------------------- */

typedef struct Elf {
        const uint8_t *data;
        size_t size;
        const Elf64_Shdr *sections;
        size_t n_sections;
} Elf;

/* NULL: it is not within the file. */
static const void* elf_get(const Elf *e, uint64_t offset, uint64_t size) {
        return offset <= e->size && size <= e->size - offset && offset % 8 == 0 ? e->data + offset : NULL;
}

static int elf_open(const void *data, size_t size, Elf *ret, char **message) {
        const Elf64_Ehdr *header = data;

        *ret = (Elf) { .data = data, .size = size };
        if (size < sizeof(Elf64_Ehdr) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
            header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_type != ET_REL ||
            header->e_machine != EM_BPF)
                return object_fail(message, "It is no object file with BPF programs.");
        if (header->e_ident[EI_DATA] !=
            (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB))
                return object_fail(message, "It is for machines with the other byte order.");
        ret->n_sections = header->e_shnum;
        ret->sections = elf_get(ret, header->e_shoff, ret->n_sections * sizeof(Elf64_Shdr));
        if (!ret->sections || header->e_shentsize != sizeof(Elf64_Shdr) || ret->n_sections == 0)
                return object_fail(message, "Its section headers are invalid.");
        return 0;
}

/* Text in a section of strings; NULL: there is none. */
static const char* elf_get_string(const Elf *e, size_t section, uint64_t offset) {
        const Elf64_Shdr *s;

        if (section >= e->n_sections)
                return NULL;
        s = e->sections + section;
        if (s->sh_type != SHT_STRTAB || s->sh_offset > e->size || s->sh_size > e->size - s->sh_offset ||
            offset >= s->sh_size)
                return NULL;
        return memchr(e->data + s->sh_offset + offset, 0, s->sh_size - offset) ?
               (const char*) e->data + s->sh_offset + offset : NULL;
}

/* Functions of the kernel (kfuncs) are undefined symbols. */
static int symbols_check(const Elf *e, const Elf64_Shdr *section, char **message) {
        const Elf64_Sym *symbols = elf_get(e, section->sh_offset, section->sh_size);

        if (!symbols)
                return object_fail(message, "Its table of symbols is invalid.");
        for (size_t i = 1; i < section->sh_size / sizeof(Elf64_Sym); i++) {
                const char *name = elf_get_string(e, section->sh_link, symbols[i].st_name);

                if (!name)
                        return object_fail(message, "Its table of symbols is invalid.");
                if (symbols[i].st_shndx == SHN_UNDEF && !startswith(name, "CONFIG_") &&
                    !startswith(name, "LINUX_"))
                        return object_fail(message,
                                           "It refers to '%.*s' of the kernel, which is not allowed.",
                                           EXCERPT_MAX, name);
        }
        return 0;
}

static int sections_check(const Elf *e, char **message) {
        const Elf64_Ehdr *header = (const Elf64_Ehdr*) e->data;
        int r = 0;

        for (size_t i = 0; i < e->n_sections && r >= 0; i++) {
                const Elf64_Shdr *s = e->sections + i;
                const char *name = elf_get_string(e, header->e_shstrndx, s->sh_name);

                if (s->sh_type == SHT_SYMTAB)
                        r = symbols_check(e, s, message);
                if (s->sh_type != SHT_PROGBITS || !(s->sh_flags & SHF_EXECINSTR) || s->sh_size == 0)
                        continue;
                if (!name || !elf_get(e, s->sh_offset, s->sh_size) ||
                    s->sh_size % sizeof(struct bpf_insn) != 0)
                        return object_fail(message, "Section %zu, which has programs, is invalid.", i);
                r = section_check(name, elf_get(e, s->sh_offset, s->sh_size),
                                  s->sh_size / sizeof(struct bpf_insn), message);
        }
        return r;
}

/* ---- programs and maps -------------------------------------------------------------------------------- */

/* Those without a slash have an element in the manifest, which says what they are attached to. */
static const char *const sections_allowed[] = {
        "tp_btf/", "raw_tp/", "raw_tracepoint/", "tp/", "tracepoint/", "fentry/", "fexit/", "iter/",
        "perf_event", "uprobe", "uretprobe", "usdt",
};

static int program_check(const struct bpf_program *program, char **message) {
        const char *section = bpf_program__section_name(program), *name = bpf_program__name(program);

        if (!text_is_valid(name, strlen(name)) || !text_is_valid(section, strlen(section)))
                return object_fail(message, "The name of a program or its section is no text.");

        for (size_t i = 0; i < ELEMENTSOF(sections_allowed); i++) {
                const char *rest = startswith(section, sections_allowed[i]);

                if (rest && (endswith(sections_allowed[i], "/") ? *rest != 0 : *rest == 0))
                        return 0;
        }
        return object_fail(message,
                           "Program '%s' is in section '%.*s', expected one of tp_btf, raw_tp, tp, fentry, "
                           "fexit and iter with a name, perf_event, uprobe, uretprobe and usdt.",
                           bpf_program__name(program), EXCERPT_MAX, section);
}

/* Memory of a map; 0: its elements belong to sockets, threads or control groups. */
static uint64_t map_get_size(const struct bpf_map *map) {
        uint64_t value = (bpf_map__value_size(map) + 7U) / 8 * 8, entries = bpf_map__max_entries(map);
        int cpus = libbpf_num_possible_cpus();

        switch (bpf_map__type(map)) {
        case BPF_MAP_TYPE_PERCPU_HASH:
        case BPF_MAP_TYPE_LRU_PERCPU_HASH:
        case BPF_MAP_TYPE_PERCPU_ARRAY:
                value *= cpus > 0 ? (uint64_t) cpus : 1;
                break;
        default:
                break;
        }
        return entries * (value + bpf_map__key_size(map));
}

static int map_check(const struct bpf_map *map, char **message) {
        switch (bpf_map__type(map)) {
        case BPF_MAP_TYPE_HASH:
        case BPF_MAP_TYPE_ARRAY:
        case BPF_MAP_TYPE_PERCPU_HASH:
        case BPF_MAP_TYPE_PERCPU_ARRAY:
        case BPF_MAP_TYPE_LRU_HASH:
        case BPF_MAP_TYPE_LRU_PERCPU_HASH:
        case BPF_MAP_TYPE_STACK_TRACE:
        case BPF_MAP_TYPE_SK_STORAGE:
        case BPF_MAP_TYPE_TASK_STORAGE:
        case BPF_MAP_TYPE_CGRP_STORAGE:
        case BPF_MAP_TYPE_INODE_STORAGE:
        case BPF_MAP_TYPE_ARRAY_OF_MAPS:
                return 0;
        default:
                return object_fail(message, "Map '%s' is of a type that is not allowed.",
                                   bpf_map__name(map));
        }
}

static int object_check_maps(const struct bpf_object *object, char **message) {
        const struct bpf_map *map;
        uint64_t size = 0;
        int r;

        bpf_object__for_each_map(map, object) {
                r = map_check(map, message);
                if (r < 0)
                        return r;
                /* A product of two 32 bit numbers and the number of CPUs: each is checked before they are
                 * added */
                if (map_get_size(map) > OBJECT_MAPS_SIZE_MAX)
                        return object_fail(message, "Map '%s' takes more than %u MiB.", bpf_map__name(map),
                                           OBJECT_MAPS_SIZE_MAX >> 20);
                size += map_get_size(map);
        }
        if (size > OBJECT_MAPS_SIZE_MAX)
                return object_fail(message, "Its maps take more than %u MiB.", OBJECT_MAPS_SIZE_MAX >> 20);
        return 0;
}

_printf_(2, 0) static int on_libbpf_print(enum libbpf_print_level level, const char *format, va_list ap) {
        if (level == LIBBPF_WARN) {
                (void) vsnprintf(libbpf_message, sizeof(libbpf_message), format, ap);
                libbpf_message[strcspn(libbpf_message, "\n")] = 0;
        }
        return 0;
}

static void json_unrefp(sd_json_variant **v) {
        (void) sd_json_variant_unref(*v);
}

static int object_check_parts(const void *elf, size_t size, char **message, sd_json_variant **programs) {
        LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "custom");
        struct bpf_program *program;
        struct bpf_object *object;
        int r = 0;

        (void) libbpf_set_print(on_libbpf_print);
        libbpf_message[0] = 0;
        object = bpf_object__open_mem(elf, size, &options);
        if (!object)
                return object_fail(message, "It is invalid: %s.",
                                   *libbpf_message ? libbpf_message : strerror(errno));
        bpf_object__for_each_program(program, object) {
                r = program_check(program, message);
                if (r >= 0)
                        r = sd_json_variant_append_arraybo(
                                programs, SD_JSON_BUILD_PAIR_STRING("name", bpf_program__name(program)),
                                SD_JSON_BUILD_PAIR_STRING("section", bpf_program__section_name(program)));
                if (r < 0)
                        break;
        }
        if (r >= 0 && !*programs)
                r = object_fail(message, "It has no programs.");
        if (r >= 0)
                r = object_check_maps(object, message);
        bpf_object__close(object);
        return r;
}

int object_check(const void *elf, size_t size, char **ret_message, sd_json_variant **ret) {
        _cleanup_(json_unrefp) sd_json_variant *programs = NULL;
        char hash[2 * SHA256_SIZE + 1];
        uint8_t digest[SHA256_SIZE];
        Elf e;
        int r;

        *ret_message = NULL;
        if (size > CUSTOM_OBJECT_SIZE_MAX)
                return object_fail(ret_message, "It is larger than %u MiB.", CUSTOM_OBJECT_SIZE_MAX >> 20);
        if (gnutls_hash_fast(GNUTLS_DIG_SHA256, elf, size, digest) < 0)
                return -EIO;
        for (size_t i = 0; i < SHA256_SIZE; i++)
                (void) snprintf(hash + 2 * i, 3, "%02x", digest[i]);

        r = elf_open(elf, size, &e, ret_message);
        if (r >= 0)
                r = sections_check(&e, ret_message);
        if (r >= 0)
                r = object_check_parts(elf, size, ret_message, &programs);
        if (r < 0)
                return r;
        return sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("sha256", hash),
                              SD_JSON_BUILD_PAIR_VARIANT("programs", programs));
}
