"""Keys of towers: which file has a tower, how its keys are read, and files that lie."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.errors import FormatError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.vision import tower
from hybrid.quant.ggml.writer import GGUFWriter

SIZES: dict[str, Any] = {
    "clip.vision.block_count": 3, "clip.vision.embedding_length": 20, "clip.vision.feed_forward_length": 28,
    "clip.vision.attention.head_count": 5, "clip.vision.projection_dim": 18, "clip.vision.patch_size": 6,
}  # fmt: skip
Make = Callable[..., GGUFFile]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A file with these keys, and as many tensors as a tower of 3 layers has at least. None: the key is left out."""

    def make(kind: Any = "qwen3vl_merger", arch: str = "clip", **changes: Any) -> GGUFFile:
        values = {"clip.projector_type": kind, **SIZES, **{name.replace("__", "."): x for name, x in changes.items()}}
        with GGUFWriter(tmp_path / "mmproj.gguf", arch) as writer:
            for key, value in values.items():
                if value is not None:
                    writer.add(key, value)
            for i in range(4):
                writer.declare(f"v.blk.{i}.ln1.weight", (20,), GGMLType.F32)
            for i in range(4):
                writer.write(f"v.blk.{i}.ln1.weight", np.zeros(20, np.float32))
        return GGUFFile.open(tmp_path / "mmproj.gguf")

    return make


def test_defaults(made: Make) -> None:
    h = tower.read_tower(made())
    assert isinstance(h, tower.QwenVlHparams)
    assert (h.n_layer, h.n_embd, h.n_ff, h.n_head, h.n_out, h.patch_size) == (3, 20, 28, 5, 18, 6)
    assert (h.n_merge, h.deepstack, h.freq_base, h.eps) == (2, (), 10000.0, 1e-6)


def test_the_epsilon_of_norms(made: Make) -> None:
    """Qwen's towers have a fixed one, whatever the file says; a key of ours comes first."""
    stated = {"clip__vision__attention__layer_norm_epsilon": 0.5}
    assert tower.read_tower(made(**stated)).eps == 1e-6
    assert tower.read_tower(made("idefics3", clip__vision__image_size=24, **stated)).eps == 0.5
    own = {"hybrid__vision__attention__layer_norm_epsilon": 0.25}
    assert tower.read_tower(made("gemma4v", **stated, **own)).eps == 0.25


def test_layers_that_see_the_whole_picture(made: Make) -> None:
    h = tower.read_tower(made("qwen2.5vl_merger", clip__vision__n_wa_pattern=2))
    assert isinstance(h, tower.Qwen25VlHparams) and h.is_full == (False, True, False)
    h = tower.read_tower(made("qwen2.5vl_merger", hybrid__vision__full_attention_layers=[0, 2]))
    assert isinstance(h, tower.Qwen25VlHparams) and h.is_full == (True, False, True)
    h = tower.read_tower(made("qwen2.5vl_merger"))
    assert isinstance(h, tower.Qwen25VlHparams) and h.is_full == (False, False, False)


def test_values_per_layer_and_lists(made: Make) -> None:
    h = tower.read_tower(made("lfm3", clip__vision__attention__head_count_kv=[0, 2, 0]))
    assert isinstance(h, tower.Lfm3VlHparams) and h.n_head_kv == (0, 2, 0)
    h = tower.read_tower(made(clip__vision__is_deepstack_layers=[True, False, True]))
    assert isinstance(h, tower.QwenVlHparams) and h.deepstack == (True, False, True)


def test_files_of_gemma4_name_the_tower_s_projector(made: Make) -> None:
    assert tower.projector_of(made(None, clip__vision__projector_type="gemma4v")) == "gemma4v"


def test_a_text_model_is_no_tower(made: Make) -> None:
    gguf = made(arch="llama")
    assert not tower.is_tower(gguf)
    with pytest.raises(
        FormatError, match=r"mmproj.gguf holds no vision tower but a model of architecture llama\. Give"
    ):
        tower.read_tower(gguf)


@pytest.mark.parametrize("kind", ["pixtral", None, 7, [1, 2], ""])
def test_an_unknown_kind_is_named(kind: Any, made: Make) -> None:
    with pytest.raises(UnsupportedError, match=r"clip.projector_type is .*, expected one of qwen2.5vl_merger, qwen3vl"):
        tower.read_tower(made(kind))


GRANITE = {
    "clip__vision__feature_layer": [0, 1], "clip__vision__projector__spatial_offsets": [-1, 0],
    "clip__vision__projector__query_side": 1, "clip__vision__projector__window_side": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        *(("qwen3vl_merger", {name: None}, f"has no key {name}") for name in SIZES),
        *(("qwen3vl_merger", {name: 0}, f"{name} = 0, expected an integer of at least 1") for name in SIZES),
        ("qwen3vl_merger", {"clip.vision.block_count": 9}, "no more layers than its 4 tensors can make"),
        ("qwen3vl_merger", {"clip.vision.embedding_length": "x"}, "embedding_length = .x., expected an integer"),
        ("qwen3vl_merger", {"clip.vision.is_deepstack_layers": [1, 0, 1]}, "expected a list of true or false"),
        ("qwen3vl_merger", {"clip.vision.spatial_merge_size": 2.5}, "spatial_merge_size = 2.5, expected an integer"),
        ("qwen3vl_merger", {"hybrid.vision.rope.freq_base": float("nan")}, "freq_base = nan, expected a finite number"),
        ("qwen2.5vl_merger", {"hybrid.vision.full_attention_layers": [1, -2]}, "full_attention_layers = -2, expected"),
        ("qwen2.5vl_merger", {"hybrid.vision.full_attention_layers": 3}, "expected a list of numbers"),
        ("lfm3", {"clip.vision.attention.head_count_kv": [1, 2]}, "head_count_kv has 2 values for 3 layers"),
        ("idefics3", {}, "has no key clip.vision.image_size"),
        ("granite4_vision", {**GRANITE, "clip.vision.projector.spatial_offsets": [-2, 0]}, "spatial_offsets = -2"),
        ("granite4_vision", {**GRANITE, "clip.vision.feature_layer": None}, "has no key clip.vision.feature_layer"),
    ],
)
def test_damaged_keys_are_named(kind: str, changed: dict[str, Any], message: str, made: Make) -> None:
    with pytest.raises(FormatError, match=message):
        tower.read_tower(made(kind, **changed))
