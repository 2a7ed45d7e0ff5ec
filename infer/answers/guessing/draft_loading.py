"""Loads a draft model from its file: checks that it fits the model that it guesses for, and computes its memory."""

from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.split import open_gguf

from ...model import LoadedModel
from .draft import SEQUENCES, Draft
from .same_vocabulary import check_same_vocabulary

if TYPE_CHECKING:
    from hybrid.quant.ggml.reader import GGUFFile

    from ...kernels.build.jit import CompileProgress

MOST_CONTEXT = 8192  # tokens; of a longer text a draft reads the last half as many, see draft_lane.py


def load_draft(path: Path, main: LoadedModel, n_texts: int = 1, progress: "CompileProgress | None" = None) -> Draft:
    """Loads the model at `path`, which guesses for `main` from now on, up to n_texts texts at a time, and is closed
    with it.

    It computes in `main`'s threads, with rounded activations and f16 keys whatever `main` uses: its guesses are
    verified. Raises UsageError if it has another vocabulary, or `main` already has a draft or uses its head.
    """
    from ...text.tokenizer import load_tokenizer

    if main.runner.guessers.helper is not None:
        raise UsageError(f"{main.path.name} already has a draft or uses its head. Load the model again for another.")
    gguf = open_gguf(path)
    try:
        check_same_vocabulary(load_tokenizer(gguf), path.name, main.tokenizer, main.path.name)
        n_ctx = min(main.n_ctx, _context(gguf))
    finally:
        gguf.close()
    model = LoadedModel.load(
        path,
        n_ctx=n_ctx,
        n_seq_max=SEQUENCES * n_texts,
        n_ubatch=main.n_ubatch,
        n_threads=main.n_threads,
        progress=progress,
    )
    draft = Draft(model, main)
    main.runner.guessers.helper = draft
    return draft


def draft_bytes(path: Path, n_ctx: int, n_texts: int = 1) -> int:
    """Bytes of memory that a draft will need beside a model with a context of n_ctx tokens (0: not known yet).

    Raises FormatError, UnsupportedError or UsageError if it cannot be loaded.
    """
    from ...engine.estimate import Estimate

    gguf = open_gguf(path)
    try:
        most = _context(gguf)
    finally:
        gguf.close()
    with Estimate(path) as estimate:
        return estimate.account(min(n_ctx or most, most), n_seq=SEQUENCES * n_texts).total


def _context(gguf: "GGUFFile") -> int:
    """Limit on the tokens of a draft's sequence."""
    trained = gguf.get(f"{gguf.get('general.architecture', '')}.context_length", MOST_CONTEXT)
    if not isinstance(trained, int) or trained < 1:
        raise UsageError(f"{gguf.path.name}: its context is {shown(repr(trained))} tokens. Convert the model again.")
    return min(trained, MOST_CONTEXT)
