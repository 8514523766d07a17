/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The label of a state in sentences and on the status page, such as "CPU run queue" for "runQueue". Tables
 * with a row per unit, thread or resource print the name itself: it is short, has no blanks and is the one
 * in JSON and in metric paths. A state without a label, as a newer qosd may report, keeps its name. */
const char* thread_state_label(const char *state);
