"""The tokenizer of a model that sleeps: making it again would take longer than all else that waking does."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.text.tokenizer import Tokenizer

MOST_TOKENS = 160_000  # of a vocabulary that is kept: about 50 MB


class KeptTokenizer:
    """Keeps the tokenizer of one model's file, until the file changes."""

    def __init__(self) -> None:
        self._key: tuple[str, int, int] | None = None
        self._tokenizer: Tokenizer | None = None

    def lend(self, model: "LoadedModel") -> None:
        """Gives a loaded model the tokenizer, if it is of the same file."""
        if self._tokenizer is not None and self._key == _key_of(model):
            vars(model.file)["tokenizer"] = self._tokenizer

    def keep(self, model: "LoadedModel") -> None:
        """Keeps the tokenizer of a loaded model, if it is not too large."""
        if model.n_vocab <= MOST_TOKENS:
            self._key, self._tokenizer = _key_of(model), model.tokenizer


def _key_of(model: "LoadedModel") -> tuple[str, int, int]:
    status = model.path.stat()
    return str(model.path), status.st_size, status.st_mtime_ns
