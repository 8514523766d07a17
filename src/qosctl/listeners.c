/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Finds units of this host with TCP listeners. qosd cannot do so, as it has a network namespace of its own
 * (PrivateNetwork=). */

#include <ftw.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "terminal.h"
#include "unit-names.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
/* TCP_LISTEN: the header that defines it conflicts with the kernel's. */
#define STATE_LISTEN 10
/* More do not fit on a screen. */
#define GROUPS_MAX 4096U
/* Directories that nftw() keeps open. */
#define OPEN_MAX 16

/* nftw() has no userdata. */
static uint64_t groups[GROUPS_MAX];
static size_t n_groups;
static Names *found;

static int add_group(uint64_t id) {
        for (size_t i = 0; i < n_groups; i++)
                if (groups[i] == id)
                        return 0;

        if (n_groups >= GROUPS_MAX)
                return -E2BIG;
        groups[n_groups++] = id;
        return 1;
}

static int read_dump(int fd) {
        /* Maximum size of netlink messages */
        static char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));

        for (;;) {
                ssize_t l = recv(fd, buf, sizeof(buf), 0);

                if (l < 0 && errno == EINTR)
                        continue;
                if (l < 0)
                        return -errno;

                for (struct nlmsghdr *h = (struct nlmsghdr*) buf; NLMSG_OK(h, (size_t) l); h = NLMSG_NEXT(h, l)) {
                        struct inet_diag_msg *m = NLMSG_DATA(h);
                        struct rtattr *a = (struct rtattr*) (m + 1);
                        size_t rest;

                        if (h->nlmsg_type == NLMSG_DONE)
                                return 0;
                        if (h->nlmsg_type == NLMSG_ERROR)
                                return h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) ?
                                        ((struct nlmsgerr*) NLMSG_DATA(h))->error : -EBADMSG;
                        if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
                                return -EBADMSG;

                        rest = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
                        for (; RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
                                uint64_t id;

                                if (a->rta_type != INET_DIAG_CGROUP_ID || RTA_PAYLOAD(a) != sizeof(id))
                                        continue;
                                memcpy(&id, RTA_DATA(a), sizeof(id));
                                if (add_group(id) < 0)
                                        return -E2BIG;
                        }
                }
        }
}

static int find_groups(void) {
        static const uint8_t families[] = { AF_INET, AF_INET6 };

        for (size_t i = 0; i < ELEMENTSOF(families); i++) {
                struct {
                        struct nlmsghdr header;
                        struct inet_diag_req_v2 request;
                } message = {
                        .header.nlmsg_len = sizeof(message),
                        .header.nlmsg_type = SOCK_DIAG_BY_FAMILY,
                        .header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                        .request.sdiag_family = families[i],
                        .request.sdiag_protocol = IPPROTO_TCP,
                        .request.idiag_states = 1U << STATE_LISTEN,
                };
                _cleanup_close_ int fd = -EBADF;
                int r;

                fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
                if (fd < 0)
                        return -errno;
                if (send(fd, &message, sizeof(message), 0) < 0)
                        return -errno;
                r = read_dump(fd);
                /* Kernel without IPv6 */
                if (r < 0 && !(families[i] == AF_INET6 && r == -ENOENT))
                        return r;
        }

        return 0;
}

/* Unit of a control group: the first path component that is not a slice. NULL: none. */
static char* unit_of_group(const char *path) {
        static const char *const suffixes[] = { ".service", ".scope", ".socket" };

        for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
                size_t l = strcspn(path, "/");
                _cleanup_free_ char *name = NULL;

                /* The service manager escapes names that are reserved by the kernel with "_" */
                name = strndup(path + (*path == '_'), l - (*path == '_'));
                if (!name)
                        return NULL;
                path += l;

                if (endswith(name, ".slice"))
                        continue;
                for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                        if (endswith(name, suffixes[i]))
                                return TAKE_PTR(name);
                return NULL;
        }

        return NULL;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        _cleanup_free_ char *unit = NULL;

        if (type != FTW_D)
                return 0;

        for (size_t i = 0; i < n_groups; i++)
                if (groups[i] == st->st_ino) {
                        unit = unit_of_group(path + strlen(CGROUP_ROOT));
                        /* A socket opened by the service manager does not identify the service */
                        if (unit && !streq(unit, "init.scope"))
                                return names_add(found, unit) < 0 ? -1 : 0;
                        return 0;
                }

        return 0;
}

int names_find_listening(Names *ret) {
        int r;

        n_groups = 0;
        found = ret;

        r = find_groups();
        if (r < 0)
                return log_failure(r, "Failed to find listening sockets: %m");

        /* Ids of control groups are inode numbers of their directories */
        if (nftw(CGROUP_ROOT, visit, OPEN_MAX, FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
                return log_failure(errno_or_else(EIO), "Failed to read " CGROUP_ROOT ": %m");

        return 0;
}
