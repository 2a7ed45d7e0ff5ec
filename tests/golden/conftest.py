"""Converted reference checkpoints, made once per run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from golden.models import BUNDLED, IN_REPOSITORY, SHARED_NAMES, Golden

from hybrid.convert import convert

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def golden(data_dir: Path, bundled: Path) -> Callable[[str], Golden]:
    """golden(name); names outside the repository skip where the full set is absent."""

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
def converted(golden: Callable[[str], Golden], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """converted(name, outtype='f32') -> path of the GGUF file."""
    folder = tmp_path_factory.mktemp("gguf")

    def make(name: str, outtype: str = "f32") -> Path:
        path = folder / f"{name}-{outtype}.gguf"
        if not path.exists():
            convert(golden(name).source, path, outtype=outtype)
        return path

    return make
