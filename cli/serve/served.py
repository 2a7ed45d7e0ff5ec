"""What the routes stand on: the service that answers."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hybrid.infer.answers.batch.service import Service
from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.memory.cache_store import CacheStore

from .backend import ServedModel, ServedService
from .cache_contents import CacheFigures
from .connections import Bounds
from .embedding import Embedding, EncoderModel, ModelSource
from .jobs import Maker
from .request_log import RequestLog
from .warning_log import WarningLog


@dataclass
class Served:
    """One model.

    keys      one of them comes with every request except /health; empty: none is asked for
    shared    whether all keys share the kept texts; otherwise a text belongs to the key that sent it
    cors      origins whose pages may ask
    store     where what was read is kept on disk, None: nowhere
    hosts     names of this server in Host headers, where there are no keys; None: any
    timeout   seconds that an answer may take from its request on; None: any number
    bounds    of connections
    slots     whether GET /slots shows what is being answered
    log       called with every request when it is over
    page      whether browsers are given one (GET /)
    pooling   of embeddings, None: see `ModelSource`; of an encoder its own counts
    stopping  no more requests are taken
    counting  held by whoever encodes a conversation to say what it would cost: one at a time
    told      what the log has said of each client's fields

    embedding makes embeddings; None: the model was loaded without a sequence for it, beside those of the answers
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
    n_running: int = 0  # requests that are being answered, of any kind
    started: float = field(default_factory=time.time)
    log: Callable[[RequestLog], None] | None = None
    held: CacheFigures = field(default_factory=CacheFigures)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    told: WarningLog = field(default_factory=WarningLog)

    def __post_init__(self) -> None:
        self.embedding: Embedding | None = None
        if isinstance(self.model, EncoderModel):
            self.embedding = Embedding(self.service, self.model)
            return
        model = self.answers.model
        if model.cache is not None:
            model.cache.pins.n_parties = 1 if self.shared else max(1, len(self.keys))
        if model.n_seq_max > self.answers.batcher.n_parallel:
            self.embedding = Embedding(self.service, ModelSource(model, self.pooling))

    @property
    def is_encoder(self) -> bool:
        """Whether it makes embeddings only."""
        return isinstance(self.model, EncoderModel)

    @property
    def model(self) -> ServedModel:
        return self.maker.model

    @property
    def answers(self) -> Service:
        """What draws answers, and of what model: routes that encoders have, too, do not ask for it."""
        if not isinstance(self.service, Service):
            raise TypeError(f"{self.name} draws no answers")
        return self.service
