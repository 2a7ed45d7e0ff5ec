"""Machine code of the kernels in this folder, kept in the user's cache under a digest of their sources.

numba itself keeps code beside the source, under the time that the file was written: after a reinstall it compiles the
same code again, and after an uninstall its files stay. It also overlooks edits of other modules that a kernel uses.
"""

import contextlib
import json
import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from ..code_folders import encoder_folder, make, trouble
from ..replacing import replace_file


@cache
def _used() -> Path | None:
    """The folder, made if necessary; None if it cannot be used, or NUMBA_CACHE_DIR names another."""
    place = encoder_folder()
    if os.environ.get("NUMBA_CACHE_DIR") or not place.is_absolute():
        return None
    try:
        if make(place):
            about = {
                "version": version("hybrid-lm"),
                "cpu": "all processors",
                "isa": "encoders",
                "numba": version("numba"),
            }
            replace_file(place / "about.json", [json.dumps(about).encode()])
    except OSError:
        return None
    return None if trouble(place) else place


class _Locator(_CacheLocator):
    """Tells numba where the code of a function is kept."""

    def __init__(self, function: Callable[..., Any], place: Path) -> None:
        self._function, self._place = function, place

    def get_cache_path(self) -> str:
        return str(self._place)

    def get_source_stamp(self) -> str:
        return ""  # the folder's name is the digest of all sources

    def get_disambiguator(self) -> str:
        return str(self._function.__code__.co_firstlineno)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Self | None:
        place = _used()
        return None if place is None else cls(function, place)


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012


class _KeptCode(FunctionCache):
    """The kept code of one function. RuntimeError: no folder can be written."""

    _impl_class = _Files


def keep(compiled: Any, function: Callable[..., Any]) -> None:
    """Makes numba's `compiled` form of `function` keep its code, if a folder can be written."""
    with contextlib.suppress(RuntimeError):
        compiled._cache = _KeptCode(function)
