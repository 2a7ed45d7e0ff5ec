"""The name of a quantized file, if no name was given."""

from pathlib import Path

import pytest

from hybrid.cli.options.output_name import beside
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("granite.gguf", "granite-Q4_K_M.gguf"),
        ("granite-f16.gguf", "granite-Q4_K_M.gguf"),
        ("granite.Q8_0.gguf", "granite-Q4_K_M.gguf"),
        ("granite-f16-chat.gguf", "granite-f16-chat-Q4_K_M.gguf"),
        ("granite-BF16-00001-of-00003.gguf", "granite-Q4_K_M.gguf"),
    ],
)
def test_it_is_beside_the_model_and_has_one_type(tmp_path: Path, model: str, name: str) -> None:
    (tmp_path / model).touch()
    assert beside(tmp_path / model, "q4_k") == tmp_path / name


def test_it_is_beside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jamba").mkdir()
    assert beside(tmp_path / "jamba", "Q8_0") == tmp_path / "jamba-Q8_0.gguf"
    monkeypatch.chdir(tmp_path / "jamba")
    assert beside(Path(), "Q8_0") == tmp_path / "jamba-Q8_0.gguf"


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    model = tmp_path / "a.gguf"
    model.touch()
    (tmp_path / "a-Q8_0.gguf").touch()
    with pytest.raises(UsageError, match=r"a-Q8_0\.gguf exists already\. .*: hybrid quantize .* OUT\.gguf Q8_0$"):
        beside(model, "Q8_0")


@pytest.mark.parametrize(
    ("model", "target", "says"),
    [
        ("a/b", "Q8_0", "A model of a hub needs a name here: hybrid quantize a/b OUT.gguf Q8_0"),
        ("a/b", "Q", "Q is not a file type"),
        ("a/b", None, "the name of the output is missing: hybrid quantize a/b OUT.gguf ..."),
    ],
)
def test_what_needs_a_name(model: str, target: str | None, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        beside(Path(model), target)
    assert says in str(raised.value)
