"""Damaged, hostile and huge files: each gives an error of one line, within bounds of memory and time."""

import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import picture_files as files
import pytest
import resident

from hybrid.infer.bench.benchmark import peak_rss
from hybrid.infer.pictures.decode import PictureLimits, checked_header, decode
from hybrid.infer.pictures.header import MOST_PARTS, MOST_SCANS
from hybrid.quant.ggml.errors import PictureError

SMALL = files.noise(20, 30)
JPEG, PNG, GIF, BMP = (files.encoded(SMALL, kind) for kind in ("JPEG", "PNG", "GIF", "BMP"))
LOSSY, LOSSLESS = files.encoded(SMALL, "WEBP"), files.encoded(SMALL, "WEBP", lossless=True)
ROWS = b"".join(b"\0" + row.tobytes() for row in SMALL)
FRAME = b"," + struct.pack("<HHHHB", 0, 0, 2, 2, 0) + b"\x02\x02\x44\x01\0;"


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def sof(jpeg: bytes) -> int:
    """Where a JPEG's frame header begins."""
    return jpeg.index(b"\xff\xc0")


def scans(n: int) -> bytes:
    """A progressive JPEG with its last scan n times."""
    jpeg = files.encoded(SMALL, "JPEG", progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * n + jpeg[-2:]


HOSTILE: list[tuple[str, Callable[[], bytes], str]] = [
    # not a picture, or one of another type
    ("nothing", lambda: b"", "is empty, expected PNG, JPEG, WebP, GIF or BMP"),
    ("one byte", lambda: b"\x89", "is of an unknown type .it begins with 89"),
    ("text", lambda: b"a cat\n on a mat", "is text, expected PNG"),
    ("page", lambda: b" <!DOCTYPE html><html>", "is of type HTML"),
    ("svg", lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is of type SVG"),
    ("pdf", lambda: b"%PDF-1.7\n", "is of type PDF"),
    ("tiff", lambda: files.encoded(SMALL, "TIFF"), "is of type TIFF"),
    ("avif", lambda: b"\0\0\0\x1cftypavif" + bytes(20), "is of type AVIF"),
    ("heic", lambda: b"\0\0\0\x1cftypheic" + bytes(20), "is of type HEIC"),
    ("film", lambda: b"\0\0\0\x1cftypisom" + bytes(20), "is of type MP4"),
    ("noise", lambda: b"\x8f\x01\xfe" + files.noise(9, 9).tobytes(), "is of an unknown type .it begins with 8f 01 fe"),
    ("sound", lambda: b"RIFF\x24\0\0\0WAVEfmt ", "is of an unknown type"),
    # cut off
    ("png, after its mark", lambda: PNG[:8], "is cut off after 8 bytes"),
    ("png, in its header", lambda: PNG[:20], "is cut off after 20 bytes"),
    ("png, in its pixels", lambda: PNG[:-400], "is cut off after"),
    ("png, without its end", lambda: PNG[:-12], "is cut off after"),
    ("png, rows missing", lambda: files.png(30, 20, 8, 2, ROWS[:700]), "is cut off: the PNG has not all rows"),
    ("jpeg, after its mark", lambda: JPEG[:3], "is cut off after 3 bytes"),
    ("jpeg, before its frame", lambda: JPEG[: sof(JPEG)], "is cut off after"),
    ("jpeg, in its frame", lambda: JPEG[: sof(JPEG) + 6], "is cut off after"),
    ("jpeg, in its pixels", lambda: JPEG[:-200], "is cut off: the JPEG has not all rows"),
    ("webp, lossy", lambda: LOSSY[: len(LOSSY) // 2], "is damaged, or an unusual WebP"),
    ("webp, lossless", lambda: LOSSLESS[: len(LOSSLESS) // 2], "is damaged, or an unusual WebP"),
    ("webp, in its header", lambda: LOSSY[:25], "is damaged|is cut off after 25 bytes"),
    ("gif, in its header", lambda: GIF[:9], "is cut off after 9 bytes"),
    ("gif, in its pixels", lambda: GIF[:-300], "is cut off: the GIF has not all rows"),
    ("bmp, in its header", lambda: BMP[:20], "is cut off after 20 bytes"),
    ("bmp, in its pixels", lambda: BMP[:-500], "is cut off: the BMP has not all rows"),
    # damaged
    ("png, first chunk", lambda: files.PNG + files.chunk(b"IDAT", b"x") + files.chunk(b"IEND"), "the chunk IHDR"),
    ("png, short header", lambda: files.PNG + files.chunk(b"IHDR", b"abcd"), "is cut off|damaged"),
    ("png, checksum", lambda: changed(PNG, 29, b"\0\0\0\0"), "is damaged, or an unusual PNG"),
    ("png, pixels", lambda: files.png(30, 20, 8, 2, b"")[:-30] + files.chunk(b"IDAT", b"?" * 99)
     + files.chunk(b"IEND"), "is damaged|is cut off"),
    ("png, no pixels", lambda: PNG[:33] + files.chunk(b"IEND"), "is damaged, or an unusual PNG"),
    ("png, depth", lambda: files.png(4, 4, 3, 2, ROWS), "is damaged, or an unusual PNG: its header cannot be read"),
    ("png, palette", lambda: files.png(1, 1, 8, 3, b"\0\5", files.chunk(b"PLTE", b"abc"),
     files.chunk(b"tRNS", b"\x80" * 300)), "is damaged, or an unusual PNG"),
    ("png, chunk of 4 GB", lambda: PNG[:33] + files.chunk(b"IDAT", b"", length=2**32 - 1), "is cut off"),
    ("jpeg, no marker", lambda: changed(JPEG, 20, b"abcd"), "no marker of a JPEG at byte 20"),
    ("jpeg, segment of 0 bytes", lambda: files.with_segments(JPEG, b"\xff\xe0\0\0"), "no marker of a JPEG"),
    ("jpeg, no frame", lambda: JPEG[:2] + JPEG[JPEG.index(b"\xff\xda") :], "has 0 x 0 pixels"),
    ("jpeg, two starts", lambda: files.with_segments(JPEG, b"\xff\xd8"), "no marker of a JPEG at byte 2"),
    ("jpeg, height 0", lambda: changed(JPEG, sof(JPEG) + 5, b"\0\0"), "has 30 x 0 pixels"),
    ("jpeg, lossless", lambda: changed(JPEG, sof(JPEG) + 1, b"\xc3"), "is damaged, or an unusual JPEG"),
    ("webp, first chunk", lambda: files.riff((b"JUNK", bytes(40))), "not VP8, VP8L or VP8X"),
    ("webp, start code", lambda: changed(LOSSY, 23, b"abc"), "has no start code"),
    ("webp, no frame", lambda: files.riff(files.vp8x(30, 20)), "is damaged, or an unusual WebP"),
    ("webp, canvas and frame", lambda: files.riff(files.vp8x(31, 20), (b"VP8 ", LOSSY[20:])), "is damaged"),
    ("gif, no frame", lambda: files.gif(5, 5, b";"), "it has no frame"),
    ("gif, frame of 0", lambda: files.gif(0, 0, FRAME[:5] + bytes(4) + FRAME[9:]), "has 0 x 0 pixels"),
    ("bmp, header", lambda: changed(BMP, 14, b"\5\0\0\0"), "its header has 5 bytes"),
    ("bmp, width", lambda: files.bmp(-3, 4, bytes(60)), "its width is -3"),
    ("bmp, depth", lambda: files.bmp(3, 4, bytes(60), depth=7), "is damaged, or an unusual BMP"),
    ("bmp, compression", lambda: files.bmp(3, 4, bytes(60), compression=9), "is damaged, or an unusual BMP"),
    # too large
    ("png, 60000 rows of one pixel", lambda: files.png(1, 60000, 8, 2, bytes(240000)), "has 1 x 60000 pixels"),
    ("png, header of 2^31 x 2^31", lambda: files.png(2**31, 2**31, 8, 2, b""), "on a side. Give a smaller picture"),
    ("png, 32768 x 32768 in 3 MB", lambda: files.PNG + files.png(32768, 32768, 8, 2, b"")[8:33] + files.chunk(
     b"IDAT", zlib.compress(bytes(1 << 20)) * 3) + files.chunk(b"IEND"),
     "has 32768 x 32768 pixels, expected at most 50000000 in all"),
    ("jpeg, header of 65535 x 65535", lambda: changed(JPEG, sof(JPEG) + 5, b"\xff" * 4), "has 65535 x 65535 pixels"),
    ("jpeg, header of 30000 x 30000", lambda: changed(JPEG, sof(JPEG) + 5, struct.pack(">HH", 30000, 30000)),
     "has 30000 x 30000 pixels, expected at most 50000000 in all"),
    ("webp, canvas of 2^24 x 2^24", lambda: files.riff(files.vp8x(2**24, 2**24)), "has 16777216 x 16777216 pixels"),
    ("webp, lossless 16384 x 16384", lambda: changed(LOSSLESS, 21, b"\xff\xff\xff\x0f"), "has 16384 x 16384 pixels"),
    ("gif, screen of 65535 x 65535", lambda: files.gif(65535, 65535, FRAME), "has 65535 x 65535 pixels"),
    ("gif, frame outside", lambda: files.gif(9, 9, b"," + struct.pack("<HHHHB", 60000, 0, 2, 2, 0) + FRAME[10:]),
     "has 60002 x 9 pixels"),
    ("bmp, 2^31 - 1 x 2^31 - 1", lambda: files.bmp(2**31 - 1, 2**31 - 1, b""), "has 2147483647 x 2147483647 pixels"),
    # slow
    ("png, a million chunks", lambda: files.PNG + files.png(3, 3, 8, 2, b"")[8:33] + files.chunk(b"IDAT") * 10**6,
     f"more than {MOST_PARTS} parts"),
    ("jpeg, a million segments", lambda: files.with_segments(JPEG, files.segment(0xFE, b"") * 10**6),
     f"more than {MOST_PARTS} parts"),
    ("jpeg, a million filling bytes", lambda: files.with_segments(JPEG, b"\xff" * 10**6),
     f"more than {MOST_PARTS} parts"),
    ("jpeg, 500 scans", lambda: scans(500), f"has more than {MOST_SCANS} scans"),
    ("jpeg, 500 scans of a plain one", lambda: JPEG[:-2] + JPEG[JPEG.index(b"\xff\xda") : -2] * 500 + b"\xff\xd9",
     f"has more than {MOST_SCANS} scans"),
    ("jpeg, 500 scans after an end in a table", lambda: JPEG[:-2] + files.segment(0xFE, b"\xff\xd9")
     + JPEG[JPEG.index(b"\xff\xda") : -2] * 500 + b"\xff\xd9", f"has more than {MOST_SCANS} scans"),
    ("webp, a million chunks", lambda: files.riff(files.vp8x(9, 9), *[(b"JUNK", b"")] * 10**6),
     f"more than {MOST_PARTS} parts"),
    ("gif, a million blocks", lambda: files.gif(2, 2, b"!\xfe" + b"\1a" * 10**6 + b"\0", FRAME),
     f"more than {MOST_PARTS} parts"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "expected"), [(make, text) for _, make, text in HOSTILE], ids=[n for n, *_ in HOSTILE]
)
def test_one_line(make: Callable[[], bytes], expected: str) -> None:
    data = make()
    before, began = peak_rss(), time.process_time()
    with pytest.raises(PictureError, match=expected) as error:
        decode(data, "cat.png")
    said = str(error.value)
    assert said.startswith("cat.png ") and said.isprintable() and len(said) < 300 and said.endswith(".")
    assert peak_rss() - before < (32 << 20) + 3 * len(data)
    assert time.process_time() - began < 5


def test_bombs_of_texts_are_not_unpacked() -> None:
    """A text of 64 MB in 64 kB, and one of 1 GB stated: they are not among the pixels' parts."""
    text = files.chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 << 20), 9))
    profile = files.chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(64 << 20), 9))
    before = peak_rss()
    np.testing.assert_array_equal(decode(files.png(30, 20, 8, 2, ROWS, text, profile)), SMALL)
    assert peak_rss() - before < 16 << 20


def test_what_follows_a_picture() -> None:
    """Phones append films to JPEGs."""
    np.testing.assert_array_equal(decode(JPEG + b"\xff\xda" * 500 + b"\0ftypmp42"), decode(JPEG))
    np.testing.assert_array_equal(decode(PNG + b"more"), SMALL)


def test_files_that_are_too_long() -> None:
    with pytest.raises(PictureError, match=f"^the picture has {len(PNG)} bytes, expected at most 100. Give a smaller"):
        decode(PNG, limits=PictureLimits(nbytes=100))
    decode(PNG, limits=PictureLimits(nbytes=len(PNG), pixels=600, side=30))


def test_limits_hold_for_turned_pictures() -> None:
    turned = files.with_segments(JPEG, files.segment(0xE1, b"Exif\0\0" + files.exif(6)))
    assert checked_header(turned, limits=PictureLimits(side=30)).shown_size == (20, 30)
    with pytest.raises(PictureError, match="has 30 x 20 pixels, expected at most 29 on a side"):
        checked_header(turned, limits=PictureLimits(side=29))


@resident.needed
def test_memory_of_a_large_picture() -> None:
    """12 million pixels: 36 MB of them, and at most 10 bytes per pixel while they are decoded."""
    rgb = np.zeros((3000, 4000, 3), np.uint8)
    rgb[::7, ::5] = 200
    rgba = np.concatenate([rgb, rgb[..., :1]], axis=2)
    cases = [files.encoded(rgb, "JPEG", progressive=True), files.encoded(rgba, "PNG", compress_level=1)]
    for data in cases:
        with resident.Watch() as watch:
            found = decode(data)
        per_pixel = watch.growth / (3000 * 4000)
        print(f"{per_pixel:.1f} bytes per pixel")
        assert found.shape == (3000, 4000, 3) and per_pixel < 12


@pytest.mark.parametrize("data", [JPEG, PNG, GIF, BMP, LOSSY, LOSSLESS], ids=["jpeg", "png", "gif", "bmp", "v8", "v8l"])
def test_random_damage(data: bytes) -> None:
    """A few bytes changed, or the end cut: pixels or a PictureError, never another one, never a warning."""
    rng = np.random.default_rng(len(data))
    refused = 0
    for _ in range(150):
        bad = bytearray(data)
        for at in rng.integers(0, min(len(data), int(rng.choice([40, 700]))), int(rng.integers(1, 4))):
            bad[at] = rng.integers(0, 256)
        bad = bad[: int(rng.integers(1, len(data)))] if rng.random() < 0.3 else bad
        with suppress(PictureError):
            assert decode(bytes(bad), limits=PictureLimits(pixels=10**6)).dtype == np.uint8
            continue
        refused += 1
    assert 10 < refused < 150


def test_the_mark_of_one_type_before_another() -> None:
    with pytest.raises(PictureError, match="is damaged"):
        decode(b"GIF89a" + files.encoded(SMALL, "TIFF")[6:])
    with pytest.raises(PictureError, match="is damaged"):
        decode(b"BM" + PNG[2:])
