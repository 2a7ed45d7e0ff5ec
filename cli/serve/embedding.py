"""Vectors and scores of texts in the model's thread, beside answers: shared by all routes of embeddings and scores."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeVar

import numpy as np
from starlette.concurrency import run_in_threadpool

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.service import BusyError, ClosedError
from hybrid.infer.answers.batch.slices import STEP_SECONDS, Slices
from hybrid.infer.engine.applied import Applied
from hybrid.infer.evaluate.cross_encoder import CrossEncoder
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.embed_prompts import EmbedPrompts
from hybrid.infer.evaluate.embed_reading import (
    EmbedReading,
    EncoderReading,
    ModelReading,
    TextTokens,
    check_ids,
    text_ids,
)
from hybrid.infer.evaluate.pooling import Pooling, stated_pooling
from hybrid.infer.loading.classifier import has_head
from hybrid.infer.loading.dense import Dense
from hybrid.infer.loading.model_file import ModelFile
from hybrid.infer.loading.options import DEFAULT_UBATCH
from hybrid.infer.text.tokenizer import Tokenizer

from .backend import ServedService
from .errors import RequestError

MOST_TEXTS, MOST_TOKENS = 2048, 300_000  # per request; OpenAI's limits
MOST_SLICE = DEFAULT_UBATCH  # tokens
BESIDE_SECONDS = STEP_SECONDS / 2  # of a slice while answers are sampled; their steps come in between
ALONE_SECONDS = 1.0  # of a slice if the thread is idle: the longest wait of a new request

Text = str | list[int]
T = TypeVar("T")


def checked_number(n: int, param: str) -> None:
    """RequestError: more texts than a request may have."""
    if n > MOST_TEXTS:
        raise RequestError(f"{n} texts, this server takes {MOST_TEXTS} at a time", param=param)


def checked_tokens(n: int, param: str) -> None:
    """RequestError: more tokens than a request may have."""
    if n > MOST_TOKENS:
        raise RequestError(f"the texts have {n} tokens, this server takes {MOST_TOKENS} at a time", param=param)


class TextReading(Protocol):
    """The reading of some texts: `EmbedReading` or `ScoreReading`."""

    @property
    def done(self) -> bool: ...

    @property
    def between(self) -> bool: ...

    def step(self, most: int) -> tuple[int, float]: ...

    def close(self) -> None: ...


class VectorSource(Protocol):
    """Makes vectors of texts."""

    pooling: Pooling
    n_ctx: int
    n_vocab: int
    n_embd: int
    prompts: EmbedPrompts

    @property
    def refusal(self) -> str:
        """Why it makes no vectors; "": it does."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def begin(self, ids: Sequence[Sequence[int]], applied: Applied | None = None) -> EmbedReading:
        """Begins to read texts, with these adapters; None: with the model's own."""


class ModelSource:
    """Vectors from a model that generates. pooling None: the file's own, or the last token."""

    def __init__(self, model: LoadedModel, pooling: Pooling | None = None) -> None:
        self.model = model
        scores = has_head(model.gguf) and pooling is None
        self.refusal = "it scores texts and makes no embeddings: use /v1/rerank" if scores else ""
        self.pooling = pooling or stated_pooling(model.gguf) or Pooling.LAST
        n = model.hparams.n_embd
        self.n_ctx, self.n_vocab, self.n_embd = model.n_ctx, model.n_vocab, Dense.read(model.gguf, n).n_out(n)
        self.prompts = EmbedPrompts.read(model.gguf)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    def begin(self, ids: Sequence[Sequence[int]], applied: Applied | None = None) -> EmbedReading:
        return ModelReading(self.model, self.pooling, ids, applied)


class EncoderModel:
    """An encoder, with the attributes that routes expect of a model (`ServedModel`)."""

    chat_template = None

    def __init__(self, embedder: Embedder) -> None:
        assert embedder.encoder is not None
        self.embedder, self.encoder = embedder, embedder.encoder
        file = ModelFile(embedder.gguf, self.encoder.hparams, embedder.n_ctx, self.encoder.n_vocab)
        self.gguf, self.path, self.description = file.gguf, file.path, file.description
        self.file_type, self.fingerprint = file.file_type, file.fingerprint
        self.n_bytes, self.n_params = file.n_bytes, file.n_params
        self.pooling, self.n_embd, self.prompts = embedder.pooling, embedder.n_embd, embedder.prompts
        self.scorer = None if embedder.classifier is None else CrossEncoder(embedder)
        self.n_ctx, self.n_ctx_train, self.n_vocab = embedder.n_ctx, self.encoder.n_ctx, self.encoder.n_vocab

    @property
    def tokenizer(self) -> Tokenizer:
        return self.embedder.tokenizer

    @property
    def refusal(self) -> str:
        """See `VectorSource`."""
        if self.embedder.makes_embeddings:
            return ""
        if self.scorer is None:
            return "it makes a vector of every token, not of a text: use /v1/rerank, or start the server with a pooling"
        use = "/v1/rerank" if self.scorer.ranks else "/classify"
        return f"it scores texts and makes no embeddings: use {use}"

    def begin(self, ids: Sequence[Sequence[int]], applied: Applied | None = None) -> EmbedReading:
        return EncoderReading(self.encoder, self.pooling, ids)


class EncoderService:
    """The thread and queue of an encoder (`ServedService`)."""

    busy = False  # an encoder samples no answers

    def __init__(self, most_waiting: int = 64) -> None:
        self.is_open, self.most_waiting = True, most_waiting
        self.on_closed: Callable[[], None] | None = None
        self.fault: BaseException | None = None
        self._pool = ThreadPoolExecutor(1, "hybrid-encoder")

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Runs `function` in the thread."""
        if not self.is_open:
            raise ClosedError("the model no longer answers. Start the program again.")
        return self._pool.submit(function)

    def close(self) -> None:
        """Refuses new work and ends the thread."""
        self.is_open = False
        self._pool.shutdown(cancel_futures=True)


class Embedding:
    """Reads texts in the service's thread, in slices between its steps, one text after the other."""

    def __init__(self, service: ServedService, source: VectorSource) -> None:
        self.service, self.source = service, source
        self._turn = asyncio.Lock()  # guards the sequence for embeddings
        self.n_waiting = 0
        self.n_tokens, self.n_passes = 0, 0  # tokens read, and steps taken
        self._slices = {True: Slices(MOST_SLICE, BESIDE_SECONDS), False: Slices(MOST_SLICE, ALONE_SECONDS)}

    def tokens(self, texts: Sequence[Text], *, n_ctx: int, truncate: bool) -> TextTokens:
        """The tokens of each text, at most n_ctx; call it in a thread. RequestError, UsageError: too many, or an
        invalid text."""
        if not texts:
            raise RequestError("input: expected a text or tokens, found an empty list", param="input")
        checked_number(len(texts), "input")
        source = self.source
        found = text_ids(source.tokenizer, texts, n_ctx, truncate=truncate, has_context=True)
        check_ids(found.ids, n_ctx, source.n_vocab)
        checked_tokens(sum(map(len, found.ids)), "input")
        return found

    async def vectors(
        self,
        ids: Sequence[Sequence[int]],
        *,
        normalize: bool,
        dimensions: int | None = None,
        applied: Applied | None = None,
    ) -> np.ndarray:
        """Vectors, f32 [n, n_embd] or [n, dimensions], with the same bits as `hybrid embed`. BusyError, ClosedError.

        applied: see `VectorSource.begin`.
        """
        reading = self.source.begin(ids, applied)
        await self.read(reading)
        return await run_in_threadpool(lambda: reading.vectors(normalize=normalize, dimensions=dimensions))

    async def read(self, reading: TextReading) -> None:
        """Reads all texts of a reading. BusyError, ClosedError."""
        if self.n_waiting > self.service.most_waiting:
            raise BusyError(f"{self.n_waiting} requests for embeddings wait, as many as may. Try again later.")
        self.n_waiting += 1
        try:
            while not reading.done:
                async with self._turn:
                    await self._read(reading)
        finally:
            self.n_waiting -= 1

    async def _read(self, reading: TextReading) -> None:
        """Reads a slice of the texts, or one text to its end."""
        step: asyncio.Future[None] | None = None
        try:
            while step is None or not reading.between:
                step = asyncio.wrap_future(self.service.call(lambda: self._step(reading)))
                await asyncio.shield(step)
        finally:
            if not reading.between or (step is not None and not step.done()):
                # the client has gone: wait for its running step
                with suppress(ClosedError):
                    self.service.call(reading.close)

    def _step(self, reading: TextReading) -> None:
        """One slice, in the service's thread."""
        beside = self.service.busy or self._slices[False].others_are_watched
        slices = self._slices[beside]
        n, seconds = reading.step(slices.beside_answers)
        self.n_tokens += n
        self.n_passes += 1
        slices.timed(n, 1, seconds)
