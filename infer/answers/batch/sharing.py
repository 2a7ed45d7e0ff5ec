"""Common prefixes of prompts: a prompt waits while another one is read that makes more of its prefix known, and prompts
get checkpoints where later ones in the queue differ from them.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...memory.cache import LADDER, PromptCache
from ...memory.prefix_tree import common_beginning
from ...sequence import Sequence as TokenSequence
from .job import Job, RunningJob

if TYPE_CHECKING:
    from .reuse import Reasons

WORTH_SHARING = 16  # common tokens that are worth waiting for, or a checkpoint
MOST_MARKS = 4  # checkpoints that a prompt gets for later prompts


def look_up(job: Job, seq: TokenSequence, reasons: "Reasons") -> None:
    """Starts a job with this sequence, which takes the known prefix of the prompt from the cache."""
    from .reuse import read_anew

    job.began = time.perf_counter()
    if job.prompt_top is not None:  # logits are not kept
        job.reuse = read_anew(len(job.ids), "logprobs")
    elif not job.use_cache:
        job.reuse = read_anew(len(job.ids), "asked")
    else:
        job.reuse = reasons.resume(seq, job.ids, job.tokens, job.drawing.tokenizer)
    job.n_known = job.reuse.n_reused
    job.tell_read(job.n_known)


def marks(job: Job, others: Iterable[Job]) -> list[int]:
    """Positions at which the job leaves checkpoints: for the others, and at its own boundaries."""
    parts = Counter(
        common_beginning(job.tokens, other.tokens) for other in others if other.text_owner == job.text_owner
    )
    least = max(job.n_known + 1, WORTH_SHARING)
    shared = [n for n, _ in parts.most_common() if least <= n < len(job.ids)][:MOST_MARKS]
    begins = 0 if job.applied is None else job.applied.start  # texts without the adapter go on from there
    return shared + [n for n in (*job.boundaries, begins) if least <= n < len(job.ids)]


def is_being_read(job: Job, running: Sequence[RunningJob], cache: PromptCache | None, n_beside: int) -> bool:
    """Whether a running job reads tokens that this job could share if it waits. n_beside: prompt tokens of a step."""
    if cache is None or not job.use_cache or job.prompt_top is not None or job.set_aside is not None:
        return False
    beginning = cache.find(job.ids, job.text_owner or b"")
    known = beginning.position if beginning else 0
    for other in running:
        past = other.n_past
        if not other.is_reading or other.job.text_owner != job.text_owner:
            continue
        n = common_beginning(job.tokens, other.job.tokens)
        # checkpoints still to come from which this job can continue
        points = [m for m in other.marks if m > past] + [n // LADDER * LADDER]
        if n == len(other.ids) or not cache.memory.is_recurrent:
            points.append(n)
        ahead = max((p for p in points if past < p <= n), default=0)
        # one step is worth waiting for a few tokens, several steps are not
        if ahead - known >= (WORTH_SHARING if ahead - past > n_beside else 1):
            return True
    return False
