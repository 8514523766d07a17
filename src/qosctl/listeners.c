/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Finds units of this host by their listening sockets. qosd cannot do this, as its network namespace is
 * private (PrivateNetwork=). */

#include <arpa/inet.h>
#include <dirent.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "terminal.h"
#include "unit-name.h"
#include "unit-names.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
/* TCP_LISTEN, as the header that defines it conflicts with the kernel's. */
#define STATE_LISTEN 10
/* TCP_CLOSE, of UDP sockets without a peer. */
#define STATE_CLOSE 7
/* Limit of control groups that are collected. */
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

/* Called for each listening socket. group: ID of its control group; 0: unknown. */
typedef int (*ListenerHandler)(const struct inet_diag_msg *m, uint64_t group, void *userdata);

static int read_dump(int fd, ListenerHandler handler, void *userdata) {
        /* Maximum size of netlink messages */
        static char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));

        for (;;) {
                ssize_t l = recv(fd, buf, sizeof(buf), 0);

                if (l < 0 && errno == EINTR)
                        continue;
                if (l < 0)
                        return -errno;

                for (struct nlmsghdr *h = (struct nlmsghdr*) buf; NLMSG_OK(h, (size_t) l);
                     h = NLMSG_NEXT(h, l)) {
                        struct inet_diag_msg *m = NLMSG_DATA(h);
                        struct rtattr *a = (struct rtattr*) (m + 1);
                        uint64_t id = 0;
                        size_t rest;
                        int r;

                        if (h->nlmsg_type == NLMSG_DONE)
                                return 0;
                        if (h->nlmsg_type == NLMSG_ERROR)
                                return h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) ?
                                        ((struct nlmsgerr*) NLMSG_DATA(h))->error : -EBADMSG;
                        if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
                                return -EBADMSG;

                        rest = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
                        for (; RTA_OK(a, rest); a = RTA_NEXT(a, rest))
                                if (a->rta_type == INET_DIAG_CGROUP_ID && RTA_PAYLOAD(a) == sizeof(id))
                                        memcpy(&id, RTA_DATA(a), sizeof(id));
                        r = handler(m, id, userdata);
                        if (r < 0)
                                return r;
                }
        }
}

static int listeners_read(int protocol, ListenerHandler handler, void *userdata) {
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
                        .request.sdiag_protocol = (uint8_t) protocol,
                        .request.idiag_states = 1U << (protocol == IPPROTO_UDP ? STATE_CLOSE : STATE_LISTEN),
                };
                _cleanup_close_ int fd = -EBADF;
                int r;

                fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
                if (fd < 0)
                        return -errno;
                if (send(fd, &message, sizeof(message), 0) < 0)
                        return -errno;
                r = read_dump(fd, handler, userdata);
                /* Kernel without IPv6, or without the module for UDP */
                if (r < 0 && !((families[i] == AF_INET6 || protocol == IPPROTO_UDP) && r == -ENOENT))
                        return r;
        }

        return 0;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        _cleanup_free_ char *unit = NULL;

        if (type != FTW_D)
                return 0;

        for (size_t i = 0; i < n_groups; i++)
                if (groups[i] == st->st_ino) {
                        /* A socket opened by the service manager does not identify the service */
                        if (control_group_get_top_unit(path + strlen(CGROUP_ROOT), &unit) > 0 &&
                            !streq(unit, "init.scope"))
                                return names_add(found, unit) < 0 ? -1 : 0;
                        return 0;
                }

        return 0;
}

/* Adds the units of the groups. */
static int groups_find_units(Names *ret) {
        found = ret;
        /* Ids of control groups are inode numbers of their directories */
        if (nftw(CGROUP_ROOT, visit, OPEN_MAX, FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
                return log_failure(errno_or_else(EIO), "Failed to read " CGROUP_ROOT ": %m");
        return 0;
}

static int on_any_listener(const struct inet_diag_msg *m, uint64_t group, void *userdata) {
        return group != 0 ? add_group(group) : 0;
}

int names_find_listening(Names *ret) {
        int r;

        n_groups = 0;
        r = listeners_read(IPPROTO_TCP, on_any_listener, NULL);
        if (r < 0)
                return log_failure(r, "Failed to find listening sockets: %m");
        return groups_find_units(ret);
}

/* ---- the unit that listens at an address ------------------------------------------------------------- */

typedef struct Address {
        int family;                     /* AF_UNIX: only the path matters */
        uint8_t bytes[16];              /* IPv4 in the first four */
        uint16_t port;
} Address;

/* The socket that listens at an address: the one with that address, or one with the wildcard address. */
typedef struct Listener {
        const Address *address;
        uint64_t group;                 /* ID of the control group; 0: unknown */
        uint64_t inode;                 /* 0: none */
        bool exact;
} Listener;

static size_t address_size(int family) {
        return family == AF_INET ? 4 : 16;
}

/* As qosd writes them: "127.0.0.1:80", "[::1]:80", "*:80". */
static int address_parse(const char *s, Address *ret) {
        const char *colon = strrchr(s, ':');
        _cleanup_free_ char *host = NULL;
        unsigned long port;
        char *end;

        *ret = (Address) { .family = AF_UNIX };
        if (*s == '/' || *s == '@')
                return 0;
        if (!colon)
                return -EINVAL;
        errno = 0;
        port = strtoul(colon + 1, &end, 10);
        if (errno != 0 || *end || end == colon + 1 || port > UINT16_MAX)
                return -EINVAL;
        ret->port = (uint16_t) port;
        ret->family = *s == '[' ? AF_INET6 : AF_INET;
        if (*s == '*')
                return 0;
        /* IPv4-mapped */
        if (startswith(s, "[::ffff:") && strchr(s, '.')) {
                ret->family = AF_INET;
                host = strndup(s + strlen("[::ffff:"), (size_t) (colon - s) - strlen("[::ffff:") - 1);
        } else
                host = *s == '[' && colon > s + 1 ? strndup(s + 1, (size_t) (colon - s) - 2) :
                        strndup(s, (size_t) (colon - s));
        if (!host)
                return -ENOMEM;
        return inet_pton(ret->family, host, ret->bytes) == 1 ? 0 : -EINVAL;
}

static int on_listener(const struct inet_diag_msg *m, uint64_t group, void *userdata) {
        static const uint8_t any[16] = {};
        Listener *l = ASSERT_PTR(userdata);
        bool same = m->idiag_family == l->address->family, exact;

        if (ntohs(m->id.idiag_sport) != l->address->port || ntohs(m->id.idiag_dport) != 0)
                return 0;
        exact = same && memcmp(m->id.idiag_src, l->address->bytes, address_size(m->idiag_family)) == 0;
        /* Sockets of IPv6 that listen at any address accept IPv4 as well */
        if (!exact && (memcmp(m->id.idiag_src, any, address_size(m->idiag_family)) != 0 ||
                       (!same && m->idiag_family != AF_INET6)))
                return 0;
        if (l->inode != 0 && (l->exact || !exact))
                return 0;
        *l = (Listener) { .address = l->address, .group = group, .inode = m->idiag_inode, .exact = exact };
        return 0;
}

/* The inode of the listening socket with the path. 0: none. */
static uint64_t unix_find_inode(const char *path) {
        _cleanup_fclose_ FILE *f = fopen("/proc/net/unix", "re");
        char line[512];

        /* Num RefCount Protocol Flags Type St Inode Path */
        while (f && fgets(line, sizeof(line), f)) {
                unsigned long flags, inode;
                unsigned type;
                int n = 0;

                line[strcspn(line, "\n")] = 0;
                if (sscanf(line, "%*s %*s %*s %lx %x %*s %lu %n", &flags, &type, &inode, &n) != 3 || n == 0)
                        continue;
                /* __SO_ACCEPTCON of listening sockets, or a datagram socket */
                if ((flags & 0x10000 || type == SOCK_DGRAM) && streq(line + n, path))
                        return inode;
        }
        return 0;
}

/* Unit of a process; NULL: none, or the service manager itself. */
static char* unit_of_process(const char *pid) {
        char path[PATH_MAX], line[4096];
        _cleanup_fclose_ FILE *f = NULL;

        (void) snprintf(path, sizeof(path), "/proc/%s/cgroup", pid);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (startswith(line, "0::")) {
                        _cleanup_free_ char *unit = NULL;

                        line[strcspn(line, "\n")] = 0;
                        if (control_group_get_top_unit(line + strlen("0::"), &unit) <= 0 ||
                            streq(unit, "init.scope"))
                                return NULL;
                        return TAKE_PTR(unit);
                }
        return NULL;
}

static bool process_has_socket(const char *pid, const char *name) {
        char path[PATH_MAX];
        bool has = false;
        DIR *d;

        (void) snprintf(path, sizeof(path), "/proc/%s/fd", pid);
        d = opendir(path);
        if (!d)
                return false;
        for (const struct dirent *e; !has && (e = readdir(d)); ) {
                char target[64];
                ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

                if (n <= 0)
                        continue;
                target[n] = 0;
                has = streq(target, name);
        }
        (void) closedir(d);
        return has;
}

/* Finds the unit by the descriptors of processes, as sockets of the service manager have its control group,
 * and Unix sockets have none. Descriptors of other users' processes are readable for root only. */
static char* unit_with_socket(uint64_t inode) {
        char *unit = NULL, name[64];
        DIR *d = opendir("/proc");

        if (!d)
                return NULL;
        (void) snprintf(name, sizeof(name), "socket:[%llu]", (unsigned long long) inode);
        for (const struct dirent *e; !unit && (e = readdir(d)); )
                if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && process_has_socket(e->d_name, name))
                        unit = unit_of_process(e->d_name);
        (void) closedir(d);
        return unit;
}

/* Whether the address is one of this host; true if it cannot be determined. */
static bool address_is_local(const Address *a) {
        static const uint8_t loopback[16] = { [15] = 1 }, any[16] = {};
        struct ifaddrs *all, *i;
        bool local = false;

        if (a->family == AF_UNIX || (a->family == AF_INET && a->bytes[0] == 127) ||
            (a->family == AF_INET6 && memcmp(a->bytes, loopback, sizeof(loopback)) == 0) ||
            memcmp(a->bytes, any, sizeof(any)) == 0)
                return true;
        if (getifaddrs(&all) < 0)
                return true;
        for (i = all; i && !local; i = i->ifa_next) {
                if (!i->ifa_addr || i->ifa_addr->sa_family != a->family)
                        continue;
                local = memcmp(a->family == AF_INET ?
                                       (void*) &((struct sockaddr_in*) i->ifa_addr)->sin_addr :
                                       (void*) &((struct sockaddr_in6*) i->ifa_addr)->sin6_addr,
                               a->bytes, address_size(a->family)) == 0;
        }
        freeifaddrs(all);
        return local;
}

int listener_find_unit(const char *address, char **ret) {
        static const int protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
        _cleanup_free_ char *unit = NULL;
        Address a;
        Listener l = { .address = &a };
        int r;

        r = address_parse(address, &a);
        if (r < 0)
                return r;
        if (!address_is_local(&a))
                return -EREMOTE;
        if (a.family == AF_UNIX)
                l.inode = unix_find_inode(address);
        for (size_t i = 0; i < ELEMENTSOF(protocols) && a.family != AF_UNIX && l.inode == 0; i++) {
                r = listeners_read(protocols[i], on_listener, &l);
                if (r < 0)
                        return r;
        }
        if (l.inode == 0)
                return -ENOENT;

        if (l.group != 0) {
                _cleanup_names_ Names names = NAMES_INIT;

                n_groups = 0;
                r = add_group(l.group);
                if (r >= 0)
                        r = groups_find_units(&names);
                if (r < 0)
                        return r;
                if (names.n > 0)
                        unit = TAKE_PTR(names.items[0]);
        }
        /* Prefer the service that has inherited the socket to its socket unit */
        if (!unit || endswith(unit, ".socket")) {
                char *heir = unit_with_socket(l.inode);

                if (heir) {
                        free(unit);
                        unit = heir;
                }
        }
        if (!unit)
                return -ENOENT;
        *ret = TAKE_PTR(unit);
        return 0;
}
