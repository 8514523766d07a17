/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The probe "tls": units that have it, and instances of libssl in their processes. Processes are scanned
 * when a unit gets the probe, when it has started, and when the kernel finds it reading TLS records by an
 * unknown library: one loaded later, another version, or something other than OpenSSL. */

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct LibraryScan LibraryScan;
typedef struct Manager Manager;
typedef struct Unit Unit;

/* State of a unit. */
typedef struct UnitOpenSSL {
        bool watched;                   /* observed with "tls" */
        bool found;                     /* a process had libssl mapped at the last scan */
        int limit;                      /* why not all instances are probed, see probe_add_libraries() */
        bool scan_pending;
        uint64_t scanned_at;            /* CLOCK_MONOTONIC ns of the last scan */
        uint64_t rescan_delay;          /* minimum delay of the next scan, ns */
} UnitOpenSSL;

/* State of the manager. */
typedef struct OpenSSLWatch {
        unsigned n_watched;
        sd_event_source *events;        /* unknown libraries found by the kernel */
        sd_event_source *timer;         /* for the next scan of a unit */
        LibraryScan *scan;              /* scan in progress; NULL: none */
        uint64_t swept_at;              /* CLOCK_MONOTONIC ns of the last sweep for unused libraries */
} OpenSSLWatch;

/* To be called when holds or the hierarchy have changed. started: unit with new processes; or NULL. */
void openssl_update(Manager *m, Unit *started);

/* Whether the first scan of the unit is in progress. manager_emit_unit_changed() is called at its end. */
bool unit_awaits_libraries(const Unit *u);

/* To be called when nothing is observed any more. */
void openssl_stop(Manager *m);
