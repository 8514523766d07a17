/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What a thread waits for, by system call. Numbers are those of the target architecture (asm/unistd.h);
 * system calls that it lacks are omitted. For system calls that are not listed, the state is disk if the
 * kernel accounts I/O wait, lock if the wait is uninterruptible, and QOS_STATE_OTHER otherwise.
 *
 * Documented in docs/METRICS.md. */

#include <asm/unistd.h>

#include "contention-map.h"

/* Values above the states: arguments to be inspected */
#define SYSCALL_FILE 64         /* type of the file descriptor in the first argument */
#define SYSCALL_SPLICE 65       /* those in the first and third */
#define SYSCALL_FUTEX 66        /* operation and expected value */
#define SYSCALL_FCNTL 67        /* whether the command takes a lock */
#define SYSCALL_POLL 68         /* the array of descriptors, if it has a single one */

/* System calls that send a signal, and thus end waits of other threads */
#define SYSCALL_SIGNAL 69

/* Flag: the first argument is a descriptor of the wait target. */
#define SYSCALL_DESCRIPTOR 0x80

/* Above the last number of any architecture (about 470 by now). */
#define SYSCALLS_MAX 512

static const __u8 syscall_table[SYSCALLS_MAX] = {
        /* Any kind of descriptor */
        [__NR_read] = SYSCALL_FILE,
        [__NR_write] = SYSCALL_FILE,
        [__NR_readv] = SYSCALL_FILE,
        [__NR_writev] = SYSCALL_FILE,
        [__NR_pread64] = SYSCALL_FILE,
        [__NR_pwrite64] = SYSCALL_FILE,
        [__NR_preadv] = SYSCALL_FILE,
        [__NR_pwritev] = SYSCALL_FILE,
        [__NR_preadv2] = SYSCALL_FILE,
        [__NR_pwritev2] = SYSCALL_FILE,
        [__NR_ioctl] = SYSCALL_FILE,
        [__NR_vmsplice] = SYSCALL_FILE,
        [__NR_sendfile] = SYSCALL_FILE,
        [__NR_tee] = SYSCALL_FILE,
        [__NR_splice] = SYSCALL_SPLICE,

        /* Sockets, known by the call even if the descriptor cannot be resolved */
        [__NR_connect] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_accept] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_accept4] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_sendto] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_recvfrom] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_sendmsg] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_recvmsg] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_sendmmsg] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_recvmmsg] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,
        [__NR_shutdown] = QOS_STATE_SOCKET | SYSCALL_DESCRIPTOR,

        /* Several descriptors. io_uring: anything may complete, although the kernel accounts all of it as
         * I/O wait */
#ifdef __NR_poll
        [__NR_poll] = SYSCALL_POLL,
#endif
        [__NR_ppoll] = SYSCALL_POLL,
#ifdef __NR_select
        [__NR_select] = QOS_STATE_POLL,
#endif
        [__NR_pselect6] = QOS_STATE_POLL,
#ifdef __NR_epoll_wait
        [__NR_epoll_wait] = QOS_STATE_POLL | SYSCALL_DESCRIPTOR,
#endif
        [__NR_epoll_pwait] = QOS_STATE_POLL | SYSCALL_DESCRIPTOR,
#ifdef __NR_epoll_pwait2
        [__NR_epoll_pwait2] = QOS_STATE_POLL | SYSCALL_DESCRIPTOR,
#endif
        [__NR_io_uring_enter] = QOS_STATE_POLL,
        /* AIO: databases have idle threads in it */
        [__NR_io_getevents] = QOS_STATE_POLL,
        [__NR_io_pgetevents] = QOS_STATE_POLL,

        /* Locks and pools */
        [__NR_futex] = SYSCALL_FUTEX,
#ifdef __NR_futex_waitv
        [__NR_futex_waitv] = QOS_STATE_PARK,
#endif
#ifdef __NR_futex_wait
        [__NR_futex_wait] = QOS_STATE_PARK,
#endif
        [__NR_flock] = QOS_STATE_LOCK | SYSCALL_DESCRIPTOR,
        [__NR_fcntl] = SYSCALL_FCNTL,
        [__NR_semop] = QOS_STATE_LOCK,
        [__NR_semtimedop] = QOS_STATE_LOCK,

        /* Message queues */
        [__NR_msgsnd] = QOS_STATE_PIPE,
        [__NR_msgrcv] = QOS_STATE_PIPE,
        [__NR_mq_timedsend] = QOS_STATE_PIPE | SYSCALL_DESCRIPTOR,
        [__NR_mq_timedreceive] = QOS_STATE_PIPE | SYSCALL_DESCRIPTOR,

        /* Time and signals */
        [__NR_nanosleep] = QOS_STATE_SLEEP,
        [__NR_clock_nanosleep] = QOS_STATE_SLEEP,
#ifdef __NR_pause
        [__NR_pause] = QOS_STATE_SLEEP,
#endif
        [__NR_rt_sigsuspend] = QOS_STATE_SLEEP,
        [__NR_rt_sigtimedwait] = QOS_STATE_SLEEP,

        [__NR_kill] = SYSCALL_SIGNAL,
        [__NR_tkill] = SYSCALL_SIGNAL,
        [__NR_tgkill] = SYSCALL_SIGNAL,
        [__NR_rt_sigqueueinfo] = SYSCALL_SIGNAL,
        [__NR_rt_tgsigqueueinfo] = SYSCALL_SIGNAL,
#ifdef __NR_pidfd_send_signal
        [__NR_pidfd_send_signal] = SYSCALL_SIGNAL,
#endif

        /* Processes */
        [__NR_wait4] = QOS_STATE_CHILD,
        [__NR_waitid] = QOS_STATE_CHILD,
        [__NR_clone] = QOS_STATE_CHILD, /* as vfork() does */
        [__NR_clone3] = QOS_STATE_CHILD,
#ifdef __NR_vfork
        [__NR_vfork] = QOS_STATE_CHILD,
#endif

        /* Memory: locks of an address space, and I/O for it */
        [__NR_brk] = QOS_STATE_MEMORY,
        [__NR_mmap] = QOS_STATE_MEMORY,
        [__NR_munmap] = QOS_STATE_MEMORY,
        [__NR_mremap] = QOS_STATE_MEMORY,
        [__NR_mprotect] = QOS_STATE_MEMORY,
        [__NR_madvise] = QOS_STATE_MEMORY,
        [__NR_mlock] = QOS_STATE_MEMORY,
        [__NR_mlock2] = QOS_STATE_MEMORY,
        [__NR_mlockall] = QOS_STATE_MEMORY,
        [__NR_munlock] = QOS_STATE_MEMORY,
        [__NR_munlockall] = QOS_STATE_MEMORY,
        [__NR_pkey_mprotect] = QOS_STATE_MEMORY,
        [__NR_mbind] = QOS_STATE_MEMORY,
        [__NR_shmat] = QOS_STATE_MEMORY,
        [__NR_shmdt] = QOS_STATE_MEMORY,

        /* File systems: waits for a journal are not accounted as I/O wait */
        [__NR_msync] = QOS_STATE_DISK,
        [__NR_fsync] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_fdatasync] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_sync] = QOS_STATE_DISK,
        [__NR_syncfs] = QOS_STATE_DISK,
        [__NR_sync_file_range] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_fallocate] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_truncate] = QOS_STATE_DISK,
        [__NR_ftruncate] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_copy_file_range] = QOS_STATE_DISK,
        [__NR_readahead] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_fadvise64] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_io_submit] = QOS_STATE_DISK,
        [__NR_getdents64] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
#ifdef __NR_open
        [__NR_open] = QOS_STATE_DISK,
        [__NR_creat] = QOS_STATE_DISK,
        [__NR_stat] = QOS_STATE_DISK,
        [__NR_lstat] = QOS_STATE_DISK,
        [__NR_access] = QOS_STATE_DISK,
        [__NR_rename] = QOS_STATE_DISK,
        [__NR_unlink] = QOS_STATE_DISK,
        [__NR_mkdir] = QOS_STATE_DISK,
        [__NR_rmdir] = QOS_STATE_DISK,
        [__NR_link] = QOS_STATE_DISK,
        [__NR_symlink] = QOS_STATE_DISK,
        [__NR_readlink] = QOS_STATE_DISK,
        [__NR_chmod] = QOS_STATE_DISK,
        [__NR_chown] = QOS_STATE_DISK,
        [__NR_lchown] = QOS_STATE_DISK,
        [__NR_getdents] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
#endif
        [__NR_openat] = QOS_STATE_DISK,
        [__NR_openat2] = QOS_STATE_DISK,
#ifdef __NR_newfstatat
        [__NR_newfstatat] = QOS_STATE_DISK,
#endif
        [__NR_statx] = QOS_STATE_DISK,
        [__NR_faccessat] = QOS_STATE_DISK,
#ifdef __NR_faccessat2
        [__NR_faccessat2] = QOS_STATE_DISK,
#endif
#ifdef __NR_renameat
        [__NR_renameat] = QOS_STATE_DISK,
#endif
        [__NR_renameat2] = QOS_STATE_DISK,
        [__NR_unlinkat] = QOS_STATE_DISK,
        [__NR_mkdirat] = QOS_STATE_DISK,
        [__NR_linkat] = QOS_STATE_DISK,
        [__NR_symlinkat] = QOS_STATE_DISK,
        [__NR_readlinkat] = QOS_STATE_DISK,
        [__NR_fchmod] = QOS_STATE_DISK,
        [__NR_fchmodat] = QOS_STATE_DISK,
#ifdef __NR_fchmodat2
        [__NR_fchmodat2] = QOS_STATE_DISK,
#endif
        [__NR_fchown] = QOS_STATE_DISK,
        [__NR_fchownat] = QOS_STATE_DISK,
        [__NR_utimensat] = QOS_STATE_DISK,
        [__NR_fstat] = QOS_STATE_DISK,
        [__NR_statfs] = QOS_STATE_DISK,
        [__NR_fstatfs] = QOS_STATE_DISK,
        [__NR_mknodat] = QOS_STATE_DISK,
        [__NR_getxattr] = QOS_STATE_DISK,
        [__NR_lgetxattr] = QOS_STATE_DISK,
        [__NR_fgetxattr] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_listxattr] = QOS_STATE_DISK,
        [__NR_llistxattr] = QOS_STATE_DISK,
        [__NR_flistxattr] = QOS_STATE_DISK | SYSCALL_DESCRIPTOR,
        [__NR_setxattr] = QOS_STATE_DISK,
        [__NR_lsetxattr] = QOS_STATE_DISK,
        [__NR_fsetxattr] = QOS_STATE_DISK,
        [__NR_removexattr] = QOS_STATE_DISK,
        [__NR_lremovexattr] = QOS_STATE_DISK,
        [__NR_fremovexattr] = QOS_STATE_DISK,
        [__NR_chdir] = QOS_STATE_DISK,
        [__NR_inotify_add_watch] = QOS_STATE_DISK,
        [__NR_close] = QOS_STATE_DISK,
        [__NR_io_setup] = QOS_STATE_DISK,
        [__NR_execve] = QOS_STATE_DISK,
        [__NR_execveat] = QOS_STATE_DISK,
};
