"""POST /completion: llama-server's own API, for prompts of text, tokens, or both mixed."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.asking.asker import Prompt
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.infer.text.encode import rendered_ids

from .. import errors
from ..client import Client
from ..endpoint import post
from ..errors import RequestError
from ..fields import AnswerFields, ParseSpecial, Strict
from ..in_thread import prepared
from ..jobs import Maker
from ..pictures.parts import GivenPicture, Said
from ..pictures.prompts import MARKER, picture_prompt
from ..request_jobs import Event
from ..served import Served
from ..streaming import event, respond
from ..timings import ServerTimings, prompt_progress
from .answer import probabilities, whole_answer


class PromptObject(Strict):
    """A prompt with pictures, one for each <__media__> in its text, as base64."""

    prompt_string: str
    multimodal_data: list[str] | None = None


class ImageItem(Strict):
    """A picture as base64; it stands at [img-ID] in the prompt."""

    data: str
    id: int


Mixed = list[int | str]


class NativeAnswerFields(AnswerFields):
    """Settings of answers."""

    n_cmpl: Annotated[int, Field(ge=1, le=64)] | None = None
    n_probs: Annotated[int, Field(ge=0)] = 0
    logprobs: Annotated[int, Field(ge=0)] | None = None
    post_sampling_probs: bool = False
    return_tokens: bool = False
    response_fields: list[str] | None = None


class NativeCompletionRequest(NativeAnswerFields):
    """One or more prompts, and settings of their continuations."""

    prompt: str | PromptObject | list[int | str | Mixed | PromptObject]
    parse_special: ParseSpecial = True
    image_data: list[ImageItem] | None = None


def completion_jobs(maker: Maker, request: NativeCompletionRequest, whose: Client) -> list[Job]:
    """n answers per prompt."""
    plain = not request.parse_special
    if request.image_data:
        prompts = [_with_images(maker, request, whose, request.image_data)]
    else:
        prompts = prompts_of(maker, request.prompt, whose, plain=plain)
    return native_jobs(maker, request, prompts, whose)


def native_jobs(
    maker: Maker, request: NativeAnswerFields, prompts: Sequence[Prompt | list[int]], whose: Client
) -> list[Job]:
    """n answers per prompt."""
    most = request.most if request.most is not None else maker.defaults.n_predict
    n_probs = min(request.n_probs or request.logprobs or 0, maker.model.n_vocab)
    return maker.jobs(request, prompts, most, n_probs or None, whose, request.post_sampling_probs)


def _with_images(maker: Maker, request: NativeCompletionRequest, whose: Client, images: Sequence[ImageItem]) -> Prompt:
    """The prompt with pictures at its marks."""
    if not isinstance(request.prompt, str):
        raise RequestError("image_data needs a prompt that is one text", param="image_data")
    if len({image.id for image in images}) < len(images):
        raise RequestError("image_data: two pictures have the same id", param="image_data")
    marks = {
        f"[img-{image.id}]": GivenPicture(f"image_data.{at}", image.data, is_base64=True)
        for at, image in enumerate(images)
    }
    found = re.split(f"({'|'.join(map(re.escape, marks))})", request.prompt)
    for mark, picture in marks.items():
        if mark not in found:
            raise RequestError(f"{picture.place}: the prompt has no {mark}", param=picture.place)
    return picture_prompt(maker, [marks.get(part, part) for part in found], whose, plain=not request.parse_special)


def prompts_of(maker: Maker, prompt: Any, whose: Client, *, plain: bool = False) -> list[Prompt]:
    """The prompts. A list with a number in it is one prompt; any other list has a prompt per item.

    plain: control tokens written in texts stay text
    """
    if isinstance(prompt, list) and not any(isinstance(part, int) for part in prompt):
        if not prompt:
            raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
        maker.check_number(prompt)
        return [_prompt(maker, one, whose, plain, f"prompt.{at}") for at, one in enumerate(prompt)]
    return [_prompt(maker, prompt, whose, plain, "prompt")]


def _of_object(maker: Maker, prompt: PromptObject, whose: Client, plain: bool, place: str) -> Prompt:
    """The prompt with pictures at its markers."""
    texts, given = prompt.prompt_string.split(MARKER), prompt.multimodal_data or []
    if not given:
        return maker.text(prompt.prompt_string, whose, plain=plain)
    place = f"{place}.multimodal_data"
    maker.sight.refuse(place)
    if len(given) != len(texts) - 1:
        raise RequestError(f"{place}: {len(given)} pictures for {len(texts) - 1} times {MARKER}", param=place)
    pictures = [GivenPicture(f"{place}.{at}", data, is_base64=True) for at, data in enumerate(given)]
    parts: list[Said] = [texts[0]]
    for picture, text in zip(pictures, texts[1:], strict=True):
        parts += (picture, text)
    return picture_prompt(maker, parts, whose, plain=plain)


def _prompt(maker: Maker, prompt: Any, whose: Client, plain: bool, place: str) -> Prompt:
    """Tokenizes a prompt. BOS comes before a text at its beginning."""
    if isinstance(prompt, PromptObject):
        return _of_object(maker, prompt, whose, plain, place)
    if isinstance(prompt, str):
        return maker.text(prompt, whose, plain=plain)
    tokenizer = maker.model.tokenizer
    ids: list[int] = []
    for at, part in enumerate(prompt):
        if isinstance(part, int):
            ids.append(part)
        elif not isinstance(part, str):
            raise RequestError("prompt: tokens and texts of one prompt cannot hold other prompts", param="prompt")
        elif at == 0:
            ids += tokenizer.encode(part) if plain else rendered_ids(tokenizer, part)
        else:
            ids += tokenizer.encode(part, add_special=False, parse_special=not plain)
    return Prompt(ids)


class CompletionShape:
    """The answers of one request."""

    def __init__(self, served: Served, body: NativeAnswerFields, jobs: Sequence[Job]) -> None:
        self.served, self.body, self.jobs = served, body, jobs
        self._n_drawn = [0] * len(jobs)
        self._timings: dict[int, ServerTimings] = {}

    @property
    def watcher(self) -> "CompletionShape | None":
        """Itself, if the request wants to know how far it is."""
        return self if self.body.return_progress or self.body.timings_per_token else None

    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """An object for one answer, a list for several."""
        answers = [
            self._chosen(whole_answer(self.served, self.body, i, job, some, tokens=self.body.return_tokens))
            for i, (job, some) in enumerate(zip(self.jobs, pieces, strict=True))
        ]
        return answers[0] if len(answers) == 1 else answers

    def opening(self) -> Iterator[str]:
        return iter(())

    def watch(self, news: Event) -> Iterator[str]:
        """Events for how far a prompt is read."""
        if self.body.timings_per_token:
            self._timings[news.index] = news.timings
        if news.n_read is not None and self.body.return_progress:
            progress = prompt_progress(self.jobs[news.index], news.n_read, news.timings)
            yield event({**self._part(news.index, None), "prompt_progress": progress})

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        self._n_drawn[index] += piece.id is not None
        known = probabilities(self.served, self.jobs[index], [piece])
        more = {"completion_probabilities": known} if known else {}
        yield event({**self._part(index, piece), **more})

    def ending(self, index: int) -> Iterator[str]:
        """The complete answer object without the text, which the stream has sent."""
        whole = whole_answer(self.served, self.body, index, self.jobs[index], ())
        yield event(self._chosen({**whole, "content": ""}))

    def closing(self) -> Iterator[str]:
        return iter(())

    def failure(self, error: Exception) -> Iterator[str]:
        yield event(json.loads(bytes(errors.of_exception(error).body)))

    def _part(self, index: int, piece: TextPiece | None) -> dict[str, Any]:
        timings = self._timings.get(index)
        return {
            "index": index,
            "content": piece.text if piece is not None else "",
            "tokens": [piece.id] if piece is not None and piece.id is not None else [],
            "stop": False,
            "id_slot": self.jobs[index].place,
            "tokens_predicted": self._n_drawn[index],
            "tokens_evaluated": len(self.jobs[index].ids),
            **({"timings": timings.as_json()} if timings is not None else {}),
        }

    def _chosen(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Only the requested fields; "a/b" is field b of a, under that name."""
        if not self.body.response_fields:
            return answer
        found = {path: _at(answer, path) for path in self.body.response_fields}
        return {path: value for path, value in found.items() if value is not _ABSENT}


_ABSENT = object()


def _at(answer: Any, path: str) -> Any:
    for step in path.split("/"):
        if not isinstance(answer, dict) or step not in answer:
            return _ABSENT
        answer = answer[step]
    return answer


async def completion(served: Served, request: Request, body: NativeCompletionRequest) -> Response:
    """The continuations of the prompts."""
    body.n = body.n_cmpl or body.n
    jobs = await prepared(request, completion_jobs, served.maker, body, served.client(request, body))
    shape = CompletionShape(served, body, jobs)
    return await respond(served, request, jobs, shape, stream=body.stream, watcher=shape.watcher)


ENDPOINTS = [post("/completion", "/completions", handler=completion, schema=NativeCompletionRequest)]
