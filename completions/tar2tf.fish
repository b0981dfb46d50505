function __tar2tf
    set -l command (commandline -opc)[1]
    for line in (env COMP_LINE=(commandline -cp | string collect) _TAR2TF_COMPLETE=fish_complete $command 2>/dev/null)
        if test "$line" = file
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end

complete --no-files --command tar2tf --arguments "(__tar2tf)"
