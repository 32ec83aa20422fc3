//! The scripts that shells load.

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    /// Commands and flags, without the names of the cluster.
    Powershell,
    /// Commands and flags, without the names of the cluster.
    Elvish,
}

const BASH: &str = r#"_usher() {
    local line directive=
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) directive=$line ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ "$directive" = :0 ]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F _usher usher
"#;

const ZSH: &str = r#"#compdef usher
_usher() {
    local line directive=
    local -a plain told
    while IFS= read -r line; do
        case $line in
            :*) directive=$line ;;
            *$'\t'*) told+=("${line%%$'\t'*}:${line#*$'\t'}") ;;
            *) plain+=("$line") ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( $#told )) && _describe usher told
    (( $#plain )) && compadd -a plain
    [[ $directive = :0 ]] && _files
}
compdef _usher usher
"#;

const FISH: &str = r#"function __usher_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines ($words[1] __complete $words[2..] 2>/dev/null)
    string match -v -r '^:' -- $lines
    contains -- :0 $lines; and __fish_complete_path (commandline -ct)
end
complete -c usher -f -a '(__usher_complete)'
"#;

/// Writes the script of a shell.
///
/// # Errors
/// It cannot be written.
pub fn script(
    shell: Shell,
    command: &mut clap::Command,
    out: &mut (dyn std::io::Write + Send),
) -> Result<(), Error> {
    let plain = match shell {
        Shell::Bash => return Ok(out.write_all(BASH.as_bytes())?),
        Shell::Zsh => return Ok(out.write_all(ZSH.as_bytes())?),
        Shell::Fish => return Ok(out.write_all(FISH.as_bytes())?),
        Shell::Powershell => clap_complete::Shell::PowerShell,
        Shell::Elvish => clap_complete::Shell::Elvish,
    };
    let mut script = Vec::new();
    clap_complete::generate(plain, command, "usher", &mut script);
    Ok(out.write_all(&script)?)
}
