"""Decisions of a conversion: heads that guess tokens ahead, with all or only some of their tensors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_heads
from safetensors.numpy import load_file, save_file

from hybrid.convert.architectures import ARCHITECTURES
from hybrid.convert.plan import PreparedConversion, near_architectures, prepare
from hybrid.convert.tokenizers.pre import Structure, find_name
from hybrid.quant.ggml import pretokenizers
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

WEIGHTS = "model.safetensors"
LEFT_OUT = "a head that guesses tokens ahead is left out:"
# Without these a head takes the model's own.
OPTIONAL = "shared_head.norm.weight", "final_layernorm.weight", "embed_tokens.weight", "shared_head.head.weight"


def prepared(folder: Path, *, heads: bool = True) -> PreparedConversion:
    return prepare(folder, with_vocabulary=False, heads=heads)


def without(folder: Path, *names: str) -> Path:
    """The checkpoint without these tensors, in a sibling folder."""
    other = folder.parent / "without" / folder.name
    other.mkdir(parents=True, exist_ok=True)
    (other / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file({name: x for name, x in load_file(folder / WEIGHTS).items() if name not in names}, other / WEIGHTS)
    return other


def _numbered(tells: random_heads.Shapes) -> bool:
    """Whether a head is a layer after the model's last, by the tensors that tell of it."""
    return all(name.startswith("model.layers.") for name in tells)


def same(a: PreparedConversion, b: PreparedConversion) -> None:
    """Both write the same file."""
    assert a.plan.tensors == b.plan.tensors
    np.testing.assert_equal(a.plan.metadata, b.plan.metadata)


@pytest.mark.parametrize("name", random_heads.WITH_HEADS)
def test_a_head_with_some_of_its_tensors_is_left_out(name: str, tmp_path: Path) -> None:
    folder = random_heads.write(name, tmp_path / "model")
    whole, trunk = prepared(folder), prepared(folder, heads=False)
    of_trunk = {tensor.name for tensor in trunk.plan.tensors}
    of_head = [source for t in whole.plan.tensors if t.name not in of_trunk for source in t.sources]
    of_head = [source for source in of_head if not source.endswith(OPTIONAL)]
    assert len(of_head) > 10 and not any(note.startswith(LEFT_OUT) for note in whole.plan.notes)
    told = 0
    for lost in of_head[:: len(of_head) // 4]:
        rest = prepared(without(folder, lost))
        same(rest, trunk)
        assert any("left out" in note for note in rest.plan.notes)
        told += f"{LEFT_OUT} the checkpoint lacks tensor {lost} of it" in rest.plan.notes
    assert told >= 2, "a head is not looked for where the tensors are missing that tell of it"
    lost = next(source for t in trunk.plan.tensors if t.name.startswith("blk.1.") for source in t.sources)
    with pytest.raises(CheckpointError, match="the checkpoint lacks tensor"):
        prepared(without(folder, lost))


@pytest.mark.parametrize("name", [name for name, (_, tells) in random_heads.WITH_HEADS.items() if _numbered(tells)])
def test_any_tensor_that_only_heads_have_tells_of_one(name: str, tmp_path: Path) -> None:
    """Also if the config does not mention the head."""
    config, tells = random_heads.WITH_HEADS[name]
    folder = random_heads.write(name, tmp_path / "model")
    trunk, p = prepared(folder, heads=False), f"model.layers.{config['num_hidden_layers']}."
    settings = json.loads((folder / "config.json").read_text())
    settings = {key: value for key, value in settings.items() if key != "num_nextn_predict_layers"}
    (folder / "config.json").write_text(json.dumps(settings))
    of_head = [lost for lost in load_file(folder / WEIGHTS) if lost.startswith(p)]
    for kept in (p + "enorm.weight", *tells):
        rest = prepared(without(folder, *(lost for lost in of_head if lost != kept)))
        same(rest, trunk)
        assert any(note.startswith(f"{LEFT_OUT} the checkpoint lacks") for note in rest.plan.notes)


def test_the_first_of_two_heads_stays(tmp_path: Path) -> None:
    name = "deepseek-v3-mtp"
    folder = random_heads.write(name, tmp_path / "model")
    n = random_heads.WITH_HEADS[name][0]["num_hidden_layers"]
    tensors = load_file(folder / WEIGHTS)
    first, second = f"model.layers.{n}.", f"model.layers.{n + 1}."
    more = {name.replace(first, second): x for name, x in tensors.items() if name.startswith(first)}
    one = prepared(folder)
    save_file({**tensors, **more}, folder / WEIGHTS)
    both = prepared(folder)
    assert both.family.n_heads_ahead == 2
    for lost in (second + "hnorm.weight", second + "eh_proj.weight", second + "self_attn.o_proj.weight"):
        rest = prepared(without(folder, lost))
        same(rest, one)
        assert f"{LEFT_OUT} the checkpoint lacks tensor {lost} of it" in rest.plan.notes
    assert prepared(without(folder, first + "hnorm.weight")).family.n_heads_ahead == 0


def test_names_like_an_unknown_one() -> None:
    """The endings that most names have do not count."""
    assert near_architectures("Lfm2VlFoo")[0] == "Lfm2VlForConditionalGeneration"
    assert near_architectures("Lfm2VLForCausalLM")[0] == "Lfm2VlForConditionalGeneration"
    assert near_architectures("Gpt3LMHeadModel")[0] == "GPT2LMHeadModel"
    assert len(near_architectures("Qwen5ForCausalLM")) == 3
    assert near_architectures("WhisperForConditionalGeneration") == near_architectures("ForCausalLM") == []


# Published configs of models that need nothing new, as far as public texts quote them, and what their files say.
PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "published_configs.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs(name: str, tmp_path: Path) -> None:
    expected = PUBLISHED[name]["keys"]
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]["config"]))
    plan = prepare(tmp_path, vocab_only=True, with_vocabulary=False).plan
    assert {key: plan.metadata[key] for key in expected} == expected
    assert not any("unknown" in note for note in plan.notes)


@pytest.mark.parametrize("name", [name for name, published in PUBLISHED.items() if "pre" in published])
def test_pre_tokenizers_of_published_models(name: str) -> None:
    """Of the names of one rule, the family prefers llama.cpp's for this model."""
    pre, family = PUBLISHED[name]["pre"], ARCHITECTURES[PUBLISHED[name]["config"]["architectures"][0]]
    rule = pretokenizers.by_name(pre)
    assert rule is not None
    structure = Structure(rule.split, byte_level=True, add_prefix_space=False, normalizer="")
    assert find_name(structure, rule.ignore_merges, family.pre) == (pre, True)


def test_another_gate_of_qwen_3_8_is_refused(tmp_path: Path) -> None:
    config = PUBLISHED["Qwen3.8-27B"]["config"]
    text = {**config["text_config"], "output_gate_type": "sigmoid"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "text_config": text}))
    with pytest.raises(UnsupportedError, match='output_gate_type = "sigmoid" is not supported'):
        prepare(tmp_path, vocab_only=True, with_vocabulary=False)
