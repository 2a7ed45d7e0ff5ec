"""Every key of a model file changes its logits, or the file is refused, or the reason why not is known."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_checkpoints import CONFIGS
from test_conformance import logits_in_a_new_sequence

from hybrid.infer import LoadedModel
from hybrid.infer.engine.network import family_of
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.families.unread_keys import judged
from hybrid.quant.ggml.metadata import full_key
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.rewrite import set_value

Keys = dict[str, Any]
# Keys that a family reads and that change nothing in some of its models: in which, by the model's keys and tensors.
WITHOUT_EFFECT: dict[str, Callable[[Keys, str], bool]] = {
    r"context_length|hybrid\.attention\.dense_length": lambda keys, tensors: True,  # limits
    r"rope\.scaling\.(original_context_length|yarn_.*|factor)": lambda keys, tensors: (
        keys.get("rope.scaling.type") not in ("yarn", "longrope") or keys.get("rope.scaling.factor", 1) < 10
    ),
    r"rope\.(freq_base|dimension_count)": lambda keys, tensors: "ssm_" in tensors or "granite" in keys["name"],
    r"attention\.head_count_kv": lambda keys, tensors: "attention.kv_lora_rank" in keys,
    r"expert_group_used_count": lambda keys, tensors: keys.get("expert_group_count", 1) == 1,
    r"expert_.*": lambda keys, tensors: "_exps." not in tensors,
    r"feed_forward_length": lambda keys, tensors: "ffn_up.weight" not in tensors,
    r"attn_res\.block_size": lambda keys, tensors: keys["attn_res.block_size"] > keys["block_count"],
    r"ngram\.end_token_id": lambda keys, tensors: keys["ngram.end_token_id"] not in IDS,
    r"attention\.sliding_window(_pattern)?": lambda keys, tensors: keys["name"] in ("lfm3", "phi4flash"),
}
IDS = [int(i) for i in np.random.default_rng(2).integers(20, 2000, 40)]


def others(value: Any) -> list[str]:
    """Other values of the same type, as `set_value` takes them: a near one, larger ones, a small one."""
    if isinstance(value, list):
        kinds = zip(*(_others(one) for one in value), strict=True)
        return [json.dumps(list(kind)) for kind in kinds]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in _others(value)]


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return ["nothing known"]
    return [value + 1, 2 * value + 3, value // 64 + 1] if isinstance(value, int) else [value * 1.5 + 0.25, value / 100]


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        return logits_in_a_new_sequence(model, IDS)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_keys_of_a_family(name: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(name)
    before = logits(path)
    with GGUFFile.open(path) as gguf:
        arch = str(gguf.get("general.architecture"))
        read = family_of(gguf).hparams.keys(arch)
        verdicts = {unread.key: unread for unread in judged(gguf, arch, read)}
        values = {
            key: value.tolist() if hasattr(value := gguf.get(key), "tolist") else value
            for key in gguf.metadata
            if not key.startswith(("general.", "tokenizer.", "hybrid.tokenizer."))
        }
        tensors = " ".join(gguf.tensors)
    own = {key.removeprefix(f"{arch}."): value for key, value in values.items()} | {"name": arch}
    excused, unknown = WITHOUT_EFFECT.items(), []
    for key, value in values.items():
        passed = key in verdicts and verdicts[key].verdict == "passed"
        if passed or any(re.fullmatch(full_key(arch, one), key) and on(own, tensors) for one, on in excused):
            continue
        if not any(changes(path, tmp_path / "changed.gguf", key, text, before) for text in others(value)):
            unknown.append(f"{key} = {value}")
    assert not unknown


def changes(path: Path, copy: Path, key: str, text: str, before: np.ndarray) -> bool:
    """Whether a model with this value of a key is refused, or has other logits."""
    shutil.copy(path, copy)
    try:
        set_value(copy, key, text)
        return not np.array_equal(logits(copy), before)
    except HybridError:
        return True
