"""Raw prompts with pictures, as llama-server has them, and the texts of prompts that have pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid.infer.memory.picture_tokens import is_first
from hybrid.infer.text.tokenizer import Tokenizer

from ..client import Client
from ..errors import RequestError
from .parts import GivenPicture, Said

if TYPE_CHECKING:
    from hybrid.infer.answers.asking.asker import Prompt

    from ..jobs import Maker

MARKER = "<__media__>"  # llama.cpp's, of a picture in a prompt


def picture_prompt(maker: "Maker", parts: Sequence[Said], whose: Client, *, plain: bool = False) -> "Prompt":
    """The prompt of texts and pictures. RequestError: a picture cannot be read, or `plain`."""
    given = [part for part in parts if isinstance(part, GivenPicture)]
    if plain:
        raise RequestError("parse_special = false and pictures exclude each other", param="parse_special")
    pictures = maker.sight.seen(given, whose.owner)
    left = iter(pictures)

    def text(part: Said) -> str:
        if isinstance(part, str):
            return part
        picture = next(left)
        return picture.written.replace(picture.placeholder, picture.text)

    return maker.text("".join(map(text, parts)), whose, pictures=pictures)


def prompt_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of a prompt, with MARKER for each run of a picture's tokens."""
    stream = tokenizer.stream(at_start=True)
    return "".join(stream.push(token) if token >= 0 else MARKER * is_first(token) for token in ids) + stream.flush()


def prompt_bytes(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    """The bytes of a part of a prompt, whose tokens are spelled one by one; the same for pictures."""
    mark = MARKER.encode()
    return b"".join(tokenizer.piece(token) if token >= 0 else mark * is_first(token) for token in ids)
