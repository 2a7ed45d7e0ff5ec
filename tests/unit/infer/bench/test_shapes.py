"""Random-weight models: sizes, files, and equal files for equal seeds."""

from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer.bench.random_weights import Fill, RandomWeights
from hybrid.infer.bench.shapes import SHAPES, ModelShape, file_type_of, find_shape, find_type, tensor_types, write_shape
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import NOT_WEIGHTS, FileType, GGMLType

# every size differs, so that a swapped axis shows
JAMBA = ModelShape(
    "tiny-jamba", "jamba", 5, 96, 320, 4096, 1e-6, tied=False, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, dt_rank=6,
    attn_offset=1, attn_period=3, n_expert=3, n_expert_used=2, expert_offset=2, expert_period=2, d_state=5,
)  # fmt: skip
MAMBA = ModelShape("tiny-mamba", "mamba", 2, 64, 300, 1 << 20, 1e-5, dt_rank=4)
MAMBA2 = ModelShape("tiny-mamba2", "mamba2", 2, 64, 300, 1 << 20, 1e-5, d_state=7, d_conv=3, n_ssm_head=8, n_group=2)
GRANITE = ModelShape(
    "tiny-granite", "granitehybrid", 3, 96, 320, 4096, 1e-5, n_ff=32, n_head=3, n_head_kv=1, head_dim=32, n_ssm_head=6,
    d_state=5, attn_offset=1, attn_period=3, n_expert=3, n_expert_used=2, n_ff_shared=64,
)  # fmt: skip
LLAMA = ModelShape(
    "tiny-llama", "llama", 2, 96, 310, 512, 1e-5, n_ff=224, n_head=6, n_head_kv=2, head_dim=16, rope_base=1e4
)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # as llama-bench or the model's own card states them
        ("jamba-3b", 3.03),
        ("jamba-mini", 51.57),
        ("mamba-130m", 0.129),
        ("mamba-370m", 0.372),
        ("mamba-790m", 0.793),
        ("mamba-1.4b", 1.372),
        ("mamba-2.8b", 2.768),
        ("falcon-mamba-7b", 7.27),
        ("mamba2-130m", 0.129),
        ("mamba2-1.3b", 1.344),
        ("mamba2-2.7b", 2.703),
        ("granite-h-1b", 1.46),
        ("granite-h-tiny", 6.94),
        ("tinyllama-1.1b", 1.10),
        ("llama-1b", 1.24),
        ("llama-3b", 3.21),
    ],
)
def test_parameter_counts(name: str, billions: float) -> None:
    assert SHAPES[name].n_params / 1e9 == pytest.approx(billions, rel=0.005)


def test_every_shape_is_consistent() -> None:
    for name, shape in SHAPES.items():
        assert shape.name == name
        names = [tensor.name for tensor in shape.tensors()]
        assert len(set(names)) == len(names), name
        assert all(min(tensor.shape) > 0 for tensor in shape.tensors()), name
        if shape.n_head:
            assert shape.n_head * shape.head_dim == shape.n_embd, name
            assert shape.n_head % shape.n_head_kv == 0, name


def test_jamba_3b_has_two_attention_layers() -> None:
    shape = SHAPES["jamba-3b"]
    assert [i for i in range(shape.n_layer) if shape.has_attention(i)] == [7, 21]
    assert sum(tensor.fill is Fill.SSM_A for tensor in shape.tensors()) == 26


def test_unknown_shape() -> None:
    with pytest.raises(UsageError, match=r"^shape jamba-9b: not a known shape\. Known: jamba-3b, "):
        find_shape("jamba-9b")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [JAMBA, MAMBA, MAMBA2, GRANITE, LLAMA], ids=lambda shape: shape.arch)
@pytest.mark.parametrize("file_type", [FileType.F32, GGMLType.F16, FileType.BF16, GGMLType.Q8_0, FileType.Q4_0])
def test_file(tmp_path: Path, shape: ModelShape, file_type: FileType | GGMLType) -> None:
    check_file(tmp_path, shape, file_type)


def check_file(tmp_path: Path, shape: ModelShape, file_type: FileType | GGMLType) -> None:
    reports: list[tuple[int, int]] = []
    path = write_shape(shape, tmp_path / "m.gguf", file_type, progress=lambda *r: reports.append(r))
    gguf = GGUFFile.open(path)
    assert gguf.get("general.architecture") == shape.arch
    assert gguf.get("general.file_type") == file_type_of(file_type)
    assert gguf.get(f"{shape.arch}.block_count") == shape.n_layer
    assert len(gguf.get("tokenizer.ggml.tokens")) == shape.n_vocab
    assert len(gguf.get("tokenizer.ggml.scores")) == len(gguf.get("tokenizer.ggml.token_type")) == shape.n_vocab
    assert {name: info.shape for name, info in gguf.tensors.items()} == {t.name: t.shape for t in shape.tensors()}
    assert sum(prod(info.shape) for info in gguf.tensors.values()) == shape.n_params
    for tensor, kind in tensor_types(shape, file_type, True):
        assert gguf.tensors[tensor.name].type is kind, tensor.name
        values = gguf.f32(tensor.name)
        assert np.isfinite(values).all(), tensor.name
        if tensor.fill in (Fill.WEIGHT, Fill.SSM_WEIGHT, Fill.ROUTER):
            spread = float(values.std()) * tensor.shape[-1] ** 0.5
            assert 0.8 < spread < 1.2, f"{tensor.name}: {spread}"
    assert reports[-1][0] == reports[-1][1] == sum(info.nbytes for info in gguf.tensors.values())
    assert all(a[0] < b[0] for a, b in pairwise(reports))
    gguf.close()


def test_mamba_initial_values(tmp_path: Path) -> None:
    gguf = GGUFFile.open(write_shape(JAMBA, tmp_path / "m.gguf", FileType.F16))
    np.testing.assert_array_equal(gguf.f32("blk.0.ssm_a"), np.tile(-np.arange(1, 6), (192, 1)))
    step = np.logaddexp(0, gguf.f32("blk.0.ssm_dt.bias").astype(np.float64))
    assert 0.00099 < step.min() < 0.002
    assert 0.05 < step.max() < 0.1001
    assert abs(gguf.f32("blk.0.ssm_conv1d.weight")).max() <= 0.5
    gguf.close()


def test_mamba2_initial_values(tmp_path: Path) -> None:
    gguf = GGUFFile.open(write_shape(MAMBA2, tmp_path / "m.gguf", FileType.F16))
    a = gguf.f32("blk.1.ssm_a")
    assert a.shape == (8, 1)
    assert -16 < a.min() < -8 < a.max() < -1
    gguf.close()


def types(shape: str, target: FileType | GGMLType, ssm_f32: bool) -> dict[str, GGMLType]:
    return {tensor.name: kind for tensor, kind in tensor_types(SHAPES[shape], target, ssm_f32)}


def test_types_of_the_small_ssm_matrices() -> None:
    names = [f"blk.0.ssm_{name}.weight" for name in ("x", "dt", "in", "conv1d")]
    f32, q4_0, q8_0 = GGMLType.F32, GGMLType.Q4_0, GGMLType.Q8_0
    assert [types("jamba-3b", FileType.Q4_0, True)[name] for name in names] == [f32, f32, q4_0, f32]
    assert [types("jamba-3b", FileType.Q4_0, False)[name] for name in names] == [q4_0, q4_0, q4_0, f32]
    assert types("jamba-3b", FileType.BF16, True)["blk.0.ssm_x.weight"] is GGMLType.BF16
    # rows of 160 are not whole blocks of 256, rows of 48 (mamba-130m) not of 32
    assert types("jamba-3b", GGMLType.Q4_K, False)["blk.0.ssm_dt.weight"] is GGMLType.Q5_0
    assert types("mamba-130m", q8_0, False)["blk.0.ssm_dt.weight"] is GGMLType.F16
    assert types("mamba-130m", GGMLType.IQ1_S, False)["blk.0.ssm_dt.weight"] is GGMLType.F16


WIDE = ModelShape("wide-jamba", "jamba", 2, 256, 320, 4096, 1e-6, n_ff=512, n_head=2, n_head_kv=1, head_dim=128,
                  dt_rank=6, attn_offset=1, attn_period=2)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in GGMLType if k not in NOT_WEIGHTS], ids=lambda k: k.name)
def test_a_file_of_every_type(tmp_path: Path, kind: GGMLType) -> None:
    check_file(tmp_path, WIDE, kind)
    assert types_of(tmp_path / "m.gguf")["blk.1.attn_v.weight"] is kind


def types_of(path: Path) -> dict[str, GGMLType]:
    with GGUFFile.open(path) as gguf:
        return {name: info.type for name, info in gguf.tensors.items()}


def test_a_file_of_a_mix(tmp_path: Path) -> None:
    check_file(tmp_path, WIDE, FileType.Q4_K_M)
    kinds = types_of(tmp_path / "m.gguf")
    assert kinds["token_embd.weight"] is GGMLType.Q6_K  # tied
    assert kinds["blk.0.ffn_down.weight"] is GGMLType.Q4_K and kinds["blk.1.ffn_down.weight"] is GGMLType.Q6_K


def test_what_type_means() -> None:
    assert find_type("q4_k") is GGMLType.Q4_K and find_type(" Q4_K_M ") is FileType.Q4_K_M
    assert find_type("IQ2_S") is GGMLType.IQ2_S
    assert file_type_of(GGMLType.Q4_K) is FileType.Q4_K_S and file_type_of(GGMLType.IQ2_S) is FileType.IQ2_M
    assert file_type_of(GGMLType.MXFP4) is FileType.MXFP4_MOE
    with pytest.raises(UsageError, match=r"^type Q9_9: not a type .*\. Choose some of F32, F16, .*, Q4_K_M, .*\.$"):
        find_type("Q9_9")


def test_seed_decides_the_bytes(tmp_path: Path) -> None:
    first = write_shape(MAMBA, tmp_path / "a", FileType.Q8_0, seed=1).read_bytes()
    assert write_shape(MAMBA, tmp_path / "b", FileType.Q8_0, seed=1).read_bytes() == first
    assert write_shape(MAMBA, tmp_path / "c", FileType.Q8_0, seed=2).read_bytes() != first


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_0])
def test_a_large_matrix_has_no_two_equal_rows(kind: GGMLType) -> None:
    # 8192 x 1056 weights are more than two tiles, so rows are reused
    data = np.concatenate(list(RandomWeights(0).chunks(Fill.WEIGHT, (8192, 1056), kind)))
    assert data.shape == (8192, RandomWeights.nbytes((1056,), kind))
    assert len({row.tobytes() for row in data}) == 8192
