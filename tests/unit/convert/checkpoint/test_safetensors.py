"""A .safetensors header is checked before it is used."""

import json
import struct

import numpy as np
import pytest

from hybrid.convert.checkpoint import Dtype
from hybrid.convert.checkpoint.safetensors import read_safetensors
from hybrid.convert.checkpoint.tensor import DataFile
from hybrid.quant.ggml.errors import CheckpointError


def entry(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.fixture
def written(tmp_path):
    """Writes a header (an object, or raw bytes) and data; returns the file."""

    def write(header, data=b"\0" * 24, length=None):
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
        return DataFile(path)

    return write


def test_reads_values(tmp_path, save):
    arrays = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.arange(5, dtype=np.uint16),
        "scalar": np.array(7.5, np.float64),
    }
    save(tmp_path / "m.safetensors", arrays)
    tensors = read_safetensors(DataFile(tmp_path / "m.safetensors"))
    assert (tensors["b"].dtype, tensors["b"].shape) == (Dtype.F32, (2, 3))
    np.testing.assert_array_equal(tensors["b"].read(0, 6).reshape(2, 3), arrays["b"])
    np.testing.assert_array_equal(tensors["b"].read(2, 5), [2, 3, 4])
    np.testing.assert_array_equal(tensors["a"].read(0, 5), arrays["a"])
    assert tensors["scalar"].read(0, 1) == 7.5


def test_agrees_with_the_reference_library(tmp_path):
    from safetensors.numpy import save_file

    arrays = {f"t{i}": np.random.rand(i + 1, 3).astype(np.float16) for i in range(7)}
    save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "np"})
    tensors = read_safetensors(DataFile(tmp_path / "m.safetensors"))
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name].read(0, array.size).reshape(array.shape), array)


@pytest.mark.parametrize(
    ("header", "data", "length", "message"),
    [
        ({"a": entry()}, b"\0" * 23, None, "cut off: a ends at byte"),
        ({"a": entry()}, b"", None, "cut off: a ends at byte"),
        ({"a": entry()}, b"\0" * 25, None, "1 bytes at its end belong to no tensor"),
        ({"a": entry()}, b"\0" * 24, 10**12, "it says that its header has 1000000000000 bytes"),
        ({"a": entry()}, b"\0" * 24, 2**64 - 1, "it says that its header has"),
        ({"a": entry()}, b"\0" * 24, 0, "header has 0 bytes"),
        ({"a": entry()}, b"\0" * 24, 5000, "cut off: its header ends at byte 5008"),
        (b'{"a": ', b"\0" * 24, None, "header is not JSON"),
        (b"\xff\xfe{}", b"", None, "header is not JSON"),
        (b"[" * 100_000, b"", None, "header is not JSON"),
        (b"[1, 2]", b"", None, "not a JSON object"),
        (b'{"a": {}, "a": {}}', b"", None, "a occurs twice"),
        ({"a": 3}, b"", None, "tensor a is not described"),
        ({"a": {"dtype": "F32", "shape": [1]}}, b"", None, "tensor a is not described"),
        ({"a": entry(dtype="Q9")}, b"\0" * 24, None, "unknown type Q9"),
        ({"a": entry(dtype=7)}, b"\0" * 24, None, "unknown type 7"),
        ({"a": entry(shape=(2, -3))}, b"\0" * 24, None, r"shape \[2, -3\]"),
        ({"a": entry(shape=(2, 3.0))}, b"\0" * 24, None, "shape"),
        ({"a": entry(shape=(2, True))}, b"\0" * 24, None, "shape"),
        ({"a": entry(shape=(2, 4))}, b"\0" * 24, None, "has 24 bytes of data"),
        ({"a": entry(shape=(2**40, 2**40))}, b"\0" * 24, None, "has 24 bytes of data"),
        ({"a": entry(offsets=(24, 0))}, b"\0" * 24, None, "has -24 bytes of data"),
        ({"a": entry(offsets=(0, 24, 48))}, b"\0" * 24, None, "offsets"),
        ({"a": entry(), "b": entry(offsets=(12, 36))}, b"\0" * 36, None, "tensor b overlaps"),
        ({"a": entry(), "b": entry(offsets=(28, 52))}, b"\0" * 52, None, "4 bytes before tensor b"),
        ({"a": entry(offsets=(2**62, 2**62 + 24))}, b"\0" * 24, None, "belong to none"),
    ],
)
def test_damage_is_named(written, header, data, length, message):
    file = written(header, data, length)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_safetensors(file)
    assert "model.safetensors" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_too_short_for_a_header(tmp_path, size):
    (tmp_path / "m.safetensors").write_bytes(b"\x05" * size)
    with pytest.raises(CheckpointError, match=f"cut off: it has {size} bytes"):
        read_safetensors(DataFile(tmp_path / "m.safetensors"))


def test_names_cannot_forge_lines(written):
    file = written({"a\n\x1b[31mFAKE": entry(dtype="Q9")})
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(file)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_more_tensors_than_any_checkpoint_has(written, monkeypatch):
    """Each costs memory and time in every step of the conversion."""
    monkeypatch.setattr("hybrid.convert.checkpoint.safetensors.MAX_TENSORS", 3)
    header = {f"t{i}": entry(shape=(1,), offsets=(4 * i, 4 * i + 4)) for i in range(4)}
    with pytest.raises(CheckpointError, match="its header has 4 tensors, expected at most 3"):
        read_safetensors(written(header, b"\0" * 16))
