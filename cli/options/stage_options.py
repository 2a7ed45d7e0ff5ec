"""--stages: a model divided over the workers of --cluster, each with some of its layers."""

from dataclasses import dataclass
from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .cluster_options import Cluster
from .guess_options import GuessOptions, Spec
from .loading_options import Pinning

MOST = 4096  # beyond, a slip
AUTO = 0  # as infer/stages/staged_engine.py has it, which is imported when there are stages


def stages_of(text: str) -> int:
    """N, or AUTO. BadParameter says what it is not."""
    if text == "auto":
        return AUTO
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST:
        raise typer.BadParameter(f"{shown(text)} is neither a number of stages from 1 to {MOST} nor auto.")
    return int(text)


@dataclass(frozen=True, eq=False, repr=False)
class WorkerOptions:
    """Who works instead of this process, and what each has of the model."""

    cluster: Cluster = None
    stages: Annotated[
        int | None,
        typer.Option(
            parser=stages_of,
            metavar="N",
            help="With --cluster: divide one model over N workers, each with some of its layers, for models too "
            "large for one machine; auto: as few workers as memory allows.",
        ),
    ] = None

    def check(self, pinning: Pinning, *, divides: bool = False) -> None:
        """UsageError: --stages without workers, or, unless the command `divides` its work, workers without it; or what
        is `pinning` here."""
        if self.stages is not None and self.cluster is None:
            raise UsageError("--stages needs --cluster: workers that the layers are divided over.")
        if self.cluster is not None and self.stages is None and not divides:
            raise UsageError(
                "--cluster alone does not help here: add --stages N, which divides the layers of the model."
            )
        pinning.check(self.cluster)

    def check_guesses(self, guessing: GuessOptions) -> None:
        """UsageError: who guesses has to be beside the model."""
        if self.stages is not None and guessing.draft is not None:
            raise UsageError("--draft guesses for a model in this process. Leave out --stages, or use --spec ngram.")
        if self.stages is not None and guessing.spec is Spec.MTP:
            raise UsageError("--spec mtp guesses for a model in this process. Leave out --stages, or use --spec ngram.")
