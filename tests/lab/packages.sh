#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A second host beside the first one, and packages. Part of tests/lab/lab.

# ---------------------------------------------------------------------------------------------------------
# A fleet: this lab, and a second one in a directory in its own

FLEET_INTERFACE=fleet0
FLEET_NETWORK=10.78.0

second() {
        attended env QOSD_LAB_DIR="$DIR/fleet" "$SELF" "$@"
}

second_is_up() {
        local DIR=$DIR/fleet

        is_up
}

second_leader() {
        local DIR=$DIR/fleet

        find_leader && echo "$LEADER"
}

# In the network of a container, by its PID 1
fleet_ip() {
        nsenter --target "$1" --net ip "${@:2}"
}

fleet_connect() {
        local other

        find_leader && other=$(second_leader) || return
        fleet_ip "$LEADER" link del $FLEET_INTERFACE 2>/dev/null
        fleet_ip "$LEADER" link add $FLEET_INTERFACE type veth peer name $FLEET_INTERFACE netns "$other" &&
                fleet_ip "$LEADER" addr add $FLEET_NETWORK.1/24 dev $FLEET_INTERFACE &&
                fleet_ip "$other" addr add $FLEET_NETWORK.2/24 dev $FLEET_INTERFACE &&
                fleet_ip "$LEADER" link set $FLEET_INTERFACE up &&
                fleet_ip "$other" link set $FLEET_INTERFACE up
}

# The first host reaches both as root over ssh
fleet_login() {
        local key

        key=$(enter sh -ec '
                install -d -m 0700 /root/.ssh
                cd /root/.ssh
                [ -e id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f id_ed25519
                cp id_ed25519.pub authorized_keys
                printf "Host %s.*\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n" "$1" >config
                systemctl start ssh.service
                cat id_ed25519.pub' sh $FLEET_NETWORK) || return
        second exec sh -ec '
                install -d -m 0700 /root/.ssh
                printf "%s\n" "$1" >/root/.ssh/authorized_keys
                systemctl start ssh.service' sh "$key"
}

# In a lab that was up before
end_fleet() {
        enter bash -c 'systemctl stop fleet-prometheus fleet-alertmanager fleet-load nginx ssh qosd-exporter.socket qosd-exporter.service
                       qosctl detach nginx
                       rm -f /etc/nginx/conf.d/fleet.conf /run/systemd/system/qosd-exporter.*.d/50-fleet.conf
                       systemctl daemon-reload
                       ip link del "$1"' bash $FLEET_INTERFACE 2>/dev/null
}

# Brings up the second host, beside this lab, which is up
fleet_up() {
        local what

        mkdir -p "$DIR/fleet" || { say "Cannot make $DIR/fleet."; return 1; }
        second_is_up || SECOND_OWNED=1
        say "The second host"
        second up || { say "The second host does not come up."; return 1; }
        for what in connect login; do
                "fleet_$what" || { say "The hosts of the fleet: $what failed."; return 1; }
        done
        # Not in the root: nothing else needs it
        enter sh -ec 'command -v prometheus-alertmanager >/dev/null || {
                        apt-get -qq update
                        apt-get -qq -y --no-install-recommends install prometheus-alertmanager >/dev/null
                        systemctl stop prometheus-alertmanager.service
                      }' || { say "prometheus-alertmanager could not be installed in the lab."; return 1; }
}

fleet_compare() {
        enter_logged "$DIR/fleet.log" python3 tests/fleet/run.py "$@"
}

verb_fleet() {
        local options=("$@")

        need_packages ip=iproute2 nsenter=util-linux
        take_lock
        boot
        build_and_install || die "qosd could not be built and started."
        fleet_up || die "There is no fleet."
        fleet_compare "${options[@]}" || die "The fleet is not as it should be."
        if (( ${#options[@]} )); then
                KEEP=1
                : >"$DIR/keeper.stay"
                OWNED='' SECOND_OWNED=''
                say "The fleet is left running: \"$0 exec curl http://localhost:9090/\" is its Prometheus, \"$0 exec qosctl -H root@$FLEET_NETWORK.1,root@$FLEET_NETWORK.2\" shows both hosts."
                say "It ends with \"$0 down\" and \"QOSD_LAB_DIR=$DIR/fleet $0 down\"."
        fi
}

# ---------------------------------------------------------------------------------------------------------
# Debian packages

as_build() {
        setpriv --reuid=build --regid=build --init-groups env HOME=/home/build CCACHE_DIR=/var/lib/qosd-build/ccache \
                PATH="/usr/lib/ccache:$PATH" "$@"
}

user_build() {
        id build >/dev/null 2>&1 || useradd --create-home build
}

# Inside the container that builds. As an ordinary user, and from nothing but the sources; what has been compiled before is found by
# ccache
deb_inside() {
        local base=/var/lib/qosd-build

        user_build
        cd "$base" || return
        rm -rf source packages previous
        mkdir -p source packages previous ccache
        tar -C source -xf source.tar
        chown -R build: source packages previous ccache
        chown build: .
        cd source || return
        as_build dpkg-buildpackage --no-sign
        mv ../qosd_*.{dsc,tar.xz,buildinfo,changes} ../*.deb ../packages
        as_build lintian --display-info --pedantic --fail-on error,warning,info,pedantic ../packages/*.changes

        # The same as an older version, which upgrades begin with
        sed -i '1s/(.*)/(0.0)/' debian/changelog
        sed -i 's/ [0-9.]*$/ 0.0/' debian/libqosd0.symbols
        sed -i "0,/ version : '.*'/s// version : '0.0'/" meson.build
        as_build dpkg-buildpackage --no-sign --build=binary
        rm -f ../*-dbgsym_*.deb
        mv ../*.deb ../previous
        rm -f ../qosd_*
}

# The same with rpmbuild of Debian, which knows the dependencies of another distribution by name only, and fails if an installed file is
# in none of the packages
rpm_inside() {
        local base=/var/lib/qosd-build version

        apt-get -qq -y --no-install-recommends install rpm >/dev/null
        user_build
        cd "$base" || return
        rm -rf source rpm
        mkdir -p source rpm/SOURCES ccache
        tar -C source -xf source.tar
        version=$(rpmspec -q --srpm --qf '%{version}' source/rpm/qosd.spec)
        tar -C source --transform "s,^\./,qosd-$version/," -czf "rpm/SOURCES/qosd-$version.tar.gz" .
        chown -R build: source rpm ccache
        as_build rpmbuild --quiet --nodeps --define "_topdir $base/rpm" -bb source/rpm/qosd.spec
        rpm -qp --qf '%{name} %{version}-%{release}: [%{filenames} ]\n' rpm/RPMS/*/*.rpm | cut -c1-150
}

# In the lab that builds: runs a function inside, beside the sources of this checkout
build_packages() {
        local file

        take_lock
        boot
        git -C "$CHECKOUT" ls-files -z --cached --others --exclude-standard --deduplicate |
                while IFS= read -r -d '' file; do
                        [[ ! -e $CHECKOUT/$file ]] || printf '%s\0' "$file"
                done | tar -C "$CHECKOUT" --null -T - --owner=root --group=root -cf "$DIR/build/source.tar" ||
                die "Cannot read $CHECKOUT."
        limited deb enter bash -euc "$(declare -f as_build user_build "$1"); $1" >&2
}

verb_deb_build() {
        build_packages deb_inside || die "The packages could not be built, or lintian has something to say about them."
}

verb_rpm_build() {
        build_packages rpm_inside || die "The packages could not be built, or not each installed file is in one of them."
}

# In the plain system
verb_deb_run() {
        take_lock
        boot
        limited deb enter "$@" || exit
}

# Inside: the tests of the packages themselves
deb_tests_inside() {
        apt-get -qq -y --no-install-recommends install autopkgtest dpkg-dev >/dev/null
        # A container with its own PID 1 is as good as the machine that they want
        autopkgtest --ignore-restrictions=isolation-machine "$1"/*.deb "$1"/*.dsc -- null
}

# A lab with another root
deb_lab() {
        attended setpriv --pdeathsig TERM env QOSD_LAB_ROOT="$1" QOSD_LAB_DIR="$DIR/deb-$1" "$SELF" "${@:2}"
}

verb_deb() {
        local from=$DIR/deb-build/build to=$DIR/deb-plain/build inside=/var/lib/qosd-build

        need_packages git
        deb_lab build @deb_build || exit
        mkdir -p "$to" && rm -rf -- "$to"/{packages,previous} && cp -r -- "$from"/{packages,previous} "$to" || die "Cannot write to $to."
        rm -f -- "$to"/*/*-dbgsym_*.deb
        deb_lab plain @deb_run python3 tests/packages/run.py $inside/packages $inside/previous >&2 || die "The packages are not as they should be."
        deb_lab plain @deb_run bash -euc "$(declare -f deb_tests_inside); deb_tests_inside \"\$@\"" tests $inside/packages >&2 ||
                die "debian/tests failed."
        say "The packages are in this directory:"
        printf '%s\n' "$from/packages"
}

verb_rpm() {
        need_packages git
        deb_lab build @rpm_build || exit
        say "The packages are in this directory:"
        printf '%s\n' "$DIR/deb-build/build/rpm/RPMS"
}
