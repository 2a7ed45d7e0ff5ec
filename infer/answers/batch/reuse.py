"""How much of a prompt was known when its job joined, and why the rest has to be read.

The reason names positions in tokens: "differs from every known text at token 812 ('2026-11-22'); no checkpoint between
512 and 812: budget" means that 812 tokens of the prompt are known and 512 need not be read. It quotes the prompt alone:
the known texts may be other people's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ...faults import SidePath
from ...memory import PromptCache
from ...memory.picture_tokens import has_pictures
from ...sequence import Sequence as TokenSequence
from ...text.tokenizer import Tokenizer
from .changed_header import ChangedHeaders
from .difference import SEEN, quotes

REASONS = SidePath("the reasons why prompts are read")
HEADERS = SidePath("the notes on parts that change with every request")

Code = Literal[
    "whole",  # nothing has to be read
    "last",  # all is known but the logits after its last token, which is read for them
    "continues",  # it continues a known text from its end
    "new",  # no known text begins like it
    "adapter",  # it is known, but was read with another adapter
    "differs",  # no known text continues like it
    "tokens",  # a known text continues with the same text in other tokens
    "picture",  # no known text continues with this picture
    "ladder",  # it is known, but never had a checkpoint so far along
    "budget",  # it was known, but was given up
    "off",  # nothing is kept
    "logprobs",  # logprobs of the prompt were requested, and logits are not kept
    "asked",  # the request asks for it to be read
    "unknown",  # the reason could not be found
]
CODES: tuple[Code, ...] = get_args(Code)
Tokens = npt.NDArray[np.int64]
_ANEW: dict[Code, str] = {
    "logprobs": "logprobs of the prompt were requested",
    "asked": "the request asks for it to be read anew",
}


@dataclass(frozen=True)
class Reuse:
    """n_reused + n_processed are the tokens of the prompt.

    n_known tokens at its beginning that a known text shares: at least n_reused
    code    the reason for most of the processed tokens
    reason  in words, one line; may quote a few characters of the prompt around a difference
    parts   (code, tokens) of the processed tokens, in the order of the prompt
    note    for the operator, since it quotes other texts: part of the prompts changes with every request
    """

    n_reused: int
    n_processed: int
    n_known: int
    code: Code
    reason: str
    parts: tuple[tuple[Code, int], ...] = ()
    note: str = ""

    def split(self, n_read: int) -> list[tuple[Code, int]]:
        """`parts` of the first n_read processed tokens."""
        done = []
        for code, n in self.parts:
            done.append((code, min(n, n_read)))
            n_read -= done[-1][1]
        return done


@dataclass(frozen=True)
class _Known:
    """Length of the longest known prefix, and why it is no longer."""

    n: int
    code: Code
    reason: str
    note: str = ""


class Reasons:
    """Explains reuse, for one model and its prompt cache."""

    def __init__(self, cache: PromptCache | None) -> None:
        self._cache = cache
        self.headers = ChangedHeaders()

    def resume(self, seq: TokenSequence, ids: Sequence[int], tokens: Tokens, tokenizer: Tokenizer) -> Reuse:
        """Calls `seq.resume(ids)` and explains the result; tokens: the same ids."""
        if self._cache is None:
            n = seq.resume(ids)
            known = _Known(0, "off", "nothing that was read is kept")
            return _whole(n, len(ids)) or _of(n, len(ids), known, [("off", len(ids) - n)], [known.reason])
        # look before the sequence takes room, for which texts may be given up
        array = tokens.astype(np.int32)
        cache, total = self._cache, len(ids)
        found = REASONS.run(lambda: self._with_another(cache, array, seq, tokenizer), lambda: None)
        n = seq.resume(ids)
        if found is None:
            return _whole(n, total) or _unexplained(n, total)
        return _whole(n, total) or REASONS.run(
            lambda: _explained(cache, array, seq.owner, found, n), lambda: _unexplained(n, total)
        )

    def _with_another(
        self, cache: PromptCache, ids: npt.NDArray[np.int32], seq: TokenSequence, tokenizer: Tokenizer
    ) -> _Known:
        """The longest known prefix, and whether it goes on as a text that was read with another adapter."""
        known = self._look(cache, ids, seq.owner, tokenizer)
        families = dict(seq.runner.families)
        before = next((owner for owner, made in families.items() if seq.owner in made), seq.owner)
        others = {before, *families.get(before, ())} - {seq.owner}
        n = max((cache.tree.match(ids, other)[1] for other in others), default=0)
        return (
            known
            if n <= max(known.n, 1)
            else _Known(known.n, "adapter", f"another adapter, or none, has read it up to token {n}")
        )

    def _look(self, cache: PromptCache, ids: npt.NDArray[np.int32], owner: bytes, tokenizer: Tokenizer) -> _Known:
        node, n = cache.tree.match(ids, owner)
        if n == len(ids):
            return _Known(n, "whole", "")
        if n == 0 or (n == 1 and ids[0] == tokenizer.bos):
            return _Known(n, "new", "nothing is known that begins like this")
        if n == node.end and not node.children:
            return _Known(n, "continues", f"continues a known text from its end, at token {n}")
        after = cache.tree.following(node, n, len(ids) - n + SEEN)
        if has_pictures(ids[n : n + 1]) or has_pictures(after[:1]):
            return _Known(n, "picture", f"another picture at token {n}")
        words = quotes(tokenizer, ids[max(0, n - SEEN) : n].tolist(), ids[n:][:SEEN].tolist(), after[:SEEN].tolist())
        note = HEADERS.run(lambda: self.headers.seen(ids, n, after, words), lambda: "")
        if words.same:
            return _Known(n, "tokens", f"is known as other tokens from token {n} on ('{words.given}')", note)
        return _Known(n, "differs", f"differs from every known text at token {n} ('{words.given}')", note)


def read_anew(n: int, code: Literal["logprobs", "asked"]) -> Reuse:
    """The reuse of a prompt of n tokens that is read although it may be known."""
    return Reuse(0, n, 0, code, _ANEW[code], ((code, n),))


def _unexplained(n: int, total: int) -> Reuse:
    """The reuse of n tokens, for an unknown reason."""
    return Reuse(n, total - n, n, "unknown", "not known", (("unknown", total - n),))


def _explained(cache: PromptCache, ids: npt.NDArray[np.int32], owner: bytes, known: _Known, n: int) -> Reuse:
    at = n if known.code == "new" else max(n, known.n)  # BOS begins every text: it is not a prefix
    total, reasons = len(ids), [known.reason] if known.n < len(ids) else []
    parts: list[tuple[Code, int]]
    # without recurrent layers a sequence can continue anywhere in the known text, whatever was given up before
    lost = cache.given_up.last(ids, n if cache.memory.is_recurrent else known.n, owner)
    if known.n == total and n == total - 1 and not lost:
        return _of(n, total, known, [("last", 1)], ["all of it is known, except the logits after its last token"])
    if lost > at:  # texts were given up, not only checkpoints
        parts = [("budget", lost - n), ("new", total - lost)]
        reasons = [f"tokens {n} to {lost} were known and given up: budget"]
    elif lost:
        parts = [("budget", lost - n), ("ladder", at - lost), (known.code, total - at)]
        reasons.append(f"no checkpoint between {n} and {at}: budget")
    else:
        parts = [("ladder", at - n), (known.code, total - at)]
        if at > n:
            reasons.append(f"the nearest checkpoint is at {n}" if n else f"there is no checkpoint before token {at}")
    return _of(n, total, known, parts, reasons)


def _whole(n: int, total: int) -> Reuse | None:
    """The reuse of a prompt whose tokens are all known; None if they are not."""
    return Reuse(n, 0, n, "whole", "all of it is known") if n == total else None


def _of(n: int, total: int, known: _Known, parts: list[tuple[Code, int]], reasons: list[str]) -> Reuse:
    some = tuple((code, tokens) for code, tokens in parts if tokens)
    assert sum(tokens for _, tokens in some) == total - n > 0
    code = max(some, key=lambda part: part[1])[0]
    return Reuse(n, total - n, known.n, code, "; ".join(reasons), some, known.note)
