/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Label of a thread state in sentences and on the status page, such as "CPU run queue" for "runQueue".
 * Tables with a row per unit, thread or resource use the name itself, which is short, has no blanks and is
 * the one in JSON and in names of metrics. Unknown states, from a newer qosd, are returned as they are. */
const char* thread_state_label(const char *state);
