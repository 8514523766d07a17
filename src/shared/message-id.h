/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* MESSAGE_ID= of messages in the journal; units/qosd.catalog explains them, see qosd(8). */

/* A threshold has changed its state. */
#define MESSAGE_ID_CROSSED "8272b84be6e04d7c8c0a0281c76e711d"
