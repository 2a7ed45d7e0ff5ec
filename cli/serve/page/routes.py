"""GET /, /state and /page/...: the files of the web page.

They contain nothing of this server and need no API key: the page asks the API, with the key that its user enters. The
page shows text written by models, so its Content-Security-Policy forbids it to run, load or send anything except its
own files, even if a bug lets markup through.
"""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..guards import header
from .files import page_files

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # only DOMPurify may turn text into elements, in browsers that support trusted types
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # browsers revalidate each time, so that an update takes effect at once
}


def is_page(method: str, path: str) -> bool:
    """Whether a request asks for a file of the page, which needs no API key."""
    return method in ("GET", "HEAD") and path in page_files()


async def page_file(request: Request) -> Response:
    """A file of the page; 304 if the browser has it."""
    found = page_files()[request.scope["path"]]
    known = header(request.scope, b"if-none-match") or ""
    headers = {**HEADERS, "ETag": found.tag, "Vary": "Accept-Encoding"}
    if found.tag in map(str.strip, known.split(",")):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(header(request.scope, b"accept-encoding") or ""):
        return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.media)
    return Response(found.content, headers=headers, media_type=found.media)


def _takes_gzip(accepted: str) -> bool:
    """Whether Accept-Encoding allows gzip; "gzip;q=0" refuses it."""
    for one in accepted.lower().split(","):
        name, _, more = one.partition(";")
        if name.strip() == "gzip":
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", more)
    return False


def page_routes() -> list[Route]:
    """A route per file."""
    return [Route(path, page_file, methods=["GET"]) for path in page_files()]
