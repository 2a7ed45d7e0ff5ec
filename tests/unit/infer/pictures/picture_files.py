"""Files of pictures made for tests: by Pillow, or byte by byte where it would not write them."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

PNG = b"\x89PNG\r\n\x1a\n"


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng([height, width]).integers(0, 256, (height, width, channels)).astype(np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str, **options: Any) -> bytes:
    """A file of Pillow's."""
    out = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A chunk of a PNG. length: that it states, if not the true one."""
    size = len(data) if length is None else length
    return struct.pack(">I", size) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colours: int, rows: bytes, *more: bytes) -> bytes:
    """colours: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA. more: chunks before the pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0))
    return PNG + head + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND")


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    """EXIF with one tag before the orientation and one after it."""
    mark = {"<": b"II*\0\x08\0\0\0", ">": b"MM\0*\0\0\0\x08"}[order]
    value = struct.pack(order + ("HH" if kind == 3 else "I"), *((orientation, 0) if kind == 3 else (orientation,)))
    tags = [(0x0100, 3, struct.pack(order + "HH", 99, 0)), (0x0112, kind, value), (0x0213, 3, bytes(4))]
    entries = b"".join(struct.pack(order + "HHI", tag, form, 1) + data for tag, form, data in tags)
    return mark + struct.pack(order + "H", len(tags)) + entries + bytes(4)


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    """A JPEG with segments right after its first marker."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def vp8x(width: int, height: int, flags: int = 0) -> tuple[bytes, bytes]:
    """The chunk of a WebP that states the size of its canvas."""
    return b"VP8X", struct.pack("<I", flags) + b"".join((side - 1).to_bytes(3, "little") for side in (width, height))


def bmp(width: int, height: int, rows: bytes, depth: int = 24, compression: int = 0) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, depth, compression, len(rows), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + head + rows


def gif(width: int, height: int, *blocks: bytes) -> bytes:
    """Without a table of colours."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"".join(blocks)
