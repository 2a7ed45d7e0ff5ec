"""How many rows of weights a thread unpacks at a time, and with how many columns they are multiplied."""

import pytest

from hybrid.infer.kernels.emit.isa import AVX2, AVX512_BF16, AVX512_VNNI, ISA, NEON, PLAIN_X86
from hybrid.infer.program.builder import Columns, Weight
from hybrid.infer.program.products import Products
from hybrid.infer.program.record import Recorder
from hybrid.quant.ggml.types import GGMLType, row_nbytes


@pytest.mark.parametrize(
    ("isa", "length", "item", "rows"),
    [
        (AVX2, 2560, 1, 72),
        (AVX2, 8192, 4, 24),
        (AVX512_VNNI, 2560, 1, 96),
        (AVX512_VNNI, 8192, 1, 72),
        (AVX512_VNNI, 8192, 4, 96),  # never fits a core's cache
    ],
)
def test_rows_of_a_chunk(isa: ISA, length: int, item: int, rows: int) -> None:
    """As many rows as fit the second-level cache, which is larger on processors with AVX-512."""
    recorder = Recorder(512, n_threads=2)
    weight = Weight("w", GGMLType.Q8_0, 8192, length, 0, row_nbytes(GGMLType.Q8_0, length))
    assert Products(recorder, isa, exact=False)._chunk_rows(weight, item) == rows


def test_few_rows_are_shared_among_threads() -> None:
    recorder = Recorder(512, n_threads=4)
    weight = Weight("w", GGMLType.Q8_0, 768, 2560, 0, row_nbytes(GGMLType.Q8_0, 2560))
    assert Products(recorder, AVX512_VNNI, exact=False)._chunk_rows(weight, 1) == 48


@pytest.mark.parametrize(
    ("length", "n_columns", "passes"),
    [
        (2048, 512, (1, 512)),
        (8192, 512, (4, 128)),
        (8192, 500, (4, 128)),  # 31.25 tiles of 16 columns
        (8192, 16, (1, 16)),
        (3000, 512, (2, 256)),
        (2560, 33, (1, 48)),
        (1 << 20, 64, (4, 16)),  # a tile does not fit
    ],
)
def test_columns_that_meet_all_rows_fit_the_last_cache(length: int, n_columns: int, passes: tuple[int, int]) -> None:
    products = Products(Recorder(n_columns, n_threads=2), AVX2, exact=False)
    tile = products.tile.cols
    assert tile == 16
    assert products._passes(n_columns, length * 4 * tile) == passes
    n_passes, columns = passes
    assert columns % tile == 0 and (n_passes - 1) * columns < n_columns <= n_passes * columns


def test_with_avx512_more_columns_meet_all_rows() -> None:
    products = Products(Recorder(512, n_threads=2), AVX512_VNNI, exact=False)
    assert products._passes(512, 8192 * 4 * products.tile.cols) == (2, 256)
    assert products._passes(512, 2560 * 4 * products.tile.cols) == (1, 512)


@pytest.mark.parametrize(
    ("isa", "kind", "n_columns", "exact", "kernel"),
    [
        (AVX2, GGMLType.F16, 64, False, "gemm_words_f16"),
        (AVX512_BF16, GGMLType.F16, 64, False, "gemm_words_f16"),
        (AVX512_BF16, GGMLType.BF16, 64, False, "gemm_words_bf16"),
        (AVX512_BF16, GGMLType.BF16, 64, True, "gemm_float_bf16"),
        (AVX512_BF16, GGMLType.F32, 64, False, "gemm_float_f32"),
        (AVX512_BF16, GGMLType.Q8_0, 64, False, "gemm_int_q8_0"),
        (AVX512_BF16, GGMLType.F16, 8, False, "gemv_columns_float_f16"),
        (NEON, GGMLType.F16, 64, False, "gemm_float_f16"),
        (PLAIN_X86, GGMLType.F16, 64, False, "gemm_float_f16"),
    ],
)
def test_which_products_are_in_words(isa: ISA, kind: GGMLType, n_columns: int, exact: bool, kernel: str) -> None:
    recorder = Recorder(n_columns, n_threads=2)
    products = Products(recorder, isa, exact=exact)
    products.words = True
    weight = Weight("w", kind, 48, 96, 0, row_nbytes(kind, 96))
    products.product(recorder.rows(96), weight, "w", Columns(0, n_columns))
    assert recorder.ops[-1].kernel.name.startswith(kernel)


@pytest.mark.parametrize(
    ("isa", "kinds", "exact", "most"),
    [
        (AVX2, [GGMLType.Q4_K], False, 8),
        (AVX512_VNNI, [GGMLType.Q4_K, GGMLType.Q6_K], False, 20),
        (AVX512_VNNI, [GGMLType.Q4_K, GGMLType.F16], False, 8),
        (AVX512_VNNI, [GGMLType.Q4_K], True, 8),
    ],
)
def test_how_many_columns_of_an_expert_are_few(isa: ISA, kinds: list[GGMLType], exact: bool, most: int) -> None:
    weights = [Weight("w", kind, 96, 256, 0, row_nbytes(kind, 256), n_expert=64) for kind in kinds]
    products = Products(Recorder(512, n_threads=2), isa, exact=exact)
    assert products.are_few(64 * most, 64, weights) and not products.are_few(64 * most + 1, 64, weights)
