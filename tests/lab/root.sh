#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The packages of the host that the lab needs, and the root of the lab. Part of tests/lab/lab.

# ---------------------------------------------------------------------------------------------------------
# The host

apt() {
        env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -y "$@" </dev/null >&2
}

apt_install() {
        apt --no-install-recommends install "$@"
}

need_packages() {
        local p miss=()

        for p; do
                # "program=package", or a name that is both
                command -v "${p%%=*}" >/dev/null || miss+=("${p#*=}")
        done
        (( ${#miss[@]} )) || return 0

        command -v apt-get >/dev/null || die "This needs ${miss[*]}, and there is no apt to install it with."
        say "Installing on this machine: ${miss[*]}"
        # There may be no lists yet, or lists too old to install from
        if ! apt-get --simulate install "${miss[@]}" >/dev/null 2>&1 || ! apt_install "${miss[@]}"; then
                apt update && apt_install "${miss[@]}" || die "Cannot install ${miss[*]}."
        fi
        hash -r
}

# Prints the address of the Debian archive that this machine uses; apt itself reads the configuration for us,
# whatever its format.
host_mirror() {
        local uri release component

        # shellcheck source=/dev/null
        [[ $(. /etc/os-release; echo "$ID") == debian ]] || return 1
        while read -r uri release component; do
                [[ $component == main && $release != */* && $release != *-* ]] || continue
                if [[ $uri == mirror+file:* ]]; then
                        uri=${uri#mirror+file:}
                        uri=$(awk '/^http/ { print $1; exit }' "/${uri##+(/)}")
                fi
                if [[ $uri == http://* || $uri == https://* ]]; then
                        printf '%s\n' "${uri%/}"
                        return 0
                fi
        done < <(apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
                         'Created-By: Packages' 2>/dev/null)
        return 1
}

# How this machine reaches it: proxies, clocks that cannot be trusted and so on
host_apt_conf() {
        apt-config dump | grep -E '^Acquire::(https?::(Proxy|Timeout|Pipeline|Verify|Ca)|Check-|Force|Retries)[^ ]* "'
}

# ---------------------------------------------------------------------------------------------------------
# The root

packages() {
        {
                cat "$CHECKOUT/tests/lab/packages${QOSD_LAB_ROOT:+-$QOSD_LAB_ROOT}"
                if [[ $QOSD_LAB_ROOT == build ]]; then
                        # Without versions, which dpkg-buildpackage checks; "debhelper-compat" and "dh-sequence-..." are debhelper
                        awk '/^Build-Depends:/ { on = 1; next } !/^ / { on = 0 } on { print $1 }' "$CHECKOUT/debian/control" |
                                sed 's/,$//; s/:any$//; /^dh-sequence-/d; s/^debhelper-compat$/debhelper/'
                fi
        } | sed 's/#.*//; s/[[:space:]]*//g; /^$/d' | sort -u
}

root_key() {
        { echo "$SUITE $ROOT_VERSION $(uname -m)"; packages; } | sha256sum | cut -c1-12
}

root_manifest() {
        ( cd -- "$1" && find . -xdev -printf '%P %y %s %m %U\n' | sort | sha256sum )
}

# Sums up what mmdebstrap -v says: that is thousands of lines, and silence would be minutes
progress() {
        local line n=0 all='?' word last=

        while IFS= read -r line; do
                case $line in
                *' newly installed, '*)
                        all=${line#* upgraded, }; all=${all%% *}; n=0; last=;;
                Get:*)
                        word=downloading;;
                'Selecting previously unselected'*)
                        word=unpacking;;
                'Setting up '*)
                        word='setting up';;
                'update-initramfs: Generating'*)
                        say "  making the initial RAM disk"; continue;;
                E:*|W:*|*rror:*)
                        say "  $line"; continue;;
                I:*)
                        say "  ${line#I: }"; continue;;
                *)
                        continue
                esac
                [[ $word == "$last" ]] || n=0
                last=$word
                (( ++n % 40 == 0 )) && say "  $word: $n of $all packages"
        done
}

# Called again in a namespace of its own
make_root() {
        local key=$1 target mirror conf=()

        cd -- "$DIR" && mount -t tmpfs -o mode=755 qosd-lab /mnt && mkdir /mnt/lab &&
                mount --no-canonicalize --bind . /mnt/lab || return
        target=/mnt/lab/root-$key
        if mirror=$(host_mirror); then
                mirror="deb $mirror $SUITE main"
        else
                mirror=
        fi
        mapfile -t conf < <(host_apt_conf)

        echo 'set -e' >/mnt/customize
        # Nothing in it may start by itself what a test wants to start, or wake up in a measurement
        [[ -n $QOSD_LAB_ROOT ]] || cat >>/mnt/customize <<'END'
chroot "$1" systemctl --quiet disable nginx.service redis-server.service haproxy.service memcached.service \
        dbus-broker.service ssh.service ssh.socket postgresql.service unbound.service caddy.service mariadb.service \
        apache2.service mosquitto.service dovecot.service dovecot.socket rsync.service \
        prometheus.service cockpit.socket nfs-server.service nfs-client.target rpcbind.service rpcbind.socket
chroot "$1" sh -c 'systemctl --quiet disable php*-fpm.service'
ln -sf dbus.service "$1/usr/lib/systemd/system/messagebus.service"
END
        cat >>/mnt/customize <<'END'
chroot "$1" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer man-db.timer \
        logrotate.timer e2scrub_all.timer e2scrub_reap.service xfs_scrub_all.timer fstrim.timer \
        systemd-tmpfiles-clean.timer \
        console-getty.service
# Without an ID each boot would be a first boot, and apply presets
od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1/etc/machine-id"
echo >>"$1/etc/machine-id"
echo qosd-lab >"$1/etc/hostname"
printf '127.0.0.1 localhost qosd-lab\n::1 localhost ip6-localhost\n' >"$1/etc/hosts"
echo 'debconf debconf/frontend select Noninteractive' | chroot "$1" debconf-set-selections
mkdir -p "$1/usr/src/qosd" "$1/var/lib/qosd-build" "$1/var/lib/qosd-build-sanitize"
END
        mmdebstrap --verbose --mode=root --format=directory --variant=minbase --skip=cleanup/apt/lists \
                --include="$(packages | paste -sd,)" \
                --aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
                --aptopt='Acquire::GzipIndexes "true"' \
                "${conf[@]/#/--aptopt=}" \
                --customize-hook='sh /mnt/customize "$1"' \
                "$SUITE" "$target" ${mirror:+"$mirror"} 2>&1 | tee make-root.log | progress
        [[ ${PIPESTATUS[0]} -eq 0 ]]
}

# Sets ROOT to a root that is whole, and keeps it from being removed for as long as this process, or one that
# inherits the descriptor, lives.
ensure_root() {
        local key d other

        key=$(root_key)
        # That above is the directory of the first lab, for a second one
        for d in "$DIR" "${DIR%/*}" "$SHARED_DIR"; do
                [[ -e $d/root-$key.manifest ]] || continue
                exec {ROOT_LOCK}>>"$d/root-$key.lock" || die "Cannot open $d/root-$key.lock."
                flock --shared --nonblock "$ROOT_LOCK" || { exec {ROOT_LOCK}>&-; continue; }
                if [[ $(root_manifest "$d/root-$key") == "$(cat "$d/root-$key.manifest")" ]]; then
                        touch "$d/root-$key.lock"
                        ROOT=$d/root-$key
                        return 0
                fi
                say "The root in $d/root-$key is damaged."
                exec {ROOT_LOCK}>&-
        done

        need_packages mmdebstrap
        exec {ROOT_LOCK}>>"$DIR/root-$key.lock"
        flock --exclusive --nonblock "$ROOT_LOCK" || die "$DIR/root-$key is to be made again, but a lab runs on it."
        ROOT=$DIR/root-$key

        # Roots of other package lists that were not used for a day
        for other in "$DIR"/root-*.lock; do
                [[ $other != "$ROOT.lock" && -n $(find "$other" -mmin +1440 2>/dev/null) ]] || continue
                flock --exclusive --nonblock "$other" rm -rf --one-file-system \
                        "${other%.lock}.manifest" "${other%.lock}" "$other"
        done

        say "Making a Debian 13 root in $ROOT (some minutes, once)"
        rm -rf --one-file-system "$ROOT.manifest" "$ROOT" || die "Cannot remove what was left there."
        contained bash "$SELF" @make-root "$key" ||
                die "Making the root failed; all that was said is in $DIR/make-root.log."
        root_manifest "$ROOT" >"$ROOT.manifest.new" && mv "$ROOT.manifest.new" "$ROOT.manifest" || die "Cannot write."
        flock --shared "$ROOT_LOCK"
}
