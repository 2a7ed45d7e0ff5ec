"""Measurements in parts, which one model here evaluates, or many processes that have the model's file.

A measurement plans its parts, gets their results from `each`, and adds them up in order. A part is a module's function
and its argument: both can be pickled. Its result does not depend on the process or on the parts before it, so that
figures are the same to the last bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Union

if TYPE_CHECKING:
    from hybrid.quant.ggml.reader import GGUFFile

    from ..model import LoadedModel
    from ..text.chat_template import ChatTemplate
    from ..text.tokenizer import Tokenizer

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ModelFacts:
    """The fields of `LoadedModel` that measurements need before they evaluate anything."""

    path: Path
    name: str
    description: str
    file_type: str
    fingerprint: str
    precision: str
    n_ctx: int
    n_vocab: int
    n_seq_max: int
    n_params: int

    @classmethod
    def of(cls, model: "LoadedModel") -> "ModelFacts":
        return cls(
            model.path, model.name, model.description, model.file_type, model.fingerprint, model.precision,
            model.n_ctx, model.n_vocab, model.n_seq_max, model.n_params,
        )  # fmt: skip


class SpreadModel(ABC):
    """A model that is loaded in many processes, and here only open as a file. Has the fields of `LoadedModel` that
    measurements need."""

    def __init__(self, facts: ModelFacts, gguf: "GGUFFile", tokenizer: "Tokenizer") -> None:
        self.gguf, self.tokenizer = gguf, tokenizer
        self.path, self.name, self.description = facts.path, facts.name, facts.description
        self.file_type, self.fingerprint, self.precision = facts.file_type, facts.fingerprint, facts.precision
        self.n_ctx, self.n_vocab, self.n_seq_max = facts.n_ctx, facts.n_vocab, facts.n_seq_max
        self.n_params = facts.n_params
        self.n_free = facts.n_seq_max
        """All sequences: parts do not run at the same time in one process."""

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        """The file's chat template, or None."""
        from ..text.chat_template import ChatTemplate

        return ChatTemplate.from_gguf(self.gguf, self.tokenizer)

    @abstractmethod
    def each(self, function: Callable[["LoadedModel", P], R], parts: Iterable[P]) -> Iterator[R]:
        """function(model, part) of every part, in order. Raises the exception of the first part that fails."""


Measurable = Union["LoadedModel", SpreadModel]


def each(model: Measurable, function: Callable[["LoadedModel", P], R], parts: Iterable[P]) -> Iterator[R]:
    """function(model, part) of every part, in order; with a `LoadedModel` lazily."""
    if isinstance(model, SpreadModel):
        yield from model.each(function, parts)
    else:
        for part in parts:
            yield function(model, part)
