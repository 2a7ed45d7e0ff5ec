"""Embeddings of n-grams that layers add: how tokens are hashed to rows of a table, and the tensors. Of Qwen."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from ..checkpoint import Config, StoredTensor
from ..transforms import PLUS_ONE
from .family import Keyed, Row, Shapes, row

GAMMA, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # splitmix64
MODULE = 10007  # between the seeds of layers
TABLE = "ple_embedding.ngram_embedding."
BUFFERS = {"factors": "layer_multipliers", "sizes": "ngram_heads_vocab_sizes", "offsets": "ngram_heads_offsets"}
# words of Family.order
NGRAMS = (
    ".ple.layers? ple_gram ple_each ple_taps ple_end .ple.image_token_id? d_row .ple.layer_multipliers? "
    ".ple.head_offsets? .ple.head_vocab_sizes?"
)


@dataclass(frozen=True)
class Ngrams(Keyed):
    """Embeddings of n-grams: for each length 2 .. n_gram, n_each rows of the table per token, of d_row values.

    factors         of the tokens of an n-gram, the last token first
    sizes, offsets  of the parts of the table, one part per row of a token
    lengths         rows of the pieces in which the checkpoint stores the table; empty: one piece
    image           the token that stands for images; None: none
    """

    layer: int
    n_gram: int
    n_each: int
    taps: int
    end: int
    d_row: int
    n_row: int
    factors: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    image: int | None
    ends: int  # llama.cpp's choice of the token that ends a text

    @property
    def d_embd(self) -> int:
        """Values of all rows of a token."""
        return (self.n_gram - 1) * self.n_each * self.d_row

    def values(self) -> dict[str, Any]:
        arrays = {"layer_multipliers": self.factors, "head_offsets": self.offsets, "head_vocab_sizes": self.sizes}
        return {
            "ple.layers": [self.layer],
            "ple_gram": self.n_gram,
            "ple_each": self.n_each,
            "ple_taps": self.taps,
            "ple_end": self.end,
            "ple.image_token_id": self.image,
            "d_row": self.d_row,
            **{f"ple.{name}": np.array(values, np.uint64) for name, values in arrays.items()},
        }

    def notes(self, n_embd: int) -> Iterator[str]:
        if self.d_embd != n_embd:
            yield "llama.cpp cannot load this file: there n-gram embeddings are as wide as the model, here they are not"
        if self.n_gram > 8 or len(self.sizes) > 64:
            yield "llama.cpp cannot load this file: there n-grams have at most 8 tokens and 64 rows of the table"
        if self.ends != self.end:
            yield (
                "llama.cpp's converter takes the last of several eos_token_id as the end of n-grams; transformers the "
                "first, as here"
            )

    def rows(self, hf: str, blk: str, n: int, n_stream: int) -> Iterator[Row]:
        width, taps = n_stream * n, self.taps
        names = [f"{hf}{TABLE}shard_{i}.weight" for i in range(len(self.lengths))] or [f"{hf}{TABLE}weight"]
        yield Row(
            "per_layer_token_embd.weight",
            (self.n_row, self.d_row),
            tuple(names),
            lengths=self.lengths,
            settled=tuple(f"{hf}ple_embedding.{name}" for name in BUFFERS.values()),
        )
        yield row(hf + "key_proj.weight", blk + "key.weight", width, self.d_embd)
        yield row(hf + "value_proj.weight", blk + "value.weight", n, self.d_embd)
        for part in ("key", "query", "conv"):
            yield row(f"{hf}norm_{part}.weight", f"{blk}norm_{part}.weight", width, transform=PLUS_ONE)
        yield row(hf + "conv1d.weight", blk + "conv1d.weight", width, taps, source_shape=(width, 1, taps))

    def settled(self, stored: Mapping[str, StoredTensor]) -> Self:
        """With the numbers stored in the checkpoint, which take precedence over those computed from the config."""
        found: dict[str, Any] = {}
        for field, name in BUFFERS.items():
            tensor = stored.get(f"model.layers.{self.layer}.ple.ple_embedding.{name}")
            if tensor is not None:
                found[field] = _integers(tensor, len(getattr(self, field)))
        settled = replace(self, **found)
        for size, offset in zip(settled.sizes, settled.offsets, strict=True):
            if not (size > 0 and 0 <= offset <= self.n_row - size):
                raise CheckpointError(
                    f"the checkpoint hashes n-grams to {size} rows from {offset} on, expected a part of the "
                    f"{self.n_row} rows that its table has by the config."
                )
        return settled


def _integers(tensor: StoredTensor, n: int) -> tuple[int, ...]:
    if tensor.dtype != "I64" or tensor.shape != (n,):
        raise CheckpointError(
            f"{shown(tensor.name)} is {tensor.dtype} of shape {list(tensor.shape)}, expected {n} numbers of type I64."
        )
    values = tensor.raw(np.dtype("<i8"), 0, n).tolist()
    if min(values) < 0:
        raise CheckpointError(f"{shown(tensor.name)} has the number {min(values)}, expected none below 0.")
    return tuple(values)


def read_ngrams(
    config: Config, shapes: Shapes, n_vocab: int, n_embd: int, attention: tuple[bool, ...]
) -> Ngrams | None:
    """The n-gram embeddings, or None. attention: per layer, whether it has attention; such layers add none."""
    layers = config.get("ple_layer_ids") or []
    if not isinstance(layers, list) or not all(type(i) is int and 1 <= i <= len(attention) for i in layers):
        raise config.wrong("ple_layer_ids", f"numbers of layers from 1 to {len(attention)}")
    if not layers:
        return None
    if len({*layers}) > 1:
        raise UnsupportedError(
            f"{config.where}: ple_layer_ids = {shown(str(layers), 60)} is not supported, only one layer with n-gram "
            "embeddings is: a file has one table and one set of factors."
        )
    layer = layers[0] - 1
    if attention[layer]:
        raise config.wrong("ple_layer_ids", "a layer of linear attention")
    n_gram = config.integer("ngram_size", default=3, minimum=2, maximum=64)
    n_each = config.integer("heads_per_ngram", default=8, maximum=1 << 10)
    n_head = (n_gram - 1) * n_each
    d_embd = config.integer("ple_embed_dim", default=n_embd)
    if d_embd % n_head:
        raise config.wrong("ple_embed_dim", f"a multiple of the {n_head} rows of a token")
    sizes = _primes(config.integer("ngram_vocab_size_base", default=20_000_000, maximum=1 << 30), n_head)
    unit = config.integer("make_ngram_vocab_size_divisible_by", default=128, maximum=1 << 24)
    n_row = -(-sum(sizes) // unit) * unit
    ends = config.get("eos_token_id")
    ends = ends if isinstance(ends, list) and ends else [ends]
    if not all(type(end) is int and 0 <= end < 1 << 31 for end in ends):
        raise config.wrong("eos_token_id", "a token, which ends n-grams, or several")
    image = config.get("image_token_id")
    return Ngrams(
        layer,
        n_gram,
        n_each,
        config.integer("ple_conv_kernel_size", default=4, maximum=1024),
        ends[0],
        d_embd // n_head,
        n_row,
        _factors(config, n_vocab, n_gram),
        sizes,
        tuple(sum(sizes[:i]) for i in range(n_head)),
        _lengths(config, shapes, layer, n_row),
        None if image is None else config.integer("image_token_id", minimum=0),
        ends[-1],
    )


def _factors(config: Config, n_vocab: int, n_gram: int) -> tuple[int, ...]:
    """Odd factors small enough that their products with token ids fit into 63 bits."""
    half = max(1, ((1 << 63) - 1) // config.integer("vocab_size", default=n_vocab) // 2)
    seed = config.integer("seed", default=1234, minimum=0)
    return tuple(2 * (_splitmix64(seed + GAMMA * (i + 1)) % half) + 1 for i in range(n_gram))


def _splitmix64(value: int) -> int:
    z = (value + GAMMA) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def _primes(least: int, n: int) -> tuple[int, ...]:
    """The first n primes that are at least `least`."""
    found: list[int] = []
    number = max(2, least)
    while len(found) < n:
        if all(number % i for i in range(2, math.isqrt(number) + 1)):
            found.append(number)
        number += 1
    return tuple(found)


def _lengths(config: Config, shapes: Shapes, layer: int, n_row: int) -> tuple[int, ...]:
    """Rows of the pieces of the table."""
    p, n = f"model.layers.{layer}.ple.{TABLE}", config.integer("split_ngram_parts", default=512, maximum=1 << 16)
    for prefix in (p, p.replace("model.", "model.language_model.", 1)):
        if prefix + "weight" in shapes:
            return ()
        found = [shapes[name] for i in range(n) if (name := f"{prefix}shard_{i}.weight") in shapes]
        if found:
            if len(found) != n or sum(shape[0] for shape in found) != n_row:
                raise CheckpointError(
                    f"the checkpoint has {len(found)} pieces of its table of n-grams with "
                    f"{sum(shape[0] for shape in found)} rows, expected {n} with {n_row} by the config."
                )
            return tuple(shape[0] for shape in found)
    size = -(-n_row // n)
    return tuple(min(size, n_row - first) for first in range(0, n_row, size))
