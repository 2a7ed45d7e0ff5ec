"""Text models within other classes: the same file as from a checkpoint of the text model alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from safetensors.numpy import save_file

from hybrid.convert import convert
from hybrid.convert.architectures.wrappers import FLAT, ROWS, TEXTS, WRAPPERS, Wrapper
from hybrid.convert.checkpoint import Config
from hybrid.convert.plan import PreparedConversion, prepare
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

Writer = Callable[[dict[str, Any]], Path]
# configs of text models, by class
CONFIGS = {config["architectures"][0]: config for config in random_checkpoints.CONFIGS.values()}
CONFIGS["BailingMoeV3ForCausalLM"] = CONFIGS["BailingHybridForCausalLM"]
CONFIGS["Qwen2_5_VLForConditionalGeneration"] = {
    **CONFIGS["Qwen2ForCausalLM"],
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
}


def config_of(name: str) -> dict[str, Any]:
    return random_checkpoints.complete(CONFIGS[name])


def wrapped(wrapper: Wrapper, kind: str, folder: Path, *, changes: dict[str, Any] | None = None) -> Path:
    """A checkpoint of the class around the random text model of this model_type, with a tensor of each other part."""
    text = {**config_of(TEXTS[kind]), "model_type": kind}
    del text["architectures"]
    if kind.startswith("glm4v"):  # these have other defaults than GLM 4
        text = {"attention_bias": False, "partial_rotary_factor": 0.5, **text}
    if wrapper.rows:
        text["rope_parameters"] = {
            **{key: text[key] for key in ("rope_theta", "partial_rotary_factor") if key in text},
            **text.get("rope_parameters", text.get("rope_scaling", {})),
            "rope_type": "default", "mrope_section": [1, 2, 1], "mrope_interleaved": True,
        }  # fmt: skip
    tensors = {prefixed(wrapper, name): x for name, x in random_checkpoints.tensors(config_of(TEXTS[kind])).items()}
    for i, part in enumerate(wrapper.parts):
        name = f"{'model.' * (i % 2)}{part}" + ".layer.weight" * (i % 3 > 0)
        tensors[name] = np.full((2, 3), i, np.float32)
    config: dict[str, Any] = {"vision_config": {"depth": 3}, "image_token_id": 5, "model_type": "any"}
    if wrapper.section == FLAT:
        config |= text | {"model_type": "any"}
    else:
        inner = text
        for key in reversed(wrapper.section.partition("|")[0].split(".")):
            inner = {key: inner}
        config |= inner
    folder.mkdir(parents=True, exist_ok=True)
    config |= {"architectures": [wrapper.name]} | (changes or {})
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def prefixed(wrapper: Wrapper, name: str) -> str:
    """The name of a text model's tensor in the class around it."""
    for old, new in wrapper.prefixes:
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


def prepared(folder: Path) -> PreparedConversion:
    return prepare(folder, with_vocabulary=False, model_name="model")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], PreparedConversion]:
    """The text model of a class in a checkpoint of its own."""
    made: dict[str, PreparedConversion] = {}

    def make(name: str) -> PreparedConversion:
        if name not in made:
            folder = random_checkpoints.write({**CONFIGS[name], "architectures": [name]}, tmp_path_factory.mktemp(name))
            made[name] = prepared(folder)
        return made[name]

    return make


def same_file(a: PreparedConversion, b: PreparedConversion) -> None:
    def planned(one: PreparedConversion) -> list[tuple[str, tuple[int, ...], Any]]:
        return sorted((tensor.name, tensor.shape, tensor.type) for tensor in one.plan.tensors)

    assert planned(a) == planned(b)
    np.testing.assert_equal(a.plan.metadata, b.plan.metadata)
    stored = {job.planned.name: job.stored for job in b.jobs}
    for job in a.jobs:
        for x, y in zip(job.stored, stored[job.planned.name], strict=True):
            np.testing.assert_array_equal(x.floats(0, x.size), y.floats(0, y.size))


@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_the_file_is_that_of_the_text_model(
    name: str, alone: Callable[[str], PreparedConversion], tmp_path: Path
) -> None:
    wrapper = WRAPPERS[name]
    found = prepared(wrapped(wrapper, wrapper.usual, tmp_path / "model"))
    plain = alone(TEXTS[wrapper.usual])
    same_file(found, plain)
    assert found.plan.architecture == name
    more = [note for note in found.plan.notes if note not in plain.plan.notes]
    assert len(more) == 1 and more[0].endswith(f"left out: of {name} only the text model is converted")


def test_other_text_models_of_a_class(alone: Callable[[str], PreparedConversion], tmp_path: Path) -> None:
    wrapper = WRAPPERS["LlavaForConditionalGeneration"]
    for kind in sorted({"mistral", "qwen2", "gemma2", "phi3", "olmo2", "cohere", "stablelm", "qwen3_moe"}):
        same_file(prepared(wrapped(wrapper, kind, tmp_path / kind)), alone(TEXTS[kind]))


def test_every_text_model_is_converted_alone(alone: Callable[[str], PreparedConversion]) -> None:
    for name in set(TEXTS.values()):
        assert alone(name).plan.tensors
    assert all(wrapper.usual in TEXTS and set(wrapper.texts) <= set(TEXTS) for wrapper in ROWS)


def test_the_names_of_transformers_4_and_5(alone: Callable[[str], PreparedConversion], tmp_path: Path) -> None:
    wrapper = WRAPPERS["LlavaForConditionalGeneration"]
    folder = wrapped(wrapper, "llama", tmp_path)
    tensors = random_checkpoints.tensors(config_of("LlamaForCausalLM"))
    save_file({f"language_model.{name}": x for name, x in tensors.items()}, folder / "model.safetensors")
    same_file(prepared(folder), alone("LlamaForCausalLM"))
    both = {f"language_model.{name}": x for name, x in tensors.items()} | {"lm_head.weight": tensors["lm_head.weight"]}
    save_file(both, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lm_head\.weight are the same tensor"):
        prepared(folder)


def test_a_tensor_of_no_part_is_refused(tmp_path: Path) -> None:
    wrapper = WRAPPERS["LlavaForConditionalGeneration"]
    folder = wrapped(wrapper, "llama", tmp_path)
    for name in ("vision_towers.weight", "model.language_model.layers.0.adapter.weight"):
        tensors = {
            prefixed(wrapper, one): x for one, x in random_checkpoints.tensors(config_of("LlamaForCausalLM")).items()
        }
        save_file(tensors | {name: np.zeros((2, 3), np.float32)}, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="that the config has no place for"):
            prepared(folder)


def test_sizes_that_the_config_leaves_out_are_those_of_transformers(tmp_path: Path) -> None:
    """As in the published config of LLaVA 1.5."""
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {
            "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
            "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": 32064,
        },
        "ignore_index": -100, "image_token_index": 32000, "projector_hidden_act": "gelu", "pad_token_id": 32001,
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vision_config": {"depth": 3},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = prepare(tmp_path, vocab_only=True, with_vocabulary=False).plan
    assert found.metadata["llama.embedding_length"] == 4096 and found.metadata["llama.feed_forward_length"] == 11008
    assert found.metadata["llama.block_count"] == 32 and found.metadata["llama.attention.head_count_kv"] == 32
    assert found.metadata["llama.vocab_size"] == 32064 and not any("unknown" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "outer", "inner", "tied"),
    [
        ("InternVLForConditionalGeneration", None, None, True),  # transformers' default of the outer class
        ("InternVLForConditionalGeneration", True, False, True),
        ("LlavaForConditionalGeneration", False, True, True),
        ("LlavaForConditionalGeneration", None, None, False),
        ("InternVLForConditionalGeneration", None, False, False),
    ],
)
def test_an_output_matrix_that_is_absent(
    name: str, outer: bool | None, inner: bool | None, tied: bool, tmp_path: Path
) -> None:
    wrapper = WRAPPERS[name]
    folder = wrapped(wrapper, "llama", tmp_path, changes={"tie_word_embeddings": outer})
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["tie_word_embeddings"] = inner
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_checkpoints.tensors(config_of("LlamaForCausalLM"))
    assert "output.weight" in {tensor.name for tensor in prepared(folder).plan.tensors}
    del tensors["lm_head.weight"]
    save_file({prefixed(wrapper, one): x for one, x in tensors.items()}, folder / "model.safetensors")
    if tied:
        assert "output.weight" not in {tensor.name for tensor in prepared(folder).plan.tensors}
        return
    with pytest.raises(CheckpointError, match=r"lacks tensor lm_head\.weight"):
        prepared(folder)


def test_what_the_text_model_of_glm_4_1v_has_without_saying(tmp_path: Path) -> None:
    wrapper = WRAPPERS["Glm4vForConditionalGeneration"]
    folder = wrapped(wrapper, "glm4v_text", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    for key in ("head_dim", "attention_bias", "partial_rotary_factor"):
        text.pop(key, None)
    text["rope_parameters"].pop("partial_rotary_factor", None)
    inner = wrapper.config(Config(config, "config.json"), ())
    assert inner.data["head_dim"] == text["hidden_size"] // text["num_attention_heads"]
    assert inner.data["attention_bias"] is True and inner.data["partial_rotary_factor"] == 1.0
    text["rope_parameters"]["partial_rotary_factor"] = 0.5
    assert "partial_rotary_factor" not in wrapper.config(Config(config, "config.json"), ()).data


def test_fields_that_nobody_knows_are_named(tmp_path: Path) -> None:
    wrapper = WRAPPERS["VoxtralForConditionalGeneration"]
    notes = prepared(wrapped(wrapper, "llama", tmp_path, changes={"mystery": 3, "hidden_size": 64})).plan.notes
    assert [note for note in notes if "unknown" in note] == [
        "config.json: mystery unknown for this architecture, and ignored"
    ]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("LlavaForConditionalGeneration", {"text_config": {"model_type": "opt"}}, "model_type = opt is not supported"),
        (
            "KimiVLForConditionalGeneration",
            {"text_config": {"model_type": "llama"}},
            "the text model of KimiVLForConditionalGeneration, only deepseek_v3 is",
        ),
        ("MllamaForConditionalGeneration", {}, "some of its layers attend to pictures"),
        ("PaliGemmaForConditionalGeneration", {}, "it reads prompts in both directions"),
        ("Phi4MMForCausalLM", {}, "adapters for pictures and sound are within its matrices"),
    ],
)
def test_what_has_no_text_model_of_ours_is_refused(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name], **changes}))
    with pytest.raises(UnsupportedError, match=message):
        prepared(tmp_path)


def test_a_feature_that_no_family_has_is_refused_in_the_text_model(tmp_path: Path) -> None:
    wrapper = WRAPPERS["VoxtralForConditionalGeneration"]
    folder = wrapped(wrapper, "llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["add_cross_attention"] = True
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match="text_config: add_cross_attention = true is not supported"):
        prepared(folder)


def test_the_bytes_of_a_whole_file(spm: Callable[..., bytes], tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((chr(97 + i), -float(i), 1) for i in range(26))]
    files = []
    for folder in (
        random_checkpoints.write(CONFIGS["Qwen2ForCausalLM"], tmp_path / "plain" / "model"),
        wrapped(WRAPPERS["Qwen2AudioForConditionalGeneration"], "qwen2", tmp_path / "wrapped" / "model"),
    ):
        (folder / "tokenizer.model").write_bytes(spm(pieces))
        files.append(convert(folder, folder / "out.gguf", n_threads=1).output.read_bytes())
    assert files[0] == files[1]
