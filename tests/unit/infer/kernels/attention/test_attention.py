"""Storing keys and values, and attention over them, against float64 twins that see the cached values; the bits depend
only on the sequence."""

from itertools import pairwise

import forced_isa
import numpy as np
import pytest
from pairwise import in_turn, mostly_long
from reference import attention as twin
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.attention import attention as kernels
from hybrid.infer.kernels.attention import kv, kv_store
from hybrid.infer.memory.attention import AttentionMemory, AttentionSpec

N_SLOT = 3
KINDS = list(kv.KV_TYPES)


class Layer:
    """The cache of one attention layer; `step` stores a batch's keys and values and attends."""

    def __init__(
        self,
        n_head: int,
        n_kv: int,
        d_head: int,
        n_ctx: int,
        window: int = 0,
        *,
        kind: str = "f32",
        cap: float = 0.0,
        d_value: int = 0,
        sinks: np.ndarray | None = None,
        latent: bool = False,
        aligned: bool = False,
        values: str = "",
        turned: bool = False,
        integer: bool = False,
        profiles: np.ndarray | None = None,
    ) -> None:
        """values: their type, if not that of the keys. turned: stored in the basis of the transform. profiles: as
        packed for a bias by distance."""
        self.profiles = profiles
        self.types = kv.cache_types(f"{kind}/{values or kind}")
        self.sinks, self.latent, self.aligned, self.integer = sinks, latent, aligned, integer
        self.n_head, self.n_kv, self.d_head, self.window, self.kind, self.cap = n_head, n_kv, d_head, window, kind, cap
        self.n_ctx, self.d_value = n_ctx, d_value or d_head
        self.scale = d_head**-0.5
        spec = AttentionSpec(0, n_kv, d_head, d_value=d_value, latent=latent)
        self.memory = AttentionMemory([spec], N_SLOT, self.n_ctx, self.types)
        self.blocks = spec.blocks(self.types) if turned else (0, 0)
        self.k, self.v = self.memory.k[0], np.zeros(0, np.uint8) if latent else self.memory.v[0]
        sizes = ((self.k, self.types.keys, d_head), (self.v, self.types.values, self.d_value))
        for cache, of, width in sizes[: 2 - latent]:
            row = n_kv * of.row_bytes(width)
            assert cache.nbytes == N_SLOT * kv.pages_of(n_ctx) * kv.PAGE * row
        self.k[...], self.v[...] = 255, 255  # NaN in f32 and f16
        # pages in no order at all
        self.table = self.memory.table
        self.table[...] = np.random.default_rng(9).permutation(self.table.size).reshape(self.table.shape)
        self.shared = False

    def inputs(self, n: int, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        q = rng.standard_normal((n, self.n_head, self.d_head), np.float32) * 3
        k, v = (rng.standard_normal((n, self.n_kv, width), np.float32) for width in (self.d_head, self.d_value))
        return [q, k, k[..., -self.d_value :] if self.latent else v]

    def store(self, k: np.ndarray, v: np.ndarray, *rows: tuple[int, int, int], n_threads: int = 1) -> None:
        """rows: (n tokens, slot, first position) of each sequence."""
        n = k.shape[0]
        ctl, pos, slot = self._control(rows)
        inputs = []
        for i, a in enumerate((k, v)):
            whole, view = guarded((n, a[0].size), i)
            view[...] = a.reshape(n, -1)
            inputs.append(whole)
        scratch, size, guard = self._scratch(kv_store.store_scratch_bytes(self.d_head), n_threads)
        kernel = kv_store.kv_store_kernel(self.types.keys, self.types.values)
        fields = record(
            kernel, ctl=ctl, pos=pos, slot=slot, k=inputs[0], v=inputs[1], keys=self.k,
            values=0 if self.latent else self.v, table=self.table, table_stride=self.table.strides[0], n_kv=self.n_kv,
            d_head=self.d_head, d_value=self.d_value, k_block=self.blocks[0], v_block=self.blocks[1], scratch=scratch,
            scratch_bytes=size,
        )  # fmt: skip
        run(kernel, fields, n_threads)
        assert (guard == 3.5).all(), "wrote beyond the scratch"

    def attend(
        self,
        q: np.ndarray,
        *rows: tuple[int, int, int],
        n_threads: int = 1,
        share: bool = True,
        last: np.ndarray | None = None,
        states: np.ndarray | None = None,
    ) -> np.ndarray:
        """share: whether threads may share a sequence's positions. last: the last position that each token sees.
        states: of the bias by distance, and sinks of the token's heads after them."""
        n = q.shape[0]
        ctl, own, slot = self._control(rows)
        pos = own if last is None else last
        asked, view = guarded((n, self.n_head * self.d_head), 4)
        view[...] = q.reshape(n, -1)
        whole, out = guarded((n, self.n_head * self.d_value), 6)
        scratch, size, guard = self._scratch(kernels.attention_scratch_bytes(self.d_head), n_threads)
        sizes = (n, self.n_head, self.n_kv, self.n_ctx, n_threads, self.window)
        room = kernels.chunk_records(*sizes) if share else 0
        records = np.full(room * kernels.chunk_record_bytes(self.d_value) // 4 + 64, np.nan, np.float32)
        records[-64:] = 3.5
        how = {"latent": self.latent, "integer": self.integer, "leaning": states is not None}
        kernel = kernels.attention_kernel(self.types.keys, self.types.values, **how)
        own_sinks = None if states is None else states[:, -self.n_head :]
        both = {
            "ctl": ctl, "pos": pos, "out": whole, "n_head": self.n_head, "n_kv": self.n_kv, "d_value": self.d_value,
            "scratch": scratch, "scratch_bytes": size, "window": self.window, "records": records, "n_records": room,
            "sinks": self.sinks if states is None else own_sinks, "states": states, "aligned": int(self.aligned),
            "v_block": self.blocks[1], "own": None if last is None else own,
        }  # fmt: skip
        fields = record(
            kernel,
            **both,
            slot=slot,
            q=asked,
            keys=self.k,
            values=0 if self.latent else self.v,
            table=self.table,
            table_stride=self.table.strides[0],
            scale=np.float32(self.scale),
            d_head=self.d_head,
            cap=np.float32(self.cap),
            k_block=self.blocks[0],
            profiles=self.profiles,
        )
        run(kernel, fields, n_threads)
        self.shared = bool((records[:-64] == records[:-64]).any())
        run(kernels.attention_merge, record(kernels.attention_merge, **both), n_threads)
        assert (guard == 3.5).all(), "wrote beyond the scratch"
        assert (records[-64:] == 3.5).all(), "wrote beyond the records"
        assert (whole[:, out.shape[1] :] == 7.25).all(), "wrote beyond the rows"
        return out.reshape(n, self.n_head, self.d_value).copy()

    def step(self, inputs: list[np.ndarray], *rows: tuple[int, int, int], n_threads: int = 1) -> np.ndarray:
        self.store(inputs[1], inputs[2], *rows, n_threads=n_threads)
        return self.attend(inputs[0], *rows, n_threads=n_threads)

    def held(self, slot: int, n: int) -> list[np.ndarray]:
        """Keys and values as f32 [n, n_kv, d_head and d_value]."""
        arrays = dict(self.memory.export(self.table[slot, : kv.pages_of(n)].tolist(), n))
        held = []
        sides = (("k", self.types.keys, self.d_head), ("v", self.types.values, self.d_value))
        for part, of, width in sides[: 2 - self.latent]:
            planes = {plane.name: arrays[f"blk.0.{part}{plane.name}"] for plane in of.planes}
            held.append(twin.read_back(planes, of.name, width))
        return held

    @staticmethod
    def _control(rows: tuple[tuple[int, int, int], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pos = np.concatenate([np.arange(p, p + m) for m, _, p in rows]).astype(np.int64)
        slot = np.concatenate([np.full(m, s) for m, s, _ in rows]).astype(np.int64)
        return np.array([len(pos), len(rows), 0], np.int64), pos, slot

    @staticmethod
    def _scratch(nbytes: int, n_threads: int) -> tuple[np.ndarray, int, np.ndarray]:
        memory = np.full(n_threads * nbytes // 4 + 64, np.nan, np.float32)
        memory[-64:] = 3.5
        return memory, nbytes, memory[-64:]


SHAPES = [
    (1, 1, 16), (3, 3, 5), (6, 2, 16), (5, 1, 80), (20, 1, 32), (7, 1, 33), (70, 1, 8), (8, 2, 128), (2, 2, 1),
    (4, 1, 3), (4, 2, 96), (8, 1, 112), (100, 1, 17), (4, 2, 256), (2, 1, 160),
]  # fmt: skip


NARROW = [
    (4, 2, 48, 20),
    (3, 1, 56, 40),
    (20, 1, 40, 8),
    (7, 1, 33, 17),
    (32, 1, 576, 512),
    (2, 1, 5, 1),
    (5, 5, 64, 48),
]


WIDTHS = [*((*shape, 0) for shape in SHAPES), *NARROW]


@pytest.mark.parametrize(("shape", "kind"), list(mostly_long(in_turn(WIDTHS, KINDS), WIDTHS, KINDS)))
def test_attention_matches_float64(shape: tuple[int, int, int, int], kind: str) -> None:
    """d_value: width of values narrower than keys."""
    n_head, n_kv, d_head, d_value = shape
    layer = Layer(n_head, n_kv, d_head, 211, kind=kind, d_value=d_value)
    inputs = layer.inputs(163)
    parts = [layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 61), (61, 62), (62, 163))]
    q, k, v = inputs
    k, v = twin.kept(k, kind), twin.kept(v, kind)
    for got, want in zip(layer.held(1, 163), (k, v), strict=True):
        assert same_bits(got, want), "stored otherwise"
    error = worst(np.concatenate(parts), twin.attention(q, k, v, np.arange(163), layer.scale))
    print(f"attention {kind} {n_head}/{n_kv} x {d_head}: error {error:.1e}")
    assert error < 8e-6 * max(1, d_head / 256)  # a score is one chain of d_head sums
    others = layer.table[[0, 2]].ravel()
    assert (layer.v[others] == 255).all() and (layer.k[others] == 255).all(), "touched another slot"


PAIRS = [("q8_0", "q4_0"), ("q4_0", "f16"), ("f32", "q5_1"), ("q5_0", "iq4_nl"), ("bf16", "q4_1"), ("f16", "bf16")]
TURNED = [
    (4, 2, 64, 0),
    (6, 1, 96, 0),
    (3, 3, 128, 48),
    (2, 1, 160, 0),
    (8, 2, 224, 0),
    (4, 1, 256, 128),
    (2, 2, 80, 0),
]


@pytest.mark.parametrize(("shape", "kinds"), list(mostly_long(in_turn(TURNED, PAIRS), TURNED, PAIRS)))
def test_keys_and_values_of_two_types_in_another_basis(
    shape: tuple[int, int, int, int], kinds: tuple[str, str]
) -> None:
    """The transform changes only what rounding loses: results are those of the stored values, transformed back."""
    n_head, n_kv, d_head, d_value = shape
    n, window = 700, 90 if d_head == 96 else 0
    layer = Layer(n_head, n_kv, d_head, n, window, kind=kinds[0], values=kinds[1], d_value=d_value, turned=True)
    widths = (d_head, layer.d_value)
    wanted = [kv.KV_TYPES[kind].quantized and (width & -width) >= 16 for kind, width in zip(kinds, widths, strict=True)]
    assert [block > 0 for block in layer.blocks] == wanted
    inputs = layer.inputs(n)
    cuts = [(0, 61), (61, 62), (62, 600), (600, 601), (601, 604), (604, n)]
    got = [layer.step([a[s:e] for a in inputs], (e - s, 1, s), n_threads=1 + 2 * (e - s < 5)) for s, e in cuts]
    held = []
    for x, stored, kind, block in zip(inputs[1:], layer.held(1, n), kinds, layer.blocks, strict=True):
        turned = twin.hadamard(x, block) if block else x
        want = twin.kept(turned.astype(np.float32), kind)
        same = np.isclose(stored, want, rtol=1e-5, atol=1e-5).mean()
        assert same > 0.999, "a code that lies half way may fall to the other side"
        held.append(twin.hadamard(stored, block) if block else stored)
        most = {"f32": 1e-6, "f16": 3e-4, "bf16": 2e-3, "q8_0": 7e-3, "q5_0": 0.045, "q5_1": 0.04}.get(kind, 0.09)
        assert np.linalg.norm(held[-1] - x) < most * np.linalg.norm(x)
    want = twin.attention(inputs[0], *held, np.arange(n), layer.scale, window)
    assert worst(np.concatenate(got), want) < 1e-5 * max(1, d_head / 128)  # a score is one chain of d_head sums


LATENT = [(16, 576, 512), (3, 16, 12), (40, 45, 33), (1, 72, 64), (5, 48, 16), (7, 32, 32), (2, 2, 1)]


@pytest.mark.parametrize(("shape", "kind"), list(mostly_long(in_turn(LATENT, KINDS), LATENT, KINDS)))
def test_values_that_are_parts_of_keys(shape: tuple[int, int, int], kind: str) -> None:
    """Only keys are stored; results have the bits of values stored beside the keys, if their scales are the same."""
    n_head, d_head, d_value = shape
    latent = Layer(n_head, 1, d_head, 1200, kind=kind, d_value=d_value, latent=True)
    q, k, v = inputs = latent.inputs(700)
    parts = [(0, 61), (61, 62), (62, 600), (600, 601), (601, 604), (604, 700)]
    got = np.concatenate(
        [latent.step([a[s:e] for a in inputs], (e - s, 1, s), n_threads=1 + 2 * (e - s < 5)) for s, e in parts]
    )
    k = twin.kept(k, kind)
    assert same_bits(latent.held(1, 700)[0], k), "stored otherwise"
    assert list(latent.memory.layout(1)) == ["blk.0.k" + plane.name for plane in kv.KV_TYPES[kind].planes]
    some = [0, 1, 60, 61, 300, 511, 512, 600, 603, 699]
    want = twin.attention(q[some], k, k[..., d_head - d_value :], np.array(some), latent.scale)
    assert worst(got[some], want) < 8e-6 * max(1, d_head / 256)
    if d_head == 576:
        turned = Layer(n_head, 1, d_head, 1200, kind=kind, d_value=d_value, latent=True, turned=True)
        assert turned.blocks == ((64, 64) if kv.KV_TYPES[kind].quantized else (0, 0))
        y = turned.step(inputs, (700, 1, 0))
        stored = turned.held(1, 700)[0]
        k = twin.hadamard(stored, turned.blocks[0]) if turned.blocks[0] else stored
        assert (
            worst(y[some], twin.attention(q[some], k, k[..., d_head - d_value :], np.array(some), latent.scale)) < 2e-5
        )
    if not kv.KV_TYPES[kind].quantized or (d_head - d_value) % kv.GROUP == 0:
        beside = Layer(n_head, 1, d_head, 1200, kind=kind, d_value=d_value)
        assert same_bits(got, beside.step([q, inputs[1], v], (700, 1, 0)))


@pytest.mark.parametrize("kind", KINDS)
def test_deep_memory(kind: str) -> None:
    """Several chunks, shared among threads or not."""
    n = 1700
    layer = Layer(6, 2, 24, n, kind=kind)
    inputs = layer.inputs(n)
    q, k, v = inputs
    layer.store(k, v, (n, 1, 0))
    y = layer.attend(q, (n, 1, 0))
    k, v = twin.kept(k, kind), twin.kept(v, kind)
    some = [0, 511, 512, 513, 1023, 1024, 1500, 1699]
    error = worst(y[some], twin.attention(q[some], k, v, np.array(some), layer.scale))
    print(f"attention {kind} at depth {n}: error {error:.1e}")
    assert error < 3e-6
    for t, count in ((1699, 1), (1024, 1), (511, 1), (1030, 3), (510, 4)):
        for n_threads in (1, 2, 3, 9):
            part = layer.attend(q[t : t + count], (count, 1, t), n_threads=n_threads)
            assert same_bits(part, y[t : t + count]), (t, count, n_threads)
            assert layer.shared == (n_threads > 1 and 2 * count < 4 * n_threads and t + count > 512)
        assert same_bits(layer.attend(q[t : t + count], (count, 1, t), n_threads=9, share=False), y[t : t + count])


@pytest.mark.parametrize(("kind", "window"), [("f32", 0), ("q8_0", 0), ("q4_0", 0), ("f16", 5000)])
def test_runs_of_several_chunks(kind: str, window: int) -> None:
    n = 6100
    layer = Layer(16, 16, 5, n, kind=kind, window=window, integer=kv.KV_TYPES[kind].packed)
    inputs = layer.inputs(n)
    y = layer.step(inputs, (n, 1, 0))
    for t in (n - 1, 5631, 5632):
        part = layer.attend(inputs[0][t : t + 1], (1, 1, t), n_threads=5)
        assert layer.shared and 16 * (t // 512 + 1) >= 2 * kernels.RUNS * 5, "a thread takes two chunks at a time"
        assert same_bits(part, y[t : t + 1])


@pytest.mark.parametrize(("window", "kind"), list(mostly_long(in_turn([5, 64, 100, 1], KINDS), [5, 64, 100, 1], KINDS)))
def test_window(window: int, kind: str) -> None:
    layer = Layer(6, 2, 21, 211, window, kind=kind)
    inputs = layer.inputs(163)
    y = np.concatenate([layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 70), (70, 163))])
    q, k, v = inputs
    want = twin.attention(q, twin.kept(k, kind), twin.kept(v, kind), np.arange(163), layer.scale, window)
    error = worst(y, want)
    print(f"window {window} {kind}: error {error:.1e}")
    assert error < 4e-6  # the largest value of a group, to which errors are proportional, grows in 4 bits
    single = Layer(6, 2, 21, 211, window, kind=kind)
    one = [single.step([a[t : t + 1] for a in inputs], (1, 0, t), n_threads=1 + t % 3) for t in range(163)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize("window", [40, 512, 700])
def test_window_over_chunks(window: int) -> None:
    n = 1400
    layer = Layer(4, 1, 16, n, window)
    q, k, v = layer.inputs(n)
    layer.store(k, v, (n, 1, 0))
    y = layer.attend(q, (n, 1, 0))
    some = [0, 511, 512, 540, 551, 552, 1023, 1024, 1063, 1064, 1399]
    assert worst(y[some], twin.attention(q[some], k, v, np.array(some), layer.scale, window)) < 3e-6
    for t in some:
        for n_threads in (1, 2, 5):
            assert same_bits(layer.attend(q[t : t + 1], (1, 1, t), n_threads=n_threads), y[t : t + 1]), (t, n_threads)
    assert same_bits(layer.attend(q[1020:1027], (7, 1, 1020), n_threads=8), y[1020:1027])


@pytest.mark.parametrize(("window", "kind"), list(mostly_long(in_turn([7, 64, 100, 1], KINDS), [7, 64, 100, 1], KINDS)))
def test_windows_that_begin_at_multiples_of_their_size(window: int, kind: str) -> None:
    layer = Layer(6, 2, 21, 211, window, kind=kind, aligned=True)
    inputs = layer.inputs(163)
    y = np.concatenate([layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 70), (70, 163))])
    q, k, v = inputs
    seen = twin.kept(k, kind), twin.kept(v, kind), np.arange(163), layer.scale, window
    error = worst(y, twin.attention(q, *seen, aligned=True))
    print(f"aligned window {window} {kind}: error {error:.1e}")
    assert error < 4e-6  # as in test_window
    assert window == 1 or worst(y, twin.attention(q, *seen)) > 0.1, "these are the windows that move with the token"
    single = Layer(6, 2, 21, 211, window, kind=kind, aligned=True)
    one = [single.step([a[t : t + 1] for a in inputs], (1, 0, t), n_threads=1 + t % 3) for t in range(163)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize("window", [40, 512, 700])
def test_aligned_windows_over_chunks(window: int) -> None:
    n = 1450
    layer = Layer(4, 1, 16, n, window, aligned=True)
    q, k, v = layer.inputs(n)
    layer.store(k, v, (n, 1, 0))
    y = layer.attend(q, (n, 1, 0))
    some = [0, 511, 512, 540, 699, 700, 1023, 1024, 1063, 1064, 1399, 1400, 1449]
    assert worst(y[some], twin.attention(q[some], k, v, np.array(some), layer.scale, window, aligned=True)) < 3e-6
    for t in some:
        for n_threads in (1, 2, 5):
            assert same_bits(layer.attend(q[t : t + 1], (1, 1, t), n_threads=n_threads), y[t : t + 1]), (t, n_threads)
    for first in (1020, 1397):
        assert same_bits(layer.attend(q[first : first + 7], (7, 1, first), n_threads=8), y[first : first + 7])


def sinks(n_head: int) -> np.ndarray:
    """Logits below, among and above the scores of `Layer.inputs`."""
    return np.linspace(-9, 14, n_head).astype(np.float32)


WITH_SINKS = [(6, 2, 21, 0), (6, 2, 21, 5), (20, 1, 32, 64), (5, 5, 80, 0), (100, 1, 17, 0)]


@pytest.mark.parametrize(("shape", "kind"), list(mostly_long(in_turn(WITH_SINKS, KINDS), WITH_SINKS, KINDS)))
def test_sinks(shape: tuple[int, int, int, int], kind: str) -> None:
    """A head's sink takes weight and has no value: prompts split in any way, and single tokens to the bit."""
    n_head, n_kv, d_head, window = shape
    layer = Layer(n_head, n_kv, d_head, 211, window, kind=kind, sinks=sinks(n_head))
    inputs = layer.inputs(163)
    y = np.concatenate([layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 70), (70, 163))])
    q, k, v = inputs
    seen = twin.kept(k, kind), twin.kept(v, kind), np.arange(163), layer.scale, window
    error = worst(y, twin.attention(q, *seen, sinks=sinks(n_head)))
    print(f"sinks {kind} {n_head}/{n_kv} x {d_head}, window {window}: error {error:.1e}")
    assert error < 8e-6
    assert worst(y, twin.attention(q, *seen)) > 0.1, "the sinks changed nothing"
    single = Layer(n_head, n_kv, d_head, 211, window, kind=kind, sinks=sinks(n_head))
    one = [single.step([a[t : t + 1] for a in inputs], (1, 0, t), n_threads=1 + t % 3) for t in range(163)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize("window", [0, 700])
@pytest.mark.parametrize("kind", KINDS)
def test_sinks_count_once_over_chunks(kind: str, window: int) -> None:
    """For any number of chunks, shared among threads or not."""
    n = 1400
    layer = Layer(6, 2, 24, n, window, kind=kind, sinks=sinks(6))
    q, k, v = layer.inputs(n)
    layer.store(k, v, (n, 1, 0))
    y = layer.attend(q, (n, 1, 0))
    k, v = twin.kept(k, kind), twin.kept(v, kind)
    some = [0, 511, 512, 513, 1023, 1024, 1399]
    assert worst(y[some], twin.attention(q[some], k, v, np.array(some), layer.scale, window, sinks=sinks(6))) < 3e-6
    for t, count in ((1399, 1), (1024, 1), (1030, 3), (510, 4)):
        for n_threads in (1, 3, 9):
            part = layer.attend(q[t : t + count], (count, 1, t), n_threads=n_threads)
            assert same_bits(part, y[t : t + count]), (t, count, n_threads)
            assert layer.shared == (n_threads > 1 and 2 * count < 4 * n_threads)


def test_a_sink_of_no_weight_changes_no_bit() -> None:
    plain, none = Layer(5, 1, 19, 90), Layer(5, 1, 19, 90, sinks=np.full(5, -1e30, np.float32))
    inputs = plain.inputs(80)
    assert same_bits(plain.step(inputs, (80, 0, 0)), none.step(inputs, (80, 0, 0)))


@pytest.mark.parametrize("cap", [50.0, 3.0, 0.25])
@pytest.mark.parametrize("kind", KINDS)
def test_soft_cap(cap: float, kind: str) -> None:
    layer = Layer(5, 1, 19, 90, kind=kind, cap=cap)
    inputs = layer.inputs(80)
    q, k, v = inputs
    y = layer.step(inputs, (80, 0, 0))
    want = twin.attention(q, twin.kept(k, kind), twin.kept(v, kind), np.arange(80), layer.scale, 0, cap)
    error = worst(y, want)
    print(f"soft cap {cap} {kind}: error {error:.1e}")
    assert error < 3e-6
    assert worst(y, twin.attention(q, k, v, np.arange(80), layer.scale)) > 1e-4, "the cap changed nothing"
    again = Layer(5, 1, 19, 90, kind=kind, cap=cap)
    one = [again.step([a[t : t + 1] for a in inputs], (1, 0, t)) for t in range(80)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_head", "n_kv", "d_head"), [(3, 3, 21), (20, 1, 16), (8, 2, 80), (5, 1, 7)])
def test_same_bits_for_any_split_and_threads(n_head: int, n_kv: int, d_head: int, kind: str) -> None:
    n = 150
    whole = Layer(n_head, n_kv, d_head, n, kind=kind)
    inputs = whole.inputs(n)
    y = whole.step(inputs, (n, 0, 0))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = [0, *np.sort(rng.choice(np.arange(1, n), 7, replace=False)).tolist(), n]
        if seed == 0:
            edges = list(range(n + 1))
        split = Layer(n_head, n_kv, d_head, n, kind=kind)
        parts = [
            split.step([a[s:e] for a in inputs], (e - s, 2, s), n_threads=1 + seed % 3) for s, e in pairwise(edges)
        ]
        assert same_bits(np.concatenate(parts), y), edges


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_do_not_see_each_other(kind: str) -> None:
    lengths, slots = [33, 1, 70], [2, 0, 1]
    together = Layer(6, 2, 16, 128, kind=kind)
    inputs = together.inputs(sum(lengths))
    y = together.step(inputs, *[(n, s, 0) for n, s in zip(lengths, slots, strict=True)], n_threads=2)
    more = together.inputs(3, seed=9)
    z = together.step(more, *[(1, s, n) for n, s in zip(lengths, slots, strict=True)], n_threads=3)
    first = 0
    for i, n in enumerate(lengths):
        alone = Layer(6, 2, 16, 128, kind=kind)
        assert same_bits(alone.step([a[first : first + n] for a in inputs], (n, 1, 0)), y[first : first + n])
        assert same_bits(alone.step([a[i : i + 1] for a in more], (1, 1, n)), z[i : i + 1])
        first += n


def test_sequences_of_different_depth() -> None:
    """Shared among threads together: one has three chunks, one has one, one crosses the end of a chunk within the
    batch."""
    layer = Layer(4, 1, 16, 1300)
    inputs = layer.inputs(1300)
    for s in range(3):
        layer.store(*[a * np.float32(s + 1) for a in inputs[1:]], (1300, s, 0))
    q = inputs[0][:5]
    rows = [(1, 0, 1200), (2, 1, 30), (2, 2, 511)]
    alone = [layer.attend(q[i:j], row) for (i, j), row in zip(((0, 1), (1, 3), (3, 5)), rows, strict=True)]
    for n_threads in (2, 5, 40):
        assert same_bits(layer.attend(q, *rows, n_threads=n_threads), np.concatenate(alone)), n_threads
        assert layer.shared


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_cannot_leak(kind: str) -> None:
    """Inf and NaN in later tokens of the same call, and in memory after them, change nothing before them."""
    clean, dirty = Layer(2, 1, 16, 96, kind=kind), Layer(2, 1, 16, 96, kind=kind)
    inputs = clean.inputs(80)
    y = clean.step(inputs, (80, 0, 0))
    for a in inputs[1:]:
        a[50] = np.inf
        a[51:] = np.nan
    z = dirty.step(inputs, (80, 0, 0))
    assert same_bits(z[:50], y[:50])
    assert np.isnan(z[51:]).all(), "a NaN in keys and values must stay visible"


@pytest.mark.parametrize("window", [0, 5, 24, 100])
@pytest.mark.parametrize("n_head", [4, 2])
def test_tokens_of_pictures_see_ahead(window: int, n_head: int) -> None:
    """Windows count back from the token itself, whatever it sees after it."""
    n, pictures = 700, [(3, 40), (40, 47), (100, 101), (490, 640)]
    layer = Layer(n_head, 2, 16, n, window)
    q, k, v = layer.inputs(n)
    layer.store(k, v, (n, 1, 0))
    last = np.arange(n)
    for begin, end in pictures:
        last[begin:end] = end - 1
    seen = np.arange(n) <= last[:, None]
    if window:
        seen &= np.arange(n) > np.arange(n)[:, None] - window
    heads = np.arange(n_head) // (n_head // 2)
    scores = np.einsum("thd,shd->hts", q.astype(np.float64), k[:, heads].astype(np.float64)) * layer.scale
    weights = np.exp(np.where(seen, scores - scores.max(-1, keepdims=True), -np.inf))
    want = np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v[:, heads].astype(np.float64))
    whole = layer.attend(q, (n, 1, 0), last=last)
    assert worst(whole, want) < 3e-6
    for first, count in ((0, 50), (40, 7), (98, 5), (490, 210)):
        for n_threads in (1, 3, 9):
            part = slice(first, first + count)
            got = layer.attend(q[part], (count, 1, first), last=last[part], n_threads=n_threads)
            assert same_bits(got, whole[part]), (first, n_threads)


@pytest.mark.parametrize("kind", KINDS)
def test_large_and_equal_scores(kind: str) -> None:
    """Scores of +-1000 neither overflow nor spoil the average of equal keys."""
    layer = Layer(1, 1, 16, 70, kind=kind)
    q, k, v = layer.inputs(70)
    q[...] = 100.0
    k[...] = 2.5
    y = layer.step([q, k, v], (70, 0, 0))
    stored = twin.kept(v, kind)
    want = np.cumsum(stored[:, 0].astype(np.float64), 0) / np.arange(1, 71)[:, None]
    assert worst(y[:, 0], want) < 1e-6
    k[3] = 250.0
    y = layer.step([q, k, v], (70, 0, 0))
    assert worst(y[3:, 0], np.repeat(stored[3].astype(np.float64), 67, 0)) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_the_type_cannot_hold(kind: str) -> None:
    """Above 65504 f16 saturates; zeros, tiny and huge groups have a scale; values that are not finite stay so."""
    layer = Layer(1, 1, 70, 32, kind=kind)
    k = np.zeros((32, 1, 70), np.float32)
    k[1] = 1e6
    k[2, :, ::2] = -65519.0
    k[3] = 1e-9
    k[4, :, 5] = 3e-5
    k[5, :, :40] = 1e30
    k[6, :, 69] = np.inf
    k[7, :, 0] = np.nan
    k[8] = np.linspace(-1, 1, 70) * 0.003
    for n_threads in (1, 2, 3):
        layer.k[...], layer.v[...] = 255, 255
        layer.store(k, -k, (32, 1, 0), n_threads=n_threads)
        for got, want in zip(layer.held(1, 32), (k, -k), strict=True):
            want = twin.kept(want, kind)
            # the kind of NaN and the sign of a code of 0 do not matter
            assert np.array_equal(got, want, equal_nan=True)
            assert np.isfinite(got[[0, 1, 2, 3, 4, 5, 8]]).all()
            assert not np.isfinite(got[6, :, 69]).any() and not np.isfinite(got[7, :, 0]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_export_and_load(kind: str) -> None:
    n = 45
    layer, other = Layer(2, 2, 37, 64, kind=kind), Layer(2, 2, 37, 64, kind=kind)
    inputs = layer.inputs(n + 1)
    layer.store(inputs[1][:n], inputs[2][:n], (n, 1, 0))
    pages = [int(layer.table[1, 0])]
    arrays = dict(layer.memory.export(pages, n))
    assert {name: (a.dtype, a.shape) for name, a in arrays.items()} == layer.memory.layout(n)
    other.memory.load([int(other.table[2, 0])], n, arrays)
    last = [a[n:] for a in inputs]
    want = layer.step(last, (1, 1, n))
    assert same_bits(other.step(last, (1, 2, n)), want)
    assert (other.k[other.table[:2, 0]] == 255).all()
    part = dict(layer.memory.export(pages, n, 5))
    assert all(same_bits(part[name], a[5:]) for name, a in arrays.items()), "from a position on"
    filled = Layer(2, 2, 37, 64, kind=kind)
    filled.memory.fill(1, n, np.random.default_rng(0))
    assert np.isfinite(filled.step(last, (1, 1, n))).all()
    assert (filled.k == 255).all(axis=(1, 2, 3)).sum() == 2


def test_pages_are_shared_until_they_are_written() -> None:
    layer = Layer(2, 1, 16, 200)
    memory = layer.memory
    assert memory.extend(0, 0, 100) == 128
    inputs = layer.inputs(101)
    layer.store(inputs[1][:100], inputs[2][:100], (100, 0, 0))
    memory.adopt(1, memory.pages(0))
    assert memory.pages(1) == memory.pages(0)
    assert memory.pool.used == 2
    before = layer.held(0, 100)
    memory.extend(1, 70, 30)
    assert memory.pages(1)[0] == memory.pages(0)[0] and memory.pages(1)[1] != memory.pages(0)[1]
    assert all(same_bits(a, b) for a, b in zip(layer.held(1, 100), before, strict=True)), "copied before it is written"
    last = layer.inputs(1, 7)
    layer.store(last[1], last[2], (1, 1, 70))
    assert all(same_bits(a, b) for a, b in zip(layer.held(0, 100), before, strict=True)), "the other's page was written"
    memory.cut(1, 64)
    memory.cut(0, 0)
    assert memory.pages(1) == [memory.table[1, 0]] and memory.pool.used == 1


def test_bytes() -> None:
    """A row of V holds as many bytes as its values and scales need; heads are padded to 16 values."""
    assert [kind.row_bytes(128) for kind in kv.KV_TYPES.values()] == [512, 256, 256, 136, 96, 88, 80, 72, 72]
    assert [kind.row_bytes(80) for kind in kv.KV_TYPES.values()] == [320, 160, 160, 86, 62, 56, 52, 46, 46]
    assert [kind.row_bytes(5) for kind in kv.KV_TYPES.values()] == [64, 32, 32, 18, 14, 12, 12, 10, 10]
    memory = AttentionMemory([AttentionSpec(0, 2, 80), AttentionSpec(3, 1, 128)], 1, 64, kv.CACHE_TYPES["q8_0"])
    assert memory.bytes_per_token == 2 * (2 * 86 + 136) == (memory.k[0].nbytes + memory.k[3].nbytes) * 2 // 64
    assert memory.bytes_per_page == 64 * memory.bytes_per_token


def test_every_rounding_of_f16() -> None:
    """Numbers around every f16 and every midpoint, rounded as by numpy."""
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    x = np.concatenate([halves, middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9))])
    x = np.concatenate([x, -x, [65503.99, 65504, 65519.996, 65520, 3e38, 1e-45, 2.9e-8, 3e-8]]).astype(np.float32)
    x = np.resize(x, (-(-x.size // 1600), 1, 1600))
    layer = Layer(1, 1, 1600, len(x), kind="f16")
    layer.store(x, x, (len(x), 0, 0))
    for got in layer.held(0, len(x)):
        assert same_bits(got, np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32))


@pytest.mark.slow
@pytest.mark.paths
def test_wide_registers_are_used() -> None:
    """On AVX-512 a block of 16 positions is one register, multiplied by a number from memory in one instruction."""
    text = forced_isa.assembly(
        "avx512-vnni", "hybrid.infer.kernels.attention.attention:attention_kernel(m.F32_KV, m.F32_KV)"
    )
    assert max(part.count("{1to16}") for part in text.split(".LBB")) >= 12
