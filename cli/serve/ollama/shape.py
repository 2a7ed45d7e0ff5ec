"""Answers in ollama's format: one object, or lines of JSON whose last one has the figures."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.infer.answers.drawing.drawing import TextPiece

from .. import errors
from ..cache_usage import cache_usage
from ..chats import Split, arguments_of
from ..models.router import ModelRouter
from ..openai.chat import token_logprobs
from ..served import Served
from ..streaming import StreamFormat
from ..warning_log import with_warnings
from .models import name_in_answers, timestamp
from .requests import ModelRequest, OllamaAnswerRequest

PATH = "/api/"
NDJSON = "application/x-ndjson"
DONE_REASON = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


def line(value: Any) -> str:
    """A line of a stream."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def head(served: Served, body: ModelRequest) -> dict[str, Any]:
    """The fields that every object begins with."""
    return {"model": name_in_answers(served, body.model), "created_at": timestamp()}


def loaded(request: Request, served: Served, body: ModelRequest, **said: Any) -> dict[str, Any]:
    """The answer to a request for nothing, by which clients load a model, and unload it with keep_alive 0. said: an
    answer without content."""
    reason = "unload" if body.unloads else "load"
    if body.unloads:
        router: ModelRouter = request.app.state.router
        router.unload_later(router.find(served.name))
    return with_warnings({**head(served, body), **said, "done": True, "done_reason": reason}, body)


def nanoseconds(seconds: float) -> int:
    """A duration as ollama has it."""
    return round(1e9 * seconds)


class OllamaShape:
    """One answer. Calls are sent whole; one that was cut off is left out, and a warning says so.

    split   reader of the answer; None: all of it is text
    begun   when the request came, by time.monotonic
    """

    def __init__(self, served: Served, body: OllamaAnswerRequest, job: Job, split: Split | None, begun: float) -> None:
        self._served, self._body, self.job, self._split, self._begun = served, body, job, split, begun
        self._n_calls = 0  # sent, or left out
        self.form = StreamFormat(NDJSON, line({**head(served, body), **self.said(""), "done": False}))

    def said(self, text: str, thoughts: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """The fields of a part of the answer."""
        raise NotImplementedError

    def figures(self) -> dict[str, Any]:
        """More fields of the end."""
        return {}

    # --- called by streaming.py ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        if self._split is None:
            said = self.said(self.job.result.text)
        else:
            read = self._split.reader
            said = self.said(read.text, read.thoughts, self._calls(len(read.calls)))
        return {**head(self._served, self._body), **said, **self._logprobs(pieces[0]), **self._end()}

    def opening(self) -> Iterator[str]:
        """No lines."""
        return iter(())

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """A line for each part that became certain; the last one carries the logprobs."""
        if self._split is None:
            told = [self.said(piece.text)] if piece.text else []
        else:
            told = list(self._told(self._split.push(piece)))
        known = self._logprobs([piece])
        if not told and known:
            told = [self.said("")]
        for at, part in enumerate(told):
            yield self._line({**part, **(known if at == len(told) - 1 else {})})

    def ending(self, index: int) -> Iterator[str]:
        """Lines for the text held back and for the last calls, and the line with the figures."""
        if self._split is not None:
            for part in self._told(self._split.rest):
                yield self._line(part)
            if calls := self._calls(len(self._split.reader.calls)):
                yield self._line(self.said("", "", calls))
        yield line({**head(self._served, self._body), **self.said(""), **self._end()})

    def closing(self) -> Iterator[str]:
        """No lines."""
        return iter(())

    def failure(self, error: Exception) -> Iterator[str]:
        """A line in the shape of an error response."""
        yield line(json.loads(bytes(errors.for_path(PATH, errors.of_exception(error)).body)))

    def _line(self, part: dict[str, Any]) -> str:
        return line({**head(self._served, self._body), **part, "done": False})

    def _told(self, parts: Sequence[AnswerPart]) -> Iterator[dict[str, Any]]:
        """The fields of the parts. A call is complete when something follows it."""
        for part in parts:
            if part.kind == "arguments":
                continue
            assert self._split is not None
            if calls := self._calls(part.index if part.kind == "call" else len(self._split.reader.calls)):
                yield self.said("", "", calls)
            if part.kind == "thought":
                yield self.said("", part.text)
            elif part.kind == "text":
                yield self.said(part.text)

    def _calls(self, end: int) -> list[dict[str, Any]]:
        """The calls before number `end` that were not sent yet."""
        assert self._split is not None
        made = []
        for index in range(self._n_calls, end):
            call = self._split.reader.calls[index]
            arguments = arguments_of(call)
            if isinstance(arguments, dict):
                function = {"index": index, "name": call.name, "arguments": arguments}
                made.append({"id": call.id, "function": function})
            else:
                self._body.warnings.append(f"a call of {call.name[:64]} is left out: the answer was cut off in it")
        self._n_calls = max(self._n_calls, end)
        return made

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        known = token_logprobs(self._served.model.tokenizer, pieces)
        return {"logprobs": known} if known else {}

    def _end(self) -> dict[str, Any]:
        """The reason of the end, and figures. Durations are in nanoseconds."""
        job, result = self.job, self.job.result
        told = {
            "done": True,
            "done_reason": DONE_REASON[result.reason],
            **self.figures(),
            "total_duration": nanoseconds(time.monotonic() - self._begun),
            "load_duration": 0,  # the model is loaded
            "prompt_eval_count": len(job.ids),
            "prompt_eval_duration": nanoseconds(result.prompt_seconds),
            "eval_count": len(result.ids),
            "eval_duration": nanoseconds(result.gen_seconds),
            "cache": cache_usage([job]),
        }
        return with_warnings(told, self._body)
