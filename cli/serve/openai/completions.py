"""POST /v1/completions: OpenAI's older API, for prompts of text or tokens.

With `echo` a choice's text begins with its prompt, as the model read it; with `logprobs` also, so do the lists of
tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.asking.asker import Prompt
from hybrid.infer.answers.asking.infill import check_fill, gap_prompt, mixed_ids
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece, TokenLogprobs
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

from ..client import Client
from ..endpoint import post
from ..errors import RequestError
from ..fields import AnswerFields, ParseSpecial
from ..in_thread import prepared
from ..jobs import Maker
from ..served import Served
from ..streaming import respond
from .shape import CompletionsShape, with_logprobs

FEW = 16  # OpenAI's default of max_tokens


class CompletionRequest(AnswerFields):
    """One or more prompts, and settings of their continuations."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool = True
    parse_special: ParseSpecial = True


def completion_jobs(maker: Maker, request: CompletionRequest, whose: Client) -> list[Job]:
    """n answers per prompt; with echo and logprobs the first one computes the prompt's logprobs."""
    if request.best_of not in (None, request.n):
        raise RequestError(
            f"best_of = {request.best_of}: this server gives all answers that it samples, n = {request.n}",
            param="best_of",
        )
    most = request.most if request.most is not None else maker.defaults.n_predict
    if most is None:
        most = FEW
    prompts: Sequence[Prompt | list[int]]
    if request.suffix:
        if request.echo:
            raise RequestError("echo and suffix exclude each other", param="suffix")
        prompts = gap_prompts(maker, request.prompt, request.suffix)
    else:
        prompts = maker.prompts(
            request.prompt, whose, plain=not request.parse_special, add_special=request.add_special_tokens
        )
    jobs = maker.jobs(request, prompts, most, request.logprobs, whose)
    if request.echo:
        for job in jobs[:: request.n]:
            job.prompt_top = request.logprobs
    return jobs


def gap_prompts(maker: Maker, given: Any, suffix: str) -> list[list[int]]:
    """The prompts of a request, with the suffix after a gap. RequestError, UsageError: that cannot be."""
    tokenizer = maker.model.tokenizer
    try:
        check_fill(tokenizer)
    except UsageError as error:
        raise RequestError(f"suffix: {error}", param="suffix") from None
    one = isinstance(given, str) or (given and isinstance(given[0], int))
    prompts: Any = [given] if one else given
    if not prompts:
        raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
    maker.check_number(prompts)
    for text in (suffix, *prompts):
        if isinstance(text, str):
            maker.check_length(text)
    after = mixed_ids(tokenizer, suffix)
    return [
        gap_prompt(tokenizer, mixed_ids(tokenizer, before), after, suffix_first=maker.defaults.suffix_first)
        for before in prompts
    ]


class TokenLists:
    """The tokens of one text in this API's lists; each call continues the offsets of the one before."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        """special: control tokens are part of an answer's text."""
        self._tokenizer, self._special = tokenizer, special
        self._stream = tokenizer.stream(skip_special=not special)
        self._at = 0  # text offset of the next token, in characters

    def prompt(self, job: Job, logprobs: Sequence[TokenLogprobs | None]) -> dict[str, Any]:
        """The prompt's tokens; the first one has no logprob."""
        self._stream = self._tokenizer.stream(skip_special=True, at_start=True)
        listed = self._listed(zip(job.ids, logprobs, strict=True))
        self._at += len(self._stream.flush())
        self._stream = self._tokenizer.stream(skip_special=not self._special)
        return listed

    def answer(self, known: Sequence[tuple[int, TokenLogprobs]]) -> dict[str, Any] | None:
        """Sampled tokens."""
        return self._listed(known) if known else None

    def _listed(self, known: Iterable[tuple[int, TokenLogprobs | None]]) -> dict[str, Any]:
        lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, logprobs in known:
            text = self._name(token)
            lists["tokens"].append(text)
            lists["token_logprobs"].append(logprobs and logprobs.logprob)
            lists["top_logprobs"].append(logprobs and self._likeliest(text, logprobs))
            lists["text_offset"].append(self._at)
            self._at += len(self._stream.push(token))
        return lists

    def _likeliest(self, text: str, logprobs: TokenLogprobs) -> dict[str, float]:
        """Logprobs by name of the token, including the sampled one; of tokens with equal names the most likely."""
        likeliest: dict[str, float] = {}
        for token, ln_p in logprobs.top:
            likeliest.setdefault(self._name(token), ln_p)
        likeliest.setdefault(text, logprobs.logprob)
        return likeliest

    def _name(self, token: int) -> str:
        """The text of a token, or `bytes:` and hexadecimal escapes if it is not valid text."""
        piece = self._tokenizer.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def prompt_text(tokenizer: Tokenizer, job: Job) -> str:
    """The prompt as the model read it, without control tokens, as in answers."""
    return tokenizer.decode(job.ids, skip_special=True)


class CompletionShape(CompletionsShape):
    """One text per answer."""

    kind, part_kind, prefix = "text_completion", "text_completion", "cmpl-"

    def __init__(self, served: Served, body: CompletionRequest, jobs: Sequence[Job]) -> None:
        super().__init__(served, body, jobs)
        self._n, self._echo, self._with_logprobs = body.n, body.echo, body.logprobs is not None
        self._lists = [TokenLists(self.tokenizer, special=not body.skip_special_tokens) for _ in jobs]
        self._begun: set[int] = set()  # choices whose prompt was sent
        # pieces that arrived before the logprobs of their prompt; None: the end of an answer
        self._held: dict[int, list[TextPiece | None]] = {}

    def choice(self, job: Job, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        index = self.jobs.index(job)
        prompt, listed = self._prompt(index)
        answer = self._lists[index].answer([*with_logprobs(pieces), *self._end(job)])
        return {"text": prompt + job.result.text, "logprobs": _joined(listed, answer)}

    # --- streams ---
    @property
    def nothing(self) -> dict[str, Any]:
        return {"text": "", "logprobs": None}

    def opening(self) -> Iterator[str]:
        """The prompts, if nothing about them must be computed first."""
        for index in range(len(self.jobs)) if self._echo and not self._with_logprobs else ():
            yield from self._opened(index)

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """An event for the visible text, after the event for the prompt if `echo` asks for one."""
        return self._told(index, piece)

    def ending(self, index: int) -> Iterator[str]:
        """The event with the reason of the end."""
        return self._told(index, None)

    def _told(self, index: int, piece: TextPiece | None) -> Iterator[str]:
        first = index - index % self._n
        if self._echo and index != first and first not in self._begun:
            self._held.setdefault(index, []).append(piece)
            return
        if self._echo and index not in self._begun:
            yield from self._opened(index)
        if piece is None:
            listed = self._lists[index].answer(self._end(self.jobs[index]))
            yield self._last_chunk(index, {"text": "", "logprobs": listed})
        elif piece.text or piece.logprobs is not None:
            listed = self._lists[index].answer(with_logprobs([piece]))
            yield self._chunk(index, {"text": piece.text, "logprobs": listed})
        for other in range(index + 1, index + self._n if index == first else index):
            for held in self._held.pop(other, ()):
                yield from self._told(other, held)

    def _opened(self, index: int) -> Iterator[str]:
        self._begun.add(index)
        text, listed = self._prompt(index)
        yield self._chunk(index, {"text": text, "logprobs": listed})

    def _prompt(self, index: int) -> tuple[str, dict[str, Any] | None]:
        """The beginning of a choice: the prompt's text and lists of tokens."""
        job, first = self.jobs[index], self.jobs[index - index % self._n]
        if not self._echo:
            return "", None
        listed = self._lists[index].prompt(job, first.prompt_logprobs) if self._with_logprobs else None
        return prompt_text(self.tokenizer, job), listed

    def _end(self, job: Job) -> list[tuple[int, TokenLogprobs]]:
        """The token that ended the answer: it is listed without text."""
        eog, logprobs = job.result.eog, job.drawing.end_logprobs
        return [] if eog is None or logprobs is None else [(eog, logprobs)]


def _joined(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    if first is None or second is None:
        return first or second
    return {name: first[name] + second[name] for name in first}


async def completions(served: Served, request: Request, body: CompletionRequest) -> Response:
    """The continuations of the prompts."""
    jobs = await prepared(request, completion_jobs, served.maker, body, served.client(request, body))
    shape = CompletionShape(served, body, jobs)
    return await respond(served, request, jobs, shape, stream=body.stream, watcher=shape.watcher)


ENDPOINTS = [post("/v1/completions", handler=completions, schema=CompletionRequest)]
