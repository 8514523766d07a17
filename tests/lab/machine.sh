#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Kernels of Debian's archive, and virtual machines. Part of tests/lab/lab.

# ---------------------------------------------------------------------------------------------------------
# Kernels of Debian's archive

# As many as there are figures of in docs/KERNELS.md: the oldest that qosd works on, those whose verifiers differ most, and the newest
KERNELS=(6.12 6.12-rt 6.18 6.19 previous newest)
# Seconds; a kernel is 100 MB
KERNEL_FETCH_TIMEOUT=280
# While this file exists they run when nobody else wants the CPUs
KERNELS_IDLE=kernels/idle

# apt with lists of its own, of the archive that the root was made from
kernel_apt() {
        local program=$1; shift

        timeout --foreground $KERNEL_FETCH_TIMEOUT \
                env DEBIAN_FRONTEND=noninteractive "$program" -o Dir::Etc::SourceList="$DIR/kernels/sources.list" -o Dir::Etc::SourceParts=- \
                -o Dir::State="$DIR/kernels/state" -o Dir::State::status=/dev/null -o Dir::Cache="$DIR/kernels/cache" \
                -o APT::Architecture=amd64 -o APT::Sandbox::User=root -o Acquire::Languages=none -o Debug::NoLocking=1 "$@" </dev/null
}

# One at a time, as kernels are also fetched in the background, until the subshell ends that takes it
kernel_lock() {
        local fd

        mkdir -p "$DIR/kernels" && exec {fd}>>"$DIR/kernels/lock" || return
        flock --nonblock "$fd" && return
        say "Waiting for a kernel that is being fetched ($DIR/kernels/lock)"
        flock --timeout $(( KERNEL_FETCH_TIMEOUT + 20 )) "$fd" && return
        say "$DIR/kernels/lock is still taken after $(( KERNEL_FETCH_TIMEOUT + 20 )) s."
        return 1
}

kernel_lists() (
        kernel_lock || return
        [[ -z $(find "$DIR/kernels/fresh" -mmin -720 2>/dev/null) ]] || return 0
        # It is not looked for where the lab was up before
        [[ -v ROOT ]] || ensure_root
        keys=$ROOT/usr/share/keyrings/debian-archive-keyring.gpg
        mirror=$(awk -v suite="$SUITE" '$1 == "deb" { for (i = 2; i < NF; i++) if ($(i + 1) == suite) { print $i; exit } }' \
                 "$ROOT"/etc/apt/sources.list "$ROOT"/etc/apt/sources.list.d/*.list 2>/dev/null)
        [[ -n $mirror ]] || return
        mkdir -p "$DIR"/kernels/{state,cache}/{lists,archives}/partial || return
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$SUITE" "$keys" "$mirror" "$SUITE-backports" >"$DIR/kernels/sources.list"
        say "Reading which kernels there are"
        kernel_apt apt-get -qq update >&2 && touch "$DIR/kernels/fresh"
)

# Prints the release that a version stands for; of the flavour for virtual machines, which is small, or of that for real time
kernel_release() {
        local version=${1%-rt} flavour=cloud all series

        [[ $1 != *-rt ]] || flavour=rt
        all=$(kernel_apt apt-cache pkgnames linux-image- |
              sed -nE "s/^linux-image-([0-9]+\\.[0-9]+\\.[0-9]+\\+deb[0-9]+-$flavour-amd64)\$/\\1/p" | sort -V)
        case $version in
        newest|previous)
                series=$(sed -E 's/^([0-9]+\.[0-9]+)\..*/\1/' <<<"$all" | uniq | tail -n 2)
                if [[ $version == newest ]]; then
                        version=${series##*$'\n'}
                else
                        version=${series%%$'\n'*}
                fi
        esac
        awk -v version="$version" 'index($0, version ".") == 1 || index($0, version "+") == 1 || $0 == version { last = $0 }
                                   END { print last; exit last == "" }' <<<"$all"
}

# The kernel, its configuration and modules, in $DIR/kernels/RELEASE
kernel_fetch() (
        local release=$1 dir=$DIR/kernels/$1 parts p

        kernel_lock || return
        [[ ! -e $dir/whole ]] || return 0
        say "Fetching Linux $release"
        rm -rf -- "$dir" && mkdir -p "$dir/boot" && cd -- "$dir" || return
        # What was one package is several since 7.2, and the files of /boot lie with the modules
        mapfile -t parts < <(kernel_apt apt-cache pkgnames linux- | grep -Fx "-elinux-"{image,base,binary,modules}"-$release")
        kernel_apt apt-get -qq download "${parts[@]}" >&2 || return
        for p in *.deb; do
                dpkg-deb --extract "$p" . || return
        done
        for p in vmlinuz config; do
                [[ ! -e usr/lib/modules/$release/$p ]] || mv "usr/lib/modules/$release/$p" "boot/$p-$release" || return
        done
        rm -f -- *.deb && touch whole
)

# The initial RAM disk of such a machine, which has nothing else: its init, and the libraries that this needs. Built in the container,
# in its build directory
kernels_build() {
        enter bash -ec '
                build=/var/lib/qosd-build/kernels
                rm -rf $build && mkdir -p $build/root && cd $build/root
                bpf=/usr/src/qosd/bpf
                clang -std=gnu11 -O2 -g -target bpf -mcpu=v3 -I $bpf/abi -I $bpf/protocols -I $bpf/core -I $bpf/requests \
                        -I $bpf/contention -isystem "/usr/include/$(gcc -print-multiarch)" \
                        -c /usr/src/qosd/tests/kernels/owner.bpf.c -o ../owner.bpf.o
                bpftool gen skeleton ../owner.bpf.o name owner_bpf >../owner.skel.h
                gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wno-unused-parameter -Werror -o init \
                        -I /usr/src/qosd/bpf/abi -isystem .. -isystem ../../bpf /usr/src/qosd/tests/kernels/init.c -lbpf
                ldd init | grep -o "/[^ ]*" | xargs cp --dereference --parents -t .
                find . | cpio --quiet -o -H newc >../initramfs'
}

# In one thread, and without the check of the timer, for the reasons given at vm_qemu(); what a program needs beyond its memory ends
# the machine
kernel_boot() {
        local release=$1 output=$2 priority=()

        [[ ! -e $DIR/$KERNELS_IDLE ]] || priority=(chrt --idle 0)
        contained timeout --foreground --kill-after=5 30m "${priority[@]}" \
                qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m 1024 -nic none -no-reboot -display none -monitor none \
                -kernel "$DIR/kernels/$release/boot/vmlinuz-$release" -initrd "$DIR/build/kernels/initramfs" \
                -append "console=ttyS0 quiet panic=-1 no_timer_check" -serial "file:$output"
}

# Runs those of the given versions that there are, and sets OUTPUTS
kernels_run() {
        local version release

        OUTPUTS=()
        for version; do
                if ! release=$(kernel_release "$version"); then
                        say "There is no Linux $version in Debian's archive (any more): skipped."
                        continue
                fi
                kernel_fetch "$release" || { say "Linux $release cannot be fetched."; return 1; }
                OUTPUTS+=("$DIR/kernels/$release.txt")
                say "Loading the programs on Linux $release"
                kernel_boot "$release" "$DIR/kernels/$release.txt"
        done
}

# Begins with that in the background: it ends with this script, and the machines take only the CPU time that all others leave. What
# others may wait for, fetching, has the priority of all
kernels_start() {
        kernels_build || die "What loads the programs on other kernels could not be built."
        mkdir -p "$DIR/kernels"
        : >"$DIR/$KERNELS_IDLE"
        : >"$DIR/kernels/outputs"
        setpriv --pdeathsig KILL bash "$SELF" @run-kernels "${ROOT-}" "$@" </dev/null >"$DIR/kernels/log" 2>&1 9>&- &
        KERNELS_RUN=$!
}

# Prints all processes below one
descendants() {
        local pid

        while read -rd ' ' pid; do
                echo "$pid"
                descendants "$pid"
        done < <(cat "/proc/$1"/task/*/children 2>/dev/null)
}

# From here on the run waits for this process and those below it
hurry() {
        local pid

        for pid in "$1" $(descendants "$1"); do
                chrt --all-tasks --other --pid 0 "$pid" 2>/dev/null
        done
}

# Prints the table
kernels_report() {
        ( cd "$DIR/kernels" && python3 "$CHECKOUT/tests/kernels/report.py" --baseline "$CHECKOUT/tests/kernels/baseline" \
                "$@" "${OUTPUTS[@]##*/}" )
}

# ---------------------------------------------------------------------------------------------------------
# The virtual machine

# Called again in the keeper's mount namespace (plus one around it), where the root that the container runs on
# is /mnt/root
make_image() {
        local mode=$1 version=$2 root=/mnt/vm/root lib d; shift 2
        lib=$root/usr/local/lib/qosd-lab

        cd /mnt/dir && mkdir -p "$QOSD_LAB_VM" && rm -f "$QOSD_LAB_VM"/* || return

        # Another layer, for what only the machine is to have
        mkdir -p /mnt/vm && mount -t tmpfs -o mode=755 qosd-lab /mnt/vm && mkdir /mnt/vm/{upper,work,root} || return
        mount -t overlay -o lowerdir=/mnt/root,upperdir=/mnt/vm/upper,workdir=/mnt/vm/work qosd-lab "$root" || return

        if [[ -n $version && ! -e $root/boot/initrd.img-$version ]]; then
                # Fetched, and not installed
                cp -r -- "kernels/$version/boot/." "$root/boot" &&
                        cp -r -- "kernels/$version/usr/lib/modules/$version" "$root/usr/lib/modules/" &&
                        chroot "$root" depmod "$version" &&
                        chroot "$root" mkinitramfs -o "/boot/initrd.img-$version" "$version" || return
        fi
        # Without a version the kernel is a file of the host, which vm_image() copies
        if [[ -n $version ]]; then
                cp "$root/boot/vmlinuz-$version" "$QOSD_LAB_VM/vmlinuz" && cp "$root/boot/initrd.img-$version" "$QOSD_LAB_VM/initrd" || return
        fi

        mount --bind /mnt/src "$root/usr/src/qosd" || return
        # What scenarios and benchmarks run, and the scenarios as they were compiled by vm_image()
        for d in tests/scenarios tests/bench pycache; do
                mkdir -p "/mnt/dir/build/$d" "$root/var/lib/qosd-build/$d" && mount --bind "/mnt/dir/build/$d" "$root/var/lib/qosd-build/$d" || return
        done
        # Large, and of no use there
        for d in usr/src/qosd/.git usr/share/doc usr/share/man var/lib/apt/lists usr/lib/llvm-19; do
                [[ ! -d $root/$d ]] || mount -t tmpfs qosd-lab "$root/$d" || return
        done

        rm -f "$root/etc/apt/apt.conf.d/90qosd-lab" "$root"/etc/systemd/system/multi-user.target.wants/php*-fpm.service
        mkdir -p "$root/etc/systemd/system/serial-getty@ttyS0.service.d" "$root/etc/systemd/system/multi-user.target.wants"
        if [[ $mode == shell ]]; then
                cat >"$root/etc/systemd/system/serial-getty@ttyS0.service.d/lab.conf" <<'END'
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear ttyS0 vt220
ExecStopPost=systemctl --no-block poweroff
END
        else
                cp vm-stdin "$lib/stdin" || return
                { printf 'exec '; printf '%q ' "$@"; } >"$lib/command"
                # Virtio ports are there once udev has seen them
                cat >"$lib/run" <<'END'
#!/bin/bash
until [[ -e /dev/virtio-ports/status ]]; do
        sleep .5
done
cd /usr/src/qosd
bash /usr/local/lib/qosd-lab/command </usr/local/lib/qosd-lab/stdin \
        >/dev/virtio-ports/stdout 2>/dev/virtio-ports/stderr
r=$?
if [[ -e /var/lib/qosd-lab-again ]]; then
        # It wants to be run once more by another boot of this machine
        rm /var/lib/qosd-lab-again
        echo again >/dev/virtio-ports/status
        systemctl --no-block reboot
else
        echo $r >/dev/virtio-ports/status
        systemctl --no-block poweroff
fi
END
                cat >"$root/etc/systemd/system/lab-command.service" <<'END'
[Service]
# The machine counts as booted once it is started
Type=exec
ExecStart=bash /usr/local/lib/qosd-lab/run
Environment=HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8
END
                ln -s ../lab-command.service "$root/etc/systemd/system/multi-user.target.wants/"
        fi

        truncate -s 4G "$QOSD_LAB_VM/image" && mke2fs -q -F -t ext4 -O ^has_journal -d "$root" "$QOSD_LAB_VM/image"
}

vm_image() {
        local mode=$1 version='' boot initrd tests names; shift

        [[ $(uname -m) == x86_64 ]] || die "The virtual machine is for x86_64 only."
        need_packages qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs
        find_leader || die "The lab is not up."
        boot=/proc/$KEEPER/root/mnt/root/boot
        if [[ $KERNEL != */* ]]; then
                version=$(cd "$boot" && printf '%s\n' vmlinuz-"$KERNEL"* | sort -V | tail -n 1)
                version=${version#vmlinuz-}
                if [[ ! -e $boot/vmlinuz-$version ]]; then
                        kernel_lists && version=$(kernel_release "$KERNEL") ||
                                die "There is no Linux $KERNEL, neither in the lab nor in Debian's archive."
                        kernel_fetch "$version" || die "Linux $version cannot be fetched."
                fi
        fi
        : >"$DIR/vm-stdin"
        [[ $mode != exec || -t 0 ]] || cat >"$DIR/vm-stdin"
        say "Making the disk of the virtual machine"
        # Collecting them all takes the emulated CPU half a minute, and compiling them another one
        if [[ $mode == test ]]; then
                tests=$(enter "$@" --collect-only) || die "The scenarios cannot be collected: ${tests##*$'\n\n'}"
                mapfile -t names < <(sed -n 's/^test_.*:://p' <<<"$tests")
                set -- "$@" "${names[@]}"
        fi
        attended setpriv --pdeathsig KILL nsenter --target "$KEEPER" --mount unshare --mount --propagation private \
                --pid --fork --kill-child --mount-proc bash /mnt/src/tests/lab/lab @make-image "$mode" "$version" "$@" || die "Cannot make the disk."
        if [[ $KERNEL == */* ]]; then
                cp -- "$KERNEL" "$DIR/$QOSD_LAB_VM/vmlinuz" || die "Cannot read $KERNEL."
                rm -f "$DIR/$QOSD_LAB_VM/initrd"
                initrd=$(dirname -- "$KERNEL")/initrd.img-${KERNEL##*/vmlinuz-}
                [[ ! -e $initrd ]] || cp -- "$initrd" "$DIR/$QOSD_LAB_VM/initrd"
        fi
}

# All that --vm needs before the machine can run
vm_prepare() {
        take_lock
        boot
        build_and_install || die "qosd could not be built and started."
        vm_image "$@"
        release
}

vm_qemu() {
        local initrd=()

        cd -- "$DIR/$QOSD_LAB_VM" || return
        [[ ! -e initrd ]] || initrd=(-initrd initrd)
        # Software emulation, even where there is KVM: it is the same everywhere, also inside other machines. Both processors in
        # one thread: in threads of their own one may run into the breakpoint by which the kernel replaces an instruction (a
        # tracepoint that is switched on under load) after the kernel has forgotten about it, and that is a panic. Where others have the
        # CPUs the timer may not have fired when the kernel checks it, which is a panic, too
        qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m 3072 -nic none -no-reboot -display none \
                -kernel vmlinuz "${initrd[@]}" -append "console=ttyS0 root=/dev/vda rw panic=-1 psi=1 noautogroup no_timer_check quiet" \
                -drive file=image,if=virtio,format=raw,cache=unsafe "$@"
}

# Called again in a PID namespace of its own
run_vm() {
        local port args running
        args=(-device virtio-serial -chardev 'file,id=console,path=console,append=on' -serial chardev:console)

        cd -- "$DIR/$QOSD_LAB_VM" || return
        : >console
        for port in stdout stderr status results; do
                : >"$port"
                args+=(-chardev "file,id=$port,path=$port,append=on" -device "virtserialport,chardev=$port,name=$port")
        done
        tail -f /dev/null &
        running=$!
        tail --pid="$running" -s .2 -n +1 -f stderr >&2 &
        tail --pid="$running" -s .2 -n +1 -f stdout &
        vm_qemu -monitor none "${args[@]}"
        # With -no-reboot, QEMU ends whenever the machine reboots, also after a crash. Before a reboot that a test wants, "again"
        # is written to the port "status"
        while [[ $(<status) == again ]]; do
                : >status
                say "Booting the virtual machine again"
                vm_qemu -monitor none "${args[@]}"
        done
        kill "$running"
        wait "$running" 2>/dev/null
        # What was said last
        wait
}

# Runs what the image was made for
vm_run() {
        local status

        say "Booting the virtual machine"
        # It is what takes longest of all that runs side by side, and limits of time in it, as that of the start of qosd, are those of a
        # whole CPU, which its one thread should have
        contained nice -n -5 bash "$SELF" @run-vm
        status=$(cat -- "$DIR/$QOSD_LAB_VM/status")
        rm -f -- "$DIR/$QOSD_LAB_VM/image" "$DIR/vm-stdin"
        if [[ -z $status ]]; then
                say "The virtual machine ended early; this was said on its console:"
                tail -n 30 -- "$DIR/$QOSD_LAB_VM/console" >&2
                return "$FAILED"
        fi
        return "$status"
}
