"""The common part of OpenAI's chat and completions APIs."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece, TokenLogprobs
from hybrid.infer.text.tokenizer import Tokenizer

from .. import errors
from ..cache_usage import cache_usage
from ..fields import AnswerFields
from ..llama_server.answer import whole_answer
from ..request_jobs import Event
from ..served import Served
from ..streaming import event
from ..timings import ServerTimings, prompt_progress
from ..warning_log import with_warnings

FINISH = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


def usage(jobs: Sequence[Job], prompts: Sequence[Job]) -> dict[str, Any]:
    """Token counts: of all answers, and of each prompt once; `prompts`: the first job of each."""
    n_prompt, n_answer = sum(len(job.ids) for job in prompts), sum(len(job.result.ids) for job in jobs)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_answer,
        "total_tokens": n_prompt + n_answer,
        "prompt_tokens_details": {"cached_tokens": sum(job.n_known for job in prompts)},
        "cache": cache_usage(jobs),
    }


class CompletionsShape:
    """The answers of one request, a choice each."""

    kind, part_kind, prefix = "", "", ""

    def __init__(self, served: Served, body: AnswerFields, jobs: Sequence[Job]) -> None:
        self._served, self._body = served, body
        self._timings: dict[int, ServerTimings] = {}
        self.tokenizer = served.model.tokenizer
        self.jobs, self.prompts = jobs, jobs[:: body.n]
        self._with_usage = body.stream_options is not None and body.stream_options.include_usage
        scales = jobs[0].applied.scales if jobs[0].applied is not None else ()
        self._head = {
            "id": self.prefix + uuid.uuid4().hex,
            "created": int(time.time()),
            "model": served.adapters.model_of(body.model),
            "system_fingerprint": f"b-{served.answers.model.file.fingerprint_with(scales)[:12]}",
        }

    # --- called by streaming.py ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        choices = [
            {**self.choice(job, some), "index": i, "finish_reason": self.finish(i)}
            for i, (job, some) in enumerate(zip(self.jobs, pieces, strict=True))
        ]
        head = {**self._head, "object": self.kind, "choices": choices, "usage": self.usage()}
        return {**head, **self._verbose(0, pieces[0]), "timings": ServerTimings.of(self.jobs[0]).as_json()}

    @property
    def watcher(self) -> "CompletionsShape | None":
        """Itself, if the request wants llama-server's extra events."""
        return self if self._body.return_progress or self._body.timings_per_token else None

    def watch(self, news: Event) -> Iterator[str]:
        """Events for how far a prompt is read, and timings for the next event."""
        if self._body.timings_per_token:
            self._timings[news.index] = news.timings
        if news.n_read is not None and self._body.return_progress:
            progress = prompt_progress(self.jobs[news.index], news.n_read, news.timings)
            yield self._chunk(news.index, self.nothing, prompt_progress=progress)

    def opening(self) -> Iterator[str]:
        """No events; subclasses may add some."""
        return iter(())

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """An event for the visible text."""
        if piece.text or piece.logprobs is not None:
            yield self._chunk(index, self.part(piece))

    def ending(self, index: int) -> Iterator[str]:
        """The event with the reason of the end."""
        yield self._last_chunk(index, self.part(None))

    def closing(self) -> Iterator[str]:
        """The usage, if requested, and `[DONE]`."""
        if self._with_usage:
            timings = ServerTimings.of(self.jobs[0]).as_json()
            more = {"choices": [], "usage": self.usage(), "timings": timings}
            yield event({**self._head, "object": self.part_kind, **more})
        yield "data: [DONE]\n\n"

    def failure(self, error: Exception) -> Iterator[str]:
        """An event in the shape of an error response."""
        yield event(json.loads(bytes(errors.of_exception(error).body)))

    def _chunk(self, index: int, part: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": index, **part, "finish_reason": reason}
        timings = self._timings.get(index)
        if timings is not None:
            more["timings"] = timings.as_json()
        return event({**self._head, "object": self.part_kind, "choices": [choice], **more})

    def _last_chunk(self, index: int, part: dict[str, Any]) -> str:
        """The last event of an answer, with its reason, and timings unless the usage has them."""
        self._timings.pop(index, None)
        more = self._verbose(index, ())
        if not self._with_usage:
            more["timings"] = ServerTimings.of(self.jobs[index]).as_json()
        return self._chunk(index, part, self.finish(index), **more)

    def _verbose(self, index: int, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        """llama-server's details on the answer, if `verbose` asks for them."""
        if not self._body.verbose:
            return {}
        return {"__verbose": whole_answer(self._served, self._body, index, self.jobs[index], pieces)}

    # --- of one kind ---
    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        """A whole answer."""
        raise NotImplementedError

    def part(self, piece: TextPiece | None) -> dict[str, Any]:
        """A piece of an answer; None: its end."""
        raise NotImplementedError

    def finish(self, index: int) -> str:
        """Why an answer ended."""
        return FINISH[self.jobs[index].result.reason]

    def usage(self) -> dict[str, Any]:
        """Token counts of the request."""
        return with_warnings(usage(self.jobs, self.prompts), self._body)

    @property
    def nothing(self) -> dict[str, Any]:
        """The fields of an event without any part of the answer."""
        return self.part(None)

    def text_of(self, token: int) -> tuple[str, list[int]]:
        """Text and bytes of one token alone."""
        return text_of(self.tokenizer, token)


def text_of(tokenizer: Tokenizer, token: int) -> tuple[str, list[int]]:
    """Text and bytes of one token alone."""
    piece = tokenizer.piece(token)
    return piece.decode("utf-8", "replace"), list(piece)


def with_logprobs(pieces: Sequence[TextPiece]) -> list[tuple[int, TokenLogprobs]]:
    """The tokens that have logprobs, with these."""
    return [(piece.id, piece.logprobs) for piece in pieces if piece.id is not None and piece.logprobs is not None]
