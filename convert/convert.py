"""Conversion of a Hugging Face checkpoint to a GGUF file."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.cpus import cpus
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.ggml.split import SplitWriter
from hybrid.quant.ggml.types import FileType
from hybrid.quant.ggml.vision_names import PREFIX, vision_path

from .plan import PreparedConversion, has_tower, prepare, prepare_tower
from .planned import ConvertPlan
from .stream import in_order
from .tensor_parts import Spread, check, parts_of


@dataclass(frozen=True)
class ConvertReport:
    """The result: `output` is the file, or the first of several. `notes` say what could not be kept."""

    source: Path
    output: Path
    architecture: str
    file_type: FileType
    n_tensors: int
    n_params: int
    nbytes: int
    n_files: int
    seconds: float
    notes: tuple[str, ...]
    vision: "ConvertReport | None" = None  # of the file with the vision tower

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Notes on both files."""
        return (*self.notes, *(self.vision.notes if self.vision else ()))

    def __str__(self) -> str:
        rate = size_text(self.nbytes / max(self.seconds, 1e-9))
        files = f" in {self.n_files} files" if self.n_files > 1 else ""
        lines = [
            f"{self.output}: {self.architecture}, {self.file_type.name}, {self.n_tensors} tensors, "
            f"{self.n_params / 1e6:,.2f} M weights, {size_text(self.nbytes)}{files} in {self.seconds:.1f} s ({rate}/s)"
        ]
        tower = [str(self.vision)] if self.vision else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes), *tower])


def plan(
    src: Path | str,
    *,
    outtype: str = "auto",
    tokenizer: Path | None = None,
    vocab_only: bool = False,
    metadata: Path | None = None,
    model_name: str | None = None,
    heads: bool = True,
    vision: bool = True,
) -> ConvertPlan:
    """The plan of a conversion, after all checks but the check of the weights' values."""
    text, tower = _both(
        src,
        vision and not vocab_only,
        file_type=outtype,
        tokenizer=tokenizer,
        vocab_only=vocab_only,
        metadata=metadata,
        model_name=model_name,
        heads=heads,
    )
    if tower is None:
        return text.plan
    return replace(text.plan, vision=replace(tower.plan, output=beside(text.plan, tower.plan, None)))


def convert(  # noqa: PLR0913  what a caller may choose, one argument each
    src: Path | str,
    dst: Path | str | None = None,
    *,
    outtype: str = "auto",
    tokenizer: Path | None = None,
    vocab_only: bool = False,
    metadata: Path | None = None,
    model_name: str | None = None,
    heads: bool = True,
    vision: bool = True,
    split_max_size: int = 0,
    n_threads: int = 0,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> ConvertReport:
    """Converts a checkpoint (its folder, config.json or weight file) to the GGUF file `dst`, and its vision tower, if
    it has one, to mmproj-NAME beside it.

    dst: a file; a folder, for a file with the default name; None: the current folder. A file appears only when
    complete.

    outtype: auto, f32, f16, bf16, q8_0, or nvfp4: auto of a checkpoint with NVFP4; auto of a tower is f16. tokenizer:
    folder or GGUF file to take the vocabulary from. metadata: JSON file of general.* keys that replace the
    checkpoint's. vision: include the tower. split_max_size: maximum bytes of tensors per file; a larger model becomes
    NAME-00001-of-00003.gguf, ...; 0: one file. n_threads = 0: all cores. heads: include the model's heads that guess
    tokens, if it has any. progress(tensor, done, total) in bytes of written tensors. spread: the workers that convert
    the parts of the text model, or None for this process.

    Raises CheckpointError, TokenizerError, UnsupportedError, UsageError, HybridError (writing failed).
    """
    began = time.perf_counter()
    if n_threads < 0:
        raise UsageError(f"n_threads = {n_threads}: expected a positive number, or 0 for all cores.")
    text, tower = _both(
        src,
        vision and not vocab_only,
        file_type=outtype,
        tokenizer=tokenizer,
        vocab_only=vocab_only,
        metadata=metadata,
        model_name=model_name,
        heads=heads,
    )
    n_threads = n_threads or cpus()
    output = text.plan.output if dst is None else Path(dst)
    if output.is_dir():
        output = output / text.plan.output.name
        dst = None
    writer = text.writer(output, split_max_size)
    tower_writer = tower and tower.writer(
        output.parent / beside(text.plan, tower.plan, None if dst is None else output)
    )
    for path in (*writer.paths, *(tower_writer.paths if tower_writer else ())):
        _refuse_sources(path, text, tokenizer)
    counted = _Counted(progress, sum(tensor.nbytes for part in (text, tower) if part for tensor in part.plan.tensors))
    with writer, tower_writer or nullcontext():
        if spread is None:
            _write(writer, text, n_threads, counted)
        else:
            parts = list(parts_of(text, writer.lay_out()))
            check(parts, spread(parts), progress)
            counted.done = sum(tensor.nbytes for tensor in text.plan.tensors)
        if tower and tower_writer:
            _write(tower_writer, tower, n_threads, counted)
    seconds = time.perf_counter() - began
    report = _report(Path(src), text, writer, seconds)
    return (
        report
        if not tower or not tower_writer
        else replace(report, vision=_report(Path(src), tower, tower_writer, seconds))
    )


def convert_vision(
    src: Path | str,
    dst: Path | str,
    *,
    outtype: str = "auto",
    n_threads: int = 0,
    progress: Progress | None = None,
) -> ConvertReport | None:
    """Converts only the vision tower of a checkpoint, as `convert`, to the file `dst`; None: it has no tower."""
    with vision_beside(src, dst, outtype=outtype, n_threads=n_threads, progress=progress) as report:
        return report


@contextmanager
def vision_beside(
    src: Path | str,
    dst: Path | str,
    *,
    outtype: str = "auto",
    n_threads: int = 0,
    progress: Progress | None = None,
) -> Iterator[ConvertReport | None]:
    """As `convert_vision`, for a tower whose text model is written within the context: the file appears at its end,
    unless that fails."""
    began = time.perf_counter()
    if not has_tower(src):
        yield None
        return
    tower = prepare_tower(src, file_type=outtype)
    writer = tower.writer(Path(dst))
    _refuse_sources(writer.paths[0], tower, None)
    with writer:
        total = sum(tensor.nbytes for tensor in tower.plan.tensors)
        _write(writer, tower, n_threads or cpus(), _Counted(progress, total))
        yield _report(Path(src), tower, writer, time.perf_counter() - began)


def _both(
    src: Path | str, vision: bool, *, file_type: str, **how: Any
) -> tuple[PreparedConversion, PreparedConversion | None]:
    """The conversions of the text model and of the vision tower. Only the first has a vocabulary."""
    if not vision or not has_tower(src):
        return prepare(src, file_type=file_type, **how), None
    tower = prepare_tower(src, file_type=file_type, metadata=how["metadata"], model_name=how["model_name"])
    outside = tower.family.leaves_out
    return prepare(src, file_type=file_type, elsewhere=lambda name: not outside(name), **how), tower


def beside(text: ConvertPlan, tower: ConvertPlan, output: Path | None) -> Path:
    """The name of the file of a tower: mmproj-NAME-TYPE.gguf, or mmproj- and the name of the text model's file."""
    if output is not None:
        return Path(vision_path(output).name)
    stem = text.output.stem.removesuffix(f"-{text.file_type.name}")
    return Path(f"{PREFIX}{stem}-{tower.file_type.name}.gguf")


def _report(source: Path, prepared: PreparedConversion, writer: SplitWriter, seconds: float) -> ConvertReport:
    planned = prepared.plan
    return ConvertReport(
        source=source,
        output=writer.paths[0],
        architecture=planned.architecture,
        file_type=planned.file_type,
        n_tensors=len(planned.tensors),
        n_params=planned.n_params,
        nbytes=writer.nbytes,
        n_files=len(writer.paths),
        seconds=seconds,
        notes=planned.notes,
    )


class _Counted:
    """Progress over several files: calls progress(tensor, done, total)."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress = progress
        self.total = total
        self.done = 0

    def __call__(self, name: str, nbytes: int) -> None:
        self.done += nbytes
        if self.progress:
            self.progress(name, self.done, self.total)


def _write(writer: SplitWriter, prepared: PreparedConversion, n_threads: int, counted: _Counted) -> None:
    def parts_counted(parts: Iterator[np.ndarray], name: str) -> Iterator[np.ndarray]:
        for part in parts:
            yield part
            counted(name, part.nbytes)

    with closing(in_order(prepared.jobs, n_threads)) as stream:
        for job, parts in stream:
            writer.write(job.planned.name, parts_counted(parts, job.planned.name))


def _refuse_sources(output: Path, prepared: PreparedConversion, tokenizer: Path | None) -> None:
    if not output.exists():
        return
    sources = {tensor.file.path for job in prepared.jobs for tensor in job.stored}
    for source in [*sources, *([tokenizer] if tokenizer else [])]:
        if output.samefile(source):
            raise UsageError(f"{shown(output)} is read by this conversion. Give another output path.")
