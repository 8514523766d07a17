# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qos-balance. Options and their values are parsed from its help

function __qos_balance_units
    systemctl list-units --type=service,scope --no-legend --no-pager --plain --full 2>/dev/null | string replace -r ' .*' ''
end

complete -c qos-balance -f -a '(__qos_balance_units)'
for line in (qos-balance --help 2>/dev/null)
    set -l option (string match -r -- '^  -(.) --([a-z-]+)(=?)(\S*) +(.*)$' $line); or continue
    set -l arguments -s $option[2] -l $option[3] -d $option[6]
    switch $option[5]
        case ''
        case UNIT
            set -a arguments -x -a '(__qos_balance_units)'
        case '*|*'
            set -a arguments -x -a (string replace -a '|' ' ' $option[5])
        case '*'
            set -a arguments -x
    end
    complete -c qos-balance $arguments
end
