"""Collecting an importance matrix: what every weight of the layers is multiplied by, over the chunks of a text.

The text is cut as llama-imatrix cuts it: tokenized once, with BOS in front if the model adds one, into chunks of n_ctx
tokens whose first is replaced by BOS if the model adds one; an incomplete last chunk is dropped. Each chunk is a
separate sequence. As there, weights outside of the layers (embedding, output) have no importance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ..engine.engine import Collection
from ..runner import Work
from ..sequence import Sequence
from ..text.encode import document_ids
from .windows import Window, check_finite, check_length, chunked, in_groups

if TYPE_CHECKING:
    from ..model import Model

Sums = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class CollectedSums:
    """`sums`: by weight, squares summed up f64 [expert, column] and counts f64 [expert]; of all chunks before number
    `done` of `total` that this run evaluated."""

    done: int
    total: int
    sums: Sums


def collect(
    model: "Model", text: str, *, n_ctx: int = 512, chunks: int | None = None, first: int = 0
) -> Iterator[CollectedSums]:
    """Evaluates chunks first, first + 1, ... as many together as the model has sequences, and yields after each group.

    chunks: how many of the text, with those before `first`; None: all. UsageError when there are too few, FormatError
    when an input is not finite.
    """
    tokens = document_ids(model.tokenizer, text)
    check_length(len(tokens), n_ctx, n_ctx, len(tokens))
    total = len(tokens) // n_ctx
    total = min(total, chunks or total)
    if first >= total:
        raise UsageError(f"{first} of {total} chunks are done already. Give more text, or another output.")
    collection = Collection()

    def inputs(seq: Sequence, window: Window) -> Work:
        return Work(seq, window.ids, output="none")

    done = first
    windows = chunked(model.tokenizer, tokens, n_ctx, first, total)
    # nothing is collected of what the caller does with the model between groups
    for group in in_groups(model, windows, inputs, during=lambda: model.engine.collecting(collection)):
        done += len(group)
        sums = collection.sums.take()
        for name, (squares, _) in sums.items():
            check_finite(model, squares, f"the inputs of {name} up to chunk {done}")
        yield CollectedSums(done, total, {name: of for name, of in sums.items() if name.startswith("blk.")})
