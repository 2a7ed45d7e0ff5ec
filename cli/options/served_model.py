"""Options of `hybrid serve`: loading the model, and defaults for requests."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from .framing import TemplateChoice
from .loading_options import (
    DEFAULT_BUDGET,
    CheckpointBudget,
    Checkpoints,
    Context,
    Lora,
    Precision,
    ThreadOptions,
    load_options,
)
from .tool_options import Thoughts, asking

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.dialect import ChatOptions
    from hybrid.infer.loading.options import LoadOptions


@dataclass(frozen=True, eq=False, repr=False)
class ServedAnswers:
    """Defaults for answers."""

    n_predict: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-predict",
            min=-1,
            help="Default limit on tokens when the request sets none; -1: until the context is full.",
        ),
    ] = None
    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift",
            help="When the context is full, drop its older half from the attention layers and continue.",
        ),
    ] = False
    spm_infill: Annotated[
        bool, typer.Option("--spm-infill", help="Where an answer fills a gap, the model reads the text after it first.")
    ] = False
    chat_template: TemplateChoice = None
    thoughts: Thoughts = field(default_factory=Thoughts)

    def asked(self) -> "ChatOptions":
        """The options for thoughts. UsageError: they contradict each other."""
        return asking(self.thoughts).over()


@dataclass(frozen=True, eq=False, repr=False)
class ServedLoading:
    """Options for loading the model."""

    n_ctx: Context = 0
    checkpoint_budget: CheckpointBudget = DEFAULT_BUDGET
    precision: Precision = field(default_factory=Precision)
    lora: Lora = None
    machine: ThreadOptions = field(default_factory=ThreadOptions)

    def options(self) -> "LoadOptions":
        """The options as `LoadOptions`. UsageError names the wrong option."""
        kept = Checkpoints(self.checkpoint_budget)
        return load_options(self.machine, self.precision, kept, n_ctx=self.n_ctx, lora=self.lora)
