"""Encodes texts other than plain prompts, which `Tokenizer.encode(text)` encodes: texts to measure, rendered chat
templates, continuations. They differ in whether special tokens are parsed and BOS is added.
"""

from typing import TYPE_CHECKING

from .literal_text import BREAK, NAME_DIGITS, NAMED

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


def sequence_start(tokenizer: "Tokenizer") -> int | None:
    """The token that begins every text of this model (BOS), or None."""
    return tokenizer.bos if tokenizer.add_bos else None


def document_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Ids of a text to measure: BOS in front if the model adds it, nothing at the end, special tokens as plain text."""
    bos = sequence_start(tokenizer)
    ids = tokenizer.encode(text, add_special=False)
    return ids if bos is None else [bos, *ids]


def rendered_ids(tokenizer: "Tokenizer", text: str, at: int = 0) -> list[int]:
    """Ids of a rendered chat template or of a raw prompt. Special tokens are parsed, except where LiteralText has put
    BREAK; BOS is not added if the text begins with it, and names of pictures have no tokens.

    at: encode only text[at:], where a token must begin
    """
    written = tokenizer.bos is not None and text.startswith(tokenizer.piece(tokenizer.bos).decode("utf-8", "replace"))
    dropped = (BREAK if BREAK in text else "") + (NAMED + NAME_DIGITS if NAMED in text else "")
    return tokenizer.encode(text[at:], add_special=not written, parse_special=True, continues=at > 0, dropped=dropped)


def continuation_ids(tokenizer: "Tokenizer", text: str, *, parse_special: bool = False) -> list[int]:
    """Ids of `text` as the continuation of another text: without BOS, and without sentencepiece's space before it."""
    ids = tokenizer.encode(text, add_special=False, parse_special=parse_special)
    if tokenizer.kind == "gpt2" or not text:
        return ids
    # A line feed is a separate token there: the ids after it in `both` are `text` without the space.
    feed = tokenizer.encode("\n", add_special=False)
    both = tokenizer.encode("\n" + text, add_special=False, parse_special=parse_special)
    return both[len(feed) :] if both[: len(feed)] == feed else ids
