/* SPDX-License-Identifier: GPL-2.0-or-later */

/* Looks up the owner of the current task's control group while its CPU changes the storage of a control
 * group. */

#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

struct qos_owner found = {};

SEC("fentry/bpf_local_storage_update")
int BPF_PROG(owner_find) {
        struct qos_owner owner = {};

        if (task_owner(&owner))
                found = owner;
        return 0;
}
