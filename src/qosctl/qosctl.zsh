#compdef qosctl
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qosctl. Candidates are printed by 'qosctl --complete'

_qosctl() {
        local line word=${(Q)PREFIX}
        local -a before candidates prefixes units

        before=("${(@Q)words[2,CURRENT-1]}")
        for line in ${(f)"$(qosctl --complete "${before[@]}" "$word" 2>/dev/null)"}; do
                case $line in
                        (:units)
                                # Units that may serve requests
                                units=(${${(f)"$(systemctl list-units --type=service,scope,socket --no-legend --no-pager --plain --full 2>/dev/null)"}%% *})
                                compadd -a units
                                ;;
                        (:files|:hosts|:command)
                                [[ $PREFIX == --*=* ]] && compset -P '*='
                                case $line in
                                        (:files) _files ;;
                                        (:hosts) compset -P '*,'; _hosts ;;
                                        (:command) _command_names -e; _files ;;
                                esac
                                ;;
                        (*)
                                word=${${line%%$'\t'*}//:/\\:}
                                [[ $line == *$'\t'* ]] && word+=:${line#*$'\t'}
                                # An option that needs a value
                                if [[ ${line%%$'\t'*} == -*= ]]; then
                                        prefixes+=("$word")
                                else
                                        candidates+=("$word")
                                fi
                                ;;
                esac
        done
        _describe candidate candidates -- prefixes -S ''
}

_qosctl "$@"
