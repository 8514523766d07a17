/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Waits as Prism ("16 eBPF metrics") sees them, from published descriptions: a look at the clock when a
 * thread enters a system call that may wait and one when it leaves, by thread and resource, in maps of which
 * each second has its own. What is repaired here are the limits that are not the idea's: only threads of the
 * control group pay for more than the look whose they are, memory is bounded, and there are no events that
 * user space would have to take. What Prism polls in /proc every second, and what user space does with the
 * maps, is not here, so this is the least that the idea costs. */

#include <asm/unistd.h>
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define THREADS_MAX 4096
#define RESOURCES_MAX 8192              /* a second, as there */
#define SLOTS 10
#define NSEC_PER_SEC 1000000000ULL
#define FUTEX_COMMANDS 127              /* without the flags */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FILE_TYPES 0170000
#define FIFO 0010000
#define SOCKET 0140000
#define DECADES 8                       /* up to 1 us, 10 us, ..., 1 s, and above */

/* Where the kernel keeps the first two arguments of a system call */
#ifdef __TARGET_ARCH_x86
struct pt_regs {
        unsigned long si, di;
} __attribute__((preserve_access_index));
#define FIRST(regs) BPF_CORE_READ(regs, di)
#define SECOND(regs) BPF_CORE_READ(regs, si)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
        unsigned long regs[31], orig_x0;
} __attribute__((preserve_access_index));
#define FIRST(regs) BPF_CORE_READ(regs, orig_x0)
#define SECOND(regs) BPF_CORE_READ(regs, regs[1])
#else
#error "The saved registers of this architecture are not known."
#endif

struct inode {
        unsigned short i_mode;
        unsigned long i_ino;
} __attribute__((preserve_access_index));

struct file {
        struct inode *f_inode;
} __attribute__((preserve_access_index));

struct fdtable {
        unsigned int max_fds;
        struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
        struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct task_struct {
        struct files_struct *files;
} __attribute__((preserve_access_index));

enum kind {
        KIND_NONE,
        KIND_FUTEX,
        KIND_FUTEX_WAKE,
        KIND_EPOLL,
        KIND_PIPE,
        KIND_SOCKET,
};

struct key {
        __u64 thread;
        __u64 resource;
        __u32 kind;
        __u32 slot;
};

struct wait {
        struct key key;
        __u64 since;
};

struct figures {
        __u64 count;
        __u64 time;
        __u64 decades[DECADES];
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u64);
        __type(value, struct wait);
        __uint(max_entries, THREADS_MAX);
} pending SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, struct key);
        __type(value, struct figures);
        __uint(max_entries, RESOURCES_MAX * SLOTS);
} waits SEC(".maps");

const volatile __u64 control_group = 0;

static struct file *file_of(unsigned long fd) {
        struct task_struct *task = (struct task_struct *) bpf_get_current_task();
        struct fdtable *table = BPF_CORE_READ(task, files, fdt);
        struct file *file = NULL;

        if (fd >= BPF_CORE_READ(table, max_fds))
                return NULL;
        bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
        return file;
}

static void add(struct key *key, __u64 count, __u64 time) {
        struct figures nothing = {};
        struct figures *f;
        __u64 limit = 1000;
        int decade;

        key->slot = bpf_ktime_get_boot_ns() / NSEC_PER_SEC % SLOTS;
        f = bpf_map_lookup_elem(&waits, key);
        if (!f) {
                bpf_map_update_elem(&waits, key, &nothing, BPF_NOEXIST);
                f = bpf_map_lookup_elem(&waits, key);
                if (!f)
                        return;
        }
        __sync_fetch_and_add(&f->count, count);
        __sync_fetch_and_add(&f->time, time);
        for (decade = 0; decade < DECADES - 1 && time > limit; decade++)
                limit *= 10;
        __sync_fetch_and_add(&f->decades[decade & (DECADES - 1)], 1);
}

SEC("raw_tp/sys_enter")
int enter(struct bpf_raw_tracepoint_args *ctx) {
        struct pt_regs *regs = (struct pt_regs *) ctx->args[0];
        struct wait wait = {};
        struct inode *inode;
        struct file *file;

        if (bpf_get_current_cgroup_id() != control_group)
                return 0;

        wait.key.thread = bpf_get_current_pid_tgid();
        switch (ctx->args[1]) {

        case __NR_futex:
                wait.key.resource = FIRST(regs);
                switch (SECOND(regs) & FUTEX_COMMANDS) {
                case FUTEX_WAIT:
                case FUTEX_WAIT_BITSET:
                        wait.key.kind = KIND_FUTEX;
                        break;
                case FUTEX_WAKE:
                case FUTEX_WAKE_BITSET:
                        wait.key.kind = KIND_FUTEX_WAKE;
                        break;
                default:
                        return 0;
                }
                break;

#ifdef __NR_epoll_wait
        case __NR_epoll_wait:
#endif
        case __NR_epoll_pwait:
                wait.key.kind = KIND_EPOLL;
                wait.key.resource = (__u64) file_of(FIRST(regs));
                break;

        case __NR_read:
        case __NR_readv:
        case __NR_write:
        case __NR_writev:
        case __NR_recvfrom:
        case __NR_recvmsg:
        case __NR_sendto:
        case __NR_sendmsg:
        case __NR_accept4:
                file = file_of(FIRST(regs));
                inode = BPF_CORE_READ(file, f_inode);
                switch (BPF_CORE_READ(inode, i_mode) & FILE_TYPES) {
                case FIFO:
                        wait.key.kind = KIND_PIPE;
                        break;
                case SOCKET:
                        wait.key.kind = KIND_SOCKET;
                        break;
                default:
                        return 0;
                }
                wait.key.resource = BPF_CORE_READ(inode, i_ino);
                break;

        default:
                return 0;
        }

        wait.since = bpf_ktime_get_boot_ns();
        bpf_map_update_elem(&pending, &wait.key.thread, &wait, BPF_ANY);
        return 0;
}

SEC("raw_tp/sys_exit")
int leave(struct bpf_raw_tracepoint_args *ctx) {
        struct wait *wait;
        struct key key;
        __u64 thread, since;

        if (bpf_get_current_cgroup_id() != control_group)
                return 0;

        thread = bpf_get_current_pid_tgid();
        wait = bpf_map_lookup_elem(&pending, &thread);
        if (!wait)
                return 0;
        key = wait->key;
        since = wait->since;
        bpf_map_delete_elem(&pending, &thread);
        if (key.kind == KIND_FUTEX_WAKE && (long) ctx->args[1] <= 0)
                return 0;
        add(&key, 1, bpf_ktime_get_boot_ns() - since);
        return 0;
}

char _license[] SEC("license") = "GPL";
