"""Answers in OpenAI's shapes: chat completions and completions, whole and in pieces."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece
from hybrid.infer.text.tokenizer import Tokenizer

FINISH = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


def usage(jobs: Sequence[Job], prompts: Sequence[Job]) -> dict[str, Any]:
    """Tokens of all answers, and of each prompt once; `prompts`: the first job of each."""
    n_prompt, n_answer = sum(len(job.ids) for job in prompts), sum(len(job.result.ids) for job in jobs)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_answer,
        "total_tokens": n_prompt + n_answer,
        "prompt_tokens_details": {"cached_tokens": sum(job.n_known for job in prompts)},
    }


class Shape:
    """What an answer of one request looks like."""

    kind, part_kind, prefix = "", "", ""

    def __init__(self, model: str, fingerprint: str, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._head = {
            "id": self.prefix + uuid.uuid4().hex,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"b-{fingerprint[:12]}",
        }

    def whole(self, jobs: Sequence[Job], prompts: Sequence[Job], pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        choices = [
            {**self.choice(job, some), "index": i, "finish_reason": FINISH[job.result.reason]}
            for i, (job, some) in enumerate(zip(jobs, pieces, strict=True))
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage(jobs, prompts)}

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> Any:
        """An event of a stream."""
        return {**self._head, "object": self.part_kind, "choices": choices, **more}

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        """A whole answer."""
        raise NotImplementedError

    def begin(self, index: int) -> dict[str, Any] | None:
        """What a stream says of an answer before its first piece."""
        raise NotImplementedError

    def part(self, index: int, piece: TextPiece) -> dict[str, Any]:
        """A piece of an answer."""
        raise NotImplementedError

    def end(self, index: int, job: Job) -> dict[str, Any]:
        """What a stream says of an answer after its last piece."""
        raise NotImplementedError

    def text_of(self, token: int) -> tuple[str, list[int]]:
        """Of one token alone: as text, and its bytes."""
        piece = self.tokenizer.piece(token)
        return piece.decode("utf-8", "replace"), list(piece)


class ChatShape(Shape):
    """Chat completions."""

    kind, part_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        message = {"role": "assistant", "content": job.result.text}
        return {"message": message, "logprobs": self._logprobs(pieces)}

    def begin(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, index: int, piece: TextPiece) -> dict[str, Any]:
        delta = {"content": piece.text}
        return {"index": index, "delta": delta, "logprobs": self._logprobs([piece]), "finish_reason": None}

    def end(self, index: int, job: Job) -> dict[str, Any]:
        return {"index": index, "delta": {}, "logprobs": None, "finish_reason": FINISH[job.result.reason]}

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any] | None:
        known = [(piece.id, piece.logprobs) for piece in pieces if piece.id is not None and piece.logprobs is not None]
        if not known:
            return None

        def entry(token: int, logprob: float) -> dict[str, Any]:
            text, raw = self.text_of(token)
            return {"token": text, "logprob": logprob, "bytes": raw}

        content = [
            {**entry(token, known_as.logprob), "top_logprobs": [entry(*pair) for pair in known_as.top]}
            for token, known_as in known
        ]
        return {"content": content, "refusal": None}


class CompletionShape(Shape):
    """Completions, OpenAI's older shape."""

    kind, part_kind, prefix = "text_completion", "text_completion", "cmpl-"

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        return {"text": job.result.text, "logprobs": self._logprobs(pieces)}

    def begin(self, index: int) -> None:
        return None

    def part(self, index: int, piece: TextPiece) -> dict[str, Any]:
        return {"index": index, "text": piece.text, "logprobs": self._logprobs([piece]), "finish_reason": None}

    def end(self, index: int, job: Job) -> dict[str, Any]:
        return {"index": index, "text": "", "logprobs": None, "finish_reason": FINISH[job.result.reason]}

    def _logprobs(self, pieces: Sequence[TextPiece]) -> dict[str, Any] | None:
        known = [(piece.id, piece.logprobs) for piece in pieces if piece.id is not None and piece.logprobs is not None]
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
