/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Reasons for which the kernel discards packets, as its types name them. */

#include <bpf/bpf.h>
#include <bpf/btf.h>

#include "probe-internal.h"

/* Nothing is lost: the kernel has the data already, or the segment has none that anybody waits for, or (of
 * NOT_SPECIFIED) drivers free packets that way after they have sent them. docs/METRICS.md has the same list
 * with the reasons. */
static const char *const not_lost[] = {
        "SKB_NOT_DROPPED_YET",
        "SKB_CONSUMED",
        "SKB_DROP_REASON_NOT_SPECIFIED",
        "SKB_DROP_REASON_TCP_OLD_DATA",
        "SKB_DROP_REASON_TCP_OFOMERGE",
        "SKB_DROP_REASON_TCP_OFO_DROP",
        "SKB_DROP_REASON_TCP_OLD_SEQUENCE",
        "SKB_DROP_REASON_TCP_OLD_ACK",
        "SKB_DROP_REASON_TCP_TOO_OLD_ACK",
        "SKB_DROP_REASON_TCP_RFC7323_PAWS_ACK",
        "SKB_DROP_REASON_TCP_RESET",
        "SKB_DROP_REASON_TCP_CLOSE",
        "SKB_DROP_REASON_QUEUE_PURGE",
        "SKB_DROP_REASON_DUP_FRAG",
};

#define PREFIX "SKB_DROP_REASON_"

static const struct btf_type* find_reasons(const struct btf *btf) {
        int id = btf__find_by_name_kind(btf, "skb_drop_reason", BTF_KIND_ENUM);

        return id < 0 ? NULL : btf__type_by_id(btf, (uint32_t) id);
}

/* Number of arguments of a tracepoint; 0: unknown. */
static unsigned tracepoint_arguments(const struct btf *btf, const char *type) {
        int id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
        const struct btf_type *t = id < 0 ? NULL : btf__type_by_id(btf, (uint32_t) id);

        if (t)
                t = btf__type_by_id(btf, t->type);
        if (t && btf_is_ptr(t))
                t = btf__type_by_id(btf, t->type);
        /* The first one is of the mechanism */
        return t && btf_is_func_proto(t) && btf_vlen(t) > 0 ? btf_vlen(t) - 1U : 0;
}

int drops_set_up(__u64 ret_not_lost[static QOS_DROP_REASONS / 64], bool *ret_have_receiver) {
        struct btf *btf = btf__load_vmlinux_btf();
        const struct btf_type *t;

        if (!btf)
                return errno_or_else(ENOENT);
        *ret_have_receiver = tracepoint_arguments(btf, "btf_trace_kfree_skb") >= 4;
        t = find_reasons(btf);
        for (unsigned i = 0; t && i < btf_vlen(t); i++) {
                const struct btf_enum *e = btf_enum(t) + i;
                const char *name = btf__name_by_offset(btf, e->name_off);
                uint32_t reason = (uint32_t) e->val;

                for (size_t k = 0; k < ELEMENTSOF(not_lost); k++)
                        if (streq_ptr(name, not_lost[k]) && reason < QOS_DROP_REASONS)
                                ret_not_lost[reason / 64] |= UINT64_C(1) << reason % 64;
        }
        btf__free(btf);
        return 0;
}

/* Names of the rows in use. The kernel's types take some milliseconds to read: only for a new row. */
static int drop_names_update(Probe *p, const struct qos_drop_reasons *rows) {
        struct btf *btf = btf__load_vmlinux_btf();
        const struct btf_type *t;

        if (!btf)
                return errno_or_else(ENOENT);
        t = find_reasons(btf);
        for (unsigned row = 0; row < QOS_DROP_ROWS - 1; row++) {
                /* Of a subsystem, which has no names */
                (void) snprintf(p->drop_names[row], DROP_NAME_SIZE, "%u", rows->reasons[row]);
                for (unsigned i = 0; t && i < btf_vlen(t); i++) {
                        const struct btf_enum *e = btf_enum(t) + i;
                        const char *name = btf__name_by_offset(btf, e->name_off);

                        const char *rest = startswith(name, PREFIX);

                        if ((uint32_t) e->val == rows->reasons[row] && rest)
                                (void) snprintf(p->drop_names[row], DROP_NAME_SIZE, "%.*s",
                                                (int) DROP_NAME_SIZE - 1, rest);
                }
        }
        p->drop_rows = *rows;
        btf__free(btf);
        return 0;
}

int probe_get_drop_names(Probe *p, const char *ret[static QOS_DROP_ROWS - 1]) {
        struct qos_drop_reasons rows;
        uint32_t zero = 0;
        int r;

        if (!p->started)
                return -ENODATA;
        r = bpf_map_lookup_elem(p->map_fds[MAP_DROP_REASONS], &zero, &rows);
        if (r >= 0 && memcmp(&rows, &p->drop_rows, sizeof(rows)) != 0)
                r = drop_names_update(p, &rows);
        if (r < 0)
                return r;
        for (unsigned row = 0; row < QOS_DROP_ROWS - 1; row++)
                ret[row] = p->drop_names[row];
        return 0;
}
