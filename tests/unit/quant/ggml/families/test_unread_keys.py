"""Keys that nobody reads: which change the result and are refused, which are named in a note."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.unread_keys import check_unread, judged, unread_notes
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

READ = {"llama.block_count", "llama.embedding_length", "llama.rope.freq_base", "llama.attention.key_length"}
SIZES = {
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.context_length": 512,
    "llama.rope.freq_base": 1e4,
}


def model(folder: Path, keys: dict[str, Any], arch: str = "llama", kind: GGMLType = GGMLType.Q8_0) -> GGUFFile:
    with GGUFWriter(folder / "m.gguf", arch) as writer:
        for key, value in (SIZES | keys).items():
            writer.add(key.replace("llama.", f"{arch}.", 1) if key in SIZES else key, value)
        writer.declare("t", (1, 32), kind)
        writer.write("t", [np.zeros(34 if kind is GGMLType.Q8_0 else 128, np.uint8)])
    return GGUFFile.open(folder / "m.gguf")


def verdict(folder: Path, key: str, value: Any, arch: str = "llama", **more: Any) -> str:
    keys = {name.replace("__", "."): one for name, one in more.items()}
    with model(folder, keys | {key: value}, arch) as gguf:
        found = {unread.key: unread.verdict for unread in judged(gguf, arch, READ)}
        refused = [name for name, one in found.items() if one == "refused"]
        if refused:
            with pytest.raises(UnsupportedError, match=refused[0].replace(".", r"\.")):
                check_unread(gguf, arch, READ)
        else:
            check_unread(gguf, arch, READ)
        assert bool(unread_notes(gguf, arch, READ)) == ("noted" in found.values())
    return found[key]


@pytest.mark.parametrize(
    ("key", "neutral", "others"),
    [
        ("llama.attention.scale", 0.25, [0.5, 1.0]),
        ("llama.attention.causal", True, [False]),
        ("llama.attention.sliding_window", 512, [256]),
        ("llama.attention.sliding_window", 0, [1]),
        ("llama.attention.output_scale", 1.0, [0.5]),
        ("llama.attention.max_alibi_bias", 0.0, [8.0]),
        ("llama.attention.clamp_kqv", 0.0, [8.0]),
        ("llama.attention.temperature_length", 0, [64]),
        ("llama.attention.indexer.top_k", 0, [64]),
        ("llama.attention.anything_new", 0, [1, "x"]),
        ("llama.rope.dimension_count", 16, [8]),
        ("llama.rope.scaling.type", "none", ["yarn", "longrope"]),
        ("llama.rope.scaling.type", "linear", ["dynamic"]),
        ("llama.rope.scaling.factor", 1.0, [4.0]),
        ("llama.rope.scaling.attn_factor", 1.0, [1.2]),
        ("llama.rope.scaling.alpha", 0.0, [1000.0]),
        ("llama.rope.freq_base_swa", 1e4, [1e6]),
        ("llama.final_logit_softcapping", 0.0, [30.0]),
        ("llama.logit_scale", 1.0, [0.5]),
        ("llama.residual_scale", 1.0, [0.5]),
        ("llama.expert_weights_scale", 1.0, [2.5]),
        ("llama.expert_gating_func", 0, [1, 2]),
        ("llama.expert_group_count", 1, [4]),
        ("llama.use_parallel_residual", False, [True]),
        ("llama.tensor_data_layout", "", ["jploski"]),
        ("llama.ssm.conv_kernel", 0, [4]),
        ("llama.moe_every_n_layers", 0, [2]),
        ("llama.swiglu_clamp_exp", [0.0, 0.0], [[0.0, 7.0]]),
        ("general.quantization_version", 2, [1, 3]),
        ("general.tensor_extra.name", ["t"], []),
        ("hybrid.attention.anything", 0, []),
    ],
)
def test_keys_that_change_the_result(key: str, neutral: Any, others: list[Any], tmp_path: Path) -> None:
    if not key.startswith("hybrid."):
        assert verdict(tmp_path, key, neutral) == "passed"
    for value in others:
        assert verdict(tmp_path, key, value) == "refused"


@pytest.mark.parametrize(
    "key",
    [
        "prism.hadamard.anything",
        "prism.new",
        "onebit.hadamard_q4_0",
        "llama.hadamard.size",
        "spinquant.r1",
        "some.tool.rotation",
        "general.tensor_extra.scale",
        "hybrid.attention.anything",
        "xielu.alpha_p",
    ],
)
def test_keys_without_a_neutral_value(key: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, key, 0) == verdict(tmp_path, key, 1) == "refused"


def test_the_layout_of_blocks_counts_only_for_quantized_tensors(tmp_path: Path) -> None:
    with model(tmp_path, {"general.quantization_version": 1}, kind=GGMLType.F32) as gguf:
        check_unread(gguf, "llama", READ)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("llama.new_fact", 3, "noted"),
        ("acme.something", 1, "noted"),
        ("hybrid.new_fact", 1, "noted"),
        ("tokenizer.ggml.normalizer.nfd", True, "noted"),
        ("tokenizer.ggml.suppress_tokens", [1], "noted"),
        ("tokenizer.ggml.normalizer.lowercase", True, "passed"),
        ("tokenizer.huggingface.json", "{}", "passed"),
        ("general.anything", 1, "passed"),
        ("general.sampling.temp", 0.5, "passed"),
        ("quantize.imatrix.file", "x", "passed"),
        ("mradermacher.quantize_version", "2", "passed"),
        ("llama.vocab_size", 9, "passed"),
        ("llama.pooling_type", 1, "passed"),
        ("llama.vision.attention.head_count", 8, "passed"),
        ("llama.attention.value_length", 9, "passed"),
        ("llama.rope.scaling.finetuned", True, "passed"),
    ],
)
def test_other_keys(key: str, value: Any, expected: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, key, value) == expected


def test_keys_of_another_architecture_are_passed_over(tmp_path: Path) -> None:
    assert verdict(tmp_path, "qwen2.attention.scale", 0.5, qwen2__block_count=2) == "passed"
    assert verdict(tmp_path, "qwen2.attention.scale", 0.5) == "noted"


def test_what_families_assume(tmp_path: Path) -> None:
    assert verdict(tmp_path, "falcon.tensor_data_layout", "jploski", "falcon") == "passed"
    assert verdict(tmp_path, "falcon.tensor_data_layout", "other", "falcon") == "refused"
    assert verdict(tmp_path, "zaya.expert_used_count", 2, "zaya") == "refused"


def test_windows_that_llama_cpp_does_not_have(tmp_path: Path) -> None:
    window, ours = "phi3.attention.sliding_window", "hybrid.attention.sliding_window"
    for keys, expected in (({window: 64}, "noted"), ({window: 64, ours: 64}, "passed"), ({window: 512}, "passed")):
        with model(tmp_path, keys, "phi3") as gguf:
            found = {unread.key: unread.verdict for unread in judged(gguf, "phi3", {*READ, ours})}
            assert found[window] == expected


def test_a_note_names_three(tmp_path: Path) -> None:
    with model(tmp_path, {f"acme.n{i}": i for i in range(5)}) as gguf:
        assert unread_notes(gguf, "llama", READ) == [
            "m.gguf has keys that are not known here and are ignored: acme.n0, acme.n1, acme.n2 and 2 more."
        ]
