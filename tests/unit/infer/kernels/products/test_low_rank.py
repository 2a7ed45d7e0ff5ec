"""Low-rank additions against float64, and the same bits for any threads, neighbours and groups."""

from typing import Any

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.products.low_rank import Entry, HalfType, low_rank_inputs, low_rank_sums
from hybrid.infer.loading.low_rank import low_rank
from hybrid.quant.ggml.adapter import Halves

N_TOK, N_EXPERT, RANKS = 7, 3, (5, 16, 2, 9)
STEPS = (2.0**-20, 2.0**-10, 2.0**-6, 2.0**-6)  # of values: they need F32, F16, and BF16
FACTORS = (0.5, 2.0, 1.25, 3.0)
# by token: its adapters, each with its scale
LISTS: list[list[tuple[int, float]]] = [[(0, 0.75)], [], [(1, -1.0), (2, 0.5)], [(3, 1.0)], [(0, 0.75)], [(1, 2.0)], []]


class Adapted:
    """A matrix [rows, n] per expert with four adapters, the second of which has one for all experts."""

    def __init__(self, rows: int, n: int, n_expert: int) -> None:
        self.rows, self.n = rows, n
        rng = np.random.default_rng([rows, n])
        self.kept: list[np.ndarray] = []
        self.halves = [self._halves(rng, i, 1 if i == 1 else n_expert) for i in range(len(RANKS))]
        adapters = [self._adapter(halves) for halves in self.halves]
        made = low_rank(adapters, self._keep, "w", n_expert, rows, n)
        assert made is not None and made.most_rank == max(RANKS)
        self.table, self.n_most = self.kept[-1], made.n_adapters
        types = [HalfType.F32, HalfType.F16, HalfType.BF16, HalfType.BF16]
        assert self.table[:, Entry.KIND].tolist() == types, "as narrow as the values allow"
        self.x = rng.standard_normal((N_TOK, n + 3)).astype(np.float32)  # a view of wider rows
        self.x[:, n:] = np.nan

    def _halves(self, rng: np.random.Generator, i: int, n_expert: int) -> Halves:
        a, b = rng.standard_normal((n_expert, RANKS[i], self.n)), rng.standard_normal((n_expert, self.rows, RANKS[i]))
        a, b = ((np.round(half.clip(-1.9, 1.9) / STEPS[i]) * STEPS[i]).astype(np.float32) for half in (a, b))
        return Halves(a, b, FACTORS[i])

    @staticmethod
    def _adapter(halves: Halves) -> Any:
        class OneMatrix:
            def __contains__(self, name: str) -> bool:
                return name == "w"

            def halves(self, *_: object) -> Halves:
                return halves

        return OneMatrix()

    def _keep(self, values: np.ndarray) -> int:
        self.kept.append(np.ascontiguousarray(values))
        return int(self.kept[-1].ctypes.data)

    def run(
        self, y: np.ndarray, tokens: list[int], groups: list[tuple[int, int, int]], n_threads: int, *, mapped: bool
    ) -> np.ndarray:
        """y with the additions. tokens: of the columns."""
        adapted, lists = np.zeros(N_TOK, np.int64), [0]
        for t, own in enumerate(LISTS):
            adapted[t] = len(lists) if own else 0
            lists += [len(own), *(word for i, s in own for word in (i, int(np.float32(s).view(np.uint32))))]
        thin, out = np.full((len(tokens) * self.n_most, 16), np.nan, np.float32), y.copy()
        index = np.array(tokens, np.int64)
        same = {
            "groups": np.array([len(groups), *(v for g in groups for v in g)], np.int64), "adapted": adapted,
            "lists": np.array(lists, np.int64), "table": self.table, "n_most": self.n_most,
            "of": index if mapped else None,
        }  # fmt: skip
        fields = record(low_rank_inputs, x=self.x, index=index, out=thin, n=self.n, **same)
        run(low_rank_inputs, fields, n_threads)
        run(low_rank_sums, record(low_rank_sums, thin=thin, y=out, n=self.rows, **same), n_threads)
        return out

    def expected(self, y: np.ndarray, tokens: list[int], experts: list[int]) -> np.ndarray:
        result = y.astype(np.float64)
        for c, (t, expert) in enumerate(zip(tokens, experts, strict=True)):
            for i, scale in LISTS[t]:
                halves = self.halves[i]
                a, b = (half[min(expert, len(half) - 1)].astype(np.float64) for half in (halves.a, halves.b))
                result[c] += b @ (a @ self.x[t, : self.n]) * scale * halves.factor
        return result


@pytest.mark.parametrize(("rows", "n"), [(131, 37), (64, 16), (7, 5), (192, 48), (83, 33)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_low_rank(rows: int, n: int, n_threads: int) -> None:
    case = Adapted(rows, n, 1)
    y = np.random.default_rng(1).standard_normal((N_TOK, rows)).astype(np.float32)
    tokens = list(range(N_TOK))
    got = case.run(y, tokens, [(0, 0, N_TOK)], n_threads, mapped=False)
    expected = case.expected(y, tokens, [0] * N_TOK)
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{error:.1e} of the largest value")
    assert error < 1e-6 and not np.array_equal(got[0], y[0])
    assert np.array_equal(got[1], y[1]) and np.array_equal(got[6], y[6])
    for t in tokens:  # alone
        assert np.array_equal(case.run(y[t : t + 1], [t], [(0, 0, 1)], 2, mapped=True)[0], got[t])


def test_low_rank_of_experts() -> None:
    case = Adapted(83, 33, N_EXPERT)
    tokens, groups = [4, 0, 2, 3, 3, 5], [(2, 0, 2), (0, 2, 1), (1, 3, 3)]
    experts = [2, 2, 0, 1, 1, 1]
    y = np.random.default_rng(2).standard_normal((len(tokens), 83)).astype(np.float32)
    got, expected = case.run(y, tokens, groups, 2, mapped=True), case.expected(y, tokens, experts)
    assert np.abs(got - expected).max() / np.abs(expected).max() < 1e-6
    assert np.array_equal(case.run(y[3:4], [3], [(1, 0, 1)], 1, mapped=True)[0], got[3])
