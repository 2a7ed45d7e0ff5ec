"""POST /v1/chat/completions"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece
from hybrid.infer.text.tokenizer import Tokenizer

from ..conversations import ConversationFields, conversation
from ..endpoint import client_of, post
from ..errors import RequestError
from ..fields import AnswerFields, Ignored, Unsupported
from ..jobs import Maker
from ..served import Served
from ..streaming import respond
from .shape import CompletionsShape, text_of, with_logprobs


class ChatRequest(AnswerFields, ConversationFields):
    """A conversation, and how the next message is drawn."""

    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Any] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: Unsupported
    parallel_tool_calls: Ignored
    prompt_cache_key: Ignored
    prompt_cache_retention: Ignored
    safety_identifier: Ignored
    verbosity: Ignored

    def check(self) -> None:
        super().check()
        if self.tools and self.tool_choice != "none":
            raise RequestError("tools: this server cannot do that yet", param="tools")


def chat_jobs(maker: Maker, request: ChatRequest, client: object) -> list[Job]:
    """n answers to a conversation."""
    if request.top_logprobs is not None and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs = true", param="top_logprobs")
    prompt = conversation(maker, request)
    most = request.most if request.most is not None else maker.defaults.n_predict
    n_top = (request.top_logprobs or 0) if request.logprobs else None
    return maker.jobs(request, [prompt], most, n_top, client)


class ChatShape(CompletionsShape):
    """A message for each answer."""

    kind, part_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        message = {"role": "assistant", "content": job.result.text}
        return {"message": message, "logprobs": self._logprobs(pieces)}

    def opening(self) -> Iterator[str]:
        """Whose the messages are."""
        for index in range(len(self.jobs)):
            yield self._chunk(index, {"delta": {"role": "assistant", "content": None}, "logprobs": None})

    def part(self, piece: TextPiece | None) -> dict[str, Any]:
        if piece is None:
            return {"delta": {}, "logprobs": None}
        return {"delta": {"content": piece.text}, "logprobs": self._logprobs([piece])}

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any] | None:
        content = token_logprobs(self.tokenizer, pieces)
        return {"content": content, "refusal": None} if content else None


def token_logprobs(tokenizer: Tokenizer, pieces: Sequence[TextPiece]) -> list[dict[str, Any]]:
    """Of each token that has them: itself, as text and bytes, and the likeliest ones."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text, raw = text_of(tokenizer, token)
        return {"token": text, "logprob": logprob, "bytes": raw}

    return [
        {**entry(token, known.logprob), "top_logprobs": [entry(*pair) for pair in known.top]}
        for token, known in with_logprobs(pieces)
    ]


async def chat(served: Served, request: Request, body: ChatRequest) -> Response:
    """The next message of a conversation."""
    jobs = await run_in_threadpool(chat_jobs, served.maker, body, client_of(request))
    shape = ChatShape(served, body, jobs)
    return await respond(served, request, jobs, shape, stream=body.stream, watcher=shape.watcher)


ENDPOINTS = [post("/v1/chat/completions", "/chat/completions", handler=chat, schema=ChatRequest)]
