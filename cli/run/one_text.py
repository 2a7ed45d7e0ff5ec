"""One text for `hybrid run`, and how it is answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..options.answer_options import AnswerOptions


@dataclass(frozen=True, eq=False, repr=False)
class OneText:
    """A text to continue or to answer.

    state          a file that is continued if it exists, and written afterwards
    parse_special  control tokens written in a raw text count as such
    images         names and contents of the pictures' files that a message is about
    """

    text: str
    answers: AnswerOptions
    state: Path | None = None
    as_json: bool = False
    parse_special: bool = True
    images: Sequence[tuple[str, bytes]] = ()
