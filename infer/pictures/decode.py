"""Pixels of a picture, RGB u8 [height, width, 3], from a file's bytes, a PIL image or a numpy array.

A file's size is checked before anything is decoded. Turned as EXIF says; transparent parts are over white; grey is
repeated; of 16 bits the upper 8 are kept; of an animation only the first frame is read. Decoding needs at most about 10
bytes per pixel beside two copies of the file.
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from hybrid.quant.ggml.errors import PictureError, shown

from .header import PictureHeader, read_header

NAME_BYTES = 16
_STRIP = 256  # rows


@dataclass(frozen=True)
class PictureLimits:
    """Most bytes of a file, pixels of a picture, and pixels of a side. pixels: at most PIL.Image.MAX_IMAGE_PIXELS, from
    where on Pillow warns."""

    nbytes: int = 32 << 20
    pixels: int = 50_000_000
    side: int = 32768


LIMITS = PictureLimits()


def decode(data: bytes, name: str = "the picture", limits: PictureLimits = LIMITS) -> np.ndarray:
    """The pixels of a PNG, JPEG, WebP, GIF or BMP file. PictureError: it is too large, damaged, cut off, or of another
    type. name: of the picture, in messages."""
    header = checked_header(data, name, limits)
    with _decoding(name, header.kind):
        return _turned(_over_white(_stored(data, header, name), name), header.orientation)


def file_bytes(path: Path, limits: PictureLimits = LIMITS) -> bytes:
    """The content of a picture's file. PictureError: it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.nbytes + 1)
    except OSError as error:
        raise PictureError(f"{shown(path)}: {error.strerror}.") from None
    if len(data) > limits.nbytes:
        raise PictureError(f"{shown(path)} has more than {limits.nbytes} bytes. Give a smaller file.")
    return data


def checked_header(data: bytes, name: str = "the picture", limits: PictureLimits = LIMITS) -> PictureHeader:
    """The header of a file that is within the limits; nothing is decoded. PictureError as of `decode`."""
    if len(data) > limits.nbytes:
        raise PictureError(f"{name} has {len(data)} bytes, expected at most {limits.nbytes}. Give a smaller file.")
    header = read_header(data, name)
    _check_size(header.width, header.height, name, limits)
    return header


def from_pil(image: Image.Image, name: str = "the picture", limits: PictureLimits = LIMITS) -> np.ndarray:
    """The pixels of a PIL image. PictureError: it is too large, or cannot be loaded."""
    _check_size(*image.size, name, limits)
    with _decoding(name, "image"):
        return _over_white(ImageOps.exif_transpose(image), name)


def from_array(array: np.ndarray, name: str = "the picture", limits: PictureLimits = LIMITS) -> np.ndarray:
    """The pixels of u8 [height, width, 1, 3 or 4] or u8 [height, width]. PictureError: of another shape or type."""
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        shape = " x ".join(map(str, array.shape))
        raise PictureError(f"{name} is an array {array.dtype} of {shape}, expected uint8 of height x width x 3.")
    if not array.size:
        raise PictureError(f"{name} is an array without pixels. Give another one.")
    _check_size(array.shape[1], array.shape[0], name, limits)
    if array.ndim == 3 and array.shape[2] == 3:
        return np.ascontiguousarray(array)
    image = Image.fromarray(array if array.ndim == 2 or array.shape[2] == 4 else array[..., 0])
    return _over_white(image, name)


def pixels_of(source: Any, name: str = "the picture", limits: PictureLimits = LIMITS) -> np.ndarray:
    """The pixels of the bytes of a file, a PIL image or an array. PictureError as of the functions above."""
    if isinstance(source, bytes | bytearray | memoryview):
        return decode(bytes(source), name, limits)
    if isinstance(source, Image.Image):
        return from_pil(source, name, limits)
    if isinstance(source, np.ndarray):
        return from_array(source, name, limits)
    kind = type(source).__name__
    raise PictureError(f"{name} is a {shown(kind, 60)}, expected the bytes of a file, a PIL image or a numpy array.")


def picture_name(rgb: np.ndarray) -> bytes:
    """16 bytes that name these pixels: pictures with the same name are the same."""
    digest = hashlib.blake2b(digest_size=NAME_BYTES, person=b"hybrid picture")
    digest.update(np.asarray(rgb.shape, "<u8").tobytes())
    digest.update(np.ascontiguousarray(rgb).data)
    return digest.digest()


def _check_size(width: int, height: int, name: str, limits: PictureLimits) -> None:
    found = f"{name} has {width} x {height} pixels, expected at most"
    if max(width, height) > limits.side:
        raise PictureError(f"{found} {limits.side} on a side. Give a smaller picture.")
    if width * height > limits.pixels:
        raise PictureError(f"{found} {limits.pixels} in all. Give a smaller picture.")


def _stored(data: bytes, header: PictureHeader, name: str) -> Image.Image:
    """The stored picture, not turned."""
    needed = b"".join(data[part] for part in header.parts)
    image = Image.open(io.BytesIO(needed), formats=[header.kind])
    if image.size != (header.width, header.height):
        raise PictureError(
            f"{name} is damaged: its parts have {header.width} x {header.height} and {image.size[0]} x "
            f"{image.size[1]} pixels. Give another file."
        )
    image.load()
    return image


@contextmanager
def _decoding(name: str, kind: str) -> Iterator[None]:
    """Makes a PictureError of a decoder's errors, which are of many types."""
    try:
        yield
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        said = str(error)
        if "truncated" in said.lower():
            raise PictureError(f"{name} is cut off: the {kind} has not all rows. Give the whole file.") from None
        if not said or "cannot identify" in said:
            said = "its header cannot be read"
        raise PictureError(f"{name} is damaged, or an unusual {kind}: {shown(said, 120)}. Give another file.") from None


def _over_white(image: Image.Image, name: str) -> np.ndarray:
    """RGB u8 [height, width, 3]; converted in strips, which need little memory."""
    if image.mode == "F":
        raise PictureError(f"{name} has fractions as pixels, expected bytes. Convert it.")
    width, height = image.size
    rgb = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, _STRIP):
        bottom = min(top + _STRIP, height)
        rgb[top:bottom] = np.asarray(_opaque(image.crop((0, top, width, bottom))))
    return rgb


def _opaque(image: Image.Image) -> Image.Image:
    """An RGB image."""
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.int64)
        upper = (levels >> 8).clip(0, 255).astype(np.uint8)
        upper[levels == image.info.get("transparency")] = 255
        image = Image.fromarray(upper)
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (255, 255, 255, 255)), rgba)
    return image if image.mode == "RGB" else image.convert("RGB")


def _turned(rgb: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels turned upright."""
    if orientation >= 5:
        rgb = rgb.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        rgb = rgb[::-1]
    if orientation in (2, 3, 6, 7):
        rgb = rgb[:, ::-1]
    return np.ascontiguousarray(rgb)
