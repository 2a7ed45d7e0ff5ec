"""GET /, /state and /page/...: the pages that a browser shows.

They hold nothing of this server and are sent without a key: what they show they ask of the API, with the key that the
person before them gives. What a model writes is shown in them, so that nothing in them may run, load or send anything
but the files beside them: the policy says so to the browser, whatever a bug of ours lets through.
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
        # text becomes elements by DOMPurify or not at all, in browsers that know this
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
    "Cache-Control": "no-cache",  # asked each time whether it is still the same, so that an update is one at once
}


def is_page(method: str, path: str) -> bool:
    """Whether this asks for a file of the page, which needs no key."""
    return method in ("GET", "HEAD") and path in page_files()


async def page_file(request: Request) -> Response:
    """A file of the page; 304 where the browser has it already."""
    found = page_files()[request.scope["path"]]
    known = header(request.scope, b"if-none-match") or ""
    headers = {**HEADERS, "ETag": found.tag, "Vary": "Accept-Encoding"}
    if found.tag in map(str.strip, known.split(",")):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(header(request.scope, b"accept-encoding") or ""):
        return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.media)
    return Response(found.content, headers=headers, media_type=found.media)


def _takes_gzip(accepted: str) -> bool:
    """By Accept-Encoding: "gzip;q=0" refuses it."""
    for one in accepted.lower().split(","):
        name, _, more = one.partition(";")
        if name.strip() == "gzip":
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", more)
    return False


def page_routes() -> list[Route]:
    """One for each file."""
    return [Route(path, page_file, methods=["GET"]) for path in page_files()]
