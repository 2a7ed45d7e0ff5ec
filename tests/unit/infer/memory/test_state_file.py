"""The container of saved sequences: round trip, and refusal of anything that is not exactly right."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.infer.memory.state_file import ALIGNMENT, StateFile, StateHeader, read_state, write_state
from hybrid.quant.ggml.errors import Remedy, StateError

HEADER = StateHeader("00ff", "granite-4.0-h-tiny Q4_K", 7, {"sampler": {"seed": 3, "rng": [1, 2**63]}, "chat": ["Où?"]})


def arrays() -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [
        ("tokens", rng.integers(0, 60000, 7, dtype=np.int32)),
        ("layer.0.ssm", rng.standard_normal((3, 5, 7)).astype(np.float32)),
        ("layer.1.k", rng.standard_normal((7, 9)).astype(np.float16)),
        ("empty", np.zeros((0, 4), np.float32)),
        ("scalar", np.array(2.5)),
        ("rng", np.array([2**64 - 1, 0], np.uint64)),
    ]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "chat.state"
    write_state(path, HEADER, arrays())
    return path


def test_everything_comes_back(saved: Path) -> None:
    with read_state(saved) as state:
        assert state.header.fingerprint == "00ff"
        assert state.header.model == "granite-4.0-h-tiny Q4_K"
        assert state.header.n_tokens == 7
        assert state.header.extra == HEADER.extra
        assert state.header.library.startswith("hybrid-lm")
        assert list(state) == [name for name, _ in arrays()]
        assert len(state) == 6
        for name, given in arrays():
            assert state[name].dtype == given.dtype, name
            assert state[name].shape == given.shape, name
            assert state[name].tobytes() == given.tobytes(), name
            assert not state[name].flags.writeable, name


def test_size_is_returned_and_arrays_are_aligned(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert write_state(path, HEADER, arrays()) == path.stat().st_size
    with read_state(path) as state:
        for entry in state.header.arrays:
            assert entry.offset % ALIGNMENT == 0
            if entry.nbytes:
                assert state[entry.name].ctypes.data % ALIGNMENT == 0


def test_big_endian_and_strided_arrays_are_stored_plainly(tmp_path: Path) -> None:
    table = np.arange(24, dtype=">f4").reshape(4, 6)
    write_state(tmp_path / "s", HEADER, [("t", table.T[::2])])
    with read_state(tmp_path / "s") as state:
        assert state["t"].dtype == np.dtype("<f4")
        np.testing.assert_array_equal(state["t"], table.T[::2])


def test_arrays_survive_the_close(saved: Path) -> None:
    state = read_state(saved)
    tokens = state["tokens"]
    state.close()
    np.testing.assert_array_equal(tokens, arrays()[0][1])


def test_a_state_without_arrays(tmp_path: Path) -> None:
    write_state(tmp_path / "s", HEADER, [])
    with read_state(tmp_path / "s") as state:
        assert len(state) == 0


def test_rewriting_replaces_and_leaves_nothing_beside(saved: Path) -> None:
    write_state(saved, HEADER, [("tokens", np.zeros(2, np.int32))])
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    with read_state(saved) as state:
        assert list(state) == ["tokens"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_keeps_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = saved.read_bytes()

    def fail(handle: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    expected = KeyboardInterrupt if error is KeyboardInterrupt else StateError
    with pytest.raises(expected, match=None if error is KeyboardInterrupt else "cannot be written: No space left"):
        write_state(saved, HEADER, [("tokens", np.zeros(2, np.int32))])
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_the_file_respects_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_state(tmp_path / "s", HEADER, [])
    finally:
        os.umask(old)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o640


def test_callers_mistakes_are_not_state_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="complex64"):
        write_state(tmp_path / "s", HEADER, [("z", np.zeros(1, np.complex64))])
    with pytest.raises(ValueError, match="twice"):
        write_state(tmp_path / "s", HEADER, [("z", np.zeros(1)), ("z", np.zeros(1))])
    with pytest.raises(TypeError):
        write_state(tmp_path / "s", StateHeader("", "", 0, {"x": b"bytes"}), [])
    assert list(tmp_path.iterdir()) == []


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot be written: No such file"):
        write_state(tmp_path / "missing" / "s", HEADER, [])


def test_wrong_model(saved: Path) -> None:
    with read_state(saved) as state:
        state.header.check_model("00ff", "whatever", saved)
        with pytest.raises(StateError) as caught:
            state.header.check_model("0100", "jamba F32", saved)
    assert str(caught.value) == ("chat.state was saved by 'granite-4.0-h-tiny Q4_K', not by this model ('jamba F32').")
    assert caught.value.remedy is Remedy.WITHOUT_STATE


def test_expect_names_both_sides(saved: Path) -> None:
    with read_state(saved) as state:
        assert state.expect("layer.0.ssm", np.float32, (3, 5, 7)) is state["layer.0.ssm"]
        message = r"array 'layer.0.ssm' is f32 \[3, 5, 7\], this model needs f32 \[3, 5, 8\]"
        with pytest.raises(StateError, match=message):
            state.expect("layer.0.ssm", np.float32, (3, 5, 8))
        with pytest.raises(StateError, match="needs f16"):
            state.expect("layer.0.ssm", np.float16, (3, 5, 7))
        with pytest.raises(StateError, match=r"array .layer\.9\.ssm. is missing"):
            state["layer.9.ssm"]


def refused(path: Path) -> str:
    """The message that refuses the file, on opening or on reading any of its arrays."""
    with pytest.raises(StateError) as caught, read_state(path) as state:
        for name in state:
            state[name]
    message = str(caught.value)
    assert caught.value.remedy is (None if "Update hybrid" in message else Remedy.WITHOUT_STATE)
    assert "\n" not in message
    assert path.name in message
    return message


def test_missing_folder_empty_and_foreign_files(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert "0 bytes" in refused(tmp_path / "empty")
    (tmp_path / "foreign").write_bytes(b"GGUF" + bytes(100))
    assert "is not a state file" in refused(tmp_path / "foreign")


def test_other_versions(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[8] = 4
    saved.write_bytes(data)
    assert refused(saved) == "chat.state: state format 4, this version reads 1 to 3. Update hybrid."


def test_every_truncation_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for n in [*range(64), *range(64, len(data), 37), len(data) - 1]:
        saved.write_bytes(data[:n])
        refused(saved)
    saved.write_bytes(data + bytes(64))
    assert "has extra bytes" in refused(saved)


def test_every_flipped_byte_is_refused(saved: Path) -> None:
    """Also in padding."""
    data = saved.read_bytes()
    for i in range(len(data)):
        flipped = bytearray(data)
        flipped[i] ^= 1 << i % 8
        saved.write_bytes(flipped)
        refused(saved)


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header and correct its checksum, as an attacker would."""
    data = path.read_bytes()
    nbytes = struct.unpack_from("<Q", data, 16)[0]
    start = -(-(24 + nbytes) // ALIGNMENT) * ALIGNMENT
    values = json.loads(data[24 : 24 + nbytes])
    replaced = change(values)
    text = replaced if isinstance(replaced, bytes) else json.dumps(values).encode()
    head = data[:12] + struct.pack("<IQ", zlib.crc32(text), len(text)) + text
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data[start:])


def entry(i: int, **changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["arrays"][i].update(changes)


CRAFTED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "not JSON": (lambda v: b"{]", "not JSON"),
    "not UTF-8": (lambda v: b'{"a": "\xff"}', "not JSON"),
    "deep": (lambda v: b"[" * 200_000, "not JSON"),
    "huge number": (lambda v: b'{"n_tokens": ' + b"9" * 5000 + b"}", "not JSON"),
    "a list": (lambda v: b"[]", "header is not a JSON object"),
    "no model": (lambda v: v.pop("model"), "model of its header is missing"),
    "model is text": (lambda v: v.update(model="x"), "model of its header is 'x', expected dict"),
    "escape in the description": (lambda v: v["model"].update(description="a\n\x1b[2J"), "not a short printable text"),
    "tokens as bool": (lambda v: v.update(n_tokens=True), "n_tokens of its header is True, expected int"),
    "negative tokens": (lambda v: v.update(n_tokens=-1), "less than 0"),
    "extra is a list": (lambda v: v.update(extra=[]), "extra of its header"),
    "arrays is a dict": (lambda v: v.update(arrays={}), "arrays of its header"),
    "array is a number": (lambda v: v.update(arrays=[3]), r"arrays[0] is not a JSON object"),
    "object dtype": (entry(1, dtype="O"), "has dtype 'O'"),
    "pickle dtype": (entry(1, dtype="|O8"), "has dtype '|O8'"),
    "negative size": (entry(1, shape=[3, 5, -7]), "is not a list of up to 8 sizes"),
    "bool size": (entry(1, shape=[True, 15, 7]), "is not a list of up to 8 sizes"),
    "too many dims": (entry(1, shape=[1] * 9), "is not a list of up to 8 sizes"),
    "overflowing shape": (entry(1, shape=[2**32, 2**32]), "its shape makes"),
    "shape larger than bytes": (entry(1, shape=[3, 5, 8]), "claims 420 bytes, its shape makes 480"),
    "overlap": (entry(1, offset=0), "starts at byte 0, expected 64"),
    "gap": (entry(1, offset=128), "starts at byte 128, expected 64"),
    "outside": (entry(5, shape=[2**40], nbytes=2**43), "is cut off"),
    "twice": (entry(1, name="tokens"), "array 'tokens' is listed twice"),
    "one fewer": (lambda v: v["arrays"].pop(), "extra bytes"),
    "wrong crc": (entry(1, crc32=0), "array 'layer.0.ssm' is damaged"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_headers_are_refused(saved: Path, case: str) -> None:
    change, expected = CRAFTED[case]
    reseal(saved, change)
    assert expected in refused(saved)


def test_absurd_header_length(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    struct.pack_into("<Q", data, 16, 2**63)
    saved.write_bytes(data)
    assert "header claims 9223372036854775808 bytes" in refused(saved)


def test_reading_maps_and_does_not_load(saved: Path) -> None:
    with read_state(saved) as state:
        assert isinstance(state, StateFile)
        base = state["layer.0.ssm"].base
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, memoryview)
