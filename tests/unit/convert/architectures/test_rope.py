"""Windows and RoPE scalings: the keys and tensors made of a config, and its notes about llama.cpp."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from families.phi3 import LONGROPE
from random_checkpoints import CONFIGS

from hybrid.convert import convert, plan
from hybrid.convert.architectures import Family
from hybrid.convert.verify import verify
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

WINDOW = "hybrid.attention.sliding_window"
FULL, LOCAL = "full_attention", "sliding_attention"


def family(name: str, **change: Any) -> Family:
    """The family of a config; `...` leaves a key out."""
    config = {"vocab_size": 2023, "max_position_embeddings": 512, **CONFIGS[name], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(name: str, **change: Any) -> dict[str, Any]:
    return dict(family(name, **change).keys(FileType.F32))


def constants(model: Family) -> dict[str, np.ndarray]:
    return {row.target: row.constant for row in model.rows() if row.constant is not None}


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("mistral-window", {}, 13),
        ("mistral-window", {"sliding_window": None}, None),  # 0.2 and later
        ("mistral-window", {"sliding_window": ...}, 4096),  # the class's default has a window
        ("mistral-window", {"use_sliding_window": False, "layer_types": [FULL] * 2}, 13),  # no keys of this class
        ("mistral-window", {"architectures": ["MistralModel"]}, 13),
        ("mistral-window", {"architectures": ["LlamaForCausalLM"]}, None),
        ("phi3", {}, None),
        ("phi3-window", {}, 9),
        ("starcoder2", {}, None),
        ("starcoder2-window", {}, 11),
        ("phi2", {"sliding_window": 5}, None),
        ("olmo2", {"sliding_window": 5}, None),
        ("granite-attention", {"sliding_window": 5}, None),
        ("qwen2", {}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": ..., "max_window_layers": 1}, [0, 4096]),
        ("qwen2", {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 1}, None),
        ("qwen2-window", {}, [0, 7, 7]),
        ("qwen2-window", {"use_sliding_window": False}, None),
        ("qwen2-window", {"max_window_layers": ...}, None),  # 28
        ("qwen2-window", {"max_window_layers": 0}, 7),
        ("qwen2-window", {"layer_types": [LOCAL, FULL, FULL]}, [7, 0, 0]),
        ("qwen3-window", {}, [10, 0, 10]),
        ("qwen3moe-window", {}, 12),
        ("qwen3moe-window", {"max_window_layers": 1, "layer_types": [FULL] * 2}, 12),
    ],
)
def test_windows(name: str, change: dict[str, Any], expected: Any) -> None:
    assert keys(name, **change).get(WINDOW) == expected


@pytest.mark.parametrize(("change", "noted"), [({}, True), ({"max_position_embeddings": 13}, False)])
def test_llama_cpp_goes_without_a_window(change: dict[str, Any], noted: bool) -> None:
    note = "llama.cpp has no window for this architecture: beyond 13 tokens its results differ"
    assert (note in family("mistral-window", **change).notes()) == noted


def test_phi3_says_its_window_where_llama_cpp_looks_for_it() -> None:
    assert keys("phi3")["attention.sliding_window"] == 0
    assert keys("phi3-window")["attention.sliding_window"] == 9


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("mistral-window", WINDOW, 13),
        ("qwen2-window", WINDOW, [0, 7, 7]),
        ("gemma3-order", "gemma3.attention.sliding_window_pattern", [False, True, True, False, True]),
        ("gemma3-period", "gemma3.attention.sliding_window_pattern", 3),
        ("qwen2-yarn", "hybrid.rope.scaling.truncate", False),
        ("phi3-longrope", "phi3.rope.scaling.original_context_length", 24),
    ],
)
def test_keys_in_the_file(name: str, key: str, expected: Any, data_dir: Path, tmp_path: Path) -> None:
    """Our own keys have no architecture prefix, and `verify` finds them."""
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / "model")
    convert(folder, tmp_path / "o.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(tmp_path / "o.gguf") as file:
        value = file.get(key)
    assert (value.tolist() if isinstance(expected, list) else value) == expected
    checked = verify(folder, tmp_path / "o.gguf")
    assert checked.n_exact == checked.n_tensors


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (YARN, {}),
        ({**YARN, "beta_fast": 32, "beta_slow": None, "truncate": True}, {}),
        ({**YARN, "factor": None}, {}),  # max_position_embeddings / original
        ({**YARN, "beta_slow": 2}, {"yarn_beta_fast": 32.0, "yarn_beta_slow": 2.0}),
        # the multiplier that turns llama.cpp's factor into transformers'
        ({**YARN, "attention_factor": 1.5}, {"attn_factor": 1.5 / (0.1 * math.log(4) + 1)}),
        ({**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}, {"attn_factor": 1 / (0.1 * math.log(4) + 1)}),
        ({**YARN, "mscale": 0.7}, {}),  # counts only together with mscale_all_dim
        ({**YARN, "mscale": 0, "mscale_all_dim": 0.5}, {}),
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_yarn(key: str, rope: dict[str, Any], expected: dict[str, float]) -> None:
    written = keys("qwen3", **{key: rope})
    own = {name: value for name, value in written.items() if name.startswith("rope.scaling.")}
    given = {"type": "yarn", "factor": 4.0, "original_context_length": 128, **expected}
    assert own == pytest.approx({f"rope.scaling.{name}": value for name, value in given.items()})
    assert "hybrid.rope.scaling.truncate" not in written


def test_the_original_context_beside_the_settings_of_rope_comes_first() -> None:
    """As in transformers; the default is max_position_embeddings."""
    without = {name: value for name, value in YARN.items() if name != "original_max_position_embeddings"}
    for rope, beside, expected in ((YARN, 64, 64), (YARN, ..., 128), (without, ..., 512)):
        written = keys("qwen3", rope_scaling=rope, original_max_position_embeddings=beside)
        assert written["rope.scaling.original_context_length"] == expected


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ""),
        ({"beta_fast": 8}, "beta_fast and beta_slow"),
        ({"truncate": False}, "truncate"),
        ({"beta_fast": 8, "truncate": False}, "beta_fast and beta_slow and no truncate"),
    ],
)
def test_what_llama_cpp_does_not_read_of_yarn(more: dict[str, Any], names: str) -> None:
    model = family("qwen3", rope_scaling={**YARN, **more})
    note = f"llama.cpp takes no {names} for this architecture: its results differ"
    assert list(model.notes()) == ([note] if names else [])
    assert dict(model.keys(FileType.F32)).get("hybrid.rope.scaling.truncate", True) == more.get("truncate", True)


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])  # the first checkpoints of Phi-3 state the last two
def test_long_rope(kind: str) -> None:
    model = family("phi3-longrope", rope_scaling={"type": kind, **LONGROPE})
    own = {name: value for name, value in model.keys(FileType.F32) if name.startswith("rope.")}
    assert own == {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": 24,
        "rope.freq_base": 1e4,
        "rope.scaling.attn_factor": math.sqrt(1 + math.log(512 / 24) / math.log(24)),
        "rope.dimension_count": 18,
    }
    tensors = constants(model)
    assert tensors["rope_factors_long.weight"].tolist() == np.float32(LONGROPE["long_factor"]).tolist()
    assert tensors["rope_factors_short.weight"].tolist() == np.float32(LONGROPE["short_factor"]).tolist()


@pytest.mark.parametrize(
    ("change", "original", "magnitude"),
    [
        ({"original_max_position_embeddings": ...}, 4096, 1.0),  # the class's default; longer than the model's context
        ({"rope_scaling": {"type": "longrope", **LONGROPE, "attention_factor": 1.7}}, 24, 1.7),
        ({"rope_scaling": {"type": "longrope", **LONGROPE, "factor": 3.0}}, 24, math.sqrt(1 + math.log(3, 24))),
    ],
)
def test_long_rope_of_phi3(change: dict[str, Any], original: int, magnitude: float) -> None:
    written = keys("phi3-longrope", **change)
    assert written["rope.scaling.original_context_length"] == original
    assert written["rope.scaling.attn_factor"] == pytest.approx(magnitude)


def test_llama_3_frequencies_of_a_head_that_turns_in_part() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = family("phi2", rope_scaling=scaling)
    assert constants(model)["rope_freqs.weight"].shape == (6,)  # half of the 24 values of a head


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("gemma3", {}, None),
        ("gemma3", {"sliding_window_pattern": 4}, 4),
        ("gemma3", {"sliding_window_pattern": 6, "layer_types": [*[LOCAL] * 5, FULL, LOCAL]}, None),
        ("gemma3", {"layer_types": [FULL] * 7}, 1),
        ("gemma3", {"layer_types": [LOCAL] * 7}, 8),
        ("gemma3", {"layer_types": [FULL, *[LOCAL] * 6]}, [False, *[True] * 6]),
        ("gemma2", {}, None),
        ("gemma2", {"sliding_window_pattern": 3}, None),  # no key of this class
        ("gemma2", {"layer_types": [LOCAL, LOCAL, FULL]}, 3),
        ("gemma2-order", {}, [False, True, True]),
    ],
)
def test_the_order_of_layers_in_gemma(name: str, change: dict[str, Any], expected: Any) -> None:
    """As in llama.cpp's key: a single number if possible."""
    model = family(name, **change)
    assert dict(model.keys(FileType.F32)).get("attention.sliding_window_pattern") == expected


@pytest.mark.parametrize(("caps", "expected"), [((..., ...), (50, 30)), ((None, None), (0, 0)), ((9, None), (9, 0))])
def test_caps_of_gemma_2(caps: tuple[Any, Any], expected: tuple[float, float]) -> None:
    """An absent key has the class's default; null means no cap."""
    written = keys("gemma2", attn_logit_softcapping=caps[0], final_logit_softcapping=caps[1])
    assert (written["attn_logit_softcapping"], written["final_logit_softcapping"]) == expected


@pytest.mark.parametrize(
    ("names", "tied"),
    [
        (["MistralModel"], True),
        (["MistralForCausalLM"], False),
        (["MistralModel", "MistralForCausalLM"], True),
        (["MistralForCausalLM", "MistralModel"], False),
    ],
)
def test_the_first_architecture_says_whether_there_is_a_head(names: list[str], tied: bool) -> None:
    assert family("mistral", architectures=names).tied == tied


def test_settings_in_both_spellings_give_one_file(data_dir: Path, tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    newer = {"rope_parameters": {**rope, "rope_theta": 1e6}, "rope_theta": None}
    older = {"rope_scaling": {"type": "yarn", **{k: v for k, v in rope.items() if k != "rope_type"}}}
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    metadata = [
        plan(random_checkpoints.write({**CONFIGS["qwen3"], **more}, tmp_path / str(i)), tokenizer=tokenizer).metadata
        for i, more in enumerate((newer, older))
    ]
    metadata = [{key: value for key, value in one.items() if key != "general.name"} for one in metadata]
    assert metadata[0] == metadata[1]
