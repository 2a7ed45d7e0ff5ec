"""`hybrid.load`: a model by its file, its folder or its name."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.loading.options import KVTypeName, LoadOptions, NumaName, Precision
from hybrid.quant.ggml.byte_sizes import parse_size
from hybrid.quant.ggml.errors import UsageError, shown

from .advice import advised
from .display.screen import SCREEN
from .model import Model
from .pipeline import models

if TYPE_CHECKING:
    from hybrid.quant.ggml.adapter import Given

PARALLEL = 4
CACHE = "1GiB"


def load(  # noqa: PLR0913  what a caller may choose, one argument each
    model: str | os.PathLike[str] | None = None,
    *,
    context: int = 0,
    parallel: int = PARALLEL,
    threads: int = 0,
    keys_values: KVTypeName | None = None,
    precision: Precision = "fast",
    cache: int | str = CACHE,
    lora: "Iterable[Given]" = (),
    template: str | None = None,
    pooling: Literal["cls", "mean", "last"] | None = None,
    draft: str | os.PathLike[str] | None = None,
    cpus: Iterable[int] = (),
    numa: NumaName | None = None,
) -> Model:
    """A model, ready to answer. Close it, or use it in a `with`, to give its memory back.

    model        what the command line takes: a GGUF file, a Hugging Face folder (converted once), a name; None: the
                 small model that comes with the package
    context      tokens that a text and its answer may have together; 0: chosen by the model
    parallel     answers that are computed together; more wait for their turn
    threads      0: one for each of `cpus`, or where there are none one per physical core
    keys_values  how keys and values are kept: "f16", "q8_0" or "f32"; None: f16, with precision "exact" f32
    precision    "fast" rounds activations to 8 bits; "exact" does not
    cache        memory for what was read before, so that no text is read twice: bytes, or "2GiB"; 0: none
    lora         files of adapters, each alone or with its scale
    template     a chat template (Jinja) in the place of the model's own
    pooling      of embeddings; None: what the file says
    draft        a smaller model of the same vocabulary, which guesses tokens where that pays: the same answers, sooner
    cpus         processors that the threads are pinned to, by the system's numbers (Linux)
    numa         "interleave": what the model has in memory is spread over all nodes of memory (Linux)

    Raises HybridError: there is no such model, or it cannot be loaded.
    """
    with advised():
        if parallel < 1:
            raise UsageError(f"parallel = {parallel}, expected 1 or more answers at a time.")
        options = LoadOptions(
            n_ctx=context,
            n_seq_max=parallel + 1,  # one in which embeddings and saved chats are read beside the answers
            n_threads=threads,
            precision=precision,
            kv_type=keys_values,
            checkpoint_budget=parse_size(cache, "cache") if isinstance(cache, str) else cache,
            lora=tuple(lora),
            cpus=cpus,  # type: ignore[arg-type]  # any iterable; it is checked there
            numa=numa,
        )
        path = models.resolve(_named(model), SCREEN)
        chosen = _pooling(pooling)
        if models.is_encoder(path):
            from hybrid.infer.evaluate.embed import Embedder

            if draft is not None:
                raise UsageError(f"draft = {shown(draft)}: {path.name} makes embeddings, it draws no answers to guess.")
            with models.compiling(SCREEN) as progress:
                return Model(Embedder(path, options, pooling=chosen, progress=progress))
        loaded = models.load(path, options, draft=_named(draft), reporter=SCREEN)
        return Model(loaded, parallel=parallel, template=template, pooling=chosen)


def _named(model: str | os.PathLike[str] | None) -> Path | str | None:
    return model if model is None or isinstance(model, str) else Path(model)


def _pooling(name: str | None) -> Pooling | None:
    try:
        return None if name is None else Pooling(name)
    except ValueError:
        raise UsageError(f"pooling = {shown(repr(name))}, expected cls, mean or last.") from None
