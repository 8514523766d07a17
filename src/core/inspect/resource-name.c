/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdio.h>
#include <sys/socket.h>

#include "hierarchy.h"
#include "manager.h"
#include "parse.h"
#include "peers.h"
#include "resource-name.h"
#include "unit-name.h"

static void wait_target_get(const struct qos_wait_target *row, Row *ret) {
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
        const struct qos_resource *r = &row->resource;

        *ret = (Row) { .kind = ROW_PEER, .family = r->family, .port = r->port };
        memcpy(ret->address, r->address, sizeof(ret->address));
        if (r->family == AF_INET6 && memcmp(ret->address, mapped, sizeof(mapped)) == 0) {
                memmove(ret->address, ret->address + sizeof(mapped), 4);
                memset(ret->address + 4, 0, 12);
                ret->family = AF_INET;
        }
        if (r->family == AF_UNIX && row->name[0] > 0) {
                size_t n = MIN((size_t) row->name[0], sizeof(ret->path) - 1);

                /* An abstract name begins with 0, by convention written as "@" */
                memcpy(ret->path, row->name + 1, n);
                if (ret->path[0] == 0)
                        ret->path[0] = '@';
                utf8_sanitize(ret->path);
        }
}

void resource_format_lock(const struct qos_wait_target *row, char *ret, size_t size) {
        char name[QOS_RESOURCE_NAME_SIZE];

        memcpy(name, row->name, sizeof(name));
        name[sizeof(name) - 1] = 0;
        (void) snprintf(ret, size, row->resource.kind == QOS_RESOURCE_KERNEL_CALL ? "lock in %s()" : "%s",
                        isempty(name) ? "?" : name);
}

static const char *const kind_table[QOS_RESOURCE_KINDS] = {
        [QOS_RESOURCE_FUTEX]  = "futex",
        [QOS_RESOURCE_SOCKET] = "socket",
        [QOS_RESOURCE_PIPE]   = "pipe",
        [QOS_RESOURCE_EPOLL]  = "epoll",
        [QOS_RESOURCE_FILE]   = "file",
        [QOS_RESOURCE_KERNEL_LOCK] = "kernel",
        [QOS_RESOURCE_KERNEL_CALL] = "kernel",
        [QOS_RESOURCE_CPU]    = "cpu",
};

/* Inode number of the root of cgroupfs, which has no name. In a container it is the host's root. */
#define CGROUP_ROOT_ID 1U

const char* resource_format_cpu(const Unit *u, const struct qos_wait_target *row, CgroupNames *groups,
                                char *ret, size_t size) {
        char known[sizeof(row->name)];
        const char *unit;

        if (row->resource.id == QOS_GROUP_IDLE || row->resource.id == QOS_GROUP_KERNEL) {
                (void) snprintf(ret, size, "%s", row->resource.id == QOS_GROUP_IDLE ? "a CPU that slept" :
                                "the kernel");
                return NULL;
        }
        unit = cgroup_names_get(groups, u->manager, row->resource.id);
        memcpy(known, row->name, sizeof(known));
        known[sizeof(known) - 1] = 0;
        if (unit || known[0])
                (void) snprintf(ret, size, "%s", unit ?: known);
        else if (row->resource.id == CGROUP_ROOT_ID)
                (void) snprintf(ret, size, "the root control group");
        else
                (void) snprintf(ret, size, "another control group (%llu)",
                                (unsigned long long) row->resource.id);
        utf8_sanitize(ret);
        /* The programs have recorded the name, which is used for units that have ended, and beyond the limit
         * of lookups */
        for (size_t i = 0; !unit && !startswith(known, "../") && unit_observed_suffixes[i]; i++)
                if (endswith(known, unit_observed_suffixes[i]))
                        unit = ret;
        return unit;
}

const char* resource_describe(const Unit *u, const WaitTarget *resource, CgroupNames *groups,
                                     char *name, char *address, const char **ret_unit) {
        const struct qos_wait_target *row = &resource->row;
        const struct qos_resource *r = &row->resource;
        char file[QOS_RESOURCE_NAME_SIZE], buffer[ADDRESS_STRING_MAX];
        const char *kind = r->kind < QOS_RESOURCE_KINDS ? kind_table[r->kind] : NULL;
        Row peer;

        memcpy(file, row->name, sizeof(file));
        file[sizeof(file) - 1] = 0;
        utf8_sanitize(file);
        *ret_unit = NULL;
        address[0] = 0;

        switch (r->kind) {

        case QOS_RESOURCE_FUTEX:
                (void) snprintf(address, RESOURCE_NAME_SIZE, "0x%llx", (unsigned long long) r->id);
                (void) snprintf(name, RESOURCE_NAME_SIZE, "%s", resource->name ?: address);
                break;

        case QOS_RESOURCE_SOCKET:
                wait_target_get(row, &peer);
                if (r->family != AF_INET && r->family != AF_INET6 &&
                    (r->family != AF_UNIX || isempty(peer.path))) {
                        /* The id of a Unix socket without a recorded name is an address in the kernel */
                        if (r->family == AF_UNIX && r->side != QOS_SIDE_NONE)
                                (void) snprintf(name, RESOURCE_NAME_SIZE, "socket");
                        else
                                (void) snprintf(name, RESOURCE_NAME_SIZE, "socket:[%llu]",
                                                (unsigned long long) r->id);
                        break;
                }
                if (r->side == QOS_SIDE_LISTENS && r->family != AF_UNIX)
                        peer.family = AF_INET; /* "*:80" */
                (void) snprintf(address, RESOURCE_NAME_SIZE, "%s", row_format_address(&peer, buffer));
                if (r->side == QOS_SIDE_LISTENS)
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "clients of %s", address);
                else {
                        *ret_unit = peer.family != AF_UNIX ? unit_find_listening(u, &peer) : NULL;
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "%s", *ret_unit ?: address);
                }
                break;

        case QOS_RESOURCE_PIPE:
                if (isempty(file))
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "pipe:[%llu]", (unsigned long long) r->id);
                else
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "%s", file);
                break;

        case QOS_RESOURCE_EPOLL:
                if (streq(file, "[eventpoll]"))
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "descriptor %u of process %u", row->fd,
                                        row->process);
                else {
                        kind = "file";
                        (void) snprintf(name, RESOURCE_NAME_SIZE, "%s, descriptor %u of process %u", file,
                                        row->fd, row->process);
                }
                break;

        case QOS_RESOURCE_KERNEL_LOCK:
        case QOS_RESOURCE_KERNEL_CALL:
                resource_format_lock(row, name, RESOURCE_NAME_SIZE);
                break;

        case QOS_RESOURCE_CPU:
                *ret_unit = resource_format_cpu(u, row, groups, name, RESOURCE_NAME_SIZE);
                break;

        default:
                (void) snprintf(name, RESOURCE_NAME_SIZE, "%s", file);
                (void) snprintf(address, RESOURCE_NAME_SIZE, "%u:%u inode %llu", r->device >> 20,
                                r->device & 0xfffff, (unsigned long long) r->id);
        }
        utf8_sanitize(name);
        utf8_sanitize(address);
        return kind;
}
