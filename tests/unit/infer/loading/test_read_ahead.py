"""Which bytes are read ahead, in which order, and when none are."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.infer.loading import read_ahead
from hybrid.infer.loading.read_ahead import Extent, ReadAhead, extents
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import SplitWriter, open_gguf
from hybrid.quant.ggml.types import FileType, GGMLType

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="no other system says what it holds")
SIZES = {"a": 3 << 20, "b": 9 << 20, "c": 1 << 20}
MAMBA = ModelShape("ahead-mamba", "mamba", 2, 64, 320, 512, 1e-5, d_state=16, dt_rank=4)


def written(path: Path, max_tensors: int = 0) -> Path:
    writer = SplitWriter(path, "llama", max_tensors=max_tensors)
    for name, nbytes in SIZES.items():
        writer.declare(name, (nbytes // 4,), GGMLType.F32)
    with writer:
        for name, nbytes in SIZES.items():
            writer.write(name, np.zeros(nbytes, np.uint8))
    return writer.paths[0]


def test_neighbours_are_one_extent(tmp_path: Path) -> None:
    with GGUFFile.open(written(tmp_path / "m.gguf")) as gguf:
        a, b, c = (gguf.info(name) for name in SIZES)
        assert extents(gguf, ["c", "a", "b", "c"]) == [
            Extent(gguf.path, c.offset, c.offset + c.nbytes),
            Extent(gguf.path, a.offset, b.offset + b.nbytes),
        ]
    with open_gguf(written(tmp_path / "parts.gguf", max_tensors=1)) as gguf:
        assert [e.path for e in extents(gguf, SIZES)] == [part.path for part in gguf.parts]


@on_linux
@pytest.mark.parametrize("max_tensors", [0, 1])
def test_what_is_not_held_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_tensors: int) -> None:
    preadv = os.preadv
    read: list[tuple[int, int]] = []

    def nothing_held(fd: int, buffers: list[memoryview], at: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError(11, "not held")
        read.append((at, len(buffers[0])))
        return preadv(fd, buffers, at)

    with open_gguf(written(tmp_path / "m.gguf", max_tensors)) as gguf:
        ahead = ReadAhead(gguf, SIZES)
        ahead.wait()
        assert ahead.n_read == 0, "just written, so it is in memory"
        monkeypatch.setattr(os, "preadv", nothing_held)
        ahead = ReadAhead(gguf, ["b", "a"])
        ahead.wait()
        assert ahead.n_read == SIZES["a"] + SIZES["b"] == sum(n for _, n in read)
        assert read[0][0] == gguf.info("b").offset and max(n for _, n in read) == read_ahead.BLOCK

        monkeypatch.setattr(read_ahead, "machine_memory", lambda: MachineMemory.of(ahead.n_read - 1))
        larger = ReadAhead(gguf, ["b", "a"])
        larger.wait()
        assert larger.n_read == 0, "would not stay in memory"


@on_linux
def test_it_ends_where_it_is_told_to_and_where_the_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    with GGUFFile.open(written(tmp_path / "m.gguf")) as gguf:
        monkeypatch.setattr(read_ahead, "is_held", lambda fd, at: False)
        made: list[ReadAhead] = []
        told = threading.Event()

        def once(fd: int, buffers: list[memoryview], at: int) -> int:
            assert told.wait(60)
            made[0].stop()
            return preadv(fd, buffers, at)

        monkeypatch.setattr(os, "preadv", once)
        made.append(ReadAhead(gguf, ["b"]))
        told.set()
        made[0].wait()
        assert made[0].n_read == read_ahead.BLOCK
        monkeypatch.setattr(os, "preadv", lambda *args: 0)
        short = ReadAhead(gguf, ["b"])
        short.wait()
        assert short.n_read == 0
    gone = tmp_path / "gone.gguf"
    with GGUFFile.open(written(gone)) as gguf:
        gone.unlink()
        ReadAhead(gguf, ["b"]).wait()


def test_a_model_asks_for_its_matrices_in_order(tmp_path: Path) -> None:
    path = write_shape(MAMBA, tmp_path / "m.gguf", FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=64) as model:
        names = model.engine.network.read_by_passes()
        blocks = [name for name in names if name.startswith("blk.")]
        assert blocks[0] == "blk.0.ssm_in.weight"
        assert [name[:6] for name in blocks] == sorted(name[:6] for name in blocks)
        tied = "output.weight" not in model.gguf.tensors
        assert names[-1] == ("token_embd.weight" if tied else "output.weight")
        assert names.count("token_embd.weight") == tied
        assert model.engine._read_ahead is not None  # from the load on
