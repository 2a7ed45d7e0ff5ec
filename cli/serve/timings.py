"""Times and token counts of an answer, in llama-server's names."""

from dataclasses import dataclass
from typing import Any

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.faults import SidePath

TIMINGS = SidePath("the timings of answers")


@dataclass(frozen=True)
class ServerTimings:
    """Figures of an answer so far: tokens of the prompt reused (cache_n) and read (prompt_n), and tokens sampled."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float

    @classmethod
    def of(cls, job: Job, n_told: int | None = None) -> "ServerTimings":
        """The figures now. n_told: sampled tokens to count, if a step has sampled more than were sent."""
        return TIMINGS.run(lambda: cls._of(job, n_told), lambda: cls(0, 0, 0.0, 0, 0.0))

    @classmethod
    def _of(cls, job: Job, n_told: int | None) -> "ServerTimings":
        result = job.result
        n = len(result.ids) if n_told is None else n_told
        return cls(job.n_known, result.prompt_tokens, 1e3 * result.prompt_seconds, n, 1e3 * result.gen_seconds)

    def as_json(self) -> dict[str, Any]:
        """The figures and rates. The first token comes from reading the prompt: rates count the tokens after it."""
        return TIMINGS.run(self._as_json, dict)

    def _as_json(self) -> dict[str, Any]:
        n, n_steps = self.prompt_n, max(0, self.predicted_n - 1)
        return {
            "cache_n": self.cache_n,
            "prompt_n": n,
            "prompt_ms": self.prompt_ms,
            "prompt_per_token_ms": self.prompt_ms / n if n else 0.0,
            "prompt_per_second": 1e3 * n / self.prompt_ms if self.prompt_ms else 0.0,
            "predicted_n": self.predicted_n,
            "predicted_ms": self.predicted_ms,
            "predicted_per_token_ms": self.predicted_ms / n_steps if n_steps else 0.0,
            "predicted_per_second": 1e3 * n_steps / self.predicted_ms if self.predicted_ms else 0.0,
        }


def prompt_progress(job: Job, n_read: int, timings: ServerTimings) -> dict[str, Any]:
    """llama-server's progress event: n_read tokens of the prompt are reused or read."""
    return {"total": len(job.ids), "cache": job.n_known, "processed": n_read, "time_ms": round(timings.prompt_ms)}
