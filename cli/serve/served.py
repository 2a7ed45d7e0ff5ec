"""What the routes stand on: the service that answers, and what it has done so far."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hybrid.infer import Model
from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.service import Service
from hybrid.infer.memory.cache_store import CacheStore

from .jobs import Maker


@dataclass
class Served:
    """One model. keys: one of them comes with every request except /health; empty: none is asked for.

    store: where what was read is kept on disk, None: nowhere.
    """

    service: Service
    maker: Maker
    name: str
    keys: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    store: CacheStore | None = None
    started: float = field(default_factory=time.time)
    n_read: int = 0
    n_reused: int = 0
    n_drawn: int = 0

    @property
    def model(self) -> Model:
        return self.maker.model

    def count(self, jobs: Sequence[Job]) -> None:
        """After answers have ended, for /metrics."""
        self.n_read += sum(job.result.prompt_tokens for job in jobs)
        self.n_reused += sum(job.n_known for job in jobs)
        self.n_drawn += sum(len(job.result.ids) for job in jobs)
