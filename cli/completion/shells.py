"""The shells' completion scripts, and where they are installed."""

import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

from hybrid.quant.ggml.errors import HybridError, UsageError, shown
from hybrid.quant.ggml.replacing import replace_file

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
# completion of hybrid for bash
_hybrid_complete() {
    local first line
    COMPREPLY=()
    { IFS= read -r first; while IFS= read -r line; do [ -n "$line" ] && COMPREPLY+=("$line"); done; } < <(
        _HYBRID_COMPLETE=bash _HYBRID_COMPLETE_LINE="${COMP_LINE:0:$COMP_POINT}" \\
            _HYBRID_COMPLETE_BREAKS="$COMP_WORDBREAKS" "${COMP_WORDS[0]}" 2>/dev/null)
    local word="${COMP_WORDS[COMP_CWORD]}"
    case "$first" in
        gguf) compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
                compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word") ;;
        any) compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word") ;;
    esac
    return 0
}
complete -F _hybrid_complete hybrid
"""

_ZSH = """\
# completion of hybrid for zsh
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_hybrid() {
    local -a lines described
    lines=("${(@f)$(_HYBRID_COMPLETE=zsh _HYBRID_COMPLETE_WORDS="${(F)${(@Q)words[1,CURRENT]}}" \\
        ${(Q)words[1]} 2>/dev/null)}")
    described=("${(@)lines[2,-1]}")
    (( ${#described} )) && [[ -n "${described[1]}" ]] && _describe hybrid described
    case "${lines[1]}" in
        gguf) _files -g '*.gguf(-.)' ; _files -/ ;;
        any) _files ;;
    esac
    return 0
}
compdef _hybrid hybrid
"""

_FISH = """\
# completion of hybrid for fish
function __hybrid_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (_HYBRID_COMPLETE=fish _HYBRID_COMPLETE_WORDS=(string join \\n -- $words | string collect) \\
        $words[1] 2>/dev/null)
    string join -- \\n $lines[2..-1]
    switch "$lines[1]"
        case gguf
            __fish_complete_suffix .gguf
        case any
            __fish_complete_path (commandline -ct)
    end
end
complete -c hybrid -f -a '(__hybrid_complete)'
"""
_SCRIPTS = dict(zip(SHELLS, (_BASH, _ZSH, _FISH), strict=True))


def script(shell: str) -> str:
    """The script for a shell. UsageError: an unknown shell."""
    if shell not in _SCRIPTS:
        raise UsageError(f"{shown(shell)}: there is completion for {', '.join(SHELLS)}.")
    return _SCRIPTS[shell]


def install(shell: str) -> str:
    """Writes the script, and for bash and zsh the line in the start file that reads it; returns a message about it."""
    text = script(shell)
    if shell == "fish":
        path = _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "hybrid.fish"
        start = None
    else:
        path = _folder("XDG_DATA_HOME", ".local/share") / "hybrid" / f"completion.{shell}"
        home = Path(os.environ.get("ZDOTDIR") or Path.home()) if shell == "zsh" else Path.home()
        start = home / f".{shell}rc"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [text.encode()])
        if start is not None:
            quoted = shlex.quote(str(path))
            _add_line(start, f"[ -f {quoted} ] && . {quoted}")
    except OSError as err:
        raise HybridError(
            f"{shown(err.filename)} cannot be written: {err.strerror}. `hybrid --show-completion {shell}` prints the "
            "script to put where your shell reads it."
        ) from err
    return f"{path} is written{f', and {start} reads it' if start else ''}. It completes in the next {shell}."


def _add_line(start: Path, line: str) -> None:
    """Appends the line unless the file has it."""
    before = start.read_bytes() if start.exists() else b""
    if line.encode() in before.splitlines():
        return
    gap = b"" if not before or before.endswith(b"\n") else b"\n"
    replace_file(start, [before + gap + line.encode() + b"\n"])


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def running() -> str:
    """The shell that runs this program, or else the user's. UsageError: neither is supported."""
    for name in (_parent(), Path(os.environ.get("SHELL", "")).name):
        if name in SHELLS:
            return name
    raise UsageError(f"the shell is not known. Name it: hybrid --install-completion {' | '.join(SHELLS)}")


def _parent() -> str:
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["ps", "-o", "comm=", "-p", str(os.getppid())]
        found = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False).stdout
        return Path(found.strip().lstrip("-")).name
    return ""
