/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-varlink-idl.h>

/* Interface of sources of systemd-report, which is experimental in systemd 260 to 262. */
extern const sd_varlink_interface vl_interface_io_systemd_Metrics;
