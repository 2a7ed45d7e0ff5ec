"""What every route of embeddings does with its texts: prompts before them, cutting, vectors in the wanted form."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hybrid.infer.evaluate.embed_prompts import KINDS, check_dimensions

from .embedding import Embedding, Text
from .errors import RequestError
from .in_thread import in_thread
from .served import Served
from .streaming import unless_disconnected
from .strict import Strict
from .time_limit import time_limit

Encoding = Literal["float", "base64"]


class EmbedFields(Strict):
    """Fields of several routes, by the names of OpenAI, vLLM, TEI, Cohere, Jina, Voyage and NVIDIA."""

    encoding_format: Encoding = "float"
    dimensions: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="Values of a vector, at most the model's: the first ones, scaled to length 1."),
    ] = None
    prompt_name: Annotated[
        str | None,
        Field(description="Name of the prompt before each text; empty: no prompt. Default: the file's."),
    ] = None
    input_type: Annotated[
        str | None, Field(description="Kind of the texts, query or document, which chooses the prompt.")
    ] = None
    task: Annotated[str | None, Field(description="Jina's name of input_type.")] = None
    truncate: Annotated[
        bool | Literal["NONE", "END"], Field(description="Texts that are too long lose their ends.")
    ] = False
    truncate_prompt_tokens: Annotated[
        Annotated[int, Field(ge=1)] | Literal[-1] | None,
        Field(description="Texts keep at most this number of tokens; -1: as many as the context has."),
    ] = None

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds kinds of texts that nobody knows."""
        yield from super().unheeded()
        for name in ("input_type", "task"):
            kind = getattr(self, name)
            if kind is not None and kind not in KINDS:
                yield name, f"known are {', '.join(KINDS)}"

    @property
    def cuts(self) -> bool:
        """Whether texts may be cut."""
        return self.truncate in (True, "END") or self.truncate_prompt_tokens is not None


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors in the wanted form, the tokens of all texts, the texts that were cut, and a note; "": none."""

    rows: list[Any]
    n_tokens: int
    truncated: tuple[int, ...]
    note: str

    @property
    def usage(self) -> dict[str, Any]:
        """The usage of an answer."""
        usage: dict[str, Any] = {"prompt_tokens": self.n_tokens, "total_tokens": self.n_tokens}
        if self.truncated:
            usage["truncated"] = list(self.truncated)
        return usage


async def vectors(
    served: Served, request: Request, texts: Sequence[Text], asked: EmbedFields, *, normalize: bool = True
) -> Vectors:
    """Vectors of the texts. Ends when the client goes."""
    embedding = served.embedding
    if embedding is None:
        raise RequestError("this server was started without a sequence for embeddings", status=501)
    source = embedding.source
    if source.refusal:
        raise RequestError(f"{served.name} is for other requests: {source.refusal}")
    applied = served.adapters_of_whole_texts(request)
    check_dimensions(asked.dimensions, source.n_embd)
    prompted = _prompted(embedding, texts, asked)
    longest, limit = served.maker.most_characters, asked.truncate_prompt_tokens or -1
    if asked.cuts:
        prompted = [text[:longest] if isinstance(text, str) else text for text in prompted]
    for text in prompted:
        if isinstance(text, str):
            served.maker.check_length(text)
    n_ctx = source.n_ctx if limit < 0 else min(limit, source.n_ctx)
    async with time_limit(request, served.settings.timeout).kept():
        tokens = await in_thread(request, embedding.tokens, prompted, n_ctx=n_ctx, truncate=asked.cuts)
        made = embedding.vectors(tokens.ids, normalize=normalize, dimensions=asked.dimensions, applied=applied)
        rows = await unless_disconnected(request, made)
    note = source.prompts.note_on_length(asked.dimensions, source.n_embd)
    encoded = await run_in_threadpool(_encoded, rows, asked.encoding_format)
    return Vectors(encoded, sum(map(len, tokens.ids)), tokens.truncated, note)


def _prompted(embedding: Embedding, texts: Sequence[Text], asked: EmbedFields) -> list[Text]:
    """The texts, but not those given as tokens, with the wanted prompt. UsageError: the model has no such prompt."""
    prompts, name = embedding.source.prompts, asked.prompt_name
    kind = asked.input_type or asked.task
    if name is None and kind is not None:
        name = prompts.of_kind(kind)
    prompt = prompts.named(name)
    return [prompt + text if isinstance(text, str) else text for text in texts]


def _encoded(rows: np.ndarray, encoding: Encoding) -> list[Any]:
    if encoding == "base64":
        return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    # str(): the shortest text that reads back as the same f32
    return [[float(str(value)) for value in row] for row in rows]
