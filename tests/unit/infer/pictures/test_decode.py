"""Sound pictures of every type and kind of pixels, and the sources that are no files."""

import io
import struct
from typing import Any

import numpy as np
import picture_files as files
import pytest
from PIL import Image, ImageOps

from hybrid.infer.pictures.decode import PictureLimits, decode, from_array, from_pil, picture_name, pixels_of
from hybrid.infer.pictures.header import read_header
from hybrid.quant.ggml.errors import PictureError

LOSSLESS: list[tuple[str, dict[str, Any]]] = [
    ("PNG", {}), ("PNG", {"compress_level": 0}), ("WEBP", {"lossless": True}), ("BMP", {}),
]  # fmt: skip
LOSSY: list[tuple[str, dict[str, Any]]] = [
    ("JPEG", {}), ("JPEG", {"progressive": True, "subsampling": 0}), ("WEBP", {"quality": 60}), ("GIF", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
@pytest.mark.parametrize("size", [(1, 1), (37, 23), (300, 5)])
def test_lossless(kind: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    rgb = files.noise(*size)
    data = files.encoded(rgb, kind, **options)
    np.testing.assert_array_equal(decode(data), rgb)
    header = read_header(data)
    assert (header.kind.upper(), header.shown_size) == (kind, size[::-1])


@pytest.mark.parametrize(("kind", "options"), LOSSY)
def test_lossy(kind: str, options: dict[str, Any]) -> None:
    data = files.encoded(files.noise(37, 23), kind, **options)
    np.testing.assert_array_equal(decode(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    assert read_header(data).shown_size == (23, 37)


# --- turned ---
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_turned(kind: str, orientation: int) -> None:
    rgb = files.noise(16, 24)
    tag = Image.Exif()
    tag[0x0112] = orientation
    data = files.encoded(rgb, kind, exif=tag.tobytes(), **({"lossless": True} if kind == "WEBP" else {}))
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert expected.shape[:2] == ((24, 16) if orientation >= 5 else (16, 24))
    np.testing.assert_array_equal(decode(data), expected)
    assert read_header(data).shown_size == expected.shape[1::-1]
    np.testing.assert_array_equal(from_pil(Image.open(io.BytesIO(data))), expected)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [3, 4])
def test_exif_of_both_orders(order: str, kind: int) -> None:
    jpeg = files.encoded(files.noise(8, 16), "JPEG")
    turned = files.with_segments(jpeg, files.segment(0xE1, b"Exif\0\0" + files.exif(6, order, kind)))
    assert read_header(turned).orientation == 6
    np.testing.assert_array_equal(decode(turned), np.rot90(decode(jpeg), -1))


@pytest.mark.parametrize(
    "exif",
    [b"", b"II", b"XX" + files.exif(6)[2:], files.exif(6)[:20], files.exif(0), files.exif(9), files.exif(70000, kind=4),
     files.exif(6)[:4] + b"\xff\xff\xff\xff" + files.exif(6)[8:], files.exif(6, kind=3)[:8] + b"\xff\xff"],
)  # fmt: skip
def test_damaged_exif_turns_nothing(exif: bytes) -> None:
    jpeg = files.encoded(files.noise(8, 16), "JPEG")
    data = files.with_segments(jpeg, files.segment(0xE1, b"Exif\0\0" + exif))
    np.testing.assert_array_equal(decode(data), decode(jpeg))


def test_only_what_pixels_need_is_decoded() -> None:
    """Texts, profiles and previews, however damaged, are not looked at; Pillow would warn of some."""
    jpeg = files.encoded(files.noise(8, 16), "JPEG")
    junk = [files.segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\xff\0junk"), files.segment(0xE2, b"MPF\0junk")]
    junk += [files.segment(0xED, b"Photoshop 3.0\0junk"), files.segment(0xFE, b"note"), b"\xff\x01"]
    np.testing.assert_array_equal(decode(files.with_segments(jpeg, *junk)), decode(jpeg))

    rgb = files.noise(4, 5)
    rows = b"".join(b"\0" + row.tobytes() for row in rgb)
    junk = [files.chunk(kind, b"\0" * 9) for kind in (b"iCCP", b"zTXt", b"iTXt", b"pHYs", b"acTL", b"prVt")]
    np.testing.assert_array_equal(decode(files.png(5, 4, 8, 2, rows, *junk)), rgb)


# --- kinds of pixels ---
def test_transparent_parts_are_over_white() -> None:
    rgba = files.noise(6, 5, 4)
    rgba[0, :, 3], rgba[1, :, 3] = 0, 255
    alpha = rgba[..., 3:] / 255
    expected = rgba[..., :3] * alpha + 255 * (1 - alpha)
    for data in (files.encoded(rgba, "PNG"), files.encoded(rgba, "WEBP", lossless=True, exact=True)):
        found = decode(data)
        assert np.abs(found - expected).max() <= 1
        assert (found[0] == 255).all() and (found[1] == rgba[1, :, :3]).all()
    np.testing.assert_array_equal(from_array(rgba), decode(files.encoded(rgba, "PNG")))

    grey = Image.merge("LA", [Image.fromarray(rgba[..., i]) for i in (0, 3)])
    found = decode(files.encoded(grey, "PNG"))
    assert (found[0] == 255).all() and (found[1] == rgba[1, :, :1]).all()


def test_palettes() -> None:
    colours = bytes([10, 20, 30, 200, 100, 50, 7, 8, 9])
    data = files.png(3, 1, 8, 3, b"\0\0\1\2", files.chunk(b"PLTE", colours), files.chunk(b"tRNS", b"\xff\0\x80"))
    assert decode(data)[0].tolist() == [[10, 20, 30], [255, 255, 255], [131, 131, 132]]
    image = Image.fromarray(np.array([[0, 1, 0]], np.uint8))
    image.putpalette(colours[:6])
    found = decode(files.encoded(image, "GIF", transparency=1))
    assert found[0].tolist() == [[10, 20, 30], [255, 255, 255], [10, 20, 30]]


def test_a_transparent_colour() -> None:
    grey = files.png(2, 1, 8, 0, b"\0\x10\x20", files.chunk(b"tRNS", struct.pack(">H", 0x20)))
    assert decode(grey)[0].tolist() == [[16] * 3, [255] * 3]
    colour = files.png(2, 1, 8, 2, b"\0\x10\x20\x30\1\2\3", files.chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3)))
    assert decode(colour)[0].tolist() == [[16, 32, 48], [255] * 3]
    deep = files.png(2, 1, 16, 0, b"\0" + struct.pack(">HH", 40000, 300), files.chunk(b"tRNS", struct.pack(">H", 300)))
    assert decode(deep)[0].tolist() == [[156] * 3, [255] * 3]


def test_grey_is_repeated() -> None:
    grey = files.noise(5, 6, 1)
    for kind in ("PNG", "BMP"):
        np.testing.assert_array_equal(decode(files.encoded(grey[..., 0], kind)), grey.repeat(3, axis=2))
    np.testing.assert_array_equal(from_array(grey), grey.repeat(3, axis=2))
    np.testing.assert_array_equal(from_array(grey[..., 0]), grey.repeat(3, axis=2))
    bits = files.png(8, 1, 1, 0, b"\0\xaa")
    assert decode(bits)[0, :, 1].tolist() == [255, 0] * 4


def test_sixteen_bits_keep_the_upper_eight() -> None:
    levels = struct.pack(">HHH", 40000, 300, 65535)
    assert decode(files.png(3, 1, 16, 0, b"\0" + levels))[0, :, 0].tolist() == [156, 1, 255]
    assert decode(files.png(1, 1, 16, 2, b"\0" + levels))[0, 0].tolist() == [156, 1, 255]
    rgba = struct.pack(">HHHH", 40000, 300, 65535, 0)
    assert decode(files.png(1, 1, 16, 6, b"\0" + rgba))[0, 0].tolist() == [255, 255, 255]
    assert from_pil(Image.fromarray(np.array([[40000, 300]], np.uint16)))[0, :, 0].tolist() == [156, 1]
    assert from_pil(Image.fromarray(np.array([[40000, 70 << 16, -5]], np.int32)))[0, :, 0].tolist() == [156, 255, 0]


def test_cmyk() -> None:
    """White, black, and a colour without cyan: red."""
    image = Image.fromarray(np.full((16, 16, 4), (0, 255, 255, 0), np.uint8), "CMYK")
    red = decode(files.encoded(image, "JPEG", quality=95))
    assert np.abs(red.astype(int) - (255, 0, 0)).max() <= 3
    black = decode(files.encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 255)), "JPEG", quality=95))
    assert black.max() <= 3


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.fromarray(np.full((9, 7, 3), level, np.uint8)) for level in (40, 200, 90)]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})):
        data = files.encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
        assert np.unique(decode(data)).tolist() == [40]


def test_a_frame_that_is_smaller_or_larger_than_the_screen() -> None:
    data = bytearray(files.encoded(Image.new("P", (4, 3), 0), "GIF"))
    assert decode(bytes(data)).shape == (3, 4, 3)
    data[6:10] = struct.pack("<HH", 9, 8)
    assert decode(bytes(data)).shape == (8, 9, 3)
    data[6:10] = struct.pack("<HH", 1, 2)
    assert decode(bytes(data)).shape == (*read_header(bytes(data)).shown_size[::-1], 3) == (3, 4, 3)


def test_rows_of_a_bmp_from_the_top() -> None:
    rows = bytes([1, 2, 3, 0]) + bytes([7, 8, 9, 0])
    assert decode(files.bmp(1, 2, rows))[:, 0].tolist() == [[9, 8, 7], [3, 2, 1]]
    assert decode(files.bmp(1, -2, rows))[:, 0].tolist() == [[3, 2, 1], [9, 8, 7]]


# --- other sources ---
def test_sources() -> None:
    rgb = files.noise(5, 7)
    data = files.encoded(rgb, "PNG")
    for source in (data, bytearray(data), memoryview(data), rgb, Image.fromarray(rgb), Image.open(io.BytesIO(data))):
        np.testing.assert_array_equal(pixels_of(source), rgb)
    found = pixels_of(rgb[::2, ::-1])
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, rgb[::2, ::-1])
    with pytest.raises(PictureError, match=r"^a.png is a str, expected the bytes of a file, a PIL image or a numpy"):
        pixels_of("a.png", "a.png")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((2, 3, 3), np.float32), "is an array float32 of 2 x 3 x 3, expected uint8 of height x width x 3"),
        (np.zeros((3, 4, 5), np.uint8), "is an array uint8 of 3 x 4 x 5"),
        (np.zeros(4, np.uint8), "is an array uint8 of 4,"),
        (np.zeros((1, 2, 3, 3), np.uint8), "is an array uint8 of 1 x 2 x 3 x 3"),
        (np.zeros((0, 3, 3), np.uint8), "is an array without pixels"),
        (np.zeros((40, 3, 3), np.uint8), "has 3 x 40 pixels, expected at most 20 on a side"),
        (np.zeros((20, 20), np.uint8), "has 20 x 20 pixels, expected at most 300 in all"),
    ],
)
def test_arrays_that_are_no_pictures(array: np.ndarray, expected: str) -> None:
    with pytest.raises(PictureError, match=expected):
        from_array(array, limits=PictureLimits(pixels=300, side=20))


def test_pil_images_that_cannot_be_read() -> None:
    with pytest.raises(PictureError, match="has fractions as pixels"):
        from_pil(Image.new("F", (2, 2)))
    with pytest.raises(PictureError, match="has 30 x 2 pixels, expected at most 20 on a side"):
        from_pil(Image.new("L", (30, 2)), limits=PictureLimits(side=20))
    cut = Image.open(io.BytesIO(files.encoded(files.noise(50, 50), "JPEG")[:-900]))
    with pytest.raises(PictureError, match="is cut off: the image has not all rows"):
        from_pil(cut)


def test_names() -> None:
    rgb = files.noise(4, 6)
    names = {picture_name(rgb), picture_name(rgb.reshape(6, 4, 3)), picture_name(rgb.reshape(8, 3, 3))}
    other = rgb.copy()
    other[3, 5, 2] ^= 1
    names.add(picture_name(other))
    assert len(names) == 4, "shape and every pixel count"
    assert picture_name(rgb[:, ::-1]) == picture_name(rgb[:, ::-1].copy())
    assert decode(files.encoded(rgb, "PNG")).shape and picture_name(decode(files.encoded(rgb, "BMP"))) in names
