"""The pictures in a saved chat: their files, each once, by name."""

import base64
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hybrid.quant.ggml.errors import PictureError, StateError, UsageError, shown

if TYPE_CHECKING:
    from ..asking.eyes import PictureReader, SeenPicture

MOST_BYTES = 128 << 20  # of all pictures' files; the header of a state file has at most 256 MiB


class WithPictures(Protocol):
    """A turn."""

    @property
    def pictures(self) -> "Sequence[SeenPicture]": ...


def saved_pictures(turns: Iterable[WithPictures]) -> dict[str, dict[str, str]]:
    """The pictures of all turns for `read_pictures`. Raises StateError if they are too large."""
    made: dict[str, dict[str, str]] = {}
    left = MOST_BYTES
    for turn in turns:
        for picture in turn.pictures:
            if picture.name.hex() in made:
                continue
            file = picture.file
            left -= len(file)
            if left < 0:
                raise StateError(
                    f"the chat cannot be saved with the picture {shown(picture.title)}: its pictures have more than "
                    f"{MOST_BYTES} bytes. Begin a new chat for more pictures."
                )
            made[picture.name.hex()] = {"title": picture.title, "data": base64.b64encode(file).decode()}
    return made


def read_pictures(values: Any, reader: "PictureReader | None") -> "dict[str, SeenPicture]":
    """The pictures, by the names that they had. Raises StateError if one cannot be read, and KeyError, TypeError or
    ValueError if these are no saved pictures."""
    return {name: _read(one["title"], one["data"], reader) for name, one in dict(values).items()}


def _read(title: Any, data: Any, reader: "PictureReader | None") -> "SeenPicture":
    if not isinstance(title, str) or not isinstance(data, str):
        raise TypeError("picture")
    if reader is None:
        raise StateError(f"this chat has a picture ({shown(title)}), and nothing reads pictures here.")
    try:
        return reader.read(base64.b64decode(data, validate=True), title)
    except (UsageError, PictureError) as error:
        raise StateError(f"this chat has a picture ({shown(title)}) that cannot be read: {error}") from None
