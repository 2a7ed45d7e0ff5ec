"""Files that are cut off, wrong or hostile are refused with one line that says what was found."""

import math
import struct
from pathlib import Path

import gguf_bytes as b
import numpy as np
import pytest

from hybrid.quant.ggml.errors import FormatError, HybridError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive

BIG = 1 << 63


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def with_pair(*more: bytes) -> bytes:
    return b.changed(key_values=[*b.default_key_values(), *more])


def with_info(*infos: bytes) -> bytes:
    return b.changed(infos=list(infos))


STRUCTURE: dict[str, tuple[bytes, type[HybridError], str]] = {
    "magic": (b.changed(magic=b"GGML"), FormatError, "is not a GGUF file: it begins with b'GGML', not b'GGUF'."),
    "safetensors": (b"\x40\0\0\0\0\0\0\0{}" * 9, FormatError, "is not a GGUF file"),
    "three bytes": (b"GGU", FormatError, "is not a GGUF file: it begins with b'GGU'"),
    "magic only": (b"GGUF", FormatError, "is cut off: the version ends at byte 8, the file has 4. Copy it again."),
    "big endian": (b.changed(version=3 << 24), UnsupportedError, "is a big-endian GGUF file. Only little-endian"),
    "version 1": (b.changed(version=1), UnsupportedError, "is GGUF version 1; versions 2 and 3 are read."),
    "version 4": (b.changed(version=4), UnsupportedError, "is GGUF version 4; versions 2 and 3 are read."),
    "version 0": (b.changed(version=0), UnsupportedError, "is GGUF version 0;"),
    "tensors 2^63": (b.changed(n_tensors=BIG), FormatError, f"it says {BIG} tensors, which do not fit into its"),
    "tensors 1000": (b.changed(n_tensors=1000), FormatError, "it says 1000 tensors, which do not fit into its"),
    "pairs 2^63": (b.changed(n_key_values=BIG), FormatError, f"it says {BIG} key-value pairs, which do not fit"),
    "one tensor more": (b.changed(n_tensors=4), FormatError, "is damaged:"),
    "one pair more": (b.changed(n_key_values=5), FormatError, "is cut off: the name of tensor 0 ends at byte"),
    "one pair less": (b.changed(n_key_values=3), FormatError, "is damaged:"),
    "key beyond the end": (
        with_pair(struct.pack("<Q", BIG) + b"key"),
        FormatError,
        "is cut off: key 4 ends at byte",
    ),
    "key not UTF-8": (with_pair(b.pair(b"\xff\xfe", b.U32, u32(1))), FormatError, "key 4 is not UTF-8: b'\\xff\\xfe'"),
    "value type 13": (
        with_pair(b.pair("k", 13, u32(1))),
        FormatError,
        "key k has value type 13, the types are 0 to 12",
    ),
    "element type 99": (with_pair(b.pair("k", b.ARR, b.array(99, []))), FormatError, "key k has value type 99"),
    "array of arrays": (
        with_pair(b.pair("k", b.ARR, b.array(b.ARR, [b.array(b.U8, [])]))),
        FormatError,
        "key k is an array of arrays",
    ),
    "string 2^63": (with_pair(b.pair("k", b.STR, struct.pack("<Q", BIG))), FormatError, "is cut off: key k ends at"),
    "strings 2^63": (
        with_pair(b.pair("k", b.ARR, b.array(b.STR, [], BIG))),
        FormatError,
        f"it says {BIG} elements of key k, which do not fit",
    ),
    "numbers 2^61": (
        with_pair(b.pair("k", b.ARR, b.array(b.U64, [], 1 << 61))),
        FormatError,
        f"it says {1 << 61} elements of key k, which do not fit",
    ),
    "string in array 2^63": (
        with_pair(b.pair("k", b.ARR, b.array(b.STR, [b.string("x"), struct.pack("<Q", BIG), b.string("y")]))),
        FormatError,
        "is cut off: string 2 of key k ends at byte",
    ),
    "last string in array 2^63": (
        with_pair(b.pair("k", b.ARR, b.array(b.STR, [b.string("x"), struct.pack("<Q", BIG)]))),
        FormatError,
        "is cut off: key k ends at byte",
    ),
    "alignment 0": (
        with_pair(b.pair("general.alignment", b.U32, u32(0))),
        FormatError,
        "general.alignment is 0, not a power of two",
    ),
    "alignment 48": (
        with_pair(b.pair("general.alignment", b.U32, u32(48))),
        FormatError,
        "general.alignment is 48, not a power of two",
    ),
    "alignment a string": (
        with_pair(b.pair("general.alignment", b.STR, b.string("32"))),
        FormatError,
        "general.alignment is not a UINT32",
    ),
    "alignment 2^31": (
        with_pair(b.pair("general.alignment", b.U32, u32(1 << 31))),
        FormatError,
        "has offset 64, not a multiple of 2147483648",
    ),
    "name not UTF-8": (
        with_info(b.info(b"\xc3", [1], 0, 0)),
        FormatError,
        "the name of tensor 0 is not UTF-8: b'\\xc3'",
    ),
    "name beyond the end": (
        b.changed(infos=[struct.pack("<Q", BIG) + bytes(24)]),
        FormatError,
        "is cut off: the name of tensor 0 ends at byte",
    ),
    "no dimensions": (
        with_info(b.info("t", [], 0, 0) + bytes(8)),
        FormatError,
        "tensor t has 0 dimensions, not 1 to 4",
    ),
    "five dimensions": (with_info(b.info("t", [1] * 5, 0, 0)), FormatError, "tensor t has 5 dimensions, not 1 to 4"),
    "2^32 - 1 dimensions": (
        with_info(b.info("t", [1, 1], 0, 0, n_dims=0xFFFFFFFF)),
        FormatError,
        "tensor t has 4294967295 dimensions",
    ),
    "dimension 0": (with_info(b.info("t", [0, 4], 0, 0)), FormatError, "tensor t has the impossible shape 4x0"),
    "dimensions overflow": (
        with_info(b.info("t", [1 << 32, 1 << 32], 0, 0)),
        FormatError,
        "tensor t has the impossible shape 4294967296x4294967296",
    ),
    "unknown type": (
        with_info(b.info("t", [32], 77, 0)),
        FormatError,
        "tensor t has type 77, which ggml does not have",
    ),
    "type of ik_llama.cpp": (
        with_info(b.info("t", [32], 137, 0)),
        UnsupportedError,
        "tensor t has type 137 of ik_llama.cpp, which llama.cpp does not have. Use another file of this model.",
    ),
    "removed type": (with_info(b.info("t", [32], 4, 0)), FormatError, "tensor t has type 4, which ggml does not have"),
    "unsupported type": (
        with_info(b.info("blk.0.ffn_up.weight", [256], 15, 0)),
        UnsupportedError,
        "tensor blk.0.ffn_up.weight is Q8_K, which is not a type for weights. Convert the model again.",
    ),
    "row of half a block": (
        with_info(b.info("t", [16, 2], 8, 0)),
        FormatError,
        "tensor t has rows of 16 values, not a multiple of 32 (Q8_0)",
    ),
    "misaligned": (with_info(b.info("t", [8], 0, 4)), FormatError, "tensor t has offset 4, not a multiple of 32"),
    "out of range": (
        with_info(b.info("t", [8], 0, 1 << 40)),
        FormatError,
        f"tensor t has offset {1 << 40}, which is outside of the data",
    ),
    "offset overflows": (
        with_info(b.info("t", [8], 0, (1 << 64) - 32)),
        FormatError,
        f"tensor t has offset {(1 << 64) - 32}, which is outside of the data",
    ),
    "overlapping": (
        with_info(b.info("t", [16], 0, 0), b.info("u", [16], 0, 32)),
        FormatError,
        "tensors t and u overlap",
    ),
    "same place": (with_info(b.info("t", [8], 0, 0), b.info("u", [8], 0, 0)), FormatError, "tensors t and u overlap"),
    "duplicate tensor": (
        with_info(b.info("t", [8], 0, 0), b.info("t", [8], 0, 32)),
        FormatError,
        "tensor t occurs twice",
    ),
    "larger than the file": (
        with_info(b.info("t", [1 << 40], 0, 0)),
        FormatError,
        "is cut off: t ends at byte",
    ),
    "no data": (b.changed(data=b""), FormatError, "is cut off: a.weight ends at byte"),
}


def refusal(folder: Path, raw: bytes) -> HybridError:
    path = folder / "model.gguf"
    path.write_bytes(raw)
    with pytest.raises(HybridError) as caught, GGUFFile.open(path) as f:
        # Values, which are checked after opening.
        for key in f.metadata:
            value = f.metadata[key]
            if not isinstance(value, (str, int, float)):
                list(value)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message and message.endswith(".")
    return caught.value


@pytest.mark.parametrize("name", STRUCTURE)
def test_refused_with_reason(tmp_path: Path, name: str) -> None:
    raw, kind, words = STRUCTURE[name]
    error = refusal(tmp_path, raw)
    print(error)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (b.pair("k", b.STR, b.string(b"caf\xe9")), "model.gguf: k is not UTF-8. Convert the model again."),
        (
            b.pair("k", b.ARR, b.array(b.STR, [b.string("a"), b.string(b"\xe9")])),
            "model.gguf: k: string 1 is not UTF-8. Convert the model again.",
        ),
        (b.pair("k", b.BOOL, b"\x02"), "model.gguf: k holds a bool that is neither 0 nor 1."),
        (b.pair("k", b.ARR, b.array(b.BOOL, [b"\1", b"\7"])), "model.gguf: k holds a bool that is neither 0 nor 1."),
    ],
)
def test_bad_values_are_refused_when_asked_for(tmp_path: Path, pair: bytes, words: str) -> None:
    error = refusal(tmp_path, with_pair(pair))
    assert isinstance(error, FormatError)
    assert words in str(error)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    raw = b.changed()
    for n in range(1, len(raw)):
        error = refusal(tmp_path, raw[:n])
        assert n < 4 or "cut off" in str(error) or "do not fit" in str(error), f"{n}: {error}"


def test_cut_off_data_names_the_first_tensor_that_lacks(tmp_path: Path) -> None:
    raw = b.changed()
    start = len(raw) - 174
    error = refusal(tmp_path, raw[: start + 100])
    assert f"is cut off: b.weight ends at byte {start + 132}, the file has {start + 100}. Copy it again." in str(error)


def test_no_single_changed_byte_escapes(tmp_path: Path) -> None:
    """Every byte of the header is set to 0, 0x7f and 0xff: the file is read, or refused in one line."""
    raw = b.changed()
    path = tmp_path / "model.gguf"
    refused = 0
    for i in range(len(raw) - 174):
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(raw[:i] + bytes([value]) + raw[i + 1 :])
            try:
                with GGUFFile.open(path) as f, np.errstate(all="ignore"):
                    for key in f.metadata:
                        str(f.metadata[key])
                    for name in f.tensors:
                        assert f.f32(name).size == math.prod(f.tensors[name].shape)
            except HybridError as error:
                assert "\n" not in str(error)
                refused += 1
    assert refused > 300


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    raw = with_info(b.info("a\n\x1b[2J" + "x" * 400, [8], 77, 0))
    error = refusal(tmp_path, raw)
    assert "a\\n\\x1b[2Jxxx" in str(error)
    assert len(str(error)) < len(str(tmp_path)) + 360


def test_more_tensors_than_any_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.quant.ggml.reader.MAX_TENSORS", 2)
    path = tmp_path / "many.gguf"
    path.write_bytes(b.changed(n_tensors=3))
    with pytest.raises(FormatError, match="says that it has 3 tensors, expected at most 2"):
        GGUFFile.open(path)
