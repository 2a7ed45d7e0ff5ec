"""From text and messages to token ids: which of the special tokens a text may hold, and when BOS stands before it.

A plain prompt is `Tokenizer.encode(text)`. What is encoded in another way, in a conversation, a file of prompts or a
measurement, is encoded here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


def sequence_start(tokenizer: "Tokenizer") -> int | None:
    """The token that begins every text of this model; None when there is no such token."""
    return tokenizer.bos if tokenizer.add_bos else None


def document_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """A text to be measured: BOS in front if the model adds one, nothing at the end, special tokens as plain text."""
    bos = sequence_start(tokenizer)
    ids = tokenizer.encode(text, add_special=False)
    return ids if bos is None else [bos, *ids]


def rendered_ids(tokenizer: "Tokenizer", text: str, at: int = 0) -> list[int]:
    """What a chat template rendered: special tokens count, and a BOS that it wrote itself is not added again.

    at: only of text[at:], where a token begins
    """
    written = tokenizer.bos is not None and text.startswith(tokenizer.piece(tokenizer.bos).decode("utf-8", "replace"))
    return tokenizer.encode(text[at:], add_special=not written, parse_special=True, continues=at > 0)


def continuation_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """The ids of `text` as the continuation of another: without BOS, and without sentencepiece's space before it."""
    ids = tokenizer.encode(text, add_special=False)
    if tokenizer.kind == "gpt2" or not text:
        return ids
    # A line feed is a separate token there: what follows it in the ids of both is `text` without the space.
    feed = tokenizer.encode("\n", add_special=False)
    both = tokenizer.encode("\n" + text, add_special=False)
    return both[len(feed) :] if both[: len(feed)] == feed else ids
