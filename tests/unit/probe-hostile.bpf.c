/* SPDX-License-Identifier: GPL-2.0-or-later */

/* Object files that a custom probe may not have, each with one reason: -DHOSTILE_… */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#if defined(HOSTILE_SIGNAL)
/* In a function that nothing calls unless a map says so, and in no program */
static __attribute__((noinline)) int act(int x) {
        return x > 1000 ? (int) bpf_send_signal(9) : 0;
}
#elif defined(HOSTILE_CALLBACK)
static int each(unsigned i, void *ctx) {
        return (int) bpf_send_signal(9);
}

static __always_inline int act(int x) {
        return (int) bpf_loop(1, each, (void*) 0, 0);
}
#elif defined(HOSTILE_WRITE)
static __always_inline int act(int x) {
        return (int) bpf_probe_write_user((void*) 4096, &x, sizeof(x));
}
#elif defined(HOSTILE_OVERRIDE)
static __always_inline int act(int x) {
        return (int) bpf_override_return((void*) 0, (__u64) x);
}
#elif defined(HOSTILE_FUNCTION)
extern void bpf_rcu_read_lock(void) __ksym;

static __always_inline int act(int x) {
        bpf_rcu_read_lock();
        return x;
}
#elif defined(HOSTILE_MAP)
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 1 << 20);
        __type(key, __u32);
        __type(value, __u64);
} large SEC(".maps");

static __always_inline int act(int x) {
        return !!bpf_map_lookup_elem(&large, &x);
}
#elif defined(HOSTILE_TAIL)
struct {
        __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, __u32);
} next SEC(".maps");

static __always_inline int act(int x) {
        (void) next;
        return x;
}
#else
static __always_inline int act(int x) {
        return x;
}
#endif

#if defined(HOSTILE_TYPE)
SEC("lsm/file_open")
#else
SEC("raw_tp/sched_process_exec")
#endif
int on_exec(void *ctx) {
        return act((int) bpf_get_smp_processor_id());
}

char LICENSE[] SEC("license") = "GPL";
