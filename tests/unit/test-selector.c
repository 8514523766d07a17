/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What people and scripts write: names of metrics with an endpoint or a peer in them, and what is to be left
 * out. */

#include <arpa/inet.h>

#include "check.h"
#include "exclude.h"
#include "selector.h"

static Row row_of(RowKind kind, const char *address, uint16_t port) {
        Row r = { .kind = kind, .port = port, .family = strchr(address, ':') ? AF_INET6 : AF_INET };

        check(inet_pton(r.family, address, r.address) == 1);
        return r;
}

static Selector parsed(const char *name, const char *metric) {
        char buffer[SELECTOR_METRIC_MAX];
        Selector s;

        check(selector_parse(name, &s, buffer) == 0);
        check(streq(buffer, metric));
        return s;
}

static void test_selector(void) {
        Row a = row_of(ROW_ENDPOINT, "127.0.0.1", 443), b = row_of(ROW_EXCLUDED, "::1", 443),
                any = row_of(ROW_ENDPOINT, "0.0.0.0", 443);
        Row any6 = row_of(ROW_ENDPOINT, "::", 443), other = row_of(ROW_ENDPOINT, "127.0.0.1", 80),
                peer = row_of(ROW_PEER, "127.0.0.1", 443);
        Row rest = { .kind = ROW_ENDPOINT, .rest = true, .port = 443 };
        Selector s;

        s = parsed("requests.server.latency.p99", "requests.server.latency.p99");
        check(s.type == SELECTOR_NONE && !selector_matches(&s, &a, NULL));
        s = parsed("", "");
        check(s.type == SELECTOR_NONE);

        s = parsed("requests.server[:443].latency.p99", "requests.server.latency.p99");
        check(s.type == SELECTOR_PORT && !s.client);
        check(selector_matches(&s, &a, NULL) && selector_matches(&s, &b, NULL) &&
              selector_matches(&s, &any6, NULL));
        check(!selector_matches(&s, &other, NULL) && !selector_matches(&s, &peer, NULL) &&
              !selector_matches(&s, &rest, NULL));

        s = parsed("requests.server[127.0.0.1:443].count", "requests.server.count");
        check(selector_matches(&s, &a, NULL) && !selector_matches(&s, &any, NULL) &&
              !selector_matches(&s, &other, NULL));
        s = parsed("requests.server[[::1]:443].count", "requests.server.count");
        check(selector_matches(&s, &b, NULL) && !selector_matches(&s, &any6, NULL));
        s = parsed("requests.server[*:443].count", "requests.server.count");
        check(selector_matches(&s, &any, NULL) && !selector_matches(&s, &any6, NULL) &&
              !selector_matches(&s, &a, NULL));
        s = parsed("requests.server[0.0.0.0:443].count", "requests.server.count");
        check(selector_matches(&s, &any, NULL));
        s = parsed("requests.server[[::]:443].count", "requests.server.count");
        check(selector_matches(&s, &any6, NULL) && !selector_matches(&s, &any, NULL));
        s = parsed("requests.server[[0:0:0:0:0:0:0:0]:443].count", "requests.server.count");
        check(selector_matches(&s, &any6, NULL));

        s = parsed("requests.server[/run/a].b].sock].rate", "requests.server.rate");
        check(s.type == SELECTOR_PATH && !selector_matches(&s, &a, NULL));
        {
                Row path = { .kind = ROW_ENDPOINT, .family = AF_UNIX, .port = 443, .path =
                             "/run/a].b].sock" };

                check(selector_matches(&s, &path, NULL));
                s = parsed("requests.server[/run/a].b].soc].rate", "requests.server.rate");
                check(!selector_matches(&s, &path, NULL));
                /* What stands for its path is no port */
                s = parsed("requests.server[:443].rate", "requests.server.rate");
                check(!selector_matches(&s, &path, NULL));
                strcpy(path.path, "@x");
                s = parsed("requests.server[@x].rate", "requests.server.rate");
                check(selector_matches(&s, &path, NULL));
        }

        s = parsed("storage.mounts[/srv/a\\040]b].reads.latency.p99", "storage.reads.latency.p99");
        check(s.type == SELECTOR_MOUNT && selector_matches_text(&s, "/srv/a\\040]b"));
        check(!selector_matches_text(&s, "/srv") && !selector_matches(&s, &a, NULL));
        check(selector_is_private(&s));
        s = parsed("storage.mounts[8:1].syncs.count", "storage.syncs.count");
        check(selector_matches_text(&s, "8:1") && !selector_matches_text(&s, "8:10"));
        {
                static const char *const invalid[] = {
                        "storage.mounts[].reads.count", "storage.mounts[srv].reads.count",
                        "storage.mounts[8:].reads.count", "storage.mounts[:1].reads.count",
                        "storage.mounts[8:1x].reads.count", "storage[/srv].reads.count",
                };
                char buffer[SELECTOR_METRIC_MAX];

                for (size_t i = 0; i < ELEMENTSOF(invalid); i++)
                        check(selector_parse(invalid[i], &s, buffer) == -EINVAL);
        }

        s = parsed("requests.client[:443].rate", "requests.client.rate");
        check(s.client && selector_matches(&s, &peer, NULL) && !selector_matches(&s, &a, NULL));
        s = parsed("requests.client[redis-server.service].rate", "requests.client.rate");
        check(s.type == SELECTOR_UNIT && selector_matches(&s, &peer, "redis-server.service"));
        check(!selector_matches(&s, &peer, "redis-server.service2") &&
              !selector_matches(&s, &peer, "redis-server.servic"));
        check(!selector_matches(&s, &peer, NULL) && !selector_matches(&s, &a, "redis-server.service"));
        /* What looks like an address, or like brackets, may be part of a unit's name */
        s = parsed("requests.client[a:80.service].rate", "requests.client.rate");
        check(s.type == SELECTOR_UNIT && selector_matches(&s, &peer, "a:80.service"));
        s = parsed("requests.client[/user.slice/a[1].x].rate", "requests.client.rate");
        check(s.type == SELECTOR_PATH && selector_matches(&s, &peer, "/user.slice/a[1].x"));
        /* A socket's path, of a peer as of an endpoint */
        s = parsed("requests.client[/run/a.sock].rate", "requests.client.rate");
        peer.family = AF_UNIX;
        (void) snprintf(peer.path, sizeof(peer.path), "/run/a.sock");
        check(selector_matches(&s, &peer, NULL) && !selector_matches(&s, &a, NULL));
        s = parsed("requests.client[/run/a.soc].rate", "requests.client.rate");
        check(!selector_matches(&s, &peer, NULL));
}

static void test_selector_invalid(void) {
        static const char *const names[] = {
                "[", "]", "[]", "].[", "requests[:80].server.count", "requests.server[].count",
                        "requests.server[:80]",
                "requests.server[:80].", "requests.server[:80]count", "requests.server:80].count",
                "requests.server[:80.count",
                "requests.server[:].count", "requests.server[:0].count", "requests.server[:65536].count",
                "requests.server[:000080].count", "requests.server[:8o].count",
                "requests.server[: 80].count",
                "requests.server[80].count", "requests.server[127.0.0.1].count",
                "requests.server[127.0.0:80].count",
                "requests.server[127.0.0.256:80].count", "requests.server[::1:80].count",
                "requests.server[[::1]].count",
                "requests.server[[::1:80].count", "requests.server[[]:80].count",
                "requests.server[[1.2.3.4]:80].count",
                "requests.server[**:80].count", "requests.server[a.service].count",
                "requests.server[/].count", "requests.server[@].count",
                "requests.client[.service].count", "requests.client[/].count", "requests.client[@].count",
                "requests.client[a.timer].count",
                "requests.servers[:80].count", "xrequests.server[:80].count",
        };
        char metric[SELECTOR_METRIC_MAX], name[10000];
        Selector s;

        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                if (selector_parse(names[i], &s, metric) != -EINVAL) {
                        fprintf(stderr, "'%s' was taken\n", names[i]);
                        exit(EXIT_FAILURE);
                }

        /* Too long, in each of the parts; the last that fits */
        for (unsigned before = 0; before < 2; before++)
                for (size_t l = 0; l < 200; l++) {
                        int r;

                        (void) snprintf(name, sizeof(name), "%s%0*u", before ? "requests.server[:80]." : "",
                                        (int) l + 1, 0);
                        r = selector_parse(name, &s, metric);
                        check(r == (l + 1 + (before ? strlen("requests.server.") : 0) < SELECTOR_METRIC_MAX ?
                                    0 : -ENAMETOOLONG));
                }
        memset(name, '1', sizeof(name));
        memcpy(name, "requests.server[", strlen("requests.server["));
        strcpy(name + sizeof(name) - 20, ":80].count");
        check(selector_parse(name, &s, metric) == -EINVAL);
}

static void test_exclude(void) {
        static const char *const invalid[] = {
                "", "port", "port:", "port:0", "port:00", "port:65536", "port:-1", "port:+1", "port: 1",
                        "port:1 ", "port:0x10", "Port:1",
                "9100", "port:99999999999999999999999999999", "port:1,port:2",
                "http", "http:", "http:healthz", "http:*", "http:/*a", "http:/a*", "http:/a/**", "http:/a b",
                "http:/a?b", "http:/a#b",
                "http:/a\n", "http:/\xc3\xa4", "http:/a/b/c/d/*", "HTTP:/a", "https:/a", "http://a/*/b",
                "redis", "redis:", "redis:A B",
                "redis:*", "redis:/a", "redis:a:b", "Redis:GET", "/healthz", "BRPOP",
        };
        static const char *const valid[] = {
                "http:/", "http:/*", "http:/a/b/c/*", "http:/a/b/c/d/e", "http:/~a-b_c.d;e=f,g%20", "port:1",
                        "redis:BRPOP", "redis:FT.SEARCH",
                "redis:GEORADIUS_RO",
        };
        ExcludeList all = {};
        char path[2 * EXCLUDE_STRING_MAX] = "http:/";
        ExcludeList a = {}, b = {}, full = {};
        char buffer[32];

        for (size_t i = 0; i < ELEMENTSOF(invalid); i++)
                check(exclude_list_add(&a, invalid[i]) == -EINVAL && a.n == 0);

        check(exclude_list_add(&a, "port:9100") == 0 && exclude_list_add(&a, "port:65535") == 0 &&
              exclude_list_add(&a, "port:1") == 0);
        check(exclude_list_add(&a, "port:9100") == 0 && exclude_list_add(&a, "port:09100") == 0 && a.n == 3);
        check(streq(a.list[0].text, "port:1") && streq(a.list[1].text, "port:9100") &&
              streq(a.list[2].text, "port:65535"));

        check(exclude_list_add(&b, "port:65535") == 0 && exclude_list_add(&b, "port:2") == 0);
        check(exclude_list_merge(&a, &b) == 0 && a.n == 4 && a.list[1].name == 2);

        for (unsigned i = 0; i < EXCLUDES_MAX; i++) {
                (void) snprintf(buffer, sizeof(buffer), "port:%u", 100 - i);
                check(exclude_list_add(&full, buffer) == 0);
        }
        check(exclude_list_add(&full, "port:100") == 0); /* it is there */
        check(exclude_list_add(&full, "port:101") == -E2BIG && full.n == EXCLUDES_MAX);
        check(exclude_list_merge(&full, &b) == -E2BIG && full.n == EXCLUDES_MAX);
        for (unsigned i = 1; i < EXCLUDES_MAX; i++)
                check(full.list[i].name == full.list[i - 1].name + 1);

        for (size_t i = 0; i < ELEMENTSOF(valid); i++)
                check(exclude_list_add(&all, valid[i]) == 0);
        for (size_t i = 0; i < all.n; i++)
                check(streq(all.list[i].text, valid[i]));
        check(exclude_list_add(&all, "redis:brpop") == 0 && all.n == ELEMENTSOF(valid));

        /* As long as can be */
        memset(path + strlen(path), 'a', EXCLUDE_STRING_MAX - strlen(path));
        path[EXCLUDE_STRING_MAX] = 0;
        check(exclude_list_add(&all, path) == -EINVAL);
        path[EXCLUDE_STRING_MAX - 1] = 0;
        check(exclude_list_add(&all, path) == 0 && streq(all.list[4].text, path));
}

int main(void) {
        test_selector();
        test_selector_invalid();
        test_exclude();
        return EXIT_SUCCESS;
}
