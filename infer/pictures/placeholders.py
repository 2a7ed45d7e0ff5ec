"""Pictures in a prompt: the text that stands for them, where their features are, and positions of M-RoPE.

A chat template writes one placeholder for a picture. It becomes the text of the picture's layout before the prompt is
tokenized, since newlines in that text join with their neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hybrid.quant.ggml.errors import PictureError

if TYPE_CHECKING:
    from .pixels import PictureLayout


class InText(Protocol):
    """A layout or a picture: it has a text in a prompt."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, eq=False)
class PicturePlace:
    """Where a picture is among a prompt's tokens.

    Its features are tokens `at` [feature], the first one token `start`, the last one token `end` - 1. Marks between
    features are tokens of their own.
    """

    start: int
    end: int
    at: np.ndarray


def expanded(text: str, placeholder: str, layouts: Sequence[InText]) -> str:
    """A rendered chat template, with the text of its pictures in place of the placeholders. PictureError: it has not as
    many placeholders as there are pictures."""
    parts = text.split(placeholder)
    if len(parts) != len(layouts) + 1:
        raise PictureError(
            f"the chat template has {len(parts) - 1} places for pictures, expected {len(layouts)}. Check that the "
            "template belongs to the model, and that it puts pictures into messages of this role."
        )
    return parts[0] + "".join(layout.text + part for layout, part in zip(layouts, parts[1:], strict=True))


def places(ids: Sequence[int], image_token: int, layouts: "Sequence[PictureLayout]") -> list[PicturePlace]:
    """The places of pictures in a tokenized prompt. PictureError: there are other image tokens in it."""
    (found,) = np.nonzero(np.asarray(ids) == image_token)
    expected = sum(layout.features for layout in layouts)
    if len(found) != expected:
        raise PictureError(
            f"the prompt has {len(found)} tokens of pictures, expected {expected}. Check that the tokenizer and the "
            "vision tower belong to the same model."
        )
    out, done = [], 0
    for layout in layouts:
        at = found[done : done + layout.features]
        done += layout.features
        out.append(PicturePlace(int(at[0]), int(at[-1]) + 1, at))
    return out


def mrope_positions(n: int, runs: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, int]:
    """Positions i32 [3, n] (time, row, column) of n tokens, and the number to add to the index of a later token.

    runs: (start, rows, columns) of every picture, in order: its features, row by row, are tokens start to
    start + rows * columns - 1. Text has the same position on all axes. A picture that begins at position p has time p,
    rows from p and columns from p on; the next token's position is p + max(rows, columns).
    """
    out = np.empty((3, n), np.int32)
    done, position = 0, 0
    for start, rows, columns in runs:
        assert start >= done, "pictures are in order and do not overlap"
        out[:, done:start] = np.arange(position, position + start - done)
        position += start - done
        end = start + rows * columns
        out[0, start:end] = position
        out[1, start:end] = position + np.repeat(np.arange(rows), columns)
        out[2, start:end] = position + np.tile(np.arange(columns), rows)
        done, position = end, position + max(rows, columns)
    out[:, done:] = np.arange(position, position + n - done)
    return out, position - done
