"""The plan of a quantization: decided and checked before the first byte is written."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .ggml.errors import FormatError, Remedy, UsageError, shown
from .ggml.mixes import EMBEDDING, NEED_IMPORTANCE, OUTPUT
from .ggml.reader import TensorInfo
from .ggml.role_mixes import ROLE_MIXES
from .ggml.types import FILE_TYPE_WEIGHT, FileType, GGMLType, row_nbytes
from .ggml.vision_names import CLIP
from .imatrix import Imatrix
from .policy import (
    ALIASES,
    COPY,
    NAMES,
    TARGETS,
    TOWER_TARGETS,
    Decision,
    Options,
    Reason,
    decide,
    is_quantized,
    keeps_ternary,
    model_of,
)
from .source import GGUFSource, Source

_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.")


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the new file. `shape` in numpy order; `nbytes`: size in the type `target`; `unfit`: the type that
    `target` replaces because rows are not whole blocks of it, or None."""

    name: str
    shape: tuple[int, ...]
    source: GGMLType
    target: GGMLType
    reason: Reason
    unfit: GGMLType | None
    nbytes: int

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / math.prod(self.shape)


def _named(target: FileType | str) -> str:
    return target.name if isinstance(target, FileType) else target.strip().upper()


def file_type(target: FileType | str) -> FileType:
    """The file type of this name, in upper or lower case. UsageError lists all names."""
    name = _named(target)
    kind = ALIASES.get(name) or FileType.__members__.get(name)
    if kind in TARGETS:
        return kind
    names = ", ".join(NAMES)
    if kind is not None:
        raise UsageError(f"{name} cannot be written by this version. Choose one of {names}.")
    raise UsageError(f"{shown(target)} is not a file type. Choose one of {names}.")


def target_name(target: FileType | str) -> str:
    """The name of a target: a file type, a mix by role, or COPY. UsageError: there is no such target."""
    name = _named(target)
    return name if name in (COPY, *ROLE_MIXES) else file_type(target).name


def target_of(source: Source, target: FileType | str, options: Options | None) -> tuple[FileType, Options]:
    """The file type and options of a target. COPY: the source's own type, and its tensors keep theirs."""
    options, name = options or Options(), _named(target)
    if name in ROLE_MIXES:
        return ROLE_MIXES[name].file_type, replace(options, mix=name)
    if name != COPY:
        return file_type(target), options
    stated = source.metadata.get("general.file_type")
    known = {int(kind): kind for kind in FileType}
    kind = known.get(stated, FileType.F32) if isinstance(stated, int) else FileType.F32
    return kind, replace(options, copy=True)


def plan(
    source: Path | str | Source,
    target: FileType | str,
    *,
    options: Options | None = None,
    imatrix: Imatrix | None = None,
    allow_requantize: bool = False,
) -> list[PlannedTensor]:
    """The tensors that `quantize` would write, in the order of the new file: llama.cpp's, by layer and then name.

    UsageError: a quantized tensor would be quantized again without permission, an option matches nothing, or the
    importance matrix belongs to another model.
    """
    target_name(target)
    with ExitStack() as stack:
        opened: Source = stack.enter_context(GGUFSource(source)) if isinstance(source, str | Path) else source
        return plan_source(opened, *target_of(opened, target, options), imatrix, allow_requantize)


def plan_source(
    source: Source, kind: FileType, options: Options | None, imatrix: Imatrix | None, allow_requantize: bool
) -> list[PlannedTensor]:
    """As `plan`, for an open source."""
    if "general.architecture" not in source.metadata:
        raise FormatError(
            f"{shown(source.path)} has no key general.architecture, which it needs. Convert the model again."
        )
    if not source.tensors:
        raise UsageError(f"{shown(source.path)} holds no tensors, only metadata. Give a file with a model.")
    tensors = {t.name: t for t in sorted(source.tensors.values(), key=_order)}
    if imatrix:
        imatrix.check({name: t.shape for name, t in tensors.items()})
    decisions = decide(tensors, kind, model_of(source.metadata, importance=imatrix is not None), options)
    if source.metadata["general.architecture"] == CLIP:
        _check_tower(source, kind, options, decisions)
    planned = []
    for t in tensors.values():
        decision = decisions[t.name]
        again = is_quantized(t.type) and is_quantized(decision.type) and decision.type is not t.type
        if again and not allow_requantize and not keeps_ternary(t.type, decision.type):
            wanted = decision.type.name if options and options.copy else kind.name
            raise UsageError(
                f"{shown(source.path)}: {shown(t.name)} is {t.type.name} already; {wanted} made from it is worse than "
                "from the original. Start from the F32, F16 or BF16 file.",
                remedy=Remedy.ALLOW_REQUANTIZE,
            )
        if decision.type is not t.type and needs_importance(t.name, decision.type, kind):
            if imatrix is None:
                raise UsageError(
                    f"{shown(t.name)}: {decision.type.name} needs an importance matrix{_in_file(decision.type, kind)}.",
                    remedy=Remedy.IMATRIX,
                )
            if t.name not in imatrix.entries:
                raise UsageError(
                    f"{shown(t.name)}: {decision.type.name} needs its importance, which the importance matrix "
                    "does not have. Use another matrix, or another type.",
                    remedy=Remedy.TENSOR_TYPE,
                    value=f"{_part(t.name)}=Q2_K",
                )
        nbytes = math.prod(t.shape[:-1]) * row_nbytes(decision.type, t.shape[-1])
        planned.append(PlannedTensor(t.name, t.shape, t.type, decision.type, decision.reason, decision.unfit, nbytes))
    return planned


def _check_tower(source: Source, kind: FileType, options: Options | None, decisions: Mapping[str, Decision]) -> None:
    """UsageError: towers have no such type."""
    names = " or ".join(target.name for target in TOWER_TARGETS)
    if kind not in TOWER_TARGETS and not (options and options.copy):
        raise UsageError(f"{shown(source.path)} is a vision tower, whose matrices are {names}, not {kind.name}.")
    allowed = {FILE_TYPE_WEIGHT[target] for target in TOWER_TARGETS}
    for name, decision in decisions.items():
        if decision.type not in allowed and decision.type is not source.tensors[name].type:
            raise UsageError(f"{shown(name)} of a vision tower is {names}, not {decision.type.name}.")


def check_finite(t: PlannedTensor, x: np.ndarray, rows: Sequence[int] | np.ndarray) -> None:
    """FormatError that names the first of these rows, f32 [row, n], with a value that is not finite."""
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise FormatError(
            f"tensor {shown(t.name)} has NaN or infinite values, in row {rows[int(bad.argmax())]} first. "
            "Convert the model again."
        )


def needs_importance(name: str, kind: GGMLType, target: FileType) -> bool:
    """Whether the type needs an importance matrix (llama-quantize refuses it without one): the error would be far
    larger."""
    if name in (OUTPUT, EMBEDDING):
        return False
    return kind in NEED_IMPORTANCE or (kind is GGMLType.Q2_K and target is FileType.Q2_K_S)


def _part(name: str) -> str:
    """The part of a name after the number of its layer."""
    return _BLOCK.sub("", name).removesuffix(".weight")


def _in_file(kind: GGMLType, target: FileType) -> str:
    return f" in a file of {target.name}" if kind not in NEED_IMPORTANCE else ""


def _order(t: TensorInfo) -> tuple[int, bytes]:
    block = _BLOCK.match(t.name)
    return int(block[1]) if block else -1, t.name.encode()
