"""Products against float64, and the same bits for few columns and many, any thread count, any target."""

import ctypes
import mmap

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.build.jit import variant
from hybrid.infer.kernels.emit import isa
from hybrid.infer.kernels.products import gemm, gemv, gemv_columns, pack, wide_columns
from hybrid.infer.kernels.rows import elementwise
from hybrid.infer.kernels.weights import FLOAT_BLOCKS, INT_BLOCKS
from hybrid.infer.program.builder import aligned_empty, round_up
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import TRAITS, GGMLType

PLAIN = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
BLOCKS = (GGMLType.Q8_0, GGMLType.Q4_0)
# one type per way of computing in the inner loop: the types of the quick run
FIRST = (*PLAIN, *BLOCKS, GGMLType.Q4_1, GGMLType.Q5_0, GGMLType.Q4_K, GGMLType.Q5_K, GGMLType.Q6_K, GGMLType.Q2_K)
FORMS = ("columns", "narrow", "wide")  # compared with a single column
# types for which the short suite compiles every form of products, a second each. The others differ in the rule that
# unpacks a row: of them it compiles single columns and one form for 8-bit activations.
WHOLE = {
    False: (*PLAIN, GGMLType.Q8_0),
    True: (*BLOCKS, GGMLType.Q4_K, GGMLType.Q6_K),
}
NARROW, WIDE = gemm.tiles(isa.host())
_KERNELS: dict = {}


def gemm_kernel(kind, tile, how, target):
    key = (kind, tile, how, target)
    if key not in _KERNELS:
        _KERNELS[key] = gemm.make_gemm(kind, tile, how, target)
    return _KERNELS[key]


class Product:
    """W x for one weight matrix per expert, columns split into groups."""

    def __init__(self, kind: GGMLType, rows: int, n: int, columns: int, n_expert: int = 1) -> None:
        rng = np.random.default_rng([kind, rows, n, columns])
        self.kind, self.rows, self.n = kind, rows, n
        self.K = round_up(n, 16)
        self.x = rng.standard_normal((columns, n)).astype(np.float32)
        encoded = random_blocks(kind, (n_expert, rows, n), rng)
        self.decoded = formats.decode(kind, encoded).astype(np.float64)
        size = encoded.shape[-1] // n if kind in PLAIN else 0
        width = self.K * size if kind in PLAIN else encoded.shape[-1]
        self.raw = np.zeros((n_expert, rows, width), np.uint8)
        self.raw[..., : encoded.shape[-1]] = encoded

    def _run(self, kernel, packer, stride, width, how, n_threads, groups, index, target, chunk=gemm.ROWS, columns=None):
        n_slots = max(first + count for _, first, count in groups)
        table = np.array([len(groups), *(v for g in groups for v in g)], np.int64)
        packed = aligned_empty(stride * round_up(n_slots, width) // width)
        packed[:] = 255
        y = np.full((n_slots + 1, self.rows), np.nan, np.float32)
        rows = np.asarray(index, np.int64) if index is not None else None
        fields = record(
            packer, x=self.x, out=packed, stride=stride, n=self.n, K=self.K, groups=table, index=rows, cols=width
        )
        run(packer, fields, n_threads)
        own = {}
        if width > 1:
            tile = NARROW if width == NARROW.cols else WIDE if target is isa.host() else TILE_OF[target]
            per_thread = gemm.scratch_bytes(how, tile, self.K, chunk)
            scratch = aligned_empty(per_thread * n_threads)
            scratch[:] = 255
            columns = columns or round_up(n_slots, width)
            n_passes = -(-max(count for _, _, count in groups) // columns)
            own = {
                "scratch": scratch,
                "scratch_bytes": per_thread,
                "rows": chunk,
                "n_passes": n_passes,
                "columns": columns,
            }
        fields = record(
            kernel,
            w=self.raw,
            stride=self.raw.strides[1],
            x=packed,
            x_stride=stride,
            y=y,
            N=self.rows,
            K=self.K,
            groups=table,
            expert_stride=self.raw.strides[0],
            **own,
        )
        run(kernel, fields, n_threads)
        assert np.isnan(y[n_slots]).all(), "wrote beyond the columns"
        return y[:n_slots]

    def few(self, integer: bool, n_threads: int = 1, groups=None, index=None, kernel=None, target=None) -> np.ndarray:
        groups = groups or [(0, 0, len(self.x))]
        stride = round_up(self.n // 32 * 40, 64) if integer else self.K * 4
        form = gemv.form(self.kind, target or isa.host())
        packer = pack.PACK_COLUMNS[form] if integer else pack.pack_float_columns
        kernel = kernel or (gemv.INT_GEMV if integer else gemv.FLOAT_GEMV)[self.kind]
        return self._run(kernel, packer, stride, 1, None, n_threads, groups, index, isa.host())

    def several(
        self, integer: bool, n_threads: int = 1, groups=None, index=None, kernel=None, target=None
    ) -> np.ndarray:
        """All columns of a group in one pass over the rows."""
        groups = groups or [(0, 0, len(self.x))]
        on = target or isa.host()
        stride = round_up(gemv_columns.column_bytes(self.kind, on, self.n), 64) if integer else self.K * 4
        form = gemv_columns.form(self.kind, on)
        packer = pack.PACK_COLUMNS[form] if integer else pack.pack_float_columns
        kernel = kernel or (gemv_columns.INT_COLUMNS if integer else gemv_columns.FLOAT_COLUMNS)[self.kind]
        return self._run(kernel, packer, stride, 1, None, n_threads, groups, index, isa.host())

    def many(
        self, integer, tile, n_threads=1, groups=None, index=None, target=None, chunk=gemm.ROWS, columns=None
    ) -> np.ndarray:
        """integer: whether by 8-bit codes, or gemm.WORDS. columns: number of a group's columns that are multiplied with
        all rows before the next ones."""
        target = target or isa.host()
        groups = groups or [(0, 0, len(self.x))]
        how = integer if integer is gemm.WORDS else gemm.scheme(self.kind, target) if integer else None
        if how:
            stride, packer = -(-self.K // how.weights) * how.unit_bytes * tile.cols, pack.PACK_TILES[how.packing]
        else:
            stride, packer = self.K * 4 * tile.cols, pack.pack_float_tiles
        kernel = gemm_kernel(self.kind, tile, how, target)
        return self._run(kernel, packer, stride, tile.cols, how, n_threads, groups, index, target, chunk, columns)

    def by(self, form: str, integer: bool) -> np.ndarray:
        """The product in one of FORMS."""
        if form == "columns":
            return self.several(integer)
        return self.many(integer, NARROW if form == "narrow" else WIDE)


TILE_OF = {
    isa.PLAIN_WIDE: gemm.tiles(isa.AVX512_VNNI)[1],
    isa.PLAIN_X86: gemm.Tile(6, 2, 8),
    isa.PLAIN_NEON: gemm.Tile(4, 2, 8),
    isa.PLAIN_I8MM: gemm.Tile(6, 2, 8),
}
RAGGED = [(23, 20, 9), (50, 48, 10), (3, 1, 2), (9, 135, 4), (11, 90, 7), (2, 77, 6)]


def bits(a: np.ndarray) -> np.ndarray:
    return a.view(np.uint32)


def shapes(kind: GGMLType) -> list[tuple[int, int, int]]:
    """(rows, length, columns): rows of many turns of 16 chains, of less than one, and with an incomplete one."""
    block = TRAITS[kind].block
    if block <= 32:
        return [(70, 2560, 13), (37, 160, 5), (24, 544, 17), (25, 96, 3), (8, 32, 1)]
    if block < 256:
        return [(37, 384, 5), (24, 640, 17), (25, 128, 3)]
    return [(70, 2560, 13), (25, 768, 5), (9, 256, 3)]


def long(kind: GGMLType) -> list[pytest.MarkDecorator]:
    """Marks of the full product. Types of the quick run are not slow: test_arm64.py runs all of their forms."""
    return [pytest.mark.matrix, *([] if kind in FIRST else [pytest.mark.slow])]


def some_forms(kind: GGMLType, integer: bool) -> tuple[str, ...]:
    """Forms that the short suite compiles: each form for several types."""
    if kind in WHOLE[integer]:
        return FORMS
    return (FORMS[list(INT_BLOCKS).index(kind) % len(FORMS)],) if integer else ()


def cases():
    for kind in FLOAT_BLOCKS:
        marks = () if kind in FIRST else pytest.mark.slow
        for shape in shapes(kind) + (RAGGED if kind in PLAIN else []):
            for integer in (True, False) if kind in INT_BLOCKS else (False,):
                name = f"{kind.name}-{integer}-{shape}"
                yield pytest.param(kind, integer, *shape, some_forms(kind, integer), marks=marks, id=name)
                if kind not in WHOLE[integer]:
                    yield pytest.param(kind, integer, *shape, FORMS, marks=long(kind), id=f"{name}-all")


@pytest.mark.parametrize(("kind", "integer", "rows", "n", "columns", "forms"), list(cases()))
def test_product(kind: GGMLType, integer: bool, rows: int, n: int, columns: int, forms: tuple[str, ...]) -> None:
    product = Product(kind, rows, n, columns)
    expected = product.x.astype(np.float64) @ product.decoded[0].T
    few = product.few(integer)
    error = np.linalg.norm(few - expected) / np.linalg.norm(expected)
    print(f"{kind.name} {rows}x{n}x{columns}: relative error {error:.1e}")
    # 8-bit activations: a step of max / 127 is uniform noise of step / sqrt(12), about 0.6 % of a normal value
    # where minima subtract most of a sum, the noise is larger relative to the rest
    assert error < ((2e-2 if INT_BLOCKS[kind].n_min else 1e-2) if integer else 5e-7)
    for form in forms:
        np.testing.assert_array_equal(bits(product.by(form, integer)), bits(few))
    for n_threads in (2, 3):
        np.testing.assert_array_equal(bits(product.few(integer, n_threads)), bits(few))
        if "columns" in forms:
            np.testing.assert_array_equal(bits(product.several(integer, n_threads)), bits(few))
        if "wide" in forms:
            np.testing.assert_array_equal(bits(product.many(integer, WIDE, n_threads, chunk=48)), bits(few))


@pytest.mark.parametrize("length", [13 * 512, 13 * 512 + 256])
@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_K])
def test_long_columns_are_met_part_by_part(kind: GGMLType, length: int) -> None:
    product = Product(kind, 7, length, 11)
    assert length // 512 > wide_columns.PART // wide_columns.MOST, "more than one part"
    np.testing.assert_array_equal(bits(product.several(True, 2)), bits(product.few(True)))


TARGETS = (isa.PLAIN_WIDE, isa.PLAIN_X86, isa.PLAIN_NEON, isa.PLAIN_I8MM)


def target_cases():
    """Every kernel of Q8_0 on every target. The rows of other types are unpacked by one rule in all three kernels: the
    short suite has one kernel for every second type, the long one every combination of type, target and kernel.
    Compiling all takes a minute and a half."""
    kernels = ("gemm", "gemv", "columns")
    for i, kind in enumerate(INT_BLOCKS):
        for j, target in enumerate(TARGETS):
            for k, kernel in enumerate(kernels if target is not isa.PLAIN_I8MM else kernels[:1]):
                if kind in BLOCKS or (i + j + k) % 3 == 0:
                    short = (i + j + k) % 3 == 0 and i % 2 == 0 and i // 6 % 3 == j
                    marks = () if kind is GGMLType.Q8_0 else pytest.mark.slow if short else long(kind)
                    name = target.name.removeprefix("plain-")
                    yield pytest.param(kind, target, kernel, marks=marks, id=f"{kind.name}-{name}-{kernel}")


@pytest.mark.parametrize(("kind", "target", "form"), list(target_cases()))
def test_other_targets_print_the_same_bits(kind: GGMLType, target: isa.ISA, form: str) -> None:
    """The tiles and codes of AVX-512 and NEON (without their instructions), and the path without either."""
    product = Product(kind, 31, 544 if TRAITS[kind].block == 32 else 768, 35)
    if form == "gemm":
        got = product.many(True, TILE_OF[target], target=target)
    elif form == "gemv":
        piece = gemv.make_int_gemv(kind, target)
        kernel = variant(gemv.gemv, f"gemv_{target.name}_{kind.name.lower()}", piece=piece)
        got = product.few(True, kernel=kernel, target=target)
    else:
        piece = gemv_columns.make_int_columns(kind, target)
        kernel = variant(gemv_columns.gemv_columns, f"columns_{target.name}_{kind.name.lower()}", columns_piece=piece)
        got = product.several(True, kernel=kernel, target=target)
    np.testing.assert_array_equal(bits(got), bits(product.few(True)))


@pytest.mark.parametrize(("kind", "integer"), [(GGMLType.Q8_0, True), (GGMLType.Q4_0, True), (GGMLType.BF16, False)])
def test_groups_of_columns_meet_their_expert(kind: GGMLType, integer: bool) -> None:
    product = Product(kind, 33, 96, 11, n_expert=4)
    rng = np.random.default_rng(5)
    index = rng.integers(0, 11, 5 * WIDE.cols)
    groups = [(3, 0, 5), (0, WIDE.cols, 1), (1, 2 * WIDE.cols, 2 * WIDE.cols + 3)]
    many = product.many(integer, WIDE, 2, groups, index)
    in_passes = [product.many(integer, WIDE, 2, groups, index, columns=n * WIDE.cols) for n in (1, 2)]
    few, several = product.few(integer, 2, groups, index), product.several(integer, 2, groups, index)
    for expert, first, count in groups:
        slots = slice(first, first + count)
        for got in in_passes:
            np.testing.assert_array_equal(bits(got[slots]), bits(many[slots]))
        expected = product.x[index[slots]].astype(np.float64) @ product.decoded[expert].T
        np.testing.assert_array_equal(bits(many[slots]), bits(few[slots]))
        np.testing.assert_array_equal(bits(several[slots]), bits(few[slots]))
        assert np.linalg.norm(few[slots] - expected) < (1e-2 if integer else 1e-6) * np.linalg.norm(expected)


def test_extreme_codes_do_not_saturate() -> None:
    """Weights of -128 and activations of +-127: the largest possible sums of pairs."""
    product = Product(GGMLType.Q8_0, 6, 64, 4)
    blocks = product.raw.reshape(6, 2, 34)
    blocks[:, :, :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    blocks[:, :, 2:] = 128
    product.x[:] = [[1.0], [-1.0], [0.5], [0.0]]
    expected = np.repeat(product.x[:, :1] * -128.0 * 64, 6, axis=1)
    np.testing.assert_allclose(product.few(True), expected, rtol=1e-6)
    np.testing.assert_array_equal(product.many(True, WIDE), product.few(True))
    np.testing.assert_array_equal(product.several(True), product.few(True))


def filled(kind: GGMLType, block: np.ndarray, byte: int) -> np.ndarray:
    """A block with all bytes `byte`, except where weights would become large or NaN: scales stay."""
    made = block.copy()
    for i in range(len(made)):
        before, made[i] = made[i], byte
        weights = formats.decode(kind, made[None])
        if not (np.isfinite(weights).all() and np.abs(weights).max() < 1e3):
            made[i] = before
    return made


def extreme_cases():
    for kind in INT_BLOCKS:
        marks = () if kind in FIRST else pytest.mark.slow
        yield pytest.param(kind, some_forms(kind, True), marks=marks, id=kind.name)
        if kind not in WHOLE[True]:
            yield pytest.param(kind, FORMS, marks=long(kind), id=f"{kind.name}-all")


@pytest.mark.parametrize("byte", [0, 255])
@pytest.mark.parametrize(("kind", "forms"), list(extreme_cases()))
def test_sums_of_extreme_codes_fit(kind: GGMLType, forms: tuple[str, ...], byte: int) -> None:
    """All codes as small or as large as possible, activations of +-127, also with the signs of weights: sums kept in 16
    bits must not overflow."""
    size = TRAITS[kind].block
    n, nbytes = max(256, size), TRAITS[kind].nbytes
    product = Product(kind, 3, n, 3)
    product.raw[:] = np.tile(filled(kind, product.raw[0, 0, :nbytes], byte), n // size)
    decoded = formats.decode(kind, product.raw)[0].astype(np.float64)
    product.x[:] = [np.ones(n), -np.ones(n), np.where(decoded[0] < 0, -1, 1)]
    expected, few = product.x.astype(np.float64) @ decoded.T, product.few(True)
    np.testing.assert_allclose(few, expected, rtol=1e-4, atol=1e-5 * np.abs(decoded).sum())
    for form in forms:
        np.testing.assert_array_equal(bits(product.by(form, True)), bits(few))
    product.x = product.x[[2, 0]]
    if "columns" in forms:
        np.testing.assert_array_equal(bits(product.several(True)), bits(few[[2, 0]]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_activations_stay_visible(value: float) -> None:
    product = Product(GGMLType.F32, 5, 32, 2)
    product.x[1, 7] = value
    y = product.few(False)
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("kind", [k if k in FIRST else pytest.param(k, marks=pytest.mark.slow) for k in FLOAT_BLOCKS])
def test_rows_of_floats_are_what_the_decoder_gives(kind: GGMLType) -> None:
    """The unpack rule of the kernels against quant.ggml.formats, bit for bit: a row times the unit vectors."""
    n = max(TRAITS[kind].block, 32) * 3
    raw = random_blocks(kind, (7, n), np.random.default_rng(kind))
    out = np.full((7, n + 5), np.nan, np.float32)
    tokens = np.arange(7)[::-1].astype(np.int64)
    count = np.array([7], np.int64)
    fields = record(elementwise.EMBED[kind], count=count, tokens=tokens, table=raw, stride=raw.strides[0], out=out, n=n)
    run(elementwise.EMBED[kind], fields, 2)
    np.testing.assert_array_equal(bits(out[:, :n].copy()), bits(formats.decode(kind, raw)[::-1].copy()))
    assert np.isnan(out[:, n:]).all()


def test_a_broken_activation_is_seen_in_integer_products() -> None:
    """Few columns and many quantize alike: NaN and infinity give NaN or infinity, not a wrong number."""
    for value in (np.nan, np.inf):
        product = Product(GGMLType.Q8_0, 5, 320, 2)
        product.x[1, 70] = value
        for y in (product.few(True), product.several(True), product.many(True, WIDE)):
            assert np.isfinite(y[0]).all()
            assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q5_0, GGMLType.Q4_1, GGMLType.IQ4_NL])
def test_last_groups_of_rows(kind: GGMLType) -> None:
    """For any number of groups, also in the last rows: the bits of prompts, and nothing after the weights is read."""
    size = mmap.PAGESIZE
    for n_groups in (*range(1, 8), 13, 18, 44):
        product = Product(kind, 9, 32 * n_groups, 2)
        pages = mmap.mmap(-1, (product.raw.nbytes // size + 2) * size)
        memory = np.frombuffer(pages, np.uint8)
        n, end = product.raw.nbytes, len(memory) - size
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data + end), ctypes.c_size_t(size), 0) == 0
        many = product.many(True, NARROW)
        memory[end - n : end] = product.raw.ravel()
        product.raw = memory[end - n : end].reshape(product.raw.shape)
        for got in (product.few(True), product.several(True)):
            assert (bits(got) == bits(many)).all(), n_groups


@pytest.mark.parametrize(
    ("rows", "n", "columns"), [(70, 2560, 13), (37, 150, 40), (25, 16, 3), (23, 135, 17), (9, 1, 2)]
)
@pytest.mark.parametrize("kind", [GGMLType.F16, pytest.param(GGMLType.BF16, marks=pytest.mark.slow)])
def test_words(kind: GGMLType, rows: int, n: int, columns: int) -> None:
    """F16 weights as codes of 13 bits: near float64, whatever follows a row; the same bits for any tile and threads."""
    product = Product(kind, rows, n, columns)
    expected = product.x.astype(np.float64) @ product.decoded[0].T
    got = product.many(gemm.WORDS, WIDE)
    error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    print(f"{kind.name} {rows}x{n}x{columns}: relative error {error:.1e}")
    # two roundings to steps of max / 4095 of a block: at most 3e-4 of a normal value
    assert 0 < error < 4e-4
    for other in (product.many(gemm.WORDS, NARROW), product.many(gemm.WORDS, WIDE, 3, chunk=48)):
        np.testing.assert_array_equal(bits(other), bits(got))


def test_words_are_the_rounded_values() -> None:
    """Against the definition in float64, in which blocks of weights and columns are rounded to multiples of their d."""
    product = Product(GGMLType.F16, 31, 300, 5)

    def rounded(values: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(values), 384), np.float32)
        padded[:, :300] = values
        blocks = padded.reshape(len(values), 3, 128)
        d = np.abs(blocks).max(-1, keepdims=True) / np.float32(4095)
        return (np.rint(blocks / d) * d.astype(np.float64)).reshape(len(values), -1)

    expected = rounded(product.x) @ rounded(product.decoded[0].astype(np.float32)).T
    np.testing.assert_allclose(product.many(gemm.WORDS, WIDE), expected, rtol=0, atol=2e-4 * np.abs(expected).max())
    other = product.many(gemm.WORDS, TILE_OF[isa.PLAIN_WIDE], target=isa.PLAIN_WIDE)
    np.testing.assert_array_equal(bits(other), bits(product.many(gemm.WORDS, WIDE)))


def test_sums_of_the_largest_words_fit() -> None:
    product = Product(GGMLType.F16, 6, 256, 4)
    product.raw.view(np.float16)[:] = [[1]] * 3 + [[-1]] * 3
    product.x[:] = [[2.0], [-2.0], [0.5], [0.0]]
    expected = np.array([[512.0], [-512.0], [128.0], [0.0]]) * [1, 1, 1, -1, -1, -1]
    np.testing.assert_allclose(product.many(gemm.WORDS, WIDE), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_values_are_seen_in_words(value: float) -> None:
    product = Product(GGMLType.F16, 5, 320, 2)
    product.x[1, 70] = value
    y = product.many(gemm.WORDS, WIDE)
    assert np.isfinite(y[0]).all() and not np.isfinite(y[1]).any()
    product.x[1, 70] = 0
    product.raw.view(np.float16)[0, 3, 300] = value
    y = product.many(gemm.WORDS, WIDE)
    assert not np.isfinite(y[:, 3]).any() and np.isfinite(np.delete(y, 3, 1)).all()
