"""The vocabulary of PLaMo 2: tokenizer.jsonl, an array of token, score and type for every line."""

import json
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ValueType
from hybrid.quant.ggml.utf8 import decoded

from .vocabulary import Vocabulary

FILE = "tokenizer.jsonl"
_TYPES = {"UNKNOWN": TokenType.UNKNOWN, "CONTROL": TokenType.CONTROL, "BYTE": TokenType.BYTE}
_END_OF_TURN = "<|plamo:op|>"  # begins the next turn, and so ends an answer
_MOST_SCORE = 1e5


def read_plamo2(path: Path) -> Vocabulary:
    """TokenizerError names the wrong line."""
    try:
        lines = decoded(path.read_bytes()).split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{shown(path.name)} is not UTF-8: byte {error.start} is wrong. Download it again."
        ) from None
    except OSError as error:
        raise TokenizerError(f"{shown(path.name)} cannot be read: {error.strerror}.") from None
    rows = [_parsed(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    vocabulary = Vocabulary(
        "plamo2",
        "default",
        path.name,
        tokens=[text for text, _, _ in rows],
        types=[kind for _, _, kind in rows],
        scores=[score for _, score, _ in rows],
        more=[("tokenizer.ggml.add_space_prefix", False, ValueType.BOOL)],
    )
    if _END_OF_TURN in vocabulary.tokens:
        vocabulary.ids["eot"] = vocabulary.tokens.index(_END_OF_TURN)
    return vocabulary


def _parsed(path: Path, number: int, line: str) -> tuple[str, float, int]:
    """Text, score and type of a token."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not (isinstance(row, list) and len(row) > 1 and _is_text(row[0]) and _is_score(row[1])):
        raise TokenizerError(
            f"{shown(path.name)}: line {number} is {shown(line, 60)}, expected an array of a token, its score and its "
            "type. Download it again."
        )
    kind = _TYPES.get(row[2]) if len(row) > 2 and isinstance(row[2], str) else None
    if kind is None:
        is_control = row[0].startswith("<|plamo:") and row[0].endswith("|>")
        kind = TokenType.CONTROL if is_control else TokenType.NORMAL
    return row[0], float(row[1]), kind


def _is_text(value: Any) -> bool:
    """Whether the value is a nonempty text that UTF-8 can encode."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST_SCORE
