"""Converted reference checkpoints, each made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import converted_models
import pytest
from golden.models import BUNDLED, IN_REPOSITORY, SHARED_NAMES, Golden
from made_models import made

from hybrid.quant import quantize
from hybrid.quant.ggml.types import FileType

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def golden(data_dir: Path, bundled: Path) -> Callable[[str], Golden]:
    """golden(name); skips the test if the name needs the full set and that is missing."""

    def find(name: str) -> Golden:
        if name in IN_REPOSITORY:
            folder = data_dir / "checkpoints" / name
            return Golden(name, bundled if name == BUNDLED else folder, folder / "golden")
        folder = ROOT.parent / "shared" / "checkpoints" / SHARED_NAMES.get(name, name)
        if not folder.is_dir():
            pytest.skip(f"the reference checkpoint {name} is not beside the checkout")
        return Golden(name, folder, folder / "golden")

    return find


@pytest.fixture(scope="session")
def converted(golden: Callable[[str], Golden]) -> Callable[..., Path]:
    """converted(name, outtype='f32') -> path of the GGUF file."""

    return lambda name, outtype="f32": converted_models.converted(golden(name).source, outtype)


@pytest.fixture(scope="session")
def quantized(converted: Callable[..., Path]) -> Callable[..., Path]:
    """quantized(name, type, **options) -> path, made from the f32 file."""

    def make(name: str, kind: FileType | str, **options: Any) -> Path:
        source = converted(name)  # its folder is named after all its inputs
        shown = kind.name if isinstance(kind, FileType) else kind
        key = f"{source} {options}"
        return made(f"{name}-{shown}.gguf", key, lambda path: quantize(source, path, kind, n_threads=1, **options))

    return make
