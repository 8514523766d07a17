/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <gnutls/x509.h>
#include <sys/stat.h>

#include "log.h"
#include "tls.h"

/* Limit of the size of a credential. The certificates of all authorities of a distribution have 220 KiB. */
#define CREDENTIAL_SIZE_MAX (1024U * 1024U)

/* The default of GnuTLS and of the system, but no versions that RFC 8996 deprecates. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Returns 0 if there is no such credential. */
static int credential_load(const char *name, char **ret) {
        const char *directory = getenv("CREDENTIALS_DIRECTORY");
        _cleanup_free_ char *path = NULL, *text = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        size_t n = 0;

        if (!directory)
                return 0;
        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                return log_oom();
        }
        fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return log_error_errno(-errno, "Failed to open credential '%s': %m", name);
        if (st.st_size > CREDENTIAL_SIZE_MAX)
                return log_error_errno(-EFBIG, "Credential '%s' is too large, expected at most %u bytes.",
                                       name, CREDENTIAL_SIZE_MAX);
        text = malloc((size_t) st.st_size + 1);
        if (!text)
                return log_oom();
        while (n < (size_t) st.st_size) {
                ssize_t k = read(fd, text + n, (size_t) st.st_size - n);

                if (k < 0)
                        return log_error_errno(-errno, "Failed to read credential '%s': %m", name);
                if (k == 0)
                        break;
                n += (size_t) k;
        }
        text[n] = 0;
        *ret = TAKE_PTR(text);
        return 1;
}

static gnutls_datum_t datum(char *text) {
        return (gnutls_datum_t) { .data = (unsigned char*) text, .size = (unsigned) strlen(text) };
}

/* Validates the credentials, as libmicrohttpd does not report which one is invalid. */
static int tls_files_check(const TlsFiles *f) {
        const gnutls_datum_t certificate = datum(f->certificate), key = datum(f->key);
        gnutls_certificate_credentials_t credentials;
        int r, n = 1;

        r = gnutls_certificate_allocate_credentials(&credentials);
        if (r < 0)
                return log_oom();
        r = gnutls_certificate_set_x509_key_mem(credentials, &certificate, &key, GNUTLS_X509_FMT_PEM);
        if (r >= 0 && f->authorities) {
                const gnutls_datum_t authorities = datum(f->authorities);

                n = gnutls_certificate_set_x509_trust_mem(credentials, &authorities, GNUTLS_X509_FMT_PEM);
        }
        gnutls_certificate_free_credentials(credentials);
        if (r < 0)
                return log_error_errno(-EBADMSG,
                                       "Invalid credential 'qosd-exporter.certificate' or "
                                       "'qosd-exporter.key', expected PEM that fits together: %s.",
                                       gnutls_strerror(r));
        if (n <= 0)
                return log_error_errno(-EBADMSG,
                                       "Invalid credential 'qosd-exporter.authorities', "
                                       "expected certificates in PEM%s%s.", n < 0 ? ": " : "",
                                       n < 0 ? gnutls_strerror(n) : "");
        return 0;
}

int tls_files_load(TlsFiles *ret) {
        _cleanup_tls_files_ TlsFiles f = {};
        int r;

        r = credential_load("qosd-exporter.certificate", &f.certificate);
        if (r >= 0)
                r = credential_load("qosd-exporter.key", &f.key);
        if (r >= 0)
                r = credential_load("qosd-exporter.authorities", &f.authorities);
        if (r < 0)
                return r;

        /* An incomplete configuration must not result in unencrypted connections */
        if (!f.certificate != !f.key)
                return log_error_errno(-ENOENT, "Credential '%s' is missing, as '%s' is there.",
                                       f.key ? "qosd-exporter.certificate" : "qosd-exporter.key",
                                       f.key ? "qosd-exporter.key" : "qosd-exporter.certificate");
        if (!f.certificate && f.authorities)
                return log_error_errno(-ENOENT,
                                       "Credentials 'qosd-exporter.certificate' and 'qosd-exporter.key' are "
                                       "missing, as 'qosd-exporter.authorities' is there.");
        if (f.certificate) {
                r = tls_files_check(&f);
                if (r < 0)
                        return r;
        }
        *ret = f;
        f = (TlsFiles) {};
        return 0;
}

void tls_files_done(TlsFiles *f) {
        if (f->key)
                explicit_bzero(f->key, strlen(f->key));
        free(f->certificate);
        free(f->key);
        free(f->authorities);
        *f = (TlsFiles) {};
}

void tls_files_get_options(const TlsFiles *f, struct MHD_OptionItem ret[static TLS_OPTIONS]) {
        size_t n = 0;

        if (f->certificate) {
                ret[n++] = (struct MHD_OptionItem) { MHD_OPTION_HTTPS_MEM_CERT, 0, f->certificate };
                ret[n++] = (struct MHD_OptionItem) { MHD_OPTION_HTTPS_MEM_KEY, 0, f->key };
                ret[n++] = (struct MHD_OptionItem) { MHD_OPTION_HTTPS_PRIORITIES, 0,
                                                     (char*) TLS_PRIORITIES };
        }
        if (f->authorities)
                ret[n++] = (struct MHD_OptionItem) { MHD_OPTION_HTTPS_MEM_TRUST, 0, f->authorities };
        ret[n] = (struct MHD_OptionItem) { MHD_OPTION_END, 0, NULL };
}

int tls_require_certificate(struct MHD_Connection *connection) {
        static gnutls_typed_vdata_st purpose = {
                .type = GNUTLS_DT_KEY_PURPOSE_OID,
                .data = (unsigned char*) GNUTLS_KP_TLS_WWW_CLIENT,
        };
        const union MHD_ConnectionInfo *info;
        gnutls_session_t session;

        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        if (!info || !info->tls_session)
                return -ENOTCONN;
        session = (gnutls_session_t) info->tls_session;
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert2(session, &purpose, 1, 0);
        return 0;
}
