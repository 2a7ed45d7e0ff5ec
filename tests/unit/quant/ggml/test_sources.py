"""Pipes and devices are refused by name before they are opened: opening a pipe would wait."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrid.convert.checkpoint import Checkpoint
from hybrid.convert.checkpoint.config import read_json
from hybrid.convert.checkpoint.tensor import DataFile
from hybrid.infer.evaluate.kl_divergence import BaseFile
from hybrid.infer.memory.llama_session import tokens_in
from hybrid.infer.memory.state_file import read_state
from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.sources import check_source
from hybrid.quant.imatrix import Imatrix

READERS: dict[str, Callable[[Path], object]] = {
    "GGUF": GGUFFile.open,
    "adapter": lambda path: Adapter.open((path, 1.0), "llama"),
    "weights": DataFile,
    "JSON": read_json,
    "importance matrix": Imatrix.read,
    "base file": BaseFile,
    "state": read_state,
    "session": tokens_in,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_device_is_refused(reader: str, tmp_path: Path) -> None:
    """A device stands in for a pipe, on which a failing test would hang."""
    path = tmp_path / "input"
    path.symlink_to("/dev/null")
    with pytest.raises(HybridError, match=r"input.* is not a regular file"):
        READERS[reader](path)


def test_a_pipe_in_the_folder_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "model.safetensors")
    # with a writer, opening the pipe does not wait; there would be no file of tensors in it
    ends = os.open(tmp_path / "model.safetensors", os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(UsageError, match=r"model\.safetensors is not a regular file\. Give the path of the weights\."):
        _ = Checkpoint(tmp_path).tensors
    os.close(ends)


def test_what_opening_explains_passes(tmp_path: Path) -> None:
    check_source(tmp_path, "a file")
    check_source(tmp_path / "nothing", "a file")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    check_source(tmp_path / "link", "a file")
