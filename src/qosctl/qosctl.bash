# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion for qosctl. Candidates are printed by 'qosctl --complete'

# Units that may serve requests. Units of this host are offered also with --host=, as listing those of another one is slow
__qosctl_units() {
        systemctl list-units --type=service,scope,socket --no-legend --no-pager --plain --full 2>/dev/null |
                { while read -r name _; do printf '%s\n' "$name"; done; }
}

_qosctl() {
        local word='' value='' prefix='' hosts='' glue='' i
        local -a words=()

        # Join words that bash has split at "="
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
        # Bash replaces only the part after "="
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
                                # Complete the last item of a list
                                [[ $value == *,* ]] && hosts=${value%,*},
                                mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -P "$hosts" -A hostname -- "${value##*,}")
                                ;;
                        :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$value") ;;
                        :command) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$value"; compgen -f -- "$value") ;;
                        "$word"*) COMPREPLY+=("${candidate#"$prefix"}") ;;
                esac
        done < <(qosctl --complete "${words[@]}" 2>/dev/null)

        if [[ ${COMPREPLY[0]:-} == -*= ]]; then
                # An option that needs a value
                compopt -o nospace
        elif [[ $word != -* || -n $prefix ]]; then
                # Quote backslashes in escaped unit names
                compopt -o filenames
        fi
        return 0
}

complete -F _qosctl qosctl
