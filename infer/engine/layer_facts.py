"""Kinds and memory of a file's layers, as the layers declare them, from metadata and tensor names alone."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hybrid.quant.ggml.reader import GGUFFile

from ..architectures import encoder_of
from ..architectures.base import Part
from ..kernels.attention.kv import F16_KV
from ..layers.base import Layer
from ..loading.weights import Weights
from ..memory import AttentionSpec, RecurrentSpec, RowsSpec
from .network import family_of

# letters of recurrent layers other than M
_LETTERS = {"RWKV": "R", "short convolution": "C", "convolved attention": ""}
AHEAD = "T"  # a head that guesses tokens ahead
_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.")
_EXPERTS = re.compile(r"blk\.([0-9]{1,9})\.ffn_(?:gate_inp|[a-z_]+_exps)\b")


@dataclass(frozen=True)
class LayerFacts:
    """Facts about one layer.

    letters              A attention, M a recurrence, R time mixing of RWKV, C short convolution, E experts, T a head
                         that guesses tokens ahead, not needed to process a text; `-`: none of these
    mixers               (letter, description) pairs
    state_nbytes         of a sequence's states, f32, without padding
    kv_nbytes_per_token  as f16, without padding
    nbytes               of its tensors
    """

    letters: str
    mixers: tuple[tuple[str, str], ...]
    state_nbytes: int
    kv_nbytes_per_token: int
    nbytes: int = 0


def layer_facts(gguf: GGUFFile) -> list[LayerFacts]:
    """Facts about every layer. Raises UnsupportedError for an unknown architecture, FormatError for a damaged file."""
    experts = {int(match[1]) for name in gguf.tensors if (match := _EXPERTS.match(name))}
    ahead, sizes = gguf.get(f"{gguf.get('general.architecture')}.nextn_predict_layers", 0), _sizes(gguf)
    blocks = [[layer for _, layer in parts] for parts in blocks_of(gguf)]
    first = len(blocks) - (ahead if isinstance(ahead, int) else 0)
    return [
        replace(_facts(layers, i in experts, i >= first), nbytes=sizes.get(i, 0)) for i, layers in enumerate(blocks)
    ]


def _sizes(gguf: GGUFFile) -> dict[int, int]:
    """Bytes of the tensors of each block."""
    sizes: dict[int, int] = {}
    for name, tensor in gguf.tensors.items():
        if match := _BLOCK.match(name):
            sizes[int(match[1])] = sizes.get(int(match[1]), 0) + tensor.nbytes
    return sizes


def blocks_of(gguf: GGUFFile) -> Iterator[list[Part]]:
    """The parts of each block, not loaded; none for a block that does not run."""
    weights, arch = Weights(gguf), str(gguf.get("general.architecture"))
    if encoder := encoder_of(gguf):
        h = encoder.hparams.read(gguf, arch)
        yield from (list(encoder.block(h, i, weights, 1)) for i in range(h.n_layer))
    else:
        family = family_of(gguf)
        h = family.hparams.read(gguf, family.name)
        for i in range(h.n_layer):
            runs = i < h.n_run or (family.has_heads and f"blk.{i}.nextn.eh_proj.weight" in weights)
            yield list(family.block(h, i, weights)) if runs else []


def _facts(layers: list[Layer], experts: bool, ahead: bool) -> LayerFacts:
    specs = [spec for layer in layers for spec in layer.memory()]
    states = [spec for spec in specs if isinstance(spec, RecurrentSpec)]
    mixers = {"A": "attention"} if any(map(_attends, layers)) else {}
    # `mixer` of a part does not describe the whole layer
    mixers |= {_LETTERS.get(spec.mixer, "M"): spec.mixer for spec in states if not spec.part}
    mixers |= {"E": "experts"} if experts else {}
    mixers |= {AHEAD: "head that guesses tokens ahead"} if ahead else {}
    mixers.pop("", None)
    return LayerFacts(
        letters="".join(mixers) or "-",
        mixers=tuple(mixers.items()),
        state_nbytes=sum(spec.nbytes for spec in states),
        kv_nbytes_per_token=math.ceil(sum(_nbytes(spec) for spec in specs if not isinstance(spec, RecurrentSpec))),
    )


def _nbytes(spec: AttentionSpec | RowsSpec) -> float:
    """Bytes per token."""
    if isinstance(spec, RowsSpec):
        return F16_KV.codes.size * spec.n_head * spec.n / spec.every
    return F16_KV.codes.size * spec.n_kv * (spec.d_head + (0 if spec.latent else spec.d_value))


def _attends(layer: object) -> bool:
    """Whether the layer, or a layer in it, is attention."""
    if hasattr(layer, "attend"):
        return True
    parts = [part for value in vars(layer).values() for part in (value if isinstance(value, list | tuple) else [value])]
    return any(_attends(part) for part in parts if hasattr(part, "memory") or hasattr(part, "attend"))
