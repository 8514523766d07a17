/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The interface io.systemd.service, as of systemd's daemons. */

#include <systemd/sd-varlink.h>
#include <systemd/sd-varlink-idl.h>

extern const sd_varlink_interface vl_interface_io_systemd_service;

int vl_method_ping(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata);
int vl_method_reload(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata);
int vl_method_set_log_level(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata);
int vl_method_get_log_level(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata);
