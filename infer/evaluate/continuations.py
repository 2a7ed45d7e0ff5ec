"""Log-likelihoods of many continuations of contexts, in tokens, also on recurrent models.

Common prefixes are read once: a question before its choices, the examples before all questions of a test. Texts are
read in the order of their tokens, and the prefixes that save most are kept in slots of the memory. A result has the
same bits as if its text were read alone.

    pairs = [Pair(context, continuation), ...]      # loglikelihood.py makes pairs of texts
    for result in score(model, pairs): result.ln_p, result.greedy
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..model import LoadedModel
from ..progress import TokenProgress
from ..sequence import Sequence as TokenSequence
from .parts import Measurable, SpreadModel, each
from .shared import Path, walk
from .windows import check_finite, check_not_zero, row_log_likelihood

SHARE = 64  # pairs that one of several models scores at a time: only within a share are common prefixes read once
TOGETHER = 32  # texts read together: more hardly fill the passes better, and each needs a state
KEPT = 2  # prefixes kept for later texts
AHEAD = 256  # texts that are examined to choose the prefixes
WORTH_KEEPING = 16  # least tokens that a kept prefix must save beyond a shorter one
MOST_BYTES = 128 << 20  # limit on the logits of one pass
_ORDERED = np.dtype(">i4")


@dataclass(frozen=True)
class Pair:
    """Tokens: a context, and its continuation, which is scored. Both are non-empty. An array is smaller than a list."""

    context: Sequence[int]
    continuation: Sequence[int]


@dataclass(frozen=True)
class Likelihood:
    """The score of a continuation after its context."""

    ln_p: float
    """Sum of ln p over its tokens."""
    greedy: bool
    """Whether always taking the most likely token (on ties the first) gives the continuation."""


@dataclass(frozen=True)
class Scored:
    """The results of all pairs, in order, and the tokens that they took."""

    results: list[Likelihood]
    n_tokens: int
    """Tokens of all texts, with the last of each, which is only predicted."""
    n_processed: int
    """Tokens that went through the model."""


def slots_for(n: int = TOGETHER) -> int:
    """Sequences that a model should be loaded for to score n pairs at a time."""
    return n + 2 * KEPT  # the kept prefixes, and the next ones while they are read


def score(model: Measurable, pairs: Sequence[Pair], progress: TokenProgress | None = None) -> Scored:
    """Score all pairs, as many at a time as the model has free sequences for. progress(pairs done, pairs in all).

    Raises UsageError before anything runs if a pair is empty or does not fit the context, FormatError when logits are
    not finite, or all zero.
    """
    _check(model, pairs)
    if isinstance(model, SpreadModel):
        return _of_shares(model, pairs, progress)
    return score_share(model, Share(pairs, range(len(pairs))), progress)


@dataclass(frozen=True)
class Share:
    """Pairs that one model scores. numbers: their indexes among all pairs, from 0."""

    pairs: Sequence[Pair]
    numbers: Sequence[int]


def _of_shares(model: SpreadModel, pairs: Sequence[Pair], progress: TokenProgress | None) -> Scored:
    """`score` in shares for several models. Pairs are sorted, so that most common prefixes are in one share."""
    order = sorted(range(len(pairs)), key=lambda i: _text_key(pairs[i]))
    parts = [order[begin : begin + SHARE] for begin in range(0, len(order), SHARE)]
    results: dict[int, Likelihood] = {}
    n_tokens = n_processed = 0
    scored = each(model, score_share, (Share([pairs[i] for i in numbers], numbers) for numbers in parts))
    for numbers, one in zip(parts, scored, strict=True):
        results |= zip(numbers, one.results, strict=True)
        n_tokens, n_processed = n_tokens + one.n_tokens, n_processed + one.n_processed
        if progress:
            progress(len(results), len(pairs))
    return Scored([results[i] for i in range(len(pairs))], n_tokens, n_processed)


def score_share(model: LoadedModel, share: Share, progress: TokenProgress | None = None) -> Scored:
    """`score` of one share."""
    pairs = share.pairs
    scores = _Scores(model, pairs, share.numbers)
    memory = _Beginnings(model, scores.texts)
    n_processed = 0
    try:
        for begin, end in memory.parts():
            n_processed += memory.read(begin, end, scores)
            if progress:
                progress(scores.n_done, len(pairs))
    finally:
        memory.close()
    return Scored(scores.results(), sum(len(p.context) + len(p.continuation) for p in pairs), n_processed)


def _check(model: Measurable, pairs: Sequence[Pair]) -> None:
    for number, pair in enumerate(pairs, 1):
        if not len(pair.context) or not len(pair.continuation):
            raise UsageError(f"pair {number}: context and continuation need at least one token each.")
        n = len(pair.context) + len(pair.continuation) - 1  # the last one is only predicted
        if n > model.n_ctx:
            raise UsageError(
                f"pair {number}: {n} tokens do not fit the context of {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
            )


@dataclass(frozen=True, eq=False)
class _Text:
    """Tokens to read, and their pairs: (number, index of the token after which predictions begin)."""

    key: bytes  # the tokens as big-endian i32, so that bytes sort as tokens do
    pairs: list[tuple[int, int]]

    @property
    def ids(self) -> list[int]:
        """The tokens."""
        ids: list[int] = np.frombuffer(self.key, _ORDERED).tolist()
        return ids

    @property
    def first(self) -> int:
        """Index of the token after which predictions begin: the limit on the length of a kept prefix."""
        return min(begin for _, begin in self.pairs)

    def predicted(self, place: int) -> list[tuple[int, int]]:
        """The tokens that the logits after token `place` predict: (pair number, index in its continuation)."""
        return [(number, place - begin) for number, begin in self.pairs if begin <= place]


class _Scores:
    """Collects ln p of every token of every continuation."""

    def __init__(self, model: LoadedModel, pairs: Sequence[Pair], numbers: Sequence[int]) -> None:
        self.model, self.pairs, self.numbers = model, pairs, numbers
        texts: dict[bytes, _Text] = {}  # pairs that differ only in their last token are one text
        for number, pair in enumerate(pairs):
            key = _text_key(pair)
            texts.setdefault(key, _Text(key, [])).pairs.append((number, len(pair.context) - 1))
        self.texts = [texts[key] for key in sorted(texts)]
        self._ln_p = [np.full(len(pair.continuation), np.nan) for pair in pairs]
        self._greedy = [True] * len(pairs)
        self.n_done = 0

    def add(self, row: np.ndarray, predicted: Sequence[tuple[int, int]]) -> None:
        """Add the logits f32 [n_vocab] that predict a token of each of some pairs, see `_Text.predicted`."""
        targets = [int(self.pairs[number].continuation[i]) for number, i in predicted]
        greedy = int(row.argmax())
        values = row_log_likelihood(row, targets)
        where = f"its logits in pair {self.numbers[predicted[0][0]] + 1}"
        check_finite(self.model, values, where)
        check_not_zero(self.model, row, where)
        for (number, i), target, value in zip(predicted, targets, values, strict=True):
            self._ln_p[number][i] = value
            self._greedy[number] &= target == greedy
            self.n_done += i + 1 == len(self.pairs[number].continuation)

    def results(self) -> list[Likelihood]:
        return [Likelihood(float(x.sum()), greedy) for x, greedy in zip(self._ln_p, self._greedy, strict=True)]


class _Beginnings:
    """Reads texts, sorted by their tokens, and keeps prefixes that later texts begin with."""

    def __init__(self, model: LoadedModel, texts: Sequence[_Text]) -> None:
        self.model, self.texts = model, texts
        self._most_kept = min(KEPT, (model.n_free - 1) // 4)
        self._together = max(1, model.n_free - 2 * self._most_kept)
        # length of the common prefix of each text and the one before it
        self._alike = [0, *(_alike(a.key, b.key) for a, b in pairwise(texts))]
        self._kept: list[TokenSequence] = []  # each is a prefix of the next
        self._most_rows = max(1, MOST_BYTES // (4 * model.n_vocab))

    def parts(self) -> Sequence[tuple[int, int]]:
        """Ranges of texts that are read together: begin .. end - 1."""
        n = len(self.texts)
        return [(begin, min(begin + self._together, n)) for begin in range(0, n, self._together)]

    def read(self, begin: int, end: int, scores: _Scores) -> int:
        """Score texts begin .. end - 1; returns how many tokens went through the model."""
        lengths = self._worth_keeping(end)
        last = self.texts[end - 1].ids
        opened: list[TokenSequence] = []
        kept: list[TokenSequence] = []
        text_of: dict[int, tuple[_Text, int]] = {}
        paths: list[Path] = []

        def open_at(ids: Sequence[int], most: int) -> tuple[TokenSequence, int]:
            """A sequence that holds the longest kept prefix of `ids` of at most `most` tokens, and its length."""
            seq = self.model.sequence()
            opened.append(seq)
            known = [k for k in self._kept if k.n_past <= most and list(ids[: k.n_past]) == k.tokens]
            if known:
                seq.become(known[-1])
            return seq, seq.n_past

        def seen(row: np.ndarray, wanted: list[tuple[Path, int]]) -> None:
            predicted = []
            for path, place in wanted:
                text, begin = text_of[path.seq.id]
                predicted += text.predicted(begin + place)
            scores.add(row, predicted)

        try:
            for text in self.texts[begin:end]:
                ids = text.ids
                seq, n = open_at(ids, text.first)
                text_of[seq.id] = text, n
                paths.append(Path(seq, ids[n:], frozenset(range(text.first - n, len(ids) - n))))
            for length in lengths:
                seq, n = open_at(last, length)
                kept.append(seq)
                paths.append(Path(seq, last[n:length], frozenset()))
            self._close_kept()
            n_processed = walk(self.model, paths, seen, self._most_rows)
            self._kept = kept
        finally:
            for seq in opened:
                if seq not in self._kept:
                    seq.close(remember=False)
        return n_processed

    def _worth_keeping(self, end: int) -> list[int]:
        """Lengths of the prefixes of text end - 1 that save most in later texts: at most `_most_kept`, rising."""
        common, lengths = len(self.texts[end - 1].key) // _ORDERED.itemsize, set()
        for i in range(end, min(end + AHEAD, len(self.texts))):
            common = min(common, self._alike[i])
            lengths.add(min(common, self.texts[i].first))
            if not common:
                break
        rising = sorted(lengths)
        while rising:
            gain, least = min((b - a, i) for i, (a, b) in enumerate(pairwise([0, *rising])))
            if gain >= WORTH_KEEPING and len(rising) <= self._most_kept:
                break
            del rising[least]
        return rising

    def _close_kept(self) -> None:
        for seq in self._kept:
            seq.close(remember=False)
        self._kept = []

    def close(self) -> None:
        """Close the kept sequences."""
        self._close_kept()


def _key(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, _ORDERED).tobytes()


def _text_key(pair: Pair) -> bytes:
    """Key of the tokens that are read for a pair; the last token is only predicted."""
    return _key(pair.context) + _key(pair.continuation[:-1])


def _alike(a: bytes, b: bytes) -> int:
    """Length in tokens of the common prefix of two keys."""
    n = min(len(a), len(b)) // _ORDERED.itemsize
    other = np.frombuffer(a, _ORDERED, n) != np.frombuffer(b, _ORDERED, n)
    return int(other.argmax()) if other.any() else n
