"""`hybrid state`: saved states and kept chats."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.errors import StateError, UsageError

from .. import console
from ..chat import saved_chats
from ..options.loading_options import Precision, kv_type_option, load_options

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.state_files.saved_states import StateInfo

EXCHANGE = "Import and export of llama.cpp's session files"


class StateAction(StrEnum):
    """Values of ACTION."""

    LIST = "list"
    SHOW = "show"
    RM = "rm"
    IMPORT = "import"
    EXPORT = "export"


USAGE = {
    StateAction.IMPORT: "hybrid state import SESSION -m MODEL -o FILE",
    StateAction.EXPORT: "hybrid state export FILE -m MODEL -o SESSION",
}


def state(
    action: Annotated[
        StateAction,
        typer.Argument(
            metavar="ACTION",
            help="list: show the kept chats; show: describe state files; rm: remove kept chats; import, export: "
            "see above.",
        ),
    ] = StateAction.LIST,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="State files, or names of kept chats; with rm also: all."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "-m", "--model", metavar="MODEL", help="The model that the state belongs to.", rich_help_panel=EXCHANGE
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write.", rich_help_panel=EXCHANGE)
    ] = None,
    kv_type: Annotated[str | None, kv_type_option(EXCHANGE)] = None,
    sequence: Annotated[
        bool,
        typer.Option(
            "--sequence",
            help="Export one sequence (ggsq), the format of llama-server's slots, instead of a session (ggsn).",
            rich_help_panel=EXCHANGE,
        ),
    ] = False,
    transposed: Annotated[
        bool,
        typer.Option(
            "--no-flash-attn",
            help="Export for llama.cpp run with flash attention off.",
            rich_help_panel=EXCHANGE,
        ),
    ] = False,
    rotated: Annotated[
        bool | None,
        typer.Option(
            "--rotated/--not-rotated",
            help="Whether llama.cpp rotates quantized keys and values, as builds since April 2026 do. Default for "
            "export: --rotated.",
            rich_help_panel=EXCHANGE,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List, show or remove saved states.

    `hybrid state import SESSION -m MODEL -o FILE` converts a file that llama.cpp saved (llama-completion
    --prompt-cache, or a slot of llama-server) into a state for `hybrid run MODEL --state FILE`. `hybrid state export
    FILE -m MODEL -o SESSION` converts a state into llama.cpp's format.

    Chats are saved after every turn; the last ten of every model are kept, in at most 2 GiB for all models (`hybrid
    state list` shows the sizes). `hybrid run --continue` continues the newest.
    """
    given = names or []
    exchange = action in (StateAction.IMPORT, StateAction.EXPORT)
    options = {"-m": model, "-o": output, "--kv-type": kv_type}
    flags = {"--sequence": sequence or None, "--no-flash-attn": transposed or None, "--rotated": rotated}
    for name, value in {**options, **flags}.items():
        if value is not None and not exchange:
            raise UsageError(f"{name} belongs to `hybrid state import` and `hybrid state export`.")
    if exchange:
        if len(given) != 1 or model is None or output is None:
            raise UsageError(f"`hybrid state {action}` needs a file, a model and where to write: {USAGE[action]}")
        exchange_file(action, Path(given[0]), model, output, kv_type, sequence, transposed, rotated, as_json)
        return
    if action == StateAction.LIST:
        if given:
            raise UsageError("`hybrid state list` takes no names. Use: hybrid state show NAME")
        show_list(saved_chats.every(), as_json)
        return
    if not given:
        raise UsageError(
            f"`hybrid state {action}` needs the name of a state. `hybrid state list` shows the kept chats."
        )
    if action == StateAction.SHOW:
        show_states(given, as_json)
    else:
        remove(given, as_json)


def show_states(names: list[str], as_json: bool) -> None:
    """Prints all that is known of each state."""
    from hybrid.infer.answers.state_files.saved_states import read_info

    infos = [read_info(saved_chats.named(name)) for name in names]
    if as_json:
        console.out_json(infos)
    else:
        console.out("\n\n".join(described(info) for info in infos))


def remove(names: list[str], as_json: bool) -> None:
    """Removes kept chats. UsageError: a name is a state file elsewhere."""
    paths = saved_chats.every() if names == ["all"] else [saved_chats.named(name) for name in names]
    for path in paths:
        if path.resolve().parent != saved_chats.folder().resolve():
            raise UsageError(f"{path} is not a kept chat: `hybrid state rm` removes those only. Remove it with rm.")
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.unlink()
    if as_json:
        console.out_json(paths)
    else:
        console.out(f"{len(paths)} chat{'s' * (len(paths) != 1)} removed, {console.size(size)}")


def exchange_file(
    action: StateAction,
    source: Path,
    model: Path,
    output: Path,
    kv_type: str | None,
    sequence: bool,
    transposed: bool,
    rotated: bool | None,
    as_json: bool,
) -> None:
    """Converts between llama.cpp's session files and states."""
    from hybrid.infer.answers.state_files.saved_states import read_info
    from hybrid.infer.memory.llama_session import context_for

    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder. Make it first.")
    if action == StateAction.EXPORT:
        source = saved_chats.named(str(source))
    n = context_for(source) if action == StateAction.IMPORT else read_info(source).n_tokens
    with models.load(
        model, load_options(precision=Precision(kv_type=kv_type), n_ctx=max(n, 1)), reporter=console.SCREEN
    ) as loaded:
        if action == StateAction.IMPORT:
            n, size = import_file(loaded, source, output, rotated)
        else:
            n, size = export_file(loaded, source, output, sequence, transposed, rotated is not False)
    if as_json:
        console.out_json({"path": output, "n_tokens": n, "nbytes": size})


def import_file(model: "LoadedModel", session: Path, output: Path, rotated: bool | None) -> tuple[int, int]:
    """Converts llama.cpp's file to a state; returns its numbers of tokens and bytes."""
    from hybrid.infer.answers.state_files.llama_states import import_session

    seq = import_session(model, session, rotated=rotated)
    size = seq.save(output)
    n = len(seq.tokens) + len(seq.pending)
    follow = "" if seq.pending else " -p TEXT"  # llama.cpp saves no logits: at least one token must be computed
    console.note(f"{n} tokens, {console.size(size)}; `hybrid run {model.path} --state {output}{follow}` goes on")
    return n, size


def export_file(
    model: "LoadedModel", state: Path, output: Path, sequence: bool, transposed: bool, rotated: bool
) -> tuple[int, int]:
    """Converts a state to llama.cpp's file; returns its numbers of tokens and bytes."""
    from hybrid.infer.answers.state_files.llama_states import export_session

    seq = model.restore(state)
    size = export_session(seq, output, whole=not sequence, transposed=transposed, rotated=rotated)
    n = len(seq.tokens) + (len(seq.pending[:1]) if not sequence else 0)
    console.note(f"{n} tokens, {console.size(size)}")
    return n, size


def show_list(paths: list[Path], as_json: bool) -> None:
    """Prints a row or JSON object per state, then the states that cannot be read."""
    from hybrid.infer.answers.state_files.saved_states import read_info

    infos, broken = [], []
    for path in paths:
        try:
            infos.append(read_info(path))
        except StateError as err:
            broken.append(str(err))
    if as_json:
        console.out_json(infos)
    elif infos:
        rows = [
            [console.one_line(str(cell)) for cell in row]
            for row in (
                (i.path.stem, i.saved, i.model, i.turns or 0, i.n_tokens, console.size(i.nbytes), i.first)
                for i in infos
            )
        ]
        console.out(console.table(("chat", "saved", "model", "turns", "tokens", "size", "began with"), rows, "lllrrrl"))
    elif not broken:
        console.out("no kept chats")
    for text in broken:
        console.note(text)


def described(info: "StateInfo") -> str:
    """All that is known of a state, one fact per line."""
    kind = "completion" if info.turns is None else f"chat of {info.turns} turns, branches {', '.join(info.branches)}"
    lines = {
        "file": f"{info.path}, {console.size(info.nbytes)}, saved {info.saved} by {info.library}",
        "model": info.model,
        "tokens": str(info.n_tokens) + ", after a context shift" * info.shifted,
        "kind": kind,
        "began with": info.first,
        "cache": f"{info.n_checkpoints} checkpoints on texts of {info.cached_tokens} tokens",
    }
    return "\n".join(f"{name:11} {console.one_line(value)}" for name, value in lines.items() if value)
