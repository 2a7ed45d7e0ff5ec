"""--stages: a model divided over the workers of --cluster, each with some of the layers."""

from dataclasses import dataclass
from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .cluster_options import Cluster
from .guess_options import GuessOptions, Spec
from .loading_options import Pinning

MOST = 4096  # a larger number is a typing error
AUTO = 0  # the value in infer/stages/staged_engine.py, which is imported only with --stages


def stages_of(text: str) -> int:
    """The value of --stages: N, or AUTO. Raises BadParameter for anything else."""
    if text == "auto":
        return AUTO
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST:
        raise typer.BadParameter(f"{shown(text)} is neither a number of stages from 1 to {MOST} nor auto.")
    return int(text)


@dataclass(frozen=True, eq=False, repr=False)
class WorkerOptions:
    """The workers that replace this process, and how a model is divided over them."""

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
        """UsageError: --stages without --cluster; --cluster without --stages in a command that does not `divide` its
        work; or --cpus or --numa with either."""
        if self.stages is not None and self.cluster is None:
            raise UsageError("--stages needs --cluster: workers that the layers are divided over.")
        if self.cluster is not None and self.stages is None and not divides:
            raise UsageError(
                "--cluster alone does not help here: add --stages N, which divides the layers of the model."
            )
        pinning.check(self.cluster)

    def check_guesses(self, guessing: GuessOptions) -> None:
        """UsageError: a draft model or --spec mtp together with --stages."""
        if self.stages is not None and guessing.draft is not None:
            raise UsageError("--draft guesses for a model in this process. Leave out --stages, or use --spec ngram.")
        if self.stages is not None and guessing.spec is Spec.MTP:
            raise UsageError("--spec mtp guesses for a model in this process. Leave out --stages, or use --spec ngram.")
