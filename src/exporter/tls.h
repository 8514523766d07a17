/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* TLS of the exporter, which is configured by credentials of the service. */

#include <microhttpd.h>

#include "util.h"

/* Credentials in PEM format. Without a certificate, connections are not encrypted. */
typedef struct TlsFiles {
        char *certificate;              /* certificate of the server, followed by intermediate ones */
        char *key;
        char *authorities;              /* authorities for certificates of clients; NULL: clients need no
                                         * certificate */
} TlsFiles;

/* Loads the credentials qosd-exporter.certificate, .key and .authorities, as far as they exist. Returns a
 * negative errno, which is logged, if they are incomplete or invalid. */
int tls_files_load(TlsFiles *ret);
void tls_files_done(TlsFiles *f);
#define _cleanup_tls_files_ _cleanup_(tls_files_done)

/* Returns the options for MHD_start_daemon(), only MHD_OPTION_END if there is no certificate. */
#define TLS_OPTIONS 5U
void tls_files_get_options(const TlsFiles *f, struct MHD_OptionItem ret[static TLS_OPTIONS]);

/* Requires a valid certificate of the client in the handshake of a new connection. */
int tls_require_certificate(struct MHD_Connection *connection);
