"""Tags of thoughts and calls in a vocabulary: text, special tokens, or both in a row."""

from dataclasses import fields
from typing import TYPE_CHECKING

from .format import ChatFormat

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer


def mark_pieces(text: str, tokenizer: "Tokenizer") -> list[str | int]:
    """Splits a tag into nonempty texts and special tokens. A token that is only whitespace counts as text."""
    pieces: list[str | int] = []
    for part in tokenizer.parts(text):
        if isinstance(part, int) and not tokenizer.is_control(part):
            spelled = tokenizer.piece(part).decode("utf-8", "replace")
            part = part if spelled.strip() else spelled
        if isinstance(part, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += part
        else:
            pieces.append(part)
    return pieces


def shown_tokens(format: ChatFormat, tokenizer: "Tokenizer") -> frozenset[int]:
    """The special tokens in tags, which a reader needs in an answer's text; without tokens that end an answer."""
    calls = format.calls
    marks = [calls.mark, calls.begin, calls.end, calls.between or "", calls.again]
    marks += [text for field in fields(calls.call) if isinstance(text := getattr(calls.call, field.name), str)]
    if format.thoughts is not None:
        marks += [format.thoughts.opening, format.thoughts.closing]
    found = {piece for mark in marks for piece in tokenizer.parts(mark) if isinstance(piece, int)}
    return frozenset(found) - tokenizer.eog
