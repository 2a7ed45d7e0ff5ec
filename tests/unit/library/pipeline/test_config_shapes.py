"""Shapes from a config: sizes of the published models, and files that load."""

from pathlib import Path

import numpy as np
import pytest
from families import listed, merged
from random_checkpoints import CONFIGS

from hybrid.infer import LoadedModel
from hybrid.infer.bench.random_weights import Fill
from hybrid.infer.bench.shapes import SHAPES, tensor_types, write_shape
from hybrid.pipeline.config_shapes import ALL_SHAPES, CONFIG_SHAPES, ConfigShape, find
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.policy import Options as QuantOptions
from hybrid.quant.policy import SsmType, decide, model_of


def small(name: str) -> ConfigShape:
    return ConfigShape(f"small-{name}", {"vocab_size": 300, "max_position_embeddings": 512, **CONFIGS[name]})


@pytest.mark.parametrize(("name", "billions"), merged("sizes").items())
def test_parameter_counts(name: str, billions: float) -> None:
    """As stated on the models' cards, plus tensors that the file holds twice, or minus those it lacks."""
    assert find(name).n_params / 1e9 == pytest.approx(billions, rel=0.005)


def test_both_kinds_are_found() -> None:
    assert find("mamba-130m") is SHAPES["mamba-130m"]
    assert set(ALL_SHAPES) == {*SHAPES, *CONFIG_SHAPES}
    assert not set(SHAPES) & set(CONFIG_SHAPES)
    assert all(shape.name == name for name, shape in ALL_SHAPES.items())
    with pytest.raises(UsageError, match=r"^shape no: not a known shape\. Known: jamba-3b, .*rwkv7-0.4b"):
        find("no")


@pytest.mark.parametrize("name", listed("loaded"))
def test_a_file_loads(name: str, tmp_path: Path) -> None:
    shape = small(name)
    path = write_shape(shape, tmp_path / "model.gguf", GGMLType.Q8_0)
    with GGUFFile.open(path) as gguf:
        assert {n: t.shape for n, t in gguf.tensors.items()} == {t.name: t.shape for t in shape.tensors()}
        for tensor in shape.tensors():
            values = gguf.f32(tensor.name)
            assert np.isfinite(values).all(), tensor.name
            if tensor.fill is Fill.SHARE:
                assert values.min() >= 0
                assert values.max() < 1
    with LoadedModel.load(path, n_ctx=32, n_threads=1) as model:
        logits = model.sequence().logits_of([5, 6, 7])
        assert np.isfinite(logits).all()
        assert logits.std() > 1e-3


@pytest.mark.parametrize("target", [FileType.Q8_0, FileType.Q4_K_M])
def test_types_of_an_architecture_with_rules_of_its_own(target: FileType, tmp_path: Path) -> None:
    """The same types as by `hybrid quantize`."""
    shape = small("glm5-next-plain")
    types = {t.name: kind for t, kind in tensor_types(shape, target, ssm_f32=True)}
    with GGUFFile.open(write_shape(shape, tmp_path / "model.gguf", FileType.F16)) as gguf:
        decided = decide(gguf.tensors, target, model_of(gguf.metadata))
    assert types == {name: d.type for name, d in decided.items()}
    assert types["blk.3.hc_attn_fn.weight"] is GGMLType.F32
    assert types["blk.3.attn_kv_a_mqa.weight"] is GGMLType.F16


@pytest.mark.parametrize("name", ["rwkv6", "rwkv7", "falcon-h1", "kimi-linear"])
@pytest.mark.parametrize("target", [FileType.Q8_0, FileType.Q4_K_M])
def test_types_are_those_of_quantize(name: str, target: FileType, tmp_path: Path) -> None:
    """The types of a converted F16 file, quantized like llama-quantize."""
    shape = small(name)
    types = {t.name: kind for t, kind in tensor_types(shape, target, ssm_f32=False)}
    with GGUFFile.open(write_shape(shape, tmp_path / "model.gguf", FileType.F16)) as gguf:
        decided = decide(gguf.tensors, target, model_of(gguf.metadata), QuantOptions(ssm_type=SsmType.LIKE_LLAMA))
    assert types == {tensor: decision.type for tensor, decision in decided.items()}
