#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The parts of a run of all tests, and their results. Part of tests/lab/lab.

# Tiers that are yet to end; what never ended counts as a failure
TIERS=()
# How many have begun
TIER=0
SUM=(0 0 0)

since_begin() {
        printf '%d:%02d min' $(( SECONDS / 60 )) $(( SECONDS % 60 ))
}

# What the tests took, in lines of JSON for results.py: seen from here, and in the lab
RESULTS=build/results
RESULTS_INSIDE=/var/lib/qosd-build/results

# Set where what this script runs is not in the lab
OUTSIDE=

# Sets CPU to the milliseconds of the CPU that were used by the lab, or, where it is down or not used, by what this script has run
cpu_used() {
        if [[ -z $OUTSIDE ]] && is_up && find_leader; then
                CPU=$(awk '$1 == "usage_usec" { printf "%d", $2 / 1000 }' "/proc/$KEEPER/root/sys/fs/cgroup/$(cgroup_name)/cpu.stat")
        else
                # Not in a subshell, which has children of its own. The second line is theirs, as 0m1.234s for user and system
                times >"$DIR/times.$$"
                CPU=$(awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/)
                                     printf "%d", ((u[1] + s[1]) * 60 + u[2] + s[2]) * 1000 }' "$DIR/times.$$")
                rm -f -- "$DIR/times.$$"
        fi
}

# took NAME CMD...: adds what the command takes to what results.py prints
took() {
        local r begin=$SECONDS CPU cpu

        cpu_used; cpu=$CPU
        "${@:2}"; r=$?
        cpu_used
        # A new build directory may have come into being
        mkdir -p "$DIR/$RESULTS"
        printf '{"tier": "%s", "seconds": %d, "cpu": %d.%03d}\n' "$1" $(( SECONDS - begin )) \
                $(( (CPU - cpu) / 1000 )) $(( (CPU - cpu) % 1000 )) >>"$DIR/$RESULTS/tiers.jsonl"
        return $r
}

# beside NAME VERB...: begins with a verb of this script that a tier waits for. It ends with this script. The build has only the CPU
# time that all others leave, and not the machines: with time limits in them, these would fail where others use this machine as well
beside() {
        local name=$1 priority=()

        [[ $name != sanitizers ]] || priority=(chrt --idle 0)
        mkdir -p "$DIR/beside"
        setpriv --pdeathsig KILL "${priority[@]}" bash "$SELF" "${@:2}" </dev/null >"$DIR/beside/$name.log" 2>&1 9>&- &
        BESIDE[$name]=$!
}

# Waits until it has ended
beside_wait() {
        local r

        wait_limited "${BESIDE[$1]}"; r=$?
        unset "BESIDE[$1]"
        return $r
}

print_results() {
        python3 "$CHECKOUT/tests/lab/results.py" "$DIR/$RESULTS" && say "Each test is in $DIR/$RESULTS/junit.xml."
}

count_meson() {
        local dir=$1 word

        # One line of JSON a test
        while read -r word; do
                case $word in
                OK|EXPECTEDFAIL)
                        (( COUNT[0]++ ));;
                *)
                        # Also one that was skipped: the lab has all that they need
                        (( COUNT[1]++ ))
                esac
        done < <(sed -n 's/.*"result": "\([A-Z]*\)".*/\1/p' "$dir/meson-logs/testlog.json")
}

tier_meson() {
        local name=$1 dir=$2 r

        rm -f -- "$DIR/$dir/meson-logs/testlog.json"
        enter meson test -C "/var/lib/qosd-$dir" --no-rebuild --print-errorlogs --suite unit --suite contract "${@:3}"; r=$?
        count_meson "$DIR/$dir"
        cp -- "$DIR/$dir/meson-logs/testlog.json" "$DIR/$RESULTS/$name.jsonl"
        return $r
}

tier_unit() {
        tier_meson unit build
}

# What lets the tests with sanitizers begin
SANITIZERS_BEGIN=beside/sanitizers.begin

# Runs beside others: the build, at the priority of what is idle, and once it may begin the tests
sanitizers_run() {
        local COUNT=(0 0 0)

        OUTSIDE=1
        build /var/lib/qosd-build-sanitize -Db_sanitize=address,undefined || return
        until [[ -e $DIR/$SANITIZERS_BEGIN ]]; do
                sleep .2
        done
        took sanitizers limited sanitizers \
                tier_meson sanitizers build-sanitize --timeout-multiplier "$SANITIZERS_SLOWER"
}

# From here on it has a CPU of its own, if the others leave one
sanitizers_begin() {
        hurry "${BESIDE[sanitizers]}"
        : >"$DIR/$SANITIZERS_BEGIN"
}

tier_sanitizers() {
        local r

        beside_wait sanitizers; r=$?
        cat -- "$DIR/beside/sanitizers.log"
        count_meson "$DIR/build-sanitize"
        return $r
}

count_last_line() {
        local re='^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'

        [[ $(tail -n 1 -- "$1") =~ $re ]] || return
        COUNT=("${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}")
}

scenarios() {
        local name=$1 r

        enter_logged "$DIR/$name.log" python3 tests/scenarios/run.py --results="$RESULTS_INSIDE/$name.jsonl" "${@:2}"; r=$?
        count_last_line "$DIR/$name.log"
        return $r
}

tier_lab() {
        scenarios lab "$@"
}

tier_quiet() {
        scenarios quiet --part=quiet "$@"
}

# Half an hour of each service. LOADS NUMBER GLOB...: so many at a time
tier_healthy() {
        local r

        enter_logged "$DIR/healthy-$1.log" env HEALTHY_SEC=1800 python3 tests/scenarios/run.py \
                --results="$RESULTS_INSIDE/healthy-$1.jsonl" --part=quiet --nightly -n "$2" "${@:3}"; r=$?
        count_last_line "$DIR/healthy-$1.log"
        return $r
}

# In the second lab
verb_own_daemon() {
        local COUNT

        take_lock
        rm -rf -- "${DIR:?}/$RESULTS"
        boot
        build_and_install || die "qosd could not be built and started."
        mkdir -p "$DIR/$RESULTS"
        took own-daemon limited own-daemon scenarios own-daemon --part=own-daemon --shared "$@"
}

# This lab runs what the second one has not begun
tier_own-daemon() {
        local r here

        took own-daemon scenarios own-daemon --part=own-daemon --shared "$@"; r=$?
        here=("${COUNT[@]}") COUNT=(0 0 0)
        beside_wait own-daemon || r=$?
        cat -- "$DIR/beside/own-daemon.log"
        count_last_line "$DIR/own-daemon/own-daemon.log"
        (( COUNT[0] += here[0], COUNT[1] += here[1], COUNT[2] += here[2] ))
        cat -- "$DIR/own-daemon/$RESULTS/own-daemon.jsonl" >>"$DIR/$RESULTS/own-daemon.jsonl"
        cat -- "$DIR/own-daemon/$RESULTS/tiers.jsonl" >>"$DIR/$RESULTS/tiers.jsonl"
        return $r
}

# The first argument is the tier of the machine
machine_run() {
        local r

        took "$1" limited "$1" vm_run >"$DIR/beside/$QOSD_LAB_VM.log" 2>&1; r=$?
        printf '%d\n' $r >"$DIR/beside/$QOSD_LAB_VM.new" && mv -- "$DIR/beside/$QOSD_LAB_VM."{new,status}
}

# What says that the machines are made
IMAGES=beside/images

# machines_run [--nightly] KERNEL...: makes all machines, and then runs one after the other: that of the scenarios, and those that count
machines_run() {
        local kernel tests

        OUTSIDE=1
        if [[ ${1-} == --nightly ]]; then
                be_nightly
                shift
        fi
        took image limited image vm_image test python3 tests/scenarios/run.py --vm --results=/dev/virtio-ports/results "${NIGHTLY[@]}"
        for kernel; do
                tests=("${COUNTS_TESTS[@]}")
                if [[ $kernel == newest ]] && (( ${#NIGHTLY[@]} )); then
                        tests+=('busy.*')
                fi
                counts_image "$kernel" "${tests[@]}"
        done
        : >"$DIR/$IMAGES"
        machine_run vm
        for kernel; do
                QOSD_LAB_VM=vm-$kernel machine_run counts
        done
}

images_made() {
        while [[ ! -e $DIR/$IMAGES ]] && kill -0 "${BESIDE[machines]}" 2>/dev/null; do
                sleep .2
        done
}

# Before the scenarios leave their traces in what the machines are made of
images_wait() {
        limited image attended images_made
        [[ -e $DIR/$IMAGES ]] && return
        cat -- "$DIR/beside/machines.log"
        die "The virtual machines could not be made."
}

machine_ended() {
        while [[ ! -e $DIR/beside/$QOSD_LAB_VM.status ]] && kill -0 "${BESIDE[machines]}" 2>/dev/null; do
                sleep .2
        done
}

machine_wait() {
        local r

        attended machine_ended; r=$?
        if (( r == 124 )); then
                kill -KILL "${BESIDE[machines]}"
                return $r
        fi
        cat -- "$DIR/beside/$QOSD_LAB_VM.log"
        r=$(cat -- "$DIR/beside/$QOSD_LAB_VM.status") || r=$FAILED
        return "$r"
}

tier_vm() {
        local r

        if [[ -v BESIDE[machines] ]]; then
                machine_wait; r=$?
        else
                vm_run; r=$?
        fi
        count_last_line "$DIR/$QOSD_LAB_VM/stdout"
        mkdir -p -- "$DIR/$RESULTS"
        cp -- "$DIR/$QOSD_LAB_VM/results" "$DIR/$RESULTS/$QOSD_LAB_VM.jsonl"
        return $r
}

tier_kernels() {
        local r

        wait_limited "$KERNELS_RUN"; r=$?
        KERNELS_RUN=
        cat -- "$DIR/kernels/log" >&2
        mapfile -t OUTPUTS <"$DIR/kernels/outputs"
        kernels_report | tee -- "$DIR/kernels/report"
        count_last_line "$DIR/kernels/report"
        # Those that the archive does not have any more
        COUNT[2]=$(( ${#TEST_KERNELS[@]} - ${#OUTPUTS[@]} ))
        return $r
}

# counts_image KERNEL GLOB...: the machine for tier_counts
counts_image() {
        KERNEL=$1 QOSD_LAB_VM=vm-$1 took image limited image vm_image test \
                python3 tests/scenarios/run.py --vm --results=/dev/virtio-ports/results "${@:2}"
}

tier_counts() {
        say "Counting on Linux $1"
        QOSD_LAB_VM=vm-$1 tier_vm
}

# Inside the container
compiler_inside() {
        local build=/var/lib/qosd-build/compiler clang

        apt-get -qq update
        clang=$(apt-cache pkgnames clang- | grep -xE 'clang-[0-9]+' | sort -V | tail -n 1)
        echo "lab: building with $clang" >&2
        apt-get -qq -y --no-install-recommends install "$clang" >/dev/null
        rm -rf "$build" "$build.ini"
        printf "[binaries]\nclang = '%s'\n" "$clang" >"$build.ini"
        meson setup --native-file "$build.ini" --buildtype=debugoptimized "$build" /usr/src/qosd
        ninja -C "$build"
}

# Builds with the newest clang of Debian's archive, which knows more warnings than the default one
tier_compiler() {
        local r

        enter bash -ec "$(declare -f compiler_inside); compiler_inside"; r=$?
        COUNT=($(( r == 0 )) $(( r != 0 )) 0)
        return $r
}

# The linters of the page for Cockpit, by npm on this machine, which also gets axe-core, for the scenario cockpit_faults.accessible
tier_page() {
        local r dir=$DIR/build/node

        need_packages npm
        mkdir -p -- "$dir"
        cp -r -- "$CHECKOUT"/cockpit/. "$dir" && attended npm --prefix "$dir" ci --ignore-scripts --no-audit --no-fund >&2 &&
                attended npm --prefix "$dir" run lint >&2; r=$?
        COUNT=($(( r == 0 )) $(( r != 0 )) 0)
        return $r
}

# Whether unit and contract tests notice the changes of tests/mutate/mutations.py
tier_mutations() {
        local r

        enter python3 -B /usr/src/qosd/tests/mutate/mutate.py | tee -- "$DIR/mutations.log"; r=${PIPESTATUS[0]}
        count_last_line "$DIR/mutations.log"
        return "$r"
}

# The packages of both kinds, as `deb` and `rpm` build and check them
tier_packages() {
        local kind

        for kind in deb rpm; do
                attended setpriv --pdeathsig TERM "$SELF" $kind
                (( COUNT[$? != 0]++ ))
        done
        (( COUNT[1] == 0 ))
}

# A fleet of this lab and a second one, which ends with the tier
tier_fleet() {
        local r=1

        if fleet_up; then
                fleet_compare; r=$?
                count_last_line "$DIR/fleet.log"
        fi
        end_fleet
        if [[ -n $SECOND_OWNED ]]; then
                second down && SECOND_OWNED=
        fi
        return $r
}

# failed RESULTS MESSAGE: adds the reason of a failure that is none of a single test to what results.py prints
failed() {
        printf '{"name": "all", "result": "FAIL", "output": "%s"}\n' "$2" >>"$DIR/$RESULTS/$1.jsonl"
}

tier() {
        local r begin=$SECONDS took=(took "$1") results=$1
        COUNT=(0 0 0)

        [[ $1 != counts ]] || results=vm-$2

        (( ++TIER ))
        say "---- $1 ($TIER of $(( TIER - 1 + ${#TIERS[@]} )), at $(date +%T), $(since_begin) after the beginning)"
        # What runs beside others adds to the results by itself
        if (( ${#BESIDE[@]} )) && [[ $1 == @(own-daemon|sanitizers|vm|counts) ]]; then
                took=()
        fi
        "${took[@]}" limited "$1" "tier_$1" "${@:2}"; r=$?
        # Ended badly, and none of its tests is to blame; or there were no tests
        if (( COUNT[1] == 0 && (r != 0 || COUNT[0] == 0) )); then
                say "$1: did not run to its end"
                COUNT[1]=1
                failed "$results" "did not run to its end"
        elif (( COUNT[1] )) && [[ ! -e $DIR/$RESULTS/$results.jsonl ]]; then
                failed "$results" "${COUNT[1]} failed"
        fi
        say "$1: ${COUNT[0]} passed, ${COUNT[1]} failed, ${COUNT[2]} skipped, after $(( SECONDS - begin )) s"
        (( SUM[0] += COUNT[0], SUM[1] += COUNT[1], SUM[2] += COUNT[2] ))
        TIERS=("${TIERS[@]:1}")
}

print_sum() {
        local skipped=''

        (( SUM[1] += ${#TIERS[@]} ))
        (( SUM[2] == 0 )) || skipped=", ${SUM[2]} skipped"
        printf '%d passed, %d failed%s\n' "${SUM[0]}" "${SUM[1]}" "$skipped"
}

# The kernels on which the programs are loaded
TEST_KERNELS=(6.12 newest)
# Those on which scenarios count, and what these are: one of each protocol. 6.12 is that of the virtual machine
COUNTS_KERNELS=(newest)
COUNTS_TESTS=(kernels.{http1,http2,grpc,redis,unix,tls,udp})
# Additional options of tests/scenarios/run.py
NIGHTLY=()

tier_lint() {
        local r

        enter tests/lint "$@"; r=$?
        COUNT=($(( r == 0 )) $(( r != 0 )) 0)
}

verb_fast() {
        local commit=${1-HEAD} changed

        mapfile -t changed < <(git -C "$CHECKOUT" diff --name-only --diff-filter=d "$commit" &&
                               git -C "$CHECKOUT" ls-files --others --exclude-standard)
        take_lock
        boot
        if [[ -n $OWNED ]]; then
                build_and_install || die "qosd could not be built and started."
                : >"$DIR/keeper.stay"
                OWNED=
        else
                say "Building"
                limited build build /var/lib/qosd-build >&2 || die "qosd could not be built."
        fi
        mkdir -p "$DIR/$RESULTS"
        TIERS=(unit)
        # To be read, and not to be obeyed
        "$CHECKOUT/tests/format" "$commit" 9>&- || say "clang-format would write the lines above in another way"
        if (( ${#changed[@]} )); then
                TIERS=(lint unit)
                tier lint "${changed[@]}"
        fi
        tier unit
        print_sum
        TIERS=()
        (( SUM[1] == 0 ))
}

be_nightly() {
        COUNTS_TESTS=('kernels.*')
        NIGHTLY=(--nightly)
}

verb_nightly() {
        be_nightly
        TEST_KERNELS=("${KERNELS[@]}")
        COUNTS_KERNELS=("${KERNELS[@]}")
        TEST_LIMIT=$NIGHTLY_LIMIT
        # It has ten times as much to do in the VM, three times as many kernels, and the newest one counts under load, too
        LIMITS[lab]=90 LIMITS[vm]=150 LIMITS[kernels]=60 LIMITS[counts]=45
        verb_test "$@"
}

# All tiers. What needs CPU time more than it needs all of the CPUs runs beside the scenarios; the quiet ones come last, alone
test_all() {
        local kernel options=("${NIGHTLY[@]}")

        need_packages qemu-system-x86_64=qemu-system-x86 python3 ip=iproute2 nsenter=util-linux
        # What is left of the last run
        rm -rf -- "${DIR:?}/beside" "$DIR/own-daemon/own-daemon.log" "$DIR/share/claims"
        mkdir -p -- "$DIR/share/claims"
        kernels_start "${TEST_KERNELS[@]}"
        rm -f -- "$DIR/build-sanitize/meson-logs/testlog.json"
        beside sanitizers @run_sanitizers
        QOSD_LAB_DIR=$DIR/own-daemon QOSD_LAB_SHARE=$DIR/share beside own-daemon @own_daemon "${options[@]}"
        beside machines @run_machines "${options[@]}" "${COUNTS_KERNELS[@]}"
        tier unit
        images_wait
        if (( ${#NIGHTLY[@]} )); then
                tier page
                tier compiler
        fi
        tier lab --part=together "${options[@]}"
        sanitizers_begin
        tier own-daemon "${options[@]}"
        # One thread of QEMU, beside which there is a CPU for others
        rm -f -- "$DIR/$KERNELS_IDLE"
        hurry "$KERNELS_RUN"
        tier sanitizers
        if (( ${#NIGHTLY[@]} )); then
                tier packages
                tier fleet
                tier mutations
        fi
        tier vm
        for kernel in "${COUNTS_KERNELS[@]}"; do
                tier counts "$kernel"
        done
        unset 'BESIDE[machines]'
        OUTSIDE=1 tier kernels
        tier quiet "${options[@]}"
        if (( ${#NIGHTLY[@]} )); then
                # These need little of the CPUs
                tier healthy light 36 'healthy.*_idle' 'healthy.*_light'
                tier healthy loaded 6 'healthy.*_closed_loop'
        fi
}

verb_test() {
        if [[ -n $VM ]]; then
                TIERS=(vm)
        elif (( $# )); then
                TIERS=(lab)
        else
                TIERS=(unit lab own-daemon sanitizers vm "${COUNTS_KERNELS[@]/*/counts}" kernels quiet)
                if (( ${#NIGHTLY[@]} )); then
                        TIERS+=(page compiler packages fleet mutations healthy healthy)
                fi
        fi
        # Those who chose the tests know how long these take
        (( $# )) || END=$(( SECONDS + TEST_LIMIT * 60 ))
        if [[ -n $VM ]]; then
                rm -rf -- "${DIR:?}/$RESULTS"
                vm_prepare test python3 tests/scenarios/run.py --vm --results=/dev/virtio-ports/results "$@"
                tier vm
        else
                take_lock
                rm -rf -- "${DIR:?}/$RESULTS"
                boot
                took build build_and_install || die "qosd could not be built and started."
                if (( $# )); then
                        tier lab "$@"
                else
                        test_all
                fi
        fi
        print_results
        print_sum
        TIERS=()
        (( SUM[1] == 0 ))
}
