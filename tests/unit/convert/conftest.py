"""Tiny checkpoints written from scratch: every dimension its own odd size, every value known."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Tensors = dict[str, np.ndarray]  # u16 arrays are bf16
_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "uint16": "BF16", "int8": "I8", "int64": "I64"}


def bf16(x: np.ndarray) -> np.ndarray:
    """The upper halves of f32 values: exact for the small multiples of 1/64 used here."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], header: dict[str, Any] | None = None) -> None:
    entries, offset = {}, 0
    for name, array in tensors.items():
        entries[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header or entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def sentencepiece_model(
    pieces: list[tuple[str, float, int]], *, unigram: bool = False, normalizer: bytes = b""
) -> bytes:
    """A ModelProto; short enough that all lengths fit one byte or two."""

    def message(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(body)) + body

    out = b""
    for text, score, kind in pieces:
        raw = text.encode()
        out += message(1, message(1, raw) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))
    trainer = b"\x18" + bytes([1 if unigram else 2]) + b"\x20" + varint(len(pieces))
    return out + message(2, trainer) + message(3, normalizer)


def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((chr(97 + i), -float(i), 1) for i in range(26))]

JAMBA = {
    "architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_period": 3,
    "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 3,
    "num_experts_per_tok": 2, "mamba_d_conv": 3, "mamba_d_state": 5, "mamba_dt_rank": 7, "mamba_expand": 2,
    "vocab_size": 31, "max_position_embeddings": 77, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    "hidden_act": "silu",
}  # fmt: skip
MAMBA = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "conv_kernel": 3,
    "state_size": 5,
    "time_step_rank": 6,
    "vocab_size": 29,
    "layer_norm_epsilon": 1e-5,
}
MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 48, "expand": 2, "head_dim": 16,
    "num_heads": 6, "n_groups": 2, "num_hidden_layers": 2, "conv_kernel": 3, "state_size": 5, "vocab_size": 29,
    "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, {"__float__": "Infinity"}], "tie_word_embeddings": False,
}  # fmt: skip
GRANITE = {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "hidden_size": 64,
    "intermediate_size": 24, "shared_intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 3,
    "num_experts_per_tok": 2, "mamba_expand": 2, "mamba_d_head": "auto", "mamba_n_heads": 4, "mamba_n_groups": 1,
    "mamba_d_conv": 4, "mamba_d_state": 7, "attention_multiplier": 0.5, "embedding_multiplier": 12.0,
    "residual_multiplier": 0.25, "logits_scaling": 6.0, "position_embedding_type": "nope", "vocab_size": 31,
    "max_position_embeddings": 77, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
BAMBA = {
    "architectures": ["BambaForCausalLM"], "model_type": "bamba", "hidden_size": 64, "intermediate_size": 40,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_indices": [1],
    "attn_rotary_emb": 8, "mamba_expand": 2, "mamba_d_head": 32, "mamba_n_heads": 4, "mamba_n_groups": 1,
    "mamba_d_conv": 4, "mamba_d_state": 7, "vocab_size": 31, "max_position_embeddings": 77, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 29,
    "max_position_embeddings": 77, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


def jamba_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    n, ff, inner = c["hidden_size"], c["intermediate_size"], c["mamba_expand"] * c["hidden_size"]
    state, rank, conv = c["mamba_d_state"], c["mamba_dt_rank"], c["mamba_d_conv"]
    rank = -(-n // 16) if rank == "auto" else rank
    n_kv = n // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c["vocab_size"], n),
        "model.final_layernorm.weight": (n,),
    }
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (n,), p + "pre_ff_layernorm.weight": (n,)}
        if i % c["attn_layer_period"] == c["attn_layer_offset"]:
            sizes = {"q": n, "k": n_kv, "v": n_kv, "o": n}
            shapes |= {f"{p}self_attn.{k}_proj.weight": (size, n) for k, size in sizes.items()}
        else:
            m = p + "mamba."
            shapes |= {
                m + "in_proj.weight": (2 * inner, n),
                m + "conv1d.weight": (inner, 1, conv),
                m + "conv1d.bias": (inner,),
                m + "x_proj.weight": (rank + 2 * state, inner),
                m + "dt_proj.weight": (inner, rank),
                m + "dt_proj.bias": (inner,),
                m + "A_log": (inner, state),
                m + "D": (inner,),
                m + "out_proj.weight": (n, inner),
                m + "dt_layernorm.weight": (rank,),
                m + "b_layernorm.weight": (state,),
                m + "c_layernorm.weight": (state,),
            }
        mlp = {"gate": (ff, n), "up": (ff, n), "down": (n, ff)}
        f = p + "feed_forward."
        if c["num_experts"] > 1 and i % c["expert_layer_period"] == c["expert_layer_offset"]:
            shapes[f + "router.weight"] = (c["num_experts"], n)
            for e in range(c["num_experts"]):
                shapes |= {f"{f}experts.{e}.{k}_proj.weight": shape for k, shape in mlp.items()}
        else:
            shapes |= {f"{f}{k}_proj.weight": shape for k, shape in mlp.items()}
    return shapes


def mamba_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    n, inner, state, rank = c["hidden_size"], 2 * c["hidden_size"], c["state_size"], c["time_step_rank"]
    shapes: dict[str, tuple[int, ...]] = {
        "backbone.embeddings.weight": (c["vocab_size"], n),
        "backbone.norm_f.weight": (n,),
    }
    for i in range(c["num_hidden_layers"]):
        m = f"backbone.layers.{i}.mixer."
        shapes |= {
            f"backbone.layers.{i}.norm.weight": (n,),
            m + "in_proj.weight": (2 * inner, n),
            m + "conv1d.weight": (inner, 1, c["conv_kernel"]),
            m + "conv1d.bias": (inner,),
            m + "x_proj.weight": (rank + 2 * state, inner),
            m + "dt_proj.weight": (inner, rank),
            m + "dt_proj.bias": (inner,),
            m + "A_log": (inner, state),
            m + "D": (inner,),
            m + "out_proj.weight": (n, inner),
        }
    return shapes


def mamba2_mixer(
    m: str, n: int, inner: int, heads: int, groups: int, state: int, conv: int
) -> dict[str, tuple[int, ...]]:
    mixed = inner + 2 * groups * state
    return {
        m + "in_proj.weight": (inner + mixed + heads, n),
        m + "conv1d.weight": (mixed, 1, conv),
        m + "conv1d.bias": (mixed,),
        m + "dt_bias": (heads,),
        m + "A_log": (heads,),
        m + "D": (heads,),
        m + "norm.weight": (inner,),
        m + "out_proj.weight": (n, inner),
    }


def mamba2_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    n, sizes = c["hidden_size"], (c["num_heads"], c["n_groups"], c["state_size"], c["conv_kernel"])
    shapes: dict[str, tuple[int, ...]] = {
        "backbone.embeddings.weight": (c["vocab_size"], n),
        "backbone.norm_f.weight": (n,),
        "lm_head.weight": (c["vocab_size"], n),
    }
    for i in range(c["num_hidden_layers"]):
        p = f"backbone.layers.{i}."
        shapes |= {p + "norm.weight": (n,), **mamba2_mixer(p + "mixer.", n, c["expand"] * n, *sizes)}
    return shapes


def granite_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    n, ff, shared, experts = (
        c["hidden_size"],
        c["intermediate_size"],
        c["shared_intermediate_size"],
        c["num_local_experts"],
    )
    sizes = (c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])
    n_kv = n // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c["vocab_size"], n),
        "model.norm.weight": (n,),
    }
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (n,), p + "post_attention_layernorm.weight": (n,)}
        if kind == "attention":
            widths = {"q": n, "k": n_kv, "v": n_kv, "o": n}
            shapes |= {f"{p}self_attn.{k}_proj.weight": (width, n) for k, width in widths.items()}
        else:
            shapes |= mamba2_mixer(p + "mamba.", n, c["mamba_expand"] * n, *sizes)
        shapes |= {
            p + "shared_mlp.input_linear.weight": (2 * shared, n),
            p + "shared_mlp.output_linear.weight": (n, shared),
        }
        if experts:
            m = p + "block_sparse_moe."
            shapes |= {
                m + "router.layer.weight": (experts, n),
                m + "input_linear.weight": (experts, 2 * ff, n),
                m + "output_linear.weight": (experts, n, ff),
            }
    return shapes


def bamba_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of a dense Granite under other names, with separate gate and up."""
    kinds = ["attention" if i in c["attn_layer_indices"] else "mamba" for i in range(c["num_hidden_layers"])]
    more = {"layer_types": kinds, "num_local_experts": 0, "shared_intermediate_size": c["intermediate_size"]}
    shapes = granite_shapes(c | more)
    names = {
        "model.norm.": "model.final_layernorm.",
        "post_attention_layernorm": "pre_ff_layernorm",
        "shared_mlp.output_linear": "feed_forward.down_proj",
    }
    of_bamba: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        for old, new in names.items():
            name = name.replace(old, new)
        if "shared_mlp.input_linear" in name:
            for half in ("gate", "up"):
                of_bamba[name.replace("shared_mlp.input_linear", f"feed_forward.{half}_proj")] = (
                    shape[0] // 2,
                    shape[1],
                )
        else:
            of_bamba[name] = shape
    return of_bamba


def llama_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    n, ff, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    head = c.get("head_dim", n // heads)
    n_q, n_kv = heads * head, c["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c["vocab_size"], n),
        "model.norm.weight": (n,),
        "lm_head.weight": (c["vocab_size"], n),
    }
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (n,),
            p + "post_attention_layernorm.weight": (n,),
            p + "self_attn.q_proj.weight": (n_q, n),
            p + "self_attn.k_proj.weight": (n_kv, n),
            p + "self_attn.v_proj.weight": (n_kv, n),
            p + "self_attn.o_proj.weight": (n, n_q),
            p + "mlp.gate_proj.weight": (ff, n),
            p + "mlp.up_proj.weight": (ff, n),
            p + "mlp.down_proj.weight": (n, ff),
        }
    return shapes


class Tiny:
    """A checkpoint in a folder; change `config` and `tensors`, then `write`."""

    def __init__(self, folder: Path, config: dict[str, Any], shapes: Callable[[dict[str, Any]], Any]) -> None:
        self.folder = folder
        self.config = config
        rng = np.random.default_rng(7)
        self.tensors: Tensors = {
            name: (rng.integers(-128, 128, shape) / 64).astype(np.float32) for name, shape in shapes(config).items()
        }

    def write(self, *, as_bf16: bool = False, parts: int = 1) -> Path:
        (self.folder / "config.json").write_text(json.dumps(self.config))
        if not (self.folder / "tokenizer.json").exists():
            (self.folder / "tokenizer.model").write_bytes(sentencepiece_model(PIECES))
        tensors = {name: bf16(a) if as_bf16 else a for name, a in self.tensors.items()}
        if parts == 1:
            write_safetensors(self.folder / "model.safetensors", tensors)
            return self.folder
        weight_map = {}
        for k in range(parts):
            file = f"model-{k + 1:05}-of-{parts:05}.safetensors"
            chosen = {name: a for i, (name, a) in enumerate(tensors.items()) if i % parts == k}
            write_safetensors(self.folder / file, chosen)
            weight_map |= dict.fromkeys(chosen, file)
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return self.folder


@pytest.fixture
def jamba(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), JAMBA | config, jamba_shapes)


@pytest.fixture
def mamba(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), MAMBA | config, mamba_shapes)


@pytest.fixture
def mamba2(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), MAMBA2 | config, mamba2_shapes)


@pytest.fixture
def granite(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), GRANITE | config, granite_shapes)


@pytest.fixture
def bamba(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), BAMBA | config, bamba_shapes)


@pytest.fixture
def llama(tmp_path: Path) -> Callable[..., Tiny]:
    return lambda **config: Tiny(_folder(tmp_path), LLAMA | config, llama_shapes)


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def spm() -> Callable[..., bytes]:
    """Writes a sentencepiece ModelProto from (piece, score, type)."""
    return sentencepiece_model


@pytest.fixture
def save() -> Callable[..., None]:
    """Writes a .safetensors file, with another header if one is given."""
    return write_safetensors
