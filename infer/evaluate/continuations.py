"""How likely texts go on as they do: many contexts with continuations, in tokens, on recurrent models too.

What texts begin with alike is read once: the choices of a question, the examples before all questions of a test. They
are read in the order of their tokens, so that what is alike comes together; a slot of the memory each is kept for the
beginnings that most is saved by. A result is that of its text alone, to the bit, whatever is read beside it.

    pairs = [Pair(context, continuation), ...]      # see loglikelihood.py for texts
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

SHARE = 64  # pairs of what one of several models scores: so many read what they begin with only once
TOGETHER = 32  # texts: more of them hardly fill the passes better, and each needs a state
KEPT = 2  # beginnings that later texts go on from
AHEAD = 256  # texts that are looked at to choose them
WORTH_KEEPING = 16  # tokens
MOST_BYTES = 128 << 20  # of logits in one pass
_ORDERED = np.dtype(">i4")


@dataclass(frozen=True)
class Pair:
    """Tokens, of which the last ones are scored. Neither part is empty. An array takes less room than a list."""

    context: Sequence[int]
    continuation: Sequence[int]


@dataclass(frozen=True)
class Likelihood:
    """Of a continuation after its context."""

    ln_p: float
    """Sum over its tokens."""
    greedy: bool
    """Whether always taking the likeliest token (of equals the first) gives it."""


@dataclass(frozen=True)
class Scored:
    """Of all pairs, in their order, and what it took."""

    results: list[Likelihood]
    n_tokens: int
    """Of all texts; the last of each is only predicted."""
    n_processed: int
    """Tokens that went through the model."""


def slots_for(n: int = TOGETHER) -> int:
    """Sequences that a model should be loaded for to score n pairs at a time."""
    return n + 2 * KEPT  # those of the last texts, while the next ones' are read


def score(model: Measurable, pairs: Sequence[Pair], progress: TokenProgress | None = None) -> Scored:
    """Scores all pairs, as many at a time as the model has free sequences for; progress(pairs done, all of them).

    UsageError names the pair that is empty or does not fit the context, before anything runs; FormatError when logits
    are not finite, or all zero.
    """
    _check(model, pairs)
    if isinstance(model, SpreadModel):
        return _of_shares(model, pairs, progress)
    return score_share(model, Share(pairs, range(len(pairs))), progress)


@dataclass(frozen=True)
class Share:
    """Pairs that one model scores; numbers: which of all they are, from 0."""

    pairs: Sequence[Pair]
    numbers: Sequence[int]


def _of_shares(model: SpreadModel, pairs: Sequence[Pair], progress: TokenProgress | None) -> Scored:
    """Texts that begin alike are mostly in one share."""
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
    """As `score`."""
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
            raise UsageError(f"pair {number}: a context and a continuation need a token each.")
        n = len(pair.context) + len(pair.continuation) - 1  # the last one is only predicted
        if n > model.n_ctx:
            raise UsageError(
                f"pair {number}: {n} tokens do not fit the context of {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
            )


@dataclass(frozen=True, eq=False)
class _Text:
    """Tokens to read, and which pairs it belongs to: (number, the place before its first prediction). Predicted is
    after every place from there on."""

    key: bytes  # the tokens in four bytes each, largest first: bytes are ordered as tokens are
    pairs: list[tuple[int, int]]

    @property
    def ids(self) -> list[int]:
        """The tokens."""
        ids: list[int] = np.frombuffer(self.key, _ORDERED).tolist()
        return ids

    @property
    def first(self) -> int:
        """The place of the first prediction: what is known up to there, and no further, need not be read."""
        return min(begin for _, begin in self.pairs)

    def predicted(self, place: int) -> list[tuple[int, int]]:
        """What the logits there foretell: pairs, and which token of their continuation."""
        return [(number, place - begin) for number, begin in self.pairs if begin <= place]


class _Scores:
    """ln p of every token of every continuation, as it becomes known."""

    def __init__(self, model: LoadedModel, pairs: Sequence[Pair], numbers: Sequence[int]) -> None:
        self.model, self.pairs, self.numbers = model, pairs, numbers
        texts: dict[bytes, _Text] = {}  # pairs that differ in what is predicted last are one text
        for number, pair in enumerate(pairs):
            key = _text_key(pair)
            texts.setdefault(key, _Text(key, [])).pairs.append((number, len(pair.context) - 1))
        self.texts = [texts[key] for key in sorted(texts)]
        self._ln_p = [np.full(len(pair.continuation), np.nan) for pair in pairs]
        self._greedy = [True] * len(pairs)
        self.n_done = 0

    def add(self, row: np.ndarray, predicted: Sequence[tuple[int, int]]) -> None:
        """The logits f32 [n_vocab] before tokens of some pairs."""
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
    """Reads texts, which come in the order of their tokens, and keeps what later ones begin with."""

    def __init__(self, model: LoadedModel, texts: Sequence[_Text]) -> None:
        self.model, self.texts = model, texts
        self._most_kept = min(KEPT, (model.n_free - 1) // 4)
        self._together = max(1, model.n_free - 2 * self._most_kept)
        # tokens that a text begins with as the one before it does
        self._alike = [0, *(_alike(a.key, b.key) for a, b in pairwise(texts))]
        self._kept: list[TokenSequence] = []  # each begins as the one before it, and goes on
        self._most_rows = max(1, MOST_BYTES // (4 * model.n_vocab))

    def parts(self) -> Sequence[tuple[int, int]]:
        """What is read together: texts begin .. end - 1."""
        n = len(self.texts)
        return [(begin, min(begin + self._together, n)) for begin in range(0, n, self._together)]

    def read(self, begin: int, end: int, scores: _Scores) -> int:
        """Scores texts begin .. end - 1; returns how many tokens went through the model."""
        lengths = self._worth_keeping(end)
        last = self.texts[end - 1].ids
        opened: list[TokenSequence] = []
        kept: list[TokenSequence] = []
        text_of: dict[int, tuple[_Text, int]] = {}
        paths: list[Path] = []

        def open_at(ids: Sequence[int], most: int) -> tuple[TokenSequence, int]:
            """A sequence that holds the longest beginning that is known, of `most` tokens at most."""
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
        """How much of text end - 1 the texts from `end` on begin with: at most `most_kept` lengths, those by which most
        is saved, in rising order."""
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
        """Give back what is kept."""
        self._close_kept()


def _key(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, _ORDERED).tobytes()


def _text_key(pair: Pair) -> bytes:
    """Of the tokens that are read for a pair: the last one is only predicted."""
    return _key(pair.context) + _key(pair.continuation[:-1])


def _alike(a: bytes, b: bytes) -> int:
    """Tokens that the texts of two keys begin with."""
    n = min(len(a), len(b)) // _ORDERED.itemsize
    other = np.frombuffer(a, _ORDERED, n) != np.frombuffer(b, _ORDERED, n)
    return int(other.argmax()) if other.any() else n
