"""POST /v1/chat/completions"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.infer.text.tokenizer import Tokenizer

from ..chats import RequestChat, Split
from ..client import Client
from ..conversations import ConversationFields, chat_of
from ..endpoint import post
from ..errors import RequestError
from ..fields import AnswerFields, Ignored
from ..in_thread import prepared
from ..jobs import Maker
from ..paused_json import Pausing
from ..served import Served
from ..streaming import respond
from ..thoughts import ThoughtFields
from .shape import CompletionsShape, text_of, with_logprobs


class ChatRequest(AnswerFields, ConversationFields, ThoughtFields):
    """A conversation, and settings of its next message."""

    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    modalities: list[Literal["text"]] | None = None
    prompt_cache_key: Ignored
    prompt_cache_retention: Ignored
    safety_identifier: Ignored
    verbosity: Ignored


@dataclass(frozen=True)
class Answers:
    """The n answers that a chat request asks for. jobs, splits: one job and one reader per answer; notes: see
    AnswerRules."""

    chat: RequestChat
    jobs: list[Job]
    splits: list[Split]
    notes: tuple[str, ...] = ()


def answers_of(
    maker: Maker, request: ChatRequest, whose: Client, think: bool | None = None, after: Sequence[int] = ()
) -> Answers:
    """Makes n answers to a conversation. think: see chat_of; after: see RequestChat."""
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs = true", param="top_logprobs")
    chat = chat_of(maker, request, whose, think=think)
    chat.after = after
    most = request.most if request.most is not None else maker.defaults.n_predict
    n_top = (request.top_logprobs or 0) if request.logprobs else None
    rules = chat.rules(request, request.most_thoughts)
    jobs = maker.jobs(request, [chat.prompt()], most, n_top, whose, rules=rules)
    return Answers(
        chat, jobs, [Split(chat, job, split=request.reasoning_format != "none") for job in jobs], rules.notes
    )


class ChatShape(CompletionsShape):
    """One message per answer."""

    kind, part_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, served: Served, body: ChatRequest, answers: Answers) -> None:
        super().__init__(served, body, answers.jobs)
        self._splits, self._with_thoughts = answers.splits, body.include_reasoning
        self._has_functions = body.has_functions

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        """One of `choices`: the message in the parts that its reader found; empty text beside calls is left out."""
        read = self._splits[self.jobs.index(job)].reader
        message: dict[str, Any] = {"role": "assistant", "content": read.text if read.text or not read.calls else None}
        if read.thoughts and self._with_thoughts:
            message["reasoning_content"] = read.thoughts
        if read.calls and self._has_functions:
            message["function_call"] = {"name": read.calls[0].name, "arguments": read.calls[0].arguments}
        elif read.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in read.calls
            ]
        return {"message": message, "logprobs": self._logprobs(pieces)}

    def finish(self, index: int) -> str:
        called = "function_call" if self._has_functions else "tool_calls"
        return called if self._splits[index].called else super().finish(index)

    def usage(self) -> dict[str, Any]:
        told = super().usage()
        if self._splits[0].chat.has_thoughts:
            told["completion_tokens_details"] = {"reasoning_tokens": sum(split.n_thoughts for split in self._splits)}
        return told | self._splits[0].chat.picture_usage()

    # --- streams ---
    def opening(self) -> Iterator[str]:
        """The event with the role."""
        for index in range(len(self.jobs)):
            yield self._chunk(index, {"delta": {"role": "assistant", "content": None}, "logprobs": None})

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """Events for the parts that became certain; the last one carries the logprobs."""
        deltas = self._deltas(self._splits[index].push(piece))
        if not deltas and piece.logprobs is not None:
            deltas = [{"content": ""}]
        for delta in deltas[:-1]:
            yield self._chunk(index, {"delta": delta, "logprobs": None})
        for delta in deltas[-1:]:
            yield self._chunk(index, {"delta": delta, "logprobs": self._logprobs([piece])})

    def ending(self, index: int) -> Iterator[str]:
        """Events for the text held back, and the reason of the end."""
        for delta in self._deltas(self._splits[index].rest):
            yield self._chunk(index, {"delta": delta, "logprobs": None})
        yield from super().ending(index)

    def part(self, piece: TextPiece | None) -> dict[str, Any]:
        """Not used: `piece` sends the parts."""
        return {"delta": {}, "logprobs": None}

    def _deltas(self, parts: Sequence[AnswerPart]) -> list[dict[str, Any]]:
        delta = _older_delta if self._has_functions else _delta
        return [delta(part) for part in parts if part.kind != "thought" or self._with_thoughts]

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any] | None:
        content = token_logprobs(self.tokenizer, pieces)
        return {"content": content, "refusal": None} if content else None


def _delta(part: AnswerPart) -> dict[str, Any]:
    """The delta of a part."""
    if part.kind == "thought":
        return {"reasoning_content": part.text}
    if part.kind == "text":
        return {"content": part.text}
    if part.kind == "arguments":
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}
    function = {"name": part.text, "arguments": ""}
    return {"tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]}


def _older_delta(part: AnswerPart) -> dict[str, Any]:
    """The delta of a part, for a request with `functions`."""
    if part.kind in ("thought", "text"):
        return _delta(part)
    return {
        "function_call": {"arguments": part.text} if part.kind == "arguments" else {"name": part.text, "arguments": ""}
    }


def token_logprobs(tokenizer: Tokenizer, pieces: Sequence[TextPiece]) -> list[dict[str, Any]]:
    """For each token with logprobs: text, bytes and logprob of the token and of the most likely tokens."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text, raw = text_of(tokenizer, token)
        return {"token": text, "logprob": logprob, "bytes": raw}

    return [
        Pausing(entry(token, known.logprob), top_logprobs=[entry(*pair) for pair in known.top])
        for token, known in with_logprobs(pieces)
    ]


async def chat(served: Served, request: Request, body: ChatRequest) -> Response:
    """The next message of a conversation."""
    answers = await prepared(request, answers_of, served.maker, body, served.client(request, body))
    body.warnings.extend(answers.notes)
    shape = ChatShape(served, body, answers)
    return await respond(
        served, request, answers.jobs, shape, stream=body.stream, watcher=shape.watcher, splits=answers.splits
    )


ENDPOINTS = [post("/v1/chat/completions", "/chat/completions", handler=chat, schema=ChatRequest)]
