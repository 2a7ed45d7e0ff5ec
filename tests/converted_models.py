"""Checkpoints converted to GGUF, each once."""

from functools import cache
from pathlib import Path

from made_models import made, sources

from hybrid.convert import convert


@cache
def converted(source: Path, outtype: str = "auto", name: str = "") -> Path:
    """The GGUF file of a checkpoint. name: of the file, if a test needs a certain one."""
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(source.iterdir())]
    key = f"{sources('convert', 'quant')} {source} {files} {outtype}"
    return made(name or f"{source.name}-{outtype}.gguf", key, lambda path: convert(source, path, outtype=outtype))
