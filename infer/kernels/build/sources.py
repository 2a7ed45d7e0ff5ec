"""Digests of the sources of a kernel's machine code: its module, and the modules that it imports.

The sources are read before any other module of the package is imported: if the emitter is edited while a process runs,
code of the old emitter cannot be kept under the digest of the new one.
"""

import hashlib
import re
import secrets
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = __name__.rsplit(".", 2)[0]
_TOP = _PACKAGE.partition(".")[0]
_ROOT = Path(__file__).parents[_PACKAGE.count(".") + 1]
# Also imports within functions; names are listed in parentheses or up to the end of the line. The pattern begins with a
# letter, which `re` finds faster than the beginning of a line.
_IMPORT = re.compile(rb"from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)")


def _path(module: str) -> Path | None:
    """The file of one of our modules; None for other names."""
    top, _, rest = module.partition(".")
    if top != _TOP:
        return None
    place = _ROOT / rest.replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Names of modules that the source of a module in `package` may import."""
    for dots, name, names in _IMPORT.findall(source):
        if not dots and not name.startswith(_TOP.encode()):
            continue
        above = package.split(".")[: package.count(".") + 2 - len(dots)] if dots else []
        base = ".".join([*above, *([name.decode()] if name else [])])
        yield base
        yield from (f"{base}.{word.decode()}" for word in re.findall(rb"\w+", names))


def _read() -> dict[str, tuple[bytes, bool]]:
    """Module name -> (source, whether it is a package's `__init__`), for every module of the package."""
    here = Path(__file__).parents[1]
    sources: dict[str, tuple[bytes, bool]] = {}
    for path in here.rglob("*.py"):
        parts = path.relative_to(here).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        sources[".".join([_PACKAGE, *(parts[:-1] if is_package else parts)])] = path.read_bytes(), is_package
    return sources


_SOURCES = _read()


@cache
def _known(module: str) -> tuple[bytes, tuple[str, ...]] | None:
    """The hash of a module's source, and the names it imports if it is in the package; None if it is not ours."""
    if module in _SOURCES:
        source, is_package = _SOURCES[module]
        names = _imports(source, module if is_package else module.rpartition(".")[0])
        return hashlib.sha256(source).digest(), tuple(dict.fromkeys(names))
    path = None if module.startswith(_PACKAGE) else _path(module)
    return None if path is None else (hashlib.sha256(path.read_bytes()).digest(), ())


@cache
def digest(*modules: str) -> str:
    """Digest of all sources that a kernel from these modules depends on. `modules` may be outside the package (in
    tests)."""
    key = hashlib.sha256()
    pending = [module for module in modules if module in _SOURCES]
    for module in modules:
        if module in _SOURCES:
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        # code without a file (python -c), or in a module without one, gets a new digest each time
        source = Path(file).read_bytes() if file else secrets.token_bytes()
        key.update(source)
        pending += _imports(source, module.rpartition(".")[0])
    reached: dict[str, bytes] = {}
    while pending:
        name = pending.pop()
        if name not in reached and (found := _known(name)) is not None:
            reached[name], imported = found
            pending += imported
    for name in sorted(reached):
        key.update(reached[name])
    return key.hexdigest()[:16]
