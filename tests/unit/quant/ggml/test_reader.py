"""Reading sound files. test_reader_damaged.py reads damaged ones."""

import random
import re
import struct
import time
from pathlib import Path

import gguf_bytes as b
import numpy as np
import pytest

from hybrid.quant.ggml.errors import FormatError, HybridError, UsageError
from hybrid.quant.ggml.metadata import StringArray, decoded_together
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter


def write(folder: Path, raw: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(raw)
    return path


def test_header_and_tensors(tmp_path: Path) -> None:
    raw = b.changed()
    with GGUFFile.open(write(tmp_path, raw)) as f:
        assert (f.version, f.alignment, f.nbytes) == (3, 32, len(raw))
        assert f.data_offset == len(raw) - 174
        assert list(f.tensors) == ["a.weight", "b.weight", "c.weight"]
        t = f.tensors["b.weight"]
        assert (t.shape, t.type, t.offset, t.nbytes) == ((2, 32), GGMLType.Q8_0, f.data_offset + 64, 68)
        assert f.raw("b.weight").shape == (2, 34)
        assert f.raw("b.weight").tobytes() == bytes(range(64, 132))
        assert f.f32("a.weight").shape == (3, 5)
        assert f.f32("a.weight").tobytes() == bytes(range(60))
        assert f.f32("b.weight").shape == (2, 32)
        assert f.f32("c.weight").shape == (7,)
        expected = np.frombuffer(bytes(range(160, 174)), "<f2").astype(np.float32)
        np.testing.assert_array_equal(f.f32("c.weight"), expected)


def test_values_of_every_type(tmp_path: Path) -> None:
    scalars = {
        b.U8: ("B", 200), b.I8: ("b", -3), b.U16: ("H", 60000), b.I16: ("h", -300), b.U32: ("I", 4_000_000_000),
        b.I32: ("i", -5), b.F32: ("f", 0.5), b.BOOL: ("?", True), b.U64: ("Q", 1 << 63), b.I64: ("q", -(1 << 62)),
        b.F64: ("d", 0.1),
    }  # fmt: skip
    key_values = [b.pair(f"k{kind}", kind, struct.pack("<" + code, v)) for kind, (code, v) in scalars.items()]
    key_values += [
        b.pair(f"a{kind}", b.ARR, b.array(kind, [struct.pack("<" + code, v)] * 3))
        for kind, (code, v) in scalars.items()
    ]
    key_values.append(b.pair("s", b.STR, b.string("zwölf")))
    key_values.append(b.pair("none", b.ARR, b.array(b.I32, [])))
    with GGUFFile.open(write(tmp_path, b.changed(key_values=key_values))) as f:
        for kind, (_, value) in scalars.items():
            assert f.metadata[f"k{kind}"] == value
            assert type(f.metadata[f"k{kind}"]) is type(value)
            assert f.value_types[f"k{kind}"] is ValueType(kind)
            assert f.metadata[f"a{kind}"].tolist() == [value] * 3
            assert f.value_types[f"a{kind}"] == ArrayOf(ValueType(kind))
        assert f.metadata["s"] == "zwölf"
        assert f.metadata["none"].tolist() == []
        assert f.get("absent", 7) == 7
        assert len(f.metadata) == len(key_values)


def test_string_arrays_decode_on_demand(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, b.changed())) as f:
        tokens = f.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, StringArray)
        assert len(tokens) == 3
        assert tokens == ["a", "bc", "é"]
        assert tokens != ["a", "bc"]
        assert tokens[1] == "bc" and tokens[-2:] == ["bc", "é"] and list(tokens) == tokens.tolist()


def test_strings_decoded_together_are_the_same(tmp_path: Path) -> None:
    """Long ones, empty ones and ones with NUL are decoded one by one."""
    rng = random.Random(0)
    together = 0
    for case in range(200):
        letters = ["a", "é", "中", "\x01", "b" * 300] + ["\0", "c" * 70000] * (case % 4 == 0)
        strings = ["".join(rng.choices(letters, k=rng.randint(case % 3 > 0, 4))) for _ in range(rng.randint(1, 6))]
        pair = b.pair("k", b.ARR, b.array(b.STR, [b.string(text) for text in strings]))
        with GGUFFile.open(write(tmp_path, b.changed(key_values=[*b.default_key_values(), pair]))) as f:
            assert f.metadata["k"].tolist() == strings
            stored = f.metadata.entries["k"]
        raw = (tmp_path / "model.gguf").read_bytes()[stored.value : stored.end]
        together += decoded_together(raw, len(strings)) == strings
    assert 50 < together < 150


def test_version_2_and_other_alignment(tmp_path: Path) -> None:
    key_values = [b.pair("general.alignment", b.U32, struct.pack("<I", 64)), *b.default_key_values()]
    infos = [b.info("a.weight", [5, 3], 0, 0), b.info("b.weight", [32, 2], 8, 64)]
    with GGUFFile.open(write(tmp_path, b.changed(version=2, key_values=key_values, infos=infos, alignment=64))) as f:
        assert (f.version, f.alignment, f.data_offset % 64) == (2, 64, 0)
        assert f.raw("b.weight").tobytes() == bytes(range(64, 132))


def test_values_not_aligned_for_f32_are_copied(tmp_path: Path) -> None:
    """An alignment of 1 is allowed, but code that assumes aligned floats must not get numpy's views of it."""
    key_values = [b.pair("general.alignment", b.U32, struct.pack("<I", 1)), b.pair("x", b.STR, b.string("ab"))]
    x = np.arange(15, dtype=np.float32)
    for pad in range(4):
        key_values[1] = b.pair("x", b.STR, b.string("x" * pad))
        raw = b.changed(key_values=key_values, infos=[b.info("a", [5, 3], 0, 0)], alignment=1, data=x.tobytes())
        with GGUFFile.open(write(tmp_path, raw)) as f:
            values = f.f32("a")
            assert values.flags.aligned
            np.testing.assert_array_equal(values, x.reshape(3, 5))


def test_last_of_duplicate_keys_wins(tmp_path: Path) -> None:
    key_values = [b.pair("k", b.U32, struct.pack("<I", 1)), b.pair("k", b.STR, b.string("two"))]
    with GGUFFile.open(write(tmp_path, b.changed(key_values=key_values))) as f:
        assert dict(f.metadata) == {"k": "two"}
        assert f.metadata.duplicates == ["k"]


def test_tensors_may_lie_in_any_order_and_last_padding_may_lack(tmp_path: Path) -> None:
    infos = [b.info("late", [4], 0, 32), b.info("early", [8], 0, 0)]
    with GGUFFile.open(write(tmp_path, b.changed(infos=infos, data=bytes(48)))) as f:
        assert list(f.tensors) == ["late", "early"]


def test_views_outlive_the_file(tmp_path: Path) -> None:
    f = GGUFFile.open(write(tmp_path, b.changed()))
    raw = f.raw("b.weight")
    assert not raw.flags.writeable
    f.close()
    assert raw.tobytes() == bytes(range(64, 132))


def test_released_tensors_read_the_same(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((301, 97)).astype(np.float32)
    with GGUFWriter(tmp_path / "big.gguf", "test") as w:
        w.declare("x", x.shape, GGMLType.F32)
        w.write("x", x)
    with GGUFFile.open(tmp_path / "big.gguf") as f:
        np.testing.assert_array_equal(f.f32("x"), x)
        f.expect_parts("x")
        f.release("x", 5000, 50_000)
        f.release("x")
        np.testing.assert_array_equal(f.f32("x"), x)
        f.release_all()
        np.testing.assert_array_equal(f.f32("x"), x)


def resident(path: Path) -> int:
    """KiB of the mapped file that count as this process's memory."""
    maps = Path("/proc/self/smaps").read_text()
    return sum(int(size) for size in re.findall(rf"{re.escape(str(path))}\n.*?\nRss: +(\d+) kB", maps, re.DOTALL))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell the size of a mapping")
def test_a_released_file_is_not_resident(tmp_path: Path) -> None:
    """Also while arrays view it: they keep it mapped after its model was unloaded."""
    with GGUFWriter(tmp_path / "big.gguf", "test") as w:
        w.declare("x", (1 << 18,), GGMLType.F32)
        w.write("x", np.ones(1 << 18, np.float32))
    f = GGUFFile.open(tmp_path / "big.gguf")
    view = f.raw("x")
    assert view.sum() and resident(f.path) >= 1024
    f.release_all()
    assert resident(f.path) < 64
    f.close()
    f.release_all()
    assert view.sum()


def test_missing_key_and_tensor_are_named(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, b.changed())) as f:
        with pytest.raises(FormatError, match=r"model\.gguf has no key jamba\.ssm, which it needs\. Convert"):
            f.get("jamba.ssm")
        with pytest.raises(FormatError, match=r"model\.gguf has no tensor d\.weight\. Convert"):
            f.raw("d.weight")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: None, UsageError, r"model\.gguf does not exist\. Give"),
        (lambda p: p.mkdir(), UsageError, r"model\.gguf cannot be read: Is a directory\. Give"),
        (lambda p: p.touch(), FormatError, r"model\.gguf is empty, not a GGUF file\."),
    ],
)
def test_not_a_file(tmp_path: Path, make, error: type[HybridError], message: str) -> None:
    make(tmp_path / "model.gguf")
    with pytest.raises(error, match=message):
        GGUFFile.open(tmp_path / "model.gguf")


@pytest.mark.soak
def test_a_vocabulary_of_65k_opens_quickly(tmp_path: Path) -> None:
    """The limit is many times the usual time: it detects decoding every string or quadratic time, not slow machines."""
    with GGUFWriter(tmp_path / "vocab.gguf", "test") as w:
        w.add("tokenizer.ggml.tokens", [f"token number {i}" for i in range(65_536)])
    began = time.process_time()
    with GGUFFile.open(tmp_path / "vocab.gguf") as f:
        seconds = time.process_time() - began
        assert f.metadata["tokenizer.ggml.tokens"][65_535] == "token number 65535"
    print(f"{seconds * 1e3:.1f} ms")
    assert seconds < 0.5


@pytest.mark.parametrize(
    ("name", "n_tokens", "n_merges"),
    [("bert-bge", 30522, 0), ("gpt-neox", 50432, 50009), ("llama-spm", 32000, 0), ("qwen2", 151_936, 151_387)],
)
def test_vocabularies_of_llama_cpp(shared_dir: Path, name: str, n_tokens: int, n_merges: int) -> None:
    with GGUFFile.open(shared_dir / "vocabs" / f"ggml-vocab-{name}.gguf") as f:
        assert len(f.metadata["tokenizer.ggml.tokens"].tolist()) == n_tokens
        assert len(f.metadata["tokenizer.ggml.token_type"]) == n_tokens
        assert len(f.get("tokenizer.ggml.merges", [])) == n_merges
        assert not f.tensors and not f.metadata.duplicates
