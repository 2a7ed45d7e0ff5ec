"""Sizes for `bench --shape`, from configs of published models: the converter gives tensors and keys.

Besides the sizes in `hybrid.infer.bench.shapes`, which know nothing of converters.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from hybrid.convert.architectures import ARCHITECTURES, Family
from hybrid.convert.checkpoint import Config
from hybrid.convert.outtype import weight_type
from hybrid.convert.transforms import POSITIVE_EXP
from hybrid.infer.bench.random_weights import Fill
from hybrid.infer.bench.shapes import SHAPES, AnyShape, ShapeTensor, find_shape
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.policy import is_weight_matrix

from .published_sizes import CONFIGS

# Fillings of other tensors than matrices, by the first matching pattern; other vectors are spread over 0 .. 1.
_FILLS = (
    (r"norm(_2)?\.weight$|_scale\.weight$|_norm$|\.time_mix_ln\.weight$|ssm_d$", Fill.ONE),
    (r"tid2eid\.weight$", Fill.TABLE),
    (r"rope_freqs\.weight$|\.scale$", Fill.ONE),
    (r"ssm_dt\.bias$", Fill.DT_BIAS),
    (r"\.bias$", Fill.ZERO),
    (r"conv1d\.weight$|shortconv\.conv\.weight$", Fill.CONV),
    (r"ssm_a$", Fill.HEAD_A),
    (r"ssm_(x|dt)\.weight$|ssm_f_[ab]\.weight$", Fill.SSM_WEIGHT),
    (r"time_mix_[avg][12]\.weight$", Fill.HALF),  # llama-quantize leaves their type unchanged
)


@dataclass(frozen=True)
class ConfigShape:
    """A model of the size in `config`, which has only the fields that the converter reads."""

    name: str
    config: Mapping[str, Any]

    @cached_property
    def family(self) -> Family:
        read = ARCHITECTURES[self.config["architectures"][0]].read
        return read(Config(self.config, f"shape {self.name}"), {})

    @property
    def arch(self) -> str:
        return self.family.arch

    @property
    def n_vocab(self) -> int:
        return self.family.n_vocab

    @property
    def n_layer(self) -> int:
        return int(dict(self.metadata())["block_count"])

    @property
    def n_expert(self) -> int:
        return int(dict(self.metadata()).get("expert_count", 0))

    @property
    def n_params(self) -> int:
        return sum(prod(tensor.shape) for tensor in self.tensors())

    def tensors(self) -> Iterator[ShapeTensor]:
        for row in self.family.rows():
            if not (self.family.tied and (row.tied_to or row.otherwise)):
                positive = row.transform is POSITIVE_EXP
                fill = Fill.HEAD_RATE if positive else _fill(row.target, row.shape, self.arch)
                yield ShapeTensor(row.target, row.shape, fill)

    def metadata(self) -> Iterator[tuple[str, Any]]:
        for key, value in self.family.keys(FileType.F32):
            if not key.startswith("general."):
                yield key, value


def _fill(name: str, shape: tuple[int, ...], arch: str) -> Fill:
    special = next((fill for pattern, fill in _FILLS if re.search(pattern, name)), None)
    if special is not None:
        return special
    if is_weight_matrix(name, shape, arch):
        return Fill.WEIGHT
    if is_weight_matrix(name, shape) and weight_type(name, shape, FileType.F16) is GGMLType.F16:
        return Fill.HALF
    return Fill.ROUTER if len(shape) > 1 and shape[-2] > 1 else Fill.SHARE


CONFIG_SHAPES: dict[str, AnyShape] = {name: ConfigShape(name, config) for name, config in CONFIGS.items()}
ALL_SHAPES: dict[str, AnyShape] = {**SHAPES, **CONFIG_SHAPES}


def find(name: str) -> AnyShape:
    """The shape of this name, of either kind. UsageError lists all names."""
    return find_shape(name, CONFIG_SHAPES)
