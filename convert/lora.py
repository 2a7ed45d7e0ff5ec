"""Converts LoRA adapters of Hugging Face PEFT to GGUF, in the layout of llama.cpp's convert_lora_to_gguf.

Hu et al. 2021, arXiv:2106.09685: s B A is added to a matrix W [rows, n], with A [rank, n] and B [rows, rank]. A
family's transform of W's rows is applied to B, one of its columns to A. Readers multiply by alpha / rank; where the
adapter means another factor (alpha_pattern, rsLoRA), B contains the rest.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml.adapter import INVOCATION
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import CheckpointError, Remedy, UnsupportedError, UsageError, shown
from hybrid.quant.ggml.types import QUANTIZATION_VERSION, ArrayOf, FileType, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

from .architectures import Family, Row
from .architectures.family import TensorBlock
from .architectures.wrappers import WRAPPERS, Wrapper
from .checkpoint import Config, StoredTensor
from .checkpoint.safetensors import read_safetensors
from .checkpoint.tensor import DataFile
from .checkpoint.torch_zip import read_torch
from .outtype import outtype as type_named
from .plan import family_of
from .stream import encode
from .tokenizers.vocabulary import KeyValue
from .transforms import Transform

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.[^.]+)?\.weight")
_TYPES = {FileType.F32: GGMLType.F32, FileType.F16: GGMLType.F16, FileType.BF16: GGMLType.BF16}
# PEFT's settings that change what an adapter means, with their values in plain LoRA.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",), "use_dora": (False,), "bias": ("none",), "lora_bias": (False,), "fan_in_fan_out": (False,),
    "modules_to_save": ([],), "trainable_token_indices": (), "megatron_config": (), "layer_replication": (),
    "target_parameters": ([],),
}  # fmt: skip
_INVOCATION_TEXTS = ("alora_invocation_string", "invocation_string")
# Beginnings of init_lora_weights that leave the base model's weights changed.
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq")


@dataclass(frozen=True, eq=False)
class Thin:
    """The two factors that are added to one matrix: f32 a [rank, n], b [rows, rank]."""

    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class LoraReport:
    """The result. `ranks`: all ranks of the adapter; `notes`: what a user should know."""

    source: Path
    output: Path
    architecture: str
    n_matrices: int
    ranks: tuple[int, ...]
    alpha: float
    nbytes: int
    seconds: float
    notes: tuple[str, ...]

    def __str__(self) -> str:
        ranks = " and ".join(map(str, self.ranks))
        lines = [
            f"{self.output}: LoRA for {self.architecture}, {self.n_matrices} matrices, rank {ranks}, alpha "
            f"{self.alpha:g}, {size_text(self.nbytes)} in {self.seconds:.1f} s"
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def convert_lora(
    adapter: Path | str, dst: Path | str | None = None, *, base: Path | str | None = None, outtype: str = "auto"
) -> LoraReport:
    """Converts the adapter in a folder to the GGUF file `dst`; default: NAME-lora-TYPE.gguf in the current folder.

    base: folder with the config.json of the base model; weights are not needed. None: the folder that the adapter's
    config names. outtype: f32 (auto), f16, bf16. Raises CheckpointError, UnsupportedError, UsageError, HybridError
    (writing failed).
    """
    began = time.perf_counter()
    folder = Path(adapter)
    kind = type_named(outtype) or FileType.F32
    if kind not in _TYPES:
        raise UsageError(f"outtype {shown(outtype)}: adapters are written as f32 (auto), f16 or bf16.")
    config = _config(folder)
    notes = list(_checked(config))
    base_folder = _base(config, base)
    family, wrapper, text = _family(base_folder)
    trained, alpha = _pairs(folder, config)
    if wrapper:
        trained = {wrapper.plain_name(name, text): pair for name, pair in trained.items()}
    thin = dict(_mapped(family, trained))
    name = folder.resolve().name
    output = Path(dst) if dst is not None else Path(f"{name}-lora-{kind.name}.gguf")
    if output.is_dir():
        output = output / f"{name}-lora-{kind.name}.gguf"
    writer = GGUFWriter(output, family.arch)
    for key, value, value_type in _key_values(config, name, kind, alpha):
        writer.add(key, value, value_type)
    halves = {f"{matrix}.lora_{half}": getattr(pair, half) for matrix, pair in thin.items() for half in "ab"}
    for tensor, values in halves.items():
        writer.declare(tensor, values.shape, _TYPES[kind])
    with writer:
        for tensor, values in halves.items():
            writer.write(tensor, encode(_TYPES[kind], values, values.shape[-1], tensor))
    return LoraReport(
        source=folder,
        output=output,
        architecture=family.arch,
        n_matrices=len(thin),
        ranks=tuple(sorted({pair.a.shape[-2] for pair in thin.values()})),
        alpha=alpha,
        nbytes=writer.nbytes,
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
    )


def _key_values(config: Config, name: str, kind: FileType, alpha: float) -> Iterator[KeyValue]:
    """The metadata of the file, in the order of llama.cpp's converter."""
    yield "general.type", "adapter", ValueType.STRING
    yield "adapter.type", "lora", ValueType.STRING
    yield "general.name", name, ValueType.STRING
    base = config.get("base_model_name_or_path")
    if isinstance(base, str) and base:
        yield "general.base_model.count", 1, ValueType.UINT32
        yield "general.base_model.0.name", base.rstrip("/").rpartition("/")[2], ValueType.STRING
    yield "general.file_type", int(kind), ValueType.UINT32
    yield "adapter.lora.alpha", alpha, ValueType.FLOAT32
    if invocation := _invocation(config):
        yield INVOCATION, invocation, ArrayOf(ValueType.UINT32)
    yield "general.quantization_version", QUANTIZATION_VERSION, ValueType.UINT32


def _invocation(config: Config) -> list[int]:
    """The tokens from which on an activated LoRA (aLoRA) is applied; empty: the adapter is a plain one.

    CheckpointError: they are no tokens. UnsupportedError: there is only a text, which no tokenizer is here for.
    """
    tokens = config.get("alora_invocation_tokens")
    if tokens is None or tokens == []:
        text = next((name for name in _INVOCATION_TEXTS if config.get(name)), None)
        if text is not None:
            raise UnsupportedError(
                f"{CONFIG}: {text} is a text, expected alora_invocation_tokens, its tokens in the base model. Add them."
            )
        return []
    if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < 1 << 31 for token in tokens):
        raise CheckpointError(
            f"{CONFIG}: alora_invocation_tokens = {shown(str(tokens), 60)}, expected a list of tokens."
        )
    return tokens


def _config(folder: Path) -> Config:
    if not folder.is_dir():
        raise UsageError(f"{shown(folder)} is not a folder. Give an adapter's folder, with {CONFIG} and {WEIGHTS[0]}.")
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{shown(folder)} has no {CONFIG}. Give the folder of a PEFT adapter.")
    return Config.read(path)


def _checked(config: Config) -> Iterator[str]:
    """Notes on a supported adapter; UnsupportedError if it is more than plain LoRA."""
    for key, values in _PLAIN.items():
        if config.get(key) not in ([], {}):
            config.expects(key, *values)
    how = config.get("init_lora_weights")
    if isinstance(how, str) and how.lower().startswith(_CHANGED_BASE):
        yield (
            f"init_lora_weights = {shown(how)} changes the base model too: apply this adapter to the changed one only"
        )


def _base(config: Config, base: Path | str | None) -> Path:
    """The folder of the base model's config."""
    if base is not None:
        folder = Path(base)
        return folder.parent if folder.name == "config.json" else folder
    named = config.get("base_model_name_or_path")
    if isinstance(named, str) and (Path(named) / "config.json").is_file():
        return Path(named)
    said = f", {shown(named)} by its config," if isinstance(named, str) and named else ""
    raise UsageError(
        f"the model that the adapter belongs to{said} is not here. Give its folder.", remedy=Remedy.BASE_MODEL
    )


def _family(folder: Path) -> tuple[Family, Wrapper | None, str]:
    """The family of a base model; the class around its text model, and the kind of that."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{shown(folder)} has no config.json. Give the folder of the adapter's base model.")
    config = Config.read(path)
    family, architecture = family_of(config)
    wrapper = WRAPPERS.get(architecture)
    if wrapper is None:
        return family.read(config, {}), None, ""
    return family.read(wrapper.config(config, ()), {}), wrapper, wrapper.kind(config)


def _pairs(folder: Path, config: Config) -> tuple[dict[str, Thin], float]:
    """The factors by the names of the base's matrices, and the alpha that readers divide by the rank."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise CheckpointError(f"{shown(folder)} has neither {WEIGHTS[0]} nor {WEIGHTS[1]}. Download it again.")
    file = DataFile(path)
    stored: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in (read_safetensors(file) if path.suffix == ".safetensors" else read_torch(file)).items():
        match = _NAME.fullmatch(name)
        if match is None:
            what = "adapts an embedding" if ".lora_embedding_" in name else "is not lora_A or lora_B of a matrix"
            raise UnsupportedError(f"{file.where}: {shown(name)} {what}, which cannot be converted.")
        if match[2] in stored.setdefault(match[1], {}):
            raise UnsupportedError(f"{file.where} holds several adapters of {shown(match[1])}. Save one alone.")
        stored[match[1]][match[2]] = tensor
    alpha, rank = config.number("lora_alpha", default=8.0), config.integer("r", default=8)
    rooted = config.boolean("use_rslora", default=False)
    alphas, ranks = (config.section(key).data for key in ("alpha_pattern", "rank_pattern"))
    written = alpha * math.sqrt(rank) if rooted else alpha
    factors = {}
    for name, halves in stored.items():
        if halves.keys() != {"A", "B"}:
            raise CheckpointError(f"{file.where} has only lora_{min(halves)} of {shown(name)}. Download it again.")
        a, b = (_values(halves[half]) for half in "AB")
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or 0 in (*a.shape, *b.shape):
            raise CheckpointError(
                f"{file.where}: {shown(name)} has lora_A {list(a.shape)} and lora_B {list(b.shape)}, expected "
                "[rank, n] and [rows, rank]."
            )
        stated = _by_pattern(ranks, name, rank)
        if stated != a.shape[0]:
            raise CheckpointError(f"{file.where}: {shown(name)} has rank {a.shape[0]}, {CONFIG} says {stated}.")
        own = _by_pattern(alphas, name, alpha)
        meant = own / (math.sqrt(a.shape[0]) if rooted else a.shape[0])
        factors[name + ".weight"] = Thin(a, _times(b, meant / (written / a.shape[0])))
    if not factors:
        raise CheckpointError(f"{file.where} holds no tensors. Download it again.")
    return factors, written


def _by_pattern(patterns: Mapping[str, Any], name: str, default: float) -> float:
    """PEFT's rule: the first pattern that equals the end of a module's name, from a dot on."""
    for pattern, value in patterns.items():
        try:
            matches = re.fullmatch(rf"(.*\.)?({pattern})", name)
        except re.error:
            matches = None
        if matches:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                raise CheckpointError(f"{CONFIG}: {shown(pattern)} = {shown(value)}, expected a positive number.")
            return value
    return default


def _times(b: np.ndarray, factor: float) -> np.ndarray:
    return b if math.isclose(factor, 1.0, rel_tol=1e-12) else (b.astype(np.float64) * factor).astype(np.float32)


def _values(tensor: StoredTensor) -> np.ndarray:
    """The values in f32. CheckpointError: one is NaN or infinite."""
    values = tensor.floats(0, tensor.size)
    if not np.isfinite(values).all():
        raise CheckpointError(f"{shown(tensor.name)} holds NaN or infinite values (in {tensor.file.where}).")
    return values.reshape(tensor.shape)


def _mapped(family: Family, trained: Mapping[str, Thin]) -> Iterator[tuple[str, Thin]]:
    """GGUF names and transformed factors, in the order of the family's rows."""
    factors: dict[str, Thin] = {}
    origin: dict[str, str] = {}
    for name, pair in trained.items():
        canonical = family.canonical(name)
        parts = list(family.parts(canonical, (pair.b.shape[0], pair.a.shape[1])))
        for part in parts or [TensorBlock(canonical, (0, 0), (pair.b.shape[0], pair.a.shape[1]))]:
            if len(part.start) != 2 or part.start[1] or part.shape[1] != pair.a.shape[1]:
                raise UnsupportedError(f"{shown(name)} is taken apart by columns, where adapters cannot follow.")
            first = part.start[0]
            factors[part.name] = Thin(pair.a, pair.b[first : first + part.shape[0]])
            origin[part.name] = name
    used: set[str] = set()
    for row in family.rows():
        there = [factors.get(source) for source in row.sources]
        if not any(there):
            continue
        used |= {source for source in row.sources if source in factors}
        if row.tied_to and family.tied:
            raise UnsupportedError(
                f"the adapter changes {shown(row.sources[0])}, which in this model is the embedding: the file has no "
                "separate output matrix that could be adapted."
            )
        yield row.target, _joined(row, there)
    left = next((origin[name] for name in factors if name not in used), None)
    if left is not None:
        raise CheckpointError(f"the adapter changes {shown(left)}, which the base model does not have. Is it its base?")


def _joined(row: Row, there: list[Thin | None]) -> Thin:
    """One pair for a row with several sources; sources without an adapter add nothing."""
    expected = row.expected
    if len(expected) != 2:
        raise UnsupportedError(f"{row.target} is not a matrix, so an adapter cannot change it.")
    for source, pair in zip(row.sources, there, strict=True):
        if pair is not None and (pair.b.shape[0], pair.a.shape[1]) != expected:
            raise CheckpointError(
                f"the adapter's {shown(source)} is for a matrix {[pair.b.shape[0], pair.a.shape[1]]}, the base has "
                f"{list(expected)}. Is it its base?"
            )
    known = [pair for pair in there if pair is not None]
    if row.group:
        rank = max(len(pair.a) for pair in known)
        a, b = (
            np.zeros((len(there), rank, expected[1]), np.float32),
            np.zeros((len(there), expected[0], rank), np.float32),
        )
        for i, pair in enumerate(there):
            if pair is not None:
                one = _transformed(row, pair)
                # ranks that this adapter lacks are zeros. A reader divides by the stack's rank, so B makes up for it.
                a[i, : len(one.a)] = one.a
                b[i, :, : len(one.a)] = _times(one.b, rank / len(one.a))
        return Thin(a, b)
    if len(there) == 1:
        return _transformed(row, known[0])
    if any(pair.a is not known[0].a for pair in known):
        return _side_by_side([_transformed(row, pair) if pair else None for pair in there], expected[0])
    halves = [
        _transformed(row, pair).b if pair is not None else np.zeros((expected[0], len(known[0].a)), np.float32)
        for pair in there
    ]
    return Thin(known[0].a, np.concatenate(halves))


def _side_by_side(there: list[Thin | None], n_rows: int) -> Thin:
    """One pair for stacked matrices of n_rows rows each with separate adapters: each keeps its ranks, with zeros in the
    ranks of the others."""
    rank = sum(len(pair.a) for pair in there if pair)
    b, first = np.zeros((len(there) * n_rows, rank), np.float32), 0
    for i, pair in enumerate(there):
        if pair:
            # a reader divides by the rank of all
            last = first + len(pair.a)
            b[i * n_rows : (i + 1) * n_rows, first:last] = _times(pair.b, rank / len(pair.a))
            first = last
    return Thin(np.concatenate([pair.a for pair in there if pair]), b)


def _transformed(row: Row, pair: Thin) -> Thin:
    transform: Transform | None = row.transform
    if transform is None:
        return pair
    if transform.along == "rows":
        return Thin(pair.a, transform.apply(pair.b, 0))
    if transform.along == "columns":
        return Thin(transform.apply(pair.a, 0), pair.b)
    raise UnsupportedError(f"{row.target} is changed by {transform.name}, which an adapter cannot follow.")
