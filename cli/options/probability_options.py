"""Options for token probabilities, and the table that shows them."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from .. import console
from .sampling_options import PANEL

if TYPE_CHECKING:
    from hybrid.infer.answers.drawing.drawing import TextPiece
    from hybrid.infer.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False, repr=False)
class Probabilities:
    """Which probabilities are reported."""

    n_probs: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Report the probability of each token and of the N most likely tokens in its place: in --json and "
            "answer files as llama-server does, else in a table on stderr; 0: off.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = 0
    post_sampling_probs: Annotated[
        bool,
        typer.Option(
            "--post-sampling-probs",
            help="With --n-probs: report probabilities after the samplers, not the model's own.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self, *, in_chat: bool) -> None:
        """UsageError: the options contradict each other, or are given in a chat, which shows no probabilities."""
        if self.post_sampling_probs and not self.n_probs:
            raise UsageError("--post-sampling-probs needs --n-probs N: it says which probabilities are reported.")
        if self.n_probs and in_chat:
            raise UsageError("a chat shows no probabilities. Give --n-probs with a prompt (-p or -f).")

    def check_raw(self) -> None:
        """UsageError: the options are given for a message in a chat template, which shows no probabilities."""
        if self.n_probs:
            raise UsageError("--n-probs reports the tokens of a raw text: add --raw, or ask the server for logprobs.")


def table(tokenizer: "Tokenizer", pieces: "Iterable[TextPiece]") -> str:
    """One line per sampled token, with the most likely tokens in its place."""

    def text(token: int) -> str:
        return json.dumps(tokenizer.piece(token).decode("utf-8", "replace"), ensure_ascii=False)

    def share(ln_p: float) -> str:
        return f"{100 * math.exp(ln_p):.3g} %"

    rows = [
        (
            text(piece.id),
            share(piece.logprobs.logprob),
            "  ".join(f"{text(i)} {share(p)}" for i, p in piece.logprobs.top),
        )
        for piece in pieces
        if piece.id is not None and piece.logprobs is not None
    ]
    return console.table(("token", "sampled", "most likely"), rows, right="lr")
