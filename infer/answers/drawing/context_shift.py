"""Context shift: when the context is full, the older half of the tokens after the kept ones leaves it.

As in llama-completion (`--context-shift`, `--keep`): a shift comes when the next token would be the last one that fits,
and takes half of the tokens that are not kept.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hybrid.quant.ggml.errors import Remedy, UsageError

from ...memory.picture_tokens import whole

if TYPE_CHECKING:
    from ...model import LoadedModel

DEFAULT_KEEP = 0  # kept tokens of the prompt, beside BOS
ALL = -1  # keep the whole prompt
MARGIN = 1  # tokens of the context that stay free


class Shiftable(Protocol):
    """The methods of a sequence that a shift needs (hybrid.infer.Sequence has them)."""

    @property
    def n_past(self) -> int:
        """Tokens that it holds."""

    @property
    def room(self) -> int:
        """Tokens that still fit the context."""

    def shift(self, keep: int, n: int) -> None:
        """Removes n tokens after the first `keep`."""


def kept_tokens(model: "LoadedModel", ids: Sequence[int], keep: int = DEFAULT_KEEP) -> int:
    """How many tokens at the beginning of a text, which begins with the prompt `ids`, never leave: `keep` of them and
    BOS.

    keep  ALL, or more than there are: all of `ids`

    Raises UsageError if the model cannot shift its context, or nothing could leave it.
    """
    if keep < ALL:
        raise UsageError(f"keep = {keep}: it is a number of tokens, or {ALL} for the whole prompt.")
    if why := model.memory.immovable:
        raise UsageError(
            f"{model.path.name} ({model.arch}) has {why}: its context cannot be shifted.",
            remedy=Remedy.WITHOUT_CONTEXT_SHIFT,
        )
    bos = bool(len(ids)) and ids[0] == model.tokenizer.bos
    kept = len(ids) if keep == ALL else min(len(ids), keep + bos)
    if leaving(model.n_ctx - MARGIN, kept) < 1:
        raise UsageError(
            f"{kept} kept tokens fill the context of {model.n_ctx}: nothing could leave it.",
            remedy=Remedy.FEWER_KEPT_TOKENS,
        )
    return kept


def make_room(seq: "Shiftable", n: int, kept: int) -> int:
    """Shifts until n tokens fit into `seq`, or nothing more can leave it. Returns how many tokens left."""
    if kept + 1 + n > seq.n_past + seq.room:
        return 0  # it would not help
    gone = 0
    while seq.room < n and (count := leaving(seq.n_past, kept)):
        before = seq.n_past
        seq.shift(kept, count)
        gone += before - seq.n_past
    return gone


def shortened(ids: list[int], kept: int, n_ctx: int) -> list[int]:
    """The rest of a text that has outgrown the context, as if it had been shifted all along; pictures go whole."""
    part = leaving(n_ctx - MARGIN, kept)
    gone = -(-max(0, len(ids) - n_ctx + MARGIN) // part) * part
    first, end = whole(ids, kept, kept + gone) if gone else (kept, kept)
    return ids[:first] + ids[end:]


def leaving(n_past: int, kept: int) -> int:
    """How many tokens leave a sequence of `n_past` in one shift."""
    return max(0, n_past - kept) // 2
