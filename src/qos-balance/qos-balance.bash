# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qos-balance. Options and their values are parsed from its help

_qos_balance() {
        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' usage
        local before=${COMP_WORDS[COMP_CWORD - 2]:-}

        # Bash has split words at "="
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

        # In single quotes, so that compgen expands it, and backslashes in escaped unit names are preserved
        mapfile -t COMPREPLY < <(compgen -W '$words' -- "$cur")
        if [[ ${COMPREPLY[0]:-} == -*= ]]; then
                # An option that needs a value
                compopt -o nospace
        elif [[ $cur != -* ]]; then
                compopt -o filenames
        fi
        return 0
}

complete -F _qos_balance qos-balance
