# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qosctl. Candidates are printed by 'qosctl --complete'

function __qosctl_candidates
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    # Fish replaces the whole word, with the option
    set -l prefix (string match -r -- '^--[^=]*=' $word)
    set -l value (string replace -r -- '^--[^=]*=' '' $word)

    for line in (qosctl --complete $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case :units
                # Units that may serve requests
                systemctl list-units --type=service,scope,socket --no-legend --no-pager --plain --full 2>/dev/null | string replace -r ' .*' ''
            case :files
                string replace -r -- '^' "$prefix" (__fish_complete_path $value)
            case :hosts
                string replace -r -- '^' "$prefix"(string match -r -- '.*,' $value; or echo) (__fish_print_hostnames)
            case :command
                complete -C "$word"
            case '*'
                printf '%s\n' $line
        end
    end
end

complete -c qosctl -f -a '(__qosctl_candidates)'
