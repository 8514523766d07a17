/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <time.h>

#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "config-build.h"
#include "dbus-manager.h"
#include "event-actions.h"
#include "event-journal.h"
#include "kernel-support.h"
#include "log.h"
#include "manager.h"
#include "startup.h"
#include "varlink-server.h"

/* Timeout for loading unit files, until which units that are ordered after qosd are delayed. */
#define READY_USEC (5 * USEC_PER_SEC)
/* The timeout is measured in steps of this length. A step that took longer counts once, as programs were
 * loaded meanwhile, and replies of the service manager could not be read. */
#define READY_STEP_USEC (100 * USEC_PER_MSEC)
/* Total timeout including the time for loading programs, which usually takes a second or two. */
#define READY_MAX_USEC (60 * USEC_PER_SEC)

static int on_reload(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        (void) sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%llu",
                          (unsigned long long) ts.tv_sec * USEC_PER_SEC + ts.tv_nsec / NSEC_PER_USEC);
        (void) manager_reload(m);
        (void) sd_notify(false, "READY=1");
        return 0;
}

static int help(void) {
        printf("qosd [OPTIONS...]\n\n"
               "Measures how well systemd units serve their requests.\n\n"
               "  -h --help      Show this help\n"
               "     --version   Show the version\n\n"
               "See qosd(8), qosctl(1).\n");
        return 0;
}

static int parse_argv(int argc, char *argv[]) {
        enum { ARG_VERSION = 0x100 };
        static const struct option options[] = {
                { "help",    no_argument, NULL, 'h'         },
                { "version", no_argument, NULL, ARG_VERSION },
                {}
        };
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                switch (c) {
                case 'h':
                        return help();
                case ARG_VERSION:
                        printf("qosd %s\n", QOSD_VERSION);
                        return 0;
                default:
                        return -EINVAL;
                }

        if (optind < argc)
                return log_error_errno(-EINVAL, "qosd takes no arguments, got '%s'.", argv[optind]);
        return 1;
}

typedef struct Waiting {
        Manager *manager;
        unsigned steps;
} Waiting;

static int on_step(sd_event_source *source, uint64_t usec, void *userdata) {
        Waiting *w = ASSERT_PTR(userdata);
        int r;

        if (w->manager->notify.ready)
                return 0;
        r = ++w->steps < READY_USEC / READY_STEP_USEC ? sd_event_source_set_time_relative(source,
                        READY_STEP_USEC) : -ETIME;
        if (r >= 0)
                r = sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        if (r < 0)
                manager_notify_ready(w->manager);
        return 0;
}

static void manager_freep(Manager **m) {
        manager_free(*m);
}

static void bus_server_freep(BusServer **b) {
        bus_server_free(*b);
}

static void event_actions_freep(EventActions **a) {
        event_actions_free(*a);
}

static void event_journal_freep(EventJournal **j) {
        event_journal_free(*j);
}

static void varlink_server_freep(VarlinkServer **v) {
        varlink_server_free(*v);
}

static int run(int argc, char *argv[]) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        _cleanup_(manager_freep) Manager *m = NULL;
        /* Freed before the manager, as servers cancel operations of their clients */
        _cleanup_(event_actions_freep) EventActions *event_actions = NULL;
        _cleanup_(event_journal_freep) EventJournal *event_journal = NULL;
        _cleanup_(bus_server_freep) BusServer *bus_server = NULL;
        _cleanup_(varlink_server_freep) VarlinkServer *varlink_server = NULL;
        _cleanup_free_ char *reason = NULL;
        Waiting waiting = {};
        bool connected;
        int r;

        r = parse_argv(argc, argv);
        if (r <= 0)
                return r;

        r = sd_event_default(&event);
        if (r < 0)
                return log_error_errno(r, "Failed to create event loop: %m");
        (void) sd_event_set_watchdog(event, true);
        r = sd_event_set_signal_exit(event, true);
        if (r < 0)
                return log_error_errno(r, "Failed to add signal handlers: %m");

        /* Only one arena: programs are loaded in a thread, which takes megabytes, and malloc_trim() does not
         * return free memory at the end of other arenas */
        (void) mallopt(M_ARENA_MAX, 1);

        /* Clients are served nevertheless, and get the reason when they attach a unit */
        r = kernel_support_check(&reason);
        if (r < 0)
                (void) log_warning_errno(r, "Nothing can be measured on this kernel: %s.",
                                         reason ?: "its release is unknown");

        /* Before manager_new(), which may load programs of the previous run */
        r = ready_watch(READY_MAX_USEC);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to start a thread, units ordered after qosd may "
                                            "be delayed by loading programs: %m");

        r = manager_new(event, &m);
        if (r < 0)
                return log_error_errno(r, "Failed to start: %m");

        r = sd_event_add_signal(event, NULL, SIGHUP|SD_EVENT_SIGNAL_PROCMASK, on_reload, m);
        if (r < 0)
                return log_error_errno(r, "Failed to add SIGHUP handler: %m");

        r = bus_server_new(m, &bus_server);
        if (r < 0)
                return log_error_errno(r, "Failed to start: %m");
        connected = manager_connect_bus(m) >= 0;

        r = varlink_server_new(m, &varlink_server);
        if (r < 0)
                return log_error_errno(r, "Failed to listen for varlink connections: %m");
        r = event_actions_new(m, &event_actions);
        if (r < 0)
                return log_error_errno(r, "Failed to prepare a socket for actions: %m");
        r = event_journal_new(m, &event_journal);
        if (r < 0)
                return log_error_errno(r, "Failed to open the journal: %m");

        manager_notify_status(m);
        waiting.manager = m;
        if (connected)
                r = sd_event_add_time_relative(event, NULL, CLOCK_MONOTONIC, READY_STEP_USEC,
                                               READY_STEP_USEC / 10, on_step, &waiting);
        if (!connected || r < 0)
                manager_notify_ready(m);

        r = sd_event_loop(event);
        (void) sd_notify(false, "STOPPING=1");
        if (r < 0)
                return log_error_errno(r, "Event loop failed: %m");
        return 0;
}

int main(int argc, char *argv[]) {
        return run(argc, argv) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
