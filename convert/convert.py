"""Conversion of a Hugging Face checkpoint to a GGUF file."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.cpus import cpus
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.ggml.split import SplitWriter
from hybrid.quant.ggml.types import FileType

from .plan import PreparedConversion, prepare
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

    def __str__(self) -> str:
        rate = size_text(self.nbytes / max(self.seconds, 1e-9))
        files = f" in {self.n_files} files" if self.n_files > 1 else ""
        lines = [
            f"{self.output}: {self.architecture}, {self.file_type.name}, {self.n_tensors} tensors, "
            f"{self.n_params / 1e6:,.2f} M weights, {size_text(self.nbytes)}{files} in {self.seconds:.1f} s ({rate}/s)"
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan(
    src: Path | str,
    *,
    outtype: str = "auto",
    tokenizer: Path | None = None,
    vocab_only: bool = False,
    metadata: Path | None = None,
    model_name: str | None = None,
    heads: bool = True,
) -> ConvertPlan:
    """The plan of a conversion, after all checks but the check of the weights' values."""
    return prepare(
        src,
        file_type=outtype,
        tokenizer=tokenizer,
        vocab_only=vocab_only,
        metadata=metadata,
        model_name=model_name,
        heads=heads,
    ).plan


def convert(
    src: Path | str,
    dst: Path | str | None = None,
    *,
    outtype: str = "auto",
    tokenizer: Path | None = None,
    vocab_only: bool = False,
    metadata: Path | None = None,
    model_name: str | None = None,
    heads: bool = True,
    split_max_size: int = 0,
    n_threads: int = 0,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> ConvertReport:
    """Converts a checkpoint (its folder, config.json or weight file) to the GGUF file `dst`.

    dst: a file; a folder, for a file with the default name; None: the current folder. The file appears only when
    complete.

    outtype: auto, f32, f16, bf16, q8_0, or nvfp4: auto of a checkpoint with NVFP4. tokenizer: folder or GGUF file to
    take the vocabulary from. metadata: JSON file of general.* keys that replace the checkpoint's. split_max_size:
    maximum bytes of tensors per file; a larger model becomes NAME-00001-of-00003.gguf, ...; 0: one file. n_threads = 0:
    all cores. heads: include the model's heads that guess tokens, if it has any. progress(tensor, done, total) in bytes
    of written tensors. spread: the workers that convert the parts, or None for this process.

    Raises CheckpointError, TokenizerError, UnsupportedError, UsageError, HybridError (writing failed).
    """
    began = time.perf_counter()
    if n_threads < 0:
        raise UsageError(f"n_threads = {n_threads}: expected a positive number, or 0 for all cores.")
    prepared = prepare(
        src,
        file_type=outtype,
        tokenizer=tokenizer,
        vocab_only=vocab_only,
        metadata=metadata,
        model_name=model_name,
        heads=heads,
    )
    planned = prepared.plan
    output = planned.output if dst is None else Path(dst)
    if output.is_dir():
        output = output / planned.output.name
    writer = prepared.writer(output, split_max_size)
    for path in writer.paths:
        _refuse_sources(path, prepared, tokenizer)
    with writer:
        if spread is None:
            _write(writer, prepared, n_threads or cpus(), progress)
        else:
            parts = list(parts_of(prepared, writer.lay_out()))
            check(parts, spread(parts), progress)
    return ConvertReport(
        source=Path(src),
        output=writer.paths[0],
        architecture=planned.architecture,
        file_type=planned.file_type,
        n_tensors=len(planned.tensors),
        n_params=planned.n_params,
        nbytes=writer.nbytes,
        n_files=len(writer.paths),
        seconds=time.perf_counter() - began,
        notes=planned.notes,
    )


def _write(writer: SplitWriter, prepared: PreparedConversion, n_threads: int, progress: Progress | None) -> None:
    total = sum(tensor.nbytes for tensor in prepared.plan.tensors)
    done = 0

    def counted(parts: Iterator[np.ndarray], name: str) -> Iterator[np.ndarray]:
        nonlocal done
        for part in parts:
            yield part
            done += part.nbytes
            if progress:
                progress(name, done, total)

    with closing(in_order(prepared.jobs, n_threads)) as stream:
        for job, parts in stream:
            writer.write(job.planned.name, counted(parts, job.planned.name))


def _refuse_sources(output: Path, prepared: PreparedConversion, tokenizer: Path | None) -> None:
    if not output.exists():
        return
    sources = {tensor.file.path for job in prepared.jobs for tensor in job.stored}
    for source in [*sources, *([tokenizer] if tokenizer else [])]:
        if output.samefile(source):
            raise UsageError(f"{shown(output)} is read by this conversion. Give another output path.")
