"""RWKV: its vocabulary file, the two dialects of RWKV-7, the output of llama.cpp's converter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.tokenizer_files import FakeGGUF, world_file, world_vocabulary
from safetensors.numpy import save_file

from hybrid.convert import convert
from hybrid.convert.architectures import ARCHITECTURES
from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import HybridError, TokenizerError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import GGMLType

NAME = "rwkv_vocab_v20230424.txt"
WORLD = world_vocabulary()


def read(folder: Path, text: str, n_vocab: int = 600, config: dict[str, Any] | None = None) -> Vocabulary:
    (folder / NAME).write_text(text, encoding="utf-8", newline="")
    return read_vocabulary(folder, Config(config or {}, "config.json"), n_vocab)


def test_the_vocabulary(tmp_path: Path) -> None:
    vocabulary = read(tmp_path, world_file(WORLD))
    assert vocabulary.tokens[: len(WORLD) + 1] == ["<s>", *(repr(token)[2:-1] for token in WORLD)]
    assert vocabulary.types == [
        TokenType.CONTROL,
        *[TokenType.NORMAL] * len(WORLD),
        *[TokenType.UNUSED] * (599 - len(WORLD)),
    ]
    assert vocabulary.tokens[-1] == "[PAD599]"
    end = 1 + WORLD.index(b"\n\n")
    assert vocabulary.ids == {"bos": 0, "eos": 0, "eot": end}
    keys = [key for key, _, _ in vocabulary.key_values()]
    assert keys == [
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.chat_template",
    ]


def test_spellings(tmp_path: Path) -> None:
    lines = [
        "1 'a\\x7f' 2",
        '2 "it\'s" 4',
        "3 '\\u3000' 3",
        "4 b'\\xe6\\'' 2",
        "5 '\\U0001f389' 4",
        "6 'é日' 5",
        "7 '\\\\x' 2",
    ]
    vocabulary = read(tmp_path, "\r\n".join(lines))
    wanted = [b"a\x7f", b"it's", "\u3000".encode(), b"\xe6'", "🎉".encode(), "é日".encode(), b"\\x"]
    assert vocabulary.tokens[1:8] == [repr(token)[2:-1] for token in wanted]


@pytest.mark.parametrize(
    "line",
    [
        "", "2 'a'", "3 'a' 1", "2 'a' 2", "2 a 1", "2 'a\" 1", "2 '''a''' 1", "2 '\\q' 1", "2 '\\x4' 1", "2 'é' 1",
        "2 b'é' 1", "2 b'日' 1", "2 '\\ud800' 3", "2 '\\U00110000' 4", "2 __import__('os') 1", "2 'a' + 'b' 2",
        "-2 'a' 1",
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    if line == "2 b'é' 1":  # a letter of Latin-1 is a byte
        assert read(tmp_path, f"1 'a' 1\n{line}\n").tokens[2] == "\\xe9"
        return
    with pytest.raises(TokenizerError, match=rf"{NAME}: line 2 is .*, expected 2, a string or bytes") as caught:
        read(tmp_path, f"1 'a' 1\n{line}\n3 'c' 1\n")
    assert "\n" not in str(caught.value)


def test_other_files_beside_it(tmp_path: Path) -> None:
    template = "{{ messages[0]['content'] }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "chat_template": template}))
    (tmp_path / "tokenizer.json").write_text("of no use")
    vocabulary = read(tmp_path, world_file(WORLD), config={"pad_token_id": 3})
    assert vocabulary.chat_templates == {"default": template}
    assert vocabulary.flags == {"add_bos_token": False}
    assert vocabulary.ids["pad"] == 3
    with pytest.raises(TokenizerError, match=f"has {len(WORLD) + 1} tokens, but the model has only 300"):
        read(tmp_path, world_file(WORLD), 300)
    (tmp_path / NAME).write_bytes(b"1 '\xff' 1\n")
    with pytest.raises(TokenizerError, match="is not UTF-8: byte 3 is wrong"):
        read_vocabulary(tmp_path, Config({}, "config.json"), 600)


def test_a_chat(tmp_path: Path) -> None:
    file = FakeGGUF({key: value for key, value, _ in read(tmp_path, world_file(WORLD)).key_values()})
    template = ChatTemplate.from_gguf(file, load_tokenizer(file))
    assert template is not None
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Hi \n"},
        {"role": "assistant", "content": "<think>hm</think>\nHello."},
        {"role": "user", "content": "And?"},
    ]
    text = "<s>System: Be brief.\n\nUser: Hi\n\nAssistant: Hello.\n\nUser: And?\n\n"
    assert template.render(messages, add_generation_prompt=True) == text + "Assistant:"
    assert template.render(messages, add_generation_prompt=False) == text


@pytest.fixture
def world(tmp_path: Path) -> Path:
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / NAME).write_text(world_file(WORLD), encoding="utf-8")
    return folder


def converted(config: dict[str, Any], tensors: dict[str, np.ndarray], folder: Path, world: Path, kind: str) -> GGUFFile:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "model.safetensors")
    convert(folder, folder / "model.gguf", outtype=kind, tokenizer=world)
    return GGUFFile.open(folder / "model.gguf")


def same_tensors(one: GGUFFile, other: GGUFFile) -> None:
    assert set(one.tensors) == set(other.tensors)
    for name, info in one.tensors.items():
        assert (info.shape, info.type) == (other.tensors[name].shape, other.tensors[name].type)
        assert one.raw(name).tobytes() == other.raw(name).tobytes(), name


def other_dialect(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under the names of Rwkv7ForCausalLM."""
    renamed = {}
    for name, values in tensors.items():
        for old, new in (
            ("layers.0.pre_norm", "layers.0.pre_ln"),
            ("model.norm", "model.ln_out"),
            ("attn_norm", "ln1"),
            ("ffn_norm", "ln2"),
            ("g_norm", "ln_x"),
            ("attn.", "attention."),
            (".ffn.", ".feed_forward."),
            ("r_proj", "receptance"),
            ("k_proj", "key"),
            ("v_proj", "value"),
            ("o_proj", "output"),
            ("lm_head", "head"),
        ):
            name = name.replace(old, new)
        if "_lora.lora." in name:
            start, _, end = name.partition("_lora.lora.")
            name = start + {"0.weight": "1", "2.weight": "2", "2.bias": "0"}[end]
            values = values.T if values.ndim == 2 else values.reshape(1, 1, -1)
        renamed[name] = values
    return renamed


def of_a_pth(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under the names of .pth files, with values per channel as [1, 1, n]."""
    renamed = {}
    for name, values in other_dialect(tensors).items():
        for old, new in (
            ("model.layers.", "blocks."),
            ("model.", ""),
            ("embeddings.", "emb."),
            ("pre_ln", "ln0"),
            ("attention.", "att."),
            ("feed_forward.", "ffn."),
        ):
            name = name.replace(old, new)
        per_channel = values.ndim == 1 and not name.endswith(("weight", "bias"))
        renamed[name] = values.reshape(1, 1, -1) if per_channel else values
    return renamed


def test_names_of_pth_files(tmp_path: Path, world: Path) -> None:
    config = {"vocab_size": 600, **CONFIGS["rwkv7b"]}
    tensors = random_checkpoints.tensors(config)
    # low-rank matrices are transposed under both names
    turned = {name: x.T if "_lora.lora." in name and x.ndim == 2 else x for name, x in tensors.items()}
    renamed = of_a_pth(turned)
    assert {"emb.weight", "blocks.0.ln0.bias", "blocks.1.att.w1", "blocks.2.ffn.s_emb.weight", "head.weight"} <= {
        *renamed
    }
    assert renamed["blocks.2.qkv.x_v"].shape == (1, 1, 96)
    one = converted(config, tensors, tmp_path / "ours", world, "f16")
    same_tensors(one, converted(config, renamed, tmp_path / "pth", world, "f16"))


def test_both_dialects_of_rwkv7(tmp_path: Path, world: Path) -> None:
    config = {"vocab_size": 600, **CONFIGS["rwkv7"]}
    tensors = random_checkpoints.tensors(config)
    one = converted(config, tensors, tmp_path / "fla", world, "f16")
    sizes = {
        "head_size": "head_dim",
        "layer_norm_epsilon": "norm_eps",
        "lora_rank_decay": "decay_low_rank_dim",
        "lora_rank_iclr": "a_low_rank_dim",
        "lora_rank_gate": "gate_low_rank_dim",
        "lora_rank_value_residual_mix": "v_low_rank_dim",
    }
    renamed = {key: value for key, value in config.items() if key not in sizes.values()}
    renamed |= {new: config[old] for new, old in sizes.items()} | {"architectures": ["Rwkv7ForCausalLM"]}
    other = converted(renamed, other_dialect(tensors), tmp_path / "other", world, "f16")
    same_tensors(one, other)
    for name in list(tensors):
        if ".x_r" in name:
            fused = name.replace(".x_r", ".x_x")
            tensors[fused] = np.concatenate([tensors.pop(name.replace(".x_r", f".x_{p}"))[0] for p in "rwkvag"])
    same_tensors(one, converted(config, tensors, tmp_path / "fused", world, "f16"))


def test_types_and_shapes_of_rwkv7(tmp_path: Path, world: Path) -> None:
    config = {"vocab_size": 600, **CONFIGS["rwkv7"]}
    tensors = random_checkpoints.tensors(config)
    file = converted(config, tensors, tmp_path / "model", world, "f16")
    assert file.tensors["blk.1.time_mix_lerp_fused.weight"].shape == (6, 1, 1, 96)
    floats = {t.name.split(".", 2)[-1] for t in file.tensors.values() if t.type is GGMLType.F32 and len(t.shape) > 1}
    assert floats == {"time_mix_lerp_fused.weight", "time_mix_w1.weight", "time_mix_w2.weight"}
    for j in range(3):  # tensors that the first layer lacks, for llama.cpp
        assert file.raw(f"blk.0.time_mix_v{j}.weight").tobytes() == file.raw(f"blk.0.time_mix_a{j}.weight").tobytes()
    assert file.get("rwkv7.attention.value_residual_mix_lora_rank") == 24
    assert file.get("rwkv7.attention.head_count") == 0
    dummy = {
        f"model.layers.0.attn.v_lora.lora.{part}": np.ones((3, 3), np.float32) for part in ("0.weight", "2.weight")
    }
    same_tensors(file, converted(config, {**tensors, **dummy}, tmp_path / "dummy", world, "f16"))


def test_rwkv6_is_turned_and_halved(tmp_path: Path, world: Path) -> None:
    config = {"vocab_size": 600, **CONFIGS["rwkv6"]}
    tensors = random_checkpoints.tensors(config)
    file = converted(config, tensors, tmp_path / "model", world, "f32")
    p = "rwkv.blocks.3.attention."
    assert (file.f32("blk.3.time_mix_w1.weight") == tensors[p + "time_maa_w1"].T).all()
    assert (file.f32("blk.3.time_mix_w2.weight") == tensors[p + "time_maa_w2"].swapaxes(1, 2)).all()
    assert (file.f32("blk.3.time_mix_decay_w2.weight") == tensors[p + "time_decay_w2"].T).all()
    for i, factor in enumerate((1, 1, 0.5, 0.5)):
        assert (
            file.f32(f"blk.{i}.time_mix_output.weight") == factor * tensors[f"rwkv.blocks.{i}.attention.output.weight"]
        ).all()
        value = tensors[f"rwkv.blocks.{i}.feed_forward.value.weight"]
        assert (file.f32(f"blk.{i}.channel_mix_value.weight") == factor * value).all()
    fused = file.f32("blk.0.time_mix_lerp_fused.weight")
    assert fused.shape == (5, 1, 1, 96)
    assert (fused[3, 0, 0] == tensors["rwkv.blocks.0.attention.time_maa_r"][0, 0]).all()
    assert file.get("rwkv6.rescale_every_n_layers") == 2


def test_a_stream_that_is_never_halved() -> None:
    """0 or a negative number, as in transformers."""
    config = {"vocab_size": 600, **CONFIGS["rwkv4"], "rescale_every": -1}
    family = ARCHITECTURES["RwkvForCausalLM"].read(Config(config, "config.json"), {})
    assert dict(family.keys(1))["rescale_every_n_layers"] == 0
    assert all(row.transform is None for row in family.rows() if row.target.endswith("output.weight"))


def test_ranks_that_no_key_says() -> None:
    finch = {"hidden_size": 2048, "vocab_size": 65536, "num_hidden_layers": 24, "intermediate_size": None}
    keys = dict(ARCHITECTURES["Rwkv6ForCausalLM"].read(Config(finch, "config.json"), {}).keys(1))
    assert (keys["time_mix_extra_dim"], keys["time_decay_extra_dim"], keys["feed_forward_length"]) == (32, 64, 7168)
    goose = {"hidden_size": 2048, "vocab_size": 65536, "num_hidden_layers": 24, "intermediate_size": None}
    keys = dict(ARCHITECTURES["RWKV7ForCausalLM"].read(Config(goose, "config.json"), {}).keys(1))
    ranks = [keys[f"attention.{name}_lora_rank"] for name in ("decay", "iclr", "value_residual_mix", "gate")]
    assert ranks == [96, 96, 64, 256]
    assert keys["feed_forward_length"] == 8192


@pytest.mark.parametrize(
    ("architecture", "change", "message"),
    [
        ("RWKV7ForCausalLM", {"head_dim": 50}, "head_dim = 50 .*, expected a divisor of 96"),
        ("RWKV7ForCausalLM", {"hidden_act": "gelu"}, 'hidden_act = "gelu" is not supported'),
        ("RWKV7ForCausalLM", {"norm_bias": False}, "norm_bias = false is not supported"),
        ("Rwkv6ForCausalLM", {"attention_hidden_size": 128}, "attention_hidden_size = 128 is not supported"),
        ("Rwkv6ForCausalLM", {"head_size": 7}, "head_size = 7 .*, expected a divisor of the hidden size 96"),
    ],
)
def test_what_is_refused(architecture: str, change: dict[str, Any], message: str) -> None:
    base = CONFIGS["rwkv7" if "7" in architecture else "rwkv6"]
    with pytest.raises(HybridError, match=message):
        ARCHITECTURES[architecture].read(Config({"vocab_size": 600, **base, **change}, "config.json"), {})
