#compdef qos-balance
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qos-balance. Options and their values are parsed from its help

__qos_balance_units() {
        local -a units

        units=(${${(f)"$(systemctl list-units --type=service,scope --no-legend --no-pager --plain --full 2>/dev/null)"}%% *})
        compadd -a units
}

_qos_balance() {
        local line text value
        local -a match mbegin mend specs

        for line in ${(f)"$(qos-balance --help 2>/dev/null)"}; do
                [[ $line =~ '^  (-.) (--[a-z-]+)(=?)([^ ]*) +(.*)$' ]] || continue
                # Brackets and colons are delimiters of _arguments
                text=${${match[5]//[\[\]]/}//:/\\:}
                case $match[4] in
                        ('')
                                specs+=("($match[1] $match[2])"{$match[1],$match[2]}"[$text]")
                                continue
                                ;;
                        (UNIT) value=__qos_balance_units ;;
                        (*\|*) value="(${match[4]//|/ })" ;;
                        (*) value=' ' ;;
                esac
                specs+=("($match[1] $match[2])$match[1]+[$text]:value:$value" "($match[1] $match[2])$match[2]=[$text]:value:$value")
        done
        _arguments -s -S $specs '*:batch unit:__qos_balance_units'
}

_qos_balance "$@"
