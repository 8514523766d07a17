/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "log.h"
#include "manager.h"
#include "network-map.h"
#include "probe.h"
#include "receive-stamps.h"

/* The clocks are read one after the other; of some tries the shortest one has their difference. */
#define CLOCK_TRIES 5

static void set_clock(Manager *m, uint64_t set_at) {
        struct qos_network_clock clock = { .set_at = set_at };
        uint64_t shortest = UINT64_MAX;
        int r;

        for (unsigned i = 0; i < CLOCK_TRIES; i++) {
                uint64_t before = now_nsec(CLOCK_MONOTONIC);
                uint64_t realtime = now_nsec(CLOCK_REALTIME);
                uint64_t tai = now_nsec(CLOCK_TAI);
                uint64_t after = now_nsec(CLOCK_MONOTONIC);

                if (after - before >= shortest)
                        continue;
                shortest = after - before;
                clock.realtime = realtime - before;
                /* They differ by whole seconds */
                clock.tai = (tai - realtime + NSEC_PER_SEC / 2) / NSEC_PER_SEC * NSEC_PER_SEC;
        }
        r = probe_set_network_clock(m->probe, &clock);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to set the clock of arrival stamps, arrivals of "
                                            "segments are not known: %m");
}

/* Far in the future: it only expires when the clock is set. */
static int arm(int fd) {
        const struct itimerspec never = { .it_value.tv_sec = INT64_MAX / (int64_t) NSEC_PER_SEC };

        return timerfd_settime(fd, TFD_TIMER_ABSTIME|TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0 ? -errno : 0;
}

static int on_clock_set(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        uint64_t expirations;

        if (read(fd, &expirations, sizeof(expirations)) >= 0 || errno != ECANCELED)
                return 0;
        (void) arm(fd);
        if (probe_is_started(m->probe))
                set_clock(m, now_nsec(CLOCK_MONOTONIC));
        return 0;
}

static int watch_clock(Manager *m) {
        ReceiveStamps *s = &m->receive_stamps;
        int r;

        s->timer_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK|TFD_CLOEXEC);
        if (s->timer_fd < 0)
                return -errno;
        r = arm(s->timer_fd);
        if (r >= 0)
                r = sd_event_add_io(m->event, &s->clock_set, s->timer_fd, EPOLLIN, on_clock_set, m);
        if (r < 0)
                s->timer_fd = close_fd(s->timer_fd);
        return r;
}

/* Netlink, since the kernel ignores the request of a Unix socket. */
static int request_stamps(void) {
        static const int flags = SOF_TIMESTAMPING_RX_SOFTWARE;
        _cleanup_close_ int fd = -EBADF;

        fd = socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_USERSOCK);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

void receive_stamps_update(Manager *m, bool wanted) {
        ReceiveStamps *s = &m->receive_stamps;

        s->wanted = wanted;
        if (!wanted || !m->config.receive_timestamps) {
                s->clock_set = sd_event_source_disable_unref(s->clock_set);
                s->timer_fd = close_fd(s->timer_fd);
                s->fd = close_fd(s->fd);
                return;
        }
        if (s->fd >= 0)
                return;

        s->fd = watch_clock(m);
        if (s->fd >= 0) {
                set_clock(m, 0);
                s->fd = request_stamps();
        }
        if (s->fd < 0) {
                (void) log_warning_errno(s->fd, "Failed to request arrival stamps of packets, arrivals of "
                                                "segments are not known: %m");
                s->clock_set = sd_event_source_disable_unref(s->clock_set);
                s->timer_fd = close_fd(s->timer_fd);
        }
}
