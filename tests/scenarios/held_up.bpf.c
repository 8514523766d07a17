// SPDX-License-Identifier: GPL-2.0-or-later

/* Holds up tasks that are called "held-up" between what they have queued at a socket and the moment at which
 * anybody hears of that, for up to an eighth of a millisecond: programs run in the order in which they were
 * attached. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

static long wait(__u32 i, void *end) {
        return bpf_ktime_get_ns() >= *(__u64*) end;
}

SEC("tp_btf/sk_data_ready")
int held_up(void *ctx) {
        static const char name[] = "held-up";
        char comm[16];
        __u64 end;

        bpf_get_current_comm(comm, sizeof(comm));
        for (unsigned i = 0; i < sizeof(name); i++)
                if (comm[i] != name[i])
                        return 0;
        end = bpf_ktime_get_ns() + (bpf_get_prandom_u32() & 0x1ffff);
        bpf_loop(1U << 20, wait, &end, 0);
        return 0;
}
