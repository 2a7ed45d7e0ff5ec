"""`hybrid quantize --max-kld`: the smallest file whose predictions stay within a KL divergence of the original's."""

import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from hybrid.infer.evaluate.kl_divergence import BaseFile, kl_divergence, write_base
from hybrid.infer.evaluate.kl_statistics import MeanWithError
from hybrid.infer.evaluate.parts import Measurable
from hybrid.infer.evaluate.windows import check_length
from hybrid.infer.text.encode import document_ids
from hybrid.quant import Options, quantize, target
from hybrid.quant.budget import Measured
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.types import FileType, GGMLType

from ..reporting import Reporter
from . import models
from .target import N_CTX, Measuring, measured

CHUNKS = 24  # of N_CTX tokens that a file is measured on
SEQUENCES = 4  # at a time
ROUNDS = 7
CLOSE = 0.95  # of what is allowed: no further search


@dataclass(frozen=True)
class TypeChoice:
    """Types for all matrices, and of a file of them the size and the mean KL divergence in nats per token."""

    file_type: FileType
    options: Options
    kld: MeanWithError
    nbytes: int
    bits_per_weight: float


class OutOfReachError(UsageError):
    """Not even the largest types stay within what is allowed."""


def choose(
    path: Path,
    text: str,
    most: float,
    how: Measuring,
    *,
    tried: Callable[[TypeChoice], None] | None = None,
    folder: Path | None = None,
) -> TypeChoice:
    """The smallest that was found with at most `most` nats on the first CHUNKS chunks of the text.

    What single matrices do to the predictions, added up, says which types to try; every trial is written and measured
    as `hybrid perplexity --kl-divergence` does, and what it shows corrects the next. path: a GGUF file. tried: told of
    every trial. folder: where trials are written, and nothing of them is left; None: among temporary files.
    OutOfReachError: `most` is too little.
    """
    with ExitStack() as stack:
        trials = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".hybrid-", dir=folder)))
        known = measured(path, text, how)

        def loaded(file: Path) -> AbstractContextManager[Measurable]:
            if how.elsewhere is not None:
                return how.elsewhere.model(file, N_CTX, SEQUENCES)
            return models.load(file, reporter=how.reporter, n_ctx=N_CTX, n_seq_max=SEQUENCES, n_threads=how.threads)

        with loaded(path) as original:
            base = _base(original, text, trials / "base.kld", how.reporter)

        def trial(types: Mapping[str, GGMLType]) -> TypeChoice:
            """A file of these types, written over the one before and measured on `base`."""
            chosen = replace(how.options, by_name=types)
            kind = target.file_type_of(types, known.choices)
            file = trials / "trial.gguf"
            report = quantize(
                path,
                file,
                kind,
                n_threads=how.threads,
                options=chosen,
                imatrix=how.imatrix,
                allow_requantize=how.allow_requantize,
                effort=how.effort,
                spread=how.elsewhere.spread() if how.elsewhere is not None else None,
            )
            with loaded(file) as model:
                kld = kl_divergence(model, base).kld
            choice = TypeChoice(kind, chosen, kld, report.nbytes, report.bits_per_weight)
            if tried:
                tried(choice)
            return choice

        return _search(known, most, trial)


def _search(known: Measured, most: float, trial: Callable[[Mapping[str, GGMLType]], TypeChoice]) -> TypeChoice:
    best: TypeChoice | None = None
    tried: list[Mapping[str, GGMLType]] = []
    aim, good, bad = most, 0.0, math.inf  # sums of what single matrices do: to try, known to be within, to be over
    for _ in range(ROUNDS):
        types = target.within(known.choices, known.sensitivity, aim)
        if types in tried:
            break
        tried.append(types)
        trial_file = trial(types)
        sum_of_types = target.divergence(known.choices, known.sensitivity, types)
        if trial_file.kld.value <= most:
            best = trial_file if best is None or trial_file.nbytes < best.nbytes else best
            good = max(good, sum_of_types)
            if trial_file.kld.value >= CLOSE * most:
                break
        else:
            bad = min(bad, sum_of_types)
        aim = sum_of_types * (1 + CLOSE) / 2 * most / max(trial_file.kld.value, 1e-12)
        if not good < aim < bad:
            aim = math.sqrt(good * bad) if good and math.isfinite(bad) else bad / 2 if math.isfinite(bad) else 2 * good
    if best is None:
        best = trial(target.within(known.choices, known.sensitivity, 0.0))
        if best.kld.value > most:
            raise OutOfReachError(
                f"the largest types to choose from give {best.kld.value:.5f}. Allow more, or take F16 or BF16."
            )
    return best


def _base(model: Measurable, text: str, file: Path, reporter: Reporter) -> BaseFile:
    """What the original predicts."""
    tokens = document_ids(model.tokenizer, text)
    check_length(len(tokens), N_CTX, 2 * N_CTX)
    name = shown(model.path.name)
    with reporter.stage("measuring the original", "chunks") as progress:
        write_base(model, file, tokens, N_CTX, chunks=CHUNKS, progress=lambda i, n, _: progress(name, i, n))
    return BaseFile(file)
