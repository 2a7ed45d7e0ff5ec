"""gpt-oss: its config, and how llama.cpp runs the file."""

from typing import Any

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert.architectures import Family
from hybrid.quant.ggml.types import FileType

FULL, LOCAL = "full_attention", "sliding_attention"
PATTERN, TRUNCATE = "attention.sliding_window_pattern", "hybrid.rope.scaling.truncate"
ALPHA, LIMIT = "hybrid.expert_swiglu_alpha", "hybrid.expert_swiglu_limit"


def family(**change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["gpt-oss-rounded"], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(**change: Any) -> dict[str, Any]:
    return dict(family(**change).keys(FileType.F32))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [(..., None), ([LOCAL, FULL, LOCAL], None), ([FULL, LOCAL, LOCAL], [False, True, True]), ([LOCAL] * 3, [True] * 3)],
)
def test_the_order_of_layers_is_stated_where_it_is_another(kinds: Any, expected: list[bool] | None) -> None:
    assert keys(layer_types=kinds).get(PATTERN) == expected
    assert keys(layer_types=kinds)["attention.sliding_window"] == 11


def test_what_the_class_has_where_a_config_says_nothing() -> None:
    absent = dict.fromkeys(("rope_scaling", "rope_theta", "sliding_window", "num_experts_per_tok", "rms_norm_eps"), ...)
    written = keys(**absent)
    assert written["rope.scaling.factor"] == 32.0
    assert written["rope.scaling.original_context_length"] == 4096
    assert written["rope.freq_base"] == 150000.0
    assert written[TRUNCATE] is False
    assert written["attention.sliding_window"] == 128
    assert written["expert_used_count"] == 4
    assert written["attention.layer_norm_rms_epsilon"] == 1e-5


def test_gates_of_other_limits_have_keys() -> None:
    assert not {ALPHA, LIMIT} & keys().keys()
    assert not [note for note in family().notes() if "swiglu" in note]
    model = family(swiglu_limit=5.0, swiglu_alpha=1.5)
    written = dict(model.keys(FileType.F32))
    assert (written[ALPHA], written[LIMIT]) == (1.5, 5.0)
    note = "llama.cpp takes swiglu_alpha = 1.702 and swiglu_limit = 7 whatever the file says"
    assert note in list(model.notes())


def test_attention_without_biases() -> None:
    names = {row.target for row in family().rows()}
    assert {f"blk.0.attn_{part}.bias" for part in ("q", "k", "v", "output")} < names
    model = family(attention_bias=False)
    assert not [row.target for row in model.rows() if row.target.startswith("blk.0.attn") and "bias" in row.target]
    note = "llama.cpp cannot load this file: there what attention returns has a bias, here it has none"
    assert note in list(model.notes())


def test_bounds_of_yarn_between_pairs() -> None:
    """As published, the bounds are not rounded; llama.cpp rounds them."""
    rope = {**CONFIGS["gpt-oss-rounded"]["rope_scaling"], "truncate": False}
    note = "llama.cpp takes no truncate for this architecture: its results differ"
    assert note in list(family(rope_scaling=rope).notes())
    assert list(family().notes()) == []
