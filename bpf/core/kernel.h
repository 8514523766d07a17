/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Kernel types and fields that the programs read, and no others. libbpf relocates each access to the offset
 * of the field in the running kernel (CO-RE); a program that accesses a missing field is rejected, which
 * "qosctl probes" reports. Every integer is unsigned, whatever its type in the kernel: if the size of a
 * field differs, libbpf adapts the access only if the field is unsigned on both sides, and otherwise rejects
 * the program. Users of a value cast it if the sign matters. */

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
        unsigned int counter;
} atomic_t;

struct list_head {
        struct list_head *next;
};

struct rb_node {
        struct rb_node *rb_right;
        struct rb_node *rb_left;
};

struct rb_root {
        struct rb_node *rb_node;
};

struct rb_root_cached {
        struct rb_root rb_root;
        struct rb_node *rb_leftmost;
};

struct xa_node {
        unsigned char shift;
        void *slots[];
};

struct xarray {
        void *xa_head;
};

struct idr {
        struct xarray idr_rt;
};

/* ---- control groups ---- */

struct kernfs_node {
        __u64 id;
        const char *name;
};

struct cgroup_root {
        unsigned int hierarchy_id;      /* 0: the unified hierarchy */
};

struct cgroup {
        struct kernfs_node *kn;
        struct cgroup_root *root;
        unsigned int level;
        struct bpf_local_storage *bpf_cgrp_storage; /* as task_struct.bpf_storage */
        struct cgroup *ancestors[];     /* since 6.1; by level, the last one is the group itself */
};

struct css_set {
        struct cgroup *dfl_cgrp;
};

struct cgroup_subsys_state {
        struct cgroup *cgroup;
};

/* ---- files ---- */

struct qstr {
        const unsigned char *name;
};

struct inode;

struct dentry {
        struct dentry *d_parent;
        struct qstr d_name;
        struct inode *d_inode;
        struct super_block *d_sb;
};

struct path {
        struct dentry *dentry;
};

struct file_system_type {
        const char *name;
};

typedef struct {
        __u8 b[16];
} uuid_t;

struct super_block {
        __u32 s_dev;
        struct dentry *s_root;
        struct file_system_type *s_type;
        unsigned long s_magic;
        unsigned long s_iflags;
        uuid_t s_uuid;
};

struct file_lock_context {
        struct list_head flc_flock;
        struct list_head flc_posix;
};

struct file_lock_core {
        struct list_head flc_list;
        unsigned int flc_pid;
};

struct rw_semaphore {};

struct inode {
        unsigned short i_mode;
        unsigned long i_ino;
        unsigned long long i_size;
        struct super_block *i_sb;
        struct file_lock_context *i_flctx;
        struct rw_semaphore i_rwsem;
};

struct address_space {
        struct inode *host;
};

/* Read or write with libaio, io_uring or O_DIRECT */
struct kiocb {
        struct file *ki_filp;
};

struct iov_iter {
        bool data_source;               /* source of the data, i.e. a write */
};

struct fuse_req {
        unsigned long flags;
};

/* io_uring */
struct io_cqe {
        unsigned int res;
};

struct io_cmd_data {};

struct io_kiocb {
        struct file *file;
        struct io_cmd_data cmd;         /* of reads and writes: begins with a struct kiocb */
        __u8 opcode;
        struct io_cqe cqe;
};

struct page {
        unsigned long flags;
};

struct folio {
        struct address_space *mapping;
        unsigned long index;
};

enum pageflags {
        PG_head,                        /* value depends on the kernel, see bpf_core_enum_value() */
};

struct file {
        struct path f_path;
        struct inode *f_inode;
        unsigned int f_mode;
        unsigned int f_flags;
        void *private_data;             /* of sockets: struct socket */
};

/* epoll */
struct eventpoll {
        struct rb_root_cached rbr;
};

struct epoll_filefd {
        struct file *file;
};

struct epitem {
        struct rb_node rbn;
        struct epoll_filefd ffd;
};

struct fdtable {
        unsigned long *close_on_exec;
        unsigned int max_fds;
        struct file **fd;
};

struct files_struct {
        struct fdtable *fdt;
};

struct vm_area_struct {
        unsigned long vm_start;
        unsigned long vm_end;
        unsigned long vm_pgoff;
        struct file *vm_file;
};

struct mm_struct {
        struct file *exe_file;
};

/* ---- threads ---- */

struct rq {
        __u64 clock;                    /* time of the scheduler, ns; read once per operation */
        __u64 clock_task;               /* the same without interrupts and stolen time, if the kernel
                                         * accounts for these */
};

struct cfs_rq {
        struct rq *rq;                  /* only with CONFIG_FAIR_GROUP_SCHED */
        unsigned int throttle_count;    /* number of throttled groups among this one and its ancestors; like
                                         * the next field only with CONFIG_CFS_BANDWIDTH */
        __u64 throttled_clock_pelt_time; /* total time throttled */
};

struct sched_entity {
        unsigned char sched_delayed;    /* since 6.12: 1 while asleep and still on the run queue */
        __u64 exec_start;               /* rq.clock_task up to which its run time is accounted */
        struct cfs_rq *cfs_rq;
};

struct sched_info {
        unsigned long long last_arrival; /* rq.clock when it was last scheduled in */
        unsigned long long last_queued; /* rq.clock when it became runnable; 0: running or blocked */
        unsigned long long run_delay;   /* total time on run queues, ns */
};

struct thread_info {
        unsigned long flags;            /* arm64: TIF_32BIT */
        __u32 status;                   /* x86: TS_COMPAT */
};

struct pid_namespace {
        struct idr idr;
};

struct upid {
        unsigned int nr;
        struct pid_namespace *ns;
};

struct pid {
        unsigned int level;
        struct upid numbers[];          /* by level of the namespace */
};

/* Only with CONFIG_RT_MUTEXES; the lock of futexes with priority inheritance */
struct rt_mutex_base {
        struct rb_root_cached waiters;
        struct task_struct *owner;      /* lowest bit: flag */
};

struct rt_waiter_node {
        struct rb_node entry;
};

struct rt_mutex_waiter {
        struct rt_waiter_node tree;
        struct task_struct *task;
        struct rt_mutex_base *lock;
};

/* Only with CONFIG_SYSVIPC. */
struct ipc_ids {
        struct idr ipcs_idr;
};

struct ipc_namespace {
        struct ipc_ids ids[1];          /* index 0: semaphores */
};

struct nsproxy {
        struct ipc_namespace *ipc_ns;
};

struct sem {
        struct pid *sempid;             /* process of the last operation */
};

struct sem_array {
        unsigned int sem_nsems;
        struct sem sems[];
};

/* Fields exist only with CONFIG_TASK_XACCT */
struct task_io_accounting {
        __u64 rchar;                    /* bytes read and written by system calls on files of any kind */
        __u64 wchar;
        __u64 syscr;                    /* number of these calls */
        __u64 syscw;
};

struct task_struct {
        struct thread_info thread_info;
        unsigned int __state;
        unsigned int flags;
        unsigned int on_cpu;
        unsigned int on_rq;
        struct sched_entity se;
        struct sched_info sched_info;   /* only with CONFIG_SCHED_INFO */
        bool throttled;                 /* since 6.18: the task itself is dequeued until there is quota */
        struct mm_struct *mm;
        unsigned int exit_state;
        unsigned int in_execve: 1;
        unsigned int in_iowait: 1;
        unsigned int frozen: 1;
        unsigned int in_memstall: 1;    /* only with CONFIG_PSI */
        unsigned int pid;
        unsigned int tgid;
        unsigned long nvcsw;            /* voluntary and involuntary context switches */
        unsigned long nivcsw;
        unsigned long min_flt;          /* minor and major page faults */
        unsigned long maj_flt;
        struct task_io_accounting ioac;
        struct task_struct *real_parent;
        struct list_head children;
        struct list_head sibling;
        struct task_struct *group_leader;
        struct pid *thread_pid;
        struct files_struct *files;
        struct io_uring_task *io_uring; /* only with CONFIG_IO_URING */
        struct nsproxy *nsproxy;
        struct css_set *cgroups;
        struct rt_mutex_waiter *pi_blocked_on;
        struct bpf_local_storage *bpf_storage; /* NULL: no element in any storage map */
        char comm[16];
};

/* Registers at the entry of a system call: its number and arguments. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___saved {
        unsigned long r10;
        unsigned long dx;
        unsigned long si;
        unsigned long di;
        unsigned long orig_ax;
        unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___saved {
        __u64 regs[31];
        __u64 sp;
        __u64 orig_x0;
        unsigned int syscallno;
};
#endif

/* ---- blocks ---- */

struct blkcg {
        struct cgroup_subsys_state css;
};

struct blkcg_gq {
        struct blkcg *blkcg;
};

struct bio {
        struct bio *bi_next;            /* of the same request */
        struct blkcg_gq *bi_blkg;       /* only with CONFIG_BLK_CGROUP */
};

struct gendisk {
        unsigned int major;
        unsigned int first_minor;
};

struct request_queue {
        struct gendisk *disk;
};

struct request {
        struct request_queue *q;
        unsigned int cmd_flags;
        unsigned int __data_len;        /* bytes not completed yet */
        struct bio *bio;
};

/* Record of the tracepoint balance_dirty_pages. Linux 6.15 changed the arguments of the tracepoint together
 * with the names of these fields. */
struct trace_event_raw_balance_dirty_pages {
        unsigned long wb_setpoint;
};

/* ---- sockets ---- */

struct in6_addr {
        __u8 bytes[16];                 /* a union in the kernel: only read as a whole */
};

struct hlist_node {
        struct hlist_node **pprev;
};

struct netns_ipv4 {
        __u8 sysctl_tcp_syncookies;
};

struct net {
        struct netns_ipv4 ipv4;
};

typedef struct {
        struct net *net;                /* only with CONFIG_NET_NS */
} possible_net_t;

struct sock_common {
        __be32 skc_daddr;
        __be32 skc_rcv_saddr;
        unsigned int skc_hash;
        struct hlist_node skc_bind_node;
        unsigned short skc_family;
        volatile unsigned char skc_state;
        unsigned long skc_flags;        /* sk_flags */
        __be16 skc_dport;
        __u16 skc_num;
        possible_net_t skc_net;
        struct in6_addr skc_v6_daddr;
        struct in6_addr skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct sock;

struct socket {
        unsigned long flags;
        struct sock *sk;
        void *file;
};

struct sk_buff;

struct sk_buff_head {
        struct sk_buff *next;
        struct sk_buff *prev;
        __u32 qlen;
};

struct sock_cgroup_data {
        struct cgroup *cgroup;          /* of the task that created the socket */
};

typedef struct {
        unsigned int owned;     /* 1: a process has locked the socket */
} socket_lock_t;

struct sock {
        struct sock_common __sk_common;
        socket_lock_t sk_lock;
        struct sk_buff_head sk_receive_queue;
        unsigned long sk_tsq_flags;
        struct sock_cgroup_data sk_cgrp_data;
        __u8 sk_userlocks;
        __u8 sk_shutdown;
        __u16 sk_type;
        __u16 sk_protocol;
        __u32 sk_ack_backlog;
        __u32 sk_max_ack_backlog;
        unsigned int sk_err;
        struct socket *sk_socket;
        struct bpf_local_storage *sk_bpf_storage; /* as bpf_storage of a task */
};

/* In the field cb of a segment that TCP has. */
struct tcp_skb_cb {
        __u32 seq;
        __u32 end_seq;
        __u8 tcp_flags;
        __u32 ack_seq;
};

struct net_device {
        unsigned char lower_level; /* 1: no device below */
};

struct skb_shared_info {
        unsigned short gso_segs;
};

struct sk_buff {
        struct sock *sk;
        struct net_device *dev;
        unsigned int len;
        unsigned int truesize;
        __u16 transport_header; /* offset */
        unsigned int end;       /* offset of struct skb_shared_info */
        unsigned char *head;
        unsigned char *data;
        __u64 tstamp;
        __u8 tstamp_type : 2;   /* enum skb_tstamp_type */
        char cb[48];
};

struct sockaddr_un {
        char sun_path[108];
};

struct unix_address {
        unsigned int len;               /* of the whole address, sun_family included */
        struct sockaddr_un name[];
};

struct unix_sock {
        struct unix_address *addr;      /* of accepted sockets: address of the listener */
        struct sock *peer;
};

struct unix_skb_parms {                 /* UNIXCB() */
        __u32 consumed;
};

struct udp_sock {
        struct sk_buff_head reader_queue; /* data moved here from sk_receive_queue at the beginning of a
                                           * read */
};

struct request_sock {
        struct request_sock *dl_next;   /* next one in the accept queue */
        struct sock *sk;                /* in the accept queue: the connection */
};

struct request_sock_queue {
        struct request_sock *rskq_accept_head;
        __u8 rskq_defer_accept;
        atomic_t qlen;                  /* connections in the handshake (SYN_RECV) */
};

struct inet_connection_sock {
        struct request_sock_queue icsk_accept_queue;
        __u8 icsk_ca_state : 5;
        struct {
                __u32 lrcvtime;         /* jiffies; last data received */
        } icsk_ack;
};

struct mptcp_sock {
        struct sock *first;             /* of listeners: the TCP socket that accepts for it */
};

struct minmax_sample {
        __u32 v;
};

struct minmax {
        struct minmax_sample s[3];
};

struct tcp_sock {
        struct inet_connection_sock inet_conn;
        __u32 rcv_nxt;
        __u32 rcv_wnd;
        __u32 rcv_wup;
        __u32 copied_seq;
        __u32 snd_una;
        __u32 snd_nxt;
        __u32 write_seq;
        __u32 snd_sml;
        __u32 snd_wnd;
        __u32 max_window;
        __u32 mss_cache;
        __u32 packets_out;
        __u32 sacked_out;
        __u32 lost_out;
        __u32 retrans_out;
        __u32 snd_cwnd;
        __u32 srtt_us;          /* in eighths */
        struct minmax rtt_min;  /* us */
        __u8 nonagle : 4;
        __u8 fastopen_connect : 1;      /* TCP_FASTOPEN_CONNECT */
        __u32 total_retrans;
        __u16 total_rto;        /* timeouts of retransmissions */
        __u32 snd_wl1;          /* beginning of the segment that has updated the window last */
        __u32 lsndtime;         /* jiffies; last data sent */
        __u32 rcv_tstamp;       /* jiffies; last acknowledgement received */
        __u64 bytes_received;
        __u64 bytes_sent;
        __u64 bytes_acked;
        __u64 bytes_retrans;
        __u8 chrono_type : 2;   /* what limits sending now (enum tcp_chrono), its time until chrono_start by
                                 * type - 1, and that; in jiffies */
        __u32 chrono_start;
        __u32 chrono_stat[3];
        __u64 tcp_clock_cache;
        __u64 tcp_wstamp_ns;    /* CLOCK_MONOTONIC ns; with pacing, when the next segment may be sent */
        bool is_mptcp;          /* only with CONFIG_MPTCP */
};

/* ---- iterators ---- */

struct seq_file;

struct bpf_iter_meta {
        struct seq_file *seq;
        __u64 session_id;
        __u64 seq_num;
};

struct bpf_iter__task {
        struct bpf_iter_meta *meta;
        struct task_struct *task;
};

struct bpf_iter__task_file {
        struct bpf_iter_meta *meta;
        struct task_struct *task;
        __u32 fd;
        struct file *file;
};

struct bpf_iter__task_vma {
        struct bpf_iter_meta *meta;
        struct task_struct *task;
        struct vm_area_struct *vma;
};

struct bpf_map;

struct bpf_iter__bpf_sk_storage_map {
        struct bpf_iter_meta *meta;
        struct bpf_map *map;
        struct sock *sk;
        void *value;
};

#pragma clang attribute pop

/* Constants of the kernel's interface that its headers for user space do not have */

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

/* TCP states as passed by inet_sock_set_state (include/net/tcp_states.h) */
enum {
        TCP_ESTABLISHED = 1,
        TCP_SYN_SENT,
        TCP_SYN_RECV,
        TCP_FIN_WAIT1,
        TCP_FIN_WAIT2,
        TCP_TIME_WAIT,
        TCP_CLOSE,
        TCP_CLOSE_WAIT,
        TCP_LAST_ACK,
        TCP_LISTEN,
        TCP_CLOSING,
        TCP_NEW_SYN_RECV,
};

#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
#define SOCK_BINDPORT_LOCK 8
#define PACKET_BROADCAST 1
#define PACKET_MULTICAST 2
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define RCV_SHUTDOWN 1
#define SHUTDOWN_MASK 3
#define PF_POSTCOREDUMP 0x00000008
#define PF_MEMALLOC 0x00000800
#define PF_IO_WORKER 0x00000010
#define PF_FORKNOEXEC 0x00000040
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define TS_COMPAT 0x0002
#define TIF_32BIT 22
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define __TASK_STOPPED 0x0004
#define __TASK_TRACED 0x0008
#define TASK_DEAD 0x0080
#define TASK_NOLOAD 0x0400
#define TASK_RTLOCK_WAIT 0x1000
#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFCHR 0020000
#define S_IFDIR 0040000
#define S_IFBLK 0060000
#define S_IFREG 0100000
#define S_IFLNK 0120000
#define S_IFSOCK 0140000
#define FMODE_CREATED 0x100000
#define ANON_INODE_FS_MAGIC 0x09041934
#define VM_FAULT_MAJOR 0x000004
#define FAULT_FLAG_TRIED 0x20
#define REQ_OP_MASK 0xff
#define REQ_OP_DISCARD 3
#define REQ_OP_DRV_IN 34
#define REQ_OP_DRV_OUT 35
#define REQ_PREFLUSH (1U << 18)
#define ETIMEDOUT 110
