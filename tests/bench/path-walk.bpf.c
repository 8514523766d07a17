// SPDX-License-Identifier: GPL-2.0-or-later
/* Counts reads and writes by control group and mount point, as the eBPF collector of CEEMS is described to
 * do: at each return of the function the names of the mounts above the file are joined, and that string and
 * the control group are the key of an LRU hash of calls, bytes and errors. It has no latency. Unlike there,
 * files below "/" are counted, and results of vfs_readv() and vfs_writev() are read from their own return
 * values. As there, the name of a mount is the last part of its path: all parts would take longer. */

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define ROWS_MAX 16384          /* as in CEEMS */
#define LEVELS_MAX 8
#define MOUNT_SIZE 64
#define NAME_SIZE 64            /* of one level */

struct qstr {
        const unsigned char *name;
} __attribute__((preserve_access_index));

struct dentry {
        struct qstr d_name;
} __attribute__((preserve_access_index));

struct vfsmount {
        struct dentry *mnt_root;
} __attribute__((preserve_access_index));

struct mount {
        struct mount *mnt_parent;
        struct dentry *mnt_mountpoint;
        struct vfsmount mnt;
} __attribute__((preserve_access_index));

struct path {
        struct vfsmount *mnt;
} __attribute__((preserve_access_index));

struct file {
        struct path f_path;
} __attribute__((preserve_access_index));

struct key {
        __u32 cgroup;
        char mount[MOUNT_SIZE];
};

struct value {
        __u64 calls, bytes, errors;
};

struct scratch {
        struct key key;
        char names[LEVELS_MAX][NAME_SIZE];
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct scratch);
} path_scratch SEC(".maps");

#define ACCUMULATOR(name)                                                                               \
        struct {                                                                                        \
                __uint(type, BPF_MAP_TYPE_LRU_HASH);                                                    \
                __uint(max_entries, ROWS_MAX);                                                          \
                __type(key, struct key);                                                                \
                __type(value, struct value);                                                            \
        } name SEC(".maps")

ACCUMULATOR(path_reads);
ACCUMULATOR(path_writes);

char LICENSE[] SEC("license") = "GPL";

/* The names of the mounts from the one of the file up to the root, each with a slash before it. */
static __always_inline void mount_walk(const struct file *file, struct scratch *s) {
        struct vfsmount *vfsmount = BPF_CORE_READ(file, f_path.mnt);
        struct mount *mount = (struct mount*) ((char*) vfsmount - bpf_core_field_offset(struct mount, mnt));
        __u32 levels = 0, used = 0;

        __builtin_memset(s->key.mount, 0, MOUNT_SIZE);
        for (__u32 i = 0; i < LEVELS_MAX; i++) {
                struct mount *parent = BPF_CORE_READ(mount, mnt_parent);

                if (!parent || parent == mount)
                        break;
                (void) bpf_probe_read_kernel_str(s->names[i], NAME_SIZE,
                                                 BPF_CORE_READ(mount, mnt_mountpoint, d_name.name));
                mount = parent;
                levels = i + 1;
        }
        s->key.mount[0] = '/';
        for (__u32 i = LEVELS_MAX; i-- > 0;) {
                long n;

                if (i >= levels || used >= MOUNT_SIZE / 2 - 1)
                        continue;
                s->key.mount[used] = '/';
                n = bpf_probe_read_kernel_str(s->key.mount + used + 1, MOUNT_SIZE / 2, s->names[i]);
                if (n > 0 && n <= MOUNT_SIZE / 2)
                        used += (__u32) n;
        }
}

static __always_inline int is_ignored(const char *mount) {
        return (mount[1] == 'd' && mount[2] == 'e' && mount[3] == 'v') ||
               (mount[1] == 's' && mount[2] == 'y' && mount[3] == 's') ||
               (mount[1] == 'p' && mount[2] == 'r' && mount[3] == 'o' && mount[4] == 'c');
}

static __always_inline int count(void *rows, const struct file *file, __s64 result) {
        __u32 zero = 0, cgroup = (__u32) bpf_get_current_cgroup_id();
        struct value first = {}, *v;
        struct scratch *s;

        /* 0: unknown, 1: the root */
        if (cgroup <= 1)
                return 0;
        s = bpf_map_lookup_elem(&path_scratch, &zero);
        if (!s)
                return 0;
        s->key.cgroup = cgroup;
        mount_walk(file, s);
        if (is_ignored(s->key.mount))
                return 0;
        v = bpf_map_lookup_elem(rows, &s->key);
        if (!v) {
                (void) bpf_map_update_elem(rows, &s->key, &first, BPF_NOEXIST);
                v = bpf_map_lookup_elem(rows, &s->key);
                if (!v)
                        return 0;
        }
        __sync_fetch_and_add(&v->calls, 1);
        if (result < 0)
                __sync_fetch_and_add(&v->errors, 1);
        else
                __sync_fetch_and_add(&v->bytes, result);
        return 0;
}

#define PATH_WALK(name, function, rows)                                                                 \
        SEC("fexit/" #function)                                                                         \
        int path_##name(__u64 *ctx) {                                                                   \
                __u64 result = 0;                                                                       \
                                                                                                        \
                (void) bpf_get_func_ret(ctx, &result);                                                  \
                return count(&rows, (const struct file*) ctx[0], (__s64) result);                       \
        }

PATH_WALK(read, vfs_read, path_reads)
PATH_WALK(readv, vfs_readv, path_reads)
PATH_WALK(write, vfs_write, path_writes)
PATH_WALK(writev, vfs_writev, path_writes)

/* What it costs to measure a program. */
SEC("fexit/vfs_read")
int path_nothing(void *ctx) {
        return 0;
}
