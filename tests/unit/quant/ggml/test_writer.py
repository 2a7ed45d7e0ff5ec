"""What the writer writes and refuses; nothing remains after a failure."""

import contextlib
import errno
import os
import resource
import shutil
import signal
import stat
import threading
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf_bytes as b
import numpy as np
import pytest

from hybrid.quant.ggml import writer
from hybrid.quant.ggml.errors import FormatError, HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import SplitWriter
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

X = np.arange(15, dtype=np.float32).reshape(3, 5)


def test_no_thread_puts_before_places_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def header(self: GGUFWriter) -> bytes:
        taken.append(self.takes("x"))
        return made(self)

    def room(self: GGUFWriter, nbytes: int) -> None:
        taken.append(self.takes("x"))

    made = GGUFWriter._header
    with GGUFWriter(tmp_path / "out.gguf", "jamba") as w:
        monkeypatch.setattr(GGUFWriter, "_header", header)
        monkeypatch.setattr(GGUFWriter, "check_room", room)
        w.declare("x", X.shape, GGMLType.F32)
        w.begin("x")
        assert taken == [False, False]
        assert w.takes("x")
        w.put("x", 0, X.view(np.uint8))
        w.end("x")
    with GGUFFile.open(tmp_path / "out.gguf") as file:
        np.testing.assert_array_equal(file.f32("x"), X)


def test_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    data = bytes(range(68))
    with GGUFWriter(path, "jamba") as w:
        w.add("jamba.block_count", 3)
        w.add("tokens", ["a", "é"])
        w.declare("x", X.shape, GGMLType.F32)
        w.declare("y", (2, 32), GGMLType.Q8_0)
        expected_size = w.nbytes
        w.write("x", X)
        w.write("y", data)
    key_values = [
        b.pair("general.architecture", b.STR, b.string("jamba")),
        b.pair("jamba.block_count", b.U32, b"\3\0\0\0"),
        b.pair("tokens", b.ARR, b.array(b.STR, [b.string("a"), b.string("é")])),
    ]
    infos = [b.info("x", [5, 3], 0, 0), b.info("y", [32, 2], 8, 64)]
    expected = b.changed(key_values=key_values, infos=infos, data=X.tobytes() + bytes(4) + data + bytes(28))
    assert path.read_bytes() == expected
    assert expected_size == len(expected)
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]


@pytest.mark.parametrize(
    ("value", "kind", "stored", "read"),
    [
        (True, None, ValueType.BOOL, True),
        (7, None, ValueType.UINT32, 7),
        (0.5, None, ValueType.FLOAT32, 0.5),
        ("é", None, ValueType.STRING, "é"),
        (np.float32(0.5), None, ValueType.FLOAT32, 0.5),
        (np.int64(7), None, ValueType.UINT32, 7),
        (-7, ValueType.INT32, ValueType.INT32, -7),
        (1, ValueType.FLOAT32, ValueType.FLOAT32, 1.0),
        (1 << 40, ValueType.UINT64, ValueType.UINT64, 1 << 40),
        ([0, 8, -1], None, ArrayOf(ValueType.INT32), [0, 8, -1]),
        ((0.5, 1.0), None, ArrayOf(ValueType.FLOAT32), [0.5, 1.0]),
        ([1, 0.5], None, ArrayOf(ValueType.FLOAT32), [1.0, 0.5]),
        ([True, False], None, ArrayOf(ValueType.BOOL), [True, False]),
        (["a", ""], None, ArrayOf(ValueType.STRING), ["a", ""]),
        ([1, 2], ValueType.UINT8, ArrayOf(ValueType.UINT8), [1, 2]),
        ([1, 2], ArrayOf(ValueType.INT16), ArrayOf(ValueType.INT16), [1, 2]),
        (np.array([1.5, 2], np.float32), None, ArrayOf(ValueType.FLOAT32), [1.5, 2.0]),
        (np.array([1, -2], np.int64), None, ArrayOf(ValueType.INT64), [1, -2]),
        (np.array([1, 2], np.int32), ValueType.UINT32, ArrayOf(ValueType.UINT32), [1, 2]),
    ],
)
def test_types_of_values(tmp_path: Path, value: Any, kind: Any, stored: Any, read: Any) -> None:
    with GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.add("k", value, kind)
    with GGUFFile.open(tmp_path / "out.gguf") as f:
        assert f.value_types["k"] == stored
        back = f.metadata["k"]
        back = back.tolist() if isinstance(stored, ArrayOf) else back
        assert back == read and type(back) is type(read)


def test_empty_arrays_are_skipped_and_later_values_replace_earlier(tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.add("a", 1)
        w.add("none", [])
        w.add("b", 2)
        w.add("a", "one")
    with GGUFFile.open(tmp_path / "out.gguf") as f:
        assert list(f.metadata.items()) == [("general.architecture", "test"), ("a", "one"), ("b", 2)]


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (-1, None, r"^k = -1 cannot be stored as UINT32\.$"),
        (1 << 32, None, r"^k = 4294967296 cannot be stored as UINT32\.$"),
        ([1 << 31], None, r"^k = \[2147483648\] cannot be stored as an array of INT32\.$"),
        (1e300, None, r"^k = 1e\+300 cannot be stored as FLOAT32\.$"),
        (0.5, ValueType.UINT32, r"^k = 0\.5 cannot be stored as UINT32\.$"),
        ("x", ValueType.FLOAT32, r"^k = x cannot be stored as FLOAT32\.$"),
        (3, ValueType.STRING, r"^k = 3 cannot be stored as STRING\.$"),
        (["a", 3], None, r"^k = \['a', 3\] cannot be stored as an array of STRING\.$"),
        ([True, "x"], None, r"cannot be stored as an array of BOOL\.$"),
        ("\ud800", None, r"^k = \\ud800 cannot be stored as STRING\.$"),
        ({"a": 1}, None, r"^k = \{'a': 1\} is of a kind that GGUF metadata cannot hold\.$"),
        (None, None, r"^k = None is of a kind that GGUF metadata cannot hold\.$"),
        ([None], None, r"^k = \[None\] is of a kind that GGUF metadata cannot hold\.$"),
        ([[1]], None, r"^k = \[\[1\]\] is of a kind that GGUF metadata cannot hold\.$"),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, value: Any, kind: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.add("k", value, kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("x", (2, 31), r"^x: row of 31 values is not a multiple of 32 \(Q8_0\)\. Use F16 for it\.$"),
        ("x", (0, 32), r"^x has shape \(0, 32\); GGUF holds 1 to 4 dimensions, none of size 0\.$"),
        ("x", (), r"^x has shape \(\); GGUF holds"),
        ("x", (1, 1, 1, 1, 32), r"^x has shape \(1, 1, 1, 1, 32\); GGUF holds"),
        ("n" * 64, (32,), r"^n{64} has more than the 63 bytes that llama\.cpp allows a name\.$"),
        ("twice", (32,), r"out\.gguf: tensor twice would be written twice\.$"),
    ],
)
def test_tensors_that_cannot_be(tmp_path: Path, name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FormatError, match=message), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.declare("twice", (32,), GGMLType.F32)
        w.declare(name, shape, GGMLType.Q8_0)
    assert list(tmp_path.iterdir()) == []


def begun(w: GGUFWriter) -> None:
    for name in ("x", "y"):
        w.declare(name, X.shape, GGMLType.F32)
    w.write("x", X)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_nothing_stays_after_an_exception(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "out.gguf").write_bytes(b"old")
    with pytest.raises(error), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        begun(w)
        raise error
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"out.gguf": b"old"}


def parts_that_fail() -> Any:
    yield X[:1]
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "misuse",
    [
        lambda w: None,
        lambda w: w.write("z", X),
        lambda w: w.write("y", X[:2]),
        lambda w: w.write("y", [X, X]),
        lambda w: w.add("late", 1),
        lambda w: w.declare("late", (1,), GGMLType.F32),
    ],
    ids=["y never written", "wrong name", "too short", "too long", "late pair", "late tensor"],
)
def test_our_own_mistakes_leave_no_file(tmp_path: Path, misuse: Any) -> None:
    with pytest.raises(AssertionError), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        begun(w)
        misuse(w)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_parts(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        begun(w)
        w.write("y", parts_that_fail())
    assert list(tmp_path.iterdir()) == []


def test_parts_add_up(tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "out.gguf", "test") as w:
        begun(w)
        # Not contiguous, a typed array, bytes.
        w.write("y", [np.repeat(X, 2, axis=1)[:1, ::2], X[1].view("<u4"), X[2].tobytes()])
    with GGUFFile.open(tmp_path / "out.gguf") as f:
        np.testing.assert_array_equal(f.f32("y"), X)


@pytest.mark.parametrize("max_bytes", [0, 400])
def test_put_in_any_order(tmp_path: Path, max_bytes: int) -> None:
    """The same files as sequential writes, also in parts; a part accepts no data before it was begun."""
    rng = np.random.default_rng(0)
    tensors = {name: rng.integers(0, 256, (n, 34), dtype=np.uint8) for name, n in (("a", 3), ("b", 10), ("c", 7))}
    files = []
    for folder in (tmp_path / "written", tmp_path / "put"):
        folder.mkdir()
        out = SplitWriter(folder / "out.gguf", "jamba", max_bytes=max_bytes)
        for name, data in tensors.items():
            out.declare(name, (len(data), 32), GGMLType.Q8_0)
        with out:
            if folder.name == "written":
                for name, data in tensors.items():
                    out.write(name, data)
            else:
                assert not out.takes("a") and not out.takes("b")
                out.begin("a")
                assert out.takes("a") and out.takes("b") is not bool(max_bytes)
                for name, data in tensors.items():
                    if name != "a":
                        out.begin(name)
                    for row in reversed(range(len(data))):
                        out.put(name, 34 * row, data[row])
                    out.end(name)
        files.append([path.read_bytes() for path in out.paths])
    assert files[0] == files[1] and len(files[0]) == (3 if max_bytes else 1)


def test_a_put_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    message = r"out\.gguf cannot be written: No space left on device\. Make room or write elsewhere\.$"
    with pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "out.gguf", "jamba") as w:
        w.declare("x", X.shape, GGMLType.F32)
        w.begin("x")
        w.put("x", 0, X.view(np.uint8))
    assert not list(tmp_path.iterdir())


def test_full_disk_is_seen_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1))
    message = r"out\.gguf needs [\d.]+ K?i?B and its disk has 1 B free\. Make room or write elsewhere\.$"
    with pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        begun(w)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def file_limit() -> Iterator[None]:
    """Writes beyond 64 KiB of a file fail, in the system and not in a mock.

    Not a fixture: pytest's own output, written before fixtures end, may also be a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("n", [20_000, 2_000_000], ids=["found when flushing", "found when writing"])
def test_failing_writes_are_named(tmp_path: Path, n: int) -> None:
    message = r"out\.gguf cannot be written: File too large\. Give another output path\.$"
    with file_limit(), pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.declare("x", (n,), GGMLType.F32)
        w.write("x", np.zeros(n, np.float32))
    assert list(tmp_path.iterdir()) == []


def test_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"out\.gguf cannot be written: No space left on device\. Make room or write elsewhere\.$"
    with pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "out.gguf", "test"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_disk_works_while_more_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, end = threading.Event(), threading.Event()
    together: list[bool] = []

    def sync(fd: int) -> None:
        began.set()
        together.append(end.wait(60))

    def parts() -> Iterator[np.ndarray]:
        yield from np.split(data[:-1000], 39)
        assert began.wait(60)
        end.set()
        yield data[-1000:]

    monkeypatch.setattr(writer, "AHEAD", 5000)
    monkeypatch.setattr(writer, "_sync_data", sync)
    data = np.arange(40_000, dtype=np.float32)
    with GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.declare("x", data.shape, GGMLType.F32)
        w.write("x", parts())
    assert together and all(together)
    with GGUFFile.open(tmp_path / "out.gguf") as f:
        np.testing.assert_array_equal(f.f32("x"), data)


@pytest.mark.parametrize("n_parts", [2, 40], ids=["seen at the end", "seen in between"])
def test_a_disk_that_fails_behind_our_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_parts: int) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(writer, "AHEAD", 5000)
    monkeypatch.setattr(writer, "_sync_data", broken)
    message = r"out\.gguf cannot be written: Input/output error\. Give another output path\.$"
    with pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.declare("x", (40_000,), GGMLType.F32)
        w.write("x", iter(np.split(np.zeros(40_000, np.float32), n_parts)))
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    message = r"none/out\.gguf cannot be written: No such file or directory\. Give another output path\.$"
    with pytest.raises(HybridError, match=message), GGUFWriter(tmp_path / "none" / "out.gguf", "test"):
        pass
    with pytest.raises(UsageError, match=r"is not a regular file\. Give another output path\.$"):
        GGUFWriter(tmp_path, "test").__enter__()


def test_links_are_followed_and_modes_are_ordinary(tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to("real.gguf")
    old = os.umask(0o027)
    try:
        with GGUFWriter(tmp_path / "link.gguf", "test"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "link.gguf").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.gguf").stat().st_mode) == 0o640
    (tmp_path / "real.gguf").chmod(0o604)
    with GGUFWriter(tmp_path / "real.gguf", "test"):
        pass
    assert stat.S_IMODE((tmp_path / "real.gguf").stat().st_mode) == 0o604


def test_pairs_are_copied_byte_for_byte(tmp_path: Path) -> None:
    """Also pairs with strings that are not UTF-8, and of types that `add` would not choose."""
    stored = [
        *b.default_key_values(),
        b.pair("odd", b.ARR, b.array(b.STR, [b.string(b"\xff")])),
        b.pair("i", b.I8, b"\xfb"),
    ]
    (tmp_path / "in.gguf").write_bytes(b.changed(key_values=stored, infos=[], data=b""))
    with GGUFFile.open(tmp_path / "in.gguf") as f, GGUFWriter(tmp_path / "out.gguf", None) as w:
        for key in f.metadata:
            w.add_raw(key, f)
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "in.gguf").read_bytes()


def test_memory_stays_constant(tmp_path: Path) -> None:
    """64 MB in parts of 64 KB: Python's peak allocation stays under 8 MB."""
    tracemalloc = pytest.importorskip("tracemalloc")
    n = 1 << 24
    tracemalloc.start()
    with contextlib.suppress(StopIteration), GGUFWriter(tmp_path / "out.gguf", "test") as w:
        w.declare("x", (n,), GGMLType.F32)
        w.write("x", (np.zeros(1 << 14, np.float32) for _ in range(n >> 14)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{peak / 1e6:.1f} MB")
    assert peak < 8e6
