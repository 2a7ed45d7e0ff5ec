"""Prompts that a model of embeddings expects before texts, and the lengths to which its vectors may be cut.

Such models are trained with a prompt before queries, and maybe another before documents (sentence-transformers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.families.hparams import wrong
from hybrid.quant.ggml.metadata import StringArray
from hybrid.quant.ggml.prompt_keys import DEFAULT, DIMENSIONS, NAMES, SKIPPED, TEXTS
from hybrid.quant.ggml.reader import GGUFFile

# kinds of texts, as servers call them -> names of prompts, the first of which that the model has is used
KINDS: Mapping[str, tuple[str, ...]] = {
    kind: names
    for names in (("query", "search_query", "retrieval.query"), ("document", "passage", "search_document", "corpus",
                                                                 "retrieval.passage"))
    for kind in names
}  # fmt: skip


@dataclass(frozen=True)
class EmbedPrompts:
    """The prompts of one file by name; default: of the one for texts that ask for none. dimensions: lengths of vectors
    that the model was trained for, besides its own; skipped: tokens of documents that have no vector of their own."""

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    dimensions: tuple[int, ...] = ()
    skipped: tuple[str, ...] = ()

    @classmethod
    def read(cls, gguf: GGUFFile) -> "EmbedPrompts":
        """The prompts of an open file. FormatError: a key has a wrong value."""
        names, texts, default = _strings(gguf, NAMES), _strings(gguf, TEXTS), gguf.get(DEFAULT, None)
        if len(names) != len(texts) or len(set(names)) < len(names):
            raise wrong(gguf, TEXTS, texts, f"a text for each of the {len(names)} different names in {NAMES}")
        if default is not None and default not in names:
            raise wrong(gguf, DEFAULT, default, f"a name in {NAMES}")
        lengths = gguf.get(DIMENSIONS, None)
        found = [] if lengths is None else np.asarray(lengths).tolist()
        if not isinstance(found, list) or not all(isinstance(n, int) and n > 0 for n in found):
            raise wrong(gguf, DIMENSIONS, lengths, "lengths of vectors")
        return cls(dict(zip(names, texts, strict=True)), default, tuple(found), tuple(_strings(gguf, SKIPPED)))

    def named(self, name: str | None) -> str:
        """The prompt of this name; None: the default, "": no prompt. UsageError: the model has no such prompt."""
        if name is None:
            name = self.default or ""
        if not name:
            return ""
        if name not in self.texts:
            known = f"its prompts are {shown(', '.join(self.texts))}" if self.texts else "it has no prompts"
            raise UsageError(f"the model has no prompt {shown(name)}: {known}.")
        return self.texts[name]

    def of_kind(self, kind: str) -> str | None:
        """The name of the prompt for a kind of text ("query", "document" and other servers' words); None: it has
        none."""
        return next((name for name in KINDS.get(kind, ()) if name in self.texts), None)

    def note_on_length(self, n: int | None, n_embd: int) -> str:
        """A note if the model is not known to be trained for vectors of n values, else ""."""
        if n is None or n == n_embd or n in self.dimensions:
            return ""
        if not self.dimensions:
            return f"the file does not say that the model was trained for vectors of {n} values"
        return f"the model was trained for vectors of {', '.join(map(str, self.dimensions))} values, not of {n}"


def check_dimensions(n: int | None, n_embd: int) -> None:
    """UsageError: vectors of n_embd values cannot be cut to n."""
    if n is not None and not 1 <= n <= n_embd:
        raise UsageError(f"{n} dimensions: the vectors of this model have {n_embd} values. Ask for at most as many.")


def _strings(gguf: GGUFFile, key: str) -> Sequence[str]:
    value: Any = gguf.get(key, None)
    found = value.tolist() if isinstance(value, np.ndarray | StringArray) else [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise wrong(gguf, key, value, "texts")
    return found
