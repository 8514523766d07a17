/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Protocol between qosd and qosd-statistics: a byte for each request. To STATISTICS_BEGIN the response is an
 * int, 0 or a negative errno; from then on, until STATISTICS_END or the end of the connection, the kernel
 * measures the run time of BPF programs. */

/* See qosd-statistics.socket. Only qosd and root may connect. */
#define STATISTICS_SOCKET "/run/qosd/statistics"

#define STATISTICS_BEGIN '1'
#define STATISTICS_END '0'
