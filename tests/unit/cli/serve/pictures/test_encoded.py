"""Files as base64 and data URLs: what is taken, and 40 hostile ones."""

import base64
import tracemalloc

import pytest

from hybrid.cli.serve.pictures.encoded import LONGEST_HEAD, from_base64, from_data_url
from hybrid.quant.ggml.errors import PictureError

DATA = bytes(range(256)) + b"\xff\xfe"
TEXT = base64.b64encode(DATA).decode()
assert "+" in TEXT and "/" in TEXT


@pytest.mark.parametrize(
    "text",
    [TEXT, TEXT.rstrip("="), "\n".join(TEXT[i : i + 76] for i in range(0, len(TEXT), 76)), f" \t{TEXT}\r\n"],
    ids=["plain", "unpadded", "lines", "spaces"],
)
def test_base64(text: str) -> None:
    assert from_base64(text) == DATA
    for n in (1, 2, 3, 4):
        assert from_base64(base64.b64encode(DATA[:n]).decode().rstrip("=")) == DATA[:n]


@pytest.mark.parametrize(
    "head",
    [
        "data:image/png;base64",
        "data:;base64",
        "DATA:IMAGE/JPEG;BASE64",
        "data:text/html;base64",
        "data:image/png;name=a%20b.png;charset=utf-8;base64",
        "data:image/png; base64 ",
    ],
)
def test_data_urls_with_any_type(head: str) -> None:
    if "; base64" in head:
        with pytest.raises(PictureError, match="not base64"):
            from_data_url(f"{head},{TEXT}")
        return
    assert from_data_url(f"{head},{TEXT}") == DATA
    escaped = "".join(f"%{ord(c):02x}" if c in "+/=" else c for c in TEXT)
    assert from_data_url(f"{head},{escaped}") == DATA


HOSTILE = {
    "nothing": "data:",
    "no comma": "data:image/png;base64",
    "only a comma": "data:,",
    "empty": "data:image/png;base64,",
    "spaces": "data:image/png;base64,   \n",
    "padding": "data:;base64,====",
    "one letter": "data:;base64,A",
    "five letters": "data:;base64,AAAAA",
    "padding inside": "data:;base64,AA==AAAA",
    "three =": "data:;base64,A===",
    "text after": "data:;base64,AAAA====",
    "a star": "data:;base64,AA*A",
    "a dot": "data:;base64,AAA.",
    "URL's alphabet -": "data:;base64,AA-A",
    "URL's alphabet _": "data:;base64,AA_A",
    "NUL": "data:;base64,AA\0A",
    "umlaut": "data:;base64,AAÄA",
    "wide letters": "data:;base64,ＡＡＡＡ",
    "wide spaces": "data:;base64,AA\u2003AA",
    "line separator": "data:;base64,AA\u2028AA",
    "emoji": "data:;base64,😀😀😀😀",
    "right to left": "data:;base64,\u202eAAAA",
    "a second comma": "data:;base64,AAAA,AAAA",
    "a second URL": "data:;base64,data:;base64,AAAA",
    "percent alone": "data:;base64,AAA%",
    "percent of no digits": "data:;base64,A%zzA",
    "percent of a star": "data:;base64,AAA%2A",
    "percent of NUL": "data:;base64,AAA%00",
    "percent of UTF-8": "data:;base64,AA%C3%84A",
    "percent twice": "data:;base64,AAA%252B",
    "not base64": "data:image/svg+xml,<svg/>",
    "percent text": "data:image/png,%89PNG",
    "hex": "data:image/png;hex,8950",
    "base64 in the name": "data:image/base64,AAAA",
    "base64 first": "data:base64;image/png,AAAA",
    "base64url": "data:image/png;base64url,AAAA",
    "a long type": f"data:{'x' * LONGEST_HEAD};base64,AAAA",
    "a file": "data:file:///etc/passwd",
    "UTF-16": "data:;base64,A\0A\0A\0A\0",
    "a surrogate": "data:;base64,AAA\ud800",
}


@pytest.mark.parametrize("url", HOSTILE.values(), ids=HOSTILE)
def test_hostile_data_urls(url: str) -> None:
    with pytest.raises(PictureError) as told:
        from_data_url(url)
    said = str(told.value)
    assert "\n" not in said and len(said) < 150 and said.isprintable()


def test_there_are_forty() -> None:
    assert len(HOSTILE) == 40


def test_large_files_are_refused_before_they_are_decoded() -> None:
    big = "A" * (4 << 20)
    assert len(from_base64(big, most=3 << 20)) == 3 << 20
    tracemalloc.start()
    for text in (big, "%41" * (1 << 20)):
        with pytest.raises(PictureError, match=r"Give a smaller file\.$"):
            from_data_url(f"data:;base64,{text}", most=(1 << 18) - 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(big), "copies of the text, and nothing more"
