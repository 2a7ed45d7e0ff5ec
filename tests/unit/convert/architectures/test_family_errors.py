"""What families refuse, by file and key, and their notes about llama.cpp."""

from typing import Any

import pytest
import random_checkpoints
import random_heads
from families import listed
from random_checkpoints import CONFIGS

from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.types import FileType


def family(name: str, change: dict[str, Any]) -> Any:
    return random_checkpoints.family_for({"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change})


HUGE = 10**9


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("qwen3next", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix of 2000000000 rows"),
        ("qwen35", "linear_value_head_dim", "linear_value_head_dim = 1000000000 make a matrix of 6000000000 rows"),
        ("qwen4exp", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix"),
        ("olmo-hybrid", "linear_key_head_dim", "linear_key_head_dim = 1000000000 .* make a matrix"),
        ("falcon-h1", "mamba_d_state", "mamba_d_state = 1000000000 .* make a matrix of"),
        (
            "apertus",
            "hidden_size",
            "num_attention_heads = 6 .*expected at least 15259, for heads of up to 65536 values",
        ),
    ],
)
def test_sizes_are_compared_before_names_and_arrays_are_made_of_them(name: str, key: str, message: str) -> None:
    """Such sizes once took gigabytes before the first shape was compared."""
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name]}
    shapes = {tensor: values.shape for tensor, values in random_checkpoints.tensors(config).items()}
    random_checkpoints.family_for(config, shapes)
    with pytest.raises(CheckpointError, match=message):
        random_checkpoints.family_for({**config, key: HUGE // 6 * 6 if key == "hidden_size" else HUGE}, shapes)


@pytest.mark.parametrize(("name", "change", "kind", "message"), listed("errors"))
def test_errors(name: str, change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        family(name, change)


@pytest.mark.parametrize(("name", "change", "note"), listed("notes"))
def test_notes(name: str, change: dict[str, Any], note: str) -> None:
    assert note in " ".join(family(name, change).notes())
    if change:
        assert note not in " ".join(family(name, {}).notes())


@pytest.mark.parametrize(
    ("change", "lowest"),
    [
        ({}, None),
        ({"linear_lower_bound": -2.5}, -2.5),
        ({"linear_lower_bound": -2.5, "linear_attn_config": {"num_heads": 2}}, -2.5),
        ({"linear_attn_config": {"num_heads": 2}}, -5.0),
        ({"linear_attn_config": {"safe_gate": False}}, None),
        ({"linear_attn_config": {"gate_lower_bound": -1.5, "safe_gate": False}}, -1.5),
        ({"linear_lower_bound": -2.5, "linear_attn_config": {"gate_lower_bound": None}}, -5.0),
    ],
)
def test_lowest_decay_of_glm(change: dict[str, Any], lowest: float | None) -> None:
    """As transformers' config class has it."""
    keys = dict(family("glm5-next-plain", change).keys(FileType.F16))
    assert keys.get("kda.gate_lower_bound") == lowest


def test_layers_of_glm() -> None:
    """By default every fourth layer has attention, and every layer makes its own selection."""
    keys = dict(family("glm5-next-plain", {"num_hidden_layers": 9}).keys(FileType.F16))
    assert keys["attention.head_count_kv"] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert keys["attention.indexer.types"] == [True] * 9


def test_glm_without_layers_that_guess_ahead() -> None:
    left_out = family("glm5-next-plain", {"num_nextn_predict_layers": 1}).left_out()
    assert "model.language_model.layers.4.self_attn.q_proj.weight".startswith(left_out)
    assert not "model.language_model.layers.3.self_attn.q_proj.weight".startswith(left_out)
    assert "model.visual.merger.proj.weight".startswith(left_out)


def test_kimi_as_llama_cpp_runs_it() -> None:
    """Published except for the epsilon: no notes."""
    assert not list(family("kimi-linear", {"rms_norm_eps": 1e-6}).notes())


@pytest.mark.parametrize(
    ("change", "windows", "turned"),
    [
        ({}, [9, 9, 0, 9, 9], 4),
        ({"sliding_window_pattern": "LG"}, [9, 0, 9, 0, 9], 3),
        ({"sliding_window_pattern": None}, [9, 9, 9, 0, 9], 4),
        ({"sliding_window": None}, [0] * 5, 5),
        ({"layer_types": ["full_attention"] * 5}, [0] * 5, 0),
    ],
)
def test_windows_of_exaone4(change: dict[str, Any], windows: list[int], turned: int) -> None:
    """Only layers with a window have RoPE, unless sliding_window is null."""
    model = family("exaone4-window", change)
    keys = dict(model.keys(FileType.F32))
    assert list(model.windows) == windows
    assert keys.get("attention.sliding_window", 0) == (0 if turned == 5 else 9)
    assert keys.get("attention.sliding_window_pattern", [True] * 5) == [w > 0 or turned == 5 for w in windows]


def test_deepseek_without_a_word_on_q_lora_rank() -> None:
    """transformers' default is 1536."""
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["deepseek-v3"]}
    del config["q_lora_rank"]
    with pytest.raises(CheckpointError, match="has no q_lora_rank, expected a number, or null"):
        random_checkpoints.family_for(config)


@pytest.mark.parametrize(("name", "n"), [("kimi-linear", 4), ("bailing-hybrid", 4), ("deepseek-v3", 3)])
def test_layers_that_guess_ahead_are_left_out(name: str, n: int) -> None:
    made = family(name, {"num_nextn_predict_layers": 2})
    assert [made.left_out()[-2:], family(name, {}).left_out()] == [
        (f"model.layers.{n}.", f"model.layers.{n + 1}."),
        family(name, {}).dropped,
    ]


@pytest.mark.parametrize("name", ["deepseek-v3-yarn-mtp", "bailing-hybrid-mtp"])
def test_heads_that_the_config_does_not_tell_of(name: str) -> None:
    """A head that only the tensors show is converted, or left out as a whole."""
    config, shapes = random_heads.WITH_HEADS[name]
    config = {**config, "vocab_size": 8, "max_position_embeddings": 512, "num_nextn_predict_layers": 0}
    own, n = random_checkpoints.family_for(config, shapes), config["num_hidden_layers"]
    assert dict(own.keys(FileType.F32))["nextn_predict_layers"] == 1 and own.left_out() == own.dropped
    without = own.with_heads(0)
    assert "nextn_predict_layers" not in dict(without.keys(FileType.F32))
    assert dict(without.keys(FileType.F32))["block_count"] == n and without.left_out()[-1] == f"model.layers.{n}."


def test_zamba_without_a_list_of_layers() -> None:
    """The third layer, and every Nth layer after it."""
    change = {"layers_block_type": None, "num_hidden_layers": 14, "attn_layer_period": 4, "attn_layer_offset": 1}
    assert family("zamba", change).transformers.users == (2, 4, 8, 12)


def test_zamba2_keeps_a_block_at_its_first_user() -> None:
    targets = [row.target for row in family("zamba2", {}).rows()]
    assert [t for t in targets if t.endswith("attn_q.weight")] == ["blk.1.attn_q.weight", "blk.2.attn_q.weight"]
    assert [t for t in targets if t.endswith("attn_q_lora_a.weight")] == [
        f"blk.{i}.attn_q_lora_a.weight" for i in (1, 2, 4)
    ]


def test_lfm2_width() -> None:
    """Two thirds of the config's width, times a factor, rounded up to a multiple; or unchanged."""
    assert family("lfm2", {"intermediate_size": 200}).n_ff == 160
    assert family("lfm2", {"intermediate_size": 200, "block_ffn_dim_multiplier": 0.5}).n_ff == 96
    assert family("lfm2", {"intermediate_size": 200, "block_auto_adjust_ff_dim": False}).n_ff == 200


SPELLED = {
    "hunyuan": (
        {
            "use_cla": False,
            "attention_head_dim": 24,
            "head_dim": None,
            "mlp_bias": False,
            "rope_scaling": {
                "type": "dynamic",
                "alpha": 1000.0,
                "factor": 1.0,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
        {"attention.key_length": 24, "rope.freq_base": 10000.0 * 1000 ** (24 / 22), "context_length": 262144},
    ),
    "dots1": ({"scoring_func": "noaux_tc"}, {"expert_gating_func": 2}),
    "ernie4_5": ({"compression_ratio": 1.0, "head_dim": None}, {"rope.freq_base": 5e5}),
    "cohere2": (
        {
            "position_embedding_type": "rope_gptj",
            "rotary_pct": 1.0,
            "use_gated_activation": True,
            "layer_switch": 4,
            "use_parallel_block": True,
            "use_qk_norm": False,
            "order_of_interleaved_layers": "local_attn_first",
        },
        {"attention.sliding_window": 11, "logit_scale": 0.25},
    ),
    "exaone4-window": ({"sliding_window_pattern": "LLLG"}, {"attention.sliding_window": 9}),
}


@pytest.mark.parametrize("name", SPELLED)
def test_what_published_configs_say(name: str) -> None:
    change, expected = SPELLED[name]
    if name.startswith("ernie"):
        change = {**change, "num_attention_heads": 6, "num_key_value_heads": 2}
    if name == "hunyuan":
        change = {**change, "max_position_embeddings": 32768}
    keys = dict(family(name, change).keys(FileType.F32))
    assert {key: keys[key] for key in expected} == pytest.approx(expected)
