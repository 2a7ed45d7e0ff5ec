"""Collecting an importance matrix: what every weight of the layers is multiplied by, over the chunks of a text.

The text is cut as llama-imatrix cuts it: tokenized once, with BOS in front if the model adds one, into chunks of n_ctx
tokens whose first is replaced by BOS if the model adds one; an incomplete last chunk is dropped. Each chunk is a
sequence of its own. As there, weights outside of the layers (embedding, output) have no importance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UsageError

from ..engine.engine import Collection
from ..sequence import Work, measured

if TYPE_CHECKING:
    from ..model import Model

Sums = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Progress:
    """`sums`: by weight, f64 [expert, column] and counts f64 [expert], of all chunks before number `done`."""

    done: int
    total: int
    sums: Sums


def collect(
    model: "Model", text: str, *, n_ctx: int = 512, chunks: int | None = None, first: int = 0
) -> Iterator[Progress]:
    """Evaluates chunks first, first + 1, ... as many together as the model has sequences, and yields after each group.

    chunks: how many of the text, with those before `first`; None: all. UsageError when there are too few, FormatError
    when an input is not a number.
    """
    tokens: list[int] = model.tokenizer.encode(text, add_special=False)
    bos: int | None = model.tokenizer.bos if model.tokenizer.add_bos else None
    if bos is not None:
        tokens = [bos, *tokens]
    total = len(tokens) // n_ctx
    if not total:
        raise UsageError(
            f"the text has {len(tokens)} tokens, less than a chunk of {n_ctx}. Give more, or less with -c."
        )
    total = min(total, chunks or total)
    if first >= total:
        raise UsageError(f"{first} of {total} chunks are done already. Give more text, or another output.")
    collection = Collection()
    remaining = iter(range(first, total))
    while group := list(islice(remaining, model.memory.n_seq_max)):
        # only here, not while the caller has the results of a group
        with measured(model, len(group)) as seqs, model.engine.collecting(collection):
            works = []
            for seq, i in zip(seqs, group, strict=True):
                ids = tokens[i * n_ctx : (i + 1) * n_ctx]
                works.append(Work(seq, ids if bos is None else [bos, *ids[1:]], output="none"))
            model.eval(works)
        taken = collection.sums.take()
        for name, (squares, _) in taken.items():
            if not np.isfinite(squares).all():
                raise FormatError(
                    f"{model.path.name}: what {name} is multiplied by is not finite in chunk {group[-1] + 1}. "
                    "Convert or copy it again."
                )
        yield Progress(group[-1] + 1, total, {n: s for n, s in taken.items() if n.startswith("blk.")})
