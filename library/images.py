"""Pictures that a caller gives: paths, bytes of files, PIL images, arrays."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.infer.pictures.decode import file_bytes
from hybrid.quant.ggml.errors import UsageError, shown

if TYPE_CHECKING:
    from hybrid.infer.answers.asking.eyes import PictureReader, SeenPicture


def seen(eyes: "PictureReader", images: "Sequence[Any]") -> "list[SeenPicture]":
    """The pictures, ready to be asked about. HybridError: the model reads none, or one of them cannot be read."""
    if isinstance(images, str | bytes | os.PathLike) or not isinstance(images, Sequence):
        raise UsageError(f"images is {shown(type(images).__name__)}, expected a list of pictures.")
    return [_seen(eyes, image, i) for i, image in enumerate(images)]


def _seen(eyes: "PictureReader", image: Any, i: int) -> "SeenPicture":
    if isinstance(image, str | os.PathLike):
        path = Path(image)
        return eyes.read(file_bytes(path), path.name)
    return eyes.read(image, f"picture {i + 1}")


def with_pictures(eyes: "PictureReader", messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, whose parts {"type": "image", "image": picture} are read. HybridError as of `seen`."""
    n = 0

    def part(given: Any) -> Any:
        nonlocal n
        if not isinstance(given, Mapping) or given.get("type") != "image" or hasattr(given.get("image"), "placeholder"):
            return given
        if given.get("image") is None:
            raise UsageError('a part of the type image has no "image": a path, bytes, a PIL image or an array.')
        n += 1
        return {"type": "image", "image": _seen(eyes, given["image"], n - 1)}

    def read(message: Mapping[str, Any]) -> Mapping[str, Any]:
        content = message.get("content") if isinstance(message, Mapping) else None
        return {**message, "content": [part(given) for given in content]} if isinstance(content, list) else message

    return [read(message) for message in messages]
