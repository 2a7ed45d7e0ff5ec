"""POST /tokenize and /detokenize, in llama-server's shape (`content`) and vLLM's (`prompt`); GET /tokenizer_info."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.text.chat_template import special_tokens

from ..endpoint import get, post
from ..errors import RequestError
from ..fields import Strict
from ..in_thread import in_thread
from ..served import Served

MOST_TOKENS = 1 << 19  # per /detokenize
MOST_TEXT = 1 << 20  # characters per /tokenize; encoding takes about 100 bytes each


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
    """Token ids."""

    tokens: list[int]
    model: str | None = None


async def tokenize(served: Served, request: Request, body: TokenizeRequest) -> Response:
    """The tokens of a text."""
    if (body.content is None) == (body.prompt is None):
        raise RequestError("give one of content and prompt", param="content")
    n = len(body.content or body.prompt or "")
    if n > MOST_TEXT:
        raise RequestError(f"a text of {n} characters: expected {MOST_TEXT} at most", param="content", status=413)
    tokenizer = served.model.tokenizer
    if body.prompt is not None:
        special = body.add_special_tokens is not False
        ids = await in_thread(
            request, tokenizer.encode, body.prompt, add_special=special, parse_special=body.parse_special
        )
        return JSONResponse({"count": len(ids), "max_model_len": served.model.n_ctx, "tokens": ids})
    ids = await in_thread(
        request,
        tokenizer.encode,
        body.content or "",
        add_special=bool(body.add_special),
        parse_special=body.parse_special,
    )
    if not body.with_pieces:
        return JSONResponse({"tokens": ids})
    return await run_in_threadpool(
        lambda: JSONResponse({"tokens": [{"id": i, "piece": _piece(tokenizer.piece(i))} for i in ids]})
    )


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)


async def detokenize(served: Served, _: Request, body: DetokenizeRequest) -> Response:
    """The text of tokens, under both names."""
    n = len(body.tokens)
    if n > MOST_TOKENS:
        raise RequestError(f"{n} tokens: expected {MOST_TOKENS} at most", param="tokens", status=413)
    return await run_in_threadpool(_text_of, served, body.tokens)


def _text_of(served: Served, ids: list[int]) -> Response:
    n_vocab = served.model.n_vocab
    wrong = next((token for token in ids if not 0 <= token < n_vocab), None)
    if wrong is not None:
        raise RequestError(f"tokens: {wrong} is outside this model's vocabulary of {n_vocab}", param="tokens")
    text = served.model.tokenizer.decode(ids)
    return JSONResponse({"content": text, "prompt": text})


async def tokenizer_info(served: Served, _: Request) -> Response:
    """vLLM's route: contents of Hugging Face's tokenizer_config.json."""
    template = served.maker.template
    return JSONResponse(
        {
            "tokenizer_class": type(served.model.tokenizer).__name__,
            "model_max_length": served.model.n_ctx,
            "vocab_size": served.model.n_vocab,
            "add_bos_token": served.model.tokenizer.add_bos,
            "add_eos_token": served.model.tokenizer.add_eos,
            **special_tokens(served.model.tokenizer),
            "chat_template": template.source if template is not None else None,
        }
    )


ENDPOINTS = [
    get("/tokenizer_info", handler=tokenizer_info, of_encoders=True),
    post("/tokenize", handler=tokenize, schema=TokenizeRequest, of_encoders=True),
    post("/detokenize", handler=detokenize, schema=DetokenizeRequest, of_encoders=True),
]
