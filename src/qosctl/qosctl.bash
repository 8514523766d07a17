# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qosctl

__qosctl_attached() {
        qosctl --no-legend --no-pager "${remote[@]}" list 2>/dev/null | { while read -r name _; do printf '%s\n' "$name"; done; }
}

# Units that may serve requests. These are units of this host also with --host=: a list of another host may take long
__qosctl_loaded() {
        systemctl list-units --type=service,scope,socket --no-legend --no-pager --plain --full 2>/dev/null |
                { while read -r name _; do printf '%s\n' "$name"; done; }
}

__qosctl_metrics() {
        qosctl --no-legend --no-pager "${remote[@]}" list-metrics 2>/dev/null | { while read -r metric _; do printf '%s\n' "$metric"; done; }
}

# Of the unit that is named
__qosctl_thresholds() {
        qosctl --no-legend --no-pager "${remote[@]}" list-thresholds "$unit" 2>/dev/null | { while read -r _ name _; do printf '%s\n' "$name"; done; }
}

# Those with a histogram
__qosctl_distributions() {
        __qosctl_metrics | { while read -r metric; do [[ $metric == *.max ]] && printf '%s\n' "${metric%.max}"; done; }
}

# compgen expands $words by itself
# shellcheck disable=SC2034
_qosctl() {
        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} before=${COMP_WORDS[COMP_CWORD - 2]:-}
        local verb='' words='' unit='' hosts='' i n=0
        local -a remote=()
        local common='-h --help --version -H --host= --json= -j --no-pager --no-legend --no-ask-password'
        local -A options=(
                [list]='-a --all --window='
                [attach]='--probes= --exclude= --for='
                [detach]='-a --all'
                [enable]='--now --probes= --exclude='
                [disable]=''
                [verify]=''
                [status]='--window='
                [threads]='--for='
                [resources]='--window= --for='
                [show]='-P --value --window='
                [top]='-b --batch -n --iterations= -d --delay= --window='
                [histogram]='--window='
                [history]='--since='
                [heatmap]='--since='
                [measure]=''
                [diagnose]='--for= --save= --against='
                [why]='--for='
                [set-threshold]=''
                [clear-threshold]=''
                [list-thresholds]=''
                [monitor]='--exec= --interval= --window='
                [wait]='--timeout='
                [is-ok]=''
                [probes]=''
                [metrics]='--format= --export= --buckets-max= --series-max= --verbose'
                [list-metrics]=''
                [help]=''
        )

        # "=" is a word of its own to bash
        if [[ $cur == = ]]; then
                cur='' prev=${prev}=
        elif [[ $prev == = ]]; then
                prev=${before}=
        fi

        for (( i = 1; i < COMP_CWORD; i++ )); do
                case ${COMP_WORDS[i]} in
                        -H|--host)
                                [[ ${COMP_WORDS[i + 1]:-} == = ]] && (( i++ ))
                                (( i++ ))
                                (( i < COMP_CWORD )) && remote=(--host="${COMP_WORDS[i]}")
                                ;;
                        -P|-n|-d) (( i++ )) ;;
                        --*) [[ ${COMP_WORDS[i + 1]:-} == = ]] && (( i += 2 )) ;;
                        -*) ;;
                        *)
                                if [[ -n $verb ]]; then
                                        (( ++n ))
                                        (( n > 1 )) || unit=${COMP_WORDS[i]}
                                elif [[ -v options[${COMP_WORDS[i]}] ]]; then
                                        verb=${COMP_WORDS[i]}
                                fi
                                ;;
                esac
        done

        case $prev in
                -H|--host=)
                        # The last one of a list
                        [[ $cur == *,* ]] && hosts=${cur%,*},
                        mapfile -t COMPREPLY < <(compgen -P "$hosts" -A hostname -- "${cur##*,}")
                        return
                        ;;
                --json=) words='short pretty off' ;;
                --format=) words='openmetrics openmetrics2 prometheus protobuf' ;;
                --export=) words='requests probes everything' ;;
                --window=) words='100ms 500ms 1s 10s 60s 5min total' ;;
                --since=) words='5min 10min 1h 6h today yesterday' ;;
                --timeout=) words='10s 30s 1min 10min' ;;
                --for=)
                        words='1min 10min 1h 1d'
                        [[ $verb == diagnose ]] && words='1s 2s 5s 10s 60s 5min'
                        [[ $verb == why ]] && words='1s 2s 5s 10s'
                        ;;
                --save=|--against=)
                        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                        compopt -o filenames
                        return
                        ;;
                -d|--delay=|--interval=) words='100ms 1s 5s' ;;
                -n|--iterations=) return ;;
                --probes=) words='requests tls cpu block memory requests,tls requests,cpu requests,cpu,block,memory' ;;
                --exclude=) words='port: http:/ redis:' ;;
                -P) words=$(__qosctl_metrics) ;;
                *)
                        if [[ $cur == -* ]]; then
                                if [[ -n $verb ]]; then
                                        words="$common ${options[$verb]}"
                                else
                                        words="$common ${options[*]}"
                                fi
                        elif [[ -z $verb ]]; then
                                words=${!options[*]}
                        else
                                case $verb in
                                        attach|enable|disable|verify|top|diagnose|why) words=$(__qosctl_loaded) ;;
                                        help) (( n > 0 )) || words=${!options[*]} ;;
                                        measure)
                                                if (( n == 0 )); then
                                                        words=$(__qosctl_loaded)
                                                else
                                                        mapfile -t COMPREPLY < <(compgen -c -- "$cur"; compgen -f -- "$cur")
                                                        compopt -o filenames
                                                        return
                                                fi
                                                ;;
                                        list|detach|status|show|threads|resources|list-thresholds|monitor|is-ok|metrics) words=$(__qosctl_attached) ;;
                                        set-threshold|wait) (( n == 0 )) && words=$(__qosctl_attached) ;;
                                        clear-threshold)
                                                if (( n == 0 )); then
                                                        words=$(__qosctl_attached)
                                                else
                                                        words=$(__qosctl_thresholds)
                                                fi
                                                ;;
                                        history)
                                                if (( n == 0 )); then
                                                        words=$(__qosctl_attached)
                                                else
                                                        words=$(__qosctl_metrics)
                                                fi
                                                ;;
                                        histogram)
                                                if (( n == 0 )); then
                                                        words=$(__qosctl_attached)
                                                elif (( n == 1 )); then
                                                        words=$(__qosctl_distributions)
                                                fi
                                                ;;
                                        heatmap)
                                                if (( n == 0 )); then
                                                        words=$(__qosctl_attached)
                                                elif (( n == 1 )); then
                                                        words='requests.server.latency requests.server.firstByte'
                                                fi
                                                ;;
                                esac
                        fi
                        ;;
        esac

        # Not expanded by us, so that the backslashes in escaped unit names stay
        mapfile -t COMPREPLY < <(compgen -W '$words' -- "$cur")
        if [[ ${COMPREPLY[0]:-} == -*= ]]; then
                # Its value comes next
                compopt -o nospace
        elif [[ $cur != -* ]]; then
                compopt -o filenames
        fi
        return 0
}

complete -F _qosctl qosctl
