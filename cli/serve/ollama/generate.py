"""POST /api/generate: a question with a system message, or a raw text."""

import re
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.asking.asker import Prompt
from hybrid.infer.answers.batch.batcher import Job

from ..chats import Split
from ..client import Client
from ..endpoint import post
from ..errors import RequestError
from ..fields import AnswerFields
from ..in_thread import prepared
from ..jobs import Maker
from ..openai.completions import gap_prompts
from ..pictures.parts import GivenPicture, Said, as_content
from ..pictures.prompts import picture_prompt
from ..served import Served
from ..streaming import respond
from .chat import by_openais
from .go_template import filled
from .messages import given_pictures
from .requests import OllamaAnswerRequest
from .shape import NDJSON, OllamaShape, loaded


class OllamaGenerateRequest(OllamaAnswerRequest):
    """A prompt, and settings of its answer.

    template  replaces the model's own: text with {{ .System }}, {{ .Prompt }} and the like
    context   tokens of an earlier question and answer, as this route gave them
    raw       the prompt is what the model reads
    suffix    text after the answer, for models that fill gaps
    """

    prompt: str = ""
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool = False
    images: list[str] | None = None


def answer_of(maker: Maker, body: OllamaGenerateRequest, whose: Client) -> tuple[Job, Split | None]:
    """The job of the answer, and its reader if the answer is a message."""
    pictures = given_pictures(body.images)
    if body.suffix or body.raw or body.template or maker.template is None:
        return _raw(maker, body, whose, pictures), None
    asked = [{"role": "user", "content": as_content([*pictures, body.prompt])}]
    if body.system:
        asked.insert(0, {"role": "system", "content": body.system})
    answers = by_openais(maker, body, asked, whose, after=body.context or ())
    return answers.jobs[0], answers.splits[0]


def _raw(maker: Maker, body: OllamaGenerateRequest, whose: Client, pictures: Sequence[GivenPicture]) -> Job:
    """The job of an answer that continues a text. The pictures are at [img-0], [img-1]..., or before the text."""
    if body.raw and (body.template or body.system or body.context):
        raise RequestError("raw mode does not support template, system, or context", param="raw")
    if body.suffix and not body.template:
        return _job(maker, body, _around_gap(maker, body, body.suffix), whose)
    text = body.prompt
    if body.template:
        given = {"System": body.system or "", "Prompt": body.prompt, "Suffix": body.suffix or ""}
        text = filled(body.template, given)
    elif body.system and not body.raw:
        body.warnings.append("system is ignored: this model has no chat template")
    marks = {f"[img-{at}]": picture for at, picture in enumerate(pictures)}
    parts: list[Said] = [marks.get(part, part) for part in re.split(r"(\[img-\d+\])", text)]
    parts = [*(picture for picture in pictures if picture not in parts), *parts]
    prompt = picture_prompt(maker, parts, whose) if pictures else maker.text(text, whose)
    return _job(maker, body, maker.following(body.context or (), prompt), whose)


def _around_gap(maker: Maker, body: OllamaGenerateRequest, suffix: str) -> list[int]:
    """The tokens of prompt and suffix around a gap, by the model's own tokens for that."""
    for name in ("system", "context", "images"):
        if getattr(body, name):
            raise RequestError(f"suffix and {name} exclude each other", param="suffix")
    (prompt,) = gap_prompts(maker, body.prompt, suffix)
    return prompt


def _job(maker: Maker, body: OllamaGenerateRequest, prompt: Prompt | list[int], whose: Client) -> Job:
    asked = AnswerFields.model_validate(body.as_openais())
    most = asked.most if asked.most is not None else maker.defaults.n_predict
    return maker.jobs(asked, [prompt], most, body.n_top, whose)[0]


class GenerateShape(OllamaShape):
    """A response; also the tokens of question and answer, for `context` of the next request. raw: not these."""

    raw = False

    def said(self, text: str, thoughts: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        return {"response": text, **({"thinking": thoughts} if thoughts else {})}

    def figures(self) -> dict[str, Any]:
        """The tokens, except for a raw text and for a prompt with pictures."""
        job = self.job
        if self.raw or min(job.ids, default=0) < 0:
            return {}
        end = [] if job.result.eog is None else [job.result.eog]
        return {"context": [*job.ids, *job.result.ids, *end]}


async def generate(served: Served, request: Request, body: OllamaGenerateRequest) -> Response:
    """The answer to a prompt. Without a prompt: the model is loaded already."""
    begun = time.monotonic()
    if not body.prompt and not body.images and not body.suffix:
        return JSONResponse(loaded(request, served, body, response=""))
    job, split = await prepared(request, answer_of, served.maker, body, served.client(request, body))
    shape = GenerateShape(served, body, job, split, begun)
    shape.raw = body.raw or bool(body.suffix)
    splits = () if split is None else (split,)
    return await respond(served, request, [job], shape, stream=body.stream, splits=splits, form=shape.form)


ENDPOINTS = [post("/api/generate", handler=generate, schema=OllamaGenerateRequest, streams=NDJSON)]
