"""Pictures in the messages of a file of prompts: {"type": "image", "image": PATH}, relative to the file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from ..asking.eyes import PictureReader, SeenPicture

OTHERS = ("image_url", "input_image")


@dataclass(frozen=True, eq=False)
class LinePictures:
    """Reads the pictures of lines. eyes: the model's; folder: of the file of prompts.

    Only names of the pictures are kept: their files are read again when the model comes to them.
    """

    eyes: "PictureReader"
    folder: Path

    def read(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The messages with their pictures. Raises UsageError or PictureError if one cannot be read."""
        return [self._message(message) for message in messages]

    def _message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        content = message.get("content")
        return {**message, "content": [*map(self._part, content)]} if isinstance(content, list) else message

    def _part(self, part: Any) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in OTHERS:
            raise UsageError(
                f'a part {kind} is not read from a file of prompts. Give {{"type": "image", "image": PATH}}.'
            )
        return {"type": "image", "image": self._seen(part.get("image"))} if kind == "image" else part

    def _seen(self, given: Any) -> "SeenPicture":
        from ...pictures.decode import file_bytes

        if not isinstance(given, str) or not given or "\0" in given:
            raise UsageError('a part of the type image has no path in "image".')
        if "://" in given or given.startswith("data:"):
            raise UsageError(f"{shown(given[:60])}: expected the path of a picture, relative to the file of prompts.")
        path = self.folder / given
        return replace(self.eyes.read(file_bytes(path), path.name), source=path)
