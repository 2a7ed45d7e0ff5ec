"""Attention over listed rows, and storing rows, against float64 twins that see the stored values."""

from itertools import pairwise

import numpy as np
import pytest
from reference import attention as twin
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.attention import kv, listed, row_store
from hybrid.infer.kernels.attention.attention import attention_scratch_bytes
from hybrid.infer.memory import RowsSpec
from hybrid.infer.memory.attention import AttentionMemory

N_SLOT = 3
KINDS = list(kv.ROW_TYPES)


class Stores:
    """Rows of tokens ("k", "v") and of groups of `every` tokens ("entries", keys and values at once)."""

    def __init__(self, n_kv: int, d_head: int, d_value: int, every: int, kind: str, n_ctx: int = 200) -> None:
        self.n_kv, self.d_head, self.d_value, self.every, self.kind = n_kv, d_head, d_value, every, kind
        self.parts = {"k": (d_head, 1), "v": (d_value, 1), "ek": (d_head, every), "ev": (d_value, every)}
        self.memory = AttentionMemory(
            [RowsSpec(0, part, n, n_kv, e) for part, (n, e) in self.parts.items()], N_SLOT, n_ctx, kv.CACHE_TYPES[kind]
        )
        for stored in self.memory.rows.values():
            stored[...] = 255  # NaN in f32 and f16
        self.table = self.memory.table
        self.table[...] = np.random.default_rng(9).permutation(self.table.size).reshape(self.table.shape)

    def store(self, part: str, x: np.ndarray, *rows: tuple[int, int, int], n_threads: int = 1) -> None:
        """x [tok, n_kv, n]; rows: (tokens, slot, first position) of each sequence."""
        n, every = self.parts[part]
        ctl, pos, slot = control(rows)
        whole, view = guarded((len(x), self.n_kv * n))
        view[...] = x.reshape(len(x), -1)
        kernel, size = row_store.ROW_STORE[self.kind], row_store.row_scratch_bytes(n)
        scratch = np.full(size // 4 * n_threads + 16, 3.5, np.float32)
        fields = record(
            kernel,
            ctl=ctl,
            pos=pos,
            slot=slot,
            x=whole,
            rows=self.memory.rows[0, part],
            table=self.table,
            table_stride=self.table.strides[0],
            n_head=self.n_kv,
            n=n,
            every=every,
            scratch=scratch,
            scratch_bytes=size,
        )
        run(kernel, fields, n_threads)
        assert (scratch[-16:] == 3.5).all(), "wrote beyond the scratch"

    def held(self, part: str, slot: int, n: int) -> np.ndarray:
        """f32 [row, n_kv, n] of the first n tokens."""
        arrays = dict(self.memory.export(self.table[slot, : kv.pages_of(n)].tolist(), n))
        x = arrays[f"blk.0.{part}"].astype(np.float32)
        if self.kind == "bf16":
            return twin.read_back({"": arrays[f"blk.0.{part}"]}, "bf16", self.parts[part][0])
        scales = arrays.get(f"blk.0.{part}.scale")
        if scales is None:
            return x
        return x * np.repeat(scales.astype(np.float32), 32, -1)[..., : self.parts[part][0]]

    def attend(
        self,
        q: np.ndarray,
        lists: list[np.ndarray],
        *rows: tuple[int, int, int],
        sinks: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        n, n_head, _ = q.shape
        ctl, _, slot = control(rows)
        asked, view = guarded((n, n_head * self.d_head), 4)
        view[...] = q.reshape(n, -1)
        whole, out = guarded((n, n_head * self.d_value), 6)
        items = np.full((n, max(map(len, lists)) + 3), -(1 << 30), np.int32)
        for i, each in enumerate(lists):
            items[i, : len(each)] = each
        size = attention_scratch_bytes(self.d_head)
        scratch = np.full(size // 4 * n_threads + 16, np.nan, np.float32)
        scratch[-16:] = 3.5
        kernel, stored = listed.LISTED[self.kind], self.memory.rows
        fields = record(
            kernel, ctl=ctl, slot=slot, q=asked, lists=items, list_stride=items.strides[0],
            counts=np.array([len(each) for each in lists], np.int64), keys=stored[0, "k"], values=stored[0, "v"],
            entry_keys=stored[0, "ek"], entry_values=stored[0, "ev"], every=self.every, table=self.table,
            table_stride=self.table.strides[0], out=whole, n_head=n_head, n_kv=self.n_kv, d_head=self.d_head,
            d_value=self.d_value, scale=np.float32(self.d_head**-0.5), scratch=scratch, scratch_bytes=size, sinks=sinks,
        )  # fmt: skip
        run(kernel, fields, n_threads)
        assert (scratch[-16:] == 3.5).all(), "wrote beyond the scratch"
        assert (whole[:, out.shape[1] :] == 7.25).all(), "wrote beyond the rows"
        return out.reshape(n, n_head, self.d_value).copy()


def control(rows: tuple[tuple[int, int, int], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pos = np.concatenate([np.arange(p, p + m) for m, _, p in rows]).astype(np.int64)
    slot = np.concatenate([np.full(m, s) for m, s, _ in rows]).astype(np.int64)
    return np.array([len(pos), len(rows), 0], np.int64), pos, slot


def filled(stores: Stores, n: int, slot: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of n tokens, stored in two batches of another split than the pages'."""
    rng = np.random.default_rng(seed)
    given = {}
    for part, (width, _) in stores.parts.items():
        given[part] = x = rng.standard_normal((n, stores.n_kv, width)).astype(np.float32)
        first = min(n, 37)
        stores.store(part, x[:first], (first, slot, 0))
        if first < n:
            stores.store(part, x[first:], (n - first, slot, first), n_threads=2)
    return given


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [1, 3, 4, 64, 100])
def test_rows_are_stored_with_the_last_of_their_tokens(kind: str, every: int) -> None:
    stores, n = Stores(2, 40, 24, every, kind), 163
    given = filled(stores, n)
    for part, (_, e) in stores.parts.items():
        kept = twin.kept(given[part][e - 1 :: e], kind)
        assert same_bits(stores.held(part, 1, n), kept), part
    layout = stores.memory.layout(n)
    pages = stores.table[1, : kv.pages_of(n)].tolist()
    arrays = dict(stores.memory.export(pages, n))
    assert {name: (a.dtype, a.shape) for name, a in arrays.items()} == layout


@pytest.mark.parametrize("every", [1, 3, 64, 100])
@pytest.mark.parametrize("cuts", [(0, 64, 150), (0, 10, 99, 100, 150), (0, 63, 65, 150)])
def test_rows_are_exported_and_loaded_in_pieces(every: int, cuts: tuple[int, ...]) -> None:
    """Also pieces of which only a part is wanted."""
    stores, other = (Stores(1, 24, 24, every, "f16") for _ in range(2))
    filled(stores, cuts[-1])
    pages = stores.table[1, : kv.pages_of(cuts[-1])].tolist()
    for start, end in pairwise(cuts):
        arrays = dict(stores.memory.export(pages[start // kv.PAGE :], end, start))
        assert {name: (a.dtype, a.shape) for name, a in arrays.items()} == stores.memory.layout(end, start)
        wanted = min(end, 141)
        own = other.table[2, start // kv.PAGE : kv.pages_of(wanted)].tolist()
        other.memory.load(own, wanted, arrays, start)
    for part in stores.parts:
        assert same_bits(other.held(part, 2, 141), stores.held(part, 1, 141)), part


def lists_of(rng: np.random.Generator, n: int, every: int) -> np.ndarray:
    """Row numbers as lists have them: ~e of some entries, then some tokens."""
    tokens = np.flatnonzero(rng.random(n) < 0.6)
    entries = np.flatnonzero(rng.random(n // every) < 0.5)
    return np.sort(np.concatenate([~entries, tokens])).astype(np.int32)


def dense(stores: Stores, item: np.ndarray, slot: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of listed rows."""
    held = {part: stores.held(part, slot, n) for part in stores.parts}
    keys = [held["k"][x] if x >= 0 else held["ek"][~x] for x in item]
    values = [held["v"][x] if x >= 0 else held["ev"][~x] for x in item]
    return np.stack(keys), np.stack(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_head", "n_kv", "d_head", "d_value", "every"),
    [(4, 1, 32, 32, 4), (12, 3, 24, 20, 8), (7, 1, 144, 130, 100), (70, 1, 40, 40, 16), (2, 2, 16, 16, 1)],
)
def test_listed_attention(kind: str, n_head: int, n_kv: int, d_head: int, d_value: int, every: int) -> None:
    """Lists of one block, of several, and beyond a chunk."""
    rng = np.random.default_rng(3)
    stores, n = Stores(n_kv, d_head, d_value, every, kind, n_ctx=900), 830
    filled(stores, n)
    full = np.arange(n, dtype=np.int32)
    lists = [lists_of(rng, n, every), full[-1:], lists_of(rng, 70, every), full, full[5:69]]
    q = rng.standard_normal((len(lists), n_head, d_head)).astype(np.float32) * 3
    sinks = rng.standard_normal(n_head).astype(np.float32)
    got = stores.attend(q, lists, (len(lists), 1, n - 5), sinks=sinks)
    for t, item in enumerate(lists):
        k, v = dense(stores, item, 1, n)
        last = np.array([len(item) - 1])
        want = twin.attention(q[t : t + 1].astype(np.float64), k, v, last, d_head**-0.5, sinks=sinks.astype(np.float64))
        assert worst(got[t : t + 1], want) < 5e-6
    for n_threads in (2, 5):
        assert same_bits(stores.attend(q, lists, (len(lists), 1, n - 5), sinks=sinks, n_threads=n_threads), got)
    for t in range(len(lists)):
        alone = stores.attend(q[t : t + 1], lists[t : t + 1], (1, 1, n - 5 + t), sinks=sinks, n_threads=3)
        assert same_bits(alone, got[t : t + 1])


def test_several_sequences_and_no_sink() -> None:
    rng = np.random.default_rng(4)
    stores = Stores(1, 24, 24, 4, "f32")
    filled(stores, 90, 0, seed=1)
    filled(stores, 120, 2, seed=2)
    lists = [lists_of(rng, 90, 4), lists_of(rng, 120, 4), lists_of(rng, 119, 4)]
    q = rng.standard_normal((3, 4, 24)).astype(np.float32)
    got = stores.attend(q, lists, (1, 0, 89), (2, 2, 118), n_threads=2)
    for t, (slot, n) in enumerate([(0, 90), (2, 120), (2, 120)]):
        k, v = dense(stores, lists[t], slot, n)
        want = twin.attention(q[t : t + 1].astype(np.float64), k, v, np.array([len(k) - 1]), 24**-0.5)
        assert worst(got[t : t + 1], want) < 5e-6


def test_an_empty_list_leaves_the_sink_alone() -> None:
    stores = Stores(1, 16, 16, 4, "f32")
    sinks, q = np.zeros(3, np.float32), np.ones((1, 3, 16), np.float32)
    assert (stores.attend(q, [np.zeros(0, np.int32)], (1, 0, 0), sinks=sinks) == 0).all()
