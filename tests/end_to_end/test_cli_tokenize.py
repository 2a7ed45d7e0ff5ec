"""`hybrid tokenize`: the tokens of the model's own tokenizer."""

import io
import json
import sys
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli, failed, ok

from hybrid.cli.commands.tokenize import shown_piece
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.split import open_gguf

TEXT = "Hello wörld\n<|endoftext|>"


def test_ids_are_the_tokenizers(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    model = files["q8_0"]
    with open_gguf(model) as gguf:
        tokenizer = load_tokenizer(gguf)
    whole = tokenizer.encode(TEXT, parse_special=True)
    assert json.loads(ok(cli("tokenize", model, TEXT, "--ids"))) == whole
    assert json.loads(ok(cli("tokenize", "-m", model, "-p", TEXT, "--ids", "--no-bos"))) == whole[1:]
    plain = tokenizer.encode(TEXT)
    assert json.loads(ok(cli("tokenize", model, TEXT, "--ids", "--no-parse-special"))) == plain and plain != whole
    (tmp_path / "text").write_text(TEXT)
    lines = ok(cli("tokenize", model, "-f", tmp_path / "text")).splitlines()
    assert [int(line.split()[0]) for line in lines] == whole
    told = json.loads(ok(cli("tokenize", model, TEXT, "--json")))
    assert [each["id"] for each in told] == whole


def test_the_text_may_come_from_a_pipe(cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"One two")))
    assert json.loads(ok(cli("tokenize", files["q8_0"], "--ids"))) == json.loads(
        ok(cli("tokenize", files["q8_0"], "One two", "--ids"))
    )


def test_two_texts(cli: Cli, files: dict[str, Path]) -> None:
    assert "TEXT and -p are both given" in failed(cli("tokenize", files["q8_0"], "a", "-p", "b"), 2)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [(b" a", "' a'"), ("\xf6".encode(), "'\xf6'"), (b"\xc3", r"'\xc3'"), (b"\n\x1b", r"'\n\x1b'"), (b"", "''")],
)
def test_pieces_are_shown_on_one_line(piece: bytes, shown: str) -> None:
    assert shown_piece(piece) == shown
