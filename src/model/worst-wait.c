/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "worst-wait.h"

/* Minimum share of requests with known states to represent all. */
#define ATTRIBUTED_MIN 0.5
/* Minimum share to be reported. */
#define WORST_WAIT_MIN 0.05

bool worst_wait_is_of_service(double attributed) {
        return attributed >= ATTRIBUTED_MIN;
}

bool worst_wait_find(const double shares[static QOS_STATES], bool of_service, enum qos_state *ret_state,
                     double *ret_share) {
        /* In other states threads may be idle */
        static const bool held_back[QOS_STATES] = {
                [QOS_STATE_RUN_QUEUE] = true,
                [QOS_STATE_THROTTLED] = true,
                [QOS_STATE_LOCK]      = true,
                [QOS_STATE_DISK]      = true,
                [QOS_STATE_MEMORY]    = true,
        };
        enum qos_state state = QOS_STATE_NONE;
        double all = 0, worst = 0;

        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                bool wanted = of_service || held_back[i];

                if (isnan(shares[i]))
                        continue;
                if (wanted || i == QOS_STATE_RUNNING)
                        all += shares[i];
                if (!wanted || i == QOS_STATE_RUNNING || shares[i] <= worst)
                        continue;
                worst = shares[i];
                state = i;
        }
        if (state == QOS_STATE_NONE || worst < WORST_WAIT_MIN * all)
                return false;
        *ret_state = state;
        *ret_share = worst / all;
        return true;
}
