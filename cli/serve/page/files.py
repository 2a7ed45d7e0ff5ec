"""The files of the page, as they are sent: from the package, read once, each with its type and its hash."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
FOLDER = "/page/"
PAGES = {"index.html": "/", "state.html": "/state"}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """packed: the content by gzip; tag: of the content however it is sent, for the header ETag."""

    content: bytes
    packed: bytes
    media: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All of them by the path of their URL. Only these are sent: no name of a request reaches the disk."""
    found = (path for path in sorted(STATIC.rglob("*")) if path.suffix in TYPES)
    return {_url(path.relative_to(STATIC).as_posix()): _read(path) for path in found}


def _url(name: str) -> str:
    return PAGES.get(name) or FOLDER + name


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = hashlib.sha256(content).hexdigest()[:32]
    return PageFile(content, gzip.compress(content, mtime=0), TYPES[path.suffix], f'W/"{tag}"')
