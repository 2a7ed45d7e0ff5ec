"""What a GGUF file says about its model, from metadata and the shapes and names of tensors: no weight is read.

The file need not be a model that `infer` can load: what it lacks is 0 or empty, so that a damaged file can be shown.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .ggml.reader import GGUFFile, TensorInfo
from .ggml.split import open_gguf
from .ggml.types import FileType

# Bytes of one element in memory, as `infer` keeps them by default: states in f32, keys and values in f16.
STATE_ITEM = 4
KV_ITEM = 2

_LIGHTNING = "attn_norm_2.weight"  # inside lightning attention, whose other tensors have usual names
_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.(.+)")


@dataclass(frozen=True)
class LayerFacts:
    """One layer: what mixes positions, whether its feed-forward part has experts, and what a sequence keeps of it."""

    attention: bool
    recurrent: bool
    time_mix: bool
    convolution: bool
    experts: bool
    state_nbytes: int
    kv_nbytes_per_token: int

    @property
    def letters(self) -> str:
        """A attention, M state-space, delta rule, mLSTM or lightning attention, R time mixing of RWKV, C short
        convolution, E experts; `-` for a layer without any of these."""
        marks = {
            "A": self.attention, "M": self.recurrent, "R": self.time_mix, "C": self.convolution, "E": self.experts
        }  # fmt: skip
        return "".join(letter for letter, there in marks.items() if there) or "-"


@dataclass(frozen=True)
class TypeUse:
    """How many tensors and weights have one type."""

    type: str
    n_tensors: int
    n_weights: int
    nbytes: int


@dataclass(frozen=True)
class Inspection:
    """Facts about a file. Sizes in bytes.

    n_weights counts those of all tensors, bits_per_weight is over them. pattern: letters of every layer (see
    `LayerFacts.letters`). types: the one that takes most bytes first. What a sequence keeps: states once, keys and
    values for each token, and for n_ctx tokens; an encoder (is_encoder) keeps none of the latter.
    """

    path: Path
    nbytes: int
    version: int
    architecture: str
    name: str
    file_type: str
    n_weights: int
    bits_per_weight: float
    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_expert: int
    n_expert_used: int
    pattern: tuple[str, ...]
    types: tuple[TypeUse, ...]
    is_encoder: bool
    n_ctx: int
    state_nbytes_per_seq: int
    kv_nbytes_per_token: int
    kv_nbytes_per_seq: int


def inspect(file: GGUFFile | Path | str, n_ctx: int = 0) -> Inspection:
    """Reads the facts of an open file, or of the one at a path (the first part of several).

    What the file lacks is 0 or an empty string; keys and values are computed for `n_ctx` positions, 0: those that the
    model was trained for. Raises UsageError (no such file), FormatError (no GGUF file, or a damaged one).
    """
    if isinstance(file, Path | str):
        with open_gguf(file) as opened:
            return _facts(opened, n_ctx)
    return _facts(file, n_ctx)


def _facts(gguf: GGUFFile, n_ctx: int) -> Inspection:
    arch = str(gguf.get("general.architecture", ""))
    layers = _layers_of(gguf, arch)
    weights = sum(math.prod(t.shape) for t in gguf.tensors.values())
    stored = sum(t.nbytes for t in gguf.tensors.values())
    is_encoder = gguf.get(f"{arch}.attention.causal", True) is False
    kv = 0 if is_encoder else sum(layer.kv_nbytes_per_token for layer in layers)
    tokens = gguf.get("tokenizer.ggml.tokens", ())
    trained = _int(gguf, f"{arch}.context_length")
    n_ctx = n_ctx or max(0, trained)
    return Inspection(
        path=gguf.path,
        nbytes=gguf.nbytes,
        version=gguf.version,
        architecture=arch,
        name=str(gguf.get("general.name", "")),
        file_type=_file_type(gguf),
        n_weights=weights,
        bits_per_weight=8 * stored / weights if weights else 0.0,
        n_vocab=len(tokens) if isinstance(tokens, Sequence) and not isinstance(tokens, str) else 0,
        n_ctx_train=trained,
        n_embd=_int(gguf, f"{arch}.embedding_length"),
        n_expert=_int(gguf, f"{arch}.expert_count"),
        n_expert_used=_int(gguf, f"{arch}.expert_used_count"),
        pattern=tuple(layer.letters for layer in layers),
        types=_types_of(gguf),
        is_encoder=is_encoder,
        n_ctx=n_ctx,
        state_nbytes_per_seq=sum(layer.state_nbytes for layer in layers),
        kv_nbytes_per_token=kv,
        kv_nbytes_per_seq=kv * n_ctx,
    )


def _layers_of(gguf: GGUFFile, arch: str) -> list[LayerFacts]:
    """The layers by what their tensors are called; `block_count` gives their number when there are no tensors."""
    blocks: dict[int, dict[str, TensorInfo]] = {}
    for name, tensor in gguf.tensors.items():
        if match := _BLOCK.match(name):
            blocks.setdefault(int(match[1]), {})[match[2]] = tensor
    state = _int(gguf, f"{arch}.ssm.inner_size") * _int(gguf, f"{arch}.ssm.state_size")
    state = state or _int(gguf, f"{arch}.lru.width")
    if key_size := _int(gguf, f"{arch}.mlstm.key_length"):  # with what is divided by, and the largest exponent
        state = _int(gguf, f"{arch}.mlstm.head_count") * ((_int(gguf, f"{arch}.mlstm.value_length") + 1) * key_size + 1)
    if head := _int(gguf, f"{arch}.kda.head_dim"):
        n_head = _int(gguf, "hybrid.kda.head_count") or _int(gguf, f"{arch}.attention.head_count")
        state = n_head * head * head
    if head := _int(gguf, f"{arch}.wkv.head_size"):  # a state of head x head for each head, and the last inputs
        state = _int(gguf, f"{arch}.embedding_length") * (head + (_int(gguf, f"{arch}.token_shift_count") or 2))
    # lightning attention: a state of d_head x d_head for each head
    d_head = _int(gguf, f"{arch}.attention.key_length")
    d_head = d_head or _int(gguf, f"{arch}.embedding_length") // max(1, _int(gguf, f"{arch}.attention.head_count"))
    if norm := next((tensors[_LIGHTNING] for tensors in blocks.values() if _is_lightning(tensors)), None):
        state = norm.shape[0] * d_head
    n_layer = max([_int(gguf, f"{arch}.block_count"), *(i + 1 for i in blocks)])
    kv = _kv_values(gguf, arch)
    return [_layer(blocks.get(i, {}), state, kv[i % len(kv)]) for i in range(min(n_layer, 4096))]


def _is_lightning(tensors: dict[str, TensorInfo]) -> bool:
    return _LIGHTNING in tensors and "attn_gate.weight" in tensors


def _kv_values(gguf: GGUFFile, arch: str) -> list[int]:
    """Keys and values that a token leaves in each layer, or in all that have attention if there is one number."""
    n_head = _int(gguf, f"{arch}.attention.head_count")
    heads = gguf.get(f"{arch}.attention.head_count_kv", n_head)
    usual = _int(gguf, f"{arch}.embedding_length") // max(1, n_head)
    widths = [_int(gguf, f"{arch}.attention.{part}_length") or usual for part in ("key", "value")]
    if latent := _int(gguf, f"{arch}.attention.kv_lora_rank"):
        widths[1] = latent  # the part of a latent key that is its value, too
    per_layer = heads.tolist() if hasattr(heads, "tolist") else [heads if isinstance(heads, int) else 0]
    return [n * sum(widths) for n in per_layer] or [0]


def _layer(tensors: dict[str, TensorInfo], state: int, kv: int) -> LayerFacts:
    short = tensors.get("shortconv.conv.weight")
    conv = tensors.get("ssm_conv1d.weight", short)
    by_part = [tensors[name] for part in "qkv" if (name := f"ssm_conv1d_{part}.weight") in tensors]
    key, value = tensors.get("attn_k.weight"), tensors.get("attn_v.weight")
    # conv1d is [channels, taps]; the state keeps the inputs of all taps but the newest
    convs = by_part if conv is None else [conv]
    window = sum(math.prod(c.shape[:-1]) * (c.shape[-1] - 1) for c in convs)
    window += _second_convolution(tensors)
    time_mix, mlstm = "time_mix_output.weight" in tensors, "mlstm_out.weight" in tensors
    lightning = _is_lightning(tensors)
    recurrent = mlstm or lightning or any(name.startswith("ssm_") for name in tensors)
    # the delta rule has attn_qkv too, or attn_q, attn_k and attn_v with convolutions of their own; a block that layers
    # share stands at the first of them, which shared_out tells
    latent = "attn_kv_a_mqa.weight" in tensors
    attention = (
        latent
        or (key is not None and not by_part)
        or "shared_out.weight" in tensors
        or ("attn_qkv.weight" in tensors and not recurrent)
    )
    borrowed = not attention and "attn_q.weight" in tensors and not by_part  # the keys and values of another layer
    stated = kv if key is None else key.shape[0] + (value or key).shape[0]  # without a matrix, values are keys
    return LayerFacts(
        attention=attention or borrowed,
        recurrent=recurrent,
        time_mix=time_mix,
        convolution=short is not None,
        experts=any("_exps" in name or name.startswith("ffn_gate_inp") for name in tensors),
        state_nbytes=(window + (state if short is None else 0)) * STATE_ITEM
        if convs or time_mix or mlstm or lightning
        else 0,
        kv_nbytes_per_token=stated * KV_ITEM if attention else 0,
    )


def _second_convolution(tensors: dict[str, TensorInfo]) -> int:
    """What a convolution by heads, [head, out, taps x in], behind the one by channels adds to the state: more of the
    same inputs, and half of the values, of the last token."""
    by_head, conv, value = (tensors.get(f"{name}.weight") for name in ("attn_conv", "ssm_conv1d", "attn_v"))
    if by_head is None or conv is None or value is None or len(by_head.shape) != 3:
        return 0
    return conv.shape[0] * (by_head.shape[2] // max(1, by_head.shape[1]) - 1) + value.shape[0] // 2


def _types_of(gguf: GGUFFile) -> tuple[TypeUse, ...]:
    """Tensor types, the one that takes most bytes first."""
    number: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for t in gguf.tensors.values():
        number[t.type.name] += 1
        weights[t.type.name] += math.prod(t.shape)
        nbytes[t.type.name] += t.nbytes
    return tuple(TypeUse(name, number[name], weights[name], total) for name, total in nbytes.most_common())


def _file_type(gguf: GGUFFile) -> str:
    """The name of `general.file_type`; its number when it is one that is not known here."""
    value = gguf.get("general.file_type", None)
    try:
        return FileType(value if isinstance(value, int) else -1).name
    except ValueError:
        return "" if value is None else str(value)


def _int(gguf: GGUFFile, key: str) -> int:
    """A count; of an array per layer the largest; 0 when absent or not a number."""
    value = gguf.get(key, 0)
    if hasattr(value, "tolist"):
        value = max(value.tolist(), default=0)
    return value if isinstance(value, int) else 0
