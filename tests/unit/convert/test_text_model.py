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
from hybrid.convert.architectures.wrapped import TEXTS, made
from hybrid.convert.architectures.wrappers import FLAT, ROWS, WRAPPERS, Wrapper
from hybrid.convert.checkpoint import Checkpoint, Config
from hybrid.convert.checkpoint.dequantized import joined
from hybrid.convert.plan import PreparedConversion, prepare
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

Alone = Callable[..., PreparedConversion]
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


# model_type of a text model -> fields that its own class gets here, so that both can say the same
PLAIN: dict[str, dict[str, Any]] = {
    "aria_text": {"intermediate_size": 64},
    "cosmos3_edge_text": {"rope_scaling": None, "rope_theta": 1e8},
    "deepseek_ocr2_text": {"norm_topk_prob": False, "head_dim": None},
    "gemma4_unified_text": {
        "hidden_size_per_layer_input": 0, "enable_moe_block": False, "max_position_embeddings": 262144,
    },
    "glm_ocr_text": {"attention_bias": False},
    "hunyuan_vl_text": {"rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}},
    "paddleocr_vl_text": {
        "attention_bias": True, "mlp_bias": True, "head_dim": 20, "rope_scaling": None,
        "max_position_embeddings": 131072,
    },
    "qwen3_vl_moe_text": {"norm_topk_prob": True, "num_experts": 6, "num_local_experts": None},
}  # fmt: skip
# the fields that it spells otherwise
SPELLED: dict[str, dict[str, Any]] = {
    "aria_text": {
        "moe_intermediate_size": None, "n_routed_experts": None, "num_experts_per_tok": None, "n_shared_experts": None,
        "norm_topk_prob": None, "moe_num_experts": 7, "moe_topk": 3, "moe_num_shared_experts": 1,
    },
    "deepseek_ocr2_text": {"use_mla": False, "kv_lora_rank": None, "v_head_dim": 0, "head_dim": 3},
    "apertus1p5_text": {"vocab_size": random_checkpoints.N_VOCAB + 7, "output_vocab_size": random_checkpoints.N_VOCAB},
    "ernie4_5_vl_moe_text": {
        "moe_num_experts": [5, 5], "moe_intermediate_size": [32, 16], "moe_layer_start_index": [0, 1],
        "moe_layer_end_index": [3, 4],
    },
    "gemma4_unified_text": {"hidden_size_per_layer_input": None, "max_position_embeddings": None},
    "hunyuan_vl_text": {
        "rope_scaling": {"type": "xdrope", "alpha": 50.0, "factor": 1.0, "xdrope_section": [3, 3, 3, 3]},
    },
    "molmo2_text": {
        "qkv_bias": False, "qk_norm_type": "qwen3", "norm_after": False,
        "additional_vocab_size": 7, "rope_scaling_layers": [0, 1],
    },
    "paddleocr_vl_text": {
        "attention_bias": None, "mlp_bias": None, "use_bias": True, "max_position_embeddings": None,
    },
    "qwen3_vl_moe_text": {"norm_topk_prob": None},
}  # fmt: skip
_TO = tuple((f"self_attn.{x[0]}_proj", f"self_attn.to_{x}") for x in ("q", "k", "v", "out"))
# parts of names of tensors: those of its own class, and the published ones
NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "aria_text": (("mlp.gate.", "mlp.router."),),
    "cosmos3_edge_text": (*_TO, ("mlp.up_proj", "mlp.fc1"), ("mlp.down_proj", "mlp.fc2")),
    "molmo2_text": (
        ("model.layers", "model.blocks"), ("model.norm", "model.ln_f"), ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ff_norm"), ("self_attn.o_proj", "self_attn.attn_out"),
        ("mlp.down_proj", "mlp.ff_out"), ("model.embed_tokens.weight", "model.wte.embedding"),
    ),
    "qwen3_vl_text": (*_TO, ("self_attn.q_norm", "self_attn.norm_q"), ("self_attn.k_norm", "self_attn.norm_k")),
}  # fmt: skip


def config_of(name: str, kind: str = "") -> dict[str, Any]:
    return random_checkpoints.complete({**CONFIGS[name], **PLAIN.get(kind, {})})


def text_of(kind: str) -> dict[str, Any]:
    text = {**config_of(TEXTS[kind], kind), **SPELLED.get(kind, {}), "model_type": kind}
    return {key: value for key, value in text.items() if value is not None}


def tensors_of(kind: str) -> dict[str, np.ndarray]:
    """The tensors of a random text model as published, before the prefixes of the class around it."""
    tensors = random_checkpoints.tensors(config_of(TEXTS[kind], kind))
    PUBLISHED.get(kind, lambda _: None)(tensors)
    for ours, published in NAMES.get(kind, ()):
        tensors = {name.replace(ours, published): x for name, x in tensors.items()}
    return tensors


def more_tokens(tensors: dict[str, np.ndarray]) -> None:
    rows = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = np.concatenate([rows, np.ones_like(rows[:7])])


def experts_of_pictures(tensors: dict[str, np.ndarray]) -> None:
    """The router is transposed; experts from number 5 on are those of pictures."""
    for name in list(tensors):
        if name.endswith("mlp.gate.weight"):
            tensors[name] = np.ascontiguousarray(tensors[name].T)
        elif name.endswith("e_score_correction_bias"):
            tensors[name] = np.concatenate([tensors[name], tensors[name] + 1])
            tensors[name.replace("moe_statics.e_score_correction_bias", "experts.7.up_proj.weight")] = tensors[name]


def joined_matrices(tensors: dict[str, np.ndarray]) -> None:
    for name in list(tensors):
        stem, part, end = name.rpartition(".q_proj.")
        if part:
            tensors[f"{stem}.att_proj.{end}"] = np.concatenate([tensors.pop(f"{stem}.{x}_proj.{end}") for x in "qkv"])
        stem, part, end = name.rpartition(".up_proj.")
        if part:
            both = [tensors.pop(f"{stem}.{x}_proj.{end}") for x in ("up", "gate")]
            tensors[f"{stem}.ff_proj.{end}"] = np.concatenate(both)
    tensors["model.wte.new_embedding"] = np.ones((7, 3), np.float32)


def stacked_experts(tensors: dict[str, np.ndarray], names: tuple[str, str] = ("gate_up_proj", "down_proj")) -> None:
    for stem in {name.partition("0.up_proj")[0] for name in tensors if ".experts.0.up_proj" in name}:
        n = sum(name.startswith(stem) and ".up_proj." in name for name in tensors)
        gate, up, down = (
            np.stack([tensors.pop(f"{stem}{e}.{part}_proj.weight").T for e in range(n)])
            for part in ("gate", "up", "down")
        )
        tensors[stem + names[0]] = np.ascontiguousarray(np.concatenate([gate, up], 2))
        tensors[stem + names[1]] = np.ascontiguousarray(down)


PUBLISHED: dict[str, Callable[[dict[str, np.ndarray]], None]] = {
    "apertus1p5_text": more_tokens,
    "aria_text": lambda tensors: stacked_experts(tensors, ("fc1.weight", "fc2.weight")),
    "ernie4_5_vl_moe_text": experts_of_pictures,
    "molmo2_text": joined_matrices,
    "qwen3_vl_moe_text": stacked_experts,
}


def wrapped(
    wrapper: Wrapper, kind: str, folder: Path, *, changes: dict[str, Any] | None = None, section: str | None = None
) -> Path:
    """A checkpoint of the class around the random text model of this model_type, with a tensor of each other part.
    section: of the config, if not the class's first."""
    text = text_of(kind)
    del text["architectures"]
    if kind.startswith("glm"):  # these have other defaults than GLM 4
        text = {"attention_bias": False, "partial_rotary_factor": 0.5, **text}
    if wrapper.rows:
        text["rope_parameters"] = {
            **{key: text[key] for key in ("rope_theta", "partial_rotary_factor") if key in text},
            "rope_type": "default",
            **(text.get("rope_parameters") or text.pop("rope_scaling", {})),
            "mrope_section": [1, 2, 1], "mrope_interleaved": True,
        }  # fmt: skip
        if "type" in text["rope_parameters"]:
            text["rope_parameters"]["rope_type"] = text["rope_parameters"].pop("type")
    tensors = {prefixed(wrapper, name): x for name, x in tensors_of(kind).items()}
    for i, part in enumerate(wrapper.parts):
        name = f"{'model.' * (i % 2)}{part}" + ".layer.weight" * (i % 3 > 0)
        tensors[name] = np.full((2, 3), i, np.float32)
    for piece in wrapper.within:
        tensors[f"model.layers.0{piece}x.weight"] = np.ones((2, 3), np.float32)
    config: dict[str, Any] = {"vision_config": {"depth": 3}, "image_token_id": 5, "model_type": "any"}
    section = wrapper.section.partition("|")[0] if section is None else section
    if section == FLAT:
        config |= text | {"model_type": "any"}
    else:
        inner = text
        for key in reversed(section.split(".")):
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
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """The text model of a class, of this model_type, in a checkpoint of its own."""
    known: dict[tuple[str, str], PreparedConversion] = {}

    def make(name: str, kind: str = "") -> PreparedConversion:
        kind = kind if kind in PLAIN else ""
        if (name, kind) not in known:
            config = {**CONFIGS[name], **PLAIN.get(kind, {}), "architectures": [name]}
            known[name, kind] = prepared(random_checkpoints.write(config, tmp_path_factory.mktemp(name)))
        return known[name, kind]

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
def test_the_file_is_that_of_the_text_model(name: str, alone: Alone, tmp_path: Path) -> None:
    wrapper = WRAPPERS[name]
    found = prepared(wrapped(wrapper, wrapper.usual, tmp_path / "model"))
    plain = alone(TEXTS[wrapper.usual], wrapper.usual)
    same_file(found, plain)
    assert found.plan.architecture == name
    more = [note for note in found.plan.notes if note not in plain.plan.notes]
    assert len(more) == bool(wrapper.parts)
    assert all(note.endswith(f"left out: of {name} only the text model is converted") for note in more)


@pytest.mark.parametrize("name", sorted(name for name, one in WRAPPERS.items() if one.section.endswith("|")))
def test_the_text_models_fields_at_the_top_of_the_config(name: str, alone: Alone, tmp_path: Path) -> None:
    wrapper = WRAPPERS[name]
    found = prepared(wrapped(wrapper, wrapper.usual, tmp_path / "model", section=FLAT))
    same_file(found, alone(TEXTS[wrapper.usual], wrapper.usual))
    assert not any("unknown" in note for note in found.plan.notes)


def test_other_text_models_of_a_class(alone: Alone, tmp_path: Path) -> None:
    wrapper = WRAPPERS["LlavaForConditionalGeneration"]
    for kind in sorted({"mistral", "qwen2", "gemma2", "phi3", "olmo2", "cohere", "stablelm", "qwen3_moe"}):
        same_file(prepared(wrapped(wrapper, kind, tmp_path / kind)), alone(TEXTS[kind]))


def test_every_text_model_is_converted_alone(alone: Alone) -> None:
    for name in set(TEXTS.values()):
        assert alone(name).plan.tensors
    assert all(wrapper.usual in TEXTS and set(wrapper.texts) <= set(TEXTS) for wrapper in ROWS)


def test_the_names_of_transformers_4_and_5(alone: Alone, tmp_path: Path) -> None:
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


def test_the_published_config_of_deepseek_ocr(tmp_path: Path) -> None:
    text = {
        "architectures": ["DeepseekV2ForCausalLM"], "auto_map": {"AutoModel": "modeling_deepseek.DeepseekV2Model"},
        "bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 1, "hidden_size": 1280,
        "intermediate_size": 6848, "kv_lora_rank": None, "lm_head": True, "max_position_embeddings": 8192,
        "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_attention_heads": 10, "num_experts_per_tok": 6, "num_hidden_layers": 12, "num_key_value_heads": 10,
        "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "rm_head": False, "topk_group": 1,
        "topk_method": "greedy", "torch_dtype": "bfloat16", "use_mla": False, "v_head_dim": 0, "vocab_size": 129280,
    }  # fmt: skip
    outer = {
        "architectures": ["DeepseekOCRForCausalLM"], "candidate_resolutions": [[1024, 1024]],
        "global_view_pos": "head", "language_config": text, "model_type": "deepseek_vl_v2",
        "projector_config": {"input_dim": 2048, "n_embed": 1280}, "tile_tag": "2D",
        "vision_config": {"image_size": 1024},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({**text, **outer}))
    found = prepare(tmp_path, vocab_only=True, with_vocabulary=False).plan
    assert found.metadata["deepseek.leading_dense_block_count"] == 1 and found.metadata["deepseek.expert_count"] == 64
    assert found.metadata["deepseek.attention.head_count_kv"] == 10 and found.notes == ()


def test_quantized_experts_are_not_transposed(tmp_path: Path) -> None:
    save_file({name: np.ones((3, 4, 10), np.float32) for name in ("a", "b")}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    stack = joined(*Checkpoint(tmp_path).tensors.values())  # [expert, input, gate and up]
    config = Config({"hidden_size": 8, "moe_intermediate_size": 5}, "config.json")
    with pytest.raises(UnsupportedError, match=r"a \| b is quantized and cannot be transposed"):
        list(made("qwen3_vl_moe_text", config, "model.layers.0.mlp.experts.gate_up_proj", stack))


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
        ("UnlimitedOcrForConditionalGeneration", {}, "its windows keep the whole prompt"),
        ("Step3p7ForConditionalGeneration", {}, "layers of Step 3.5"),
        (
            "Molmo2ForConditionalGeneration",
            {"text_config": {"num_hidden_layers": 2, "qk_norm_type": "olmo"}},
            "qk_norm_type = .olmo. is not supported",
        ),
        (
            "Molmo2ForConditionalGeneration",
            {"text_config": {"num_hidden_layers": 2, "rope_scaling_layers": [1]}},
            "rope_scaling_layers = ",
        ),
        (
            "DeepseekOCRForCausalLM",
            {"language_config": {"use_mla": True}},
            "use_mla = true is not supported",
        ),
        ("Phi4MMForCausalLM", {}, "adapters for pictures and sound are within its matrices"),
    ],
)
def test_what_has_no_text_model_of_ours_is_refused(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name], **changes}))
    with pytest.raises(UnsupportedError, match=message):
        prepare(tmp_path, vocab_only=True, with_vocabulary=False)


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


def test_rows_of_queries_and_keys_of_north_vision(alone: Alone, tmp_path: Path) -> None:
    """A Cohere 2 whose RoPE turns halves of heads: the file has the rows in Cohere 2's order."""
    config = config_of("Cohere2ForCausalLM")
    d = config["hidden_size"] // config["num_attention_heads"]
    text = {key: value for key, value in config.items() if key not in ("architectures", "rope_theta")}
    text["logit_scale"] = 0.0625  # Cohere 2's default
    local = {"rope_type": "default", "rope_theta": config.get("rope_theta", 1e4), "mrope_section": [2, 3, 3]}
    text["rope_parameters"] = {"full_attention": None, "sliding_attention": local}
    outer = {"architectures": ["CohereCompassForConditionalGeneration"], "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    tensors = {"model.visual.patch_embed.proj.weight": np.ones((2, 3), np.float32)}
    for name, x in random_checkpoints.tensors(config).items():
        turned = name.endswith(("q_proj.weight", "k_proj.weight"))
        halves = x.reshape(-1, d // 2, 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape) if turned else x
        tensors[name.replace("model.", "model.language_model.", 1)] = np.ascontiguousarray(halves)
    save_file(tensors, tmp_path / "model.safetensors")
    found, plain = prepared(tmp_path), alone("Cohere2ForCausalLM")
    np.testing.assert_equal(found.plan.metadata, plain.plan.metadata)
    assert {job.planned.name for job in found.jobs} == {job.planned.name for job in plain.jobs}
    expected = {job.planned.name: job.stored[0].floats(0, job.stored[0].size) for job in plain.jobs}
    for job in found.jobs:
        values = job.stored[0].floats(0, job.stored[0].size).reshape(job.stored[0].shape[0], -1)
        values = job.row.transform.apply(values, 0) if job.row.transform else values
        np.testing.assert_array_equal(values.reshape(-1), expected[job.planned.name])


def test_tokens_beyond_the_output_are_named_in_one_note(tmp_path: Path) -> None:
    folder = wrapped(WRAPPERS["Apertus1p5TextForCausalLM"], "apertus1p5_text", tmp_path)
    source = Path(__file__).parents[2] / "data" / "checkpoints" / "mamba-bf16"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    n = random_checkpoints.N_VOCAB
    added = [{"id": n + i, "content": f"<picture {i}>", "special": True} for i in range(7)]
    rest = ("single_word", "lstrip", "rstrip", "normalized")
    tokenizer["added_tokens"] += [{**token, **dict.fromkeys(rest, False)} for token in added]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    notes = prepare(folder, model_name="model").plan.notes
    assert f"token {n} '<picture 0>' and 6 more are left out: the model has {n} tokens" in notes
