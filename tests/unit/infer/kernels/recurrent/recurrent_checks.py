"""Checks for every recurrent kernel: its twin's values, and bits that depend only on the sequence."""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import numpy as np
from reference.run_kernel import guarded, same_bits, segments, worst

N_SLOT = 4
Inputs = list[np.ndarray]  # f32 [tok, ...] each


class Case(Protocol):
    """A layer's weights and state memory."""

    state: np.ndarray  # f32 [slot, ...], NaN where no sequence has begun

    def inputs(self, n: int, seed: int = 0) -> Inputs: ...

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        """Run one batch; rows: see `segments`."""
        ...


class TwinCase(Case, Protocol):
    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """The float64 output and last state of a fresh sequence."""
        ...

    def kept(self, slot: int) -> np.ndarray:
        """The state of a slot in the twin's layout."""
        ...


class Batch:
    """Batch control, inputs whose rows are followed by NaN, and an output whose padding must stay untouched."""

    def __init__(self, inputs: Inputs, rows: tuple[tuple[int, int, bool | int], ...], width: int) -> None:
        self.ctl, self.seg = segments(*rows)
        self.inputs = []
        for i, a in enumerate(inputs):
            whole, view = guarded(a.shape, i)
            whole[...] = np.nan
            view[...] = a
            self.inputs.append(whole)
        self.whole, self.y = guarded((len(inputs[0]), width), 7)
        self.counter = np.zeros(1, np.int64)

    def result(self) -> np.ndarray:
        assert (self.whole[:, self.y.shape[1] :] == 7.25).all(), "wrote beyond the row"
        return self.y.copy()


def cuts(n: int, rng: np.random.Generator) -> list[int]:
    inner = np.sort(rng.choice(np.arange(1, n), min(n - 1, int(rng.integers(1, 9))), replace=False))
    return [0, *inner.tolist(), n]


def check_float64(
    case: TwinCase, label: str, n: int = 63, *, y: float = 1e-6, state: float = 1e-6, relative_to_state: bool = False
) -> None:
    """A sequence in two calls gives the twin's output and state, and touches no other slot.

    y, state: largest errors, relative to max(1, |value|). relative_to_state: for outputs that are sums of the state's
    d_state products of normal numbers, whose rounding is relative to the terms, not to the sum.
    """
    inputs, first = case.inputs(n), n * 2 // 3 - 1  # inside a tile
    parts = [case.step([a[s:e] for a in inputs], (e - s, 1, s == 0)) for s, e in ((0, first), (first, n))]
    want, want_state = case.twin(inputs)
    scale = max(1.0, np.abs(want_state).max()) * np.sqrt(want_state.shape[-1]) if relative_to_state else 1.0
    error, drift = worst(np.concatenate(parts) / scale, want / scale), worst(case.kept(1), want_state)
    print(f"{label}: error {error:.1e}, state {drift:.1e}")
    assert error < y
    assert drift <= state
    check_other_slots_untouched(case, 1)


def check_other_slots_untouched(case: Case, used: int) -> None:
    others = [s for s in range(len(case.state)) if s != used]
    assert np.isnan(case.state[others]).all(), "touched the state of another slot"


def check_splits_and_threads(make: Callable[[], Case], n: int = 151) -> None:
    """Any split of the tokens into calls, on 1, 2 or 3 threads, gives the bits of one call. n: more than two tiles."""
    check_states_are_kept(make)
    whole = make()
    inputs = whole.inputs(n)
    y = whole.step(inputs, (n, 0, True))
    assert not np.isnan(y).any()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        split, edges = make(), cuts(n, rng)
        parts = [
            split.step([a[s:e] for a in inputs], (e - s, 2, s == 0), n_threads=1 + seed % 3) for s, e in pairwise(edges)
        ]
        assert same_bits(np.concatenate(parts), y), edges
        assert same_bits(split.state[2], whole.state[0])
    one_by_one = make()
    parts = [one_by_one.step([a[t : t + 1] for a in inputs], (1, 1, t == 0)) for t in range(n)]
    assert same_bits(np.concatenate(parts), y)
    assert same_bits(one_by_one.state[1], whole.state[0])


def check_states_are_kept(make: Callable[[], Case]) -> None:
    """Tokens of one sequence as consecutive segments, each with its own state row, give the bits of one after the
    other."""
    for n_threads in (1, 3):
        chained, stepped = make(), make()
        inputs = chained.inputs(45)
        parts = [chained.step([a[:20] for a in inputs], (20, 0, True), n_threads=n_threads)]
        begun = chained.state[0].copy()
        rows = ((1, 2, 0), (20, 1, 2), (4, 3, 1))
        parts.append(chained.step([a[20:] for a in inputs], *rows, n_threads=n_threads))
        want = []
        first = 0
        for n, row, _ in ((20, 0, True), *rows):
            want.append(stepped.step([a[first : first + n] for a in inputs], (n, 1, first == 0)))
            assert same_bits(chained.state[row], stepped.state[1]), (n_threads, row)
            first += n
        assert same_bits(np.concatenate(parts), np.concatenate(want))
        assert same_bits(chained.state[0], begun), "the state before was written"


def check_sequences_together(make: Callable[[int], Case]) -> None:
    """16 sequences in one batch, fresh or not, of 0 to some tokens each: the bits of each alone. `make(n_slot)`."""
    rng = np.random.default_rng(5)
    slots = rng.permutation(16).tolist()
    together, before = make(16), [int(n) for n in rng.integers(0, 3, 16)]
    lengths = [1, 17, 2, 40, *rng.integers(1, 6, 12).tolist()]
    earlier = together.inputs(sum(before), seed=1)
    if sum(before):
        together.step(earlier, *[(n, s, True) for n, s in zip(before, slots, strict=True) if n])
    inputs = together.inputs(sum(lengths))
    rows = [(n, s, past == 0) for n, s, past in zip(lengths, slots, before, strict=True)]
    y = together.step(inputs, *rows, n_threads=2)
    first = old = 0
    for (n, s, fresh), past in zip(rows, before, strict=True):
        alone = make(1)
        if past:
            alone.step([a[old : old + past] for a in earlier], (past, 0, True))
        got = alone.step([a[first : first + n] for a in inputs], (n, 0, fresh))
        assert same_bits(got, y[first : first + n])
        assert same_bits(alone.state[0], together.state[s])
        first, old = first + n, old + past
