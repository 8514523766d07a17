/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* TLS of the exporter, by credentials of its service. */

#include <microhttpd.h>

#include "util.h"

/* In PEM. Without a certificate HTTP is not encrypted. */
typedef struct TlsFiles {
        char *certificate;              /* of the server, with those between it and an authority behind it */
        char *key;
        char *authorities;              /* one of them has to have signed the certificate of each client; or
                                         * NULL: clients need none */
} TlsFiles;

/* Loads what the service has of the credentials qosd-exporter.certificate, .key and .authorities. Errors are
 * logged, one that is incomplete or invalid among them. */
int tls_files_load(TlsFiles *ret);
void tls_files_done(TlsFiles *f);
#define _cleanup_tls_files_ _cleanup_(tls_files_done)

/* What libmicrohttpd is started with, and MHD_OPTION_END. Without a certificate there is nothing else. */
#define TLS_OPTIONS 5U
void tls_files_get_options(const TlsFiles *f, struct MHD_OptionItem ret[static TLS_OPTIONS]);

/* Has the handshake of a new connection fail unless the client has a certificate. */
int tls_require_certificate(struct MHD_Connection *connection);
