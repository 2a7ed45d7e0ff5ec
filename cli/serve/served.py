"""A loaded model with its service and maker of jobs, which all of its routes share."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starlette.requests import Request

from hybrid.infer.answers.batch.service import Service
from hybrid.infer.engine.applied import Applied
from hybrid.infer.evaluate.late_interaction import LateInteraction
from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.memory.cache_store import CacheStore

from .adapters import AdapterName, ServedAdapters
from .backend import ServedModel, ServedService
from .cache_contents import CacheFigures
from .client import Client, asked_by
from .embedding import Embedding, EncoderModel, ModelSource
from .errors import RequestError
from .jobs import Maker
from .scoring import PairScoring, scoring_of
from .server_settings import ServerSettings

NAMED = "hybrid.named"  # name in a request's scope: the model, or its adapter, that the request names
SERVED = "hybrid.served"  # name in a request's scope: the model that answers it
SPARE_THREADS = 40  # beside one for each request that runs or waits


@dataclass
class Served:
    """One served model, while it is loaded.

    settings  of the server
    store     where the prompt cache is kept on disk; None: nowhere
    pooling   of embeddings; None: see `ModelSource`. An encoder uses its own
    counting  lock for counting the tokens of a conversation: one at a time
    names     of its adapters; None: of their files

    threads   prepare requests whose pictures wait for each other; None: no request does
    embedding makes embeddings; None: the model was loaded without a sequence for them
    scoring   scores documents for a query; None: the model is no reranker
    """

    service: ServedService
    maker: Maker
    name: str
    settings: ServerSettings = field(default_factory=ServerSettings)
    store: CacheStore | None = None
    pooling: Pooling | None = None
    held: CacheFigures = field(default_factory=CacheFigures)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    names: Sequence[AdapterName] | None = None

    def __post_init__(self) -> None:
        self.adapters = ServedAdapters(self.model, self.name, self.names)
        most = SPARE_THREADS + self.maker.most
        self.threads = ThreadPoolExecutor(most, "requests") if self.sees else None
        self.embedding: Embedding | None = None
        self.scoring: PairScoring | None = None
        if isinstance(self.model, EncoderModel):
            self.embedding = Embedding(self.service, self.model)
            if (scorer := self.model.scorer) is not None and scorer.ranks:
                self.scoring = PairScoring(self.embedding, scorer)
            elif self.model.embedder.by_token:
                self.scoring = PairScoring(self.embedding, LateInteraction(self.model.embedder))
            return
        model, settings = self.answers.model, self.settings
        if model.cache is not None:
            model.cache.pins.n_parties = 1 if settings.shared else max(1, len(settings.keys))
        if model.n_seq_max > self.answers.batcher.n_parallel:
            self.embedding = Embedding(self.service, ModelSource(model, self.pooling))
            self.scoring = scoring_of(self.embedding, model)

    def client(self, request: Request, body: object = None) -> Client:
        """The client of a request, and the adapters that it chooses: by its model's name, or by `lora` in its body.

        RequestError: there are no such adapters.
        """
        model = request.scope.get(NAMED)
        return self.adapters.client(asked_by(request, body), model, getattr(body, "lora", None))

    def adapters_of_whole_texts(self, request: Request) -> Applied | None:
        """The adapters of a request that reads whole texts; None: the model's own.

        RequestError: the adapter that its model names is an activated one.
        """
        if self.adapters.named(request.scope.get(NAMED)) is None:
            return None
        applied = self.client(request).applied
        if applied is not None and self.adapters.is_activated(applied):
            raise RequestError("an activated adapter (aLoRA) reads prompts of answers only", param="model")
        return applied

    @property
    def is_encoder(self) -> bool:
        """Whether the model makes embeddings only."""
        return isinstance(self.model, EncoderModel)

    @property
    def sees(self) -> bool:
        """Whether the model takes pictures."""
        return self.maker.sight.eyes is not None

    @property
    def model(self) -> ServedModel:
        return self.maker.model

    @property
    def n_jobs(self) -> int:
        """Answers that run or wait."""
        return self.service.n_jobs if isinstance(self.service, Service) else 0

    def close(self) -> None:
        """Ends the threads of requests. The service and the model stay open."""
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)

    @property
    def answers(self) -> Service:
        """The service that answers. Not for routes that encoders have also."""
        if not isinstance(self.service, Service):
            raise TypeError(f"{self.name} generates no answers")
        return self.service
