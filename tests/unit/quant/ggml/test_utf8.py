"""Text files: the byte order mark is removed, and one function reads every file of other programs."""

import re
from pathlib import Path

import pytest

from hybrid.quant.ggml.utf8 import decoded

ROOT = Path(__file__).resolve().parents[4]
MARK = b"\xef\xbb\xbf"
# Files written by this program or this machine.
OWN = {
    "infer/kernels/build/cache_folders.py",
    "library/hub/folders.py",
    "library/llm_plugin.py",
    "library/pipeline/cached_models.py",
    "library/pipeline/present.py",
    "quant/ggml/pretokenizers.py",
}
_READS = re.compile(r"read_bytes\(\)[^\n]*\.decode\(|read_text\(encoding|utf-8-sig|utf_8_sig")


def test_one_mark_is_taken_off_the_beginning() -> None:
    assert decoded(MARK + b"a" + MARK) == "a\ufeff"
    assert decoded(MARK + MARK + b"a") == "\ufeffa"
    assert (decoded(b"a"), decoded(MARK), decoded(b"")) == ("a", "", "")
    assert decoded(MARK + b"\xff", "replace") == "\ufffd"
    with pytest.raises(UnicodeDecodeError) as caught:
        decoded(MARK + b"a\xff")
    assert caught.value.start == 4


def test_files_of_others_are_read_by_it() -> None:
    sources = [path for room in ("cli", "convert", "infer", "library", "quant") for path in (ROOT / room).rglob("*.py")]
    reading = {path.relative_to(ROOT).as_posix() for path in sources if _READS.search(path.read_text(encoding="utf-8"))}
    assert reading <= OWN, "quant/ggml/utf8.py reads text of files"
    assert len(sources) > 500
