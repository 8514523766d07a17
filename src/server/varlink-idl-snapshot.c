/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Types of a reading, generated from metrics/. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                Quality,
                FIELD_COMMENT("The protocol was parsed: each request counts once"),
                SD_VARLINK_DEFINE_ENUM_VALUE(exact),
                FIELD_COMMENT("One response per request is assumed"),
                SD_VARLINK_DEFINE_ENUM_VALUE(exchanges),
                FIELD_COMMENT("More than 1 % of the requests or bytes is on unparsed connections: the "
                              "figures are those of the others"),
                SD_VARLINK_DEFINE_ENUM_VALUE(partial),
                FIELD_COMMENT("Most requests arrived while another was in flight, and no parser knows the "
                              "protocol: counts and quantiles are absent"),
                SD_VARLINK_DEFINE_ENUM_VALUE(overlapping));

/* Refers to Quality */
#include "varlink-types.h"
