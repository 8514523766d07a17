# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qosctl, which finds the candidates itself

# Units that may serve requests. These are units of this host also with --host=: a list of another host may take long
__qosctl_units() {
        systemctl list-units --type=service,scope,socket --no-legend --no-pager --plain --full 2>/dev/null |
                { while read -r name _; do printf '%s\n' "$name"; done; }
}

_qosctl() {
        local word='' value='' prefix='' hosts='' glue='' i
        local -a words=()

        # "=" is a word of its own to bash
        for (( i = 1; i <= COMP_CWORD; i++ )); do
                if [[ $i -gt 1 && -n $glue || ( ${COMP_WORDS[i]} == = && $word == --* ) ]]; then
                        word+=${COMP_WORDS[i]}
                        words[-1]=$word
                else
                        word=${COMP_WORDS[i]}
                        words+=("$word")
                fi
                glue=''
                [[ ${COMP_WORDS[i]} == = && $word == --*= ]] && glue=1
        done
        # Bash replaces the value alone
        [[ $word == --*=* ]] && prefix=${word%%=*}=
        value=${word#"$prefix"}

        COMPREPLY=()
        while IFS=$'\t' read -r candidate _; do
                case $candidate in
                        :units)
                                while read -r name; do
                                        [[ $name == "$value"* ]] && COMPREPLY+=("$name")
                                done < <(__qosctl_units)
                                ;;
                        :hosts)
                                # The last one of a list
                                [[ $value == *,* ]] && hosts=${value%,*},
                                mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -P "$hosts" -A hostname -- "${value##*,}")
                                ;;
                        :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$value") ;;
                        :command) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$value"; compgen -f -- "$value") ;;
                        "$word"*) COMPREPLY+=("${candidate#"$prefix"}") ;;
                esac
        done < <(qosctl --complete "${words[@]}" 2>/dev/null)

        if [[ ${COMPREPLY[0]:-} == -*= ]]; then
                # Its value comes next
                compopt -o nospace
        elif [[ $word != -* || -n $prefix ]]; then
                # Backslashes of escaped unit names are quoted
                compopt -o filenames
        fi
        return 0
}

complete -F _qosctl qosctl
