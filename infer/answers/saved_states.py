"""State files between two runs: what one says about itself, and going on from it."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..memory.state_file import read_state
from .context_shift import kept_tokens, make_room

if TYPE_CHECKING:
    from ..model import Model
    from ..sequence import Sequence
    from .sampling import Sampler


@dataclass(frozen=True)
class StateInfo:
    """What a state file says about itself."""

    path: Path
    nbytes: int
    saved: str  # local time
    model: str
    library: str
    n_tokens: int
    turns: int | None  # None: a completion
    branches: tuple[str, ...]
    first: str  # what the first question begins with
    n_checkpoints: int
    cached_tokens: int
    shifted: bool  # tokens left its context, or were moved


def read_info(path: Path) -> StateInfo:
    """From the header alone."""
    with read_state(path) as opened:
        header = opened.header
        chat: Any = header.extra.get("chat")
        chat = chat if isinstance(chat, dict) else {}
        turns, branches = chat.get("turns"), chat.get("branches")
        turns = turns if isinstance(turns, list) else None
        first = turns[0].get("user") if turns and isinstance(turns[0], dict) else ""
        entries = [e for e in header.cache if isinstance(e, dict)]
        return StateInfo(
            path,
            path.stat().st_size,
            datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M"),
            header.model,
            header.library,
            header.n_tokens,
            None if turns is None else len(turns),
            tuple(map(str, branches)) if isinstance(branches, dict) else (),
            " ".join(str(first).split())[:60],
            sum(len(e["points"]) for e in entries if isinstance(e.get("points"), list)),
            sum(e["n"] for e in entries if isinstance(e.get("n"), int)),
            header.computed is not None,
        )


def restored(model: "Model", state: Path, sampler: "Sampler", keep: int | None = None) -> "Sequence":
    """The saved sequence with the token that was drawn last, ready to go on; `sampler` is put where it was."""
    seq = model.restore(state)
    if keep is not None and seq.room < len(seq.pending):
        make_room(seq, len(seq.pending), kept_tokens(model, seq.tokens, keep))
    if seq.pending:
        seq.prefill(seq.pending)
    if "sampler" in seq.extra:
        sampler.set_state(seq.extra["sampler"])
    return seq
