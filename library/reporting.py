"""Notes and progress that library work reports to its caller. The library prints nothing itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hybrid.quant.ggml.progress import Stage, silent


@dataclass(frozen=True)
class Reporter:
    """note: called with a sentence about the work; stage: see `hybrid.quant.ggml.progress`."""

    note: Callable[[str], None]
    stage: Stage

    def notes(self, sentences: Iterable[str]) -> None:
        """Reports facts that a conversion could not keep, or had to assume."""
        for sentence in sentences:
            self.note(f"note: {sentence}")


SILENT = Reporter(lambda text: None, silent)
