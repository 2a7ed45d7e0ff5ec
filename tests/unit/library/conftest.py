"""The bundled model as used in notebooks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import random_checkpoints
from converted_models import converted
from scripted_chat import WITH_THOUGHTS, WITH_TOOLS, Script
from scripted_chat import scripted as with_script

import hybrid
from hybrid.convert import convert


@pytest.fixture(scope="session")
def gguf(bundled: Path) -> Path:
    return converted(bundled, name="model.gguf")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """An encoder."""
    folder = tmp_path_factory.mktemp("bert")
    source = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], folder / "model")
    convert(source, folder / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    return folder / "bert.gguf"


@pytest.fixture(scope="module")
def model(gguf: Path) -> Iterator[hybrid.Model]:
    with hybrid.load(gguf, context=1024, threads=1, cache="64MiB") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tooled(gguf: Path) -> Iterator[hybrid.Model]:
    """A model whose template knows tools."""
    with hybrid.load(gguf, context=1024, threads=1, template=WITH_TOOLS) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def thinking(gguf: Path) -> Iterator[hybrid.Model]:
    """A model whose template knows tools and thoughts."""
    with hybrid.load(gguf, context=1024, threads=1, template=WITH_THOUGHTS) as loaded:
        yield loaded


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """The model's next answers."""
    with with_script(monkeypatch) as script:
        yield script
