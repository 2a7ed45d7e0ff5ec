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
# also imports within functions; names are listed in parentheses or up to the end of the line
_IMPORT = re.compile(rb"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)


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


def _read() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Module name -> (hash, imported names), for every module of the package; also for other modules of ours that these
    import, with no imports."""
    here = Path(__file__).parents[1]
    sources: dict[str, tuple[bytes, tuple[str, ...]]] = {}
    outside: set[str] = set()
    for path in here.rglob("*.py"):
        parts = path.relative_to(here).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join([_PACKAGE, *(parts[:-1] if is_package else parts)])
        source = path.read_bytes()
        imports = tuple(dict.fromkeys(_imports(source, module if is_package else module.rpartition(".")[0])))
        sources[module] = hashlib.sha256(source).digest(), imports
        outside.update(name for name in imports if not name.startswith(_PACKAGE))
    for name in outside:
        if (beside := _path(name)) is not None:
            sources[name] = hashlib.sha256(beside.read_bytes()).digest(), ()
    return sources


_SOURCES = _read()


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
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name in _SOURCES and name not in reached:
            reached.add(name)
            pending += _SOURCES[name][1]
    for name in sorted(reached):
        key.update(_SOURCES[name][0])
    return key.hexdigest()[:16]
