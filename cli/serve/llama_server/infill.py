"""POST /infill: llama-server's API for editors. The answer goes between two texts."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.asking.infill import OtherFile, infill_prompt
from hybrid.infer.answers.batch.batcher import Job

from ..client import Client
from ..endpoint import post
from ..fields import Strict
from ..in_thread import prepared
from ..jobs import Maker, check_tokens
from ..served import Served
from ..streaming import respond
from .completion import CompletionShape, NativeAnswerFields, native_jobs

Mixed = str | list[int | str]


class OtherFileFields(Strict):
    """Another file, or a part of it."""

    text: str
    filename: str = "tmp"


class InfillRequest(NativeAnswerFields):
    """The texts around the gap, other files, and settings of the answer. prompt: the beginning of the line with the
    gap."""

    input_prefix: Mixed
    input_suffix: Mixed
    input_extra: list[OtherFileFields] | None = None
    prompt: Annotated[str, Field(description="The beginning of the line with the gap.")] = ""

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds the sampler of llama-server's that joins candidates with the same beginning."""
        yield from super().unheeded()
        if isinstance(self.samplers, list) and "infill" in self.samplers:
            yield "samplers[]", "this server has no sampler infill"


def infill_jobs(maker: Maker, request: InfillRequest, whose: Client) -> list[Job]:
    """n answers."""
    if isinstance(request.samplers, list):
        request.samplers = [name for name in request.samplers if name != "infill"] or None
    others = request.input_extra or []
    texts = [request.prompt, *(other.text for other in others)]
    for given in (request.input_prefix, request.input_suffix):
        parts = [given] if isinstance(given, str) else given
        check_tokens([part for part in parts if isinstance(part, int)], maker.model.n_vocab)
        texts += [part for part in parts if isinstance(part, str)]
    for text in texts:
        maker.check_length(text)
    most = request.most if request.most is not None else maker.defaults.n_predict
    ids = infill_prompt(
        maker.model.tokenizer,
        request.input_prefix,
        request.input_suffix,
        maker.model.n_ctx,
        prompt=request.prompt,
        others=[OtherFile(other.text, other.filename) for other in others],
        n_predict=most,
        suffix_first=maker.defaults.suffix_first,
    )
    return native_jobs(maker, request, [ids], whose)


async def infill(served: Served, request: Request, body: InfillRequest) -> Response:
    """The text of a gap."""
    body.n = body.n_cmpl or body.n
    jobs = await prepared(request, infill_jobs, served.maker, body, served.client(request, body))
    shape = CompletionShape(served, body, jobs)
    return await respond(served, request, jobs, shape, stream=body.stream, watcher=shape.watcher)


ENDPOINTS = [post("/infill", handler=infill, schema=InfillRequest)]
