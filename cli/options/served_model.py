"""Options of `hybrid serve`: loading the model, and defaults for requests."""

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .framing import TemplateChoice
from .loading_options import (
    DEFAULT_BUDGET,
    CheckpointBudget,
    Checkpoints,
    Context,
    Precision,
    ThreadOptions,
    load_options,
    parse_lora,
)
from .tool_options import Thoughts, asking

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.dialect import ChatOptions
    from hybrid.infer.loading.options import LoadOptions

    from ..serve.adapters import AdapterName

NAME = re.compile(r"[\w./-]+")  # of an adapter


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
    lora: Annotated[
        list[str] | None,
        typer.Option(
            "--lora",
            metavar="[NAME=]FILE[:SCALE]",
            help="LoRA adapter (GGUF), with its scale. Default scale: 1. With NAME, requests choose it; without, it is "
            "also applied to requests that choose none. May be repeated.",
        ),
    ] = None
    lora_init_without_apply: Annotated[
        bool, typer.Option("--lora-init-without-apply", help="Apply no adapter to requests that choose none.")
    ] = False
    machine: ThreadOptions = field(default_factory=ThreadOptions)

    def options(self) -> "LoadOptions":
        """The options as `LoadOptions`. UsageError names the wrong option."""
        kept = Checkpoints(self.checkpoint_budget)
        files = [text for _, text in map(named_file, self.lora or ())]
        return replace(
            load_options(self.machine, self.precision, kept, n_ctx=self.n_ctx, lora=files), activated=bool(files)
        )

    def adapters(self) -> "list[AdapterName]":
        """What requests call the adapters, and their scales."""
        from ..serve.adapters import AdapterName

        names = []
        for name, text in map(named_file, self.lora or ()):
            applied = name is None and not self.lora_init_without_apply
            names.append(AdapterName(name or "", parse_lora(text)[1], applied))
        return names


def named_file(text: str) -> tuple[str | None, str]:
    """Splits NAME=FILE into name and file; FILE alone has the name None. A file of that name is a file."""
    name, equals, file = text.partition("=")
    if not equals or parse_lora(text)[0].exists():
        return None, text
    if not NAME.fullmatch(name):
        raise UsageError(f"--lora {shown(text)}: a name has letters, digits and . _ / - alone.")
    return name, file
