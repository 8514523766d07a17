/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "check.h"
#include "fake-probe.h"
#include "probe-custom.h"
#include "probe.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() 0U
#define window_now() now_nsec(CLOCK_MONOTONIC)
#define WINDOW_WAITS UINT32_MAX
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })
#include "window-record.h"

struct Probe {
        sd_event *event;
        bool started;
};

struct ProbeStart {
        Probe *probe;
        sd_event_source *done;
        probe_start_handler_t handler;
        void *userdata;
};

static struct qos_unit_map *maps[UNITS_MAX_LIMIT];

void fake_requests(unsigned slot, unsigned n, uint64_t nsec) {
        struct qos_unit_map *u = maps[slot];

        check(u);
        window_advance(u, now_nsec(CLOCK_MONOTONIC));
        window_count(u, QOS_COUNTER_COUNT, n);
        window_add(u, QOS_FIRST_BYTE, nsec, n);
}

void fake_in_flight(unsigned slot, int n) {
        struct qos_unit_map *u = maps[slot];

        check(u);
        window_advance(u, now_nsec(CLOCK_MONOTONIC));
        window_add_in_flight(u, n);
}

void fake_peer_requests(unsigned slot, const struct qos_address *peer, unsigned n, uint64_t nsec) {
        struct qos_unit_map *u = maps[slot];
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        struct qos_peer_entry *row;
        int number;

        check(u);
        window_advance(u, now);
        number = entry_find(u, peer, QOS_ENTRY_PEER);
        check(number > 0);
        row = entry_get(u, (unsigned) number);
        entry_count(row, QOS_ENTRY_COUNT, n);
        row_add(row, now / QOS_EPOCH_NSEC, nsec, n);
}

unsigned fake_count_maps(void) {
        unsigned n = 0;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                n += maps[i] != NULL;
        return n;
}

/* ---- what the daemon needs of it ---------------------------------------------------------------------- */

int probe_new(sd_event *event, Probe **ret) {
        *ret = new0(Probe, 1);
        if (!*ret)
                return -ENOMEM;
        (*ret)->event = event;
        return 0;
}

/* The maps stay for the next one, as in the descriptor store. */
Probe* probe_free(Probe *p) {
        free(p);
        return NULL;
}

int probe_start(Probe *p) {
        p->started = true;
        return 0;
}

static int on_started(sd_event_source *source, void *userdata) {
        ProbeStart *s = userdata;

        s->probe->started = true;
        s->handler(0, s->userdata); /* frees it */
        return 0;
}

int probe_start_new(Probe *p, probe_start_handler_t handler, void *userdata, ProbeStart **ret) {
        ProbeStart *s = new0(ProbeStart, 1);

        check(s);
        *s = (ProbeStart) { .probe = p, .handler = handler, .userdata = userdata };
        check(sd_event_add_defer(p->event, &s->done, on_started, s) >= 0);
        *ret = s;
        return 0;
}

ProbeStart* probe_start_free(ProbeStart *s) {
        if (s)
                sd_event_source_unref(s->done);
        free(s);
        return NULL;
}

void probe_stop(Probe *p) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                probe_remove_unit(p, i);
        p->started = false;
}

bool probe_is_started(Probe *p) {
        return p->started;
}

Bitmap probe_get_programs(Probe *p) {
        Bitmap b = {};

        for (Program i = 0; p->started && i < _PROGRAM_REQUESTS_MAX; i++)
                bitmap_add(&b, i);
        return b;
}

int probe_add_unit(Probe *p, unsigned slot, uint32_t generation, uint64_t now,
                   const struct qos_unit_map **ret_view) {
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);

        check(p->started);
        if (!u)
                return -ENOMEM;
        u->generation = generation;
        u->epoch = now / QOS_EPOCH_NSEC;
        u->epoch_end = (u->epoch + 1) * QOS_EPOCH_NSEC;
        probe_remove_unit(p, slot);
        *ret_view = maps[slot] = u;
        return 0;
}

void probe_remove_unit(Probe *p, unsigned slot) {
        free(maps[slot]);
        maps[slot] = NULL;
}

bool probe_has_unit(const Probe *p, unsigned slot) {
        return maps[slot] != NULL;
}

const char* probe_get_checksum(void) {
        return "0123456789abcdef";
}

const char* probe_get_failure(Probe *p) {
        return NULL;
}

const char* probe_group_failure(Probe *p, ProbeMask probe) {
        return "it is not in the stand-in";
}

const char* probe_library_limit_reason(int limit) {
        return NULL;
}

const char* program_state_to_string(ProgramState s) {
        return NULL;
}

const struct qos_block_use* block_users_find(const BlockUser *users, size_t n,
                                             const struct qos_block_user *user) {
        return NULL;
}

uint64_t probe_get_lost_groups(Probe *p) {
        return 0;
}

void probe_count_missed(Probe *p) {}

int probe_get_info(Probe *p, ProbesInfo *ret) {
        *ret = (ProbesInfo) {};
        return 0;
}

int probe_get_program_info(Probe *p, ProbesInfo *ret) {
        return probe_get_info(p, ret);
}

bool probe_take_fd(Probe *p, const char *name, int fd) {
        return false;
}

int probe_adopt(Probe *p, bool discard) {
        if (discard)
                probe_stop(p);
        p->started = fake_count_maps() > 0;
        return p->started ? 0 : -ENOENT;
}

int probe_adopt_unit(Probe *p, unsigned slot, uint32_t generation, const struct qos_unit_map **ret_view) {
        if (!maps[slot] || maps[slot]->generation != generation)
                return -ENOENT;
        *ret_view = maps[slot];
        return 0;
}

ReadCheckResult probe_get_read_check(Probe *p, unsigned slot, uint32_t generation) {
        return READS_SEEN;
}

bool probe_unit_uses_unix(Probe *p, unsigned slot, uint32_t generation) {
        return false;
}

/* Never readable */
int probe_get_read_events_fd(Probe *p) {
        static int fd = -EBADF;

        if (fd < 0)
                fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
        return fd < 0 ? -errno : fd;
}

/* Succeeds without an effect: the first argument is always the probe. */
#define NOTHING(name, ...) void name(Probe *p, ##__VA_ARGS__) {}
#define SUCCESS(name, ...) int name(Probe *p, ##__VA_ARGS__) { return 0; }
#define REFUSAL(name, ...) int name(Probe *p, ##__VA_ARGS__) { return -EOPNOTSUPP; }

NOTHING(probe_unload_group, ProbeMask probe)
NOTHING(probe_unassign_cgroup, int fd)
NOTHING(probe_unassign_path, const char *path)
NOTHING(probe_set_hierarchy, unsigned slot, const struct qos_hierarchy *hierarchy)
NOTHING(probe_remove_contention, unsigned slot)
NOTHING(probe_remove_machine)
NOTHING(probe_read_moves)
NOTHING(probe_drain_read_events)
NOTHING(probe_forget_unix_use, unsigned slot)
NOTHING(probe_remove_storage, unsigned slot)
NOTHING(probe_remove_network, unsigned slot)
NOTHING(probe_set_config, unsigned slot, uint32_t generation, ProbeMask probes, uint32_t slow_usec)
NOTHING(probe_begin_libraries)
NOTHING(probe_end_libraries)
NOTHING(probe_read_missing_libraries, void (*handler)(const struct qos_owner *owner, void *userdata),
        void *userdata)
NOTHING(probe_reconcile_gauges)

SUCCESS(probe_watch_reads, bool wanted)
SUCCESS(probe_watch_unix, bool wanted)
SUCCESS(probe_find_unix)
SUCCESS(probe_assign_cgroup, int fd, unsigned slot, uint32_t generation)
SUCCESS(probe_assign_path, const char *path, unsigned slot, uint32_t generation)
SUCCESS(probe_find_sockets)
SUCCESS(probe_reassign_sockets)
SUCCESS(probe_set_addresses, unsigned slot, uint32_t generation, const struct qos_address *addresses,
        size_t n)
SUCCESS(probe_set_excludes, unsigned slot, uint32_t generation, const ExcludeList *excludes)
SUCCESS(probe_end_export, unsigned slot)
SUCCESS(probe_expire_udp)

REFUSAL(probe_load_group, ProbeMask probe)
REFUSAL(probe_get_unit_fd, unsigned slot)
REFUSAL(probe_get_group_owner, int fd, struct qos_owner *ret)
REFUSAL(probe_find_activation_sockets, struct qos_activation_socket **ret, size_t *ret_n)
REFUSAL(probe_add_contention, unsigned slot, uint32_t generation, const ContentionBegin *begin,
        const struct qos_contention_map **ret_contention, const struct qos_contention_cpu **ret_shards)
REFUSAL(probe_adopt_contention, unsigned slot, uint32_t generation,
        const struct qos_contention_map **ret_contention, const struct qos_contention_cpu **ret_shards)
REFUSAL(probe_find_threads)
REFUSAL(probe_open_threads)
REFUSAL(probe_read_threads, int fd, const unsigned *slots, size_t n,
        void (*handler)(const struct qos_thread *t, void *userdata), void *userdata)
REFUSAL(probe_read_mappings, pid_t process, uint64_t address,
        void (*handler)(const struct qos_mapping *m, void *userdata), void *userdata)
REFUSAL(probe_find_faults)
REFUSAL(probe_add_machine, uint32_t contention, uint64_t now, const struct qos_contention_map **ret)
REFUSAL(probe_get_devices, struct qos_block_devices *ret)
REFUSAL(probe_get_block_users, BlockUser **ret, size_t *ret_n)
REFUSAL(probe_get_moves_fd)
REFUSAL(probe_add_storage, unsigned slot, uint32_t generation, uint32_t storage, uint64_t now,
        const union qos_storage_element **ret)
REFUSAL(probe_adopt_storage, unsigned slot, uint32_t generation, const union qos_storage_element **ret)
REFUSAL(probe_find_storage_calls, uint64_t *ret_session)
REFUSAL(probe_find_flows)
REFUSAL(probe_open_connections)
REFUSAL(probe_read_connections, int fd, const unsigned *slots, size_t n,
        void (*handler)(const struct qos_connection *c, void *userdata), void *userdata)
REFUSAL(probe_read_stamps, uint64_t until, struct qos_stamp_ring *ret)
REFUSAL(probe_set_network_clock, const struct qos_network_clock *clock)
REFUSAL(probe_add_network, unsigned slot, uint32_t generation, uint32_t network, uint64_t now,
        const union qos_network_element **ret)
REFUSAL(probe_get_drop_names, const char *ret[static QOS_DROP_ROWS - 1])
REFUSAL(probe_adopt_network, unsigned slot, uint32_t generation, const union qos_network_element **ret)
REFUSAL(probe_add_libraries, pid_t process, int *limit)
REFUSAL(probe_get_missing_libraries_fd)
REFUSAL(probe_read_listeners, uint64_t *ret_session)
REFUSAL(probe_read_oldest, uint64_t *ret_session)
REFUSAL(probe_count_sends)
REFUSAL(probe_read_gauge, enum qos_gauge gauge, uint64_t *ret_session)

void probes_info_done(ProbesInfo *i) {
        free(i->programs);
        *i = (ProbesInfo) {};
}

int custom_get_manifest(const Probe *p, unsigned index) {
        return -ENOENT;
}

CustomObject* custom_object_adopt(Probe *p, unsigned index, uint32_t elements) {
        return NULL;
}

void custom_discard(Probe *p, unsigned index) {}
