"""Collects an importance matrix: sums of squares of the inputs of every weight of the layers, over chunks of a text.

The text is cut as by llama-imatrix: tokenized once, with BOS in front if the model adds one, into chunks of n_ctx
tokens whose first is replaced by BOS if the model adds one; an incomplete last chunk is dropped. Each chunk is a
separate sequence. As in llama-imatrix, weights outside of the layers (embedding, output) have no importance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ..engine.collection import Collection
from ..runner import Work
from ..sequence import Sequence
from ..text.encode import document_ids
from .parts import Measurable, SpreadModel, each
from .windows import Window, WindowGroup, check_finite, check_length, chunked, evaluated, grouped

if TYPE_CHECKING:
    from ..model import LoadedModel

Sums = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class CollectedSums:
    """Sums over the chunks of this run before number `done` of `total`.

    sums: by weight, the sums of squares, f64 [expert, column], and the counts, f64 [expert].
    """

    done: int
    total: int
    sums: Sums


def collect(
    model: Measurable, text: str, *, n_ctx: int = 512, chunks: int | None = None, first: int = 0
) -> Iterator[CollectedSums]:
    """Evaluate chunks first, first + 1, ..., as many together as the model has sequences; yields after each group.

    chunks: how many of the text, including those before `first`; None: all. Raises UsageError when there are too few,
    FormatError when an input is not finite.
    """
    tokens = document_ids(model.tokenizer, text)
    check_length(len(tokens), n_ctx, n_ctx, len(tokens))
    total = len(tokens) // n_ctx
    total = min(total, chunks or total)
    if first >= total:
        raise UsageError(f"{first} of {total} chunks are done already. Give more text, or another output.")
    done = first
    whole: Sums = {}
    groups = grouped(chunked(model.tokenizer, tokens, n_ctx, first, total), model.n_seq_max, first)
    try:
        for n, sums in each(model, group_inputs, groups):
            done += n
            for name, (squares, counts) in sums.items():
                old = whole.get(name, (0.0, 0.0))
                whole[name] = old[0] + squares.astype(np.float64), old[1] + counts.astype(np.float64)
            for name, (squares, _) in whole.items():
                check_finite(model, squares, f"the inputs of {name} up to chunk {done}")
            yield CollectedSums(done, total, {name: of for name, of in whole.items() if name.startswith("blk.")})
    finally:
        if not isinstance(model, SpreadModel):
            model.engine.collection = None


def group_inputs(model: "LoadedModel", group: WindowGroup) -> tuple[int, Sums]:
    """Evaluate a group; returns the number of windows, and by weight the sums of squares of its inputs, f32 [expert,
    column], with counts f32 [expert]."""

    def inputs(seq: Sequence, window: Window) -> Work:
        return Work(seq, window.ids, output="none")

    # the collection and its programs are kept from one group to the next
    collection = model.engine.collection = model.engine.collection or Collection()
    collection.sums.clear()
    evaluated(model, group, inputs, during=lambda: model.engine.collecting(collection))
    return len(group.windows), collection.sums.take()
