"""Scores of entries and the selection by them, against float64 twins that see the stored values."""

import numpy as np
import pytest
from reference import attention
from reference import selection as twin
from reference.run_kernel import guarded, record, run, same_bits

from hybrid.infer.kernels.attention import kv, row_store, selection
from hybrid.infer.memory import RowsSpec
from hybrid.infer.memory.attention import AttentionMemory

N_SLOT, N_CTX = 3, 1500
Segments = list[tuple[int, int, int]]  # tokens, slot, first position


def control(rows: Segments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pos = np.concatenate([np.arange(p, p + m) for m, _, p in rows]).astype(np.int64)
    slot = np.concatenate([np.full(m, s) for m, s, _ in rows]).astype(np.int64)
    return np.array([len(pos), len(rows), 0], np.int64), pos, slot


class Keys:
    """Keys of entries of two texts, in slots 0 and 2."""

    def __init__(self, n: int, every: int, kind: str) -> None:
        self.n, self.every, self.kind = n, every, kind
        self.memory = AttentionMemory([RowsSpec(0, "index", n, 1, every)], N_SLOT, N_CTX, kv.CACHE_TYPES[kind])
        self.stored = self.memory.rows[0, "index"]
        self.stored[...] = 255  # NaN in f32 and f16
        self.table = self.memory.table
        self.table[...] = np.random.default_rng(9).permutation(self.table.size).reshape(self.table.shape)
        self.kept: dict[int, np.ndarray] = {}
        for slot, n_tok in ((0, 700), (2, N_CTX - 3)):
            x = np.random.default_rng(slot).standard_normal((n_tok, 1, n)).astype(np.float32)
            ctl, pos, slots = control([(n_tok, slot, 0)])
            kernel, size = row_store.ROW_STORE[kind], row_store.row_scratch_bytes(n)
            run(
                kernel,
                record(
                    kernel,
                    ctl=ctl,
                    pos=pos,
                    slot=slots,
                    x=x.reshape(n_tok, n),
                    rows=self.stored,
                    table=self.table,
                    table_stride=self.table.strides[0],
                    n_head=1,
                    n=n,
                    every=every,
                    scratch=np.zeros(size // 4, np.float32),
                    scratch_bytes=size,
                ),
            )
            self.kept[slot] = attention.kept(x[every - 1 :: every], kind)[:, 0]

    def scores(
        self, q: np.ndarray, rows: Segments, n_best: int, scale: float, weights: np.ndarray | None, n_threads: int = 1
    ) -> np.ndarray:
        """f32 [tok, entry]; NaN where nothing was written."""
        n_tok, n_head, n = q.shape
        ctl, pos, slot = control(rows)
        asked, view = guarded((n_tok, n_head * n), 4)
        view[...] = q.reshape(n_tok, -1)
        stride = selection.score_row_bytes(N_CTX, self.every)
        out = np.full((n_tok + 1, stride // 4), np.nan, np.float32)
        size = selection.index_scratch_bytes(n)
        scratch = np.full(size // 4 * n_threads + 16, np.nan, np.float32)
        scratch[-16:] = 3.5
        by = None if weights is None else np.pad(weights, ((0, 0), (0, 3)), constant_values=np.nan)
        kernel = selection.INDEX_SCORES[self.kind]
        fields = record(
            kernel, ctl=ctl, pos=pos, slot=slot, q=asked, weights=by, keys=self.stored, table=self.table,
            table_stride=self.table.strides[0], every=self.every, n_head=n_head, n=n, n_best=n_best,
            scale=np.float32(scale), scores=out, score_stride=stride, scratch=scratch, scratch_bytes=size,
        )  # fmt: skip
        run(kernel, fields, n_threads)
        assert (scratch[-16:] == 3.5).all(), "wrote beyond the scratch"
        assert np.isnan(out[-1]).all(), "wrote beyond the rows"
        return out[:-1]


ROWS: Segments = [(7, 0, 0), (1, 0, 652), (21, 2, 1470)]


@pytest.mark.parametrize("kind", list(kv.ROW_TYPES))
@pytest.mark.parametrize(
    ("n_head", "n", "every", "weighted"),
    [(12, 24, 8, False), (5, 40, 3, True), (101, 16, 7, True), (70, 144, 64, False), (3, 20, 9, True), (1, 16, 1, 0)],
)
def test_index_scores(kind: str, n_head: int, n: int, every: int, weighted: bool) -> None:
    """Several tokens per tile and several tiles per token; parts, and incomplete blocks."""
    keys, rng = Keys(n, every, kind), np.random.default_rng(1)
    n_tok, scale, n_best = sum(m for m, _, _ in ROWS), n**-0.5, 2
    q = rng.standard_normal((n_tok, n_head, n)).astype(np.float32)
    weights = rng.standard_normal((n_tok, n_head)).astype(np.float32) if weighted else None
    got = keys.scores(q, ROWS, n_best, scale, weights)
    _, pos, slot = control(ROWS)
    checked = 0
    for t in range(n_tok):
        seen = (pos[t] + 1) // every
        if seen <= n_best:
            continue
        held, by = keys.kept[slot[t]][:seen].astype(np.float64), None if weights is None else weights[t].astype(float)
        want = twin.index_scores(q[t].astype(np.float64), held, scale, by)
        sizes = np.linalg.norm(q[t], axis=1) * (1 if by is None else abs(by))
        bound = 2e-6 * scale * sizes.sum() * np.linalg.norm(held, axis=1)
        assert (abs(got[t, :seen] - want) <= bound).all(), abs(got[t, :seen] - want).max()
        checked += 1
        (alone,) = keys.scores(
            q[t : t + 1],
            [(1, int(slot[t]), int(pos[t]))],
            n_best,
            scale,
            None if weights is None else weights[t : t + 1],
            n_threads=3,
        )
        assert same_bits(alone[:seen], got[t, :seen])
    assert checked > 20
    again = keys.scores(q, ROWS, n_best, scale, weights, n_threads=4)
    assert same_bits(again, got)


def test_tokens_that_see_few_entries_are_not_scored() -> None:
    keys = Keys(16, 4, "f32")
    q = np.ones((40, 2, 16), np.float32)
    assert np.isnan(keys.scores(q, [(40, 2, 0)], 10, 1.0, None)).all()
    assert np.isfinite(keys.scores(q, [(40, 2, 8)], 10, 1.0, None)[-1, :12]).all()


def chosen(
    scores: np.ndarray | None,
    rows: Segments,
    every: int,
    n_best: int,
    *,
    as_entries: bool = False,
    window: int = 0,
    n_threads: int = 1,
) -> list[list[int]]:
    ctl, pos, _ = control(rows)
    most = int(pos.max()) + 2
    lists = np.full((len(pos), most), 1 << 30, np.int32)
    counts, size = np.full(len(pos), -1, np.int64), selection.choice_scratch_bytes()
    kernel = selection.choose_rows
    fields = record(
        kernel,
        ctl=ctl,
        pos=pos,
        every=every,
        n_best=n_best,
        scores=scores,
        score_stride=0 if scores is None else scores.strides[0],
        as_entries=int(as_entries),
        window=window,
        lists=lists,
        list_stride=lists.strides[0],
        counts=counts,
        scratch=np.full(size // 8 * n_threads, -1, np.int64),
        scratch_bytes=size,
    )
    run(kernel, fields, n_threads)
    assert (lists[np.arange(most) >= counts[:, None]] == 1 << 30).all(), "wrote beyond the lists"
    return [row[:n].tolist() for row, n in zip(lists, counts, strict=True)]


def awkward(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Scores with ties, zeros of both signs, infinities, neighbours, and scores that differ in one byte only."""
    x = rng.standard_normal(shape).astype(np.float32)
    for value in (0.0, -0.0, 1.0, np.nextafter(np.float32(1), 2), -1e-40, np.inf, -np.inf):
        x[rng.random(shape) < 0.08] = value
    return x


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("every", "n_best"), [(1, 5), (3, 1), (8, 4), (8, 57), (64, 2)])
def test_choice(every: int, n_best: int, n_threads: int) -> None:
    rng = np.random.default_rng(n_best)
    rows = [(130, 0, 0), (1, 1, 640), (9, 2, 480)]
    _, pos, _ = control(rows)
    scores = awkward(rng, (len(pos), 700))
    tokens = chosen(scores, rows, every, n_best, n_threads=n_threads)
    entries = chosen(scores, rows, every, n_best, as_entries=True, window=11, n_threads=n_threads)
    for t, p in enumerate(pos):
        want = twin.best(scores[t, : (p + 1) // every], n_best)
        assert tokens[t] == twin.tokens_of(want, every, int(p))
        assert entries[t] == twin.entries_and_window(want, 11, int(p))


def test_all_entries() -> None:
    rows = [(50, 0, 0), (2, 1, 129)]
    _, pos, _ = control(rows)
    got = chosen(None, rows, 16, 0, as_entries=True, window=20)
    assert got == [twin.entries_and_window(twin.best(np.zeros((p + 1) // 16), 0), 20, int(p)) for p in pos]


def test_a_nan_is_some_choice() -> None:
    scores = np.full((1, 40), np.nan, np.float32)
    scores[0, ::3] = 1
    (got,) = chosen(scores, [(1, 0, 39)], 1, 7)
    assert len(set(got)) == 7
