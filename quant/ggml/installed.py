"""Versions of installed packages."""

import os
import sys
from contextlib import suppress


def installed_version(package: str) -> str:
    """The version of an installed package, "unknown" if it is not installed.

    Read from the name of its folder of metadata, `NAME-VERSION.dist-info`: importing `importlib.metadata`, which knows
    other forms also, takes 10 ms of every start.
    """
    prefix = f"{package.replace('-', '_')}-"
    for place in sys.path:
        with suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and entry.name.endswith(".dist-info"):
                    return entry.name.removeprefix(prefix).removesuffix(".dist-info")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
