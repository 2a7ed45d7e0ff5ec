"""`usage.cache` of an answer: how much of the prompt was reused, how much was read, and why.

    {"reused": 812, "processed": 88, "reason": "differs from every known text at token 812 ('22')",
     "drawn": 640, "conversation": "c7", "kept": false}

The reason quotes the prompt itself, never another request. For several prompts the numbers are sums, and the reason
belongs to the prompt with the most processed tokens. `drawn` counts the prompt's tokens up to the end of its
last answer that the ledger knows: that answer has its sampled tokens. `conversation` is the id under GET
/v1/conversations of the first answer's text, or null; `kept`: whether it is pinned.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.batch.reuse import Reuse
from hybrid.infer.faults import SidePath

USAGE = SidePath("usage.cache of answers")


def prompts_of(jobs: Sequence[Job]) -> list[Job]:
    """The first job of each prompt; the jobs of one prompt share its list of tokens."""
    return list({id(job.ids): job for job in reversed(jobs)}.values())[::-1]


def main_reason(reuses: Iterable[Reuse]) -> str:
    """The reason of the prompt with the most tokens to read; "" if all prompts were known."""
    most = max(reuses, key=lambda reuse: reuse.n_processed, default=None)
    return "" if most is None else most.reason


def cache_usage(jobs: Sequence[Job]) -> dict[str, Any]:
    """`usage.cache` of the jobs of one request. All must have ended."""
    unknown = {"reused": 0, "processed": 0, "reason": "not known", "drawn": 0, "conversation": None, "kept": False}
    return USAGE.run(lambda: _cache_usage(jobs), lambda: unknown)


def _cache_usage(jobs: Sequence[Job]) -> dict[str, Any]:
    reuses = [job.reuse for job in prompts_of(jobs) if job.reuse is not None]
    kept = jobs[0].kept
    return {
        "reused": sum(reuse.n_reused for reuse in reuses),
        "processed": sum(reuse.n_processed for reuse in reuses),
        "reason": main_reason(reuses),
        "drawn": sum(job.n_drawn for job in prompts_of(jobs)),
        "conversation": None if kept is None else conversation_id(kept.name),
        "kept": kept is not None and kept.pinned,
    }


def conversation_id(name: int) -> str:
    """The id in the API for a branch of the prompt cache."""
    return f"c{name}"
