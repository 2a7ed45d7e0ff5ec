"""How much each weight matters: the KL divergence of a model's predictions when that weight alone is changed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from .kl_divergence import check_finite, chunk_windows, compare, score_logits
from .perplexity import tokens_of

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True)
class Probe:
    """A change of the weights in the memory that the model reads, and how to take it back."""

    name: str
    apply: Callable[[], None]
    restore: Callable[[], None]


def divergences(
    model: "Model", text: str, probes: Iterable[Probe], *, n_ctx: int = 256, chunks: int = 4
) -> Iterator[tuple[str, float]]:
    """(name, mean KL divergence in nats) for each probe, on the first chunks of a text; see `perplexity` for chunks.

    UsageError when the text is too short, FormatError when the model's logits are no numbers.
    """
    tokens = tokens_of(model, text)[: n_ctx * chunks]
    if len(tokens) < n_ctx:
        raise UsageError(f"the text has {len(tokens)} tokens, less than a chunk of {n_ctx}. Give more.")
    tokens = tokens[: len(tokens) // n_ctx * n_ctx]
    windows = list(chunk_windows(model, tokens, n_ctx))
    targets = [np.array(w.ids[w.first + 1 :]) for w in windows]
    n_parallel = min(model.memory.n_seq_max, len(windows))
    with ThreadPoolExecutor(model.n_threads, thread_name_prefix="compare") as pool:
        base = []
        for i, logits in enumerate(score_logits(model, windows, n_parallel)):
            check_finite(model, logits, i)
            base.append(_ln_softmax(logits))
        for probe in probes:
            probe.apply()
            try:
                rows = pool.map(compare, score_logits(model, windows, n_parallel), base, targets)
                values = np.concatenate([part.kld for part in rows])
            finally:
                probe.restore()
            yield probe.name, float(values.mean())


def _ln_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return (wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))).astype(np.float32)
