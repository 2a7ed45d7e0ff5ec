"""GET / for programs, and ollama's routes that change models, which are refused."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..endpoint import Endpoint
from ..errors import RequestError
from ..models.router import ModelRouter
from ..page.routes import page_file

WEB = ("text/html", "text/*", "*/*")  # media types by which a client takes a page


def takes_pages(accept: str | None) -> bool:
    """Whether an Accept header allows HTML; None: the request has no such header, so anything is allowed."""
    if not accept:
        return True
    return any(one.partition(";")[0].strip().lower() in WEB for one in accept.split(","))


async def status(request: Request) -> Response:
    """GET /: the chat page; for programs that take no HTML, and without the page, what ollama says there."""
    if request.app.state.router.settings.page and takes_pages(request.headers.get("accept")):
        return await page_file(request)
    return PlainTextResponse("Ollama is running", headers={"Vary": "Accept"})


async def unchanging(router: ModelRouter, _request: Request) -> Response:
    """Refuses to change models."""
    raise RequestError(
        f"the models of this server do not change while it runs: it has {len(router.entries)}. `hybrid pull NAME` "
        "downloads a model, `hybrid serve NAME` serves it.",
        status=501,
    )


def _refused(method: str, *paths: str) -> Endpoint:
    return Endpoint(paths, unchanging, None, method, of_server=True, is_refusal=True)


ENDPOINTS = [
    _refused("POST", "/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/{digest}"),
    _refused("DELETE", "/api/delete"),
]
