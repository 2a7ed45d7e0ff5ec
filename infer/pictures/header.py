"""What a picture's file says before its pixels: type, size, how it is turned. Nothing is decoded.

`read_header` also finds the parts of the file that the pixels need. A decoder gets only these: no texts, colour
profiles, previews or further frames, which can be as large or as damaged as somebody likes.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from hybrid.quant.ggml.errors import PictureError

KINDS = ("PNG", "JPEG", "WebP", "GIF", "BMP")
MOST_PARTS = 65536  # chunks or segments that are looked at, one by one
MOST_SCANS = 100  # of a JPEG: each is a pass over all its pixels
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # of a part with a length, or the end
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PARTS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_ORIENTATION = 0x0112
_OTHERS = {  # types of files that people have, and that are not read
    b"II*\0": "TIFF", b"MM\0*": "TIFF", b"%PDF": "PDF", b"<svg": "SVG", b"<?xm": "XML, as of SVG", b"8BPS": "PSD",
    b"\0\0\1\0": "ICO", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cJXL ": "JPEG XL", b"<!DO": "HTML", b"<htm": "HTML",
}  # fmt: skip
_BOXES = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"isom": "MP4"}


@dataclass(frozen=True)
class PictureHeader:
    """kind: one of KINDS. width, height: of the stored pixels. orientation: 1 to 8, as in EXIF; from 5 on, the sides
    are exchanged. parts: byte ranges of the file that the pixels need, in order."""

    kind: str
    width: int
    height: int
    orientation: int
    parts: tuple[slice, ...]

    @property
    def shown_size(self) -> tuple[int, int]:
        """(width, height) of the upright picture."""
        turned = self.orientation >= 5
        return (self.height, self.width) if turned else (self.width, self.height)


class _Bytes:
    """Reads numbers; PictureError where the file ends."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.steps = data, name, 0

    def at(self, form: str, place: int) -> int:
        try:
            return int(struct.unpack_from(form, self.data, place)[0])
        except struct.error:
            raise self.cut_off() from None

    def byte(self, place: int) -> int:
        return self.at("B", place)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_PARTS:
            raise self.damaged(f"it has more than {MOST_PARTS} parts")

    def cut_off(self) -> PictureError:
        return PictureError(f"{self.name} is cut off after {len(self.data)} bytes. Give the whole file.")

    def damaged(self, what: str) -> PictureError:
        return PictureError(f"{self.name} is damaged: {what}. Give another file.")


def read_header(data: bytes, name: str = "the picture") -> PictureHeader:
    """The header of a PNG, JPEG, WebP, GIF or BMP file. PictureError: it is of another type, damaged, or has no pixels.

    name: of the picture, in messages.
    """
    b = _Bytes(data, name)
    if data.startswith(_PNG):
        header = _png(b)
    elif data.startswith(b"\xff\xd8\xff"):
        header = _jpeg(b)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        header = _webp(b)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        header = _gif(b)
    elif data.startswith(b"BM"):
        header = _bmp(b)
    else:
        raise PictureError(f"{name} is {_other(data)}, expected {', '.join(KINDS[:-1])} or {KINDS[-1]}. Convert it.")
    if not header.width or not header.height:
        raise b.damaged(f"it has {header.width} x {header.height} pixels")
    return header


def _other(data: bytes) -> str:
    """What a file of no supported type is."""
    if not data:
        return "empty"
    if data[4:8] == b"ftyp" and data[8:12] in _BOXES:
        return f"of type {_BOXES[data[8:12]]}"
    for begin, kind in _OTHERS.items():
        if data.lstrip()[: len(begin)] == begin:
            return f"of type {kind}"
    text = data[:64].decode("ascii", "replace")
    if all(c.isspace() or (c.isascii() and c.isprintable()) for c in text):
        return "text"
    return f"of an unknown type (it begins with {data[:8].hex(' ')})"


def _png(b: _Bytes) -> PictureHeader:
    parts, orientation = [slice(0, len(_PNG))], 1
    for kind, start, end in _png_chunks(b):
        if start == len(_PNG) and kind != b"IHDR":
            raise b.damaged("it does not begin with the chunk IHDR")
        if kind == b"eXIf":
            orientation = exif_orientation(b.data[start + 8 : end - 4])
        if kind in _PNG_PARTS:
            _add(parts, start, end)
    width, height = b.at(">I", 16), b.at(">I", 20)
    return PictureHeader("PNG", width, height, orientation, tuple(parts))


def _png_chunks(b: _Bytes) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, end) of every chunk to the one named IEND."""
    at, kind = len(_PNG), b""
    while kind != b"IEND":
        b.step()
        end = at + 12 + b.at(">I", at)
        kind = b.data[at + 4 : at + 8]
        if end > len(b.data):
            raise b.cut_off()
        yield kind, at, end
        at = end


def _add(parts: list[slice], start: int, end: int) -> None:
    """Appends a range, or lengthens the last one up to its end."""
    if parts[-1].stop == start:
        parts[-1] = slice(parts[-1].start, end)
    else:
        parts.append(slice(start, end))


def _jpeg(b: _Bytes) -> PictureHeader:
    parts, orientation, width, height = [slice(0, 2)], 0, 0, 0
    at = 2
    while True:
        b.step()
        start = at
        while b.byte(at + 1) == 0xFF:  # any number of these may precede a marker
            at += 1
            b.step()
        marker = b.byte(at + 1)
        if b.byte(at) != 0xFF or marker in (0x00, 0xD8, 0xD9):
            raise b.damaged(f"no marker of a JPEG at byte {at}")
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # without contents
            at += 2
            continue
        end = at + 2 + b.at(">H", at + 2)
        if end > len(b.data):
            raise b.cut_off()
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = b.at(">H", at + 5), b.at(">H", at + 7)
        if marker == 0xE1 and not orientation and b.data[at + 4 : at + 10] == b"Exif\0\0":
            orientation = exif_orientation(b.data[at + 10 : end])
        if marker == 0xDA:
            break
        if not (0xE1 <= marker <= 0xED or marker in (0xEF, 0xFE)):  # APP0 and APP14 say which colours these are
            _add(parts, start, end)
        at = end
    _add(parts, start, len(b.data))
    if b.data.count(b"\xff\xda", start) > MOST_SCANS:  # films and the like may follow the picture
        _check_scans(b, start)
    return PictureHeader("JPEG", width, height, orientation or 1, tuple(parts))


def _check_scans(b: _Bytes, at: int) -> None:
    """PictureError if there are more than MOST_SCANS of them from the one at byte `at` to the end of the picture."""
    scans = 0
    while (found := _MARKER.search(b.data, at)) and found[0] != b"\xff\xd9":
        b.step()
        scans += found[0] == b"\xff\xda"
        if scans > MOST_SCANS:
            raise b.damaged(f"it has more than {MOST_SCANS} scans")
        at = found.end() + (b.at(">H", found.end()) if found.end() + 2 <= len(b.data) else 0)


def _webp(b: _Bytes) -> PictureHeader:
    kind, orientation = b.data[12:16], 1
    if kind == b"VP8 ":
        if b.data[23:26] != b"\x9d\x01\x2a":
            raise b.damaged("its first frame has no start code")
        width, height = b.at("<H", 26) & 0x3FFF, b.at("<H", 28) & 0x3FFF
    elif kind == b"VP8L":
        bits = b.at("<I", 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        width, height = (b.at("<I", 24) & 0xFFFFFF) + 1, (b.at("<I", 26) >> 8) + 1
        for part, start, end in _riff(b):
            if part == b"EXIF":
                orientation = exif_orientation(b.data[start:end].removeprefix(b"Exif\0\0"))
    else:
        raise b.damaged("its first chunk is not VP8, VP8L or VP8X")
    return PictureHeader("WebP", width, height, orientation, (slice(0, len(b.data)),))


def _riff(b: _Bytes) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, end) of the contents of every chunk; the file may end in one."""
    at = 12
    while at + 8 <= len(b.data):
        b.step()
        start, size = at + 8, b.at("<I", at + 4)
        yield b.data[at : at + 4], start, start + size
        at = start + size + size % 2


def _gif(b: _Bytes) -> PictureHeader:
    """The size is the screen's, or larger if the first picture goes beyond it."""
    width, height, flags = b.at("<H", 6), b.at("<H", 8), b.byte(10)
    at = 13 + _colours(flags)
    parts = [slice(0, at)]
    while (kind := b.byte(at)) == 0x21:
        start, label = at, b.byte(at + 1)
        at += 2
        while size := b.byte(at):
            b.step()
            at += 1 + size
        at += 1
        b.step()
        if label == 0xF9:  # transparency; the last one counts
            parts[1:] = []
            _add(parts, start, at)
    if kind != 0x2C:
        raise b.damaged("it has no frame")
    x, y, w, h = (b.at("<H", at + 1 + 2 * i) for i in range(4))
    _add(parts, at, len(b.data))
    return PictureHeader("GIF", max(width, x + w), max(height, y + h), 1, tuple(parts))


def _colours(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _bmp(b: _Bytes) -> PictureHeader:
    size = b.at("<I", 14)
    if size == 12:
        width, height = b.at("<H", 18), b.at("<H", 20)
    elif 16 <= size <= 4096:
        width, height = b.at("<i", 18), abs(b.at("<i", 22))  # negative: the first row is on top
    else:
        raise b.damaged(f"its header has {size} bytes")
    if width < 0:
        raise b.damaged(f"its width is {width}")
    return PictureHeader("BMP", width, height, 1, (slice(0, len(b.data)),))


def exif_orientation(exif: bytes) -> int:
    """The orientation in EXIF's own format, TIFF; 1 (upright) if it is missing or the data is damaged."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (first,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, first)
        for i in range(count):
            tag, kind = struct.unpack_from(order + "HH", exif, first + 2 + 12 * i)
            if tag == _ORIENTATION and kind in (3, 4):  # u16, u32
                (value,) = struct.unpack_from(order + ("H" if kind == 3 else "I"), exif, first + 10 + 12 * i)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1
