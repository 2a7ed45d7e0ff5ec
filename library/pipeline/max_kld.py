"""`hybrid quantize --max-kld`: the smallest file within a KL divergence from the original's predictions."""

import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
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

CHUNKS = 24  # of N_CTX tokens, on which a file is measured
SEQUENCES = 4  # evaluated at a time
ROUNDS = 7
CLOSE = 0.95  # of the limit: near enough to stop the search


@dataclass(frozen=True)
class TypeChoice:
    """Types for all matrices, the size of a file with them, and its mean KL divergence in nats per token."""

    file_type: FileType
    options: Options
    kld: MeanWithError
    nbytes: int
    bits_per_weight: float


class OutOfReachError(UsageError):
    """Even the largest types exceed the allowed divergence."""


def choose(
    path: Path,
    text: str,
    most: float,
    how: Measuring,
    *,
    tried: Callable[[TypeChoice], None] | None = None,
    folder: Path | None = None,
) -> TypeChoice:
    """The smallest file found with at most `most` nats on the first CHUNKS chunks of the text.

    The divergences of single quantized matrices, added up, predict which types to try. Each trial is written and
    measured as `hybrid perplexity --kl-divergence` does, and corrects the prediction. path: a GGUF file. tried: called
    with every trial. folder: for the trials, which are removed; None: the temporary folder. OutOfReachError: `most` is
    too small.
    """
    with ExitStack() as stack:
        trials = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".hybrid-", dir=folder)))
        known = measured(path, text, how)

        def loaded(file: Path) -> AbstractContextManager[Measurable]:
            if how.elsewhere is not None:
                return how.elsewhere.model(file, N_CTX, SEQUENCES)
            load = partial(models.load_file, file, reporter=how.reporter)
            return load(n_ctx=N_CTX, n_seq_max=SEQUENCES, n_threads=how.threads)

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
    aim, good, bad = (
        most,
        0.0,
        math.inf,
    )  # predicted divergences: next to try, known to be within the limit, known to exceed it
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
    """The original's predictions."""
    tokens = document_ids(model.tokenizer, text)
    check_length(len(tokens), N_CTX, 2 * N_CTX)
    name = shown(model.path.name)
    with reporter.stage("measuring the original", "chunks") as progress:
        write_base(model, file, tokens, N_CTX, chunks=CHUNKS, progress=lambda i, n, _: progress(name, i, n))
    return BaseFile(file)
