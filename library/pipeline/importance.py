"""Importance matrices: `infer` measures activations on a text, `quant` writes and reads the files."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hybrid.infer.evaluate.imatrix import Sums, collect
from hybrid.quant import Imatrix, InputSums, Progress
from hybrid.quant.ggml.errors import Remedy, UsageError, shown

if TYPE_CHECKING:
    from hybrid.infer.evaluate.parts import Measurable


def imatrix_of(sums: Sums, dataset: str = "", n_chunks: int = 0, n_ctx: int = 0) -> Imatrix:
    """The sums in the form that is written to files: f32."""
    entries = {name: InputSums(s.astype(np.float32), c.astype(np.float32)) for name, (s, c) in sums.items()}
    return Imatrix(entries, [dataset] if dataset else [], n_chunks, n_ctx)


def check_continues(before: Imatrix, dataset: str, n_ctx: int) -> None:
    """UsageError unless the measurement `before` can be continued: it needs the same text in chunks of n_ctx tokens."""
    if before.datasets != [dataset] or before.chunk_size != n_ctx:
        name = shown(before.path) if before.path else "the importance matrix"
        raise UsageError(
            f"{name} was made from {', '.join(map(shown, before.datasets))} in chunks of {before.chunk_size} tokens: "
            "only that text and chunk size can be added to it.",
            remedy=Remedy.SAME_TEXT,
        )


def collected(
    model: "Measurable",
    text: str,
    dataset: str,
    n_ctx: int,
    *,
    before: Imatrix,
    chunks: int | None = None,
    save_every: int = 0,
    save: Callable[[Imatrix], None] | None = None,
    progress: Progress | None = None,
) -> Imatrix:
    """Continue `before`, which was measured on the first chunks of the text, with the chunks after them.

    dataset: name of the text in the file. chunks: number of chunks, including the chunks of `before`; None: all. save:
    called with the matrix so far after every `save_every` chunks (0: every chunk), except at the end. progress(label,
    done, total) in chunks. UsageError: `before` belongs to another model, or the text has too few chunks; FormatError:
    an activation is not a number.
    """
    before.check({name: t.shape for name, t in model.gguf.tensors.items()})
    whole, saved = before, before.chunk_count
    for state in collect(model, text, n_ctx=n_ctx, chunks=chunks, first=before.chunk_count):
        whole = Imatrix()
        whole.merge(before)
        whole.merge(imatrix_of(state.sums, dataset, state.done - before.chunk_count, n_ctx))
        if progress:
            progress("measuring", state.done, state.total)
        if save and state.done - saved >= save_every and state.done < state.total:
            save(whole)
            saved = state.done
    return whole
