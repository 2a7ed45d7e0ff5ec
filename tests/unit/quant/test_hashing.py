"""Hashes of weights, of single tensors and of all tensors; lists of hashes."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import xxhash

from hybrid.quant import hashing as h
from hybrid.quant import rewrite
from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

KINDS = tuple(h.HashKind)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with GGUFWriter(tmp_path / "m.gguf", "llama") as writer:
        for name, n in (("a", 100), ("b", 7), ("c", 33)):
            writer.declare(name, (n,), GGMLType.F32)
        for info in writer.declared:
            writer.write(info.name, content(info.name))
    return tmp_path / "m.gguf"


def content(name: str) -> np.ndarray:
    return np.random.default_rng(ord(name)).standard_normal({"a": 100, "b": 7, "c": 33}[name]).astype(np.float32)


def test_of_tensors_and_of_all(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "COPIED_NBYTES", 50)
    digests = {(line.kind, line.tensor): line.digest for line in h.hashes(file, KINDS)}
    every = b"".join(content(name).tobytes() for name in "abc")
    for name, data in (("a", content("a").tobytes()), ("c", content("c").tobytes()), ("", every)):
        assert digests["sha1", name] == hashlib.sha1(data, usedforsecurity=False).hexdigest()
        assert digests["sha256", name] == hashlib.sha256(data).hexdigest()
        assert digests["xxh64", name] == xxhash.xxh64_hexdigest(data)
    assert len(digests) == 3 * 4 + 1 and digests["uuid", ""][14] == "5"
    first = rewrite.split(file, tmp_path / "p", max_tensors=2).parts[0].path
    assert {(line.kind, line.tensor): line.digest for line in h.hashes(first, KINDS)} == digests
    assert [line.tensor for line in h.hashes(file, tensors=False)] == [""]


def test_manifests(file: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list"
    lines = [f"{m.kind:<8}  {m.digest}  some/m.gguf{m.tensor and ':' + m.tensor}" for m in h.hashes(file, KINDS)]
    listed.write_text("\n".join(lines) + "\n")
    manifest = h.read_manifest(listed)
    assert all(line.matches for line in h.hashes(file, KINDS, manifest=manifest))
    manifest["sha1", "b"] = "0" * 40
    del manifest["sha1", "c"]
    verdicts = {line.tensor: line.matches for line in h.hashes(file, [h.HashKind.SHA1], manifest=manifest)}
    assert verdicts == {"a": True, "b": False, "c": None, "": True}


def test_files_that_are_not_manifests(tmp_path: Path) -> None:
    path = tmp_path / "list"
    with pytest.raises(UsageError, match=r"list cannot be read: No such file"):
        h.read_manifest(path)
    for text, says in (
        ("", "holds no hashes"),
        ("md5 1 a.gguf", "line 1: expected `kind"),
        ("sha1 12", "line 1: expected"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=says):
            h.read_manifest(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="is not a list of hashes") as refused:
        h.read_manifest(path)
    assert refused.value.remedy is Remedy.MAKE_HASHES
