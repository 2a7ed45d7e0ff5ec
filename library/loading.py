"""`hybrid.load`: loads a model by file, folder or name."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.loading.options import LoadOptions, NumaName, Precision
from hybrid.quant.ggml.byte_sizes import parse_size
from hybrid.quant.ggml.errors import UsageError, shown

from .advice import advised
from .display.screen import SCREEN
from .model import Model
from .pipeline import models

if TYPE_CHECKING:
    from hybrid.quant.ggml.adapter import Given

    Named = str | os.PathLike[str] | Given  # a file, alone or with its scale

PARALLEL = 4
CACHE = "1GiB"


def load(  # noqa: PLR0913  what a caller may choose, one argument each
    model: str | os.PathLike[str] | None = None,
    *,
    context: int = 0,
    parallel: int = PARALLEL,
    threads: int = 0,
    keys_values: str | None = None,
    precision: Precision = "fast",
    cache: int | str = CACHE,
    lora: "Iterable[Given] | Mapping[str, Named]" = (),
    template: str | None = None,
    pooling: Literal["cls", "mean", "last"] | None = None,
    draft: str | os.PathLike[str] | None = None,
    cpus: Iterable[int] = (),
    numa: NumaName | None = None,
    mmproj: str | os.PathLike[str] | Literal[False] | None = None,
) -> Model:
    """Loads a model. Close it, or use it in a `with`, to free its memory.

    model        as on the command line: a GGUF file, a Hugging Face folder (converted once), or a name; None: the small
                 model that comes with the package
    context      tokens of a text and its answer together; 0: as the model was trained, or less if memory is short
    parallel     answers that are computed together; others wait
    threads      0: one per entry of `cpus`, or without `cpus` one per physical core
    keys_values  type of the KV cache: "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "iq4_nl" or "q4_0", or
                 two as in "q8_0/q4_0" for keys and values apart; None: f16, or f32 with precision "exact"
    precision    "fast" rounds activations to 8 bits; "exact" does not
    cache        memory for the prompt cache, so that no text is read twice: bytes, or "2GiB"; 0: none
    lora         adapter files, each alone or with its scale; or {name: file} for adapters that answers choose by their
                 setting `lora`
    template     chat template (Jinja) to use instead of the model's
    pooling      of embeddings; None: as the file says
    draft        smaller model with the same vocabulary that guesses tokens: the same answers, sooner
    cpus         processors to pin threads to, by the system's numbers (Linux)
    numa         "interleave": spread the model over all NUMA nodes (Linux)
    mmproj       file with the vision tower, which reads pictures; None: the one beside the model's file, if there is
                 one; False: none

    Raises HybridError: there is no such model, or it cannot be loaded.
    """
    with advised():
        named = isinstance(lora, Mapping)
        files: tuple[Any, ...] = tuple(lora.values() if isinstance(lora, Mapping) else lora)
        if parallel < 1:
            raise UsageError(f"parallel = {parallel}, expected 1 or more answers at a time.")
        options = LoadOptions(
            n_ctx=context,
            n_seq_max=parallel + 1,  # one more for reading embeddings and saved chats
            n_threads=threads,
            precision=precision,
            kv_type=keys_values,
            checkpoint_budget=parse_size(cache, "cache") if isinstance(cache, str) else cache,
            lora=files,
            activated=named,
            cpus=cpus,  # type: ignore[arg-type]  # any iterable; it is checked there
            numa=numa,
        )
        path = models.resolve(_named(model), SCREEN)
        chosen = _pooling(pooling)
        if models.is_encoder(path):
            from hybrid.infer.evaluate.embed import Embedder

            if draft is not None:
                raise UsageError(
                    f"draft = {shown(draft)}: {path.name} is an encoder: it cannot guess tokens of answers."
                )
            with models.compiling(SCREEN) as progress:
                return Model(Embedder(path, options, pooling=chosen, progress=progress))
        loaded = models.load(path, options, draft=_named(draft), reporter=SCREEN)
        own = Path(mmproj) if isinstance(mmproj, str | os.PathLike) else mmproj
        names = [*lora] if isinstance(lora, Mapping) else None
        if named:
            loaded.runner.apply({})
        try:
            return Model(loaded, parallel=parallel, template=template, pooling=chosen, mmproj=own, adapters=names)
        except BaseException:
            loaded.close()
            raise


def _named(model: str | os.PathLike[str] | None) -> Path | str | None:
    return model if model is None or isinstance(model, str) else Path(model)


def _pooling(name: str | None) -> Pooling | None:
    try:
        return None if name is None else Pooling(name)
    except ValueError:
        raise UsageError(f"pooling = {shown(repr(name))}, expected cls, mean or last.") from None
