"""PLaMo 2's vocabulary, from its file to the GGUF keys and the resulting ids."""

import json
from pathlib import Path

import pytest
from reference.plamo2_vocabulary import CONTROL, rows, write

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import read_vocabulary
from hybrid.convert.tokenizers.plamo2 import read_plamo2
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.token_types import TokenType


def test_keys(tmp_path: Path) -> None:
    n = len(rows())
    vocabulary = read_vocabulary(write(tmp_path), Config({}, "config.json"), n + 2)
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value, _ in vocabulary.key_values()}
    assert keys["model"] == "plamo2" and keys["pre"] == "default" and keys["add_space_prefix"] is False
    assert keys["tokens"] == [*(row[0] for row in rows()), f"[PAD{n}]", f"[PAD{n + 1}]"]
    # the file's scores, also for tokens that tokenizer_config.json names
    assert keys["scores"][:n] == [row[1] for row in rows()]
    control = [TokenType.UNKNOWN] + [TokenType.CONTROL] * 4
    assert keys["token_type"][:5] == control and keys["token_type"][-1] == TokenType.UNUSED
    assert keys["token_type"].count(TokenType.BYTE) == 256
    names = ("unknown", "bos", "eos", "padding", "eot")
    assert [keys[f"{name}_token_id"] for name in names] == [0, 1, 2, 3, 4]
    assert keys["add_bos_token"] is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "line 2 is {}, expected an array of a token, its score and its type"),
        ('["a"', "line 2"),
        ('["a"]', "line 2"),
        ('["", 1.0]', "line 2"),
        ('["a", "1"]', "line 2"),
        ('["a", NaN]', "line 2"),
        ('["a", true]', "line 2"),
        ('["\\ud800", 1.0]', "line 2"),
        ("[" * 100000, "line 2"),
    ],
)
def test_errors(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.jsonl"
    path.write_text(f'["<|plamo:unk|>", 0.0, "UNKNOWN"]\n{line}\n')
    with pytest.raises(TokenizerError, match=message):
        read_plamo2(path)


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.jsonl"
    path.write_bytes(b'["a", 1.0]\n\xff')
    with pytest.raises(TokenizerError, match="not UTF-8: byte 11"):
        read_plamo2(path)


def test_a_type_is_optional(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [["a", 1], [CONTROL[4], 0.5], ["b", -1, None]]))
    vocabulary = read_plamo2(path)
    assert vocabulary.types == [TokenType.NORMAL, TokenType.CONTROL, TokenType.NORMAL]
    assert vocabulary.ids == {"eot": 1}
