/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Locks around accept(2): threads of servers that take turns in accepting connections wait for a lock, whose
 * holder waits for connections. All of them are idle, not blocked. The kernel knows the holder for flock(2),
 * fcntl(2), System V semaphores in sets of one, and mutexes that store the TID of their owner, as those of
 * glibc. */

#include "syscalls.h"
#include "thread-state.h"
#include "wait-reason.h"

struct task_struct* bpf_task_from_pid(int pid) __ksym;
void bpf_task_release(struct task_struct *task) __ksym;

/* Mask of an index in a node of an xarray (XA_CHUNK_SHIFT), and number of levels for 2^24 entries */
#define TREE_MASK 63
#define TREE_LEVELS 4

/* Entry i of a tree; NULL: none. */
static __always_inline void* tree_find(const struct idr *idr, __u32 i) {
        __u64 entry = (__u64) BPF_CORE_READ(idr, idr_rt.xa_head);

        for (int level = 0; level < TREE_LEVELS; level++) {
                struct xa_node *node = (struct xa_node*) (entry - 2);
                __u32 place;

                if ((entry & 3) != 2) /* not an inner node */
                        break;
                place = i >> (BPF_CORE_READ(node, shift) & 31);
                if (level == 0 && place > TREE_MASK)
                        return NULL;
                entry = 0;
                (void) bpf_core_read(&entry, sizeof(entry), &node->slots[place & TREE_MASK]);
        }
        return entry & 3 ? NULL : (void*) entry;
}

/* PID in the initial namespace. */
static __always_inline __u32 pid_number(const struct pid *pid) {
        __u32 nr = 0;

        if (pid)
                (void) bpf_core_read(&nr, sizeof(nr), &pid->numbers[0].nr);
        return nr;
}

/* Holder of the only lock of a file; 0: no lock, or several. */
static __always_inline __u32 file_lock_holder(const struct file *file, bool posix) {
        struct file_lock_context *context = BPF_CORE_READ(file, f_inode, i_flctx);
        struct list_head *list, *first;

        if (!context)
                return 0;
        list = posix ? &context->flc_posix : &context->flc_flock;
        first = BPF_CORE_READ(list, next);
        if (!first || first == list || BPF_CORE_READ(first, next) != list)
                return 0;
        return BPF_CORE_READ((struct file_lock_core*) ((void*) first - bpf_core_field_offset(
                                     struct file_lock_core, flc_list)), flc_pid);
}

/* IPCMNI_SHIFT */
#define IPC_INDEX_MASK 0x7fff

static __always_inline __u32 semaphore_holder(struct task_struct *task, __u64 id) {
        struct ipc_namespace *ns;
        struct sem_array *set;
        struct pid *pid = NULL;

        if (!bpf_core_type_exists(struct sem_array))
                return 0;
        ns = BPF_CORE_READ(task, nsproxy, ipc_ns);
        if (!ns)
                return 0;
        set = tree_find(&ns->ids[0].ipcs_idr, id & IPC_INDEX_MASK);
        if (!set || BPF_CORE_READ(set, sem_nsems) != 1)
                return 0;
        (void) bpf_core_read(&pid, sizeof(pid), &set->sems[0].sempid);
        return pid_number(pid);
}

/* pthread_mutex_t of glibc on 64 bit machines; kind: PTHREAD_MUTEX_*_NP, with flags. */
struct glibc_mutex {
        __u32 lock, count, owner, users, kind;
};
#define GLIBC_MUTEX_KINDS (3 | 0x80 | 0x100 | 0x200)
/* Value that musl stores instead of an owner in mutexes that do not record it: EBUSY */
#define MUSL_NO_OWNER 16

/* TID of the owner of a futex in the namespace of the task; 0: unknown. current: the task is the current
 * one, and its memory accessible. */
static __always_inline __u32 futex_owner(const struct call *call, bool current) {
        __u32 v = call->arguments[2];
        struct glibc_mutex m = {};

        if (v & FUTEX_WAITERS)
                return (v & FUTEX_OWNER) == MUSL_NO_OWNER ? 0 : v & FUTEX_OWNER;
        if (!current || bpf_probe_read_user(&m, sizeof(m), (const void*) call->arguments[0]) < 0 ||
            m.lock != MUTEX_CONTENDED || m.users == 0 || m.kind & ~GLIBC_MUTEX_KINDS)
                return 0;
        return m.owner;
}

/* Owner of the mutex with priority inheritance that a task waits for or, between its release and the moment
 * when the first waiter runs, that waiter. */
static __always_inline __u32 rt_mutex_holder(struct task_struct *task) {
        struct rt_mutex_base *mutex = BPF_CORE_READ(task, pi_blocked_on, lock);
        struct task_struct *owner;
        struct rb_node *first;

        if (!mutex)
                return 0;
        owner = (struct task_struct*) ((__u64) BPF_CORE_READ(mutex, owner) & ~1ULL);
        first = BPF_CORE_READ(mutex, waiters.rb_leftmost);
        if (!owner && first)
                owner = BPF_CORE_READ((struct rt_mutex_waiter*) ((void*) first - bpf_core_field_offset(
                                              struct rt_mutex_waiter, tree.entry)), task);
        return owner && owner != task ? BPF_CORE_READ(owner, pid) : 0;
}

static __always_inline __u32 futex_holder(struct task_struct *task, const struct call *call, bool current) {
        __u32 command = call->arguments[1] & FUTEX_COMMAND, tid, level;
        struct pid *pid = BPF_CORE_READ(task, thread_pid);
        struct pid_namespace *ns = NULL;

        if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2)
                return bpf_core_field_exists(task->pi_blocked_on) ? rt_mutex_holder(task) : 0;

        tid = futex_owner(call, current);
        if (tid == 0 || !pid)
                return 0;
        level = BPF_CORE_READ(pid, level);
        if (level > PID_LEVEL_MAX)
                return 0;
        (void) bpf_core_read(&ns, sizeof(ns), &pid->numbers[level].ns);
        return ns ? pid_number(tree_find(&ns->idr, tid)) : 0;
}

static __always_inline bool file_is_listening(const struct file *file) {
        struct socket *socket;

        if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
                return false;
        socket = BPF_CORE_READ(file, private_data);
        return BPF_CORE_READ(socket, sk, __sk_common.skc_state) == TCP_LISTEN;
}

/* Number of files of an epoll set that are examined: servers that take turns in accepting have few besides
 * the listeners. */
#define EPOLL_FILES 7

/* Whether a listener is among the first three levels of the tree of an epoll set. */
static __always_inline bool epoll_is_listening(const struct file *file) {
        struct rb_node *nodes[EPOLL_FILES] = {};
        struct eventpoll *set;

        if (!file)
                return false;
        set = BPF_CORE_READ(file, private_data);
        nodes[0] = BPF_CORE_READ(set, rbr.rb_root.rb_node);
        for (int i = 0; i < EPOLL_FILES; i++) {
                struct epitem *item = (struct epitem*) ((void*) nodes[i] -
                                                        bpf_core_field_offset(struct epitem, rbn));

                if (!nodes[i])
                        continue;
                if (file_is_listening(BPF_CORE_READ(item, ffd.file)))
                        return true;
                if (2 * i + 2 < EPOLL_FILES) {
                        nodes[2 * i + 1] = BPF_CORE_READ(nodes[i], rb_left);
                        nodes[2 * i + 2] = BPF_CORE_READ(nodes[i], rb_right);
                }
        }
        return false;
}

/* Returns 1 if the thread sleeps until a connection arrives. For a known thread that holds as soon as its
 * state says so, while it is still on its CPU. */
BPF_SUBPROG int task_accepts(__u32 pid) {
        struct task_struct *task = bpf_task_from_pid(pid);
        const struct thread *t;
        __u32 state = QOS_STATE_NONE;
        struct call call;
        int r = 0;

        if (!task)
                return 0;
        call_read(task, &call);
        t = bpf_task_storage_get(&threads, task, 0, 0);
        if (t)
                state = *(const volatile __u64*) &t->word & THREAD_STATE;
        if (state != QOS_STATE_NONE ? state == QOS_STATE_SOCKET || state == QOS_STATE_POLL :
            !task->on_cpu && task->__state & TASK_INTERRUPTIBLE)
                switch (call.number) {

                case __NR_accept:
                case __NR_accept4:
                        r = 1;
                        break;

#ifdef __NR_epoll_wait
                case __NR_epoll_wait:
#endif
                case __NR_epoll_pwait:
#ifdef __NR_epoll_pwait2
                case __NR_epoll_pwait2:
#endif
                        r = epoll_is_listening(file_get(task, call.arguments[0]));
                        break;
                }
        bpf_task_release(task);
        return r;
}

/* PID of the thread or process that holds the lock which a thread waits for; 0: unknown. current: it is the
 * current task, which is about to wait. */
BPF_SUBPROG int task_get_lock_holder(__u32 pid, __u32 current) {
        struct task_struct *task = bpf_task_from_pid(pid);
        __u32 holder = 0, kind = 0;
        struct call call;
        __u64 n;

        if (!task)
                return 0;
        call_read(task, &call);
        n = call.number;
        if (n < SYSCALLS_MAX) {
                BPF_BOUND(n, SYSCALLS_MAX);
                kind = syscall_table[n];
        }
        if (kind == SYSCALL_FUTEX)
                holder = futex_holder(task, &call, current);
        else if (n == __NR_semop || n == __NR_semtimedop)
                holder = semaphore_holder(task, call.arguments[0]);
        else if (n == __NR_flock || n == __NR_fcntl) {
                struct file *file = file_get(task, call.arguments[0]);

                if (file)
                        holder = file_lock_holder(file, n == __NR_fcntl);
        }
        bpf_task_release(task);
        return holder;
}

/* Holder of the lock that a thread waits for; 0: unknown, or the thread is processing a request, and thus is
 * not idle whatever the holder does. */
static __always_inline __u32 idle_get_lock_holder(struct task_struct *task, __u64 map_id, __u32 state,
                                                  bool current) {
        const struct service *s;

        if (state != QOS_STATE_LOCK || task->__state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT))
                return 0;
        s = bpf_task_storage_get(&services, task, 0, 0);
        if (s && s->open && s->map_id == map_id)
                return 0;
        return task_get_lock_holder(task->pid, current);
}

/* A holder may still be on its way to accept(2). Therefore threads that wait for its lock add themselves to
 * its list of waiters, and its next wait in accept(2) decides. Both sides change their own state before they
 * read that of the other. If a connection is there already, the holder does not wait in accept(2), and
 * releases the lock to one of its waiters: the others remain in its list until it waits for the lock again,
 * and are corrected together with it. */

#define FUTEX_ANY (~0ULL)

/* Corrects the state of a thread that waits for its turn to accept connections, which another thread is
 * doing, unless the wait is another one by now: for a lock that the holder did not have when the wait began,
 * or for another futex (0: not for a futex). Returns the PID of the thread that was added to the list of the
 * holder before it. */
BPF_SUBPROG int task_park(__u32 pid, __u32 holder, __u64 futex) {
        struct task_struct *task = bpf_task_from_pid(pid);
        struct qos_contention_cpu *s;
        struct wait w = {};
        struct thread *t;
        __u64 word, now;
        int next = 0;

        if (!task)
                return 0;
        t = bpf_task_storage_get(&threads, task, 0, 0);
        if (t) {
                next = t->waiter_next;
                word = *(volatile __u64*) &t->word;
                now = bpf_ktime_get_ns();
                if ((__s64) (now - t->since) < 0) /* scheduler clocks differ by microseconds */
                        now = t->since;
                s = contention_cpu_get(word, bpf_get_smp_processor_id());
                if (s && (word & THREAD_STATE) == QOS_STATE_LOCK && t->holder == holder &&
                    (futex == FUTEX_ANY || t->futex == futex) &&
                    thread_exchange(t, s, word, QOS_STATE_PARK, now)) {
                        t->waited = QOS_STATE_PARK;
                        w.futex = t->futex;
                        w.shared = w.fd = t->known.fd;
                        w.file = (struct file*) t->known.file;
                        if (t->row != 0)
                                t->row = thread_get_row(t, task, word & THREAD_MAP_ID, QOS_STATE_PARK, &w);
                }
        }
        bpf_task_release(task);
        return next;
}

/* Adds the current task to the waiters of a holder. */
BPF_SUBPROG int holder_note(__u32 holder) {
        struct task_struct *task = bpf_task_from_pid(holder), *current = bpf_get_current_task_btf();
        struct thread *t, *mine;
        __u32 first;

        if (!task)
                return 0;
        t = bpf_task_storage_get(&threads, task, 0, 0);
        mine = thread_of(current);
        if (t && mine) {
                first = __sync_lock_test_and_set(&t->waiter, current->pid);
                if (first != current->pid)
                        mine->waiter_next = first;
        }
        bpf_task_release(task);
        return 0;
}

/* Maximum number of waiters that are corrected at once. Others are corrected in their next wait. */
#define WAITERS_MAX 16

/* Corrects the states of the waiters of the current task, which waits in accept(2), or for the same lock as
 * they do while its holder waits in accept(2). */
static __always_inline void waiters_park(struct thread *t, __u32 pid, __u64 futex) {
        __u32 waiter = __sync_lock_test_and_set(&t->waiter, 0);

        for (int i = 0; i < WAITERS_MAX && waiter != 0; i++)
                waiter = task_park(waiter, pid, futex);
}

/* The current task is about to wait for a lock, or has waiters. state: its task state. Its recorded state
 * has already changed. */
BPF_SUBPROG int lock_begin_wait(__u32 state) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct thread *t = thread_of(task);
        __u32 holder;
        __u64 word;

        if (!t)
                return 0;
        word = *(volatile __u64*) &t->word;
        if ((word & THREAD_STATE) != QOS_STATE_LOCK) {
                if (t->waiter != 0 && task_accepts(task->pid))
                        waiters_park(t, task->pid, FUTEX_ANY);
                return 0;
        }

        t->holder = 0;
        holder = idle_get_lock_holder(task, word & THREAD_MAP_ID, word & THREAD_STATE, true);
        if (holder == 0)
                return 0;
        t->holder = holder;
        if (!task_accepts(holder)) {
                (void) holder_note(holder);
                if (!task_accepts(holder))
                        return 0;
        }
        (void) task_park(task->pid, holder, FUTEX_ANY);
        if (t->waiter != 0)
                waiters_park(t, task->pid, t->futex);
        return 0;
}
