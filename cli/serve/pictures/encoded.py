"""Files as text: base64, and data URLs."""

import binascii
import re
from urllib.parse import unquote_to_bytes

from hybrid.infer.pictures.decode import LIMITS
from hybrid.quant.ggml.errors import PictureError

LONGEST_HEAD = 1000  # characters of a data URL before the comma
_SPACES = re.compile(r"[ \t\n\f\r]+")


def from_base64(text: str, most: int = LIMITS.nbytes) -> bytes:
    """The bytes of a base64 text, which may have spaces and lack its padding. PictureError: more than `most` bytes,
    no base64, or nothing."""
    text = _SPACES.sub("", text)
    n = len(text) * 3 // 4
    if n > most + 2:  # with padding
        raise PictureError(f"its base64 has {n} bytes, expected at most {most}. Give a smaller file.")
    if len(text) % 4:
        text += "=" * (4 - len(text) % 4)
    try:
        if text.endswith("==="):  # Python 3.11 accepts it after a multiple of four letters
            raise ValueError
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):  # ValueError: beyond ASCII
        raise PictureError("its base64 is damaged. Encode the file again.") from None
    if not data:
        raise PictureError("it is empty. Give the bytes of a file.")
    return data


def from_data_url(url: str, most: int = LIMITS.nbytes) -> bytes:
    """The bytes of a data URL; the declared type is not looked at. PictureError: not base64, or as of `from_base64`."""
    head, comma, text = url.partition(",")
    if not comma or len(head) > LONGEST_HEAD:
        raise PictureError("the data URL has no comma after its type. Expected data:image/png;base64,...")
    if not head.rstrip().lower().endswith(";base64"):
        raise PictureError("the data URL is not base64. Expected data:image/png;base64,...")
    if "%" in text:
        if len(text) > 4 * most:  # each character of base64 may be written %41
            raise PictureError(f"the data URL has {len(text)} characters. Give a smaller file.")
        text = unquote_to_bytes(text).decode("latin-1")
    return from_base64(text, most)
