"""Every command that reads text warns in one line of a gap in a GGUF file's vocabulary, and states its assumption."""

from pathlib import Path
from typing import Any

import pytest
import tiny_models
from end_to_end.outcomes import Cli

pytestmark = pytest.mark.exhaustive

TYPES = "tokenizer.ggml.token_type"
SAYS = (
    f"note: tiny.gguf has no {TYPES}: all tokens are taken for ordinary text (NORMAL), also the special tokens of "
    "chats. Convert the model again."
)


@pytest.mark.parametrize(
    "args",
    [
        ["run", "-p", "a", "-n", 1],
        ["perplexity", "-f", "text.txt", "-c", 8],
        ["imatrix", "-f", "text.txt", "-c", 8, "-o", "i.gguf"],
        ["embed", "-f", "text.txt", "-c", 128],
    ],
)
def test_every_command_says_it(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[Any]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a b c " * 40)
    tiny = tiny_models.llama()
    path = tiny.write(tmp_path / "tiny.gguf")
    code, _, err = cli(args[0], path, *args[1:])
    assert code == 0 and "has no tokenizer" not in err, err
    tiny.drop(TYPES)
    tiny.write(path)
    code, _, err = cli(args[0], path, *args[1:])
    assert code == 0 and err.splitlines().count(SAYS) == 1, err
