/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Why a thread leaves the CPU: the state that it is in then, and what it waits for. */

#include "contention-maps.h"
#include "kernel-locks.h"
#include "syscalls.h"
#include "thread.h"
#include "wait-targets.h"

BPF_ARRAY_MAP(inspect_requests, ARRAY, 1, struct qos_inspect_request);

/* ---- what a thread waits for -------------------------------------------------------------------------- */

static __always_inline __u32 inode_state(struct inode *inode) {
        switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {

        case S_IFSOCK:
                return QOS_STATE_SOCKET;

        case S_IFIFO:
                return QOS_STATE_PIPE;

        case S_IFREG:
                /* Some kernels call those so that are in no file system: eventfd, timerfd … */
                return BPF_CORE_READ(inode, i_sb, s_magic) == ANON_INODE_FS_MAGIC ? QOS_STATE_POLL :
                       QOS_STATE_DISK;

        case S_IFBLK:
        case S_IFDIR:
                return QOS_STATE_DISK;

        default:
                return QOS_STATE_POLL;
        }
}

/* What a thread waits for, as far as the call says it. */
struct wait {
        struct file *file;      /* behind the descriptor; NULL: none */
        __u32 fd;
        __u32 shared;           /* 1: the futex may be in the memory of several processes */
        __u64 futex;
        __u64 lock;             /* of the kernel, as in struct thread; then nothing else is set but */
        __u32 lock_kind;
};

/* NULL: there is none. */
static __always_inline struct file* file_get(struct task_struct *task, __u64 fd) {
        struct files_struct *files = task->files;
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

/* QOS_STATE_NONE: there is no such file. */
static __always_inline __u32 file_state(struct task_struct *task, __u64 fd, struct wait *w) {
        struct file *file = file_get(task, fd);

        if (!file)
                return QOS_STATE_NONE;
        w->file = file;
        w->fd = fd;
        return inode_state(BPF_CORE_READ(file, f_inode));
}

/* Mutexes wait on 2 ("taken, and others wait": glibc, musl, Go, Rust), or on the owner's number with this
 * bit. Everything else is a wait for something to be done: condition variables, semaphores, idle pools. With
 * a time limit or the like (BITSET) 2 says less: condition variables of glibc count signals there, and Rust
 * waits for all things so. Then it is a mutex if the thread has woken others there itself. Condition
 * variables of musl wait on 2 as well, on the stack of who waits: no mutex lies there, near its end. */
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
#define STACK_NEAR 4096         /* bytes: the frames of a few functions */

/* stack: where that of the thread ends. */
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
        int number;             /* negative: none */
        __u64 arguments[3];
        __u64 stack;            /* its end */
};

/* The only descriptor that poll(2) was asked for; of several, which one is waited for nobody knows. The list
 * is in the memory of the program, which is that of the task that runs. */
static __always_inline void poll_describe(struct task_struct *task, const struct call *call,
                                          struct wait *w) {
        int fd;

        if (call->arguments[1] != 1 || task != bpf_get_current_task_btf() ||
            bpf_probe_read_user(&fd, sizeof(fd), (const void*) call->arguments[0]) < 0 || fd < 0)
                return;
        w->fd = fd;
        w->file = file_get(task, fd);
}

/* fcntl() with which a lock is waited for */
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
        /* Programs of 32 bits have other numbers */
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

/* The state of a thread that waits; state: what the scheduler calls it. w: all 0. */
static __always_inline __u32 wait_state(struct task_struct *task, __u32 state, const struct thread *t,
                                        struct wait *w) {
        bool io = BPF_CORE_READ_BITFIELD(task, in_iowait);
        struct call call;
        __u32 kind = 0, s;
        bool described;
        __u64 n;

        /* With PREEMPT_RT spin locks are slept on, wherever the thread is */
        if (state & TASK_RTLOCK_WAIT)
                return QOS_STATE_LOCK;
        /* Who waits in vfork(2) for the other process to go its own way counts as frozen for the kernel,
         * too, and cannot be interrupted */
        if (state & (__TASK_STOPPED | __TASK_TRACED) ||
            (BPF_CORE_READ_BITFIELD(task, frozen) && !(state & TASK_UNINTERRUPTIBLE)))
                return QOS_STATE_OTHER;
        /* Its process dumps core, and it waits for the end of that */
        if (task->flags & PF_POSTCOREDUMP && state & TASK_NOLOAD)
                return QOS_STATE_OTHER;
        if (task->flags & PF_MEMALLOC)
                return QOS_STATE_MEMORY;
        if (bpf_core_field_exists(task->in_memstall) && BPF_CORE_READ_BITFIELD(task, in_memstall))
                return QOS_STATE_MEMORY;

        /* Workers of io_uring and the like: they wait for a file, or for something to do */
        if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
                return io || state & TASK_UNINTERRUPTIBLE ? QOS_STATE_DISK : QOS_STATE_PARK;

        call_read(task, &call);
        if (call.number < 0) /* not in a call: a page fault, mostly; or on its way back to the program */
                return io || state & TASK_UNINTERRUPTIBLE ? QOS_STATE_MEMORY : QOS_STATE_OTHER;

        n = call.number;
        /* What it does is known to the kernel alone: poll(), futex(2) with a time limit, or, mostly, a
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

        /* What these wait for can be interrupted. What cannot is on the way there: memory that must be read
         * first, or a lock of the kernel's; with io_uring a file */
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
                (void) file_state(task, call.arguments[0], w);
                return QOS_STATE_LOCK;
        }

        if (kind == SYSCALL_FILE || kind == SYSCALL_SPLICE) {
                struct wait other = {};

                s = file_state(task, call.arguments[0], w);
                if (kind == SYSCALL_SPLICE && s == QOS_STATE_PIPE &&
                    file_state(task, call.arguments[2], &other) == QOS_STATE_SOCKET) {
                        s = QOS_STATE_SOCKET;
                        *w = other;
                }
                /* On the way there, as above */
                if (state & TASK_UNINTERRUPTIBLE && !io &&
                    (s == QOS_STATE_SOCKET || s == QOS_STATE_POLL || s == QOS_STATE_PIPE)) {
                        *w = (struct wait) {};
                        return QOS_STATE_LOCK;
                }
                if (s != QOS_STATE_NONE && !io)
                        return s;
        }
        if (io) /* a file that is read to be sent, too */
                return QOS_STATE_DISK;
        return state & TASK_UNINTERRUPTIBLE ? QOS_STATE_LOCK : QOS_STATE_OTHER;
}

/* ---- what that is ------------------------------------------------------------------------------------- */

static __always_inline void socket_describe(struct file *file, struct qos_resource *r) {
        struct socket *socket = BPF_CORE_READ(file, private_data);
        struct sock *sk = BPF_CORE_READ(socket, sk);
        struct unix_address *name;

        if (!sk)
                return;
        r->kind = QOS_RESOURCE_SOCKET;
        r->family = BPF_CORE_READ(sk, __sk_common.skc_family);
        r->protocol = BPF_CORE_READ(sk, sk_protocol);
        /* Only those that listen, and those that were accepted there, have such a limit */
        r->side = BPF_CORE_READ(sk, sk_max_ack_backlog) > 0 ? QOS_SIDE_LISTENS : QOS_SIDE_ASKS;

        if (r->family == AF_UNIX) {
                struct unix_sock *us = (struct unix_sock*) sk;

                name = BPF_CORE_READ(us, addr);
                if (name)
                        r->side = QOS_SIDE_LISTENS;
                else {
                        r->side = QOS_SIDE_ASKS;
                        us = (struct unix_sock*) BPF_CORE_READ(us, peer);
                        name = us ? BPF_CORE_READ(us, addr) : NULL;
                }
                r->id = (__u64) name; /* those that were accepted have that of the listener */
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
        if (r->side == QOS_SIDE_ASKS && BPF_CORE_READ(sk, __sk_common.skc_dport) == 0)
                r->side = QOS_SIDE_LISTENS; /* a socket of UDP that is not connected */
        if (r->side == QOS_SIDE_LISTENS) {
                /* By its port alone: what it has accepted came in at one address or another */
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
                return; /* what is sent there */
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
                /* All that are in no file system are one inode */
                r->kind = QOS_RESOURCE_EPOLL;
                r->process = task->tgid;
                r->id = w->fd;
                return;
        }
        r->device = BPF_CORE_READ(inode, i_sb, s_dev);
}

/* PID namespaces are not nested deeper. */
#define PID_LEVEL_MAX 32

/* The number of a task as qosd sees it; 0: it does not. */
static __always_inline __u32 own_number(struct task_struct *task) {
        struct qos_inspect_request *inquiry;
        __u32 zero = 0, level;
        void *numbers = NULL;
        struct pid *pid;
        __u32 nr = 0;

        inquiry = bpf_map_lookup_elem(&inspect_requests, &zero);
        pid = BPF_CORE_READ(task, thread_pid);
        if (!inquiry || !pid)
                return 0;
        level = inquiry->level;
        if (level > PID_LEVEL_MAX || level > BPF_CORE_READ(pid, level))
                return 0;
        bpf_core_read(&numbers, sizeof(numbers), &pid->numbers[level].ns);
        if ((__u64) numbers != inquiry->numbers)
                return 0;
        bpf_core_read(&nr, sizeof(nr), &pid->numbers[level].nr);
        return nr;
}

/* It runs in qosd. */
static __always_inline void inquiry_note_self(struct qos_inspect_request *inquiry) {
        struct pid *pid = BPF_CORE_READ(bpf_get_current_task_btf(), thread_pid);
        void *numbers = NULL;
        __u32 level;

        if (!pid)
                return;
        level = BPF_CORE_READ(pid, level);
        if (level > PID_LEVEL_MAX)
                return;
        bpf_core_read(&numbers, sizeof(numbers), &pid->numbers[level].ns);
        inquiry->numbers = (__u64) numbers;
        inquiry->level = level;
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
        /* Family and path; an abstract one begins with 0 */
        name = (struct unix_address*) row->resource.id;
        length = BPF_CORE_READ(name, len) - 2;
        if (length < 1 || length > (int) QOS_RESOURCE_NAME_SIZE - 1)
                length = QOS_RESOURCE_NAME_SIZE - 1;
        row->name[0] = length;
        bpf_core_read(row->name + 1, QOS_RESOURCE_NAME_SIZE - 1, &name->name[0].sun_path);
}

/* A row as it is remembered: from 1, and its generation; 0: there is none. ret: it was another one's, or
 * nobody's; NULL: it was not. */
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

/* What the row of its wait is, before it is known that it waits. */
static __attribute__((noinline)) __u64 thread_find_row(struct task_struct *task, __u64 book, __u32 state,
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
        } else if (w->futex) {
                r.kind = QOS_RESOURCE_FUTEX;
                r.id = w->futex;
                r.process = w->shared ? 0 : task->tgid;
        } else if (w->file)
                file_describe(task, w, &r);
        if (r.kind == QOS_RESOURCE_NONE)
                return 0;

        c = contention_get(book);
        if (!c)
                return 0;
        found = resource_row(c, &r, &row);
        if (row) {
                row->process = own_number(task->group_leader);
                row->fd = w->fd;
                if (w->file || w->lock)
                        row_name(row, w);
        }
        return found;
}

/* In place of a descriptor, beside 0 and 1 of futexes. */
#define KNOWN_LOCK 2

/* The same, from what it waited for before if that was this. */
static __always_inline __u64 thread_get_row(struct thread *t, struct task_struct *task, __u64 book,
                                            __u32 state, const struct wait *w) {
        struct file *file = w->file;
        __u32 fd = w->lock ? KNOWN_LOCK : w->futex ? w->shared : w->fd;
        __u64 id = w->lock ?: w->futex;

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
                t->known.row = thread_find_row(task, book, state, w);
        }
        return t->known.row;
}

/* It is about to wait for a lock of the kernel, as nearly all of them so that no signal ends it. Where one
 * may, it could be that the end of an earlier wait was not seen: then it counts as what its call says, and
 * so does what comes after it. */
static __always_inline void lock_describe(struct thread *t, __u32 state, struct wait *w) {
        if (!(state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT)))
                t->lock = NULL;
        else if (t->lock_id)
                *w = (struct wait) { .lock = t->lock_id, .lock_kind = t->lock_kind };
}
