"""Rotated weights: what a file's keys say, and files that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.unread_keys import check_unread
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import AXIS, PREFIX, TRANSFORM, can_fold, rotation_of
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

SIGNS = np.where(np.arange(96) % 3, 1, -1)
KEYS: dict[str, Any] = {
    "version": 1,
    "block_size": 32,
    "transform": TRANSFORM,
    "axis": AXIS,
    "sign_mode": "explicit",
    "sign_widths": [32, 64],
    "sign_values": SIGNS.tolist(),
    "weight_names": ["output.weight", "blk.0.ffn_down.weight", "blk.0.ssm_out.weight"],
    "inverse_weight_names": ["token_embd.weight"],
    "gdn_v_grouped": True,
}
TENSORS = {
    "token_embd.weight": (8, 32),
    "output.weight": (8, 32),
    "blk.0.ffn_down.weight": (32, 64),
    "blk.0.ssm_out.weight": (32, 64),
    "blk.0.attn_norm.weight": (32,),
}
TIED = {"version": 2, "tied_output": True, "weight_names": KEYS["weight_names"][1:]}


def model(folder: Path, changes: dict[str, Any], arch: str = "qwen35", without: str = "", **more: Any) -> GGUFFile:
    """A file with these keys; None leaves a key out."""
    with GGUFWriter(folder / "m.gguf", arch) as writer:
        writer.add(f"{arch}.ssm.group_count", more.get("n_k", 2))
        writer.add(f"{arch}.ssm.time_step_rank", more.get("n_v", 4))
        for key, value in (KEYS | changes).items():
            if value is not None:
                writer.add(PREFIX + key, value)
        tensors = {name: shape for name, shape in TENSORS.items() if name != without}
        for name, shape in tensors.items():
            writer.declare(name, shape, GGMLType.F32)
        for name, shape in tensors.items():
            writer.write(name, [np.zeros(4 * int(np.prod(shape)), np.uint8)])
    return GGUFFile.open(folder / "m.gguf")


def test_what_is_read(tmp_path: Path) -> None:
    with model(tmp_path, {}) as gguf:
        rotation = rotation_of(gguf)
    assert rotation is not None
    assert (rotation.block, rotation.restored, rotation.heads) == (32, True, (2, 4))
    assert rotation.folded == set(KEYS["weight_names"])
    np.testing.assert_array_equal(rotation.signs[32], SIGNS[:32])
    np.testing.assert_array_equal(rotation.signs[64], SIGNS[32:])
    # four heads of 16 values; heads 0 and 2 have the keys of head 0
    places = rotation.places("blk.0.ssm_out.weight", 64)
    assert places is not None and places.reshape(4, 16)[:, 0].tolist() == [0, 32, 16, 48]
    assert rotation.places("blk.0.ffn_down.weight", 64) is None


def test_other_forms(tmp_path: Path) -> None:
    with model(tmp_path, TIED, without="output.weight") as gguf:
        rotation = rotation_of(gguf)
        assert rotation is not None and rotation.restored and "output.weight" not in rotation.folded
    changes = {"sign_mode": "identity", "sign_widths": None, "sign_values": None, "gdn_v_grouped": None}
    with model(tmp_path, changes | {"inverse_weight_names": None}) as gguf:
        rotation = rotation_of(gguf)
        assert rotation is not None and not rotation.restored and rotation.heads is None
        assert (rotation.signs[64] == 1).all()
    none = dict.fromkeys(KEYS)
    with model(tmp_path, none) as gguf:
        assert rotation_of(gguf) is None


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"version": None}, "version"),
        ({"version": 3}, "version"),
        ({"version": True}, "version"),
        ({"block_size": None}, "block_size"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": 48}, "block_size"),
        ({"block_size": 8}, "block_size"),
        ({"block_size": 64}, "block_size"),
        ({"transform": "haar"}, "transform"),
        ({"axis": "output"}, "axis"),
        ({"sign_mode": "random"}, "sign_mode"),
        ({"sign_widths": None}, "sign_widths"),
        ({"sign_widths": [32, 48]}, "sign_widths"),
        ({"sign_widths": [32, 32]}, "sign_widths"),
        ({"sign_widths": [32], "sign_values": SIGNS[:32].tolist()}, "sign_widths"),
        ({"sign_values": SIGNS[:95].tolist()}, "sign_values"),
        ({"sign_values": [0, *SIGNS[1:].tolist()]}, "sign_values"),
        ({"weight_names": None}, "weight_names"),
        ({"weight_names": ["output.weight"] * 2}, "weight_names"),
        ({"weight_names": ["blk.9.ffn_down.weight"]}, "weight_names"),
        ({"weight_names": ["blk.0.attn_norm.weight"]}, "weight_names"),
        ({"weight_names": ["token_embd.weight"]}, "weight_names"),
        ({"inverse_weight_names": ["output.weight"]}, "inverse_weight_names"),
        ({"tied_output": True}, "tied_output"),
        ({"version": 2}, "tied_output"),
        (TIED, "tied_output"),
        (TIED | {"inverse_weight_names": None}, "tied_output"),
        ({"gdn_v_grouped": 1}, "gdn_v_grouped"),
    ],
)
def test_refused_keys(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    with (
        model(tmp_path, changes) as gguf,
        pytest.raises(UnsupportedError, match=rf"prism\.hadamard\.{key} = .* expected .* the result would be noise"),
    ):
        rotation_of(gguf)


def test_kinds_of_matrices() -> None:
    """Other programs have a list for the architectures that they know; elsewhere all products rotate their inputs."""
    for arch, more in (("qwen35", False), ("llama", False), ("mamba2", True)):
        assert can_fold("blk.0.ffn_up_exps.weight", arch) and can_fold("output.weight", arch)
        assert can_fold("blk.3.ssm_in.weight", arch) == more
        assert not can_fold("token_embd.weight", arch)
    assert not can_fold("blk.0.attn_output_a.weight", "deepseek4")


def test_other_refusals(tmp_path: Path) -> None:
    with model(tmp_path, {}, n_k=3) as gguf, pytest.raises(UnsupportedError, match="4 on 3 heads of keys"):
        rotation_of(gguf)
    with model(tmp_path, {}, n_k=1, n_v=3) as gguf, pytest.raises(UnsupportedError, match="3 on 1 heads of keys"):
        rotation_of(gguf)
    with (
        model(tmp_path, {"weight_names": KEYS["weight_names"][1:]}, without="output.weight") as gguf,
        pytest.raises(UnsupportedError, match=r"inverse_weight_names = .* output\.weight beside"),
    ):
        rotation_of(gguf)
    with model(tmp_path, {"new": 1}) as gguf, pytest.raises(UnsupportedError, match=r"prism\.hadamard\.new = 1"):
        check_unread(gguf, "qwen35", {"qwen35.ssm.group_count", "qwen35.ssm.time_step_rank"})
