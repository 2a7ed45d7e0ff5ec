"""Load a model in stages."""

import time
from collections.abc import Callable
from pathlib import Path

from hybrid.quant.ggml.reader import GGUFFile

from ..loading.model_file import ModelFile
from ..loading.options import LoadOptions
from ..model import LoadedModel, open_files
from .line import Line
from .staged_cache import StagedCache
from .staged_engine import StagedEngine
from .staged_runner import StagedRunner


def load_staged(
    path: Path | str,
    options: LoadOptions,
    n_stages: int,
    line_for: Callable[[GGUFFile], Line],
    said: Callable[[str], None] = lambda line: None,
) -> LoadedModel:
    """`LoadedModel.load` in n_stages stages (or AUTO), on the line that `line_for` returns.

    said: gets a message when a stage was lost, or is larger than the free memory of its machine.
    Raises UsageError also if the model cannot be cut into n_stages.
    """
    start = time.perf_counter()
    gguf, adapters = open_files(path, options)
    line = line_for(gguf)
    try:
        engine = StagedEngine(gguf, line, n_stages, options, adapters)
    except BaseException:
        line.close()
        raise
    for text in engine.tight:
        said(text)
    budget = options.checkpoint_budget
    cache = StagedCache(engine.memory, budget, engine.foreman) if budget else None
    file = ModelFile(gguf, engine.hparams, engine.n_ctx, engine.n_vocab, adapters)
    model = LoadedModel(StagedRunner(engine, file, cache, said), options.precision)
    model.load_seconds = time.perf_counter() - start
    return model
