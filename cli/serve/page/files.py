"""The files of the page, read once from the package, with content type and hash."""

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
    """A file of the page. packed: compressed by gzip; tag: its ETag, the same for both encodings."""

    content: bytes
    packed: bytes
    media: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All files by URL path. Only these can be requested: no name in a request reaches the disk."""
    found = (path for path in sorted(STATIC.rglob("*")) if path.suffix in TYPES)
    return {_url(path.relative_to(STATIC).as_posix()): _read(path) for path in found}


def _url(name: str) -> str:
    return PAGES.get(name) or FOLDER + name


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = hashlib.sha256(content).hexdigest()[:32]
    return PageFile(content, gzip.compress(content, mtime=0), TYPES[path.suffix], f'W/"{tag}"')
