"""How much each weight matters: the KL divergence of a model's predictions when only that weight is changed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..text.encode import document_ids
from .kl_divergence import compare
from .windows import check_length, chunked, log_softmax, score_logits

if TYPE_CHECKING:
    from ..model import LoadedModel


@dataclass(frozen=True)
class Probe:
    """A change of weights in the model's memory, and its inverse."""

    name: str
    apply: Callable[[], None]
    restore: Callable[[], None]


def divergences(
    model: "LoadedModel", text: str, probes: Iterable[Probe], *, n_ctx: int = 256, chunks: int = 4
) -> Iterator[tuple[str, float]]:
    """(name, mean KL divergence in nats) for each probe, on the first chunks of a text, cut as by `perplexity`.

    Raises UsageError when the text is too short, FormatError when the model's logits are not finite.
    """
    tokens = document_ids(model.tokenizer, text)
    check_length(len(tokens), n_ctx, n_ctx)
    windows = list(chunked(model.tokenizer, tokens, n_ctx, end=chunks))
    targets = [np.array(window.targets) for window in windows]
    with ThreadPoolExecutor(model.n_threads, thread_name_prefix="compare") as pool:
        # in f64, because differences from these are small
        base = [log_softmax(x.astype(np.float64)).astype(np.float32) for x in score_logits(model, windows)]
        for probe in probes:
            probe.apply()
            try:
                rows = pool.map(compare, score_logits(model, windows, changed=probe.name), base, targets)
                values = np.concatenate([part.kld for part in rows])
            finally:
                probe.restore()
            yield probe.name, float(values.mean())
