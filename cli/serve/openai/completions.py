"""POST /v1/completions: OpenAI's older shape, for prompts that are texts or tokens."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece

from ..endpoint import client_of, post
from ..fields import AnswerFields
from ..jobs import Maker
from ..served import Served
from ..streaming import respond
from .shape import CompletionsShape, with_logprobs

FEW = 16  # max_tokens where it is not given: OpenAI's


class CompletionRequest(AnswerFields):
    """One or more prompts, and how what follows them is drawn."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


def completion_jobs(maker: Maker, request: CompletionRequest, client: object) -> list[Job]:
    """n answers to every prompt."""
    most = FEW if request.max_tokens is None else request.max_tokens
    return maker.jobs(request, maker.prompts(request.prompt), most, request.logprobs, client)


class CompletionShape(CompletionsShape):
    """A text for each answer."""

    kind, part_kind, prefix = "text_completion", "text_completion", "cmpl-"

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        return {"text": job.result.text, "logprobs": self._logprobs(pieces)}

    def part(self, piece: TextPiece | None) -> dict[str, Any]:
        if piece is None:
            return {"text": "", "logprobs": None}
        return {"text": piece.text, "logprobs": self._logprobs([piece])}

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any] | None:
        known = with_logprobs(pieces)
        if not known:
            return None
        texts, offsets, at = [self.text_of(token)[0] for token, _ in known], [], 0
        for text in texts:
            offsets.append(at)
            at += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [logprobs.logprob for _, logprobs in known],
            "top_logprobs": [{self.text_of(token)[0]: ln_p for token, ln_p in logprobs.top} for _, logprobs in known],
            "text_offset": offsets,
        }


async def completions(served: Served, request: Request, body: CompletionRequest) -> Response:
    """What follows the prompts."""
    jobs = await run_in_threadpool(completion_jobs, served.maker, body, client_of(request))
    return await respond(served, request, jobs, CompletionShape(served, body, jobs), stream=body.stream)


ENDPOINTS = [post("/v1/completions", handler=completions, schema=CompletionRequest)]
