"""The least bytes and operations per token, counted by hand on small files."""

from dataclasses import replace
from pathlib import Path

import pytest

from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.needs import TokenNeeds, peak_of
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType

SHAPE = ModelShape(
    "tiny", "llama", 2, 64, 320, 64, 1e-5, tied=False, n_ff=96, n_head=2, n_head_kv=1, head_dim=32, rope_base=1e4
)
MACHINE = Machine("EPYC", "avx2", 2, 30.0, 200.0, {"ub": 400.0, "s16": 100.0, "vnni": 400.0})
MATRICES = 2 * (64 * 64 + 32 * 64 + 32 * 64 + 64 * 64 + 3 * 64 * 96)  # q, k, v, output, three of the FFN
NORMS = 4 * 64 * (2 * 2 + 1)


def needs(shape: ModelShape, folder: Path, kind: str = "F32") -> TokenNeeds:
    return TokenNeeds.of(GGUFFile.open(write_shape(shape, folder / f"{kind}.gguf", FileType[kind])))


def test_dense(tmp_path: Path) -> None:
    per_token = needs(SHAPE, tmp_path)
    assert per_token.flops == {GGMLType.F32: 2 * MATRICES}, "the output is of the last token only"
    # one row of the embedding, all of the output
    assert per_token.nbytes == 4 * MATRICES + NORMS + 4 * 64 + 4 * 320 * 64
    assert not per_token.has_experts


def test_tied_embedding_is_read_as_the_output(tmp_path: Path) -> None:
    per_token = needs(replace(SHAPE, tied=True), tmp_path)
    assert per_token.nbytes == 4 * MATRICES + NORMS + 4 * 320 * 64
    assert per_token.flops == {GGMLType.F32: 2 * MATRICES}


def test_quantized(tmp_path: Path) -> None:
    per_token = needs(SHAPE, tmp_path, "Q8_0")
    assert per_token.flops == {GGMLType.Q8_0: 2 * MATRICES}
    assert per_token.nbytes == (MATRICES + 64 + 320 * 64) * 34 // 32 + NORMS


def test_experts_that_are_used(tmp_path: Path) -> None:
    shape = ModelShape(
        "tiny", "jamba", 1, 64, 320, 64, 1e-6, n_ff=96, n_head=2, n_head_kv=1, head_dim=32, dt_rank=4,
        n_expert=8, n_expert_used=2, tied=False,
    )  # fmt: skip
    per_token = needs(shape, tmp_path)
    assert per_token.has_experts
    attention = 64 * 64 + 32 * 64 + 32 * 64 + 64 * 64
    assert per_token.flops == {GGMLType.F32: 2 * (attention + 8 * 64 + 2 * 3 * 64 * 96)}
    assert per_token.nbytes == 4 * (attention + 8 * 64 + 2 * 3 * 64 * 96 + 3 * 64 + 64 + 320 * 64)


def test_shares() -> None:
    per_token = TokenNeeds(3 * 10**9, {GGMLType.Q8_0: 4 * 10**9, GGMLType.F32: 10**9}, False)
    assert per_token.of_bandwidth(5.0, 30.0) == pytest.approx(0.5)
    peak = peak_of(GGMLType.Q8_0, MACHINE)
    assert per_token.of_peak(10.0, MACHINE) == pytest.approx(40 / peak + 10 / 200)


def test_peaks() -> None:
    assert peak_of(GGMLType.F16, MACHINE) == 200.0
    assert peak_of(GGMLType.Q4_0, MACHINE) in (400.0, 200.0), "200 where the plain path runs"
    assert peak_of(GGMLType.Q8_0, replace(MACHINE, dot_gop_s={})) == 200.0
