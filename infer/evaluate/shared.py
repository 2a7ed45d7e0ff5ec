"""Computes tokens that several sequences have in common once (llama.cpp issue #10295), also on recurrent models.

Sequences with the same history are computed as one until they differ: one of them goes through the model, the others
share its pages and its state, and each gets the logits that it wants. It does not matter whether a token is given once
for several sequences or to each of them. Sequences whose histories were computed separately share memory again.

    eval_shared          `LoadedModel.eval` for works with common prefixes
    eval_shared_tokens   single tokens, each for several sequences: trees of texts
    score_endings        scores of several endings of one context: multiple-choice tests
    walk                 the algorithm under them: hands over logits as they come, and keeps none
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..model import LoadedModel, measured
from ..runner import Result, Slot, Work
from .windows import log_likelihood


@dataclass(frozen=True)
class SharedToken:
    """A token to append to each of `seqs`. logits: whether the logits after it are wanted."""

    token: int
    seqs: Sequence[Slot]
    logits: bool = False


@dataclass(eq=False)
class Path:
    """The tokens that one sequence gets. wanted: indexes in `ids` after which logits are wanted."""

    seq: Slot
    ids: list[int]
    wanted: frozenset[int]
    done: int = 0


# logits f32 [n_vocab], and the paths that want them, each with the token's index in its `ids`
Seen = Callable[[np.ndarray, list[tuple[Path, int]]], None]


class _Kept:
    """Keeps every row of logits that a path wants."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, np.ndarray]] = {}

    def of(self, path: Path) -> dict[int, np.ndarray]:
        """The rows of a path, by index in its `ids`."""
        return self._rows.get(id(path), {})

    def __call__(self, row: np.ndarray, wanted: list[tuple[Path, int]]) -> None:
        for path, place in wanted:
            self._rows.setdefault(id(path), {})[place] = row.copy()

    def settle(self, paths: Sequence[Path]) -> None:
        """Set `seq.logits` where the row after a path's last token was kept."""
        for path in paths:
            last = self.of(path).get(len(path.ids) - 1)
            if last is not None:
                path.seq.logits = last


def eval_shared_tokens(model: LoadedModel, entries: Sequence[SharedToken]) -> dict[tuple[int, int], np.ndarray]:
    """Append tokens to sequences. Returns (index in `entries`, id of the sequence) -> logits f32 [n_vocab].

    Raises UsageError, which names token and sequence, before anything runs.
    """
    ids: dict[int, list[int]] = {}
    places: dict[int, list[int]] = {}
    seqs: dict[int, Slot] = {}
    for place, entry in enumerate(entries):
        if not entry.seqs:
            raise UsageError(f"entry {place}: token {entry.token} belongs to no sequence.")
        for seq in entry.seqs:
            where = f"entry {place}: token {entry.token} of sequence {seq.id}"
            if not 0 <= entry.token < model.n_vocab:
                raise UsageError(f"{where} is outside this model's vocabulary of {model.n_vocab}.")
            if seqs.setdefault(seq.id, seq) is not seq or places.get(seq.id, [-1])[-1] == place:
                raise UsageError(f"{where} is given twice.")
            if len(ids.get(seq.id, ())) >= seq.room:
                raise UsageError(f"{where} does not fit the context of {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
            ids.setdefault(seq.id, []).append(entry.token)
            places.setdefault(seq.id, []).append(place)
    paths = [
        Path(seqs[s], ids[s], frozenset(i for i, place in enumerate(places[s]) if entries[place].logits)) for s in ids
    ]
    kept = _Kept()
    walk(model, paths, kept)
    kept.settle(paths)
    return {(places[p.seq.id][i], p.seq.id): row for p in paths for i, row in kept.of(p).items()}


def eval_shared(model: LoadedModel, works: Sequence[Work]) -> list[Result]:
    """`LoadedModel.eval` for works without targets, with the same bits. Common prefixes are computed once."""
    works = list(works)
    model.runner.check(works)
    if any(work.targets is not None or work.each for work in works):
        raise UsageError("shared evaluation gives logits alone: leave out targets and `each`.")
    paths = [Path(work.seq, [int(i) for i in work.ids], frozenset(work.outputs())) for work in works]
    kept = _Kept()
    walk(model, paths, kept)
    kept.settle(paths)
    rows = [[row for _, row in sorted(kept.of(p).items())] for p in paths]
    return [Result(np.stack(some) if some else None, None) for some in rows]


def score_endings(model: LoadedModel, context: Sequence[int], endings: Sequence[Sequence[int]]) -> np.ndarray:
    """log p of each ending after the context, f64 [endings], for multiple-choice tests (HellaSwag, arXiv:1905.07830).
    The context and common prefixes of endings are computed once."""
    if not len(context) or not all(len(ending) for ending in endings):
        raise UsageError("the context and every ending need at least one token.")
    first = len(context) - 1
    scores: list[float] = []
    together = model.n_free or 1  # with 0 free, opening a sequence raises the error
    for begin in range(0, len(endings), together):
        part = endings[begin : begin + together]
        with measured(model, len(part)) as seqs:
            # the last token is only predicted
            works = [Work(s, [*context, *e[:-1]], slice(first, None)) for s, e in zip(seqs, part, strict=True)]
            for ending, result in zip(part, eval_shared(model, works), strict=True):
                assert result.logits is not None
                scores.append(float(log_likelihood(result.logits, ending).sum()))
    return np.array(scores)


def walk(model: LoadedModel, paths: list[Path], seen: Seen, most_rows: int | None = None) -> int:
    """Run all paths to their ends; returns how many tokens went through the model. In each pass every group of equal
    sequences goes on to where they first differ.

    seen       is called once with every wanted row of logits, in the order of the text; the row is not valid afterwards
    most_rows  limit on rows of logits in one pass; None: no limit
    """
    n_processed = 0
    groups = _same_history([p for p in paths if p.ids])
    while groups:
        most = None if most_rows is None else max(1, most_rows // len(groups))
        steps = [_common(group) for group in groups]
        begins = [_first_wanted(group, n) for group, n in zip(groups, steps, strict=True)]
        if most is not None:
            steps = [min(n, begin + most) for n, begin in zip(steps, begins, strict=True)]
        works = [
            Work(group[0].seq, group[0].ids[group[0].done :][:n], slice(begin, n))
            for group, n, begin in zip(groups, steps, begins, strict=True)
        ]
        for group, n, begin, result in zip(groups, steps, begins, model.eval(works), strict=True):
            leader = group[0].seq
            for i in range(begin, n):
                wanted = [(path, path.done + i) for path in group if path.done + i in path.wanted]
                if wanted:
                    assert result.logits is not None
                    seen(result.logits[i - begin], wanted)
            for path in group:
                path.done += n
                if path.seq is not leader:
                    path.seq.become(leader)
        n_processed += sum(steps)
        groups = [part for group in groups for part in _parted(group)]
    return n_processed


def _same_history(paths: list[Path]) -> list[list[Path]]:
    """Groups of sequences that hold the same tokens and get the same next token."""
    groups: dict[tuple[object, ...], list[Path]] = {}
    for path in paths:
        known = path.seq.is_computed
        key = (tuple(path.seq.tokens), path.ids[0]) if known else (path.seq.id,)
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _common(group: list[Path]) -> int:
    """How many of the next tokens all paths of a group have in common."""
    n = min(len(p.ids) - p.done for p in group)
    first = group[0].ids[group[0].done :]
    for path in group[1:]:
        n = next((i for i in range(n) if path.ids[path.done + i] != first[i]), n)
    return n


def _first_wanted(group: list[Path], n: int) -> int:
    """Index of the first of the next n tokens after which a path wants logits, otherwise n."""
    return min((w - p.done for p in group for w in p.wanted if p.done <= w < p.done + n), default=n)


def _parted(group: list[Path]) -> list[list[Path]]:
    """Split a group by its next tokens. Paths at their end are left out."""
    parts: dict[int, list[Path]] = {}
    for path in group:
        if path.done < len(path.ids):
            parts.setdefault(path.ids[path.done], []).append(path)
    return list(parts.values())
