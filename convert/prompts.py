"""What sentence-transformers models say of their texts: prompts before them, and the lengths to which vectors may be
cut."""

from collections.abc import Iterator
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.prompt_keys import DEFAULT, DIMENSIONS, NAMES, SKIPPED, TEXTS
from hybrid.quant.ggml.types import ValueType

from .checkpoint import Checkpoint, Config
from .tokenizers.vocabulary import KeyValue

FILE = "config_sentence_transformers.json"
MOST_DIMENSIONS = 1 << 20


def prompt_keys(checkpoint: Checkpoint, config: Config) -> Iterator[KeyValue]:
    """The keys of the prompts in config_sentence_transformers.json, and of the lengths that config.json names."""
    settings = checkpoint.optional_config(FILE)
    prompts: Any = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise CheckpointError(f"{FILE}: prompts is {shown(prompts)}, expected a text for each name.")
    marks = {"query": settings.get("query_prefix"), "document": settings.get("document_prefix")}  # of ColBERT models
    prompts = {**{name: mark for name, mark in marks.items() if isinstance(mark, str)}, **prompts}
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise CheckpointError(f"{FILE}: default_prompt_name is {shown(default)}, which prompts does not name.")
    if any(prompts.values()):  # sentence-transformers writes empty ones into all models
        yield NAMES, list(prompts), None
        yield TEXTS, list(prompts.values()), None
        if default is not None:
            yield DEFAULT, default, None
    words: Any = settings.get("skiplist_words") or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(f"{FILE}: skiplist_words is {shown(words)}, expected texts.")
    if words:
        yield SKIPPED, words, None
    lengths: Any = config.get("matryoshka_dimensions")
    if lengths is None:
        return
    if (
        not isinstance(lengths, list)
        or not lengths
        or not all(isinstance(n, int) and 0 < n <= MOST_DIMENSIONS for n in lengths)
    ):
        raise CheckpointError(f"config.json: matryoshka_dimensions is {shown(lengths)}, expected a list of lengths.")
    yield DIMENSIONS, sorted(set(lengths)), ValueType.UINT32
