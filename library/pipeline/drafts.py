"""MODEL with a smaller model that guesses for it (--draft)."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..reporting import SILENT, Reporter
from . import models

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.loading.options import LoadOptions


def load(
    model: Path | str | None,
    options: "LoadOptions",
    draft: Path | str,
    *,
    n_texts: int = 1,
    reporter: Reporter = SILENT,
) -> "Model":
    """As models.load has it, with a draft for n_texts texts at a time: closed with the model. UsageError: the draft has
    another vocabulary."""
    path, small = models.resolve(model, reporter), models.resolve(draft, reporter)
    from hybrid.infer.answers.generation.draft_loading import draft_bytes, load_draft

    beside = draft_bytes(small, options.n_ctx, n_texts)
    loaded = models.load(path, replace(options, beside=options.beside + beside), reporter=reporter)
    try:
        with models.compiling(reporter) as progress:
            helper = load_draft(small, loaded, n_texts, progress)
    except BaseException:
        loaded.close()
        raise
    reporter.note(f"{helper.model.description} guesses")
    return loaded
