"""The searching encoders: ggml's bytes, or no worse where there is a choice; rows are independent."""

from pathlib import Path

import numpy as np
import pytest

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats import FORMATS
from hybrid.quant.ggml.kernels import columns, minimum, symmetric
from hybrid.quant.ggml.types import TRAITS, GGMLType

GOLDEN = np.load(Path(__file__).resolve().parents[3] / "golden" / "blocks" / "encoders.npz")
KINDS = [kind for kind in GGMLType if f"{kind.name}_weighted" in GOLDEN]
WEIGHTED = [kind for kind in GGMLType if FORMATS[kind].weighted]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("suffix", ["", "_weighted"])
def test_bytes_are_ggmls(kind: GGMLType, suffix: str) -> None:
    if kind.name + suffix not in GOLDEN:
        # ggml stops the process; ours takes importance 1
        x = GOLDEN["x"]
        equal = formats.encode(kind, x, importance=np.ones(x.shape[1], np.float32))
        np.testing.assert_array_equal(formats.encode(kind, x), equal)
        return
    importance = GOLDEN["importance"] if suffix else None
    encoded = formats.encode(kind, GOLDEN["x"], importance=importance)
    blocks, expected = (a.reshape(-1, TRAITS[kind].nbytes) for a in (encoded, GOLDEN[kind.name + suffix]))
    differing = np.flatnonzero((blocks != expected).any(axis=1))
    assert not differing.size, f"blocks {differing} of {len(blocks)} differ"


def test_importance_changes_what_ggml_lets_it_change() -> None:
    for kind in KINDS:
        if kind.name in GOLDEN:
            same = np.array_equal(GOLDEN[kind.name], GOLDEN[kind.name + "_weighted"])
            assert same is (FORMATS[kind].weighted is None), kind.name


@pytest.mark.parametrize("kind", WEIGHTED, ids=lambda k: k.name)
def test_importance_lowers_the_error_it_weights(kind: GGMLType) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((24, 1280)).astype(np.float32)
    importance = (rng.standard_exponential(1280) ** 3).astype(np.float32)

    def error(weights: np.ndarray | None) -> float:
        decoded = formats.decode(kind, formats.encode(kind, x, importance=weights))
        return float((importance * np.square(decoded.astype(np.float64) - x)).sum())

    with_it, without = error(importance), error(None)
    assert with_it < 0.97 * without, f"{with_it:.4g}, without importance {without:.4g}"


@pytest.mark.parametrize("kind", WEIGHTED, ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_a_row_does_not_depend_on_its_neighbours(
    kind: GGMLType, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight rows are searched at once: any number of rows, in any pieces, gives the same bytes."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((13, 512)).astype(np.float32)
    importance = rng.standard_exponential(512).astype(np.float32) if weighted else None
    whole = formats.encode(kind, x, importance=importance)
    alone = [formats.encode(kind, row[None], importance=importance)[0] for row in x]
    np.testing.assert_array_equal(np.stack(alone), whole)
    monkeypatch.setattr(formats, "CHUNK", 1536)
    np.testing.assert_array_equal(formats.encode(kind, x, importance=importance), whole)


def test_rows_are_added_in_order() -> None:
    """In f32, first to last: 2^24 + 1 + 1 stays 2^24, and 1 + 1 + 2^24 does not."""
    big = np.float32(1 << 24)
    x = np.array([[big, 1, 1], [1, 1, big], [0, 0, 0]], np.float32)
    assert columns.row_sums(x).tolist() == [big, big + 2, 0]
    assert columns.row_sums(np.array([[3, -4]], np.float32), squares=True).tolist() == [25]


def test_symmetric_finds_exact_scales() -> None:
    codes = np.tile(np.arange(-8, 8, dtype=np.float32), (9, 1))
    x = codes * (np.float32(0.5) ** np.arange(9, dtype=np.float32))[:, None]
    scales, fitted = symmetric.symmetric(x, np.ones_like(x), 8)
    np.testing.assert_array_equal(scales, 0.5 ** np.arange(9))
    np.testing.assert_array_equal(fitted, codes + 8)


def test_with_minimum_finds_exact_lines() -> None:
    codes = np.tile(np.arange(16, dtype=np.float32), (3, 1))
    x = codes * np.float32(0.25) - np.float32(1.5)
    scales, minima, fitted = minimum.with_minimum(x, np.ones_like(x), 15, -0.9, 0.05, 36)
    assert scales.tolist() == [0.25] * 3 and minima.tolist() == [1.5] * 3
    np.testing.assert_array_equal(fitted, codes)
