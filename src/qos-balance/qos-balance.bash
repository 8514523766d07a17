# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qos-balance: options and methods are those of its help

_qos_balance() {
        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' usage
        local before=${COMP_WORDS[COMP_CWORD - 2]:-}

        # "=" is a word of its own to bash
        if [[ $cur == = ]]; then
                cur='' prev=${prev}=
        elif [[ $prev == = ]]; then
                prev=${before}=
        fi

        while read -r short usage _; do
                [[ $short == -? && $usage == --* ]] || continue
                if [[ $prev == "$short" && $usage == *=* || $prev == "${usage%%=*}=" ]]; then
                        usage=${usage#*=}
                        case $usage in
                                UNIT) words=:units ;;
                                *\|*) words=${usage//|/ } ;;
                                *) return 0 ;;
                        esac
                        break
                elif [[ $cur == -* ]]; then
                        words+=" $short ${usage%%=*}"
                        [[ $usage == *=* ]] && words+="="
                fi
        done < <(qos-balance --help 2>/dev/null)

        [[ -z $words && $cur != -* || $words == :units ]] &&
                words=$(systemctl list-units --type=service,scope --no-legend --no-pager --plain --full 2>/dev/null |
                        { while read -r name _; do printf '%s\n' "$name"; done; })

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

complete -F _qos_balance qos-balance
