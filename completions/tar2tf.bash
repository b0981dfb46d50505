_tar2tf() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=($(_TAR2TF_COMPLETE=bash_complete COMP_LINE=$line COMP_WORDBREAKS=$COMP_WORDBREAKS "$1" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o bashdefault -o default -o nosort -F _tar2tf tar2tf 2>/dev/null ||
    complete -o bashdefault -o default -F _tar2tf tar2tf
