"""Models of well-known sizes with random weights: speed does not depend on the values, so no download is needed.

A shape has the hyper-parameters of a config.json, and the tensors that a converter would make. `write_shape` writes the
GGUF with a vocabulary of the right size. llama.cpp loads it also, so that both can be measured on the same file.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.families.granitehybrid import GraniteHybridHparams
from hybrid.quant.ggml.families.hparams import Hparams
from hybrid.quant.ggml.families.jamba import JambaHparams
from hybrid.quant.ggml.families.llama import LlamaHparams
from hybrid.quant.ggml.families.mamba import MambaHparams
from hybrid.quant.ggml.families.mamba2 import Mamba2Hparams
from hybrid.quant.ggml.metadata import full_key
from hybrid.quant.ggml.mixes import MIXES, ModelTraits, fitting, mixed_types
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, NOT_WEIGHTS, TRAITS, FileType, GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

from .random_weights import Fill, RandomWeights


@dataclass(frozen=True)
class ShapeTensor:
    """One tensor: its name in GGUF, its shape in numpy order, and its values."""

    name: str
    shape: tuple[int, ...]
    fill: Fill


class AnyShape(Protocol):
    """The source of a file of random weights. tensors: by layer; metadata: keys without the architecture's prefix."""

    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def n_expert(self) -> int: ...
    @property
    def n_params(self) -> int: ...
    def tensors(self) -> Iterator[ShapeTensor]: ...
    def metadata(self) -> Iterator[tuple[str, Any]]: ...


_GRANITE = {"embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 6.0}
# the `order` of Hparams.written
_SIZES, _SSM = "n_layer n_ctx_train n_embd n_ff n_head n_head_kv", "d_conv d_inner d_state n_ssm_head n_group eps"
_MAMBA = "n_layer n_ctx_train n_embd .feed_forward_length=n_ff .attention.head_count=n_head"
_KEYS: dict[str, tuple[type[Hparams], str]] = {
    "mamba": (MambaHparams, f"{_MAMBA} d_conv d_inner d_state dt_rank eps dt_b_c_rms"),
    "mamba2": (Mamba2Hparams, f"{_MAMBA} {_SSM}"),
    "jamba": (JambaHparams, f"{_SIZES} d_conv d_inner d_state dt_rank eps n_expert n_expert_used"),
    "llama": (
        LlamaHparams,
        f"{_SIZES} d_head=head_dim .attention.value_length=head_dim n_rot=head_dim freq_base=rope_base "
        ".vocab_size=n_vocab eps",
    ),
    "granitehybrid": (
        GraniteHybridHparams,
        f"{_SIZES} {_SSM} freq_base=rope_base n_rot=head_dim uses_rope .vocab_size=n_vocab n_expert n_expert_used "
        "n_ff_shared? attention_scale embedding_scale residual_scale logit_scale",
    ),
}


@dataclass(frozen=True)
class ModelShape:
    """The dimensions of a model. Its layers are Mamba (`mamba`, `mamba2`), attention (`llama`), or both kinds (`jamba`,
    `granitehybrid`). Mamba-2 has n_ssm_head heads, Mamba 0."""

    name: str
    arch: str
    n_layer: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    eps: float
    tied: bool = True
    n_ff: int = 0
    n_head: int = 0
    n_head_kv: int = 0
    head_dim: int = 0
    rope_base: float = 0.0
    attn_offset: int = 0
    attn_period: int = 1
    """Layer i has attention when i >= attn_offset and (i - attn_offset) % attn_period == 0."""
    d_state: int = 16
    d_conv: int = 4
    dt_rank: int = 0
    dt_b_c_rms: bool = False
    n_ssm_head: int = 0
    n_group: int = 1
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_shared: int = 0
    expert_offset: int = 0
    expert_period: int = 1

    @property
    def d_inner(self) -> int:
        return 2 * self.n_embd

    @property
    def n_params(self) -> int:
        return sum(prod(tensor.shape) for tensor in self.tensors())

    def has_attention(self, i: int) -> bool:
        if self.arch in ("mamba", "mamba2"):
            return False
        return i >= self.attn_offset and (i - self.attn_offset) % self.attn_period == 0

    def has_experts(self, i: int) -> bool:
        return self.n_expert > 1 and i >= self.expert_offset and (i - self.expert_offset) % self.expert_period == 0

    def tensors(self) -> Iterator[ShapeTensor]:
        """Every tensor, by layer."""
        yield ShapeTensor("token_embd.weight", (self.n_vocab, self.n_embd), Fill.WEIGHT)
        for i in range(self.n_layer):
            mamba = self._mamba2() if self.n_ssm_head else self._mamba()
            mixer = self._attention() if self.has_attention(i) else mamba
            for name, shape, fill in [("attn_norm.weight", (self.n_embd,), Fill.ONE), *mixer, *self._ffn(i)]:
                yield ShapeTensor(f"blk.{i}.{name}", shape, fill)
        yield ShapeTensor("output_norm.weight", (self.n_embd,), Fill.ONE)
        if not self.tied:
            yield ShapeTensor("output.weight", (self.n_vocab, self.n_embd), Fill.WEIGHT)

    def _attention(self) -> Iterator[tuple[str, tuple[int, ...], Fill]]:
        n_embd, n_q, n_kv = self.n_embd, self.n_head * self.head_dim, self.n_head_kv * self.head_dim
        yield "attn_q.weight", (n_q, n_embd), Fill.WEIGHT
        yield "attn_k.weight", (n_kv, n_embd), Fill.WEIGHT
        yield "attn_v.weight", (n_kv, n_embd), Fill.WEIGHT
        yield "attn_output.weight", (n_embd, n_q), Fill.WEIGHT

    def _mamba(self) -> Iterator[tuple[str, tuple[int, ...], Fill]]:
        yield "ssm_in.weight", (2 * self.d_inner, self.n_embd), Fill.WEIGHT
        yield "ssm_conv1d.weight", (self.d_inner, self.d_conv), Fill.CONV
        yield "ssm_conv1d.bias", (self.d_inner,), Fill.ZERO
        yield "ssm_x.weight", (self.dt_rank + 2 * self.d_state, self.d_inner), Fill.SSM_WEIGHT
        if self.arch == "jamba":
            yield "ssm_dt_norm.weight", (self.dt_rank,), Fill.ONE
            yield "ssm_b_norm.weight", (self.d_state,), Fill.ONE
            yield "ssm_c_norm.weight", (self.d_state,), Fill.ONE
        yield "ssm_dt.weight", (self.d_inner, self.dt_rank), Fill.SSM_WEIGHT
        yield "ssm_dt.bias", (self.d_inner,), Fill.DT_BIAS
        yield "ssm_a", (self.d_inner, self.d_state), Fill.SSM_A
        yield "ssm_d", (self.d_inner,), Fill.ONE
        yield "ssm_out.weight", (self.n_embd, self.d_inner), Fill.WEIGHT

    def _mamba2(self) -> Iterator[tuple[str, tuple[int, ...], Fill]]:
        mixed = self.d_inner + 2 * self.n_group * self.d_state
        yield "ssm_in.weight", (self.d_inner + mixed + self.n_ssm_head, self.n_embd), Fill.WEIGHT
        yield "ssm_conv1d.weight", (mixed, self.d_conv), Fill.CONV
        yield "ssm_conv1d.bias", (mixed,), Fill.ZERO
        yield "ssm_dt.bias", (self.n_ssm_head,), Fill.DT_BIAS
        yield "ssm_a", (self.n_ssm_head, 1), Fill.HEAD_A
        yield "ssm_d", (self.n_ssm_head, 1), Fill.ONE
        yield "ssm_norm.weight", (self.n_group, self.d_inner // self.n_group), Fill.ONE
        yield "ssm_out.weight", (self.n_embd, self.d_inner), Fill.WEIGHT

    def _ffn(self, i: int) -> Iterator[tuple[str, tuple[int, ...], Fill]]:
        if not self.n_ff:
            return
        up, down = (self.n_ff, self.n_embd), (self.n_embd, self.n_ff)
        yield "ffn_norm.weight", (self.n_embd,), Fill.ONE
        if self.has_experts(i):
            yield "ffn_gate_inp.weight", (self.n_expert, self.n_embd), Fill.ROUTER
            yield "ffn_gate_exps.weight", (self.n_expert, *up), Fill.WEIGHT
            yield "ffn_up_exps.weight", (self.n_expert, *up), Fill.WEIGHT
            yield "ffn_down_exps.weight", (self.n_expert, *down), Fill.WEIGHT
            if self.n_ff_shared:
                yield "ffn_gate_shexp.weight", (self.n_ff_shared, self.n_embd), Fill.WEIGHT
                yield "ffn_up_shexp.weight", (self.n_ff_shared, self.n_embd), Fill.WEIGHT
                yield "ffn_down_shexp.weight", (self.n_embd, self.n_ff_shared), Fill.WEIGHT
        else:
            yield "ffn_gate.weight", up, Fill.WEIGHT
            yield "ffn_up.weight", up, Fill.WEIGHT
            yield "ffn_down.weight", down, Fill.WEIGHT

    def metadata(self) -> Iterator[tuple[str, Any]]:
        """The keys that llama.cpp's converter writes, without `<arch>.`."""
        own: dict[str, Any] = {}
        if self.arch in ("jamba", "granitehybrid"):
            own["n_head_kv"] = [self.n_head_kv if self.has_attention(i) else 0 for i in range(self.n_layer)]
        if self.arch == "jamba":
            own |= {"n_expert": max(1, self.n_expert), "n_expert_used": max(1, self.n_expert_used)}
        if self.arch == "granitehybrid":
            own |= {"attention_scale": 1 / self.head_dim, **_GRANITE, "uses_rope": bool(self.rope_base)}
            own["rope_base"] = self.rope_base or 10000.0
        hparams, order = _KEYS[self.arch]
        yield from hparams.written(lambda name: own[name] if name in own else getattr(self, name), order)


def _mamba(name: str, n_embd: int, n_layer: int, n_vocab: int = 50280, **more: Any) -> ModelShape:
    return ModelShape(name, "mamba", n_layer, n_embd, n_vocab, 1 << 20, 1e-5, dt_rank=-(-n_embd // 16), **more)


def _mamba2(name: str, n_embd: int, n_layer: int) -> ModelShape:
    return ModelShape(name, "mamba2", n_layer, n_embd, 50288, 1 << 20, 1e-5, d_state=128, n_ssm_head=n_embd // 32)


def _granite(name: str, n_layer: int, n_embd: int, n_head: int, n_head_kv: int, **more: Any) -> ModelShape:
    """Granite 4 H: attention without positions on layers 5, 15, 25..."""
    return ModelShape(
        name, "granitehybrid", n_layer, n_embd, 100352, 1 << 20, 1e-5, n_head=n_head, n_head_kv=n_head_kv,
        head_dim=n_embd // n_head, d_state=128, n_ssm_head=n_embd // 32, attn_offset=5, attn_period=10, **more,
    )  # fmt: skip


def _llama(name: str, n_layer: int, n_embd: int, n_head: int, n_head_kv: int, **more: Any) -> ModelShape:
    return ModelShape(
        name, "llama", n_layer, n_embd, eps=1e-5, n_head=n_head, n_head_kv=n_head_kv, head_dim=n_embd // n_head, **more
    )


def _jamba(name: str, n_layer: int, n_embd: int, n_head: int, n_head_kv: int, **more: Any) -> ModelShape:
    return ModelShape(
        name, "jamba", n_layer, n_embd, 65536, 262144, 1e-6, n_head=n_head, n_head_kv=n_head_kv,
        head_dim=n_embd // n_head, dt_rank=-(-n_embd // 16), **more,
    )  # fmt: skip


_LLAMA3: dict[str, Any] = {"n_vocab": 128256, "n_ctx_train": 131072, "rope_base": 500000.0}
_EXPERTS: dict[str, Any] = {"attn_offset": 4, "attn_period": 8, "expert_offset": 1, "expert_period": 2, "tied": False}

SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in [
        _jamba("jamba-3b", 28, 2560, 20, 1, n_ff=8192, attn_offset=7, attn_period=14),
        # Jamba-Mini's layers at a quarter of the width: a mixture of experts that fits into 3 GB at Q8_0
        _jamba("jamba-moe-3b", 16, 1024, 8, 2, n_ff=3584, n_expert=16, n_expert_used=2, **_EXPERTS),
        _jamba("jamba-mini", 32, 4096, 32, 8, n_ff=14336, n_expert=16, n_expert_used=2, **_EXPERTS),
        _mamba("mamba-130m", 768, 24),
        _mamba("mamba-370m", 1024, 48),
        _mamba("mamba-790m", 1536, 48),
        _mamba("mamba-1.4b", 2048, 48),
        _mamba("mamba-2.8b", 2560, 64),
        _mamba("falcon-mamba-7b", 4096, 64, 65024, dt_b_c_rms=True, tied=False),
        _mamba2("mamba2-130m", 768, 24),
        _mamba2("mamba2-1.3b", 2048, 48),
        _mamba2("mamba2-2.7b", 2560, 64),
        _granite("granite-h-1b", 40, 1536, 12, 4, n_ff=4096),
        _granite("granite-h-tiny", 40, 1536, 12, 4, n_ff=512, n_expert=64, n_expert_used=6, n_ff_shared=1024),
        _llama(
            "tinyllama-1.1b", 22, 2048, 32, 4, n_ff=5632, n_vocab=32000, n_ctx_train=2048, rope_base=1e4, tied=False
        ),
        _llama("llama-1b", 16, 2048, 32, 8, n_ff=8192, **_LLAMA3),
        _llama("llama-3b", 28, 3072, 24, 8, n_ff=8192, **_LLAMA3),
    ]
}


def find_shape(name: str, more: Mapping[str, AnyShape] | None = None) -> AnyShape:
    """The shape with this name, in SHAPES or `more`. Raises UsageError, which lists the known ones."""
    known = {**SHAPES, **(more or {})}
    if name not in known:
        raise UsageError(f"shape {shown(name)}: not a known shape. Known: {', '.join(known)}.")
    return known[name]


def find_type(name: str) -> FileType | GGMLType:
    """The type with this name: one weight type for all matrices (Q4_K), or a mix of llama-quantize (Q4_K_M).

    Raises UsageError, which lists the known ones.
    """
    key = name.strip().upper()
    kinds = {kind.name: kind for kind in GGMLType if kind not in NOT_WEIGHTS}
    if key in kinds:
        return kinds[key]
    for mix in MIXES:
        if mix.name == key:
            return mix
    names = ", ".join(t.name for t in (*kinds.values(), *MIXES))
    raise UsageError(f"type {shown(name)}: not a type that files of random weights can have. Choose some of {names}.")


def file_type_of(target: FileType | GGMLType) -> FileType:
    """The general.file_type of a file whose matrices are `target`."""
    if isinstance(target, FileType):
        return target
    if target.name in FileType.__members__ and FILE_TYPE_WEIGHT[FileType[target.name]] is target:
        return FileType[target.name]
    return next(number for number, kind in FILE_TYPE_WEIGHT.items() if kind is target)


def tensor_types(shape: AnyShape, target: FileType | GGMLType, ssm_f32: bool) -> list[tuple[ShapeTensor, GGMLType]]:
    """Every tensor with its type in a file of type `target`.

    ssm_f32: a quantized file keeps ssm_x and ssm_dt in F32, as `hybrid quantize` does; False: they are quantized, as by
    llama-quantize. A tensor whose rows are not whole blocks gets llama-quantize's fallback type.
    """
    tensors = list(shape.tensors())
    matrices = {t.name: t.shape for t in tensors if t.fill in (Fill.WEIGHT, Fill.SSM_WEIGHT)}
    if isinstance(target, FileType) and target in MIXES:
        kinds = mixed_types(target, matrices, ModelTraits(shape.n_layer, shape.n_expert, arch=shape.arch))
    else:
        kinds = dict.fromkeys(matrices, target if isinstance(target, GGMLType) else FILE_TYPE_WEIGHT[target])

    def of(tensor: ShapeTensor) -> GGMLType:
        own = {Fill.HALF: GGMLType.F16, Fill.TABLE: GGMLType.I32}
        kind = kinds.get(tensor.name, own.get(tensor.fill, GGMLType.F32))
        if tensor.fill is Fill.SSM_WEIGHT and ssm_f32 and TRAITS[kind].block > 1:
            return GGMLType.F32
        return fitting(kind, tensor.shape[-1])

    return [(tensor, of(tensor)) for tensor in tensors]


def write_shape(
    name: str | AnyShape,
    path: str | os.PathLike[str],
    file_type: FileType | GGMLType,
    seed: int = 0,
    *,
    ssm_f32: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a GGUF of this shape with random weights, in constant memory. progress(bytes written, bytes in all).

    Norms are 1, A and the bias of dt are Mamba's initial values, a matrix has the standard deviation 1 / sqrt(columns):
    activations and logits stay near 1, as in a trained model. All matrices, also the embedding, have the type, except
    for a mix of MIXES.
    """
    shape = find_shape(name) if isinstance(name, str) else name
    path = Path(path)
    tensors = tensor_types(shape, file_type, ssm_f32)
    weights = RandomWeights(seed, most_rows=max(prod(tensor.shape[:-1]) for tensor, _ in tensors))
    total = sum(weights.nbytes(tensor.shape, kind) for tensor, kind in tensors)
    done = 0

    def reported(chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        nonlocal done
        for chunk in chunks:
            yield chunk
            done += chunk.nbytes
            if progress is not None:
                progress(done, total)

    with GGUFWriter(path, shape.arch) as writer:
        writer.add("general.type", "model")
        writer.add("general.name", f"{shape.name} with random weights")
        for key, value in shape.metadata():
            writer.add(full_key(shape.arch, key), value)
        writer.add("general.file_type", int(file_type_of(file_type)))
        writer.add("general.quantization_version", 2)
        for key, value in _vocabulary(shape.n_vocab):
            writer.add(f"tokenizer.ggml.{key}", value)
        for tensor, kind in tensors:
            writer.declare(tensor.name, tensor.shape, kind)
        for tensor, kind in tensors:
            writer.write(tensor.name, reported(weights.chunks(tensor.fill, tensor.shape, kind)))
    return path


def _vocabulary(n_vocab: int) -> Iterator[tuple[str, Any]]:
    """A sentencepiece vocabulary with invented words, and with all bytes, so that every text can be tokenized."""
    control = ["<unk>", "<s>", "</s>"]
    byte = [f"<0x{i:02X}>" for i in range(256)]
    words = [f"\u2581w{i}" for i in range(n_vocab - len(control) - len(byte))]
    assert len(control) + len(byte) + len(words) == n_vocab
    yield "model", "llama"
    yield "pre", "default"
    yield "tokens", control + byte + words
    yield "scores", [0.0] * (n_vocab - len(words)) + [-float(i) for i in range(len(words))]
    yield "token_type", [2, 3, 3] + [6] * 256 + [1] * len(words)
    yield "bos_token_id", 1
    yield "eos_token_id", 2
    yield "unknown_token_id", 0
    yield "add_bos_token", True
    yield "add_eos_token", False
