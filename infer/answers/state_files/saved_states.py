"""State files between two runs: reads the facts in one, and continues from it.

seq = restored(model, path, sampler)
form = form_behind(seq, asked, forms, goes_on=not ids)
answer = generate(seq, ids, sampler, constraint=form)
...
seq.save(path, {"sampler": sampler.state(), "pending": answer.result.pending, **answer.state()})
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from ...memory.state_file import read_state
from ..constraints.grammar import Grammar
from ..drawing.context_shift import kept_tokens, make_room

if TYPE_CHECKING:
    from ...model import LoadedModel
    from ...sequence import Sequence
    from ..constraints import Constraint
    from ..constraints.forms import Forms
    from ..sampling import Sampler


@dataclass(frozen=True)
class StateInfo:
    """Facts about a state file, as written in it."""

    path: Path
    nbytes: int
    saved: str  # local time
    model: str
    library: str
    n_tokens: int
    turns: int | None  # None: a completion
    branches: tuple[str, ...]
    first: str  # the beginning of the first question
    n_checkpoints: int
    cached_tokens: int
    shifted: bool  # tokens left its context, or were moved


def read_info(path: Path) -> StateInfo:
    """The information in the header of a state file."""
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


def restored(model: "LoadedModel", state: Path, sampler: "Sampler", keep: int | None = None) -> "Sequence":
    """The saved sequence with the last sampled token, ready to continue; `sampler` gets its saved state."""
    seq = model.restore(state)
    if keep is not None and seq.room < len(seq.pending):
        make_room(seq, len(seq.pending), kept_tokens(model, seq.tokens, keep))
    if seq.pending:
        seq.prefill(seq.pending)
    if "sampler" in seq.extra:
        sampler.set_state(seq.extra["sampler"])
    return seq


def form_behind(seq: "Sequence", asked: Grammar | None, forms: "Forms", *, goes_on: bool) -> "Constraint | None":
    """The form of the answer after a restored sequence.

    An answer that was incomplete when it was saved continues in its form, which `asked` may repeat. After another
    prompt, a complete answer, or one without a form, a new answer begins, in the form `asked`.

    goes_on: no prompt comes first. Raises UsageError if the answer would have to continue in another form, StateError
    if the saved form is damaged.
    """
    saved = seq.extra.get("form")
    if saved is None or not goes_on:
        return None if asked is None else forms.compiled(asked).copy()
    try:
        grammar = Grammar.from_json(saved["grammar"])
    except (KeyError, TypeError, ValueError):
        raise StateError("the state's answer has no form that can be read.", remedy=Remedy.WITHOUT_STATE) from None
    if asked is not None and asked != grammar:
        raise UsageError(
            f"the saved answer is incomplete, and {asked.name} is not its form: go on without one, "
            "or begin another answer with a prompt."
        )
    return forms.compiled(grammar).resumed(saved)
