/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Why a thread is descheduled: its new state and its wait target. */

#include "contention-maps.h"
#include "own-pid.h"
#include "syscalls.h"
#include "thread.h"
#include "wait-targets.h"

/* ---- states ------------------------------------------------------------------------------------------- */

/* s_magic of FUSE: unlike other file systems it waits interruptibly, for its server */
#define FUSE_SUPER_MAGIC 0x65735546
/* s_iflags of file systems without devices: procfs, sysfs, cgroupfs, POSIX message queues */
#define SB_I_NODEV 0x00000004

/* State of a thread that waits for a file. asleep: interruptibly, and not accounted as I/O wait, as a wait
 * for an event is. */
static __always_inline __u32 inode_state(struct inode *inode, bool asleep) {
        struct super_block *sb;

        switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {

        case S_IFSOCK:
                return QOS_STATE_SOCKET;

        case S_IFIFO:
                return QOS_STATE_PIPE;

        case S_IFREG:
                sb = BPF_CORE_READ(inode, i_sb);
                /* Anonymous inodes of some kernels (eventfd, timerfd, ...) have this type, too */
                if (BPF_CORE_READ(sb, s_magic) == ANON_INODE_FS_MAGIC ||
                    BPF_CORE_READ(sb, s_iflags) & SB_I_NODEV)
                        return QOS_STATE_POLL;
                return asleep && BPF_CORE_READ(sb, s_magic) != FUSE_SUPER_MAGIC ? QOS_STATE_POLL :
                       QOS_STATE_DISK;

        case S_IFBLK:
        case S_IFDIR:
                return QOS_STATE_DISK;

        default:
                return QOS_STATE_POLL;
        }
}

/* A wait, as far as the system call describes it. */
struct wait {
        struct file *file;      /* file of the descriptor; NULL: none */
        __u32 fd;
        __u32 shared;           /* 1: the futex is not process-private */
        __u64 futex;
        __u64 lock;             /* kernel lock or its caller, as in struct thread; if set, only the next two
                                 * are set as well */
        __u32 lock_kind;
        __u32 lock_device;
};

/* A name of its own, as in preemption.h. */
void* bpf_rdonly_cast___wait(const void *object, __u32 type_id) __ksym;

/* To read pointers that the task has, at no cost at run time: whenever the verifier follows a read of one
 * through a trusted pointer, it searches all names of the kernel's BTF, which takes up to a millisecond. */
static __always_inline struct task_struct* task_untrusted(struct task_struct *task) {
        return bpf_rdonly_cast___wait(task, bpf_core_type_id_kernel(struct task_struct));
}

/* File of a descriptor; NULL: not open. */
static __always_inline struct file* file_get(struct task_struct *task, __u64 fd) {
        struct files_struct *files = task_untrusted(task)->files;
        struct fdtable *table;
        struct file **list, *file = NULL;

        if (!files)
                return NULL;
        table = files->fdt;
        fd &= 0xffffffff;
        if (!table || fd >= table->max_fds)
                return NULL;
        list = table->fd;
        if (bpf_probe_read_kernel(&file, sizeof(file), list + fd) < 0)
                return NULL;
        return file;
}

/* State of a thread that waits for a descriptor; QOS_STATE_NONE: not open. */
static __always_inline __u32 file_state(struct task_struct *task, __u64 fd, bool asleep, struct wait *w) {
        struct file *file = file_get(task, fd);

        if (!file)
                return QOS_STATE_NONE;
        w->file = file;
        w->fd = fd;
        return inode_state(BPF_CORE_READ(file, f_inode), asleep);
}

/* Distinguishes mutexes from waits for an event: condition variables, semaphores, idle pools. Mutexes wait
 * for value 2 ("locked, with waiters": glibc, musl, Go, Rust), or for the owner's TID with FUTEX_WAITERS.
 * With FUTEX_WAIT_BITSET, 2 is ambiguous: condition variables of glibc count signals, and Rust uses it for
 * everything. It is considered a mutex if the thread itself has called FUTEX_WAKE at the address. Condition
 * variables of musl wait for 2, too, at an address on the stack of the waiter, near its end, where there are
 * no mutexes. */
#define FUTEX_COMMAND 0x7f
#define FUTEX_PRIVATE 0x80
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
#define FUTEX_WAITERS 0x80000000
#define FUTEX_OWNER 0x3fffffff
#define OWNER_MAX 0x400000 /* PID_MAX_LIMIT */
#define MUTEX_CONTENDED 2
#define STACK_NEAR 4096         /* bytes, the frames of a few functions */

/* stack: stack pointer of the thread; woke: address of its last FUTEX_WAKE. */
static __always_inline __u32 futex_state(__u64 address, __u64 operation, __u64 value, __u64 stack,
                                         __u64 woke) {
        __u32 command = operation & FUTEX_COMMAND, v = value, owner = v & FUTEX_OWNER;

        if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2)
                return QOS_STATE_LOCK;
        if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET)
                return QOS_STATE_PARK;
        if (v & FUTEX_WAITERS && owner > 0 && owner <= OWNER_MAX)
                return QOS_STATE_LOCK;
        if (v == MUTEX_CONTENDED && address - stack >= STACK_NEAR &&
            (command == FUTEX_WAIT || address == woke))
                return QOS_STATE_LOCK;
        return QOS_STATE_PARK;
}

struct call {
        int number;             /* negative: not in a system call */
        __u64 arguments[3];
        __u64 stack;            /* stack pointer */
};

/* Determines the descriptor of a poll(2) with a single one; with several it is unknown. The array is in user
 * memory, which is only accessible for the current task. */
static __always_inline void poll_describe(struct task_struct *task, const struct call *call,
                                          struct wait *w) {
        int fd;

        if (call->arguments[1] != 1 || task != bpf_get_current_task_btf() ||
            bpf_probe_read_user(&fd, sizeof(fd), (const void*) call->arguments[0]) < 0 || fd < 0)
                return;
        w->fd = fd;
        w->file = file_get(task, fd);
}

/* fcntl() commands that block on a lock */
#define F_SETLKW 7
#define F_OFD_SETLKW 38

static __always_inline void call_read(struct task_struct *task, struct call *ret) {
        struct pt_regs___saved *regs = (struct pt_regs___saved*) bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
        ret->number = (int) regs->orig_ax;
        ret->arguments[0] = regs->di;
        ret->arguments[1] = regs->si;
        ret->arguments[2] = regs->dx;
        ret->stack = regs->sp;
        /* 32 bit programs have other numbers */
        if (task->thread_info.status & TS_COMPAT)
                ret->number = SYSCALLS_MAX;
#elif defined(__TARGET_ARCH_arm64)
        ret->number = (int) regs->syscallno;
        ret->arguments[0] = regs->orig_x0;
        ret->arguments[1] = regs->regs[1];
        ret->arguments[2] = regs->regs[2];
        ret->stack = regs->sp;
        if (task->thread_info.flags & 1UL << TIF_32BIT)
                ret->number = SYSCALLS_MAX;
#else
        ret->number = SYSCALLS_MAX;
        ret->stack = 0;
#endif
}

/* The state of a thread that is descheduled with the given task state. w has to be zeroed. */
static __always_inline __u32 wait_state(struct task_struct *task, __u32 state, const struct thread *t,
                                        struct wait *w) {
        bool io = BPF_CORE_READ_BITFIELD(task, in_iowait);
        struct call call;
        __u32 kind = 0, s;
        bool described;
        __u64 n;

        /* Sleeping spin locks of PREEMPT_RT, taken in any context */
        if (state & TASK_RTLOCK_WAIT)
                return QOS_STATE_LOCK;
        /* The parent in vfork(2) is frozen from the view of the kernel, but in an uninterruptible sleep */
        if (state & (__TASK_STOPPED | __TASK_TRACED) ||
            (BPF_CORE_READ_BITFIELD(task, frozen) && !(state & TASK_UNINTERRUPTIBLE)))
                return QOS_STATE_STOPPED;
        /* Waits for the core dump of its process */
        if (task->flags & PF_POSTCOREDUMP && state & TASK_NOLOAD)
                return QOS_STATE_OTHER;
        if (task->flags & PF_MEMALLOC)
                return QOS_STATE_MEMORY;
        if (bpf_core_field_exists(task->in_memstall) && BPF_CORE_READ_BITFIELD(task, in_memstall))
                return QOS_STATE_MEMORY;

        /* Workers of io_uring and the like: they wait for a file, or for work */
        if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
                return io || state & TASK_UNINTERRUPTIBLE ? QOS_STATE_DISK : QOS_STATE_PARK;

        call_read(task, &call);
        if (call.number < 0) /* not in a system call: mostly a page fault; or on its way back to user mode */
                return io || state & TASK_UNINTERRUPTIBLE ? QOS_STATE_MEMORY : QOS_STATE_OTHER;

        n = call.number;
        /* The kernel does not expose the restarted call: poll(), futex(2) with a timeout or, mostly, a
         * sleep */
        if (n == __NR_restart_syscall)
                return t->waited ?: QOS_STATE_SLEEP;
        if (n < SYSCALLS_MAX) {
                BPF_BOUND(n, SYSCALLS_MAX);
                kind = syscall_table[n];
        }
        described = kind & SYSCALL_DESCRIPTOR;
        kind &= ~SYSCALL_DESCRIPTOR;
        if (kind == SYSCALL_POLL) {
                kind = QOS_STATE_POLL;
                if (!(state & TASK_UNINTERRUPTIBLE))
                        poll_describe(task, &call, w);
        }

        /* These calls sleep interruptibly for their purpose. An uninterruptible sleep precedes that: for
         * memory to be read in, for a kernel lock or, with io_uring, for a file */
        if (state & TASK_UNINTERRUPTIBLE &&
            (kind == QOS_STATE_SOCKET || kind == QOS_STATE_POLL || kind == QOS_STATE_PIPE ||
             kind == QOS_STATE_PARK || kind == QOS_STATE_SLEEP))
                return !io ? QOS_STATE_LOCK : kind == QOS_STATE_POLL ? QOS_STATE_DISK : QOS_STATE_MEMORY;
        if (kind == SYSCALL_FUTEX) {
                kind = futex_state(call.arguments[0], call.arguments[1], call.arguments[2], call.stack,
                                   t->woke);
                if (state & TASK_UNINTERRUPTIBLE && kind == QOS_STATE_PARK)
                        return io ? QOS_STATE_MEMORY : QOS_STATE_LOCK;
                if (!(state & TASK_UNINTERRUPTIBLE)) {
                        w->futex = call.arguments[0];
                        w->shared = !(call.arguments[1] & FUTEX_PRIVATE);
                }
        }
        if (kind > QOS_STATE_NONE && kind < QOS_STATES) {
                if (described) {
                        w->fd = call.arguments[0];
                        w->file = file_get(task, w->fd);
                }
                return kind;
        }

        if (kind == SYSCALL_FCNTL &&
            ((__u32) call.arguments[1] == F_SETLKW || (__u32) call.arguments[1] == F_OFD_SETLKW)) {
                (void) file_state(task, call.arguments[0], false, w);
                return QOS_STATE_LOCK;
        }

        if (kind == SYSCALL_FILE || kind == SYSCALL_SPLICE) {
                struct wait other = {};

                s = file_state(task, call.arguments[0], !io && !(state & TASK_UNINTERRUPTIBLE), w);
                if (kind == SYSCALL_SPLICE && s == QOS_STATE_PIPE &&
                    file_state(task, call.arguments[2], false, &other) == QOS_STATE_SOCKET) {
                        s = QOS_STATE_SOCKET;
                        *w = other;
                }
                /* As above, before the actual wait */
                if (state & TASK_UNINTERRUPTIBLE && !io &&
                    (s == QOS_STATE_SOCKET || s == QOS_STATE_POLL || s == QOS_STATE_PIPE)) {
                        *w = (struct wait) {};
                        return QOS_STATE_LOCK;
                }
                if (s != QOS_STATE_NONE && !io)
                        return s;
        }
        if (io) /* includes a file being read by sendfile(2) */
                return QOS_STATE_DISK;
        return state & TASK_UNINTERRUPTIBLE ? QOS_STATE_LOCK : QOS_STATE_OTHER;
}

/* ---- wait targets ------------------------------------------------------------------------------------- */

static __always_inline void socket_describe(struct file *file, struct qos_resource *r) {
        struct socket *socket = BPF_CORE_READ(file, private_data);
        struct sock *sk = BPF_CORE_READ(socket, sk);
        struct unix_address *name;

        if (!sk)
                return;
        r->kind = QOS_RESOURCE_SOCKET;
        r->family = BPF_CORE_READ(sk, __sk_common.skc_family);
        r->protocol = BPF_CORE_READ(sk, sk_protocol);
        /* Set for listening and accepted sockets only */
        r->side = BPF_CORE_READ(sk, sk_max_ack_backlog) > 0 ? QOS_SIDE_LISTENS : QOS_SIDE_CONNECTS;

        if (r->family == AF_UNIX) {
                struct unix_sock *us = (struct unix_sock*) sk;

                name = BPF_CORE_READ(us, addr);
                if (name)
                        r->side = QOS_SIDE_LISTENS;
                else {
                        r->side = QOS_SIDE_CONNECTS;
                        us = (struct unix_sock*) BPF_CORE_READ(us, peer);
                        name = us ? BPF_CORE_READ(us, addr) : NULL;
                }
                r->id = (__u64) name; /* accepted sockets share that of the listener */
                if (!name) {
                        r->side = QOS_SIDE_NONE;
                        r->id = BPF_CORE_READ(file, f_inode, i_ino);
                }
                return;
        }
        if (r->family != AF_INET && r->family != AF_INET6) {
                r->side = QOS_SIDE_NONE;
                r->id = BPF_CORE_READ(file, f_inode, i_ino);
                return;
        }
        if (r->side == QOS_SIDE_CONNECTS && BPF_CORE_READ(sk, __sk_common.skc_dport) == 0)
                r->side = QOS_SIDE_LISTENS; /* unconnected UDP socket */
        if (r->side == QOS_SIDE_LISTENS) {
                /* By port only: local addresses of accepted connections vary */
                r->port = BPF_CORE_READ(sk, __sk_common.skc_num);
                return;
        }
        r->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
        if (r->family == AF_INET6)
                bpf_core_read(r->address, sizeof(r->address), &sk->__sk_common.skc_v6_daddr);
        else
                bpf_core_read(r->address, 4, &sk->__sk_common.skc_daddr);
}

static __always_inline void file_describe(struct task_struct *task, const struct wait *w,
                                          struct qos_resource *r) {
        struct file *file = w->file;
        struct inode *inode = BPF_CORE_READ(file, f_inode);
        __u32 type = BPF_CORE_READ(inode, i_mode) & S_IFMT;

        if (r->state == QOS_STATE_DISK && type != S_IFREG && type != S_IFDIR && type != S_IFBLK)
                return; /* sendfile(2): the file being sent is unknown */
        if (type == S_IFSOCK) {
                socket_describe(file, r);
                return;
        }
        if (type == S_IFIFO) {
                r->kind = QOS_RESOURCE_PIPE;
                r->id = BPF_CORE_READ(inode, i_ino);
        } else if (r->state == QOS_STATE_DISK || r->state == QOS_STATE_LOCK || r->state == QOS_STATE_PIPE) {
                /* A message queue */
                r->kind = QOS_RESOURCE_FILE;
                r->id = BPF_CORE_READ(inode, i_ino);
        } else {
                /* Anonymous inodes share a single inode: identified by descriptor */
                r->kind = QOS_RESOURCE_EPOLL;
                r->process = task->tgid;
                r->id = w->fd;
                return;
        }
        r->device = BPF_CORE_READ(inode, i_sb, s_dev);
}

static __always_inline void row_name(struct qos_wait_target *row, const struct wait *w) {
        struct file *file = w->file;
        struct unix_address *name;
        int length;

        if (w->lock) {
                BPF_SNPRINTF(row->name, sizeof(row->name), "%ps", (void*) w->lock);
                return;
        }
        if (row->resource.kind != QOS_RESOURCE_SOCKET) {
                (void) bpf_probe_read_kernel_str(row->name, sizeof(row->name),
                                                 BPF_CORE_READ(file, f_path.dentry, d_name.name));
                return;
        }
        if (row->resource.family != AF_UNIX || row->resource.side == QOS_SIDE_NONE)
                return;
        /* sun_family and sun_path; abstract names begin with NUL */
        name = (struct unix_address*) row->resource.id;
        length = BPF_CORE_READ(name, len) - 2;
        if (length < 1 || length > (int) QOS_RESOURCE_NAME_SIZE - 1)
                length = QOS_RESOURCE_NAME_SIZE - 1;
        row->name[0] = length;
        bpf_core_read(row->name + 1, QOS_RESOURCE_NAME_SIZE - 1, &name->name[0].sun_path);
}

/* Finds or assigns the entry of a wait target. Returns its number, from 1, and its generation in the upper
 * half; 0: none. ret: the entry if it was reassigned, otherwise NULL. */
static __always_inline __u64 resource_row(struct qos_contention_map *c, const struct qos_resource *r,
                                          struct qos_wait_target **ret) {
        struct qos_wait_target *row;
        __u64 i, k;

        *ret = NULL;
        i = resource_find(c, r);
        if (i == 0)
                return 0;
        k = (i & ~(__u64) RESOURCE_NEW) - 1;
        BPF_BOUND(k, QOS_WAIT_TARGETS);
        row = &c->rows[k];
        if (i & RESOURCE_NEW)
                *ret = row;
        return (k + 1) | (__u64) row->generation << 32;
}

/* Finds the entry for a wait about to begin. */
static __attribute__((noinline)) __u64 thread_find_row(struct task_struct *task, __u64 map_id, __u32 state,
                                                       const struct wait *w) {
        struct qos_resource r = { .state = state };
        struct qos_wait_target *row;
        struct qos_contention_map *c;
        __u64 found;

        if (!w)
                return 0;
        if (w->lock) {
                r.kind = w->lock_kind;
                r.id = w->lock;
                r.device = w->lock_device;
        } else if (w->futex) {
                r.kind = QOS_RESOURCE_FUTEX;
                r.id = w->futex;
                r.process = w->shared ? 0 : task->tgid;
        } else if (w->file)
                file_describe(task, w, &r);
        if (r.kind == QOS_RESOURCE_NONE)
                return 0;

        c = contention_get(map_id);
        if (!c)
                return 0;
        found = resource_row(c, &r, &row);
        if (row) {
                row->process = own_number(task_untrusted(task)->group_leader);
                row->fd = w->fd;
                if (w->file || w->lock)
                        row_name(row, w);
        }
        return found;
}

/* Value of fd in the cache for kernel locks; futexes have 0 or 1. */
#define KNOWN_LOCK 2

/* Like thread_find_row(), cached. */
static __always_inline __u64 thread_get_row(struct thread *t, struct task_struct *task, __u64 map_id,
                                            __u32 state, const struct wait *w) {
        struct file *file = w->file;
        __u32 fd = w->lock ? KNOWN_LOCK : w->futex ? w->shared : w->fd;
        __u64 id = w->lock ? w->lock ^ (__u64) w->lock_device << 32 : w->futex;

        if (!id) {
                if (!file)
                        return 0;
                id = BPF_CORE_READ(file, f_inode, i_ino);
        }
        if (t->known.file != file || t->known.id != id || t->known.fd != fd || t->known.state != state) {
                t->known.file = file;
                t->known.id = id;
                t->known.fd = fd;
                t->known.state = state;
                t->known.row = thread_find_row(task, map_id, state, w);
        }
        return t->known.row;
}
