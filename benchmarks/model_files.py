"""The measured files: where random-weight files are kept, whether they fit, and their names."""

import shutil
from math import prod
from os import sysconf
from pathlib import Path

from hybrid.cache_paths import cache_dir
from hybrid.infer.bench.shapes import find_type, tensor_types
from hybrid.pipeline.config_shapes import find
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, row_nbytes


def shape_file(name: str, kind: str) -> Path:
    """Path of the random-weight file; its ssm_x and ssm_dt are quantized as llama-quantize does."""
    return cache_dir() / "shapes" / f"{find(name).name}-{find_type(kind).name}-as-llama-quantize.gguf"


def why_not(name: str, kind: str, path: Path) -> str:
    """Why this file cannot be measured here; empty if it can."""
    tensors = tensor_types(find(name), find_type(kind), ssm_f32=False)
    nbytes = sum(row_nbytes(of, t.shape[-1]) * prod(t.shape[:-1]) for t, of in tensors)
    memory = sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES")
    if nbytes > 0.85 * memory:
        return f"{size_text(nbytes)} do not stay in {size_text(memory)} of memory"
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if not path.exists() and nbytes + (1 << 30) > free:
        return f"{size_text(nbytes)} do not fit the {size_text(free)} free on the disk"
    return ""


def model_name(path: Path) -> tuple[str, str]:
    """Model and type of a file: its name without a type at the end, and its general.file_type."""
    number = GGUFFile.open(path).get("general.file_type", None)
    kind = FileType(number).name if isinstance(number, int) and number in list(FileType) else "?"
    ending = f"-{kind.lower()}"
    return (path.stem[: -len(ending)] if path.stem.lower().endswith(ending) else path.stem), kind
