#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The booted container, and the build in it. Part of tests/lab/lab.

# ---------------------------------------------------------------------------------------------------------
# The container

# The lab's control group, named after its directory: there is one lab per directory
cgroup_name() {
        printf 'qosd-lab-%s' "$(printf %s "$DIR" | sha256sum | cut -c1-12)"
}

# Ends what is left in the lab's control group, and removes it
clear_cgroup() {
        local cg=$1 i

        [[ -d $cg ]] || return 0
        echo 1 >"$cg/cgroup.kill"
        # They may take a moment to die
        for (( i = 0; i < 200; i++ )); do
                find "$cg" -depth -type d -exec rmdir {} + 2>/dev/null
                [[ -d $cg ]] || return 0
                sleep .05
        done
        say "$cg cannot be removed."
}

end_keeper() {
        if [[ -n $NSPAWN ]]; then
                kill -KILL "$NSPAWN" 2>/dev/null
                wait "$NSPAWN"
        fi
        clear_cgroup "$CGROUP"
        autogroup_restore
        rm -rf upper work
}

# Where no controller "cpu" takes precedence, each service gets a group of its own from this. Two that talk as fast as they can then
# keep all others from running for up to half a minute (seen on 6.18, without any BPF program). One setting for all labs of this machine:
# the first switches it off, the last to go restores it
autogroup_off() {
        mkdir -p "$SHARED_DIR"
        (
                flock --timeout 10 8 && mkdir "$CGROUP" || exit
                if [[ $(cat "$AUTOGROUP" 2>/dev/null) == 1 ]]; then
                        echo 1 >"$SHARED_DIR/autogroup" && echo 0 >"$AUTOGROUP"
                fi
        ) 8>>"$SHARED_DIR/autogroup.lock"
}

autogroup_restore() {
        (
                flock --timeout 10 8 || exit
                if [[ -e $SHARED_DIR/autogroup ]] && ! compgen -G '/sys/fs/cgroup/qosd-lab-*' >/dev/null; then
                        cat "$SHARED_DIR/autogroup" >"$AUTOGROUP"
                        rm -f "$SHARED_DIR/autogroup"
                fi
        ) 8>>"$SHARED_DIR/autogroup.lock"
}

# Holds the lab while it is up. Called again in a session and mount namespace of its own.
keep() {
        local owner=$1 root=$2 conf mirror dir_fd root_fd src_fd cache_fd share_fd net_fd tun=()

        cd -- "$DIR" || return
        # Its being locked is what "up" means
        exec {KEEPER_LOCK}>>keeper.lock
        # is_up() takes it for moments too
        flock --timeout 5 "$KEEPER_LOCK" || die "This lab is up already."

        echo "$$" >keeper.pid

        # Short, fixed names, whatever the real ones are; and systemd-nspawn leaves nothing in the host's
        # /run. What is behind the mounts on /mnt and /run is reached through descriptors.
        conf=$(host_apt_conf)
        mirror=$(host_mirror)
        cp -L /etc/resolv.conf resolv.conf 2>/dev/null || : >resolv.conf
        rm -rf upper work && mkdir -p upper work build build-sanitize "$SHARE" "$SHARED_DIR/ccache" || return
        exec {dir_fd}<. && exec {root_fd}<"$root" && exec {src_fd}<"$CHECKOUT" && exec {cache_fd}<"$SHARED_DIR/ccache" &&
                exec {share_fd}<"$SHARE" && exec {net_fd}</proc/self/ns/net || return
        mount -t tmpfs -o mode=755 qosd-lab /mnt && mkdir /mnt/{dir,base,src,ccache,share,bpf,root} && touch /mnt/net || return
        mount --no-canonicalize --bind "/proc/self/fd/$dir_fd" /mnt/dir &&
                mount --no-canonicalize --bind "/proc/self/fd/$root_fd" /mnt/base &&
                mount --no-canonicalize --bind "/proc/self/fd/$src_fd" /mnt/src &&
                mount --no-canonicalize --bind "/proc/self/fd/$cache_fd" /mnt/ccache &&
                mount --no-canonicalize --bind "/proc/self/fd/$share_fd" /mnt/share &&
                mount --no-canonicalize --bind "/proc/self/fd/$net_fd" /mnt/net || return
        exec {dir_fd}<&- {root_fd}<&- {src_fd}<&- {cache_fd}<&- {share_fd}<&- {net_fd}<&-
        mount -t tmpfs -o mode=755 qosd-lab /run || return
        mount -t overlay -o lowerdir=/mnt/base,upperdir=/mnt/dir/upper,workdir=/mnt/dir/work qosd-lab /mnt/root || return
        mount -t bpf -o mode=700 qosd-lab /mnt/bpf || return

        mountpoint --quiet /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing

        # Only lo is in there, so no port that is taken here matters; apt alone goes out, the way the host does.
        mkdir -p /mnt/root/usr/local/lib/qosd-lab
        printf '#!/bin/sh\nexec nsenter --net=/dev/host-net /usr/lib/apt/methods/"${0##*-}" "$@"\n' \
                >/mnt/root/usr/local/lib/qosd-lab/apt-http
        chmod +x /mnt/root/usr/local/lib/qosd-lab/apt-http
        ln -s apt-http /mnt/root/usr/local/lib/qosd-lab/apt-https
        {
                printf 'Dir::Bin::Methods::%s "/usr/local/lib/qosd-lab/apt-%s";\n' http http https https
                printf '%s\n' "$conf"
        } >/mnt/root/etc/apt/apt.conf.d/90qosd-lab
        rm -f /mnt/root/etc/resolv.conf
        cp resolv.conf /mnt/root/etc/resolv.conf
        [[ -z $mirror ]] || echo "deb $mirror $SUITE main" >/mnt/root/etc/apt/sources.list

        umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup || return
        CGROUP=/sys/fs/cgroup/$(cgroup_name)
        clear_cgroup "$CGROUP"
        autogroup_off || return
        trap end_keeper EXIT
        trap 'exit 0' TERM
        [[ ! -e /dev/net/tun ]] || tun=(--bind=/dev/net/tun)

        ( echo "$BASHPID" >"$CGROUP/cgroup.procs" &&
          exec env -i PATH="$PATH" SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 setpriv --pdeathsig KILL \
                systemd-nspawn --quiet --directory=/mnt/root --boot --machine="$(cgroup_name)" --hostname=qosd-lab \
                --register=no --keep-unit --private-network --capability=all \
                --system-call-filter='bpf perf_event_open' \
                --bind=/mnt/bpf:/sys/fs/bpf --bind-ro=/sys/kernel/btf --bind=/sys/kernel/tracing \
                --bind=/mnt/net:/dev/host-net "${tun[@]}" \
                --bind-ro=/mnt/src:/usr/src/qosd --bind=/mnt/dir/build:/var/lib/qosd-build \
                --bind=/mnt/dir/build-sanitize:/var/lib/qosd-build-sanitize --bind=/mnt/ccache:/var/cache/ccache \
                --bind=/mnt/share:/var/lib/qosd-share \
                --resolv-conf=off --timezone=off --console=pipe ) {KEEPER_LOCK}>&- </dev/null &
        NSPAWN=$!

        # Goes down with the run that booted it, however that ends, unless that was an "up" that ended well
        setpriv --pdeathsig KILL tail --pid="$owner" -f /dev/null {KEEPER_LOCK}>&- &
        wait -n
        [[ ! -e keeper.stay ]] || wait "$NSPAWN"
}

is_up() {
        [[ -e $DIR/keeper.lock ]] && ! flock --nonblock --shared "$DIR/keeper.lock" true
}

# Sets KEEPER and LEADER, the container's PID 1 as seen from here
find_leader() {
        local pid procs keeper

        keeper=$(cat -- "$DIR/keeper.pid" 2>/dev/null) || return
        KEEPER=$keeper
        procs=/proc/$KEEPER/root/sys/fs/cgroup/$(cgroup_name)/payload/init.scope/cgroup.procs
        while read -r pid; do
                # Others may be passing through on their way in
                [[ $(awk '/^NSpid:/ { print $NF }' "/proc/$pid/status" 2>/dev/null) == 1 ]] || continue
                LEADER=$pid
                return 0
        done 2>/dev/null <"$procs"
        return 1
}

# Becomes a process in the container
enter_exec() {
        local env=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root
                   LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8 CCACHE_DIR=/var/cache/ccache "CCACHE_MAXSIZE=$CCACHE_SIZE") v scope

        for v in TERM COLORTERM NO_COLOR http_proxy https_proxy no_proxy; do
                [[ ! -v $v ]] || env+=("$v=${!v}")
        done

        find_leader || die "The lab is not up."
        # Reads the end of file when the client is gone, also one that was killed, and ends what that left in the lab. In a session of its
        # own, as signals to the client may go to its group
        scope=lab-$SCOPE-$BASHPID.scope
        exec 8> >(exec setsid sh -c 'read -r _; exec nsenter --target "$0" --all systemctl kill --signal=KILL "$1"' \
                  "$LEADER" "$scope" >/dev/null 2>&1 9>&-)
        echo "$BASHPID" >"/proc/$KEEPER/root/sys/fs/cgroup/$(cgroup_name)/payload/init.scope/cgroup.procs" ||
                die "Cannot enter the lab."
        # The scope makes it a citizen: found by systemctl, stopped at shutdown, in no other unit's control group
        exec nsenter --target "$LEADER" --mount --uts --ipc --net --pid --cgroup --root --wd \
                env -i "${env[@]}" systemd-run --scope --quiet --collect --unit="$scope" \
                --property=TimeoutStopSec=2s -- sh -c 'cd /usr/src/qosd; exec "$@" 8>&-' sh "$@"
}

# What is entered in these ways ends with the run
enter() {
        SCOPE=run attended enter_exec "$@"
}

enter_tee() {
        enter_exec "${@:2}" 2>&1 | tee -- "$1"
        return "${PIPESTATUS[0]}"
}

# The output goes to a file too
enter_logged() {
        SCOPE=run attended enter_tee "$@"
}

# With the terminal that we have
enter_foreground() {
        ( SCOPE=run enter_exec "$@" ) 9>&-
}

end_entered() {
        find_leader && nsenter --target "$LEADER" --all systemctl kill --signal=KILL 'lab-run-*.scope' 2>/dev/null
}

# Boots the container if it is down
boot() {
        local i

        if is_up; then
                [[ $(cat "$DIR/checkout") == "$CHECKOUT" ]] ||
                        die "The lab in $DIR is up with another checkout, $(cat "$DIR/checkout"): take it down, or set QOSD_LAB_DIR=."
                if find_leader; then
                        return 0
                fi
                say "A lab was left there half booted; ending it."
                kill_lab || exit
        fi

        need_packages unshare=util-linux systemd-nspawn=systemd-container
        ensure_root
        OWNED=1
        say "Booting"
        printf '%s\n' "$CHECKOUT" >"$DIR/checkout"
        rm -f -- "$DIR"/keeper.{pid,stay}
        setsid unshare --mount --propagation private bash "$SELF" @keep $$ "$ROOT" \
                </dev/null >"$DIR/console.log" 2>&1 9>&- &
        KEEPER=$!
        for (( i = 0; i < 600; i++ )); do
                find_leader && enter true 2>/dev/null && break
                (( i < 50 )) || is_up || break
                sleep .1
        done
        enter timeout 60 systemctl is-system-running --wait >"$DIR/state"
        case $(cat "$DIR/state") in
        running)
                return 0;;
        degraded)
                say "Some units of the lab failed:"
                enter systemctl --failed --no-legend --plain >&2
                return 0
        esac
        say "The lab does not boot; this was said on its console:"
        tail -n 20 "$DIR/console.log" >&2
        exit "$FAILED"
}

# Ends the lab by its keeper, without a request to the service manager in it
kill_lab() {
        local i

        kill -TERM "${KEEPER:-$(cat -- "$DIR/keeper.pid")}" 2>/dev/null
        for (( i = 0; i < 200; i++ )); do
                is_up || return 0
                sleep .05
        done
        say "The lab does not go down."
        return 1
}

# Ends the lab if this run has booted it
release() {
        if [[ -n $OWNED ]]; then
                take_down
                OWNED=
        fi
}

take_down() {
        local i

        is_up || return 0
        # SIGRTMIN+4 is "power off" for systemd: it works without any bus
        find_leader && kill -s RTMIN+4 "$LEADER"
        for (( i = 0; i < 150; i++ )); do
                is_up || return 0
                sleep .1
        done
        kill_lab
}

# ---------------------------------------------------------------------------------------------------------
# Building

# Inside the container
build_inside() {
        local dir=$1 stamp=$2; shift 2

        # ninja compares time stamps only, which may be the same for sources of another checkout and for other tools
        if [[ $(cat "$dir/stamp" 2>/dev/null) != "$stamp" || ! -e $dir/build.ninja ]]; then
                find "$dir" -mindepth 1 -delete
                meson setup "$dir" /usr/src/qosd --prefix=/usr --libdir="lib/$(gcc -print-multiarch)" --buildtype=debugoptimized "$@" &&
                        printf '%s\n' "$stamp" >"$dir/stamp" || return
        fi
        ninja -C "$dir"
}

stamp() {
        # Also how it is configured
        printf '%s %s %s %s' "$(root_key)" "$(stat -c %d:%i -- "$CHECKOUT")" "$CHECKOUT" "$(declare -f build_inside | cksum)"
}

build() {
        enter bash -c "$(declare -f build_inside); build_inside \"\$@\"" build "$1" "$(stamp)" "${@:2}"
}

install_inside() {
        local build=/var/lib/qosd-build old

        old=$(mktemp)
        cp "$build/meson-logs/install-log.txt" "$old" 2>/dev/null
        meson install -C "$build" --no-rebuild --quiet || return
        # What is not installed any more must not linger
        comm -23 <(grep -v '^#' "$old" | sort) <(grep -v '^#' "$build/meson-logs/install-log.txt" | sort) |
                xargs -r -d '\n' rm -f
        rm -f "$old"
        ldconfig
        systemd-sysusers && systemd-tmpfiles --create 2>/dev/null
        systemctl daemon-reload && systemctl reload dbus.service || return
        systemctl enable --quiet qosd.service && systemctl restart qosd.service
}

build_and_install() {
        say "Building"
        limited build build /var/lib/qosd-build >&2 || return
        say "Installing"
        limited build enter bash -c "$(declare -f install_inside); install_inside" >&2
}
