"""Protocols of the model and of its service, for routes that work with generating models and with encoders."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, TypeVar

from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.reader import GGUFFile

T = TypeVar("T")


class ServedModel(Protocol):
    """`LoadedModel` or `EncoderModel`."""

    gguf: GGUFFile
    path: Path
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_params: int
    n_bytes: int

    @property
    def description(self) -> str: ...

    @property
    def file_type(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...


class ServedService(Protocol):
    """`Service` or `EncoderService`."""

    on_closed: Callable[[], None] | None
    fault: BaseException | None
    most_waiting: int

    @property
    def busy(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Runs `function` in the model's thread."""

    def close(self) -> None:
        """Refuses new work and ends the thread."""
