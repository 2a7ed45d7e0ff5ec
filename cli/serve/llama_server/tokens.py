"""POST /tokenize and /detokenize, in llama-server's shape (`content`, `tokens`) and vLLM's (`prompt`, `tokens`)."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..endpoint import post
from ..errors import RequestError
from ..fields import Strict
from ..served import Served

MOST_TEXT = 1 << 20  # characters: encoding takes about 100 bytes for each


class TokenizeRequest(Strict):
    """A text under one of its two names."""

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Strict):
    """Ids of tokens."""

    tokens: list[int]
    model: str | None = None


async def tokenize(served: Served, _: Request, body: TokenizeRequest) -> Response:
    """The tokens of a text."""
    if (body.content is None) == (body.prompt is None):
        raise RequestError("give one of content and prompt", param="content")
    n = len(body.content or body.prompt or "")
    if n > MOST_TEXT:
        raise RequestError(f"a text of {n} characters: expected {MOST_TEXT} at most", param="content", status=413)
    tokenizer = served.model.tokenizer
    if body.prompt is not None:
        special = body.add_special_tokens is not False
        ids = await run_in_threadpool(
            tokenizer.encode, body.prompt, add_special=special, parse_special=body.parse_special
        )
        return JSONResponse({"count": len(ids), "max_model_len": served.model.n_ctx, "tokens": ids})
    ids = await run_in_threadpool(
        tokenizer.encode, body.content or "", add_special=bool(body.add_special), parse_special=body.parse_special
    )
    if not body.with_pieces:
        return JSONResponse({"tokens": ids})
    return JSONResponse({"tokens": [{"id": i, "piece": _piece(tokenizer.piece(i))} for i in ids]})


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)


async def detokenize(served: Served, _: Request, body: DetokenizeRequest) -> Response:
    """The text of tokens, under both names."""
    n_vocab = served.model.n_vocab
    wrong = next((token for token in body.tokens if not 0 <= token < n_vocab), None)
    if wrong is not None:
        raise RequestError(f"tokens: {wrong} is not of this model's vocabulary of {n_vocab}", param="tokens")
    text = served.model.tokenizer.decode(body.tokens)
    return JSONResponse({"content": text, "prompt": text})


ENDPOINTS = [
    post("/tokenize", handler=tokenize, schema=TokenizeRequest, of_encoders=True),
    post("/detokenize", handler=detokenize, schema=DetokenizeRequest, of_encoders=True),
]
