/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "listening-groups.h"
#include "util.h"

/* As TCP_LISTEN in the kernel. */
#define STATE_LISTEN 10

/* Maximum size of netlink messages. */
#define MESSAGE_SIZE 32768U

struct ListeningGroups {
        int fd;
        sd_event_source *source;
        ListeningHandlers handlers;
        void *userdata;
        uint8_t family;                 /* being read; AF_UNSPEC: none */
        uint32_t seq;                   /* of its request; replies to earlier ones may still arrive */
};

static int request_family(ListeningGroups *l, uint8_t family) {
        struct {
                struct nlmsghdr header;
                struct inet_diag_req_v2 request;
        } message = {
                .header.nlmsg_len = sizeof(message),
                .header.nlmsg_type = SOCK_DIAG_BY_FAMILY,
                .header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                .header.nlmsg_seq = ++l->seq,
                .request.sdiag_family = family,
                .request.sdiag_protocol = IPPROTO_TCP,
                .request.idiag_states = 1U << STATE_LISTEN,
        };

        l->family = family;
        return send(l->fd, &message, sizeof(message), MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void end(ListeningGroups *l, int error) {
        l->family = AF_UNSPEC;
        l->handlers.end(error, l->userdata);
}

static void report_group(ListeningGroups *l, const struct nlmsghdr *h) {
        const struct inet_diag_msg *m = NLMSG_DATA(h);
        const struct rtattr *a = (const struct rtattr*) (m + 1);
        size_t rest;
        uint64_t id;

        if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
                return;
        rest = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
        for (; RTA_OK(a, rest); a = RTA_NEXT(a, rest))
                if (a->rta_type == INET_DIAG_CGROUP_ID && RTA_PAYLOAD(a) == sizeof(id)) {
                        memcpy(&id, RTA_DATA(a), sizeof(id));
                        if (id != 0)
                                l->handlers.group(id, l->userdata);
                }
}

/* Returns 1 at the end of the family's sockets, else 0. */
static int read_message(ListeningGroups *l, const struct nlmsghdr *h) {
        const struct nlmsgerr *e = NLMSG_DATA(h);

        if (h->nlmsg_type == NLMSG_DONE)
                return 1;
        if (h->nlmsg_type != NLMSG_ERROR) {
                report_group(l, h);
                return 0;
        }
        if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*e)) || e->error >= 0)
                return -EBADMSG;
        /* A kernel without IPv6 */
        return l->family == AF_INET6 && e->error == -ENOENT ? 1 : e->error;
}

static int on_readable(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        static char buffer[MESSAGE_SIZE] __attribute__((aligned(NLMSG_ALIGNTO)));
        ListeningGroups *l = ASSERT_PTR(userdata);
        ssize_t n;
        int r = 0;

        n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n < 0)
                r = -errno;
        for (const struct nlmsghdr *h = (const struct nlmsghdr*) buffer;
             r == 0 && n > 0 && NLMSG_OK(h, (size_t) n); h = NLMSG_NEXT(h, n))
                if (l->family != AF_UNSPEC && h->nlmsg_seq == l->seq)
                        r = read_message(l, h);
        if (r > 0 && l->family == AF_INET)
                r = request_family(l, AF_INET6);
        if (r != 0 && l->family != AF_UNSPEC)
                end(l, MIN(r, 0));
        return 0;
}

int listening_groups_new(sd_event *event, int fd, const ListeningHandlers *handlers, void *userdata,
                         ListeningGroups **ret) {
        ListeningGroups *l;
        int r;

        l = new0(ListeningGroups, 1);
        if (!l)
                return -ENOMEM;
        *l = (ListeningGroups) {
                .fd = fd,
                .handlers = *handlers,
                .userdata = userdata,
                .family = AF_UNSPEC,
                .seq = (uint32_t) now_nsec(CLOCK_MONOTONIC),
        };
        r = sd_event_add_io(event, &l->source, fd, EPOLLIN, on_readable, l);
        if (r < 0) {
                free(l);
                return r;
        }

        *ret = l;
        return 0;
}

ListeningGroups* listening_groups_free(ListeningGroups *l) {
        if (!l)
                return NULL;

        sd_event_source_disable_unref(l->source);
        free(l);
        return NULL;
}

int listening_groups_read(ListeningGroups *l) {
        return request_family(l, AF_INET);
}
