"""Decoders of all block formats: against ggml's results, and bit by bit against the gguf package."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.formats.grids import grid, sign_bytes, sign_factors
from hybrid.quant.ggml.formats.q3_k import scales_q3_k
from hybrid.quant.ggml.formats.q4_k import scales_and_minima
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import TRAITS, GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

GOLDEN = np.load(Path(__file__).resolve().parents[3] / "golden" / "blocks" / "ggml.npz")
BLOCKS = [k for k in GGMLType if TRAITS[k].block > 1]
WRITTEN = [k for k in BLOCKS if formats.can_encode(k)]
OF_GGML = [k for k in BLOCKS if k.name not in ("PQ2_0", "PTQ1_0")]  # of the others: test_formats_prism.py
KNOWN_TO_GGUF = [k for k in OF_GGML if k.name not in ("Q1_0", "Q2_0")]

# Where the f16 scales of a block are.
SCALES = {
    "Q1_0": (0,), "Q2_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "IQ1_S": (0,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "TQ1_0": (52,),
    "TQ2_0": (64,), "IQ1_M": (), "MXFP4": (), "NVFP4": (),
}  # fmt: skip
# zero, the least and greatest subnormal, the least normal, one, the greatest, infinity, a quiet and a signalling NaN
SPECIAL = [0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7E01, 0x7D55]


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize("kind", OF_GGML, ids=lambda k: k.name)
def test_as_ggml_decodes(kind: GGMLType) -> None:
    """Equal bits, except the bits of a NaN: compilers choose its sign."""
    expected = GOLDEN[f"{kind.name}_decoded"]
    assert len(expected) == 9
    values = formats.decode(kind, GOLDEN[kind.name])
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(values), nan)
    np.testing.assert_array_equal(bits(values)[~nan], bits(expected)[~nan])


@pytest.mark.parametrize("kind", KNOWN_TO_GGUF, ids=lambda k: k.name)
def test_same_bits_as_the_gguf_package(kind: GGMLType) -> None:
    """Random bytes in all fields, then each pair of special scales with both signs."""
    raw = np.random.default_rng(1).integers(0, 256, (1200, TRAITS[kind].nbytes), np.uint8)
    special = [(a ^ s, b ^ t) for a in SPECIAL for b in SPECIAL for s in (0, 0x8000) for t in (0, 0x8000)]
    for row, pair in zip(raw[: len(special)], special, strict=True):
        for offset, value in zip(SCALES[kind.name], pair, strict=False):
            row[offset : offset + 2] = value & 255, value >> 8
    if kind is GGMLType.MXFP4:
        raw[:256, 0] = np.arange(256)
    if kind is GGMLType.NVFP4:
        raw[:256, :4] = np.arange(256)[:, None]
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, gguf.GGMLQuantizationType[kind.name])
    np.testing.assert_array_equal(bits(formats.decode(kind, raw)), bits(expected))


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda k: k.name)
def test_chunks_views_and_outputs(kind: GGMLType) -> None:
    """More blocks than a chunk, an incomplete last chunk, non-contiguous rows."""
    traits = TRAITS[kind]
    raw = random_blocks(kind, (3, 83, 1024), np.random.default_rng(2))
    assert raw.shape == (3, 83, 1024 // traits.block * traits.nbytes)
    values = formats.decode(kind, raw)
    assert values.shape == (3, 83, 1024) and values.size > formats.CHUNK and values.size % formats.CHUNK
    copy = np.full_like(values, np.nan)
    assert formats.decode(kind, raw, copy) is copy
    np.testing.assert_array_equal(copy, values)
    np.testing.assert_array_equal(formats.decode(kind, raw[1:, ::2]), values[1:, ::2])
    np.testing.assert_array_equal(formats.decode(kind, raw[2, 40]), values[2, 40])
    alone = formats.decode(kind, raw[1, 7, traits.nbytes : 2 * traits.nbytes])
    np.testing.assert_array_equal(alone, values[1, 7, traits.block : 2 * traits.block])


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda k: k.name)
def test_as_ggml_encodes(kind: GGMLType) -> None:
    if kind is GGMLType.IQ4_NL:
        pytest.skip("llama-quantize tries more scales than the reference function: see test_formats_encoders")
    if f"{kind.name}_encoded" not in GOLDEN:
        pytest.skip("the reference needs importance, or has no function without it: see test_formats_encoders")
    encoded = formats.encode(kind, GOLDEN["x"])
    expected = GOLDEN[f"{kind.name}_encoded"].reshape(encoded.shape)
    if kind is GGMLType.IQ3_S:
        # after 32 zero weights (unless all 256 are zero) ggml writes the codes 32 weights too early
        encoded, expected = encoded[1:], expected[1:]
    np.testing.assert_array_equal(encoded, expected)


def test_zeros_among_others_stay_in_place() -> None:
    """ggml's IQ3_S misplaces the codes after 32 zeros (see above); ours has only a usual error."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5, 256)).astype(np.float32)
    x[:4, 64:96] = 0
    for kind, bound in (
        (GGMLType.IQ3_S, 0.2),
        (GGMLType.IQ3_XXS, 0.25),
        (GGMLType.IQ2_S, 0.35),
        (GGMLType.IQ1_M, 0.65),
    ):
        error = np.square(formats.decode(kind, formats.encode(kind, x)) - x).sum(axis=1) / np.square(x).sum(axis=1)
        assert np.sqrt(error.max()) < bound, f"{kind.name} {np.sqrt(error)}"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("Q2_K", 0.32), ("Q3_K", 0.16), ("Q4_K", 0.08), ("Q5_K", 0.04), ("Q6_K", 0.02), ("IQ4_NL", 0.085),
        ("IQ4_XS", 0.085), ("IQ2_S", 0.28), ("IQ3_XXS", 0.22), ("IQ3_S", 0.17),
    ],
)  # fmt: skip
def test_what_ggml_encoded_decodes_to_the_weights(kind: str, error: float) -> None:
    """Every code of a real block is at its index: the relative error is as small as the format's step."""
    x = GOLDEN["x"].astype(np.float64)[8:]
    values = formats.decode(GGMLType[kind], GOLDEN[f"{kind}_encoded"]).reshape(16, 256)[8:]
    relative = np.sqrt(np.square(values - x).mean() / np.square(x).mean())
    print(kind, relative)
    assert 0.5 * error < relative < error


@pytest.mark.parametrize("kind", [k for k in BLOCKS if k not in WRITTEN], ids=lambda k: k.name)
def test_types_that_can_only_be_read(kind: GGMLType) -> None:
    message = rf"^{kind.name} can only be read by this version, not written\. Choose one of F32, F16, BF16, .*Q8_0.*\.$"
    with pytest.raises(UnsupportedError, match=message):
        formats.encode(kind, np.zeros(256, np.float32))


GRIDS: dict[str, tuple[tuple[int, int], set[int]]] = {
    "IQ1_S": ((2048, 8), {-1, 0, 1}),
    "IQ1_M": ((2048, 8), {-1, 0, 1}),
    "IQ2_XXS": ((256, 8), {8, 25, 43}),
    "IQ2_XS": ((512, 8), {8, 25, 43}),
    "IQ2_S": ((1024, 8), {8, 25, 43}),
    "IQ3_XXS": ((256, 4), {4, 12, 20, 28, 36, 44, 52, 62}),
    "IQ3_S": ((512, 4), {1, 3, 5, 7, 9, 11, 13, 15}),
}


@pytest.mark.parametrize("name", GRIDS)
def test_grids(name: str) -> None:
    shape, values = GRIDS[name]
    points = grid(GGMLType[name])
    assert points.shape == shape and points.dtype == np.int8 and points.flags.c_contiguous
    assert set(points.reshape(-1).tolist()) == values
    assert len(np.unique(points, axis=0)) == len(points)
    assert grid(GGMLType[name]) is points
    with pytest.raises(ValueError, match="read-only"):
        points[0] = 0


def test_signs() -> None:
    assert sign_bytes().tobytes() == quants.IQ2_XXS.ksigns
    assert sign_factors()[0b10000010].tolist() == [1, -1, 1, 1, 1, 1, 1, -1]
    assert (sign_factors()[sign_bytes()].prod(axis=1) == 1).all()


@pytest.mark.parametrize("kind", list(GGMLType), ids=lambda k: k.name)
def test_random_blocks_stay_finite_where_scales_end(kind: GGMLType) -> None:
    for scale in (0.0, 1e-9, 1e4):
        values = formats.decode(kind, random_blocks(kind, (3, 512), np.random.default_rng(0), scale))
        assert np.isfinite(values).all()
        assert np.abs(values).max() < max(20 * scale, 1e-2)


def test_random_blocks_leave_out_what_no_encoder_writes() -> None:
    rng = np.random.default_rng(4)
    q8 = random_blocks(GGMLType.Q8_0, (9, 4096), rng).reshape(-1, 34)[:, 2:].view(np.int8)
    assert q8.min() == -127 and q8.max() == 127
    tq2 = random_blocks(GGMLType.TQ2_0, (9, 4096), rng).reshape(-1, 66)[:, :64]
    assert {int(v) for shift in (0, 2, 4, 6) for v in np.unique(tq2 >> shift & 3)} == {0, 1, 2}


def test_random_blocks_of_half_a_block() -> None:
    with pytest.raises(FormatError, match=r"^row of 128 values is not a multiple of 256 \(Q6_K\)$"):
        random_blocks(GGMLType.Q6_K, (2, 128), np.random.default_rng(0))


def test_a_file_with_every_type(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    raw = {kind: random_blocks(kind, (3, 512), rng) for kind in GGMLType}
    with GGUFWriter(tmp_path / "x.gguf", "arch") as w:
        for kind in raw:
            w.declare(kind.name, (3, 512), kind)
        for kind, data in raw.items():
            w.write(kind.name, iter([data]))
    with GGUFFile.open(tmp_path / "x.gguf") as f:
        for kind, data in raw.items():
            assert f.info(kind.name).type is kind
            np.testing.assert_array_equal(f.f32(kind.name), formats.decode(kind, data))


@pytest.mark.parametrize("name", ["q4_k", "q3_k"])
def test_packed_scales(name: str) -> None:
    """Each 6-bit scale is assembled bit by bit from the layout tables."""
    packed = np.random.default_rng(5).integers(0, 256, (50, 12), np.uint8)
    for row in packed:
        p = row.tolist()
        if name == "q3_k":
            expected = [
                (p[j % 8] >> 4 * (j // 8) & 15) + 16 * (p[8 + j % 4] >> 2 * (j // 4) & 3) - 32 for j in range(16)
            ]
            assert scales_q3_k(row[None])[0].tolist() == expected
        else:
            s = [p[i] & 63 for i in range(4)] + [(p[8 + i] & 15) + 16 * (p[i] >> 6) for i in range(4)]
            m = [p[4 + i] & 63 for i in range(4)] + [(p[8 + i] >> 4) + 16 * (p[4 + i] >> 6) for i in range(4)]
            unpacked = scales_and_minima(row[None])
            assert [v[0].tolist() for v in unpacked] == [s, m]
