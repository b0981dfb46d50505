#compdef tar2tf

_tar2tf() {
    local line typed="${(j: :)words[1,CURRENT]}" files=0
    local -a whole begun
    for line in "${(@f)$(_TAR2TF_COMPLETE=zsh_complete COMP_LINE=$typed ${words[1]} 2>/dev/null)}"; do
        case $line in
            file) files=1 ;;
            *:$'\t'*) begun+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *$'\t'*) whole+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
        esac
    done
    (( $#whole )) && _describe -V tar2tf whole
    (( $#begun )) && _describe -V tar2tf begun -S ''
    if (( files )); then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        _files
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _tar2tf "$@"
else
    compdef _tar2tf tar2tf
fi
