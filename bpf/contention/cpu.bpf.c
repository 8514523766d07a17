// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "cpu": in which state each thread of the units is, at any time.
 *
 *   cpu_switch        a thread leaves the CPU, for the reason that is read there and then, and another one runs
 *   cpu_wake          a thread is ready
 *   cpu_wake_new      … for the first time: it becomes known here
 *   cpu_waking        who has woken whom, in the task that does; also while the other one is on its way off the CPU
 *   cpu_lock          a thread is about to wait for a lock of the kernel's
 *   cpu_unlock        … and has it
 *   cpu_find_threads  threads that are older than the attach, and those that came from other control groups
 *   cpu_read_threads  what is known of each thread, when somebody asks
 *   cpu_read_mappings where a process has which file in its memory, to name the futexes that lie there
 *   cpu_migrate          somebody moves processes between control groups: the daemon is told to look for
 * them
 *
 * A thread that is known has storage; of all others of the machine each switch costs two looks whether there is any, and a note of whose turn it was. The three first run with
 * interrupts off and one after the other for each thread (the scheduler holds its locks), on whatever CPU. The iterator runs
 * beside them: see THREAD_SEEDED. */

#include "contention-maps.h"
#include "kernel-locks.h"
#include "wait-targets.h"
#include "syscalls.h"
#include "thread.h"
#include "cpu-occupants.h"

char LICENSE[] SEC("license") = "GPL";

/* Which the daemon knows. */
const volatile __u32 page_size = 4096;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct qos_inspect_request);
} inspect_requests SEC(".maps");

/* ---- the time ------------------------------------------------------------------------------------------------- */

/* When something happened is when the scheduler says so. A thread that wakes another which takes its CPU goes on for some
 * microseconds, until it comes to where it can be interrupted; the scheduler books them as those of the other one, and so do
 * cpu.stat and schedstat. With the clock at the time of the switch these would be off by some percent for a server that answers
 * on the same CPU that the client runs on.
 *
 * The scheduler's clock is not CLOCK_MONOTONIC: it is not adjusted. What lies between is measured every now and then, on whatever CPU.
 * The clock is some time old whenever it is looked at, therefore the smallest of some differences counts. */
struct clock {
        __u64 offset;           /* CLOCK_MONOTONIC - clock, by now */
        __u64 candidate;        /* the smallest of those that were measured since that was set */
        __u64 next;             /* clock, when it is measured again */
        __u32 samples;
        __u32 _padding;
};

/* Each millisecond, and 64 of them: that follows an adjustment by 500 ppm, the most there is, with an error of 32 us. */
#define CLOCK_SAMPLE_NSEC 1000000ULL
#define CLOCK_SAMPLES 64

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct clock);
} clocks SEC(".maps");

static __attribute__((noinline)) __u64 clock_sample(struct clock *c, __u64 clock) {
        __u64 offset;

        if (!c)
                return 0;
        offset = bpf_ktime_get_ns() - clock;
        if (c->offset == 0)
                c->offset = c->candidate = offset;
        else if (c->samples == 0 || (__s64) (offset - c->candidate) < 0)
                c->candidate = offset;
        if (++c->samples >= CLOCK_SAMPLES) {
                c->offset = c->candidate;
                c->samples = 0;
        }
        c->next = clock + CLOCK_SAMPLE_NSEC;
        return 0;
}

/* CLOCK_MONOTONIC ns, where the run queue of the task is locked. */
static __always_inline __u64 queue_now(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;
        struct clock *c;
        __u32 zero = 0;
        __u64 clock;

        c = bpf_map_lookup_elem(&clocks, &zero);
        if (!c || !bpf_core_field_exists(queue->rq))
                return bpf_ktime_get_ns();
        clock = queue->rq->clock;
        if (clock >= c->next)
                clock_sample(c, clock);
        return clock + c->offset;
}

/* A time of the scheduler's, of a task whose run queue is locked. */
static __always_inline __u64 queue_time(struct task_struct *task, __u64 clock, __u64 now) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock - clock;
        return behind < now ? now - behind : now;
}

/* … when the scheduler begins or ends to book its run time: when it chose whom to run it had the lock, and looked at the clock
 * again if it had looked for work on other CPUs. */
static __always_inline __u64 queue_switched(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 now = queue_now(task), behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock_task - task->se.exec_start;
        return behind < now ? now - behind : now;
}

/* ---- what a thread waits for ---------------------------------------------------------------------------------- */

static __always_inline __u32 inode_state(struct inode *inode) {
        switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {

        case S_IFSOCK:
                return QOS_STATE_SOCKET;

        case S_IFIFO:
                return QOS_STATE_PIPE;

        case S_IFREG:
                /* Some kernels call those so that are in no file system: eventfd, timerfd … */
                return BPF_CORE_READ(inode, i_sb, s_magic) == ANON_INODE_FS_MAGIC ? QOS_STATE_POLL : QOS_STATE_DISK;

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

/* Mutexes wait on 2 ("taken, and others wait": glibc, musl, Go, Rust), or on the owner's number with this bit. Everything else
 * is a wait for something to be done: condition variables, semaphores, idle pools. With a time limit or the like (BITSET) 2 says
 * less: condition variables of glibc count signals there, and Rust waits for all things so. Then it is a mutex if the thread has
 * woken others there itself. Condition variables of musl wait on 2 as well, on the stack of who waits: no mutex lies there, near its
 * end. */
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
static __always_inline __u32 futex_state(__u64 address, __u64 operation, __u64 value, __u64 stack, __u64 woke) {
        __u32 command = operation & FUTEX_COMMAND, v = value, owner = v & FUTEX_OWNER;

        if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2)
                return QOS_STATE_LOCK;
        if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET)
                return QOS_STATE_PARK;
        if (v & FUTEX_WAITERS && owner > 0 && owner <= OWNER_MAX)
                return QOS_STATE_LOCK;
        if (v == MUTEX_CONTENDED && address - stack >= STACK_NEAR && (command == FUTEX_WAIT || address == woke))
                return QOS_STATE_LOCK;
        return QOS_STATE_PARK;
}

struct call {
        int number;             /* negative: none */
        __u64 arguments[3];
        __u64 stack;            /* its end */
};

/* The only descriptor that poll(2) was asked for; of several, which one is waited for nobody knows. The list is in the memory of the
 * program, which is that of the task that runs. */
static __always_inline void poll_describe(struct task_struct *task, const struct call *call, struct wait *w) {
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
static __always_inline __u32 wait_state(struct task_struct *task, __u32 state, const struct thread *t, struct wait *w) {
        bool io = BPF_CORE_READ_BITFIELD(task, in_iowait);
        struct call call;
        __u32 kind = 0, s;
        bool described;
        __u64 n;

        /* With PREEMPT_RT spin locks are slept on, wherever the thread is */
        if (state & TASK_RTLOCK_WAIT)
                return QOS_STATE_LOCK;
        /* Who waits in vfork(2) for the other process to go its own way counts as frozen for the kernel, too, and cannot be interrupted */
        if (state & (__TASK_STOPPED | __TASK_TRACED) || (BPF_CORE_READ_BITFIELD(task, frozen) && !(state & TASK_UNINTERRUPTIBLE)))
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
        /* What it does is known to the kernel alone: poll(), futex(2) with a time limit, or, mostly, a sleep */
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

        /* What these wait for can be interrupted. What cannot is on the way there: memory that must be read first, or a lock of the
         * kernel's; with io_uring a file */
        if (state & TASK_UNINTERRUPTIBLE &&
            (kind == QOS_STATE_SOCKET || kind == QOS_STATE_POLL || kind == QOS_STATE_PIPE || kind == QOS_STATE_PARK || kind == QOS_STATE_SLEEP))
                return !io ? QOS_STATE_LOCK : kind == QOS_STATE_POLL ? QOS_STATE_DISK : QOS_STATE_MEMORY;
        if (kind == SYSCALL_FUTEX) {
                kind = futex_state(call.arguments[0], call.arguments[1], call.arguments[2], call.stack, t->woke);
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

        if (kind == SYSCALL_FCNTL && ((__u32) call.arguments[1] == F_SETLKW || (__u32) call.arguments[1] == F_OFD_SETLKW)) {
                (void) file_state(task, call.arguments[0], w);
                return QOS_STATE_LOCK;
        }

        if (kind == SYSCALL_FILE || kind == SYSCALL_SPLICE) {
                struct wait other = {};

                s = file_state(task, call.arguments[0], w);
                if (kind == SYSCALL_SPLICE && s == QOS_STATE_PIPE && file_state(task, call.arguments[2], &other) == QOS_STATE_SOCKET) {
                        s = QOS_STATE_SOCKET;
                        *w = other;
                }
                /* On the way there, as above */
                if (state & TASK_UNINTERRUPTIBLE && !io && (s == QOS_STATE_SOCKET || s == QOS_STATE_POLL || s == QOS_STATE_PIPE)) {
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

/* ---- what that is --------------------------------------------------------------------------------------------- */

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

static __always_inline void file_describe(struct task_struct *task, const struct wait *w, struct qos_resource *r) {
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
        } else if (r->state == QOS_STATE_DISK || r->state == QOS_STATE_LOCK || r->state == QOS_STATE_PIPE) { /* a message queue */
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
                (void) bpf_probe_read_kernel_str(row->name, sizeof(row->name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
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

/* A row as it is remembered: from 1, and its generation; 0: there is none. ret: it was another one's, or nobody's; NULL: it was not. */
static __always_inline __u64 resource_row(struct qos_contention_map *c, const struct qos_resource *r, struct qos_wait_target **ret) {
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
static __attribute__((noinline)) __u64 thread_find_row(struct task_struct *task, __u64 book, __u32 state, const struct wait *w) {
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
static __always_inline __u64 thread_get_row(struct thread *t, struct task_struct *task, __u64 book, __u32 state, const struct wait *w) {
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

/* It is about to wait for a lock of the kernel, as nearly all of them so that no signal ends it. Where one may, it could be that the end of
 * an earlier wait was not seen: then it counts as what its call says, and so does what comes after it. */
static __always_inline void lock_describe(struct thread *t, __u32 state, struct wait *w) {
        if (!(state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT)))
                t->lock = NULL;
        else if (t->lock_id)
                *w = (struct wait) { .lock = t->lock_id, .lock_kind = t->lock_kind };
}

/* ---- the quota ------------------------------------------------------------------------------------------------ */

/* A thread that is ready may not run: by itself (since 6.18), or because its run queue may not, of which the kernel takes the
 * time. That is the clock of the load average, which goes with the CPU's frequency where it is known: up to some percent of
 * what is booked as throttled. */
static __always_inline bool thread_is_throttled(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        if (bpf_core_field_exists(task->throttled)) {
                /* Not in front of a loop, where a compiler would have it: without the field nothing of this may be reached */
                barrier_var(task);
                if (BPF_CORE_READ(task, throttled))
                        return true;
        }
        return bpf_core_field_exists(queue->throttle_count) && BPF_CORE_READ(queue, throttle_count) > 0;
}

static __always_inline __u64 queue_get_quota_nsec(struct cfs_rq *queue) {
        return bpf_core_field_exists(queue->throttled_clock_pelt_time) ? BPF_CORE_READ(queue, throttled_clock_pelt_time) : 0;
}

/* ---- accounts ------------------------------------------------------------------------------------------------- */

/* As contention_cpu_mark(). The scheduler holds its locks, so that one program at a time writes. */
static __always_inline void thread_mark(struct thread *t) {
#if defined(__TARGET_ARCH_x86)
        barrier();
        *(volatile __u32*) &t->writes = t->writes + 1;
        barrier();
#else
        __sync_lock_test_and_set(&t->writes, t->writes + 1);
#endif
}

/* Attempts to exchange a thread's word: whoever was faster has done so once, for he is one of two. */
#define THREAD_TRIES 4

/* Puts a thread into a state; 0: it is in none any more. Returns the one that it was in, or 0 if it was in no book. */
static __always_inline __u32 thread_set(struct thread *t, __u32 state, __u64 now,
                struct qos_contention_cpu **ret) {
        __u64 old, word, served;
        struct qos_contention_cpu *s;

        for (int try = 0; try < THREAD_TRIES; try++) {
                old = *(volatile __u64*) &t->word;
                if (!(old & THREAD_STATE))
                        return 0;
                s = contention_cpu_get(old, bpf_get_smp_processor_id());
                if (!s) {
                        /* The book is closed */
                        __sync_val_compare_and_swap(&t->word, old, 0);
                        return 0;
                }
                word = state ? (old & THREAD_BOOK) | state : 0;
                thread_mark(t);
                if (__sync_val_compare_and_swap(&t->word, old, word) != old) {
                        thread_mark(t);
                        continue;
                }

                contention_cpu_enter(s, old, now);
                served = serving_get(old, now);
                state_transition(s, old & THREAD_STATE, state, now, served);
                old &= THREAD_STATE;
                BPF_BOUND(old, QOS_STATES);
                t->times[old] += now - t->since;
                t->since = now;
                t->served = served;
                thread_mark(t);
                *ret = s;
                return old;
        }
        return 0;
}

static __always_inline void thread_count(struct thread *t, struct qos_contention_cpu *s, __u64 counter) {
        contention_cpu_count(s, counter);
        BPF_BOUND(counter, QOS_THREAD_COUNTERS);
        t->counters[counter]++;
}

/* A run that began then was for a thread of this book, where no other program can write the shard. */
__attribute__((noinline, weak)) int thread_record_overhead(__u64 word, __u64 begin) {
        struct qos_contention_cpu *s = contention_cpu_get(word, bpf_get_smp_processor_id());

        if (s)
                s->counters[QOS_CONTENTION_CPU_COST] += overhead_nsec(begin,
                        bpf_ktime_get_ns()) * OVERHEAD_SAMPLE_PERIOD;
        return 0;
}

static __always_inline void thread_end_overhead(__u64 word, __u64 begin) {
        if (begin != 0)
                thread_record_overhead(word, begin);
}

/* A part of a time that was booked as one state was in another. served: the serving clock when it came to the state that it has left.
 * How much of what that has gone on since belongs to the part is not known but for its ends: it is the end of a wait, which comes with
 * a question rather than without. */
static __always_inline void thread_shift(struct thread *t, struct qos_contention_cpu *s, __u64 from, __u64 to, __u64 nsec, __u64 served) {
        served = t->served - served;
        if ((__s64) served < 0)
                served = 0;
        state_reclassify(s, from, to, nsec, served < nsec ? served : nsec);
        BPF_BOUND(from, QOS_STATES);
        BPF_BOUND(to, QOS_STATES);
        thread_mark(t);
        t->times[from] -= nsec;
        t->times[to] += nsec;
        thread_mark(t);
}

/* It does not wait any more. */
static __always_inline void thread_end_wait(struct thread *t, __u32 state, __u64 nsec) {
        struct qos_contention_map *c = contention_get(t->word);
        __u64 how = state;

        if ((__s64) nsec < 0) /* the clocks differ by some microseconds */
                nsec = 0;
        if (wakeup_ends(&t->wakeup, state, t->futex, t->row != 0, t->locked)) {
                how |= RESOURCE_WOKEN;
                if (!t->locked && (state == QOS_STATE_PARK || state == QOS_STATE_POLL) && t->wakeup.what & WAKEUP_HELD) {
                        how |= RESOURCE_HELD;
                        t->times[QOS_STATE_HELD] += nsec;
                }
        }
        if (c && !resource_end(c, t->row, how, nsec, &t->waker) && t->row == t->known.row)
                t->known.state = QOS_STATE_NONE; /* the row is another one's by now, or there was none: perhaps there is one the next time */
        t->row = 0;
}

/* It is ready, and waits for a CPU from now on. */
static __always_inline __u32 ready_state(struct thread *t, struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        t->queue = queue;
        t->quota_nsec = queue_get_quota_nsec(queue);
        return thread_is_throttled(task) ? QOS_STATE_THROTTLED : QOS_STATE_RUN_QUEUE;
}

/* Of the time in the state that it has left, what has passed since then was another one: the event that said so is missing. That
 * happens where a program is not run because another one is interrupted, or by a kernel that runs none on top of some tasks. */
static __always_inline void thread_correct(struct thread *t, struct qos_contention_cpu *s, __u64 from, __u64 to, __u64 since, __u64 served,
                                           __u64 at, __u64 now) {
        if (from > QOS_STATE_THROTTLED)
                thread_end_wait(t, from, ((__s64) (at - since) > 0 ? at : now) - since);
        if ((__s64) (at - since) <= 0 || (__s64) (now - at) <= 0)
                return;
        thread_shift(t, s, from, to, now - at, served);
}

/* It has waited for a CPU, and it is not known who had that. */
static __attribute__((noinline)) void thread_end_ready(struct thread *t, __u64 waited) {
        struct qos_contention_map *c = contention_get(t->word);

        if (!c)
                return;
        contention_add(c, QOS_RUN_QUEUE_LATENCY, waited);
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE, waited, &t->waker);
}

/* It leaves the CPU. */
static __always_inline __u32 thread_leave(struct thread *t, struct task_struct *task, __u32 state, __u64 now, struct qos_contention_cpu **ret) {
        __u64 since = t->since, served = t->served, at;
        __u32 old;

        old = thread_set(t, state, now, ret);
        if (old > QOS_STATE_RUNNING && bpf_core_field_exists(task->sched_info)) {
                at = queue_time(task, task->sched_info.last_arrival, now);
                /* It came to the CPU just when who looks for threads took it for one that waits for that */
                if (old <= QOS_STATE_THROTTLED && (__s64) (at - since) <= 0) {
                        if ((__s64) (now - since) > 0)
                                thread_shift(t, *ret, old, QOS_STATE_RUNNING, now - since, served);
                        return old;
                }
                thread_correct(t, *ret, old, QOS_STATE_RUNNING, since, served, at, now);
                if (old == QOS_STATE_RUN_QUEUE)
                        thread_end_ready(t, at - since);
        }
        return old;
}

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct cpu_occupants);
} turns SEC(".maps");

static __always_inline __u64 task_turn_group(struct task_struct *task) {
        if (task->pid == 0)
                return QOS_GROUP_IDLE;
        if (task->flags & PF_KTHREAD)
                return QOS_GROUP_KERNEL;
        return task->cgroups->dfl_cgrp->kn->id;
}

/* In whose turns it has waited for this CPU; other: who had the last one. The wait is one of that row. */
static __attribute__((noinline)) void thread_end_turn(struct thread *t, struct task_struct *other, __u64 waited) {
        struct qos_contention_map *c = contention_get(t->word);
        struct cpu_occupants *here;
        bool any = false;
        __u32 zero = 0;

        here = bpf_map_lookup_elem(&turns, &zero);
        if (!c || !here)
                return;
        contention_add(c, QOS_RUN_QUEUE_LATENCY, waited);
        for (__u32 back = 0; back < TURNS; back++) {
                struct qos_wait_target *row;
                __u64 group, part;

                if (!cpu_occupants_get(here, back, waited, &group, &part))
                        break;
                if (part == 0)
                        continue;
                if (t->rival.row == 0 || t->rival.group != group) {
                        struct qos_resource r = { .state = QOS_STATE_RUN_QUEUE, .kind = QOS_RESOURCE_CPU, .id = group };

                        t->rival.group = group;
                        t->rival.row = resource_row(c, &r, &row);
                        if (row && back == 0)
                                (void) bpf_core_read(row->name, sizeof(other->comm), &other->comm);
                }
                if (!resource_end(c, t->rival.row, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), part, &t->waker))
                        t->rival.row = 0; /* it is another one's by now, or there was none */
                any = true;
                waited -= part;
                if (waited == 0)
                        return;
        }
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), waited, &t->waker);
}

/* other: who had the CPU before */
static __always_inline void thread_run(struct thread *t, struct task_struct *task, struct task_struct *other, __u64 now) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 since = t->since, served = t->served, waited, quota;
        struct qos_contention_cpu *s;
        __u32 old, cpu = bpf_get_smp_processor_id() + 1;

        old = thread_set(t, QOS_STATE_RUNNING, now, &s);
        if (!old)
                return;
        if (t->cpu != cpu) {
                if (t->cpu != 0)
                        thread_count(t, s, QOS_CONTENTION_CPU_MIGRATIONS);
                t->cpu = cpu;
        }
        if (old > QOS_STATE_THROTTLED && bpf_core_field_exists(task->sched_info) && task->sched_info.last_queued != 0) {
                __u64 at = queue_time(task, task->sched_info.last_queued, now);

                thread_correct(t, s, old, QOS_STATE_RUN_QUEUE, since, served, at, now);
                since = at;
        } else if (old != QOS_STATE_RUN_QUEUE && (old != QOS_STATE_THROTTLED || bpf_core_field_exists(task->throttled)))
                return;

        /* It was throttled for a part of the time */
        waited = now > since ? now - since : 0; /* the difference of the clocks has been corrected */
        if (old == QOS_STATE_THROTTLED) {
                /* … and had to wait for its turn after that */
                if (t->queue != queue || !bpf_core_field_exists(queue->throttled_clock_pelt_time))
                        return;
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota >= waited)
                        return;
                waited -= quota;
                thread_shift(t, s, QOS_STATE_THROTTLED, QOS_STATE_RUN_QUEUE, waited, served);
        } else
        if (t->queue == queue) {
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota > waited)
                        quota = waited;
                if (quota > 0) {
                        thread_shift(t, s, QOS_STATE_RUN_QUEUE, QOS_STATE_THROTTLED, quota, served);
                        waited -= quota;
                }
        }

        /* Or it was on the way here from another CPU, or came from nowhere */
        if (t->queue == queue && old <= QOS_STATE_THROTTLED)
                thread_end_turn(t, other, waited);
        else
                thread_end_ready(t, waited);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(cpu_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state) {
        struct cpu_occupants *here;
        struct qos_contention_cpu *s;
        struct thread *t;
        __u64 now, word, begin;
        __u32 zero = 0;

        /* Nobody books the time in which a CPU has nothing to do */
        now = prev->pid == 0 ? queue_now(prev) : queue_switched(prev);
        here = bpf_map_lookup_elem(&turns, &zero);
        if (here)
                cpu_occupants_push(here, task_turn_group(prev), now);

        t = thread_of(prev);
        word = t ? *(volatile __u64*) &t->word : 0;
        if (t && word & THREAD_STATE) {
                begin = overhead_begin_sample(t);
                pending_responses_turn(prev, t, false);
                if (state & TASK_DEAD)
                        thread_leave(t, prev, QOS_STATE_NONE, now, &s);
                else if (preempt || state == 0) {
                        if (thread_leave(t, prev, ready_state(t, prev), now, &s))
                                thread_count(t, s, QOS_CONTENTION_CPU_INVOLUNTARY);
                } else {
                        struct wait w = {};
                        __u32 reason = wait_state(prev, state, t, &w);
                        __u64 row;

                        if (t->lock)
                                lock_describe(t, state, &w);
                        row = thread_get_row(t, prev, t->word, reason, &w);
                        if (reason != QOS_STATE_OTHER)
                                t->waited = reason;
                        /* Where its being woken was missed this ends a wait, which has the row before */
                        if (thread_leave(t, prev, reason, now, &s)) {
                                thread_count(t, s, QOS_CONTENTION_CPU_WAITS + reason);
                                t->futex = w.futex;
                                t->locked = w.lock != 0;
                                t->row = row;
                        }
                }
                thread_end_overhead(word, begin);
        }

        t = thread_of(next);
        word = t ? *(volatile __u64*) &t->word : 0;
        if (t && word & THREAD_STATE) {
                begin = overhead_begin_sample(t);
                thread_run(t, next, prev, queue_switched(next));
                t->wakeup.what = 0; /* that was of the wait that is over */
                pending_responses_turn(next, t, true);
                thread_end_overhead(word, begin);
        }
        return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(cpu_wake, struct task_struct *task) {
        struct thread *t;
        struct qos_contention_cpu *s;
        __u64 word, begin, since, now;
        __u32 state;

        t = thread_of(task);
        if (!t)
                return 0;
        /* It was about to wait and has not left the CPU yet, or has been made to leave it before it could */
        word = *(volatile __u64*) &t->word;
        state = word & THREAD_STATE;
        if (state <= QOS_STATE_THROTTLED)
                return 0;

        begin = overhead_begin_sample(t);
        since = t->since;
        now = queue_now(task);
        state = thread_set(t, ready_state(t, task), now, &s);
        if (state) {
                thread_count(t, s, QOS_CONTENTION_CPU_WAKE_UPS);
                if (state > QOS_STATE_THROTTLED)
                        thread_end_wait(t, state, now - since);
        }
        thread_end_overhead(word, begin);
        return 0;
}

/* One element: 1 while the daemon has been told and has not looked. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, __u32);
} moved SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);      /* the least that there is, of which one record is used */
} moves SEC(".maps");

/* The daemon has to look for threads. */
static __always_inline void moves_tell(void) {
        __u32 zero = 0, one = 1, *pending;

        pending = bpf_map_lookup_elem(&moved, &zero);
        if (pending && __sync_lock_test_and_set(pending, 1) == 0 && bpf_ringbuf_output(&moves, &one, sizeof(one), 0) < 0)
                *pending = 0; /* the next one tells */
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(cpu_wake_new, struct task_struct *task) {
        struct qos_contention_cpu *s;
        struct thread *t;
        __u64 book, now;

        book = batch_record(task->cgroups->dfl_cgrp);
        if (!book)
                return 0;
        t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        s = contention_cpu_get(book, bpf_get_smp_processor_id());
        if (!t || !s) {
                statistics_count(QOS_STATISTIC_THREADS_LOST);
                moves_tell();
                return 0;
        }
        now = queue_now(task);
        t->since = now;
        t->served = serving_get(book, now);
        t->queue = NULL;
        t->turn = overhead_first_sample(task->pid);
        if (__sync_val_compare_and_swap(&t->word, 0, book | QOS_STATE_RUN_QUEUE) == 0) {
                contention_cpu_enter(s, book, now);
                state_transition(s, QOS_STATE_NONE, QOS_STATE_RUN_QUEUE, now, t->served);
        } else /* the iterator has found it already */
                thread_set(t, ready_state(t, task), now, &s);
        return 0;
}

static __always_inline void thread_set_waker(struct thread *t, struct task_struct *waker) {
        if (t->waker.thread == (__u32) waker->pid)
                return;
        t->waker.tid = own_number(waker);
        t->waker.group = waker->cgroups->dfl_cgrp->kn->id;
        (void) bpf_core_read(t->waker.name, sizeof(t->waker.name), &waker->comm);
        t->waker.thread = waker->pid;
}

/* Keeps what is known of the waker until the wait is over, see wakeup.h. The kernel lets one task at a time wake a thread, from here until
 * it is ready. */
static __always_inline void thread_note_waker(struct thread *t, struct task_struct *task, struct task_struct *waker) {
        __u64 word = *(volatile __u64*) &t->word, state = word & THREAD_STATE;
        __u32 what = 0;
        struct call call;

        t->wakeup.what = 0;
        if (state == QOS_STATE_NONE)
                return;
        /* The switch by which it leaves is not over, and what it waits for is not known. The state may be of a wait before, whose end was missed */
        if (task->on_cpu)
                state = QOS_STATE_RUNNING;
        if (wakeup_expected(state) && !(waker->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))) {
                call_read(waker, &call);
                what = wakeup_expected(state) & wakeup_call(call.number);
                t->wakeup.futex = waker->tgid == task->tgid ? call.arguments[0] : 0;
        }
        if (!what && !t->lock)
                return;
        thread_set_waker(t, waker);
        if (what && (state == QOS_STATE_RUNNING || state == QOS_STATE_PARK || state == QOS_STATE_POLL) && task_serves(waker, word & THREAD_BOOK))
                what |= WAKEUP_HELD;
        t->wakeup.what = what | WAKEUP_TASK;
}

/* Runs in the task that wakes another, or in an interrupt on top of it: that it is in futex(2) then is chance. */
SEC("tp_btf/sched_waking")
int BPF_PROG(cpu_waking, struct task_struct *task) {
        struct task_struct *waker = bpf_get_current_task_btf();
        struct qos_contention_cpu *s;
        struct call call;
        struct thread *t;
        __u64 begin;

        t = thread_of(task);
        if (t) {
                begin = overhead_begin_sample(t);
                thread_note_waker(t, task, waker);
                thread_end_overhead(*(volatile __u64*) &t->word, begin);
        }

        t = thread_of(waker);
        if (!t)
                return 0;
        call_read(waker, &call);
        if (call.number != __NR_futex || (*(volatile __u64*) &t->word & THREAD_STATE) != QOS_STATE_RUNNING)
                return 0;
        t->woke = call.arguments[0];
        s = contention_cpu_get(t->word, bpf_get_smp_processor_id());
        if (s)
                thread_count(t, s, QOS_CONTENTION_CPU_FUTEX_WAKES);
        return 0;
}

/* ---- locks of the kernel --------------------------------------------------------------------------------------- */

/* Flags of the trace: who waits for such a lock runs, and is in no state of waiting. */
#define LCB_F_SPIN 1U

/* Frames between the program and who has called for the lock, and some more: each is one function. */
#define LOCK_FRAMES 16

#define LOCK_NAME_SIZE 64

struct lock_scratch {
        __u64 frames[LOCK_FRAMES];
        char name[LOCK_NAME_SIZE];
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct lock_scratch);
} lock_scratch SEC(".maps");

/* Places in the kernel, and 1: in a function of locks (lock_function()). A name takes the kernel a microsecond to find, and there are some
 * hundred places; of what finds no room here it is found again. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 1024);
        __type(key, __u64);
        __type(value, __u32);
} lock_places SEC(".maps");

/* A lock of which there is one has a name of its own; of the others it says more where they are taken, as there is one in each inode, each
 * socket, each address space. */
__attribute__((noinline, weak)) int lock_has_name(struct lock_scratch *s, __u64 lock) {
        if (!s)
                return 0;
        return BPF_SNPRINTF(s->name, sizeof(s->name), "%ps", (void*) lock) > 0 && s->name[0] != '0';
}

__attribute__((noinline, weak)) int lock_is_place(struct lock_scratch *s, __u64 place) {
        __u32 *known, function;

        if (!s)
                return 0;
        known = bpf_map_lookup_elem(&lock_places, &place);
        if (known)
                return !*known;
        if (BPF_SNPRINTF(s->name, sizeof(s->name), "%ps", (void*) place) < 0)
                return 0;
        function = lock_function((const struct lock_name*) s->name);
        (void) bpf_map_update_elem(&lock_places, &place, &function, BPF_ANY);
        return !function;
}

/* In the task that waits, before it does. */
SEC("tp_btf/contention_begin")
int BPF_PROG(cpu_lock, void *lock, unsigned int flags) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct lock_scratch *s;
        struct thread *t;
        struct call call;
        __u32 zero = 0;
        long n;

        if (flags & LCB_F_SPIN)
                return 0;
        t = thread_of(task);
        if (!t || !(*(volatile __u64*) &t->word & THREAD_STATE) || t->lock == lock)
                return 0;
        t->lock = lock;
        /* Mostly it waits for what it has waited for before, in the same call: a look at the stack takes some microseconds */
        call_read(task, &call);
        if (t->lock_known == lock && t->lock_call == call.number && t->lock_id)
                return 0;
        t->lock_known = lock;
        t->lock_call = call.number;
        t->lock_id = 0;
        s = bpf_map_lookup_elem(&lock_scratch, &zero);
        if (!s)
                return 0;
        if (lock_has_name(s, (__u64) lock)) {
                t->lock_kind = QOS_RESOURCE_KERNEL_LOCK;
                t->lock_id = (__u64) lock;
                return 0;
        }
        n = bpf_get_stack(ctx, s->frames, sizeof(s->frames), 0);
        for (int i = 0; i < LOCK_FRAMES; i++) {
                if (n < (long) ((i + 1) * sizeof(s->frames[0])))
                        break;
                if (!lock_is_place(s, s->frames[i]))
                        continue;
                t->lock_kind = QOS_RESOURCE_KERNEL_CALL;
                t->lock_id = s->frames[i];
                break;
        }
        return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(cpu_unlock, void *lock, int result) {
        struct thread *t = thread_of(bpf_get_current_task_btf());

        if (t && t->lock == lock)
                t->lock = NULL;
        return 0;
}

/* Known threads that go elsewhere, and others that come to a unit: which they are (all of a process, perhaps) the iterator finds. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(cpu_migrate, struct cgroup *to, const char *path, struct task_struct *task, bool all) {
        if (thread_of(task) || batch_record(to))
                moves_tell();
        return 0;
}

/* ---- threads that are there already --------------------------------------------------------------------------- */

/* A task of which no event is known. What is read here may be a moment old: the daemon lets the iterator run twice, so that
 * those of which nothing has been heard since are looked at again. */
static __always_inline __u32 task_state(struct task_struct *task, const struct thread *t, struct wait *w) {
        __u32 state = task->__state;

        if (task->on_cpu)
                return QOS_STATE_RUNNING;
        if (task->on_rq && !(bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed))
                return thread_is_throttled(task) ? QOS_STATE_THROTTLED : QOS_STATE_RUN_QUEUE;
        return wait_state(task, state, t, w);
}

/* When it came to the CPU on which it is, between two times; the latter if that is not known. */
static __always_inline __u64 arrival_time(struct task_struct *task, __u64 first, __u64 last) {
        struct clock *c;
        __u32 zero = 0;
        __u64 at;

        c = bpf_map_lookup_elem(&clocks, &zero);
        if (!c || c->offset == 0 || !bpf_core_field_exists(task->sched_info))
                return last;
        at = task->sched_info.last_arrival + c->offset;
        return (__s64) (at - first) < 0 ? first : (__s64) (last - at) < 0 ? last : at;
}

/* In the book of the word, on no CPU. */
BPF_SUBPROG int thread_move(__u64 word, __u64 from, __u64 to, __u64 now) {
        struct qos_contention_cpu *s = contention_cpu_get(word, cpus);

        if (!s)
                return 0;
        contention_cpu_enter(s, word, now);
        state_transition(s, from, to, now, serving_get(word, now));
        return 0;
}

SEC("iter/task")
int cpu_find_threads(struct bpf_iter__task *ctx) {
        struct task_struct *task = ctx->task;
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        __u64 book, old = 0, word, now;
        struct qos_inspect_request *inquiry;
        struct thread *t;
        __u32 zero = 0;
        bool done = false;

        if (!task) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        inquiry = bpf_map_lookup_elem(&inspect_requests, &zero);
        if (inquiry && ctx->meta->seq_num == 0)
                inquiry_note_self(inquiry);
        if (task->exit_state)
                return 0;

        book = batch_record(task->cgroups->dfl_cgrp);
        t = bpf_task_storage_get(&threads, task, 0, book ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
        if (!t) {
                if (book)
                        statistics_count(QOS_STATISTIC_THREADS_LOST);
                return 0;
        }

        for (int try = 0; try < THREAD_TRIES && !done; try++) {
                struct wait w = {};
                __u32 state = book ? task_state(task, t, &w) : QOS_STATE_NONE;

                old = *(volatile __u64*) &t->word;
                word = book ? book | THREAD_SEEDED | state : 0;
                if (old & THREAD_STATE && (old & THREAD_BOOK) == book && (!(old & THREAD_SEEDED) || old == word))
                        return 0; /* known, or as it was */
                if (old == 0 && word == 0)
                        return 0;

                now = bpf_ktime_get_ns();
                if (old != 0 && (old & THREAD_BOOK) != book) {
                        /* It leaves the other book first: what it has done there does not go with it */
                        if (__sync_val_compare_and_swap(&t->word, old, 0) != old)
                                continue;
                        thread_move(old, old & THREAD_STATE, QOS_STATE_NONE, now);
                        if (word == 0)
                                return 0;
                        old = 0;
                }
                if (old == 0) {
                        /* From the exchange on others look at these */
                        t->since = now;
                        t->served = serving_get(book, now);
                        t->queue = NULL;
                        t->waker.thread = t->wakeup.what = 0;
                        t->futex = w.futex;
                        t->lock = NULL;
                        t->locked = 0;
                        t->known = (struct known) {};
                        t->rival = (struct rival) {};
                        t->turn = overhead_first_sample(task->pid);
                        t->row = state > QOS_STATE_THROTTLED ? thread_get_row(t, task, word, state, &w) : 0;
                        for (int i = 0; i < QOS_STATES; i++)
                                t->times[i] = 0;
                        for (int i = 0; i < QOS_THREAD_COUNTERS; i++)
                                t->counters[i] = 0;
                }
                done = __sync_val_compare_and_swap(&t->word, old, word) == old;
        }
        if (!done)
                return 0; /* it does one thing after the other: it is known by that, if the book is the same */

        if (old != 0) {
                __u64 state = old & THREAD_STATE;

                BPF_BOUND(state, QOS_STATES);
                /* It has come to the CPU since it was found, which nobody saw as it was not known yet */
                if ((word & THREAD_STATE) == QOS_STATE_RUNNING && (state == QOS_STATE_RUN_QUEUE || state == QOS_STATE_THROTTLED)) {
                        now = arrival_time(task, t->since, now);
                        if (now > t->since)
                                thread_end_ready(t, now - t->since);
                }
                t->times[state] += now - t->since;
                t->since = now;
                t->served = serving_get(old, now);
                t->queue = NULL;
                t->row = 0;
                thread_move(old, old & THREAD_STATE, QOS_STATE_NONE, now);
        }
        thread_move(word, QOS_STATE_NONE, word & THREAD_STATE, now);
        /* It may have ended meanwhile, with its last switch before the exchange */
        if (*(volatile unsigned int*) &task->exit_state && __sync_val_compare_and_swap(&t->word, word, 0) == word)
                thread_move(word, word & THREAD_STATE, QOS_STATE_NONE, now);
        return 0;
}


/* ---- what is known of them ------------------------------------------------------------------------------------ */

/* Attempts to read a thread while nothing happens to it: it takes some hundred nanoseconds. */
#define THREAD_READS 8

SEC("iter/task")
int cpu_read_threads(struct bpf_iter__task *ctx) {
        struct task_struct *task = ctx->task;
        struct qos_thread out = {};
        struct qos_inspect_request *inquiry;
        __u64 word = 0, since = 0;
        __u32 slot, before, zero = 0;
        bool whole = false;
        struct thread *t;

        if (!task || task->exit_state)
                return 0;
        inquiry = bpf_map_lookup_elem(&inspect_requests, &zero);
        t = thread_of(task);
        if (!inquiry || !t)
                return 0;
        slot = (*(volatile __u64*) &t->word & THREAD_SLOT) >> THREAD_SLOT_SHIFT;
        if (!(inquiry->slots[slot / 64 % (QOS_SLOTS / 64)] & 1ULL << slot % 64))
                return 0;

        for (int try = 0; try < THREAD_READS && !whole; try++) {
                before = *(volatile __u32*) &t->writes;
                word = *(volatile __u64*) &t->word;
                since = *(volatile __u64*) &t->since;
                out.row = *(volatile __u64*) &t->row;
                out.generation = *(volatile __u64*) &t->row >> 32;
                (void) bpf_probe_read_kernel(out.times, sizeof(out.times), t->times);
                (void) bpf_probe_read_kernel(out.counters, sizeof(out.counters), t->counters);
                out.nsec = bpf_ktime_get_ns() - since;
                whole = before % 2 == 0 && *(volatile __u32*) &t->writes == before;
        }
        out.state = word & THREAD_STATE;
        if (!whole || out.state == QOS_STATE_NONE || out.state >= QOS_STATES)
                return 0;

        out.book = word & THREAD_BOOK;
        if ((__s64) out.nsec < 0) /* the clocks differ by some microseconds */
                out.nsec = 0;
        {
                __u64 state = out.state;

                BPF_BOUND(state, QOS_STATES);
                out.times[state] += out.nsec;
        }
        out.tid = own_number(task);
        out.pid = own_number(task->group_leader);
        bpf_core_read(out.name, sizeof(out.name), &task->comm);
        bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
        return 0;
}

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct qos_mapping);
} mapping_scratch SEC(".maps");

/* Of each file where it begins, and what there is at the address that is looked for: run over one process. */
SEC("iter/task_vma")
int cpu_read_mappings(struct bpf_iter__task_vma *ctx) {
        struct vm_area_struct *vma = ctx->vma;
        struct qos_inspect_request *inquiry;
        struct qos_mapping *m;
        struct file *file;
        __u32 zero = 0;

        inquiry = bpf_map_lookup_elem(&inspect_requests, &zero);
        m = bpf_map_lookup_elem(&mapping_scratch, &zero);
        if (!ctx->task || !vma || !inquiry || !m)
                return 0;
        file = vma->vm_file;
        if (!file || vma->vm_start > inquiry->address || (vma->vm_pgoff != 0 && inquiry->address >= vma->vm_end))
                return 0;

        m->start = vma->vm_start;
        m->end = vma->vm_end;
        m->offset = vma->vm_pgoff * page_size;
        m->inode = file->f_inode->i_ino;
        if (bpf_d_path(&file->f_path, m->path, sizeof(m->path)) < 0)
                m->path[0] = 0;
        bpf_seq_write(ctx->meta->seq, m, sizeof(*m));
        return 0;
}
