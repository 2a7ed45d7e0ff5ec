"""The service, the maker of jobs and the server's settings, which all routes share."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starlette.requests import Request

from hybrid.infer.answers.batch.service import Service
from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.memory.cache_store import CacheStore

from .adapters import AdapterName, ServedAdapters
from .backend import ServedModel, ServedService
from .cache_contents import CacheFigures
from .client import Client, asked_by
from .connections import Bounds
from .embedding import Embedding, EncoderModel, ModelSource
from .jobs import Maker
from .request_log import RequestLog
from .warning_log import WarningLog

SPARE_THREADS = 40  # beside one for each request that runs or waits


@dataclass
class Served:
    """One served model.

    keys      every request except /health must send one of them; empty: no keys
    shared    all keys share the kept texts; otherwise a text belongs to the key that sent it
    cors      origins whose web pages may use the server
    store     where the prompt cache is kept on disk; None: nowhere
    hosts     allowed names in Host headers if there are no keys; None: any
    timeout   seconds for an answer, counted from its request; None: no limit
    bounds    of connections
    slots     whether GET /slots shows requests in progress
    log       called with every finished request
    page      whether GET / is a web page
    pooling   of embeddings; None: see `ModelSource`. An encoder uses its own
    stopping  new requests are refused
    counting  lock for counting the tokens of a conversation: one at a time
    told      warnings that were logged, by client
    names     of its adapters; None: of their files

    threads   prepare requests whose pictures wait for each other; None: no request does
    embedding makes embeddings; None: the model was loaded without a sequence for them
    """

    service: ServedService
    maker: Maker
    name: str
    keys: tuple[str, ...] = ()
    shared: bool = False
    cors: tuple[str, ...] = ()
    store: CacheStore | None = None
    hosts: frozenset[str] | None = None
    timeout: float | None = None
    bounds: Bounds = field(default_factory=Bounds)
    pooling: Pooling | None = None
    slots: bool = True
    page: bool = True
    stopping: bool = False
    n_running: int = 0  # requests in progress, of any kind
    started: float = field(default_factory=time.time)
    log: Callable[[RequestLog], None] | None = None
    held: CacheFigures = field(default_factory=CacheFigures)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    told: WarningLog = field(default_factory=WarningLog)
    names: Sequence[AdapterName] | None = None

    def __post_init__(self) -> None:
        self.adapters = ServedAdapters(self.model, self.name, self.names)
        most = SPARE_THREADS + self.maker.most
        self.threads = ThreadPoolExecutor(most, "requests") if self.sees else None
        self.embedding: Embedding | None = None
        if isinstance(self.model, EncoderModel):
            self.embedding = Embedding(self.service, self.model)
            return
        model = self.answers.model
        if model.cache is not None:
            model.cache.pins.n_parties = 1 if self.shared else max(1, len(self.keys))
        if model.n_seq_max > self.answers.batcher.n_parallel:
            self.embedding = Embedding(self.service, ModelSource(model, self.pooling))

    def client(self, request: Request, body: object = None) -> Client:
        """The client of a request, and the adapters that its body, or `model` in its query, chooses.

        RequestError: there are no such adapters.
        """
        model = getattr(body, "model", None) or request.query_params.get("model")
        return self.adapters.client(asked_by(request, body), model, getattr(body, "lora", None))

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
    def answers(self) -> Service:
        """The service that answers. Not for routes that encoders have also."""
        if not isinstance(self.service, Service):
            raise TypeError(f"{self.name} generates no answers")
        return self.service
