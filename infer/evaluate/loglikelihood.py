"""Cuts texts into pairs of tokens to score, as lm-evaluation-harness does for transformers models, so that figures can
be compared:

    seam        spaces at the end of a context move to its continuation; both are tokenized together, and the
                continuation gets all tokens after as many as the context alone has
    no context  replaced by BOS, or by EOS if the vocabulary has no BOS
    too long    the context loses tokens on its left
    rolling     a whole text, in windows of the context's size that overlap by one token; the last one begins earlier,
                so that it is full
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hybrid.quant.ggml.errors import Remedy, UsageError, shown

from ..text.encode import sequence_start
from ..text.tokenizer import Tokenizer
from .continuations import Pair

USUAL_CONTEXT = 4096  # default limit in tokens; scores must not depend on how much memory is free


@dataclass(frozen=True)
class PairMaker:
    """Cuts texts for one model.

    n_ctx    tokens that the model can read
    add_bos  whether BOS is put before a text that does not have it; None: as the model says
    """

    tokenizer: Tokenizer
    n_ctx: int
    add_bos: bool | None = None
    _last: dict[str, list[int]] = field(default_factory=dict, compare=False, repr=False)  # tokens of the last context

    def pair(self, context: str, continuation: str) -> tuple[Pair, int]:
        """The tokens of both, and how many tokens the context lost.

        Raises UsageError if the continuation is empty, or does not fit the context of the model.
        """
        if not continuation:
            raise UsageError(f"nothing to score after {shown(context[-40:])!r}: the continuation is empty.")
        before, after = self._split(context, continuation)
        if not after:
            raise UsageError(f"nothing to score after {shown(context[-40:])!r}: the continuation has no tokens.")
        if len(after) > self.n_ctx:
            raise UsageError(
                f"a continuation of {len(after)} tokens does not fit the context of {self.n_ctx}.",
                remedy=Remedy.LARGER_CONTEXT,
            )
        # the last token is only predicted
        lost = max(0, len(before) + len(after) - (self.n_ctx + 1))
        return Pair(array("i", before[lost:]), array("i", after)), lost

    def windows(self, text: str) -> list[Pair]:
        """A text as pairs that together score each token once."""
        return list(rolling(self.ids(text, begins=False), self.prefix, self.n_ctx))

    @property
    def prefix(self) -> int:
        """The token that replaces an empty context: BOS, otherwise EOS. Raises UsageError if there is neither."""
        for token in (self.tokenizer.bos, self.tokenizer.eos):
            if token is not None:
                return token
        raise UsageError("a text without context cannot be scored: the vocabulary has neither BOS nor EOS.")

    def ids(self, text: str, *, begins: bool = True) -> list[int]:
        """Tokens of a text, special tokens in it parsed. begins: BOS is put before it, see `add_bos`.

        EOS is not added, even if the vocabulary asks for it, because texts go on.
        """
        ids = self.tokenizer.encode(text, add_special=False, parse_special=True)
        start = sequence_start(self.tokenizer) if self.add_bos is None else self.tokenizer.bos
        wanted = begins and self.add_bos is not False and start is not None
        return [start, *ids] if wanted and start is not None and ids[:1] != [start] else ids

    def _split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not context:
            ids = self.ids(continuation, begins=False)
            if ids[:1] != [self.prefix]:
                return [self.prefix], ids
            if len(ids) == 1:
                raise UsageError(f"{shown(continuation)!r} begins a text: nothing can be scored before it.")
            return ids[:1], ids[1:]
        spaces = len(context) - len(context.rstrip())
        if spaces == len(context):
            return self._split("", context + continuation)
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        if context not in self._last:
            self._last.clear()
            self._last[context] = self.ids(context)
        before, whole = self._last[context], self.ids(context + continuation)
        # a token across the seam can leave no tokens for the continuation: then the last token is scored
        n = min(len(before), len(whole) - 1)
        return (before[:n], whole[n:]) if n > 0 else ([self.prefix], whole)


def rolling(ids: Sequence[int], prefix: int, n_ctx: int) -> Iterator[Pair]:
    """Windows of at most n_ctx read tokens. The first has `prefix` before the text; each further window begins with the
    last token of the one before it. The last window begins earlier, so that it is full."""
    first = min(n_ctx, len(ids))
    if first:
        yield Pair(array("i", [prefix]), array("i", ids[:first]))
    for begin in range(first, len(ids), n_ctx):
        end = min(begin + n_ctx, len(ids))
        yield Pair(array("i", ids[end - n_ctx - 1 : begin]), array("i", ids[begin:end]))
