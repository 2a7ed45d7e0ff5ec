"""POST /v1/embeddings: vectors of texts."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import shown

from ..embed_request import EmbedFields, vectors
from ..embedding import Text
from ..endpoint import post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..served import Served
from ..strict import LONGEST_NAME
from ..warning_log import with_warnings


class InputPart(Strict):
    """A part of a text; `text` is the only type."""

    type: str
    text: str = ""


class TextObject(Strict):
    """A text in llama-server's format: whole, or in parts that are joined."""

    prompt_string: str | None = None
    content: Annotated[list[InputPart], Field(min_length=1)] | None = None
    multimodal_data: Any = None
    image: Any = None
    image_url: Any = None

    @property
    def text(self) -> str:
        """The text. RequestError: both spellings are given, or neither; or there is something else than a text."""
        other = next((part.type for part in self.content or () if part.type != "text"), None)
        other = other or next((name for name in ("multimodal_data", "image", "image_url") if getattr(self, name)), None)
        if other is not None:
            raise RequestError(
                f"input: {shown(other, LONGEST_NAME)}: embeddings are of texts, no model here makes any of pictures or "
                "sound",
                param="input",
            )
        if (self.prompt_string is None) == (self.content is None):
            raise RequestError("input: an object has one of prompt_string and content", param="input")
        return self.prompt_string or "".join(part.text for part in self.content or ())


Tokens = list[int | str]  # one text, as ids and pieces of text
Texts = str | TextObject | list[int | str | Tokens | TextObject]


class EmbeddingsRequest(EmbedFields):
    """One or more texts."""

    input: Texts
    model: str | None = None
    user: Ignored


def texts_of(given: Any, tokenizer: Tokenizer) -> list[Text]:
    """Each text as a string or ids. A list with a number in it is one text; any other list has a text per item."""
    if not isinstance(given, list) or any(isinstance(part, int) for part in given):
        return [_text(given, tokenizer)]
    return [_text(one, tokenizer) for one in given]


def _text(given: Any, tokenizer: Tokenizer) -> Text:
    """The text, or the ids of a mixed list; special tokens are added only if the list begins with a text."""
    if isinstance(given, TextObject):
        return given.text
    if isinstance(given, str):
        return given
    ids: list[int] = []
    for at, part in enumerate(given):
        if isinstance(part, int):
            ids.append(part)
        elif isinstance(part, str):
            ids += tokenizer.encode(part, add_special=at == 0)
        else:
            raise RequestError("input: tokens and texts of one text cannot hold other texts", param="input")
    return ids


async def embeddings(served: Served, request: Request, body: EmbeddingsRequest) -> Response:
    """A vector of length 1 for each text."""
    texts = texts_of(body.input, served.model.tokenizer)
    found = await vectors(served, request, texts, body)
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(found.rows)]
    usage = with_warnings(found.usage, body)
    if found.note:
        usage["warnings"] = [*usage.get("warnings", ()), f"dimensions: {found.note}"]
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


ENDPOINTS = [post("/v1/embeddings", handler=embeddings, schema=EmbeddingsRequest, of_encoders=True)]
