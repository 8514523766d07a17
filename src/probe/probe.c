/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "contention-map.h"
#include "elf-symbols.h"
#include "kernel-support.h"
#include "log.h"
#include "mountinfo.h"
#include "probe.h"
#include "qosd.skel.h"

typedef enum Map {
        MAP_UNITS,
        MAP_CONNS,
        MAP_PIPELINES,
        MAP_H2_CONNS,
        MAP_TLS_CONNS,
        MAP_LISTENERS,
        MAP_GROUPS,
        MAP_HIERARCHIES,
        MAP_PATHS,
        MAP_ADDRESSES,
        MAP_EXCLUDES,
        MAP_FILTERS,
        MAP_ACCEPT_HANDOFFS,
        MAP_UNIX_CONNS,
        MAP_UNIX_UNRECORDED,
        MAP_UNIX_NAMES,
        MAP_UDP_SOCKETS,
        MAP_UDP_PEERS,
        MAP_UDP_ASKED,
        MAP_UDP_SWEPT,
        MAP_PATH_SCRATCH,
        MAP_STATISTICS,
        MAP_PLAINTEXT,
        MAP_PLAINTEXT_FRESH,
        MAP_PLAINTEXT_H2,
        MAP_PLAINTEXT_H2_FRESH,
        MAP_OPENSSL_CALLS,
        MAP_OPENSSL_SCRATCH,
        MAP_PROBE_CONFIGS,
        MAP_MISSING_LIBRARIES,
        MAP_CONTENTION_MAPS,
        MAP_CONTENTION_CPUS,
        MAP_THREADS,
        MAP_SERVICES,
        MAP_ANSWERS,
        MAP_MOVED,
        MAP_CLOCKS,
        MAP_MOVES,
        MAP_BLOCKS,
        MAP_BLOCK_DEVICES,
        MAP_BLOCK_USERS,
        MAP_MEMORY_STALLS,
        MAP_INSPECT_REQUESTS,
        MAP_MAPPING_SCRATCH,
        MAP_LOCK_SCRATCH,
        MAP_LOCK_PLACES,
        _MAP_MAX,
} Map;

static const char *const map_table[_MAP_MAX] = {
        [MAP_UNITS]        = "units",
        [MAP_CONNS]        = "conns",
        [MAP_PIPELINES]        = "pipelines",
        [MAP_H2_CONNS]        = "h2_conns",
        [MAP_TLS_CONNS]        = "tls_conns",
        [MAP_LISTENERS]    = "listeners",
        [MAP_GROUPS]       = "groups",
        [MAP_HIERARCHIES]        = "hierarchies",
        [MAP_PATHS]        = "paths",
        [MAP_ADDRESSES]    = "addresses",
        [MAP_EXCLUDES]     = "excludes",
        [MAP_FILTERS]      = "filters",
        [MAP_ACCEPT_HANDOFFS]    = "accept_handoffs",
        [MAP_UNIX_CONNS]   = "unix_conns",
        [MAP_UNIX_UNRECORDED] = "unix_unrecorded",
        [MAP_UNIX_NAMES]   = "unix_names",
        [MAP_UDP_SOCKETS]  = "udp_sockets",
        [MAP_UDP_PEERS]    = "udp_peers",
        [MAP_UDP_ASKED]    = "udp_asked",
        [MAP_UDP_SWEPT]    = "udp_swept",
        [MAP_PATH_SCRATCH] = "path_scratch",
        [MAP_STATISTICS]   = "statistics",
        [MAP_PLAINTEXT]     = "plaintext",
        [MAP_PLAINTEXT_FRESH] = "plaintext_fresh",
        [MAP_PLAINTEXT_H2] = "plaintext_h2",
        [MAP_PLAINTEXT_H2_FRESH] = "plaintext_h2_fresh",
        [MAP_OPENSSL_CALLS] = "openssl_calls",
        [MAP_OPENSSL_SCRATCH] = "openssl_scratch",
        [MAP_PROBE_CONFIGS]      = "probe_configs",
        [MAP_MISSING_LIBRARIES]       = "missing_libraries",
        [MAP_CONTENTION_MAPS]  = "contention_maps",
        [MAP_CONTENTION_CPUS]       = "contention_cpus",
        [MAP_THREADS]      = "threads",
        [MAP_SERVICES]     = "services",
        [MAP_ANSWERS]      = "answers",
        [MAP_MOVED]        = "moved",
        [MAP_CLOCKS]       = "clocks",
        [MAP_MOVES]        = "moves",
        [MAP_BLOCKS]       = "blocks",
        [MAP_BLOCK_DEVICES] = "block_devices",
        [MAP_BLOCK_USERS]  = "block_users",
        [MAP_MEMORY_STALLS]      = "memory_stalls",
        [MAP_INSPECT_REQUESTS]    = "inspect_requests",
        [MAP_MAPPING_SCRATCH] = "mapping_scratch",
        [MAP_LOCK_SCRATCH] = "lock_scratch",
        [MAP_LOCK_PLACES]  = "lock_places",
};

/* How a program gets to its hook. */
typedef enum HookType {
        HOOK_TRACEPOINT,
        HOOK_FUNCTION,          /* of the kernel, at its beginning or its end: not all kernels allow that */
        HOOK_CGROUP_INGRESS,
        HOOK_CGROUP_EGRESS,
        HOOK_CGROUP_BIND4,
        HOOK_CGROUP_BIND6,
        HOOK_ITERATOR,          /* over tasks' files: run when called for */
        HOOK_ITERATOR_MANAGER,  /* over the service manager's files */
        HOOK_ITERATOR_MAP,      /* over the sockets of a map */
        HOOK_ITERATOR_PROCESS,  /* over the memory of one process at a time */
        HOOK_LIBRARY,           /* of each library that is found */
} HookType;

static const struct {
        const char *name;
        const char *probe;
        const char *hook;
        HookType type;
        Map map;                /* HOOK_ITERATOR_MAP: which */
        const char *provides;
} program_table[_PROGRAM_MAX] = {
        [PROGRAM_MKDIR]        = { "units_mkdir",         "units",    "tp_btf/cgroup_mkdir",          HOOK_TRACEPOINT,     0,
                                   "control groups made after the attach, restarts without a gap" },
        [PROGRAM_STATE]        = { "requests_state",      "requests", "tp_btf/inet_sock_set_state",   HOOK_TRACEPOINT,     0,
                                   "connections, errors, requests in flight, contention while some are" },
        [PROGRAM_STATE_NESTED]    = { "requests_state_nested",  "requests", "tp_btf/inet_sock_set_state",   HOOK_TRACEPOINT,     0,
                                   "the same where it interrupts itself" },
        [PROGRAM_READ]         = { "requests_read",       "requests", "tp_btf/tcp_rcv_space_adjust",  HOOK_TRACEPOINT,     0,
                                   "when requests are read: all counts and durations" },
        [PROGRAM_CONTENT]      = { "requests_content",    "requests", "tp_btf/skb_copy_datagram_iovec", HOOK_TRACEPOINT,   0,
                                   "what requests are made of: protocols, exact counts of pipelined requests" },
        [PROGRAM_EGRESS]       = { "requests_egress",     "requests", "cgroup_skb/egress",            HOOK_CGROUP_EGRESS,  0,
                                   "when answers leave: all counts and durations, bytes out" },
        [PROGRAM_INGRESS]      = { "requests_ingress",    "requests", "cgroup_skb/ingress",           HOOK_CGROUP_INGRESS, 0,
                                   "when requests arrive: receive, queue, firstByte, latency, in flight, bytes in" },
        [PROGRAM_RETRANSMIT]   = { "requests_retransmit", "requests", "tp_btf/tcp_retransmit_skb",    HOOK_TRACEPOINT,     0,
                                   "retransmits" },
        [PROGRAM_UNIX]         = { "requests_unix",       "requests", "tp_btf/sk_data_ready",         HOOK_TRACEPOINT,     0,
                                   "requests on Unix sockets" },
        [PROGRAM_BIND4]        = { "requests_bind4",      "requests", "cgroup/post_bind4",            HOOK_CGROUP_BIND4,   0,
                                   "requests on UDP sockets younger than the attach" },
        [PROGRAM_BIND6]        = { "requests_bind6",      "requests", "cgroup/post_bind6",            HOOK_CGROUP_BIND6,   0,
                                   "requests on UDP sockets younger than the attach" },
        [PROGRAM_FIND_SOCKETS] = { "units_find_sockets",  "units",    "iter/task_file",               HOOK_ITERATOR,       0,
                                   "connections and listeners older than the attach: accepted, accept queue, bytes in" },
        [PROGRAM_FIND_UNIX]    = { "units_find_unix",     "units",    "iter/task_file",               HOOK_ITERATOR,       0,
                                   "Unix sockets older than the attach: when the first requests on them arrive" },
        [PROGRAM_FIND_UDP]     = { "units_find_udp",      "units",    "iter/task_file",               HOOK_ITERATOR,       0,
                                   "UDP sockets older than the attach: their first requests" },
        [PROGRAM_FIND_ACTIVATED]  = { "units_find_activated",   "units",    "iter/task_file",               HOOK_ITERATOR_MANAGER, 0,
                                   "sockets that the service manager has opened for a unit: when the first requests arrive" },
        [PROGRAM_REASSIGN]       = { "units_reassign",        "units",    "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_CONNS,
                                   "of units in units, whose a connection is that was open before the one or the other was attached or detached" },
        [PROGRAM_LISTENERS]    = { "requests_listeners",  "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_LISTENERS,
                                   "accept queue and its limit" },
        [PROGRAM_OLDEST]       = { "requests_oldest",     "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_CONNS,
                                   "age of the oldest request in flight" },
        [PROGRAM_GAUGES]       = { "requests_gauges",     "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_CONNS,
                                   "open connections and requests in flight where the kernel has skipped a program" },
        [PROGRAM_RETARGET]        = { "requests_retarget",      "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_CONNS,
                                   "which endpoint connections older than the attach belong to, ports that are excluded while connections are open" },
        [PROGRAM_RETARGET_UDP]    = { "requests_retarget_udp",  "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_UDP_SOCKETS,
                                   "ports that are excluded while sockets of UDP are open" },
        [PROGRAM_UNIX_OPEN]    = { "requests_unix_open",  "requests", "iter/bpf_sk_storage_map",      HOOK_ITERATOR_MAP,   MAP_UNIX_CONNS,
                                   "requests in flight on Unix sockets" },
        [PROGRAM_UNIX_CLOSE]   = { "requests_unix_close", "requests", "fentry/unix_release_sock",     HOOK_FUNCTION,       0,
                                   "errors and client aborts on Unix sockets" },
        [PROGRAM_UDP_OPEN]     = { "requests_udp_open",   "requests", "iter/bpf_map_elem",            HOOK_ITERATOR_MAP,   MAP_UDP_PEERS,
                                   "requests in flight on UDP" },
        [PROGRAM_UDP_EXPIRE]   = { "requests_udp_expire", "requests", "iter/bpf_map_elem",            HOOK_ITERATOR_MAP,   MAP_UDP_ASKED,
                                   "what a unit has asked over UDP in vain" },
        [PROGRAM_END_EXPORTS]       = { "units_end_exports",        "units",    "iter/bpf_map_elem",            HOOK_ITERATOR_MAP,   MAP_HIERARCHIES,
                                   "runs of programs that the kernel has skipped (drops), and maps of units that are given to other programs" },
        [PROGRAM_OPENSSL_EGRESS] = { "openssl_egress",    "tls",      "cgroup_skb/egress",            HOOK_CGROUP_EGRESS,  0,
                                   "when answers inside TLS leave" },
        [PROGRAM_OPENSSL_ENTER] = { "openssl_enter",      "tls",      "uprobe.multi/libssl",          HOOK_LIBRARY,        0,
                                   "what answers inside TLS are made of" },
        [PROGRAM_OPENSSL_LEAVE] = { "openssl_leave",      "tls",      "uprobe.multi/libssl",          HOOK_LIBRARY,        0,
                                   "what requests inside TLS are made of" },
        [PROGRAM_FIND_LIBRARIES] = { "units_find_libraries", "tls",   "iter/task_vma",                HOOK_ITERATOR_PROCESS, 0,
                                   "where processes have OpenSSL's library" },
        [PROGRAM_CPU_SWITCH]   = { "cpu_switch",          "cpu",      "tp_btf/sched_switch",          HOOK_TRACEPOINT,     0,
                                   "where the time of threads goes: all of contention" },
        [PROGRAM_CPU_WAKE]     = { "cpu_wake",            "cpu",      "tp_btf/sched_wakeup",          HOOK_TRACEPOINT,     0,
                                   "when waits end: all of contention" },
        [PROGRAM_CPU_WAKE_NEW] = { "cpu_wake_new",        "cpu",      "tp_btf/sched_wakeup_new",      HOOK_TRACEPOINT,     0,
                                   "threads younger than the attach: all of contention" },
        [PROGRAM_CPU_WAKING]   = { "cpu_waking",          "cpu",      "tp_btf/sched_waking",          HOOK_TRACEPOINT,     0,
                                   "futexWakes, who ends waits: in 'qosctl resources', and requests that wait for others" },
        [PROGRAM_CPU_LOCK]     = { "cpu_lock",            "cpu",      "tp_btf/contention_begin",      HOOK_TRACEPOINT,     0,
                                   "which locks of the kernel threads wait for, in 'qosctl resources'" },
        [PROGRAM_CPU_UNLOCK]   = { "cpu_unlock",          "cpu",      "tp_btf/contention_end",        HOOK_TRACEPOINT,     0,
                                   "when they have them" },
        [PROGRAM_CPU_MIGRATE]     = { "cpu_migrate",            "cpu",      "tp_btf/cgroup_attach_task",    HOOK_TRACEPOINT,     0,
                                   "processes that are moved to the unit from elsewhere, or away" },
        [PROGRAM_FIND_THREADS] = { "cpu_find_threads",    "cpu",      "iter/task",                    HOOK_ITERATOR,       0,
                                   "threads older than the attach: all of contention" },
        [PROGRAM_READ_THREADS] = { "cpu_read_threads",    "cpu",      "iter/task",                    HOOK_ITERATOR,       0,
                                   "what each thread does: 'qosctl threads', and waits that go on in 'qosctl resources'" },
        [PROGRAM_READ_MAPPINGS] = { "cpu_read_mappings",  "cpu",      "iter/task_vma",                HOOK_ITERATOR_PROCESS, 0,
                                   "the names of futexes in 'qosctl resources'" },
        [PROGRAM_BLOCK_START]  = { "block_start",         "block",    "tp_btf/block_io_start",        HOOK_TRACEPOINT,     0,
                                   "whose requests to block devices are: all of contention.block; what is written later by the kernel, where the unit has the io controller" },
        [PROGRAM_BLOCK_ISSUE]  = { "block_issue",         "block",    "tp_btf/block_rq_issue",        HOOK_TRACEPOINT,     0,
                                   "how long requests to block devices are queued, and how long the device takes" },
        [PROGRAM_BLOCK_COMPLETE] = { "block_complete",    "block",    "tp_btf/block_rq_complete",     HOOK_TRACEPOINT,     0,
                                   "bytes to and from block devices, the share of a device" },
        [PROGRAM_BLOCK_COMPLETE_NESTED] = { "block_complete_nested", "block", "tp_btf/block_rq_complete",   HOOK_TRACEPOINT,     0,
                                   "the same where it interrupts itself" },
        [PROGRAM_BLOCK_DONE]   = { "block_done",          "block",    "tp_btf/block_io_done",         HOOK_TRACEPOINT,     0,
                                   "requests to block devices: all of contention.block" },
        [PROGRAM_BLOCK_DONE_NESTED] = { "block_done_nested",    "block",    "tp_btf/block_io_done",         HOOK_TRACEPOINT,     0,
                                   "the same where it interrupts itself" },
        [PROGRAM_FAULT]        = { "memory_fault",        "memory",   "tp_btf/page_fault_user",       HOOK_TRACEPOINT,     0,
                                   "page faults" },
        [PROGRAM_FAULT_KERNEL] = { "memory_fault_kernel", "memory",   "tp_btf/page_fault_kernel",     HOOK_TRACEPOINT,     0,
                                   "page faults of threads that have them in system calls: when they are" },
        [PROGRAM_MEMORY_FORK]  = { "memory_fork",         "memory",   "tp_btf/sched_process_fork",    HOOK_TRACEPOINT,     0,
                                   "page faults of threads younger than the attach" },
        [PROGRAM_MEMORY_EXIT]  = { "memory_exit",         "memory",   "tp_btf/sched_process_exit",    HOOK_TRACEPOINT,     0,
                                   "the last page fault of each thread" },
        [PROGRAM_FIND_FAULTS]  = { "memory_find_faults",  "memory",   "iter/task",                    HOOK_ITERATOR,       0,
                                   "the newest page fault of each thread" },
        [PROGRAM_FAULT_BEGIN]  = { "memory_fault_begin",  "memory",   "fentry/handle_mm_fault",       HOOK_FUNCTION,       0,
                                   "the time of page faults" },
        [PROGRAM_FAULT_END]    = { "memory_fault_end",    "memory",   "fexit/handle_mm_fault",        HOOK_FUNCTION,       0,
                                   "the time of page faults" },
        [PROGRAM_RECLAIM_BEGIN] = { "memory_reclaim_begin", "memory", "tp_btf/mm_vmscan_direct_reclaim_begin", HOOK_TRACEPOINT, 0,
                                   "reclaim by the unit's threads when the machine is short of memory" },
        [PROGRAM_RECLAIM_END]  = { "memory_reclaim_end",  "memory",   "tp_btf/mm_vmscan_direct_reclaim_end", HOOK_TRACEPOINT, 0,
                                   "reclaim by the unit's threads when the machine is short of memory" },
        [PROGRAM_LIMIT_BEGIN]  = { "memory_limit_begin",  "memory",   "tp_btf/mm_vmscan_memcg_reclaim_begin", HOOK_TRACEPOINT, 0,
                                   "reclaim by the unit's threads when the unit is at its limit" },
        [PROGRAM_LIMIT_END]    = { "memory_limit_end",    "memory",   "tp_btf/mm_vmscan_memcg_reclaim_end", HOOK_TRACEPOINT, 0,
                                   "reclaim by the unit's threads when the unit is at its limit" },
        [PROGRAM_THROTTLE]     = { "memory_throttle",     "memory",   "tp_btf/balance_dirty_pages",   HOOK_TRACEPOINT,     0,
                                   "threads that are slowed down as too much is dirty" },
        [PROGRAM_OOM]          = { "memory_oom",          "memory",   "tp_btf/mark_victim",           HOOK_TRACEPOINT,     0,
                                   "processes killed as there is no memory" },
};

/* Which programs are loaded together, by the number of the probe's bit. */
static const struct {
        Program first, end;
} group_table[] = {
        [0] = { 0,                      _PROGRAM_REQUESTS_MAX },
        [1] = { PROGRAM_OPENSSL_EGRESS, PROGRAM_CPU_SWITCH    },
        [2] = { PROGRAM_CPU_SWITCH,     PROGRAM_BLOCK_START   },
        [3] = { PROGRAM_BLOCK_START,    PROGRAM_FAULT         },
        [4] = { PROGRAM_FAULT,          _PROGRAM_MAX          },
};
_Static_assert(_PROBE_ALL + 1 == 1 << ELEMENTSOF(group_table), "each probe has its programs");

static unsigned group_of(ProbeMask probe) {
        assert(probe != 0 && (probe & (probe - 1)) == 0);
        return __builtin_ctz(probe);
}

/* Each CPU keeps up to 128 free elements of a map that forgets what was not used for longest, and takes as many more from the others'
 * oldest ones when it has none: a map must have a multiple of that for each, or it forgets what was used just now. */
#define LRU_ELEMENTS_PER_CPU 256U

/* Five times as long as it ever took. */
#define LOAD_USEC_MAX 900000000ULL

typedef struct Library {
        uint64_t inode;
        uint32_t device;                        /* as in struct qos_openssl_library */
        uid_t owner;                            /* of the file */
        int enter_fd, leave_fd;                 /* the links; negative: it was of no use */
        bool seen;
} Library;

/* What is unloaded, and the service manager may have still: programs run for as long as somebody has their links. */
typedef struct Unloading {
        int program_fds[_PROGRAM_MAX], link_fds[_PROGRAM_MAX];
        Library libraries[LIBRARIES_MAX];
        size_t n_libraries;
        sd_event_source *barrier;               /* the service manager has come as far as that */
} Unloading;

struct Probe {
        sd_event *event;
        Unloading unloading;
        Library libraries[LIBRARIES_MAX];
        size_t n_libraries;
        struct ring_buffer *wanted;
        void (*wanted_handler)(const struct qos_owner *owner, void *userdata);
        void *wanted_userdata;
        struct ring_buffer *moves;
        ProbeMask loaded_groups;                 /* beside "requests" */
        uint64_t loaded_at;                     /* when those were loaded that came last, CLOCK_MONOTONIC ns */
        char *library_reason;                   /* why the programs are in none */
        int library_limit;                      /* why they are not in all, see probe_add_libraries() */
        char checksum[17];
        int map_fds[_MAP_MAX];
        int program_fds[_PROGRAM_MAX];
        int link_fds[_PROGRAM_MAX];
        char *reasons[_PROGRAM_MAX];            /* why a program does not work */
        char *failure;                          /* why nothing does */
        bool started;
        uint64_t missed;                        /* runs of programs, as the units' maps have them */
        bool store_complained;

        int unit_fds[UNITS_MAX_LIMIT];
        struct qos_unit_map *views[UNITS_MAX_LIMIT];

        /* Books of contention */
        int contention_fds[UNITS_MAX_LIMIT], shards_fds[UNITS_MAX_LIMIT];
        struct qos_contention_map *contentions[UNITS_MAX_LIMIT];
        struct qos_contention_cpu *contention_cpus[UNITS_MAX_LIMIT];
        struct qos_contention_map *machine;         /* that of the whole machine */
        int machine_fd;
};

/* The last thing libbpf complained of: its return values say too little ("Operation not permitted"), its messages too
 * much for the journal. */
static char libbpf_last_error[256];

_printf_(2, 0) static int on_libbpf_print(enum libbpf_print_level level, const char *format, va_list ap) {
        char buffer[1024];
        va_list copy;

        va_copy(copy, ap);
        (void) vsnprintf(buffer, sizeof(buffer), format, copy);
        va_end(copy);
        buffer[strcspn(buffer, "\n")] = 0;

        log_debug("%s", buffer);
        if (level == LIBBPF_WARN && strstr(buffer, "failed"))
                (void) snprintf(libbpf_last_error, sizeof(libbpf_last_error), "%.*s", (int) sizeof(libbpf_last_error) - 1, buffer);
        return 0;
}

/* FNV-1a over the object file: the programs, the maps' layout and the types are all in there. */
static void checksum_object(char ret[static 17]) {
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        const unsigned char *elf;
        size_t size;

        elf = qosd_bpf__elf_bytes(&size);
        for (size_t i = 0; i < size; i++)
                h = (h ^ elf[i]) * UINT64_C(0x100000001b3);

        (void) snprintf(ret, 17, "%016llx", (unsigned long long) h);
}

int probe_new(sd_event *event, Probe **ret) {
        Probe *p;

        p = new0(Probe, 1);
        if (!p)
                return -ENOMEM;
        p->event = sd_event_ref(event);

        for (unsigned i = 0; i < _MAP_MAX; i++)
                p->map_fds[i] = -EBADF;
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->program_fds[i] = p->link_fds[i] = p->unloading.program_fds[i] = p->unloading.link_fds[i] = -EBADF;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                p->unit_fds[i] = p->contention_fds[i] = p->shards_fds[i] = -EBADF;
        p->machine_fd = -EBADF;

        checksum_object(p->checksum);
        libbpf_set_print(on_libbpf_print);

        *ret = p;
        return 0;
}

static void library_close(Library *l) {
        l->enter_fd = close_fd(l->enter_fd);
        l->leave_fd = close_fd(l->leave_fd);
}

/* Those that the machine may have, and those behind them. */
static unsigned shards_number(void) {
        return (unsigned) libbpf_num_possible_cpus() + QOS_CONTENTION_CPUS_MORE;
}

static size_t shards_size(void) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);

        return (shards_number() * sizeof(struct qos_contention_cpu) + page - 1) / page * page;
}

static void contention_close(Probe *p, unsigned slot) {
        if (p->contentions[slot])
                (void) munmap(p->contentions[slot], sizeof(struct qos_contention_map));
        if (p->contention_cpus[slot])
                (void) munmap(p->contention_cpus[slot], shards_size());
        p->contentions[slot] = NULL;
        p->contention_cpus[slot] = NULL;
        p->contention_fds[slot] = close_fd(p->contention_fds[slot]);
        p->shards_fds[slot] = close_fd(p->shards_fds[slot]);
}

static void machine_close(Probe *p) {
        if (p->machine)
                (void) munmap(p->machine, sizeof(struct qos_contention_map));
        p->machine = NULL;
        p->machine_fd = close_fd(p->machine_fd);
}

static void unloading_close(Probe *p) {
        Unloading *u = &p->unloading;

        u->barrier = sd_event_source_disable_unref(u->barrier);
        for (size_t i = 0; i < u->n_libraries; i++)
                library_close(u->libraries + i);
        u->n_libraries = 0;
        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                u->link_fds[i] = close_fd(u->link_fds[i]);
                u->program_fds[i] = close_fd(u->program_fds[i]);
        }
}

static void probe_close(Probe *p) {
        /* Links first: no program may run on maps that go away piece by piece */
        unloading_close(p);
        for (size_t i = 0; i < p->n_libraries; i++)
                library_close(p->libraries + i);
        p->n_libraries = 0;
        p->loaded_groups = 0;
        ring_buffer__free(p->wanted);
        p->wanted = NULL;
        ring_buffer__free(p->moves);
        p->moves = NULL;

        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->link_fds[i] = close_fd(p->link_fds[i]);

        machine_close(p);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                contention_close(p, i);
                if (p->views[i])
                        (void) munmap(p->views[i], sizeof(struct qos_unit_map));
                p->views[i] = NULL;
                p->unit_fds[i] = close_fd(p->unit_fds[i]);
        }
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                p->program_fds[i] = close_fd(p->program_fds[i]);
        for (unsigned i = 0; i < _MAP_MAX; i++)
                p->map_fds[i] = close_fd(p->map_fds[i]);

        p->started = false;
}

Probe* probe_free(Probe *p) {
        if (!p)
                return NULL;

        probe_close(p);
        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                free(p->reasons[i]);
        free(p->failure);
        free(p->library_reason);
        sd_event_unref(p->event);
        free(p);
        return NULL;
}

bool probe_is_started(Probe *p) {
        return p->started;
}

const char* probe_get_failure(Probe *p) {
        return p->failure;
}

const char* probe_get_checksum(Probe *p) {
        return p->checksum;
}

uint64_t probe_get_programs(Probe *p) {
        uint64_t bits = 0;

        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (p->link_fds[i] >= 0)
                        bits |= PROGRAM_BIT(i);
        return bits;
}

/* ---- the descriptor store ------------------------------------------------------------------------------------- */

/* Names: "map-units", "prog-requests_read", "link-requests_read", "unit-17". */
static void store_push(Probe *p, const char *kind, const char *name, int fd) {
        char state[128];
        int r;

        (void) snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s-%s", kind, name);
        r = sd_pid_notify_with_fds(0, /* unset_environment= */ false, state, &fd, 1);
        if (r < 0 && !p->store_complained) {
                p->store_complained = true;
                (void) log_warning_errno(r, "Failed to hand '%s-%s' to the service manager, a restart of qosd will start afresh: %m", kind, name);
        }
}

static void store_drop(const char *kind, const char *name) {
        char state[128];

        (void) snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s-%s", kind, name);
        (void) sd_notify(/* unset_environment= */ false, state);
}

static void library_name(const Library *l, const char *which, char ret[static 64]) {
        (void) snprintf(ret, 64, "%s-%x-%llx-%x", which, l->device, (unsigned long long) l->inode, (unsigned) l->owner);
}

static void store_drop_library(const Library *l) {
        char name[64];

        library_name(l, "enter", name);
        store_drop("library", name);
        library_name(l, "leave", name);
        store_drop("library", name);
}

static void store_push_library(Probe *p, const Library *l) {
        char name[64];

        library_name(l, "leave", name);
        store_push(p, "library", name, l->leave_fd);
        library_name(l, "enter", name);
        store_push(p, "library", name, l->enter_fd);
}

static void store_drop_all(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; i++)
                store_drop_library(p->libraries + i);
        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                store_drop("link", program_table[i].name);
                store_drop("prog", program_table[i].name);
        }
        for (Map i = 0; i < _MAP_MAX; i++)
                store_drop("map", map_table[i]);
}

static void store_drop_unit(const char *kind, unsigned slot) {
        char name[16];

        (void) snprintf(name, sizeof(name), "%u", slot);
        store_drop(kind, name);
}

static void store_push_unit(Probe *p, const char *kind, unsigned slot, int fd) {
        char name[16];

        (void) snprintf(name, sizeof(name), "%u", slot);
        store_push(p, kind, name, fd);
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

static uint64_t root_group_id(void) {
        struct stat st;

        /* A control group's id is its directory's inode */
        return stat("/sys/fs/cgroup", &st) >= 0 ? st.st_ino : 1;
}

/* The kernel measures some times in ticks, and does not say how long they are; the coarse clock goes by them. */
static uint64_t tick_nsec(void) {
        struct timespec ts = {};

        (void) clock_getres(CLOCK_MONOTONIC_COARSE, &ts);
        return (uint64_t) ts.tv_nsec;
}

static int dup_cloexec(int fd) {
        int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        return r < 0 ? -errno : r;
}

static int shards_make_map(uint32_t book, uint64_t epoch_end) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        struct qos_contention_cpu initial = { .generation = book, .epoch_end = epoch_end };
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_shards", sizeof(uint32_t), sizeof(struct qos_contention_cpu), shards_number(), &options);
        if (fd < 0)
                return fd;
        for (uint32_t i = 0; i < shards_number(); i++) {
                r = bpf_map_update_elem(fd, &i, &initial, BPF_ANY);
                if (r < 0)
                        return r;
        }
        r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

/* Opens the object, lets it use the maps that are there already, and loads the given programs (none: makes the maps). */
static int object_load(Probe *p, uint64_t programs) {
        _cleanup_close_ int contention_cpus = -EBADF;
        uint64_t watchdog_usec = 0;
        struct qosd_bpf *skeleton;
        bool watched;
        int r = 0;

        libbpf_last_error[0] = 0;

        skeleton = qosd_bpf__open();
        if (!skeleton)
                return errno_or_else(ENOMEM);

        skeleton->rodata->root_group_id = root_group_id();
        skeleton->rodata->cpus = shards_number() - QOS_CONTENTION_CPUS_MORE;
        skeleton->rodata->page_size = (uint32_t) sysconf(_SC_PAGESIZE);
        skeleton->rodata->tick_nsec = tick_nsec();
        skeleton->rodata->loaded_at = p->loaded_at;
        if (p->map_fds[MAP_CONTENTION_CPUS] < 0) {
                /* What those look like that it will have; how many CPUs there may be is not known before */
                r = contention_cpus = shards_make_map(0, 0);
                if (r >= 0)
                        r = bpf_map__set_inner_map_fd(bpf_object__find_map_by_name(skeleton->obj, map_table[MAP_CONTENTION_CPUS]), contention_cpus);
                if (r < 0)
                        goto finish;
        }

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                struct bpf_program *program = bpf_object__find_program_by_name(skeleton->obj, program_table[i].name);

                assert(program);
                (void) bpf_program__set_autoload(program, programs & PROGRAM_BIT(i));
                (void) bpf_program__set_autoattach(program, false);
        }

        for (Map i = 0; i < _MAP_MAX; i++) {
                struct bpf_map *map = bpf_object__find_map_by_name(skeleton->obj, map_table[i]);

                assert(map);
                if (p->map_fds[i] >= 0)
                        r = bpf_map__reuse_fd(map, p->map_fds[i]);
                else if (bpf_map__type(map) == BPF_MAP_TYPE_LRU_HASH)
                        r = bpf_map__set_max_entries(map, MAX(bpf_map__max_entries(map),
                                                              LRU_ELEMENTS_PER_CPU * skeleton->rodata->cpus));
                if (r < 0)
                        goto finish;
        }

        /* It takes a second or two; on an emulated CPU that others use, too, minutes, in which nothing else is done */
        watched = sd_watchdog_enabled(false, &watchdog_usec) > 0;
        if (watched)
                (void) sd_notifyf(false, "WATCHDOG_USEC=%llu\nWATCHDOG=1", LOAD_USEC_MAX);
        r = qosd_bpf__load(skeleton);
        if (watched)
                (void) sd_notifyf(false, "WATCHDOG_USEC=%" PRIu64 "\nWATCHDOG=1", watchdog_usec);
        if (r < 0)
                goto finish;

        for (Map i = 0; i < _MAP_MAX; i++)
                if (p->map_fds[i] < 0) {
                        r = dup_cloexec(bpf_map__fd(bpf_object__find_map_by_name(skeleton->obj, map_table[i])));
                        if (r < 0)
                                goto finish;
                        p->map_fds[i] = r;
                }

        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (programs & PROGRAM_BIT(i)) {
                        r = dup_cloexec(bpf_program__fd(bpf_object__find_program_by_name(skeleton->obj, program_table[i].name)));
                        if (r < 0)
                                goto finish;
                        p->program_fds[i] = r;
                }

        r = 0;
finish:
        qosd_bpf__destroy(skeleton);
        return r;
}

static int program_attach(Probe *p, Program i) {
        union bpf_iter_link_info info = {};
        LIBBPF_OPTS(bpf_link_create_opts, options);
        _cleanup_close_ int group = -EBADF;
        int fd;

        switch (program_table[i].type) {

        case HOOK_TRACEPOINT:
        case HOOK_FUNCTION:
                fd = bpf_raw_tracepoint_open(NULL, p->program_fds[i]);
                break;

        case HOOK_CGROUP_INGRESS:
        case HOOK_CGROUP_EGRESS:
        case HOOK_CGROUP_BIND4:
        case HOOK_CGROUP_BIND6:
                group = open("/sys/fs/cgroup", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
                if (group < 0)
                        return -errno;
                fd = bpf_link_create(p->program_fds[i], group,
                                     program_table[i].type == HOOK_CGROUP_INGRESS ? BPF_CGROUP_INET_INGRESS :
                                     program_table[i].type == HOOK_CGROUP_EGRESS ? BPF_CGROUP_INET_EGRESS :
                                     program_table[i].type == HOOK_CGROUP_BIND4 ? BPF_CGROUP_INET4_POST_BIND :
                                     BPF_CGROUP_INET6_POST_BIND,
                                     NULL);
                break;

        case HOOK_ITERATOR_MAP:
                info.map.map_fd = p->map_fds[program_table[i].map];
                options.iter_info = &info;
                options.iter_info_len = sizeof(info);
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, &options);
                break;

        case HOOK_ITERATOR_MANAGER:
                info.task.pid = 1;
                options.iter_info = &info;
                options.iter_info_len = sizeof(info);
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, &options);
                break;

        case HOOK_ITERATOR:
                fd = bpf_link_create(p->program_fds[i], 0, BPF_TRACE_ITER, NULL);
                break;

        case HOOK_ITERATOR_PROCESS:
        case HOOK_LIBRARY:
        default:
                assert(false);
                return -EINVAL;
        }

        if (fd < 0)
                return fd;
        p->link_fds[i] = fd;
        return 0;
}

static void program_refuse(Probe *p, Program i, int error, const char *step) {
        free(p->reasons[i]);
        if (asprintf(&p->reasons[i], "%s: %s%s%s", step, strerror(-error),
                     isempty(libbpf_last_error) ? "" : " - ", libbpf_last_error) < 0)
                p->reasons[i] = NULL;

        (void) log_warning_errno(error, "BPF program '%s' (%s) is not available, %s failed: %m. Without it there is no word of: %s.",
                                 program_table[i].name, program_table[i].hook, step, program_table[i].provides);
}

/* All at once is fast; what remains is found out one by one. Those that some kernels do not allow are apart, or all the others would be
 * loaded twice there. */
static void programs_load(Probe *p, uint64_t programs) {
        uint64_t functions = 0;

        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (program_table[i].type == HOOK_FUNCTION)
                        functions |= PROGRAM_BIT(i);
        for (unsigned part = 0; part < 2; part++) {
                uint64_t these = programs & (part == 0 ? ~functions : functions);
                int all = these != 0 ? object_load(p, these) : 0;

                for (Program i = 0; i < _PROGRAM_MAX && all < 0; i++) {
                        int r;

                        if (!(these & PROGRAM_BIT(i)))
                                continue;
                        r = these == PROGRAM_BIT(i) ? all : object_load(p, PROGRAM_BIT(i));
                        if (r < 0)
                                program_refuse(p, i, r, "loading");
                }
        }
}

int probe_start(Probe *p) {
        const uint64_t all = PROGRAM_BIT(_PROGRAM_REQUESTS_MAX) - 1;
        int r;

        if (p->started)
                return 0;

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                free(p->reasons[i]);
                p->reasons[i] = NULL;
        }
        free(p->failure);
        p->failure = NULL;

        r = kernel_support_check(&p->failure);
        if (r < 0)
                return r;

        r = object_load(p, 0);
        if (r < 0) {
                (void) asprintf(&p->failure, "BPF maps cannot be made: %s%s%s", strerror(-r),
                                isempty(libbpf_last_error) ? "" : " - ", libbpf_last_error);
                probe_close(p);
                return r;
        }

        programs_load(p, all);

        for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++) {
                if (p->program_fds[i] < 0)
                        continue;

                libbpf_last_error[0] = 0;
                r = program_attach(p, i);
                if (r < 0)
                        program_refuse(p, i, r, "attaching");
        }

        p->started = true;

        for (Map i = 0; i < _MAP_MAX; i++)
                store_push(p, "map", map_table[i], p->map_fds[i]);
        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (p->link_fds[i] >= 0) {
                        store_push(p, "prog", program_table[i].name, p->program_fds[i]);
                        store_push(p, "link", program_table[i].name, p->link_fds[i]);
                }

        /* libbpf has read the kernel's types, some 10 MiB, and has freed them again */
        (void) malloc_trim(0);
        return 0;
}

void probe_stop(Probe *p) {
        if (p->started)
                store_drop_all(p);
        probe_close(p);
}

/* ---- what is not always loaded -------------------------------------------------------------------------------- */

static bool program_has_link(Program i) {
        return program_table[i].type != HOOK_LIBRARY && program_table[i].type != HOOK_ITERATOR_PROCESS;
}

static void library_drop(Probe *p, size_t i) {
        store_drop_library(p->libraries + i);
        library_close(p->libraries + i);
        p->libraries[i] = p->libraries[--p->n_libraries];
}

static int on_barrier(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        unloading_close(ASSERT_PTR(userdata));
        return 0;
}

/* Keeps what is unloaded until the service manager has taken it out of the descriptor store. It is not waited for: it may be busy, or
 * stopped. Each barrier is behind all that was dropped before. */
static void unloading_add_barrier(Probe *p) {
        _cleanup_close_ int fd = -EBADF;
        sd_event_source *source = NULL;
        int fds[2];
        int r;

        if (pipe2(fds, O_CLOEXEC|O_NONBLOCK) < 0) {
                unloading_close(p);
                return;
        }
        fd = fds[0];

        /* It closes its copy when it has processed all that came before */
        r = sd_pid_notify_with_fds(0, /* unset_environment= */ false, "BARRIER=1", fds + 1, 1);
        fds[1] = close_fd(fds[1]);
        if (r > 0)
                r = sd_event_add_io(p->event, &source, fd, 0, on_barrier, p);
        if (!source) {
                unloading_close(p);
                return;
        }
        (void) sd_event_source_set_io_fd_own(source, true);
        TAKE_FD(fd);
        sd_event_source_disable_unref(p->unloading.barrier);
        p->unloading.barrier = source;
}

static void program_unload(Probe *p, Program i) {
        Unloading *u = &p->unloading;

        if (p->link_fds[i] >= 0)
                store_drop("link", program_table[i].name);
        if (p->program_fds[i] >= 0)
                store_drop("prog", program_table[i].name);
        (void) close_fd(u->link_fds[i]);
        (void) close_fd(u->program_fds[i]);
        u->link_fds[i] = TAKE_FD(p->link_fds[i]);
        u->program_fds[i] = TAKE_FD(p->program_fds[i]);
}

/* Takes up again what has not stopped running. Loaded once more, programs would run twice at a time, and count twice. */
static void group_resume(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;
        Unloading *u = &p->unloading;

        for (Program i = first; i < end; i++) {
                if (p->program_fds[i] >= 0 || u->program_fds[i] < 0)
                        continue;
                p->program_fds[i] = TAKE_FD(u->program_fds[i]);
                p->link_fds[i] = TAKE_FD(u->link_fds[i]);
                store_push(p, "prog", program_table[i].name, p->program_fds[i]);
                if (p->link_fds[i] >= 0)
                        store_push(p, "link", program_table[i].name, p->link_fds[i]);
        }
        if (probe != PROBE_TLS)
                return;
        for (; u->n_libraries > 0 && p->n_libraries < LIBRARIES_MAX; p->n_libraries++) {
                p->libraries[p->n_libraries] = u->libraries[--u->n_libraries];
                store_push_library(p, p->libraries + p->n_libraries);
        }
}

int probe_load_group(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;
        uint64_t missing = 0;
        int r;

        if (!p->started)
                return -ENODATA;
        if (p->loaded_groups & probe)
                return 0;
        p->loaded_groups |= probe; /* tried once: what the kernel refuses it refuses again */
        group_resume(p, probe);

        for (Program i = first; i < end; i++)
                if (p->program_fds[i] < 0)
                        missing |= PROGRAM_BIT(i);
        if (missing != 0) {
                p->loaded_at = now_nsec(CLOCK_MONOTONIC);
                programs_load(p, missing);
                for (Program i = first; i < end; i++)
                        if (missing & PROGRAM_BIT(i) && p->program_fds[i] >= 0)
                                store_push(p, "prog", program_table[i].name, p->program_fds[i]);
                (void) malloc_trim(0);
        }

        for (Program i = first; i < end; i++) {
                if (p->program_fds[i] < 0 || p->link_fds[i] >= 0 || !program_has_link(i))
                        continue;
                libbpf_last_error[0] = 0;
                r = program_attach(p, i);
                if (r < 0)
                        program_refuse(p, i, r, "attaching");
                else
                        store_push(p, "link", program_table[i].name, p->link_fds[i]);
        }
        return 0;
}

/* Nobody says any more whose thread is on a CPU. */
static void pending_responses_drop(Probe *p) {
        _cleanup_free_ void *nothing = NULL;
        struct bpf_map_info info = {};
        uint32_t length = sizeof(info), zero = 0;

        if (p->map_fds[MAP_ANSWERS] < 0 || bpf_map_get_info_by_fd(p->map_fds[MAP_ANSWERS], &info, &length) < 0)
                return;
        /* The kernel has each CPU's at a multiple of 8 bytes */
        nothing = calloc((size_t) libbpf_num_possible_cpus(), (info.value_size + 7U) & ~7U);
        if (nothing)
                (void) bpf_map_update_elem(p->map_fds[MAP_ANSWERS], &zero, nothing, BPF_ANY); /* an array's: never fails */
}

void probe_unload_group(Probe *p, ProbeMask probe) {
        const Program first = group_table[group_of(probe)].first, end = group_table[group_of(probe)].end;

        bool unloaded = false;

        if (probe == PROBE_TLS) {
                for (; p->n_libraries > 0; p->n_libraries--) {
                        const Library *l = p->libraries + p->n_libraries - 1;

                        store_drop_library(l);
                        if (l->enter_fd >= 0 && l->leave_fd >= 0 && p->unloading.n_libraries < LIBRARIES_MAX)
                                p->unloading.libraries[p->unloading.n_libraries++] = *l;
                        else
                                library_close(p->libraries + p->n_libraries - 1);
                }
                unloaded = p->unloading.n_libraries > 0;
                free(p->library_reason);
                p->library_reason = NULL;
                p->library_limit = 0;
        }
        for (Program i = first; i < end; i++) {
                unloaded = unloaded || p->link_fds[i] >= 0 || p->program_fds[i] >= 0;
                program_unload(p, i);
                free(p->reasons[i]);
                p->reasons[i] = NULL;
        }
        if (unloaded)
                unloading_add_barrier(p);
        if (probe == PROBE_CPU)
                pending_responses_drop(p);
        p->loaded_groups &= ~probe;
}

const char* probe_group_failure(Probe *p, ProbeMask probe) {
        for (Program i = group_table[group_of(probe)].first; i < group_table[group_of(probe)].end; i++)
                if (p->reasons[i])
                        return p->reasons[i];
        return NULL;
}

/* ---- OpenSSL's library ---------------------------------------------------------------------------------------- */

void probe_set_config(Probe *p, unsigned slot, uint32_t generation, bool tls) {
        struct qos_probe_config watch = { .generation = generation, .probes = tls
                ? QOS_PROBE_CONFIG_TLS : 0 };

        if (p->started)
                (void) bpf_map_update_elem(p->map_fds[MAP_PROBE_CONFIGS], &slot, &watch, BPF_ANY); /* an element of an array: never fails */
}

/* The functions that are watched, and what their programs are told of them. SSL_accept() and SSL_connect() are
 * SSL_do_handshake(), SSL_read_early_data() and SSL_write_early_data() call those here.
 *
 * Reading and writing have one function each behind those that are exported, which takes the arguments of SSL_read_ex() (and
 * since OpenSSL 3.3 those of SSL_write_ex2()). Where it can be told which they are they are watched instead: see
 * symbols_find(). */
typedef struct LibraryPoints {
        unsigned long offsets[8];
        __u64 cookies[8];
        size_t n;
} LibraryPoints;

static bool points_add(LibraryPoints *points, uint64_t offset, uint64_t cookie) {
        if (offset == 0)
                return false;
        points->offsets[points->n] = offset;
        points->cookies[points->n++] = cookie;
        return true;
}

static int library_find_points(int fd, LibraryPoints *enter, LibraryPoints *leave) {
        Symbols *s;
        bool flags;
        int r;

        r = symbols_new(fd, &s);
        if (r < 0)
                return r;

        flags = symbols_find(s, "SSL_write_ex2") != 0;
        if (!points_add(leave, symbols_find_callee(s, "SSL_read", "SSL_read_ex"), QOS_CALL_READS | QOS_CALL_COUNTS)) {
                (void) points_add(leave, symbols_find(s, "SSL_read_ex"), QOS_CALL_READS | QOS_CALL_COUNTS);
                if (!points_add(leave, symbols_find(s, "SSL_read"), QOS_CALL_READS))
                        r = -ENOEXEC;
        }
        if (!points_add(leave, symbols_find_callee(s, "SSL_write", flags ? "SSL_write_ex2" : "SSL_write_ex"),
                        QOS_CALL_WRITES | QOS_CALL_COUNTS | (flags ? QOS_CALL_FLAGS : 0))) {
                (void) points_add(leave, symbols_find(s, "SSL_write_ex"), QOS_CALL_WRITES | QOS_CALL_COUNTS);
                if (!points_add(leave, symbols_find(s, "SSL_write"), QOS_CALL_WRITES))
                        r = -ENOEXEC;
        }
        (void) points_add(leave, symbols_find(s, "SSL_do_handshake"), 0);
        *enter = *leave;
        (void) points_add(enter, symbols_find(s, "SSL_sendfile"), QOS_CALL_SENDS_FILE);

        symbols_free(s);
        return r;
}

static int library_link(Probe *p, Program program, const char *path, const LibraryPoints *points, bool leave) {
        LIBBPF_OPTS(bpf_link_create_opts, options,
                    .uprobe_multi.path = path,
                    .uprobe_multi.offsets = points->offsets,
                    .uprobe_multi.cookies = points->cookies,
                    .uprobe_multi.cnt = points->n,
                    .uprobe_multi.flags = leave ? BPF_F_UPROBE_MULTI_RETURN : 0);

        return bpf_link_create(p->program_fds[program], 0, BPF_TRACE_UPROBE_MULTI, &options);
}

/* A user could have as many copies as there are places, and leave none to the others. */
static int library_check_limit(const Probe *p, const Library *l) {
        unsigned n = 0, own = 0, others = 0;

        for (size_t i = 0; i < p->n_libraries; i++) {
                n += p->libraries[i].enter_fd >= 0;
                own += p->libraries[i].enter_fd >= 0 && p->libraries[i].owner == l->owner;
                others += p->libraries[i].enter_fd >= 0 && p->libraries[i].owner != 0;
        }
        if (n >= LIBRARIES_MAX || (l->owner != 0 && others >= limit_for_unprivileged(LIBRARIES_MAX)))
                return -ENOSPC;
        return l->owner != 0 && own >= LIBRARIES_PER_UID_MAX ? -EDQUOT : 0;
}

const char* probe_library_limit_reason(int limit) {
        static char all[128], own[64];

        (void) snprintf(all, sizeof(all), "%u files are the most, %u those of users who are not root", LIBRARIES_MAX, limit_for_unprivileged(LIBRARIES_MAX));
        (void) snprintf(own, sizeof(own), "%u files of one user are the most", LIBRARIES_PER_UID_MAX);
        return limit == -EDQUOT ? own : all;
}

static int library_attach(Probe *p, Library *l, const char *path) {
        LibraryPoints enter = {}, leave = {};
        _cleanup_close_ int fd = -EBADF;
        char name[32];
        struct stat st;
        int r;

        fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);
        if (fd < 0)
                return -errno;
        /* Other file systems' numbers differ from the kernel's own (overlayfs, btrfs), the inode's are the same */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_ino != l->inode)
                return -ENOENT;

        l->owner = st.st_uid;
        r = library_check_limit(p, l);
        if (r < 0)
                return r;

        r = library_find_points(fd, &enter, &leave);
        if (r < 0)
                return r;

        /* What was opened, whatever has the path by now */
        (void) snprintf(name, sizeof(name), "/proc/self/fd/%i", fd);
        r = library_link(p, PROGRAM_OPENSSL_LEAVE, name, &leave, /* leave= */ true);
        if (r < 0)
                return r;
        l->leave_fd = r;
        r = library_link(p, PROGRAM_OPENSSL_ENTER, name, &enter, /* leave= */ false);
        if (r < 0) {
                library_close(l);
                return r;
        }
        l->enter_fd = r;

        store_push_library(p, l);
        return 0;
}

/* Who has a root directory of its own has the library at another path than qosd, if that can reach it at all. */
static int library_attach_elsewhere(Probe *p, Library *l, const struct qos_openssl_library *found, char ret_path[static QOS_LIBRARY_PATH_SIZE]) {
        _cleanup_free_ char *file_path = NULL, *line = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        size_t size = 0;
        int r;

        r = mounts_file_path(found->names, MIN((size_t) found->names_size, sizeof(found->names)), &file_path);
        if (r < 0)
                return r;
        f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return -errno;
        r = -ENOENT;
        while (r < 0 && r != -ENOSPC && r != -EDQUOT && getline(&line, &size, f) >= 0) {
                _cleanup_free_ char *path = NULL;

                if (mounts_line_find(line, found->device, file_path, &path) < 0)
                        continue;
                r = library_attach(p, l, path);
                if (r >= 0)
                        (void) snprintf(ret_path, QOS_LIBRARY_PATH_SIZE, "%s", path);
        }
        return r;
}

static Library* library_get(Probe *p, uint32_t device, uint64_t inode, bool make) {
        Library *l;

        for (size_t i = 0; i < p->n_libraries; i++)
                if (p->libraries[i].device == device && p->libraries[i].inode == inode)
                        return p->libraries + i;
        if (!make)
                return NULL;
        if (p->n_libraries >= LIBRARIES_MAX) {
                /* Those in which there is nothing make room for those that are a library */
                for (l = p->libraries; l < p->libraries + LIBRARIES_MAX && l->enter_fd >= 0; l++)
                        ;
                if (l == p->libraries + LIBRARIES_MAX)
                        return NULL;
        } else
                l = p->libraries + p->n_libraries++;
        *l = (Library) { .inode = inode, .device = device, .enter_fd = -EBADF, .leave_fd = -EBADF };
        return l;
}

/* Returns 1 if the programs are in it, -ENOSPC or -EDQUOT as probe_add_libraries(). */
static int openssl_scan_file(Probe *p, const struct qos_openssl_library *found) {
        Library *l = library_get(p, found->device, found->inode, /* make= */ false);
        char path[QOS_LIBRARY_PATH_SIZE];
        int r;

        if (!l) {
                l = library_get(p, found->device, found->inode, /* make= */ true);
                if (!l)
                        return -ENOSPC;
                (void) snprintf(path, sizeof(path), "%.*s", (int) sizeof(path) - 1, found->path);
                r = library_attach(p, l, path);
                if (r < 0 && r != -ENOSPC && r != -EDQUOT) {
                        int k = library_attach_elsewhere(p, l, found, path);

                        r = k >= 0 || k == -ENOSPC || k == -EDQUOT ? k : r;
                }
                if (r == -ENOSPC || r == -EDQUOT) {
                        /* There may be room when it is seen again */
                        *l = p->libraries[--p->n_libraries];
                        return r;
                }
                if (r < 0) {
                        free(p->library_reason);
                        if (asprintf(&p->library_reason, "'%s' cannot be watched: %s", path, strerror(-r)) < 0)
                                p->library_reason = NULL;
                        log_warning_errno(r, "'%s' cannot be watched, what processes read with it is counted by TLS records: %m", path);
                } else {
                        free(p->library_reason);
                        p->library_reason = NULL;
                        log_info("Watching '%s'.", path);
                }
        }
        l->seen = true;
        return l->enter_fd >= 0;
}

void probe_begin_libraries(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; i++)
                p->libraries[i].seen = false;
        p->library_limit = 0;
}

int probe_add_libraries(Probe *p, pid_t process, int *limit) {
        union bpf_iter_link_info info = { .task.tid = process };
        LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &info, .iter_info_len = sizeof(info));
        _cleanup_close_ int link = -EBADF, fd = -EBADF;
        struct qos_openssl_library found;
        size_t have = 0;
        int n = 0;

        if (p->program_fds[PROGRAM_FIND_LIBRARIES] < 0 || p->program_fds[PROGRAM_OPENSSL_ENTER] < 0)
                return -EOPNOTSUPP;

        link = bpf_link_create(p->program_fds[PROGRAM_FIND_LIBRARIES], 0, BPF_TRACE_ITER, &options);
        if (link < 0)
                return link; /* it has ended, mostly */
        fd = bpf_iter_create(link);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t size;

                size = read(fd, (char*) &found + have, sizeof(found) - have);
                if (size < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (size == 0)
                        break;
                have += size;
                if (have == sizeof(found)) {
                        int r = openssl_scan_file(p, &found);

                        if (r >= 0)
                                n += r;
                        else
                                p->library_limit = *limit = r;
                        have = 0;
                }
        }
        return n;
}

void probe_end_libraries(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; )
                if (p->libraries[i].seen)
                        i++;
                else
                        library_drop(p, i);
}

static int on_missing_library(void *userdata, void *data, size_t size) {
        Probe *p = ASSERT_PTR(userdata);

        if (size >= sizeof(struct qos_owner))
                p->wanted_handler(data, p->wanted_userdata);
        return 0;
}

int probe_get_missing_libraries_fd(Probe *p) {
        if (!p->wanted) {
                p->wanted = ring_buffer__new(p->map_fds[MAP_MISSING_LIBRARIES], on_missing_library, p, NULL);
                if (!p->wanted)
                        return errno_or_else(ENOMEM);
        }
        return ring_buffer__epoll_fd(p->wanted);
}

void probe_read_missing_libraries(Probe *p, void (*handler)(const struct qos_owner *owner, void *userdata), void *userdata) {
        if (!p->wanted)
                return;
        p->wanted_handler = handler;
        p->wanted_userdata = userdata;
        (void) ring_buffer__consume(p->wanted);
}

/* ---- units ---------------------------------------------------------------------------------------------------- */

static int unit_map_view(int fd, struct qos_unit_map **ret) {
        void *view;

        view = mmap(NULL, sizeof(struct qos_unit_map), PROT_READ, MAP_SHARED, fd, 0);
        if (view == MAP_FAILED)
                return -errno;

        *ret = view;
        return 0;
}

/* Runs of a program that the kernel has skipped, as the same one was under way on the same CPU. */
static uint64_t program_get_missed(Probe *p, Program i) {
        struct bpf_prog_info info = {};
        uint32_t size = sizeof(info);

        if (p->program_fds[i] < 0 || bpf_prog_get_info_by_fd(p->program_fds[i], &info, &size) < 0)
                return 0;
        return info.recursion_misses;
}

/* Before this version no task can preempt what runs at a tracepoint. Then only interrupts meet it, and these queue nothing at Unix sockets. */
#define PREEMPTIBLE_VERSION_MAJOR 7

static bool tracepoints_are_preemptible(void) {
        struct utsname name;

        return uname(&name) < 0 || strtoul(name.release, NULL, 10) >= PREEMPTIBLE_VERSION_MAJOR;
}

/* Of the programs that requests are counted with. Of the two for changes of state one is enough. */
static uint64_t probe_get_missed(Probe *p) {
        uint64_t n;

        n = program_get_missed(p, PROGRAM_CONTENT) + program_get_missed(p, PROGRAM_READ) +
                MIN(program_get_missed(p, PROGRAM_STATE), program_get_missed(p, PROGRAM_STATE_NESTED));
        return tracepoints_are_preemptible() ? n + program_get_missed(p, PROGRAM_UNIX) : n;
}

int probe_add_unit(Probe *p, unsigned slot, uint32_t generation, uint64_t now, const struct qos_unit_map **ret_view) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_free_ struct qos_unit_map *initial = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct qos_unit_map *view = NULL;
        uint32_t zero = 0;
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        /* The descriptor store is not ours alone */
        probe_remove_unit(p, slot);

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_unit", sizeof(uint32_t), sizeof(struct qos_unit_map), 1, &options);
        if (fd < 0)
                return fd;

        initial = new0(struct qos_unit_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = generation;
        initial->missed = probe_get_missed(p);
        initial->epoch = now / QOS_EPOCH_NSEC;
        initial->epoch_end = (initial->epoch + 1) * QOS_EPOCH_NSEC;

        r = bpf_map_update_elem(fd, &zero, initial, BPF_ANY);
        if (r < 0)
                return r;

        /* From here on only programs write */
        r = bpf_map_freeze(fd);
        if (r < 0)
                return r;

        r = unit_map_view(fd, &view);
        if (r < 0)
                return r;

        r = bpf_map_update_elem(p->map_fds[MAP_UNITS], &slot, &(int) { fd }, BPF_ANY);
        if (r < 0) {
                (void) munmap(view, sizeof(struct qos_unit_map));
                return r;
        }

        store_push_unit(p, "unit", slot, fd);
        p->unit_fds[slot] = TAKE_FD(fd);
        p->views[slot] = view;
        *ret_view = view;
        return 0;
}

void probe_remove_unit(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        /* After a crash that may be there alone */
        probe_remove_contention(p, slot);
        if (p->unit_fds[slot] < 0)
                return;

        (void) bpf_map_delete_elem(p->map_fds[MAP_UNITS], &slot);
        store_drop_unit("unit", slot);
        if (p->views[slot])
                (void) munmap(p->views[slot], sizeof(struct qos_unit_map));
        p->views[slot] = NULL;
        p->unit_fds[slot] = close_fd(p->unit_fds[slot]);
}

bool probe_has_unit(const Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        return p->unit_fds[slot] >= 0 || p->contention_fds[slot] >= 0 || p->shards_fds[slot] >= 0;
}

int probe_assign_cgroup(Probe *p, int fd, unsigned slot, uint32_t generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };

        assert(p->started);
        return bpf_map_update_elem(p->map_fds[MAP_GROUPS], &fd, &owner, BPF_ANY);
}

void probe_unassign_cgroup(Probe *p, int fd) {
        if (p->started)
                (void) bpf_map_delete_elem(p->map_fds[MAP_GROUPS], &fd);
}

int probe_get_group_owner(Probe *p, int fd, struct qos_owner *ret) {
        assert(p->started);
        return bpf_map_lookup_elem(p->map_fds[MAP_GROUPS], &fd, ret);
}

void probe_set_hierarchy(Probe *p, unsigned slot, const struct qos_hierarchy *nest) {
        if (p->started)
                (void) bpf_map_update_elem(p->map_fds[MAP_HIERARCHIES], &slot, nest, BPF_ANY); /* an element of an array: never fails */
}

static int path_key(const char *path, struct qos_path *ret) {
        if (strlen(path) >= sizeof(ret->path))
                return -ENAMETOOLONG;

        *ret = (struct qos_path) {};
        memcpy(ret->path, path, strlen(path));
        return 0;
}

int probe_assign_path(Probe *p, const char *path, unsigned slot, uint32_t generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_path key;
        int r;

        assert(p->started);

        r = path_key(path, &key);
        if (r < 0)
                return r;
        return bpf_map_update_elem(p->map_fds[MAP_PATHS], &key, &owner, BPF_ANY);
}

void probe_unassign_path(Probe *p, const char *path) {
        struct qos_path key;

        if (p->started && path_key(path, &key) >= 0)
                (void) bpf_map_delete_elem(p->map_fds[MAP_PATHS], &key);
}

/* ---- contention ----------------------------------------------------------------------------------------------- */

static void store_drop_contention(Probe *p, unsigned slot) {
        if (p->contention_fds[slot] >= 0)
                store_drop_unit("contention", slot);
        if (p->shards_fds[slot] >= 0)
                store_drop_unit("shards", slot);
}

static int contention_map_views(Probe *p, unsigned slot) {
        void *contention, *contention_cpus;

        contention = mmap(NULL, sizeof(struct qos_contention_map), PROT_READ, MAP_SHARED, p->contention_fds[slot], 0);
        if (contention == MAP_FAILED)
                return -errno;
        contention_cpus = mmap(NULL, shards_size(), PROT_READ, MAP_SHARED, p->shards_fds[slot], 0);
        if (contention_cpus == MAP_FAILED) {
                int r = -errno;

                (void) munmap(contention, sizeof(struct qos_contention_map));
                return r;
        }

        p->contentions[slot] = contention;
        p->contention_cpus[slot] = contention_cpus;
        return 0;
}

static int contention_make_map(struct qos_contention_map *initial) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_contention", sizeof(uint32_t), sizeof(struct qos_contention_map), 1, &options);
        if (fd < 0)
                return fd;
        r = bpf_map_update_elem(fd, &(uint32_t) { 0 }, initial, BPF_ANY);
        if (r >= 0)
                r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

int probe_add_contention(Probe *p, unsigned slot, uint32_t generation, uint32_t book, uint64_t now, uint64_t served,
                         const struct qos_contention_map **ret_contention,
                                 const struct qos_contention_cpu **ret_shards) {
        _cleanup_free_ struct qos_contention_map *initial = NULL;
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        probe_remove_contention(p, slot);

        initial = new0(struct qos_contention_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = book;
        initial->unit = generation;
        initial->contention_cpus = shards_number();
        initial->epoch = now / QOS_EPOCH_NSEC;
        initial->served = served;

        r = p->shards_fds[slot] = shards_make_map(book, (initial->epoch + 1) * QOS_EPOCH_NSEC);
        if (r >= 0)
                r = p->contention_fds[slot] = contention_make_map(initial);
        if (r >= 0)
                r = contention_map_views(p, slot);
        /* In this order: who sees the second has the first */
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot, &p->shards_fds[slot],
                        BPF_ANY);
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot, &p->contention_fds[slot], BPF_ANY);
        if (r < 0) {
                (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot);
                contention_close(p, slot);
                return r;
        }

        store_push_unit(p, "shards", slot, p->shards_fds[slot]);
        store_push_unit(p, "contention", slot, p->contention_fds[slot]);
        *ret_contention = p->contentions[slot];
        *ret_shards = p->contention_cpus[slot];
        return 0;
}

void probe_remove_contention(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        /* After a crash one of both may be there */
        if (p->contention_fds[slot] < 0 && p->shards_fds[slot] < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot);
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot);
        store_drop_contention(p, slot);
        contention_close(p, slot);
}

int probe_adopt_contention(Probe *p, unsigned slot, uint32_t generation, const struct qos_contention_map **ret_contention,
                           const struct qos_contention_cpu **ret_shards) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->contention_fds[slot] < 0 || p->shards_fds[slot] < 0)
                return -ENOENT;

        if (!p->contentions[slot]) {
                r = contention_map_views(p, slot);
                if (r < 0)
                        return r;
        }
        if (p->contentions[slot]->unit != generation ||
                        p->contentions[slot]->contention_cpus != shards_number())
                return -ESTALE;

        *ret_contention = p->contentions[slot];
        *ret_shards = p->contention_cpus[slot];
        return 0;
}

int probe_add_machine(Probe *p, uint32_t book, uint64_t now, const struct qos_contention_map **ret) {
        struct qos_contention_map *initial;
        uint32_t slot = QOS_SLOT_MACHINE;
        void *view;
        int r;

        assert(p->started);
        assert(p->machine_fd < 0);

        initial = new0(struct qos_contention_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = book;
        initial->epoch = now / QOS_EPOCH_NSEC;
        r = p->machine_fd = contention_make_map(initial);
        free(initial);
        if (r < 0)
                return r;
        view = mmap(NULL, sizeof(struct qos_contention_map), PROT_READ, MAP_SHARED, p->machine_fd, 0);
        r = view == MAP_FAILED ? -errno : 0;
        if (r >= 0) {
                p->machine = view;
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot, &p->machine_fd, BPF_ANY);
        }
        if (r < 0) {
                machine_close(p);
                return r;
        }
        *ret = p->machine;
        return 0;
}

void probe_remove_machine(Probe *p) {
        uint32_t slot = QOS_SLOT_MACHINE;

        if (p->machine_fd < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot);
        machine_close(p);
}

int probe_get_devices(Probe *p, struct qos_block_devices *ret) {
        uint32_t zero = 0;

        if (!p->started)
                return -ENODATA;
        return bpf_map_lookup_elem(p->map_fds[MAP_BLOCK_DEVICES], &zero, ret);
}

static int block_user_compare(const void *a, const void *b) {
        return memcmp(&((const BlockUser*) a)->user, &((const BlockUser*) b)->user, sizeof(struct qos_block_user));
}

const struct qos_block_use* block_users_find(const BlockUser *users, size_t n, const struct qos_block_user *user) {
        const BlockUser key = { .user = *user }, *found;

        found = bsearch(&key, users, n, sizeof(BlockUser), block_user_compare);
        return found ? &found->use : NULL;
}

int probe_get_block_users(Probe *p, BlockUser **ret, size_t *ret_n) {
        _cleanup_free_ struct qos_block_user *users = NULL;
        _cleanup_free_ struct qos_block_use *uses = NULL;
        struct bpf_map_info info = {};
        uint32_t size = sizeof(info), n, at;
        BlockUser *all;
        int r;

        if (!p->started)
                return -ENODATA;
        /* The more CPUs, the more it may have, see LRU_ELEMENTS_PER_CPU */
        r = bpf_map_get_info_by_fd(p->map_fds[MAP_BLOCK_USERS], &info, &size);
        if (r < 0)
                return r;

        n = info.max_entries;
        users = new0(struct qos_block_user, n);
        uses = new0(struct qos_block_use, n);
        if (!users || !uses)
                return -ENOMEM;
        r = bpf_map_lookup_batch(p->map_fds[MAP_BLOCK_USERS], NULL, &at, users, uses, &n, NULL);
        if (r < 0 && r != -ENOENT) /* that was the last of them */
                return r;

        all = new0(BlockUser, MAX(n, 1U));
        if (!all)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                all[i] = (BlockUser) { .user = users[i], .use = uses[i] };
        qsort(all, n, sizeof(BlockUser), block_user_compare);
        *ret = all;
        *ret_n = n;
        return 0;
}

static int on_move(void *userdata, void *data, size_t size) {
        return 0; /* which they are the iterator finds */
}

int probe_get_moves_fd(Probe *p) {
        if (!p->moves) {
                p->moves = ring_buffer__new(p->map_fds[MAP_MOVES], on_move, p, NULL);
                if (!p->moves)
                        return errno_or_else(ENOMEM);
        }
        return ring_buffer__epoll_fd(p->moves);
}

/* ---- iterators ------------------------------------------------------------------------------------------------ */

/* Runs an iterator to its end; what it writes last is the session. */
static int iterator_run(Probe *p, Program i, uint64_t *ret_session) {
        struct qos_iter_session session = {};
        _cleanup_close_ int fd = -EBADF;

        if (p->link_fds[i] < 0)
                return -EOPNOTSUPP;

        fd = bpf_iter_create(p->link_fds[i]);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t n;

                n = read(fd, &session, sizeof(session));
                if (n < 0) {
                        if (errno == EAGAIN || errno == EINTR) /* the kernel pauses after a million objects */
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
        }

        if (ret_session)
                *ret_session = session.id;
        return 0;
}

int probe_get_unit_fd(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        return p->link_fds[PROGRAM_END_EXPORTS] < 0 ? -EOPNOTSUPP : p->unit_fds[slot];
}

int probe_end_export(Probe *p, unsigned slot) {
        struct qos_hierarchy before, nest;
        int r;

        if (!p->started || !p->views[slot])
                return 0;
        r = bpf_map_lookup_elem(p->map_fds[MAP_HIERARCHIES], &slot, &before);
        if (r < 0)
                return r;

        nest = before;
        nest.generation = p->views[slot]->generation;
        nest.flags |= QOS_HIERARCHY_EXPORT_ENDED;
        probe_set_hierarchy(p, slot, &nest);
        r = iterator_run(p, PROGRAM_END_EXPORTS, NULL);
        probe_set_hierarchy(p, slot, &before);
        return r;
}

int probe_find_sockets(Probe *p) {
        static const Program table[] = { PROGRAM_FIND_SOCKETS, PROGRAM_FIND_UNIX, PROGRAM_FIND_UDP };
        int r = 0, q;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                q = iterator_run(p, table[i], NULL);
                if (q < 0)
                        r = q;
        }

        /* By now it is known where connections came in that were seen before their listeners */
        (void) iterator_run(p, PROGRAM_RETARGET, NULL);
        return r;
}

void probe_read_moves(Probe *p) {
        if (p->moves)
                (void) ring_buffer__consume(p->moves);
}

int probe_find_threads(Probe *p) {
        uint32_t zero = 0;
        int r;

        /* Whoever is moved from here on is told of again */
        probe_read_moves(p);
        (void) bpf_map_update_elem(p->map_fds[MAP_MOVED], &zero, &zero, BPF_ANY);

        r = iterator_run(p, PROGRAM_FIND_THREADS, NULL);
        if (r < 0)
                return r;
        /* Of those that were changing their state when they were looked at for the first time */
        (void) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
        return iterator_run(p, PROGRAM_FIND_THREADS, NULL);
}

/* Runs an iterator that writes records of this size. buffer: of some of them. */
static int iterator_read(int fd, void *buffer, size_t size, size_t record, void (*each)(const void *record, void *userdata), void *userdata) {
        size_t have = 0, done;

        for (;;) {
                ssize_t n;

                n = read(fd, (char*) buffer + have, size - have);
                if (n < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        return 0;
                have += n;
                for (done = 0; have - done >= record; done += record)
                        each((char*) buffer + done, userdata);
                memmove(buffer, (char*) buffer + done, have - done);
                have -= done;
        }
}

/* What iterators are asked for, beside what they have written there themselves. */
static int inquiry_set(Probe *p, const unsigned *slots, size_t n, uint64_t address) {
        struct qos_inspect_request inquiry;
        uint32_t zero = 0;
        int r;

        r = bpf_map_lookup_elem(p->map_fds[MAP_INSPECT_REQUESTS], &zero, &inquiry);
        if (r < 0)
                return r;
        memset(inquiry.slots, 0, sizeof(inquiry.slots));
        for (size_t i = 0; i < n; i++)
                inquiry.slots[slots[i] / 64] |= UINT64_C(1) << slots[i] % 64;
        inquiry.address = address;
        return bpf_map_update_elem(p->map_fds[MAP_INSPECT_REQUESTS], &zero, &inquiry, BPF_ANY);
}

/* What is read at a time. */
#define THREADS_AT_A_TIME 128U

typedef struct Handler {
        void (*thread)(const struct qos_thread *t, void *userdata);
        void (*mapping)(const struct qos_mapping *m, void *userdata);
        void *userdata;
} Handler;

static void on_thread_record(const void *record, void *userdata) {
        const Handler *h = userdata;

        h->thread(record, h->userdata);
}

int probe_read_threads(Probe *p, const unsigned *slots, size_t n, void (*handler)(const struct qos_thread *t, void *userdata), void *userdata) {
        Handler h = { .thread = handler, .userdata = userdata };
        _cleanup_free_ struct qos_thread *buffer = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (p->link_fds[PROGRAM_READ_THREADS] < 0)
                return -EOPNOTSUPP;
        buffer = new0(struct qos_thread, THREADS_AT_A_TIME);
        if (!buffer)
                return -ENOMEM;
        r = inquiry_set(p, slots, n, 0);
        if (r < 0)
                return r;
        fd = bpf_iter_create(p->link_fds[PROGRAM_READ_THREADS]);
        if (fd < 0)
                return fd;
        return iterator_read(fd, buffer, THREADS_AT_A_TIME * sizeof(*buffer), sizeof(*buffer), on_thread_record, &h);
}

static void on_mapping_record(const void *record, void *userdata) {
        const Handler *h = userdata;

        h->mapping(record, h->userdata);
}

int probe_read_mappings(Probe *p, pid_t process, uint64_t address, void (*handler)(const struct qos_mapping *m, void *userdata), void *userdata) {
        union bpf_iter_link_info info = { .task.tid = process };
        LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &info, .iter_info_len = sizeof(info));
        Handler h = { .mapping = handler, .userdata = userdata };
        _cleanup_close_ int link = -EBADF, fd = -EBADF;
        struct qos_mapping buffer;
        int r;

        if (p->program_fds[PROGRAM_READ_MAPPINGS] < 0)
                return -EOPNOTSUPP;
        r = inquiry_set(p, NULL, 0, address);
        if (r < 0)
                return r;
        link = bpf_link_create(p->program_fds[PROGRAM_READ_MAPPINGS], 0, BPF_TRACE_ITER, &options);
        if (link < 0)
                return link;
        fd = bpf_iter_create(link);
        if (fd < 0)
                return fd;
        return iterator_read(fd, &buffer, sizeof(buffer), sizeof(buffer), on_mapping_record, &h);
}

int probe_find_faults(Probe *p) {
        return iterator_run(p, PROGRAM_FIND_FAULTS, NULL);
}

int probe_reassign_sockets(Probe *p) {
        /* Connections are made of their listener's entry in interrupts: those that began with the old one have ended */
        (void) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
        return iterator_run(p, PROGRAM_REASSIGN, NULL);
}

static bool address_equal(const struct qos_address *a, const struct qos_address *b) {
        return memcmp(a, b, sizeof(struct qos_address)) == 0;
}

int probe_set_addresses(Probe *p, unsigned slot, uint32_t generation, const struct qos_address *addresses, size_t n) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_address key, next;
        int fd = p->map_fds[MAP_ADDRESSES], r;
        bool more;

        if (!p->started)
                return 0;

        more = bpf_map_get_next_key(fd, NULL, &next) >= 0;
        while (more) {
                struct qos_owner other;
                bool keep = false;

                key = next;
                more = bpf_map_get_next_key(fd, &key, &next) >= 0;
                if (bpf_map_lookup_elem(fd, &key, &other) < 0 || other.slot != slot)
                        continue;
                for (size_t i = 0; i < n; i++)
                        keep = keep || address_equal(addresses + i, &key);
                if (!keep)
                        (void) bpf_map_delete_elem(fd, &key);
        }

        for (size_t i = 0; i < n; i++) {
                r = bpf_map_update_elem(fd, addresses + i, &owner, BPF_ANY);
                if (r < 0)
                        return r;
        }
        return 0;
}

int probe_set_excludes(Probe *p, unsigned slot, uint32_t generation, const ExcludeList *excludes) {
        struct qos_filter filter = { .generation = generation };
        int fd = p->map_fds[MAP_EXCLUDES], r;
        struct qos_exclude key, next;
        bool more, changed = false;

        if (!p->started)
                return 0;

        more = bpf_map_get_next_key(fd, NULL, &next) >= 0;
        while (more) {
                bool keep = false;

                key = next;
                more = bpf_map_get_next_key(fd, &key, &next) >= 0;
                if (key.owner.slot != slot)
                        continue;
                for (size_t i = 0; i < excludes->n; i++)
                        keep = keep || (key.owner.generation == generation && key.kind == excludes->list[i].kind &&
                                        key.name == excludes->list[i].name);
                if (!keep) {
                        (void) bpf_map_delete_elem(fd, &key);
                        changed = changed || key.kind == QOS_EXCLUDE_PORT;
                }
        }

        for (size_t i = 0; i < excludes->n; i++) {
                key = (struct qos_exclude) {
                        .owner = { .slot = slot, .generation = generation },
                        .name = excludes->list[i].name,
                        .kind = excludes->list[i].kind,
                };
                if (key.kind != QOS_EXCLUDE_PORT)
                        filter.names = 1;
                r = bpf_map_update_elem(fd, &key, &(uint8_t) { 1 }, BPF_NOEXIST);
                if (r < 0 && r != -EEXIST)
                        return r;
                changed = changed || (r >= 0 && key.kind == QOS_EXCLUDE_PORT);
        }
        r = bpf_map_update_elem(p->map_fds[MAP_FILTERS], &slot, &filter, BPF_ANY);
        if (r < 0 || !changed)
                return r;

        /* Twice: of the connections that are made during the first time some come from a listener that is not done yet,
         * and may be missed. Those of the second time come from listeners that are */
        r = iterator_run(p, PROGRAM_RETARGET, NULL);
        if (r >= 0)
                r = iterator_run(p, PROGRAM_RETARGET, NULL);
        if (r >= 0)
                r = iterator_run(p, PROGRAM_RETARGET_UDP, NULL);
        return r;
}

int probe_find_activation_sockets(Probe *p, struct qos_activation_socket **ret, size_t *ret_n) {
        _cleanup_free_ struct qos_activation_socket *passed = NULL;
        _cleanup_close_ int fd = -EBADF;
        size_t size = 0, allocated = 0;

        if (p->link_fds[PROGRAM_FIND_ACTIVATED] < 0)
                return -EOPNOTSUPP;

        fd = bpf_iter_create(p->link_fds[PROGRAM_FIND_ACTIVATED]);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t n;

                if (size == allocated) {
                        struct qos_activation_socket *more;

                        allocated += 64 * sizeof(struct qos_activation_socket);
                        more = realloc(passed, allocated);
                        if (!more)
                                return -ENOMEM;
                        passed = more;
                }

                n = read(fd, (char*) passed + size, allocated - size);
                if (n < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                size += n;
        }

        *ret = TAKE_PTR(passed);
        *ret_n = size / sizeof(struct qos_activation_socket);
        return 0;
}

int probe_read_listeners(Probe *p, uint64_t *ret_session) {
        return iterator_run(p, PROGRAM_LISTENERS, ret_session);
}

int probe_read_oldest(Probe *p, uint64_t *ret_session) {
        return iterator_run(p, PROGRAM_OLDEST, ret_session);
}

void probe_reconcile_gauges(Probe *p) {
        (void) iterator_run(p, PROGRAM_GAUGES, NULL);
}

int probe_expire_udp(Probe *p) {
        return iterator_run(p, PROGRAM_UDP_EXPIRE, NULL);
}

int probe_read_gauge(Probe *p, enum qos_gauge gauge, uint64_t *ret_session) {
        static const Program table[QOS_GAUGES] = {
                [QOS_GAUGE_UNIX] = PROGRAM_UNIX_OPEN,
                [QOS_GAUGE_UDP]  = PROGRAM_UDP_OPEN,
        };

        return iterator_run(p, table[gauge], ret_session);
}

bool probe_count_missed(Probe *p) {
        uint64_t n;

        if (!p->started)
                return false;
        n = probe_get_missed(p);
        if (n == p->missed)
                return false;
        p->missed = n;
        if (bpf_map_update_elem(p->map_fds[MAP_STATISTICS], &(uint32_t) { QOS_STATISTIC_RUNS_MISSED }, &n, BPF_ANY) >= 0)
                (void) iterator_run(p, PROGRAM_END_EXPORTS, NULL);
        return true;
}

uint64_t probe_get_lost_groups(Probe *p) {
        uint64_t n = 0;

        if (p->started)
                (void) bpf_map_lookup_elem(p->map_fds[MAP_STATISTICS], &(uint32_t) { QOS_STATISTIC_GROUPS_LOST }, &n);
        return n;
}

/* ---- what it costs -------------------------------------------------------------------------------------------- */

/* The kernel's own account of a map's memory. */
static uint64_t map_get_memory(int fd) {
        _cleanup_fclose_ FILE *f = NULL;
        char path[64], line[128];
        unsigned long long n;

        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%i", fd);
        f = fopen(path, "re");
        if (!f)
                return 0;

        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "memlock: %llu", &n) == 1)
                        return n;
        return 0;
}

static bool statistics_are_enabled(void) {
        _cleanup_fclose_ FILE *f = NULL;

        f = fopen("/proc/sys/kernel/bpf_stats_enabled", "re");
        return f && fgetc(f) == '1';
}

const char* program_state_to_string(ProgramState s) {
        static const char *const table[_PROGRAM_STATE_MAX] = {
                [PROGRAM_IDLE]        = "idle",
                [PROGRAM_ATTACHED]    = "attached",
                [PROGRAM_UNAVAILABLE] = "unavailable",
        };

        return table[s];
}

void probes_info_done(ProbesInfo *i) {
        for (size_t k = 0; k < i->n_programs; k++)
                free(i->programs[k].reason);
        free(i->programs);
        *i = (ProbesInfo) {};
}

int probe_get_info(Probe *p, ProbesInfo *ret) {
        ProbesInfo info = {
                .statistics_enabled = statistics_are_enabled(),
                .map_memory_per_unit = (sizeof(struct qos_unit_map) + 4095) / 4096 * 4096, /* with "requests" alone */
        };
        bool libraries = false;

        for (size_t i = 0; i < p->n_libraries; i++)
                libraries = libraries || p->libraries[i].enter_fd >= 0;

        info.programs = new0(ProgramInfo, _PROGRAM_MAX);
        if (!info.programs)
                return -ENOMEM;
        info.n_programs = _PROGRAM_MAX;

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                ProgramInfo *program = info.programs + i;

                *program = (ProgramInfo) {
                        .name = program_table[i].name,
                        .probe = program_table[i].probe,
                        .hook = program_table[i].hook,
                        .provides = program_table[i].provides,
                        .state = PROGRAM_IDLE,
                        .runs = ABSENT,
                        .run_nsec = ABSENT,
                        .recursion_misses = ABSENT,
                };

                if (p->link_fds[i] >= 0 || p->program_fds[i] >= 0) {
                        struct bpf_prog_info bpf = {};
                        uint32_t size = sizeof(bpf);

                        program->state = PROGRAM_ATTACHED;
                        if (program_table[i].type == HOOK_LIBRARY && !libraries) {
                                program->state = PROGRAM_IDLE;
                                program->reason = strdup(p->library_reason ?: "waits for a process that has OpenSSL's library");
                        } else if (program_table[i].type == HOOK_LIBRARY && p->library_limit < 0 &&
                                   asprintf(&program->reason, "not in all libraries: %s", probe_library_limit_reason(p->library_limit)) < 0)
                                program->reason = NULL;
                        if (bpf_prog_get_info_by_fd(p->program_fds[i], &bpf, &size) >= 0) {
                                program->recursion_misses = bpf.recursion_misses;
                                if (bpf.run_cnt > 0) {
                                        program->runs = bpf.run_cnt;
                                        program->run_nsec = bpf.run_time_ns;
                                }
                        }
                } else if (p->failure || p->reasons[i]) {
                        program->state = PROGRAM_UNAVAILABLE;
                        program->reason = strdup(p->reasons[i] ?: p->failure);
                }
        }

        for (Map i = 0; i < _MAP_MAX; i++)
                if (p->map_fds[i] >= 0) {
                        struct bpf_map_info map = {};
                        uint32_t size = sizeof(map);

                        info.map_memory += map_get_memory(p->map_fds[i]);
                        if ((i == MAP_CONNS || i == MAP_PIPELINES) && bpf_map_get_info_by_fd(p->map_fds[i], &map, &size) >= 0)
                                info.memory_per_socket += map.value_size;
                }
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                const int fds[] = { p->unit_fds[i], p->contention_fds[i], p->shards_fds[i] };

                for (size_t k = 0; k < ELEMENTSOF(fds); k++)
                        if (fds[k] >= 0)
                                info.map_memory += map_get_memory(fds[k]);
        }
        if (p->machine_fd >= 0)
                info.map_memory += map_get_memory(p->machine_fd);

        if (p->map_fds[MAP_STATISTICS] >= 0)
                for (uint32_t i = 0; i < QOS_STATISTICS; i++) {
                        uint64_t n = 0;

                        if (bpf_map_lookup_elem(p->map_fds[MAP_STATISTICS], &i, &n) >= 0)
                                info.drops += n;
                }

        *ret = info;
        return 0;
}

/* ---- over a restart ------------------------------------------------------------------------------------------- */

static bool take_unit_fd(const char *name, const char *kind, int fd, int *fds) {
        const char *rest = startswith(name, kind);
        unsigned long slot;
        char *end;

        if (!rest)
                return false;
        slot = strtoul(rest, &end, 10);
        if (end == rest || *end != 0 || slot >= UNITS_MAX_LIMIT || fds[slot] >= 0)
                return false;
        fds[slot] = fd;
        return true;
}

bool probe_take_fd(Probe *p, const char *name, int fd) {
        const char *rest;

        rest = startswith(name, "map-");
        if (rest)
                for (Map i = 0; i < _MAP_MAX; i++)
                        if (streq(rest, map_table[i]) && p->map_fds[i] < 0) {
                                p->map_fds[i] = fd;
                                return true;
                        }

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                rest = startswith(name, "prog-");
                if (rest && streq(rest, program_table[i].name) && p->program_fds[i] < 0) {
                        p->program_fds[i] = fd;
                        return true;
                }
                rest = startswith(name, "link-");
                if (rest && streq(rest, program_table[i].name) && p->link_fds[i] < 0) {
                        p->link_fds[i] = fd;
                        return true;
                }
        }

        if (startswith(name, "library-")) {
                unsigned long long inode;
                char which[6];
                unsigned device, owner;
                Library *l;
                int *place;

                if (sscanf(name, "library-%5[a-z]-%x-%llx-%x", which, &device, &inode, &owner) != 4)
                        return false;
                l = library_get(p, device, inode, /* make= */ true);
                if (l)
                        l->owner = owner;
                place = !l ? NULL : streq(which, "enter") ? &l->enter_fd : streq(which, "leave") ? &l->leave_fd : NULL;
                if (!place || *place >= 0)
                        return false;
                *place = fd;
                return true;
        }

        return take_unit_fd(name, "unit-", fd, p->unit_fds) ||
                take_unit_fd(name, "contention-", fd, p->contention_fds) ||
                take_unit_fd(name, "shards-", fd, p->shards_fds);
}

int probe_adopt(Probe *p, bool discard) {
        bool found = false;
        int r = 0;

        for (Map i = 0; i < _MAP_MAX; i++)
                found = found || p->map_fds[i] >= 0;
        for (Program i = 0; i < _PROGRAM_MAX; i++)
                found = found || p->program_fds[i] >= 0 || p->link_fds[i] >= 0;
        found = found || p->n_libraries > 0;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                found = found || p->unit_fds[i] >= 0 || p->contention_fds[i] >= 0 || p->shards_fds[i] >= 0;
        if (!found)
                return -ENOENT;

        if (!discard) {
                for (Map i = 0; i < _MAP_MAX; i++)
                        if (p->map_fds[i] < 0)
                                discard = true;

                for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                        if ((p->link_fds[i] >= 0) != (p->program_fds[i] >= 0))
                                discard = true;
                        else if (p->link_fds[i] < 0 && !p->reasons[i])
                                p->reasons[i] = strdup("was not available when the programs were loaded");
                r = discard ? -ESTALE : 0;
        }

        if (discard) {
                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        if (p->unit_fds[i] >= 0)
                                store_drop_unit("unit", i);
                        store_drop_contention(p, i);
                }
                store_drop_all(p);
                probe_close(p);
                return r;
        }

        /* Half of it does harm */
        for (unsigned g = 1; g < ELEMENTSOF(group_table); g++)
                for (Program i = group_table[g].first; i < group_table[g].end; i++)
                        if (program_has_link(i) && (p->link_fds[i] >= 0) != (p->program_fds[i] >= 0)) {
                                probe_unload_group(p, 1U << g);
                                break;
                        }
        if (p->link_fds[PROGRAM_OPENSSL_EGRESS] < 0)
                probe_unload_group(p, PROBE_TLS);
        for (size_t i = 0; i < p->n_libraries; )
                if (p->libraries[i].enter_fd >= 0 && p->libraries[i].leave_fd >= 0)
                        i++;
                else
                        library_drop(p, i);

        p->started = true;
        return 0;
}

int probe_adopt_unit(Probe *p, unsigned slot, uint32_t generation, const struct qos_unit_map **ret_view) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->unit_fds[slot] < 0)
                return -ENOENT;

        if (!p->views[slot]) {
                r = unit_map_view(p->unit_fds[slot], &p->views[slot]);
                if (r < 0)
                        return r;
        }
        if (p->views[slot]->generation != generation)
                return -ESTALE;

        *ret_view = p->views[slot];
        return 0;
}
