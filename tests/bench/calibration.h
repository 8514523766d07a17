/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

#define REPETITIONS 32          /* in a run of a program of calibration.bpf.c */
