"""llama.cpp's programs on our files with vision towers: it loads them and answers about a picture, and llama-quantize
makes the bytes that `quantize` makes.

    PEER=path/to/llama.cpp/build/bin pytest tests/golden/test_peer_towers.py
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hybrid.convert import convert
from hybrid.quant import quantize
from hybrid.quant.ggml.reader import GGUFFile

PEER = os.environ.get("PEER", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs"),
]
# not smolvlm: llama.cpp looks up tokens that its tiny vocabulary lacks; not lfm3-vl: llama.cpp has no such tower
NAMES = ("qwen35-vl", "qwen3-vl", "qwen25-vl", "lfm2-vl", "gemma3-vl", "gemma4-vl", "granite4-vision")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("towers")


def converted(name: str, folder: Path, shared_dir: Path) -> tuple[Path, Path]:
    """The text model and the tower of a checkpoint."""
    report = convert(shared_dir / "checkpoints" / name, folder / f"{name}.gguf")
    assert report.vision is not None
    return report.output, report.vision.output


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_about_a_picture(name: str, folder: Path, shared_dir: Path) -> None:
    model, tower = converted(name, folder, shared_dir)
    picture = shared_dir / "checkpoints" / name / "golden" / "images" / "image_2.png"
    command = [
        Path(PEER, "llama-mtmd-cli"),
        "-m",
        model,
        "--mmproj",
        tower,
        "--image",
        picture,
        "-p",
        "What",
        "-n",
        "4",
    ]
    done = subprocess.run([*command, "-t", "1", "-c", "1024", "--jinja"], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]


@pytest.mark.parametrize("name", (*NAMES, "smolvlm"))
def test_quantized_bytes(name: str, folder: Path, shared_dir: Path) -> None:
    """Except for the projector of Gemma 3 and 4, which stays F16."""
    _, tower = converted(name, folder, shared_dir)
    ours, peers = folder / f"{name}.ours.gguf", folder / f"{name}.peers.gguf"
    quantize(tower, ours, "Q8_0")
    subprocess.run([Path(PEER, "llama-quantize"), tower, peers, "Q8_0", "1"], check=True, capture_output=True)
    with GGUFFile.open(ours) as one, GGUFFile.open(peers) as other:
        assert list(one.tensors) == list(other.tensors)
        assert {key: one.pair(key) for key in one.metadata} == {key: other.pair(key) for key in other.metadata}
        for tensor in one.tensors:
            if tensor != "mm.input_projection.weight":
                assert one.tensors[tensor].type is other.tensors[tensor].type, tensor
                assert np.array_equal(one.raw(tensor).reshape(-1), other.raw(tensor).reshape(-1)), tensor
