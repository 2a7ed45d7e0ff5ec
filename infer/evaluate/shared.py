"""Tokens that several sequences have in common, computed once (llama.cpp issue #10295), on recurrent models too.

Sequences with the same history are one until they part: one of them goes through the model, the others share its pages
and its state, and each gets the logits it asked for. That holds whether a token is given for several sequences or for
each of them again, and for sequences whose histories have become the same by separate ways: they share memory again.

    eval_shared          `Model.eval` of works that begin alike
    eval_shared_tokens   token by token, each for several sequences: trees of texts
    score_endings        of one context: tests with several answers to choose from
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..model import Model, measured
from ..runner import Result, Slot, Work
from .windows import log_likelihood


@dataclass(frozen=True)
class SharedToken:
    """A token that is appended to each of `seqs`; logits: whether those after it are wanted, for each of them."""

    token: int
    seqs: Sequence[Slot]
    logits: bool = False


@dataclass(eq=False)
class _Path:
    """What one sequence gets, and the logits it has got so far."""

    seq: Slot
    ids: list[int]
    wanted: frozenset[int]
    done: int = 0
    rows: dict[int, np.ndarray] = field(default_factory=dict)


def eval_shared_tokens(model: Model, entries: Sequence[SharedToken]) -> dict[tuple[int, int], np.ndarray]:
    """Append tokens to sequences; (place in `entries`, id of the sequence) -> logits f32 [n_vocab].

    UsageError names token and sequence, before anything runs.
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
                raise UsageError(f"{where} is not of this model's vocabulary of {model.n_vocab}.")
            if seqs.setdefault(seq.id, seq) is not seq or places.get(seq.id, [-1])[-1] == place:
                raise UsageError(f"{where} is given twice.")
            if len(ids.get(seq.id, ())) >= seq.room:
                raise UsageError(f"{where} does not fit the context of {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
            ids.setdefault(seq.id, []).append(entry.token)
            places.setdefault(seq.id, []).append(place)
    paths = [
        _Path(seqs[s], ids[s], frozenset(i for i, place in enumerate(places[s]) if entries[place].logits)) for s in ids
    ]
    _walk(model, paths)
    return {(places[p.seq.id][i], p.seq.id): row for p in paths for i, row in p.rows.items()}


def eval_shared(model: Model, works: Sequence[Work]) -> list[Result]:
    """`Model.eval` for works without targets, to the bit, with what the sequences have in common computed once."""
    works = list(works)
    model.runner.check(works)
    if any(work.targets is not None or work.each for work in works):
        raise UsageError("shared tokens give logits: leave out targets, and verify guesses apart.")
    paths = [_Path(work.seq, [int(i) for i in work.ids], frozenset(work.outputs())) for work in works]
    _walk(model, paths)
    return [Result(np.stack([p.rows[i] for i in sorted(p.rows)]) if p.rows else None, None) for p in paths]


def score_endings(model: Model, context: Sequence[int], endings: Sequence[Sequence[int]]) -> np.ndarray:
    """log p of each ending after the context, f64 [endings], as multiple-choice tests have it (HellaSwag,
    arXiv:1905.07830). The context, and what endings begin with alike, is computed once."""
    if not len(context) or not all(len(ending) for ending in endings):
        raise UsageError("the context and every ending need a token at least.")
    first = len(context) - 1
    scores: list[float] = []
    together = model.n_free or 1  # without a free one opening it says so
    for begin in range(0, len(endings), together):
        part = endings[begin : begin + together]
        with measured(model, len(part)) as seqs:
            # the last token is only predicted
            works = [Work(s, [*context, *e[:-1]], slice(first, None)) for s, e in zip(seqs, part, strict=True)]
            for ending, result in zip(part, eval_shared(model, works), strict=True):
                assert result.logits is not None
                scores.append(float(log_likelihood(result.logits, ending).sum()))
    return np.array(scores)


def _walk(model: Model, paths: list[_Path]) -> None:
    """All paths to their ends, in passes: in each of them every group of like sequences goes on to where it parts."""
    groups = _same_history([p for p in paths if p.ids])
    while groups:
        steps = [_common(group) for group in groups]
        begins = [_first_wanted(group, n) for group, n in zip(groups, steps, strict=True)]
        works = [
            Work(group[0].seq, group[0].ids[group[0].done :][:n], slice(begin, n))
            for group, n, begin in zip(groups, steps, begins, strict=True)
        ]
        for group, n, begin, result in zip(groups, steps, begins, model.eval(works), strict=True):
            leader = group[0].seq
            for path in group:
                for i in range(begin, n):
                    if path.done + i in path.wanted:
                        assert result.logits is not None
                        path.rows[path.done + i] = result.logits[i - begin].copy()
                path.done += n
                if path.seq is not leader:
                    path.seq.become(leader)
                if path.done in {w + 1 for w in path.wanted}:
                    path.seq.logits = path.rows[path.done - 1]
        groups = [part for group in groups for part in _parted(group)]


def _same_history(paths: list[_Path]) -> list[list[_Path]]:
    """Groups of sequences that hold the same tokens and are given the same next one."""
    groups: dict[tuple[object, ...], list[_Path]] = {}
    for path in paths:
        known = path.seq.is_computed
        key = (tuple(path.seq.tokens), path.ids[0]) if known else (path.seq.id,)
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _common(group: list[_Path]) -> int:
    """Tokens from here on that all paths of a group have in common."""
    n = min(len(p.ids) - p.done for p in group)
    first = group[0].ids[group[0].done :]
    for path in group[1:]:
        n = next((i for i in range(n) if path.ids[path.done + i] != first[i]), n)
    return n


def _first_wanted(group: list[_Path], n: int) -> int:
    """The first of the next n tokens whose logits one of the paths wants; n if no path wants any."""
    return min((w - p.done for p in group for w in p.wanted if p.done <= w < p.done + n), default=n)


def _parted(group: list[_Path]) -> list[list[_Path]]:
    """The groups that a group falls into by its next tokens; a path that has come to its end is in no group."""
    parts: dict[int, list[_Path]] = {}
    for path in group:
        if path.done < len(path.ids):
            parts.setdefault(path.ids[path.done], []).append(path)
    return list(parts.values())
