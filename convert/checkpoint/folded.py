"""Checkpoints whose weights are rotated: rows are stored as H (s * w), see quant/ggml/rotation.py.

    MLX pack        model_type prism_hadamard_qwen35: Qwen3.5 in 2 bits; `hadamard_config` names a file with the keys
                    prism.hadamard.*, `modules` lists the rotated modules, and each has BASE.signs
    packing file    hadamard_packing.json beside any other checkpoint: the transform, signs by length of a row, and the
                    role of each rotated tensor

Both become the same keys of a GGUF file. A setting that is not understood is refused, since the result would be noise.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, Remedy, UnsupportedError, shown
from hybrid.quant.ggml.rotation import ARCHITECTURES, AXIS, FOLDED, PREFIX, TRANSFORM
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType

from .config import Config
from .dequantized import DequantizedTensor
from .tensor import Dtype, StoredTensor

MODEL_TYPE = "prism_hadamard_qwen35"
PACKING = "hadamard_packing.json"
_LAYOUT = "gdn_activation_layout"
_OUT_PROJ = ".linear_attn.out_proj."
_PREFIX = "language_model."
_NAMESPACES = {1: "mlx-lm-text", 2: "mlx-vlm-qwen3_5"}
_ROLES = ("fold-before-matmul", "inverse-after-lookup")
KeyValue = tuple[str, Any, ValueType | ArrayOf | None]


@dataclass(frozen=True)
class Folding:
    """The rotation of a checkpoint.

    block     values that are transformed together
    signs     i32 by length of a row; empty: all are 1
    folded    names of matrices whose inputs are rotated, in the file's order; without `language_model.`
    restored  names of the matrices whose rows are rotated back
    tied      whether the rotated embedding is also the output matrix; None: the checkpoint does not say
    ternary   whether the matrices are ternary, as in an MLX pack
    """

    where: str
    block: int
    folded: tuple[str, ...]
    restored: tuple[str, ...]
    signs: Mapping[int, np.ndarray] = field(default_factory=dict, compare=False)
    tied: bool | None = None
    ternary: bool = False

    @property
    def has_grouped_columns(self) -> bool:
        """Whether output matrices of delta rules are rotated: columns then are in the checkpoint's order of heads."""
        return any(_OUT_PROJ in name for name in self.folded)

    def wrong(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {what}. The weights are rotated, and the result would be noise.")

    def checked(self, tensors: Mapping[str, StoredTensor], *, keep: bool) -> dict[str, StoredTensor]:
        """The tensors without the signs of modules, which must equal the signs for rows of that length. keep: ternary
        matrices remain ternary."""
        found: dict[str, StoredTensor] = {}
        plain = (t.dtype for t in tensors.values() if len(t.shape) == 2 and not isinstance(t, DequantizedTensor))
        others = next((dtype for dtype in plain if isinstance(dtype, Dtype)), Dtype.BF16)
        for name, tensor in tensors.items():
            if name.endswith(".signs") and name.removesuffix("signs") + "weight" in tensors:
                stated = self.signs.get(tensor.size)
                if stated is None or not np.array_equal(tensor.floats(0, tensor.size), stated):
                    raise self.wrong(f"{shown(name)} differs from the signs for rows of {tensor.size} values")
            elif keep and self.ternary and isinstance(tensor, DequantizedTensor):
                found[name] = replace(_ternary(tensor), kept_as=others)
            else:
                found[name] = tensor
        return found

    def key_values(self, arch: str, target_of: Callable[[str], str | None], tied: bool) -> Iterator[KeyValue]:
        """The keys of a file. target_of: name of a matrix in the checkpoint -> in the file. tied: the file has no
        output matrix."""
        tied = tied and bool(self.restored)
        if self.tied not in (None, tied):
            raise self.wrong(f"the rotated embedding is {'' if tied else 'not '}the output matrix, which it denies")
        if not self.folded:
            raise self.wrong("no matrix has rotated inputs")
        if arch not in ARCHITECTURES:
            raise self.wrong(f"rotated weights of {arch} are not supported, only of {', '.join(ARCHITECTURES)}")
        targets = {name: target_of(name) for name in (*self.folded, *self.restored)}
        for name, target in targets.items():
            if target is None or (name in self.folded and not FOLDED.fullmatch(target)):
                raise self.wrong(f"{shown(name)} is rotated, and is no matrix of this family that can be rotated")
        names, restored = ([str(targets[name]) for name in some] for some in (self.folded, self.restored))
        values: list[KeyValue] = [
            ("version", 2 if tied else 1, ValueType.UINT32),
            ("block_size", self.block, ValueType.UINT32),
            ("transform", TRANSFORM, ValueType.STRING),
            ("axis", AXIS, ValueType.STRING),
            ("sign_mode", "explicit" if self.signs else "identity", ValueType.STRING),
            ("weight_names", names, ArrayOf(ValueType.STRING)),
        ]
        if self.signs:
            values += [
                ("sign_widths", [*self.signs], ArrayOf(ValueType.INT32)),
                ("sign_values", np.concatenate([*self.signs.values()]).tolist(), ArrayOf(ValueType.INT8)),
            ]
        values += [("inverse_weight_names", restored, ArrayOf(ValueType.STRING))] if restored else []
        values += [("gdn_v_grouped", True, ValueType.BOOL)] if self.has_grouped_columns else []
        values += [("tied_output", True, ValueType.BOOL)] if tied else []
        yield from ((PREFIX + key, value, kind) for key, value, kind in values)


def _ternary(tensor: DequantizedTensor) -> DequantizedTensor:
    """The matrix in blocks of 128 weights that are all -d, 0 or d."""
    read = tensor.rows
    assert read is not None

    def rows(start: int, stop: int) -> np.ndarray:
        values = read(start, stop)
        size = np.abs(values.reshape(-1, 128))
        if ((size != 0) & (size != size.max(axis=1, keepdims=True))).any():
            raise UnsupportedError(
                f"{shown(tensor.name)} holds weights that are not ternary: a group of 128 has several magnitudes.",
                remedy=Remedy.OUTTYPE,
            )
        return values

    return replace(tensor, rows=rows, exact=GGMLType.PQ2_0) if tensor.shape[-1] % 128 == 0 else tensor


def folding_of(config: Config, folder: Path) -> Folding | None:
    """The rotation of a checkpoint; None: it is not rotated."""
    if config.get("model_type") == MODEL_TYPE:
        return _of_pack(config, folder)
    path = folder / PACKING
    return _of_file(Config.read(path)) if path.is_file() else None


def plain_config(config: Config) -> Config:
    """The config of the checkpoint that was rotated."""
    data = dict(config.data)
    if data.get("model_type") == MODEL_TYPE:
        own = ("schema_version", "modules", "requires_runtime", "hadamard_config", "tensor_namespace", "components",
               "base_model_type", _LAYOUT)  # fmt: skip
        data = {key: value for key, value in data.items() if key not in own}
        data |= {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}
    return Config(data, config.where)


# --- the MLX pack ---
def _of_pack(config: Config, folder: Path) -> Folding:
    _must_be(config, "schema_version", *_NAMESPACES)
    _must_be(config, "tensor_namespace", _NAMESPACES[config.integer("schema_version")])
    _must_be(config, _LAYOUT, "grouped")
    name = config.string("hadamard_config")
    if Path(name).name != name or not (folder / name).is_file():
        raise CheckpointError(f"{config.where}: hadamard_config = {shown(name)}: the folder has no such file.")
    stated = Config.read(folder / name)
    _must_be(stated, PREFIX + "version", 1)
    _must_be(stated, PREFIX + "transform", TRANSFORM)
    _must_be(stated, PREFIX + "axis", AXIS)
    _must_be(stated, PREFIX + "sign_mode", "explicit")
    _must_be(stated, PREFIX + "gdn_v_grouped", True)
    stated.refuse_unread([PREFIX + key for key in _READ])
    folded, restored = (_names(stated, PREFIX + key) for key in ("weight_names", "inverse_weight_names"))
    widths, values = (_numbers(stated, PREFIX + key) for key in ("sign_widths", "sign_values"))
    if len(values) != sum(widths):
        raise stated.wrong(PREFIX + "sign_values", f"{sum(widths)} numbers")
    parts = np.split(np.array(values, np.int32), np.cumsum(widths)[:-1])
    signs = dict(zip(widths, parts, strict=True))
    block = _block(stated, PREFIX + "block_size")
    checked = _checked_signs(stated, signs, block)
    found = Folding(stated.where, block, folded, restored, checked, tied=False, ternary=True)
    _check_modules(config, found)
    return found


_READ = ("block_size", "sign_widths", "sign_values", "weight_names", "inverse_weight_names")


def _check_modules(config: Config, found: Folding) -> None:
    """UnsupportedError unless `modules` names the same matrices, with this block or none."""
    modules = config.get("modules")
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise config.wrong("modules", "a list of objects")
    rotated: dict[bool, set[str]] = {False: set(), True: set()}
    for one in modules:
        path, block, embedding = one.get("path"), one.get("block"), one.get("embedding")
        if not isinstance(path, str) or block not in (0, found.block) or not isinstance(embedding, bool):
            raise found.wrong(f"a module is {shown(str(one), 80)}, expected blocks of {found.block} or 0")
        if set(one) - {"path", "block", "embedding", "dtype"}:
            raise found.wrong(f"a module has settings that are not understood: {shown(str(one), 120)}")
        if block:
            rotated[embedding].add(path.removeprefix(_PREFIX) + ".weight")
    if rotated[False] != set(found.folded) or rotated[True] != set(found.restored):
        different = (rotated[False] ^ set(found.folded)) | (rotated[True] ^ set(found.restored))
        raise found.wrong(f"modules and weight_names differ in {shown(min(different))}")


# --- hadamard_packing.json ---
def _of_file(stated: Config) -> Folding:
    _must_be(stated, "schema_version", 1, 2, 3)
    _must_be(stated, "kind", "hadamard-weight-fold")
    _must_be(stated, "status", "requires-matching-runtime")
    how = stated.section("transform")
    _must_be(how, "name", "normalized-signed-sylvester-walsh-hadamard")
    _must_be(how, "sign_mode", "explicit", "identity")
    version = stated.integer("schema_version")
    block, explicit = _block(how, "block_size"), how.string("sign_mode") == "explicit"
    signs: dict[int, np.ndarray] = {}
    for width, values in stated.section("signs").data.items():
        if not width.isascii() or not width.isdigit() or not isinstance(values, list) or len(values) != int(width):
            raise stated.wrong("signs", "a list of as many signs as its name says for each length of a row")
        signs[int(width)] = np.array(_integers(stated, "signs", values), np.int32)
    tensors = stated.get("tensors")
    if not isinstance(tensors, list) or not tensors or not all(isinstance(one, dict) for one in tensors):
        raise stated.wrong("tensors", "a list of objects")
    names: dict[str, list[str]] = {role: [] for role in _ROLES}
    for one in tensors:
        name, role = one.get("name"), one.get("role")
        if (
            not isinstance(name, str)
            or role not in _ROLES
            or one.get("axis") != -1
            or set(one) - {"name", "role", "axis"}
        ):
            raise stated.wrong("tensors", f"objects with name, axis -1 and role {' or '.join(_ROLES)}")
        names[role].append(name.removeprefix(_PREFIX))
    signs = _checked_signs(stated, signs, block) if explicit else {}  # with identity they have no effect
    folded, restored = (tuple(names[role]) for role in _ROLES)
    for part in (stated, how):
        part.refuse_unread(())
    return Folding(stated.where, block, folded, restored, signs, tied=version == 3)


# --- values ---
def _must_be(stated: Config, key: str, *values: Any) -> None:
    """UnsupportedError unless a key is there and one of these."""
    if key not in stated:
        raise stated.wrong(key, " or ".join(map(str, values)))
    stated.expects(key, *values)


def _block(stated: Config, key: str) -> int:
    block = stated.integer(key, minimum=16)
    if block & (block - 1):
        raise stated.wrong(key, "a power of two")
    return block


def _checked_signs(stated: Config, signs: dict[int, np.ndarray], block: int) -> dict[int, np.ndarray]:
    if not signs or any(width % block or not (np.abs(one) == 1).all() for width, one in signs.items()):
        raise stated.wrong("signs", f"1 and -1 for rows of multiples of {block} values")
    return signs


def _names(stated: Config, key: str) -> tuple[str, ...]:
    names = stated.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise stated.wrong(key, "a list of different names")
    return tuple(name.removeprefix(_PREFIX) for name in names)


def _numbers(stated: Config, key: str) -> list[int]:
    return _integers(stated, key, stated.get(key))


def _integers(stated: Config, key: str, values: Any) -> list[int]:
    if not isinstance(values, list) or not values or not all(type(v) in (int, float) and int(v) == v for v in values):
        raise stated.wrong(key, "a list of integers")
    return [int(value) for value in values]
