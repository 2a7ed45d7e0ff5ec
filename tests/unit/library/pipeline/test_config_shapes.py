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

LOADED = (
    "rwkv6", "rwkv7", "falcon-h1", "lfm2", "lfm3", "gemma4", "nemotron-h", "qwen3next", "qwen35", "zamba2",
    "olmo-hybrid", "xlstm", "kimi-linear", "zaya", "minimax-scaled", "plamo2", "bailing-hybrid", "gptneox", "falcon",
    "gpt-oss-rounded", "ministral3", "deepseek-v2", "glm5-next-plain", "deepseek4",
    "kimi-k3",
    "phi4flash",
    "qwen4exp",
    "llama4-window",
    "gemma3n", *listed("loaded"),
)  # fmt: skip


def small(name: str) -> ConfigShape:
    return ConfigShape(f"small-{name}", {"vocab_size": 300, "max_position_embeddings": 512, **CONFIGS[name]})


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # as stated on the models' cards, plus tensors that the file holds twice, or minus those it lacks
        ("olmo3-7b", 7.30), ("qwen1.5-moe-a2.7b", 14.32), ("glm-4-9b", 9.40), ("seed-oss-36b", 36.15),
        ("apertus-8b", 8.053), ("phi-3.5-moe", 41.87), ("afm-4.5b", 4.62),
        ("command-r-35b", 34.98), ("minitron-4b", 4.19), ("mixtral-8x7b", 46.7), ("gemma-2b", 2.506),
        ("exaone-4-1.2b", 1.28), ("ernie-4.5-0.3b", 0.3607), ("ernie-4.5-21b-a3b", 21.83),
        ("hunyuan-1.8b", 1.791), ("hunyuan-a13b", 80.39), ("command-r7b", 8.03), ("stablelm-2-1.6b", 1.645),
        ("dots.llm1", 142.8), ("glm-4.5-air", 106.9),
        ("rwkv7-0.4b", 0.4507), ("rwkv7-1.5b", 1.527), ("rwkv6-1.6b", 1.60), ("falcon-h1-1.5b", 1.48),
        ("lfm2-1.2b", 1.170), ("lfm3-1.7b", 1.729),
        ("gemma4-e2b", 4.63), ("granite-h-micro", 3.19), ("nemotron-h-4b", 4.49),
        ("qwen3.5-0.8b", 0.752),
        ("qwen3.8-flash-next-slice", 2.091),
        ("qwen3-next-slice", 1.57), ("zamba2-1.2b", 1.205), ("xlstm-7b", 6.865), ("olmo-hybrid-7b", 7.43),
        ("kimi-linear-48b", 49.1), ("kimi-linear-slice", 2.347),
        ("kimi-k3", 2779.5), ("kimi-k3-slice", 4.464),  # stated as 2.8 T
        ("pythia-1.4b", 1.4148), ("falcon-7b", 6.92),
        ("gpt-oss-20b", 20.91), ("ministral-3-3b", 3.43),
        ("zaya1-8b", 8.3 + 0.537),  # stated without the embedding
        ("minimax-text-01", 456.1), ("minimax-slice", 4.20), ("plamo-2-1b", 1.29),
        ("phi-4-mini-flash", 3.85),
        ("ling-3-tiny", 7.9), ("deepseek-v2-lite", 15.7),
        ("glm-5.3-flash", 320 - 7.3),  # stated with a layer that guesses ahead
        ("glm-5.3-slice", 3.245),
        *merged("sizes").items(),
        ("gemma3n-e2b", 4.458 - 0.021), ("gemma3n-e4b", 6.87),  # without the keys of layers that do not use them
        ("llama-4-scout", 107.8), ("llama-4-maverick", 400.7), ("llama-4-slice", 4.85),
        ("deepseek-v4-flash", 284.0), ("deepseek-v4-slice", 3.227),
    ],
)  # fmt: skip
def test_parameter_counts(name: str, billions: float) -> None:
    assert find(name).n_params / 1e9 == pytest.approx(billions, rel=0.005)


def test_both_kinds_are_found() -> None:
    assert find("mamba-130m") is SHAPES["mamba-130m"]
    assert set(ALL_SHAPES) == {*SHAPES, *CONFIG_SHAPES}
    assert not set(SHAPES) & set(CONFIG_SHAPES)
    assert all(shape.name == name for name, shape in ALL_SHAPES.items())
    with pytest.raises(UsageError, match=r"^shape no: not a known shape\. Known: jamba-3b, .*rwkv7-0.4b"):
        find("no")


@pytest.mark.parametrize("name", LOADED)
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
