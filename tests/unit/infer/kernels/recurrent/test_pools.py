"""Pools of groups of tokens against their float64 twin; the bits depend only on the sequence."""

import numpy as np
import pytest
from recurrent_checks import N_SLOT, Batch, Inputs, check_sequences_together, check_splits_and_threads
from reference import pools as twin
from reference.run_kernel import record, run

from hybrid.infer.kernels.recurrent.pools import group_starts, pool_rows, pool_scratch_bytes, pool_slots

FORMS = [(False, False), (True, False), (True, True)]  # gated, overlapping


class Pools:
    def __init__(self, n: int, every: int, gated: bool, overlapping: bool, n_slot: int = N_SLOT) -> None:
        self.n, self.every, self.gated, self.overlapping = n, every, gated, overlapping
        self.width = 2 * n if overlapping else n
        self.ape = np.random.default_rng(n).standard_normal((every, self.width), np.float32)
        shape = n_slot, pool_slots(every, overlapping=overlapping), (1 + gated) * self.width
        self.state = np.full(shape, np.nan, np.float32)
        self.past: dict[int, int] = {}  # tokens before, by row of the state

    def inputs(self, n_tok: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal((n_tok, self.width), np.float32) * 3 for _ in range(1 + self.gated)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        """Unwritten rows, of tokens that complete no group, are 0."""
        batch, pos = Batch(inputs, rows, self.n), []
        for n_tok, row, before in rows:
            start = 0 if before is True else self.past[row if before is False else before]
            pos += range(start, start + n_tok)
            self.past[row] = start + n_tok
        at = np.array(pos, np.int64)
        more = {"z": batch.inputs[1], "ape": self.ape, "ldape": self.ape.strides[0]} if self.gated else {}
        size = pool_scratch_bytes()
        fields = record(
            pool_rows,
            ctl=batch.ctl,
            seg=batch.seg,
            pos=at,
            u=batch.inputs[0],
            **more,
            state=self.state,
            stride=self.state.strides[0],
            out=batch.whole,
            n=self.n,
            every=self.every,
            overlapping=int(self.overlapping),
            scratch=np.full(n_threads * size // 4, np.nan, np.float32),
            scratch_bytes=size,
        )
        run(pool_rows, fields, n_threads)
        y, ends = batch.result(), (at + 1) % self.every == 0
        assert np.isnan(y[~ends]).all(), "wrote the row of a token that completes nothing"
        y[~ends] = 0
        return y


@pytest.mark.parametrize(("gated", "overlapping"), FORMS)
@pytest.mark.parametrize(("n", "every"), [(1, 2), (23, 3), (150, 5), (600, 4)])
def test_matches_float64(n: int, every: int, gated: bool, overlapping: bool) -> None:
    case, n_tok = Pools(n, every, gated, overlapping), 47
    inputs = case.inputs(n_tok)
    for first in (29, 31):
        parts = [case.step([x[s:e] for x in inputs], (e - s, 1, s == 0)) for s, e in ((0, first), (first, n_tok))]
        u, *z = (x.astype(np.float64) for x in inputs)
        want = twin.pool(u, z[0] if z else None, case.ape.astype(float), every, overlapping=overlapping)
        got = np.concatenate(parts)[every - 1 :: every]
        error = np.abs(got - want).max() / np.abs(inputs[0]).max()
        print(f"{n} x {every}: error {error:.1e}")
        assert error < 2e-6


@pytest.mark.parametrize(("gated", "overlapping"), FORMS)
@pytest.mark.parametrize("every", [2, 7])
def test_same_bits_for_any_split_and_threads(every: int, gated: bool, overlapping: bool) -> None:
    """n_tok: a few tokens more than whole groups."""
    check_splits_and_threads(lambda: Pools(147, every, gated, overlapping))


@pytest.mark.parametrize(("gated", "overlapping"), FORMS)
def test_sequences_do_not_see_each_other(gated: bool, overlapping: bool) -> None:
    check_sequences_together(lambda n_slot: Pools(37, 3, gated, overlapping, n_slot))


def test_group_starts() -> None:
    pos, out = np.array([0, 1, 6, 7, 700], np.int64), np.zeros(5, np.int64)
    run(group_starts, record(group_starts, ctl=np.array([5, 1, 0]), pos=pos, out=out, every=7), 2)
    assert out.tolist() == [0, 0, 0, 7, 700]
