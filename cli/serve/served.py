"""What the routes stand on: the service that answers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hybrid.infer import Model
from hybrid.infer.answers.service import Service
from hybrid.infer.memory.cache_store import CacheStore

from .held import HeldFigures
from .jobs import Maker
from .request_log import RequestLog


@dataclass
class Served:
    """One model. keys: one of them comes with every request except /health; empty: none is asked for.

    store: where what was read is kept on disk, None: nowhere.
    log: called with every request when it is over.
    """

    service: Service
    maker: Maker
    name: str
    keys: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    store: CacheStore | None = None
    started: float = field(default_factory=time.time)
    log: Callable[[RequestLog], None] | None = None
    held: HeldFigures = field(default_factory=HeldFigures)

    @property
    def model(self) -> Model:
        return self.maker.model
