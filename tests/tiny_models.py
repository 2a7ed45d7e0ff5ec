"""Complete models of 100 kilobytes as GGUF files, written byte by byte so that every part can be damaged."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf_bytes as b
import numpy as np

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.types import GGMLType

N_EMBD, N_FF, N_HEAD, N_KV, D_HEAD = 32, 48, 4, 2, 8
D_INNER, D_STATE, D_CONV, DT_RANK = 64, 5, 4, 3
N_EXPERT, N_USED = 3, 2
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = ["<unk>", "<s>", "</s>", "\u2581", *LETTERS, *(f"\u2581{letter}" for letter in LETTERS)]
N_VOCAB = len(TOKENS)


@dataclass
class Tensor:
    values: np.ndarray
    kind: GGMLType = GGMLType.F32
    shape: tuple[int, ...] | None = None  # written instead of the shape of the values
    offset: int | None = None  # written instead of the true offset
    number: int | None = None  # written instead of the type

    @property
    def raw(self) -> bytes:
        values = np.ascontiguousarray(self.values, np.float32)
        return formats.encode(self.kind, values.reshape(-1, values.shape[-1])).tobytes()


@dataclass
class Tiny:
    """Metadata as (type, bytes), tensors in order; `duplicates` are tensors whose names exist already."""

    arch: str
    key_values: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    duplicates: list[tuple[str, Tensor]] = field(default_factory=list)

    def set(self, key: str, value: Any, kind: int | None = None) -> None:
        """Set a key, whose leading dot stands for the architecture's prefix. The default type follows from the
        value."""
        key = f"{self.arch}{key}" if key.startswith(".") else key
        self.key_values[key] = packed(value, kind)

    def drop(self, key: str) -> None:
        del self.key_values[f"{self.arch}{key}" if key.startswith(".") else key]

    def __bytes__(self) -> bytes:
        infos, data = [], b""
        for name, t in [*self.tensors.items(), *self.duplicates]:
            offset = len(data) if t.offset is None else t.offset
            dims = list(reversed(t.values.shape if t.shape is None else t.shape))
            infos.append(b.info(name, dims, int(t.kind) if t.number is None else t.number, offset))
            data += t.raw
            data += bytes(-len(data) % 32)
        key_values = [b.pair(key, kind, value) for key, (kind, value) in self.key_values.items()]
        return bytes(b.GGUF(key_values=key_values, infos=infos, data=data))

    def write(self, path: Path) -> Path:
        path.write_bytes(bytes(self))
        return path


_SCALARS = {
    b.U8: "B", b.I8: "b", b.U16: "H", b.I16: "h", b.U32: "I", b.I32: "i", b.F32: "f", b.BOOL: "?", b.U64: "Q",
    b.I64: "q", b.F64: "d",
}  # fmt: skip


def packed(value: Any, kind: int | None = None) -> tuple[int, bytes]:
    """The type and bytes of a value; for a list, `kind` is the type of its elements."""
    if isinstance(value, list):
        kind = _kind(value[0]) if kind is None else kind
        return b.ARR, b.array(kind, [_scalar(v, kind) for v in value])
    kind = _kind(value) if kind is None else kind
    return kind, _scalar(value, kind)


def _kind(value: Any) -> int:
    return {bool: b.BOOL, int: b.U32, float: b.F32, str: b.STR}[type(value)]


def _scalar(value: Any, kind: int) -> bytes:
    return b.string(value) if kind == b.STR else struct.pack("<" + _SCALARS[kind], value)


def _tiny(arch: str, n_layer: int) -> Tiny:
    tiny = Tiny(arch)
    tiny.set("general.architecture", arch)
    tiny.set("general.name", f"tiny {arch}")
    tiny.set("general.file_type", 0)
    tiny.set(".block_count", n_layer)
    tiny.set(".embedding_length", N_EMBD)
    tiny.set(".context_length", 64)
    tiny.set(".attention.layer_norm_rms_epsilon", 1e-5)
    tiny.set("tokenizer.ggml.model", "llama")
    tiny.set("tokenizer.ggml.tokens", TOKENS)
    tiny.set("tokenizer.ggml.scores", [-float(i) for i in range(N_VOCAB)])
    tiny.set("tokenizer.ggml.token_type", [2, 3, 3] + [1] * (N_VOCAB - 3), b.I32)
    tiny.set("tokenizer.ggml.bos_token_id", 1)
    tiny.set("tokenizer.ggml.eos_token_id", 2)
    return tiny


def _matrices(random: np.random.Generator) -> Callable[..., Tensor]:
    return lambda *shape: Tensor(random.normal(0, 0.2, shape).astype(np.float32))


def _attention(p: str, m: Callable[..., Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield p + "attn_q.weight", m(N_HEAD * D_HEAD, N_EMBD)
    yield p + "attn_k.weight", m(N_KV * D_HEAD, N_EMBD)
    yield p + "attn_v.weight", m(N_KV * D_HEAD, N_EMBD)
    yield p + "attn_output.weight", m(N_EMBD, N_HEAD * D_HEAD)


def _dense(p: str, m: Callable[..., Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield p + "ffn_norm.weight", m(N_EMBD)
    yield p + "ffn_gate.weight", m(N_FF, N_EMBD)
    yield p + "ffn_up.weight", m(N_FF, N_EMBD)
    yield p + "ffn_down.weight", m(N_EMBD, N_FF)


def _mamba(p: str, m: Callable[..., Tensor], norms: bool) -> Iterator[tuple[str, Tensor]]:
    yield p + "ssm_in.weight", m(2 * D_INNER, N_EMBD)
    yield p + "ssm_conv1d.weight", m(D_INNER, D_CONV)
    yield p + "ssm_conv1d.bias", m(D_INNER)
    yield p + "ssm_x.weight", m(DT_RANK + 2 * D_STATE, D_INNER)
    yield p + "ssm_dt.weight", m(D_INNER, DT_RANK)
    yield p + "ssm_dt.bias", m(D_INNER)
    yield p + "ssm_a", Tensor(-np.exp(m(D_INNER, D_STATE).values))
    yield p + "ssm_d", m(D_INNER)
    yield p + "ssm_out.weight", m(N_EMBD, D_INNER)
    if norms:
        for part, n in (("dt", DT_RANK), ("b", D_STATE), ("c", D_STATE)):
            yield f"{p}ssm_{part}_norm.weight", m(n)


def _mamba_keys(tiny: Tiny) -> None:
    tiny.set(".ssm.conv_kernel", D_CONV)
    tiny.set(".ssm.inner_size", D_INNER)
    tiny.set(".ssm.state_size", D_STATE)
    tiny.set(".ssm.time_step_rank", DT_RANK)


def _ends(tiny: Tiny, m: Callable[..., Tensor]) -> None:
    tiny.tensors["token_embd.weight"] = m(N_VOCAB, N_EMBD)
    tiny.tensors["output_norm.weight"] = m(N_EMBD)


def jamba() -> Tiny:
    """Attention with experts, then Mamba with a dense feed-forward part."""
    m = _matrices(np.random.default_rng(1))
    tiny = _tiny("jamba", 2)
    tiny.set(".feed_forward_length", N_FF)
    tiny.set(".attention.head_count", N_HEAD)
    tiny.set(".attention.head_count_kv", [N_KV, 0], b.I32)
    tiny.set(".expert_count", N_EXPERT)
    tiny.set(".expert_used_count", N_USED)
    _mamba_keys(tiny)
    _ends(tiny, m)
    t = tiny.tensors
    t["blk.0.attn_norm.weight"] = m(N_EMBD)
    t.update(_attention("blk.0.", m))
    t["blk.0.ffn_norm.weight"] = m(N_EMBD)
    t["blk.0.ffn_gate_inp.weight"] = m(N_EXPERT, N_EMBD)
    t["blk.0.ffn_gate_exps.weight"] = m(N_EXPERT, N_FF, N_EMBD)
    t["blk.0.ffn_up_exps.weight"] = m(N_EXPERT, N_FF, N_EMBD)
    t["blk.0.ffn_down_exps.weight"] = m(N_EXPERT, N_EMBD, N_FF)
    t["blk.1.attn_norm.weight"] = m(N_EMBD)
    t.update(_mamba("blk.1.", m, norms=True))
    t.update(_dense("blk.1.", m))
    return tiny


def llama() -> Tiny:
    m = _matrices(np.random.default_rng(2))
    tiny = _tiny("llama", 2)
    tiny.set(".feed_forward_length", N_FF)
    tiny.set(".attention.head_count", N_HEAD)
    tiny.set(".attention.head_count_kv", N_KV)
    tiny.set(".rope.dimension_count", D_HEAD)
    tiny.set(".rope.freq_base", 10000.0)
    _ends(tiny, m)
    for i in range(2):
        tiny.tensors[f"blk.{i}.attn_norm.weight"] = m(N_EMBD)
        tiny.tensors.update(_attention(f"blk.{i}.", m))
        tiny.tensors.update(_dense(f"blk.{i}.", m))
    return tiny


def mamba() -> Tiny:
    m = _matrices(np.random.default_rng(3))
    tiny = _tiny("mamba", 2)
    _mamba_keys(tiny)
    _ends(tiny, m)
    for i in range(2):
        tiny.tensors[f"blk.{i}.attn_norm.weight"] = m(N_EMBD)
        tiny.tensors.update(_mamba(f"blk.{i}.", m, norms=False))
    return tiny


def rwkv7() -> Tiny:
    """Heads of 8 values; all ranks differ."""
    m = _matrices(np.random.default_rng(4))
    tiny = _tiny("rwkv7", 2)
    tiny.drop(".attention.layer_norm_rms_epsilon")
    tiny.set(".attention.layer_norm_epsilon", 1e-5)
    tiny.set(".feed_forward_length", N_FF)
    tiny.set(".wkv.head_size", D_HEAD)
    for name, rank in (("decay", 5), ("iclr", 6), ("value_residual_mix", 7), ("gate", 9)):
        tiny.set(f".attention.{name}_lora_rank", rank)
    _ends(tiny, m)
    tiny.tensors["output.weight"] = m(N_VOCAB, N_EMBD)
    for name in ("token_embd_norm", *(f"blk.{i}.{norm}" for i in range(2) for norm in ("attn_norm", "attn_norm_2"))):
        tiny.tensors[name + ".weight"], tiny.tensors[name + ".bias"] = m(N_EMBD), m(N_EMBD)
    tiny.tensors["output_norm.bias"] = m(N_EMBD)
    for i in range(2):
        p = f"blk.{i}.time_mix_"
        for part, rank in (("w", 5), ("a", 6), ("v", 7), ("g", 9)):
            if part != "g":
                tiny.tensors[f"{p}{part}0.weight"] = m(N_EMBD)
            tiny.tensors[f"{p}{part}1.weight"], tiny.tensors[f"{p}{part}2.weight"] = m(rank, N_EMBD), m(N_EMBD, rank)
        for part in ("receptance", "key", "value", "output"):
            tiny.tensors[f"{p}{part}.weight"] = m(N_EMBD, N_EMBD)
        for part in ("k_k", "k_a", "r_k", "ln"):
            tiny.tensors[f"{p}{part}.weight"] = m(N_EMBD)
        tiny.tensors[p + "ln.bias"] = m(N_EMBD)
        tiny.tensors[p + "lerp_fused.weight"] = m(6, 1, 1, N_EMBD)
        tiny.tensors[f"blk.{i}.channel_mix_lerp_k.weight"] = m(N_EMBD)
        tiny.tensors[f"blk.{i}.channel_mix_key.weight"] = m(N_FF, N_EMBD)
        tiny.tensors[f"blk.{i}.channel_mix_value.weight"] = m(N_EMBD, N_FF)
    return tiny


def kimi() -> Tiny:
    """Kimi delta attention with a dense feed-forward part, then latent attention with experts; all parts of a head
    differ in size."""
    m = _matrices(np.random.default_rng(5))
    tiny = _tiny("kimi-linear", 2)
    rank, d_nope, d_shared, d_value, d_kda, taps = 12, 6, 4, 5, 7, 3
    n_kda, n_values = N_HEAD * d_kda, N_HEAD * d_value
    keys = {
        "feed_forward_length": N_FF, "attention.head_count": N_HEAD, "ssm.conv_kernel": taps, "kda.head_dim": d_kda,
        "attention.kv_lora_rank": rank, "attention.key_length": rank + d_shared, "rope.dimension_count": d_shared,
        "attention.key_length_mla": d_nope + d_shared, "attention.value_length_mla": d_value, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "expert_count": N_EXPERT, "expert_used_count": N_USED,
        "expert_feed_forward_length": N_FF, "expert_gating_func": 2, "expert_weights_scale": 1.5,
    }  # fmt: skip
    for key, value in keys.items():
        tiny.set(f".{key}", value)
    tiny.set(".attention.head_count_kv", [0, 1], b.I32)
    _ends(tiny, m)
    t = tiny.tensors
    t["output.weight"] = m(N_VOCAB, N_EMBD)
    t["blk.0.attn_norm.weight"] = m(N_EMBD)
    for part in "qkv":
        t[f"blk.0.attn_{part}.weight"] = m(n_kda, N_EMBD)
        t[f"blk.0.ssm_conv1d_{part}.weight"] = m(1, n_kda, 1, taps)
    for part in "fg":
        t[f"blk.0.ssm_{part}_a.weight"], t[f"blk.0.ssm_{part}_b.weight"] = m(d_kda, N_EMBD), m(n_kda, d_kda)
    t["blk.0.ssm_beta.weight"] = m(N_HEAD, N_EMBD)
    t["blk.0.ssm_a"] = Tensor(-np.exp(m(1, 1, N_HEAD, 1).values))
    t["blk.0.ssm_dt.bias"], t["blk.0.ssm_norm.weight"] = m(n_kda), m(d_kda)
    t["blk.0.attn_output.weight"] = m(N_EMBD, n_kda)
    t.update(_dense("blk.0.", m))
    t["blk.1.attn_norm.weight"] = m(N_EMBD)
    t["blk.1.attn_q.weight"] = m(N_HEAD * (d_nope + d_shared), N_EMBD)
    t["blk.1.attn_kv_a_mqa.weight"], t["blk.1.attn_kv_a_norm.weight"] = m(rank + d_shared, N_EMBD), m(rank)
    t["blk.1.attn_k_b.weight"], t["blk.1.attn_v_b.weight"] = m(N_HEAD, rank, d_nope), m(N_HEAD, d_value, rank)
    t["blk.1.attn_output.weight"] = m(N_EMBD, n_values)
    t["blk.1.ffn_norm.weight"] = m(N_EMBD)
    t["blk.1.ffn_gate_inp.weight"], t["blk.1.exp_probs_b.bias"] = m(N_EXPERT, N_EMBD), m(N_EXPERT)
    for part, shape in (("gate", (N_FF, N_EMBD)), ("up", (N_FF, N_EMBD)), ("down", (N_EMBD, N_FF))):
        t[f"blk.1.ffn_{part}_exps.weight"], t[f"blk.1.ffn_{part}_shexp.weight"] = m(N_EXPERT, *shape), m(*shape)
    return tiny


def gemma4() -> Tiny:
    """Two layers with own keys and values: the first has a window, experts and its own values. The third layer uses the
    keys and values of the first."""
    m, per, d_full = _matrices(np.random.default_rng(6)), 3, 12
    tiny = _tiny("gemma4", 3)
    keys = {
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.key_length": d_full,
        "attention.key_length_swa": D_HEAD,
        "attention.sliding_window": 5,
        "attention.shared_kv_layers": 1,
        "attention.sliding_window_pattern": [True, False, True],
        "embedding_length_per_layer_input": per,
        "expert_count": N_EXPERT,
        "expert_used_count": N_USED,
        "expert_feed_forward_length": N_FF,
        "final_logit_softcapping": 4.0,
    }
    for key, value in keys.items():
        tiny.set(f".{key}", value)
    tiny.set(".attention.head_count_kv", [2, 1, 2], b.I32)
    _ends(tiny, m)
    t = tiny.tensors
    t["rope_freqs.weight"] = Tensor(np.array([1.0, 1.0, 1e30, 1e30, 1e30, 1e30], np.float32))
    t["per_layer_token_embd.weight"], t["per_layer_proj_norm.weight"] = m(N_VOCAB, 3 * per), m(per)
    t["per_layer_model_proj.weight"] = m(3 * per, N_EMBD)
    for i, (d, n_kv) in enumerate([(D_HEAD, 2), (d_full, 1), (D_HEAD, 0)]):
        p = f"blk.{i}."
        for norm in ("attn_norm", "post_attention_norm", "post_ffw_norm", "post_norm"):
            t[f"{p}{norm}.weight"] = m(N_EMBD)
        t[p + "layer_output_scale.weight"] = Tensor(np.array([0.5 + i], np.float32))
        t[p + "attn_q.weight"], t[p + "attn_q_norm.weight"] = m(N_HEAD * d, N_EMBD), m(d)
        t[p + "attn_output.weight"] = m(N_EMBD, N_HEAD * d)
        if n_kv:
            t[p + "attn_k.weight"], t[p + "attn_k_norm.weight"] = m(n_kv * d, N_EMBD), m(d)
        t[p + "inp_gate.weight"], t[p + "proj.weight"] = m(per, N_EMBD), m(N_EMBD, per)
        t.update(_dense(p, m))
    t["blk.0.attn_v.weight"] = m(2 * D_HEAD, N_EMBD)
    for norm in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
        t[f"blk.0.{norm}.weight"] = m(N_EMBD)
    t["blk.0.ffn_gate_inp.weight"], t["blk.0.ffn_gate_inp.scale"] = m(N_EXPERT, N_EMBD), m(N_EMBD)
    t["blk.0.ffn_gate_up_exps.weight"] = m(N_EXPERT, 2 * N_FF, N_EMBD)
    t["blk.0.ffn_down_exps.weight"], t["blk.0.ffn_down_exps.scale"] = m(N_EXPERT, N_EMBD, N_FF), m(N_EXPERT)
    return tiny


FAMILIES = {"gemma4": gemma4, "jamba": jamba, "kimi-linear": kimi, "llama": llama, "mamba": mamba, "rwkv7": rwkv7}
